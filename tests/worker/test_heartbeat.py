"""Renewals, deadlines and lost locks, by a clock that is turned by hand."""

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any, TypeVar, cast

import pytest

from blackboard.errors import BlackboardError, LeaseLost
from blackboard.events import LockLost, LocksRenewed, RunEnded, StoreEvent
from blackboard.model import Ended, Outcome
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import Claim, renew_all
from blackboard.protocol.edits import edit, remove, unlock
from blackboard.protocol.keys import shard_of
from blackboard.rules.breaker import LONGEST, SPACING
from blackboard.rules.due import TAKEOVERS
from blackboard.runners.child_process import LEASE_RAN_OUT
from blackboard.runners.loop_watch import EARLY, STANDS
from blackboard.runners.outcome import ended_by
from blackboard.runners.secrets import NOTHING
from blackboard.spec import Spec
from blackboard.table import Merge, Op
from blackboard.worker import heartbeat
from blackboard.worker.heartbeat import LONGEST_STANDSTILL, LOST_GRACE
from blackboard.worker.permits import LOST
from blackboard.worker.running import _Report
from tests.support.faults import Fault
from tests.support.workers import FakeRun, WorkerScene, Workplace, until, with_workers

pytestmark = pytest.mark.of_one_store("a worker is the same above any store")

Answer = TypeVar("Answer")
BEAT = 1.0


async def beats(place: Workplace, count: int, *, beat: float = BEAT) -> None:
    for _ in range(count):
        await place.sleeps(beat)
        place.later(seconds=beat)
    await place.sleeps(beat)


async def tried_again(place: Workplace, work: Coroutine[Any, Any, Answer]) -> Answer:
    """What the work returns; until then, the breaker lets one request after the other through."""
    task = asyncio.ensure_future(work)
    while not (await asyncio.wait({task}, timeout=0.2))[0]:
        place.later(seconds=SPACING)
    return task.result()


def renewals(place: Workplace) -> list[Sequence[Op]]:
    return [
        batch
        for batch in place.table.batches
        if len(batch) == 1 and isinstance(batch[0], Merge) and batch[0].key.startswith("lock:")
    ]


async def held(place: Workplace, **said: str) -> tuple[WorkerScene, FakeRun]:
    """A run under way."""
    await place.add("davis", every="2h", timeout="2h", **said)
    worker = await place.worker()
    return worker, await worker.run("davis")


@pytest.mark.parametrize(("lease", "every"), [("30s", 10), ("2m", 40), ("1h", 60)])
def test_a_lock_is_renewed_every_third_of_its_lease_or_minute(
    lease: str, every: int, open_table: object
) -> None:
    @with_workers
    async def story(place: Workplace) -> None:
        _, run = await held(place, stale_after=lease)
        await beats(place, every - 1)
        assert renewals(place) == []
        for number in (1, 2):
            await beats(place, 1 if number == 1 else every)
            await until(lambda: len(run.deadlines) == number + 1, "a renewal")  # noqa: B023
            assert len(renewals(place)) == number
        assert run.deadlines == sorted(run.deadlines)

    story(open_table=open_table)


@with_workers
async def test_the_deadline_counts_from_the_sending_and_is_before_anybody_may_take_it(
    place: Workplace,
) -> None:
    began = place.clock.monotonic()
    _, run = await held(place, stale_after="30s")
    assert run.deadlines == [began + 24]
    await beats(place, 10)
    await until(lambda: len(run.deadlines) == 2, "a renewal")
    assert run.deadlines[-1] == began + 10 + 24


@with_workers
async def test_a_renewal_says_by_how_much_it_came_after_its_time(place: Workplace) -> None:
    """Not one that comes before it, to write progress."""
    worker, run = await held(place, stale_after="30s")
    await beats(place, 10)
    assert (await worker.tells(LocksRenewed)) == LocksRenewed("me", locks=1, late=0.0)
    run.report.progress(1, 3)
    await beats(place, 5)
    assert (await worker.tells(LocksRenewed, 2)).late == 0.0
    await place.sleeps(BEAT)
    place.later(seconds=13)
    assert (await worker.tells(LocksRenewed, 3)).late == pytest.approx(3.0)


