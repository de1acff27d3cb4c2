"""Runs coroutine handlers as tasks on the worker's own loop (`loop.py`).

Hundreds of them cost little. Nothing limits how long one holds the loop: a handler that computes
instead of awaiting holds up everything, renewals too, and only the worker's watchdog ends it. A
handler that swallows its cancellation is abandoned after some seconds: its run is over and the slot
free, though the task may still exist.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any

import msgspec

from blackboard.clock import SystemClock
from blackboard.handlers.context import Context
from blackboard.handlers.handler import Source
from blackboard.handlers.params import with_params
from blackboard.model import Ended, Outcome, replace
from blackboard.runners import wire
from blackboard.runners.handler_run import RunReport, context_of
from blackboard.runners.logs import keep_logs, own_logs
from blackboard.runners.loop import RunOfLoop, log_masked, own, own_context
from blackboard.runners.outcome import GOOD_EXIT, Notes, ended_by, failure, fitting_result, name_of
from blackboard.runners.output import Tail, capture, route, unroute
from blackboard.runners.resources import LoopResources
from blackboard.runners.runner import Execution, HandlerCall, Reporter, cancel_all
from blackboard.runners.signals import LoopSignal, Unawaited


class InlineRunner:
    """`stop_timeout`: seconds for the clean-up of a cancelled handler."""

    def __init__(self, *, stop_timeout: float = 5.0) -> None:
        self._stop_timeout = stop_timeout
        self._running: set[_InlineRun] = set()
        self._resources = LoopResources()

    def start(self, call: HandlerCall, report: Reporter, deadline: float) -> Execution:  # noqa: ARG002
        run = _InlineRun(call, report, self._resources, stop_timeout=self._stop_timeout)
        self._running.add(run)
        run.when_ended(lambda _: self._running.discard(run))
        return run

    async def can_start(self, source: Source) -> bool:  # noqa: ARG002 - it always can
        return True

    async def close(self) -> None:
        await cancel_all(self._running)
        for problem in await self._resources.close(self._stop_timeout):
            log_masked(partial(failure, problem), None)


class _InlineRun:
    """One run. Once it has ended it is in no reference cycle: to find such cycles would take the
    garbage collector longer than a run takes otherwise.
    """

    def __init__(
        self, call: HandlerCall, report: Reporter, resources: LoopResources, *, stop_timeout: float
    ) -> None:
        self._resources = resources
        self.loop = asyncio.get_running_loop()
        self._outside = copy_context()
        self._report = report
        self._mask = call.mask
        self.about = RunOfLoop(call.item.id, call.item.type, call.fence)
        self._stop_timeout = stop_timeout
        self._unawaited = Unawaited()
        self._lost = LoopSignal(self._unawaited, "ctx.lost")
        self._stopping = LoopSignal(self._unawaited, "ctx.stopping")
        self._tail = Tail()
        self._notes = Notes()
        self._reports = RunReport(call.mask, limit=call.limit, send=self._send)
        self._verdict: Ended | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._began = False
        self._refused = set[str]()
        self._ended: Ended | None = None
        self._to_call: list[Callable[[Ended], None]] = []
        route()
        task = self.loop.create_task(self._run(call), name=f"{call.item.type} handler")
        task.add_done_callback(self._settle)
        own(task, self)
        self._task: asyncio.Task[Ended] | None = task

    async def wait(self) -> Ended:
        ended: asyncio.Future[Ended] = self.loop.create_future()
        self.when_ended(lambda how: None if ended.done() else ended.set_result(how))
        return await ended

    def when_ended(self, call: Callable[[Ended], None]) -> None:
        if self._ended is None:
            self._to_call.append(call)
        else:
            self.loop.call_soon(call, self._ended, context=self._outside)

    def extend(self, deadline: float) -> None:
        """Does nothing: a loop that stands still neither renews nor runs the handler."""

    def lose(self, reason: str) -> None:
        self._lost.set(reason)

    def ask_to_end(self, reason: str) -> None:
        self._stopping.set(reason)

    def stop(self, outcome: Outcome, reason: str) -> None:
        self._stop(Ended(outcome=outcome, error=reason))

    def fail(self, problem: BaseException) -> None:
        """Ends the run as failed, if it is not over: what the handler started raised `problem`."""
        if self._ended is None:
            self._stop(Ended(outcome=Outcome.FAILED, error=self._mask.short(failure(problem))))
            return
        subject = f"what the {self.about.type} handler of {self.about.id} left behind"
        message = f"{subject} raised {name_of(problem)} after its run had ended"
        log_masked(lambda: message, self)

    def refuse(self, refusal: str) -> None:
        """Logs, once, what the run tried to do to its worker, such as to cancel all tasks of the
        loop, and that it was not done.
        """
        if refusal not in self._refused:
            self._refused.add(refusal)
            log_masked(lambda: f"the {self.about.type} handler of {self.about.id} {refusal}", self)

    def masked(self, text: str) -> str:
        """`text` without the values that `${NAME}` in the run's params stands for."""
        return self._mask.short(text)

    def _stop(self, verdict: Ended) -> None:
        if self._verdict is not None or self._task is None:
            return
        self._verdict = verdict
        self._timer = self.loop.call_later(self._stop_timeout, self._abandon, context=self._outside)
        self._task.cancel()

    async def _run(self, call: HandlerCall) -> Ended:
        self._began = True
        called = SystemClock().monotonic()
        self._report.called()
        own_context(self)
        capture(self._tail)
        keep_logs(self._reports.log)
        try:
            item = with_params(call.item, call.handler.params)
            resources = await self._resources.of(call.item.type, call.handler.resources)
            context = context_of(
                call,
                self._reports,
                called=called,
                save=self._save,
                lost=self._lost,
                stopping=self._stopping,
                resources=resources,
            )
            value = None
            try:
                with GOOD_EXIT:
                    value = await call.handler.function(item, context)
            finally:
                await self._warn_of_unawaited(context)
            # Encoded as in a child process: the worker gets what the row will hold.
            encoded = fitting_result(value, call.mask, limit=call.limit)
        except BaseException as problem:  # noqa: BLE001 - SystemExit would end the worker
            return ended_by(problem, call.mask)
        return Ended(outcome=Outcome.OK, result=msgspec.json.decode(encoded))

    def _settle(self, task: asyncio.Task[Ended]) -> None:
        unroute()
        if self._timer is not None:
            self._timer.cancel()
        if self._verdict is not None:
            self._end(self._verdict)
        elif task.cancelled() and self._began:
            self._end(Ended(outcome=Outcome.FAILED, error="the handler cancelled its own task"))
        elif task.cancelled():
            self._end(Ended(outcome=Outcome.CANCELLED, error="cancelled before it began"))
        elif (problem := task.exception()) is not None:
            self._end(ended_by(problem, self._mask))
        else:
            self._end(task.result())

    def _abandon(self) -> None:
        assert self._verdict is not None
        words = (
            "the handler swallowed its cancellation and is abandoned after "
            f"{self._stop_timeout:g} s; it may still be running, until its worker ends"
        )
        self._report.log(logging.ERROR, words)
        self._end(replace(self._verdict, error=f"{self._verdict.error}; {words}"))

    def _end(self, ended: Ended) -> None:
        self._task = None
        self._reports.end()
        if self._ended is None:
            output = self._mask.output(self._tail.text())
            self._ended = self._notes.added_to(ended, output=output)
            to_call, self._to_call = self._to_call, []
            for call in to_call:
                call(self._ended)

    async def _warn_of_unawaited(self, context: Context) -> None:
        """Warns of calls that did nothing, because the handler has forgotten to await them."""
        if self._unawaited.left():
            await asyncio.sleep(0)  # a task that the handler has made at its end begins
        for name in self._unawaited.close():
            context.warn(f"{name} was called without `await`, and did nothing")

    def _save(self, value: Any) -> Coroutine[Any, Any, None]:
        return self._unawaited.noted("ctx.save", self._saved(value))

    async def _saved(self, value: Any) -> None:
        checkpoint = self._reports.checkpoint(value)
        with own_logs():
            await self._report.save(checkpoint)

    def _send(self, message: wire.Reported) -> None:
        """Hands it to the loop, from any thread, outside the handler's context: what the worker
        prints about a run is not the handler's output.
        """
        with suppress(RuntimeError):  # a thread that outlived the loop
            self.loop.call_soon_threadsafe(self._take, message, context=self._outside)

    def _take(self, message: wire.Reported) -> None:
        if self._ended is None:
            self._notes.take(message, self._report)
