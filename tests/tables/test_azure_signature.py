"""Shared access signatures of the emulator, with the permissions that docs/azure.md names."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import AccountSasPermissions, ResourceTypes, generate_account_sas

from blackboard.clock import SystemClock
from blackboard.stores import open_table
from blackboard.table import Insert, Unusable
from blackboard.tables.azure_address import CONNECTION_STRING
from blackboard.tables.azure_credentials import EMULATOR_KEY
from blackboard.tables.azurite import Emulator
from tests.support.azurite_client import ACCOUNT
from tests.support.stores import rows_of


def signed(emulator: Emulator, permissions: str) -> str:
    signature = generate_account_sas(
        AzureNamedKeyCredential(ACCOUNT, EMULATOR_KEY),
        ResourceTypes(service=True, container=True, object=True),
        AccountSasPermissions.from_string(permissions),
        datetime.now(UTC) + timedelta(hours=1),
    )
    endpoint = f"http://127.0.0.1:{emulator.port}/{ACCOUNT}"
    return f"TableEndpoint={endpoint};SharedAccessSignature={signature}"


def test_the_documented_permissions_are_enough_once_the_table_is_made(
    azurite: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"azurite://127.0.0.1:{azurite.port}/test{uuid4().hex}"

    async def used(permissions: str, *, create: bool) -> None:
        monkeypatch.setenv(CONNECTION_STRING, signed(azurite, permissions))
        table = await open_table(url, SystemClock(), create=create)
        try:
            await table.commit("p", [Insert(permissions, {"n": 1})])
            assert permissions in [row.key for row in await rows_of(table, "p")]
        finally:
            await table.close()

    with pytest.raises(Unusable, match=r"and c, to make the table"):
        asyncio.run(used("raud", create=True))
    asyncio.run(used("raudc", create=True))
    asyncio.run(used("raud", create=False))