@with_workers
async def test_news_of_progress_rides_along_at_most_every_five_seconds(place: Workplace) -> None:
    _, run = await held(place, stale_after="5m")
    run.report.progress(1, 3)
    await beats(place, 4)
    assert renewals(place) == []
    await beats(place, 1)
    await until(lambda: len(run.deadlines) == 2, "the news is written")
    assert (await place.lock()).progress == "[1,3]"
    run.report.progress(2, 3)
    run.report.progress(3, 3)
    await beats(place, 4)
    assert len(renewals(place)) == 1
    await beats(place, 2)
    await until(lambda: len(run.deadlines) == 3, "the latest news is written")
    assert (await place.lock()).progress == "[3,3]"
    await beats(place, 20)
    assert len(renewals(place)) == 2


def renews_slowly(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Lets renewals be answered when this is set."""
    answered = asyncio.Event()

    async def slowly(board: BoardTable, claims: Sequence[tuple[Claim, str]]) -> tuple[Claim, ...]:
        renewed = await renew_all(board, claims)
        await answered.wait()
        return renewed

    monkeypatch.setattr(heartbeat, "renew_all", slowly)
    return answered


@with_workers
async def test_progress_that_is_told_while_a_renewal_is_under_way_is_written_with_the_next(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is the last that there is to tell."""
    answered = renews_slowly(monkeypatch)
    _, run = await held(place, stale_after="5m")
    run.report.progress(1, 3)
    await beats(place, 6)
    await until(lambda: len(renewals(place)) == 1, "the news is sent")
    run.report.progress(3, 3)
    answered.set()
    await until(lambda: len(run.deadlines) == 2, "its answer")
    await beats(place, 6)
    await until(lambda: len(renewals(place)) == 2, "the later news is sent")
    await until(lambda: len(run.deadlines) == 3, "its answer")
    assert (await place.lock()).progress == "[3,3]"


@pytest.mark.case("LR05")
@pytest.mark.parametrize("fault", [Fault.LOST, Fault.NEVER])
def test_a_renewal_without_a_reply_is_settled_by_reading(fault: Fault, open_table: object) -> None:
    @with_workers
    async def story(place: Workplace) -> None:
        worker, run = await held(place, stale_after="30s")
        place.table.script(fault)
        await beats(place, 11)
        await until(lambda: len(run.deadlines) == 2, "the renewal")
        assert worker.of(LockLost) == []
        run.end()
        assert await place.ended("davis") == [(1, "ok")]

    story(open_table=open_table)


@with_workers
async def test_a_store_that_is_away_costs_no_lock_before_its_deadline(place: Workplace) -> None:
    """It is told once, not with every try."""
    worker, run = await held(place, stale_after="30s")
    place.table.script(*[Fault.AWAY] * 3)
    for _ in range(23):
        place.later(seconds=BEAT)
        await asyncio.sleep(0.005)
    await until(lambda: len(run.deadlines) == 2, "a renewal")
    assert (run.lost, run.stopped) == ("", None)
    assert len(worker.of(StoreEvent)) == 1
    place.later(seconds=LONGEST)  # what is no renewal waits longer


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.TWICE])
@with_workers
async def test_a_lock_whose_renewals_land_is_kept_though_no_answer_comes(
    place: Workplace, fault: Fault
) -> None:
    """What they asked for is done, so it is not asked for at once again."""
    worker, run = await held(place, stale_after="30s")
    place.table.script(*[fault] * 100)
    for _ in range(60):
        await beats(place, 1)
        await asyncio.sleep(0.005)
    assert (run.lost, worker.of(LockLost)) == ("", [])
    assert run.deadlines[-1] > place.clock.monotonic()
    assert len(renewals(place)) <= 10
    place.table._commits.clear()
    run.end()
    assert await tried_again(place, place.ended("davis")) == [(1, "ok")]


