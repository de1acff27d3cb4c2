"""Who asks an Azure table: what the environment says, and what is refused without repeating it."""

import asyncio
import base64
import os
import traceback
from importlib.util import find_spec
from pathlib import Path

import pytest
import trustme
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.identity import aio
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from blackboard.errors import BadInput, BlackboardError, StoreProblem
from blackboard.tables.azure_address import azure_address
from blackboard.tables.azure_credentials import (
    EMULATOR_KEY,
    Credential,
    Proof,
    Tokens,
    credential_for,
)

AT_ANN = "https://ann.table.core.windows.net"
ANN = AT_ANN + "/town"
OWN = "https://tables.town.example/town"
EMULATOR = "devstoreaccount1"
KEY = base64.b64encode(b"canary" * 10 + b"key!").decode()
SIGNATURE = "sv=2021-12-02&ss=t&srt=sco&sp=raud&se=2099-01-01&sig=uB7x%2Fq0Zk3mW%2BV9dYt4s8%3D"
SIGNED = f"SharedAccessSignature={SIGNATURE}"


@pytest.fixture(autouse=True)
def _nobody_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*os.environ]:
        if name.startswith(("AZURE_", "BLACKBOARD_", "IDENTITY_", "MSI_", "IMDS_")):
            monkeypatch.delenv(name)


def who_asks(url: str, said: str | None = None, *, interactive: bool = False) -> Credential:
    """Who asks for `url`, with `said` as the connection string; closed, and closed again."""

    def lookup(name: str) -> str | None:
        return said if name == "BLACKBOARD_CONNECTION_STRING" else os.getenv(name)

    async def story() -> Credential:
        found = credential_for(azure_address(url), lookup, interactive=interactive)
        await found.close()
        await found.close()
        return found

    return asyncio.run(story())


# ---- connection strings

KEYS = [
    (ANN, f"AccountName=ann;AccountKey={KEY}", "ann"),
    (ANN, f"accountkey={KEY};ACCOUNTNAME=ann;", "ann"),
    (ANN, f" AccountName = ann ; AccountKey = {KEY} ", "ann"),
    (
        ANN,
        f"DefaultEndpointsProtocol=https;AccountName=ann;AccountKey={KEY};EndpointSuffix=x",
        "ann",
    ),
    (ANN, f"AccountName=ann;AccountKey={KEY};TableEndpoint={AT_ANN}/", "ann"),
    (ANN, f"AccountKey={KEY};TableEndpoint={AT_ANN}", "ann"),
    (OWN, f"AccountName=eve;AccountKey={KEY}", "eve"),
    ("azurite:", f"AccountName={EMULATOR};AccountKey={KEY}", EMULATOR),
    (
        "azurite://localhost:7000/town",
        f"AccountName={EMULATOR};AccountKey={KEY};TableEndpoint=http://localhost:7000/{EMULATOR}",
        EMULATOR,
    ),
]


@pytest.mark.parametrize(("url", "said", "account"), KEYS)
def test_an_account_key_signs_for_its_account(url: str, said: str, account: str) -> None:
    found = who_asks(url, said)
    assert isinstance(found.azure, AzureNamedKeyCredential)
    assert tuple(found.azure.named_key) == (account, KEY)
    assert found.proof is Proof.KEY


@pytest.mark.parametrize(
    "said", [None, "", "UseDevelopmentStorage=true", "usedevelopmentstorage=TRUE;"]
)
@pytest.mark.parametrize("url", ["azurite:", "azurite://127.0.0.1:7000/town"])
def test_the_emulator_is_asked_with_the_key_that_everybody_knows(
    url: str, said: str | None
) -> None:
    found = who_asks(url, said)
    assert isinstance(found.azure, AzureNamedKeyCredential)
    assert tuple(found.azure.named_key) == (EMULATOR, EMULATOR_KEY)


SIGNATURES = [
    (ANN, f"TableEndpoint={AT_ANN}/;{SIGNED}"),
    (ANN, f"BlobEndpoint=https://ann.blob.core.windows.net/;TableEndpoint={AT_ANN}/;{SIGNED}"),
    (ANN, SIGNED.replace("=", "=?", 1)),
    (ANN, f"AccountName=ann;{SIGNED};"),
    (OWN, f"TableEndpoint=https://tables.town.example/;{SIGNED}"),
    ("azurite:", f"TableEndpoint=http://127.0.0.1:10002/{EMULATOR};{SIGNED}"),
]


@pytest.mark.parametrize(("url", "said"), SIGNATURES)
def test_a_shared_access_signature_is_sent_as_it_is(url: str, said: str) -> None:
    found = who_asks(url, said)
    assert isinstance(found.azure, AzureSasCredential)
    assert found.azure.signature == SIGNATURE
    assert found.proof is Proof.SIGNATURE


