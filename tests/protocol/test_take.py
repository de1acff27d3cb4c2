"""Taking an item: claim, renew; and passing a missed slot over."""

from datetime import timedelta
from functools import partial

import pytest

from blackboard.errors import BadInput
from blackboard.model import Lock, State
from blackboard.protocol import keys
from blackboard.protocol.claims import (
    ROWS_OF_A_CLAIM,
    Claimed,
    adopt,
    claim,
    claims_at_once,
    mark_standstill,
    override,
    pass_over,
    renew,
    renew_all,
    trusted,
)
from blackboard.protocol.edits import edit, pause, remove, resume, run_now, unlock
from blackboard.protocol.renewals import sent_in
from blackboard.rules.due import Move, decide_lock
from blackboard.spec import Spec
from blackboard.table import (
    ANY,
    Busy,
    Delete,
    Insert,
    Merge,
    Op,
    Row,
    Unavailable,
    Value,
)
from tests.support.boards import Scene, story
from tests.support.faults import Fault

pytestmark = pytest.mark.of_one_store("what is read and written is decided above the store")

HOUR = timedelta(hours=1)


# ---- claim


@story
async def test_a_claim_turns_the_token_into_a_lock_with_the_next_fence(scene: Scene) -> None:
    await scene.add("davis")
    start = scene.later(seconds=5)
    made = await scene.claimed("davis")
    item, lock = await scene.item(), await scene.lock()
    assert await scene.tokens() == []
    assert (item.running, item.owner, item.start, item.fence) == (True, "me", start, 1)
    assert (item.schedule, item.timezone) == ("every 1h", "UTC")
    assert (lock.owner, lock.nonce, lock.fence) == ("me", made.nonce, 1)
    assert (lock.since, lock.stale_after) == (start, 300.0)
    assert (made.lock.etag, made.item.etag) == (lock.etag, item.etag)
    assert (made.start - made.item.ready).total_seconds() == 5.0
    assert made.sent == scene.clock.monotonic()
    assert not scene.board.in_flight


@story
async def test_several_items_are_claimed_in_one_batch(scene: Scene) -> None:
    for name in "abc":
        await scene.add(name)
    answer = await scene.take("a", "b", "c")
    assert [one.id for one in answer.claims] == ["a", "b", "c"]
    assert len({one.nonce for one in answer.claims}) == 3
    assert not answer.reread
    assert len(scene.table.batches[-1]) == 9
    for made in answer.claims:
        lock, item = await scene.lock(made.id), await scene.item(made.id)
        assert (made.lock.etag, made.item.etag) == (lock.etag, item.etag)
        await scene.let_go(made)


@story
async def test_claims_fit_the_stores_batch(scene: Scene) -> None:
    assert claims_at_once(scene.board) * ROWS_OF_A_CLAIM <= scene.table.max_rows


@story
async def test_a_lost_race_claims_none_of_the_batch_and_says_to_read_again(scene: Scene) -> None:
    await scene.add("a")
    await scene.add("b")

    async def faster() -> None:
        await scene.claimed("b", board=scene.other, owner="you")

    scene.table.script(faster)
    assert await scene.take("a", "b") == Claimed(reread=True)
    assert (await scene.lock("b")).owner == "you"
    assert await scene.take("a") != Claimed(reread=True)


@pytest.mark.of_each_store
@story
async def test_a_claim_that_the_store_refuses_names_its_token(scene: Scene) -> None:
    """One row that the store will never take must not hold up the others."""
    await scene.add("davis")
    scene.table.script(Fault.REFUSED)
    answer = await scene.take("davis")
    assert answer.broken is not None
    assert answer.broken.id == "davis"
    assert answer.reread
    assert not answer.claims


@pytest.mark.case("ME11")
@story
async def test_me11_a_claimed_item_cannot_be_claimed_by_its_own_holder(scene: Scene) -> None:
    await scene.add("davis")
    token = await scene.token()
    assert (await claim(scene.board, [token], owner="me")).claims
    again = await claim(scene.board, [token], owner="me")
    assert again == Claimed(reread=True)


