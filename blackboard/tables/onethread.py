"""Jobs done one after another in a thread of their own, awaited from an event loop.

A job that was handed over is done, whatever becomes of the task that waits for it: a cancelled
caller does not learn the outcome, and nothing is left half done.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")
_Job = Callable[[], None]


class OneThread:
    """A daemon thread: a process that ends does not wait for it."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = Thread(target=_work, args=(self._jobs,), name=name, daemon=True)
        self._thread.start()

    async def call(self, job: Callable[[], T]) -> T:
        """What `job` returns or raises."""
        return await self._hand_over(job)

    async def close(self, last: Callable[[], None]) -> None:
        """Do the jobs that are waiting, then `last`, then end. Nothing may be called after it."""
        done = self._hand_over(last)
        self._jobs.put(None)
        try:
            await done
        finally:
            if done.done() and not done.cancelled():
                self._thread.join()

    def _hand_over(self, job: Callable[[], T]) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            try:
                result = job()
            except BaseException as error:  # noqa: BLE001 - it is the caller's, over there
                tell(_fail, error)
            else:
                tell(_succeed, result)

        def tell(how: Callable[[Any, Any], None], what: object) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
                loop.call_soon_threadsafe(how, future, what)

        self._jobs.put(work)
        return future


def _work(jobs: "SimpleQueue[_Job | None]") -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # or the last job and its result live until the next one comes


def _succeed(future: "asyncio.Future[T]", result: T) -> None:
    if not future.cancelled():
        future.set_result(result)


def _fail(future: "asyncio.Future[Any]", error: BaseException) -> None:
    if not future.cancelled():
        future.set_exception(error)
