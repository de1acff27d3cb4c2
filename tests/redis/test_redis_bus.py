"""Redis goes away and comes back; what stands in its URL is not said to anyone."""

import asyncio
import signal
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trustme
from redis.asyncio import Redis

from blackboard.bus import REDIS_URL, BusAway
from blackboard.clock import SeededChance, SystemClock
from blackboard.errors import BadInput
from blackboard.rules.breaker import Backoff
from blackboard.rules.grab import Channel, Hash, Notified, Times
from blackboard.sharing import redis_bus
from blackboard.sharing.redis_bus import RedisBus, redis_url
from tests.support.grabbing import GrabNode, Pumps
from tests.support.patience import is_over, patience
from tests.support.ports import free_port
from tests.support.processes import eventually, site, whole_lines
from tests.support.redis_server import PASSWORD, RedisServer, needed
from tests.tables.test_azure_connections import all_threads_occupied

HELLO = b"%1\r\n$5\r\nproto\r\n:3\r\n"
"""What Redis answers to a client that connects, as far as that is read."""
OPENED: list[RedisBus] = []
"""By the story that is told."""


def tell(story: Callable[[], Awaitable[None]]) -> None:
    """Runs it, and closes what it has opened."""

    async def told() -> None:
        try:
            await story()
        finally:
            while OPENED:
                await OPENED.pop().close()

    asyncio.run(told())


@dataclass
class Opened:
    """A bus, and what it has said."""

    url: str
    prefix: str = "town.clicks"
    backoff: Backoff = field(default_factory=lambda: Backoff(shortest=0.05, longest=0.2))
    silence: float = 10.0
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bus = RedisBus(
            self.url,
            prefix=self.prefix,
            clock=SystemClock(),
            chance=SeededChance(),
            on_away=self.said.append,
            on_back=lambda: self.said.append("back"),
            backoff=self.backoff,
            answers_within=patience(1),
            silence=self.silence,
        )
        OPENED.append(self.bus)


async def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    begun = asyncio.get_running_loop().time()
    while not condition():
        assert not is_over(begun, seconds)
        await asyncio.sleep(0.02)


async def answered(bus: RedisBus) -> str | None:
    """The value of a field, as soon as Redis answers."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while True:
        try:
            return await bus.get(Hash.GRAB, "07")
        except BusAway:
            assert not is_over(begun, 20)
            await asyncio.sleep(0.02)


async def setting(server: RedisServer, name: str, value: str) -> None:
    async with Redis.from_url(server.url) as redis:
        await redis.config_set(name, value)


async def heard_again(bus: RedisBus, messages: AsyncIterator[Notified]) -> Notified:
    """The next message, published until it is received: some may be lost meanwhile."""
    waiting = asyncio.ensure_future(anext(messages))
    begun = asyncio.get_running_loop().time()
    while not waiting.done():
        assert not is_over(begun, 20)
        try:
            await bus.publish(Channel.ALLOCATED, "07")
        except BusAway:
            await asyncio.sleep(0.02)
        await asyncio.wait({waiting}, timeout=0.05)
    return await waiting


def test_redis_away_is_said_once_and_requests_fail_at_once_until_it_is_back(
    redis_server: RedisServer,
) -> None:
    async def story() -> None:
        opened = Opened(redis_server.url)
        bus = opened.bus
        async with bus.listen() as messages:
            await bus.publish(Channel.ALLOCATED, "first")
            assert (await anext(messages)).partition == "first"
            redis_server.stop()
            await until(lambda: bool(opened.said))
            for _ in range(30):
                with pytest.raises(BusAway):
                    await bus.get(Hash.GRAB, "07")
                await asyncio.sleep(0.02)
            redis_server.start()
            assert await answered(bus) is None
            assert (await heard_again(bus, messages)).channel is Channel.ALLOCATED
        assert [text.partition(":")[0] for text in opened.said] == ["Redis is away", "back"]

    tell(story)


def test_while_redis_is_away_it_is_asked_with_pauses(redis_server: RedisServer) -> None:
    redis_server.stop()

    async def story() -> None:
        opened = Opened(redis_server.url, backoff=Backoff(shortest=60, longest=60))
        for _ in range(5):
            with pytest.raises(BusAway):
                await opened.bus.put(Hash.GRAB, "07", "fox")
        redis_server.start()
        with pytest.raises(BusAway, match="Redis is away"):
            await opened.bus.put(Hash.GRAB, "07", "fox")
        assert len(opened.said) == 1

    tell(story)


def test_a_redis_that_refuses_writes_is_away_until_it_takes_them_again(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads and messages go on meanwhile; what they say of Redis does not count."""
    monkeypatch.setattr(redis_bus, "REFUSED", Backoff(shortest=0.05, longest=0.05))

    async def story() -> None:
        opened = Opened(redis_server.url)
        bus = opened.bus
        await bus.put(Hash.GRAB, "03", "owl")
        await setting(redis_server, "maxmemory", "1")
        async with bus.listen() as messages:
            for _ in range(4):
                with pytest.raises(BusAway, match="Redis refuses races: OutOfMemoryError"):
                    await bus.set_if_absent(Hash.GRAB, "07", "fox")
                assert await bus.get(Hash.GRAB, "07") is None
                await bus.publish(Channel.ALLOCATED, "07")
                assert (await anext(messages)).partition == "07"
                assert await bus.drop_if(Hash.GRAB, "03", "owl") in {True, False}
                await asyncio.sleep(0.06)
            assert len(opened.said) == 1
            await setting(redis_server, "maxmemory", "0")
            await until(lambda: len(opened.said) == 2)  # it is asked by itself, too
            assert await bus.set_if_absent(Hash.GRAB, "07", "fox") == "fox"
        assert [text.partition(":")[0] for text in opened.said] == ["Redis refuses races", "back"]

    tell(story)


