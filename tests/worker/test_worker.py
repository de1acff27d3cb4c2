"""The worker's cycle: runs, ends, stops; hand-driven, on every store."""

import asyncio
import itertools
import weakref
from collections.abc import Sequence
from datetime import timedelta

import pytest

from blackboard.errors import BlackboardError
from blackboard.events import RunEnded, RunLogged, RunStarted, StoreEvent, WorkerStopping
from blackboard.model import Outcome
from blackboard.protocol import keys
from blackboard.protocol.additions import New, add
from blackboard.protocol.edits import edit, pause, run_now
from blackboard.protocol.members import workers
from blackboard.protocol.retention import Retention
from blackboard.rules.breaker import SPACING
from blackboard.settings import Settings
from blackboard.spec import Spec
from blackboard.table import Etag, Merge, Op
from blackboard.tables.memory import Contents, MemoryTable
from blackboard.worker.shard_tasks import SLOW
from blackboard.worker.worker import Mode
from tests.support.boards import disagreements
from tests.support.clocks import ManualClock
from tests.support.faults import Fault
from tests.support.patience import patience
from tests.support.turns import settled
from tests.support.workers import Workplace, board_on, ids_of_shard, until, with_workers

pytestmark = pytest.mark.of_one_store("a worker is the same above any store")

KEPT = 16
"""Runs in the history of an item; who keeps so few looks as often."""

# ---- a run, from its claim to its release


@with_workers
async def test_what_is_due_is_run_and_let_go(place: Workplace) -> None:
    await place.add("davis", every="1h", params={"feeds": 2})
    worker = await place.worker()
    run = await worker.run("davis")
    assert (run.call.item.id, run.call.item.params) == ("davis", {"feeds": 2})
    assert (run.call.fence, run.call.attempt, run.call.worker) == (1, 1, "me")
    place.later(seconds=7)
    run.end(result={"events": 3})
    assert await place.ended("davis") == [(1, "ok")]
    item = await place.item()
    assert (item.running, item.result, item.runs) == (False, '{"events":3}', 1)
    assert (await place.runs())[0].duration == 7


@with_workers
async def test_plain_functions_run_in_processes_and_coroutines_on_the_loop(
    place: Workplace,
) -> None:
    await place.add("a", item_type="feed")
    await place.add("b", item_type="plain")
    worker = await place.worker()
    await worker.run("a")
    await worker.run("b")
    assert (worker.inline.order, worker.process.order) == (["a"], ["b"])


@with_workers
async def test_every_event_of_a_run_says_which_run_it_is(place: Workplace) -> None:
    await place.add("davis")
    worker = await place.worker()
    run = await worker.run("davis")
    run.report.log(30, "one feed is odd")
    run.end(Outcome.FAILED, error="ValueError: bad feed\nTraceback ...")
    ended = await worker.tells(RunEnded)
    assert ended.message == "failed: ValueError: bad feed"
    assert ended.run.attempt == 1
    for kind in (RunStarted, RunLogged, RunEnded):
        (event,) = worker.of(kind)
        assert (event.id, event.type, event.fence, event.worker) == ("davis", "feed", 1, "me")
    assert worker.of(RunLogged)[0].level == 30


@with_workers
async def test_a_failed_run_is_tried_again_when_its_backoff_is_over(place: Workplace) -> None:
    await place.add("davis", every="1h", retries=1, backoff="20s")
    worker = await place.worker()
    (await worker.run("davis")).end(Outcome.FAILED, error="no answer")
    await until(lambda: worker.wake.wishes, "a wish")
    (wish,) = worker.wake.wishes
    assert 0 < wish <= 20
    place.later(seconds=21)
    await worker.walk()
    again = await worker.run("davis", 1)
    assert (again.call.attempt, again.call.due) == (2, worker.inline.runs["davis"][0].call.due)
    again.end()
    assert await place.ended("davis", runs=2) == [(1, "failed"), (2, "ok")]


