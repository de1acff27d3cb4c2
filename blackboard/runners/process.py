"""Runs a plain handler in a child process, where it can hold up nobody and can always be ended.

A handler may spin, hold the interpreter's lock in C code, exhaust the memory or crash: the
worker's loop turns on and its leases are renewed. To stop it is to kill its process, together
with what it started. A child that ended a run well and left nothing behind is used again for the
same module, for a number of runs: what it leaks in a way that is not seen does not grow for ever.
"""

import asyncio
import logging
from dataclasses import replace

import msgspec

from blackboard.model import Ended, Outcome
from blackboard.runner import Call, Execution, Report
from blackboard.runners import wire
from blackboard.runners.children import Child
from blackboard.runners.ending import failure
from blackboard.runners.guard import LOOP
from blackboard.runners.warm import Warm
from blackboard.runners.watch import Watch


class ProcessRunner:
    """`idle`: children that may wait for another run; `idle_after`: seconds they wait at most;
    `patience`: seconds that a process has to be gone once it was told to; `runs`: of one child,
    after which another takes its place.
    """

    def __init__(
        self, *, idle: int = 4, idle_after: float = 60.0, patience: float = 5.0, runs: int = 500
    ) -> None:
        self.patience = patience
        self.runs = runs
        self.watch = Watch()
        self.warm = Warm(self.watch, room=idle, rest=idle_after, patience=patience)
        self._running: set[_ProcessRun] = set()

    def start(self, call: Call, report: Report, deadline: float) -> Execution:
        run = _ProcessRun(self, call, report, deadline=deadline)
        self._running.add(run)
        run.task.add_done_callback(lambda _: self._running.discard(run))
        return run

    def turning(self, deadline: float) -> None:
        """The loop turns, and says so again before `deadline` (monotonic seconds); or else this
        process is ended by SIGABRT.
        """
        self.watch.keep(LOOP, deadline)

    async def close(self) -> None:
        for run in list(self._running):
            run.stop(Outcome.CANCELLED, "the worker ended")
            await run.wait()
        await self.warm.close()
        await self.watch.close()


class _ProcessRun:
    def __init__(
        self, runner: ProcessRunner, call: Call, report: Report, *, deadline: float
    ) -> None:
        self._runner = runner
        self._call = call
        self._report = report
        self._deadline = deadline
        self._child: Child | None = None
        self._lost: str | None = None
        self._verdict: Ended | None = None
        self.task = asyncio.get_running_loop().create_task(self._run())

    async def wait(self) -> Ended:
        return await asyncio.shield(self.task)

    def extend(self, deadline: float) -> None:
        self._deadline = deadline
        if self._child is not None and not self.task.done():
            self._child.extend(deadline)

    def lose(self, reason: str) -> None:
        self._lost = reason
        if self._child is not None and not self.task.done():
            self._child.lose(reason)

    def stop(self, outcome: Outcome, reason: str) -> None:
        if self._verdict is not None or self.task.done():
            return
        self._verdict = Ended(outcome=outcome, error=reason)
        if self._child is not None:
            self._child.kill()

    async def _run(self) -> Ended:
        try:
            ended = await self._ran()
        except Exception as problem:  # noqa: BLE001 - the worker is owed an answer
            error = self._call.mask.short(failure(problem))
            ended = Ended(outcome=Outcome.FAILED, error=error)
        finally:
            if self._child is not None:
                await self._see_off(self._child)
        return replace(self._verdict, output=ended.output) if self._verdict else ended

    async def _ran(self) -> Ended:
        if self._verdict is not None:
            return self._verdict
        try:
            self._child = child = await self._begun()
        except OSError as problem:
            error = f"the child process could not be started: {problem}"
            return Ended(outcome=Outcome.FAILED, error=error)
        child.let_run(_message(self._call), self._deadline)
        if self._lost is not None:
            child.lose(self._lost)
        answer = await self._listen(child)
        if isinstance(answer, wire.FinishedMessage):
            return self._finished(child, answer)
        return await self._broken(child, answer)

    async def _begun(self) -> Child:
        source = self._call.handler.source
        child = self._runner.warm.take(source)
        if child is None:
            self._child = child = Child(source, self._runner.watch)
            await child.connect()
        return child

    async def _listen(self, child: Child) -> wire.FinishedMessage | str:
        """What it answered; or, when it does not, what is wrong besides its having ended."""
        while True:
            try:
                message = await child.receive()
            except (msgspec.MsgspecError, wire.TooLarge) as problem:
                child.kill()
                return f"the child process sent what is no message: {problem}"
            match message:
                case wire.FinishedMessage():
                    return message
                case wire.Progress(done, total) if self._verdict is None:
                    self._report.progress(done, total)
                case wire.Log(level, text) if self._verdict is None:
                    self._report.log(level, text)
                case None:
                    return ""

    def _finished(self, child: Child, answer: wire.FinishedMessage) -> Ended:
        output = self._call.mask.output(child.output())
        if answer.left:
            left = ", ".join(answer.left)
            text = f"its child process is used no more, for it left behind: {left}"
            self._report.log(logging.DEBUG, text)
        good = not answer.error and not answer.left
        if good and child.runs < self._runner.runs and self._verdict is None:
            self._child = None
            self._runner.warm.put(child)
        if answer.error:
            return Ended(outcome=Outcome.FAILED, error=answer.error, output=output)
        return Ended(outcome=Outcome.OK, result=answer.result, output=output)

    async def _broken(self, child: Child, problem: str) -> Ended:
        if not await child.gone(self._runner.patience):
            problem = "the child process closed its connection to the worker"
        error = problem or child.ended.result()
        output = self._call.mask.output(child.output())
        return Ended(outcome=Outcome.FAILED, error=error, output=output)

    async def _see_off(self, child: Child) -> None:
        child.kill()
        if not await child.gone(self._runner.patience):
            text = f"the child process {child.pid} was killed and is still there"
            self._report.log(logging.ERROR, text)


def _message(call: Call) -> wire.RunMessage:
    return wire.RunMessage(
        source=call.handler.source,
        type=call.item.type,
        id=call.item.id,
        params=dict(call.item.params),
        written=None if call.item.written is None else dict(call.item.written),
        timezone=call.item.timezone,
        settings=dict(call.settings),
        due=call.due,
        fence=call.fence,
        attempt=call.attempt,
        worker=call.worker,
        fenced=call.fenced,
        secrets=dict(call.mask.said),
        limit=call.limit,
    )
