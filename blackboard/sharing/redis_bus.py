"""The bus on Redis: two hashes, two channels, and what to do while Redis is away.

The URL comes from the environment (BLACKBOARD_REDIS_URL) or, without a password, from the settings:
`redis://`, `rediss://` (TLS; certificates are checked) or `unix://`. Of it only the address is
logged, and errors of Redis are logged without its password.

A request has a few seconds. When one fails, the bus counts as away: further requests fail at once
until a pause is over, which doubles with each failure. The connection that listens is made anew in
the same way. It is pinged when no message comes, because a host that vanishes closes no connection.
`on_away` is called once when Redis is away, and `on_back` once when it is back.

A Redis that answers may refuse some requests: it has no memory left, is a read-only replica, or its
rules for this user forbid a command. Then the bus is away, too. Requests of that kind fail at once
until a pause is over, while the others go on. The bus is back when a request of that kind succeeds,
and not when another does. The same holds after a request without an answer in time: Redis may hold
writes and answer reads. While it listens, the bus tries such requests itself, for a partition that
does not exist: a node that holds its partitions may have nothing to ask for hours. Where a
replica refuses, all connections are made anew: its name may lead to the primary by now.

What answers may be no Redis, or something on the way to it garbles replies. What the client raises
then, of whatever kind, counts as away, too.

No write is repeated: a request without an answer raises BusAway, whether it was applied or not.

Names are resolved in threads of their own, as those of Azure are: handlers may occupy all those of
`asyncio.to_thread`, in which asyncio resolves them.
"""

import asyncio
import codecs
import socket
from asyncio import Queue
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from blackboard.bus import REDIS_URL, TCP, BusAway, redis_parts
from blackboard.clock import Chance, Clock
from blackboard.errors import BadInput
from blackboard.phrases import first_line
from blackboard.rules.breaker import REFUSED, STORE, Backoff
from blackboard.rules.grab import Channel, Hash, Notified
from blackboard.tasks import in_thread

try:
    from redis.asyncio import Connection, Redis, SSLConnection
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import (
        AskError,
        ClusterDownError,
        MasterDownError,
        ReadOnlyError,
        RedisError,
        ResponseError,
    )
    from redis.exceptions import ConnectionError as RedisConnectionError
    from redis.exceptions import TimeoutError as RedisTimeoutError
    from redis.maint_notifications import MaintNotificationsConfig
except ImportError as problem:
    raise BadInput(
        "redis", "its client is not installed", "pip install 'blackboard-scheduler[redis]'"
    ) from problem

Answer = TypeVar("Answer")

REDIS_PORT, LOCAL = 6379, "localhost"
"""Where Redis is if its URL does not say it."""
ANSWERS_WITHIN = 5.0
"""Seconds that Redis has for a connection, and for an answer."""
SILENCE = 10.0
"""Seconds without a message after which the listening connection is pinged."""
TLS_WITHIN = 0.8
"""The part of the time for an address that the handshake of TLS may take."""
CONNECTIONS = 8
"""The most requests at a time."""
TRIAL = "trial\n"
"""The name of the partition for which Redis is tried: none can have it, and nodes ignore it."""
MOMENT = 0.1
"""Seconds between two tries, at the least."""
MOST_WAITING = 10_000
"""The most messages that wait for the node; further ones are lost."""

_OF_A_REPLICA = (ReadOnlyError, MasterDownError)
_OF_A_CLUSTER = (AskError, ClusterDownError)
"""redis-py derives MasterDownError, which a replica gives, from ClusterDownError."""

SET_IF_ABSENT = """
redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2])
return redis.call('HGET', KEYS[1], ARGV[1])
"""
DROP_IF = """
if redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then
    return redis.call('HDEL', KEYS[1], ARGV[1])
end
return 0
"""
"""A script is one step for Redis: nothing comes between its commands."""


def redis_url(environ: Mapping[str, str], setting: str | None) -> str:
    """The URL of Redis: of the environment, or else of the settings. Raises BadInput, which does
    not quote the URL.
    """
    field = REDIS_URL if environ.get(REDIS_URL) else "redis.url"
    url = environ.get(REDIS_URL) or setting
    if not url:
        problem = 'there is none, and a pump with balance="grab" needs it'
        raise BadInput(field, problem, f"set url in [redis] or {REDIS_URL}, as redis://HOST:6379/0")
    redis_parts(url, field)
    return url


class _Part(StrEnum):
    """The parts of the bus, each of which may fail while the others work."""

    CONNECTION = "connection"
    MESSAGES = "messages"
    RACES = "races"
    READS = "reads"
    WRITES = "writes"
    CLEARING = "clearing"
    PUBLISHING = "publishing"


