"""Workers share the partitions of a group: real pumps, on a clock that is turned by hand."""

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace as dataclass_replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from blackboard.display.health import alarms_of_group
from blackboard.errors import Missing
from blackboard.events import GroupTrouble, ItemLeftAlone
from blackboard.handlers.handler import A_NAME, MOST_PARTITIONS, Handler
from blackboard.model import Outcome, replace
from blackboard.protocol.additions import ensure
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import claim
from blackboard.protocol.edits import bring_back, cancel, edit, pause, remove, resume, unlock
from blackboard.protocol.groups import read_groups
from blackboard.protocol.keys import (
    BOARD_KEY,
    FLOOR_KEY,
    group_key,
    item_key,
    meta_partition,
    next_key,
)
from blackboard.protocol.members import workers
from blackboard.rules.breaker import REFUSED
from blackboard.rules.shares import HURRY, INITIAL_DELAY, Decision, Picture, names_of
from blackboard.runners.child_process import LEASE_RAN_OUT
from blackboard.settings import Settings, TypeTable
from blackboard.sharing import group_rows, partitions
from blackboard.sharing.group_rows import ANSWERED_WITHIN, MOST_READ, NAMED_EVERY
from blackboard.sharing.lasting_trouble import AGAIN_AFTER
from blackboard.sharing.partitions import UNASKED, GroupWorker
from blackboard.table import (
    ANY,
    Conflict,
    ConflictKind,
    Delete,
    Insert,
    Merge,
    Refused,
    Replace,
    Value,
    read,
)
from blackboard.worker.heartbeat import GONE, LOST_GRACE
from blackboard.worker.release_queue import LAST_PRUNING, LAST_RELEASES
from tests.support.fleet import Network
from tests.support.groups import DRAIN, GROUP, LEASE, ROUND, SAVED_EVERY, Group, sharing

pytestmark = pytest.mark.of_one_store("a worker is the same above any store")

above_the_store = pytest.mark.of_one_store(
    "which worker has which partition is decided above the store"
)


@pytest.mark.case("BAL02")
@sharing()
async def test_workers_that_start_together_share_at_once_and_nothing_moves_after(
    group: Group,
) -> None:
    await group.join("ann", "ben", "cleo")
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    assert group.log.counts == [4, 4, 4]
    assert set(group.log.owners) == set(names_of(12))
    await group.fleet.turn(20 * ROUND)
    assert len(group.log.began) == 12
    assert all(saved > 100 for saved in group.log.saved.values())


@above_the_store
@sharing()
async def test_a_partition_that_was_in_none_of_the_rows_read_moves_nothing(
    group: Group,
) -> None:
    """It is claimed after the locks are read, and before the tokens are."""
    await group.join("ann", "ben", "cleo", "dora", "eve")
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    assert group.log.counts == [2, 2, 2, 3, 3]
    holds = Counter(group.log.owners.values())
    unseen = next(one for one, owner in group.log.owners.items() if holds[owner] == 2)
    look, have_looked = GroupWorker._look, set[str]()

    async def look_past_one(worker: GroupWorker, **about: Any) -> Any:
        found = await look(worker, **about)
        if worker.member.owner in have_looked:
            return found
        have_looked.add(worker.member.owner)
        return dataclass_replace(found, locks=[one for one in found.locks if one.id != unseen])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GroupWorker, "_look", look_past_one)
        await group.fleet.turn(3 * ROUND)
    assert len(have_looked) == 5
    assert len(group.log.began) == 12, "nothing has moved"


@above_the_store
@sharing()
async def test_a_pump_that_ends_while_the_rows_are_read_is_one_less_to_let_go(group: Group) -> None:
    await group.join("ann", "ben")
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    await group.join("cleo")
    own = next(one for one, owner in group.log.owners.items() if owner == "ann")
    with_items = GroupWorker._with_items
    returned: list[str] = []

    async def returned_meanwhile(worker: GroupWorker, picture: Picture) -> Picture:
        found = await with_items(worker, picture)
        if worker.member.owner == "ann" and not found.is_even and not returned:
            returned.append(own)
            group.log.unasked = returned
            await group.fleet.clock.sleep(2.0)
            group.log.unasked = ()
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GroupWorker, "_with_items", returned_meanwhile)
        await group.fleet.turn(2 * ROUND + DRAIN)
    runs = [run for one in names_of(12) async for run in group.board.runs(one)]
    errors = Counter(run.error for run in runs if run.worker == "ann")
    assert errors == {UNASKED: 1, "released for another worker": 1}
    await group.fleet.turn(60.0)
    assert group.log.counts == [4, 4, 4]


@pytest.mark.case("BAL02")
@sharing()
async def test_a_worker_that_joins_gets_its_share_hand_over_hand(group: Group) -> None:
    await group.join("ann", "ben")
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    joined = group.fleet.clock.monotonic()
    await group.join("cleo")
    await group.fleet.turn(4 * ROUND)
    assert group.log.counts == [4, 4, 4]
    assert len(group.log.began) == 12 + 4, "the fewest moves"
    assert max(group.log.gaps(joined)) <= 3.0
    histories = [run for one in names_of(12) async for run in group.board.runs(one)]
    assert {run.outcome for run in histories} == {Outcome.CANCELLED}
    assert {run.error for run in histories} == {"released for another worker"}


@sharing()
async def test_what_a_dead_worker_held_is_taken_when_its_lease_is_over(group: Group) -> None:
    await group.join("ann", "ben", "cleo")
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    died = group.fleet.clock.monotonic()
    await group.hands["cleo"].dies()
    await group.fleet.turn(LEASE - 12.0)
    assert len(group.log.owners) == 8, "its leases hold"
    await group.fleet.turn(12.0 + 2 * ROUND + 5.0)
    assert group.log.counts == [6, 6]
    assert max(group.log.gaps(died)) <= LEASE + 2 * ROUND + 5.0
    assert len(group.log.began) == 12 + 4


@above_the_store
@pytest.mark.parametrize("longer", ["30s", "2m"])
def test_workers_with_other_leases_share_as_all_do(longer: str, open_table: object) -> None:
    """As while another lease is deployed: each counts for as long as it says itself."""

    @sharing(partitions=8, lease="4s")
    async def story(group: Group) -> None:
        await group.join("ben", "cleo")
        group.handler = declared(group.handler, stale_after=longer)
        await group.join("ann")
        await group.fleet.turn(180.0)
        assert group.log.counts == [2, 3, 3]
        began = len(group.log.began)
        await group.fleet.turn(240.0)
        assert len(group.log.began) == began
        await group.hands["cleo"].dies()
        await group.fleet.turn(180.0)
        assert group.log.counts == [4, 4]
        assert len(group.log.began) <= began + 3

    story(open_table=open_table)


