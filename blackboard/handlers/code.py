"""The code of jobs: where it is imported from, under which names, and as it was when it was loaded.

A folder of jobs is a package of its own name, with or without an `__init__.py`, and its parent is
at the end of `sys.path`. So its modules import each other as `cityjobs.feeds` or relatively, and so
does what `multiprocessing` starts. A folder whose name is not a module name, or whose name is taken
by another module of this process, is the package `blackboard.handlers.code.FOLDER`: any Python
process that has this package can import it.

The files of the jobs are read once, by `claim`. This process imports what was read, and
so do its child processes, which get it from here: an edit changes nothing until the worker starts
again, and a file that is half saved is never run. `changed` names the files that differ. Of a
module that is a single file, `changed` looks at this file, too; but Python imports it, and what
lies beside it, from the files as they then are.
"""

import ast
import errno
import importlib.util
import keyword
import linecache
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import decode_source, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

import msgspec

from blackboard.errors import BadInput
from blackboard.inputs import check_utf8

__path__: list[str] = []  # makes this module a package; the finder below finds what is in it

_PREFIX = f"{__name__}."
_NO_CODE = {"__pycache__", "node_modules"}
MOST_FILES = 5_000
NOT_PYTHON = (OSError, ValueError, SyntaxError, RecursionError, MemoryError)
"""What reading and compiling a file raises that cannot be run; the last two where it is nested too
deeply.
"""


class Code(msgspec.Struct, frozen=True):
    """The code of a process's jobs, for its child processes."""

    packages: dict[str, str]
    """The folder of each package, by the name of the package."""
    files: dict[str, bytes]
    """The content of each file that was read, by absolute path."""


@dataclass(slots=True)
class _Files:
    """The files and folders that this process has read."""

    packages: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    stamps: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Time of change and size of each file, when its content was last the same as the one read."""
    folders: dict[str, bool] = field(default_factory=dict)
    """The folders that were read; true: with those folders in them that are no packages."""
    above: set[str] = field(default_factory=set)
    """All folders above the files. They may be away by now, as where a release is replaced."""
    named: set[str] = field(default_factory=set)
    """The files that are jobs by themselves."""
    noted: dict[str, bytes] = field(default_factory=dict)
    """The content of those that are modules which Python finds by itself. No import takes it."""


_own = _Files()


def claim(folder: Path, field: str, *, whole: bool = True, others: Sequence[Path] = ()) -> None:
    """Makes a folder a package, and reads its files; with `whole` also those in folders below that
    are no packages. Raises BadInput naming `field` when its name is taken by another module or by
    one of the `others`, which are used together with it.
    """
    name, real = folder.name, folder.resolve()
    _read(real, field, whole=whole)
    if name_of(str(real)) == name or not name.isidentifier() or keyword.iskeyword(name):
        return
    same = [str(other) for other in others if other.name == name and other.resolve() != real]
    taken = next(iter(same), None) or _module_elsewhere(name, real)
    if taken and whole:
        problem = f"two modules have the name {name!r}: {folder} and {taken}"
        raise BadInput(field, problem, "rename one of them")
    if not taken and name not in _own.packages and name not in sys.modules:
        _own.packages[name] = str(real)
        if str(folder.parent) not in sys.path:
            sys.path.append(str(folder.parent))


def claim_file(file: Path, field: str) -> None:
    """Reads a file that is jobs by itself, with those beside it: they are its package."""
    claim(file.parent, field, whole=False)
    _own.named.add(str(file.parent.resolve() / file.name))


def claim_module(spec: ModuleSpec, field: str) -> None:
    """Reads the files of a package that Python finds by itself, unless it is an installed one; if
    it is in one place, it is imported also when that is away. Of another module notes its file.
    """
    path = str(Path(spec.origin or "").absolute())  # links stay: imports follow them
    found = [Path(place).resolve() for place in spec.submodule_search_locations or ()]
    for folder in found:
        if folder.is_dir() and not {"site-packages", "dist-packages"} & set(folder.parts):
            _read(folder, field, whole=True)
            if len(found) == 1 and (spec.origin is None or path.endswith(".py")):
                _own.packages.setdefault(spec.name, str(folder))
    if not found and path.endswith(".py"):
        with suppress(OSError):  # its import tells
            if path not in _own.files and not (path in _own.noted and spec.name in sys.modules):
                _own.stamps[path], _own.noted[path] = _stamp(path), Path(path).read_bytes()
            _own.named.add(path)


def name_of(folder: str) -> str:
    """The name of the package of a folder, which is an absolute path."""
    # Any text without a dot can be the name of a module.
    private = _PREFIX + folder.replace("%", "%25").replace(".", "%2E")
    return next((name for name, path in _own.packages.items() if path == folder), private)


def code() -> Code:
    return Code(packages=_own.packages, files=_own.files)


def install(code: Code) -> None:
    """In a child process: makes imports load what the parent process has read."""
    _own.packages = code.packages
    _own.files = code.files
    _own.above = _above(code.files)


def changed() -> list[str]:
    """The files that are not what was read: changed, removed or new. The files of a
    folder that cannot be listed, because it is being replaced say, count as removed.
    """
    # Copies: a worker asks in a thread, and its program may load other jobs meanwhile.
    files, folders, read = _own.named.copy(), _own.folders.copy(), [*_own.stamps]
    for folder, whole in folders.items():
        with suppress(OSError):
            files.update(_files_in(folder, whole=whole))
    return sorted(files.symmetric_difference(read) | {path for path in read if _differs(path)})


def folders() -> dict[str, bool]:
    """The folders that were read; true: with all folders in them."""
    return dict(_own.folders)


def stamps_as_read() -> dict[str, tuple[int, int]]:
    """Time of change and size of each file that was read, as it was then."""
    return dict(_own.stamps)


def stamps(folders: Mapping[str, bool], others: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Time of change and size of each file of some folders, and of others. Raises OSError."""
    files = {file for folder, whole in folders.items() for file in _files_in(folder, whole=whole)}
    return {file: _stamp(file) for file in files.union(others)}


