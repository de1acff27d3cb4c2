"""`@handler`: which function runs which type, and how a worker and its child processes find it.

`@handler` only marks a function. A worker gets its handlers from what a person named when it was
started: the entries of `--jobs`, or functions that a program passes. A row on the board can name a
type, never what to import. An entry is, in this order,

    a shipped name       calendars               found beside the package or inside its wheel
    a folder or a file   jobs, ./calendars, x.py relative to where the settings file is
    a module             mypackage.jobs          importable as Python is set up, or from there

A shipped name means the same wherever the worker is started; `./calendars` is the folder.

A folder is loaded as a package of its own name, whether it has an `__init__.py` or not, and a file
as a module of its folder's package (see `loaded.py`). Every module in a folder or a package is
loaded, and every package in it, but for names that begin with `_` or a dot. A worker and its child
processes run the code that was there when the worker started.

A plain function runs in a child process, which imports its module by name and looks for the mark
of the type. The module of a function of `__main__` is the file of the program under its real name,
so nothing below `if __name__ == "__main__":` runs there. `check_importable` refuses a function that
no child could find: a lambda, a function inside another one, one of a program that is no file.
"""

import ast
import importlib
import importlib.util
import inspect
import os
import sys
import tokenize
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime, timedelta
from difflib import get_close_matches
from importlib.machinery import PathFinder
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, TypedDict, TypeVar, Unpack, overload

import msgspec
from msgspec import Struct

from blackboard import loaded
from blackboard.errors import BadInput
from blackboard.model import replace
from blackboard.params import Params, described
from blackboard.protocol import keys
from blackboard.rules.shares import Balance, names_of
from blackboard.runners.resources import Lifespan, check_lifespan
from blackboard.schedule.durations import duration_of, format_duration, parse_duration
from blackboard.spec import SHORTEST_LEASE, Spec, check_first, concurrency_of, resolve

_MARK = "__blackboard__"
MOST_PARTITIONS = 1_000
"""Of a group: they are read in one page, and renewed ten batches at a time."""
PUMPED = {"every": "1m", "retries": 6, "backoff": "1s"}
"""How the pump of a partition is run again after it failed. A schedule, because an item without one
is done after its last retry.
"""
_MAIN = "__main__"
AT_TOP_LEVEL = "define it at the top level of a module or script, or make it an `async def`"
importing: ContextVar[bool] = ContextVar("importing", default=False)
"""Whether a child process imports a module to call a handler in it."""
DURATIONS = ("every", "timeout", "stale_after", "backoff", "jitter", "missed_after")
"""The fields of a spec that are durations."""
F = TypeVar("F", bound=Callable[..., Any])


class Source(Struct, frozen=True):
    """Where the module of a handler is, so that a child process can load it and nothing else."""

    folder: str
    """The folder it was loaded from, absolute; "" for a module that is importable by name."""
    module: str
    """Its name, within the folder if there is one; "" is the folder's own `__init__.py`."""


Names = Callable[[Mapping[str, Any]], "Iterable[str] | Awaitable[Iterable[str]]"]
"""Gives the names of partitions where a worker starts, by the table `[jobs.GROUP]`."""


class Pump(Struct, frozen=True, kw_only=True):
    """What `@pump` says of the group of partitions that its function serves."""

    partitions: tuple[str, ...] | Names
    lease: timedelta
    drain: timedelta
    """What a pump has to save and return once it is asked to."""
    balance: Balance


class Handler(Struct, frozen=True, kw_only=True):
    """A function that runs the items of a type, as `@handler` declares it."""

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
    concurrency: int | None = None
    """Runs of this type on the whole board at a time."""
    key: str | None = None
    """The param for each of whose values `concurrency` holds."""
    first: str | None = None
    """When a new item runs first that does not say: now, next, or a time."""
    params: Params | None = None
    """What its items may have as params, if it declares that."""
    resources: Lifespan | None = None
    """Opens what `ctx.resources` is."""
    pump: Pump | None = None
    """For a pump: its group, which has the name of the type."""


