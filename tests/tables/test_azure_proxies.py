"""A proxy that is in the way of an account is named, and not the account blamed for it."""

import asyncio

import pytest
from azure.core.credentials import AzureNamedKeyCredential

from blackboard.clock import SystemClock
from blackboard.table import Unavailable
from blackboard.tables.azure import AzureTable
from blackboard.tables.azure_address import azure_address
from blackboard.tables.azure_credentials import EMULATOR_KEY, Credential, Proof
from blackboard.tables.azure_transport import AzureTransport

ADDRESS = azure_address("https://ann.table.core.windows.net/town")


async def opened_by(proxy: str) -> None:
    who = AzureNamedKeyCredential("ann", EMULATOR_KEY)
    credential = Credential(who="a key", proof=Proof.KEY, azure=who)
    transport = AzureTransport(SystemClock(), proxy=proxy)
    await AzureTable.open(ADDRESS, SystemClock(), credential=credential, transport=transport)


@pytest.mark.parametrize(
    ("proxy", "words"),
    [
        (
            "http://canary:canary@127.0.0.1:1",
            "cannot connect to the proxy 127.0.0.1: Connection refused",
        ),
        (
            "http://proxy.invalid:8080",
            "no host is named proxy.invalid (check HTTPS_PROXY, and DNS)",
        ),
    ],
)
def test_a_proxy_that_is_not_there_is_named(proxy: str, words: str) -> None:
    with pytest.raises(Unavailable) as caught:
        asyncio.run(opened_by(proxy))
    assert str(caught.value) == words


def test_a_proxy_that_wants_a_password_is_named() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Who are you?\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async def story() -> None:
        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            await opened_by(f"http://127.0.0.1:{port}")

    with pytest.raises(Unavailable) as caught:
        asyncio.run(story())
    host = "ann.table.core.windows.net"
    assert str(caught.value) == f"the proxy 127.0.0.1 refuses the way to {host}: 407"
