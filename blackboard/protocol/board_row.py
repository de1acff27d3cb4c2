"""The row of the board itself, which says how many shards it has. A board is opened by it; where it
is missing, the items show with how many shards the board was made.
"""

from datetime import datetime
from typing import TypeGuard

from blackboard.errors import BadInput, BadRow
from blackboard.model import VERSION
from blackboard.phrases import quoted
from blackboard.protocol import keys
from blackboard.protocol.rows import version_of
from blackboard.table import Row, Table, Unavailable, read

SHARDS = range(1, 101)
FIRST_SHARDS = 8
"""Shards that are read to find out whether there are items, before a board is made."""
SOME_ITEMS = 20
"""Items of each shard that are read to find out the number of shards."""
TRIES_TO_CREATE = 3
"""Batches sent to make a board, at most, while none is answered and the row is missing."""


class BoardGone(Unavailable):
    """The board's own row is not there: its table was deleted, and may have been made anew."""


class Remade(Unavailable):
    """The board was deleted and made anew with other shards: this object reads and writes rows that
    no worker uses.
    """


async def own_row(table: Table, name: str) -> Row | None:
    """The row of a board."""
    return await read(table, keys.meta_partition(name), keys.BOARD_KEY)


async def check_made(table: Table, name: str, *, shards: int) -> None:
    """Raises BadInput where the row of a board is missing, and its items fit another number of
    shards better: with this one, some would not be found. The first shards, and rows that workers
    leave, show whether there may be items: few requests where there is nothing.
    """
    if await own_row(table, name) is not None:
        return
    all_shards = [name, *(f"{name}-{number:02d}" for number in range(SHARDS[-1]))]
    others = (keys.meta_partition(name), keys.workers_partition(name))
    for partition in (*others, *all_shards[: 1 + FIRST_SHARDS]):
        if [row async for row in table.scan(partition, limit=1)]:
            break
    else:
        return
    items = [
        (partition, item)
        for partition in all_shards
        async for row in table.scan(partition, keys.ITEM, keys.end_of(keys.ITEM), SOME_ITEMS)
        if isinstance(item := row.data.get("item"), str)
    ]
    misfits = {
        number: [
            partition
            for partition, item in items
            if keys.partition(name, keys.shard_of(item, number), number) != partition
        ]
        for number in SHARDS
    }
    fewest = min(map(len, misfits.values()))
    if len(misfits[shards]) == fewest:
        return
    numbers = [number for number, some in misfits.items() if len(some) == fewest]
    which = f"{numbers[0]}" if len(numbers) == 1 else "N"
    had = "" if len(numbers) == 1 else ", the number that it had,"
    raise BadInput(
        "shards",
        f"the row {keys.BOARD_KEY} of {name!r} is missing, and with shards: {shards} some of the "
        f"items that are there would not be found (for example in {misfits[shards][0]})",
        f"`blackboard --board {name} init --shards {which}`{had} makes the row anew",
    )


def is_good(shards: object) -> TypeGuard[int]:
    return type(shards) is int and shards in SHARDS


def check_new(shards: int) -> None:
    """Refuses a number of shards that no board has. Raises BadInput."""
    if not is_good(shards):
        raise BadInput("shards", f"{quoted(shards)} is out of range", "1 to 100")


async def made_with(table: Table, name: str) -> tuple[int, datetime | None]:
    """The shards of a board that exists, and when it was made. Raises BadInput or BadRow."""
    row = await own_row(table, name)
    if row is None:
        maker = f"`blackboard --board {name} init`"
        if keys.group_of(name):
            maker = f"a worker of {keys.owner_of(name)}"
        raise BadInput("board", f"no board {name!r} in this store", f"{maker} makes one")
    if version_of(row.data) > VERSION:
        raise BadInput(
            "board",
            f"{name!r} has version {version_of(row.data)}, this program reads {VERSION}",
            "upgrade blackboard",
        )
    if version_of(row.data) < 1:
        raise BadRow(row.key, "no good version")
    shards = row.data.get("shards")
    if not is_good(shards):
        raise BadRow(row.key, "no good shards")
    created = row.data.get("created")
    return shards, created if isinstance(created, datetime) else None
