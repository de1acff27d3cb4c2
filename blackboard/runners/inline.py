"""Runs a coroutine handler as a task on the worker's own loop.

Hundreds of them cost little. What they cannot have is a limit of their own on the loop: one that
computes instead of awaiting holds up everything, renewals too, and only the worker's watchdog
ends that. A handler that swallows its cancellation is abandoned after a while: its run is over
and the slot free, though the task may still be there. What tasks and callbacks of a handler raise
to end the program fails its run (see `contained.py`).
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from copy import deepcopy
from dataclasses import replace

import msgspec

from blackboard.context import Context, progress_of, run_logger
from blackboard.model import Ended, Outcome
from blackboard.runner import Call, Execution, Report
from blackboard.runners import contained
from blackboard.runners.ending import failure, fitting_result, name_of
from blackboard.runners.prints import Tail, captured


class InlineRunner:
    """`patience`: seconds that a cancelled handler has for its clean-up."""

    def __init__(self, *, patience: float = 5.0) -> None:
        self._patience = patience
        self._running: set[_InlineRun] = set()
        self.abandoned = 0
        """Handlers that swallowed their cancellation. While there are any, `asyncio.run` may
        wait for them for ever: the worker's last step is then `os._exit`."""

    def start(self, call: Call, report: Report, deadline: float) -> Execution:  # noqa: ARG002
        run = _InlineRun(call, report, patience=self._patience)
        self._running.add(run)
        run.ended.add_done_callback(lambda _: self._over(run))
        return run

    async def close(self) -> None:
        for run in list(self._running):
            run.stop(Outcome.CANCELLED, "the worker ended")
            await run.wait()

    def _over(self, run: "_InlineRun") -> None:
        self._running.discard(run)
        self.abandoned += run.abandoned


class _InlineRun:
    def __init__(self, call: Call, report: Report, *, patience: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._outside = copy_context()
        self._report = report
        self._mask = call.mask
        self._id, self._type = call.item.id, call.item.type
        self._patience = patience
        self._lost = _LostSignal()
        self._tail = Tail()
        self._verdict: Ended | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._began = False
        self.abandoned = False
        self.ended: asyncio.Future[Ended] = self._loop.create_future()
        self._task = self._loop.create_task(self._run(call), name=f"{call.item.type} handler")
        self._task.add_done_callback(self._settle)

    async def wait(self) -> Ended:
        return await asyncio.shield(self.ended)

    def extend(self, deadline: float) -> None:
        """Nothing to do: a loop that stands still cannot renew and cannot run this either."""

    def lose(self, reason: str) -> None:
        self._lost.set(reason)

    def stop(self, outcome: Outcome, reason: str) -> None:
        self._stop(Ended(outcome=outcome, error=reason))

    def blame(self, problem: BaseException) -> None:
        """Something that the handler started raised what would end the worker."""
        if not self.ended.done():
            self._stop(Ended(outcome=Outcome.FAILED, error=self._mask.short(failure(problem))))
            return
        what = f"what the {self._type} handler of {self._id} left behind"
        message = f"{what} raised {name_of(problem)} after its run had ended"
        contained.log(lambda: message, self)

    def masked(self, text: str) -> str:
        return self._mask.short(text)

    def _stop(self, verdict: Ended) -> None:
        if self._verdict is not None or self.ended.done():
            return
        self._verdict = verdict
        self._timer = self._loop.call_later(self._patience, self._abandon)
        self._task.cancel()

    async def _run(self, call: Call) -> Ended:
        self._began = True
        context = Context(
            due=call.due,
            fence=call.fence,
            attempt=call.attempt,
            worker=call.worker,
            fenced=call.fenced,
            settings=deepcopy(dict(call.settings)),  # what a run changes there is its own
            log=run_logger(self._log),
            lost=self._lost,
            progress=self._progress,
        )
        contained.begin(self)
        with captured(self._tail):
            try:
                value = await call.handler.function(call.item, context)
                # As from a child process: what the row will hold, not what is held here.
                encoded = fitting_result(value, call.mask, limit=call.limit)
            except BaseException as problem:  # noqa: BLE001 - SystemExit would end the worker
                return Ended(outcome=Outcome.FAILED, error=call.mask.short(failure(problem)))
            return Ended(outcome=Outcome.OK, result=msgspec.json.decode(encoded))

    def _settle(self, task: asyncio.Task[Ended]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._verdict is not None:
            self._end(self._verdict)
        elif not task.cancelled():
            self._end(task.result())
        elif self._began:
            self._end(Ended(outcome=Outcome.FAILED, error="the handler cancelled its own task"))
        else:
            self._end(Ended(outcome=Outcome.CANCELLED, error="cancelled before it began"))

    def _abandon(self) -> None:
        assert self._verdict is not None
        self.abandoned = True
        self._report.log(
            logging.ERROR,
            f"the handler swallowed its cancellation and is abandoned after {self._patience:g} s; "
            "it may still be running",
        )
        self._end(self._verdict)

    def _end(self, ended: Ended) -> None:
        if not self.ended.done():
            output = self._mask.output(self._tail.text())
            self.ended.set_result(replace(ended, output=output))

    def _log(self, level: int, message: str) -> None:
        text = self._mask.short(message)
        self._tell(lambda: self._report.log(level, text))

    def _progress(self, done: int, total: int) -> None:
        whole = progress_of(done, total)
        self._tell(lambda: self._report.progress(*whole))

    def _tell(self, report: Callable[[], None]) -> None:
        """From whatever thread, on the loop, and outside the handler's context: what the worker
        prints about a run is not the handler's output.
        """

        def unless_over() -> None:
            if not self.ended.done():
                report()

        with suppress(RuntimeError):  # a thread that outlived the loop has nobody to tell
            self._loop.call_soon_threadsafe(unless_over, context=self._outside)


class _LostSignal:
    def __init__(self) -> None:
        self.reason = ""
        self._event = asyncio.Event()

    def set(self, reason: str) -> None:
        self.reason = reason
        self._event.set()

    def __bool__(self) -> bool:
        return self._event.is_set()

    async def wait(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - as in threads
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._event.wait()
        return self._event.is_set()
