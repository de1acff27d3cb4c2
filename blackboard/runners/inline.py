"""Runs coroutine handlers as tasks on the worker's own loop, and runs that loop.

Hundreds of them cost little. Nothing limits how long one holds the loop: a handler that computes
instead of awaiting holds up everything, renewals too, and only the worker's watchdog ends it. A
handler that swallows its cancellation is abandoned after some seconds: its run is over and the slot
free, though the task may still exist.

No handler can end the loop. asyncio lets SystemExit and KeyboardInterrupt out of `run_forever`,
whichever task or callback raised them, and the program would end with the exit code that a handler
chose. Here the loop goes on, and the run that owns the task, callback or reader fails; so it does
for any other exception that is not an Exception. After the end of that run, and where no owner is
found, the exception is logged. A handler that calls `loop.stop()` does not stop it either, and one
that cancels a task of the worker, or the task of another run, is refused.

Not prevented: what ends the process itself (`os._exit`, a signal), and cancelling tasks of the
worker from a plain thread. The worker ends then, and its supervisor starts another.
"""

import asyncio
import logging
import signal
import traceback
from asyncio.events import Handle
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakSet

import msgspec

from blackboard.handlers.params import with_params
from blackboard.model import Ended, Outcome, replace
from blackboard.runner import Execution, HandlerCall, Reporter
from blackboard.runners import wire
from blackboard.runners.handler_run import RunReport, context_of
from blackboard.runners.logs import kept_logs, own_logs
from blackboard.runners.output import (
    Notes,
    Tail,
    captured,
    ended_by,
    failure,
    fitting_result,
    is_good_exit,
    name_of,
)
from blackboard.runners.resources import LoopResources, of_resources
from blackboard.runners.signals import LoopSignal

Answer = TypeVar("Answer")
_Work = Coroutine[Any, Any, Any] | Generator[Any, None, Any]


class RunOfLoop(NamedTuple):
    """A run whose handler is a coroutine."""

    id: str
    type: str
    fence: int


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

    async def close(self) -> None:
        for run in list(self._running):
            run.stop(Outcome.CANCELLED, "the worker ended")
            await run.wait()
        for problem in await self._resources.close(self._stop_timeout):
            _log_masked(partial(failure, problem), None)


