"""What a walk takes, in which order, and what it leaves alone."""

import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from blackboard.events import (
    ItemLeftAlone,
    LockAdopted,
    LockOverridden,
    RunEnded,
    SlotPutOff,
    SlotSkipped,
    StoreEvent,
    Walked,
)
from blackboard.model import Lock, Mark, Token
from blackboard.protocol import edits, keys
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import Claim, override
from blackboard.table import Delete, Insert, Merge
from blackboard.worker import missed_slots
from blackboard.worker.peers import FIRST, HEAD_START, LONGEST
from blackboard.worker.worker import Mode
from tests.support.faults import Fault
from tests.support.workers import WorkerScene, Workplace, beside_a_stray_token, until, with_workers
from tests.support.wrong_rows import break_rules

pytestmark = pytest.mark.of_one_store("a worker is the same above any store")


async def abandoned(place: Workplace, item_id: str = "davis", **said: str) -> Claim:
    """An item whose worker is not heard of any more: its lock is stale."""
    await place.add(item_id, every="1h", stale_after="3s", **said)
    made = await place.claimed(item_id, board=place.other, owner="dead")
    place.later(seconds=4)
    return made


async def spoil(place: Workplace, item_id: str, spec: str) -> None:
    """Write what no settings can be computed from, as a newer program might."""
    token = await place.token(item_id)
    partition = place.other.partition(item_id)
    rows = [keys.item_key(item_id), keys.next_key(token.ready, item_id)]
    await place.table.table.commit(partition, [Merge(row, {"spec": spec}, "*") for row in rows])


# ---- what is read


