"""The handlers of a worker, by type, and where a worker and its child processes find them.

A worker gets its handlers from what a person named when it was started: the entries of `--jobs`, or
functions that a program passes. A row on the board can name a type, never what to import. An entry
is, in this order,

    a shipped name       calendars               found beside the package or inside its wheel
    a folder or a file   jobs, ./calendars, x.py relative to where the settings file is
    a module             mypackage.jobs          importable as Python is set up, or from there

A shipped name means the same wherever the worker is started; `./calendars` is the folder.

A folder is loaded as a package of its own name, whether it has an `__init__.py` or not, and a file
as a module of its folder's package (see `code.py`). Every module in a folder or a package is
loaded, and every package in it, but for names that begin with `_` or a dot. A worker and its child
processes run the code that was there when the worker started.

A plain function runs in a child process, which imports its module by name and looks for the mark
of the type. `check_importable` refuses a function that no child could find: a lambda, a function
inside another one, one of a program that has no file.
"""

import importlib
import importlib.util
import inspect
import os
import sys
import tokenize
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

from blackboard.errors import BadInput
from blackboard.handlers import code
from blackboard.handlers.handler import MAIN, Handler, Source, handlers_in, handlers_of, place
from blackboard.phrases import class_of, message_of, quoted
from blackboard.runners.interpreter import executable

AT_TOP_LEVEL = "define it at the top level of a module or script, or make it an `async def`"
NO_FILE = Source("", MAIN)
"""Where a function of `__main__` is whose file cannot be imported by its name, or is none."""
IN_A_MODULE = (
    "move it to a module that the program imports, start the program with `python -m`, or make it "
    "an `async def`"
)
importing: ContextVar[bool] = ContextVar("importing", default=False)
"""Whether a child process imports a module to call a handler in it."""

Handlers = Mapping[str, Handler]
"""The handlers of a worker, by type."""


def by_type(handlers: Iterable[Handler]) -> Handlers:
    """Raises BadInput naming both places when two functions have one type. The same function found
    twice, because another module imports it, is one handler.
    """
    by_name: dict[str, Handler] = {}
    for handler in handlers:
        other = by_name.setdefault(handler.type, handler)
        if other.function is not handler.function:
            first, second = place(other.function), place(handler.function)
            both = f"{first} and {second}"
            if first == second:
                both = f"{first}, which was imported or defined twice: name it once"
            raise BadInput("jobs", f"the type {handler.type!r} has two handlers: {both}")
    return by_name


def load(jobs: Sequence[str], base: Path) -> Handlers:
    """The handlers of all entries. `base` is the folder that relative paths start from.

    Raises BadInput naming the entry and what is wrong with it, and when a type has two handlers.
    """
    entries = _Entries(base.resolve())
    return by_type(handler for entry in jobs for handler in entries.handlers_at(entry))


def registry_of(handlers: Iterable[str | os.PathLike[str] | Callable[..., Any]]) -> Handlers:
    """Handlers by type, from functions and from what `--jobs` takes. Raises BadInput."""
    if isinstance(handlers, str | Mapping):
        raise BadInput("handlers", f"{quoted(handlers)} is not a list", "such as [feed, 'jobs']")
    collected: list[Handler] = []
    entries = _Entries(Path.cwd())
    for source in handlers:
        if isinstance(source, str | os.PathLike):
            collected += entries.handlers_at(os.fspath(source))
        elif marked := handlers_of(source):
            collected += marked
        else:
            is_module = isinstance(source, ModuleType)
            remedy = "name its functions" if is_module else "put @handler above it"
            raise BadInput("handlers", f"{quoted(source)} is not a handler", remedy)
    return by_type(collected)


def shipped() -> tuple[str, ...]:
    """The names of the jobs that come with the package. Nothing is imported."""
    folder = _shipped_folder()
    return tuple(sorted(_modules_in(folder))) if folder else ()


def import_source(source: Source) -> ModuleType:
    """The module at `source`, imported now or before. Raises whatever the module raises."""
    if not source.folder:
        return importlib.import_module(source.module)
    package = code.name_of(source.folder)
    return importlib.import_module(f"{package}.{source.module}" if source.module else package)


def find_handler(source: Source, type_: str) -> Handler:
    """The handler of a type in the module at `source`, as a child process finds it. Raises BadInput
    when the module, imported there, has none, or two.
    """
    token = importing.set(True)
    try:
        module = import_source(source)
    finally:
        importing.reset(token)
    handler = _handler_in(module, source, type_)
    if handler is None:
        problem = f"{module.__name__}, imported in a child process, has no handler for {type_!r}"
        raise BadInput("handlers", problem, AT_TOP_LEVEL)
    return handler