def declared(handler: Handler, **said: Any) -> Handler:
    return replace(handler, spec=replace(handler.spec, **said))


@sharing()
async def test_a_worker_that_is_to_stop_hands_over_within_seconds(group: Group) -> None:
    """Also when the others have just looked."""
    await group.join("ann", "ben", "cleo")
    await group.fleet.turn(3 * ROUND + INITIAL_DELAY + 1.0)
    began = group.fleet.clock.monotonic()
    group.hands["cleo"].worker.stop()
    await group.fleet.turn(ROUND + 5.0)
    assert group.hands["cleo"].task.done()
    assert group.log.counts == [6, 6]
    assert max(group.log.gaps(began)) <= 3.0
    names = [one.owner for one in await workers(group.board)]
    assert sorted(names) == ["ann", "ben"]


@sharing()
async def test_the_last_worker_stops_without_waiting_for_others_and_the_next_goes_on_there(
    group: Group,
) -> None:
    await group.join("ann")
    await group.fleet.turn(INITIAL_DELAY + 5.0)
    group.hands["ann"].worker.stop()
    await group.fleet.turn(2.0)
    assert group.hands["ann"].task.done()
    assert group.log.owners == {}
    saved = dict(group.log.saved)
    await group.join("ben")
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    assert group.log.counts == [12]
    assert all(group.log.saved[one] > position for one, position in saved.items())


@sharing()
async def test_a_pump_that_does_not_end_when_it_is_asked_to_is_stopped(group: Group) -> None:
    group.log.deaf = True
    await group.join("ann")
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    group.hands["ann"].worker.stop()
    await group.fleet.turn(DRAIN + 2.0)
    assert group.hands["ann"].task.done()
    run = await anext(group.board.runs("00"))
    assert run.outcome is Outcome.CANCELLED
    assert run.error == "stopped: the worker is stopping, and it did not end within 5 s"
    assert (await group.item("00")).waits


async def unanswered(group: Group) -> GroupWorker:
    """A worker with half of the partitions, none of whose requests is answered."""
    network = Network()
    await group.join("ann")
    await group.join("ben", network=network)
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    assert group.log.counts == [6, 6]
    group.log.saving = False
    await group.fleet.turn(1.0)
    network.delays = (3600.0, 3600.0)
    await group.fleet.turn(ROUND)
    return group.hands["ben"].worker


@above_the_store
@sharing()
async def test_a_worker_stops_within_its_time_when_no_request_is_answered(group: Group) -> None:
    """Each pump is asked to end as when the store answers, and returns by itself."""
    (await unanswered(group)).stop()
    await group.fleet.turn(ROUND + 2.0)
    assert group.log.counts == [6], "those of the other worker"
    assert group.log.killed == 0
    await group.fleet.turn(DRAIN + LAST_RELEASES + LAST_PRUNING - 2.0)
    assert group.hands["ben"].task.done()


@above_the_store
@sharing()
async def test_a_worker_asked_twice_stops_its_pumps_at_once_when_no_request_is_answered(
    group: Group,
) -> None:
    group.log.deaf = True
    worker = await unanswered(group)
    worker.stop()
    await group.fleet.turn(2.0)
    assert group.log.counts == [6, 6]
    worker.stop()
    await group.fleet.turn(1.0)
    assert group.log.counts == [6]
    assert group.log.killed == 6


@above_the_store
@sharing()
async def test_a_partition_whose_claim_is_answered_after_the_stop_is_put_back(
    group: Group,
) -> None:
    network = Network()
    await group.join("ann", network=network)

    async def asked_meanwhile(*about: Any, **more: Any) -> Any:
        answer = await claim(*about, **more)
        group.hands["ann"].worker.stop()
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions, "claim", asked_meanwhile)
        await group.fleet.turn(INITIAL_DELAY + 2.0)
    assert group.hands["ann"].task.done()
    assert group.log.began == []
    assert (await group.item("00")).waits


@sharing(drain="15s")
async def test_what_is_drained_for_as_long_as_may_be_is_taken_at_once_when_it_is_free(
    group: Group,
) -> None:
    """The worker that waits for it looks each second until then."""
    await group.join("ann")
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    group.log.deaf = True
    joined = group.fleet.clock.monotonic()
    await group.join("ben")
    await group.fleet.turn(5 * ROUND)
    assert group.log.counts == [6, 6]
    assert min(at for at, _, owner in group.log.began if owner == "ben") > joined + LEASE
    assert max(group.log.gaps(joined)) <= 3.0


@sharing()
async def test_a_worker_that_is_to_stop_while_it_looks_takes_nothing_more(group: Group) -> None:
    network = Network()
    await group.join("ann", network=network)
    await group.fleet.turn(INITIAL_DELAY - 1.0)
    network.delays = (2.0, 2.0)
    await group.fleet.turn(2.0)
    group.hands["ann"].worker.stop()
    await group.fleet.turn(20.0)
    assert group.hands["ann"].task.done()
    assert group.log.began == []


@pytest.mark.parametrize("hours", [-1, 1])
def test_workers_follow_the_clock_of_the_store_when_it_was_set(
    hours: int, open_table: object
) -> None:
    @sharing()
    async def story(group: Group) -> None:
        await group.join("ann", "ben")
        await group.fleet.turn(INITIAL_DELAY + 2.0)
        group.fleet.clock.jump(hours * 3600.0)
        await group.fleet.turn(5 * ROUND)
        for one in group.hands.values():
            assert await one.worker.board.table.now() == group.fleet.clock.now()
        assert len(group.log.began) == 12, "nothing moves"
        await group.join("cleo")
        await group.fleet.turn(4 * ROUND)
        assert group.log.counts == [4, 4, 4]

    story(open_table=open_table)


@above_the_store
@sharing(lease="2m")
async def test_a_worker_that_began_while_the_clock_was_ahead_gets_its_share_when_it_is_right(
    group: Group,
) -> None:
    await group.join("ann")
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    group.fleet.clock.jump(3600.0)
    await group.fleet.turn(120.0)
    await group.join("ben")
    await group.fleet.turn(1.0)
    group.fleet.clock.jump(-3600.0)
    await group.fleet.turn(240.0)
    assert group.log.counts == [6, 6]


