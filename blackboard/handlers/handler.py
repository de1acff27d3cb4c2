"""`@handler` and `@pump`: which function runs which type.

They only mark a function. A worker gets its handlers from what a person named when it was started,
and a child process finds a plain function by its module and the mark of the type (`registry.py`).
The module of a function of `__main__` is the file of the program under its real name, so nothing
below `if __name__ == "__main__":` runs there.
"""

import inspect
import reprlib
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from difflib import get_close_matches
from importlib.machinery import PathFinder
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any, TypeVar, Unpack, overload

import msgspec
from msgspec import Struct

from blackboard.errors import BadInput
from blackboard.handlers.params import Params, described
from blackboard.inputs import LONGEST_TEXT, argument
from blackboard.model import replace
from blackboard.phrases import quoted
from blackboard.protocol import keys
from blackboard.rules.shares import Balance, names_of
from blackboard.runners.resources import Lifespan, check_lifespan
from blackboard.schedule.times import duration_of, format_duration
from blackboard.spec import (
    MOST_SLOTS,
    SHORTEST_LEASE,
    RunOptions,
    Spec,
    check_count,
    check_first,
    check_spec,
    concurrency_of,
)

_MARK = "__blackboard__"
MOST_PARTITIONS = 1_000
"""Partitions of one group: read in one page, and renewed ten batches at a time."""
A_NAME = f"printable text of 1 to {LONGEST_TEXT:,} characters"
"""What the name of a partition has to be, in words."""
PUMPED = {"every": "1m", "retries": 6, "backoff": "1s"}
"""How the pump of a partition is run again after it failed. A schedule, because an item without one
is done after its last retry.
"""
MAIN = "__main__"
METHOD = "is a method, and methods cannot be handlers"
TO_MARK = "put @handler above a function that calls it"
"""The remedy for what cannot be marked, or is not."""
DURATIONS = ("every", "timeout", "stale_after", "backoff", "jitter", "missed_after")
"""The fields of a spec that are durations."""
F = TypeVar("F", bound=Callable[[Any, Any], object])


class Source(Struct, frozen=True):
    """Where the module of a handler is, so that a child process can load it and nothing else."""

    folder: str
    """The folder it was loaded from, absolute; "" for a module that is importable by name."""
    module: str
    """Its name, within the folder if there is one; "" is the folder's own `__init__.py`."""


LONGEST_TYPE = 200
"""Characters of the name of a type."""
Names = Callable[..., "Iterable[str] | Awaitable[Iterable[str]]"]
"""A function that returns the names of partitions, from the table `[jobs.GROUP]`. `@pump`
takes one without arguments, too; a `Pump` has one that takes the table.
"""


class Pump(Struct, frozen=True, kw_only=True):
    """The options of `@pump`: the group of partitions that its function serves."""

    partitions: tuple[str, ...] | Names
    lease: timedelta
    drain: timedelta
    """The time that a pump has to save and return once it is asked to."""
    balance: Balance


class Declared(Struct, frozen=True, kw_only=True):
    """The options of a type, without its code."""

    type: str
    is_async: bool
    """A coroutine function runs on the worker's loop, any other in a child process."""
    spec: Spec
    slots: int | None
    """Runs of this type in one worker at a time; None: as many as it has slots."""
    fenced: bool
    """Whether the result of a run that was overtaken is dropped; else it replaces the later one."""
    source: Source
    concurrency: int | None = None
    """Runs of this type on the whole board at a time."""
    key: str | None = None
    """A param: each value of it has a limit of `concurrency` of its own."""
    first: str | None = None
    """When a new item runs first, unless it says so itself: now, next, or a time."""

    @property
    def declared(self) -> dict[str, Any]:
        """These fields, by name."""
        return {name: getattr(self, name) for name in Declared.__struct_fields__}


class Handler(Declared, frozen=True, kw_only=True):
    """A function that runs the items of a type, as `@handler` declares it."""

    function: Callable[..., Any]
    params: Params | None = None
    """The params that its items may have, if it declares them."""
    resources: Lifespan | None = None
    """Opens what `ctx.resources` is."""
    pump: Pump | None = None
    """For a pump: its group, which has the name of the type."""


