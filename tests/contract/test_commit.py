"""What a batch does, and what it does not do when it cannot be applied."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from blackboard.table import (
    ANY,
    Conflict,
    ConflictKind,
    Delete,
    Etag,
    Insert,
    Merge,
    Op,
    Refused,
    Replace,
    Row,
    Table,
    Unavailable,
    read,
)
from tests.support.clocks import ManualClock
from tests.support.stores import OpenTable, Run, rows_of

P = "town"


def content(rows: Sequence[Row]) -> dict[str, Any]:
    return {row.key: dict(row.data) for row in rows}


def put(run: Run, table: Table, key: str, **data: Any) -> Etag:
    """The etag of a new row."""
    (etag,) = run(table.commit(P, [Insert(key, data)]))
    return etag


def test_an_inserted_row_is_read_back_with_its_etag(table: Table, run: Run) -> None:
    etag = put(run, table, "a", n=1, text="x")
    row = run(read(table, P, "a"))
    assert row is not None
    assert (row.key, row.etag, row.data) == ("a", etag, {"n": 1, "text": "x"})


def test_merge_overlays_fields_and_removes_none(table: Table, run: Run) -> None:
    etag = put(run, table, "a", n=1, text="x")
    (after,) = run(table.commit(P, [Merge("a", {"n": 2, "more": True}, etag)]))
    row = run(read(table, P, "a"))
    assert row is not None
    assert (row.etag, row.data) == (after, {"n": 2, "text": "x", "more": True})
    assert after != etag


def test_replace_leaves_nothing_of_the_row_before(table: Table, run: Run) -> None:
    etag = put(run, table, "a", n=1, text="x")
    (after,) = run(table.commit(P, [Replace("a", {"m": 3}, etag)]))
    row = run(read(table, P, "a"))
    assert row is not None
    assert (row.etag, row.data) == (after, {"m": 3})
    assert after != etag


def test_delete_removes_the_row_and_answers_with_an_empty_etag(table: Table, run: Run) -> None:
    etag = put(run, table, "a", n=1)
    assert run(table.commit(P, [Delete("a", etag)])) == [""]
    assert run(read(table, P, "a")) is None


@pytest.mark.parametrize("op", [Merge("a", {"n": 2}, ANY), Replace("a", {"n": 2}, ANY)])
def test_any_overwrites_whatever_is_there(table: Table, run: Run, op: Op) -> None:
    put(run, table, "a", n=1)
    run(table.commit(P, [op]))
    assert content(run(rows_of(table, P))) == {"a": {"n": 2}}


def test_any_deletes_whatever_is_there(table: Table, run: Run) -> None:
    put(run, table, "a", n=1)
    run(table.commit(P, [Delete("a", ANY)]))
    assert run(rows_of(table, P)) == []


def test_etags_come_in_the_order_of_the_operations(table: Table, run: Run) -> None:
    old = put(run, table, "old", n=1)
    gone = put(run, table, "gone", n=1)
    ops = (Insert("z", {"n": 1}), Delete("gone", gone), Merge("old", {"n": 2}, old))
    z, nothing, merged, _ = run(table.commit(P, [*ops, Insert("b", {"n": 1})]))
    there = {row.key: row.etag for row in run(rows_of(table, P))}
    assert (there["z"], nothing, there["old"]) == (z, "", merged)


def test_an_empty_batch_is_an_empty_answer(table: Table, run: Run) -> None:
    assert run(table.commit(P, [])) == []


def test_a_row_without_fields_is_a_row(table: Table, run: Run) -> None:
    put(run, table, "a")
    assert content(run(rows_of(table, P))) == {"a": {}}


@dataclass(frozen=True)
class Lost:
    """A batch on a table that holds `a`, `b` and `c`, and the answer to it; STALE is an etag that
    `b` had before.
    """

    ops: list[Op]
    index: int
    kind: ConflictKind


STALE = "stale"
LOST = {
    "insert over a row": Lost([Insert("a", {"n": 9})], 0, ConflictKind.EXISTS),
    "merge of nothing": Lost([Merge("x", {"n": 9}, ANY)], 0, ConflictKind.MISSING),
    "replace of nothing": Lost([Replace("x", {"n": 9}, ANY)], 0, ConflictKind.MISSING),
    "delete of nothing": Lost([Delete("x", ANY)], 0, ConflictKind.MISSING),
    "delete of nothing by etag": Lost([Delete("x", STALE)], 0, ConflictKind.MISSING),
    "stale merge": Lost([Merge("b", {"n": 9}, STALE)], 0, ConflictKind.CHANGED),
    "stale replace": Lost([Replace("b", {"n": 9}, STALE)], 0, ConflictKind.CHANGED),
    "stale delete": Lost([Delete("b", STALE)], 0, ConflictKind.CHANGED),
    "the last of four": Lost(
        [Delete("a", ANY), Insert("x", {"n": 9}), Merge("c", {"n": 9}, ANY), Delete("b", STALE)],
        3,
        ConflictKind.CHANGED,
    ),
    "one in the middle": Lost(
        [Insert("x", {"n": 9}), Insert("c", {"n": 9}), Delete("a", ANY)], 1, ConflictKind.EXISTS
    ),
    "the first of two": Lost(
        [Delete("c", ANY), Merge("x", {"n": 9}, ANY), Insert("a", {"n": 9})],
        1,
        ConflictKind.MISSING,
    ),
}


@pytest.mark.parametrize("lost", LOST.values(), ids=LOST.keys())
def test_a_lost_race_names_its_operation_and_changes_nothing(
    table: Table, run: Run, lost: Lost
) -> None:
    put(run, table, "a", n=1)
    stale = put(run, table, "b", n=1)
    put(run, table, "c", n=1)
    run(table.commit(P, [Merge("b", {"n": 2}, stale)]))
    before = run(rows_of(table, P))
    ops = [_with_etag(op, stale) for op in lost.ops]
    with pytest.raises(Conflict) as caught:
        run(table.commit(P, ops))
    assert (caught.value.index, caught.value.kind) == (lost.index, lost.kind)
    assert run(rows_of(table, P)) == before


def _with_etag(op: Op, stale: Etag) -> Op:
    match op:
        case Merge(key, data, etag) if etag == STALE:
            return Merge(key, data, stale)
        case Replace(key, data, etag) if etag == STALE:
            return Replace(key, data, stale)
        case Delete(key, etag) if etag == STALE:
            return Delete(key, stale)
    return op


def test_the_largest_batch_is_all_or_nothing(table: Table, run: Run) -> None:
    keys = [f"k{number:04}" for number in range(table.max_rows)]
    taken = table.max_rows // 2
    put(run, table, keys[taken], n=1)
    ops = [Insert(key, {"n": 2}) for key in keys]
    with pytest.raises(Conflict) as caught:
        run(table.commit(P, ops))
    assert caught.value.index == taken
    assert content(run(rows_of(table, P))) == {keys[taken]: {"n": 1}}
    run(table.commit(P, [Delete(keys[taken], ANY)]))
    run(table.commit(P, ops))
    assert [row.key for row in run(rows_of(table, P))] == keys
    with pytest.raises(Refused):
        run(table.commit(P, [*ops, Insert("more", {"n": 2})]))


def test_an_etag_is_never_used_twice_for_a_key(
    table: Table, open_table: OpenTable, clock: ManualClock, run: Run
) -> None:
    """Or a batch planned on a row that is gone would fit the one that came after it."""
    seen = [put(run, table, "a", n=1)]
    seen += run(table.commit(P, [Merge("a", {"n": 1}, ANY)]))
    seen += run(table.commit(P, [Replace("a", {"n": 1}, ANY)]))
    run(table.commit(P, [Delete("a", ANY)]))
    seen.append(put(run, table, "a", n=1))
    run(table.commit(P, [Delete("a", ANY)]))
    run(table.close())

    async def reopened() -> list[Etag]:
        again = await open_table(clock)
        try:
            return await again.commit(P, [Insert("a", {"n": 1})])
        finally:
            await again.close()

    seen += run(reopened())
    assert len(seen) == 5
    assert len(set(seen)) == 5


@pytest.mark.case("HK03")
def test_partitions_do_not_see_each_other(table: Table, run: Run) -> None:
    """HK03: what is before and after the border between partition and key is told apart."""
    run(table.commit("ab", [Insert("c", {"n": 1})]))
    run(table.commit("a", [Insert("bc", {"n": 2})]))
    run(table.commit("abc", [Insert("c", {"n": 3})]))
    assert content(run(rows_of(table, "ab"))) == {"c": {"n": 1}}
    assert content(run(rows_of(table, "a"))) == {"bc": {"n": 2}}
    assert content(run(rows_of(table, "nobody"))) == {}
    with pytest.raises(Conflict):
        run(table.commit("a", [Merge("c", {"n": 9}, ANY)]))


def test_two_tables_over_one_store_see_each_other(
    table: Table, open_table: OpenTable, clock: ManualClock, run: Run
) -> None:
    etag = put(run, table, "a", n=1)

    async def elsewhere() -> None:
        other = await open_table(clock)
        try:
            row = await read(other, P, "a")
            assert row is not None
            assert row.etag == etag
            await other.commit(P, [Merge("a", {"n": 2}, etag)])
        finally:
            await other.close()

    run(elsewhere())
    with pytest.raises(Conflict):
        run(table.commit(P, [Delete("a", etag)]))
    assert content(run(rows_of(table, P))) == {"a": {"n": 2}}


def test_data_that_was_read_is_the_readers_own(table: Table, run: Run) -> None:
    mine = {"n": 1}
    run(table.commit(P, [Insert("a", mine)]))
    mine["n"] = 9
    row = run(read(table, P, "a"))
    assert row is not None
    assert isinstance(row.data, dict)
    row.data["n"] = 9
    assert content(run(rows_of(table, P))) == {"a": {"n": 1}}


def test_a_closed_table_is_unavailable_and_may_be_closed_again(table: Table, run: Run) -> None:
    run(table.close())
    run(table.close())
    with pytest.raises(Unavailable):
        run(table.commit(P, [Insert("a", {"n": 1})]))
    with pytest.raises(Unavailable):
        run(rows_of(table, P))