@sharing()
async def test_what_is_stale_is_any_workers_after_a_round_and_not_before(group: Group) -> None:
    await group.join("ann")
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    await group.hands["ann"].dies()
    looks: list[tuple[float, int, int]] = []

    def note(picture: Picture, _me: str, *, left: Collection[str], **_: Any) -> Decision:
        looks.append((group.fleet.clock.monotonic(), len(picture.stale), len(left)))
        return Decision(again=HURRY)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions, "decide", note)
        await group.join("ben")
        await group.fleet.turn(LEASE + 3 * ROUND)
    first = next(moment for moment, stale, _ in looks if stale == 12)
    assert {left for moment, _, left in looks if moment < first + ROUND} == {0}
    assert {left for moment, _, left in looks if moment >= first + ROUND} == {12}


@sharing()
async def test_a_worker_hurries_as_long_as_it_gets_more_of_its_share(group: Group) -> None:
    """Where many workers join, the last partitions come long after the first."""
    patience, looks = LEASE + DRAIN, list[float]()

    def two_in_that_time(picture: Picture, _me: str, **_: Any) -> Decision:
        looks.append(group.fleet.clock.monotonic())
        due = min(int(2 * (looks[-1] - looks[0]) / patience), 6)
        take = sorted(picture.free)[: max(due - len(picture.held), 0)]
        return Decision(take=tuple(take), again=HURRY)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions, "decide", two_in_that_time)
        await group.join("ann")
        await group.fleet.turn(INITIAL_DELAY + 4 * patience + 3 * ROUND)
    assert group.log.counts == [6]
    pauses = [after - before for before, after in pairwise(looks)]
    last = looks[0] + 3.9 * patience
    assert max(pauses[: sum(one < last for one in looks) - 1]) < 2 * HURRY
    assert min(pauses[-2:]) >= ROUND, "what it lacks may not come free"


@sharing()
async def test_a_worker_started_while_the_store_is_away_overrides_nothing_for_two_rounds(
    group: Group,
) -> None:
    """The owners of what is stale then may be about to come back."""
    await group.join("ann")
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    await group.hands["ann"].dies()
    group.fleet.network.away = True
    await group.join("ben")
    await group.fleet.turn(LEASE + 2 * ROUND)
    group.fleet.network.away = False
    await group.fleet.turn(2 * ROUND)
    assert group.log.owners == {}
    await group.fleet.turn(3 * ROUND)
    assert group.log.counts == [12]


@above_the_store
@sharing()
async def test_a_worker_that_is_late_all_the_time_shares_with_one_that_joins(group: Group) -> None:
    """Its machine is busy, and each of its rounds takes so long that it could have stood still."""
    look = GroupWorker._look

    async def look_late(worker: GroupWorker, **about: Any) -> Any:
        if worker.owner == "ann":
            await group.fleet.clock.sleep(0.6 * ROUND)
        return await look(worker, **about)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GroupWorker, "_look", look_late)
        await group.join("ann")
        await group.fleet.turn(12 * ROUND)
        await group.join("ben")
        await group.fleet.turn(4 * ROUND + DRAIN)
        assert group.log.counts == [6, 6]
        await group.fleet.turn(20 * ROUND)
    assert len(group.log.began) == 12 + 6, "nothing else has moved"


async def some_die_soon_after_their_start(group: Group) -> None:
    for number in range(5):
        await group.join(f"weak-{number}")
        await group.fleet.turn(ROUND - 4.0)
        await group.hands[f"weak-{number}"].dies()
        await group.fleet.turn(ROUND)


@above_the_store
@sharing()
async def test_a_worker_that_dies_soon_after_each_start_moves_nothing(group: Group) -> None:
    await group.join("ann", "ben")
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    await some_die_soon_after_their_start(group)
    assert len(group.log.began) == 12


@above_the_store
@sharing()
async def test_nor_does_it_where_all_was_taken_while_the_clock_was_ahead(group: Group) -> None:
    group.fleet.clock.jump(3600.0)
    await group.join("ann", "ben")
    await group.fleet.turn(ROUND)
    group.fleet.clock.jump(-3600.0)
    await group.fleet.turn(5 * ROUND)
    await some_die_soon_after_their_start(group)
    assert len(group.log.began) == 12


@pytest.mark.of_each_store
@sharing()
async def test_no_pump_outlasts_its_lease_while_the_store_is_away_and_all_go_on_after(
    group: Group,
) -> None:
    await group.join("ann", "ben", "cleo")
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    group.fleet.network.away = True
    await group.fleet.turn(3 * LEASE)
    assert group.log.owners == {}
    group.fleet.network.away = False
    await group.fleet.turn(4 * ROUND)
    assert group.log.counts == [4, 4, 4]


@above_the_store
@pytest.mark.parametrize("saving", [True, False])
def test_a_pump_whose_lease_ran_out_has_not_failed_whether_it_saves_then_or_not(
    *, saving: bool, open_table: object
) -> None:
    @sharing(partitions=3)
    async def story(group: Group) -> None:
        group.log.saving = False
        await group.join("ann")
        await group.fleet.turn(INITIAL_DELAY + 2.0)
        group.fleet.network.away = True
        while not all(held.lost for held in group.hands["ann"].worker.holdings):
            await group.fleet.turn(1.0)
        group.log.saving = group.log.deaf = saving
        await group.fleet.turn(LOST_GRACE)
        group.fleet.network.away = False
        await group.fleet.turn(4 * ROUND)
        runs = [run for one in names_of(3) async for run in group.board.runs(one)]
        assert [run.outcome for run in runs] == [Outcome.CANCELLED] * 3
        assert all("its renewals were not answered" in run.error for run in runs)
        assert [(await group.item(one)).failures for one in names_of(3)] == [0, 0, 0]

    story(open_table)


@above_the_store
@sharing(partitions=1)
async def test_a_pump_that_the_guard_stops_has_not_failed_however_often(group: Group) -> None:
    """It never ends otherwise: a machine that sleeps each night stops it each time."""
    await group.join("ann")
    times = 7  # one more than a pump has retries
    for _ in range(times):
        await group.fleet.turn(4 * ROUND)
        [held] = group.hands["ann"].worker.holdings
        assert held.execution is not None
        held.execution.stop(Outcome.CANCELLED, LEASE_RAN_OUT)
    await group.fleet.turn(4 * ROUND)
    outcomes = [run.outcome async for run in group.board.runs("0")]
    assert outcomes == [Outcome.CANCELLED] * times


@above_the_store
@sharing(partitions=3)
async def test_a_pump_that_looks_at_stopping_alone_ends_as_soon_as_its_lease_is_lost(
    group: Group,
) -> None:
    group.log.saving = False
    await group.join("ann")
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    group.fleet.network.away = True
    while not all(held.lost for held in group.hands["ann"].worker.holdings):
        await group.fleet.turn(1.0)
    await group.fleet.turn(1.0)
    assert (group.log.owners, group.log.killed) == ({}, 0)


