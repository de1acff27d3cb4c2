"""A proxy between a program and its table, with the faults of networks and services.

Each fault is for one request, and is chosen by the kind of the request: by a script (for the next
requests of this kind), or by a seeded chance. The proxy counts all requests that arrive, by kind:
counts that are independent of the store's own. It runs in a thread of its own, so that a client
may be a process, a thread or an event loop.
"""

import asyncio
import json
import random
import socket
import struct
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any, TypeVar

from tests.support.patience import patience
from tests.support.wire import Kind, Message, kind_of, read_message

PATIENCE = patience(30.0)
"""Seconds to wait for a condition before a test fails."""

Answered = TypeVar("Answered")


@dataclass(frozen=True, slots=True)
class Lost:
    """Carried out; the connection closes instead of a reply."""


@dataclass(frozen=True, slots=True)
class FailedAfter:
    """Carried out; the reply says that the service failed."""

    status: int = 500
    code: str = "InternalError"


@dataclass(frozen=True, slots=True)
class Says:
    """Not carried out; the reply is this error. `retry_after` goes into its header as it is."""

    status: int
    code: str
    retry_after: str | None = None
    in_header: bool = True
    """Whether the code is in a header, too, as with some services."""


@dataclass(frozen=True, slots=True)
class Reset:
    """Not carried out; the connection is reset."""


@dataclass(frozen=True, slots=True)
class Late:
    """The connection is reset now; carried out after some seconds, or at `land`."""

    after: float | None = None


@dataclass(frozen=True, slots=True)
class Stall:
    """Nothing happens for some seconds, or until `land`; then carried out, and the reply sent if
    its client still waits.
    """

    after: float | None = None


@dataclass(frozen=True, slots=True)
class EmptyPages:
    """So many empty pages, each with a continuation token, before the page that was asked for."""

    count: int = 1


Fault = Lost | FailedAfter | Says | Reset | Late | Stall | EmptyPages

BUSY = Says(503, "ServerBusy")


@dataclass(frozen=True, slots=True)
class _Chance:
    rate: float
    faults: tuple[Fault, ...]
    kinds: Collection[Kind]