class _Trouble(NamedTuple):
    problem: str
    failures: int = 0
    retry_at: float = 0.0
    """When requests are sent again, in monotonic seconds; until then they fail at once."""


class RedisBus:
    """The bus of the group `prefix`, as one node uses it. Connects with the first request."""

    def __init__(
        self,
        url: str,
        *,
        prefix: str,
        clock: Clock,
        chance: Chance,
        on_away: Callable[[str], None],
        on_back: Callable[[], None],
        backoff: Backoff = STORE,
        answers_within: float = ANSWERS_WITHIN,
        silence: float = SILENCE,
    ) -> None:
        """`on_away` is called with the reason when Redis goes away, `on_back` when all works
        again: each once. Raises BadInput.
        """
        parts = redis_parts(url, REDIS_URL)
        self._prefix = prefix
        self._clock = clock
        self._chance = chance
        self._on_away = on_away
        self._on_back = on_back
        self._backoff = backoff
        self._answers_within = answers_within
        self._silence = silence
        of_query = (value for name, value in parse_qsl(parts.query) if name == "password")
        self._passwords = tuple(filter(None, (unquote(parts.password or ""), *of_query)))
        self._where = _address(parts)
        self._redis = _client(url, answers_within)
        self._room = asyncio.Semaphore(CONNECTIONS)
        self._down: dict[_Part, _Trouble] = {}
        """The parts that do not work."""
        self._has_failed = asyncio.Event()
        """Set when something in `_down` may have to be tried again."""

    # ---- requests

    async def set_if_absent(self, hash_name: Hash, field: str, value: str) -> str:
        key = self._key(hash_name)
        script = (SET_IF_ABSENT, 1, key, field, value)
        return str(await self._ask(_Part.RACES, lambda: self._redis.eval(*script)))

    async def get(self, hash_name: Hash, field: str) -> str | None:
        key = self._key(hash_name)
        value = await self._ask(_Part.READS, lambda: self._redis.hget(key, field))
        return None if value is None else str(value)

    async def put(self, hash_name: Hash, field: str, value: str) -> None:
        key = self._key(hash_name)
        await self._ask(_Part.WRITES, lambda: self._redis.hset(key, field, value))

    async def drop_if(self, hash_name: Hash, field: str, value: str) -> bool:
        script = (DROP_IF, 1, self._key(hash_name), field, value)
        return bool(await self._ask(_Part.CLEARING, lambda: self._redis.eval(*script)))

    async def publish(self, channel: Channel, message: str) -> None:
        key = self._key(channel)
        await self._ask(_Part.PUBLISHING, lambda: self._redis.publish(key, message))

    async def close(self) -> None:
        await self._redis.aclose()

    def _key(self, name: Hash | Channel) -> str:
        return f"{self._prefix}:{name}"

    async def _ask(self, part: _Part, request: Callable[[], Any]) -> Any:
        """The answer to a request of that part. The client's types say that it may be no
        awaitable.
        """
        async with self._room:
            for named in (_Part.CONNECTION, part):
                trouble = self._down.get(named)
                if trouble is not None and self._clock.monotonic() < trouble.retry_at:
                    raise BusAway(trouble.problem)
            try:
                answer = await request()
            except ResponseError as refusal:
                if _is_of_a_replica(refusal):  # its name may lead to the primary by now
                    with suppress(RedisError, OSError):
                        await self._redis.connection_pool.disconnect()
                trouble = self._failed(part, refusal)
                self._is_up(_Part.CONNECTION)
                raise BusAway(trouble.problem) from None
            except Exception as problem:  # noqa: BLE001 - the client fails in any way at odd replies
                if isinstance(problem, RedisTimeoutError | TimeoutError):
                    self._failed(part, problem)
                raise BusAway(self._failed(_Part.CONNECTION, problem).problem) from None
        self._is_up(_Part.CONNECTION, part)
        return answer

    def _failed(self, part: _Part, problem: Exception) -> _Trouble:
        """Requests that were on their way when the first of them failed count as one failure."""
        now = self._clock.monotonic()
        before = self._down.get(part, _Trouble(""))
        failures, retry_at = before.failures, before.retry_at
        if now >= retry_at:
            failures += 1
            retry_at = now + self._pause(problem, failures)
        return self._is_down(part, problem, failures=failures, retry_at=retry_at)

    async def _try_again(self) -> None:
        """Tries the parts that do not work, each time a pause is over."""
        while True:
            await self._has_failed.wait()
            down = self._down.keys() - {_Part.MESSAGES}
            if not down:
                self._has_failed.clear()
                continue
            tried = {_Part.CONNECTION} & down or down  # before it is up nothing else is asked
            retry_at = min(self._down[part].retry_at for part in tried)
            await self._clock.sleep(max(retry_at - self._clock.monotonic(), MOMENT))
            for part in sorted(down & self._down.keys()):
                with suppress(BusAway):
                    await self._try(part)

    async def _try(self, part: _Part) -> None:
        match part:
            case _Part.RACES:
                await self.set_if_absent(Hash.GRAB, TRIAL, TRIAL)
                await self.drop_if(Hash.GRAB, TRIAL, TRIAL)
            case _Part.WRITES | _Part.CLEARING:  # there has to be something to clear
                await self.put(Hash.GRAB, TRIAL, TRIAL)
                await self.drop_if(Hash.GRAB, TRIAL, TRIAL)
            case _Part.PUBLISHING:
                for channel in Channel:
                    await self.publish(channel, TRIAL)
            case _:
                await self.get(Hash.GRAB, TRIAL)

    # ---- messages

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[AsyncIterator[Notified]]:
        messages = Queue[Notified](MOST_WAITING)
        tried = asyncio.Event()
        receiver = asyncio.create_task(self._receive(messages, tried))
        trying = asyncio.create_task(self._try_again())
        try:
            await _unless_ended(receiver, tried.wait())
            yield _arrivals(receiver, messages)
        finally:
            await _cancelled(receiver, trying)
            self._down.pop(_Part.MESSAGES, None)

    async def _receive(self, messages: Queue[Notified], tried: asyncio.Event) -> None:
        """Subscribes, again and again, and passes on the messages. `tried` is set when Redis has
        confirmed the first subscription, or failed to.
        """
        failures = 0
        while True:
            try:
                async for message in self._subscription():
                    if message is None:
                        if failures:  # other connections were to the Redis that went away
                            await self._redis.connection_pool.disconnect(inuse_connections=False)
                        failures = 0
                        self._is_up(_Part.MESSAGES)
                        tried.set()
                    elif not messages.full():
                        messages.put_nowait(message)
            except Exception as problem:  # noqa: BLE001 - the client fails in any way at odd replies
                failures += 1
                self._is_down(_Part.MESSAGES, problem)
                tried.set()
                await self._clock.sleep(self._pause(problem, failures))

    async def _subscription(self) -> AsyncIterator[Notified | None]:
        """Yields None when both channels are subscribed, then their messages, until the connection
        fails.
        """
        channels = {self._key(channel): channel for channel in Channel}
        async with self._redis.pubsub() as connection:
            await connection.subscribe(*channels)
            confirmed = 0
            is_asked = False
            while True:
                wait = self._answers_within if is_asked else self._silence
                got = await connection.get_message(timeout=wait)
                if got is None and (is_asked or confirmed < len(channels)):
                    raise RedisTimeoutError("the listening connection is silent")
                is_asked = got is None
                if got is None:
                    await connection.ping()
                elif got["type"] == "subscribe":
                    confirmed += 1
                    if confirmed == len(channels):
                        yield None
                elif got["type"] == "message":
                    yield Notified(channels[got["channel"]], got["data"])

    # ---- away and back

    def _pause(self, problem: Exception, failures: int) -> float:
        backoff = REFUSED if isinstance(problem, ResponseError) else self._backoff
        return backoff.pause(failures, fraction=self._chance.fraction())

    def _is_down(
        self, part: _Part, problem: Exception, *, failures: int = 0, retry_at: float = 0.0
    ) -> _Trouble:
        text = first_line(f"{type(problem).__name__}: {problem}")
        for password in self._passwords:
            text = text.replace(password, "***")
        state = f"refuses {part}" if isinstance(problem, ResponseError) else "is away"
        if not isinstance(problem, RedisError | OSError):
            state = "is away, or something else answers, or garbles its replies"
        if isinstance(problem, _OF_A_CLUSTER) and not isinstance(problem, MasterDownError):
            text += "; it is a node of a cluster: give a Redis that is none"
        message = f"Redis {state}: {text} ({self._where}, as {REDIS_URL} or url in [redis] says)"
        trouble = _Trouble(message, failures, retry_at)
        was_up = not self._down
        self._down[part] = trouble
        self._has_failed.set()
        if was_up:
            self._on_away(trouble.problem)
        return trouble

    def _is_up(self, *parts: _Part) -> None:
        was_up = not self._down
        for part in parts:
            self._down.pop(part, None)
        if not was_up and not self._down:
            self._on_back()


