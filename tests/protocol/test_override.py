"""Taking an item that somebody had: adopt and override."""

from datetime import timedelta

import pytest

from blackboard.model import Applied, Outcome, State, replace
from blackboard.protocol import keys
from blackboard.protocol.batches import change_ops
from blackboard.protocol.claims import (
    Claim,
    Freed,
    adopt,
    free_unless_retried,
    mark_standstill,
    override,
    renew,
)
from blackboard.protocol.edits import edit, pause, remove, resume, run_now, unlock
from blackboard.rules.due import TAKEOVERS, Move, decide_lock
from blackboard.spec import Spec
from blackboard.table import (
    ANY,
    Delete,
    Merge,
    Op,
    Replace,
)
from tests.support.boards import Scene, story
from tests.support.faults import Fault

pytestmark = pytest.mark.of_one_store("what is read and written is decided above the store")

HOUR = timedelta(hours=1)


# ---- adopt


@story
async def test_an_orphan_of_mine_is_renewed_and_run_with_what_its_item_says_now(
    scene: Scene,
) -> None:
    await scene.add("davis")
    scene.table.script(Fault.LATE)
    await scene.take("davis")
    await scene.table.land()
    await edit(scene.other, "davis", lambda *_: Spec(every="2h"))
    scene.later(minutes=5)
    made = await adopt(scene.board, await scene.lock())
    assert made is not None
    assert made.spec == '{"every":"2h"}'
    assert made.sent == scene.clock.monotonic()
    assert (await scene.lock()).age == pytest.approx(0.0, abs=0.002)
    await scene.let_go(made)
    assert (await scene.item()).slot == made.start + 2 * HOUR


async def damage(scene: Scene, what: str) -> Claim:
    """A claim whose item is gone, or is not run under this fence."""
    await scene.add("davis")
    made = await scene.claimed("davis")
    key = keys.item_key("davis")
    harm: dict[str, list[Op]] = {
        "item gone": [Delete(key, ANY)],
        "other fence": [Merge(key, {"fence": 7}, ANY)],
        "not running": [Merge(key, {"running": False}, ANY)],
    }
    await scene.table.table.commit(scene.board.partition("davis"), harm[what])
    return made


async def clear(scene: Scene) -> None:
    gone = [Delete(row.key, ANY) for row in await scene.rows()]
    await scene.table.table.commit(scene.board.partition("davis"), gone)


@pytest.mark.case("CR02")
@pytest.mark.parametrize("what", ["item gone", "other fence", "not running"])
@pytest.mark.parametrize("verb", ["adopt", "override"])
@story
async def test_cr02_a_lock_that_no_item_is_run_under_is_deleted(
    scene: Scene, what: str, verb: str
) -> None:
    await damage(scene, what)
    await scene.outlive()
    lock = await scene.lock()
    if verb == "adopt":
        assert await adopt(scene.board, lock) is None
    else:
        assert await override(scene.board, lock, owner="you") is None
    assert await scene.rows("lock:") == []
    await clear(scene)


@story
async def test_an_orphan_that_moved_since_it_was_seen_is_left_alone(scene: Scene) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    seen = await scene.lock()
    await scene.let_go(made)
    assert await adopt(scene.board, seen) is None
    newer = await scene.claimed("davis")
    assert await adopt(scene.board, seen) is None
    assert (await scene.lock()).nonce == newer.nonce


# ---- override


async def overridden(scene: Scene, owner: str = "you") -> Claim | None:
    """What an override gives when the lock of davis has outlived its lease."""
    await scene.outlive()
    return await override(scene.board, await scene.lock(), owner=owner)


async def tire(scene: Scene) -> None:
    """Counts the run of davis as the last one that is taken over."""
    tired = [Merge(keys.lock_key("davis"), {"attempt": TAKEOVERS + 1}, ANY)]
    await scene.table.table.commit(scene.board.partition("davis"), tired)


