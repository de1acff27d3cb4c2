"""Runs the event loop that coroutine handlers share with their worker. None of them can end it.

asyncio lets SystemExit and KeyboardInterrupt out of `run_forever`, whichever task or callback
raised them, and with them the program ends, with the exit code that a handler chose. Here the loop
goes on: the handler whose task, callback or reader it was is blamed, which fails its run; so does
whatever else is raised there that is no Exception. After the run's end, and where nothing tells
whose it was, it is logged. A handler that stops the loop does not stop it either.

Not contained is what ends the process itself (`os._exit`, a signal), nor the cancelling of tasks
that are not the handler's own: the worker ends then, and its supervisor starts another.
"""

import asyncio
import logging
import os
import signal
import sys
import threading
import traceback
from asyncio.events import Handle
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextvars import Context, ContextVar
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakSet

from blackboard.runners.ending import failure, name_of

Answer = TypeVar("Answer")

_Work = Coroutine[Any, Any, Any] | Generator[Any, None, Any]
_ENDING = (SystemExit, KeyboardInterrupt)
"""What asyncio lets out of its loop."""

PATIENCE: Final = 5.0
"""Seconds that tasks and threads which were left behind have to end with the loop."""


class Blamed(Protocol):
    """The run of a handler, also after its end."""

    def blame(self, problem: BaseException) -> None:
        """Fail, if it is not over: what the handler started raised this."""

    def masked(self, text: str) -> str:
        """Without the values that this run's params stand for."""


to_blame: ContextVar[Blamed | None] = ContextVar("to_blame", default=None)
"""Set in the context of a handler, which all that it starts inherits."""

_MASKING: Final[WeakSet[Blamed]] = WeakSet()
"""All runs that there are, and those that are over and of which something is left."""

_LOG: Final = logging.getLogger("asyncio")
_TRACEBACK: Final = vars(BaseException)["__traceback__"]


def begin(blamed: Blamed) -> None:
    """All that is started in this context from here on is this run's."""
    to_blame.set(blamed)
    _MASKING.add(blamed)


def run(main: Coroutine[Any, Any, Answer]) -> Answer:
    """Like `asyncio.run`, but waits a few seconds only for what is left at the end."""
    loop = asyncio.new_event_loop()
    loop.set_task_factory(_task_of)
    loop.set_exception_handler(_hear)
    asyncio.set_event_loop(loop)
    try:
        return finish(loop, main)
    finally:
        try:
            _end_what_is_left(loop)
        finally:
            asyncio.set_event_loop(None)
            loop.close()


def finish(loop: asyncio.AbstractEventLoop, main: Coroutine[Any, Any, Answer]) -> Answer:
    """Run a loop until `main` has ended; what that returns or raises."""
    task = loop.create_task(main)
    task.add_done_callback(lambda _: loop.stop())
    while not task.done():
        try:
            loop.run_forever()
        except _ENDING as problem:
            if _is_for_us(problem, task):
                raise
            _blame(problem, _whose(problem))
    return task.result()


def leave(code: int) -> None:
    """End this process at once, with this exit code, if handlers have left threads behind: Python
    would wait for them. An exception that is being handled is printed, and decides the code.
    """
    if not any(not one.daemon for one in threading.enumerate() if one is not _MAIN):
        return
    problem = sys.exc_info()[1]
    if problem is not None:
        traceback.print_exception(problem)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code if problem is None else getattr(problem, "exit_code", 1))


_MAIN: Final = threading.main_thread()


def _is_for_us(problem: BaseException, main: asyncio.Task[Any]) -> bool:
    """Whether the program itself raised it; or Ctrl-C, before the loop listens to that signal."""
    if main.done() and not main.cancelled() and main.exception() is problem:
        return True
    is_signal = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return _is_a(problem, KeyboardInterrupt) and is_signal


def _is_a(problem: object, *kinds: type[BaseException]) -> bool:
    """By its true type. `isinstance` would ask `__class__`, where a handler's code may raise."""
    return issubclass(type(problem), kinds)


