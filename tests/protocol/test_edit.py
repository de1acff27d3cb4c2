"""Editing, pausing and resuming an item."""

from datetime import timedelta
from typing import Any

import pytest

from blackboard.errors import BadInput, BlackboardError, Unchangeable
from blackboard.model import State, replace
from blackboard.protocol import keys
from blackboard.protocol.additions import New, add
from blackboard.protocol.claims import claim
from blackboard.protocol.edits import acknowledge, cancel, edit, pause, resume, run_now
from blackboard.protocol.releases import release
from blackboard.protocol.rows import text_of
from blackboard.spec import RunSettings, Spec, decode_spec, resolve
from blackboard.table import Merge
from tests.support.boards import BY, Scene, finished, settings_of, story
from tests.support.faults import Fault
from tests.support.verbs import VERBS, ready_for, says

pytestmark = pytest.mark.of_one_store("what is read and written is decided above the store")

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


# ---- edit


@pytest.mark.of_each_store
@story
async def test_an_edit_that_changes_nothing_writes_nothing(scene: Scene) -> None:
    await scene.add("davis")
    sent = len(scene.table.batches)
    assert not (await edit(scene.board, "davis", says(every="1h"))).changed
    assert len(scene.table.batches) == sent


@story
async def test_an_edit_of_other_things_leaves_the_slot(scene: Scene) -> None:
    before = await scene.add("davis", cron="0 3 * * *")
    await edit(scene.board, "davis", says(cron="0 3 * * *", retries=2, params={"x": 1}))
    after = await scene.item()
    assert (after.slot, after.ready, after.planned) == (before.slot, before.ready, before.planned)
    assert (await scene.token()).spec == after.spec


@story
async def test_an_edit_reads_what_is_there_and_writes_over_it(scene: Scene) -> None:
    await scene.add("davis", every="1h", retries=3, params={"x": 1})

    def with_param(spec: Spec, _: object) -> Spec:
        return Spec(every=spec.every, retries=spec.retries, params={**spec.params, "y": 2})

    scene.table.script(Fault.LOST)
    await edit(scene.board, "davis", with_param)
    assert (await scene.item()).spec == '{"every":"1h","retries":3,"params":{"x":1,"y":2}}'


@story
async def test_an_edit_that_cannot_be_used_changes_nothing(scene: Scene) -> None:
    before = await scene.add("davis")
    with pytest.raises(BadInput):
        await edit(scene.board, "davis", says(every="soon"))
    assert await scene.item() == before


RAN = HOUR / 2
"""Between the last start and the edit."""


@pytest.mark.parametrize(
    ("old", "new", "state", "slot_after_start"),
    [
        ({"every": "1h"}, {"every": "3h"}, "active", 3 * HOUR),
        ({"every": "3h"}, {"every": "10m"}, "active", HOUR / 6),
        ({"every": "1h"}, {"cron": "0 * * * *"}, "active", HOUR),
        ({"every": "1h"}, {"every": "1h", "timezone": "Asia/Tokyo"}, "active", HOUR),
        ({"at": "2026-01-01T00:00Z"}, {"every": "1h"}, "active", HOUR),
        ({"at": "2026-01-01T00:00Z"}, {"at": "2026-02-01T00:00Z"}, "done", None),
        ({"at": "2026-01-01T00:00Z"}, {"cron": "0 * * * *"}, "active", HOUR),
        ({"every": "1h"}, {"params": {"x": 1}}, "active", HOUR),
    ],
)
@story
async def test_a_new_schedule_of_an_item_that_has_run(
    scene: Scene,
    old: dict[str, Any],
    new: dict[str, Any],
    state: str,
    slot_after_start: timedelta | None,
) -> None:
    await scene.add("davis", **old)
    made = await scene.claimed("davis")
    await scene.let_go(made)
    now = scene.later(seconds=RAN.total_seconds())
    await edit(scene.board, "davis", says(**new))
    item = await scene.item()
    assert item.state is State(state)
    if slot_after_start is not None:
        whole_hours = made.start.replace(minute=0, second=0, microsecond=0)
        expected = whole_hours + HOUR if "cron" in new else made.start + slot_after_start
        assert item.slot == item.planned == expected
        assert item.ready == item.slot or item.slot < now


