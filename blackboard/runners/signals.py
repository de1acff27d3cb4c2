"""`ctx.lost` and `ctx.stopping`, as `handlers.context.Signal` has them: one that is awaited in a
coroutine, and one that blocks in a plain function. Any thread may set them.
"""

import asyncio
import threading
from contextlib import suppress


class LoopSignal:
    """A signal to a coroutine. One event loop waits for it."""

    def __init__(self) -> None:
        self._reason = ""
        self._is_set = False
        self._waited_for: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        """Made for the first that waits: hardly any handler does."""

    @property
    def reason(self) -> str:
        """Why, in words; "" while it is not set."""
        return self._reason

    def set(self, reason: str) -> None:
        self._reason = reason
        self._is_set = True
        if self._waited_for is not None:
            loop, event = self._waited_for
            with suppress(RuntimeError):  # the loop is closed: nothing waits any more
                loop.call_soon_threadsafe(event.set)

    def __bool__(self) -> bool:
        return self._is_set

    async def wait(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - as in threads
        if self._waited_for is None:  # before the look below: `set` looks the other way around
            self._waited_for = asyncio.get_running_loop(), asyncio.Event()
        if not self._is_set:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._waited_for[1].wait()
        return self._is_set


class ThreadSignal:
    """A signal to a plain function, on whichever thread it is."""

    _came = threading.Condition()
    """One for all signals: to make one takes longer than all else that a signal costs."""

    def __init__(self) -> None:
        self.reason = ""
        self._is_set = False

    def set(self, reason: str) -> None:
        with self._came:
            self.reason = reason
            self._is_set = True
            self._came.notify_all()

    def __bool__(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        with self._came:
            return self._came.wait_for(lambda: self._is_set, timeout)