@pytest.mark.parametrize("change", ["edit", "pause", "run_now", "remove"])
@story
async def test_a_token_that_was_changed_since_it_was_read_is_not_claimed(
    scene: Scene, change: str
) -> None:
    await scene.add("davis")

    async def changed() -> None:
        match change:
            case "edit":
                await edit(scene.other, "davis", lambda *_: Spec(every="2h"))
            case "pause":
                await pause(scene.other, "davis", scene.mark())
            case "run_now":
                await run_now(scene.other, "davis")
            case _:
                await remove(scene.other, "davis")

    scene.table.script(changed)
    assert await scene.take("davis") == Claimed(reread=True)


@pytest.mark.case("CR02")
@story
async def test_cr02_a_token_without_its_item_is_deleted(scene: Scene) -> None:
    item = await scene.add("davis")
    gone = Delete(keys.item_key("davis"), item.etag)
    await scene.table.table.commit(scene.board.partition("davis"), [gone])
    answer = await scene.take("davis")
    assert answer.reread
    assert answer.broken is not None
    assert answer.broken.id == "davis"
    assert await scene.rows() == []


@story
async def test_a_token_beside_a_lock_is_left_alone_and_named(scene: Scene) -> None:
    item = await scene.add("davis")
    partition, key = scene.board.partition("davis"), keys.lock_key("davis")
    await scene.table.table.commit(partition, [Insert(key, {"item": "davis"})])
    answer = await scene.take("davis")
    assert (answer.claims, answer.reread) == ((), True)
    assert answer.broken is not None
    assert answer.broken.id == "davis"
    assert (await scene.token()).ready == item.ready
    await scene.table.table.commit(partition, [Delete(key, ANY)])


@pytest.mark.case("LR01", "L2")
@story
async def test_lr01_a_claim_whose_reply_was_lost_is_known_by_its_nonce_and_runs_once(
    scene: Scene,
) -> None:
    await scene.add("a")
    await scene.add("b")
    scene.table.script(Fault.LOST)
    answer = await scene.take("a", "b")
    assert [one.id for one in answer.claims] == ["a", "b"]
    for made in answer.claims:
        lock = await scene.lock(made.id)
        assert (lock.nonce, lock.etag) == (made.nonce, made.lock.etag)
        assert made.item.etag == "", "the item is read again before the release"
        await scene.let_go(made)
    assert await scene.outcomes("a") == await scene.outcomes("b") == [(1, "ok")]


@pytest.mark.case("LR07")
@story
async def test_lr07_a_claim_that_never_arrived_is_none_and_can_be_made_again(
    scene: Scene,
) -> None:
    await scene.add("davis")
    scene.table.script(Fault.NEVER)
    assert await scene.take("davis") == Claimed()
    made = await scene.claimed("davis")
    assert made.fence == 1
    assert not scene.board.in_flight


@pytest.mark.case("LR09", "L2")
@story
async def test_lr09_a_claim_that_lands_after_its_owner_gave_up_is_adopted(scene: Scene) -> None:
    await scene.add("davis")
    scene.table.script(Fault.LATE)
    assert await scene.take("davis") == Claimed()
    assert await scene.table.land() == [True]
    lock = await scene.lock()
    move = decide_lock(
        lock, owner="me", types={"feed"}, in_flight=scene.board.in_flight, resolution=0.001
    )
    assert move is Move.ADOPT
    made = await adopt(scene.board, lock)
    assert made is not None
    assert (made.nonce, made.fence) == (lock.nonce, 1)
    await scene.let_go(made)
    assert await scene.outcomes() == [(1, "ok")]


