"""A server whose process has no descriptor left for another connection."""

import asyncio
import os
import resource
import socket
from asyncio.constants import ACCEPT_RETRY_DELAY
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.patience import patience


@contextmanager
def no_descriptors() -> Iterator[None]:
    """This process can open nothing more."""
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def answered_after_shortage(
    monkeypatch: pytest.MonkeyPatch, port: int, request: bytes
) -> bytes:
    """The answer to a request whose connection could not be accepted at first, more than once."""
    loop, failures = asyncio.get_running_loop(), 0
    handle = loop.call_exception_handler

    def counted(context: dict[str, object]) -> None:
        nonlocal failures
        failures += 1
        handle(context)

    monkeypatch.setattr(loop, "call_exception_handler", counted)
    client = socket.socket()
    client.setblocking(False)
    async with asyncio.timeout(patience(30)):
        with no_descriptors():
            await loop.sock_connect(client, ("127.0.0.1", port))
            while failures < 2:  # noqa: ASYNC110 - nothing signals it
                await asyncio.sleep(0.01)
        await asyncio.sleep(ACCEPT_RETRY_DELAY)  # it has tried again, for each failure
        reader, writer = await asyncio.open_connection(sock=client)
        writer.write(request)
        answer = await reader.read()
    writer.close()
    return answer
