"""How little is asked of a store, by its own counters; and that no promise is broken for it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import pytest

from blackboard.events import SlotSkipped, Walked
from blackboard.model import ANNOUNCE_EVERY, Lock, Mark, Outcome, Token, replace
from blackboard.protocol.additions import New, add
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.edits import pause
from blackboard.protocol.keys import lock_key
from blackboard.settings import Settings
from blackboard.spec import Spec
from blackboard.table import ANY, Merge, Requests
from blackboard.tables.memory import Contents, MemoryTable
from blackboard.worker.membership import MEETS_EVERY
from tests.support.clocks import ManualClock
from tests.support.faults import Fault
from tests.support.turns import settled
from tests.support.workers import (
    IN_BULK,
    KEEP_ALL,
    SINGLY,
    FaultyShards,
    WorkerScene,
    Workplace,
    board_on,
    ids_by_turn,
    until,
    with_workers,
)

pytestmark = pytest.mark.of_one_store("a worker is the same above any store")

HOUR = timedelta(hours=1)


def looks_at_members(place: Workplace) -> int:
    return place.table.looks_at_members if isinstance(place.table, FaultyShards) else 0


def counter(place: Workplace) -> Callable[[], Requests]:
    """What the worker's store was asked for since the last call, without the pages of membership
    rows.
    """

    def asked() -> Requests:
        requests = place.board.table.requests
        return replace(requests, pages=requests.pages - looks_at_members(place))

    last = asked()

    def since() -> Requests:
        nonlocal last
        now = asked()
        spent, last = now.since(last), now
        return spent

    return since


async def stale(place: Workplace, item_id: str) -> None:
    """Its lock may be overridden from now on."""
    row = Merge(lock_key(item_id), {"stale_after": 3.0}, ANY)
    await place.other.table.commit(place.other.partition(item_id), [row])
    place.later(seconds=5)


async def all_done(worker: WorkerScene, count: int) -> None:
    await until(lambda: worker.worker.releases.runs == count, f"{count} runs end")
    await until(worker.is_idle, "the worker sleeps")


# ---- nothing to do


@pytest.mark.parametrize("shards", [1, 3])
def test_an_idle_cycle_is_a_page_of_each_shard(shards: int, open_table: object) -> None:
    """However many items there are, and whatever else a worker does meanwhile."""

    @with_workers
    async def story(place: Workplace, shards: int) -> None:
        for n in range(5):
            await place.add(f"item-{n}", every="1h")
        worker = await place.worker(at_once=True, cycle=timedelta(minutes=1))
        await all_done(worker, 5)
        spent = counter(place)
        for _ in range(3):
            await worker.walk()
            assert spent() == Requests(pages=shards)

    story(open_table=open_table, shards=shards)


@with_workers
async def test_an_idle_worker_writes_once_a_minute_and_meets_others_every_five(
    place: Workplace,
) -> None:
    await place.worker(cycle=HOUR)
    await place.announced()
    spent, before = counter(place), looks_at_members(place)
    for _ in range(MEETS_EVERY):
        for _ in range(60):
            place.later(seconds=1)
            await settled()
        await place.sleeps(ANNOUNCE_EVERY)
        assert spent() == Requests(commits=1)
    assert looks_at_members(place) - before == 1


@with_workers
async def test_nothing_is_asked_until_the_next_token_is_ready(place: Workplace) -> None:
    await place.add("davis", every="1h")
    worker = await place.worker(at_once=True, cycle=2 * HOUR)
    await all_done(worker, 1)
    place.later(minutes=20)
    await worker.walk()
    assert worker.wake.wishes[-1] == 40 * 60


# ---- one by one


@with_workers
async def test_a_backlog_in_one_slot_costs_two_requests_a_run(place: Workplace) -> None:
    ids = await place.fill(100)
    spent = counter(place)
    worker = await place.worker(slots=1, at_once=True)
    await all_done(worker, 100)
    assert worker.order == ids
    assert spent().total / 100 <= SINGLY


def tokens_read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many times the token of each item is read, from now on."""
    honest, times = BoardTable.read_shard, Counter[str]()

    async def counted(
        board: BoardTable, shard: int, **how: Any
    ) -> AsyncIterator[Lock | Token | Mark]:
        async for row in honest(board, shard, **how):
            times.update([row.id] if isinstance(row, Token) else [])
            yield row

    monkeypatch.setattr(BoardTable, "read_shard", counted)
    return times


