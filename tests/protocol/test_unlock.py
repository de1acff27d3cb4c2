"""Running an item now, unlocking it, cancelling its run."""

from datetime import timedelta

import pytest

from blackboard.cli.follow import follow, is_pending
from blackboard.errors import BlackboardError
from blackboard.model import Outcome, State
from blackboard.protocol.edits import cancel, edit, pause, run_now, unlock
from blackboard.protocol.rows import text_of
from blackboard.rules.applied import ALWAYS
from blackboard.rules.next_run import APART
from tests.support.boards import Scene, story
from tests.support.faults import Fault
from tests.support.verbs import VERBS, ready_for, says

pytestmark = pytest.mark.of_one_store("what is read and written is decided above the store")

MILLISECOND = timedelta(milliseconds=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


# ---- run now


@pytest.mark.case("DD03")
@story
async def test_dd03_one_run_for_each_trigger(scene: Scene) -> None:
    await scene.add("davis", cron="0 3 * * *")
    await scene.let_go(await scene.claimed("davis"))
    scheduled = await scene.token()
    now = scene.later(minutes=1)
    assert (await run_now(scene.board, "davis", trigger="x", once={"a": 1})).changed
    token = await scene.token()
    assert (token.slot, token.ready, token.planned) == (now, now, scheduled.planned)
    assert token.once == '{"a":1}'
    scene.later(minutes=1)
    assert not (await run_now(scene.board, "davis", trigger="x")).changed
    made = await scene.claimed("davis")
    assert not (await run_now(scene.board, "davis", trigger="x")).changed
    await scene.let_go(made)
    assert not (await run_now(scene.board, "davis", trigger="x")).changed
    after = await scene.token()
    assert (after.slot, after.once) == (scheduled.slot, "")
    assert len(await scene.runs()) == 2


@pytest.mark.case("DD03")
@story
async def test_dd03_a_trigger_is_known_again_after_others(scene: Scene) -> None:
    await scene.add("davis")
    for n in range(ALWAYS):
        await run_now(scene.board, "davis", trigger=f"t{n}")
        scene.later(hours=1)
    assert not (await run_now(scene.board, "davis", trigger="t0")).changed
    await run_now(scene.board, "davis", trigger="last")
    assert len((await scene.item()).applied) == ALWAYS + 1, "one is of the run in hand"


@pytest.mark.case("DD03")
@story
async def test_dd03_a_run_now_racing_the_claim_of_the_schedule_runs_once_for_each(
    scene: Scene,
) -> None:
    await scene.add("davis", every="8h")

    async def claimed() -> None:
        await scene.claimed("davis", board=scene.other)

    scene.table.script(claimed)
    assert (await run_now(scene.board, "davis", trigger="x")).changed
    item = await scene.item()
    assert item.running
    assert item.slot == scene.clock.now()
    (waits,) = item.requests
    assert (waits.name, waits.slot) == ("x", item.slot + APART), "a slot of its own"


@story
async def test_whoever_waits_for_a_run_knows_it_though_its_slot_made_way(scene: Scene) -> None:
    await scene.add("davis", every="1h")
    made = await scene.claimed("davis")
    scene.later(hours=1)
    asked = await run_now(scene.other, "davis")
    await scene.let_go(made)
    item = await scene.item()
    assert item.slot < asked.slot == item.planned
    assert is_pending(item, asked.slot)
    await scene.let_go(await scene.claimed("davis"), result="seen")
    [followed] = await follow(scene.board, [asked], patience=None)
    assert followed.words.endswith('"seen"')


@pytest.mark.parametrize("missed", ["one", "none", "all"])
@pytest.mark.parametrize("was", [{"at": "2026-01-01T00:00Z"}, {"cron": "0 3 * * *"}])
@story
async def test_a_done_item_that_was_run_again_knows_no_slot_of_old(
    scene: Scene, *, was: dict[str, str], missed: str
) -> None:
    await scene.add("davis", missed=missed, **was)
    await scene.let_go(await scene.claimed("davis"))
    await edit(scene.other, "davis", says(at="2026-01-01T00:00Z", missed=missed))
    assert (await scene.item()).state is State.DONE
    scene.later(minutes=1)
    await run_now(scene.other, "davis")
    await scene.let_go(await scene.claimed("davis"))
    assert (await scene.item()).state is State.DONE
    assert await scene.tokens() == []


@pytest.mark.parametrize("missed", ["one", "none", "all"])
@story
async def test_two_who_ask_a_done_item_to_run_ask_for_one_run(scene: Scene, *, missed: str) -> None:
    """The second one looked at the time before the first one did."""
    await scene.add("davis", at="2026-01-01T00:00Z", missed=missed)
    await scene.let_go(await scene.claimed("davis"))
    early = scene.clock.now()

    async def faster() -> None:
        scene.later(seconds=1)
        await run_now(scene.other, "davis")

    scene.table.script(faster)
    await run_now(scene.board, "davis")
    assert (await scene.item()).slot == early + timedelta(seconds=1)
    await scene.let_go(await scene.claimed("davis"))
    assert (await scene.item()).state is State.DONE
    assert await scene.tokens() == []


@story
async def test_a_done_item_can_be_run_again_and_is_done_again(scene: Scene) -> None:
    await scene.add("davis", at="2026-01-01T00:00Z")
    await scene.let_go(await scene.claimed("davis"))
    scene.later(minutes=1)
    await run_now(scene.board, "davis")
    await scene.let_go(await scene.claimed("davis"))
    assert (await scene.item()).state is State.DONE
    assert len(await scene.runs()) == 2


@story
async def test_a_paused_item_is_not_run_now(scene: Scene) -> None:
    await ready_for("resume", scene)
    before = await scene.item()
    with pytest.raises(BlackboardError, match="is paused: `resume` it first"):
        await run_now(scene.board, "davis")
    assert await scene.item() == before


# ---- unlock and cancel


@story
async def test_an_unlocked_item_is_due_at_once_with_the_slot_it_had(scene: Scene) -> None:
    await scene.add("davis", cron="0 3 * * *", retries=3)
    await scene.let_go(await scene.claimed("davis"), "failed", error="no")
    scene.later(minutes=1)
    made = await scene.claimed("davis")
    now = scene.later(minutes=1)
    mark = scene.mark("stuck")
    item = (await unlock(scene.board, "davis", mark, fence=2)).item
    token = await scene.token()
    assert (token.slot, token.attempt, token.ready) == (made.slot, 2, now)
    assert (item.fence, item.running, item.outcome) == (3, False, Outcome.ABANDONED)
    assert (item.runs, item.stop, item.error) == (2, now, "unlocked by ann: stuck")
    run = (await scene.runs())[0]
    assert (run.fence, run.outcome, run.note) == (2, Outcome.ABANDONED, text_of(mark))
    assert (run.worker, run.start) == ("me", made.start)


@story
async def test_a_cancelled_run_ends_and_its_item_waits_for_its_next_slot(scene: Scene) -> None:
    await scene.add("davis", every="1h", retries=3)
    made = await scene.claimed("davis")
    scene.later(minutes=1)
    item = (await cancel(scene.board, "davis", scene.mark(), fence=1)).item
    token = await scene.token()
    assert (token.slot, token.attempt) == (made.start + HOUR, 1)
    assert (item.fence, item.outcome, item.error) == (2, Outcome.CANCELLED, "cancelled by ann")
    assert await scene.outcomes() == [(1, "cancelled")]


@pytest.mark.case("S2")
@pytest.mark.parametrize("verb", ["unlock", "cancel"])
@pytest.mark.parametrize("now", ["waiting", "claimed again", "overridden"])
@story
async def test_only_the_lock_that_was_meant_is_taken(scene: Scene, verb: str, now: str) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    if now != "waiting":
        await unlock(scene.other, "davis", scene.mark(), fence=1)
        await scene.claimed("davis", board=scene.other)
    else:
        await scene.let_go(made)
    before = await scene.item()
    assert not (await VERBS[verb](scene)).changed
    assert await scene.item() == before


@pytest.mark.parametrize("verb", ["unlock", "cancel"])
@story
async def test_a_retry_does_not_take_the_lock_of_the_next_holder(scene: Scene, verb: str) -> None:
    await ready_for(verb, scene)

    async def claimed_again() -> None:
        scene.later(hours=2)
        await scene.claimed("davis", board=scene.other, owner="you")

    scene.table.script(Fault.LOST)
    scene.table.script_reads(Fault.NONE, claimed_again)
    assert (await VERBS[verb](scene)).changed
    lock = await scene.lock()
    assert (lock.owner, lock.fence) == ("you", 3)


@pytest.mark.parametrize("verb", ["unlock", "cancel"])
@story
async def test_a_run_now_that_waited_is_obeyed(scene: Scene, verb: str) -> None:
    await ready_for(verb, scene)
    asked = scene.later(seconds=1)
    await run_now(scene.other, "davis", once={"x": 1})
    scene.later(seconds=1)
    await VERBS[verb](scene)
    if verb == "unlock":  # the run that was unlocked comes first
        await scene.let_go(await scene.claimed("davis"))
    token = await scene.token()
    assert (token.slot, token.once, token.ready) == (asked, '{"x":1}', scene.clock.now())
    assert token.attempt == 1


@story
async def test_a_run_now_that_waited_is_not_taken_for_the_slot_that_was_planned_for_then(
    scene: Scene,
) -> None:
    await scene.add("davis", cron="0 * * * *")
    await scene.let_go(await scene.claimed("davis"))
    planned = (await scene.token()).planned
    scene.later(minutes=30)
    await run_now(scene.other, "davis")
    made = await scene.claimed("davis")
    scene.later(minutes=30)
    await run_now(scene.other, "davis")
    await scene.let_go(made)
    token = await scene.token()
    assert token.ready == token.planned == planned
    assert token.slot < planned


@pytest.mark.parametrize("verb", ["unlock", "cancel"])
@story
async def test_the_lock_of_a_paused_item_is_taken_and_no_token_made(
    scene: Scene, verb: str
) -> None:
    await ready_for(verb, scene)
    await pause(scene.other, "davis", scene.mark())
    await VERBS[verb](scene)
    item = await scene.item()
    assert (item.state, item.running) == (State.PAUSED, False)
    assert await scene.tokens() == []
    assert await scene.rows("lock:") == []
