"""Saving checkpoints: what a run has saved is there for the next one, whatever gets lost."""

from collections.abc import Awaitable, Callable

import pytest

from blackboard.errors import StillRuns
from blackboard.protocol.checkpoints import save
from blackboard.protocol.claims import Claim, override, renew
from blackboard.protocol.edits import cancel, edit, pause, remove, run_now, unlock
from blackboard.protocol.releases import ReleaseOutcome
from blackboard.spec import Spec
from tests.support.boards import Scene, story
from tests.support.faults import Fault

pytestmark = pytest.mark.of_one_store("what is read and written is decided above the store")

PAGE = '{"page":57}'


async def saving(scene: Scene, text: str = PAGE) -> Claim:
    """A run of davis that has saved."""
    await scene.add("davis", every="1h", retries=3, backoff="1s")
    made = await save(scene.board, await scene.claimed(), text)
    assert made is not None
    return made


@story
async def test_what_is_saved_is_in_the_item_and_one_request(scene: Scene) -> None:
    await scene.add()
    made = await scene.claimed()
    before = scene.table.requests.total
    saved = await save(scene.board, made, PAGE)
    assert scene.table.requests.total - before == 1
    item = await scene.item()
    assert saved is not None
    assert (item.checkpoint, item.running, item.fence) == (PAGE, True, made.fence)
    assert saved.item.etag == item.etag
    assert saved.lock == made.lock


@story
async def test_a_retry_is_claimed_with_it_and_a_good_run_empties_it(scene: Scene) -> None:
    made = await saving(scene)
    batches = len(scene.table.batches)
    await scene.let_go(made, "failed")
    assert len(scene.table.batches) == batches + 1, "nothing had to be settled"
    assert (await scene.token()).checkpoint == PAGE
    scene.later(seconds=10)
    again = await scene.claimed()
    assert again.item.checkpoint == PAGE
    await scene.let_go(again, "ok")
    assert (await scene.item()).checkpoint == ""
    assert (await scene.token()).checkpoint == ""


@story
async def test_a_run_that_took_over_goes_on_there(scene: Scene) -> None:
    made = await saving(scene)
    scene.later(seconds=made.stale_after + 1)
    taken = await override(scene.other, await scene.lock(), owner="you")
    assert taken is not None
    assert taken.item.checkpoint == PAGE
    assert await save(scene.board, made, '{"page":58}') is None
    assert (await scene.item()).checkpoint == PAGE
    assert (await scene.let_go(made)).how is ReleaseOutcome.LATE
    assert (await scene.item()).checkpoint == PAGE


@pytest.mark.of_each_store
@pytest.mark.parametrize("fault", [Fault.LOST, Fault.NEVER, Fault.BUSY, Fault.AWAY])
@story
async def test_a_save_without_an_answer_is_settled_by_reading(scene: Scene, fault: Fault) -> None:
    await scene.add()
    made = await scene.claimed()
    scene.table.script(fault)
    saved = await save(scene.board, made, PAGE)
    assert saved is not None
    assert (await scene.item()).checkpoint == PAGE
    done = await scene.let_go(saved, "failed")
    assert (done.how, await scene.outcomes()) == (ReleaseOutcome.DONE, [(1, "failed")])


@pytest.mark.of_each_store
@story
async def test_a_save_that_lands_late_is_refused(scene: Scene) -> None:
    await scene.add()
    made = await scene.claimed()
    scene.table.script(Fault.LATE)
    saved = await save(scene.board, made, PAGE)
    assert saved is not None
    further = await save(scene.board, saved, '{"page":58}')
    assert further is not None
    assert await scene.table.land() == [False]
    assert (await scene.item()).checkpoint == '{"page":58}'


async def edited(scene: Scene) -> None:
    await edit(scene.other, "davis", lambda *_: Spec(every="7h"))


async def is_paused(scene: Scene) -> None:
    await pause(scene.other, "davis", scene.mark())


