"""Runs calls one after another in a thread of their own, awaited from an event loop.

A call that was handed over is completed, whatever happens to the task that awaits it: a cancelled
caller does not get the outcome, and nothing is left half done.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")
_Call = Callable[[], None]


class SerialExecutor:
    """A daemon thread: a process that ends does not wait for it."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread = Thread(target=_work, args=(self._calls,), name=name, daemon=True)
        self._thread.start()

    async def call(self, function: Callable[[], T]) -> T:
        """Calls `function`; returns or raises what that does."""
        return await self._hand_over(function)

    async def close(self, last: Callable[[], None]) -> None:
        """Makes the calls that wait, then `last`, then ends the thread. No call may follow."""
        done = self._hand_over(last)
        self.end()
        try:
            await done
        finally:
            if done.done() and not done.cancelled():
                self._thread.join()

    def end(self) -> None:
        """Ends the thread after the calls that wait. No call may follow."""
        self._calls.put(None)

    def _hand_over(self, function: Callable[[], T]) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            try:
                result = function()
            except BaseException as error:  # noqa: BLE001 - it is raised in the caller
                reply(_fail, error)
            else:
                reply(_succeed, result)

        def reply(how: Callable[[Any, Any], None], what: object) -> None:
            with suppress(RuntimeError):  # the loop is closed, and no task awaits the reply
                loop.call_soon_threadsafe(how, future, what)

        self._calls.put(work)
        return future


async def in_thread(function: Callable[..., T], *values: Any) -> T:
    """Calls `function` in a thread of its own; returns or raises what that does. Handlers may
    occupy all threads of `asyncio.to_thread`.
    """
    thread = SerialExecutor("blackboard-call")
    try:
        return await thread.call(lambda: function(*values))
    finally:
        thread.end()


def _work(calls: "SimpleQueue[_Call | None]") -> None:
    while (function := calls.get()) is not None:
        function()
        del function  # else it would live, with its result, until the next call


def _succeed(future: "asyncio.Future[T]", result: T) -> None:
    if not future.cancelled():
        future.set_result(result)


def _fail(future: "asyncio.Future[Any]", error: BaseException) -> None:
    if not future.cancelled():
        future.set_exception(error)
