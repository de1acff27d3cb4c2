"""How long the command line takes for 100,000 items, against SQLite with no scheduler."""

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from benchmarks.measure import best_of, report, seconds, waited
from blackboard.bench import Measurement

ITEMS = 100_000
TIMES = 3
ITEM = """[[items]]
id = "town-{number:06d}"
type = "coroutine"
every = "8h"
params = {{ feeds = ["https://example.org/feed-{number}.ics"], out = "out" }}

"""


def measured() -> Iterator[Measurement]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = (ITEM.format(number=number) for number in range(ITEMS))
        (folder / "items.toml").write_text("".join(lines), encoding="utf-8")
        added = waited(folder, "apply", "items.toml")
        bare = best_of(TIMES, lambda: seconds(lambda: _copy(folder / "blackboard.db")))
        yield Measurement(
            name=f"apply, {ITEMS:,} new items",
            value=added,
            unit="s",
            beside=bare,
            reference="the same rows, in bare SQL",
        )
        rows = best_of(TIMES, lambda: seconds(lambda: _read(folder / "blackboard.db")))
        for arguments in (["show"], ["show", "--json"], ["show", "--limit", "20"]):
            yield Measurement(
                name=f"{' '.join(arguments)}, {ITEMS:,} items",
                value=best_of(TIMES, partial(waited, folder, *arguments)),
                unit="s",
                beside=rows,
                reference="the same rows, read in bare SQL",
            )
        for verb in ("pause", "resume"):
            yield Measurement(
                name=f"{verb} '*', {ITEMS:,} items",
                value=waited(folder, verb, "*"),
                unit="s",
                beside=bare,
                reference="the same rows, in bare SQL",
            )


def _read(file: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute("SELECT key, data FROM rows ORDER BY part, key").fetchall()


def _copy(file: Path) -> None:
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
            "CREATE TABLE rows (part, key, etag, boot, touched, data, PRIMARY KEY (part, key)) "
            "WITHOUT ROWID"
        )
        for start in range(0, len(rows), 1_000):
            bare.execute("BEGIN IMMEDIATE")
            bare.executemany(
                "INSERT INTO rows VALUES (?, ?, ?, ?, ?, ?)", rows[start : start + 1_000]
            )
            bare.execute("COMMIT")


if __name__ == "__main__":
    report(measured())