@with_workers
async def test_past_its_deadline_without_an_answer_a_lock_is_given_up(place: Workplace) -> None:
    """Its handler gets a signal, and is stopped a little later; if no worker took the lock, its
    item is due at once.
    """
    worker, run = await held(place, stale_after="30s")
    place.table.script(*[Fault.AWAY] * 100)
    await beats(place, 26)
    assert run.lost == ""
    await beats(place, 2)
    assert "not answered" in run.lost
    assert run.stopped is None
    place.table._commits.clear()
    await place.sleeps(LOST_GRACE)
    place.later(seconds=LOST_GRACE)
    assert await tried_again(place, place.ended("davis")) == [(1, "cancelled")]
    assert (await place.token()).ready <= place.clock.now()
    (event,) = worker.of(LockLost)
    assert (event.id, event.fence) == ("davis", 1)


async def given_up(place: Workplace) -> FakeRun:
    """A run whose lock was given up because its renewals were not answered; the store is back."""
    _, run = await held(place, stale_after="30s")
    place.table.script(*[Fault.AWAY] * 100)
    await beats(place, 28)
    assert "not answered" in run.lost
    place.table._commits.clear()
    return run


class LeaseLostIsNoReason(Exception):
    """Of a handler's own, with a name that begins like another one."""


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (LeaseLost("its renewals were not answered"), ""),
        (ExceptionGroup("of tasks", [LeaseLost("gone"), LeaseLost("gone")]), ""),
        (OSError("closed"), "; OSError: closed"),
        (LeaseLostIsNoReason("closed"), "; LeaseLostIsNoReason: closed"),
    ],
)
def test_a_run_that_failed_because_its_lock_was_given_up_is_due_at_once(
    raised: Exception, told: str, open_table: object
) -> None:
    @with_workers
    async def story(place: Workplace) -> None:
        run = await given_up(place)
        run.ended.set_result(ended_by(raised, NOTHING))
        assert await tried_again(place, place.ended("davis")) == [(1, "cancelled")]
        [kept] = [kept async for kept in place.other.runs("davis")]
        assert kept.error.splitlines()[0] == run.lost + told
        assert (await place.token()).ready <= place.clock.now()
        item = await place.item("davis")
        assert (item.attempt, item.failures) == (1, 0)

    story(open_table=open_table)


@pytest.mark.parametrize(
    "ended",
    [
        Ended(outcome=Outcome.OK, result=1),
        Ended(outcome=Outcome.FAILED, error="no", final=True),
        Ended(outcome=Outcome.FAILED, error="later", retry_after=7200.0),
    ],
)
def test_an_answer_that_a_handler_gives_after_its_lock_was_given_up_counts(
    ended: Ended, open_table: object
) -> None:
    @with_workers
    async def story(place: Workplace) -> None:
        run = await given_up(place)
        run.ended.set_result(ended)
        assert await tried_again(place, place.ended("davis")) == [(1, ended.outcome.value)]
        assert (await place.token()).ready > place.clock.now()

    story(open_table=open_table)


async def run_again(
    place: Workplace, worker: WorkerScene, number: int, end: Callable[[FakeRun], None]
) -> Outcome:
    """The outcome of the next run of davis, which the test ends. The item is due again then."""
    await worker.walk()
    end(await worker.run("davis", number))
    outcome = (await worker.tells(RunEnded, number + 1)).run.outcome
    place.later(seconds=0 if outcome is Outcome.CANCELLED else 7200)
    return outcome


def stopped_by_the_guard(run: FakeRun) -> None:
    run.end(Outcome.CANCELLED, error=LEASE_RAN_OUT)


def lost_and_killed(run: FakeRun) -> None:
    """As by a kernel that is out of memory, after renewals that were not answered."""
    held = cast(_Report, run.report).held
    held.lose("its renewals were not answered in time")
    run.end(Outcome.FAILED, error="the child process was killed (out of memory?)")


def lost_and_stopped(run: FakeRun) -> None:
    held = cast(_Report, run.report).held
    held.lose("its renewals were not answered in time")
    held.cut_short(held.lost)


def without_permit(run: FakeRun) -> None:
    cast(_Report, run.report).held.cut_short(LOST)


LOSSES = [stopped_by_the_guard, lost_and_killed, lost_and_stopped, without_permit]


