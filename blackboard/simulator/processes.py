"""Virtual time, and the processes that live in it: event loops, clocks, chance, timers.

A timeline is a heap of calls and the moment it has reached. Nothing waits: when no call is left for
this moment, time jumps to the next one. Calls of one moment are made in the order of their
scheduling, so equal seeds give equal worlds, to the byte.

Each process has an event loop (`ProcessLoop`) with a clock of its own rate, over the one timeline.
A process can be stopped and continued, as by SIGSTOP and SIGCONT: calls that become due meanwhile
wait. It can be killed: none of its calls is made any more, and no `finally` reaches the store.

Random numbers come in streams, one for each purpose, all from one seed. A stream that draws more or
less changes no other, so a world with one fault less is otherwise the same world.
"""

import asyncio
import hashlib
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from heapq import heappop, heappush
from typing import Any, TypeVar, cast

from blackboard.clock import SeededChance
from blackboard.model import whole_milliseconds

Answer = TypeVar("Answer")
EMPTY = Context()
MOST_AWAITS = 10
"""How often a task that was closed may await in a `finally`."""


class ScheduledCall:
    """A call to make at a moment, in a process or, where `loop` is None, by the world itself."""

    __slots__ = ("args", "callback", "context", "loop", "moment")

    def __init__(
        self,
        loop: "ProcessLoop | None",
        moment: float,
        callback: Callable[..., object] | None,
        args: tuple[Any, ...],
        context: Context,
    ) -> None:
        self.loop = loop
        self.moment = moment
        self.callback = callback
        self.args = args
        self.context = context

    def cancel(self) -> None:
        self.callback, self.args = None, ()

    def cancelled(self) -> bool:
        return self.callback is None

    def when(self) -> float:
        """The moment, on the clock of the process."""
        return self.moment if self.loop is None else self.loop.local(self.moment)


class Timeline:
    """All calls to come. Moments are seconds since the world began."""

    def __init__(self) -> None:
        self.now = 0.0
        self._later: list[tuple[float, int, ScheduledCall]] = []
        self._ready: deque[ScheduledCall] = deque()
        self.soon = self._ready.append
        """Schedules a call for this moment, after those that are scheduled for it."""
        self._count = 0
        self.failures: list[BaseException] = []
        """Exceptions that no process caught."""
        self._inside: ProcessLoop | None = None
        """The process whose code ran last: asyncio takes its loop for the running one."""

    def at(self, moment: float, callback: Callable[..., object], *args: Any) -> ScheduledCall:
        """Schedules a call of the world itself, which no pause and no kill prevents."""
        return self.put(ScheduledCall(None, moment, callback, args, EMPTY))

    def put(self, call: ScheduledCall) -> ScheduledCall:
        if call.moment <= self.now:
            self._ready.append(call)
        else:
            self._count += 1
            heappush(self._later, (call.moment, self._count, call))
        return call

    def run(self, until: float) -> None:
        """Makes all calls up to and including this moment."""
        ready, later = self._ready, self._later
        try:
            while True:
                while ready:
                    call = ready.popleft()
                    callback, loop = call.callback, call.loop
                    if callback is None:
                        continue
                    if loop is None:
                        callback(*call.args)
                    elif loop.dead:
                        continue
                    elif loop.stopped:
                        loop.waiting.append(call)
                    else:
                        if loop is not self._inside:
                            loop.enter()
                            self._inside = loop
                        call.context.run(callback, *call.args)
                if not later or later[0][0] > until:
                    break
                self.now = later[0][0]
                while later and later[0][0] <= self.now:
                    ready.append(heappop(later)[2])
            self.now = max(self.now, until)
        finally:
            self.leave()

    def leave(self) -> None:
        """Leaves the process whose code ran last: asyncio has no running loop any more."""
        asyncio._set_running_loop(None)  # noqa: SLF001 - documented for event loops
        self._inside = None


