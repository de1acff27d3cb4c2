"""Workers race for the partitions of a group, guarded by the lock rows; without a bus they go by
shares.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from blackboard.clock import Clock
from blackboard.events import BusBack, BusUnavailable, GroupTrouble
from blackboard.model import replace
from blackboard.protocol.keys import LOCK
from blackboard.rules.grab import Channel, Hash, Times
from blackboard.rules.shares import CATCHING_UP, Balance, names_of
from blackboard.sharing.partitions import GroupWorker
from blackboard.table import Etag, Insert, Op, Replace
from tests.support.fleet import Network, NetworkTable
from tests.support.groups import LEASE, ROUND, Group, sharing
from tests.support.simulated_bus import SharedBus

pytestmark = pytest.mark.of_one_store("a worker is the same above any store")

above_the_store = pytest.mark.of_one_store("where partitions go is decided on the bus")

TIMES = Times()
EVEN = 3 * TIMES.normal
"""Seconds after which all is even: a first race may be won by one that has a partition more."""


@sharing(partitions=6, balance="grab")
async def test_workers_that_start_share_within_the_normal_time_and_nothing_moves_after(
    group: Group,
) -> None:
    await group.join("ann", "ben")
    await group.fleet.turn(TIMES.normal + 5.0)
    assert set(group.log.owners) == set(names_of(6))
    await group.fleet.turn(EVEN - TIMES.normal)
    assert group.log.counts == [3, 3]
    began = len(group.log.began)
    await group.fleet.turn(5 * TIMES.normal)
    assert len(group.log.began) == began


@above_the_store
@sharing(partitions=6, balance="grab")
async def test_a_worker_that_joins_gets_its_share_within_the_normal_time(group: Group) -> None:
    await group.join("ann", "ben")
    await group.fleet.turn(EVEN)
    joined = group.fleet.clock.monotonic()
    await group.join("cleo")
    await group.fleet.turn(TIMES.normal + ROUND)
    assert group.log.counts == [2, 2, 2]
    assert max(group.log.gaps(joined)) <= 3.0


@above_the_store
@sharing(partitions=1, balance="grab")
async def test_one_partition_stays_where_it_is(group: Group) -> None:
    await group.join("ann", "ben", "cleo")
    await group.fleet.turn(TIMES.normal + 5.0)
    assert len(group.log.began) == 1
    await group.fleet.turn(10 * TIMES.normal)
    assert len(group.log.began) == 1


@sharing(partitions=6, balance="grab")
async def test_what_a_dead_worker_held_is_back_within_the_maximum_time(group: Group) -> None:
    await group.join("ann", "ben", "cleo")
    await group.fleet.turn(EVEN)
    died = group.fleet.clock.monotonic()
    await group.hands["cleo"].dies()
    await group.fleet.turn(LEASE - 12.0)
    assert len(group.log.owners) == 4, "its leases hold"
    await group.fleet.turn(TIMES.maximum + TIMES.minimum)
    assert group.log.counts == [3, 3]
    assert max(group.log.gaps(died)) <= TIMES.maximum + TIMES.minimum


@above_the_store
@sharing(partitions=6, balance="grab")
async def test_a_worker_that_wins_while_it_is_late_takes_what_is_stale_when_it_is_late_no_more(
    group: Group,
) -> None:
    network = Network()
    await group.join("ann", network=network)
    await group.join("ben")
    await group.fleet.turn(EVEN)
    await group.hands["ben"].dies()
    await group.fleet.turn(LEASE - ROUND)
    network.away = True
    await group.fleet.turn(2 * ROUND)
    network.away = False
    await group.fleet.turn(CATCHING_UP * ROUND + 2 * TIMES.minimum)
    assert group.log.counts == [6], "before the next races"


@above_the_store
@sharing(partitions=6, balance="grab")
async def test_a_worker_that_is_to_stop_hands_over_within_seconds(group: Group) -> None:
    await group.join("ann", "ben", "cleo")
    await group.fleet.turn(EVEN)
    began = group.fleet.clock.monotonic()
    group.hands["cleo"].worker.stop()
    await group.fleet.turn(10.0)
    assert group.hands["cleo"].task.done()
    assert len(group.log.owners) == 6
    assert max(group.log.gaps(began)) <= 3.0
    await group.fleet.turn(EVEN)
    assert group.log.counts == [3, 3]


@above_the_store
@sharing(partitions=6, balance="grab")
async def test_without_a_bus_the_group_goes_by_shares_and_races_again_when_it_is_back(
    group: Group,
) -> None:
    await group.join("ann", "ben")
    group.shared.go_away()
    await group.fleet.turn(LEASE - 5.0)
    assert group.log.counts == [], "for a lease they wait for the bus"
    await group.fleet.turn(5.0 + 2 * ROUND)
    assert group.log.counts == [3, 3]
    await group.join("cleo")
    await group.fleet.turn(LEASE + 4 * ROUND)
    assert group.log.counts == [2, 2, 2]
    group.shared.come_back()
    began = len(group.log.began)
    await group.fleet.turn(3 * TIMES.maximum)
    assert group.log.counts == [2, 2, 2]
    assert len(group.log.began) == began, "races move nothing that lies evenly"
    told = [type(event) for event in group.hands["ann"].told]
    assert (BusUnavailable in told, BusBack in told) == (True, True)


def to_another_redis(group: Group) -> None:
    group.shared = SharedBus()


def to_another_balance(group: Group) -> None:
    assert group.handler.pump is not None
    pump = replace(group.handler.pump, balance=Balance.SHARES)
    group.handler = replace(group.handler, pump=pump)


@above_the_store
@pytest.mark.parametrize("moved", [to_another_redis, to_another_balance])
def test_a_group_goes_by_shares_where_not_all_race(
    moved: Callable[[Group], None], open_table: object
) -> None:
    @sharing(partitions=8, balance="grab")
    async def story(group: Group) -> None:
        await group.join("ann")
        await group.fleet.turn(EVEN)
        moved(group)
        await group.join("ben")
        await group.fleet.turn(TIMES.maximum - ROUND)
        assert group.log.counts == [8]
        await group.fleet.turn(6 * ROUND)
        assert group.log.counts == [4, 4]
        began = len(group.log.began)
        await group.fleet.turn(3 * TIMES.maximum)
        assert len(group.log.began) == began
        (said,) = [one.message for one in group.hands["ann"].told if isinstance(one, GroupTrouble)]
        assert "ben holds 0, ann 8" in said

    story(open_table=open_table)


@above_the_store
@sharing(partitions=24, balance="grab", drain="25s")
async def test_races_go_on_while_workers_join_one_after_another(group: Group) -> None:
    group.log.deaf = True  # a race takes up to 60 s, and 25 s more until the pump has ended
    await group.join("ann")
    await group.fleet.turn(EVEN)
    joining, every = "bcdefgh", 40.0
    for owner in joining:
        await group.join(owner)
        await group.fleet.turn(every)
    assert every * len(joining) > TIMES.maximum + 3 * ROUND
    told = [event for one in group.hands.values() for event in one.told]
    assert [event.message for event in told if isinstance(event, GroupTrouble)] == []
    await group.fleet.turn(EVEN)
    assert group.log.counts == [3] * 8


@above_the_store
@sharing(partitions=8, balance="grab", drain="25s")
async def test_no_pump_ends_for_a_lost_race_while_shares_decide(group: Group) -> None:
    await group.join("ann")
    await group.fleet.turn(EVEN)
    bus = group.bus(on_away=lambda _: None, on_back=lambda: None)
    to_another_redis(group)
    group.log.deaf = True
    await group.join("ben")
    await group.fleet.turn(TIMES.maximum + 3 * ROUND)
    assert group.log.counts == [8], "ann drains four of them"
    for name in names_of(8):
        await bus.put(Hash.GRAB, name, "ben")
        await bus.publish(Channel.GRAB_LEASE, name)
    await group.fleet.turn(2 * LEASE)
    assert group.log.counts == [4, 4]
    assert len(group.log.ended) == 4


@above_the_store
@sharing(partitions=6, balance="grab")
async def test_a_pump_that_fails_is_raced_for_at_once(group: Group) -> None:
    await group.join("ann", "ben")
    await group.fleet.turn(EVEN)
    group.log.unasked = names_of(6)
    await group.fleet.turn(3.0)
    group.log.unasked = ()
    await group.fleet.turn(TIMES.shutdown + ROUND)
    assert len(group.log.owners) == 6
    await group.fleet.turn(EVEN)
    assert group.log.counts == [3, 3]


@above_the_store
@sharing(partitions=6, balance="grab")
async def test_a_worker_that_is_asked_to_stop_while_it_reads_claims_nothing(group: Group) -> None:
    look = GroupWorker._look

    async def asked_meanwhile(worker: GroupWorker, **about: Any) -> Any:
        found = await look(worker, **about)
        if about == {"at_workers": False}:  # for a partition that it has won
            worker.stop()
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GroupWorker, "_look", asked_meanwhile)
        await group.join("ann")
        await group.fleet.turn(EVEN)
    assert group.hands["ann"].task.done()
    assert group.log.began == []


@above_the_store
@sharing(partitions=1, balance="grab")
async def test_a_lock_whose_taking_is_answered_late_is_not_adopted_meanwhile(group: Group) -> None:
    """Looks go on beside the claims, and the overrides, of won races: while those have no answer,
    and while a lock that is nearly stale by then is renewed.
    """
    with pytest.MonkeyPatch.context() as patch:
        for owner in ("ann", "ben"):
            await group.join(owner)
            table = group.hands[owner].table
            patch.setattr(table, "commit", answering_late(table, group.fleet.clock))
            await group.fleet.turn(TIMES.maximum + LEASE)
            assert [worker for _, _, worker in group.log.began].count(owner) == 1
            await group.hands[owner].dies()


@above_the_store
@sharing(partitions=1, balance="grab")
async def test_a_worker_that_is_to_stop_while_it_claims_puts_that_back(group: Group) -> None:
    """However late the claim is answered."""
    await group.join("ann")
    ann, clock = group.hands["ann"], group.fleet.clock
    commit = ann.table.commit

    async def slowly(partition: str, ops: Sequence[Op]) -> list[Etag]:
        etags = await commit(partition, ops)
        if any(isinstance(op, Insert) and op.key.startswith(LOCK) for op in ops):
            ann.worker.stop()
            await clock.sleep(ROUND)
        return etags

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ann.table, "commit", slowly)
        await group.fleet.turn(TIMES.normal + 2 * ROUND)
    assert ann.task.done()
    assert group.log.began == []
    assert [lock async for lock in group.board.locks()] == []


def answering_late(table: NetworkTable, clock: Clock) -> Callable[..., Awaitable[list[Etag]]]:
    commit = table.commit

    async def slowly(partition: str, ops: Sequence[Op]) -> list[Etag]:
        etags = await commit(partition, ops)
        if all(op.key.startswith(LOCK) for op in ops):
            await clock.sleep(1.2 * ROUND)
        elif any(isinstance(op, Insert | Replace) and op.key.startswith(LOCK) for op in ops):
            await clock.sleep(0.85 * LEASE)
        return etags

    return slowly