@pytest.mark.parametrize("end", LOSSES)
def test_a_run_that_loses_its_lock_again_and_again_fails_as_if_it_was_taken_over(
    end: Callable[[FakeRun], None], open_table: object
) -> None:
    """It may be what takes the machine's memory, so that its worker stands still each time."""

    @with_workers
    async def story(place: Workplace) -> None:
        await place.add("davis", item_type="plain", every="2h", timeout="2h")
        worker = await place.worker()
        outcomes = [await run_again(place, worker, n, end) for n in range(TAKEOVERS + 1)]
        assert outcomes == [*[Outcome.CANCELLED] * TAKEOVERS, Outcome.FAILED]
        assert (await place.item("davis")).failures == 1

    story(open_table=open_table)


@pytest.mark.parametrize("by", ["me", "another"])
def test_losses_of_a_lock_are_counted_anew_after_a_run_that_ended_otherwise(
    by: str, open_table: object
) -> None:
    @with_workers
    async def story(place: Workplace) -> None:
        await place.add("davis", item_type="plain", every="2h", timeout="2h")
        worker = await place.worker()
        for number in range(TAKEOVERS - 1):
            await run_again(place, worker, number, stopped_by_the_guard)
        if by == "me":
            await run_again(place, worker, TAKEOVERS - 1, FakeRun.end)
        else:
            await place.let_go(await place.claimed("davis", board=place.other, owner=by))
            place.later(seconds=7200)
        already = len(worker.of(RunEnded))
        for number in range(TAKEOVERS):
            ended = await run_again(place, worker, already + number, stopped_by_the_guard)
            assert ended is Outcome.CANCELLED

    story(open_table=open_table)


@with_workers
async def test_a_run_that_is_stopped_with_its_worker_has_not_failed_however_often_it_lost_its_lock(
    place: Workplace,
) -> None:
    await place.add("davis", item_type="plain", every="2h", timeout="2h")
    worker = await place.worker(grace=timedelta(0))
    for number in range(TAKEOVERS):
        await run_again(place, worker, number, stopped_by_the_guard)
    await worker.walk()
    run = await worker.run("davis", TAKEOVERS)
    worker.worker.stop()
    await until(lambda: run.stopped, "its end")
    outcomes = await place.ended("davis", runs=TAKEOVERS + 1)
    assert {outcome for _, outcome in outcomes} == {"cancelled"}


@with_workers
async def test_a_lock_that_was_unlocked_is_found_by_the_next_walk(place: Workplace) -> None:
    worker, run = await held(place, stale_after="1h")
    await unlock(place.other, "davis", place.mark("stuck"), fence=1)
    await worker.walk()
    await worker.tells(LockLost)
    assert "unlocked" in run.lost
    await place.sleeps(LOST_GRACE)
    place.later(seconds=LOST_GRACE)
    await until(lambda: run.stopped, "it is stopped")
    await worker.tells(RunEnded)
    assert (1, "superseded") in await place.outcomes()


@with_workers
async def test_a_handler_that_ends_when_told_of_its_lost_lock_is_not_stopped(
    place: Workplace,
) -> None:
    worker, run = await held(place, stale_after="1h")
    await remove(place.other, "davis")
    await worker.walk()
    await worker.tells(LockLost)
    run.end()
    await worker.tells(RunEnded)
    await place.sleeps(LOST_GRACE)
    place.later(seconds=LOST_GRACE)
    assert run.stopped is None


@with_workers
async def test_a_worker_that_stood_still_asks_before_it_gives_up(place: Workplace) -> None:
    """There may have been no worker to take its lock."""
    worker, run = await held(place, stale_after="30s")
    await beats(place, 2)
    place.later(seconds=500)
    await until(lambda: len(run.deadlines) > 1, "a renewal")
    assert run.deadlines[-1] > place.clock.monotonic()
    assert worker.of(LockLost) == []


@with_workers
async def test_a_worker_that_stood_still_over_an_answer_looks_at_it_first(
    place: Workplace,
) -> None:
    worker, run = await held(place, stale_after="30s")

    async def stand_still() -> None:
        before = len(worker.turned)
        place.later(seconds=500)
        await until(lambda: len(worker.turned) > before, "a beat before the answer")

    place.table.script(stand_still)
    await beats(place, 9)
    place.later(seconds=BEAT)
    await until(lambda: len(run.deadlines) == 2, "the answer to what was sent before")
    await beats(place, 1)
    await until(lambda: run.deadlines[-1] > place.clock.monotonic(), "a renewal that counts")
    assert worker.of(LockLost) == []


