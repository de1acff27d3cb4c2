"""Names are resolved while handlers occupy all threads of `asyncio.to_thread`."""

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from blackboard.clock import SystemClock
from blackboard.table import Unavailable
from blackboard.tables import azure_credentials
from blackboard.tables.azure import AzureTable
from blackboard.tables.azure_address import azure_address
from blackboard.tables.azure_credentials import NoToken, Tokens, credential_for
from tests.support.identity_servers import AUDIENCE, giving
from tests.support.patience import patience
from tests.support.stores import rows_of
from tests.tables.test_azure_odd_replies import EMPTY

NAME, UNHEARD_OF = "table.test", "unheard-of.test"


@pytest.fixture(autouse=True)
def _name(monkeypatch: pytest.MonkeyPatch) -> None:
    """`NAME` is this host, and there is no `UNHEARD_OF`."""
    look_up = socket.getaddrinfo

    def found(host: Any, *about: Any, **more: Any) -> Any:
        if host == UNHEARD_OF:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return look_up("127.0.0.1" if host == NAME else host, *about, **more)

    monkeypatch.setattr(socket, "getaddrinfo", found)
    for name in [*os.environ]:
        if name.startswith(("AZURE_", "BLACKBOARD_", "IDENTITY_", "MSI_", "IMDS_")):
            monkeypatch.delenv(name)


@asynccontextmanager
async def all_threads_occupied() -> AsyncIterator[None]:
    freed = threading.Event()
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    occupied = asyncio.create_task(asyncio.to_thread(freed.wait))
    try:
        async with asyncio.timeout(patience(20)):
            yield
    finally:
        freed.set()
        await occupied


@asynccontextmanager
async def answering() -> AsyncIterator[int]:
    """A service that gives pages without rows. Yields its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(EMPTY)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def opened(host: str, port: int) -> AzureTable:
    address = azure_address(f"azurite://{host}:{port}/town")
    credential = credential_for(address, os.getenv, interactive=False)
    return await AzureTable.open(address, SystemClock(), credential=credential)


def test_a_table_is_reached_while_handlers_occupy_all_threads() -> None:
    """Or a worker would lose the locks of handlers that call `asyncio.to_thread` often."""

    async def story() -> None:
        async with answering() as port, all_threads_occupied():
            table = await opened(NAME, port)
            assert await rows_of(table, "p") == []
            await table.close()

    asyncio.run(story())


def test_so_is_what_gives_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        address = azure_address("https://ann.table.core.windows.net/town")
        credential = credential_for(address, os.getenv, interactive=False)
        assert isinstance(credential.azure, Tokens)
        async with all_threads_occupied():
            assert (await credential.azure.get_token(f"{AUDIENCE}/.default")).token == "canary"
        await credential.close()

    with giving("canary") as service:
        environment = service.environment
        endpoint = environment["IDENTITY_ENDPOINT"].replace("127.0.0.1", NAME)
        monkeypatch.setenv("IDENTITY_ENDPOINT", endpoint)
        monkeypatch.setenv("IDENTITY_HEADER", environment["IDENTITY_HEADER"])
        asyncio.run(story())


def test_tokens_come_through_the_proxy_of_the_environment_without_the_passwords_of_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "netrc").write_text("default login somebody password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))

    async def given() -> str:
        address = azure_address("https://ann.table.core.windows.net/town")
        credential = credential_for(address, os.getenv, interactive=False)
        assert isinstance(credential.azure, Tokens)
        try:
            return (await credential.azure.get_token(f"{AUDIENCE}/.default")).token
        finally:
            await credential.close()

    with giving("canary") as service:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"http://{UNHEARD_OF}/msi/token")
        monkeypatch.setenv("IDENTITY_HEADER", "a header")
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{service.port}")
        assert asyncio.run(given()) == "canary"
        assert [one["authorization"] for one in service.asked] == [""]
        monkeypatch.setenv("no_proxy", UNHEARD_OF)
        monkeypatch.setattr(azure_credentials, "TOKEN_WITHIN", 0.1)
        with pytest.raises(NoToken):
            asyncio.run(given())


def test_a_name_that_no_host_has_is_reported_with_what_to_check() -> None:
    with pytest.raises(Unavailable, match=f"no host is named {UNHEARD_OF}:1 "):
        asyncio.run(opened(UNHEARD_OF, 1))


def test_a_name_that_cannot_be_resolved_now_is_not_called_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def found(*_about: object, **_options: object) -> list[Any]:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", found)
    with pytest.raises(Unavailable, match=f"the name {UNHEARD_OF}:1 cannot be resolved now"):
        asyncio.run(opened(UNHEARD_OF, 1))
