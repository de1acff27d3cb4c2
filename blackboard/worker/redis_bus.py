"""The bus on Redis: two hashes, two channels, and what to do while Redis is away.

The URL comes from the environment (BLACKBOARD_REDIS_URL) or, without a password, from the settings:
`redis://`, `rediss://` (TLS; certificates are checked) or `unix://`. It is never logged, and what
Redis says is logged without its password.

A request has a few seconds. When one fails, the bus counts as away: further requests fail at once
until a pause is over, which doubles with each failure. The connection that listens is made anew in
the same way. A connection that is silent is asked for a sign of life, because a host that vanishes
says nothing. The caller hears once that Redis is away, and once that it is back.

Nothing is written twice to be sure: a request without an answer is BusAway, whatever came of it.
"""

import asyncio
from asyncio import Queue
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

from blackboard.bus import REDIS_URL, BusAway
from blackboard.clock import Chance, Clock
from blackboard.errors import BadInput
from blackboard.phrases import first_line
from blackboard.rules.breaker import REFUSED, STORE, Backoff
from blackboard.rules.grab import Channel, Hash, Notified

try:
    from redis.asyncio import Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import RedisError, ResponseError
    from redis.exceptions import TimeoutError as RedisTimeoutError
except ImportError as problem:
    raise BadInput(
        "redis", "its client is not installed", "pip install 'blackboard-scheduler[redis]'"
    ) from problem

Answer = TypeVar("Answer")

SCHEMES = ("redis", "rediss", "unix")
ANSWERS_WITHIN = 5.0
"""Seconds that Redis has for a connection, and for an answer."""
SILENCE = 10.0
"""Seconds without a message after which the listening connection is asked for a sign of life."""
CONNECTIONS = 8
"""Requests at a time, at the most."""
MOST_WAITING = 10_000
"""Messages that wait for the node; what comes on top is lost."""

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


def redis_url(environ: Mapping[str, str], setting: str | None = None) -> str:
    """The URL of Redis: of the environment, or else of the settings. Raises BadInput, which does
    not quote the URL.
    """
    field = REDIS_URL if environ.get(REDIS_URL) else "redis.url"
    url = environ.get(REDIS_URL) or setting
    if not url:
        problem = 'there is none, and a pump with balance="grab" needs it'
        raise BadInput(field, problem, f"set url in [redis] or {REDIS_URL}, as redis://HOST:6379/0")
    parts = _parts(url, field)
    if field != REDIS_URL and (parts.password or "password=" in parts.query):
        raise BadInput(field, "it holds a password", f"give it in {REDIS_URL} instead")
    return url


def _parts(url: str, field: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in SCHEMES and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        raise BadInput(
            field, "it is no URL of Redis", "give redis://HOST:6379/0, rediss://... or unix://PATH"
        )
    return parts


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
        parts = _parts(url, "redis.url")
        self._prefix = prefix
        self._clock = clock
        self._chance = chance
        self._on_away = on_away
        self._on_back = on_back
        self._backoff = backoff
        self._answers_within = answers_within
        self._silence = silence
        self._password = unquote(parts.password or "")
        try:
            self._redis: Redis = Redis.from_url(
                url,
                decode_responses=True,
                encoding_errors="replace",
                socket_timeout=answers_within,
                socket_connect_timeout=answers_within,
                socket_keepalive=True,
                retry=Retry(NoBackoff(), 0),
            )
        except (ValueError, TypeError, RedisError):
            raise BadInput("redis.url", "Redis does not take it", "check its options") from None
        self._room = asyncio.Semaphore(CONNECTIONS)
        self._failures = 0
        self._retry_at = 0.0
        self._problem = ""
        self._down: set[str] = set()
        """What does not work: requests, messages."""

    # ---- requests

    async def set_if_absent(self, hash_name: Hash, field: str, value: str) -> str:
        key = self._key(hash_name)
        return str(await self._ask(lambda: self._redis.eval(SET_IF_ABSENT, 1, key, field, value)))

    async def get(self, hash_name: Hash, field: str) -> str | None:
        found = await self._ask(lambda: self._redis.hget(self._key(hash_name), field))
        return None if found is None else str(found)

    async def put(self, hash_name: Hash, field: str, value: str) -> None:
        await self._ask(lambda: self._redis.hset(self._key(hash_name), field, value))

    async def drop_if(self, hash_name: Hash, field: str, value: str) -> bool:
        key = self._key(hash_name)
        return bool(await self._ask(lambda: self._redis.eval(DROP_IF, 1, key, field, value)))

    async def publish(self, channel: Channel, message: str) -> None:
        await self._ask(lambda: self._redis.publish(self._key(channel), message))

    async def close(self) -> None:
        await self._redis.aclose()

    def _key(self, name: Hash | Channel) -> str:
        return f"{self._prefix}:{name}"

    async def _ask(self, request: Callable[[], Any]) -> Any:
        """The answer to a request. The client's types say that it may be no awaitable."""
        async with self._room:
            if self._clock.monotonic() < self._retry_at:
                raise BusAway(self._problem)
            try:
                answer = await request()
            except (RedisError, OSError) as problem:
                self._failed(problem)
                raise BusAway(self._problem) from None
        self._failures = 0
        self._retry_at = 0.0
        self._is_up("requests")
        return answer

    def _failed(self, problem: Exception) -> None:
        """Requests that were on their way when the first of them failed count as one failure."""
        now = self._clock.monotonic()
        if now >= self._retry_at:
            self._failures += 1
            self._retry_at = now + self._pause(problem, self._failures)
        self._is_down("requests", problem)

    # ---- messages

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[AsyncIterator[Notified]]:
        messages = Queue[Notified](MOST_WAITING)
        tried = asyncio.Event()
        receiver = asyncio.create_task(self._receive(messages, tried))
        try:
            await _unless_ended(receiver, tried.wait())
            yield _arrivals(receiver, messages)
        finally:
            receiver.cancel()
            await asyncio.gather(receiver, return_exceptions=True)
            self._down.discard("messages")

    async def _receive(self, messages: Queue[Notified], tried: asyncio.Event) -> None:
        """Subscribes, again and again, and passes on what comes. `tried` is set when Redis has
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
                        self._is_up("messages")
                        tried.set()
                    elif not messages.full():
                        messages.put_nowait(message)
            except (RedisError, OSError) as problem:
                failures += 1
                self._is_down("messages", problem)
                tried.set()
                await self._clock.sleep(self._pause(problem, failures))

    async def _subscription(self) -> AsyncIterator[Notified | None]:
        """None when both channels are subscribed, then their messages, until the connection
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

    def _is_down(self, what: str, problem: Exception) -> None:
        text = first_line(f"{type(problem).__name__}: {problem}")
        if self._password:
            text = text.replace(self._password, "***")
        self._problem = f"Redis is away: {text}"
        if not self._down:
            self._on_away(self._problem)
        self._down.add(what)

    def _is_up(self, what: str) -> None:
        if what in self._down:
            self._down.remove(what)
            if not self._down:
                self._on_back()


async def _unless_ended(receiver: asyncio.Task[None], wanted: Awaitable[Answer]) -> Answer:
    """What is awaited, unless the receiver ends first: then the exception that ended it."""
    waiting = asyncio.ensure_future(wanted)
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
