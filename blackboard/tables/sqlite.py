"""A table in one SQLite file, shared by all processes of one host.

Promised: a batch is whole or absent, also when a process is killed in the middle; an etag is never
used twice; ages (`sqlite_ages.py`) ignore changes of the wall clock, are the same for all processes
of the host, and are never overstated; a row that was written before the host last booted is
infinitely old.

What a power failure (not a killed process) may lose depends on `synchronous`:

- NORMAL, the default: the last moments of acknowledged writes. The file stays whole, but runs
  that were released may run again, under fences that were used already.
- FULL: nothing that was acknowledged, for one disk flush a batch.

Not promised: anything on a network file system, or for a file that has two names (both are refused
where they are detected, `sqlite_filesystem.py`), or for a file that is copied over a board in use.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

from blackboard.clock import Clock
from blackboard.errors import BadInput
from blackboard.table import Etag, Op, Requests, Row, Unavailable
from blackboard.tables.base import AFTER_ALL, MAX_BYTES, MAX_ROWS, MAX_VALUE, Pages, checked
from blackboard.tables.sqlite_ages import Ages, boot_id, unproven
from blackboard.tables.sqlite_file import Answer, Batch, SqliteFile, Stamp, encode_row, in_file
from blackboard.tables.sqlite_open import Opening
from blackboard.tasks import SerialExecutor

GROUP = 64
"""Batches of one transaction, at the most; they have no more rows than one batch may have. It keeps
the writers of other processes waiting."""


@dataclass(slots=True)
class _Commit:
    """A batch that was handed over to the thread, and its answer."""

    batch: Batch
    answer: Answer | None = None


class SqliteTable:
    """A store in a file. One thread makes all requests; the batches that wait for it are written in
    one transaction.
    """

    max_rows = MAX_ROWS
    max_bytes = MAX_BYTES
    max_value = MAX_VALUE
    resolution = 0.05

    def __init__(
        self, thread: SerialExecutor, file: SqliteFile, *, clock: Clock, ages: Ages
    ) -> None:
        self._thread = thread
        self._file = file
        self._clock = clock
        self._ages = ages
        self._closed = False
        self._commits: deque[_Commit] = deque()
        """Batches without an answer, in the order in which they were handed over."""
        self.requests = Requests()

    @classmethod
    async def open(
        cls, path: str | Path, clock: Clock, opening: Opening | None = None
    ) -> "SqliteTable":
        """Opens the file at `path`. Raises StoreProblem; BadInput for a path that cannot be
        resolved; Busy when another program holds the file.
        """
        opening = opening or Opening()
        boot = opening.boot or boot_id()
        boot = unproven(boot) if opening.trusted else boot
        opened: list[SqliteFile] = []

        def stamp() -> Stamp:
            return Stamp(boot, clock.monotonic())

        def begin() -> SqliteFile:
            file = file_at(path)
            opened.append(SqliteFile.open(file, opening, stamp=stamp))
            return opened[0]

        def end() -> None:
            for file in opened:
                file.close()

        thread = SerialExecutor("sqlite")
        try:
            file = await thread.call(begin)
        except BaseException:
            await asyncio.shield(thread.close(end))
            raise
        return cls(thread, file, clock=clock, ages=Ages(boot, clock))

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        ops = tuple(ops)
        texts = [encode_row(data) for data in checked(partition, ops, time=in_file)]
        self._check_open()
        if not ops:
            return []
        self.requests.commits += 1
        commit = _Commit(Batch(partition, ops, texts))
        self._commits.append(commit)
        return await self._thread.call(partial(self._answered, commit))

    def scan(
        self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Row]:
        end = AFTER_ALL if last is None else last

        async def fetch(start: str, count: int) -> list[Row]:
            self._check_open()
            self.requests.pages += 1
            return await self._thread.call(partial(self._file.page, partition, start, end, count))

        return Pages(fetch, first=first, limit=limit)

    def _answered(self, commit: _Commit) -> list[Etag]:
        """The answer to a batch. If it has none yet, it is written with the batches that wait
        behind it.
        """
        if commit.answer is None:
            group = self._next_group()
            answers = self._file.apply([each.batch for each in group])
            for each, answer in zip(group, answers, strict=True):
                each.answer = answer
        assert commit.answer is not None
        if isinstance(commit.answer, Exception):
            raise commit.answer
        return commit.answer

    def _next_group(self) -> list[_Commit]:
        """The batches to write in one transaction, in their order."""
        group = [self._commits.popleft()]
        rows = len(group[0].batch.ops)
        while self._commits and len(group) < GROUP:
            rows += len(self._commits[0].batch.ops)
            if rows > MAX_ROWS:
                break
            group.append(self._commits.popleft())
        return group

    async def now(self) -> datetime:
        return self._clock.now()

    def age(self, row: Row) -> float:
        return self._ages.of(row)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._thread.close(self._file.close)

    @property
    def trouble(self) -> str:
        """What keeps the file from being as it should; "": nothing."""
        return self._file.trouble

    async def revision(self) -> int:
        """A number that changes with each write, of any process."""
        self._check_open()
        return await self._thread.call(self._file.revision)

    async def integrity(self) -> list[str]:
        """What is wrong with the file, by PRAGMA integrity_check; nothing when it is whole."""
        self._check_open()
        return await self._thread.call(self._file.integrity)

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the table is closed")


def file_at(path: str | Path) -> Path:
    """The file that a path leads to, whatever links there are on the way. Raises BadInput."""
    try:
        return Path(path).expanduser().resolve()
    except RuntimeError as error:
        problem = f"{path} leads nowhere: {str(error).rstrip('.')}"
        raise BadInput("store", problem, "write the whole path") from None