class HandlerOptions(TypedDict, total=False):
    """Defaults of a type, which items and `[types.TYPE]` override, and how its handler is called.
    Durations are text such as "90s" or "1d12h", timedelta, or seconds.
    """

    every: str | float | timedelta | None
    cron: str | None
    rrule: str | None
    at: str | datetime | None
    timezone: str | None
    timeout: str | float | timedelta | None
    stale_after: str | float | timedelta | None
    retries: int | None
    backoff: str | float | timedelta | None
    jitter: str | float | timedelta | None
    missed: str | None
    missed_limit: int | None
    missed_after: str | float | timedelta | None
    until: str | datetime | None
    max_runs: int | None
    blackout: str | None
    priority: int | None
    description: str | None
    owner: str | None
    tags: Sequence[str] | None
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
    """Drops what a run returns that was overtaken by a later one."""
    params: type | None
    """A dataclass, or a Struct of msgspec: what `item.params` is. Params are checked by it."""
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
        name = f"handler {named!r} ({place(function)})"
        _check_function(name, function)
        check_type(named, name)
        _check_options(name, options, is_async=inspect.iscoroutinefunction(function))
        params = options.get("params")
        found = Handler(
            type=named,
            function=function,
            is_async=inspect.iscoroutinefunction(function),
            spec=_checked_spec(name, options),
            slots=options.get("slots"),
            fenced=options.get("fenced", False),
            source=_source_of_function(function),
            concurrency=options.get("concurrency"),
            key=options.get("key"),
            first=_checked_first(name, options.get("first"), options.get("timezone")),
            params=described(params, name) if params is not None else None,
            resources=options.get("resources"),
        )
        setattr(function, _MARK, (*getattr(function, _MARK, ()), found))
        return function

    return declare


def _check_options(name: str, options: HandlerOptions, *, is_async: bool) -> None:
    slots, fenced = options.get("slots"), options.get("fenced", False)
    known = HandlerOptions.__annotations__
    for one in options:
        if one not in known:
            near = get_close_matches(one, known, n=1) or sorted(known)
            raise BadInput(name, f"there is no option {one!r}", f"there is {', '.join(near)}")
    if slots is not None and (type(slots) is not int or slots < 1):
        raise BadInput(name, f"slots {slots!r} is not a number of runs", "1 or more")
    try:
        concurrency_of(options.get("concurrency"), options.get("key"))
    except BadInput as error:
        raise BadInput(name, f"{error.field}: {error.problem}", error.remedy) from None
    if not isinstance(fenced, bool):
        raise BadInput(name, f"fenced {fenced!r} is not a truth value", "True or False")
    if (lifespan := options.get("resources")) is not None:
        check_lifespan(lifespan, name, is_async=is_async)


def pump(
    group: str,
    /,
    *,
    partitions: int | Iterable[str] | Names,
    lease: str | timedelta = "30s",
    drain: str | timedelta = "10s",
    balance: str = "shares",
) -> Callable[[F], F]:
    """The function below serves one partition of a group for as long as its worker holds it:
    `def f(partition, ctx)` in a child process, `async def f(partition, ctx)` on the worker's loop.
    It goes on at `ctx.checkpoint`, saves with `ctx.save`, and returns when `ctx.stopping` is true;
    `drain` after that it is stopped. Returning unasked is a failure: it is called again, soon.

    `partitions` is a number, names, or a function that gives names, when a worker starts and each
    minute after; it is called with the table `[jobs.GROUP]` of the settings. What a worker held
    that died is another's when its `lease` is over. `balance` is `shares`; `steal` to move one
    partition at a time; or `grab`, races over Redis (`[redis]` in the settings).

    Raises BadInput naming the pump, when its module is imported.
    """

    def declare(function: F) -> F:
        name = f"pump {group!r} ({place(function)})"
        _check_function(name, function)
        found = Handler(
            type=keys.check_group_name(group),
            function=function,
            is_async=inspect.iscoroutinefunction(function),
            spec=_checked_spec(name, {**PUMPED, "stale_after": _checked_lease(name, lease)}),
            slots=None,
            fenced=True,
            source=_source_of_function(function),
            pump=Pump(
                partitions=_checked_partitions(name, partitions),
                lease=_checked_lease(name, lease),
                drain=_duration(name, "drain", drain),
                balance=_checked_balance(name, balance),
            ),
        )
        setattr(function, _MARK, (*getattr(function, _MARK, ()), found))
        return function

    return declare