@pytest.mark.parametrize(
    ("old", "new", "moved"),
    [
        # the first time that was computed was of the old schedule
        ({"every": "1h"}, {"every": "3h"}, True),
        ({"every": "1h"}, {"cron": "0 3 * * *"}, True),
        ({"cron": "0 3 * * *"}, {"cron": "0 4 * * *"}, True),
        ({"cron": "0 3 * * *"}, {"cron": "0 3 * * *", "timezone": "Asia/Tokyo"}, True),
        # without one, which a worker may have, it waits on
        ({"cron": "0 3 * * *"}, {"params": {"x": 1}}, False),
        # what is due stays due where only the limits are others
        ({"every": "1h"}, {"every": "1h", "until": "2030-01-01"}, False),
        ({"every": "1h"}, {"at": "2030-01-01T00:00Z"}, True),
        ({"at": "2029-01-01T00:00Z"}, {"at": "2030-01-01T00:00Z"}, True),
        ({"at": "2029-01-01T00:00Z"}, {"every": "1h"}, True),
        ({"at": "2029-01-01T00:00Z"}, {"params": {"x": 1}}, True),
    ],
)
@story
async def test_a_new_schedule_of_an_item_that_has_never_run(
    scene: Scene, old: dict[str, Any], new: dict[str, Any], *, moved: bool
) -> None:
    spec = Spec(**old)
    before = (await add(scene.board, New(id="davis", type="feed", spec=spec))).item
    now = scene.later(minutes=1)
    await edit(scene.board, "davis", says(**new))
    item = await scene.item()
    assert (item.slot != before.slot) is moved
    assert item.state is State.ACTIVE
    if "cron" in new:
        assert now < item.slot <= now + timedelta(days=1)
    elif moved:
        assert item.slot == now if "at" not in new else item.slot.year == 2030


@story
async def test_a_first_time_that_was_named_stays_under_a_new_schedule(scene: Scene) -> None:
    named = scene.clock.now() + timedelta(days=3)
    spec = Spec(cron="0 3 * * *")
    await add(scene.board, New(id="davis", type="feed", spec=spec, first=named))
    await edit(scene.board, "davis", says(cron="0 4 * * *"))
    assert (await scene.item()).slot == named


@story
async def test_a_pause_makes_up_for_nothing_where_missed_runs_are_not_wanted(scene: Scene) -> None:
    for item_id, missed, is_late in (("a", "none", True), ("b", "one", False)):
        await scene.add(item_id, cron="0 * * * *", missed=missed)
        before = await scene.item(item_id)
        await pause(scene.board, item_id, scene.mark())
        now = scene.later(minutes=10)
        await resume(scene.board, item_id, scene.mark())
        token = await scene.token(item_id)
        assert token.ready == (before.ready if is_late else now)


@story
async def test_what_is_due_is_due_under_another_end(scene: Scene) -> None:
    await scene.add("davis", cron="0 3 * * *")
    await scene.let_go(await scene.claimed("davis"))
    slot = (await scene.item()).slot
    scene.later(days=1)
    await edit(scene.board, "davis", says(cron="0 3 * * *", until="2030-01-01", blackout="sun"))
    assert (await scene.token()).slot == slot
    await edit(scene.board, "davis", says(cron="0 3 * * *", until=slot - timedelta(minutes=1)))
    assert (await scene.item()).state is State.DONE


