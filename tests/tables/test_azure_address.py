"""What may be written for an Azure table after `--store`, and what is refused."""

import asyncio

import pytest

from blackboard.errors import BadInput, BlackboardError, StoreProblem
from blackboard.stores import open_table
from blackboard.tables.azure_address import AzureAddress, azure_address
from tests.support.clocks import ManualClock

EMULATOR = "devstoreaccount1"
AZURE = "https://ann.table.core.windows.net"

ADDRESSES = {
    "azurite:": ("http://127.0.0.1:10002/" + EMULATOR, EMULATOR, "blackboard"),
    "AZURITE:": ("http://127.0.0.1:10002/" + EMULATOR, EMULATOR, "blackboard"),
    "azurite://": ("http://127.0.0.1:10002/" + EMULATOR, EMULATOR, "blackboard"),
    "azurite://127.0.0.1:7000": ("http://127.0.0.1:7000/" + EMULATOR, EMULATOR, "blackboard"),
    "azurite://storage:7000/Town": ("http://storage:7000/" + EMULATOR, EMULATOR, "Town"),
    "azurite://storage/town/": ("http://storage:10002/" + EMULATOR, EMULATOR, "town"),
    "azurite://localhost:7000/town": ("http://127.0.0.1:7000/" + EMULATOR, EMULATOR, "town"),
    "azurite://[::1]:7000/town": ("http://[::1]:7000/" + EMULATOR, EMULATOR, "town"),
    AZURE + "/town": (AZURE, "ann", "town"),
    AZURE + "/town/": (AZURE, "ann", "town"),
    "HTTPS://Ann.Table.Core.Windows.Net/Town": (AZURE, "ann", "Town"),
    AZURE + ":8443/town": (AZURE + ":8443", "ann", "town"),
    **{
        f"https://ann.{rest}/town": (f"https://ann.{rest}", "ann", "town")
        for rest in (
            "table.core.chinacloudapi.cn",
            "table.core.usgovcloudapi.net",
            "privatelink.table.core.windows.net",
            "z01.table.storage.azure.net",
        )
    },
    "https://tables.town.example/board": ("https://tables.town.example", "", "board"),
    "https://127.0.0.1:7000/ann/town": ("https://127.0.0.1:7000/ann", "ann", "town"),
    "https://localhost:7000/ann/town": ("https://127.0.0.1:7000/ann", "ann", "town"),
}


@pytest.mark.parametrize("url", ADDRESSES)
def test_an_address_names_an_account_and_a_table(url: str) -> None:
    endpoint, account, table = ADDRESSES[url]
    emulated = url.lower().startswith("azurite:")
    assert azure_address(url) == AzureAddress(
        endpoint=endpoint, account=account, table=table, emulated=emulated
    )


@pytest.mark.parametrize("url", ADDRESSES)
def test_what_people_are_shown_may_be_written_again(url: str) -> None:
    address = azure_address(url)
    assert azure_address(address.url) == address


def test_the_emulator_is_shown_as_it_is_written() -> None:
    assert azure_address("azurite:").url == "azurite://127.0.0.1:10002/blackboard"