@pytest.mark.parametrize("fault", [Fault.NONE, Fault.LOST])
@pytest.mark.parametrize("taken_over", [False, True])
@story
async def test_what_is_known_only_when_its_lease_is_nearly_over_is_renewed_before_it_is_run(
    scene: Scene, *, fault: Fault, taken_over: bool
) -> None:
    await scene.add("davis", stale_after="10s", every="1h")
    if taken_over:
        await scene.claimed("davis", board=scene.other, owner="you")
        scene.later(seconds=20)
        lock = await scene.lock()

    async def slowly() -> None:
        scene.later(seconds=9)

    if fault is Fault.NONE:
        scene.table.script(slowly)
    else:
        scene.table.script(fault)
        scene.table.script_reads(*[Fault.NONE] * taken_over, slowly)
    made = await override(scene.board, lock, owner="me") if taken_over else await scene.claimed()
    assert made is not None
    (made,) = await trusted(scene.board, [made])
    assert made.sent == scene.clock.monotonic()
    assert made.lock.etag == (await scene.lock()).etag
    (renewal,) = scene.table.batches[-1]
    assert (type(renewal), renewal.key) == (Merge, keys.lock_key("davis"))


@pytest.mark.of_each_store
@story
async def test_of_many_that_are_known_late_none_is_run_that_is_past_its_lease_by_then(
    scene: Scene,
) -> None:
    """Nor does one that the store will not renew now keep the others."""
    for name in "abc":
        await scene.add(name, stale_after="10s", every="1h")

    async def slowly() -> None:
        scene.later(seconds=9)

    scene.table.script(slowly)
    claims = (await scene.take("a", "b", "c")).claims
    scene.table.script(Fault.NONE, Fault.BUSY, slowly, Fault.NONE)
    found = await trusted(scene.board, claims)
    assert {"c"} <= {one.id for one in found} <= {"a", "c"}
    assert all(scene.clock.monotonic() - one.sent < 8 for one in found)


@story
async def test_a_claim_that_cannot_be_renewed_in_time_is_not_run_and_adopted_later(
    scene: Scene,
) -> None:
    await scene.add("davis", stale_after="10s", every="1h")

    async def slowly() -> None:
        scene.later(seconds=9)

    scene.table.script(slowly, *[Fault.NEVER] * 9)
    assert await trusted(scene.board, [await scene.claimed()]) == ()
    lock = await scene.lock()
    scene.table.script(*[Fault.NEVER] * 12)
    found = await adopt(scene.board, lock)
    assert found is not None
    assert await trusted(scene.board, [found]) == ()
    made = await adopt(scene.board, await scene.lock())
    assert made is not None
    assert await trusted(scene.board, [made]) == (made,)
    assert (made.nonce, made.fence, made.sent) == (lock.nonce, 1, scene.clock.monotonic())


@story
async def test_a_claim_in_flight_is_no_orphan(scene: Scene) -> None:
    await scene.add("davis")
    seen: list[Move] = []

    async def looked() -> None:
        (nonce,) = scene.board.in_flight
        lock = Lock(
            id="davis",
            type="feed",
            owner="me",
            nonce=nonce,
            fence=1,
            born=0,
            slot=scene.clock.now(),
            since=scene.clock.now(),
            stale_after=3600.0,
            attempt=1,
        )
        mine = scene.board.in_flight
        seen.append(decide_lock(lock, owner="me", types={"feed"}, in_flight=mine, resolution=0.0))

    scene.table.script(looked)
    await scene.claimed("davis")
    assert seen == [Move.LEAVE]


@story
async def test_a_late_claim_finds_its_token_taken(scene: Scene) -> None:
    await scene.add("davis")
    scene.table.script(Fault.LATE)
    assert await scene.take("davis") == Claimed()
    made = await scene.claimed("davis", board=scene.other, owner="you")
    assert await scene.table.land() == [False]
    assert (await scene.lock()).nonce == made.nonce


@story
async def test_a_store_that_is_busy_or_away_is_the_walks_to_handle(scene: Scene) -> None:
    await scene.add("davis")
    scene.table.script(Fault.BUSY, Fault.AWAY)
    with pytest.raises(Busy):
        await scene.take("davis")
    with pytest.raises(Unavailable):
        await scene.take("davis")
    assert not scene.board.in_flight


