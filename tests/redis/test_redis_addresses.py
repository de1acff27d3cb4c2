"""A name that has several addresses, or leads to another Redis than before; a node of a cluster."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from blackboard.bus import BusAway
from blackboard.rules.breaker import Backoff
from blackboard.rules.grab import Channel, Hash
from blackboard.sharing import redis_bus
from tests.redis.test_redis_bus import Opened, heard_again, tell, until, with_tls
from tests.support.ports import dropping, need_address
from tests.support.redis_server import PASSWORD, RedisServer, running_redis


@contextmanager
def silent(host: str, port: int) -> Iterator[None]:
    """An address that takes connections and says nothing. Skips a test where nothing can listen on
    it.
    """
    need_address(host)
    with socket.create_server((host, port)):
        yield


def resolved(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """Lets each name have these addresses."""

    def found(_name: str, port: int, *_about: object) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in hosts]

    monkeypatch.setattr(socket, "getaddrinfo", found)


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_an_address_that_drops_all_leaves_time_for_the_next(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    port, options = redis_server.port, ""
    if scheme == "rediss":
        port, options = with_tls(redis_server), f"?ssl_ca_certs={redis_server.folder / 'ca.pem'}"
    resolved(monkeypatch, "127.0.0.2", "127.0.0.1")

    async def story() -> None:
        opened = Opened(f"{scheme}://:{PASSWORD}@localhost:{port}/0{options}")
        assert await opened.bus.set_if_absent(Hash.GRAB, "07", "fox") == "fox"
        assert opened.said == []

    with dropping("127.0.0.2", port):
        tell(story)


def test_an_address_that_begins_no_tls_leaves_time_for_the_next(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, authority = with_tls(redis_server), redis_server.folder / "ca.pem"
    resolved(monkeypatch, "127.0.0.2", "127.0.0.1")

    async def story() -> None:
        url = f"rediss://:{PASSWORD}@localhost:{port}/0?ssl_ca_certs={authority}"
        assert await Opened(url).bus.set_if_absent(Hash.GRAB, "07", "fox") == "fox"

    with silent("127.0.0.2", port):
        tell(story)


@asynccontextmanager
async def forwarding(to: list[int]) -> AsyncIterator[int]:
    """A port that leads to the last of these ports. Connections stay where they are."""
    writers = list[asyncio.StreamWriter]()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while some := await reader.read(65_536):
                writer.write(some)
        writer.close()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", to[-1])
        writers.extend((writer, back))
        await asyncio.gather(copy(reader, back), copy(there, writer))

    server = await asyncio.start_server(forward, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.close()
        await asyncio.gather(*(one.wait_closed() for one in writers), return_exceptions=True)


OF_REDIS_6 = """
local answer = redis.pcall('HSETNX', KEYS[1], ARGV[1], ARGV[2])
if type(answer) == 'table' and answer.err then
    return redis.error_reply('ERR Error running script (call to f_1): @user_script:2: -'
        .. answer.err)
end
return redis.call('HGET', KEYS[1], ARGV[1])
"""
"""Sets what is absent, and is refused by a replica as Redis 6 refuses a script."""


@pytest.mark.parametrize(
    ("verb", "script"),
    [
        ("put", redis_bus.SET_IF_ABSENT),
        ("set_if_absent", redis_bus.SET_IF_ABSENT),
        ("set_if_absent", OF_REDIS_6),
    ],
    ids=["a write", "a script", "a script of Redis 6"],
)
def test_after_a_failover_the_new_primary_is_used(
    redis_server: RedisServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    script: str,
) -> None:
    """The old one goes on as a replica, and its connections stay open."""
    monkeypatch.setattr(redis_bus, "REFUSED", Backoff(shortest=0.05, longest=0.05))
    monkeypatch.setattr(redis_bus, "SET_IF_ABSENT", script)
    folder = tmp_path / "other"
    folder.mkdir()

    async def story() -> None:
        leads_to = [redis_server.port]
        async with forwarding(leads_to) as port:
            opened = Opened(f"redis://:{PASSWORD}@127.0.0.1:{port}/0")
            async with opened.bus.listen() as messages:
                write = partial(getattr(opened.bus, verb), Hash.GRAB, "07", "fox")
                await write()
                leads_to.append(other.port)
                async with Redis.from_url(redis_server.url) as old:
                    await old.replicaof("127.0.0.1", 1)
                with pytest.raises(BusAway, match="write against a read only replica"):
                    await write()
                await until(lambda: opened.said[1:] == ["back"])
                async with Redis.from_url(other.url) as new:  # messages are those of the new one
                    waiting = asyncio.ensure_future(anext(messages))
                    while not waiting.done():
                        await new.publish("town.clicks:allocated", "03")
                        await asyncio.wait({waiting}, timeout=0.05)
                assert (await waiting).partition == "03"

    with running_redis(folder) as other:
        tell(story)


def test_a_node_of_a_cluster_is_named_as_one(redis_server: RedisServer) -> None:
    redis_server.stop()
    redis_server.lines += ["--cluster-enabled", "yes", "--cluster-port", str(redis_server.port + 1)]
    redis_server.start()

    async def story() -> None:
        opened = Opened(redis_server.url)
        async with opened.bus.listen() as messages:
            with pytest.raises(BusAway, match="is a node of a cluster: give a Redis that is none"):
                await opened.bus.get(Hash.GRAB, "07")
            assert (await heard_again(opened.bus, messages)).channel is Channel.ALLOCATED

    tell(story)