@story
async def test_a_stale_lock_is_taken_with_the_next_fence_and_the_history_says_abandoned(
    scene: Scene,
) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    taken = await overridden(scene)
    assert taken is not None
    item, lock = await scene.item(), await scene.lock()
    assert (taken.fence, taken.attempt, taken.owner) == (2, 2, "you")
    assert (taken.slot, taken.item.planned) == (made.slot, made.item.planned)
    assert (lock.nonce, lock.fence, lock.owner) == (taken.nonce, 2, "you")
    assert (taken.lock.etag, taken.item.etag) == (lock.etag, item.etag)
    assert (item.fence, item.owner, item.start) == (2, "you", scene.clock.now())
    assert (item.runs, item.failures, item.running) == (1, 1, True)
    (run,) = await scene.runs()
    assert (run.fence, run.outcome, run.worker) == (1, Outcome.ABANDONED, "me")
    assert run.error == "its lock was not renewed for 300 s"
    await scene.let_go(taken)
    assert await scene.outcomes() == [(1, "abandoned"), (2, "ok")]


@pytest.mark.case("OV02", "PP02", "S4")
@story
async def test_ov02_a_lock_that_was_renewed_since_it_was_read_is_not_overridden(
    scene: Scene,
) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis", board=scene.other)
    await scene.outlive()
    seen = await scene.lock()

    async def renewed() -> None:
        assert await renew(scene.other, made) is not None

    scene.table.script(renewed)
    assert await override(scene.board, seen, owner="you") is None
    lock = await scene.lock()
    assert (lock.nonce, lock.fence) == (made.nonce, 1)
    assert await scene.runs() == []


@pytest.mark.case("OV06")
@story
async def test_ov06_a_renewal_starts_the_age_again(scene: Scene) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    await scene.outlive()
    assert await renew(scene.other, made) is not None
    lock = await scene.lock()
    move = decide_lock(lock, owner="you", types={"feed"}, in_flight=(), resolution=0.001)
    assert move is Move.LEAVE


@pytest.mark.case("OV04", "LF05", "S2")
@story
async def test_ov04_the_holder_that_was_overridden_leaves_the_overriders_lock(
    scene: Scene,
) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    await scene.outlive()
    taken = await override(scene.other, await scene.lock(), owner="you")
    assert taken is not None
    assert (await scene.let_go(made)).how == "late"
    assert (await scene.lock()).etag == taken.lock.etag


@pytest.mark.case("OV02", "S4")
@story
async def test_two_overriders_one_lock(scene: Scene) -> None:
    await scene.add("davis")
    await scene.claimed("davis")
    await scene.outlive()
    seen = await scene.lock()
    winner = await override(scene.other, seen, owner="you")
    assert winner is not None
    assert await override(scene.board, seen, owner="third") is None
    assert (await scene.lock()).owner == "you"


@pytest.mark.case("PP02", "S2")
@story
async def test_an_override_after_a_release_between_its_readings_deletes_nothing(
    scene: Scene,
) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    await scene.outlive()
    seen = await scene.lock()
    await scene.let_go(made, board=scene.other)
    newer = await scene.claimed("davis", board=scene.other)
    assert await override(scene.board, seen, owner="you") is None
    assert (await scene.lock()).nonce == newer.nonce


@pytest.mark.case("LR03", "L2")
@story
async def test_lr03_an_override_whose_reply_was_lost_is_known_by_its_nonce(scene: Scene) -> None:
    await scene.add("davis")
    await scene.claimed("davis")
    await scene.outlive()
    scene.table.script(Fault.LOST)
    taken = await override(scene.board, await scene.lock(), owner="you")
    assert taken is not None
    assert taken.lock.etag == (await scene.lock()).etag
    assert taken.item.etag == ""
    await scene.let_go(taken)
    assert await scene.outcomes() == [(1, "abandoned"), (2, "ok")]


@pytest.mark.case("LR07")
@story
async def test_lr07_an_override_that_never_arrived_is_none(scene: Scene) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    await scene.outlive()
    scene.table.script(Fault.NEVER)
    assert await override(scene.board, await scene.lock(), owner="you") is None
    assert (await scene.lock()).nonce == made.nonce
    assert not scene.board.in_flight


@story
async def test_an_override_obeys_an_edit_made_while_the_lock_was_held(scene: Scene) -> None:
    await scene.add("davis")
    await scene.claimed("davis")
    await edit(scene.other, "davis", lambda *_: Spec(every="2m", params={"x": 1}))
    taken = await overridden(scene)
    assert taken is not None
    assert taken.spec == '{"every":"2m","params":{"x":1}}'
    assert taken.stale_after == 120.0