# ---- the beat as others hear it


@with_workers
async def test_whoever_listens_hears_until_when_the_loop_may_stand_still(place: Workplace) -> None:
    """As long as the shortest lease may be trusted, and a little more; at last for ever."""
    idle = await place.worker(owner="idle", handlers={})
    now = place.clock.monotonic()
    assert set(idle.turned) == {now + LONGEST_STANDSTILL}
    worker, _ = await held(place, stale_after="3s")
    assert worker.turned[-1] == pytest.approx(now + 0.9 * 3)
    worker.worker.stop()
    worker.worker.stop()
    await worker.ended()
    assert worker.turned[-1] == math.inf


@pytest.mark.of_one_store("the beats are those of the worker")
@with_workers
async def test_beats_on_time_at_the_end_of_a_lease_are_no_standstill(place: Workplace) -> None:
    """A standstill is reported some time before the deadline of the guard: not while the next beat
    may still come.
    """
    worker, _ = await held(place, stale_after="12s")
    place.table.script(*[Fault.AWAY] * 100)
    for _ in range(10):
        await beats(place, 1)
        assert worker.turned[-1] - EARLY >= place.clock.monotonic() + BEAT + STANDS
    place.table._commits.clear()
    await tried_again(place, worker.stop())


@pytest.mark.of_one_store("the beats are those of the worker")
@with_workers
async def test_a_lease_that_ran_out_leaves_time_for_the_next_beat(place: Workplace) -> None:
    worker, _ = await held(place, stale_after="1h")
    before = len(worker.turned)
    place.later(seconds=4000)
    await until(lambda: len(worker.turned) > before, "a beat")
    assert worker.turned[-1] - EARLY > place.clock.monotonic() + BEAT


@with_workers
async def test_a_run_that_ends_while_its_renewal_is_under_way_is_let_go_with_one_batch(
    place: Workplace,
) -> None:
    """The renewal changes the etag that the release has to state: it is waited for."""
    _, run = await held(place, stale_after="30s")

    async def ends_meanwhile() -> None:
        run.end()
        await turns(20)

    async def turns(count: int = 60) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    place.table.script(ends_meanwhile, turns)
    await beats(place, 10)
    assert await place.ended("davis") == [(1, "ok")]
    assert len(renewals(place)) == 1
    releases = [batch for batch in place.table.batches if batch[0].key == "lock:davis"]
    assert len(releases) == 2, "the renewal, and one release"


@pytest.mark.parametrize("shards", [3])
@with_workers
async def test_locks_of_several_shards_that_are_due_together_are_all_renewed(
    place: Workplace, shards: int
) -> None:
    names = ["item-1", "item-2", "item-3", "item-9", "item-10"]
    assert {shard_of(name, shards) for name in names} == {*range(shards)}
    for name in names:
        await place.add(name, every="1h", stale_after="30s")
    place.later(seconds=2)
    worker = await place.worker()
    for name in names:
        await worker.run(name)
    place.later(seconds=10)
    worker.worker.heartbeat.beat()
    now = place.clock.monotonic()
    await until(lambda: all(held.claim.sent == now for held in worker.worker.holdings), "it")
    assert not any(isinstance(told, LockLost) for told in worker.told)