def _checked_partitions(
    name: str, partitions: int | Iterable[str] | Names
) -> tuple[str, ...] | Names:
    if callable(partitions):
        return partitions
    if isinstance(partitions, bool | str) or (
        isinstance(partitions, int) and not 1 <= partitions <= MOST_PARTITIONS
    ):
        remedy = f"a number from 1 to {MOST_PARTITIONS:,}, names, or a function that gives names"
        raise BadInput(name, f"partitions {partitions!r} is neither", remedy)
    return check_partitions(name, names_of(partitions), least=1)


def check_partitions(name: str, names: Iterable[str], *, least: int = 0) -> tuple[str, ...]:
    """The names of the partitions of a group. Raises BadInput naming `name`."""
    found = tuple(names)
    for one in found:
        if not isinstance(one, str) or not one or not one.isprintable():
            raise BadInput(name, f"partition {one!r} is no name", "printable text")
    if len(set(found)) != len(found):
        raise BadInput(name, "two partitions have one name", "a name for each")
    if not least <= len(found) <= MOST_PARTITIONS:
        raise BadInput(name, f"{len(found):,} partitions", f"{least} to {MOST_PARTITIONS:,}")
    return found


def _checked_lease(name: str, lease: str | timedelta) -> timedelta:
    found = _duration(name, "lease", lease)
    if found < SHORTEST_LEASE:
        remedy = f"{format_duration(SHORTEST_LEASE)} at the least"
        raise BadInput(name, f"lease: {as_text(lease)!r} is too short", remedy)
    return found


def _checked_first(name: str, first: str | datetime | None, zone: object) -> str | None:
    text = as_text(first)
    try:
        check_first(text, zone if isinstance(zone, str) else "UTC")
    except BadInput as problem:
        raise BadInput(name, str(problem)) from None
    return text if text is None else str(text)


def _checked_balance(name: str, balance: str) -> Balance:
    if balance not in set(Balance):
        raise BadInput(name, f"balance {balance!r} is none", f"one of {', '.join(Balance)}")
    return Balance(balance)


def _duration(name: str, field: str, value: str | timedelta) -> timedelta:
    try:
        return parse_duration(as_text(value), field)
    except BadInput as problem:
        raise BadInput(name, str(problem)) from None


def handlers_of(function: Callable[..., Any], source: Source | None = None) -> list[Handler]:
    """A function as handlers, one for each `@handler` above it. `source` is where its module was
    loaded from, if that is not its own name.
    """
    marks: tuple[Handler, ...] = getattr(function, _MARK, ())
    is_async = inspect.iscoroutinefunction(function)  # a decorator may have wrapped what was marked
    return [
        replace(one, function=function, is_async=is_async, source=source or one.source)
        for one in marks
    ]


def handlers_in(module: ModuleType, source: Source) -> list[Handler]:
    """The handlers among the names of a module."""
    functions = [one for one in vars(module).values() if isinstance(one, FunctionType)]
    return [found for one in functions for found in handlers_of(one, source)]


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


def check_type(name: str, field: str = "type") -> None:
    """Refuse a type that no handler could have. Raises BadInput naming `field`."""
    if not isinstance(name, str) or not name or not name.isprintable() or "," in name:
        raise BadInput(field, "a type is printable text without commas", "a short word")


