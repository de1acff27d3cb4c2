"""The types of jobs, for commands that do not import jobs.

A command that adds or explains items needs the defaults of their types, and not their code. A
process of its own imports the jobs and describes their handlers; the description is kept in the
user's cache until a file of the jobs, or of what they import, changes. So what a module prints,
waits for or breaks while it is imported does not affect the command.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import msgspec

from blackboard import __version__
from blackboard.cache import cache_folder
from blackboard.errors import BadInput
from blackboard.handlers import code
from blackboard.handlers.handler import Declared, Handler, Pump, place
from blackboard.handlers.params import Params
from blackboard.handlers.registry import load
from blackboard.runners.interpreter import program, python, search_path

IMPORT_TIMEOUT = 60.0
"""Seconds that the import of all jobs may take."""
KEPT = 30 * 86_400.0
"""Seconds after which a description is deleted that no command has made again."""


class PumpEntry(Pump, frozen=True, kw_only=True):
    """The options of `@pump`; `partitions` is empty where a function gives their names."""

    partitions: tuple[str, ...]

    @classmethod
    def of(cls, pump: Pump) -> "PumpEntry":
        names = pump.partitions if isinstance(pump.partitions, tuple) else ()
        return cls(partitions=names, lease=pump.lease, drain=pump.drain, balance=pump.balance)


class TypeEntry(Declared, frozen=True, kw_only=True):
    """A handler, without its code."""

    place: str
    """The file and line where it is defined."""
    schema: dict[str, Any] | None = None
    """The JSON schema of its params."""
    pump: PumpEntry | None = None

    def handler(self) -> Handler:
        return Handler(
            **self.declared,
            function=_not_imported,
            params=None if self.schema is None else Params(schema=self.schema),
            pump=self.pump,
        )


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The types of some jobs, and the files that they are described in."""

    types: tuple[TypeEntry, ...] = ()
    folders: dict[str, bool] = {}
    """As `code.stamps` takes them."""
    files: dict[str, tuple[int, int]] = {}
    problem: tuple[str, str, str] | None = None
    """The BadInput that the import raised: field, problem, remedy."""

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {entry.type: entry.handler() for entry in self.types}

    def is_fresh(self) -> bool:
        """Whether its files are as they were."""
        with suppress(OSError):
            return code.stamps(self.folders, self.files) == self.files
        return False


def manifest_of(jobs: Sequence[str], base: Path, *, within: float | None = None) -> Manifest:
    """The types of all entries, as `load` takes them. Raises BadInput as that does, and where their
    import takes longer than `within` seconds, a minute if not given.
    """
    if not jobs:
        return Manifest()
    with suppress(OSError, msgspec.MsgspecError, BadInput):
        manifest = msgspec.json.decode(_kept(jobs, base).read_bytes(), type=Manifest)
        if manifest.is_fresh():
            return manifest
    manifest = _described_elsewhere(jobs, base, within or IMPORT_TIMEOUT)
    if manifest.problem is not None:
        raise BadInput(*manifest.problem)
    with suppress(OSError, BadInput):  # there is no cache, then
        _keep(_kept(jobs, base), manifest)
    return manifest


def _kept(jobs: Sequence[str], base: Path) -> Path:
    parts = [__version__, python(), search_path(), str(base), list(jobs)]
    name = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
    return cache_folder() / f"types-{name}.json"


def _keep(file: Path, manifest: Manifest) -> None:
    """Writes a description, and removes those that were written long ago. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    written = file.with_suffix(f".{os.getpid()}")
    written.touch(mode=0o600)
    written.write_bytes(msgspec.json.encode(manifest))
    written.replace(file)
    for other in file.parent.glob("types-*"):
        if other.stat().st_mtime < file.stat().st_mtime - KEPT:
            other.unlink(missing_ok=True)


def _described_elsewhere(jobs: Sequence[str], base: Path, within: float) -> Manifest:
    """The description that a process of its own writes. Raises BadInput where it does not."""
    with _temporary_file() as answer:
        main = program("from blackboard.handlers.manifest import main; main()")
        try:
            ended = subprocess.run(  # noqa: S603 - this Python
                python("-c", main, str(answer.fileno()), str(base), *jobs),
                pass_fds=[answer.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=within,
                check=False,
            )
        except subprocess.TimeoutExpired:
            problem = f"to import them takes longer than {within:g} s"
            raise BadInput("jobs", problem, "`blackboard types --check` shows where") from None
        answer.seek(0)
        try:
            return msgspec.json.decode(answer.read(), type=Manifest)
        except msgspec.MsgspecError:
            problem = f"the process that imports them ended with {ended.returncode}"
            raise BadInput("jobs", problem, "`blackboard types --check` shows why") from None


def _temporary_file() -> IO[bytes]:
    try:
        return tempfile.TemporaryFile()
    except OSError as problem:
        reason = f"no temporary file can be made: {problem.strerror}"
        remedy = "name a folder for it: TMPDIR in the environment"
        raise BadInput("jobs", reason, remedy) from None


def main() -> None:
    """In a process of its own: describes jobs."""
    number, base, *jobs = sys.argv[1:]
    try:
        manifest = described(jobs, Path(base))
    except BadInput as problem:
        manifest = Manifest(problem=(problem.field, problem.problem, problem.remedy))
    with open(int(number), "wb") as answer:  # noqa: PTH123 - a descriptor
        answer.write(msgspec.json.encode(manifest))
    os._exit(0)  # threads that the jobs have begun are not waited for


def described(jobs: Sequence[str], base: Path) -> Manifest:
    """The types of jobs that are imported here. Raises BadInput as `load` does."""
    handlers = load(jobs, base)
    return Manifest(
        types=tuple(_entry(handler) for handler in handlers.values()),
        folders=code.folders(),
        # A file that was saved since it was read, while the import took its time, is not fresh.
        files=code.stamps({}, _imported()) | code.stamps_as_read(),
    )


def _imported() -> Iterator[str]:
    """The files of the modules that this process has imported, but for those of Python itself."""
    for name, module in tuple(sys.modules.items()):  # threads of the jobs may import more
        # What is not a module, or not imported yet, may do anything when asked for an attribute.
        file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        is_own = name.partition(".")[0] not in sys.stdlib_module_names
        if is_own and isinstance(file, str) and os.path.isfile(file):  # noqa: PTH113 - never raises
            yield file


def _entry(handler: Handler) -> TypeEntry:
    return TypeEntry(
        **handler.declared,
        place=place(handler.function),
        schema=None if handler.params is None else dict(handler.params.schema),
        pump=None if handler.pump is None else PumpEntry.of(handler.pump),
    )


def _not_imported(*_: Any) -> None:
    raise RuntimeError("its jobs are not imported here")