@above_the_store
@pytest.mark.parametrize("seed", [2, 3, 7])
def test_pumps_that_save_each_second_outlast_a_store_that_refuses_half_of_the_requests(
    seed: int, open_table: object
) -> None:
    @sharing(partitions=9)
    async def story(group: Group) -> None:
        await group.join("ann")
        await group.fleet.turn(INITIAL_DELAY + 2.0)
        network = group.fleet.network
        network.chance = random.Random(seed)
        network.delays, network.refusing = (0.01, 0.1), 0.5
        await group.fleet.turn(2 * LEASE, step=0.05)
        assert group.log.ended == [], "no lease is lost"

    story(open_table)


@above_the_store
@sharing()
async def test_a_worker_cut_off_is_replaced_and_gets_its_share_again(group: Group) -> None:
    cut = Network()
    await group.join("ann", "ben")
    await group.join("cleo", network=cut)
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    cut.away = True
    await group.fleet.turn(LEASE + 3 * ROUND)
    assert group.log.counts == [6, 6]
    cut.away = False
    await group.fleet.turn(5 * ROUND)
    assert group.log.counts == [4, 4, 4]


@sharing(partitions=3)
async def test_a_pump_that_fails_is_run_again_and_keeps_its_checkpoint(group: Group) -> None:
    await group.join("ann")
    await group.fleet.turn(INITIAL_DELAY + 10.0)
    group.log.failing = group.log.unlocked = True
    for one in names_of(3):
        await unlock(group.board, one, group.fleet.mark(), fence=1)
    await group.fleet.turn(3 * ROUND)
    assert (await group.item("0")).error.startswith("OSError: no such stream")
    group.log.failing = False
    await group.fleet.turn(120.0)
    assert group.log.counts == [3]


@sharing(partitions=3)
async def test_a_pump_that_returns_unasked_has_failed_and_begins_where_it_saved(
    group: Group,
) -> None:
    await group.join("ann")
    await group.fleet.turn(INITIAL_DELAY + 5.0)
    group.log.unasked = names_of(3)
    await group.fleet.turn(3.0)
    run = await anext(group.board.runs("1"))
    assert (run.outcome, run.error) == (Outcome.FAILED, UNASKED)
    group.log.unasked = ()
    await group.fleet.turn(60.0)
    assert group.log.counts == [3]
    assert (await group.item("1")).failures > 0


@above_the_store
@sharing(partitions=2)
async def test_a_pump_that_fails_after_it_went_on_for_a_minute_is_run_again_at_once_each_time(
    group: Group,
) -> None:
    await group.join("ann")
    await group.fleet.turn(INITIAL_DELAY + 5.0)
    for _ in range(8):
        await group.fleet.turn(60.0)
        began, group.log.unasked = len(group.log.began), names_of(2)
        await group.fleet.turn(1.0)
        assert group.log.counts == []
        group.log.unasked = ()
        await group.fleet.turn(ROUND)
        assert (group.log.counts, len(group.log.began)) == ([2], began + 2)


@above_the_store
@sharing(partitions=3)
async def test_a_pump_that_returns_because_its_lock_was_taken_away_has_not_ended_unasked(
    group: Group,
) -> None:
    await group.join("ann")
    await group.fleet.turn(INITIAL_DELAY + 5.0)
    group.log.unlocked = True
    await unlock(group.board, "1", group.fleet.mark(), fence=1)
    await group.fleet.turn(2 * ROUND)
    (run,) = [one async for one in group.board.runs("1") if one.fence == 1]
    assert (run.outcome, run.error) == (Outcome.SUPERSEDED, GONE)


@sharing(partitions=3)
async def test_a_partition_whose_pump_is_cancelled_is_due_at_once(group: Group) -> None:
    await group.join("ann")
    await group.fleet.turn(INITIAL_DELAY + 5.0)
    group.log.unlocked = True
    await cancel(group.board, "0", group.fleet.mark("stuck"), fence=1)
    assert (await group.item("0")).ready <= await group.board.table.now()
    await group.fleet.turn(2 * ROUND)
    assert set(group.log.owners) == {"0", "1", "2"}


@pytest.mark.of_each_store
@sharing(partitions=3)
async def test_people_pause_cancel_and_move_partitions_as_items(group: Group) -> None:
    await group.join("ann", "ben")
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    group.log.unlocked = True
    await cancel(group.board, "0", group.fleet.mark("stuck"), fence=1)
    await unlock(group.board, "1", group.fleet.mark(), fence=1)
    await edit(group.board, "1", lambda spec, _: spec, checkpoint="1000")
    await group.fleet.turn(2 * 60.0)
    assert set(group.log.owners) == {"0", "1", "2"}
    assert group.log.saved["1"] > 1000
    assert (await group.item("0")).fence > 1


@above_the_store
@pytest.mark.parametrize("balance", ["shares", "steal", "grab"])
def test_partitions_that_are_paused_stay_with_their_worker_until_they_are_resumed(
    balance: str, open_table: object
) -> None:
    @sharing(partitions=4, balance=balance)
    async def story(group: Group) -> None:
        await group.join("ann")
        await group.fleet.turn(2 * 60.0)
        for one in ("0", "1", "2"):
            await pause(group.board, one, group.fleet.mark("the stream is moved"))
        await group.join("ben")
        await group.fleet.turn(3 * 60.0)
        assert group.log.owners == {"0": "ann", "1": "ann", "2": "ann", "3": "ben"}
        for one in ("0", "1", "2"):
            await resume(group.board, one, group.fleet.mark())
        await group.fleet.turn(3 * 60.0)
        assert group.log.counts == [2, 2]

    story(open_table)


@above_the_store
@sharing(partitions=3)
async def test_the_row_of_a_worker_says_how_often_it_looks(group: Group) -> None:
    group.settings = Settings(types={GROUP: TypeTable(stale_after="1h")})
    await group.join("ann")
    await group.fleet.turn(2.0)
    (seen,) = await workers(group.board)
    assert seen.cycle == 1200.0


@sharing(partitions=60, lease="12s")
async def test_all_leases_of_a_worker_are_renewed_by_one_batch_a_time(group: Group) -> None:
    await group.join("ann")
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    assert group.log.counts == [60]
    group.log.saved.clear()
    before = group.hands["ann"].table.requests.commits
    await group.fleet.turn(40.0)
    saves = sum(group.log.saved[one] > 0 for one in names_of(60)) * 40 / SAVED_EVERY
    rounds = 40.0 / 4.0
    assert group.hands["ann"].table.requests.commits - before - saves <= 4 * rounds


