"""The `resources` of a handler: opened once, and given to all its runs as `ctx.resources`.

`@handler(..., resources=lifespan)` names a function without arguments that returns a context
manager. Coroutines of a worker share one, opened on the worker's loop at the first run; it may be
an async one. A child process has its own, opened before its first run of the type. Each is closed
when its worker or child process ends in order; one that is killed closes nothing.

Where opening fails, the run fails, and the next run tries it again. An opening is given up, because
it may hang for ever, when a run is stopped that has waited for this one from its own beginning; the
other runs that wait open anew. So each opening may take as long as a run.
"""

import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack
from contextvars import Context as ContextVars
from contextvars import ContextVar
from typing import Any

from blackboard.errors import BadInput

of_resources: ContextVar[bool] = ContextVar("of resources", default=False)
"""Whether a task of the worker's loop belongs to resources, which runs share: any may cancel it."""

Lifespan = Callable[[], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]


def check_lifespan(lifespan: Any, name: str, *, is_async: bool) -> None:
    """Raises BadInput naming `name`, where `resources` cannot be opened for a handler."""
    if not callable(lifespan):
        remedy = "a function under @contextlib.contextmanager"
        raise BadInput(name, f"resources {lifespan!r} is not a function", remedy)
    written = inspect.unwrap(lifespan)
    is_manager = written is not lifespan or isinstance(lifespan, type)
    if not is_manager and (
        inspect.isgeneratorfunction(written) or inspect.isasyncgenfunction(written)
    ):
        remedy = "put @contextlib.contextmanager above it, or @asynccontextmanager"
        raise BadInput(name, "resources is a bare generator", remedy)
    if inspect.isasyncgenfunction(written) and not is_async:
        remedy = "use @contextlib.contextmanager, or make the handler an `async def`"
        raise BadInput(name, "resources are async, and a plain function has no loop", remedy)


class ProcessResources:
    """The resources of a child process, by type. Belongs to its main thread."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._values: dict[str, Any] = {}

    def of(self, type_: str, lifespan: Lifespan | None) -> Any:
        """The resources of a type, opened at the first call. Raises what the lifespan raises."""
        if lifespan is not None and type_ not in self._values:
            manager = lifespan()
            if not isinstance(manager, AbstractContextManager):
                remedy = "a plain context manager, or an `async def` as handler"
                raise BadInput("resources", f"{manager!r} cannot be entered here", remedy)
            self._values[type_] = self._stack.enter_context(manager)
        return self._values.get(type_)

    def close(self) -> None:
        """Closes all, the latest first. Raises what they raise."""
        self._stack.close()


class LoopResources:
    """The resources of the coroutines of a worker, by type. Belongs to its loop."""

    def __init__(self) -> None:
        self._opened: dict[str, _OpenedOnLoop] = {}

    async def of(self, type_: str, lifespan: Lifespan | None) -> Any:
        """The resources of a type, opened at the first call; later calls wait for that. Raises what
        the lifespan raises.
        """
        if lifespan is None:
            return None
        import asyncio  # noqa: PLC0415 - not for a child process

        is_first = True
        while True:
            opened = self._opened.get(type_)
            if opened is None or opened.is_over:
                self._opened.pop(type_, None)  # the latest is closed first
                opened = self._opened[type_] = _OpenedOnLoop(lifespan)
            try:
                return await asyncio.shield(opened.value)
            except _GivenUp:
                is_first = False
            except BaseException:
                if is_first and not opened.value.done():
                    opened.give_up()
                raise

    async def close(self, seconds: float) -> list[BaseException]:
        """Closes all, the latest first, each within `seconds`. Returns what they raised, each with
        a note that names the type.
        """
        problems = list[BaseException]()
        for type_, opened in reversed(self._opened.items()):
            if (problem := await opened.close(seconds)) is not None:
                problem.add_note(f"while the resources of {type_} were closed")
                problems.append(problem)
        self._opened.clear()
        return problems


class _GivenUp(Exception):
    """The run of an opening was stopped."""


class _OpenedOnLoop:
    """One context manager, entered and left by one task, as some of them require."""

    def __init__(self, lifespan: Lifespan) -> None:
        import asyncio  # noqa: PLC0415 - not for a child process

        loop = asyncio.get_running_loop()
        self.value: asyncio.Future[Any] = loop.create_future()
        self._closing = asyncio.Event()
        # Outside the context of the first run: what resources print is not the output of that run.
        outside = ContextVars()
        outside.run(of_resources.set, True)
        self._task = loop.create_task(self._hold(lifespan), context=outside)

    @property
    def is_over(self) -> bool:
        """Whether opening it failed, or was given up; or it was opened, and its task has ended
        since: a handler may cancel it.
        """
        return self.value.done() and (self.value.exception() is not None or self._task.done())

    def give_up(self) -> None:
        """Cancels an opening. What opens all the same is closed at once."""
        self.value.set_exception(_GivenUp())
        self.value.exception()  # no run may wait for it
        self._task.cancel()

    async def close(self, seconds: float) -> BaseException | None:
        import asyncio  # noqa: PLC0415 - not for a child process

        self._closing.set()
        await asyncio.wait([self._task], timeout=seconds)
        if not self._task.done():
            self._task.cancel()
            return TimeoutError(f"not closed within {seconds:g} s")
        return None if self._task.cancelled() else self._task.exception()

    async def _hold(self, lifespan: Lifespan) -> None:
        try:
            manager = lifespan()
            if isinstance(manager, AbstractAsyncContextManager):
                async with manager as value:
                    await self._open_until_closed(value)
            else:
                with manager as value:
                    await self._open_until_closed(value)
        except BaseException as problem:
            if self.value.done():
                raise
            is_stop = isinstance(problem, StopIteration)  # which no future takes
            self.value.set_exception(RuntimeError("StopIteration") if is_stop else problem)
            self.value.exception()  # a run that was stopped meanwhile does not retrieve it

    async def _open_until_closed(self, value: Any) -> None:
        if not self.value.done():
            self.value.set_result(value)
            await self._closing.wait()