def check_importable(handler: Handler) -> None:
    """Refuse a plain function that a child process could not find, or where none can be started.
    Raises BadInput naming the remedy. A coroutine function runs in this process and may be any.
    """
    if handler.is_async:
        return
    executable()
    if problem := _not_importable(handler):
        name = f"handler {handler.type!r} ({place(handler.function)})"
        remedy = IN_A_MODULE if handler.source == NO_FILE else AT_TOP_LEVEL
        raise BadInput(name, f"a child process cannot import it: {problem}", remedy)


def _handler_in(module: ModuleType, source: Source, type_: str) -> Handler | None:
    """The handler of a type among the names of a module, as a child process imports it. Raises
    BadInput where there are two.
    """
    of_type = (found for found in handlers_in(module, source) if found.type == type_)
    return by_type(found for found in of_type if not _is_below_main(found.function)).get(type_)


def _not_importable(handler: Handler) -> str:
    """What keeps a child process from finding a plain function; "" if nothing does. Raises BadInput
    where its module has another handler of its type.
    """
    function, name = handler.function, getattr(handler.function, "__qualname__", "")
    is_main = function.__module__ == MAIN
    if handler.source == NO_FILE:
        return "its program is not a Python file that can be imported by its name"
    source = handler.source
    module = sys.modules[MAIN] if is_main else import_source(source)
    if not source.folder and not _is_found(source.module, module):
        return f"no import finds the module {source.module}, which this process has made itself"
    if all(value is not function for value in vars(module).values()):
        if "<lambda>" in name:
            return "it is a lambda"
        if "<locals>" in name:
            return f"it is defined inside another function, {name.partition('.<locals>')[0]}"
        named = source.module or source.folder
        return f"the module {named} has another object, or nothing, under this name"
    if _is_below_main(function):
        return 'it is defined below `if __name__ == "__main__"`, which does not run there'
    _handler_in(module, source, handler.type)
    return ""


def _is_found(name: str, module: ModuleType) -> bool:
    """Whether another process can find a module. Of a dotted name only the first part is looked
    for: a package may make its modules when it is imported.
    """
    top, _, inner = name.partition(".")
    finds = (getattr(finder, "find_spec", None) for finder in sys.meta_path)  # old ones lack it
    spec = next(filter(None, (find(top, None) for find in finds if find)), None)
    if spec is None or spec.origin is None or inner:
        return spec is not None
    return Path(spec.origin).resolve() == Path(module.__file__ or "").resolve()


def _is_below_main(function: Callable[..., Any]) -> bool:
    """Whether a function is of the program's script, and defined in an `if` about `__name__`. Reads
    tokens: `ast.parse` in several threads at once raises SystemError now and then (Python 3.11).
    """
    if function.__module__ != MAIN:
        return False
    compiled = inspect.unwrap(function).__code__
    try:
        with tokenize.open(compiled.co_filename) as file:
            first = _first_line(file.readline, compiled.co_firstlineno)
    except (OSError, SyntaxError, tokenize.TokenError):
        return False
    return first[:1] == ["if"] and "__name__" in first


def _first_line(readline: Callable[[], str], line: int) -> list[str]:
    """The tokens of the first logical line of the statement, at the top level of a script, that
    holds a line. An `elif` and an `else` belong to their `if`.
    """
    first, depth, begins, is_first = list[str](), 0, True, False
    for token in tokenize.generate_tokens(readline):
        match token.type:
            case tokenize.INDENT:
                depth += 1
            case tokenize.DEDENT:
                depth -= 1
            case tokenize.NEWLINE:
                begins = True
            case tokenize.NL | tokenize.COMMENT:
                pass
            case _:
                if begins:
                    begins, is_first = False, depth == 0 and token.string not in {"elif", "else"}
                    if is_first and token.start[0] > line:
                        break
                    first = [] if is_first else first
                if is_first:
                    first.append(token.string)
    return first


