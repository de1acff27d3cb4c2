"""`ctx.lost` and `ctx.stopping`, the implementations of `handlers.context.Signal`: one is awaited
in a coroutine, the others block in a plain function. Any thread may set them.
"""

import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from inspect import CORO_CREATED, getcoroutinestate
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio

Answer = TypeVar("Answer")


class Unawaited:
    """The calls of some coroutine functions that have done nothing: what they returned was neither
    awaited, nor is it in a task that has begun or was cancelled.
    """

    def __init__(self) -> None:
        self._calls: list[tuple[str, Coroutine[Any, Any, Any]]] = []
        self._most = 16
        """How many are noted until those that have begun are dropped."""

    def noted(self, name: str, call: Coroutine[Any, Any, Answer]) -> Coroutine[Any, Any, Answer]:
        """What a call of the function with this name returns."""
        self._calls.append((name, call))
        if len(self._calls) > self._most:
            self._calls = self.left()
            self._most = 16 + 2 * len(self._calls)
        return call

    def left(self) -> list[tuple[str, Coroutine[Any, Any, Any]]]:
        return [
            (name, call) for name, call in self._calls if getcoroutinestate(call) == CORO_CREATED
        ]

    def close(self) -> list[str]:
        """Closes them, or Python would warn of each, too. Returns the names of their functions."""
        left = self.left()
        for _, call in left:
            call.close()
        return [*dict.fromkeys(name for name, _ in left)]


class LoopSignal:
    """A signal to a coroutine. One event loop waits for it."""

    def __init__(self, unawaited: Unawaited | None = None, name: str = "") -> None:
        """Calls of `wait` are noted in `unawaited` as those of `name.wait`."""
        self._unawaited = unawaited
        self._name = name
        self._reason = ""
        self._is_set = False
        self._waited_for: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        """Made at the first `wait`: hardly any handler calls it."""

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
        waiting = self._wait(timeout)
        if self._unawaited is None:
            return waiting
        return self._unawaited.noted(f"{self._name}.wait", waiting)

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

    def __init__(self) -> None:
        self.reason = ""
        self._event = threading.Event()

    def set(self, reason: str) -> None:
        self.reason = reason
        self._event.set()

    def __bool__(self) -> bool:
        return self._event.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        return self._event.wait(timeout)