@pytest.mark.parametrize("change", [edited, is_paused])
@story
async def test_what_an_operator_changed_meanwhile_is_kept(
    scene: Scene, change: Callable[[Scene], Awaitable[None]]
) -> None:
    made = await saving(scene)
    await change(scene)
    now = await scene.item()
    saved = await save(scene.board, made, '{"page":58}')
    assert saved is not None
    after = await scene.item()
    assert (after.spec, after.state) == (now.spec, now.state)
    assert (saved.item.spec, saved.item.state) == (now.spec, now.state)
    await scene.let_go(saved, "failed")
    assert (await scene.item()).checkpoint == '{"page":58}'


@pytest.mark.parametrize("how", ["unlock", "cancel", "remove"])
@story
async def test_a_run_whose_lock_is_lost_saves_nothing(scene: Scene, how: str) -> None:
    made = await saving(scene)
    if how == "remove":
        await remove(scene.other, "davis")
    else:
        verb = unlock if how == "unlock" else cancel
        await verb(scene.other, "davis", scene.mark(), fence=made.fence)
    assert await save(scene.board, made, '{"page":58}') is None
    assert (await scene.item()).checkpoint == ("" if how == "remove" else PAGE)


@pytest.mark.parametrize("outcome", ["ok", "failed"])
@story
async def test_a_save_that_comes_after_the_release_of_its_run_saves_nothing(
    scene: Scene, outcome: str
) -> None:
    """The item waits by then, under the fence of that run."""
    made = await saving(scene)
    await scene.let_go(made, outcome)
    assert await save(scene.board, made, '{"page":58}') is None
    item, token = await scene.item(), await scene.token()
    assert item.checkpoint == token.checkpoint == (PAGE if outcome == "failed" else "")


@story
async def test_a_run_saves_nothing_for_the_next_one_of_its_worker_in_the_same_millisecond(
    scene: Scene,
) -> None:
    made = await saving(scene)
    await unlock(scene.other, "davis", scene.mark(), fence=made.fence)
    again = await scene.claimed()
    assert (again.owner, again.start) == (made.owner, made.start)
    assert await save(scene.board, made, '{"page":58}') is None
    assert (await scene.item()).checkpoint == PAGE


@story
async def test_an_edit_after_an_unlock_keeps_the_run_and_what_it_saved(scene: Scene) -> None:
    """A run with params of its own waits behind it."""
    made = await saving(scene)
    await run_now(scene.other, "davis", once={"page": 7})
    await unlock(scene.other, "davis", scene.mark(), fence=made.fence)
    assert (await scene.item()).checkpoint == PAGE
    await edit(scene.other, "davis", lambda *_: Spec(every="7h"))
    item = await scene.item()
    assert (item.once, item.checkpoint, len(item.requests)) == ("", PAGE, 1)
    assert (await scene.token()).checkpoint == PAGE


@pytest.mark.of_each_store
@story
async def test_no_edit_sets_the_checkpoint_of_a_run_under_way(scene: Scene) -> None:
    """The run would replace it by its next save."""
    made = await saving(scene)
    with pytest.raises(StillRuns, match="other checkpoint until its end: `pause` it"):
        await edit(scene.other, "davis", lambda *_: Spec(every="7h"), checkpoint="")
    assert (await scene.item()).checkpoint == PAGE
    await scene.let_go(made, "failed")
    await edit(scene.other, "davis", lambda spec, _: spec, checkpoint="")
    assert (await scene.item()).checkpoint == ""


@story
async def test_a_claim_without_an_answer_reads_its_item_before_it_saves(scene: Scene) -> None:
    await scene.add()
    scene.table.script(Fault.LOST)
    made = await scene.claimed()
    assert made.item.etag == ""
    saved = await save(scene.board, made, PAGE)
    assert saved is not None
    assert (await scene.item()).checkpoint == PAGE


@story
async def test_saves_and_renewals_leave_each_other_alone(scene: Scene) -> None:
    made = await saving(scene)
    renewed = await renew(scene.board, made)
    assert renewed is not None
    saved = await save(scene.board, renewed, '{"page":58}')
    assert saved is not None
    assert await renew(scene.board, saved) is not None
