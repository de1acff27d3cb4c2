"""A process that uses a file: `sqlite_child.py count PATH TIMES`, or `write`, `hold`, `close` or
`leave`, and PATH.
"""

import asyncio
import sqlite3
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from blackboard.clock import SystemClock
from blackboard.table import ANY, Busy, Conflict, Data, Insert, Merge, Replace, read
from blackboard.tables.sqlite import SqliteTable
from blackboard.tables.sqlite_open import Opening

P = "town"
ROWS = 40


async def count_up(table: SqliteTable, times: int) -> None:
    """Add to one counter that nothing protects but its etag."""
    with suppress(Conflict):
        await table.commit(P, [Insert("counter", {"count": 0})])
    done = 0
    while done < times:
        row = await read(table, P, "counter")
        assert row is not None
        try:
            data = {"count": int(str(row.data["count"])) + 1}
            await table.commit(P, [Merge("counter", data, row.etag)])
        except (Conflict, Busy):
            continue
        done += 1


async def write_for_ever(table: SqliteTable) -> None:
    """Write the same number into many rows, a batch for each number; print each when it is done."""
    row = await read(table, P, "row00")
    start = 1 if row is None else int(str(row.data["number"])) + 1
    for number in count(start):
        data: Data = {"number": number, "filler": "x" * (number * 37 % 3000)}
        keys = [f"row{position:02}" for position in range(ROWS)]
        await table.commit(
            P, [Insert(key, data) if number == 1 else Replace(key, data, ANY) for key in keys]
        )
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


def hold(path: str) -> None:
    """Begin to write, and never end."""
    file = sqlite3.connect(path, isolation_level=None)
    file.execute("BEGIN IMMEDIATE")
    sys.stdout.write("held\n")
    sys.stdout.flush()
    sys.stdin.read()


async def keep(path: str, *, close: bool) -> None:
    """Write a row; end when the input ends, with or without closing the file."""
    table = await SqliteTable.open(path, SystemClock(), Opening(create=True))
    await table.commit(P, [Insert("kept", {"n": 1})])
    sys.stdout.write("open\n")
    sys.stdout.flush()
    sys.stdin.read()
    if close:
        await table.close()


async def main(verb: str, path: str, *rest: str) -> None:
    table = await SqliteTable.open(path, SystemClock(), Opening(create=True, wait=30))
    try:
        if verb == "count":
            await count_up(table, int(rest[0]))
        else:
            await write_for_ever(table)
    finally:
        await table.close()


if sys.argv[1] == "hold":
    hold(sys.argv[2])
elif sys.argv[1] in {"close", "leave"}:
    asyncio.run(keep(sys.argv[2], close=sys.argv[1] == "close"))
else:
    asyncio.run(main(*sys.argv[1:]))
