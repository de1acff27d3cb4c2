"""A clock that was years ahead sets a board back: `doctor` says so, and a repair puts it right."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

import pytest

from blackboard.display.health import alarms_of
from blackboard.display.run_queries import ListedRun, RunQuery, newest_runs
from blackboard.doctor import Examination, examine
from blackboard.model import Outcome, State, replace
from blackboard.protocol import board_table
from blackboard.protocol.additions import New, add
from blackboard.protocol.batches import change_ops
from blackboard.protocol.claims import pass_over
from blackboard.protocol.edits import bring_back, edit, pause, resume, run_now
from blackboard.protocol.members import served_types
from blackboard.protocol.planning import planning_of
from blackboard.rules.due import Move
from blackboard.rules.status import status_of
from blackboard.spec import Spec
from tests.support.boards import Scene, story
from tests.support.plans import DAY, HOUR
from tests.support.wrong_rows import codes, found, plant, repaired

YEARS = timedelta(days=3653)
EVERY = {"every": "8h"}
SCHEDULES = {
    "every": EVERY,
    "cron": {"cron": "0 3 * * *"},
    "rrule": {"rrule": "FREQ=WEEKLY;BYDAY=MO"},
}


async def set_clock(scene: Scene, by: timedelta) -> None:
    """Sets it, and reads from the store, which notices."""
    scene.clock.jump(by.total_seconds())
    await scene.rows()
    await scene.other.item("davis")


@pytest.mark.cases_of_one_store("what a clock has planned is judged above the store")
@pytest.mark.parametrize(
    "said",
    [
        {"every": "8h"},
        {"cron": "0 3 * * *"},
        {"cron": "0 3 * * *", "missed": "none", "missed_after": "20w"},
        {"rrule": "FREQ=WEEKLY;BYDAY=MO"},
        {"cron": "0 3 * * *", "jitter": "1h"},
        {"every": "8h", "retries": 3, "backoff": "1h"},
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("outcome", ["ok", "failed"])
@pytest.mark.parametrize("asked", [False, True])
@story
async def test_one_walk_under_a_clock_that_is_ahead_is_told_and_put_right(
    scene: Scene, said: dict[str, str], outcome: str, *, asked: bool
) -> None:
    await scene.add(**said)
    await scene.let_go(await scene.claimed())
    scene.later(hours=1)
    assert (await found(scene.board)).findings == []
    await set_clock(scene, YEARS)
    if asked:
        await run_now(scene.other, "davis", once={"a": 1})
    await scene.let_go(await scene.claimed(), outcome)
    await set_clock(scene, -YEARS)
    scene.later(seconds=30)
    report = await found(scene.board)
    assert codes(report) == ["D11"]
    assert not report.clean
    assert await alarms(scene) == ["clock"]
    mended = await repaired(scene.board)
    assert codes(mended) == ["D11"]
    assert mended.clean
    assert (await found(scene.board)).findings == []
    assert await alarms(scene) == []
    davis = await scene.item()
    assert davis.ready <= scene.clock.now() + 8 * DAY
    scene.clock.advance((davis.ready - scene.clock.now()).total_seconds() + 1)
    await scene.let_go(await scene.claimed())
    assert (await found(scene.board)).findings == []


@pytest.mark.parametrize("repair", [False, True])
@story
async def test_what_runs_during_a_long_examination_is_no_work_of_a_wrong_clock(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, *, repair: bool
) -> None:
    monkeypatch.setattr(board_table, "PAGE", 1)
    await scene.add(every="8h")
    looks = 0

    async def and_it_runs() -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            scene.later(minutes=10)
            await scene.let_go(await scene.claimed())

    report = await examine(scene.board, Examination(repair=repair, pause=and_it_runs))
    assert looks
    assert report.findings == []
    assert (await scene.item()).ready > scene.clock.now() + 7 * HOUR


async def alarms(scene: Scene) -> list[str]:
    """What `check` says of davis, but for its failed runs and for workers that are not there."""
    davis, now = await scene.item(), await scene.board.table.now()
    lock = await scene.other.lock("davis") if davis.running else None
    one = status_of(davis, lock, now=now, resolution=scene.board.table.resolution)
    planning = planning_of(scene.board, davis)
    found = alarms_of(one, planning, served=served_types(()), lost={}, now=now)
    told = [alarm.kind for alarm in found]
    return [problem for problem in told if problem not in {"failing", "unserved"}]


@pytest.mark.cases_of_one_store("what a clock has planned is judged above the store")
@pytest.mark.parametrize("at", ["2026-12-24T18:00Z", "2030-01-01T00:00Z"])
@story
async def test_an_item_that_ran_long_before_its_one_time_waits_for_it_again(
    scene: Scene, at: str
) -> None:
    await scene.add(at=at)
    await set_clock(scene, YEARS)
    await scene.let_go(await scene.claimed())
    assert (await scene.item()).state is State.DONE
    await set_clock(scene, -YEARS)
    scene.later(seconds=30)
    assert codes(await found(scene.board)) == ["D11"]
    mended = await repaired(scene.board)
    assert (codes(mended), mended.clean) == (["D11"], True)
    assert (await scene.item()).slot == datetime.fromisoformat(at)
    assert (await found(scene.board)).findings == []


@story
async def test_a_run_under_way_while_the_clock_is_put_right_is_told_until_it_ends(
    scene: Scene,
) -> None:
    await set_clock(scene, YEARS)
    await scene.add(every="1h")
    made = await scene.claimed()
    await set_clock(scene, -YEARS)
    scene.later(seconds=30)
    for report in (await found(scene.board), await repaired(scene.board)):
        assert (codes(report), report.clean) == (["D11"], True)
    assert (await scene.lock()).nonce == made.nonce, "it may be alive"
    await scene.let_go(made)
    davis = await scene.item()
    assert davis.ready <= scene.clock.now() + HOUR
    assert (await repaired(scene.board)).clean
    assert (await found(scene.board)).findings == []


@pytest.mark.cases_of_one_store("what a clock has planned is judged above the store")
@pytest.mark.parametrize("said", [SCHEDULES["cron"], {"at": "2026-11-21T08:30Z"}])
@story
async def test_the_history_of_a_wrong_clock_is_not_held_against_an_item_that_was_repaired(
    scene: Scene, said: dict[str, str]
) -> None:
    await set_clock(scene, HOUR)
    await scene.add(**said)
    await scene.let_go(await scene.claimed())
    await set_clock(scene, -HOUR)
    assert (await repaired(scene.board)).clean
    for _ in range(2):
        assert (await found(scene.board)).findings == []
        scene.later(minutes=90)


async def is_left_alone(scene: Scene) -> None:
    """Nothing happens to it."""


async def is_edited(scene: Scene) -> None:
    await edit(scene.other, "davis", lambda *_: Spec(cron="*/5 * * * *"))


async def is_asked_for(scene: Scene) -> None:
    await run_now(scene.other, "davis")


async def is_resumed(scene: Scene) -> None:
    await pause(scene.other, "davis", scene.mark())
    await resume(scene.other, "davis", scene.mark())


async def is_passed_over(scene: Scene) -> None:
    token = await scene.token()
    assert await pass_over(scene.other, token, move=Move.SKIP)


HOURLY = {"cron": "0 * * * *", "missed": "none"}
NEVER_RAN: dict[str, tuple[dict[str, str], bool, Callable[[Scene], Awaitable[None]]]] = {
    "an every, added": ({"every": "1h", "jitter": "10m"}, False, is_left_alone),
    "a cron, added": ({"cron": "0 * * * *"}, False, is_left_alone),
    "edited": ({"every": "1h"}, True, is_edited),
    "asked for": ({"every": "1h"}, True, is_asked_for),
    "resumed": ({"every": "1h"}, True, is_resumed),
    "passed over": (HOURLY, True, is_passed_over),
    "passed over, and done": ({**HOURLY, "until": "2026-12-24"}, True, is_passed_over),
}


@pytest.mark.cases_of_one_store("what a clock has planned is judged above the store")
@pytest.mark.parametrize(("said", "was_there", "happens"), NEVER_RAN.values(), ids=NEVER_RAN)
@story
async def test_what_a_wrong_clock_planned_for_an_item_that_never_ran_is_told_and_put_right(
    scene: Scene,
    said: dict[str, str],
    *,
    was_there: bool,
    happens: Callable[[Scene], Awaitable[None]],
) -> None:
    async def added() -> None:
        spec = Spec(**said)  # type: ignore[arg-type]
        await add(scene.other, New(id="davis", type="feed", spec=spec))

    if was_there:
        await added()
        assert (await found(scene.board)).findings == []
    await set_clock(scene, YEARS)
    if not was_there:
        await added()
    await happens(scene)
    await set_clock(scene, -YEARS)
    scene.later(seconds=30)
    assert codes(await found(scene.board)) == ["D11"]
    assert await alarms(scene) == ["clock"]
    assert (await repaired(scene.board)).clean
    assert (await found(scene.board)).findings == []
    assert await alarms(scene) == []
    scene.later(hours=1)
    await scene.let_go(await scene.claimed())
    assert (await found(scene.board)).findings == []


@story
async def test_a_paused_item_that_was_set_back_is_brought_back_too(scene: Scene) -> None:
    await scene.add(every="1h")
    await set_clock(scene, YEARS)
    await scene.let_go(await scene.claimed())
    await pause(scene.other, "davis", scene.mark())
    await set_clock(scene, -YEARS)
    scene.later(seconds=30)
    assert codes(await repaired(scene.board)) == ["D11"]
    assert (await scene.item()).state is State.PAUSED
    await resume(scene.other, "davis", scene.mark())
    assert (await scene.token()).ready <= scene.clock.now()


@story
async def test_what_a_run_was_asked_for_with_is_kept(scene: Scene) -> None:
    await scene.add(cron="0 3 * * *")
    await scene.let_go(await scene.claimed())
    await set_clock(scene, YEARS)
    await run_now(scene.other, "davis", once={"date": "monday"})
    await set_clock(scene, -YEARS)
    scene.later(seconds=30)
    assert codes(await repaired(scene.board)) == ["D11"]
    token = await scene.token()
    assert (token.once, token.slot != token.planned) == ('{"date":"monday"}', True)
    assert token.ready <= scene.clock.now()


@story
async def test_a_run_that_is_planned_anew_has_neither_the_params_nor_the_checkpoint_of_another(
    scene: Scene,
) -> None:
    await scene.add(cron="0 3 * * *")
    item, ahead = await scene.item(), scene.clock.now() + YEARS
    after = replace(
        item,
        slot=ahead,
        ready=ahead,
        planned=ahead,
        once='{"date":"monday"}',
        checkpoint='{"page":57}',
    )
    await plant(scene, *change_ops(item, after))
    assert codes(await repaired(scene.board)) == ["D11"]
    found_again = await scene.item()
    assert (found_again.once, found_again.checkpoint) == ("", "")
    assert (await found(scene.board)).findings == []


@pytest.mark.cases_of_one_store("what a clock has planned is judged above the store")
@pytest.mark.parametrize("said", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize("first", [31 * DAY, 60 * 366 * DAY])
@story
async def test_a_first_time_that_a_person_named_outlasts_runs_that_are_asked_for(
    scene: Scene, said: dict[str, str], first: timedelta
) -> None:
    """While they wait, run, are tried again, and when they have ended."""
    named = scene.clock.now() + first
    spec = Spec(**said, retries=1, backoff="6h")  # type: ignore[arg-type]
    await add(scene.other, New(id="davis", type="feed", spec=spec, first=named))

    async def is_well() -> None:
        scene.later(seconds=1)
        before = await scene.item()
        assert await alarms(scene) == []
        report = await repaired(scene.board)
        assert [code for code in codes(report) if code != "types"] == []
        assert (await scene.item()).planned == before.planned

    for outcome in ("failed", "ok"):
        await is_well()
        await run_now(scene.other, "davis")
        await is_well()
        held = await scene.claimed()
        await is_well()
        await scene.let_go(held, outcome)
        await is_well()
        davis = await scene.item()
        assert davis.planned == named or (said is EVERY and outcome == "ok")
    await edit(scene.other, "davis", lambda spec, _: replace_schedule(spec))
    await is_well()


def replace_schedule(spec: Spec) -> Spec:
    return Spec(cron="0 4 * * *", retries=spec.retries)


@pytest.mark.parametrize("has_run", [False, True])
@story
async def test_a_named_first_time_does_not_hide_a_clock_that_was_wrong(
    scene: Scene, *, has_run: bool
) -> None:
    """A run that was asked for plans the item anew."""
    first = scene.clock.now() + HOUR
    spec = Spec(cron="0 3 * * *")
    await add(scene.other, New(id="davis", type="feed", spec=spec, first=first))
    await set_clock(scene, YEARS)
    await scene.let_go(await scene.claimed())
    await set_clock(scene, -YEARS)
    if has_run:
        scene.later(seconds=30)
        await run_now(scene.other, "davis")
        await scene.let_go(await scene.claimed())
    assert codes(await repaired(scene.board)) == ([] if has_run else ["D11"])
    assert (await scene.item()).planned <= scene.clock.now() + DAY


@story
async def test_a_healthy_board_of_all_kinds_says_nothing(scene: Scene) -> None:
    for name, said in (
        ("every", {"every": "30d"}),
        ("cron", {"cron": "0 0 29 2 *"}),
        ("at", {"at": "2099-01-01T00:00Z"}),
        ("retry", {"every": "1h", "retries": 9, "backoff": "6h"}),
    ):
        await scene.add(name, **said)
        if name != "at":
            await scene.let_go(await scene.claimed(name), "failed" if name == "retry" else "ok")
    await edit(scene.other, "every", lambda spec, _: spec)
    assert (await found(scene.board)).findings == []
    assert (await scene.item("retry")).outcome == Outcome.FAILED


async def ran(scene: Scene, item_id: str) -> None:
    scene.later(minutes=1)
    await scene.let_go(await scene.claimed(item_id))


@pytest.mark.of_one_store("runs are listed above the store")
@story
async def test_runs_that_ended_in_the_future_hide_no_others(scene: Scene) -> None:
    """Of an item the order is that of its fences, whatever the clock was."""
    for name in ("davis", "keene", "elko"):
        await scene.add(name)
    await ran(scene, "davis")
    await set_clock(scene, DAY)
    for name in ("davis", "davis", "keene"):
        await run_now(scene.other, name)
        await ran(scene, name)
    await set_clock(scene, -DAY)
    for name in ("davis", "keene"):
        await bring_back(scene.board, name)
    await ran(scene, "elko")
    await ran(scene, "davis")
    items = [one async for one in scene.board.items()]
    at_once, _ = await newest_runs(scene.board, items, RunQuery(), limit=9)
    assert [(run.id, run.fence) for _, run in at_once] == [
        ("davis", 4),
        ("elko", 1),
        ("davis", 3),
        ("davis", 2),
        ("davis", 1),
        ("keene", 1),
    ]
    listed, after = list[ListedRun](), None
    for _ in at_once:
        page, _ = await newest_runs(scene.board, items, RunQuery(after=after), limit=1)
        after, _ = page[0]
        listed += page
    assert listed == at_once