class ProcessLoop:
    """The event loop of one process: as much of one as tasks, futures and timers ask for. `rate`
    is how fast its monotonic clock goes, `began` what it showed when the world began.
    """

    def __init__(self, timeline: Timeline, *, rate: float = 1.0, began: float = 0.0) -> None:
        self._timeline = timeline
        self._soon = timeline.soon
        self._rate = rate
        self._began = began
        self.stopped = False
        self.dead = False
        self.waiting: deque[ScheduledCall] = deque()
        """Calls that became due while the process was stopped."""
        self._as_loop = cast("asyncio.AbstractEventLoop", self)

    # ---- time

    def time(self) -> float:
        return self._began + self._timeline.now * self._rate

    def local(self, moment: float) -> float:
        """A moment of the world on this clock."""
        return self._began + moment * self._rate

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> Any:
        moment = (when - self._began) / self._rate
        return self._timeline.put(ScheduledCall(self, moment, callback, args, _own(context)))

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> Any:
        moment = self._timeline.now + max(delay, 0.0) / self._rate
        return self._timeline.put(ScheduledCall(self, moment, callback, args, _own(context)))

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        if context is None:
            context = copy_context()
        call = ScheduledCall(self, self._timeline.now, callback, args, context)
        self._soon(call)
        return call

    call_soon_threadsafe = call_soon

    async def sleep(self, seconds: float) -> None:
        """As `asyncio.sleep`, but faster: it is called more often than any other function."""
        future: asyncio.Future[None] = asyncio.Future(loop=self._as_loop)
        moment = self._timeline.now + max(seconds, 0.0) / self._rate
        call = self._timeline.put(ScheduledCall(self, moment, settle, (future, None), EMPTY))
        try:
            await future
        finally:
            call.cancel()

    # ---- tasks

    def enter(self) -> None:
        """Makes it the running loop of asyncio."""
        asyncio._set_running_loop(self._as_loop)  # noqa: SLF001 - documented for event loops

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self._as_loop)

    def create_task(self, coro: Any, **named: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self._as_loop, **named)

    def spawn(self, coroutine: Coroutine[Any, Any, Answer]) -> asyncio.Task[Answer]:
        """Starts a task from outside the process."""
        return self.create_task(coroutine)

    # ---- signals

    def stop_process(self) -> None:
        """SIGSTOP."""
        self.stopped = True

    def continue_process(self) -> None:
        """SIGCONT. Calls that became due meanwhile are made now, in their order."""
        self.stopped = False
        while self.waiting:
            self._timeline.soon(self.waiting.popleft())

    def kill(self) -> None:
        """SIGKILL. Closes its tasks, and those that a `finally` starts meanwhile, so that none of
        them runs later.
        """
        self.dead = True
        self.waiting.clear()
        self.enter()  # a `finally` may need a running loop
        closed = set[asyncio.Task[Any]]()
        while left := asyncio.all_tasks(self._as_loop) - closed:
            for task in left:
                _close(task)
            closed |= left
        self._timeline.leave()

    # ---- other methods that asyncio calls

    get_debug = staticmethod(bool)
    """Says False. asyncio asks for every future, so it is not a function of Python."""

    def is_running(self) -> bool:
        return not self.dead

    def is_closed(self) -> bool:
        return self.dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        problem = context.get("exception")
        if problem is not None and not self.dead:
            self._timeline.failures.append(problem)


def _own(context: Context | None) -> Context:
    """The context of a call: an empty one is one, too, although it is false."""
    return copy_context() if context is None else context


def settle(future: asyncio.Future[Any], answer: Any) -> None:
    """Gives a future its result, or its error, unless it is done."""
    if future.done():
        return
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    else:
        future.set_result(answer)


def _close(task: asyncio.Task[Any]) -> None:
    coroutine: Any = task.get_coro()
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - as gather
    for _ in range(MOST_AWAITS):
        with suppress(BaseException):  # a `finally` awaits or fails: it is closed again
            coroutine.close()
            return


def stream(seed: int, name: str) -> SeededChance:
    """The random numbers for one purpose in the world of a seed."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return SeededChance(int.from_bytes(digest[:8], "big"))


WORLD_START = datetime(2026, 1, 5, tzinfo=UTC)
"""The time of the store when the world begins: a Monday."""


class HostClock:
    """The clocks of a host: a wall clock that may be wrong, and a monotonic one with a rate."""

    def __init__(self, timeline: Timeline, loop: ProcessLoop, *, offset: float) -> None:
        self.offset = offset
        """Seconds by which the wall clock is ahead."""
        self._timeline = timeline
        self._loop = loop

    def now(self) -> datetime:
        return whole_milliseconds(WORLD_START + timedelta(seconds=self._timeline.now + self.offset))

    def monotonic(self) -> float:
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await self._loop.sleep(seconds)


@dataclass(slots=True, kw_only=True, eq=False)
class Process:
    """One process. Its name is never used again."""

    name: str
    loop: ProcessLoop
    clock: HostClock
    chance: SeededChance
    went_on: float = 0.0
    """The moment when it last continued after a stop."""
    walks: int = 0
    """Complete walks so far."""
    walked: float = 0.0
    """The moment when its last walk ended, complete or not."""
    reads: dict[str, float] = field(default_factory=dict)
    """The moment when the store last served it the locks of a partition, by partition."""
    requests: int = 0
    """Requests to the store so far. A plan of faults names a request by its number."""
    beside: int = 0
    """Of these, the requests about shared work."""
    newer: bool = False
    """Whether it runs a newer version of the program."""
    trap: "Trap | None" = None
    """A kill or a pause at its next batch."""

    @property
    def runs(self) -> bool:
        return not (self.loop.dead or self.loop.stopped)


class TrapPoint(StrEnum):
    NOW = "now"
    BEFORE = "before"
    """Before its next batch is sent."""
    SENT = "sent"
    """After its next batch is sent, before it is applied."""
    APPLIED = "applied"
    """When its next batch is applied, before the reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trap:
    when: TrapPoint
    seconds: float | None
    """How long the process is stopped; None: it is killed."""
    replaced_after: float = 5.0
    """Seconds until another takes the seat of a process that was killed."""