REFUSED: list[tuple[str, str, type[BlackboardError], str]] = [
    (ANN, KEY, BadInput, "no connection string"),
    (ANN, f"AccountName=ann;{KEY}", BadInput, "no connection string"),
    (ANN, f"AccountName=ann;AccountKey={KEY};AccountKey={KEY}", BadInput, "no connection string"),
    (ANN, f"AccountName=;AccountKey={KEY}", BadInput, "no connection string"),
    (ANN, SIGNATURE, BadInput, "AccountKey or SharedAccessSignature, one of them"),
    (ANN, "AccountName=ann", BadInput, "AccountKey or SharedAccessSignature, one of them"),
    (ANN, f"AccountName=ann;AccountKey={KEY};{SIGNED}", BadInput, "one of them"),
    (ANN, f"AccountKey={KEY}", BadInput, "no AccountName"),
    (ANN, f"AccountName=ann;AccountKey={KEY[:-3]}", BadInput, "not whole"),
    (ANN, f"AccountName=ann;AccountKey=*{KEY}", BadInput, "not whole"),
    (ANN, f"TableEndpoint=https://[;{SIGNED}", BadInput, "TableEndpoint is not an address"),
    (ANN, f"AccountName=bob;AccountEndpoint=https://[;AccountKey={KEY}", BadInput, "account bob"),
    (ANN, f"TableEndpoint=ann;{SIGNED}", BadInput, "TableEndpoint is not an address"),
    (
        ANN,
        f"TableEndpoint={AT_ANN}?{SIGNATURE};{SIGNED}",
        BadInput,
        "TableEndpoint is not an address",
    ),
    (
        ANN,
        f"AccountName=bob;AccountKey={KEY}",
        BadInput,
        "of account bob, and the store of account ann",
    ),
    (
        ANN,
        "UseDevelopmentStorage=true",
        BadInput,
        f"account {EMULATOR}, and the store of account ann",
    ),
    (ANN, f"TableEndpoint=https://bob.table.core.windows.net;{SIGNED}", BadInput, "account bob"),
    (
        ANN,
        f"TableEndpoint=https://ann.table.core.windows.net.eve.example;{SIGNED}",
        BadInput,
        "eve.ex",
    ),
    (OWN, f"TableEndpoint={AT_ANN};{SIGNED}", BadInput, "store of tables.town.example"),
    ("azurite:", f"AccountName=ann;AccountKey={KEY}", BadInput, f"store of account {EMULATOR}"),
    ("azurite:", f"TableEndpoint=http://127.0.0.1:7000/{EMULATOR};{SIGNED}", BadInput, ":7000"),
    (
        ANN,
        f"AccountName=ann;AccountKey={KEY};EndpointSuffix=cosmos.azure.com",
        StoreProblem,
        "Cosmos",
    ),
    (
        ANN,
        f"AccountName=ann;AccountKey={KEY};TableEndpoint=https://ann.table.cosmos.azure.com:443/",
        StoreProblem,
        "Cosmos",
    ),
    (
        ANN,
        f"AccountEndpoint=https://ann.documents.azure.com:443/;AccountKey={KEY}",
        StoreProblem,
        "Cosmos",
    ),
]


@pytest.mark.parametrize(("url", "said", "kind", "words"), REFUSED)
def test_a_connection_string_that_will_not_do_is_refused_and_not_repeated(
    url: str, said: str, kind: type[BlackboardError], words: str
) -> None:
    """Nor is it seen by who prints a traceback with its variables."""
    with pytest.raises(kind) as caught:
        who_asks(url, said)
    assert words in str(caught.value)
    if isinstance(caught.value, BadInput):
        assert caught.value.field == "BLACKBOARD_CONNECTION_STRING"
        assert caught.value.remedy
    told = "".join(
        traceback.TracebackException.from_exception(caught.value, capture_locals=True).format()
    )
    ours = told[told.index("in credential_for") :] + str(caught.value)
    assert "Y2FuYXJ5" not in ours
    assert "uB7x" not in ours


@pytest.mark.parametrize(("url", "said"), [(ANN, KEYS[0][1]), *SIGNATURES[:1]])
def test_a_credential_shows_no_secret(url: str, said: str) -> None:
    assert "Y2FuYXJ5" not in repr(who_asks(url, said))
    assert "uB7x" not in repr(who_asks(url, said))


# ---- identities


def kinds(found: Credential) -> list[str]:
    """The classes of azure-identity that are asked for a token, in their order."""
    assert isinstance(found.azure, Tokens)
    assert found.proof is Proof.TOKEN
    source = found.azure._source
    if isinstance(source, aio.ChainedTokenCredential):
        return [type(one).__name__ for one in source.credentials]
    return [type(source).__name__]


def test_without_a_connection_string_the_managed_identity_is_asked() -> None:
    assert kinds(who_asks(ANN)) == ["ManagedIdentityCredential"]


def test_a_person_at_a_terminal_may_be_logged_in_instead() -> None:
    found = who_asks(ANN, interactive=True)
    assert kinds(found) == [
        "ManagedIdentityCredential",
        "AzureCliCredential",
        "AzureDeveloperCliCredential",
    ]
    assert "az login" in found.no_token(azure_address(ANN))