class HandlerOptions(RunOptions, total=False):
    """Defaults of a type, which `[types.TYPE]` and items override, and how it is called."""

    first: str | datetime | None
    """When a new item runs first: "now", "next" by its schedule, or a time; by default now for
    `every`, else next."""
    slots: int | None
    """How many run at a time in one worker."""
    concurrency: int | None
    """How many run at a time on the whole board."""
    key: str | None
    """The name of a param: `concurrency`, by default 1, is for each of its values."""
    fenced: bool
    """Drops the result of a run that was overtaken by a later one."""
    params: type | None
    """A dataclass, or a Struct of msgspec: the class of `item.params`, which checks them."""
    resources: Lifespan | None
    """Returns a context manager, which is entered once in each child process, or in each worker for
    an `async def`: `ctx.resources` is what it gives."""


@overload
def handler(function: F, /) -> F: ...


@overload
def handler(type_: str = ..., /, **options: Unpack[HandlerOptions]) -> Callable[[F], F]: ...


def handler(type_: Any = msgspec.UNSET, /, **options: Unpack[HandlerOptions]) -> Any:
    """The function below runs the items of type `type_`: `def f(item, ctx)` in a child process,
    `async def f(item, ctx)` on the worker's loop. What it returns is the run's result and must
    be something JSON can hold. Without a type, and as a bare `@handler`, the type has the name of
    the function.

    Raises BadInput naming the handler, when its module is imported.
    """
    if callable(type_):
        return handler()(type_)

    def declare(function: F) -> F:
        named = getattr(function, "__name__", "") if type_ is msgspec.UNSET else type_
        name = f"handler {quoted(named)} ({place(function)})"
        _check_function(name, function)
        check_type(named, name)
        is_async = _is_async(name, function)
        _check_options(name, options, is_async=is_async)
        params = options.get("params")
        with _of_handler(name):
            spec = _checked_spec(options)
            first = _checked_first(options.get("first"), options.get("timezone"))
        made = Handler(
            type=named,
            function=function,
            is_async=is_async,
            spec=spec,
            slots=options.get("slots"),
            fenced=options.get("fenced", False),
            source=_source_of_function(function),
            concurrency=options.get("concurrency"),
            key=options.get("key"),
            first=first,
            params=described(params, name) if params is not None else None,
            resources=options.get("resources"),
        )
        return _marked(function, made)

    return declare


def _marked(function: F, handler: Handler) -> F:
    setattr(function, _MARK, (*getattr(function, _MARK, ()), handler))
    return function


@contextmanager
def _of_handler(name: str) -> Iterator[None]:
    """Adds to a BadInput which handler it is about."""
    try:
        yield
    except BadInput as error:
        raise BadInput(name, f"{error.field}: {error.problem}", error.remedy) from None


def _check_options(name: str, options: HandlerOptions, *, is_async: bool) -> None:
    slots, fenced = options.get("slots"), options.get("fenced", False)
    allowed = HandlerOptions.__annotations__
    for option in options:
        if option not in allowed:
            near = get_close_matches(option, allowed, n=1) or sorted(allowed)
            raise BadInput(name, f"there is no option {option!r}", f"there is {', '.join(near)}")
    with _of_handler(name):
        if slots is not None:
            check_count("slots", slots, most=MOST_SLOTS)
        concurrency_of(options.get("concurrency"), options.get("key"))
    if not isinstance(fenced, bool):
        raise BadInput(name, f"fenced {fenced!r} is not a truth value", "True or False")
    if (lifespan := options.get("resources")) is not None:
        check_lifespan(lifespan, name, is_async=is_async)


