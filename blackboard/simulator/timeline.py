"""Virtual time: one order of happenings for all processes of a simulated world, in one thread.

A timeline is a heap of calls and the moment it has come to. Nothing waits: when nobody has anything
left to do, time jumps to the next call. Calls of the same moment are made in the order they were
asked for, so the same seed is the same story to the byte.

Each process has an event loop of its own (`ProcessLoop`), with a clock of its own rate, over the
one timeline. So a process can be stopped and continued as by SIGSTOP and SIGCONT: what becomes due
meanwhile waits. And it can be killed: nothing that it would still do happens, no `finally` reaches
the store.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from heapq import heappop, heappush
from typing import Any, TypeVar, cast

Answer = TypeVar("Answer")
NOBODYS = Context()
MOST_AWAITS = 10
"""That a task makes after it was closed, in one `finally` or another."""


class Call:
    """Something to be done at a moment, by a process or (None) by the world."""

    __slots__ = ("args", "callback", "context", "loop", "moment")

    def __init__(
        self,
        loop: "ProcessLoop | None",
        moment: float,
        callback: Callable[..., object] | None,
        args: tuple[Any, ...],
        context: Context | None,
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
        """On the clock of the process."""
        return self.moment if self.loop is None else self.loop.local(self.moment)


class Timeline:
    """All that is going to happen. Moments are seconds since the world began."""

    def __init__(self) -> None:
        self.now = 0.0
        self._later: list[tuple[float, int, Call]] = []
        self._ready: deque[Call] = deque()
        self._count = 0
        self.failures: list[BaseException] = []
        """Exceptions of processes that nobody caught."""
        self._inside: ProcessLoop | None = None
        """Whose code ran last: asyncio takes its loop for the running one."""

    def at(self, moment: float, callback: Callable[..., object], *args: Any) -> Call:
        """The world itself does something: no pause and no kill keeps it."""
        return self.put(Call(None, moment, callback, args, None))

    def put(self, call: Call) -> Call:
        if call.moment <= self.now:
            self._ready.append(call)
        else:
            self._count += 1
            heappush(self._later, (call.moment, self._count, call))
        return call

    def soon(self, call: Call) -> None:
        self._ready.append(call)

    def run(self, until: float) -> None:
        """Let everything happen up to and including this moment."""
        ready, later = self._ready, self._later
        try:
            while True:
                while ready:
                    self._make(ready.popleft())
                if not later or later[0][0] > until:
                    break
                self.now = later[0][0]
                while later and later[0][0] <= self.now:
                    ready.append(heappop(later)[2])
            self.now = max(self.now, until)
        finally:
            self.leave()

    def leave(self) -> None:
        """Nobody's code is running."""
        asyncio._set_running_loop(None)  # noqa: SLF001 - documented for event loops
        self._inside = None

    def _make(self, call: Call) -> None:
        callback, loop = call.callback, call.loop
        if callback is None:
            return
        if loop is None:
            callback(*call.args)
        elif loop.dead:
            return
        elif loop.stopped:
            loop.waiting.append(call)
        else:
            if loop is not self._inside:
                loop.enter()
                self._inside = loop
            assert call.context is not None
            call.context.run(callback, *call.args)


class ProcessLoop:
    """The event loop of one process: as much of one as tasks, futures and timers ask for. `rate`
    is how fast its monotonic clock goes, `began` what it showed when the world began.
    """

    def __init__(self, timeline: Timeline, *, rate: float = 1.0, began: float = 0.0) -> None:
        self._timeline = timeline
        self._rate = rate
        self._began = began
        self.stopped = False
        self.dead = False
        self.waiting: deque[Call] = deque()
        """What became due while the process was stopped."""
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
        call = Call(self, moment, callback, args, context or copy_context())
        return self._timeline.put(call)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> Any:
        moment = self._timeline.now + max(delay, 0.0) / self._rate
        call = Call(self, moment, callback, args, context or copy_context())
        return self._timeline.put(call)

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        call = Call(self, self._timeline.now, callback, args, context or copy_context())
        self._timeline.soon(call)
        return call

    async def sleep(self, seconds: float) -> None:
        """As `asyncio.sleep`, and quicker: nothing is done as often as this."""
        future = self.create_future()
        call = self.call_later(seconds, _wake, future, context=NOBODYS)
        try:
            await future
        finally:
            call.cancel()

    # ---- tasks

    def enter(self) -> None:
        """It is the running loop from now on, as far as asyncio is concerned."""
        asyncio._set_running_loop(self._as_loop)  # noqa: SLF001 - documented for event loops

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self._as_loop)

    def create_task(self, coro: Any, **named: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self._as_loop, **named)

    def spawn(self, coroutine: Coroutine[Any, Any, Answer]) -> asyncio.Task[Answer]:
        """Begin a task from outside the process."""
        return self.create_task(coroutine)

    # ---- what the operating system does to a process

    def stop_process(self) -> None:
        """SIGSTOP."""
        self.stopped = True

    def continue_process(self) -> None:
        """SIGCONT: what became due meanwhile is done now, in its order."""
        self.stopped = False
        while self.waiting:
            self._timeline.soon(self.waiting.popleft())

    def kill(self) -> None:
        """SIGKILL. The tasks are closed here, so that nothing of them stirs later."""
        self.dead = True
        self.waiting.clear()
        self.enter()  # a `finally` may ask for it
        for task in asyncio.all_tasks(self._as_loop):
            _close(task)
        self._timeline.leave()

    # ---- what asyncio asks besides

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.dead

    def is_closed(self) -> bool:
        return self.dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        problem = context.get("exception")
        if problem is not None and not self.dead:
            self._timeline.failures.append(problem)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _close(task: asyncio.Task[Any]) -> None:
    coroutine = task.get_coro()
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - as gather
    for _ in range(MOST_AWAITS):
        if not _awaits_once_more(coroutine):
            return


def _awaits_once_more(coroutine: Any) -> bool:
    """Whether a coroutine that is closed had a `finally` that awaits, or asks a store that is
    gone: it has to be closed again.
    """
    try:
        coroutine.close()
    except BaseException:  # noqa: BLE001
        return True
    return False