@with_workers
async def test_a_run_past_its_time_limit_is_stopped(place: Workplace) -> None:
    await place.add("davis", every="1h", timeout="90s")
    worker = await place.worker()
    run = await worker.run("davis")
    await place.sleeps(90)
    place.later(seconds=89)
    await worker.walk()
    assert run.stopped is None
    place.later(seconds=2)
    assert await place.ended("davis") == [(1, "timeout")]
    assert (await place.runs())[0].error == "it ran longer than 1m30s"


@with_workers
async def test_the_time_limit_of_a_run_ends_with_it(place: Workplace) -> None:
    await place.add("davis", every="1h", timeout="90s")
    await place.add("winters", every="1h", timeout="2m")
    worker = await place.worker()
    first, second = await worker.run("davis"), await worker.run("winters")
    await place.sleeps(90)
    first.end()
    await worker.tells(RunEnded)
    place.later(seconds=91)
    await place.sleeps(29)  # until the limit of the other
    assert first.stopped is None
    place.later(seconds=30)
    assert await place.ended("winters") == [(1, "timeout")]
    assert second.stopped is not None


@pytest.mark.of_one_store("what a worker keeps in memory is above the store")
@with_workers
async def test_a_run_that_has_ended_is_not_kept_until_its_time_limit(place: Workplace) -> None:
    await place.add("davis", every="1h", timeout="1h")
    worker = await place.worker()
    run = await worker.run("davis")
    kept = [weakref.ref(held) for held in worker.worker.holdings]
    run.end()
    await worker.tells(RunEnded)
    del run
    worker.inline.runs.clear()
    await until(lambda: [one() for one in kept] == [None], "the run is dropped")


@with_workers
async def test_a_limit_that_comes_first_is_kept_whenever_it_was_set(place: Workplace) -> None:
    await place.add("davis", every="1h", timeout="10m")
    worker = await place.worker()
    await worker.run("davis")
    await place.add("winters", every="1h", timeout="90s")
    await worker.walk()
    await worker.run("winters")
    await place.sleeps(90)
    place.later(seconds=91)
    assert await place.ended("winters") == [(1, "timeout")]
    assert (await place.runs("davis")) == []


@pytest.mark.of_one_store("processes are started above the store")
@with_workers
async def test_a_run_whose_process_cannot_be_started_is_put_back_and_uses_no_attempt(
    place: Workplace,
) -> None:
    await place.add("plain", item_type="plain", retries=0)
    worker = await place.worker()
    (await worker.run("plain")).not_begun("no memory")
    assert await place.ended("plain") == [(1, "cancelled")]
    (logged,) = worker.of(RunLogged)
    assert logged.message == "no memory; runs that need one wait until it can be"
    await place.add("coroutine")
    await place.add("another", item_type="plain")
    await worker.walk()
    (await worker.run("coroutine")).end()
    await place.sleeps(2)
    place.later(seconds=2)
    await worker.looks_again()
    run = await worker.run("plain", 1)
    assert (run.call.attempt, worker.process.tries) == (1, 1)
    run.end()
    (await worker.run("another")).end()
    assert await place.ended("plain", runs=2) == [(1, "cancelled"), (2, "ok")]


@pytest.mark.of_one_store("processes are started above the store")
@with_workers
async def test_while_no_process_can_be_started_what_needs_one_is_left_to_others_and_tried_seldom(
    place: Workplace,
) -> None:
    await place.add("plain", item_type="plain")
    worker = await place.worker()
    worker.process.starts = False
    (await worker.run("plain")).not_begun("no memory")
    await place.ended("plain")
    ready = (await place.token("plain")).ready
    for tries, seconds in enumerate([2, 4, 8, 16, 30, 30]):
        assert worker.process.tries == tries
        await place.sleeps(seconds)
        place.later(seconds=seconds)
        await worker.walk()
    assert await place.outcomes("plain") == [(1, "cancelled")]
    assert (await place.token("plain")).ready == ready
    (row,) = await workers(place.other)
    assert "plain" not in row.types.split(",")
    other = await place.worker(owner="you")
    (await other.run("plain")).end()
    assert await place.ended("plain", runs=2) == [(1, "cancelled"), (2, "ok")]