@with_workers
async def test_a_token_that_is_read_twice_is_claimed_once(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scan is not a snapshot: a row that moves meanwhile may be seen in both places."""
    honest = BoardTable.read_shard

    async def twice(
        board: BoardTable, shard: int, **how: Any
    ) -> AsyncIterator[Lock | Token | Mark]:
        async for found in honest(board, shard, **how):
            yield found
            yield found

    monkeypatch.setattr(BoardTable, "read_shard", twice)
    await place.add("davis")
    await place.add("elko")
    worker = await place.worker()
    for item_id in ("davis", "elko"):
        (await worker.run(item_id)).end()
        assert await place.ended(item_id) == [(1, "ok")]


# ---- slots


@with_workers
async def test_free_slots_are_filled_most_overdue_first(place: Workplace) -> None:
    for item_id in ("z", "m", "a"):
        await place.add(item_id)
        place.later(seconds=1)
    worker = await place.worker(slots=2)
    await worker.run("m")
    assert worker.order == ["z", "m"]
    (await worker.run("z")).end()
    await worker.run("a")
    assert worker.order == ["z", "m", "a"]


@with_workers
async def test_most_overdue_counts_over_all_shards(place: Workplace, shards: int) -> None:
    ids = [f"item-{n}" for n in range(12)]
    for item_id in ids:
        await place.add(item_id)
        place.later(seconds=1)
    assert len({place.board.partition(item_id) for item_id in ids}) == shards
    worker = await place.worker(slots=5)
    await until(lambda: len(worker.order) == 5, "five runs")
    assert set(worker.order) == set(ids[:5])


test_most_overdue_counts_over_all_shards = pytest.mark.parametrize("shards", [3])(
    test_most_overdue_counts_over_all_shards
)


@with_workers
async def test_a_type_has_no_more_than_its_slots(place: Workplace) -> None:
    """Nor does it keep the others waiting."""
    for item_id in ("rare-1", "rare-2", "rare-3"):
        await place.add(item_id, item_type="rare")
    place.later(seconds=1)
    for item_id in ("feed-1", "feed-2"):
        await place.add(item_id)
    worker = await place.worker(slots=4)
    await worker.run("feed-2")
    assert worker.order == ["rare-1", "feed-1", "feed-2"]
    (await worker.run("rare-1")).end()
    await worker.run("rare-2")
    assert len(worker.order) == 4


@with_workers
async def test_a_type_has_no_more_than_its_slots_of_what_is_taken_over(place: Workplace) -> None:
    for item_id in ("rare-1", "rare-2", "rare-3"):
        await abandoned(place, item_id, item_type="rare")
    worker = await place.worker(slots=4)
    await until(lambda: worker.order, "a run")
    await worker.walk()
    (first,) = worker.order
    (await worker.run(first)).end()
    await until(lambda: len(worker.order) == 2, "the next")
    await worker.walk()
    assert len(worker.order) == 2
    assert [event.run.outcome for event in worker.of(RunEnded)] == ["ok"], "none is put back"


@with_workers
async def test_a_full_type_is_no_reason_to_walk_all_the_time(place: Workplace) -> None:
    for item_id in ("rare-1", "rare-2"):
        await place.add(item_id, item_type="rare")
    worker = await place.worker(slots=4)
    await worker.run("rare-1")
    assert worker.wake.wishes == []


@with_workers
async def test_a_release_is_a_reason_to_walk_only_when_more_is_due(place: Workplace) -> None:
    await place.add("davis")
    worker = await place.worker()
    (await worker.run("davis")).end()
    await place.ended("davis")
    await worker.tells(RunEnded)
    assert not worker.wake._event.is_set()
    assert worker.wake.rounds == 1


# ---- what is left alone


@with_workers
async def test_unknown_types_are_left_alone_and_block_nobody(place: Workplace) -> None:
    for n in range(5):
        await place.add(f"strange-{n}", item_type="strange")
    await place.add("davis")
    worker = await place.worker(slots=1)
    await worker.run("davis")
    assert {token.id for token in await place.tokens()} == {f"strange-{n}" for n in range(5)}


@pytest.mark.cases_of_one_store("settings are computed above the store")
@pytest.mark.parametrize("spec", ['{"cron":"61 * * * *"}', '{"retries":"many"}', "{", "[]"])
def test_settings_that_cannot_be_computed_are_left_alone(spec: str, open_table: object) -> None:
    """And told once, not with every walk."""

    @with_workers
    async def story(place: Workplace) -> None:
        await place.add("odd")
        await place.add("davis")
        await spoil(place, "odd", spec)
        worker = await place.worker(slots=1)
        (await worker.run("davis")).end()
        for _ in range(2):
            await worker.walk()
        (left,) = worker.of(ItemLeftAlone)
        assert left.id == "odd"
        assert (await place.token("odd")).fence == 0

    story(open_table=open_table)


@pytest.mark.cases_of_one_store("schedules are computed above the store")
def test_a_schedule_that_cannot_be_computed_ends_no_worker(
    open_table: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    @with_workers
    async def story(place: Workplace) -> None:
        await place.add("runs", rrule="FREQ=WEEKLY;BYHOUR=4")
        place.later(seconds=60)
        await place.add("davis")
        worker = await place.worker(slots=1)
        ran = await worker.run("runs")
        break_rules(monkeypatch)
        ran.end()
        (await worker.run("davis")).end()
        await place.ended("davis")

    story(open_table=open_table)


@pytest.mark.cases_of_one_store("schedules are computed above the store")
def test_items_whose_schedules_cannot_be_computed_cost_no_requests(
    open_table: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    @with_workers
    async def story(place: Workplace) -> None:
        for number in range(30):
            await place.add(f"odd-{number}", rrule="FREQ=DAILY", stale_after="1m")
        break_rules(monkeypatch)
        worker = await place.worker(Mode.ONCE, at_once=True)
        await worker.ended()
        odd = worker.of(ItemLeftAlone)
        assert sorted(one.id for one in odd) == sorted(f"odd-{number}" for number in range(30))
        assert "'rrule FREQ=DAILY' cannot be computed: IndexError" in odd[0].message
        assert sum(one.requests["total"] for one in worker.of(Walked)) < 30

    story(open_table=open_table)


@with_workers
async def test_tokens_of_a_newer_version_are_left_alone(place: Workplace) -> None:
    await place.add("newer")
    token = await place.token("newer")
    row = keys.next_key(token.ready, "newer")
    await place.table.table.commit(
        place.other.partition("newer"), [Merge(row, {"version": 99}, "*")]
    )
    await place.add("davis")
    worker = await place.worker()
    await worker.run("davis")
    assert worker.order == ["davis"]
    await place.table.table.commit(
        place.other.partition("newer"), [Merge(row, {"version": 1}, "*")]
    )


@with_workers
async def test_missed_slots_that_are_not_wanted_are_passed_over(place: Workplace) -> None:
    await place.add("davis", cron="0 * * * *", missed="none")
    worker = await place.worker()
    (await worker.run("davis")).end()
    await place.ended("davis")
    place.later(hours=1, minutes=30)
    await worker.walk()
    (skipped,) = worker.of(SlotSkipped)
    assert skipped.id == "davis"
    assert (await place.token()).ready > place.clock.now()
    assert worker.order == ["davis"]


@with_workers
async def test_what_is_due_does_not_wait_for_missed_slots_to_be_passed_over(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an outage there may be thousands: some are passed over after each claim."""
    most, many = 3, 8
    monkeypatch.setattr(missed_slots, "PASSED_OVER", most)
    for number in range(many):
        await place.add(f"hourly-{number}", cron="0 * * * *", missed="none", missed_after="5m")
    place.later(minutes=30)
    await place.add("davis")
    place.table.batches.clear()
    worker = await place.worker()
    await worker.run("davis")
    first = [op.key for op in place.table.batches[0]]
    assert first[1:] == [keys.lock_key("davis"), keys.item_key("davis")]
    assert len(worker.of(SlotSkipped)) == most
    assert worker.wake.wishes[-1] < 1.0, "for the rest"
    for _ in range(2):
        place.later(seconds=1)
        await worker.looks_again()
    assert sorted(one.id for one in worker.of(SlotSkipped)) == [
        f"hourly-{number}" for number in range(many)
    ]
    assert sum(one.missed for one in worker.of(Walked)) == many
    assert worker.order == ["davis"]


@with_workers
async def test_of_many_missed_slots_more_are_passed_over_during_a_long_backlog(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shard is read from its beginning for them, and not on."""
    monkeypatch.setattr(missed_slots, "PASSED_OVER", 5)
    for number in range(30):
        await place.add(f"hourly-{number}", cron="0 * * * *", missed="none", missed_after="5m")
    place.later(minutes=20)
    await place.fill(600)
    place.later(seconds=1)
    worker = await place.worker(slots=4, at_once=True, cycle=timedelta(hours=1))
    await until(lambda: len(worker.order) >= 500, "most of the backlog has run")
    assert len(worker.of(SlotSkipped)) == 30


@with_workers
async def test_of_many_missed_slots_a_worker_passes_over_those_first_that_it_is_to_take_first(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So other workers, who do the same, pass over others."""
    monkeypatch.setattr(missed_slots, "PASSED_OVER", 5)
    for number in range(40):
        await place.add(f"hourly-{number}", cron="0 * * * *", missed="none", missed_after="5m")
    place.later(minutes=30)
    worker = await place.worker()
    peers = worker.worker.walk.peers
    peers.met({one: ["feed"] for one in ("ben", "cleo")})
    own = {one.id for one in await place.tokens() if peers.turn(one) == FIRST}
    worker.told.clear()
    await worker.looks_again()
    passed = [one.id for one in worker.of(SlotSkipped)]
    assert len(passed) == 5
    assert set(passed) <= own


@with_workers
async def test_a_slot_that_a_blackout_puts_off_runs_once_when_that_ends(place: Workplace) -> None:
    await place.add("davis", cron="0 9 * * *", blackout="10:00-12:00")
    place.later(hours=1)
    worker = await place.worker()
    await worker.walk()
    (waits,) = worker.of(SlotPutOff)
    assert (waits.id, waits.until) == ("davis", place.clock.now() + timedelta(hours=2))
    await worker.walk()
    assert worker.order == []
    place.later(hours=2)
    await worker.walk()
    (await worker.run("davis")).end()
    await place.ended("davis")
    assert worker.order == ["davis"]
    assert len(worker.of(SlotPutOff)) == 1


@pytest.mark.of_each_store
@with_workers
async def test_a_missed_slot_that_cannot_be_passed_over_is_no_reason_to_look_all_the_time(
    place: Workplace,
) -> None:
    """A token beside the one that its item has waits for the next look."""
    async with beside_a_stray_token(place):
        worker = await place.worker()
        worker.wake.wishes.clear()
        await worker.looks_again()
        worker.wake.wishes.clear()
        await worker.looks_again()
        assert all(wish > 1 for wish in worker.wake.wishes)


# ---- races


@with_workers
async def test_after_a_lost_race_what_is_left_is_claimed(place: Workplace) -> None:
    for item_id, item_type in (("a", "plain"), ("b", "feed"), ("c", "feed")):
        await place.add(item_id, item_type=item_type)
        place.later(seconds=1)

    async def another_is_faster() -> None:
        await place.claimed("a", board=place.other, owner="another")

    place.table.script(another_is_faster)
    worker = await place.worker(slots=2)
    await worker.run("c")
    assert worker.order == ["b", "c"]
    assert (await worker.tells(Walked)).lost == 1


@with_workers
async def test_when_others_are_faster_the_next_walk_is_soon(place: Workplace) -> None:
    ids = await place.fill(40)
    place.later(seconds=1)

    async def another_is_faster() -> None:
        tried = place.table.batches[-1][0].key.rpartition(":")[2]
        ids.remove(tried)
        await place.claimed(tried, board=place.other, owner="another")

    place.table.script(*[another_is_faster] * 8)
    worker = await place.worker(slots=1)
    assert worker.order == []
    assert any(wish < 1 for wish in worker.wake.wishes)
    await worker.walk()
    assert worker.order[0] in ids


@with_workers
async def test_free_slots_soon_take_what_the_first_worker_does_not_take(place: Workplace) -> None:
    await place.add("long")
    await place.claimed("long", board=place.other, owner="another")
    ids = await place.fill(20)
    worker = await place.worker(slots=20, cycle=timedelta(hours=1))
    own = set(worker.order)
    assert 0 < len(own) < 20
    assert worker.wake.wishes[-1] < 1
    place.later(seconds=LONGEST.total_seconds())
    await worker.looks_again()
    assert set(worker.order) == set(ids)


@with_workers
async def test_others_that_have_been_ready_for_a_while_are_claimed_soon_after_its_own(
    place: Workplace,
) -> None:
    await place.add("long")
    await place.claimed("long", board=place.other, owner="another")
    ids = await place.fill(20)
    place.later(minutes=1)
    worker = await place.worker(slots=20, cycle=timedelta(hours=1))
    assert 0 < len(worker.order) < 20
    assert worker.wake.wishes[-1] <= HEAD_START.total_seconds()
    place.later(seconds=HEAD_START.total_seconds())
    await worker.looks_again()
    assert set(worker.order) == set(ids)


@pytest.mark.case("CR02")
@with_workers
async def test_a_token_without_its_item_goes_and_the_rest_is_claimed(place: Workplace) -> None:
    await place.add("orphan")
    place.later(seconds=1)
    await place.add("davis")
    partition, token = place.other.partition("orphan"), await place.token("orphan")
    await place.table.table.commit(partition, [Delete(keys.item_key("orphan"), "*")])
    worker = await place.worker()
    await worker.run("davis")
    assert [token.id for token in await place.tokens()] == []
    assert token.id not in worker.order


@with_workers
async def test_a_token_beside_a_lock_is_left_and_the_rest_is_claimed(place: Workplace) -> None:
    """It is no race, so there is no hurry to try it again."""
    await place.add("double", item_type="plain")
    token = await place.token("double")
    row = next(row for row in await place.rows("next:") if row.data["item"] == "double")
    await place.claimed("double", board=place.other, owner="another")
    place.later(seconds=1)
    await place.add("davis")
    partition = place.other.partition("double")
    await place.table.table.commit(partition, [Insert(row.key, row.data)])
    worker = await place.worker()
    await worker.run("davis")
    place.later(seconds=LONGEST.total_seconds())
    await worker.looks_again()  # now it is this worker's turn
    worker.wake.wishes.clear()
    await worker.looks_again()
    assert worker.order == ["davis"]
    assert all(wish > 1 for wish in worker.wake.wishes)
    await place.table.table.commit(partition, [Delete(keys.next_key(token.ready, "double"), "*")])


@with_workers
async def test_a_token_that_fits_no_item_hides_none_that_was_written_with_it(
    place: Workplace,
) -> None:
    """Rows of one batch may have the same etag."""
    orphan, *others = await place.fill(3)
    await place.other.delete(orphan, keys.item_key(orphan), "*")
    worker = await place.worker()
    for item_id in others:
        await worker.run(item_id)


# ---- locks


@pytest.mark.case("LR09", "L2")
@with_workers
async def test_a_claim_that_landed_late_is_adopted(place: Workplace) -> None:
    await place.add("davis")
    place.table.script(Fault.LATE)
    worker = await place.worker()
    assert worker.order == []
    assert await place.table.land() == [True]
    await worker.walk()
    (await worker.run("davis")).end()
    assert await place.ended("davis") == [(1, "ok")]
    assert len(worker.of(LockAdopted)) == 1


@with_workers
async def test_locks_of_runs_under_way_are_not_adopted(place: Workplace) -> None:
    await place.add("davis")
    worker = await place.worker()
    await worker.run("davis")
    await worker.walk()
    assert worker.order == ["davis"]
    assert worker.of(LockAdopted) == []


@with_workers
async def test_an_adopted_lock_with_settings_nobody_knows_is_left(place: Workplace) -> None:
    await place.add("odd", every="1h", stale_after="3s")
    await place.claimed("odd", owner="me")
    row = keys.item_key("odd")
    await place.table.table.commit(place.other.partition("odd"), [Merge(row, {"spec": "{"}, "*")])
    before = await place.lock("odd")
    worker = await place.worker()
    await worker.walk()
    assert worker.order == []
    assert len(worker.of(ItemLeftAlone)) == 1
    assert (await place.lock("odd")).etag == before.etag


@with_workers
async def test_a_stale_lock_is_overridden_in_a_free_slot(place: Workplace) -> None:
    await abandoned(place)
    worker = await place.worker(slots=1)
    run = await worker.run("davis")
    assert (run.call.fence, run.call.attempt) == (2, 2)
    run.end()
    assert await place.ended("davis", runs=2) == [(1, "abandoned"), (2, "ok")]
    (event,) = worker.of(LockOverridden)
    assert "dead" in event.message


@with_workers
async def test_without_a_free_slot_a_stale_lock_waits_for_one(place: Workplace) -> None:
    await place.add("long")
    worker = await place.worker(slots=1)
    run = await worker.run("long")
    await abandoned(place)
    await worker.walk()
    assert await place.outcomes("davis") == []
    run.end()
    await worker.run("davis")


@with_workers
async def test_an_override_takes_its_slot_before_the_tokens_do(place: Workplace) -> None:
    await place.add("waiting")
    await abandoned(place)
    worker = await place.worker(slots=1)
    await worker.run("davis")
    assert worker.order == ["davis"]


@with_workers
async def test_a_fresh_lock_of_another_is_left_alone(place: Workplace) -> None:
    await place.add("davis", every="1h", stale_after="3s")
    await place.claimed("davis", board=place.other, owner="another")
    place.later(seconds=3)
    worker = await place.worker()
    assert worker.order == []
    assert await place.outcomes() == []


@with_workers
async def test_an_override_lost_to_another_is_no_claim(place: Workplace) -> None:
    await abandoned(place)

    async def another_is_faster() -> None:
        assert await override(place.other, await place.lock(), owner="another") is not None

    place.table.script(another_is_faster)
    worker = await place.worker()
    assert worker.order == []
    assert worker.of(LockOverridden) == []
    assert [one.freed for one in worker.of(Walked)] == [()]


@with_workers
async def test_a_walk_reports_the_locks_that_it_has_freed(place: Workplace) -> None:
    made = await abandoned(place)
    await edits.pause(place.other, "davis", place.mark())
    worker = await place.worker()
    assert [(one.id, one.fence) for one in worker.of(Walked)[0].freed] == [("davis", made.fence)]


@with_workers
async def test_what_a_walk_has_freed_is_reported_by_the_next_if_it_fails(place: Workplace) -> None:
    """The lock is removed, and the claims are not answered."""
    made = await abandoned(place)
    await edits.pause(place.other, "davis", place.mark())
    await place.add("elko")
    place.table.script(Fault.NONE, Fault.AWAY)
    worker = await place.worker()
    assert worker.of(Walked) == []
    await back(place, worker)
    await worker.run("elko")
    walks = worker.of(Walked)
    assert [(one.id, one.fence) for walk in walks for one in walk.freed] == [("davis", made.fence)]
    assert sum(walk.claims for walk in walks) == 1


# ---- a store that is away


@with_workers
async def test_what_was_taken_is_run_although_the_walk_fails(place: Workplace) -> None:
    """The override is answered, the claims are not."""
    ids = [f"item-{n}" for n in range(3)]
    await abandoned(place)
    for item_id in ids:
        await place.add(item_id)
    place.table.script(Fault.NONE, Fault.AWAY)
    worker = await place.worker()
    await worker.run("davis")
    assert worker.order == ["davis"]
    assert len(worker.of(StoreEvent)) == 1
    await back(place, worker)
    await worker.run("item-2")


@pytest.mark.case("SO04")
@with_workers
async def test_a_worker_that_starts_while_the_store_is_away_waits_for_it(place: Workplace) -> None:
    """It is told when it goes, and when it is back."""
    await place.add("davis")
    place.table.script_reads(*[Fault.AWAY] * 2)
    worker = await place.worker()
    await worker.walk()
    assert worker.order == []
    await back(place, worker)
    await back(place, worker)
    await worker.run("davis")
    went, returned = worker.of(StoreEvent)
    assert went.level == logging.WARNING
    assert "is back after" in returned.message


@with_workers
async def test_a_walk_that_comes_too_soon_asks_nothing(place: Workplace) -> None:
    await place.add("davis")
    place.table.script_reads(Fault.AWAY)
    worker = await place.worker()
    await worker.walk()
    await worker.walk()
    assert worker.order == []
    await back(place, worker)
    await worker.run("davis")


async def back(place: Workplace, worker: WorkerScene) -> None:
    """Walks until one is let through."""
    for _ in range(3):  # another request may go before it
        await worker.walk()
        place.later(seconds=worker.wake.wishes[-1])
    await worker.walk()


# ---- when to look again


@with_workers
async def test_the_next_walk_is_when_the_next_token_is_ready(place: Workplace) -> None:
    await place.add("davis", every="1h")
    worker = await place.worker(cycle=timedelta(hours=2))
    (await worker.run("davis")).end()
    await place.ended("davis")
    place.later(minutes=20)
    await worker.walk()
    assert worker.wake.wishes[-1] == 40 * 60


@with_workers
async def test_a_token_beyond_the_cycle_is_left_to_a_later_walk(place: Workplace) -> None:
    await place.add("davis", every="1h")
    worker = await place.worker(cycle=timedelta(minutes=1))
    (await worker.run("davis")).end()
    await place.ended("davis")
    await worker.walk()
    assert worker.wake.wishes == []


@with_workers
async def test_a_run_that_could_not_be_let_go_is_nobodys_until_its_lock_is_stale(
    place: Workplace,
) -> None:
    """Its worker does not take the lock for a claim that landed late, and runs nothing twice."""
    await place.add("davis", every="1h", stale_after="10s")
    worker = await place.worker()
    run = await worker.run("davis")
    place.table.script(Fault.REFUSED, Fault.REFUSED, Fault.REFUSED)
    run.end()
    await worker.tells(RunEnded)
    for _ in range(2):
        await worker.walk()
    assert (worker.order, worker.of(LockAdopted)) == (["davis"], [])
    place.later(seconds=15)
    await worker.walk()
    again = await worker.run("davis", 1)
    assert again.call.fence == 2
    again.end()
    assert await place.ended("davis", runs=2) == [(1, "abandoned"), (2, "ok")]