REFUSED: dict[str, tuple[type[BlackboardError], str]] = {
    "http://127.0.0.1:10002/ann/town": (BadInput, "plain HTTP (write https://, or azurite://"),
    "https://": (BadInput, "no host"),
    "https:town": (BadInput, "no host"),
    AZURE: (BadInput, "one table"),
    AZURE + "/": (BadInput, "one table"),
    AZURE + "/ann/town": (BadInput, "one table"),
    "https://tables.town.example/": (BadInput, "one table"),
    "https://127.0.0.1:7000/a/b/c": (BadInput, "one table"),
    AZURE + ":town/x": (BadInput, "not an address"),
    AZURE + ":0/town": (BadInput, "not an address"),
    "https://[::1/town": (BadInput, "not an address"),
    "https://ann@h.example/town": (BadInput, "not an address"),
    AZURE + "/to wn": (BadInput, "not an address"),
    AZURE + "/town\n": (BadInput, "not an address"),
    AZURE + "/town#top": (BadInput, "no #"),
    AZURE + "/town?": (BadInput, "BLACKBOARD_CONNECTION_STRING"),
    "azurite://127.0.0.1:10002/ann/town": (BadInput, "azurite://HOST:PORT/TABLE"),
    "azurite:town": (BadInput, "azurite://HOST:PORT/TABLE"),
    "azurite:///town": (BadInput, "azurite://HOST:PORT/TABLE"),
    "https://ann.blob.core.windows.net/town": (BadInput, "keeps no tables"),
    "https://ann-secondary.table.core.windows.net/town": (BadInput, "leave out -secondary"),
    "https://an.table.core.windows.net/town": (BadInput, "3 to 24"),
    "https://town_hall.table.core.windows.net/town": (BadInput, "3 to 24"),
    **{
        f"{AZURE}/{name}": (BadInput, "a letter first")
        for name in ("ab", "a" * 64, "1town", "town-hall", "town_hall", "Tables", "t%6fwn")
    },
    **{
        f"https://ann.{rest}/town": (StoreProblem, "scans are not sorted")
        for rest in (
            "table.cosmos.azure.com",
            "table.cosmos.azure.com:443",
            "TABLE.Cosmos.Azure.com",
            "cosmos.azure.com",
            "table.cosmosdb.azure.com",
            "documents.azure.com",
            "table.cosmos.azure.cn",
        )
    },
}


@pytest.mark.parametrize("url", REFUSED)
def test_what_is_no_address_is_refused_with_its_remedy(url: str) -> None:
    kind, words = REFUSED[url]
    with pytest.raises(kind) as caught:
        azure_address(url)
    assert words in str(caught.value)
    assert caught.value.exit_code == 2
    if isinstance(caught.value, BadInput):
        assert (caught.value.field, bool(caught.value.remedy)) == ("store", True)


SIGNATURE = "uB7x%2Fq0Zk3mW%2BV9dYt4s8oHc1nJf6rLa2eGiPvQwXzE%3D"
SECRETS = [
    f"{AZURE}/town?sv=2021-12-02&ss=t&sig={SIGNATURE}",
    f"{AZURE}/town%3Fsv=2021-12-02%26sig%3D{SIGNATURE}",
    f"{AZURE}?sig={SIGNATURE}",
    f"azurite://127.0.0.1:10002/town?sig={SIGNATURE}",
    f"sv=2021-12-02&ss=t&sig={SIGNATURE}",
    f"https://ann:{SIGNATURE}@h.example/town",
    f"azurite://ann:{SIGNATURE}@127.0.0.1/town",
    f"postgres://ann:{SIGNATURE}@h.example/town",
    f"postgres://ann:{SIGNATURE.replace('%2F', '/')}@h.example/town",
    f"azurite://ann:/{SIGNATURE}@127.0.0.1/town",
    f"AccountName=ann;AccountKey={SIGNATURE}",
    f"DefaultEndpointsProtocol=https;AccountName=ann;accountkey = {SIGNATURE}",
    f"TableEndpoint={AZURE}/;SharedAccessSignature=sv=2021-12-02&sig={SIGNATURE}",
    f"sqlite:AccountName=ann;AccountKey={SIGNATURE}",
]


@pytest.mark.parametrize("url", SECRETS)
def test_an_address_with_a_secret_is_refused_and_not_repeated(url: str) -> None:
    """Its remedy says where the secret belongs."""
    with pytest.raises(BadInput) as caught:
        asyncio.run(open_table(url, ManualClock(), create=True))
    assert "BLACKBOARD_CONNECTION_STRING" in str(caught.value)
    assert SIGNATURE[:8] not in str(caught.value)
    assert "2021-12-02" not in str(caught.value)


@pytest.mark.parametrize("end", [SIGNATURE, SIGNATURE.replace("%2F", "/"), f"/{SIGNATURE}"])
def test_a_secret_that_nothing_tells_apart_from_a_name_is_not_repeated(end: str) -> None:
    with pytest.raises(BadInput) as caught:
        azure_address(f"{AZURE}/{end}")
    assert "uB7x" not in str(caught.value)