@above_the_store
@pytest.mark.parametrize("balance", ["steal"])
def test_one_partition_moves_at_a_time_by_the_published_rule(
    balance: str, open_table: object
) -> None:
    @sharing(balance=balance)
    async def story(group: Group) -> None:
        await group.join("ann", "ben")
        await group.fleet.turn(INITIAL_DELAY + 2.0)
        await group.join("cleo")
        await group.fleet.turn(14 * ROUND)
        assert group.log.counts == [4, 4, 4]
        assert len(group.log.began) == 12 + 4
        for owner in ("ann", "ben"):
            ended = [moment for moment, _, worker in group.log.ended if worker == owner]
            assert all(later - one > ROUND - 2.0 for one, later in pairwise(ended)), ended

    story(open_table=open_table)


@sharing()
async def test_partitions_may_be_named_by_a_function_that_is_asked_at_the_start(
    group: Group,
) -> None:
    async def names(_: Mapping[str, object]) -> list[str]:
        return ["toronto", "davis"]

    assert group.handler.pump is not None
    group.hands.clear()
    group.handler = replace(group.handler, pump=replace(group.handler.pump, partitions=names))
    await group.join("ann")
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    assert set(group.log.owners) == {"toronto", "davis"}


@sharing()
async def test_a_worker_waits_for_names_that_cannot_be_given_at_the_start(group: Group) -> None:
    """A broker is away for a moment: items are run meanwhile, and partitions are served then."""
    failures = 2

    async def names(_: Mapping[str, object]) -> list[str]:
        nonlocal failures
        if failures:
            failures -= 1
            raise ConnectionError("no broker")
        return ["toronto", "davis"]

    assert group.handler.pump is not None
    group.hands.clear()
    group.handler = replace(group.handler, pump=replace(group.handler.pump, partitions=names))
    await group.join("ann")
    await group.fleet.turn(REFUSED.pause() + 1.0)
    assert group.log.owners == {}
    told = "the partitions of clicks cannot be named: ConnectionError: no broker"
    assert troubles(group, "ann") == [told], "once for both"
    await group.fleet.turn(REFUSED.pause() + INITIAL_DELAY + 2.0)
    assert set(group.log.owners) == {"toronto", "davis"}


@sharing()
async def test_what_is_no_name_is_left_out(group: Group) -> None:
    """As where a function names files."""
    odd = "x\udcff.log"

    async def names(_: Mapping[str, object]) -> list[str]:
        return ["toronto", odd, "", "toronto"]

    named_by(group, names)
    await group.join("ann")
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    assert set(group.log.owners) == {"toronto"}
    told = troubles(group, "ann")
    assert told == [f"2 partitions of clicks left out: 'x\\udcff.log' is no {A_NAME}"]


@sharing()
async def test_what_is_no_text_is_left_out_whatever_it_is_and_reported_once(group: Group) -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError("no words")

    async def names(_: Mapping[str, object]) -> list[Any]:
        return [Odd(), ["toronto"], "davis"]

    named_by(group, names)
    await group.join("ann")
    await group.fleet.turn(2 * NAMED_EVERY + ROUND)
    assert set(group.log.owners) == {"davis"}
    assert troubles(group, "ann") == [
        f"2 partitions of clicks left out: one of the type Odd is no {A_NAME}"
    ]


@above_the_store
@sharing()
async def test_a_name_that_is_too_long_for_an_item_keeps_no_other_from_being_served(
    group: Group,
) -> None:
    long = "x" * 40_000
    there = ["toronto", "davis"]

    async def names(_: Mapping[str, object]) -> list[str]:
        return there

    named_by(group, names)
    await group.join("ann")
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    there = ["toronto", long, "davis", "montclair"]
    await group.fleet.turn(NAMED_EVERY + 2 * ROUND)
    assert set(group.log.owners) == {"toronto", "davis", "montclair"}
    (told,) = troubles(group, "ann")
    assert told.startswith("1 partition of clicks left out: 'xxxx")
    assert told.endswith(f"xx' is no {A_NAME}")
    assert len(told) < 150


@above_the_store
@sharing()
async def test_a_store_that_fails_at_the_start_delays_no_group_until_its_names_are_due_again(
    group: Group,
) -> None:
    names, network = Names(), Network(away=True)
    named_by(group, names.function)
    await group.join("ann", network=network)
    await group.fleet.turn(2.0)
    network.away = False
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    assert set(group.log.owners) == {"toronto", "davis"}
    assert names.asked == 1


@above_the_store
@sharing()
async def test_a_worker_that_waited_for_names_is_not_late(group: Group) -> None:
    """It asked the store for nothing meanwhile."""

    async def names(_: Mapping[str, object]) -> list[str]:
        await group.fleet.clock.sleep(LEASE + 2 * ROUND)
        return ["toronto", "davis"]

    named_by(group, Names().function)
    await group.join("ann")
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    await group.hands["ann"].dies()
    named_by(group, names)
    await group.join("ben")
    await group.fleet.turn(LEASE + 2 * ROUND + INITIAL_DELAY + 2.0)
    assert set(group.log.owners.values()) == {"ben"}


def named_by(group: Group, names: Callable[..., Any]) -> None:
    """The workers that join from now on ask this function."""
    assert group.handler.pump is not None
    group.handler = replace(group.handler, pump=replace(group.handler.pump, partitions=names))


class Names:
    """A coroutine function that names two partitions; asked then, it does not answer."""

    def __init__(self, *hangs: int, deaf: bool = False) -> None:
        self.asked = 0
        self._hangs = hangs
        self.deaf = deaf
        """Whether it swallows its cancellations."""

    @property
    def function(self) -> Callable[..., Any]:
        async def names(_: Mapping[str, object]) -> list[str]:
            self.asked += 1
            while self.asked in self._hangs:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    if not self.deaf:
                        raise
            return ["toronto", "davis"]

        return names


LATE = (
    "the partitions of clicks cannot be named: their function has not answered within 60 s: it is "
    "asked again"
)


