"""Puts the files of a city into their folder: the calendar, its events as JSON, report and cache.

Each is replaced whole or not at all, and never over a later run's: it is written beside its place
and renamed. A run with a lower fence than that of the last writer is refused, unless the type is
not fenced: then the last writer wins. Comparison and renaming happen under a lock file, which the
kernel releases when a process dies. The report goes first: it has the fence, so that a crash
half-way leaves nothing that an earlier run could overwrite. The cache goes last, so that it never
has events that are in no calendar.
"""

import asyncio
import contextlib
import fcntl
import os
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from blackboard import BadInput
from blackboard.errors import BlackboardError
from blackboard.named_files import bytes_of, regular_file
from blackboard.protocol.keys import encode_id

from .output import PRODUCT

REPORT, CALENDAR, EVENTS, CACHE = ".report.json", ".ics", ".json", ".cache.json"
_ORDER = (REPORT, CALENDAR, EVENTS, CACHE)
_HEAD = 1_024
"""Bytes of a calendar that say who has made it."""
_LOCK_WITHIN = 30.0
_PAUSE = 0.05


class Overtaken(BlackboardError):
    """The files belong to a run with a higher fence."""


class _Header(msgspec.Struct):
    """The writer of a report or a cache."""

    id: str = ""
    fence: int = 0


@dataclass(frozen=True, slots=True)
class Output:
    """The files of one city."""

    folder: Path
    name: str
    id: str

    def path(self, ending: str) -> Path:
        return self.folder / f"{self.name}{ending}"

    async def publish(self, files: Mapping[str, bytes], *, fence: int, fenced: bool) -> None:
        """Replaces the files with these endings. Raises Overtaken when they belong to a later
        run, BadInput when they belong to another city or to other software, OSError when the folder
        cannot be written; a crash leaves each file old or new.
        """
        async with self._locked():
            headers = [self._header_of(ending) for ending in (REPORT, CACHE)]
            self._check_owner(headers)
            if all(one.id != self.id for one in headers):
                self._check_others()
            theirs = max(one.fence for one in headers)
            if fenced and fence < theirs:
                raise Overtaken(
                    f"{self.path(CALENDAR)}: a later run (fence {theirs}) has written it, and this"
                    f" one has fence {fence}; if the board was made anew, delete"
                    f" {self.path(REPORT).name} and {self.path(CACHE).name}"
                )
            for ending in _ORDER:
                if ending in files:
                    self._replace(ending, files[ending])
            _flush_folder(self.folder)

    def _header_of(self, ending: str) -> _Header:
        try:
            return msgspec.json.decode(bytes_of(self.path(ending)), type=_Header)
        except (FileNotFoundError, msgspec.MsgspecError, UnicodeError, RecursionError):
            return _Header()

    def _check_owner(self, headers: Sequence[_Header]) -> None:
        """All ids have their own file names, but for some file systems `A` and `a` are one name."""
        for one in headers:
            if one.id and one.id != self.id:
                raise BadInput(
                    "params.out",
                    f"{self.path(REPORT)} is of the city {one.id!r}: this file system takes"
                    f" its name and {self.id!r} for one",
                    "another folder for one of them",
                )

    def _check_others(self) -> None:
        """Where no report says that the city was here, its files may be those of other software:
        `package.json`, or a calendar that a person keeps.
        """
        for ending in (CALENDAR, EVENTS):
            path = self.path(ending)
            if path.is_symlink() or not path.exists() or not path.stat().st_size:
                continue
            with regular_file(path) as file:
                is_ours = PRODUCT.encode() in file.read(_HEAD)
            if ending == EVENTS:
                is_ours = self._header_of(EVENTS).id == self.id
            if not is_ours:
                problem = f"{path} was not made by this job, and is not replaced"
                raise BadInput("params.out", problem, "another folder, or move it away")

    def _replace(self, ending: str, content: bytes) -> None:
        """A link that lies in the file's place is replaced, not followed."""
        temporary = self.folder / f".{self.name}.{secrets.token_hex(6)}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            with os.fdopen(os.open(temporary, flags, 0o666), "wb") as sink:
                sink.write(content)
                sink.flush()
                os.fsync(sink.fileno())
            temporary.replace(self.path(ending))
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        with os.fdopen(os.open(self.folder / f".{self.name}.lock", flags, 0o666), "r+b") as held:
            await self._take(held.fileno())
            for left in self.folder.glob(f".{self.name}.????????????.tmp"):
                left.unlink(missing_ok=True)
            yield

    async def _take(self, descriptor: int) -> None:
        for _attempt in range(int(_LOCK_WITHIN / _PAUSE)):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            await asyncio.sleep(_PAUSE)
        raise BlackboardError(f"{self.path(CALENDAR)}: another run has been writing it for 30 s")


def output_of(folder: Path, item_id: str) -> Output:
    """The files of an item, in a folder that is made if it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise BadInput("params.out", f"{folder}: {problem.strerror or problem}") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BadInput("params.out", f"{folder} cannot be written", "another folder, or its rights")
    return Output(folder, file_name(item_id), item_id)


def file_name(item_id: str) -> str:
    """An id as the beginning of a file's name: it never leaves the folder, is never hidden, and
    never meets the files of another id; where a file system takes `A` and `a` for one name,
    `publish` refuses the second.
    """
    name = encode_id(item_id)
    if name.startswith("."):
        name = "=2E" + name[1:]
    for ending in (".report", ".cache"):
        if name.lower().endswith(ending):
            name = name[: -len(ending)] + "=2E" + name[-len(ending) + 1 :]
    return name


def _flush_folder(folder: Path) -> None:
    """Some file systems cannot: then the renames are as durable as they make them."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