PRINCIPALS = {
    "AZURE_FEDERATED_TOKEN_FILE": "WorkloadIdentityCredential",
    "AZURE_CLIENT_SECRET": "EnvironmentCredential",
}


@pytest.mark.parametrize("variable", PRINCIPALS)
def test_an_application_that_the_environment_names_goes_first(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv("AZURE_TENANT_ID", "town")
    monkeypatch.setenv("AZURE_CLIENT_ID", "worker")
    monkeypatch.setenv(variable, "canary")
    assert kinds(who_asks(ANN, interactive=True)) == [PRINCIPALS[variable]]


@pytest.mark.parametrize("variable", [*PRINCIPALS, "AZURE_CLIENT_CERTIFICATE_PATH"])
@pytest.mark.parametrize("missing", ["AZURE_TENANT_ID", "AZURE_CLIENT_ID"])
def test_an_application_that_is_named_by_half_is_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, missing: str
) -> None:
    monkeypatch.setenv("AZURE_TENANT_ID", "town")
    monkeypatch.setenv("AZURE_CLIENT_ID", "worker")
    monkeypatch.setenv(variable, "canary")
    monkeypatch.delenv(missing)
    with pytest.raises(BadInput, match=f"{missing}: it is not set, and {variable} is") as caught:
        who_asks(ANN)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(("tenant", "path"), [("town", "/none/such.pem"), ("no tenant!", "x")])
def test_a_certificate_that_cannot_be_used_is_refused(
    monkeypatch: pytest.MonkeyPatch, tenant: str, path: str
) -> None:
    monkeypatch.setenv("AZURE_TENANT_ID", tenant)
    monkeypatch.setenv("AZURE_CLIENT_ID", "worker")
    monkeypatch.setenv("AZURE_CLIENT_CERTIFICATE_PATH", path)
    with pytest.raises(BadInput, match="AZURE_CLIENT_CERTIFICATE_PATH: what it names"):
        who_asks(ANN)


def test_an_identity_that_is_named_in_a_cloud_shell_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MSI_ENDPOINT", "http://localhost:50342/oauth2/token")
    assert who_asks(ANN).who == "the managed identity of this host"
    monkeypatch.setenv("AZURE_CLIENT_ID", "worker")
    with pytest.raises(BadInput, match="AZURE_CLIENT_ID: this host has one identity"):
        who_asks(ANN)


@pytest.mark.parametrize("password", ["", "canary"])
def test_a_certificate_whose_key_lacks_its_password_or_needs_none_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, password: str
) -> None:
    issued = trustme.CA().issue_cert("worker.town.example")
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    encryption = NoEncryption() if password else BestAvailableEncryption(b"canary")
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    certificate = tmp_path / "certificate.pem"
    certificate.write_bytes(pem + issued.cert_chain_pems[0].bytes())
    monkeypatch.setenv("AZURE_TENANT_ID", "town")
    monkeypatch.setenv("AZURE_CLIENT_ID", "worker")
    monkeypatch.setenv("AZURE_CLIENT_CERTIFICATE_PATH", str(certificate))
    monkeypatch.setenv("AZURE_CLIENT_CERTIFICATE_PASSWORD", password)
    with pytest.raises(BadInput, match="AZURE_CLIENT_CERTIFICATE_PASSWORD") as caught:
        who_asks(ANN)
    assert "canary" not in str(caught.value)


FIND_SPEC = "blackboard.tables.azure_credentials.find_spec"


@pytest.mark.parametrize(("package", "url"), [("aiohttp", "azurite:"), ("azure.identity", ANN)])
def test_a_package_that_is_missing_is_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, package: str, url: str
) -> None:
    monkeypatch.setattr(FIND_SPEC, lambda name: None if name == package else find_spec(name))
    with pytest.raises(StoreProblem, match=r"pip install 'blackboard-scheduler\[azure\]'"):
        who_asks(url)


def test_the_emulator_needs_no_azure_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FIND_SPEC, lambda name: find_spec(name) if name == "aiohttp" else None)
    assert isinstance(who_asks("azurite:").azure, AzureNamedKeyCredential)


REFUSALS = [
    (None, "AuthorizationPermissionMismatch", "Storage Table Data Contributor"),
    (None, "AuthorizationFailure", "firewall"),
    (KEYS[0][1], "AuthenticationFailed", "check the AccountKey in BLACKBOARD_CONNECTION_STRING"),
    (KEYS[0][1], "KeyBasedAuthenticationNotPermitted", "unset BLACKBOARD_CONNECTION_STRING"),
    (SIGNATURES[0][1], "AuthorizationPermissionMismatch", "permissions raud"),
]


@pytest.mark.parametrize(("said", "code", "remedy"), REFUSALS)
def test_who_is_refused_hears_the_code_and_the_remedy(
    said: str | None, code: str, remedy: str
) -> None:
    found = who_asks(ANN, said)
    line = found.refusal(azure_address(ANN), code)
    assert line.startswith(f"{ANN} refuses {found.who}: {code} (")
    assert found.refusal(azure_address(ANN), "").startswith(f"{ANN} refuses {found.who} (")
    assert remedy in line