@story
async def test_an_edit_keeps_a_slot_that_is_being_retried(scene: Scene) -> None:
    await scene.add("davis", every="1h", retries=1)
    made = await scene.claimed("davis")
    await scene.let_go(made, "failed", error="no")
    before = await scene.token()
    await edit(scene.board, "davis", says(every="5h", retries=1))
    after = await scene.token()
    assert (after.slot, after.ready, after.attempt) == (before.slot, before.ready, 2)
    scene.later(minutes=1)
    again = await scene.claimed("davis")
    await scene.let_go(again)
    assert (await scene.token()).slot == again.start + 5 * HOUR


@pytest.mark.parametrize("running", [False, True])
@story
async def test_an_edit_keeps_a_run_that_was_asked_for_and_plans_after_it(
    scene: Scene, *, running: bool
) -> None:
    await scene.add("davis", cron="0 3 * * *")
    await scene.let_go(await scene.claimed("davis"))
    scene.later(minutes=1)
    asked = (await run_now(scene.other, "davis")).item
    if running:
        made = await scene.claimed("davis")
    await edit(scene.board, "davis", says(cron="0 20 * * *"))
    item = await scene.item()
    assert (item.slot, item.ready) == (asked.slot, asked.ready)
    assert item.planned.hour == 20
    await scene.let_go(made if running else await scene.claimed("davis"))
    assert (await scene.token()).slot == item.planned


@pytest.mark.parametrize("running", [False, True])
@story
async def test_a_run_that_was_asked_for_in_the_very_millisecond_that_is_planned_outlasts_an_edit(
    scene: Scene, *, running: bool
) -> None:
    await scene.add("davis", every="1h")
    made = await scene.claimed("davis")
    if not running:
        await scene.let_go(made)
    scene.later(hours=1)
    await run_now(scene.other, "davis")
    if running:
        await scene.let_go(made)
    asked = await scene.token()
    assert asked.ready == asked.planned == made.start + HOUR
    await edit(scene.board, "davis", says(every="5h"))
    token = await scene.token()
    assert (token.ready, token.planned) == (asked.ready, made.start + 5 * HOUR)


@story
async def test_an_edit_may_plan_the_very_millisecond_of_a_run_that_was_asked_for(
    scene: Scene,
) -> None:
    """That run is kept, also by the next edit."""
    await scene.add("davis", every="1h")
    made = await scene.claimed("davis")
    await scene.let_go(made)
    scene.later(minutes=30)
    asked = (await run_now(scene.other, "davis")).item
    for every, hours in (("30m", 0.5), ("5h", 5)):
        await edit(scene.board, "davis", says(every=every))
        token = await scene.token()
        assert (token.ready, token.planned) == (asked.ready, made.start + hours * HOUR)


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("missed", ["one", "all"])
@story
async def test_a_run_that_was_asked_for_is_the_last_one_where_an_edit_leaves_no_slot(
    scene: Scene, *, missed: str, running: bool
) -> None:
    await scene.add("davis", cron="0 3 * * *", missed=missed)
    await scene.let_go(await scene.claimed("davis"))
    scene.later(minutes=1)
    asked = (await run_now(scene.other, "davis")).item
    made = await scene.claimed("davis") if running else None
    for day in (1, 2, 3):
        await edit(scene.board, "davis", says(at=f"2026-01-0{day}T00:00Z", missed=missed))
    item = await scene.item()
    assert (item.slot, item.ready) == (asked.slot, asked.ready)
    assert item.planned < item.slot
    await scene.let_go(made or await scene.claimed("davis"))
    assert (await scene.item()).state is State.DONE
    assert len(await scene.runs()) == 2


@story
async def test_an_edit_of_a_paused_item_leaves_it_paused(scene: Scene) -> None:
    await scene.add("davis", every="1h")
    await scene.let_go(await scene.claimed("davis"))
    await pause(scene.other, "davis", scene.mark())
    await edit(scene.board, "davis", says(every="5h"))
    item = await scene.item()
    assert (item.state, item.slot) == (State.PAUSED, (item.start or item.slot) + 5 * HOUR)