@pytest.mark.of_one_store("processes are started above the store")
@with_workers
async def test_a_worker_that_walks_once_leaves_a_run_due_whose_process_cannot_be_started(
    place: Workplace,
) -> None:
    await place.add("plain", item_type="plain", retries=0, at="2026-03-01T00:00Z")
    worker = await place.worker(Mode.ONCE)
    (await worker.run("plain")).not_begun("no memory")
    assert await place.ended("plain") == [(1, "cancelled")]
    await worker.ended()
    again = await place.worker(Mode.ONCE)
    (await again.run("plain")).end()
    assert await place.ended("plain", runs=2) == [(1, "cancelled"), (2, "ok")]
    await again.ended()


@pytest.mark.of_one_store("processes are started above the store")
@with_workers
async def test_a_worker_until_idle_waits_until_a_process_can_be_started(place: Workplace) -> None:
    await place.add("plain", item_type="plain", retries=0, at="2026-03-01T00:00Z")
    worker = await place.worker(Mode.UNTIL_IDLE)
    (await worker.run("plain")).not_begun("no memory")
    await place.ended("plain")
    await worker.looks_again()
    await place.sleeps(2)
    place.later(seconds=2)
    await worker.looks_again()
    (await worker.run("plain", 1)).end()
    assert await place.ended("plain", runs=2) == [(1, "cancelled"), (2, "ok")]
    await worker.looks_again()
    await worker.ended()


@pytest.mark.of_one_store("processes are started above the store")
@with_workers
async def test_a_worker_until_idle_for_which_no_process_can_be_started_for_a_minute_gives_up(
    place: Workplace,
) -> None:
    await place.add("plain", item_type="plain", retries=0, at="2026-03-01T00:00Z")
    worker = await place.worker(Mode.UNTIL_IDLE)
    worker.process.starts = False
    (await worker.run("plain")).not_begun("no memory")
    for seconds in [2, 4, 8, 16, 30]:
        await worker.looks_again()
        assert not worker.task.done()
        await place.sleeps(seconds)
        place.later(seconds=seconds)
    await worker.looks_again()
    place.workers.remove(worker)
    with pytest.raises(BlackboardError, match="no memory"):
        await worker.ended()
    assert await place.outcomes("plain") == [(1, "cancelled")]
    assert (await place.item("plain")).waits


@pytest.mark.of_one_store("processes are started above the store")
@with_workers
async def test_a_worker_until_idle_gives_up_where_tries_succeed_and_no_run_begins(
    place: Workplace,
) -> None:
    """After a run that has begun it waits for a whole minute again."""
    for item_id in ("plain", "another"):
        await place.add(item_id, item_type="plain", retries=0, at="2026-03-01T00:00Z")
    worker = await place.worker(Mode.UNTIL_IDLE, slots=1)
    order, numbers = worker.process.order, itertools.count()

    async def next_ends(*, begun: bool) -> None:
        number = next(numbers)
        await until(lambda: len(order) > number, f"run {number}")
        run = worker.process.runs[order[number]][-1]
        if begun:
            run.end()
        else:
            run.not_begun("no memory")
        await worker.tells(RunEnded, number + 1)
        await worker.looks_again()

    for seconds in [2, 4, 8, 16, 30, 30]:
        if seconds == 16:
            await next_ends(begun=True)
        await next_ends(begun=False)
        assert not worker.task.done()
        await place.sleeps(seconds)
        place.later(seconds=seconds)
        await worker.looks_again()
    await next_ends(begun=False)
    place.workers.remove(worker)
    with pytest.raises(BlackboardError, match="no memory"):
        await worker.ended()


@with_workers
async def test_params_that_lack_a_variable_are_a_failed_run(place: Workplace) -> None:
    await place.add("davis", every="1h", params={"key": "${NO_SUCH_VARIABLE}"})
    worker = await place.worker()
    assert await place.ended("davis") == [(1, "failed")]
    assert "NO_SUCH_VARIABLE" in (await place.runs())[0].error
    assert worker.order == []