def _is_of_a_replica(refusal: ResponseError) -> bool:
    """Redis 6 has the code of what it refuses to a script within the text of another error."""
    return isinstance(refusal, _OF_A_REPLICA) or "-READONLY " in str(refusal)


def _address(url: SplitResult) -> str:
    """Where Redis is: HOST:PORT, or the path of its socket."""
    if url.scheme not in TCP:
        return url.path
    host = url.hostname or LOCAL
    return f"{f'[{host}]' if ':' in host else host}:{url.port or REDIS_PORT}"


def _client(url: str, answers_within: float) -> Redis:
    """Makes the client, without a connection. Raises BadInput naming the option that the client
    does not take.
    """
    try:
        return _made(url, answers_within)
    except _REFUSALS:
        pass
    bare = url.partition("?")[0]
    for option in parse_qsl(urlsplit(url).query, keep_blank_values=True):
        try:
            _made(f"{bare}?{urlencode([option])}", answers_within)
        except _REFUSALS:
            problem = f"the client of Redis does not take the option {option[0]!r} as it is given"
            raise BadInput("redis.url", problem, "correct it or leave it out") from None
    raise BadInput("redis.url", "Redis does not take it", "check its options")


_REFUSALS = (ValueError, TypeError, AttributeError, LookupError, RedisError)