def mistake_in(files: Iterable[str]) -> str:
    """Why the jobs cannot be read as they are now: a folder of theirs, or a file that was named, is
    not there, or one of these files is not valid Python; "" if they can.
    """
    for folder in _own.folders:
        try:
            next(_files_in(folder, whole=False), None)
        except OSError as problem:
            return f"{folder}: {problem.strerror}"
    for file in files:
        try:
            ast.parse(Path(file).read_bytes(), file)
        except FileNotFoundError as problem:
            if file in _own.named:
                return f"{file}: {problem.strerror}"
        except NOT_PYTHON as problem:
            return f"{file}: {str(problem) or type(problem).__name__}"
    return ""


# ---- reading


def _read(folder: Path, field: str, *, whole: bool) -> None:
    path = str(folder)
    is_imported = name_of(path) in sys.modules  # what was imported stays as it was read
    _own.folders[path] = whole or _own.folders.get(path, False)
    try:
        for number, file in enumerate(_files_in(path, whole=whole)):
            if number == MOST_FILES:
                remedy = "name a smaller folder"
                raise BadInput(field, f"{path} has more than {MOST_FILES:,} files", remedy)
            check_utf8(field, file, "rename what is not")  # else no child process could get it
            if file not in _own.files or not is_imported:
                _own.stamps[file] = _stamp(file)
                _own.files[file] = Path(file).read_bytes()
        _own.above = _above(_own.files)
    except OSError as problem:
        raise BadInput(field, f"cannot read {problem.filename}: {problem.strerror}") from None


def _above(files: Iterable[str]) -> set[str]:
    """All folders above some files."""
    folders = map(Path, {os.path.dirname(file) for file in files})  # noqa: PTH120 - many
    return {str(above) for folder in folders for above in (folder, *folder.parents)}