@dataclass(eq=False)
class Proxy:
    """Listens on a port of its own for requests to the port `upstream`. Made by `proxied`."""

    upstream: int
    port: int = 0
    seed: int = 1
    asked: Counter[Kind] = field(default_factory=Counter)
    """Requests that arrived."""
    happened: Counter[tuple[Kind, str]] = field(default_factory=Counter)
    """Faults, by kind of request and name."""
    knocks: list[float] = field(default_factory=list)
    """The moments when `down` reset connections, in monotonic seconds."""

    def __post_init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._random = random.Random(self.seed)
        self._scripts: dict[Kind, deque[Fault | None]] = defaultdict(deque)
        self._chances: list[_Chance] = []
        self._held: dict[asyncio.Task[Message], asyncio.Event] = {}
        self._tokens: dict[str, str] = {}
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._down = False

    # ---- faults

    def script(self, kind: Kind, *faults: Fault | None) -> None:
        """Sets the faults of the next requests of a kind, one after the other; None is no fault."""
        self._scripts[kind].extend(faults)

    def chance(self, rate: float, *faults: Fault, kinds: Collection[Kind] = tuple(Kind)) -> None:
        """From now on, a share of the requests of these kinds, `rate`, meets one of the faults."""
        self._chances.append(_Chance(rate, faults, kinds))

    def calm(self) -> None:
        """From now on there are no faults."""
        self._chances.clear()
        self._scripts.clear()

    @property
    def quiet(self) -> bool:
        """Whether everything that was scripted has happened."""
        return not any(self._scripts.values())

    @property
    def held(self) -> int:
        """The number of requests that have arrived and are not carried out yet."""
        return len(self._held)

    def land(self) -> int:
        """Carries out the requests that are held; returns their number."""
        return self._do(self._land())

    def down(self) -> None:
        """Resets every connection, also new ones."""
        self._do(self._turn_away(listen=True))

    def refuse(self) -> None:
        """Closes the port: connections are refused."""
        self._do(self._turn_away(listen=False))

    def up(self) -> None:
        """Accepts connections again, at the same port."""
        self._do(self._listen())

    # ---- its thread

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, Answered]) -> Answered:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE)

    async def _listen(self) -> None:
        self._down = False
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _turn_away(self, *, listen: bool) -> None:
        self._down = True
        for writer in tuple(self._open):
            _reset(writer)
        if self._server is not None and not listen:
            self._server.close()
            self._server = None

    async def _close(self) -> None:
        await self._turn_away(listen=False)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _land(self) -> int:
        landing = dict(self._held)
        for told in landing.values():
            told.set()
        await asyncio.gather(*landing, return_exceptions=True)
        return len(landing)

    # ---- a connection

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._down:
            self.knocks.append(time.monotonic())
            _reset(writer)
            return
        self._open.add(writer)
        try:
            while request := await read_message(reader):
                reply = await self._answer(request)
                if reply is None:
                    _reset(writer)
                    break
                writer.write(reply.bytes())
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            _reset(writer)  # the client or the store has gone, or the test is over
        finally:
            self._open.discard(writer)
            writer.close()

    async def _answer(self, request: Message) -> Message | None:
        """The reply to the client; None: its connection is reset."""
        kind = kind_of(request)
        self.asked[kind] += 1
        request = self._untold(request)
        fault = self._fault(kind)
        if fault is not None:
            self.happened[kind, type(fault).__name__] += 1
        match fault:
            case None:
                return await self._forward(request)
            case Reset():
                return None
            case Lost():
                await self._forward(request)
                return None
            case FailedAfter(status, code):
                await self._forward(request)
                return error(status, code)
            case Says(status, code):
                return error(status, code, fault.retry_after, in_header=fault.in_header)
            case Late(after):
                self._hold(request, after)
                return None
            case Stall(after):
                return await asyncio.shield(self._hold(request, after))
            case EmptyPages(count):
                return self._empty(request, count)

    def _fault(self, kind: Kind) -> Fault | None:
        if self._scripts[kind]:
            return self._scripts[kind].popleft()
        for one in self._chances:
            if kind in one.kinds and self._random.random() < one.rate:
                return self._random.choice(one.faults)
        return None

    async def _forward(self, request: Message) -> Message:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.upstream)
        try:
            writer.write(request.bytes(Connection="close"))
            await writer.drain()
            reply = await read_message(reader)
            if reply is None:
                raise ConnectionResetError("the store closed the connection")
            return reply
        finally:
            writer.close()

    def _hold(self, request: Message, after: float | None) -> asyncio.Task[Message]:
        told = asyncio.Event()

        async def carried_out() -> Message:
            with suppress(TimeoutError):
                async with asyncio.timeout(after):
                    await told.wait()
            return await self._forward(request)

        task = self._loop.create_task(carried_out())
        self._held[task] = told
        task.add_done_callback(self._held.pop)
        return task

    # ---- empty pages

    def _empty(self, request: Message, count: int) -> Message:
        """An empty page whose token stands for the request that it answers."""
        token = f"empty-{count - 1}-{len(self._tokens)}-"
        self._tokens[token] = request.target
        headers = {
            "Content-Type": "application/json;odata=minimalmetadata",
            "Date": formatdate(usegmt=True),
            "x-ms-request-id": "1",
            "x-ms-continuation-NextPartitionKey": token,
            "x-ms-continuation-NextRowKey": token,
        }
        return Message("HTTP/1.1 200 OK", tuple(headers.items()), b'{"value":[]}')

    def _untold(self, request: Message) -> Message:
        """The request itself; or, if it has a token of ours, the one that the token stands for."""
        for token, target in self._tokens.items():
            if token in request.target:
                left = int(token.split("-")[1])
                if left:
                    self._scripts[Kind.PAGE].appendleft(EmptyPages(left))
                return request.at(target)
        return request


def error(
    status: int, code: str, retry_after: str | None = None, *, in_header: bool = True
) -> Message:
    """A reply with an error, as a table service writes it."""
    headers = {"Content-Type": "application/json", "Date": formatdate(usegmt=True)}
    if in_header:
        headers["x-ms-error-code"] = code
    if retry_after is not None:
        headers["Retry-After"] = retry_after
    told = {"code": code, "message": {"lang": "en-US", "value": f"{code} by the proxy"}}
    body = json.dumps({"odata.error": told}).encode()
    return Message(f"HTTP/1.1 {status} {code}", tuple(headers.items()), body)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection so that the other side gets a reset, not an end."""
    linger = struct.pack("ii", 1, 0)
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


@contextmanager
def proxied(upstream: int, *, seed: int = 1) -> Iterator[Proxy]:
    """A proxy before the table at a port of this machine."""
    proxy = Proxy(upstream, seed=seed)
    thread = threading.Thread(target=proxy._run, name="proxy", daemon=True)
    thread.start()
    try:
        proxy.up()
        yield proxy
    finally:
        proxy._do(proxy._close())
        proxy._loop.call_soon_threadsafe(proxy._loop.stop)
        thread.join(PATIENCE)
