"""Runs that are asked for one after another: each has its turn, whatever becomes of the others."""

import pytest

from blackboard.errors import BlackboardError
from blackboard.model import State
from blackboard.protocol.claims import override
from blackboard.protocol.edits import cancel, edit, pause, resume, run_now, unlock
from blackboard.protocol.rows import text_of
from blackboard.rules.transitions import LONGEST_QUEUE
from tests.support.boards import Scene, story
from tests.support.verbs import says

pytestmark = pytest.mark.of_one_store("what is read and written is decided above the store")

MONDAY, TUESDAY = {"date": "monday"}, {"date": "tuesday"}


async def params_run(scene: Scene, count: int, outcome: str = "ok") -> list[str]:
    """What the next runs are given besides the item's own params."""
    found = []
    for _ in range(count):
        made = await scene.claimed("davis")
        found.append(made.item.once)
        await scene.let_go(made, outcome)
        scene.later(minutes=1)
    return found


@pytest.mark.parametrize("outcome", ["ok", "failed", "timeout"])
@pytest.mark.parametrize("was", ["waiting", "running", "done"])
@story
async def test_each_acknowledged_request_has_its_run_with_its_params(
    scene: Scene, *, was: str, outcome: str
) -> None:
    said = {"at": "2026-01-01T00:00Z"} if was == "done" else {"cron": "0 3 * * *"}
    await scene.add("davis", **said)
    made = await scene.claimed("davis")
    if was != "running":
        await scene.let_go(made)
    scene.later(minutes=1)
    for once in (MONDAY, TUESDAY, {}, MONDAY):
        assert (await run_now(scene.other, "davis", once=once)).changed
    if was == "running":
        await scene.let_go(made, outcome)
    assert await params_run(scene, 4, outcome) == [
        text_of(MONDAY),
        text_of(TUESDAY),
        "",
        text_of(MONDAY),
    ]
    item = await scene.item()
    assert (item.once, item.requests) == ("", ())
    assert item.state is (State.DONE if was == "done" else State.ACTIVE)


@story
async def test_requests_outlast_a_pause_an_edit_an_unlock_a_cancel_and_an_override(
    scene: Scene,
) -> None:
    await scene.add("davis", cron="0 3 * * *", stale_after="10s")
    made = await scene.claimed("davis")
    for once in (MONDAY, TUESDAY, {"n": 3}, {"n": 4}):
        await run_now(scene.other, "davis", once=once)
    await edit(scene.other, "davis", says(cron="0 4 * * *", stale_after="10s"))
    await pause(scene.other, "davis", scene.mark())
    await cancel(scene.other, "davis", scene.mark(), fence=made.fence)
    assert await scene.tokens() == []
    await resume(scene.other, "davis", scene.mark())
    made = await scene.claimed("davis")
    assert made.item.once == text_of(MONDAY)
    await unlock(scene.other, "davis", scene.mark(), fence=made.fence)
    again = await scene.claimed("davis")
    assert (again.item.once, again.slot) == (made.item.once, made.slot)
    scene.later(seconds=30)
    taken = await override(scene.board, await scene.lock(), owner="you")
    assert taken is not None
    assert (taken.item.once, taken.attempt) == (made.item.once, again.attempt + 1)
    await scene.let_go(taken)
    assert await params_run(scene, 3) == [text_of(TUESDAY), '{"n":3}', '{"n":4}']
    assert (await scene.token()).planned.hour == 4


@pytest.mark.of_each_store
@story
async def test_a_full_queue_refuses_and_forgets_nothing(scene: Scene) -> None:
    await scene.add("davis")
    await scene.claimed("davis")
    for n in range(LONGEST_QUEUE):
        await run_now(scene.other, "davis", once={"n": n})
    with pytest.raises(BlackboardError, match="100 runs wait already"):
        await run_now(scene.other, "davis", once={"n": LONGEST_QUEUE})
    waiting = (await scene.item()).requests
    assert [one.once for one in waiting] == [text_of({"n": n}) for n in range(LONGEST_QUEUE)]


@pytest.mark.of_each_store
@story
async def test_requests_that_no_row_holds_are_refused(scene: Scene) -> None:
    await scene.add("davis")
    await scene.claimed("davis")
    large = {"text": "x" * 10_000}
    for _ in range(3):
        await run_now(scene.other, "davis", once=large)
    before = await scene.item()
    with pytest.raises(BlackboardError, match=r"would take 40,\d+ characters of 32,768"):
        await run_now(scene.other, "davis", once=large)
    assert await scene.item() == before


@story
async def test_two_requests_without_params_are_one_and_the_second_says_so(scene: Scene) -> None:
    await scene.add("davis", cron="0 3 * * *")
    await scene.let_go(await scene.claimed("davis"))
    scene.later(minutes=1)
    first = await run_now(scene.other, "davis")
    scene.later(minutes=1)
    second = await run_now(scene.other, "davis")
    assert (first.joined, second.joined) == (False, True)
    assert second.slot == first.slot
    assert await params_run(scene, 1) == [""]
    assert (await scene.token()).ready.hour == 3


@story
async def test_of_one_trigger_that_two_send_at_once_one_is_joined(scene: Scene) -> None:
    await scene.add("davis", cron="0 3 * * *")
    await scene.let_go(await scene.claimed("davis"))
    found = []

    async def other() -> None:
        found.append(await run_now(scene.other, "davis", trigger="T"))

    scene.table.script(other)
    ours = await run_now(scene.board, "davis", trigger="T")
    assert (found[0].joined, found[0].changed) == (False, True)
    assert (ours.joined, ours.changed, ours.slot) == (True, False, found[0].slot)


@story
async def test_a_claim_knows_the_requests_behind_it(scene: Scene) -> None:
    """Of what came while its token waited, and after it was claimed."""
    await scene.add("davis")
    for once in (MONDAY, TUESDAY):
        await run_now(scene.other, "davis", once=once)
    made = await scene.claimed("davis")
    assert [one.once for one in made.item.requests] == [text_of(TUESDAY)]
    await run_now(scene.other, "davis", once={"n": 3})
    await scene.let_go(made)
    assert await params_run(scene, 2) == [text_of(TUESDAY), '{"n":3}']