def _files_in(folder: str, *, whole: bool, above: tuple[str, ...] = ()) -> Iterator[str]:
    """The Python files of a folder, of packages in it, and with `whole` of other folders in it. A
    link that leads back to a folder in `above` is not followed; one that leads nowhere, or round in
    a circle, is not a file.
    """
    real, inner = os.path.realpath(folder), []
    if real in above:
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py") and _is_file(entry):
                yield entry.path
            elif entry.name.isidentifier() and entry.name not in _NO_CODE:
                inner.append(entry.path)
    for path in filter(os.path.isdir, inner):  # False for what cannot be looked at, too
        is_environment = os.path.exists(f"{path}/pyvenv.cfg")  # noqa: PTH110 - many, each cycle
        if not is_environment and (whole or os.path.isfile(f"{path}/__init__.py")):  # noqa: PTH113
            yield from _files_in(path, whole=whole, above=(*above, real))


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError as problem:
        if problem.errno != errno.ELOOP:
            raise
        return False


def _stamp(file: str) -> tuple[int, int]:
    stat = os.stat(file)  # noqa: PTH116 - many, each cycle
    return stat.st_mtime_ns, stat.st_size


def _differs(file: str) -> bool:
    try:
        stamp = _stamp(file)
        if stamp == _own.stamps[file]:
            return False
        if Path(file).read_bytes() != _own.files.get(file, _own.noted.get(file)):
            return True
    except OSError:
        return True
    _own.stamps[file] = stamp  # it was only touched
    return False


def _module_elsewhere(name: str, folder: Path) -> str | None:
    """Where an import finds another module of that name, or None. A folder without an
    `__init__.py` does not count.
    """
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # ValueError: a module that was made by hand
        spec = None
    if spec is None or spec.origin is None:
        return None
    origin = Path(spec.origin)
    is_it = (origin.parent if origin.name == "__init__.py" else origin).resolve() == folder
    return None if is_it else str(spec.origin)


# ---- what an import finds


class _Finder:
    """Finds the packages, and the files in them that were read, for Python's import."""

    @staticmethod
    def find_spec(
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,  # noqa: ARG004 - as the protocol has it
    ) -> ModuleSpec | None:
        if fullname in _own.packages:
            return _package(fullname, _own.packages[fullname])
        private = fullname.removeprefix(_PREFIX)
        if private != fullname and "." not in private:
            return _package(fullname, private.replace("%2E", ".").replace("%25", "%"))
        last = fullname.rpartition(".")[2]
        for folder in path or ():
            base = f"{folder}/{last}"
            if f"{base}/__init__.py" in _own.files:
                return _package(fullname, base)
            if f"{base}.py" in _own.files:
                return _as_read(fullname, f"{base}.py")
            if base in _own.above and not Path(base).is_dir():
                return _package(fullname, base)
        return None


def _package(fullname: str, folder: str) -> ModuleSpec | None:
    start = f"{folder}/__init__.py"
    if start in _own.files:
        return _as_read(fullname, start, folder)
    if Path(start).is_file():
        return spec_from_file_location(fullname, start, submodule_search_locations=[folder])
    if folder not in _own.above and not Path(folder).is_dir():
        return None
    spec = ModuleSpec(fullname, None, is_package=True)
    spec.submodule_search_locations = [folder]
    return spec


def _as_read(fullname: str, file: str, *folder: str) -> ModuleSpec | None:
    return spec_from_file_location(
        fullname,
        file,
        loader=_Loader(fullname, file),
        submodule_search_locations=list(folder) or None,
    )


class _Loader(SourceFileLoader):
    """Loads a file as it was read. Compiled files are not used: they could be newer."""

    def get_data(self, path: str) -> bytes:
        data = _own.files.get(path)
        return super().get_data(path) if data is None else data

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - a loader has one module
        data = self.get_data(self.path)
        code: CodeType = self.source_to_code(data, self.path)
        text = decode_source(data)
        # No time of change: so tracebacks show the lines that run, even if the file has changed.
        linecache.cache[self.path] = (len(text), None, text.splitlines(keepends=True), self.path)
        return code


sys.meta_path.insert(0, _Finder)
