"""The store of the model answers as the memory store does: the same batches are applied, the same
are refused, and the same rows are left.
"""

import asyncio
import random
from typing import Any, NamedTuple

import pytest

from blackboard import table
from blackboard.tables.memory import MemoryTable
from tests.proof.model.store import (
    ANY,
    GONE,
    Applied,
    Delete,
    Insert,
    Key,
    Merge,
    Op,
    Replace,
    Row,
    commit,
)
from tests.support.clocks import ManualClock

KEYS: tuple[Key, ...] = (("item", 0), ("item", 1), ("lock", 0), ("next", 0))
BATCHES = 300


class Pair(NamedTuple):
    """A row of two columns."""

    first: int
    second: int


@pytest.mark.parametrize("seed", range(5))
def test_the_same_batches_are_applied_and_leave_the_same_rows(seed: int) -> None:
    asyncio.run(_compare(random.Random(seed)))


async def _compare(rng: random.Random) -> None:
    memory = MemoryTable(ManualClock())
    rows: dict[Key, Row] = {}
    drawn, applied = 0, 0
    theirs: dict[int, str] = {ANY: table.ANY, GONE: "gone"}
    """The memory store's etag for each of the model's."""
    had: dict[Key, list[int]] = {key: [GONE] for key in KEYS}
    """The etags that a key had: two keys may have the same."""
    for _ in range(BATCHES):
        batch = [_some(rng, key, had[key]) for key in rng.sample(KEYS, rng.randint(1, 3))]
        answer = commit(rows, batch, drawn=drawn)
        try:
            etags = await memory.commit("town", [_said(op, theirs) for op in batch])
        except table.Conflict:
            assert not isinstance(answer, Applied), batch
        else:
            assert isinstance(answer, Applied), batch
            rows, drawn, applied = answer.rows, answer.drawn, applied + 1
            for op, mine, etag in zip(batch, answer.etags, etags, strict=True):
                if not isinstance(op, Delete):
                    theirs[mine] = etag
                    had[op.key].append(mine)
        left = {row.key: dict(row.data) async for row in memory.scan("town")}
        assert left == {_text(key): row.data._asdict() for key, row in rows.items()}
    assert BATCHES // 10 < applied < BATCHES


def _some(rng: random.Random, key: Key, had: list[int]) -> Op:
    pair, etag = Pair(rng.randint(0, 9), rng.randint(0, 9)), rng.choice([ANY, *had[-3:]])
    column = rng.choice(Pair._fields)
    some: list[Op] = [
        Insert(key, pair),
        Merge(key, ((column, rng.randint(0, 9)),), etag),
        Replace(key, pair, etag),
        Delete(key, etag),
    ]
    return rng.choice(some)


def _said(op: Op, theirs: dict[int, str]) -> table.Op:
    key: str = _text(op.key)
    if isinstance(op, Insert):
        return table.Insert(key, op.data._asdict())
    etag, data = theirs[op.etag], dict[str, Any]()
    if isinstance(op, Delete):
        return table.Delete(key, etag)
    if isinstance(op, Merge):
        return table.Merge(key, data | dict(op.columns), etag)
    return table.Replace(key, op.data._asdict(), etag)


def _text(key: Key) -> str:
    return ":".join(map(str, key))
