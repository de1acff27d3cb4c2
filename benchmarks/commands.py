"""How long people wait for the command line: against a Python that does nothing; and, with 100,000
items, against SQLite with no scheduler.

python -m benchmarks.commands           small boards, in seconds
python -m benchmarks.commands --bulk    apply, show and pause of 100,000 items, in minutes
"""

import asyncio
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from benchmarks.boards import file_in, new_board, opened
from benchmarks.measure import BLACKBOARD, best_of, report, seconds, waited
from blackboard.bench import Measurement

TIMES = 7
SMALL, LARGE = 16, 10_000


def measured() -> Iterator[Measurement]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stores = {items: str(folder / f"{items}.db") for items in (SMALL, LARGE)}
        for items, store in stores.items():
            asyncio.run(_fill(store, items))
        commands = {
            "blackboard --help": ["--help"],
            f"blackboard show, {SMALL} items": ["--store", stores[SMALL], "show"],
            f"blackboard show, {LARGE:,} items": ["--store", stores[LARGE], "show"],
            f"blackboard why, {LARGE:,} items": ["--store", stores[LARGE], "why", "town-000000"],
        }
        nothing = _waited(folder, "-c", "pass", command=[sys.executable])
        for title, arguments in commands.items():
            yield Measurement(
                name=title,
                value=_waited(folder, *arguments),
                unit="ms",
                beside=nothing,
                reference="python -c pass",
            )


async def _fill(store: str, items: int) -> None:
    async with opened(store) as table:
        await new_board(table, items, item_type="bench-coroutine")


def _waited(folder: Path, *arguments: str, command: Sequence[str] = BLACKBOARD) -> float:
    """Milliseconds."""
    return best_of(TIMES, partial(waited, folder, *arguments, command=command)) * 1000


# ---- very many items

ITEMS = 100_000
TIMES_OF_MANY = 3
ITEM = """[[items]]
id = "town-{number:06d}"
type = "coroutine"
every = "8h"
params = {{ feeds = ["https://example.org/feed-{number}.ics"], out = "out" }}

"""


def in_bulk() -> Iterator[Measurement]:
    with tempfile.TemporaryDirectory() as name:
        folder, file = Path(name), file_in(Path(name))
        lines = (ITEM.format(number=number) for number in range(ITEMS))
        (folder / "items.toml").write_text("".join(lines), encoding="utf-8")
        added = waited(folder, "apply", "items.toml")
        written = best_of(TIMES_OF_MANY, lambda: seconds(lambda: _copy(file)))
        read = best_of(TIMES_OF_MANY, lambda: seconds(lambda: _read(file)))

        def measurement(title: str, value: float, beside: float, verb: str) -> Measurement:
            reference = f"the same rows, {verb} in bare SQL"
            name = f"{title}, {ITEMS:,} items"
            return Measurement(name=name, value=value, unit="s", beside=beside, reference=reference)

        yield measurement("apply", added, written, "written")
        for arguments in (["show"], ["show", "--json"], ["show", "--limit", "20"]):
            taken = best_of(TIMES_OF_MANY, partial(waited, folder, *arguments))
            yield measurement(" ".join(arguments), taken, read, "read")
        for verb in ("pause", "resume"):
            yield measurement(f"{verb} '*'", waited(folder, verb, "*"), written, "written")


def _read(file: str) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute("SELECT key, data FROM rows ORDER BY part, key").fetchall()


def _copy(file: str) -> None:
    """All rows of a board into another file, a thousand in a transaction."""
    with closing(sqlite3.connect(file)) as connection:
        rows = connection.execute("SELECT * FROM rows").fetchall()
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(sqlite3.connect(Path(folder) / "bare.db", isolation_level=None)) as bare,
    ):
        bare.execute("PRAGMA journal_mode = WAL").fetchone()
        bare.execute("PRAGMA synchronous = NORMAL")
        bare.execute(
            "CREATE TABLE rows (part, key, etag, boot, touched, data, PRIMARY KEY (part, key))"
        )
        for start in range(0, len(rows), 1_000):
            bare.execute("BEGIN IMMEDIATE")
            bare.executemany(
                "INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?)", rows[start : start + 1_000]
            )
            bare.execute("COMMIT")


if __name__ == "__main__":
    report(in_bulk() if "--bulk" in sys.argv else measured())