@with_workers
async def test_odd_params_for_once_are_a_failed_run_and_no_end_of_the_worker(
    place: Workplace,
) -> None:
    await place.add("odd")
    await place.add("davis")
    made = await place.token("odd")
    rows = [keys.item_key("odd"), keys.next_key(made.ready, "odd")]
    partition = place.other.partition("odd")
    await place.table.table.commit(partition, [Merge(row, {"once": "[1]"}, "*") for row in rows])
    worker = await place.worker()
    assert await place.ended("odd") == [(1, "failed")]
    (await worker.run("davis")).end()
    await place.ended("davis")


@with_workers
async def test_a_change_made_while_it_runs_is_obeyed_by_the_release(place: Workplace) -> None:
    await place.add("davis")
    worker = await place.worker()
    run = await worker.run("davis")
    await edit(place.other, "davis", lambda spec, _: Spec(every="5m", params=spec.params))
    run.end()
    await place.ended("davis")
    item = await place.item()
    assert item.planned - item.start == timedelta(minutes=5)  # type: ignore[operator]


@with_workers
async def test_an_item_that_was_paused_while_it_ran_waits_for_nobody(place: Workplace) -> None:
    await place.add("davis")
    worker = await place.worker()
    run = await worker.run("davis")
    await pause(place.other, "davis", place.mark("enough"))
    run.end()
    await place.ended("davis")
    assert await place.tokens() == []


@with_workers
async def test_a_run_now_that_was_asked_for_meanwhile_is_next(place: Workplace) -> None:
    await place.add("davis")
    worker = await place.worker()
    run = await worker.run("davis")
    await run_now(place.other, "davis")
    run.end()
    await place.ended("davis")
    await worker.walk()
    await worker.run("davis", 1)


@with_workers
async def test_many_that_end_together_are_let_go_in_few_batches(place: Workplace) -> None:
    ids = [f"item-{n}" for n in range(20)]
    for item_id in ids:
        await place.add(item_id)
    worker = await place.worker(slots=20)
    runs = [await worker.run(item_id) for item_id in ids]
    before = len(place.table.batches)
    for run in runs:
        run.end()
    await worker.tells(RunEnded, 20)
    assert len(place.table.batches) - before <= 3


@with_workers
async def test_an_outcome_waits_for_a_store_that_is_away(place: Workplace) -> None:
    await place.add("davis")
    worker = await place.worker()
    run = await worker.run("davis")
    place.table.script(Fault.AWAY, Fault.BUSY, Fault.AWAY)
    run.end()
    await until(lambda: bool(place.clock._sleepers), "it waits")
    while not place.table.quiet:
        place.later(seconds=5)
        await asyncio.sleep(0)

    def written() -> bool:
        place.later(seconds=1)  # it may fall asleep again at any time
        return bool(worker.of(RunEnded))

    await until(written, "it is written")
    assert await place.outcomes("davis") == [(1, "ok")]


@with_workers
async def test_the_history_is_pruned_as_it_grows(place: Workplace) -> None:
    await place.add("davis", every="1h")
    worker = await place.worker(retention=Retention(runs=KEPT))
    for number in range(2 * KEPT):
        (await worker.run("davis", number)).end()
        await worker.tells(RunEnded, number + 1)
        place.later(hours=1)
        await worker.walk()
    await worker.run("davis", 2 * KEPT)
    fences = [fence for fence, _ in await place.outcomes()]
    assert fences == list(range(KEPT + 1, 2 * KEPT + 1))


@with_workers
async def test_a_worker_whose_clock_is_ahead_for_a_while_deletes_no_history(
    place: Workplace,
) -> None:
    await place.add("davis", every="1h")
    retention = Retention(runs=KEPT)
    right = await place.worker(retention=retention)
    for number in range(KEPT - 2):
        (await right.run("davis", number)).end()
        await right.tells(RunEnded, number + 1)
        place.later(hours=1)
        await right.walk()
    await right.stop()
    place.clock.jump(10 * 366 * 86_400)
    wrong = await place.worker(retention=retention)
    (await wrong.run("davis")).end()
    assert (await wrong.tells(RunEnded)).fence == KEPT, "the release that prunes"
    await wrong.stop()
    assert [fence for fence, _ in await place.outcomes()] == list(range(1, KEPT + 1))


