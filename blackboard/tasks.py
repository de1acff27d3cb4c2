"""Helpers for asyncio: the first of several awaitables, a bounded number of calls at a time, work
that is finished despite a cancellation, and calls in threads.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, Generic, NamedTuple, TypeVar, cast

Thing = TypeVar("Thing")
Result = TypeVar("Result")
_Call = Callable[[], None]


async def until_one_ends(*waiting: Awaitable[object]) -> None:
    """Waits until one of these has ended, and cancels the others. Their results and errors are
    dropped.
    """
    tasks = [asyncio.ensure_future(work) for work in waiting]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


async def cancel_all(tasks: Iterable["asyncio.Future[Any]"]) -> None:
    """Cancels tasks, and waits until all have ended. Their results and errors are dropped."""
    ending = [*tasks]
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


async def in_turns(
    left: deque[Thing], work: Callable[[Thing], Awaitable[object]], *, at_once: int
) -> None:
    """Takes the things out of `left`, in their order, and calls `work` for each, `at_once` calls at
    a time. After an error no further call begins; those under way are finished, and then the error
    is raised.
    """

    async def one_by_one() -> None:
        while left:
            try:
                await work(left.popleft())
            except BaseException:
                left.clear()
                raise

    workers = [one_by_one() for _ in range(min(at_once, len(left)))]
    for ended in await asyncio.gather(*workers, return_exceptions=True):
        if ended is not None:
            raise ended


async def finishing(
    work: Awaitable[Result],
    stop: Callable[[], object] = lambda: None,
    *,
    within: float | None = None,
) -> Result:
    """Awaits `work`, and returns its result. When the caller is cancelled, as at Ctrl-C, `stop` is
    called, so that the work begins nothing more; the work goes on to its end, and then, or after
    `within` seconds, the cancellation is raised. An error of the work is dropped then.
    """
    under_way = asyncio.ensure_future(work)
    try:
        await asyncio.wait([under_way])
    except asyncio.CancelledError:
        stop()
        under_way.add_done_callback(drop_error)
        waited = asyncio.ensure_future(asyncio.wait([under_way], timeout=within))
        while not waited.done():
            with suppress(asyncio.CancelledError):  # anyio repeats it in each turn of the loop
                await asyncio.wait([waited])
        raise
    return under_way.result()


def drop_error(work: "asyncio.Future[Any]") -> None:
    """Drops the error of work that has ended, if nothing awaits it: else asyncio would log it."""
    if not work.cancelled():
        work.exception()


class Reply(NamedTuple, Generic[Result]):
    """The result or the error of a call, as a value: a future refuses a StopIteration, and a task
    that raises a SystemExit ends its loop.
    """

    value: Result | None = None
    problem: BaseException | None = None

    def get(self) -> Result:
        """Returns or raises it."""
        try:
            if self.problem is not None:
                raise self.problem
            return cast(Result, self.value)
        finally:
            del self  # else the traceback of the problem would refer to the problem


def reply_of(function: Callable[[], Result]) -> Reply[Result]:
    """Calls `function`; raises nothing."""
    try:
        return Reply(function())
    except BaseException as problem:  # noqa: BLE001 - it is raised where the reply is read
        return Reply(problem=problem)


class SerialExecutor:
    """Makes calls one after another in a thread of their own, which a process that ends does not
    wait for. A call that was handed over is completed, whatever happens to the task that awaits it:
    a cancelled caller does not get the outcome, and nothing is left half done.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread = Thread(target=_work, args=(self._calls,), name=name, daemon=True)
        self._thread.start()

    async def call(self, function: Callable[[], Result]) -> Result:
        """Calls `function`; returns or raises what that does."""
        return (await self._hand_over(function)).get()

    async def close(self, last: Callable[[], None]) -> None:
        """Makes the calls that wait, then `last`, then ends the thread. No call may follow."""
        done = self._hand_over(last)
        self.end()
        try:
            (await done).get()
        finally:
            if done.done() and not done.cancelled():
                self._thread.join()

    def end(self) -> None:
        """Ends the thread after the calls that wait. No call may follow."""
        self._calls.put(None)

    def _hand_over(self, function: Callable[[], Result]) -> "asyncio.Future[Reply[Result]]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Reply[Result]] = loop.create_future()

        def work() -> None:
            reply = reply_of(function)
            with suppress(RuntimeError):  # the loop is closed, and no task awaits the reply
                loop.call_soon_threadsafe(_answer, future, reply)

        self._calls.put(work)
        return future


async def in_thread(function: Callable[..., Result], *values: Any) -> Result:
    """Calls `function` in a thread of its own, in the context of the caller; returns or raises what
    that does. Handlers may occupy all threads of `asyncio.to_thread`.
    """
    thread = SerialExecutor("blackboard-call")
    try:
        return await thread.call(partial(copy_context().run, function, *values))
    finally:
        thread.end()


def _work(calls: "SimpleQueue[_Call | None]") -> None:
    while (function := calls.get()) is not None:
        function()
        del function  # else it would live, with its result, until the next call


def _answer(future: "asyncio.Future[Reply[Result]]", reply: Reply[Result]) -> None:
    if not future.cancelled():
        future.set_result(reply)
