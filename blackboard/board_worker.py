"""A worker of a board, as programs use it, and its settings."""

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from blackboard.clock import Chance
from blackboard.errors import BadInput, BlackboardError, BoardClosed, OfOneProcess
from blackboard.events import JobsChanged, WorkerStarted, WorkerStopped
from blackboard.handlers import code
from blackboard.handlers.handler import Handler
from blackboard.handlers.registry import check_importable
from blackboard.phrases import quoted
from blackboard.protocol.retention import Retention
from blackboard.schedule.times import duration_of
from blackboard.settings import Settings, check_types
from blackboard.spec import MOST_SLOTS, check_count
from blackboard.stores import when_woken
from blackboard.tasks import cancel_all, in_thread
from blackboard.worker import sigterm

if TYPE_CHECKING:
    from blackboard.sharing.partitions import GroupWorker
    from blackboard.worker.wake import CycleWake
    from blackboard.worker.worker import Worker


LONGEST_END = 60.0
"""Seconds that a stop without grace may take."""
ONCE = "a worker works once: ask the board for another one"
SHARED_WALK = 0.2
"""Seconds from a change through a board until its workers walk. Other changes share the walk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """The settings of `[worker]`, and those of `[board]` that a worker needs."""

    cycle: timedelta = timedelta(seconds=60)
    slots: int = 8
    types: tuple[str, ...] = ()
    """The types to take; none: all that have a handler."""
    grace: timedelta = timedelta(seconds=30)
    retention: Retention = field(default_factory=Retention)
    coordinator: bool = False
    """Whether it takes part in coordinating the board."""


def worker_settings(
    declared: Settings,
    *,
    slots: int | None = None,
    cycle: str | float | timedelta | None = None,
    types: Sequence[str] | None = None,
    grace: str | float | timedelta | None = None,
) -> WorkerSettings:
    """The arguments, each else as the settings declare. Raises BadInput."""
    table = declared.worker
    if slots is not None:
        check_count("slots", slots, most=MOST_SLOTS)
    check_types(types)
    return WorkerSettings(
        cycle=duration_of(table.cycle if cycle is None else cycle, "cycle"),
        slots=slots or table.slots,
        types=tuple((table.types if types is None else types) or ()),
        grace=duration_of(table.grace if grace is None else grace, "grace"),
        retention=declared.retention,
        coordinator=declared.board.coordinator,
    )


def identity(chance: Chance) -> str:
    """host:pid:boot nonce. The nonce distinguishes two workers with the same host and pid."""
    return f"{socket.gethostname()}:{os.getpid()}:{chance.nonce()[:8]}"


def handlers_taken(handlers: Mapping[str, Handler], types: Sequence[str]) -> dict[str, Handler]:
    """The handlers of the types a worker takes. Raises BadInput for a type that has none, and for a
    handler that a child process could not import.
    """
    for item_type in types:
        if item_type not in handlers:
            remedy = f"there are handlers for: {', '.join(sorted(handlers)) or 'none'}"
            raise BadInput("types", f"no handler for {quoted(item_type)}", remedy)
    taken = {name: handler for name, handler in handlers.items() if not types or name in types}
    for handler in taken.values():
        check_importable(handler)
    return taken


Until = Literal["stopped", "idle", "once"]
"""When a worker is done: when it is stopped; when nothing is due and nothing runs; after one walk
and the runs that it started."""


class BoardWorker(OfOneProcess):
    """A worker of a board, which works once.

        async with board.worker(slots=8):      it works beside what is inside, and is stopped after
            await serve()
        await board.worker().work("idle")      it works here, until nothing is due and nothing runs

    A worker that is stopped claims nothing more, gives what runs its grace, then cancels it and
    puts it back: due again at once. One that is cancelled does the same without grace. When the
    worker fails, what is inside is cancelled, and its error is raised at the end of the block.

    At SIGTERM what is inside is cancelled, and so is `work`, where the program does not handle that
    itself; when the task that is in the block has ended, the program ends by SystemExit, with the
    exit code of SIGTERM.
    """

    def __init__(
        self,
        worker: "Worker",
        *,
        settings: WorkerSettings,
        wake: "CycleWake",
        store: str,
        groups: Sequence["GroupWorker"] = (),
        check_loop: Callable[[], None] | None = None,
    ) -> None:
        """`check_loop` raises BlackboardError on another loop than that of its board."""
        self.name = worker.events.worker
        """host:pid:boot nonce, as items and runs name it."""
        self.events = worker.events
        """The events that subscribers get."""
        self._worker = worker
        self._settings = settings
        self._wake = wake
        self._store = store
        self._groups = groups
        self._check_loop = check_loop or (lambda: None)
        self._is_working = False
        self._refusal: BlackboardError | None = None
        """What `work` raises; None until it works, or its board closes."""
        self._ended = asyncio.Event()
        self._soon: asyncio.TimerHandle | None = None
        self._group = asyncio.TaskGroup()
        self._task: asyncio.Task[None] | None = None
        self._block: sigterm.OfTask | None = None

    def stop(self) -> None:
        """Stops the worker. First call: no more claims, and grace for runs; second: no grace."""
        self._stop(at_once=False)

    def _stop(self, *, at_once: bool) -> None:
        for group in self._groups:
            group.stop(at_once=at_once)
        partitions = sum(len(group.holdings) for group in self._groups)
        self._worker.stop(at_once=at_once, partitions=partitions)

    async def _close(self) -> None:
        """Ends it without grace, because its board closes. It does not begin to work any more."""
        self._refusal = BoardClosed()
        if self._is_working:
            self._stop(at_once=True)
            await self._ended.wait()
        elif self._task is not None:
            self._task.cancel()

    def _walk_soon(self) -> None:
        """Walks the board without waiting for the cycle: something on it was changed."""
        if self._is_working and self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(SHARED_WALK, self._walk_now)

    def _walk_now(self) -> None:
        """Walks, and reads the locks that are held: one of the runs may have been cancelled."""
        self._soon = None
        self._wake.beat()
        self._worker.heartbeat.ask(*self._worker.holdings)

    async def work(self, until: Until = "stopped") -> None:
        """Works until then, or until `stop` is called, or it is cancelled. Partitions are served by
        a worker that works until it is stopped: they have no end. Raises TableError when the
        board was made anew meanwhile, or the store cannot work or has not answered for a minute:
        with "stopped" it waits for that.
        """
        block = sigterm.OfTask()
        sigterm.catch(block)
        try:
            await self._work(until)
        finally:
            sigterm.release(block)
            if block.is_terminated:
                block.end_program()

    async def _work(self, until: Until) -> None:
        from blackboard.worker.worker import Mode

        self._check_loop()
        if self._refusal is not None:
            raise self._refusal
        modes = {"stopped": Mode.FOREVER, "idle": Mode.UNTIL_IDLE, "once": Mode.ONCE}
        if until not in tuple(modes):  # it may be a list, which has no hash
            raise BadInput("until", f"there is no {quoted(until)}", f"one of {', '.join(modes)}")
        self._refusal = BlackboardError(ONCE)
        events, worker = self.events, self._worker
        groups = {group.handler.type: group for group in self._groups if until == "stopped"}
        events.emit(
            WorkerStarted,
            slots=self._settings.slots,
            cycle=self._settings.cycle.total_seconds(),
            types=tuple(sorted([*worker.runs.handlers, *groups])),
            groups=tuple(sorted(groups)),
        )
        self._is_working = True
        watch = asyncio.ensure_future(self._watch_jobs())
        try:
            with when_woken(self._store, self._walk_soon):
                await self._all_of(
                    worker.work(modes[until]), *(group.work() for group in groups.values())
                )
        except BaseExceptionGroup as problems:
            raise _first_of(problems) from None
        finally:
            watch.cancel()
            self._is_working = False
            self._ended.set()
            if self._soon is not None:
                self._soon.cancel()
            worker.new_requests()
            runs = worker.releases.runs + sum(group.releases.runs for group in self._groups)
            events.emit(WorkerStopped, runs=runs, requests=dict(worker.requests))

    async def _all_of(self, *work: Coroutine[Any, Any, None]) -> None:
        """Waits until all have ended. When one fails, or this is cancelled, the others are stopped
        without grace, and put back what they run. Cancelled again, or where that takes too long,
        they are as if killed.
        """
        tasks = {asyncio.ensure_future(coroutine) for coroutine in work}
        left = tasks
        try:
            while left and not any(map(_has_failed, tasks)):
                _, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        finally:
            try:
                if left:
                    self._stop(at_once=True)
                    await asyncio.wait(left, timeout=LONGEST_END)
            finally:
                await cancel_all(tasks)
        for task in sorted(tasks, key=asyncio.Future.cancelled):  # errors before what they ended
            task.result()

    async def _watch_jobs(self) -> None:
        """Emits an event when files of the jobs have changed. They are looked at once a cycle."""
        reported: list[str] = []
        while True:
            await self._worker.board.clock.sleep(self._settings.cycle.total_seconds())
            files = await _changed_files()
            if files and files != reported:
                self.events.emit(JobsChanged, files=tuple(files))
            reported = files

    async def __aenter__(self) -> Self:
        self._check_loop()
        if self._task is not None:
            raise BlackboardError(ONCE)
        self._block = sigterm.OfTask()
        await self._group.__aenter__()
        self._task = self._group.create_task(self._work("stopped"))
        sigterm.catch(self._block)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stops the worker and waits for it; a cancellation meanwhile ends it without grace."""
        assert self._task is not None
        assert self._block is not None
        cancelled = problem if isinstance(problem, asyncio.CancelledError) else None
        if not self._task.done():
            self.stop()
            try:
                await asyncio.wait([self._task])
            except asyncio.CancelledError as another:
                cancelled = another
        await sigterm.leave(self._group, self._block, cancelled, traceback)


async def _changed_files() -> list[str]:
    """Files of the jobs that changed."""
    return await in_thread(code.changed)


def _has_failed(task: "asyncio.Future[None]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _first_of(problems: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first exception, taken out of all groups around it."""
    first = problems.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first
