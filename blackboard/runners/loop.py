"""The event loop of a worker, which runs its own coroutines and those of handlers.

No handler can end it, nor make it a second time. asyncio lets SystemExit and KeyboardInterrupt out
of `run_forever`, whichever task or callback raised them, and the program would end with the exit
code that a handler chose. Here the loop goes on, and the run that owns the task, callback or reader
fails; so it does for any other exception that is not an Exception. After the end of that run, and
where no owner is found, the exception is logged. A handler that calls `loop.stop()` does not stop
it either. One that cancels a task of the worker, or the task of another run, closes what all
coroutines of the loop share, or listens to the signals that stop the worker, is refused. A process
that a handler forks ends when it goes back to the loop: it would go on as the worker, with the
worker's locks and connections.

Not prevented: what ends the process itself (`os._exit`, a signal), and cancelling tasks of the
worker from a plain thread. The worker ends then, and its supervisor starts another.

A loop that stands still is reported by `loop_watch.py`, and its worker ended by `guard.py`.
"""

import asyncio
import inspect
import logging
import os
import signal
import traceback
from asyncio.events import Handle
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import suppress
from contextvars import ContextVar
from types import FrameType
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from weakref import WeakSet

from blackboard.runners.outcome import failure, is_kind, name_of
from blackboard.runners.resources import of_resources

Answer = TypeVar("Answer")
_Work = Coroutine[Any, Any, Any] | Generator[Any, None, Any]


class RunOfLoop(NamedTuple):
    """A run whose handler is a coroutine."""

    id: str
    type: str
    fence: int


class LoopRun(Protocol):
    """Such a run, also when it is over: it owns the tasks and callbacks that its handler starts."""

    about: RunOfLoop
    loop: asyncio.AbstractEventLoop

    def fail(self, problem: BaseException) -> None:
        """Ends the run as failed, if it is not over: what its handler started raised `problem`."""

    def refuse(self, refusal: str) -> None:
        """Logs, once, what the run tried to do to its worker, and that it was not done."""

    def masked(self, text: str) -> str:
        """`text` without the secrets of the run."""


_ENDING = (SystemExit, KeyboardInterrupt)
"""The exceptions that asyncio lets out of its loop."""

_CLEANUP: Final = 5.0
"""Seconds for tasks and threads that were left behind to end with the loop."""

_owner: ContextVar[LoopRun | None] = ContextVar("owner", default=None)
"""The run that a task or callback belongs to, also after its end. Set in the context of a handler,
which everything that it starts inherits."""

_RUNS: Final[WeakSet[LoopRun]] = WeakSet()
"""Every run, also one that is over, as long as something refers to it."""

_HANDLES: Final = {Handle, *Handle.__subclasses__()}
"""The types of asyncio's own handles. That of a handler may raise whatever is read of it."""

_LOG: Final = logging.getLogger("asyncio")
_TRACEBACK: Final = vars(BaseException)["__traceback__"]


def own(task: asyncio.Task[Any], run: LoopRun) -> None:
    """Makes `run` the owner of the task that the worker has made for it."""
    if isinstance(task, _OwnedTask):
        task.owner = run


def own_context(run: LoopRun) -> None:
    """Makes `run` the owner of all that is started in the present context from now on."""
    _owner.set(run)
    _RUNS.add(run)


def _end_with_this_step() -> None:
    """In a process that a handler has forked: it ends when it goes back to the loop, before
    anything else that is ready there.
    """
    if (owner := _owner.get()) is not None:
        # Nothing is taken out: a task that only this queue refers to would be closed, and its
        # clean-up run here as well. The queue of a loop of C code cannot be reached.
        ready = getattr(owner.loop, "_ready", deque[Handle]())
        ready.appendleft(Handle(os._exit, (0,), owner.loop))
        owner.loop.call_soon(os._exit, 0)
        owner.loop.set_exception_handler(_on_exception_in_a_fork)


def _on_exception_in_a_fork(loop: asyncio.AbstractEventLoop, about: dict[str, Any]) -> None:
    """Since Python 3.14 the step itself fails on its way back: the loop does not run in a fork.
    What else asyncio reports, such as a future that was dropped, does not end the process.
    """
    if "handle" in about:
        os._exit(0)
    _on_exception(loop, about)


os.register_at_fork(after_in_child=_end_with_this_step)


def run_loop(main: Coroutine[Any, Any, Answer]) -> Answer:
    """Like `asyncio.run`, but waits at most a few seconds for what is left at the end."""
    try:
        loop = asyncio.new_event_loop()
    except BaseException:
        main.close()
        raise
    loop.set_task_factory(_task_factory)
    loop.set_exception_handler(_on_exception)
    for name, refusal in _SHARED.items():
        with suppress(AttributeError):  # a loop of C code may not allow it
            setattr(loop, name, _for_the_worker_alone(loop, name, refusal))
    asyncio.set_event_loop(loop)
    try:
        return run_until_done(loop, main)
    finally:
        try:
            _end_leftovers(loop)
        finally:
            asyncio.set_event_loop(None)
            loop.close()


