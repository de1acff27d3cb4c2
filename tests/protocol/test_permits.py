"""Permits: no two workers have the same one, whatever is lost on the way."""

import asyncio

import pytest

from blackboard.model import VERSION
from blackboard.protocol import keys
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.permits import (
    LEASE,
    HeldPermit,
    Limit,
    forget_lost,
    give_back,
    occupied,
    renew,
    take,
)
from blackboard.protocol.rows import data_of
from blackboard.table import ANY, Insert, Merge, Refused
from tests.support.boards import Scene, story
from tests.support.faults import Fault
from tests.support.stores import rows_of

pytestmark = pytest.mark.of_one_store("what is read and written is decided above the store")

TWO = Limit("feed", "", 2)
PARTITION = keys.permits_partition("town")


async def taken(board: BoardTable, *items: str, limit: Limit = TWO, by: str = "me") -> list[str]:
    return [one.permit.id for one in await take(board, limit, items, owner=by)]


async def used(scene: Scene, limit: Limit = TWO) -> list[str]:
    return list((await occupied(scene.other, limit)).items)


@story
async def test_there_are_so_many_and_no_more(scene: Scene) -> None:
    assert await taken(scene.board, "a") == ["a"]
    assert await taken(scene.other, "b", "c", by="you") == ["b"]
    assert await taken(scene.board, "c") == []
    assert sorted(await used(scene)) == ["a", "b"]
    rows = await rows_of(scene.other.table, PARTITION)
    assert [row.data["number"] for row in rows] == [0, 1]
    assert {row.data["owner"] for row in rows} == {"me", "you"}


@story
async def test_values_of_a_key_are_counted_apart(scene: Scene) -> None:
    one, other = Limit("feed", '"a.example"', 1), Limit("feed", '"b.example"', 1)
    assert await taken(scene.board, "a", limit=one) == ["a"]
    assert await taken(scene.board, "b", limit=other) == ["b"]
    assert await taken(scene.board, "c", limit=one) == []
    assert await taken(scene.board, "c", limit=Limit("feed", "", 1)) == ["c"]
    assert await taken(scene.board, "d", limit=Limit("feed:", "", 1)) == ["d"]


@story
async def test_what_is_given_back_may_be_taken(scene: Scene) -> None:
    permits = await take(scene.board, TWO, ["a", "b"], owner="me")
    await give_back(scene.board, permits[:1])
    assert await used(scene) == ["b"]
    assert await taken(scene.other, "c", "d", by="you") == ["c"]


@pytest.mark.of_each_store
@story
async def test_many_workers_at_once_take_no_more_than_there_are(scene: Scene) -> None:
    limit = Limit("feed", "", 5)
    some = await asyncio.gather(
        *(taken(board, f"item-{n}", limit=limit) for n in range(6) for board in boards(scene))
    )
    assert sum(map(len, some)) == len(await used(scene, limit)) <= 5
    while await taken(scene.board, "another", limit=limit):
        pass
    assert len(await used(scene, limit)) == 5


def boards(scene: Scene) -> tuple[BoardTable, BoardTable]:
    return scene.board, scene.other


@pytest.mark.of_each_store
@story
async def test_a_permit_that_outlived_its_lease_is_taken_over(scene: Scene) -> None:
    (dead, mine) = await take(scene.board, TWO, ["a", "b"], owner="me")
    scene.later(seconds=LEASE - 1)
    (mine,) = await renew(scene.board, [mine])
    assert await taken(scene.other, "c", by="you") == []
    scene.later(seconds=3)
    assert await used(scene) == ["b"]
    assert await taken(scene.other, "c", "d", by="you") == ["c"]
    assert await renew(scene.board, [dead, mine]) == (mine_as_renewed(mine, scene),)
    await give_back(scene.board, [dead])
    assert sorted(await used(scene)) == ["b", "c"]


def mine_as_renewed(mine: HeldPermit, scene: Scene) -> object:
    class Renewed:
        def __eq__(self, other: object) -> bool:
            return isinstance(other, HeldPermit) and other.permit.nonce == mine.permit.nonce

        __hash__ = None  # type: ignore[assignment]

    return Renewed()


