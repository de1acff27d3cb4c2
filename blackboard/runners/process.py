"""Runs plain handlers in child processes, where they cannot block the loop and can always be ended.

A handler may spin, hold the interpreter's lock in C code, exhaust the memory or crash: the worker's
loop goes on and its leases are renewed. To stop a handler is to kill its process, together with
what it started.

A child that ended a run well and left nothing behind is kept for a while for another run of the
same module: to start one costs 50 ms and more, a run in a started child less than one. So short
runs share a few children, and longer ones have one each. After a number of runs another child takes
its place, so that an undetected leak does not grow for ever.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from blackboard.clock import SystemClock
from blackboard.errors import LeaseLost
from blackboard.handlers.handler import Source
from blackboard.model import Ended, Outcome, replace
from blackboard.runners import wire
from blackboard.runners.child_process import ASKED_TO_END, LEASE_RAN_OUT, ChildProcess
from blackboard.runners.guard import LOOP
from blackboard.runners.guard_process import Watch
from blackboard.runners.idle_children import IdleChildren
from blackboard.runners.interpreter import STARTING
from blackboard.runners.outcome import Notes, failure, name_of
from blackboard.runners.runner import Execution, HandlerCall, Reporter, cancel_all

_CUT = Ended(outcome=Outcome.CANCELLED, error="the worker was cancelled")
START_WITHIN = 60.0
"""Seconds for a child to get ready; and, after that, the least time that it has to import its
module.
"""
TOGETHER = 0.25
"""Seconds in which a signal that is sent to all processes reaches the worker, too."""


class ProcessRunner:
    """`idle`: how many children are kept for another run, at most. `idle_after`: for how many
    seconds. `stop_timeout`: seconds in which a stopped process ends. `runs`: the most runs of one
    child.
    """

    def __init__(
        self, *, idle: int, idle_after: float = 60.0, stop_timeout: float = 5.0, runs: int = 5_000
    ) -> None:
        self.stop_timeout = stop_timeout
        self.runs = runs
        self.watch = Watch()
        self.idle = IdleChildren(self.watch, most=idle, rest=idle_after, stop_timeout=stop_timeout)
        self._running: set[_ProcessRun] = set()

    def start(self, call: HandlerCall, report: Reporter, deadline: float) -> Execution:
        run = _ProcessRun(self, call, report, deadline=deadline)
        self._running.add(run)
        run.task.add_done_callback(lambda _: self._running.discard(run))
        return run

    async def can_start(self, source: Source) -> bool:
        """Starts a child for the next run of this module, unless one is free. Returns whether there
        is one.
        """
        child = await self.idle.free(source)
        if child is not None:
            self.idle.put(child)
            return True
        try:
            child = self.idle.start(source)
            await child.connect()
            await asyncio.wait([child.ready], timeout=START_WITHIN)
        except STARTING:
            return False
        finally:
            self.idle.started()
            if child is not None and child.is_ready:
                self.idle.put(child)
            elif child is not None:
                child.kill()
                await child.gone(self.stop_timeout)
        return child.is_ready

    def loop_turns(self, deadline: float) -> None:
        """Reports that the loop turns. The guard ends this process by SIGABRT unless this is called
        again before `deadline` (monotonic seconds).
        """
        self.watch.keep(LOOP, deadline)

    async def close(self) -> None:
        await cancel_all(self._running)
        await self.idle.close()
        await self.watch.close()


End = wire.FinishedMessage | Ended | str
"""How a run ends, whichever comes first: its handler ends, it is stopped, or what is wrong with its
child: "" when that has closed its socket."""


class _ProcessRun:
    def __init__(
        self, runner: ProcessRunner, call: HandlerCall, report: Reporter, *, deadline: float
    ) -> None:
        self._runner = runner
        self._call = call
        self._report = report
        self._deadline = deadline
        self._child: ChildProcess | None = None
        self._signals: dict[wire.SignalName, str] = {}
        self._saves = set[asyncio.Task[None]]()
        self._importing: asyncio.TimerHandle | None = None
        """Gives up a child that imports the module of the handler."""
        self._notes = Notes()
        loop = asyncio.get_running_loop()
        self._end: asyncio.Future[End] = loop.create_future()
        self.task = loop.create_task(self._run())

    async def wait(self) -> Ended:
        await asyncio.wait([self.task])
        return self._ended

    def when_ended(self, call: Callable[[Ended], None]) -> None:
        self.task.add_done_callback(lambda _: call(self._ended))

    @property
    def _ended(self) -> Ended:
        """How it ended. A task that is cancelled before its first step never comes to `_run`."""
        return _CUT if self.task.cancelled() else self.task.result()

    def extend(self, deadline: float) -> None:
        self._deadline = deadline
        if self._child is not None and not self.task.done():
            self._child.extend(deadline)

    def lose(self, reason: str) -> None:
        self._signal("lost", reason)

    def ask_to_end(self, reason: str) -> None:
        self._signal("stopping", reason)

    def _signal(self, name: wire.SignalName, reason: str) -> None:
        self._signals[name] = reason
        if self._child is not None and not self.task.done():
            self._child.send(wire.SignalMessage(name, reason))

    def stop(self, outcome: Outcome, reason: str) -> None:
        if not self._end.done():  # else its child may still be closing resources
            self._give_up(Ended(outcome=outcome, error=reason))

    @property
    def _decided(self) -> End | None:
        """How the run ends; None: it goes on."""
        return self._end.result() if self._end.done() else None

    async def _run(self) -> Ended:
        try:
            ended = await self._call_handler()
        except asyncio.CancelledError:  # with all tasks, as its loop ends: the worker ends, too
            ended = _CUT
            self._give_up(ended)
        except Exception as problem:  # noqa: BLE001 - the worker needs an answer
            ended = _failed(self._call.mask.short(failure(problem)))
        finally:
            self._import_ends()
            for save in self._saves:
                save.cancel()
            if self._child is not None:
                with suppress(asyncio.CancelledError):
                    await self._end_child(self._child)
        decided = self._decided if isinstance(self._decided, Ended) else ended
        return self._notes.added_to(decided, output=ended.output)

    async def _call_handler(self) -> Ended:
        source = self._call.handler.source
        self._child = child = await self._runner.idle.free(source, self._end)
        if child is None:
            if isinstance(stopped := self._decided, Ended):
                return stopped
            try:
                child = await self._new_child(source)
            except STARTING as problem:
                return _not_begun(str(problem) or type(problem).__name__)
        if not self._end.done():
            self._let_run(child)
        end = await asyncio.shield(self._end)
        if isinstance(end, wire.FinishedMessage):
            return self._finished(child, end)
        return await self._without_answer(child, end if isinstance(end, str) else "")

    async def _new_child(self, source: Source) -> ChildProcess:
        """A child that is ready, has ended, or is given up; or not yet, if the run is stopped."""
        try:
            self._child = child = self._runner.idle.start(source)
            await child.connect()
            either: list[asyncio.Future[Any]] = [child.ready, self._end]
            await asyncio.wait(either, timeout=START_WITHIN, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._runner.idle.started()
        if not child.ready.done():
            self._give_up(f"it was not ready within {START_WITHIN:g} s")
        elif not child.is_ready:
            self._end_by("")  # it has printed why
        return child

    def _let_run(self, child: ChildProcess) -> None:
        call = self._call
        called = SystemClock().monotonic() if child.runs else None
        run = wire.RunMessage(call.handler.source, call.data, dict(call.mask.values), called)
        child.let_run(run, self._deadline, self._received)
        for name, reason in self._signals.items():
            child.send(wire.SignalMessage(name, reason))
        if called is not None:
            self._report.called()
        elif call.allowed is not None:  # its module is imported first
            allowed = max(START_WITHIN, call.allowed)
            problem = f"its module was not imported within {allowed:g} s"
            loop = asyncio.get_running_loop()
            self._importing = loop.call_later(allowed, self._give_up, problem)

    def _give_up(self, end: End) -> None:
        self._end_by(end)
        if self._child is not None:
            self._child.kill()

    def _received(self, message: wire.OfRun | Exception | None) -> None:
        match message:
            case wire.FinishedMessage():
                self._end_by(message)
            case None:
                self._end_by("")
            case Exception():
                self._give_up(f"the child process sent an invalid message: {message}")
            case wire.CalledMessage():
                self._import_ends()
                self._report.called()
            case wire.SaveMessage(number, checkpoint):
                if not self._end.done():
                    # As a task: the log and the end of the handler are read meanwhile.
                    save = asyncio.create_task(self._save(number, checkpoint))
                    self._saves.add(save)
                    save.add_done_callback(self._saves.discard)
            case _:
                self._notes.take(message, self._report)

    def _import_ends(self) -> None:
        if self._importing is not None:
            self._importing.cancel()

    def _end_by(self, end: End) -> None:
        if not self._end.done():
            self._end.set_result(end)

    async def _save(self, number: int, checkpoint: str) -> None:
        saved = wire.SavedMessage(number=number)
        try:
            await self._report.save(checkpoint)
        except LeaseLost as lost:
            saved.lost = str(lost)
        except Exception as problem:  # noqa: BLE001 - the handler waits for an answer
            saved.error = str(problem) or name_of(problem)
        if self._child is not None:
            self._child.send(saved)

    def _finished(self, child: ChildProcess, answer: wire.FinishedMessage) -> Ended:
        output = child.output()
        if answer.left:
            left = ", ".join(answer.left)
            text = f"its child process is not used again, because it left behind: {left}"
            self._report.log(logging.DEBUG, text)
        good = answer.ended.outcome is Outcome.OK and not answer.left
        if good and child.runs < self._runner.runs:
            self._child = None
            self._runner.idle.ran(child, answer.took)
        return replace(answer.ended, output=output)

    async def _without_answer(self, child: ChildProcess, problem: str) -> Ended:
        if not await child.gone(self._runner.stop_timeout):
            problem = "the child process closed its connection to the worker"
        problem = problem or child.reason()
        if problem == LEASE_RAN_OUT:
            if "lost" in self._signals:
                problem = f"stopped: {self._signals['lost']}"
            return Ended(outcome=Outcome.CANCELLED, error=problem, output=child.output())
        if not child.is_ready:
            return _not_begun(problem, child.output())
        if terminated := child.ended.done() and child.ended.result() in ASKED_TO_END:
            await asyncio.sleep(TOGETHER)
        return replace(_failed(problem, child.output()), terminated=terminated)

    async def _end_child(self, child: ChildProcess) -> None:
        may_need = self._call.handler.resources is not None or self._call.trace
        if may_need and isinstance(self._decided, wire.FinishedMessage):
            if problem := await child.leave(self._runner.stop_timeout):
                self._report.log(logging.WARNING, f"the end of its child process: {problem}")
        else:
            child.kill()
            await child.gone(self._runner.stop_timeout)
        if not child.ended.done():
            text = f"the child process {child.pid} was killed and is still there"
            self._report.log(logging.ERROR, text)


def _failed(error: str, output: str = "") -> Ended:
    return Ended(outcome=Outcome.FAILED, error=error, output=output)


def _not_begun(problem: str, output: str = "") -> Ended:
    error = f"no child process could be started: {problem}"
    return Ended(outcome=Outcome.FAILED, error=error, output=output, begun=False)
