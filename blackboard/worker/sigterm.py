"""Blocks of programs that end at SIGTERM, where the program does not handle it itself.

Only blocks of the main thread do. Where none of them can be ended, as when the task that entered it
is over, SIGTERM has its default action. So it has in a forked process, and while the program ends.
"""

import asyncio
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any
from weakref import WeakSet

from blackboard.tasks import drop_error

EXIT_CODE = 128 + signal.SIGTERM
"""The exit code of a program that SIGTERM has ended."""


class WentOn(BaseException):
    """Ends a task that enters another block while its loop is closed after SIGTERM. No Exception:
    the task may catch those, as it has caught its cancellation.
    """


class Block:
    """The body of a `with` of a program without an event loop. SIGTERM ends it by SystemExit."""

    is_terminated = False

    def __enter__(self) -> None:
        catch(self)

    def __exit__(self, *_: object) -> None:
        release(self)

    def terminate(self) -> bool:
        """Begins to end the block. Returns whether that is possible. Raises SystemExit where the
        main thread is in the block.
        """
        raise SystemExit(EXIT_CODE)


class OfTask(Block):
    """The body of an `async with` that a task has just entered."""

    def __init__(self) -> None:
        """Raises SystemExit where SIGTERM has ended another block of this task: one that catches
        that and goes on, as in a loop, would not end. Raises WentOn after the first such task.
        """
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        if self._task is not None and self._task in _ending:
            self._task.remove_done_callback(_exit_with_the_last)
            while self._task.cancelling():  # since Python 3.13 a group that fails cancels it again
                self._task.uncancel()
            self._task.add_done_callback(drop_error)
            _exit(self._loop)
            raise WentOn("SIGTERM ends the program, but a task caught its cancellation and went on")

    def terminate(self) -> bool:
        """Cancels the task, as asyncio does at Ctrl-C."""
        assert self._task is not None
        if not (self._loop.is_running() and self._task.cancel()):
            return False
        self._loop.call_soon_threadsafe(lambda: None)  # it may wait for its sockets
        self.is_terminated = True
        _exited.discard(self._loop)  # it has run on after the last SIGTERM, as in a Runner
        return True

    def end_program(self) -> None:
        """Ends the program by SystemExit, out of its loop, when the task has ended, and those of
        all other blocks that SIGTERM ends: they may have to clean up.
        """
        assert self._task is not None
        _ending.add(self._task)
        self._task.add_done_callback(_exit_with_the_last)


def _exit_with_the_last(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and isinstance(task.exception(), SystemExit):
        return  # it ends the program by itself
    all_left = not any(block.is_terminated for block in tuple(_blocks))
    if all_left and all(other.done() for other in tuple(_ending)):
        _exit(task.get_loop())


def _exit(loop: asyncio.AbstractEventLoop) -> None:
    """Raises SystemExit, once in each loop for each SIGTERM: another one would end the cleanup
    after the first.
    """
    if loop not in _exited:
        _exited.add(loop)
        raise SystemExit(EXIT_CODE)


_exited = WeakSet[asyncio.AbstractEventLoop]()
"""Those that a SystemExit from here has ended, and in which SIGTERM has ended no block since."""
_ending = WeakSet[asyncio.Task[Any]]()
"""The tasks whose block SIGTERM has ended, and that have left it. The program ends with them."""
_blocks = WeakSet[Block]()
"""Those that end at SIGTERM. Weak: a block may never be left."""


def _heard(number: int, _frame: FrameType | None) -> None:
    if not any([block.terminate() for block in tuple(_blocks)]):  # noqa: C419 - all are to end
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)


def catch(block: Block) -> None:
    """Ends the block at SIGTERM from now on, where the program does not handle that itself."""
    is_main = threading.current_thread() is threading.main_thread()
    installed = signal.getsignal(signal.SIGTERM)
    if is_main and (installed is signal.SIG_DFL or installed is _heard):
        _blocks.add(block)
        # Not by a loop's method: with that, `release` could not see whether this is still in use.
        signal.signal(signal.SIGTERM, _heard)


def release(block: Block) -> None:
    """Removes a block. After the last one SIGTERM is as it was before, unless the program has
    installed another handler.
    """
    _blocks.discard(block)
    if not _blocks:
        reset()


async def leave(
    group: asyncio.TaskGroup,
    block: OfTask,
    cancelled: asyncio.CancelledError | None,
    traceback: TracebackType | None,
) -> None:
    """Removes a block and leaves its task group, at its end or when it is cancelled. Raises the
    first error of the group. Where SIGTERM has ended the block, the program ends with its task: the
    SystemExit of a task that is not the program's first would be logged as an error.
    """
    release(block)
    try:
        await group.__aexit__(type(cancelled) if cancelled else None, cancelled, traceback)
    except BaseExceptionGroup as problems:
        raise problems.exceptions[0] from None
    finally:
        if block.is_terminated:  # also where what is inside has caught the cancellation
            block.end_program()


def reset() -> None:
    """Ends no block any more at SIGTERM."""
    _blocks.clear()
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is _heard:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


os.register_at_fork(after_in_child=reset)
