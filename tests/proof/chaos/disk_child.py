"""A process that uses a board on a disk whose writes fail, and says what was acknowledged.

`fiu-run -x disk_child.py FOLDER WAY` does the same story again and again, each time in
a process and on a file of its own; in the n-th of them the n-th call that writes (or syncs, or
cuts) fails with EIO. It ends with the first story in which there was no n-th call, and prints one
line of JSON for each: what the n-th call was, how many steps were acknowledged, the opening of the
board included, and with what words others were refused.

libfiu itself counts no calls: it fails a point always, once or by chance. But it asks whoever
registered a point by `fiu_enable_external`, and there the calls of the store's thread are counted.
"""

import asyncio
import ctypes
import json
import os
import shutil
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from blackboard.errors import BlackboardError
from blackboard.table import TableError
from blackboard.tables.sqlite import SqliteTable
from blackboard.tables.sqlite_open import Opening
from tests.proof.chaos.disk import STEPS, Step, Told, begin
from tests.support.boards import TurningClock

POINTS = (
    "posix/io/rw/pwrite",
    "posix/io/rw/write",
    "posix/io/sync/fsync",
    "posix/io/sync/fdatasync",
    "posix/io/rw/ftruncate",
)
EIO = 5
TRIES = 4
PAGES = 24
"""Pages of the log after which it is copied into the file: so that the story has such copies."""
ANSWER = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_int),
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_uint),
)


class Failing:
    """Lets the n-th call of the store's thread fail."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.seen = 0
        self.met = ""
        self._answer = ANSWER(self._asked)
        fiu = ctypes.CDLL("libfiu.so.0")
        fiu.fiu_init(0)
        for point in POINTS:
            fiu.fiu_enable_external(point.encode(), 1, None, 0, self._answer)

    def _asked(self, name: bytes, _failnum: Any, info: Any, _flags: Any) -> int:
        if threading.current_thread().name != "sqlite":
            return 0
        self.seen += 1
        if self.seen != self.number:
            return 0
        self.met = name.decode().rpartition("/")[2]
        info[0] = EIO
        return 1


@dataclass(frozen=True, kw_only=True)
class Way:
    """How the story is told: with which steps on a new file or one that is a board already,
    whether it goes on after the failure, and how the file is opened.
    """

    steps: Sequence[Step] = STEPS
    goes_on: bool = True
    full: bool = False


WAYS = {
    "makes": Way(steps=()),
    "goes on": Way(),
    "goes on, synchronous": Way(full=True),
    "dies": Way(goes_on=False),
    "dies, synchronous": Way(goes_on=False, full=True),
}


async def story(path: Path, failing: Failing, way: Way) -> dict[str, Any]:
    """The story on a file; what failed is tried again, or it ends there."""
    clock, done = TurningClock(), 0
    told: Told | None = None
    answers: list[str] = []
    while done <= len(way.steps) and len(answers) < TRIES:
        before = failing.met
        try:
            if told is None:
                told = await opened(path, clock, full=way.full)
            else:
                await way.steps[done - 1](told)
            done += 1
        except (BlackboardError, TableError) as error:
            answers.append(f"{type(error).__name__}: {error}")
        if failing.met != before and not way.goes_on:
            break
    else:
        if told is not None:
            await told.board.table.close()
    return {"met": failing.met, "done": done, "answers": answers}


async def opened(path: Path, clock: TurningClock, *, full: bool) -> Told:
    table = await SqliteTable.open(path, clock, Opening(create=True, full=full))
    try:
        pragma = f"PRAGMA wal_autocheckpoint = {PAGES}"
        await table._thread.call(lambda: table._file._connection.execute(pragma).fetchone())
        return await begin(table, clock)
    except BaseException:
        await table.close()
        raise


async def made(path: Path) -> None:
    told = await opened(path, TurningClock(), full=False)
    await told.board.table.close()


def one_story(number: int, path: Path, way: Way) -> int:
    """In a process of its own. Returns 3 when there was no n-th call."""
    try:
        failing = Failing(number)
        told = asyncio.run(story(path, failing, way))
    except BaseException:  # noqa: BLE001 - a copy of a process must not go on as if it were it
        traceback.print_exc()
        return 1
    os.write(1, json.dumps({"number": number, **told}).encode() + b"\n")
    return 0 if failing.met else 3


def main(folder: str, name: str) -> int:
    way, board = WAYS[name], Path(folder, "board.db")
    asyncio.run(made(board))
    for number in count(1):
        path = Path(folder, f"{number}.db")
        if way.steps:
            shutil.copy(board, path)
        pid = os.fork()
        if pid == 0:
            os._exit(one_story(number, path, way))
        _, status = os.waitpid(pid, 0)
        if code := os.waitstatus_to_exitcode(status):
            return 0 if code == 3 else code
    raise AssertionError("there is always another call")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