def _checked_spec(name: str, defaults: Mapping[str, Any]) -> Spec:
    try:
        texts = {
            key: as_text(value, key)
            for key, value in defaults.items()
            if value is not None and key in Spec.__struct_fields__ and key != "params"
        }
        spec = msgspec.convert(texts, Spec)
        resolve([spec])
    except (msgspec.ValidationError, BadInput) as problem:
        raise BadInput(name, str(problem)) from None
    return spec


def as_text(value: Any, field: str = "") -> Any:
    """A duration or a time as the text that a spec has; anything else as it is. A number is seconds
    if `field` is a duration. Raises BadInput.
    """
    match value:
        case int() | float() if field in DURATIONS and not isinstance(value, bool):
            return format_duration(duration_of(value, field))
        case timedelta():
            return format_duration(value)
        case datetime():
            return value.isoformat()
        case _:
            return value


class Registry(Mapping[str, Handler]):
    """The handlers of a worker, by type."""

    def __init__(self, handlers: Iterable[Handler] = ()) -> None:
        """Raises BadInput naming both places when two functions have one type. The same function
        found twice, because another module imports it, is one handler.
        """
        self._handlers: dict[str, Handler] = {}
        for one in handlers:
            other = self._handlers.setdefault(one.type, one)
            if other.function is not one.function:
                both = f"{place(other.function)} and {place(one.function)}"
                raise BadInput("jobs", f"the type {one.type!r} has two handlers: {both}")

    def __getitem__(self, type_: str) -> Handler:
        return self._handlers[type_]

    def __iter__(self) -> Iterator[str]:
        return iter(self._handlers)

    def __len__(self) -> int:
        return len(self._handlers)


def load(jobs: Sequence[str], base: Path) -> Registry:
    """The handlers of all entries. `base` is the folder that relative paths start from.

    Raises BadInput naming the entry and what is wrong with it, and when a type has two handlers.
    """
    folders: list[Path] = []
    return Registry([one for entry in jobs for one in _handlers_at(entry, base.resolve(), folders)])


def registry_of(handlers: Iterable[str | Callable[..., Any]]) -> Registry:
    """Handlers by type, from functions and from what `--jobs` takes. Raises BadInput."""
    if isinstance(handlers, str):
        raise BadInput("handlers", f"{handlers!r} is text", "a list, such as [feed, 'jobs']")
    found: list[Handler] = []
    folders: list[Path] = []
    for one in handlers:
        some = _handlers_at(one, Path.cwd(), folders) if isinstance(one, str) else handlers_of(one)
        if not some:
            raise BadInput("handlers", f"{one!r} is no handler", "put @handler above it")
        found += some
    return Registry(found)


def shipped() -> tuple[str, ...]:
    """The names of the jobs that come with the package. Nothing is imported."""
    folder = _shipped_folder()
    return tuple(sorted(_modules_in(folder))) if folder else ()


def import_source(source: Source) -> ModuleType:
    """The module at `source`, imported now or before. Raises whatever the module raises."""
    if not source.folder:
        return importlib.import_module(source.module)
    package = loaded.name_of(source.folder)
    return importlib.import_module(f"{package}.{source.module}" if source.module else package)


def find_handler(source: Source, type_: str) -> Handler:
    """The handler of a type in the module at `source`, as a child process finds it. Raises BadInput
    when the module, imported there, has none.
    """
    token = importing.set(True)
    try:
        module = import_source(source)
    finally:
        importing.reset(token)
    found = Registry(handlers_in(module, source)).get(type_)
    if found is None:
        problem = f"{module.__name__}, imported in a child process, has no handler for {type_!r}"
        raise BadInput("handlers", problem, AT_TOP_LEVEL)
    return found


def check_importable(one: Handler) -> None:
    """Refuse a plain function that a child process could not import. Raises BadInput naming the
    handler and the remedy. A coroutine function runs in this process and may be any.
    """
    problem = "" if one.is_async else _not_importable(one)
    if problem:
        name = f"handler {one.type!r} ({place(one.function)})"
        raise BadInput(name, f"a child process cannot import it: {problem}", AT_TOP_LEVEL)


