"""One board of a table: made once, opened again, read as records."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any

import pytest

from blackboard.display.item_queries import select
from blackboard.emitter import EventEmitter
from blackboard.errors import BadInput
from blackboard.model import VERSION, Lock, Token, replace
from blackboard.protocol import board_table, keys
from blackboard.protocol.additions import New, add, add_many
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.edits import remove
from blackboard.protocol.rows import record_in
from blackboard.protocol.status import read_status
from blackboard.rules.breaker import Need
from blackboard.schedule.schedule import Every
from blackboard.spec import RunSettings, Spec
from blackboard.table import ANY, Delete, Insert, Merge, Row, Table, Unavailable, Unknown
from blackboard.tables.base import ForwardingTable
from blackboard.worker.store_breaker import StoreBreaker
from tests.support.boards import Scene, make_board, settings_of, story
from tests.support.clocks import ManualClock, SeededChance
from tests.support.faults import Fault
from tests.support.stores import OpenTable

pytestmark = pytest.mark.of_one_store("what is read and written is decided above the store")


async def opened(table: Table, clock: ManualClock, *, name: str = "town") -> BoardTable:
    return await BoardTable.open(
        table, name=name, clock=clock, chance=SeededChance(1), resolve=settings_of
    )


@story
async def test_a_board_is_made_once_and_opened_as_it_was_made(scene: Scene) -> None:
    table = scene.table.table
    made = await make_board(table, scene.clock, shards=16, name="wide")
    again = await make_board(table, scene.clock, shards=16, name="wide")
    found = await opened(table, scene.clock, name="wide")
    assert made.shards == again.shards == found.shards == 16


@pytest.mark.of_each_store
@story
async def test_the_number_of_shards_is_fixed(scene: Scene) -> None:
    with pytest.raises(BadInput, match="was made with 1"):
        await make_board(scene.table.table, scene.clock, shards=2)


@pytest.mark.of_one_store("what is written is checked above the store")
@pytest.mark.parametrize("shards", [0, 101, 2.0, True])
@story
async def test_no_shards_are_written_that_no_program_reads(scene: Scene, shards: int) -> None:
    table = scene.table.table
    with pytest.raises(BadInput, match=r"^shards: "):
        await make_board(table, scene.clock, shards=shards, name="wide")
    with pytest.raises(BadInput, match="no board 'wide'"):
        await opened(table, scene.clock, name="wide")


@pytest.mark.cases_of_one_store("what is missing is seen above the store")
@pytest.mark.parametrize(("had", "asked"), [(1, 4), (4, 1), (4, 16), (16, 4), (16, 1), (100, 16)])
@story
async def test_a_board_whose_row_is_missing_is_made_anew_with_as_many_shards_alone(
    scene: Scene, had: int, asked: int
) -> None:
    table, clock = scene.table.table, scene.clock
    board = await make_board(table, clock, shards=had, name="wide")
    some = [f"item-{number}" for number in range(40)]
    await add_many(board, [New(id=one, type="feed", spec=Spec()) for one in some], tombstones={})
    await table.commit("wide-meta", [Delete(keys.BOARD_KEY, ANY)])
    with pytest.raises(BadInput, match=f"init --shards {had}` makes the row anew") as refused:
        await make_board(table, clock, shards=asked, name="wide")
    assert refused.value.field == "shards"
    again = await make_board(table, clock, shards=had, name="wide")
    assert len([one async for one in again.items()]) == len(some)


@pytest.mark.of_each_store
@story
async def test_where_several_numbers_of_shards_fit_the_remedy_names_none(scene: Scene) -> None:
    table, clock = scene.table.table, scene.clock
    board = await make_board(table, clock, shards=16, name="wide")
    await add(board, New(id="davis", type="feed", spec=Spec()))  # in shard 0
    await table.commit("wide-meta", [Delete(keys.BOARD_KEY, ANY)])
    with pytest.raises(BadInput, match=r"wide-00.*--shards N`, the number that it had"):
        await make_board(table, clock, shards=1, name="wide")


@pytest.mark.of_each_store
@story
async def test_a_damaged_item_keeps_no_board_from_being_made_anew(scene: Scene) -> None:
    table, clock = scene.table.table, scene.clock
    board = await make_board(table, clock, shards=4, name="wide")
    some = [f"item-{number}" for number in range(40)]
    await add_many(board, [New(id=one, type="feed", spec=Spec()) for one in some], tombstones={})
    astray = [Insert("item:one", {"item": "one"}), Insert("item:two", {"item": 2})]
    for partition in ("wide", "wide-77"):
        await table.commit(partition, astray)
    await table.commit("wide-meta", [Delete(keys.BOARD_KEY, ANY)])
    with pytest.raises(BadInput, match="init --shards 4`"):
        await make_board(table, clock, shards=1, name="wide")
    await make_board(table, clock, shards=4, name="wide")


@story
async def test_a_board_is_made_in_few_requests(scene: Scene) -> None:
    before = scene.table.requests.total
    await make_board(scene.table, scene.clock, name="new")
    assert scene.table.requests.total - before <= 13
    before = scene.table.requests.total
    await make_board(scene.table, scene.clock, name="new")
    assert scene.table.requests.total - before <= 3


@pytest.mark.of_each_store
@pytest.mark.parametrize("shards", [0, -1, 101])
@story
async def test_a_board_has_one_to_a_hundred_shards(scene: Scene, shards: int) -> None:
    with pytest.raises(BadInput, match="1 to 100"):
        await make_board(scene.table.table, scene.clock, shards=shards, name="wide")


@pytest.mark.parametrize("name", ["a-b", ""])
@story
async def test_a_board_needs_a_name_of_its_own(scene: Scene, name: str) -> None:
    with pytest.raises(BadInput, match="not a name for a board"):
        await make_board(scene.table.table, scene.clock, name=name)
    with pytest.raises(BadInput, match="not a name for a board"):
        await opened(scene.table.table, scene.clock, name=name)


@pytest.mark.of_each_store
@story
async def test_a_board_that_is_not_there_is_told_with_a_remedy(scene: Scene) -> None:
    with pytest.raises(BadInput, match=r"no board .*blackboard .*init"):
        await opened(scene.table.table, scene.clock, name="elsewhere")


@pytest.mark.of_each_store
@story
async def test_a_board_of_a_newer_version_is_not_opened(scene: Scene) -> None:
    newer = Merge(keys.BOARD_KEY, {"version": VERSION + 1}, ANY)
    await scene.table.table.commit(keys.meta_partition("town"), [newer])
    with pytest.raises(BadInput, match="upgrade blackboard"):
        await opened(scene.table.table, scene.clock)


def test_boards_of_one_table_do_not_see_each_other(open_table: OpenTable) -> None:
    async def told() -> None:
        clock = ManualClock()
        table = await open_table(clock)
        one = await make_board(table, clock, name="one", seed=1)
        two = await make_board(table, clock, name="two", shards=2, seed=2)
        for board in (one, two):
            scene = Scene(table=None, clock=clock, board=board, other=board)  # type: ignore[arg-type]
            await scene.add("davis", every="1h" if board is one else "2h")
        specs = [[item.spec async for item in board.items()] for board in (one, two)]
        assert specs == [['{"every":"1h"}'], ['{"every":"2h"}']]
        await table.close()

    asyncio.run(told())


IDS = ["davis", "a/b", "", "..", "x" * 512, "x" * 513, "\0\n", "it's", "😀" * 40, "a:b", "a;b"]


@pytest.mark.case("HK01")
def test_hk01_any_text_is_an_id_in_any_number_of_shards(open_table: OpenTable) -> None:
    async def told(shards: int) -> None:
        clock = ManualClock()
        table = await open_table(clock)
        board = await make_board(table, clock, shards=shards, name=f"of{shards}")
        scene = Scene(table=None, clock=clock, board=board, other=board)  # type: ignore[arg-type]
        for item_id in IDS:
            await scene.add(item_id)
        assert {item.id async for item in board.items()} == set(IDS)
        for item_id in IDS:
            assert (await scene.item(item_id)).id == item_id
            made = await scene.claimed(item_id)
            assert (await scene.lock(item_id)).nonce == made.nonce
        assert {lock.id async for lock in board.locks()} == set(IDS)
        for item_id in IDS:
            lock = await scene.lock(item_id)
            assert (await board.lock(item_id)) == lock
            assert [run async for run in board.runs(item_id)] == []
        await table.close()

    for shards in (1, 2):
        asyncio.run(told(shards))


@story
async def test_a_board_seen_through_another_table_is_the_same_board(scene: Scene) -> None:
    wide = await make_board(scene.table.table, scene.clock, shards=3, name="wide")
    seen = wide.using(scene.table)
    assert (seen.table, wide.table) == (scene.table, scene.table.table)
    assert [seen.shard(number) for number in range(3)] == ["wide-00", "wide-01", "wide-02"]
    assert (seen.shards, seen.clock, seen.chance) == (3, wide.clock, wide.chance)
    assert seen.resolve is wide.resolve


@story
async def test_a_board_seen_with_other_settings_is_the_same_board(scene: Scene) -> None:
    def every_minute(item_type: str, spec: str) -> RunSettings:
        return RunSettings(schedule=Every(timedelta(minutes=1)))

    seen = scene.board.using(resolve=every_minute)
    assert seen.resolve("feed", "{}") != scene.board.resolve("feed", "{}")
    assert (seen.table, seen.name) == (scene.board.table, scene.board.name)


@story
async def test_a_claim_under_way_is_known_to_whoever_asks_for_the_same_worker(
    scene: Scene,
) -> None:
    """Or its lock would be taken for one that landed late, and adopted a second time."""
    await scene.add("davis")
    breaker = StoreBreaker(scene.clock, scene.board.chance, EventEmitter())
    renewing, others = (breaker.board(scene.board, need) for need in (Need.RENEWAL, Need.OTHER))
    known: set[str] = set()

    async def looked() -> None:
        known.update(renewing.in_flight)

    scene.table.script(looked)
    made = await scene.claimed("davis", board=others)
    assert known == {made.nonce}
    assert not renewing.in_flight
    await scene.let_go(made)


class Watched(ForwardingTable):
    """Notes where scans begin."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self.begun: list[str] = []

    def scan(
        self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Row]:
        self.begun.append(first)
        return self.table.scan(partition, first, last, limit)