@pytest.mark.of_each_store
@story
async def test_a_paused_item_that_an_edit_leaves_no_slot_is_done_and_stays_paused(
    scene: Scene,
) -> None:
    """Its old slot is not run when it is resumed, nor another before that."""
    await scene.add("davis", every="1h")
    await scene.let_go(await scene.claimed("davis"))
    await pause(scene.other, "davis", scene.mark())
    await edit(scene.board, "davis", says(at="2026-01-01T00:00Z"))
    assert (await scene.item()).state is State.DONE
    with pytest.raises(BlackboardError, match="is paused"):
        await run_now(scene.board, "davis")
    await edit(scene.board, "davis", says(cron="0 20 * * *"))
    assert (await scene.item()).state is State.PAUSED
    await edit(scene.board, "davis", says(at="2026-01-01T00:00Z"))
    item = (await resume(scene.board, "davis", scene.mark())).item
    assert (item.state, item.paused) == (State.DONE, "")
    assert await scene.tokens() == []
    await edit(scene.board, "davis", says(cron="0 20 * * *"))
    assert (await scene.token()).slot.hour == 20


@story
async def test_a_pause_outlasts_the_last_run(scene: Scene) -> None:
    await scene.add("davis", at="2026-01-01T00:00Z")
    made = await scene.claimed("davis")
    await pause(scene.other, "davis", scene.mark())
    await scene.let_go(made)
    assert (await scene.item()).state is State.DONE
    await edit(scene.board, "davis", says(cron="0 20 * * *"))
    assert (await scene.item()).state is State.PAUSED


@story
async def test_an_active_item_is_not_paused_by_who_paused_it_once(scene: Scene) -> None:
    """Others may keep that, as who resumed it is kept."""
    added = await scene.add("davis", every="1h")
    once = replace(added, paused=text_of(scene.mark("holidays")))
    merge = Merge(keys.item_key("davis"), {"paused": once.paused}, added.etag)
    await scene.table.table.commit(scene.board.partition("davis"), [merge])
    assert not (await resume(scene.board, "davis", scene.mark())).changed
    await edit(scene.board, "davis", says(at="2027-01-01T00:00Z"))
    assert (await scene.item()).state is State.ACTIVE
    assert (await run_now(scene.board, "davis")).item.waits
    await pause(scene.board, "davis", scene.mark())
    assert (await resume(scene.board, "davis", scene.mark())).item.paused == ""


@story
async def test_a_done_item_that_was_run_again_gets_a_schedule(scene: Scene) -> None:
    await scene.add("davis", at="2026-01-01T00:00Z")
    for _ in range(2):
        await scene.let_go(await scene.claimed("davis"))
        assert (await scene.item()).state is State.DONE
        scene.later(minutes=1)
        if not (await scene.runs())[1:]:
            await run_now(scene.other, "davis")
    await edit(scene.board, "davis", says(cron="0 20 * * *"))
    assert (await scene.token()).slot.hour == 20


# ---- acknowledge


@pytest.mark.of_each_store
@story
async def test_only_the_failure_that_was_seen_is_acknowledged(scene: Scene) -> None:
    async def refused(words: str, fence: int) -> None:
        before = await scene.item()
        with pytest.raises(Unchangeable, match=words):
            await acknowledge(scene.board, "davis", scene.mark("seen"), fence=fence)
        assert await scene.item() == before

    await scene.add("davis")
    await refused("davis has not failed", fence=0)
    await scene.let_go(await scene.claimed("davis"), "failed")
    await run_now(scene.board, "davis")
    held = await scene.claimed("davis")
    await refused("davis runs: its outcome ends the alarm or renews it", fence=2)
    await scene.let_go(held, "failed")
    await refused("davis has run since run 1", fence=1)
    assert (await acknowledge(scene.board, "davis", scene.mark("seen"), fence=2)).changed
    assert (await scene.item()).is_acknowledged
    assert not (await acknowledge(scene.board, "davis", scene.mark("seen"), fence=2)).changed


