"""Reads what the rows of a shard say, for `doctor.py` to judge. Decides nothing, writes nothing.

`sweep` reads a shard once, the items first, and yields what is there about each id. It is no
snapshot: an item that moved meanwhile looks broken. `look` reads what there is about one id
between two readings of its item with the same etag: since whatever moves a token writes its item,
that is one moment's picture.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from blackboard.doctor.diagnosis import Case, Finding
from blackboard.errors import BadRow
from blackboard.model import VERSION, Item, Lock, Run, Token, replace
from blackboard.protocol import keys
from blackboard.protocol.reading import BoardTable
from blackboard.protocol.rows import record_of, version_of
from blackboard.table import Row, read

Record = TypeVar("Record", Item, Token, Lock, Run)

LOOKS = 5
"""Tries to see an item that keeps moving."""


class Unreadable(Exception):
    """A row that nothing can be said about, and why."""

    def __init__(self, code: str, problem: str) -> None:
        super().__init__(problem)
        self.code = code
        self.problem = problem


@dataclass(slots=True)
class Swept:
    """What a sweep counted, and what it found that belongs to no id."""

    items: int = 0
    waiting: int = 0
    locks: int = 0
    runs: int = 0
    foreign: list[Finding] = field(default_factory=list)


async def sweep(board: BoardTable, shard: int, swept: Swept) -> AsyncIterator[Case]:
    """All that one shard says, id by id."""
    partition = board.shard(shard)
    cases: dict[str, Case] = {}
    async for row in board.table.scan(partition, keys.ITEM, keys.end_of(keys.ITEM)):
        swept.items += 1
        _file(cases, row, shard, swept, _with_item)
    async for row in board.table.scan(partition, keys.LOCK, keys.end_of(keys.NEXT)):
        if row.key.startswith(keys.LOCK):
            swept.locks += 1
            _file(cases, row, shard, swept, _with_lock(board))
        elif row.key.startswith(keys.NEXT):
            swept.waiting += 1
            _file(cases, row, shard, swept, _with_token)
        else:
            problem = "does not belong between lock: and next:"
            swept.foreign.append(Finding(code="D9", subject=row.key, problem=problem))
    async for row in board.table.scan(partition, keys.RUN, keys.end_of(keys.RUN)):
        swept.runs += 1
        _file(cases, row, shard, swept, _with_run)
    for case in cases.values():
        yield case


async def look(board: BoardTable, case: Case) -> Case | None:
    """One moment's picture of an id; None when it keeps moving, as healthy items do."""
    partition = board.shard(case.shard)
    for _ in range(LOOKS):
        first = await read(board.table, partition, keys.item_key(case.id))
        cases = {case.id: Case(id=case.id, shard=case.shard)}
        swept = Swept()
        if first is not None:
            _file(cases, first, case.shard, swept, _with_item)
        item = cases[case.id].item
        named = {keys.next_key(item.ready, item.id)} if item else set()
        for key in sorted(named | set(case.tokens)):
            if (row := await read(board.table, partition, key)) is not None:
                _file(cases, row, case.shard, swept, _with_token)
        if (row := await read(board.table, partition, keys.lock_key(case.id))) is not None:
            _file(cases, row, case.shard, swept, _with_lock(board))
        async for row in board.table.scan(partition, *keys.runs_range(case.id)):
            _file(cases, row, case.shard, swept, _with_run)
        again = await read(board.table, partition, keys.item_key(case.id))
        if (first and first.etag) == (again and again.etag):
            return cases[case.id]
    return None


# ---- one row to the case it belongs to

Filing = Callable[[Case, Row], Case]


def _file(cases: dict[str, Case], row: Row, shard: int, swept: Swept, add: Filing) -> None:
    """Add a row to the case of its id. A key that is not what the id makes of it is foreign."""
    found = row.data.get("item")
    if not isinstance(found, str) or not _fits(row.key, found):
        problem = "its key is not what its item makes of it"
        swept.foreign.append(Finding(code="D9", subject=row.key, problem=problem))
        return
    case = cases.get(found, Case(id=found, shard=shard))
    try:
        cases[found] = add(case, row)
    except Unreadable as trouble:
        told = Finding(code=trouble.code, subject=found, problem=f"{row.key}: {trouble.problem}")
        cases[found] = replace(case, sealed=(*case.sealed, told))


def _fits(key: str, item_id: str) -> bool:
    """Whether a key is made of this id; a waiting token's time is judged later."""
    family, _, rest = key.partition(":")
    part = keys.encode_id(item_id)
    match family:
        case "item" | "lock":
            return rest == part
        case "next":
            return rest.partition(":")[2] == part
        case _:
            return rest.rpartition(":")[0] == part


def _with_item(case: Case, row: Row) -> Case:
    return replace(case, item=record(Item, row))


def _with_lock(board: BoardTable) -> Filing:
    def add(case: Case, row: Row) -> Case:
        return replace(case, lock=record(Lock, row, age=board.table.age(row)))

    return add


def _with_token(case: Case, row: Row) -> Case:
    return replace(case, tokens={**case.tokens, row.key: record(Token, row)})


def _with_run(case: Case, row: Row) -> Case:
    run = record(Run, row)
    if keys.run_key(run.id, run.fence) != row.key:
        raise Unreadable("D6", f"is the row of another fence than {run.fence}")
    return replace(case, newest=case.newest or run)


def record(record_type: type[Record], row: Row, **extra: float) -> Record:
    """The record in a row. Raises Unreadable."""
    if version_of(row.data) > VERSION:
        raise Unreadable("D10", f"version {version_of(row.data)}, this program knows {VERSION}")
    try:
        return record_of(record_type, row, **extra)
    except BadRow as bad:
        raise Unreadable("D7", bad.problem) from None