@pytest.mark.of_each_store
@story
async def test_a_shard_that_has_more_than_is_expected_is_read_on_and_from_any_key(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board_table, "FEW_ROWS", 2)
    for name in ("a", "b", "c", "d", "e"):
        await scene.add(name)
        scene.later(seconds=1)
    await scene.claimed("a")
    watched = Watched(scene.board.table)
    board, until = scene.board.using(watched), await scene.board.table.now()
    whole = [row async for row in board.walk(0, until=until)]
    assert [row.id for row in whole] == ["a", "b", "c", "d", "e"]
    for expected in range(1, 7):
        rows = board.read_shard(0, until=until, expected=expected)
        assert [row async for row in rows] == whole
    _, second, third, *_ = whole
    assert isinstance(third, Token)
    key = keys.next_key(third.ready, third.id)
    assert [row async for row in board.read_shard(0, until=until, first=key)] == whole[2:]
    watched.begun.clear()
    rows = board.read_shard(0, until=until, expected=2)
    assert [await anext(rows), await anext(rows)] == [whole[0], second]
    assert watched.begun == [keys.LOCK]


@story
async def test_of_one_item_the_lock_is_read_alone(scene: Scene) -> None:
    for name in ("a", "b", "c"):
        await scene.add(name)
        if name != "c":
            await scene.claimed(name)
    watched = Watched(scene.board.table)
    board = scene.board.using(watched)
    for names, begun in ((["a"], [keys.lock_key("a")]), (["a", "b"], [keys.LOCK]), (["c"], [])):
        watched.begun.clear()
        found = await read_status(board, [await scene.item(name) for name in names])
        assert watched.begun == begun
        assert [one.lock is not None for one in found.statuses] == [name != "c" for name in names]