class _Entries:
    """Finds the handlers of entries that are used together: no two folders may have one name."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._folders: list[Path] = []

    def handlers_at(self, entry: str) -> list[Handler]:
        """Raises BadInput naming the entry and what is wrong with it."""
        field = f"jobs {entry!r}"
        handlers: list[Handler] = []
        try:
            sources = self._sources(entry, field)
        except OSError as problem:
            remedy = "name a folder or a file that can be read, or a module"
            raise BadInput(field, f"cannot be read: {problem.strerror}", remedy) from None
        for source in sources:
            try:
                handlers += handlers_in(import_source(source), source)
            except KeyboardInterrupt:
                raise
            except BaseException as problem:
                if isinstance(problem, BadInput) and problem.field == "jobs":  # it lacks a package
                    raise BadInput(field, problem.problem, problem.remedy) from problem
                words = f"cannot import {_where(source)}: {_in_a_line(problem)}"
                raise BadInput(field, words, _remedy(problem, source)) from problem
        if not handlers:
            raise BadInput(field, "there is no handler in it", "mark one with @handler")
        return handlers

    def _sources(self, entry: str, field: str) -> list[Source]:
        if not entry.strip():
            raise BadInput(field, "is empty", "a folder, a file, a shipped job, a module")
        shipped_folder = _shipped_folder()
        if shipped_folder and entry in shipped():
            return [Source(str(shipped_folder), entry)]
        try:
            path = self._base / Path(entry).expanduser()
        except RuntimeError as problem:
            raise BadInput(field, str(problem), "write the whole path") from None
        path = Path(os.path.abspath(path))  # noqa: PTH100 - links stay
        if path.is_dir():
            code.claim(path, field, others=self._folders)
            self._folders.append(path)
            return [Source(str(path.resolve()), name) for name in modules_below(path)]
        if path.is_file():
            return [_source_of_file(path, field)]
        if "/" in entry or entry.endswith(".py"):
            raise BadInput(field, f"there is no such file or folder: {path}")
        return _sources_of_module(entry, field, self._base)


def _where(source: Source) -> str:
    """The file or the folder of a module; its name where it is installed."""
    path = Path(source.folder, *source.module.split("."))
    file = path.with_suffix(".py")
    return str(file if file.is_file() else path) if source.folder else source.module


def _remedy(problem: BaseException, source: Source) -> str:
    """How a module beside this one is imported, if that is what failed."""
    name = problem.name or "" if isinstance(problem, ModuleNotFoundError) else ""
    places = (Path(source.folder, f"{name}.py"), Path(source.folder, name, "__init__.py"))
    if not (source.folder and name.isidentifier() and any(path.is_file() for path in places)):
        return ""
    return f"write `from . import {name}`, or `from {Path(source.folder).name} import {name}`"


def modules_below(folder: Path, above: tuple[Path, ...] = ()) -> list[str]:
    """The names of the modules in a folder, and of those in its packages, from there; its own
    `__init__.py` is "". A link that leads back to a folder in `above` is not followed.
    """
    resolved = folder.resolve()
    if resolved in above:
        return []
    names = [""] if (folder / "__init__.py").is_file() else []
    for name in sorted(_modules_in(folder)):
        is_package = (folder / name / "__init__.py").is_file()
        inner = modules_below(folder / name, (*above, resolved)) if is_package else [""]
        names += [f"{name}.{below}".rstrip(".") for below in inner]
    return names


def _source_of_file(path: Path, field: str) -> Source:
    if path.suffix != ".py" or "." in path.stem:
        raise BadInput(field, "is not a Python file", "a name like feeds.py")
    code.claim_file(path, field)
    return Source(str(path.parent.resolve()), "" if path.stem == "__init__" else path.stem)


def _sources_of_module(entry: str, field: str, base: Path) -> list[Source]:
    if str(base) not in sys.path:
        sys.path.append(str(base))  # last: a file lying here must not hide an installed module
    names_of_jobs = ", ".join(shipped()) or "none"
    nothing = BadInput(
        field,
        f"is not a folder or file in {base}, a shipped job, or a module that can be imported",
        f"shipped: {names_of_jobs}",
    )
    if not all(part.isidentifier() for part in entry.split(".")):
        raise nothing
    try:
        top = importlib.util.find_spec(entry.partition(".")[0])
        spec = importlib.util.find_spec(entry)
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        if isinstance(problem, ModuleNotFoundError) and f"{entry}.".startswith(f"{problem.name}."):
            raise nothing from None
        raise BadInput(field, f"cannot be imported: {_in_a_line(problem)}") from problem
    if spec is None or top is None:
        raise nothing
    code.claim_module(top, field)
    names = {entry: None}
    for folder in spec.submodule_search_locations or ():
        names |= {f"{entry}.{module}".rstrip("."): None for module in modules_below(Path(folder))}
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
    package = Path(__file__).resolve().parents[1]
    # In a wheel the jobs are inside the package; in a checkout they are beside it.
    places = package / "_jobs", package.parent / "jobs"
    return next((path for path in places if path.is_dir()), None)


def _in_a_line(problem: BaseException) -> str:
    """Type, message and the place: one line instead of a traceback."""
    if isinstance(problem, BadInput):
        return str(problem)
    if isinstance(problem, SyntaxError):
        place = f" ({problem.filename}:{problem.lineno})" if problem.filename else ""
        return f"{type(problem).__name__}: {problem.msg}{place}"
    places = [
        f" ({frame.filename}:{frame.lineno})"
        for frame in traceback.extract_tb(problem.__traceback__)
        if "importlib" not in frame.filename and frame.filename not in {__file__, code.__file__}
    ]
    said = message_of(problem)
    return f"{class_of(problem)}{said and f': {said}'}{places[-1] if places else ''}"