# ---- renew


def renewals(scene: Scene) -> list[Op]:
    ops = [op for batch in scene.table.batches for op in batch]
    return [op for op in ops if isinstance(op, Merge) and op.key == keys.lock_key("davis")]


async def a_while(scene: Scene) -> None:
    scene.later(seconds=5)


@story
async def test_a_renewal_makes_the_lock_young_and_its_deadline_later(scene: Scene) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    scene.later(minutes=30)
    renewed = await renew(scene.board, made, progress="[1,2]")
    lock = await scene.lock()
    assert renewed == made.renewed(lock.etag, sent=scene.clock.monotonic())
    assert lock.progress == "[1,2]"
    assert lock.age == pytest.approx(0.0, abs=0.002)
    assert await renew(scene.board, renewed) is not None
    assert (await scene.lock()).progress == "[1,2]"


@pytest.mark.case("LR05")
@story
async def test_lr05_a_renewal_whose_reply_was_lost_adopts_the_locks_etag(scene: Scene) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    scene.later(minutes=1)
    scene.table.script(Fault.LOST)
    renewed = await renew(scene.board, made)
    assert renewed is not None
    assert renewed.lock.etag == (await scene.lock()).etag
    assert renewed.sent == scene.clock.monotonic()
    assert (await scene.let_go(renewed)).how == "done"


@pytest.mark.case("LR07")
@pytest.mark.parametrize("fault", [Fault.NEVER, Fault.LATE])
@story
async def test_lr07_a_renewal_that_did_not_arrive_is_sent_again(scene: Scene, fault: Fault) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    scene.table.script(fault)
    renewed = await renew(scene.board, made)
    assert renewed is not None
    assert not any(await scene.table.land())
    assert renewed.lock.etag == (await scene.lock()).etag


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.TWICE])
@story
async def test_a_renewal_that_is_found_in_its_lock_counts_from_when_it_was_sent(
    scene: Scene, fault: Fault
) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    scene.later(minutes=1)
    sent = scene.clock.monotonic()
    scene.table.script(fault)
    scene.table.script_reads(partial(a_while, scene))
    renewed = await renew(scene.board, made)
    assert renewed == made.found((await scene.lock()).etag, sent=sent)
    assert len(renewals(scene)) == 1


@story
async def test_a_renewal_that_is_found_much_later_counts_from_when_it_was_sent(
    scene: Scene,
) -> None:
    """Nothing of it is kept meanwhile: neither that it was sent, nor when."""
    await scene.add("davis")
    made = await scene.claimed("davis")
    sent = scene.clock.monotonic() + 60
    scene.later(minutes=1)
    scene.table.script(Fault.LATE)
    scene.table.script_reads(Fault.AWAY)
    with pytest.raises(Unavailable):
        await renew(scene.board, made)
    scene.later(seconds=20)
    assert await scene.table.land() == [True]
    scene.later(seconds=20)
    renewed = await renew(scene.board, made)
    assert renewed is not None
    assert renewed.sent == sent
    assert await renew(scene.board, renewed) is not None


@pytest.mark.parametrize("by", ["a renewal that never came", "another process"])
@story
async def test_a_lock_that_no_renewal_has_written_keeps_its_deadline(scene: Scene, by: str) -> None:
    """Whatever etag it has: it may have been written long before the renewal was sent."""
    await scene.add("davis")
    made = await scene.claimed("davis")
    if by == "another process":
        await mark_standstill(scene.other, "davis", made.fence)
    scene.later(minutes=1)
    scene.table.script(Fault.NEVER, Fault.NEVER, Fault.NEVER)
    renewed = await renew(scene.board, made)
    assert renewed is not None
    assert renewed.sent == made.sent
    assert renewed.lock.etag == (await scene.lock()).etag