def pump(
    group: str,
    /,
    *,
    partitions: int | Iterable[str] | Names,
    lease: str | float | timedelta = "30s",
    drain: str | float | timedelta = "10s",
    balance: str = "shares",
) -> Callable[[F], F]:
    """The function below serves one partition of a group for as long as its worker holds it:
    `def f(partition, ctx)` in a child process, `async def f(partition, ctx)` on the worker's loop.
    It goes on at `ctx.checkpoint`, saves with `ctx.save`, and returns when `ctx.stopping` is true;
    `drain` after that it is stopped. Returning unasked is a failure: it is called again, soon.
    Durations are text, timedelta, or seconds.

    `partitions` is a number, names, or a function that gives names, when a worker starts and each
    minute after; it is called with the table `[jobs.GROUP]` of the settings if it takes an
    argument. What a dead worker held is taken by another when its `lease` is over. `balance` is
    `shares`; `steal` to move one partition at a time; or `grab`, races over Redis (`[redis]` in
    the settings).

    Raises BadInput naming the pump, when its module is imported.
    """

    def declare(function: F) -> F:
        name = f"pump {quoted(group)} ({place(function)})"
        _check_function(name, function)
        is_async = _is_async(name, function)
        with _of_handler(name):
            keys.check_group_name(group)
            held_for = _checked_lease(lease)
            spec = _checked_spec({**PUMPED, "stale_after": held_for})
            drained_in = duration_of(drain, "drain")
        made = Handler(
            type=group,
            function=function,
            is_async=is_async,
            spec=spec,
            slots=None,
            fenced=True,
            source=_source_of_function(function),
            pump=Pump(
                partitions=_checked_partitions(name, partitions),
                lease=held_for,
                drain=drained_in,
                balance=_checked_balance(name, balance),
            ),
        )
        return _marked(function, made)

    return declare


def _checked_partitions(
    name: str, partitions: int | Iterable[str] | Callable[..., Any]
) -> tuple[str, ...] | Names:
    if callable(partitions):
        return _checked_names(name, partitions)
    is_number = type(partitions) is int and 1 <= partitions <= MOST_PARTITIONS
    is_list = isinstance(partitions, Iterable) and not isinstance(partitions, str | bytes)
    if not (is_number or is_list):
        remedy = f"a number from 1 to {MOST_PARTITIONS:,}, names, or a function that gives names"
        raise BadInput(name, f"partitions {quoted(partitions)} is neither", remedy)
    return check_partitions(name, names_of(partitions), least=1)


def _checked_names(name: str, function: Callable[..., Any]) -> Names:
    """A function that gives names, made to take the settings of its group. Raises BadInput."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # it is not written in Python
        return function
    if _takes(signature, {}):
        return function
    if _takes(signature):
        return lambda _: function()
    remedy = "it is called with the table [jobs.GROUP] of the settings, or with nothing"
    raise BadInput(name, f"partitions is a function of {signature}", remedy)


def _takes(signature: inspect.Signature, *arguments: object) -> bool:
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True


def is_partition(name: object) -> bool:
    """Whether a partition can have this name."""
    return isinstance(name, str) and 0 < len(name) <= LONGEST_TEXT and name.isprintable()


def check_partitions(name: str, names: Iterable[str], *, least: int = 0) -> tuple[str, ...]:
    """The names of the partitions of a group. Raises BadInput naming `name`."""
    partitions = tuple(names)
    for given in partitions:
        if not is_partition(given):
            raise BadInput(name, f"partition {reprlib.repr(given)} is not a name", A_NAME)
    if twice := [given for given, times in Counter(partitions).items() if times > 1]:
        raise BadInput(name, f"two partitions are named {reprlib.repr(twice[0])}", "one for each")
    if not least <= len(partitions) <= MOST_PARTITIONS:
        raise BadInput(name, f"{len(partitions):,} partitions", f"{least} to {MOST_PARTITIONS:,}")
    return partitions


def _checked_lease(lease: str | float | timedelta) -> timedelta:
    checked = duration_of(lease, "lease")
    if checked < SHORTEST_LEASE:
        remedy = f"{format_duration(SHORTEST_LEASE)} at the least"
        raise BadInput("lease", f"{quoted(as_text(lease))} is too short", remedy)
    return checked


def _checked_first(first: str | datetime | None, zone: object) -> str | None:
    text = as_text(first)
    check_first(text, zone if isinstance(zone, str) else "UTC")
    return text if text is None else str(text)


def _checked_balance(name: str, balance: str) -> Balance:
    if not isinstance(balance, str) or balance not in set(Balance):
        problem = f"there is no balance {quoted(balance)}"
        raise BadInput(name, problem, f"one of {', '.join(Balance)}")
    return Balance(balance)


def handlers_of(function: Callable[..., Any], source: Source | None = None) -> list[Handler]:
    """A function as handlers, one for each `@handler` above it. `source` is where its module was
    loaded from, if that is not its own name. Raises BadInput.
    """
    marks: tuple[Handler, ...] = getattr(function, _MARK, ())
    return [
        replace(
            mark,
            function=function,  # a decorator may have wrapped what was marked
            is_async=_is_async(f"handler {mark.type!r} ({place(function)})", function),
            source=source or mark.source,
        )
        for mark in marks
    ]


def handlers_in(module: ModuleType, source: Source) -> list[Handler]:
    """The handlers among the names of a module."""
    functions = [value for value in vars(module).values() if isinstance(value, FunctionType)]
    return [handler for function in functions for handler in handlers_of(function, source)]


def place(function: Callable[..., Any]) -> str:
    """Where a function is written, as file and line."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)