def _made(url: str, answers_within: float) -> Redis:
    of_tcp = {"socket_keepalive": True} if urlsplit(url).scheme in TCP else {}
    client: Redis = Redis.from_url(
        url,
        decode_responses=True,
        encoding_errors="replace",
        socket_timeout=answers_within,
        socket_connect_timeout=answers_within,
        retry=Retry(NoBackoff(), 0),
        # With these notifications it would use connections that were closed while they were idle.
        maint_notifications_config=MaintNotificationsConfig(enabled=False),
        **of_tcp,
    )
    pool = client.connection_pool
    if of_tcp:
        with_tls = issubclass(pool.connection_class, SSLConnection)
        pool.connection_class = _TlsConnection if with_tls else _PlainConnection
    if pool.max_connections <= CONNECTIONS:
        raise ValueError("max_connections: requests would find none left")
    connection = pool.connection_class(**pool.connection_kwargs)  # its options are checked here
    codecs.lookup(connection.encoder.encoding)
    return client


class _Resolving(Connection):
    """A connection whose name is resolved here. Its addresses are tried one after the other, each
    for its share of the time that is left: one that answers nothing leaves time for the next.
    """

    _address = ""
    _share: float | None = None
    """Seconds that the address may take; None: there is no limit."""

    def _connection_arguments(self) -> Mapping[str, Any]:
        return {**super()._connection_arguments(), "host": self._address}

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self.socket_connect_timeout) as limit:
            about = (self.host, self.port, socket.AF_UNSPEC, socket.SOCK_STREAM)
            addresses = [str(found[4][0]) for found in await in_thread(socket.getaddrinfo, *about)]
            while addresses:
                until = limit.when()
                self._share = None if until is None else (until - loop.time()) / len(addresses)
                self._address = addresses.pop(0)
                try:
                    async with asyncio.timeout(self._share):
                        await super()._connect()  # type: ignore[no-untyped-call]
                except OSError:
                    if not addresses:
                        raise
                else:
                    return


class _PlainConnection(_Resolving):
    async def on_connect_check_health(self, check_health: bool = True) -> None:  # noqa: FBT001, FBT002 - as its base
        """Raises what a port with TLS does, which ends the connection without a reply, with the
        remedy.
        """
        try:
            await super().on_connect_check_health(check_health)
        except RedisConnectionError as problem:
            ends = isinstance(problem.__context__, OSError) or "closed by server" in str(problem)
            if not ends:  # Redis has refused
                raise
            raise RedisConnectionError(
                f"{problem} (is it a port with TLS? rediss:// then)"
            ) from None


class _TlsConnection(_Resolving, SSLConnection):
    def _connection_arguments(self) -> Mapping[str, Any]:
        within = None if self._share is None else TLS_WITHIN * self._share
        more = {"server_hostname": self.host, "ssl_handshake_timeout": within}
        return {**super()._connection_arguments(), **more}

    async def _connect(self) -> None:
        """Raises what a port without TLS does, which answers nothing, with the remedy."""
        try:
            await super()._connect()
        except ConnectionAbortedError as problem:
            raise RedisConnectionError(
                f"{problem} (is it a port without TLS? redis:// then)"
            ) from None


async def _cancelled(*tasks: asyncio.Task[None]) -> None:
    """Cancels until they have ended: the client may swallow a cancellation during a request."""
    while left := [task for task in tasks if not task.done()]:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=MOMENT)
    await asyncio.gather(*tasks, return_exceptions=True)


async def _unless_ended(receiver: asyncio.Task[None], answer: Awaitable[Answer]) -> Answer:
    """Returns what is awaited, unless the receiver ends first: then raises what has ended it."""
    waiting = asyncio.ensure_future(answer)
    try:
        await asyncio.wait({receiver, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            await receiver
        return await waiting
    finally:
        waiting.cancel()


async def _arrivals(
    receiver: asyncio.Task[None], messages: Queue[Notified]
) -> AsyncIterator[Notified]:
    while True:
        yield await _unless_ended(receiver, messages.get())