@pytest.mark.parametrize("value", [1e300, -1.0])
@story
async def test_a_damaged_time_in_a_lock_moves_no_deadline(scene: Scene, value: float) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    damage = Merge(keys.lock_key("davis"), {"sent": value}, ANY)
    await scene.other.table.commit(scene.other.partition("davis"), [damage])
    scene.table.script(Fault.NEVER, Fault.NEVER, Fault.NEVER)
    renewed = await renew(scene.board, made)
    assert renewed is not None
    assert renewed.sent == made.sent


@pytest.mark.parametrize(("sent", "counts"), [(1024.0, 1024), (1024, 1024), (True, 1), ("1024", 1)])
def test_a_whole_number_of_seconds_may_be_read_as_an_integer(sent: Value, counts: float) -> None:
    row = Row("lock:davis", "1", {"sent": sent})
    assert sent_in(row, before=1.0, now=2000.0) == counts


@pytest.mark.case("LF05")
@pytest.mark.parametrize("by", ["override", "unlock", "remove"])
@story
async def test_lf05_a_lock_that_was_taken_away_cannot_be_renewed(scene: Scene, by: str) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    if by == "override":
        await scene.outlive()
        assert await override(scene.other, await scene.lock(), owner="you") is not None
    elif by == "unlock":
        await unlock(scene.other, "davis", scene.mark(), fence=1)
    else:
        await remove(scene.other, "davis")
    assert await renew(scene.board, made) is None


@pytest.mark.case("LF09")
@story
async def test_lf09_a_newer_claim_of_the_same_worker_is_not_renewed_for_the_older(
    scene: Scene,
) -> None:
    await scene.add("davis")
    older = await scene.claimed("davis")
    await unlock(scene.other, "davis", scene.mark(), fence=1)
    newer = await scene.claimed("davis")
    assert await renew(scene.board, older) is None
    assert (await scene.lock()).etag == newer.lock.etag


@story
async def test_an_edit_of_a_running_item_does_not_touch_its_lock(scene: Scene) -> None:
    """Whoever edits every minute would keep a dead worker's lock alive."""
    await scene.add("davis")
    made = await scene.claimed("davis")
    await edit(scene.other, "davis", lambda *_: Spec(every="2h"))
    await pause(scene.other, "davis", scene.mark())
    await resume(scene.other, "davis", scene.mark())
    await run_now(scene.other, "davis")
    assert (await scene.lock()).etag == made.lock.etag


@pytest.mark.case("OV10")
@story
async def test_ov10_an_interval_that_is_lengthened_or_shortened_leaves_the_lease_as_it_was(
    scene: Scene,
) -> None:
    await scene.add("davis", every="2m")
    await scene.claimed("davis")
    for every in ("4m", "1m"):
        await edit(scene.other, "davis", lambda *_, every=every: Spec(every=every))
        assert (await scene.lock()).stale_after == 120.0


@story
async def test_what_nobody_can_run_is_not_adopted_and_grows_stale(scene: Scene) -> None:
    """Its item was edited by somebody who knows more, and its claim had landed late."""
    await scene.add("davis")
    await scene.claimed("davis")
    before = await scene.lock()
    partition, row = scene.other.partition("davis"), keys.item_key("davis")
    await scene.other.table.commit(partition, [Merge(row, {"spec": '{"cron":"61 * * * *"}'}, ANY)])
    with pytest.raises(BadInput):
        await adopt(scene.board, before)
    assert (await scene.lock()).etag == before.etag
    await unlock(scene.other, "davis", scene.mark(), fence=1)


# ---- pass over


@story
async def test_a_missed_slot_is_passed_over_without_a_run(scene: Scene) -> None:
    await scene.add("davis", cron="0 * * * *", missed="none")
    now = scene.later(hours=5, minutes=6)
    token = await scene.token()
    assert await pass_over(scene.board, token, move=Move.SKIP)
    passed = await scene.token()
    assert now < passed.ready <= now + HOUR
    assert passed.slot == passed.ready
    assert passed.slot.minute == 0
    assert await scene.runs() == []
    assert not await pass_over(scene.board, token, move=Move.SKIP), "it has moved on"


