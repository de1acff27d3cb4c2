"""A table in one SQLite file, shared by all processes of one host.

Promised: a batch is whole or absent, also when a process is killed in the middle; an etag is
never used twice; ages are deaf to changes of the wall clock, the same for all processes of the
host, and never overstated (`sqlite_ages.py`); a row that was written before the host last booted is
infinitely old.

What a power failure (not a killed process) may take depends on `synchronous`:

- NORMAL, the default: the last moments of acknowledged writes. The file stays whole, but runs
  that were released may run again, under fences that were used already.
- FULL: nothing that was acknowledged, for one disk flush a batch.

Not promised: anything on a network file system, or for a file that has two names (both refused
where it is seen, `sqlite_place.py`), or for one that is copied back over a board at work.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from blackboard.clock import Clock
from blackboard.errors import BadInput
from blackboard.table import Etag, Op, Requests, Row, Unavailable
from blackboard.tables import checks
from blackboard.tables.boot import boot_id, unproven
from blackboard.tables.mounts import Mount, mount_table
from blackboard.tables.onethread import OneThread
from blackboard.tables.pages import AFTER_ALL, Pages
from blackboard.tables.sqlite_ages import Ages, Stamp
from blackboard.tables.sqlite_file import SqliteFile
from blackboard.tables.sqlite_open import open_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """How a file is opened."""

    create: bool = False
    """Make it if it is missing."""
    full: bool = False
    """PRAGMA synchronous = FULL rather than NORMAL."""
    wait: float = 5.0
    """Seconds that another process's write is waited for before the answer is Busy."""
    trusted: bool = False
    """Take a file system of any kind for a good one: see `sqlite_place.py`."""
    mounts: Sequence[Mount] | None = None
    """The mount table; None is this host's."""
    boot: str = ""
    """The boot that stamps are of; "" is this one. See `boot.py` for what names say."""


class SqliteTable:
    """The contract over a file, all of whose requests are made by one thread."""

    max_rows = checks.MAX_ROWS
    max_bytes = checks.MAX_BYTES
    max_value = checks.MAX_VALUE
    resolution = 0.05

    def __init__(self, thread: OneThread, file: SqliteFile, *, clock: Clock, ages: Ages) -> None:
        self._thread = thread
        self._file = file
        self._clock = clock
        self._ages = ages
        self._closed = False
        self.requests = Requests()

    @classmethod
    async def open(
        cls, path: str | Path, clock: Clock, opening: Opening | None = None
    ) -> "SqliteTable":
        """Open the file at `path`. Raises StoreProblem; BadInput for a path that leads nowhere;
        Busy when another program holds it.
        """
        opening = opening or Opening()
        boot = opening.boot or boot_id()
        boot = unproven(boot) if opening.trusted else boot
        opened: list[SqliteFile] = []

        def stamp() -> Stamp:
            return Stamp(boot, clock.monotonic())

        def begin() -> SqliteFile:
            opened.append(_file(Path(path), opening, stamp=stamp))
            return opened[0]

        def end() -> None:
            for file in opened:
                file.close()

        thread = OneThread("sqlite")
        try:
            file = await thread.call(begin)
        except BaseException:
            await asyncio.shield(thread.close(end))
            raise
        return cls(thread, file, clock=clock, ages=Ages(boot, clock))

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        ops = tuple(ops)
        datas = checks.checked(partition, ops)
        self._check_open()
        if not ops:
            return []
        self.requests.commits += 1
        return await self._thread.call(partial(self._file.apply, partition, ops, datas))

    def scan(
        self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Row]:
        end = AFTER_ALL if last is None else last

        async def fetch(start: str, count: int) -> list[Row]:
            self._check_open()
            self.requests.pages += 1
            return await self._thread.call(partial(self._file.page, partition, start, end, count))

        return Pages(fetch, first=first, limit=limit)

    async def now(self) -> datetime:
        return self._clock.now()

    def age(self, row: Row) -> float:
        return self._ages.of(row)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._thread.close(self._file.close)

    async def integrity(self) -> list[str]:
        """What is wrong with the file, by PRAGMA integrity_check; nothing when it is whole."""
        self._check_open()
        return await self._thread.call(self._file.integrity)

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the table is closed")


def _file(path: Path, opening: Opening, *, stamp: Callable[[], Stamp]) -> SqliteFile:
    try:
        resolved = path.expanduser().resolve()
    except RuntimeError as error:
        problem = f"{path} leads nowhere: {str(error).rstrip('.')}"
        raise BadInput("store", problem, "write the whole path") from None
    connection = open_file(
        resolved,
        create=opening.create,
        full=opening.full,
        wait=opening.wait,
        mounts=mount_table() if opening.mounts is None else opening.mounts,
        trusted=opening.trusted,
    )
    return SqliteFile(resolved, connection, stamp=stamp)