@story
async def test_an_override_is_refused_when_the_item_was_edited_after_it_was_read(
    scene: Scene,
) -> None:
    await scene.add("davis")
    await scene.claimed("davis")
    await scene.outlive()
    scene.table.script(lambda: edit(scene.other, "davis", lambda *_: Spec(every="5h")))
    assert await override(scene.board, await scene.lock(), owner="you") is None
    assert await override(scene.board, await scene.lock(), owner="you") is not None


@story
async def test_the_lock_of_a_paused_item_is_freed_and_nothing_is_run(scene: Scene) -> None:
    await scene.add("davis")
    await scene.claimed("davis")
    await pause(scene.other, "davis", scene.mark())
    assert await overridden(scene) is None
    item = await scene.item()
    assert (item.state, item.running, item.fence) == (State.PAUSED, False, 2)
    assert (item.outcome, item.failures, item.runs) == (Outcome.ABANDONED, 1, 1)
    assert await scene.rows("lock:") == []
    assert await scene.tokens() == []
    assert await scene.outcomes() == [(1, "abandoned")]


@story
async def test_the_run_of_a_paused_item_is_made_again_when_it_is_resumed(scene: Scene) -> None:
    await scene.add("davis")
    await scene.let_go(await scene.claimed("davis"))
    asked = (await run_now(scene.other, "davis", once={"n": 5})).item
    await scene.claimed("davis")
    await run_now(scene.other, "davis", once={"n": 6})
    await pause(scene.other, "davis", scene.mark())
    assert await overridden(scene) is None
    await resume(scene.other, "davis", scene.mark())
    item, token = await scene.item(), await scene.token()
    assert (token.slot, token.once, token.attempt) == (asked.slot, '{"n":5}', 2)
    assert token.ready == scene.clock.now()
    assert [one.once for one in item.requests] == ['{"n":6}']
    assert item.failures == 1


@story
async def test_the_run_of_a_paused_item_that_kills_its_workers_is_given_up(scene: Scene) -> None:
    await scene.add("davis", every="1h")
    made = await scene.claimed("davis")
    await tire(scene)
    await pause(scene.other, "davis", scene.mark())
    assert await overridden(scene) is None
    item = await scene.item()
    assert (item.attempt, item.slot > made.item.slot) == (1, True)


@story
async def test_a_run_that_kills_its_workers_waits_for_its_next_slot(scene: Scene) -> None:
    """It does not go round the fleet."""
    await scene.add("davis", cron="0 3 * * *", stale_after="10s")
    await scene.claimed("davis", owner="worker-0")
    for n in range(1, TAKEOVERS + 1):
        taken = await overridden(scene, owner=f"worker-{n}")
        assert taken is not None
        assert taken.attempt == n + 1
    assert await overridden(scene, owner="last") is None
    item, token = await scene.item(), await scene.token()
    assert (item.state, item.running, item.failures) == (State.ACTIVE, False, TAKEOVERS + 1)
    assert (token.slot.hour, token.attempt) == (3, 1)
    assert token.ready > scene.clock.now()
    assert [outcome for _, outcome in await scene.outcomes()] == ["abandoned"] * (TAKEOVERS + 1)


@story
async def test_freeing_a_lock_obeys_a_run_now_that_waits(scene: Scene) -> None:
    await scene.add("davis", cron="0 3 * * *", stale_after="10s")
    await scene.claimed("davis")
    await tire(scene)
    asked = (await run_now(scene.other, "davis")).item
    assert await overridden(scene) is None
    token = await scene.token()
    assert (token.attempt, token.ready) == (1, scene.clock.now())
    assert token.slot < token.planned
    assert asked.requests


@pytest.mark.of_each_store
@pytest.mark.parametrize("fault", [Fault.NEVER, "renewed"])
@story
async def test_a_freeing_that_does_not_happen_is_left_to_the_next_walk(
    scene: Scene, fault: Fault | str
) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis", board=scene.other)
    await pause(scene.other, "davis", scene.mark())
    await scene.outlive()
    seen = await scene.lock()
    scene.table.script(fault if isinstance(fault, Fault) else lambda: renew(scene.other, made))
    assert await override(scene.board, seen, owner="you") is None
    assert (await scene.lock()).nonce == made.nonce
    assert await scene.runs() == []