@story
async def test_a_slot_that_a_blackout_puts_off_runs_when_that_ends(scene: Scene) -> None:
    """The clock of the scene begins at 9:00; the window at 10:00."""
    await scene.add("davis", cron="0 9 * * *", blackout="10:00-12:00")
    scene.later(hours=1)
    token = await scene.token()
    assert await pass_over(scene.board, token, move=Move.PUT_OFF)
    waits = await scene.token()
    assert (waits.slot, waits.planned, waits.attempt) == (token.slot, token.planned, 1)
    assert waits.ready == token.ready + 3 * HOUR
    assert await scene.runs() == []
    assert not await pass_over(scene.board, token, move=Move.PUT_OFF)
    scene.later(hours=2)
    await scene.let_go(await scene.claimed("davis"))
    (run,) = await scene.runs()
    assert run.slot == token.slot
    assert (await scene.token()).slot == token.slot + 24 * HOUR


@story
async def test_an_at_that_was_missed_and_wants_no_missed_run_is_done(scene: Scene) -> None:
    at = (scene.clock.now() + HOUR).isoformat()
    await scene.add("davis", at=at, missed="none")
    scene.later(hours=5)
    token = await scene.token()
    assert await pass_over(scene.board, token, move=Move.SKIP)
    assert (await scene.item()).state is State.DONE
    assert await scene.tokens() == []


@story
async def test_a_slot_that_is_wanted_by_now_is_not_passed_over(scene: Scene) -> None:
    """Somebody has said so since the token was read, and left the schedule as it was."""
    await scene.add("davis", cron="0 * * * *", missed="none")
    scene.later(hours=5)
    token = await scene.token()
    wanted = Spec(cron="0 * * * *", missed="one")
    await edit(scene.other, "davis", lambda *_: wanted)
    assert not await pass_over(scene.board, token, move=Move.SKIP)
    assert (await scene.token()).slot == token.slot


@pytest.mark.of_each_store
@story
async def test_a_missed_token_without_its_item_goes(scene: Scene) -> None:
    await scene.add("davis", cron="0 * * * *", missed="none")
    scene.later(hours=5)
    token = await scene.token()
    await scene.table.commit(scene.board.partition("davis"), [Delete(keys.item_key("davis"), ANY)])
    assert not await pass_over(scene.board, token, move=Move.SKIP)
    assert await scene.tokens() == []


@pytest.mark.of_each_store
@pytest.mark.parametrize("faster", ["claimed", "edited", "removed", "lost"])
@story
async def test_a_slot_that_somebody_else_sees_to_is_not_passed_over(
    scene: Scene, faster: str
) -> None:
    await scene.add("davis", cron="0 * * * *", missed="none")
    scene.later(hours=5)
    token = await scene.token()
    if faster == "claimed":
        await scene.claimed("davis", board=scene.other)
    elif faster == "edited":
        scene.table.script(lambda: edit(scene.other, "davis", lambda *_: Spec(every="2h")))
    elif faster == "removed":
        await remove(scene.other, "davis")
    else:
        scene.table.script(Fault.NEVER)
    assert not await pass_over(scene.board, token, move=Move.SKIP)


@story
async def test_of_renewals_in_one_batch_one_that_the_store_refuses_loses_no_lock(
    scene: Scene,
) -> None:
    for name in "abc":
        await scene.add(name, every="1h")
    claims = (await scene.take("a", "b", "c")).claims
    scene.later(seconds=5)
    scene.table.script(Fault.REFUSED)
    renewed = await renew_all(scene.board, [(claim, "") for claim in claims])
    now = scene.clock.monotonic()
    assert {claim.id: claim.sent for claim in renewed} == {"a": claims[0].sent, "b": now, "c": now}