class Task(asyncio.Task[Any]):
    """A task that knows which handler made it, also when it is about to be forgotten."""

    made_by: Blamed | None = None


def _task_of(loop: asyncio.AbstractEventLoop, work: _Work, **about: Any) -> asyncio.Task[Any]:
    """A task, which a handler is blamed for if it has made it."""
    task = Task(work, loop=loop, **about)
    if (blamed := to_blame.get()) is not None:
        task.made_by = blamed
        task.add_done_callback(_look_at)
    return task


def _look_at(task: asyncio.Task[Any]) -> None:
    if task.cancelled():
        return
    # Not task.exception(): asyncio logs what nothing has asked for, and is to go on with that.
    problem = task._exception  # noqa: SLF001
    if problem is not None and not _is_a(problem, Exception, *_ENDING):
        _blame(problem, _maker_of(task))


def _hear(_: asyncio.AbstractEventLoop, about: dict[str, Any]) -> None:
    """Asyncio's exception handler: a callback that raised, a task that was never awaited."""
    problem, handle = about.get("exception"), about.get("handle")
    blamed = _blamed_in(handle) or _maker_of(about.get("future")) or _maker_of(about.get("task"))
    if problem is not None and handle is not None and not _is_a(problem, Exception):
        _blame(problem, blamed)
    else:
        log(_described(about), blamed or to_blame.get())


def _blame(problem: BaseException, blamed: Blamed | None) -> None:
    """Nothing gets out of this, whatever a handler made of its exception and of its context."""
    if blamed is not None:
        try:
            blamed.blame(problem)
        except BaseException as second:  # noqa: BLE001 - would end the worker
            problem = second
        else:
            return
    log(lambda: f"something that a handler started raised {name_of(problem)}", blamed)


def log(describe: Callable[[], str], blamed: Blamed | None) -> None:
    """Log an error of something that a handler may have started. It is masked for that run; and
    for all others that can still be told, as one handler may hold what another was told. What
    cannot be described or masked is not logged. Not by the loop's exception handler: that may be
    one that a handler has set.
    """
    try:
        text = describe()
        for one in (blamed, *_MASKING):
            text = text if one is None else one.masked(text)
    except BaseException as second:  # noqa: BLE001 - descriptions hold what a handler wrote
        text = f"what a handler started went wrong, and describing it raised {name_of(second)}"
    _LOG.error("%s", text)


def _described(about: dict[str, Any]) -> Callable[[], str]:
    """What asyncio says of a fault, with the traceback."""

    def describe() -> str:
        lines = [str(about.get("message"))]
        named = ("handle", "future", "task", "asyncgen", "source_traceback")
        lines += [f"{name}: {about[name]!r}" for name in named if name in about]
        if (problem := about.get("exception")) is not None:
            lines.append(failure(problem))
        return "\n".join(lines)

    return describe


def _whose(problem: BaseException) -> Blamed | None:
    """The handler in whose context the loop called what raised it."""
    for frame, _ in traceback.walk_tb(_TRACEBACK.__get__(problem)):
        if frame.f_code is Handle._run.__code__:  # noqa: SLF001
            return _blamed_in(frame.f_locals.get("self"))
    return None


def _blamed_in(handle: object) -> Blamed | None:
    if type(handle) not in {Handle, asyncio.TimerHandle}:
        return None
    context: Context = handle._context  # type: ignore[attr-defined] # noqa: SLF001
    return context.get(to_blame)


def _maker_of(future: object) -> Blamed | None:
    return future.made_by if type(future) is Task else None


def _end_what_is_left(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel all tasks, close generators and end threads: of each kind, those that let it."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    finish(loop, _ended(left))
    for ending in (loop.shutdown_asyncgens(), loop.shutdown_default_executor()):
        finish(loop, _ended([loop.create_task(ending)]))


async def _ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    if waiting := list(tasks):
        await asyncio.wait(waiting, timeout=PATIENCE)