@with_workers
async def test_of_a_long_backlog_a_worker_reads_on_from_where_it_ended(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not again and again what another worker is the first to take."""
    times = tokens_read(monkeypatch)
    worker = await place.worker(slots=20, at_once=True, cycle=HOUR)
    await place.announced()
    worker.worker.walk.peers.note("other", ["feed"])
    await place.fill(3000)
    worker.wake.beat()
    await until(lambda: worker.worker.releases.runs > 1400, "its own have run")
    assert times.total() <= 3000 * 1.02


@with_workers
async def test_a_worker_that_reads_on_first_takes_what_others_left_for_much_longer(
    place: Workplace,
) -> None:
    """The worker that comes first is busy. All slots of this one were, too, when it walked."""
    await place.add("davis")
    token = await place.token("davis")
    worker = await place.worker(slots=1, cycle=HOUR)
    davis, peers = await worker.run("davis"), worker.worker.walk.peers
    peers.note("other", ["feed"])
    theirs, own = ids_by_turn(peers, token, 300)
    for item_id in theirs[:20]:
        await place.add(item_id)
    for item_id in own:
        place.later(seconds=1)
        await place.add(item_id)
    await settled()
    peers.note("other", ["feed"])
    await worker.walk()
    worker.inline.at_once = True
    davis.end()
    await until(lambda: set(theirs[:20]) < set(worker.order), "they have run")
    assert len(worker.order) < 150


@with_workers
async def test_what_becomes_ready_one_by_one_costs_two_requests_a_run(place: Workplace) -> None:
    """The walk before it has seen it coming."""
    for n in range(10):
        await place.add(f"item-{n}", every=f"{60 + n}m")
    worker = await place.worker(at_once=True, cycle=2 * HOUR)
    await all_done(worker, 10)
    await worker.walk()
    assert worker.wake.wishes[-1] == 3600
    place.later(minutes=59)
    spent, before = counter(place), len(place.table.batches)
    for n in range(10):
        place.later(minutes=1)
        worker.wake.now()
        await all_done(worker, 11 + n)
        assert worker.order[-1] == f"item-{n}"
    assert (spent().pages, len(place.table.batches) - before) == (0, 20)


@with_workers
async def test_pruning_is_a_small_part(place: Workplace) -> None:
    await place.add("davis", every="1h")
    worker = await place.worker(at_once=True, cycle=2 * HOUR)
    spent = counter(place)
    for number in range(1, 101):
        await all_done(worker, number)
        place.later(hours=1)
        worker.wake.now()
    await all_done(worker, 101)
    looks = 100  # no worker had read the token of the next run
    asked = len(place.table.batches) + spent().pages - looks
    assert asked / 101 <= SINGLY


@with_workers
async def test_more_of_a_type_than_is_known_wakes_its_slot_again(place: Workplace) -> None:
    """Its one slot is full and others are free: what was not read is not forgotten."""
    ids = [f"rare-{n:02}" for n in range(80)]
    for item_id in ids:
        await place.add(item_id, item_type="rare")
    worker = await place.worker(slots=4, at_once=True)
    await all_done(worker, 80)
    assert sorted(worker.order) == ids


# ---- in bulk


async def _bulk(place: Workplace) -> None:
    await place.fill(1000)
    spent = counter(place)
    worker = await place.worker(slots=100, at_once=True, retention=KEEP_ALL)
    await all_done(worker, 1000)
    assert len(set(worker.order)) == 1000
    assert spent().total / 1000 <= IN_BULK


@pytest.mark.case("TH04")
@with_workers
async def test_a_thousand_in_a_hundred_slots_are_claimed_and_let_go_in_batches(
    place: Workplace,
) -> None:
    await _bulk(place)


class AzureLike(MemoryTable):
    """With batches as small as there."""

    max_rows = 100


def test_batches_of_a_hundred_rows_are_enough_for_that() -> None:
    async def story() -> None:
        clock, contents = ManualClock(), Contents()
        place = Workplace(
            table=None,  # type: ignore[arg-type]
            clock=clock,
            board=await board_on(AzureLike(clock, contents), clock, Settings()),
            other=await board_on(AzureLike(clock, contents), clock, Settings(), seed=2),
            open_table=None,  # type: ignore[arg-type]
            settings=Settings(),
        )
        await _bulk(place)
        await place.workers[0].stop()

    asyncio.run(story())


# ---- what is known is not what is promised


@with_workers
async def test_there_is_a_look_every_cycle_however_much_is_known(place: Workplace) -> None:
    ids = await place.fill(30)
    worker = await place.worker(slots=1, cycle=timedelta(minutes=1))
    spent = counter(place)
    place.later(seconds=59)
    (await worker.run(ids[0])).end()
    await worker.run(ids[1])
    await until(lambda: worker.wake.wishes, "the walk has ended")
    assert spent().pages == 0
    assert worker.wake.wishes[-1] == pytest.approx(1)
    place.later(seconds=2)
    (await worker.run(ids[1])).end()
    await worker.run(ids[2])
    assert spent().pages == 1


@with_workers
async def test_a_look_without_a_free_slot_reads_as_many_as_were_claimed_since_the_last(
    place: Workplace,
) -> None:
    ids = await place.fill(30)
    worker = await place.worker(slots=1)
    for one in ids[:4]:
        (await worker.run(one)).end()
    await worker.run(ids[4])
    await worker.walk()
    spent = counter(place)
    for one in ids[4:8]:
        (await worker.run(one)).end()
    await worker.run(ids[8])
    assert spent().pages == 0


@with_workers
async def test_a_stale_lock_goes_before_what_is_known(place: Workplace) -> None:
    """A walk found it while no slot was free, and saw a token coming that is ready by now."""
    await place.add("soon", every="30m")
    worker = await place.worker(slots=1, cycle=HOUR)
    (await worker.run("soon")).end()
    await all_done(worker, 1)
    for name in ("long", "gone"):
        await place.add(name, every="10h", stale_after="3h")
    await place.claimed("gone", board=place.other, owner="dead")
    await worker.walk()
    run = await worker.run("long")
    place.later(minutes=1)
    await stale(place, "gone")
    await worker.walk()
    place.later(minutes=30)
    run.end()
    await worker.run("gone")
    assert worker.order == ["soon", "long", "gone"]


@with_workers
async def test_what_is_known_and_was_moved_meanwhile_is_not_run(place: Workplace) -> None:
    """It is a lost race, and the rest is claimed."""
    ids = await place.fill(30)
    place.later(seconds=1)
    worker = await place.worker(slots=1, cycle=HOUR)
    await pause(place.other, ids[1], place.mark())
    (await worker.run(ids[0])).end()
    await until(lambda: len(worker.order) == 2, "another run")
    spent = counter(place)
    for number in (2, 3):
        (await worker.run(worker.order[-1])).end()
        await until(lambda: len(worker.order) == number + 1, "another run")  # noqa: B023
    assert ids[1] not in worker.order
    assert len(set(worker.order)) == 4
    assert spent().pages == 0


@with_workers
async def test_what_is_known_and_could_not_be_claimed_is_next(place: Workplace) -> None:
    """The claim never came, or the store was away."""
    ids = await place.fill(30)
    worker = await place.worker(slots=1, cycle=HOUR)
    place.table.script(Fault.NONE, Fault.NEVER)
    (await worker.run(ids[0])).end()
    (await worker.run(ids[2])).end()
    (await worker.run(ids[1])).end()
    (await worker.run(ids[3])).end()
    assert worker.order[:4] == [ids[0], ids[2], ids[1], ids[3]]


@with_workers
async def test_a_known_slot_that_nobody_wants_any_more_is_passed_over(place: Workplace) -> None:
    for name in ("a", "b"):
        await place.add(name, cron="0 * * * *", missed="none")
    worker = await place.worker(slots=1, cycle=3 * HOUR)
    (await worker.run("a")).end()
    (await worker.run("b")).end()
    await all_done(worker, 2)
    place.later(hours=1)
    await worker.walk()
    run = await worker.run("a", 1)
    place.later(minutes=20)
    run.end()
    await worker.tells(SlotSkipped)
    assert worker.order == ["a", "b", "a"]


@with_workers
async def test_a_retry_is_not_forgotten_for_what_is_known(place: Workplace) -> None:
    """No worker has read its token: when it is ready, and a slot is free, there is a look."""
    await place.add("davis", every="59m", retries=1, backoff="10s")
    await place.add("soon", every="1h")
    worker = await place.worker(cycle=3 * HOUR)
    for name in ("davis", "soon"):
        (await worker.run(name)).end()
    await all_done(worker, 2)
    await worker.walk()  # it sees both coming
    place.later(minutes=59)
    worker.wake.now()
    (await worker.run("davis", 1)).end(Outcome.FAILED)
    await all_done(worker, 3)
    place.later(minutes=1)
    worker.wake.now()
    await worker.run("soon", 1)
    await worker.run("davis", 2)


@with_workers
async def test_types_and_settings_that_are_not_ours_are_not_known(place: Workplace) -> None:
    await place.add("davis", every="1h")
    worker = await place.worker(at_once=True, cycle=2 * HOUR)
    await all_done(worker, 1)
    later = place.clock.now() + timedelta(minutes=30)

    await add(place.other, New(id="strange", type="strange", spec=Spec(every="1h"), first=later))
    await worker.walk()
    assert worker.wake.wishes[-1] == 3600
    place.later(minutes=30)
    await worker.walk()
    assert worker.order == ["davis"]


# ---- what is told of it


@with_workers
async def test_walks_tell_what_was_asked_for_since_the_last(place: Workplace) -> None:
    await place.fill(20)
    worker = await place.worker(slots=4, at_once=True)
    await all_done(worker, 20)
    await worker.walk()
    told = [event.requests for event in worker.of(Walked)]
    asked = place.board.table.requests
    assert sum(one["commits"] for one in told) == asked.commits
    assert sum(one["pages"] for one in told) == asked.pages
    assert sum(one["total"] for one in told) == asked.total
    assert worker.worker.releases.runs == 20