def _not_importable(one: Handler) -> str:
    """What keeps a child process from finding a plain function; "" if nothing does."""
    function, name = one.function, getattr(one.function, "__qualname__", "")
    is_main = function.__module__ == _MAIN
    if one.source == Source("", _MAIN):
        return "its program is not a Python file that can be imported by its name"
    module = sys.modules[_MAIN] if is_main else import_source(one.source)
    if all(value is not function for value in vars(module).values()):
        if "<lambda>" in name:
            return "it is a lambda"
        if "<locals>" in name:
            return f"it is defined inside another function, {name.partition('.<locals>')[0]}"
        return f"it is no name of {one.source.module or one.source.folder}"
    if is_main and _is_below_main(function):
        return 'it is defined below `if __name__ == "__main__"`, which does not run there'
    return ""


def _source_of_function(function: Callable[..., Any]) -> Source:
    """Where a child process finds the module of a function: for one of `__main__` the module that
    was started with `python -m`, or the file of the script. Where there is neither, `__main__`.
    """
    if function.__module__ != _MAIN:
        return Source("", function.__module__)
    main = sys.modules[_MAIN]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name != _MAIN:
        return Source("", spec.name)
    path = Path(getattr(main, "__file__", None) or "").resolve()
    if path.suffix != ".py" or "." in path.stem or not path.is_file():
        return Source("", _MAIN)
    found = PathFinder.find_spec(path.stem)
    if found is None or path.stem in sys.stdlib_module_names or found.origin is None:
        return Source(str(path.parent), path.stem)
    is_it = Path(found.origin).resolve() == path
    return Source("" if is_it else str(path.parent), path.stem)


def _is_below_main(function: Callable[..., Any]) -> bool:
    """Whether a function of the program's script is defined in an `if` about `__name__`."""
    code = inspect.unwrap(function).__code__
    try:
        with tokenize.open(code.co_filename) as file:
            statements = ast.parse(file.read()).body
    except (OSError, SyntaxError):
        return False
    return any(
        isinstance(one, ast.If)
        and one.lineno <= code.co_firstlineno <= (one.end_lineno or one.lineno)
        and any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(one.test))
        for one in statements
    )


def _handlers_at(entry: str, base: Path, folders: list[Path]) -> list[Handler]:
    """The handlers of an entry. `folders` are those of the entries before it, and then of it."""
    field = f"jobs {entry!r}"
    found: list[Handler] = []
    for source in _sources(entry, base, folders):
        try:
            found += handlers_in(import_source(source), source)
        except (Exception, SystemExit) as problem:
            where = str(Path(source.folder, source.module)) if source.folder else source.module
            said = f"cannot import {where}: {_in_a_line(problem)}"
            raise BadInput(field, said, _remedy(problem, source)) from problem
    if not found:
        raise BadInput(field, "there is no handler in it", "mark one with @handler")
    return found


def _remedy(problem: BaseException, source: Source) -> str:
    """How a module beside this one is imported, if that is what failed."""
    name = problem.name or "" if isinstance(problem, ModuleNotFoundError) else ""
    places = (Path(source.folder, f"{name}.py"), Path(source.folder, name, "__init__.py"))
    if not (source.folder and name.isidentifier() and any(one.is_file() for one in places)):
        return ""
    return f"write `from . import {name}`, or `from {Path(source.folder).name} import {name}`"


