"""`@handler`: which function runs which type, and what its runs are run with by default.

Declaring only marks the function. A worker learns of it because a person named its file, folder
or module (see `registry.py`).
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import FunctionType, ModuleType
from typing import Any, TypeVar

import msgspec

from blackboard.errors import BadInput
from blackboard.schedule.durations import format_duration
from blackboard.spec import Spec, resolve

_MARK = "__blackboard__"
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Source:
    """Where the module of a handler is, so that a child process can load it and nothing else."""

    folder: str
    """The folder it was loaded from, absolute; "" for a module that is importable by name."""
    module: str
    """Its name, within the folder if there is one; "" is the folder's own `__init__.py`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What `@handler` says: the type, and what its runs are run with."""

    type: str
    spec: Spec
    slots: int | None
    fenced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A function that runs the items of a type."""

    type: str
    function: Callable[..., Any]
    is_async: bool
    """A coroutine function runs on the worker's loop, any other in a child process."""
    spec: Spec
    slots: int | None
    """Runs of this type in one worker at a time; None: as many as it has slots."""
    fenced: bool
    """A late finisher's result is dropped instead of winning."""
    source: Source


def handler(
    type_: str,
    /,
    *,
    every: str | timedelta | None = None,
    cron: str | None = None,
    rrule: str | None = None,
    at: str | datetime | None = None,
    timezone: str | None = None,
    timeout: str | timedelta | None = None,
    stale_after: str | timedelta | None = None,
    retries: int | None = None,
    backoff: str | timedelta | None = None,
    jitter: str | timedelta | None = None,
    missed: str | None = None,
    missed_limit: int | None = None,
    missed_after: str | timedelta | None = None,
    slots: int | None = None,
    fenced: bool = False,
) -> Callable[[F], F]:
    """The function below runs the items of type `type_`: `def f(item, ctx)` in a child process,
    `async def f(item, ctx)` on the worker's loop. What it returns is the run's result and must
    be something JSON can hold.

    The rest are defaults, which items and `[types.TYPE]` override. Durations are text such as
    "90s" or "1d12h", or timedelta. `slots` limits how many run at a time in one worker. `fenced`
    drops what a run returns that was overtaken by a later one.

    Raises BadInput naming the handler, when its module is imported.
    """
    said = {
        "every": every,
        "cron": cron,
        "rrule": rrule,
        "at": at,
        "timezone": timezone,
        "timeout": timeout,
        "stale_after": stale_after,
        "retries": retries,
        "backoff": backoff,
        "jitter": jitter,
        "missed": missed,
        "missed_limit": missed_limit,
        "missed_after": missed_after,
    }

    def declare(function: F) -> F:
        name = f"handler {type_!r} ({place(function)})"
        _check_function(name, function)
        _check_type(name, type_)
        declaration = Declaration(
            type=type_,
            spec=_checked_spec(name, said),
            slots=_checked_slots(name, slots),
            fenced=_checked_fenced(name, fenced),
        )
        setattr(function, _MARK, (*getattr(function, _MARK, ()), declaration))
        return function

    return declare


def handlers_in(module: ModuleType, source: Source) -> list[Handler]:
    """What the names of a module hold that `@handler` marked."""
    return [
        handler_of(function, declaration, source)
        for function in list(vars(module).values())
        if isinstance(function, FunctionType)
        for declaration in getattr(function, _MARK, ())
    ]


def handler_of(
    function: Callable[..., Any],
    declaration: Declaration | None = None,
    source: Source | None = None,
) -> Handler:
    """A marked function as a handler; by default its only mark and its own module."""
    said = declaration or getattr(function, _MARK)[0]
    return Handler(
        type=said.type,
        function=function,
        is_async=inspect.iscoroutinefunction(function),
        spec=said.spec,
        slots=said.slots,
        fenced=said.fenced,
        source=source or Source("", function.__module__),
    )


def place(function: Callable[..., Any]) -> str:
    """Where a function is written, as file and line."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)


def _check_function(name: str, function: Callable[..., Any]) -> None:
    if not isinstance(function, FunctionType):
        raise BadInput(name, "is not a function", "put @handler above a def or an async def")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadInput(name, "is a generator", "return the result instead of yielding")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as problem:
        raise BadInput(name, str(problem), "it is called with (item, ctx)") from None


def _check_type(name: str, type_: str) -> None:
    if not isinstance(type_, str) or not type_ or not type_.isprintable() or "," in type_:
        raise BadInput(name, "the type must be printable text without commas", "a short word")


def _checked_spec(name: str, said: Mapping[str, Any]) -> Spec:
    texts = {key: _as_text(value) for key, value in said.items() if value is not None}
    try:
        spec = msgspec.convert(texts, Spec)
        resolve([spec])
    except msgspec.ValidationError as problem:
        raise BadInput(name, str(problem)) from None
    except BadInput as problem:
        raise BadInput(name, str(problem)) from None
    return spec


def _as_text(value: Any) -> Any:
    match value:
        case timedelta():
            return format_duration(value)
        case datetime():
            return value.isoformat()
        case _:
            return value


def _checked_slots(name: str, slots: int | None) -> int | None:
    if slots is not None and (type(slots) is not int or slots < 1):
        raise BadInput(name, f"slots {slots!r} is not a number of runs", "1 or more")
    return slots


def _checked_fenced(name: str, fenced: bool) -> bool:  # noqa: FBT001 - it is what is checked
    if not isinstance(fenced, bool):
        raise BadInput(name, f"fenced {fenced!r} is not a truth value", "True or False")
    return fenced