@pytest.mark.parametrize("deaf", [False, True])
def test_rounds_go_on_while_a_function_does_not_answer_which_is_reported_seldom(
    *, deaf: bool, open_table: object
) -> None:
    @sharing()
    async def story(group: Group) -> None:
        try:
            await told(group)
        finally:
            names.deaf = False

    async def told(group: Group) -> None:
        named_by(group, names.function)
        await group.join("ann")
        await group.fleet.turn(NAMED_EVERY + ROUND)
        assert (names.asked, troubles(group, "ann")) == (2, [])
        group.log.failing = True
        await unlock(group.board, "davis", group.fleet.mark(), fence=1)
        group.log.unlocked = True
        await group.fleet.turn(2 * ROUND)
        group.log.failing = False
        await group.fleet.turn(ANSWERED_WITHIN + ROUND)
        assert set(group.log.owners) == {"toronto", "davis"}
        assert troubles(group, "ann") == [LATE]
        assert names.asked == (2 if deaf else 3)
        await group.fleet.turn(AGAIN_AFTER + ROUND)
        assert troubles(group, "ann") == [LATE, LATE]
        await group.hands["ann"].stops()
        await group.fleet.turn(ROUND + DRAIN)
        assert group.hands["ann"].task.done()

    names = Names(*range(2, 100), deaf=deaf)
    story(open_table=open_table)


@above_the_store
@sharing()
async def test_a_function_that_does_not_answer_at_the_start_is_asked_again(group: Group) -> None:
    names = Names(1)
    named_by(group, names.function)
    await group.join("ann")
    await group.fleet.turn(ANSWERED_WITHIN - 1.0)
    assert troubles(group, "ann") == []
    await group.fleet.turn(INITIAL_DELAY + REFUSED.pause() + 2.0)
    assert (names.asked, troubles(group, "ann")) == (2, [LATE])
    assert set(group.log.owners) == {"toronto", "davis"}


@above_the_store
@sharing()
async def test_a_group_that_is_gone_is_made_of_the_names_that_are_known(group: Group) -> None:
    named_by(group, Names(*range(2, 100)).function)
    await group.join("ann")
    await group.fleet.turn(NAMED_EVERY + ROUND)
    for part in (meta_partition(group.board.name), f"{group.board.name}-workers", group.board.name):
        for row in [row async for row in group.board.table.scan(part)]:
            await group.board.table.commit(part, [Delete(row.key, ANY)])
    group.log.saved.clear()
    await group.fleet.turn(LEASE + 3 * ROUND)
    assert set(group.log.owners) == {"toronto", "davis"}


class Unspeakable(Exception):
    def __repr__(self) -> str:
        raise RuntimeError("no words")

    __str__ = __repr__


class Cancelled:
    """Awaited, it raises what a task raises that was cancelled."""

    def __await__(self) -> Any:
        task = asyncio.ensure_future(asyncio.Event().wait())
        task.cancel()
        return task.__await__()


async def cancelled(_: object) -> Any:
    return await Cancelled()


async def cancels_itself(_: object) -> Any:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def exits(_: object) -> Any:
    sys.exit("bye")


async def unspeakable(_: object) -> Any:
    raise Unspeakable


async def one_text(_: object) -> Any:
    return "abc"


async def bytes_of_text(_: object) -> Any:
    return b"abc"


async def nothing(_: object) -> Any: ...


async def names_of_an_item(_: object) -> Any:
    raise Missing("feed")


async def too_many(_: object) -> Any:
    return map(str, range(MOST_PARTITIONS + 1))


def names_without_end(_: object) -> Iterator[str]:
    """Where it is read on and on, the worker ends for want of memory; this test does not."""
    yield from map(str, range(2 * MOST_READ))
    raise AssertionError("it is read without an end")


async def awaited_names_without_end(_: object) -> Any:
    return names_without_end(_)


def test_names_without_an_end_are_not_read_on_in_a_thread_either() -> None:
    given = group_rows._found(names_without_end, {})
    assert len(given) == MOST_READ


@above_the_store
@pytest.mark.parametrize("at_start", [True, False])
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (cancelled, "CancelledError"),
        (cancels_itself, "CancelledError"),
        (exits, "SystemExit: bye"),
        (unspeakable, "Unspeakable: (its message raised RuntimeError)"),
        (one_text, "TypeError: 'abc' is one text, not a list of names"),
        (bytes_of_text, "TypeError: b'abc' is one text, not a list of names"),
        (nothing, "TypeError: 'NoneType' object is not iterable"),
        (names_of_an_item, "Missing: id: no item 'feed' on this board"),
        (too_many, "BadInput: pump 'clicks': 1,001 partitions"),
        (awaited_names_without_end, "BadInput: pump 'clicks': 100,000 partitions"),
    ],
)
def test_whatever_a_function_gives_instead_of_names_ends_no_worker_and_names_the_pump(
    function: Callable[..., Any], words: str, *, at_start: bool, open_table: object
) -> None:
    @sharing()
    async def story(group: Group) -> None:
        asked = 0

        async def names(settings: Mapping[str, object]) -> Any:
            nonlocal asked
            asked += 1
            return await function(settings) if (asked == 1) is at_start else ["toronto", "davis"]

        named_by(group, names)
        await group.join("ann")
        await group.fleet.turn(NAMED_EVERY + 2 * ROUND)
        assert set(group.log.owners) == {"toronto", "davis"}
        (told,) = troubles(group, "ann")
        assert told.startswith(f"the partitions of clicks cannot be named: {words}")

    story(open_table=open_table)


@sharing()
async def test_a_worker_stops_also_while_a_function_is_asked_for_names(group: Group) -> None:
    async def names(_: Mapping[str, object]) -> list[str]:
        await asyncio.Event().wait()
        return []

    assert group.handler.pump is not None
    group.hands.clear()
    group.handler = replace(group.handler, pump=replace(group.handler.pump, partitions=names))
    await group.join("ann")
    await group.fleet.turn(INITIAL_DELAY)
    group.hands["ann"].worker.stop()
    await group.fleet.turn(1.0)
    assert group.hands["ann"].task.done()


@sharing()
async def test_names_that_were_not_given_before_the_stop_change_no_row_of_the_group(
    group: Group,
) -> None:
    asked = 0

    async def names(_: Mapping[str, object]) -> list[str]:
        nonlocal asked
        asked += 1
        if asked > 1:
            await asyncio.Event().wait()
        return ["toronto", "davis"]

    assert group.handler.pump is not None
    group.hands.clear()
    group.handler = replace(group.handler, pump=replace(group.handler.pump, partitions=names))
    await group.join("ann")
    await group.fleet.turn(NAMED_EVERY + ROUND)
    assert asked == 2
    await group.hands["ann"].stops()
    await group.fleet.turn(ROUND + DRAIN)
    assert group.hands["ann"].task.done()
    assert {one.id async for one in group.board.items()} == {"toronto", "davis"}


