"""Letting an item go: releases, in doubt or not."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from blackboard.model import Outcome, State, replace
from blackboard.protocol import keys
from blackboard.protocol.edits import edit, pause, resume, run_now
from blackboard.protocol.releases import ReleaseOutcome, release
from blackboard.rules.breaker import LONGEST, SHORTEST
from blackboard.schedule.schedule import Every
from blackboard.spec import RunSettings, Spec
from blackboard.table import ANY, Delete, Merge, Op
from tests.support.boards import Scene, finished, make_board, story
from tests.support.faults import RETRY_AFTER, Fault

pytestmark = pytest.mark.of_one_store("what is read and written is decided above the store")

HOUR = timedelta(hours=1)


# ---- the ordinary end


@pytest.mark.case("ME01")
@story
async def test_me01_claim_and_release_leave_no_lock(scene: Scene) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    stop = scene.later(seconds=90)
    let_go = await scene.let_go(made, result={"events": 3})
    item, token = await scene.item(), await scene.token()
    assert await scene.rows("lock:") == []
    assert let_go.how is ReleaseOutcome.DONE
    assert let_go.ready == token.ready == made.start + HOUR
    assert (item.running, item.stop, item.outcome) == (False, stop, Outcome.OK)
    assert (item.result, item.result_fence, item.error) == ('{"events":3}', 1, "")
    assert (item.runs, item.failures, item.fence) == (1, 0, 1)


@story
async def test_a_run_is_in_the_history_with_all_that_is_known_of_it(scene: Scene) -> None:
    await scene.add("davis")
    scene.later(seconds=5)
    made = await scene.claimed("davis")
    scene.later(seconds=90)
    let_go = await scene.let_go(made, result=[1, 2])
    (run,) = await scene.runs()
    assert run == replace(let_go.run, etag=run.etag)
    assert (run.fence, run.attempt, run.outcome) == (1, 1, Outcome.OK)
    assert (run.slot, run.start, run.lag, run.duration) == (made.slot, made.start, 5.0, 90.0)
    assert (run.worker, run.nonce) == ("me", made.nonce)
    assert (run.result, run.output, run.error) == ("[1,2]", "printed", "")


@story
async def test_a_failure_is_retried_with_the_same_slot_and_keeps_the_last_result(
    scene: Scene,
) -> None:
    await scene.add("davis", every="1h", retries=1, backoff="1m")
    await scene.let_go(await scene.claimed("davis"), result="good")
    scene.later(hours=1)
    made = await scene.claimed("davis")
    await scene.let_go(made, "failed", error="no")
    item, token = await scene.item(), await scene.token()
    assert (token.slot, token.attempt) == (made.slot, 2)
    assert scene.clock.now() <= token.ready <= scene.clock.now() + timedelta(minutes=1)
    assert (item.outcome, item.error, item.result) == (Outcome.FAILED, "no", '"good"')
    assert (item.failures, item.result_fence) == (1, 1)
    scene.later(minutes=1)
    await scene.let_go(await scene.claimed("davis"), "failed", error="no")
    assert (await scene.token()).attempt == 1, "no retries are left"
    scene.later(hours=1)
    await scene.let_go(await scene.claimed("davis"))
    item = await scene.item()
    assert (item.failures, item.error, item.outcome) == (0, "", Outcome.OK)


@story
async def test_a_failure_of_a_pump_that_went_on_is_retried_whichever_attempt_it_was(
    scene: Scene,
) -> None:
    every = Every(timedelta(minutes=1))
    pump = RunSettings(schedule=every, endless=True, retries=1, backoff=timedelta(seconds=1))
    board = scene.board.using(resolve=lambda *_: pump)
    await scene.add("davis")

    async def failed_after(minutes: int) -> tuple[int, bool, int]:
        made = await scene.claimed("davis", board=board)
        scene.later(minutes=minutes)
        let_go = await scene.let_go(made, "failed", board=board)
        scene.later(minutes=1)
        return made.attempt, let_go.retried, (await scene.token()).attempt

    assert [await failed_after(minutes) for minutes in (2, 2, 2, 0)] == [
        (1, True, 2),
        (2, True, 2),
        (2, True, 2),
        (2, False, 1),
    ]


@pytest.mark.parametrize("outcome", ["ok", "failed", "timeout", "cancelled"])
@story
async def test_every_outcome_frees_the_lock_and_has_its_row(scene: Scene, outcome: str) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    await scene.let_go(made, outcome, error="" if outcome == "ok" else "because")
    assert await scene.outcomes() == [(1, outcome)]
    assert (await scene.token()).slot == made.start + HOUR


@story
async def test_a_run_cut_short_by_a_shutdown_is_due_again_at_once(scene: Scene) -> None:
    await scene.add("davis", cron="0 3 * * *")
    made = await scene.claimed("davis")
    scene.later(seconds=10)
    await scene.let_go(made, "cancelled", requeue=True)
    token = await scene.token()
    assert (token.slot, token.attempt, token.ready) == (made.slot, 1, scene.clock.now())


@story
async def test_an_item_that_runs_once_is_done(scene: Scene) -> None:
    await scene.add("davis", at=scene.clock.now().isoformat())
    let_go = await scene.let_go(await scene.claimed("davis"))
    assert let_go.ready is None
    assert (await scene.item()).state is State.DONE
    assert await scene.tokens() == []


# ---- many at once


@story
async def test_releases_are_batched(scene: Scene) -> None:
    for n in range(5):
        await scene.add(f"i{n}")
    claims = (await scene.take(*(f"i{n}" for n in range(5)))).claims
    sent = len(scene.table.batches)
    let_go = await release(scene.board, [finished(made) for made in claims])
    assert [one.run.id for one in let_go] == [made.id for made in claims]
    assert len(scene.table.batches) == sent + 1


@pytest.mark.of_each_store
@pytest.mark.parametrize("limit", ["rows", "bytes"])
@story
async def test_batches_stay_below_the_stores_limits(scene: Scene, limit: str) -> None:
    for n in range(7):
        await scene.add(f"i{n}")
    claims = (await scene.take(*(f"i{n}" for n in range(7)))).claims
    if limit == "rows":
        scene.table.max_rows = 12
    else:
        scene.table.max_bytes = 50_000
    sent = len(scene.table.batches)
    await release(scene.board, [finished(made, result="x" * 2000) for made in claims])
    batches = scene.table.batches[sent:]
    assert len(batches) == 3
    assert all(len({op.key for op in batch}) == len(batch) <= 12 for batch in batches)


@story
async def test_one_conflict_in_a_batch_spoils_none_of_the_others(scene: Scene) -> None:
    """They are sent again without it, in one batch."""
    for name in "abc":
        await scene.add(name)
    claims = (await scene.take("a", "b", "c")).claims
    await pause(scene.other, "b", scene.mark())
    scene.table.batches.clear()
    let_go = await release(scene.board, [finished(made) for made in claims])
    assert [one.how for one in let_go] == [ReleaseOutcome.DONE] * 3
    assert [one.run.id for one in let_go] == ["a", "b", "c"]
    assert [token.id for token in await scene.tokens()] == ["a", "c"]
    together, others, alone = map(_locks_freed, scene.table.batches)
    assert (together, others, alone) == (["a", "b", "c"], ["a", "c"], ["b"])


@story
async def test_the_release_that_landed_says_when_it_is_ready_not_the_one_before(
    scene: Scene,
) -> None:
    """The batch is refused, and the next one lands without a reply."""
    for name in "ab":
        await scene.add(name, every="1h", retries=1, backoff="1h")
    claims = (await scene.take("a", "b")).claims
    await pause(scene.other, "b", scene.mark())
    scene.table.script(Fault.NONE, Fault.LOST)
    mine, _ = await release(scene.board, [finished(made, "failed") for made in claims])
    assert mine.ready == (await scene.token("a")).ready


@story
async def test_where_all_are_in_the_way_they_are_soon_settled_one_by_one(scene: Scene) -> None:
    names = [f"i{n}" for n in range(9)]
    for name in names:
        await scene.add(name)
    claims = (await scene.take(*names)).claims
    for name in names:
        await pause(scene.other, name, scene.mark())
    scene.table.batches.clear()
    let_go = await release(scene.board, [finished(made) for made in claims])
    assert [one.run.id for one in let_go] == names
    freed = [_locks_freed(batch) for batch in scene.table.batches]
    assert [len(ids) for ids in freed] == [9, 8, 7] + [1] * 9


def _locks_freed(batch: Sequence[Op]) -> list[str]:
    freed = [op.key for op in batch if isinstance(op, Delete)]
    return [key.removeprefix("lock:") for key in freed if key.startswith("lock:")]


@story
async def test_runs_of_two_shards_are_let_go_together(scene: Scene) -> None:
    wide = await make_board(scene.table, scene.clock, shards=2, name="wide")
    wider = replace(scene, board=wide, other=wide)
    names = [f"town{n}" for n in range(6)]
    claims = []
    for name in names:
        await wider.add(name)
        claims.append(await wider.claimed(name))
    sent = len(scene.table.batches)
    let_go = await release(wide, [finished(made) for made in claims])
    assert [one.run.id for one in let_go] == names
    assert len(scene.table.batches) == sent + 2
    assert await release(wide, []) == []


# ---- what people did while it ran


@story
async def test_an_edit_made_while_it_ran_is_obeyed(scene: Scene) -> None:
    await scene.add("davis", every="1h")
    made = await scene.claimed("davis")
    await edit(scene.other, "davis", lambda *_: Spec(every="5h", params={"x": 1}))
    await scene.let_go(made)
    token = await scene.token()
    assert token.spec == '{"every":"5h","params":{"x":1}}'
    assert token.slot == made.start + 5 * HOUR


@story
async def test_an_edit_that_cannot_be_computed_here_leaves_the_plan_as_it_was(
    scene: Scene,
) -> None:
    await scene.add("davis", every="1h")
    made = await scene.claimed("davis")
    newer = Merge(keys.item_key("davis"), {"spec": '{"every":"soon"}'}, ANY)
    await scene.table.table.commit(scene.board.partition("davis"), [newer])
    await scene.let_go(made)
    token = await scene.token()
    assert (token.spec, token.slot) == ('{"every":"soon"}', made.start + HOUR)


@story
async def test_a_pause_made_while_it_ran_is_obeyed(scene: Scene) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    await pause(scene.other, "davis", scene.mark())
    let_go = await scene.let_go(made)
    item = await scene.item()
    assert (let_go.ready, item.state, item.running) == (None, State.PAUSED, False)
    assert await scene.tokens() == []
    await resume(scene.other, "davis", scene.mark())
    assert (await scene.token()).slot == made.start + HOUR


@story
async def test_a_pause_and_a_resume_made_while_it_ran_come_to_nothing(scene: Scene) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    await pause(scene.other, "davis", scene.mark())
    await resume(scene.other, "davis", scene.mark())
    await scene.let_go(made)
    assert (await scene.token()).slot == made.start + HOUR


@story
async def test_a_run_now_made_while_it_ran_is_the_next_run(scene: Scene) -> None:
    await scene.add("davis", cron="0 3 * * *")
    made = await scene.claimed("davis")
    asked = scene.later(seconds=10)
    await run_now(scene.other, "davis", once={"x": 1})
    scene.later(seconds=10)
    await scene.let_go(made)
    token = await scene.token()
    assert (token.slot, token.ready) == (asked, scene.clock.now())
    assert (token.once, token.planned.hour) == ('{"x":1}', 3)
    again = await scene.claimed("davis")
    await scene.let_go(again)
    assert (await scene.token()).slot == token.planned


# ---- in doubt


@pytest.mark.case("LR03")
@story
async def test_lr03_a_release_whose_reply_was_lost_has_landed_once(scene: Scene) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    scene.table.script(Fault.LOST)
    let_go = await scene.let_go(made, result="good")
    assert let_go.how is ReleaseOutcome.DONE
    assert let_go.run.result == '"good"'
    assert await scene.outcomes() == [(1, "ok")]
    assert (await scene.item()).runs == 1


@pytest.mark.case("LR03")
@story
async def test_a_release_whose_reply_was_lost_is_known_though_the_item_runs_again(
    scene: Scene,
) -> None:
    """Not as late, and not a second time."""
    await scene.add("davis", every="1h", retries=1, backoff="1ms")
    made = await scene.claimed("davis")

    async def claimed_again() -> None:
        scene.later(seconds=1)
        await scene.claimed("davis", board=scene.other, owner="you")

    scene.table.script(Fault.LOST)
    scene.table.script_reads(claimed_again)
    let_go = await scene.let_go(made, "failed", error="no")
    assert let_go.how is ReleaseOutcome.DONE
    assert await scene.outcomes() == [(1, "failed")]
    item = await scene.item()
    assert (item.fence, item.running, item.runs) == (2, True, 1)


@pytest.mark.case("LR07")
@pytest.mark.parametrize("fault", [Fault.NEVER, Fault.LATE])
@story
async def test_lr07_a_release_that_did_not_arrive_is_built_anew(scene: Scene, fault: Fault) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    scene.table.script(fault)
    assert (await scene.let_go(made)).how is ReleaseOutcome.DONE
    assert not any(await scene.table.land())
    assert await scene.outcomes() == [(1, "ok")]


@pytest.mark.case("LR11")
@story
async def test_lr11_a_batch_of_which_nothing_is_known_is_settled_one_by_one(
    scene: Scene,
) -> None:
    for name in "abc":
        await scene.add(name)
    claims = (await scene.take("a", "b", "c")).claims
    scene.table.script(Fault.LATE, Fault.LOST, Fault.NEVER)
    let_go = await release(scene.board, [finished(made) for made in claims])
    assert [one.how for one in let_go] == [ReleaseOutcome.DONE] * 3
    assert not any(await scene.table.land())
    for name in "abc":
        assert await scene.outcomes(name) == [(1, "ok")]


@pytest.mark.of_each_store
@story
async def test_an_edit_between_a_lost_release_and_the_next_is_obeyed(scene: Scene) -> None:
    await scene.add("davis", every="1h")
    made = await scene.claimed("davis")
    scene.table.script(Fault.NEVER, lambda: edit(scene.other, "davis", lambda *_: Spec(every="5h")))
    await scene.let_go(made)
    assert (await scene.token()).slot == made.start + 5 * HOUR


@story
async def test_so01_a_store_that_is_busy_or_away_is_waited_for(scene: Scene) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    started = scene.clock.monotonic()
    scene.table.script(Fault.BUSY, Fault.AWAY, Fault.AWAY, Fault.BUSY)
    assert (await scene.let_go(made)).how is ReleaseOutcome.DONE
    least = 2 * max(RETRY_AFTER, SHORTEST) + 2 * SHORTEST
    assert least <= scene.clock.monotonic() - started <= least + 4 * LONGEST
    assert await scene.outcomes() == [(1, "ok")]


@story
async def test_a_store_that_stays_away_is_asked_less_and_less_often(scene: Scene) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    started = scene.clock.monotonic()
    scene.table.script(*[Fault.AWAY] * 10)
    await scene.let_go(made)
    waited = scene.clock.monotonic() - started
    assert 10 * SHORTEST < waited <= 2 + 4 + 8 + 7 * LONGEST


@story
async def test_readings_are_waited_for_too(scene: Scene) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    scene.table.script(Fault.NEVER)
    scene.table.script_reads(Fault.BUSY, Fault.NONE, Fault.AWAY)
    assert (await scene.let_go(made)).how is ReleaseOutcome.DONE


@story
async def test_a_claim_that_was_settled_reads_its_item_before_its_release(scene: Scene) -> None:
    await scene.add("davis")
    scene.table.script(Fault.LOST)
    made = await scene.claimed("davis")
    await pause(scene.other, "davis", scene.mark())
    await scene.let_go(made)
    assert (await scene.item()).state is State.PAUSED


@pytest.mark.case("CR02")
@pytest.mark.parametrize("harm", ["item gone", "other fence"])
@story
async def test_cr02_a_lock_of_mine_that_no_item_is_run_under_goes(scene: Scene, harm: str) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    key, partition = keys.item_key("davis"), scene.board.partition("davis")
    damage = Delete(key, ANY) if harm == "item gone" else Merge(key, {"fence": 5}, ANY)
    await scene.table.table.commit(partition, [damage])
    scene.table.script(Fault.NONE, Fault.BUSY)
    let_go = await scene.let_go(made)
    assert let_go.how is (ReleaseOutcome.DROPPED if harm == "item gone" else ReleaseOutcome.LATE)
    assert await scene.rows("lock:") == []
    gone = [Delete(row.key, ANY) for row in await scene.rows()]
    await scene.table.table.commit(partition, gone)


@story
async def test_a_skipped_run_leaves_the_result_of_an_earlier_one(scene: Scene) -> None:
    await scene.add()
    await scene.let_go(await scene.claimed(), result={"events": 12})
    scene.later(hours=2)
    await scene.let_go(await scene.claimed(), error="closed on Sundays")
    item = await scene.item()
    assert (item.outcome, item.is_skipped, item.error) == (Outcome.OK, True, "closed on Sundays")
    assert (item.result, item.result_fence) == ('{"events":12}', 1)
    assert [run.error for run in await scene.runs()] == ["closed on Sundays", ""]
    scene.later(hours=2)
    await scene.let_go(await scene.claimed(), result={"events": 13})
    item = await scene.item()
    assert (item.is_skipped, item.error, item.result) == (False, "", '{"events":13}')
