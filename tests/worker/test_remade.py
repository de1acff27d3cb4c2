"""A table that is deleted and made anew under workers that have it open."""

import pytest

from blackboard.events import GroupTrouble, StoreEvent
from blackboard.model import ANNOUNCE_EVERY
from blackboard.protocol.additions import New, add
from blackboard.protocol.board_row import Remade
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.keys import BOARD_KEY, group_key, meta_partition, partition
from blackboard.protocol.members import workers
from blackboard.rules.breaker import REFUSED
from blackboard.rules.shares import INITIAL_DELAY
from blackboard.spec import Spec
from blackboard.table import ANY, Delete, read
from tests.support.boards import make_board
from tests.support.fleet import Fleet, with_fleet
from tests.support.groups import LEASE, ROUND, Group, sharing

pytestmark = pytest.mark.of_one_store("a worker is the same above any store")

CYCLE = 30.0


async def remake(fleet: Fleet, *, shards: int) -> BoardTable:
    """All rows go; then there is a board of the same name."""
    await delete(fleet)
    return await make_board(fleet.table.table, fleet.clock, shards=shards, name=fleet.board.name)


async def delete(fleet: Fleet, name: str = "") -> None:
    """All rows of a board, which has one shard; of the fleet's, if none is named."""
    table, name = fleet.table.table, name or fleet.board.name
    for part in (meta_partition(name), f"{name}-workers", partition(name, 0, 1)):
        rows = [row async for row in table.scan(part)]
        for row in rows:
            await table.commit(part, [Delete(row.key, ANY)])


@pytest.mark.of_each_store
@with_fleet
async def test_a_worker_whose_board_has_other_shards_by_now_ends_and_says_why(
    fleet: Fleet,
) -> None:
    """It would look for ever where nothing is."""
    await fleet.add("davis", every="1h")
    ann = await fleet.hire("ann", cycle=CYCLE)
    await fleet.turn(CYCLE)
    assert ann.order == ["davis"]
    board = await remake(fleet, shards=4)
    for number in range(8):
        await add(board, New(id=f"item-{number}", type="feed", spec=Spec(every="1h")))
    await fleet.turn(ANNOUNCE_EVERY + 5)
    assert ann.task.done()
    with pytest.raises(Remade, match=r"made anew with shards: 4, not 1 \(start this program again"):
        await ann.task
    assert any("made anew" in event.message for event in ann.of(StoreEvent))
    assert ann.order == ["davis"], "what it cannot place it leaves alone"


@pytest.mark.of_each_store
@with_fleet
async def test_a_board_that_is_gone_is_waited_for_and_known_when_it_is_back(
    fleet: Fleet,
) -> None:
    ann = await fleet.hire("ann", cycle=CYCLE)
    await fleet.turn(CYCLE)
    await delete(fleet)
    await fleet.turn(3 * ANNOUNCE_EVERY)
    assert not ann.task.done()
    await make_board(fleet.table.table, fleet.clock, shards=2, name=fleet.board.name)
    await fleet.turn(ANNOUNCE_EVERY)
    assert ann.task.done()


@with_fleet
async def test_a_board_that_is_made_anew_as_it_was_is_worked_on(fleet: Fleet) -> None:
    ann = await fleet.hire("ann", cycle=CYCLE)
    await fleet.turn(CYCLE)
    await remake(fleet, shards=1)
    await fleet.add("toronto", every="1h")
    await fleet.turn(ANNOUNCE_EVERY + CYCLE)
    assert ann.order == ["toronto"]
    assert [one.owner for one in await workers(fleet.board)] == ["ann"]


@sharing()
async def test_a_group_whose_board_is_gone_makes_it_anew_and_is_served(group: Group) -> None:
    """`init` makes the board that it belongs to, and no other."""
    fleet = group.fleet
    await group.join("ann", "ben")
    await fleet.turn(INITIAL_DELAY + 2.0)
    assert group.log.counts == [6, 6]
    await delete(fleet, group.board.name)
    group.log.saved.clear()  # with their items
    await remake(fleet, shards=1)
    await fleet.turn(LEASE + 3 * ROUND + REFUSED.pause())
    assert group.log.counts == [6, 6]
    assert {one.owner for one in await workers(group.board)} == {"ann", "ben"}
    assert await read(fleet.table.table, meta_partition(fleet.board.name), group_key("clicks"))
    told = [one.message for one in group.hands["ann"].told if isinstance(one, GroupTrouble)]
    assert "the board 'town.clicks' is gone: it is made anew" in told


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4), (1, 3)])
@with_fleet
async def test_until_it_is_noticed_only_items_that_lie_where_they_should_are_taken(
    fleet: Fleet, before: int, after: int
) -> None:
    table, clock, name = fleet.table.table, fleet.clock, "county"
    old = await make_board(table, clock, shards=before, name=name)
    await table.commit(meta_partition(name), [Delete(BOARD_KEY, ANY)])
    new = await make_board(table, clock, shards=after, name=name)
    for number in range(24):
        await add(new, New(id=f"item-{number}", type="feed", spec=Spec(every="1h")))
    seen = [
        found for number in range(before) async for found in old.walk(number, until=clock.now())
    ]
    assert all(old.partition(found.id) == new.partition(found.id) for found in seen)
