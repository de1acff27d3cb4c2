"""Which handlers a worker has: the entries of `--jobs`, loaded, by type.

What is imported is what a person named when the worker was started. A row on the board can name
a type, never what to import. An entry is, in this order,

    a shipped name       calendars               found beside the package or inside its wheel
    a folder or a file   jobs, ./calendars, x.py relative to where the settings file is
    a module             mypackage.jobs          importable as Python is set up, or from there

A shipped name means the same wherever the worker is started; `./calendars` is the folder.

A folder is loaded as a package, whether it has an `__init__.py` or not, under a name made from its
path (see `loaded.py`), and relative imports work inside. Every module and package in it is loaded,
but for names that begin with `_` or a dot. A file is loaded as a module of its folder's package.
"""

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from blackboard.errors import BadInput
from blackboard.handlers import Handler, Source, handlers_in, place
from blackboard.loaded import package_name


class Registry(Mapping[str, Handler]):
    """The handlers of a worker, by type."""

    def __init__(self, handlers: Iterable[Handler] = ()) -> None:
        """Raises BadInput naming both places when two functions have one type. The same function
        met twice, because another module imports it, is one handler.
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
    return Registry([one for entry in jobs for one in _handlers_of(entry, base.resolve())])


def shipped() -> tuple[str, ...]:
    """The names of the jobs that come with the package. Nothing is imported."""
    folder = _shipped_folder()
    return tuple(sorted(_modules_in(folder))) if folder else ()


def import_source(source: Source) -> ModuleType:
    """The module at `source`, imported now or before. Raises whatever the module raises."""
    if not source.folder:
        return importlib.import_module(source.module)
    package = package_name(source.folder)
    return importlib.import_module(f"{package}.{source.module}" if source.module else package)


def find_handler(source: Source, type_: str) -> Handler:
    """The handler of a type in the module at `source`: how a child process comes by it."""
    return Registry(handlers_in(import_source(source), source))[type_]


def _handlers_of(entry: str, base: Path) -> list[Handler]:
    field = f"jobs {entry!r}"
    found: list[Handler] = []
    for source in _sources(entry, base):
        try:
            found += handlers_in(import_source(source), source)
        except (Exception, SystemExit) as problem:
            where = str(Path(source.folder, source.module)) if source.folder else source.module
            raise BadInput(field, f"cannot import {where}: {_told(problem)}") from problem
    if not found:
        raise BadInput(field, "there is no handler in it", "mark one with @handler")
    return found


def _sources(entry: str, base: Path) -> list[Source]:
    if not entry.strip():
        raise BadInput(f"jobs {entry!r}", "is empty", "a folder, a file, a shipped job, a module")
    shipped_folder = _shipped_folder()
    if shipped_folder and entry in shipped():
        return [Source(str(shipped_folder), entry)]
    try:
        path = base / Path(entry).expanduser()
    except RuntimeError as problem:
        raise BadInput(f"jobs {entry!r}", str(problem), "write the whole path") from None
    if path.is_dir():
        return _sources_in(path.resolve())
    if path.is_file():
        return [_source_of_file(entry, path.resolve())]
    if "/" in entry or entry.endswith(".py"):
        raise BadInput(f"jobs {entry!r}", f"there is no such file or folder: {path}")
    return [_source_of_module(entry, base)]


def _sources_in(folder: Path) -> list[Source]:
    own = [""] if (folder / "__init__.py").is_file() else []
    return [Source(str(folder), name) for name in (*own, *sorted(_modules_in(folder)))]


def _source_of_file(entry: str, path: Path) -> Source:
    if path.suffix != ".py" or "." in path.stem:
        raise BadInput(f"jobs {entry!r}", "is not a Python file", "a name like feeds.py")
    return Source(str(path.parent), "" if path.stem == "__init__" else path.stem)


def _source_of_module(entry: str, base: Path) -> Source:
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
        spec = importlib.util.find_spec(entry)
    except (Exception, SystemExit) as problem:
        if isinstance(problem, ModuleNotFoundError) and f"{entry}.".startswith(f"{problem.name}."):
            raise nothing from None
        raise BadInput(f"jobs {entry!r}", f"cannot be imported: {_told(problem)}") from problem
    if spec is None:
        raise nothing
    return Source("", entry)


def _modules_in(folder: Path) -> Iterator[str]:
    for path in folder.iterdir():
        if path.name.startswith(("_", ".")):
            continue
        if (path / "__init__.py").is_file():
            yield path.name
        elif path.suffix == ".py" and path.is_file():
            yield path.stem


def _shipped_folder() -> Path | None:
    here = Path(__file__).resolve().parent
    # In a wheel the jobs are inside the package; in a checkout they are beside it.
    return next((one for one in (here / "_jobs", here.parent / "jobs") if one.is_dir()), None)


def _told(problem: BaseException) -> str:
    """Type, message and the place: one line instead of a traceback."""
    if isinstance(problem, BadInput):
        return str(problem)
    if isinstance(problem, SyntaxError):
        return f"{type(problem).__name__}: {problem.msg} ({problem.filename}:{problem.lineno})"
    places = [
        f" ({frame.filename}:{frame.lineno})"
        for frame in traceback.extract_tb(problem.__traceback__)
        if "importlib" not in frame.filename and frame.filename != __file__
    ]
    return f"{type(problem).__name__}: {problem}{places[-1] if places else ''}"