@sharing(partitions=3)
async def test_a_partition_whose_settings_cannot_be_computed_is_reported_once_and_left(
    group: Group,
) -> None:
    await group.join("ann")
    await group.fleet.turn(1.0)
    item = await group.item("1")
    broken = Merge(next_key(item.ready, "1"), {"spec": '{"every":"soon"}'}, ANY)
    await group.board.table.commit(group.board.shard(0), [broken])
    await group.fleet.turn(INITIAL_DELAY + 5 * ROUND)
    assert sorted(group.log.owners) == ["0", "2"]
    told = [one for one in group.hands["ann"].told if isinstance(one, ItemLeftAlone)]
    assert [one.id for one in told] == ["1"]
    whole = Merge(next_key(item.ready, "1"), {"spec": "{}"}, ANY)
    await group.board.table.commit(group.board.shard(0), [whole])
    await group.fleet.turn(2 * ROUND)
    assert sorted(group.log.owners) == ["0", "1", "2"]


@above_the_store
@sharing(partitions=3)
async def test_a_second_token_of_a_partition_ends_no_worker(group: Group) -> None:
    await ensure(group.board, names_of(3), GROUP)
    ready = (await group.item("1")).ready
    before = ready - timedelta(seconds=1)
    row = await read(group.board.table, group.board.shard(0), next_key(ready, "1"))
    assert row is not None
    second = Insert(next_key(before, "1"), {**row.data, "ready": before})
    await group.board.table.commit(group.board.shard(0), [second])
    await group.join("ann")
    await group.fleet.turn(INITIAL_DELAY + 3 * ROUND)
    assert group.log.counts == [3]
    await mended(group, next_key(ready, "1"), {})


async def let_go_in_the_future(group: Group) -> None:
    """Two workers stop while the clock is an hour ahead; it is set right, and another one comes."""
    for one in ("ann", "ben"):
        await group.hands[one].stops()
    await group.fleet.turn(LEASE)
    assert group.log.counts == []
    group.fleet.clock.jump(-3600.0)
    (leases,) = await read_groups(group.fleet.board)
    assert not leases.is_well
    assert {alarm.kind for alarm in alarms_of_group(leases)} == {"clock"}
    group.log.failing, group.log.unasked = False, ()
    await group.join("cleo")
    await group.fleet.turn(LEASE + 2.0)
    assert group.log.counts == [12]
    (leases,) = await read_groups(group.fleet.board)
    assert leases.is_well


@sharing()
async def test_partitions_let_go_while_a_clock_was_ahead_are_taken_when_it_is_right(
    group: Group,
) -> None:
    await group.join("ann", "ben")
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    group.fleet.clock.jump(3600.0)
    await group.fleet.turn(3 * ROUND)
    await let_go_in_the_future(group)


@above_the_store
@sharing()
async def test_they_are_planned_anew_in_the_order_in_which_they_were_read(group: Group) -> None:
    asked: list[str] = []

    async def noted(board: BoardTable, name: str) -> Any:
        asked.append(name)
        return await bring_back(board, name)

    await group.join("ann", "ben")
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    group.fleet.clock.jump(3600.0)
    await group.fleet.turn(3 * ROUND)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partitions, "bring_back", noted)
        await let_go_in_the_future(group)
    assert asked == list(names_of(12))


@sharing(partitions=3)
async def test_one_that_cannot_be_read_then_is_reported_and_holds_up_no_other(group: Group) -> None:
    await group.join("ann")
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    group.fleet.clock.jump(3600.0)
    await group.fleet.turn(3 * ROUND)
    await group.hands["ann"].stops()
    await group.fleet.turn(LEASE)
    group.fleet.clock.jump(-3600.0)
    harm = Merge(item_key("1"), {"version": 99}, ANY)
    await group.board.table.commit(group.board.shard(0), [harm])
    await group.join("ben")
    await group.fleet.turn(LEASE + 2.0)
    assert sorted(group.log.owners) == ["0", "2"]
    told = [one for one in group.hands["ben"].told if isinstance(one, ItemLeftAlone)]
    assert [one.id for one in told] == ["1"]
    whole = Merge(item_key("1"), {"version": 1}, ANY)
    await group.board.table.commit(group.board.shard(0), [whole])
    await group.fleet.turn(1.0)


@pytest.mark.of_each_store
@sharing()
async def test_so_are_those_whose_pumps_failed_meanwhile(group: Group) -> None:
    await group.join("ann", "ben")
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    group.fleet.clock.jump(3600.0)
    group.log.failing, group.log.unasked = True, names_of(12)
    await group.fleet.turn(3 * ROUND)
    await let_go_in_the_future(group)


def troubles(group: Group, owner: str) -> list[str]:
    return [one.message for one in group.hands[owner].told if isinstance(one, GroupTrouble)]


async def harmed(group: Group, key: str, row: str = "", **columns: Any) -> Mapping[str, Any]:
    """Write over columns of a row of the group; without any, over all of it. What it was before."""
    board = group.board
    partition = row or board.shard(0)
    found = await read(board.table, partition, key)
    before = {} if found is None else dict(found.data)
    data: dict[str, Any] = {**before, **columns} if columns else {}
    write = Insert(key, data) if found is None else Replace(key, data, ANY)
    await board.table.commit(partition, [write])
    return before


async def mended(group: Group, key: str, before: Mapping[str, Any], row: str = "") -> None:
    write = Replace(key, before, ANY) if before else Delete(key, ANY)
    await group.board.table.commit(row or group.board.shard(0), [write])


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({}, "the row board in town.clicks-meta has no good shards"),
        ({"shards": 2}, "the row board in town.clicks-meta says 2 shards"),
        ({"version": 2}, "a newer version wrote the row board in town.clicks-meta"),
        ({"version": 2.0}, "a newer version wrote the row board in town.clicks-meta"),
    ],
)
def test_a_group_whose_own_row_is_damaged_is_named_and_served_once_that_is_mended(
    columns: dict[str, Any], words: str, open_table: object
) -> None:
    @sharing()
    async def story(group: Group) -> None:
        await group.board.make()
        meta = meta_partition(group.board.name)
        before = await harmed(group, BOARD_KEY, meta, **columns)
        await group.join("ann")
        await group.fleet.turn(INITIAL_DELAY + 2 * REFUSED.pause())
        assert group.log.owners == {}
        assert not group.hands["ann"].task.done()
        assert words in troubles(group, "ann")[-1]
        await mended(group, BOARD_KEY, before, meta)
        await group.fleet.turn(REFUSED.pause() + INITIAL_DELAY + 2.0)
        assert group.log.counts == [12]

    story(open_table=open_table)