@with_workers
async def test_pruning_that_the_store_does_not_answer_is_left_for_later(place: Workplace) -> None:
    await place.add("davis", every="1h")
    worker = await place.worker(retention=Retention(runs=KEPT // 2))
    for number in range(KEPT - 1):
        (await worker.run("davis", number)).end()
        await worker.tells(RunEnded, number + 1)
        place.later(hours=1)
        await worker.walk()
    place.table.script(Fault.NONE, Fault.AWAY)
    (await worker.run("davis", KEPT - 1)).end()
    await worker.tells(StoreEvent)
    assert len(await place.outcomes()) == KEPT


# ---- when a worker is done


@with_workers
async def test_once_is_one_walk_and_the_runs_that_it_started(place: Workplace) -> None:
    await place.add("a")
    place.later(seconds=1)
    await place.add("b")
    worker = await place.worker(Mode.ONCE, slots=1)
    (await worker.run("a")).end()
    await worker.ended()
    assert worker.order == ["a"]
    assert await place.outcomes("a") == [(1, "ok")]


@with_workers
async def test_once_leaves_nothing_to_other_workers(place: Workplace) -> None:
    """It does not come again for what they did not take."""
    first, *others = await place.fill(20)
    await place.claimed(first, board=place.other, owner="another")
    worker = await place.worker(Mode.ONCE, slots=20, at_once=True)
    await worker.ended()
    assert sorted(worker.order) == others


@with_workers
async def test_once_waits_for_a_walk_that_the_store_answers(place: Workplace) -> None:
    await place.add("davis")
    place.table.script_reads(Fault.AWAY)
    worker = await place.worker(Mode.ONCE)

    def has_run() -> bool:
        if worker.is_idle():  # no time passes while the store is at work
            place.later(seconds=SPACING)
            worker.wake.now()
        return bool(worker.order)

    await until(has_run, "a walk")
    (await worker.run("davis")).end()
    await worker.ended()


@with_workers
async def test_an_empty_board_is_idle_at_once(place: Workplace) -> None:
    for mode in (Mode.ONCE, Mode.UNTIL_IDLE):
        worker = await place.worker(mode)
        await worker.ended()
        assert not worker.wake.running


@with_workers
async def test_until_idle_goes_on_while_anything_is_due(place: Workplace) -> None:
    ids = [f"item-{n}" for n in range(7)]
    for item_id in ids:
        await place.add(item_id)
    await place.add("strange", item_type="strange")
    worker = await place.worker(Mode.UNTIL_IDLE, slots=2, at_once=True)
    await worker.ended()
    assert sorted(worker.order) == ids


@with_workers
async def test_until_idle_waits_for_what_others_run(place: Workplace) -> None:
    """Should the other die, its item is due again."""
    await place.add("davis", every="1h", stale_after="3s")
    await place.claimed("davis", board=place.other, owner="dead")
    worker = await place.worker(Mode.UNTIL_IDLE, at_once=True)
    await worker.walk()
    assert not worker.task.done()
    place.later(seconds=4)
    worker.wake.now()
    await worker.ended()
    assert await place.outcomes() == [(1, "abandoned"), (2, "ok")]


@with_workers
async def test_until_idle_does_not_wait_for_types_it_does_not_take(place: Workplace) -> None:
    await place.add("davis", item_type="strange")
    await place.claimed("davis", board=place.other, owner="another")
    await (await place.worker(Mode.UNTIL_IDLE)).ended()


@with_workers
async def test_until_idle_passes_over_missed_slots_and_ends(place: Workplace) -> None:
    await place.add("davis", cron="0 * * * *", missed="none")
    first = await place.worker(Mode.UNTIL_IDLE, at_once=True)
    await first.ended()
    place.later(hours=1, minutes=30)
    worker = await place.worker(Mode.UNTIL_IDLE, owner="second")
    assert not worker.task.done()
    worker.wake.now()
    await worker.ended()
    assert worker.order == []


# ---- when it is asked to stop


@with_workers
async def test_asked_to_stop_it_claims_nothing_and_lets_what_runs_finish(place: Workplace) -> None:
    await place.add("a")
    worker = await place.worker(slots=1)
    run = await worker.run("a")
    await place.add("b")
    worker.worker.stop()
    await place.sleeps(30)
    place.later(seconds=29)
    assert run.stopped is None
    run.end()
    await worker.ended()
    assert worker.order == ["a"]
    assert await place.outcomes("a") == [(1, "ok")]
    assert [event.message for event in worker.of(WorkerStopping)] == [
        "1 run may finish within 30 s; asked again: now"
    ]


@with_workers
async def test_one_event_says_what_runs_on_and_what_is_released_at_the_stop(
    place: Workplace,
) -> None:
    await place.add("a")
    worker = await place.worker(slots=1)
    run = await worker.run("a")
    worker.worker.stop(partitions=12)
    run.end()
    await worker.ended()
    assert [event.message for event in worker.of(WorkerStopping)] == [
        "releases 12 partitions; 1 run may finish within 30 s; asked again: now"
    ]


@pytest.mark.case("RR02")
@with_workers
async def test_after_the_grace_what_runs_is_put_back(place: Workplace) -> None:
    """Due at once, for the same slot and attempt: it was not its fault."""
    await place.add("davis", every="1h", retries=3)
    worker = await place.worker(grace=timedelta(seconds=30))
    run = await worker.run("davis")
    worker.worker.stop()
    await place.sleeps(30)
    place.later(seconds=31)
    await worker.ended()
    assert run.stopped is not None
    assert run.stopped.error == "stopped: the worker is stopping"
    assert await place.outcomes() == [(1, "cancelled")]
    token = await place.token()
    assert (token.slot, token.attempt) == (run.call.due, 1)
    assert token.ready <= place.clock.now()


@with_workers
async def test_the_grace_counts_from_when_it_was_asked_to_stop(place: Workplace) -> None:
    """Also where its walk takes long to end."""
    await place.add("davis", every="1h")
    worker = await place.worker(grace=timedelta(seconds=30))
    await worker.run("davis")

    async def slowly() -> None:
        worker.worker.stop()
        place.later(seconds=20)

    place.table.script_reads(slowly)
    worker.wake.beat()
    await place.sleeps(10)
    place.later(seconds=10)
    await worker.ended()
    assert await place.outcomes() == [(1, "cancelled")]


@pytest.mark.case("RR06")
@with_workers
async def test_asked_twice_it_gives_no_grace(place: Workplace) -> None:
    await place.add("davis")
    worker = await place.worker(grace=timedelta(hours=1))
    await worker.run("davis")
    for _ in range(5):
        worker.worker.stop()
    await worker.ended()
    assert await place.outcomes() == [(1, "cancelled")]


@pytest.mark.case("RR06")
@with_workers
async def test_asked_twice_while_the_grace_passes_it_gives_no_more(place: Workplace) -> None:
    await place.add("davis")
    worker = await place.worker(grace=timedelta(hours=1))
    await worker.run("davis")
    worker.worker.stop()
    await settled()
    assert not worker.task.done()
    worker.worker.stop()
    await worker.ended()
    assert await place.outcomes() == [(1, "cancelled")]


@with_workers
async def test_a_worker_asked_to_stop_while_it_walks_takes_nothing_more(place: Workplace) -> None:
    await place.add("davis", every="1h", stale_after="3s")
    await place.claimed("davis", board=place.other, owner="dead")
    place.later(seconds=4)
    await place.add("another")
    worker = await place.worker()

    async def stop() -> None:
        worker.worker.stop()

    (await worker.run("davis")).end()
    (await worker.run("another")).end()
    await worker.tells(RunEnded, 2)
    for item_id in ("c", "d"):
        await place.add(item_id)
    place.table.script_reads(stop)
    worker.wake.beat()
    await worker.ended()
    assert worker.order == ["davis", "another"]


@with_workers
async def test_what_a_worker_gets_after_it_was_asked_to_stop_is_put_back(place: Workplace) -> None:
    """Its claim was under way. The same slot and attempt wait for another, and no handler is
    called.
    """
    await place.add("davis", every="1h")
    slot = (await place.token()).slot

    async def is_asked_to_stop() -> None:
        place.workers[0].worker.stop()

    place.table.script(is_asked_to_stop)
    worker = await place.worker()
    await worker.ended()
    assert worker.order == []
    token = await place.token()
    assert (token.slot, token.attempt, token.ready <= place.clock.now()) == (slot, 1, True)
    assert await place.outcomes() == [(1, "cancelled")]


@pytest.mark.of_each_store
@with_workers
async def test_a_claim_of_a_slow_shard_keeps_no_slot_and_is_put_back_if_there_is_none(
    place: Workplace,
) -> None:
    await slow_claim(place, slots=1, put_back=True)


@with_workers
async def test_a_claim_of_a_slow_shard_is_run_if_there_is_a_slot(place: Workplace) -> None:
    await slow_claim(place, slots=2, put_back=False)


async def slow_claim(place: Workplace, *, slots: int, put_back: bool) -> None:
    """A claim hangs; meanwhile another shard's item takes the slot. Then it is answered."""
    table = MemoryTable(place.clock, Contents())
    board = await board_on(table, place.clock, place.settings, shards=2)
    slow, quick = (ids_of_shard(board, number)[0] for number in range(2))
    spec = Spec(every="1h", stale_after="1h")
    await add(board, New(id=slow, type="feed", spec=spec))
    place.later(seconds=2)
    await add(board, New(id=quick, type="feed", spec=spec))
    sent, gate, hanging = table.commit, asyncio.Event(), asyncio.Event()

    async def commit(partition: str, ops: Sequence[Op]) -> list[Etag]:
        etags = await sent(partition, ops)
        if partition == board.shard(0) and not gate.is_set():
            hanging.set()
            await gate.wait()
        return etags

    table.commit = commit  # type: ignore[method-assign]
    starting = asyncio.ensure_future(place.worker(board=board, slots=slots))
    await hanging.wait()
    await place.sleeps(SLOW)
    place.later(seconds=SLOW)
    worker = await starting
    running = await worker.run(quick)
    gate.set()
    if put_back:
        event = await worker.tells(RunEnded)
        assert (event.id, event.run.outcome, worker.order) == (slow, "cancelled", [quick])
        running.end()
        await worker.tells(RunEnded, 2)
    (await worker.run(slow)).end()
    await worker.tells(RunEnded, 3 if put_back else 1)
    assert worker.of(RunEnded)[-1].id == slow
    assert sorted(worker.order) == sorted([slow, quick])


@with_workers
async def test_a_full_type_keeps_no_other_type_from_its_slots(place: Workplace) -> None:
    """However many of it are more overdue than the others."""
    for number in range(40):
        await place.add(f"rare-{number:02}", item_type="rare")
    place.later(seconds=5)
    for number in range(3):
        await place.add(f"feed-{number}")
    worker = await place.worker(slots=4)
    await until(lambda: len(worker.order) == 4, "all slots are used")
    assert sorted(worker.order) == ["feed-0", "feed-1", "feed-2", "rare-00"]
    (await worker.run("feed-0")).end()
    await place.add("feed-3")
    await worker.walk()
    await worker.run("feed-3")
    assert worker.order[-1] == "feed-3"


@with_workers
async def test_a_handler_that_does_not_stop_holds_nobody_up_for_ever(place: Workplace) -> None:
    """Its runner gives it up; here it does so when it is closed."""
    await place.add("davis", every="1h", stale_after="10s")
    worker = await place.worker(grace=timedelta(0))
    run = await worker.run("davis")
    run.deaf = True
    worker.worker.stop()
    await until(lambda: run.stopped, "it is told to stop")
    run.end(Outcome.CANCELLED, error="abandoned")
    await worker.ended()


@pytest.mark.case("RR02")
@with_workers
async def test_a_store_that_is_away_does_not_keep_a_worker_from_ending(place: Workplace) -> None:
    """What it could not write back goes stale, and is overridden."""
    await place.add("davis", every="1h", stale_after="3s")
    worker = await place.worker(grace=timedelta(0))
    await worker.run("davis")
    place.table.script(*[Fault.AWAY] * 10_000)
    worker.worker.stop()
    while not worker.task.done():
        place.clock.advance(0.5)
        await settled()
    await worker.task
    place.table._commits.clear()
    assert (await place.lock()).owner == "me"


# ---- what it tells of itself


@with_workers
async def test_a_worker_is_listed_while_it_works(place: Workplace) -> None:
    await place.add("davis")
    worker = await place.worker(slots=3, cycle=timedelta(seconds=30))
    run = await worker.run("davis")
    await place.announced()
    (listed,) = await workers(place.other)
    assert listed.running == 1
    assert (listed.owner, listed.slots, listed.cycle) == ("me", 3, 30.0)
    assert listed.types == "feed,fenced,plain,polite,rare,scarce"
    assert listed.seen > listed.started
    run.end()
    worker.worker.stop()
    await worker.ended()
    assert await workers(place.other) == []


# ---- the wall clock


@pytest.mark.case("CJ01", "S4")
@pytest.mark.parametrize("jump", [24 * 3600, -24 * 3600])
def test_a_wall_clock_that_jumps_takes_no_lock(jump: int, open_table: object) -> None:
    """Neither by its holder's clock, nor by those of other workers."""

    @with_workers
    async def story(place: Workplace) -> None:
        await place.add("davis", every="1h", stale_after="30s", timeout="1h")
        worker = await place.worker()
        run = await worker.run("davis")
        place.clock.jump(jump)
        other = await place.worker(owner="other", board=place.other)
        await other.walk()
        for _ in range(4):
            place.later(seconds=10)
            until_then = run.deadlines[-1]
            await worker.walk()
            await until(lambda: run.deadlines[-1] > until_then, "a renewal")  # noqa: B023
        await other.walk()
        assert (run.lost, run.stopped) == ("", None)
        assert other.order == []
        run.end()
        assert await place.ended("davis") == [(1, "ok")]

    story(open_table=open_table)


# ---- a herd


@pytest.mark.case("ME07", "S1", on="memory")
def test_a_herd_of_workers_runs_hundreds_of_items_once_each() -> None:
    async def story() -> None:
        clock, contents = ManualClock(), Contents()
        place = Workplace(
            table=None,  # type: ignore[arg-type]
            clock=clock,
            board=await board_on(MemoryTable(clock, contents), clock, Settings()),
            other=await board_on(MemoryTable(clock, contents), clock, Settings(), seed=2),
            open_table=None,  # type: ignore[arg-type]
            settings=Settings(),
        )
        ids = {f"item-{n}" for n in range(400)}
        for item_id in ids:
            await place.add(item_id)
        herd = []
        for number in range(16):
            board = await board_on(MemoryTable(clock, contents), clock, Settings(), seed=3 + number)
            task = place.worker(
                Mode.UNTIL_IDLE, owner=f"worker-{number}", board=board, at_once=True, slots=8
            )
            herd.append(asyncio.ensure_future(task))
        started = [await one for one in herd]
        async with asyncio.timeout(patience(100)):
            while not all(one.task.done() for one in started):
                for one in started:
                    if one.wake.waiting:
                        one.wake.now()
                await asyncio.sleep(0)
        assert sorted(item_id for one in started for item_id in one.order) == sorted(ids)
        assert await disagreements(place.other) == []

    asyncio.run(story())