@with_workers
async def test_two_runs_of_one_item_are_renewed_apart_and_the_older_is_lost(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was unlocked, and its worker has claimed it again before it finds out."""
    worker, early = await held(place, stale_after="30s")
    await unlock(place.other, "davis", place.mark(), fence=1)
    with monkeypatch.context() as patch:
        patch.setattr(heartbeat.Heartbeat, "ask", lambda *_: None)  # as if it had no answer
        await worker.walk()
        again = await worker.run("davis", 1)
    await beats(place, 10)
    await until(lambda: early.lost == heartbeat.GONE, "the loss of the older")
    await until(lambda: len(again.deadlines) == 2, "the renewal of the newer")
    assert again.lost == ""


# ---- checkpoints


def saves(place: Workplace) -> list[Sequence[Op]]:
    return [
        batch
        for batch in place.table.batches
        if len(batch) == 1 and isinstance(batch[0], Merge) and "checkpoint" in batch[0].data
    ]


@with_workers
async def test_saves_of_a_run_follow_each_other_and_its_release_needs_no_settling(
    place: Workplace,
) -> None:
    _, run = await held(place, stale_after="30s")
    await asyncio.gather(*(run.report.save(str(number)) for number in range(3)))
    assert len(saves(place)) == 3, "each states the etag that the one before has left"
    assert (await place.item("davis")).checkpoint == "2"
    before = len(place.table.batches)
    run.end()
    assert await place.ended("davis") == [(1, "ok")]
    assert len(place.table.batches) == before + 1
    assert (await place.item("davis")).checkpoint == ""


@with_workers
async def test_an_edit_that_a_save_came_upon_counts_for_the_next_slot(place: Workplace) -> None:
    """The release goes by the item as the save has read it, and so by its new schedule."""
    _, run = await held(place, stale_after="30s")
    await edit(place.other, "davis", lambda *_: Spec(every="7h"))
    await run.report.save("1")
    before = len(place.table.batches)
    run.end()
    assert await place.ended("davis") == [(1, "ok")]
    assert len(place.table.batches) == before + 1
    item = await place.item("davis")
    assert item.start is not None
    assert item.slot == item.start + timedelta(hours=7)


@with_workers
async def test_a_renewal_that_is_answered_after_a_save_leaves_what_was_saved(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = renews_slowly(monkeypatch)
    _, run = await held(place, stale_after="30s")
    await beats(place, 11)
    await run.report.save("1")
    answered.set()
    await until(lambda: len(run.deadlines) == 2, "the renewal")
    await run.report.save("2")
    assert len(saves(place)) == 2


@with_workers
async def test_a_save_finds_out_that_the_lock_is_lost_and_the_run_is_stopped(
    place: Workplace,
) -> None:
    worker, run = await held(place, stale_after="30s")
    await unlock(place.other, "davis", place.mark(), fence=1)
    with pytest.raises(LeaseLost, match="overridden, unlocked or removed"):
        await run.report.save("1")
    assert run.lost == heartbeat.GONE
    assert len(worker.of(LockLost)) == 1
    with pytest.raises(LeaseLost):
        await run.report.save("2")
    assert len(saves(place)) == 1
    assert (await place.item("davis")).checkpoint == ""


@with_workers
async def test_a_save_that_comes_after_the_end_of_its_run_is_no_loss_of_a_lock(
    place: Workplace,
) -> None:
    """A coroutine has begun a save as a task, and returned."""
    worker, run = await held(place, stale_after="30s")

    async def the_run_ends() -> None:
        run.end()
        assert await place.ended("davis") == [(1, "ok")]

    place.table.script(the_run_ends)
    with pytest.raises(LeaseLost):
        await run.report.save("1")
    assert len(saves(place)) == 1
    assert worker.of(LockLost) == []
    assert (await place.item("davis")).checkpoint == ""


@with_workers
async def test_what_the_store_refuses_is_raised_and_the_run_goes_on(place: Workplace) -> None:
    worker, run = await held(place, stale_after="30s")
    place.table.script(Fault.REFUSED)
    with pytest.raises(BlackboardError, match="will not take the checkpoint"):
        await run.report.save("1")
    assert worker.of(LockLost) == []
    await run.report.save("2")
    run.end()
    assert await place.ended("davis") == [(1, "ok")]


@with_workers
async def test_locks_that_are_due_together_are_renewed_in_one_batch_and_a_lost_one_keeps_no_other(
    place: Workplace,
) -> None:
    ids = [f"town-{number}" for number in range(4)]
    for one in ids:
        await place.add(one, every="2h", timeout="2h", stale_after="30s")
    worker = await place.worker()
    runs = [await worker.run(one) for one in ids]
    await unlock(place.other, ids[2], place.mark("stuck"), fence=1)
    before = len(place.table.batches)
    await beats(place, 10)
    await until(lambda: bool(runs[2].lost), "the loss")
    await until(lambda: len(runs[3].deadlines) == 2, "the renewal of the others")
    batches = place.table.batches[before:]
    assert [len(one) for one in batches] == [4, 3], "all; then those that are left"
    assert [bool(one.lost) for one in runs] == [False, False, True, False]