@above_the_store
@sharing()
async def test_what_keeps_a_group_from_being_made_is_reported_each_hour(
    group: Group,
) -> None:
    await group.board.make()
    meta = meta_partition(group.board.name)
    before = await harmed(group, BOARD_KEY, meta, shards=2)
    await group.join("ann")
    await group.fleet.turn(AGAIN_AFTER - ROUND)
    (told,) = troubles(group, "ann")
    await group.fleet.turn(2 * ROUND)
    assert troubles(group, "ann") == [told, told]
    await mended(group, BOARD_KEY, before, meta)


@above_the_store
@sharing()
async def test_what_keeps_a_group_from_being_served_is_reported_once_while_it_lasts(
    group: Group,
) -> None:
    async def changed(*_: object) -> Any:
        raise Conflict(0, ConflictKind.CHANGED)

    await group.join("ann")
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    for times in (1, 2):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(partitions, "announce", changed)
            await group.fleet.turn(AGAIN_AFTER / 2)
        assert len(troubles(group, "ann")) == times
        assert "a row in town.clicks is in the way" in troubles(group, "ann")[-1]
        await group.fleet.turn(2 * REFUSED.pause())
    assert group.log.counts == [12]


@sharing()
async def test_a_board_row_that_is_deleted_is_made_anew(group: Group) -> None:
    """As the message of its damage says."""
    await group.board.make()
    meta = meta_partition(group.board.name)
    await harmed(group, BOARD_KEY, meta)
    await group.join("ann")
    await group.fleet.turn(2.0)
    assert "delete it: it is made anew" in troubles(group, "ann")[-1]
    await mended(group, BOARD_KEY, {}, meta)
    await group.fleet.turn(REFUSED.pause() + INITIAL_DELAY + 2.0)
    assert group.log.counts == [12]


@pytest.mark.of_each_store
@sharing()
async def test_a_partition_whose_row_cannot_be_read_keeps_no_other_from_being_served(
    group: Group,
) -> None:
    await group.join("ann")
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    await group.hands["ann"].dies()
    before = await harmed(group, item_key("01"), slot="zz")
    await group.join("ben")
    await group.fleet.turn(INITIAL_DELAY + LEASE + 2 * ROUND)
    held = {one for one, owner in group.log.owners.items() if owner == "ben"}
    assert held == set(names_of(12)) - {"01"}
    (said,) = troubles(group, "ben")
    assert "the row item:01 in town.clicks cannot be read" in said
    assert "`blackboard --board town.clicks doctor`" in said
    await mended(group, item_key("01"), before)
    await group.fleet.turn(NAMED_EVERY + LEASE + 2 * ROUND)
    assert set(group.log.owners) == set(names_of(12))
    assert len(troubles(group, "ben")) == 1


@sharing()
async def test_a_tombstone_of_a_newer_version_keeps_no_other_partition_from_being_served(
    group: Group,
) -> None:
    await ensure(group.board, names_of(12), GROUP)
    await remove(group.board, "01")
    before = await harmed(group, item_key("01"), version=2)
    await group.join("ann")
    await group.fleet.turn(INITIAL_DELAY + 2 * ROUND)
    assert set(group.log.owners) == set(names_of(12)) - {"01"}
    (said,) = troubles(group, "ann")
    assert "a newer version wrote the row item:01 in town.clicks" in said
    await mended(group, item_key("01"), before)


@sharing()
async def test_a_floor_that_is_damaged_keeps_no_partition_that_is_there_from_being_served(
    group: Group,
) -> None:
    await ensure(group.board, names_of(12)[:6], GROUP)
    meta = meta_partition(group.board.name)
    await harmed(group, FLOOR_KEY, meta, fence=-1)
    await group.join("ann")
    await group.fleet.turn(INITIAL_DELAY + 2 * ROUND)
    assert set(group.log.owners) == set(names_of(12)[:6])
    (said,) = troubles(group, "ann")
    assert "row floor of the board town.clicks: no good fence" in said
    await mended(group, FLOOR_KEY, {"fence": 0}, meta)
    await group.fleet.turn(NAMED_EVERY + 2 * ROUND)
    assert set(group.log.owners) >= set(names_of(12))


@above_the_store
@sharing()
async def test_partitions_that_the_store_refuses_keep_none_that_is_there_from_being_served(
    group: Group,
) -> None:
    async def refusing(*_: object) -> Any:
        raise Refused(0, "a bad row")

    await ensure(group.board, names_of(12)[:6], GROUP)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_rows, "ensure", refusing)
        await group.join("ann")
        await group.fleet.turn(INITIAL_DELAY + 2 * ROUND)
    assert set(group.log.owners) == set(names_of(12)[:6])
    (said,) = troubles(group, "ann")
    assert said == "the partitions of clicks cannot be made: operation 0: a bad row"
    await group.fleet.turn(NAMED_EVERY + 2 * ROUND)
    assert set(group.log.owners) == set(names_of(12))


@above_the_store
@sharing()
async def test_a_worker_that_works_goes_on_when_its_group_cannot_be_named_or_made(
    group: Group,
) -> None:
    async def names(_: Mapping[str, object]) -> tuple[str, ...]:
        return names_of(12)

    named_by(group, names)
    await group.join("ann")
    await group.fleet.turn(INITIAL_DELAY + 2.0)
    meta = meta_partition(group.board.name)
    for columns in ({}, {"shards": 2}, {"version": 2}):
        before = await harmed(group, BOARD_KEY, meta, **columns)
        await group.fleet.turn(NAMED_EVERY + ROUND)
        assert "the row board in town.clicks-meta" in troubles(group, "ann")[-1]
        assert group.log.counts == [12]
        await mended(group, BOARD_KEY, before, meta)
    assert len(group.log.began) == 12, "nothing has moved"


@pytest.mark.of_each_store
@pytest.mark.parametrize(
    ("columns", "after"),
    [({}, (LEASE, 1)), ({"kind": 7}, (LEASE, 1)), ({"version": 2}, (1e300, 2))],
)
def test_a_group_row_that_is_damaged_is_written_anew_and_one_of_a_newer_version_is_left(
    columns: dict[str, Any], after: tuple[float, int], open_table: object
) -> None:
    @sharing()
    async def story(group: Group) -> None:
        key, meta = group_key(GROUP), meta_partition("town")
        about: dict[str, Value] = {
            "version": 1,
            "kind": "pump",
            "partitions": 3,
            "lease": 1e300,
            "note": "x",
        }
        await group.board.table.commit(meta, [Insert(key, about)])
        await harmed(group, key, meta, **columns)
        await group.join("ann")
        await group.fleet.turn(INITIAL_DELAY + 2.0)
        assert group.log.counts == [12]
        row = await read(group.board.table, meta, key)
        assert row is not None
        assert (row.data.get("lease"), row.data.get("version")) == after

    story(open_table=open_table)