class _InlineRun:
    """One run. Once it has ended it is in no reference cycle: to find such cycles would take the
    garbage collector longer than a run takes otherwise.
    """

    def __init__(
        self,
        call: HandlerCall,
        report: Reporter,
        resources: LoopResources,
        *,
        stop_timeout: float,
    ) -> None:
        self._resources = resources
        self._loop = asyncio.get_running_loop()
        self._outside = copy_context()
        self._report = report
        self._mask = call.mask
        self.about = RunOfLoop(call.item.id, call.item.type, call.fence)
        self._stop_timeout = stop_timeout
        self._lost, self._stopping = LoopSignal(), LoopSignal()
        self._tail = Tail()
        self._notes = Notes()
        self._reports = RunReport(call.mask, limit=call.limit, send=self._send)
        self._verdict: Ended | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._began = False
        self._was_refused = False
        self._ended: Ended | None = None
        self._to_call: list[Callable[[Ended], None]] = []
        task = self._loop.create_task(self._run(call), name=f"{call.item.type} handler")
        task.add_done_callback(self._settle)
        if isinstance(task, _OwnedTask):
            task.owner = self
        self._task: asyncio.Task[Ended] | None = task

    async def wait(self) -> Ended:
        ended: asyncio.Future[Ended] = self._loop.create_future()
        self.when_ended(lambda how: None if ended.done() else ended.set_result(how))
        return await ended

    def when_ended(self, call: Callable[[Ended], None]) -> None:
        if self._ended is None:
            self._to_call.append(call)
        else:
            self._loop.call_soon(call, self._ended, context=self._outside)

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
        what = f"what the {self.about.type} handler of {self.about.id} left behind"
        message = f"{what} raised {name_of(problem)} after its run had ended"
        _log_masked(lambda: message, self)

    def refuse_to_cancel(self) -> None:
        """Logs, once, that the run tried to cancel tasks of others: all tasks of the loop, say."""
        if not self._was_refused:
            self._was_refused = True
            what = f"the {self.about.type} handler of {self.about.id} cancels tasks of its worker"
            _log_masked(lambda: f"{what}: they go on", self)

    def masked(self, text: str) -> str:
        """`text` without the values that `${NAME}` in the run's params stands for."""
        return self._mask.short(text)

    def _stop(self, verdict: Ended) -> None:
        if self._verdict is not None or self._task is None:
            return
        self._verdict = verdict
        self._timer = self._loop.call_later(
            self._stop_timeout, self._abandon, context=self._outside
        )
        self._task.cancel()

    async def _run(self, call: HandlerCall) -> Ended:
        self._began = True
        _owner.set(self)
        _RUNS.add(self)
        with captured(self._tail), kept_logs(self._reports.log):
            try:
                item = with_params(call.item, call.handler.params)
                resources = await self._resources.of(call.item.type, call.handler.resources)
                context = context_of(
                    call,
                    self._reports,
                    save=self._save,
                    lost=self._lost,
                    stopping=self._stopping,
                    resources=resources,
                )
                try:
                    value = await call.handler.function(item, context)
                except SystemExit as problem:
                    if not is_good_exit(problem):
                        raise
                    value = None
                # Encoded as in a child process: the worker gets what the row will hold.
                encoded = fitting_result(value, call.mask, limit=call.limit)
            except BaseException as problem:  # noqa: BLE001 - SystemExit would end the worker
                return ended_by(problem, call.mask)
            return Ended(outcome=Outcome.OK, result=msgspec.json.decode(encoded))

    def _settle(self, task: asyncio.Task[Ended]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._verdict is not None:
            self._end(self._verdict)
        elif task.cancelled():
            self._end(
                Ended(outcome=Outcome.FAILED, error="the handler cancelled its own task")
                if self._began
                else Ended(outcome=Outcome.CANCELLED, error="cancelled before it began")
            )
        elif (problem := task.exception()) is not None:
            self._end(ended_by(problem, self._mask))
        else:
            self._end(task.result())

    def _abandon(self) -> None:
        assert self._verdict is not None
        self._report.log(
            logging.ERROR,
            "the handler swallowed its cancellation and is abandoned after "
            f"{self._stop_timeout:g} s; it may still be running",
        )
        self._end(self._verdict)

    def _end(self, ended: Ended) -> None:
        self._task = None
        self._reports.end()
        if self._ended is None:
            output = self._mask.output(self._tail.text())
            self._ended = self._notes.added_to(replace(ended, output=output))
            to_call, self._to_call = self._to_call, []
            for call in to_call:
                call(self._ended)

    async def _save(self, value: Any) -> None:
        checkpoint = self._reports.checkpoint(value)
        with own_logs():
            await self._report.save(checkpoint)

    def _send(self, message: wire.Reported) -> None:
        """Hands it to the loop, from any thread, outside the handler's context: what the worker
        prints about a run is not the handler's output.
        """
        with suppress(RuntimeError):  # a thread that outlived the loop
            self._loop.call_soon_threadsafe(self._take, message, context=self._outside)

    def _take(self, message: wire.Reported) -> None:
        if self._ended is None:
            self._notes.take(message, self._report)


# ---- the loop

_ENDING = (SystemExit, KeyboardInterrupt)
"""The exceptions that asyncio lets out of its loop."""

_CLEANUP: Final = 5.0
"""Seconds for tasks and threads that were left behind to end with the loop."""

_owner: ContextVar[_InlineRun | None] = ContextVar("owner", default=None)
"""The run that a task or callback belongs to, also after its end. Set in the context of a handler,
which everything that it starts inherits."""

_RUNS: Final[WeakSet[_InlineRun]] = WeakSet()
"""Every run, also one that is over, as long as something refers to it."""

_LOG: Final = logging.getLogger("asyncio")
_TRACEBACK: Final = vars(BaseException)["__traceback__"]


def run_loop(main: Coroutine[Any, Any, Answer]) -> Answer:
    """Like `asyncio.run`, but waits at most a few seconds for what is left at the end."""
    try:
        loop = asyncio.new_event_loop()
    except BaseException:
        main.close()
        raise
    loop.set_task_factory(_task_factory)
    loop.set_exception_handler(_on_exception)
    asyncio.set_event_loop(loop)
    try:
        return run_until_done(loop, main)
    finally:
        try:
            _end_leftovers(loop)
        finally:
            asyncio.set_event_loop(None)
            loop.close()


def run_until_done(loop: asyncio.AbstractEventLoop, main: Coroutine[Any, Any, Answer]) -> Answer:
    """Runs a loop until `main` has ended. Returns its result, or raises its exception."""
    task = loop.create_task(main)
    task.add_done_callback(lambda _: loop.stop())
    while not task.done():
        try:
            loop.run_forever()
        except _ENDING as problem:
            if _is_own(problem, task):
                raise
            _fail(problem, _owner_of_frame(problem))
    return task.result()


def _is_own(problem: BaseException, main: asyncio.Task[Any]) -> bool:
    """Whether `main` raised it, or Ctrl-C did, or another signal with Python's handler for Ctrl-C,
    where the loop does not handle them.
    """
    if main.done() and not main.cancelled() and main.exception() is problem:
        return True
    of_signals = map(signal.getsignal, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    return _is_kind(problem, KeyboardInterrupt) and signal.default_int_handler in of_signals


def _is_kind(problem: object, *kinds: type[BaseException]) -> bool:
    """Whether its true type is one of these. `isinstance` would read `__class__`, where a handler's
    code may raise.
    """
    return issubclass(type(problem), kinds)


class _OwnedTask(asyncio.Task[Any]):
    """A task with its owner, the run that made it, kept while the task is being destroyed."""

    owner: _InlineRun | None = None
    is_guarded: bool = False
    """Whether no other run may cancel it: it belongs to the worker, or is the task of a run."""

    def cancel(self, msg: Any | None = None) -> bool:
        caller = _owner.get()
        if self.is_guarded and caller is not None and caller is not self.owner:
            caller.refuse_to_cancel()
            return False
        return super().cancel(msg)


def _task_factory(loop: asyncio.AbstractEventLoop, work: _Work, **about: Any) -> asyncio.Task[Any]:
    """A task that belongs to the run of the present context, if there is one."""
    task = _OwnedTask(work, loop=loop, **about)
    if (owner := _owner.get()) is not None:
        task.owner = owner
        task.add_done_callback(_on_done)
    else:
        task.is_guarded = not of_resources.get()
    return task


def _on_done(task: asyncio.Task[Any]) -> None:
    if task.cancelled():
        return
    # Not task.exception(): it counts as retrieving, after which asyncio does not log it.
    problem = task._exception  # noqa: SLF001
    if problem is not None and not _is_kind(problem, Exception, *_ENDING):
        _fail(problem, _owner_of(task))


def _on_exception(_: asyncio.AbstractEventLoop, about: dict[str, Any]) -> None:
    """Asyncio's exception handler: a callback that raised, a task that was never awaited."""
    problem, handle = about.get("exception"), about.get("handle")
    owner = _owner_in(handle) or _owner_of(about.get("future")) or _owner_of(about.get("task"))
    if problem is not None and handle is not None and not _is_kind(problem, Exception):
        _fail(problem, owner)
    else:
        _log_masked(_described(about), owner or _owner.get())


def _fail(problem: BaseException, owner: _InlineRun | None) -> None:
    """Fails the owner's run, or logs. Never raises, whatever classes the handler defines."""
    if owner is not None:
        try:
            owner.fail(problem)
        except BaseException as second:  # noqa: BLE001 - would end the worker
            problem = second
        else:
            return
    _log_masked(lambda: f"something that a handler started raised {name_of(problem)}", owner)


def _log_masked(describe: Callable[[], str], owner: _InlineRun | None) -> None:
    """Logs an error of something that a handler may have started. The text is masked for every
    run, as one handler may hold the secrets of another; of what cannot be described or
    masked, only the type of that second error is logged. Does not use the loop's exception handler,
    which a handler may have set.
    """
    try:
        text = describe()
        for one in (owner, *_RUNS):
            text = text if one is None else one.masked(text)
    except BaseException as second:  # noqa: BLE001 - descriptions hold what a handler wrote
        text = f"what a handler started went wrong, and describing it raised {name_of(second)}"
    _LOG.error("%s", text)


def _described(about: dict[str, Any]) -> Callable[[], str]:
    """Asyncio's description of a fault, with the traceback."""

    def describe() -> str:
        lines = [str(about.get("message"))]
        named = ("handle", "future", "task", "asyncgen", "source_traceback")
        lines += [f"{name}: {about[name]!r}" for name in named if name in about]
        if (problem := about.get("exception")) is not None:
            lines.append(failure(problem))
        return "\n".join(lines)

    return describe


def _owner_of_frame(problem: BaseException) -> _InlineRun | None:
    """The run in whose context the loop called the code that raised it."""
    for frame, _ in traceback.walk_tb(_TRACEBACK.__get__(problem)):
        if frame.f_code is Handle._run.__code__:  # noqa: SLF001
            return _owner_in(frame.f_locals.get("self"))
    return None


def owner_in(handle: object) -> RunOfLoop | None:
    """The run that a handle of the loop belongs to, or None."""
    owner = _owner_in(handle)
    return None if owner is None else owner.about


def _owner_in(handle: object) -> _InlineRun | None:
    if type(handle) not in {Handle, asyncio.TimerHandle}:
        return None
    owner: _InlineRun | None = handle._context.get(_owner)  # type: ignore[attr-defined] # noqa: SLF001
    return owner


def _owner_of(future: object) -> _InlineRun | None:
    return future.owner if type(future) is _OwnedTask else None


def _end_leftovers(loop: asyncio.AbstractEventLoop) -> None:
    """Cancels all tasks, closes generators and ends threads, as far as they allow it."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    run_until_done(loop, _ended(left))
    for ending in (loop.shutdown_asyncgens(), loop.shutdown_default_executor()):
        run_until_done(loop, _ended([loop.create_task(ending)]))


async def _ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    if waiting := list(tasks):
        await asyncio.wait(waiting, timeout=_CLEANUP)
