"""`ctx.lost` and `ctx.stopping`, the implementations of `handlers.context.Signal`: one is awaited
in a coroutine, the others block in a plain function. Any thread may set them.
"""

import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio

Answer = TypeVar("Answer")


class Unawaited:
    """Counts the calls of a coroutine function that have done nothing: what they returned was
    neither awaited, nor is it in a task that has begun or was cancelled.
    """

    def __init__(self) -> None:
        self.count = 0

    def counted(self, work: Coroutine[Any, Any, Answer]) -> Coroutine[Any, Any, Answer]:
        return _Counted(work, self)


class _Counted(Coroutine[Any, Any, Answer]):
    """Not a coroutine itself: one that is cancelled before it begins runs no code of its own."""

    __slots__ = ("_unawaited", "_work")

    def __init__(self, work: Coroutine[Any, Any, Answer], unawaited: Unawaited) -> None:
        self._work = work
        self._unawaited: Unawaited | None = unawaited
        unawaited.count += 1

    def __await__(self) -> Generator[Any, Any, Answer]:
        return self._begun().__await__()

    def send(self, value: Any) -> Any:
        return self._begun().send(value)

    def throw(self, *problem: Any) -> Any:
        return self._begun().throw(*problem)

    def close(self) -> None:
        self._begun().close()

    def _begun(self) -> Coroutine[Any, Any, Answer]:
        if self._unawaited is not None:
            self._unawaited.count -= 1
            self._unawaited = None
        return self._work


class LoopSignal:
    """A signal to a coroutine. One event loop waits for it."""

    def __init__(self) -> None:
        self._reason = ""
        self._is_set = False
        self._waited_for: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        """Made at the first `wait`: hardly any handler calls it."""
        self.unawaited = Unawaited()
        """Calls of `wait`."""

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

    def wait(self, timeout: float | None = None) -> Coroutine[Any, Any, bool]:
        return self.unawaited.counted(self._wait(timeout))

    async def _wait(self, timeout: float | None) -> bool:  # noqa: ASYNC109 - as in threads
        import asyncio  # noqa: PLC0415 - not for a child process

        if self._waited_for is None:  # before `_is_set` is read: `set` sets that first
            self._waited_for = asyncio.get_running_loop(), asyncio.Event()
        if not self._is_set:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._waited_for[1].wait()
        return self._is_set


class BlockingSignal:
    """A LoopSignal for other threads. `call` runs a coroutine on its loop and waits for it."""

    def __init__(
        self, signal: LoopSignal, call: Callable[[Coroutine[Any, Any, bool]], bool]
    ) -> None:
        self._signal = signal
        self._call = call

    @property
    def reason(self) -> str:
        """Why, in words; "" while it is not set."""
        return self._signal.reason

    def __bool__(self) -> bool:
        return bool(self._signal)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it is set, or for `timeout` seconds; returns whether it is."""
        return bool(self) or self._call(self._signal.wait(timeout))


class ThreadSignal:
    """A signal to a plain function, on any thread."""

    _came = threading.Condition()
    """One condition for all signals: making one takes longer than all else that a signal does."""

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
