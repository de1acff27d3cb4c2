"""Which other processes use a board's file, as Linux shows it (proc(5)).

Elsewhere nothing is known of them: then no file is refused, and no writer is named.
"""

import os
import select
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from blackboard.errors import StoreProblem
from blackboard.tables.sqlite_filesystem import Identity, identity

_LOOKS, _PAUSE = 20, 0.01
"""How often other processes are looked at, and the seconds between."""
_WRITE_LOCK = 120
"""The byte of `NAME-shm` that the one process which may write has locked."""


def writer_of(path: Path) -> str:
    """Which other process may write the file now, in words; "" where that is not known. A process
    that is stopped in the middle of a write keeps all others from writing until it goes on or ends.
    """
    with suppress(OSError, ValueError, IndexError):  # not Linux, or it is over by now
        for kind, pid, _, first, last in _locks_of(f"{path}-shm"):
            writes = kind == "WRITE" and int(first) <= _WRITE_LOCK <= int(last)
            if writes and pid != str(os.getpid()):
                return _described(int(pid))
    return ""


def _locks_of(file: str | Path) -> Iterator[list[str]]:
    """The locks on a file: kind, process, device and inode, first and last byte (proc(5))."""
    inode = os.stat(file).st_ino  # noqa: PTH116 - opening it would drop our own locks
    for line in Path("/proc/locks").read_text("ascii").splitlines():
        fields = line.split()
        if len(fields) == 8 and fields[5].rpartition(":")[2] == str(inode):
            yield fields[3:]


def _described(pid: int) -> str:
    """Describes a process that holds the lock, by its name alone: its command line may hold
    secrets.
    """
    if pid <= 0:
        return "a process of another container writes to it"
    about = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    name, _, rest = about.partition("(")[2].rpartition(") ")
    if rest.startswith(("T", "t")):
        return (
            f"process {pid} ({name}) was stopped while it wrote, and keeps all others from writing "
            f"(let it go on with `kill -CONT {pid}`, or end it)"
        )
    return f"process {pid} ({name}) writes to it"


def check_users(path: Path) -> None:
    """Raises StoreProblem where a process, this one or another of the same user, uses this file
    with another log, or another file with the log of this one: the index of the log (`NAME-shm`)
    was removed, or the file was renamed or replaced. Linux alone shows this.
    """
    problem = ""
    for _ in range(_LOOKS):
        with suppress(OSError):
            problem = _other_use(path)
        if not problem:
            return
        # A process that begins or ends has one of both for a moment.
        select.select([], [], [], _PAUSE)
    raise StoreProblem(problem)


def _other_use(path: Path) -> str:
    """Which process has the file locked and not its index, or the index and not the file."""
    index = f"{path}-shm"
    uses, has_index = _lockers(path), _lockers(index)
    for pid in has_index - uses:
        if identity(index) in _open_files(pid).values():
            return (
                f"process {pid} uses the log of {path}, {path}-wal, for another file, which was "
                f"here before; it would damage this one (stop that process, remove {path}-wal and "
                f"{index}, then try again)"
            )
    for pid in uses - has_index:
        files = _open_files(pid)
        if f"{index} (deleted)" in files:
            return (
                f"{index} was removed, and process {pid} still uses it; what is written now "
                "would be lost (stop that process, then try again)"
            )
        # A program may use the file alone, without an index (PRAGMA locking_mode = EXCLUSIVE).
        logs = [
            name
            for name in files
            if name.endswith("-shm") and name.removesuffix("-shm") not in files
        ]
        if logs and f"{path}-wal" not in files and identity(path) in files.values():
            return (
                f"{path} had another name when process {pid} opened it, and what was written last "
                f"is in the log beside that name (give it back the name that belongs to "
                f"{' or '.join(logs)}, and stop all processes that use it before you rename it)"
            )
    return ""


def has_users(path: Path) -> bool:
    """Whether any process has locks on the file."""
    return bool(_lockers(path))


def _lockers(file: str | Path) -> set[str]:
    """The processes that have locks on a file; none where there is no such file."""
    return {pid for _, pid, *_ in _locks_of(file)} if os.path.exists(file) else set()  # noqa: PTH110


def _open_files(pid: str) -> dict[str, Identity]:
    """The open files of a process: names, and which files they are."""
    files = {}
    with suppress(OSError):  # it has ended, or is another user's
        for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - quicker
            with suppress(OSError):  # closed by now
                place = f"/proc/{pid}/fd/{number}"
                name = os.readlink(place)  # noqa: PTH115
                if name.startswith("/"):
                    files[name] = identity(place)
    return files