_STOPPING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SHARED: Final = {
    "shutdown_asyncgens": "closes the generators of its worker: they stay open",
    "shutdown_default_executor": "ends the threads of `asyncio.to_thread`: they go on",
    "set_default_executor": "replaces the threads of `asyncio.to_thread`: they stay",
    "add_signal_handler": "listens to a signal by which its worker is asked to stop: that goes on",
    "remove_signal_handler": "ignores a signal by which its worker is asked to stop: that goes on",
}
"""Methods of the loop by which one coroutine takes away what all others need, or the worker."""


def _for_the_worker_alone(
    loop: asyncio.AbstractEventLoop, name: str, refusal: str
) -> Callable[..., Any]:
    """The method of a loop, which refuses the runs on this loop."""
    method = getattr(loop, name)
    is_of_signals = name.endswith("_signal_handler")

    async def nothing() -> None:
        """The answer of a coroutine that was refused."""

    def call(*values: Any, **named: Any) -> Any:
        owner = _owner.get()
        number = values[0] if values else named.get("sig")
        if owner is None or owner.loop is not loop or (is_of_signals and number not in _STOPPING):
            return method(*values, **named)
        owner.refuse(refusal)
        if inspect.iscoroutinefunction(method):
            return nothing()
        return False if name == "remove_signal_handler" else None

    return call


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
            _fail(problem, owner_in_frames(traceback.walk_tb(_TRACEBACK.__get__(problem))))
    return task.result()


def _is_own(problem: BaseException, main: asyncio.Task[Any]) -> bool:
    """Whether `main` raised it, or Ctrl-C did, or another signal with Python's handler for Ctrl-C,
    where the loop does not handle them.
    """
    if main.done() and not main.cancelled() and main.exception() is problem:
        return True
    of_signals = map(signal.getsignal, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    return is_kind(problem, KeyboardInterrupt) and signal.default_int_handler in of_signals


class _OwnedTask(asyncio.Task[Any]):
    """A task with its owner, the run that made it, kept while the task is being destroyed."""

    owner: LoopRun | None = None
    is_guarded: bool = False
    """Whether no other run may cancel it: it belongs to the worker, or is the task of a run."""

    def cancel(self, msg: Any | None = None) -> bool:
        caller = _owner.get()
        if self.is_guarded and caller is not None and caller is not self.owner:
            caller.refuse("cancels tasks of its worker: they go on")
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
    if problem is not None and not is_kind(problem, Exception, *_ENDING):
        _fail(problem, _owner_of(task))


def _on_exception(_: asyncio.AbstractEventLoop, about: dict[str, Any]) -> None:
    """Asyncio's exception handler: a callback that raised, a task that was never awaited."""
    problem, handle = about.get("exception"), about.get("handle")
    owner = _owner_in(handle) or _owner_of(about.get("future")) or _owner_of(about.get("task"))
    if problem is not None and handle is not None and not is_kind(problem, Exception):
        _fail(problem, owner)
    else:
        log_masked(_described(about), owner or _owner.get())


def _fail(problem: BaseException, owner: LoopRun | None) -> None:
    """Fails the owner's run, or logs. Never raises, whatever classes the handler defines."""
    if owner is not None:
        try:
            owner.fail(problem)
        except BaseException as second:  # noqa: BLE001 - would end the worker
            problem = second
        else:
            return
    log_masked(lambda: f"something that a handler started raised {name_of(problem)}", owner)


def log_masked(describe: Callable[[], str], owner: LoopRun | None) -> None:
    """Logs an error of something that a handler may have started. The text is masked for every
    run, as one handler may hold the secrets of another; of what cannot be described or
    masked, only the type of that second error is logged. Does not use the loop's exception handler,
    which a handler may have set.
    """
    try:
        text = describe()
        for run in (owner, *_RUNS):
            text = text if run is None else run.masked(text)
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


def owner_in_frames(frames: Iterable[tuple[FrameType, int]]) -> LoopRun | None:
    """The run in whose context the loop called the code of these frames."""
    for frame, _ in frames:
        if frame.f_code is Handle._run.__code__:  # noqa: SLF001
            return _owner_in(frame.f_locals.get("self"))
    return None


def _owner_in(handle: object) -> LoopRun | None:
    if type(handle) not in _HANDLES:
        return None
    owner: LoopRun | None = handle._context.get(_owner)  # type: ignore[attr-defined] # noqa: SLF001
    return owner


def _owner_of(future: object) -> LoopRun | None:
    return future.owner if type(future) is _OwnedTask else None


def _end_leftovers(loop: asyncio.AbstractEventLoop) -> None:
    """Cancels all tasks, closes generators and ends threads, as far as they allow it. A task that
    goes on is never destroyed: what swallows each cancellation would swallow that, too, and Python
    would stay in it for ever.
    """
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    run_until_done(loop, _ended(left))
    for ending in (loop.shutdown_asyncgens(), loop.shutdown_default_executor()):
        run_until_done(loop, _ended([loop.create_task(ending)]))
    if left := asyncio.all_tasks(loop):
        from ctypes import py_object, pythonapi  # noqa: PLC0415 - hardly ever needed

        for task in left:
            pythonapi.Py_IncRef(py_object(task))


async def _ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    if waiting := list(tasks):
        await asyncio.wait(waiting, timeout=_CLEANUP)