@story
async def test_items_are_read_without_tombstones_and_a_tombstone_by_its_id(scene: Scene) -> None:
    await scene.add("davis")
    await scene.add("lost")
    await remove(scene.other, "lost")
    assert [item.id async for item in scene.board.items()] == ["davis"]
    assert (await scene.item("lost")).state.value == "removed"
    assert await scene.board.item("never") is None
    assert await scene.board.lock("davis") is None
    assert await scene.board.run("davis", 1) is None


@pytest.mark.of_each_store
@story
async def test_a_glob_means_the_same_items_whether_all_are_read_or_one_range(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = await make_board(scene.table.table, scene.clock, shards=2, name="wide")
    ids = ["a", "a*", "a[1]", "ab", "aB", "a b", "aé", "a" * 200, "a" * 119 + "é" * 9, "b"]
    for one in ids:
        await add(board, New(id=one, type="feed", spec=Spec()))
    read: list[str] = []

    def noted(record_type: Any, row: Row, **extra: float) -> Any:
        read.append(row.key)
        return record_in(record_type, row, **extra)

    globs = [
        "a?",
        "a *",
        "a[b]",
        "a[!b]*",
        "aé*",
        "a" * 118 + "*",
        "a" * 150 + "*",
        "b*",
        "*",
    ]
    for glob in globs:
        found = {item.id for item in await select(board, [glob])}
        assert found == {one for one in ids if fnmatchcase(one, glob)}, glob
    monkeypatch.setattr(board_table, "record_in", noted)
    assert [item.id for item in await select(board, ["a b*", "b*"])] == ["a b", "b"]
    assert read == [keys.item_key("a b"), keys.item_key("b")]


@story
async def test_one_range_holds_all_locks_and_the_tokens_that_are_due_most_overdue_first(
    scene: Scene,
) -> None:
    now = scene.clock.now()
    for minutes, name in ((3, "c"), (1, "a"), (2, "b"), (60, "later")):
        await scene.add(name, at=(now + timedelta(minutes=minutes)).isoformat())
    await scene.add("held")
    await scene.claimed("held")
    until = scene.later(minutes=3)
    found = [row async for row in scene.board.walk(0, until=until)]
    assert [row.id for row in found] == ["held", "a", "b", "c"]
    assert isinstance(found[0], Lock)
    assert found[0].age == pytest.approx(180.0, abs=0.01)
    assert [lock.id async for lock in scene.board.locks()] == ["held"]


@pytest.mark.case("RR04")
@story
async def test_rr04_rows_of_a_newer_version_are_passed_over(scene: Scene) -> None:
    await scene.add("davis")
    await scene.add("newer")
    newer = await scene.token("newer")
    key, partition = keys.next_key(newer.ready, "newer"), scene.board.partition("newer")
    await scene.table.table.commit(partition, [Merge(key, {"version": VERSION + 1}, ANY)])
    assert [token.id for token in await scene.tokens()] == ["davis"]
    await scene.table.table.commit(partition, [Merge(key, {"version": VERSION}, ANY)])
    assert newer == replace(await scene.token("newer"), etag=newer.etag)
    made = await scene.claimed("newer")
    held = keys.lock_key("newer")
    await scene.table.table.commit(partition, [Merge(held, {"version": VERSION + 1}, ANY)])
    assert [lock.id async for lock in scene.board.locks()] == []
    await scene.table.table.commit(partition, [Merge(held, {"version": VERSION}, ANY)])
    assert [lock.nonce async for lock in scene.board.locks()] == [made.nonce]


@story
async def test_a_row_that_cannot_be_read_does_not_stop_the_walk(scene: Scene) -> None:
    await scene.add("davis")
    broken = Insert("next:00000000T000000.000Z:broken", {"item": "broken"})
    await scene.table.table.commit(scene.board.partition("davis"), [broken])
    assert [token.id for token in await scene.tokens()] == ["davis"]
    gone = Delete(broken.key, ANY)
    await scene.table.table.commit(scene.board.partition("davis"), [gone])


@pytest.mark.of_each_store
@story
async def test_a_board_whose_making_was_not_answered_is_opened(scene: Scene) -> None:
    scene.table.script(Fault.LOST)
    made = await make_board(scene.table, scene.clock, shards=3, name="unsure")
    again = await make_board(scene.table, scene.clock, shards=3, name="unsure")
    assert (made.shards, made.was_made_here) == (3, True)
    assert (again.shards, again.was_made_here) == (3, False)


@pytest.mark.of_each_store
@story
async def test_a_board_whose_making_was_lost_is_made_again(scene: Scene) -> None:
    """Twice; the third time the store is told of as it is."""
    scene.table.script(Fault.NEVER, Fault.NEVER)
    assert (await make_board(scene.table, scene.clock, shards=3, name="unsure")).shards == 3
    assert (await opened(scene.table.table, scene.clock, name="unsure")).shards == 3
    scene.table.script(Fault.NEVER, Fault.NEVER, Fault.NEVER)
    with pytest.raises(Unknown):
        await make_board(scene.table, scene.clock, shards=3, name="never")


@story
async def test_a_delete_states_what_was_read(scene: Scene) -> None:
    partition, key = scene.board.partition("davis"), keys.lock_key("davis")
    (etag,) = await scene.table.table.commit(partition, [Insert(key, {"item": "davis"})])
    (newer,) = await scene.table.table.commit(partition, [Merge(key, {}, etag)])
    await scene.board.delete("davis", key, etag)
    assert await scene.rows("lock:")
    scene.table.script(Fault.LOST)
    await scene.board.delete("davis", key, newer)
    assert not await scene.rows("lock:")
    scene.table.script(Fault.AWAY)
    with pytest.raises(Unavailable):
        await scene.board.delete("davis", key, newer)


@story
async def test_two_shards_keep_all_that_belongs_to_an_item_together(scene: Scene) -> None:
    wide = await make_board(scene.table.table, scene.clock, shards=2, name="wide")
    wider = Scene(table=scene.table, clock=scene.clock, board=wide, other=wide)
    names = [f"town{n}" for n in range(8)]
    for name in names:
        await wider.add(name)
        await wider.let_go(await wider.claimed(name))
    seen: set[str] = set()
    for number in range(2):
        rows = [row async for row in wide.table.scan(wide.shard(number))]
        here = {str(row.data["item"]) for row in rows}
        assert len(rows) == 3 * len(here), "an item, its token and its run"
        assert here
        assert not here & seen
        seen |= here
    assert seen == set(names)
    assert all(isinstance(token, Token) for token in await wider.tokens())
