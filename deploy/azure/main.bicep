// Everything a board on Azure Table Storage needs: the table, an identity that may use it, and N
// workers on Container Apps. README.md beside this file has the commands.
//
// The board's account accepts no keys: roles decide what may be done to the table. Nothing here is a
// secret, and no output shows one.

@description('Where everything is, by default where the resource group is.')
param location string = resourceGroup().location

@description('The image of the workers, with its tag: REGISTRY.azurecr.io/blackboard:0.1.0')
param image string

@description('The Azure container registry of this resource group that has the image. None: the image is public.')
param registry string = ''

@description('How many workers. They share the work, whatever their number.')
@minValue(1)
@maxValue(300)
param workers int = 3

@description('Seconds that a run may go on after its worker was asked to stop.')
@minValue(0)
@maxValue(540) // Container Apps waits 600 s at the most.
param grace int = 300

var tableName = 'blackboard'
var settings = loadTextContent('../kubernetes/blackboard.toml')
var tableDataContributor = subscriptionResourceId('Microsoft.Authorization/roleDefinitions', '0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3')
var acrPull = subscriptionResourceId('Microsoft.Authorization/roleDefinitions', '7f951dda-4ed3-4680-a7ca-43fe172d538d')

resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: 'blackboard'
  location: location
}

// The board.

resource account 'Microsoft.Storage/storageAccounts@2023-05-01' = {
  name: 'board${uniqueString(resourceGroup().id)}'
  location: location
  kind: 'StorageV2'
  sku: {
    name: 'Standard_LRS'
  }
  properties: {
    allowSharedKeyAccess: false
    allowBlobPublicAccess: false
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
  }
}

resource tables 'Microsoft.Storage/storageAccounts/tableServices@2023-05-01' = {
  parent: account
  name: 'default'
}

resource table 'Microsoft.Storage/storageAccounts/tableServices/tables@2023-05-01' = {
  parent: tables
  name: tableName
}

// Of this one table, not of the account.
resource mayUseTable 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  scope: table
  name: guid(table.id, identity.id, tableDataContributor)
  properties: {
    principalId: identity.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: tableDataContributor
  }
}

// What handlers write to /out.
//
// Container Apps mounts a share by its account's key, or by NFS, which needs premium storage and a
// network of its own. A key opens everything in its account; so the share has an account to itself,
// and the board's does without keys. The key goes from Azure to Azure and is never shown.

resource files 'Microsoft.Storage/storageAccounts@2023-05-01' = {
  name: 'out${uniqueString(resourceGroup().id)}'
  location: location
  kind: 'StorageV2'
  sku: {
    name: 'Standard_LRS'
  }
  properties: {
    allowSharedKeyAccess: true
    allowBlobPublicAccess: false
    minimumTlsVersion: 'TLS1_2'
    supportsHttpsTrafficOnly: true
  }
}

resource shares 'Microsoft.Storage/storageAccounts/fileServices@2023-05-01' = {
  parent: files
  name: 'default'
}

resource share 'Microsoft.Storage/storageAccounts/fileServices/shares@2023-05-01' = {
  parent: shares
  name: 'out'
  properties: {
    shareQuota: 100
  }
}

// The workers. There is no workspace for logs: `az containerapp logs show --follow` reads them as
// they come, and what ran, and how it ended, is in the board.

resource environment 'Microsoft.App/managedEnvironments@2024-03-01' = {
  name: 'blackboard'
  location: location
  properties: {}
}

resource out 'Microsoft.App/managedEnvironments/storages@2024-03-01' = {
  parent: environment
  name: 'out'
  properties: {
    azureFile: {
      accountName: files.name
      accountKey: files.listKeys().keys[0].value
      shareName: share.name
      accessMode: 'ReadWrite'
    }
  }
}

resource pull 'Microsoft.ContainerRegistry/registries@2023-07-01' existing = if (!empty(registry)) {
  name: empty(registry) ? 'unused' : registry
}

resource mayPull 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!empty(registry)) {
  scope: pull
  name: guid(resourceGroup().id, registry, identity.id, acrPull)
  properties: {
    principalId: identity.properties.principalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: acrPull
  }
}

resource app 'Microsoft.App/containerApps@2024-03-01' = {
  name: 'blackboard'
  location: location
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${identity.id}': {}
    }
  }
  properties: {
    environmentId: environment.id
    configuration: {
      // New workers are started before the old ones are stopped.
      activeRevisionsMode: 'Single'
      registries: empty(registry) ? [] : [
        {
          server: '${registry}.azurecr.io'
          identity: identity.id
        }
      ]
      // Container Apps puts files into a container from secrets alone. This one is none.
      secrets: [
        {
          name: 'settings'
          value: settings
        }
      ]
    }
    template: {
      // After the grace, a worker puts back what it cut short.
      terminationGracePeriodSeconds: grace + 60
      scale: {
        minReplicas: workers
        maxReplicas: workers
      }
      containers: [
        {
          name: 'worker'
          image: image
          args: [
            'worker'
            '--init'
            '--grace'
            '${grace}s'
          ]
          env: [
            {
              name: 'BLACKBOARD_STORE'
              value: '${account.properties.primaryEndpoints.table}${tableName}'
            }
            {
              name: 'AZURE_CLIENT_ID'
              value: identity.properties.clientId
            }
            // A change of secrets alone makes no new revision; a change of this does.
            {
              name: 'SETTINGS_DIGEST'
              value: uniqueString(settings)
            }
          ]
          resources: {
            cpu: json('0.5')
            memory: '1Gi'
          }
          volumeMounts: [
            {
              volumeName: 'settings'
              mountPath: '/blackboard'
            }
            {
              volumeName: 'out'
              mountPath: '/out'
            }
          ]
        }
      ]
      volumes: [
        {
          name: 'settings'
          storageType: 'Secret'
          secrets: [
            {
              secretRef: 'settings'
              path: 'blackboard.toml'
            }
          ]
        }
        {
          name: 'out'
          storageType: 'AzureFile'
          storageName: out.name
          // The workers are not root: who they are is said in the Dockerfile.
          mountOptions: 'uid=10001,gid=10001,dir_mode=0770,file_mode=0660'
        }
      ]
    }
  }
  dependsOn: [
    mayPull
    mayUseTable
  ]
}

@description('For --store and BLACKBOARD_STORE.')
output store string = '${account.properties.primaryEndpoints.table}${tableName}'

@description('The account that has the share `out`.')
output outAccount string = files.name
