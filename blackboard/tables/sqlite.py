"""A table in one SQLite file, shared by all processes of one host.

Promised: a batch is whole or absent, also when a process is killed in the middle; an etag is never
used twice; ages ignore changes of the wall clock, are the same for all processes of the host, and
are never overstated; a row that was written before the host last booted is infinitely old.

What a power failure (not a killed process) may lose depends on `synchronous`:

- NORMAL, the default: the last moments of acknowledged writes. The file stays whole, but runs
  that were released may run again, under fences that were used already.
- FULL: nothing that was acknowledged, for one disk flush a batch.

Not promised: anything on a network file system, or for a file that has two names (both are refused
where they are detected, `sqlite_filesystem.py`), or for a file that is copied over a board in use.

**Boots.** Monotonic times compare within one boot. The kernel has one id for each boot. Where the
id that a process reads is the kernel's own, the name of the boot begins with `kernel:`, and another
such name in the same file is of an earlier or later boot of this host: the older writer has ended.
A container may be shown an id of its own, or live in a time namespace whose monotonic clock has an
offset, while the host that shares the file goes on. Then the name has the id and the namespace, and
another name does not prove that a boot has ended.

**Ages.** A stamp is a time on the monotonic clock of one boot. A stamp of the reader's own boot
gives the age. A stamp of an earlier boot of this host makes the row infinitely old. Any other stamp
gives no age: its writer may be alive in such a container, or the reader's machine was set back to a
snapshot and the stamp lies in its future. Such a row is as old as the time for which the reader has
seen it unchanged, on the reader's own clock; client-go and the DynamoDB lock client compute all
ages so. That is never more than its true age: a lock that is renewed never goes stale, and one that
is not does, one lease after it was first read. A command, which reads once, never sees such a lock
as stale.
"""

import asyncio
import math
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from pathlib import Path

from blackboard.clock import Clock
from blackboard.errors import BadInput, StoreProblem
from blackboard.table import Etag, Op, Requests, Row, Unavailable
from blackboard.tables.base import AFTER_ALL, MAX_BYTES, MAX_ROWS, MAX_VALUE, Pages, checked
from blackboard.tables.sqlite_file import Answer, Batch, SqliteFile, Stamp, encode_row, in_file
from blackboard.tables.sqlite_filesystem import mount_at, mount_table
from blackboard.tables.sqlite_open import Opening
from blackboard.tasks import SerialExecutor

KERNEL = "kernel:"
_SHOWN = Path("/proc/sys/kernel/random/boot_id")
_INITIAL = "time:[4026531834]"
"""The time namespace of all processes that were not put in another."""


@cache
def boot_id() -> str:
    """The name of this boot: the same for all processes that share a monotonic clock. Raises
    StoreProblem.
    """
    try:
        if sys.platform == "darwin":
            return KERNEL + _darwin_boot()
        shown, elsewhere = _SHOWN.read_text("ascii").strip(), _time_namespace()
        own = not elsewhere and _is_the_kernels()
    except (OSError, subprocess.SubprocessError) as error:
        raise StoreProblem(
            f"this system does not say which boot it is in, so no lock could go stale safely: "
            f"{error}"
        ) from None
    return f"{KERNEL if own else ''}{shown}{elsewhere}"


def one_has_ended(boot: str, other: str) -> bool:
    """Whether two names are of different boots of one host."""
    return boot != other and boot.startswith(KERNEL) and other.startswith(KERNEL)


def unproven(boot: str) -> str:
    """The name for a file that other kernels may write too: another name then proves nothing."""
    return boot.removeprefix(KERNEL)


def _is_the_kernels() -> bool:
    """Whether the file with the id is the kernel's own, and nothing is mounted over it."""
    mount = mount_at(_SHOWN, mount_table())
    if mount.kind != "proc":
        return False
    within = Path(mount.root) / _SHOWN.relative_to(mount.point)
    return within == Path("/") / _SHOWN.relative_to("/proc")


def _time_namespace() -> str:
    """Empty in the initial namespace; else its number and the offsets of its clocks, because the
    kernel reuses the number of a namespace that has ended.
    """
    here = Path("/proc/self/ns/time")
    if not here.exists():
        return ""
    name = str(here.readlink())
    if name == _INITIAL:
        return ""
    offsets = Path("/proc/self/timens_offsets").read_text("ascii").split()
    return f"+{name}+{'+'.join(offsets)}"


def _darwin_boot() -> str:
    command = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
    return subprocess.run(  # noqa: S603 - a fixed command
        command, check=True, capture_output=True, text=True, timeout=10
    ).stdout.strip()


MANY = 10_000
"""Rows whose first reading is remembered, before those that were not read lately are dropped."""
KEEP_SIGHT = 3600.0
"""Seconds since a row was last read, after which it may be dropped."""


@dataclass(slots=True)
class _Sight:
    """When this reader first and last read a row with its present etag."""

    first: float
    last: float


class Ages:
    """Computes the ages of rows for one reader, in the boot `boot`."""

    def __init__(self, boot: str, clock: Clock) -> None:
        self._boot = boot
        self._clock = clock
        self._sights: dict[tuple[str, Etag], _Sight] = {}
        """By key and etag. Boards of one file have rows of the same key, but an etag belongs to one
        batch of the file."""
        self._many = MANY

    def of(self, row: Row) -> float:
        """Seconds since the row was written, at least; infinity when that boot has ended."""
        now, stamp = self._clock.monotonic(), row.stamp
        assert isinstance(stamp, Stamp)
        if one_has_ended(stamp.boot, self._boot):
            return math.inf
        if stamp.boot == self._boot and stamp.touched <= now:
            return now - stamp.touched
        return now - self._first_seen(row, now)

    def _first_seen(self, row: Row, now: float) -> float:
        sight = self._sights.get((row.key, row.etag))
        if sight is None or sight.first > now:
            self._drop_old(now)
            sight = self._sights[row.key, row.etag] = _Sight(now, now)
        sight.last = now
        return sight.first

    def _drop_old(self, now: float) -> None:
        if len(self._sights) < self._many:
            return
        kept = {key: sight for key, sight in self._sights.items() if now - sight.last < KEEP_SIGHT}
        self._sights, self._many = kept, max(MANY, 2 * len(kept))


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
        datas = checked(partition, ops, time=in_file)
        self._check_open()
        if not ops:
            return []
        self.requests.commits += 1
        commit = _Commit(Batch(partition, ops, datas, list(map(encode_row, datas))))
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
