"""The child processes of a worker that wait for a run, and the runs that wait for a child."""

import asyncio
import os
from collections import Counter
from typing import Any, NamedTuple

from blackboard.handlers.handler import Source
from blackboard.runners.child_process import ChildProcess
from blackboard.runners.guard_process import Watch
from blackboard.runners.loop import log_masked

STARTS = 2 * (os.cpu_count() or 1)
"""How many children are started at a time. More would keep each other from getting ready."""
ENOUGH = 3_000.0
"""Runs a second, more than a worker claims and releases. Children of a module that together do so
many are enough.
"""
SOON = 0.1
"""Seconds after which another child is started all the same, for a run that waits."""


class _Turn(NamedTuple):
    """A place in the line of those who wait for a child of a module."""

    source: Source
    since: float
    """In the time of the loop."""


class IdleChildren:
    """Children that wait for their next run, and who waits for a child. At most `most` children are
    kept, each for `rest` seconds; one that is dismissed and does not end is killed after
    `stop_timeout` seconds.
    """

    def __init__(self, watch: Watch, *, most: int, rest: float, stop_timeout: float) -> None:
        self._watch = watch
        self._most = most
        self._rest = rest
        self._stop_timeout = stop_timeout
        self._idle: dict[ChildProcess, float] = {}
        """When each is dismissed, in the time of the loop; the one that waits longest is first."""
        self._timer: asyncio.TimerHandle | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._may_start = STARTS
        self._alive = Counter[Source]()
        """The children of each module, idle or not, with those that may be started now."""
        self._took: dict[Source, float] = {}
        """Seconds that a run of each module takes: a mean, of which a fifth is the latest."""
        self._line: dict[asyncio.Future[ChildProcess | None], _Turn] = {}
        """Who waits for a child that becomes free, or to start one, first come first served."""
        self._calling: asyncio.TimerHandle | None = None

    async def free(
        self, source: Source, stopped: "asyncio.Future[Any] | None" = None
    ) -> ChildProcess | None:
        """A child that has loaded this module, and waits or becomes free before another may be
        started. None: the caller may `start` one, and calls `started` after that; or `stopped` is
        done, and it may not.
        """
        if stopped is not None and stopped.done():
            return None
        if (child := self.take(source)) is not None:
            return child
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[ChildProcess | None] = loop.create_future()
        self._line[turn] = _Turn(source, loop.time())
        self._call_up(turn)
        either = [turn] if stopped is None else [turn, stopped]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._give_up(turn, source)
            raise
        if stopped is not None and stopped.done():
            self._give_up(turn, source)
            return None
        return turn.result()

    def start(self, source: Source) -> ChildProcess:
        """Starts a child, which is not ready yet. Raises OSError."""
        try:
            child = ChildProcess(source, self._watch)
        except BaseException:
            self._alive[source] -= 1
            raise
        child.ended.add_done_callback(lambda _: self._lost(source))
        return child

    def _lost(self, source: Source) -> None:
        self._alive[source] -= 1
        self._call_up(*self._line)

    def started(self) -> None:
        """A child is ready, or will never be: another may be started."""
        self._may_start += 1
        self._call_up(*self._line)

    def _call_up(self, *turns: "asyncio.Future[ChildProcess | None]") -> None:
        """Lets each of these start a child, if it may."""
        loop = asyncio.get_running_loop()
        for turn in turns:
            source, since = self._line[turn]
            if self._may_start and (self._needs(source) or since + SOON <= loop.time()):
                self._may_start -= 1
                self._alive[source] += 1
                del self._line[turn]
                turn.set_result(None)
        if self._may_start and self._line and self._calling is None:
            first = next(iter(self._line.values()))
            self._calling = loop.call_at(first.since + SOON, self._call_again)

    def _needs(self, source: Source) -> bool:
        """Whether another child of a module would do more, by how long its runs take."""
        return self._alive[source] < max(STARTS, ENOUGH * self._took.get(source, 0.0))

    def _call_again(self) -> None:
        self._calling = None
        self._call_up(*self._line)

    def _give_up(self, turn: "asyncio.Future[ChildProcess | None]", source: Source) -> None:
        if not turn.done():
            del self._line[turn]
        elif (child := turn.result()) is not None:
            self.put(child)
        else:
            self._alive[source] -= 1
            self.started()

    def take(self, source: Source) -> ChildProcess | None:
        """The latest child that has loaded this module, or None."""
        for child in [*reversed(self._idle)]:
            if child.source == source:
                del self._idle[child]
                if child.is_alive():
                    return child
                self._let_go(child)
        return None

    def ran(self, child: ChildProcess, took: float) -> None:
        """Puts back a child that has finished a run and left nothing behind."""
        before = self._took.get(child.source, took)
        self._took[child.source] = before + (took - before) / 5
        self.put(child)

    def put(self, child: ChildProcess) -> None:
        """Keeps a child for its next run; or gives it to the first that waits for one of its
        module.
        """
        child.rest()
        for turn, (source, _) in self._line.items():
            if source == child.source:
                del self._line[turn]
                turn.set_result(child)
                return
        loop = asyncio.get_running_loop()
        self._idle[child] = loop.time() + self._rest
        if len(self._idle) > self._most:
            self._dismiss_first()
        if self._timer is None:
            self._timer = loop.call_later(self._rest, self._dismiss_rested)

    async def close(self) -> None:
        for timer in (self._timer, self._calling):
            if timer is not None:
                timer.cancel()
        self._calling = None
        while self._idle:
            self._dismiss_first()
        while self._leaving:
            await asyncio.wait(self._leaving)

    def _dismiss_rested(self) -> None:
        loop = asyncio.get_running_loop()
        while self._idle and next(iter(self._idle.values())) <= loop.time():
            self._dismiss_first()
        self._timer = None
        if self._idle:
            nearest = next(iter(self._idle.values()))
            self._timer = loop.call_at(nearest, self._dismiss_rested)

    def _dismiss_first(self) -> None:
        child = next(iter(self._idle))
        del self._idle[child]
        self._let_go(child)

    def _let_go(self, child: ChildProcess) -> None:
        task = asyncio.get_running_loop().create_task(self._leave(child))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _leave(self, child: ChildProcess) -> None:
        if problem := await child.leave(self._stop_timeout):
            where = child.source.module or child.source.folder
            log_masked(lambda: f"the end of a child process of {where}: {problem}", None)