def _check_function(name: str, function: Callable[..., Any]) -> None:
    if isinstance(function, MethodType):
        raise BadInput(name, METHOD, TO_MARK)
    if not isinstance(function, FunctionType):
        raise BadInput(name, "is not a function", TO_MARK)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise BadInput(name, "is a generator", "return the result instead of yielding")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as problem:
        if "." in function.__qualname__.rpartition("<locals>.")[2]:
            raise BadInput(name, METHOD, TO_MARK) from None
        refused = f"cannot be called with (item, ctx): {problem}"
        raise BadInput(name, refused, "give it the parameters item and ctx") from None


def _is_async(name: str, function: Callable[..., Any]) -> bool:
    """Whether it is a coroutine function. Raises BadInput for one that a decorator hides: its run
    would return a coroutine that nothing awaits.
    """
    is_async = inspect.iscoroutinefunction(function)
    if not is_async and inspect.iscoroutinefunction(inspect.unwrap(function)):
        remedy = "make what the decorator returns an `async def`, too, or use no functools.wraps"
        raise BadInput(name, "a decorator hides its `async def`", remedy)
    return is_async


def check_type(name: str, field: str = "type") -> None:
    """Refuses a type that no handler could have. Raises BadInput naming `field`."""
    is_text = isinstance(name, str) and bool(name) and name.isprintable()
    if not is_text or "," in name or name != name.strip():
        problem = "a type is printable text without commas, or blanks at its ends"
        raise BadInput(field, problem, "a short word")
    if len(name) > LONGEST_TYPE:
        raise BadInput(field, f"it has {len(name):,} characters", f"{LONGEST_TYPE:,} at the most")


def _checked_spec(defaults: Mapping[str, Any]) -> Spec:
    texts = {
        key: as_text(argument(key, value, HandlerOptions.__annotations__[key]), key)
        for key, value in defaults.items()
        if value is not None and key in Spec.__struct_fields__ and key != "params"
    }
    for key, text in texts.items():
        if text == "":
            raise BadInput(key, "it is empty", "leave it out")
    spec = msgspec.convert(texts, Spec)
    check_spec(spec)
    return spec


def as_text(value: Any, field: str = "") -> Any:
    """A duration, a time or a day as the text that a spec has; anything else as it is. A number is
    seconds if `field` is a duration. Raises BadInput.
    """
    match value:
        case int() | float() if field in DURATIONS and not isinstance(value, bool):
            return format_duration(duration_of(value, field))
        case timedelta():
            return format_duration(value)
        case datetime(tzinfo=None, fold=1):
            problem = f"{value} with fold=1 is the second of two times, and has no zone"
            raise BadInput(field or "first", problem, "give an aware datetime")
        case date():  # a datetime is one
            return value.isoformat()
        case _:
            return value


def _source_of_function(function: Callable[..., Any]) -> Source:
    """Where a child process finds the module of a function: for one of `__main__` the module that
    was started with `python -m`, or the file of the script. Where there is neither, `__main__`.
    """
    if function.__module__ != MAIN:
        return Source("", function.__module__)
    main = sys.modules[MAIN]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name != MAIN:
        return Source("", spec.name)
    path = Path(getattr(main, "__file__", None) or "").resolve()
    if path.suffix != ".py" or "." in path.stem or not path.is_file():
        return Source("", MAIN)
    module_spec = PathFinder.find_spec(path.stem)
    if module_spec is None or path.stem in sys.stdlib_module_names or module_spec.origin is None:
        return Source(str(path.parent), path.stem)
    is_it = Path(module_spec.origin).resolve() == path
    return Source("" if is_it else str(path.parent), path.stem)