@pytest.mark.of_each_store
@pytest.mark.parametrize("fault", [Fault.LOST, Fault.NEVER, Fault.LATE])
@story
async def test_a_lost_reply_is_settled_by_the_nonces(scene: Scene, fault: Fault) -> None:
    scene.table.script(fault)
    permits = await take(scene.board, TWO, ["a", "b"], owner="me")
    assert [one.permit.id for one in permits] == (["a", "b"] if fault is Fault.LOST else [])
    await scene.table.land()
    assert len(await used(scene)) == (0 if fault is Fault.NEVER else 2)
    assert await taken(scene.other, "c", by="you") == (["c"] if fault is Fault.NEVER else [])
    scene.later(seconds=LEASE + 2)
    assert await taken(scene.other, "d", by="you") == ["d"]


@pytest.mark.of_each_store
@story
async def test_a_batch_that_was_sent_twice_on_its_way_takes_each_permit_once(scene: Scene) -> None:
    """The second reply says that they are taken: by the first."""
    for limit, items in ((TWO, ["a", "b"]), (Limit("report", "", 1), ["c"])):
        scene.table.script(Fault.TWICE)
        permits = await take(scene.board, limit, items, owner="me")
        assert [one.permit.id for one in permits] == items
        assert sorted(await used(scene, limit)) == items
        assert await renew(scene.board, permits) != ()
        await give_back(scene.board, permits)
        assert await used(scene, limit) == []
    scene.table.script(Fault.TWICE)
    assert await taken(scene.board, "a", limit=Limit("feed", "", 5)) == ["a"]
    assert await used(scene, Limit("feed", "", 5)) == ["a"]


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.NEVER])
@story
async def test_a_renewal_without_a_reply_is_sent_again(scene: Scene, fault: Fault) -> None:
    permits = await take(scene.board, TWO, ["a", "b"], owner="me")
    scene.later(seconds=20)
    scene.table.script(fault)
    renewed = await renew(scene.board, permits)
    assert [one.sent for one in renewed] == [scene.clock.monotonic()] * 2
    scene.later(seconds=LEASE - 1)
    assert await taken(scene.other, "c", by="you") == []


@pytest.mark.of_each_store
@pytest.mark.parametrize("fault", [Fault.LOST, Fault.TWICE])
@story
async def test_a_renewal_that_is_found_in_the_permit_counts_from_when_it_was_sent(
    scene: Scene, fault: Fault
) -> None:
    permits = await take(scene.board, TWO, ["a", "b"], owner="me")
    scene.later(seconds=20)
    sent, before = scene.clock.monotonic(), len(scene.table.batches)

    async def a_while() -> None:
        scene.later(seconds=5)

    scene.table.script(fault)
    scene.table.script_reads(a_while)
    renewed = await renew(scene.board, permits)
    assert [one.sent for one in renewed] == [sent] * 2
    assert len(scene.table.batches) == before + 1


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.NEVER])
@story
async def test_what_is_given_back_without_a_reply_is_free(scene: Scene, fault: Fault) -> None:
    permits = await take(scene.board, TWO, ["a", "b"], owner="me")
    scene.table.script(fault)
    await give_back(scene.board, permits)
    assert await used(scene) == []


@story
async def test_a_lower_limit_counts_what_is_held_by_higher_numbers(scene: Scene) -> None:
    await take(scene.board, Limit("feed", "", 5), list("abc"), owner="me")
    assert await taken(scene.other, "d", by="you") == []
    assert await taken(scene.other, "d", limit=Limit("feed", "", 4), by="you") == ["d"]


@pytest.mark.of_each_store
@story
async def test_rows_that_cannot_be_read_count_as_held(scene: Scene) -> None:
    (one,) = await take(scene.board, Limit("feed", "", 1), ["a"], owner="me")
    await scene.other.table.commit(PARTITION, [Merge(one.row_key, {"number": -3}, ANY)])
    odd = keys.permits_range("feed", "")[0] + "odd"
    await scene.other.table.commit(PARTITION, [Insert(odd, {"version": 1})])
    assert await taken(scene.board, "b", "c") == []
    scene.later(seconds=LEASE + 2)
    assert await taken(scene.board, "b", "c") == ["b", "c"]
    newer = keys.permit_key("feed", "x", 0)
    await scene.other.table.commit(PARTITION, [Insert(newer, {"version": VERSION + 1})])
    scene.later(seconds=LEASE + 2)
    assert await taken(scene.board, "d", limit=Limit("feed", "x", 1)) == []