# ---- pause and resume


@story
async def test_a_paused_item_has_no_token_and_says_by_whom_and_why(scene: Scene) -> None:
    before = await scene.add("davis")
    mark = scene.mark("holidays")
    item = (await pause(scene.board, "davis", mark)).item
    assert (item.state, item.paused) == (State.PAUSED, text_of(mark))
    assert BY in item.paused
    assert (item.slot, item.planned) == (before.slot, before.planned)
    assert await scene.tokens() == []


@pytest.mark.of_each_store
@pytest.mark.parametrize("verb", ["pause", "resume"])
@story
async def test_what_is_so_already_is_not_done_again(scene: Scene, verb: str) -> None:
    await ready_for(verb, scene)
    assert (await VERBS[verb](scene)).changed
    before = await scene.item()
    assert not (await VERBS[verb](scene)).changed
    assert await scene.item() == before


@story
async def test_a_done_item_is_not_paused(scene: Scene) -> None:
    await scene.add("davis", at="2026-01-01T00:00Z")
    await scene.let_go(await scene.claimed("davis"))
    assert not (await pause(scene.board, "davis", scene.mark())).changed


@pytest.mark.parametrize(("waited", "due"), [(HOUR / 2, HOUR), (5 * HOUR, 5 * HOUR)])
@story
async def test_a_slot_that_came_while_it_was_paused_is_due_at_once(
    scene: Scene, waited: timedelta, due: timedelta
) -> None:
    await scene.add("davis", every="1h")
    made = await scene.claimed("davis")
    await scene.let_go(made)
    await pause(scene.other, "davis", scene.mark())
    scene.later(seconds=waited.total_seconds())
    await resume(scene.board, "davis", scene.mark())
    token = await scene.token()
    assert (token.slot, token.ready) == (made.start + HOUR, made.start + due)
    assert (await scene.item()).paused == ""


@story
async def test_two_who_resume_make_one_token(scene: Scene) -> None:
    await ready_for("resume", scene)

    async def faster() -> None:
        await resume(scene.other, "davis", scene.mark())
        scene.later(seconds=1)

    scene.table.script(faster)
    assert not (await resume(scene.board, "davis", scene.mark())).changed
    assert len(await scene.tokens()) == 1


def by_handler(item_type: str, spec: str) -> RunSettings:
    """As a worker resolves it whose handler says the schedule."""
    return resolve([decode_spec(spec), Spec(every="8h", timezone="Asia/Tokyo")])


@story
async def test_another_type_has_no_schedule_of_the_type_before(scene: Scene) -> None:
    scene.board.resolve = by_handler
    await scene.add("davis", params={"x": 1})
    scene.other.resolve = lambda *of: replace(settings_of(*of), has_handler=False)
    await edit(scene.other, "davis", lambda spec, _: spec, item_type="hello")
    assert (await scene.item()).schedule == ""


@pytest.mark.of_each_store
@pytest.mark.parametrize("verb", ["edit", "cancel"])
@story
async def test_a_schedule_that_a_handler_says_holds_where_the_handler_is_unknown(
    scene: Scene, verb: str
) -> None:
    scene.board.resolve = by_handler
    scene.other.resolve = lambda *of: replace(settings_of(*of), has_handler=False)
    await scene.add("davis", params={"x": 1})
    answer = await claim(scene.board, [await scene.token()], owner="me")
    (made,) = answer.claims
    if verb == "edit":
        await release(scene.board, [finished(made)])
        await edit(scene.other, "davis", says(params={"x": 2}))
    else:
        await cancel(scene.other, "davis", scene.mark(), fence=1)
    item = await scene.item()
    assert (item.state, item.schedule, item.timezone) == (State.ACTIVE, "every 8h", "Asia/Tokyo")
    assert (await scene.token()).slot == made.start + 8 * HOUR