@pytest.mark.parametrize(
    ("fault", "freed"),
    [
        (Fault.NONE, Freed.FREED),
        (Fault.LOST, Freed.FREED),
        (Fault.NEVER, None),
        (Fault.LATE, None),
        ("renewed", None),
        ("freed by another", None),
        ("released", None),
    ],
)
@story
async def test_a_freeing_says_whether_it_was_this_one(
    scene: Scene, fault: Fault | str, freed: Freed | None
) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis", board=scene.other)
    await pause(scene.other, "davis", scene.mark())
    await scene.outlive()
    seen = await scene.lock()
    meanwhile = {
        "renewed": lambda: renew(scene.other, made),
        "freed by another": lambda: free_unless_retried(scene.other, seen),
        "released": lambda: scene.let_go(made, board=scene.other),
    }
    scene.table.script(fault if isinstance(fault, Fault) else meanwhile[fault])
    assert await free_unless_retried(scene.board, seen) is freed
    await scene.table.land()


@story
async def test_a_lock_without_an_item_is_deleted_and_not_freed(scene: Scene) -> None:
    await damage(scene, "item gone")
    await scene.outlive()
    assert await free_unless_retried(scene.board, await scene.lock()) is None
    await clear(scene)


@pytest.mark.case("LF03", "S3")
@story
async def test_lf03_fences_rise_over_release_unlock_override_and_re_creation(
    scene: Scene,
) -> None:
    fences: list[int] = []
    for _ in range(2):
        await scene.add("davis")
        for verb in ("release", "unlock", "override"):
            made = await scene.claimed("davis")
            fences.append(made.fence)
            if verb == "release":
                await scene.let_go(made)
            elif verb == "unlock":
                await unlock(scene.other, "davis", scene.mark(), fence=made.fence)
            else:
                taken = await overridden(scene)
                assert taken is not None
                fences.append(taken.fence)
                await scene.let_go(taken)
            scene.later(hours=2)
        await remove(scene.other, "davis")
    assert fences == sorted(set(fences))
    assert len(fences) == 8


@pytest.mark.case("ME03")
@story
async def test_me03_two_items_are_independent(scene: Scene) -> None:
    await scene.add("a")
    await scene.add("b")
    made = await scene.claimed("a")
    other = await scene.claimed("b", board=scene.other, owner="you")
    await scene.let_go(made)
    assert (await scene.lock("b")).etag == other.lock.etag


@story
async def test_every_change_of_a_waiting_item_makes_its_token_anew(scene: Scene) -> None:
    """Else a claim planned before it would land after it: its item is merged whatever it is."""
    before = await scene.add("davis")
    for after in (
        replace(before, applied=(Applied(name="x", at=before.slot),)),
        replace(before, spec='{"every":"2h"}'),
    ):
        ops = change_ops(before, after)
        (key, written) = next((op.key, op) for op in ops if op.key.startswith("next:"))
        assert key == keys.next_key(before.ready, "davis")
        assert isinstance(written, Replace)
        assert dict(written.data)["spec"] == after.spec


@story
async def test_a_lock_that_was_overridden_meanwhile_is_not_marked(scene: Scene) -> None:
    """By a worker whose loop stands still, and that has just read its own lock."""
    await scene.add("davis", every="1h", stale_after="3s")
    made = await scene.claimed()
    scene.later(seconds=10)
    lock = await scene.lock()
    scene.table.script(lambda: override(scene.other, lock, owner="you"))
    await mark_standstill(scene.board, "davis", made.fence)
    lock = await scene.lock()
    assert (lock.owner, lock.stood_still) == ("you", False)


@pytest.mark.of_each_store
@story
async def test_what_stood_still_is_taken_over_once(scene: Scene) -> None:
    await scene.add("davis", every="1h", stale_after="3s", retries=9)
    made = await scene.claimed()
    await mark_standstill(scene.board, "davis", made.fence)
    scene.later(seconds=10)
    taken = await override(scene.board, await scene.lock(), owner="you")
    assert taken is not None
    assert taken.attempt == 2
    await mark_standstill(scene.board, "davis", made.fence)
    assert not (await scene.lock()).stood_still
    await mark_standstill(scene.board, "davis", taken.fence)
    scene.later(seconds=10)
    assert await override(scene.board, await scene.lock(), owner="me") is None
    item = await scene.item()
    assert (item.waits, item.attempt, item.outcome) == (True, 1, Outcome.ABANDONED)
    assert item.slot > scene.clock.now()
    assert "kept the loop" in item.error