@story
async def test_permits_that_nobody_renews_are_deleted_after_a_day(scene: Scene) -> None:
    await take(scene.board, TWO, ["a"], owner="me")
    await forget_lost(scene.other)
    scene.later(seconds=LEASE + 2)
    assert [row async for row in scene.other.table.scan(PARTITION)]
    scene.later(days=1)
    (mine,) = await take(scene.board, Limit("feed", "x", 1), ["b"], owner="me")
    await forget_lost(scene.other)
    assert [row.key async for row in scene.other.table.scan(PARTITION)] == [mine.row_key]


@story
async def test_an_old_permit_that_is_taken_over_meanwhile_is_not_deleted(scene: Scene) -> None:
    await take(scene.other, ONE, ["a"], owner="dead")
    scene.later(days=2)
    mine: list[HeldPermit] = []

    async def taken_over() -> None:
        mine.extend(await take(scene.other, ONE, ["b"], owner="me"))

    scene.table.script(taken_over)
    await forget_lost(scene.board)
    assert await renew(scene.other, mine) != ()
    assert await take(scene.other, ONE, ["c"], owner="you") == []


@pytest.mark.of_each_store
@story
async def test_a_permit_of_a_newer_version_is_never_deleted(scene: Scene) -> None:
    newer = keys.permit_key("feed", "", 0)
    await scene.other.table.commit(PARTITION, [Insert(newer, {"version": VERSION + 1})])
    scene.later(days=2)
    await forget_lost(scene.board)
    assert [row.key async for row in scene.other.table.scan(PARTITION)] == [newer]


ONE = Limit("feed", "", 1)


@pytest.mark.parametrize("stale_after", [1e11, 86_401.0, -60.0, 0.0])
@story
async def test_a_permit_that_no_holder_can_have_is_free_after_a_lease(
    scene: Scene, stale_after: float
) -> None:
    (one,) = await take(scene.board, ONE, ["a"], owner="me")
    await scene.other.table.commit(
        PARTITION, [Merge(one.row_key, {"stale_after": stale_after}, ANY)]
    )
    assert await taken(scene.board, "b", limit=ONE) == []
    held = await occupied(scene.other, ONE)
    assert (held.items, held.unreadable, held.newer) == ((), (one.row_key,), ())
    scene.later(seconds=LEASE + 2)
    assert await taken(scene.board, "b", limit=ONE) == ["b"]


@pytest.mark.of_each_store
@pytest.mark.parametrize("number", ["0", "000", "0" * 5_000, "-0001", "00000x", "", "\u0660" * 5])
@story
async def test_a_key_that_is_of_no_permit_counts_for_a_lease_and_is_in_no_ones_way(
    scene: Scene, number: str
) -> None:
    (one,) = await take(scene.board, ONE, ["a"], owner="me")
    await give_back(scene.board, [one])
    key = keys.permits_range("feed", "")[0] + number
    try:
        await scene.other.table.commit(PARTITION, [Insert(key, data_of(one.permit))])
    except Refused:
        return  # no such key in this store
    assert await taken(scene.board, "b", limit=ONE) == []
    scene.later(seconds=LEASE + 2)
    assert await taken(scene.board, "b", limit=ONE) == ["b"]
    assert await used(scene, ONE) == ["b"]


@pytest.mark.of_each_store
@story
async def test_keys_that_are_of_no_permit_count_each(scene: Scene) -> None:
    for odd in ("odd", "even"):
        key = keys.permits_range("feed", "")[0] + odd
        await scene.other.table.commit(PARTITION, [Insert(key, {"version": 1})])
    assert await taken(scene.board, "a") == []
    assert len(await occupied(scene.other, TWO)) == 2


@pytest.mark.of_each_store
@story
async def test_a_permit_of_a_newer_version_is_held_and_named(scene: Scene) -> None:
    key = keys.permit_key("feed", "", 0)
    await scene.other.table.commit(PARTITION, [Insert(key, {"version": 2.0})])
    scene.later(seconds=LEASE + 2)
    assert await taken(scene.board, "a", limit=ONE) == []
    assert (await occupied(scene.other, ONE)).newer == (key,)