def test_a_script_that_is_forbidden_is_not_made_up_for_by_a_write(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_bus, "REFUSED", Backoff(shortest=0.05, longest=0.05))

    async def story() -> None:
        await allowed(redis_server, "-eval")
        opened = Opened(f"redis://fox:pw@127.0.0.1:{redis_server.port}/0")
        for _ in range(3):
            with pytest.raises(BusAway, match="NoPermissionError"):
                await opened.bus.set_if_absent(Hash.GRAB, "07", "fox")
            await opened.bus.put(Hash.ALLOCATION, "07", "fox")
            await asyncio.sleep(0.06)
        assert len(opened.said) == 1

    tell(story)


async def allowed(server: RedisServer, *commands: str) -> None:
    """To the user `fox`, besides all that there is."""
    async with Redis.from_url(server.url) as redis:
        await redis.acl_setuser(
            "fox",
            enabled=True,
            passwords=["+pw"],
            keys=["*"],
            channels=["*"],
            commands=["+@all", *commands],
        )


@pytest.mark.parametrize("command", ["eval", "hget", "hset", "publish"])
def test_what_is_refused_is_tried_until_it_is_taken(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """By the bus itself: a node may have nothing to ask."""
    monkeypatch.setattr(redis_bus, "REFUSED", Backoff(shortest=0.05, longest=0.05))

    async def story() -> None:
        await allowed(redis_server, f"-{command}")
        opened = Opened(f"redis://fox:pw@127.0.0.1:{redis_server.port}/0")
        bus = opened.bus
        asked: dict[str, Callable[[], Awaitable[object]]] = {
            "eval": lambda: bus.drop_if(Hash.GRAB, "07", "fox"),
            "hget": lambda: bus.get(Hash.GRAB, "07"),
            "hset": lambda: bus.put(Hash.GRAB, "07", "fox"),
            "publish": lambda: bus.publish(Channel.ALLOCATED, "07"),
        }
        async with bus.listen():
            with pytest.raises(BusAway, match="NoPermissionError"):
                await asked[command]()
            await asyncio.sleep(0.3)
            assert len(opened.said) == 1
            await allowed(redis_server)
            await until(lambda: opened.said[1:] == ["back"])

    tell(story)


SETTINGS = """
[redis]
normal = "3s"
maximum = "9s"
shutdown = "2s"
minimum = "1s"
per_held = "100ms"
"""
JOBS = Path(__file__).resolve().parents[1] / "grab_jobs"
"""Six partitions, with a lease of 3 s."""


def test_a_group_goes_by_shares_while_redis_refuses_writes(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    asyncio.run(setting(redis_server, "maxmemory", "1"))
    (tmp_path / "blackboard.toml").write_text(SETTINGS)
    with site(tmp_path, "board.db") as found:
        args = ("worker", "--init", "--jobs", str(JOBS), "--store", "board.db")
        worker = found.works(found.start(*args, environ={REDIS_URL: redis_server.url}))
        notes = tmp_path / "notes"

        def served() -> bool:
            return len({line.split()[2] for line in whole_lines(notes)}) == 6

        eventually(served, "all partitions are held")
        assert worker.text.count("Redis refuses races") == 1
        saved = len(whole_lines(notes))
        eventually(lambda: len(whole_lines(notes)) > saved + 600, "some seconds go by")
        assert worker.text.count("Redis refuses") == 1
        assert "the bus is back" not in worker.text
        asyncio.run(setting(redis_server, "maxmemory", "0"))
        eventually(lambda: "the bus is back" in worker.text, "races decide again")
        assert worker.text.count("Redis refuses") == 1


def test_boards_of_one_name_in_two_stores_do_not_meet_on_redis(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    args = ("worker", "--init", "--jobs", str(JOBS), "--store", "board.db")
    folders = [tmp_path / name for name in ("north", "south")]
    with ExitStack() as stack:
        for folder in folders:
            folder.mkdir()
            (folder / "blackboard.toml").write_text(SETTINGS)
            found = stack.enter_context(site(folder, "board.db"))
            found.works(found.start(*args, environ={REDIS_URL: redis_server.url}))
        notes = [folder / "notes" for folder in folders]

        def began() -> list[list[str]]:
            lines = [[line.split() for line in whole_lines(one)] for one in notes]
            return [sorted(one[2] for one in some if one[0] == "began") for some in lines]

        all_run = [[*"012345"]] * 2
        eventually(lambda: began() == all_run, "all partitions are held")
        saved = len(whole_lines(notes[1]))
        eventually(lambda: len(whole_lines(notes[1])) > saved + 600, "some seconds go by")
        assert began() == all_run, "nothing moves"


def test_a_redis_that_hangs_is_away(redis_server: RedisServer) -> None:
    """Its connections stay open. The one that listens is asked for a sign of life."""

    async def story() -> None:
        opened = Opened(redis_server.url, silence=0.2)
        async with opened.bus.listen() as messages:
            redis_server.send(signal.SIGSTOP)
            await until(lambda: bool(opened.said))
            with pytest.raises(BusAway):
                await opened.bus.get(Hash.GRAB, "07")
            redis_server.send(signal.SIGCONT)
            await answered(opened.bus)
            await heard_again(opened.bus, messages)
        assert opened.said[-1] == "back"

    tell(story)


@pytest.mark.parametrize("verb", ["races", "writes", "clearing", "publishing"])
def test_a_redis_that_holds_writes_is_away_until_it_does_them_again(
    redis_server: RedisServer, verb: str
) -> None:
    """What it answers to reads meanwhile does not count."""

    async def story() -> None:
        opened = Opened(redis_server.url)
        bus = opened.bus
        asked: dict[str, Callable[[], Awaitable[object]]] = {
            "races": lambda: bus.set_if_absent(Hash.GRAB, "07", "fox"),
            "writes": lambda: bus.put(Hash.ALLOCATION, "07", "fox"),
            "clearing": lambda: bus.drop_if(Hash.GRAB, "07", "fox"),
            "publishing": lambda: bus.publish(Channel.ALLOCATED, "07"),
        }
        async with bus.listen(), Redis.from_url(redis_server.url) as redis:
            await redis.client_pause(100_000, all=False)
            for _ in range(2):
                with pytest.raises(BusAway, match="Redis is away: TimeoutError"):
                    await asked[verb]()
                await answered(bus)
            assert len(opened.said) == 1
            await redis.client_unpause()
            await until(lambda: opened.said[1:] == ["back"])

    tell(story)


@pytest.mark.parametrize(
    "reply",
    [
        b":abc\r\n",
        b"*x\r\n",
        b"$-5\r\n",
        b"*1\r\n" * 3_000,
        b"-MOVED x y\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"+OK\r\n",
        b"#t\r\n",
        b"%1\r\n+a\r\n+b\r\n",
        b"*3\r\n$7\r\nmessage\r\n$5\r\nother\r\n$1\r\nx\r\n",
    ],
    ids=lambda reply: ascii(reply[:20]),
)
def test_what_answers_and_is_no_redis_or_garbles_replies_is_away_until_redis_answers(
    redis_server: RedisServer, reply: bytes
) -> None:
    redis_server.stop()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while asked := await reader.read(65_536):
                writer.write(HELLO if b"HELLO" in asked else reply)
                await writer.drain()
        writer.close()

    async def story() -> None:
        opened = Opened(redis_server.url, silence=0.2)
        odd = await asyncio.start_server(serve, "127.0.0.1", redis_server.port)
        async with opened.bus.listen() as messages:
            await until(lambda: bool(opened.said))
            with suppress(BusAway):  # some replies are taken for an answer
                await opened.bus.get(Hash.GRAB, "07")
            odd.close()
            await asyncio.to_thread(redis_server.start)
            await heard_again(opened.bus, messages)
            await until(lambda: opened.said[-1] == "back")

    tell(story)


def test_a_connection_that_is_quiet_and_well_stays(redis_server: RedisServer) -> None:
    async def story() -> None:
        opened = Opened(redis_server.url, silence=0.05)
        async with opened.bus.listen() as messages:
            await asyncio.sleep(0.6)
            await opened.bus.publish(Channel.ALLOCATED, "07")
            assert (await anext(messages)).partition == "07"
        assert opened.said == []

    tell(story)


def test_connections_that_redis_closed_while_they_were_idle_are_made_anew(
    redis_server: RedisServer,
) -> None:
    """As it does after its `timeout`, or a firewall in between."""

    async def story() -> None:
        opened = Opened(redis_server.url)
        some = range(2 * redis_bus.CONNECTIONS)
        for _ in range(2):
            await asyncio.gather(*(opened.bus.get(Hash.GRAB, f"{each}") for each in some))
            async with Redis.from_url(redis_server.url) as redis:
                assert await redis.client_kill_filter(_type="normal", skipme=True)
        assert opened.said == []

    tell(story)


def test_listening_begins_while_redis_is_away(redis_server: RedisServer) -> None:
    redis_server.stop()

    async def story() -> None:
        opened = Opened(redis_server.url)
        async with opened.bus.listen() as messages:
            redis_server.start()
            await heard_again(opened.bus, messages)

    tell(story)


def test_no_message_of_an_error_holds_the_password(redis_server: RedisServer) -> None:
    async def story() -> None:
        wrong = redis_server.url.replace(PASSWORD, "hunter%32")
        opened = Opened(wrong)
        with pytest.raises(BusAway) as refused:
            await opened.bus.get(Hash.GRAB, "07")
        said = "".join(traceback.format_exception(refused.value)) + "".join(opened.said)
        assert "hunter" not in said
        assert "WRONGPASS" in said or "invalid username-password" in said

    tell(story)


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("redis://:sesame@127.0.0.1:1/0", "127.0.0.1:1"),
        ("rediss://localhost:1?password=sesame", "localhost:1"),
        ("unix:///nowhere/redis.sock", "/nowhere/redis.sock"),
    ],
)
def test_a_redis_that_is_away_is_named_by_its_address_and_where_that_is_set(
    url: str, where: str
) -> None:
    async def story() -> None:
        opened = Opened(url)
        with pytest.raises(BusAway) as away:
            await opened.bus.get(Hash.GRAB, "07")
        assert str(away.value).endswith(f" ({where}, as {REDIS_URL} or url in [redis] says)")
        assert "sesame" not in "".join(traceback.format_exception(away.value))

    tell(story)


@pytest.mark.parametrize("place", ["before the host", "as an option"])
def test_what_redis_quotes_of_the_password_is_masked(redis_server: RedisServer, place: str) -> None:
    """A server on which AUTH has another name quotes what was sent."""
    redis_server.stop()
    redis_server.lines += ["--rename-command", "AUTH", "LOGIN", "--rename-command", "HELLO", ""]
    redis_server.start()

    async def story() -> None:
        url = redis_server.url
        if place == "as an option":
            url = f"{url.replace(f':{PASSWORD}@', '')}?password={PASSWORD}"
        opened = Opened(url)
        with pytest.raises(BusAway) as refused:
            await opened.bus.get(Hash.GRAB, "07")
        said = "".join(traceback.format_exception(refused.value)) + "".join(opened.said)
        assert "unknown command" in said
        assert "sesame" not in said

    tell(story)


@pytest.mark.parametrize(
    ("environ", "setting", "url"),
    [
        ({REDIS_URL: "redis://:pw@host/0"}, None, "redis://:pw@host/0"),
        ({REDIS_URL: "rediss://host/0"}, "redis://other/0", "rediss://host/0"),
        ({REDIS_URL: ""}, "unix:///run/redis.sock", "unix:///run/redis.sock"),
    ],
)
def test_the_url_is_of_the_environment_or_of_the_settings(
    environ: dict[str, str], setting: str | None, url: str
) -> None:
    assert redis_url(environ, setting) == url


@pytest.mark.parametrize(
    ("environ", "setting", "field", "remedy"),
    [
        ({}, None, "redis.url", f"set url in [redis] or {REDIS_URL}"),
        ({}, "redis://:hunter2@host/0", "redis.url", f"in {REDIS_URL}"),
        ({}, "redis://host/0?password=hunter2", "redis.url", f"in {REDIS_URL}"),
        ({REDIS_URL: "http://:hunter2@host"}, None, REDIS_URL, "redis://HOST"),
        ({REDIS_URL: "redis://:hunter2@host:notaport/"}, None, REDIS_URL, "redis://HOST"),
        ({REDIS_URL: "redis://:123/hunter2@host"}, None, REDIS_URL, "quote / in the password as"),
        ({REDIS_URL: "redis://:12?hunter2@host/0"}, None, REDIS_URL, "? as %3F"),
        ({REDIS_URL: "redis://:12#hunter2@host/0"}, None, REDIS_URL, "# as %23"),
        ({REDIS_URL: "redis://:a/hunter2@host/0"}, None, REDIS_URL, "/ in the password as %2F"),
    ],
)
def test_a_bad_url_is_refused_and_not_quoted(
    environ: dict[str, str], setting: str | None, field: str, remedy: str
) -> None:
    with pytest.raises(BadInput) as refused:
        redis_url(environ, setting)
    assert refused.value.field == field
    assert remedy in refused.value.remedy
    assert "hunter2" not in str(refused.value)


def test_options_that_the_client_does_not_take_are_refused() -> None:
    with pytest.raises(BadInput) as refused:
        Opened("redis://:hunter2@host/0?db=x&socket_timeout=soon")
    assert "hunter2" not in str(refused.value)
    assert "'db'" in str(refused.value)
    assert refused.value.__suppress_context__


def test_fewer_connections_than_requests_and_messages_take_are_refused() -> None:
    Opened(f"redis://host/0?max_connections={redis_bus.CONNECTIONS + 1}")
    with pytest.raises(BadInput, match="'max_connections'"):
        Opened(f"redis://host/0?max_connections={redis_bus.CONNECTIONS}")


@pytest.mark.parametrize(
    ("url", "option"),
    [
        ("redis://h/0?health_check_interval=3&foo=x", "foo"),
        ("redis://h/0?protocol=9", "protocol"),
        ("redis://h/0?encoding=none-such", "encoding"),
        ("rediss://h/0?ssl_cert_reqs=bogus", "ssl_cert_reqs"),
        ("redis://h/0?ssl_cert_reqs=required", "ssl_cert_reqs"),
        ("unix:///run/redis.sock?socket_keepalive=yes", "socket_keepalive"),
    ],
)
def test_an_option_that_is_misspelled_is_named_before_anything_is_asked(
    url: str, option: str
) -> None:
    with pytest.raises(BadInput, match=f"the option '{option}'"):
        Opened(url)


def test_a_socket_of_unix_is_connected_to(redis_server: RedisServer) -> None:
    path = redis_server.folder / "redis.sock"
    redis_server.stop()
    redis_server.lines += ["--unixsocket", str(path)]
    redis_server.start()

    async def story() -> None:
        opened = Opened(f"unix://:{PASSWORD}@{path}?db=0")
        async with opened.bus.listen() as messages:
            assert await opened.bus.set_if_absent(Hash.GRAB, "07", "fox") == "fox"
            await opened.bus.publish(Channel.ALLOCATED, "07")
            assert (await anext(messages)).partition == "07"
        assert opened.said == []

    tell(story)


def with_tls(redis_server: RedisServer) -> int:
    """Starts it anew, so that it has a port with TLS, too, and returns that. The authority of its
    certificate is `ca.pem`.
    """
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    folder = redis_server.folder
    certificate.private_key_pem.write_to_path(str(folder / "key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    port = free_port()
    redis_server.stop()
    redis_server.lines += ["--tls-port", str(port), "--tls-auth-clients", "no"]
    for name in ("key", "cert", "ca"):
        option = {"key": "--tls-key-file", "cert": "--tls-cert-file", "ca": "--tls-ca-cert-file"}
        redis_server.lines += [option[name], str(folder / f"{name}.pem")]
    redis_server.start()
    return port


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_tls_is_spoken_and_certificates_are_checked(redis_server: RedisServer, host: str) -> None:
    url = f"rediss://:{PASSWORD}@{host}:{with_tls(redis_server)}/0"
    folder = redis_server.folder

    async def story() -> None:
        unknown, good = Opened(url), Opened(f"{url}?ssl_ca_certs={folder / 'ca.pem'}")
        with pytest.raises(BusAway, match="CERTIFICATE_VERIFY_FAILED"):
            await unknown.bus.get(Hash.GRAB, "07")
        assert await good.bus.set_if_absent(Hash.GRAB, "07", "fox") == "fox"
        async with good.bus.listen() as messages:
            await good.bus.publish(Channel.ALLOCATED, "07")
            assert (await anext(messages)).partition == "07"

    tell(story)


def test_a_port_with_or_without_tls_is_named_where_the_url_says_the_other(
    redis_server: RedisServer,
) -> None:
    tls = with_tls(redis_server)

    async def story() -> None:
        plain = Opened(f"redis://:{PASSWORD}@127.0.0.1:{tls}/0")
        with pytest.raises(BusAway, match=r"is it a port with TLS\? rediss://"):
            await plain.bus.get(Hash.GRAB, "07")
        over_tls = Opened(f"rediss://:{PASSWORD}@127.0.0.1:{redis_server.port}/0")
        with pytest.raises(BusAway, match=r"is it a port without TLS\? redis://"):
            await over_tls.bus.get(Hash.GRAB, "07")

    tell(story)


def test_a_refusal_to_connect_is_not_laid_to_tls(redis_server: RedisServer) -> None:
    async def story() -> None:
        async with Redis.from_url(redis_server.url) as redis:
            await redis.config_set("maxclients", 1)
            with pytest.raises(BusAway, match=r"max number of clients reached \(127"):
                await Opened(redis_server.url).bus.get(Hash.GRAB, "07")

    tell(story)


def test_redis_is_reached_while_handlers_occupy_all_threads(redis_server: RedisServer) -> None:
    """Or the bus would be away for as long: asyncio resolves names in these threads."""

    async def story() -> None:
        opened = Opened(redis_server.url.replace("127.0.0.1", "localhost"))
        async with all_threads_occupied(), opened.bus.listen() as messages:
            await opened.bus.publish(Channel.ALLOCATED, "07")
            assert (await anext(messages)).partition == "07"
        assert opened.said == []

    tell(story)


def test_nodes_share_partitions_on_redis_and_the_rest_takes_what_a_killed_one_had(
    redis_server: RedisServer,
) -> None:
    """With durations of a second; tests/rules/test_grab_rules.py has the published ones."""
    times = Times(normal=1.2, maximum=3.6, shutdown=0.6, minimum=0.5, per_held=0.1)
    partitions = [f"{number:02}" for number in range(4)]

    async def story() -> None:
        pumps = Pumps()
        for name in partitions:
            pumps.running[name] = set()
        nodes: dict[str, asyncio.Task[None]] = {}

        def join(name: str) -> None:
            opened = Opened(redis_server.url)
            node = GrabNode(
                name,
                opened.bus,
                clock=SystemClock(),
                chance=SeededChance(),
                pumps=pumps,
                times=times,
                drain=(0.0, 0.05),
            )
            nodes[name] = asyncio.create_task(node.run(partitions))

        async def kill(name: str) -> None:
            nodes[name].cancel()
            await asyncio.gather(nodes.pop(name), return_exceptions=True)
            pumps.killed(name)
            pumps.stale(name)

        join("fox")
        await until(lambda: pumps.of("fox") == 4, patience(30))
        join("owl")
        await until(lambda: pumps.of("fox") == pumps.of("owl") == 2, patience(30))
        await kill("fox")
        await until(lambda: pumps.of("owl") == 4, patience(30))
        await kill("owl")

    tell(story)


def test_without_the_server_a_test_is_skipped_and_in_ci_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install redis-server"):
        needed()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="apt-get install redis-server"):
        needed()