def _sources(entry: str, base: Path, folders: list[Path]) -> list[Source]:
    if not entry.strip():
        raise BadInput(f"jobs {entry!r}", "is empty", "a folder, a file, a shipped job, a module")
    shipped_folder = _shipped_folder()
    if shipped_folder and entry in shipped():
        return [Source(str(shipped_folder), entry)]
    try:
        path = Path(os.path.abspath(base / Path(entry).expanduser()))  # noqa: PTH100 - links stay
    except RuntimeError as problem:
        raise BadInput(f"jobs {entry!r}", str(problem), "write the whole path") from None
    if path.is_dir():
        loaded.claim(path, f"jobs {entry!r}", others=folders)
        folders.append(path)
        return [Source(str(path.resolve()), name) for name in _modules_below(path)]
    if path.is_file():
        return [_source_of_file(entry, path)]
    if "/" in entry or entry.endswith(".py"):
        raise BadInput(f"jobs {entry!r}", f"there is no such file or folder: {path}")
    return _sources_of_module(entry, base)


def _modules_below(folder: Path) -> list[str]:
    """The names of the modules in a folder, and of those in its packages, from there; its own
    `__init__.py` is "".
    """
    found = [""] if (folder / "__init__.py").is_file() else []
    for name in sorted(_modules_in(folder)):
        is_package = (folder / name / "__init__.py").is_file()
        inner = _modules_below(folder / name) if is_package else [""]
        found += [f"{name}.{one}".rstrip(".") for one in inner]
    return found


def _source_of_file(entry: str, path: Path) -> Source:
    if path.suffix != ".py" or "." in path.stem:
        raise BadInput(f"jobs {entry!r}", "is not a Python file", "a name like feeds.py")
    loaded.claim(path.parent, f"jobs {entry!r}", whole=False)
    return Source(str(path.parent.resolve()), "" if path.stem == "__init__" else path.stem)


def _sources_of_module(entry: str, base: Path) -> list[Source]:
    if str(base) not in sys.path:
        sys.path.append(str(base))  # last: a file lying here must not hide an installed module
    known = ", ".join(shipped()) or "none"
    nothing = BadInput(
        f"jobs {entry!r}",
        f"is neither a folder or file in {base}, nor a shipped job, nor an importable module",
        f"shipped: {known}",
    )
    if not all(part.isidentifier() for part in entry.split(".")):
        raise nothing
    try:
        top = importlib.util.find_spec(entry.partition(".")[0])
        spec = importlib.util.find_spec(entry)
    except (Exception, SystemExit) as problem:
        if isinstance(problem, ModuleNotFoundError) and f"{entry}.".startswith(f"{problem.name}."):
            raise nothing from None
        raise BadInput(f"jobs {entry!r}", f"cannot be imported: {_in_a_line(problem)}") from problem
    if spec is None or top is None:
        raise nothing
    loaded.claim_module(top, f"jobs {entry!r}")
    names = {entry: None}
    for folder in spec.submodule_search_locations or ():
        names |= {f"{entry}.{one}".rstrip("."): None for one in _modules_below(Path(folder))}
    return [Source("", name) for name in names]


def _modules_in(folder: Path) -> Iterator[str]:
    for path in folder.iterdir():
        if path.name.startswith(("_", ".")) or "." in path.stem:
            continue
        if (path / "__init__.py").is_file():
            yield path.name
        elif path.suffix == ".py" and path.is_file():
            yield path.stem


def _shipped_folder() -> Path | None:
    here = Path(__file__).resolve().parent
    # In a wheel the jobs are inside the package; in a checkout they are beside it.
    return next((one for one in (here / "_jobs", here.parent / "jobs") if one.is_dir()), None)


def _in_a_line(problem: BaseException) -> str:
    """Type, message and the place: one line instead of a traceback."""
    if isinstance(problem, BadInput):
        return str(problem)
    if isinstance(problem, SyntaxError):
        return f"{type(problem).__name__}: {problem.msg} ({problem.filename}:{problem.lineno})"
    places = [
        f" ({frame.filename}:{frame.lineno})"
        for frame in traceback.extract_tb(problem.__traceback__)
        if "importlib" not in frame.filename and frame.filename not in {__file__, loaded.__file__}
    ]
    return f"{type(problem).__name__}: {problem}{places[-1] if places else ''}"
