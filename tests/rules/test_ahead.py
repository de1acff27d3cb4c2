"""A clock that was years ahead sets a board back: that is told, and put right."""

from datetime import UTC, datetime, timedelta

import pytest

from blackboard.cli.health import alarms_of
from blackboard.doctor import planning_of
from blackboard.model import NEVER, Item, Outcome, State, replace
from blackboard.protocol.edits import add, edit, pause, resume, run_now
from blackboard.rules.next_run import TOLERANCE, Planning, ahead, is_ahead, is_set_back
from blackboard.rules.status import status_of
from blackboard.rules.transitions import brought_back
from blackboard.settings import Settings, resolver
from blackboard.spec import Spec, encode_spec
from tests.board.test_settings import handler
from tests.support.ailments import codes, found, repaired
from tests.support.boards import Scene, story
from tests.support.plans import DAY, HOUR, NOON, after, item, running, settings

YEARS = timedelta(days=3653)
Said = dict[str, object]
EVERY: Said = {"every": "8h"}
DAILY: Said = {"cron": "0 3 * * *"}
RULE: Said = {"rrule": "FREQ=WEEKLY;BYDAY=MO"}
SECOND = timedelta(seconds=1)


def planning(**said: object) -> Planning:
    by = settings(**said)
    return Planning(settings=by, schedules=[by.schedule] if by.schedule else [])


def test_a_minute_is_nobodys_fault() -> None:
    assert [is_ahead(NOON + by, now=NOON) for by in (TOLERANCE, TOLERANCE + SECOND)] == [
        False,
        True,
    ]
    assert not is_ahead(None, now=NOON)


# --- what explains a time

RAN: Said = {"start": NOON - HOUR, "stop": NOON - HOUR}
THREE = datetime(2026, 11, 22, 3, tzinfo=UTC)
EXPLAINED: dict[str, tuple[Said, Said]] = {
    "the next of an every": (EVERY, {"slot": NOON + 7 * HOUR}),
    "an every that started just now": (EVERY, {"slot": NOON + 8 * HOUR}),
    "the next of a cron": (DAILY, {"slot": THREE}),
    "a cron, by the old rules of its zone": (DAILY, {"slot": THREE + HOUR}),
    "a cron with jitter": (DAILY, {"slot": THREE, "ready": THREE + 5 * HOUR}),
    "overdue": (DAILY, {"slot": NOON - DAY}),
    "the next of a rule": (RULE, {"slot": datetime(2026, 11, 23, tzinfo=UTC)}),
    "a time that was named": (
        {"at": "2030-01-01T00:00Z"},
        {"slot": datetime(2030, 1, 1, tzinfo=UTC)},
    ),
    "a retry": (DAILY, {"slot": NOON - HOUR, "attempt": 3, "ready": NOON + HOUR}),
    "asked for": (DAILY, {"slot": NOON, "ready": NOON, "planned": THREE}),
    "asked for, and nothing planned": ({}, {"slot": NOON, "ready": NOON, "planned": NEVER}),
    "never ran": (EVERY, {"slot": NOON + YEARS, "start": None, "stop": None}),
    "done with a time that has passed": (
        {"at": "2026-11-21T11:00Z"},
        {"slot": NOON - HOUR, "state": State.DONE, "schedule": "at 2026-11-21T11:00:00+00:00"},
    ),
    "done without a schedule, and its type has one by now": (
        EVERY,
        {"slot": NOON - HOUR, "state": State.DONE},
    ),
    "removed": (EVERY, {"slot": NOON + YEARS, "state": State.REMOVED, "start": NOON + YEARS}),
    "no schedule that is known": ({}, {"slot": NOON + 20 * DAY}),
}
UNEXPLAINED: dict[str, tuple[Said, Said]] = {
    "an every": (EVERY, {"slot": NOON + 9 * HOUR}),
    "an every, ready alone": (EVERY, {"slot": NOON, "ready": NOON + 9 * HOUR}),
    "a cron": (DAILY, {"slot": THREE + DAY}),
    "a cron, ready alone": (DAILY, {"slot": THREE, "ready": NOON + YEARS}),
    "a rule": (RULE, {"slot": NOON + YEARS}),
    "a rule that is over": (
        {"rrule": "DTSTART:20200101T000000Z\nRRULE:FREQ=DAILY;COUNT=3"},
        {"slot": NOON + YEARS},
    ),
    "paused": (EVERY, {"slot": NOON + YEARS, "state": State.PAUSED}),
    "a retry": (DAILY, {"slot": NOON - HOUR, "attempt": 3, "ready": NOON + YEARS}),
    "asked for": (DAILY, {"slot": NOON + YEARS, "planned": THREE}),
    "asked for, and planned for ever": (DAILY, {"slot": NOON, "planned": NOON + YEARS}),
}


def made(said: Said) -> Item:
    said = {**RAN, **said}
    slot = said["slot"]
    return replace(item(), **{"ready": slot, "planned": slot, **said})  # type: ignore[arg-type]


async def set_clock(scene: Scene, by: timedelta) -> None:
    """Somebody does so, and the store is asked something."""
    scene.clock.jump(by.total_seconds())
    await scene.rows()
    await scene.other.item("davis")


@pytest.mark.parametrize("name", EXPLAINED)
def test_what_a_clock_that_is_right_explains_is_left_alone(name: str) -> None:
    schedule, said = EXPLAINED[name]
    one, by = made(said), planning(**schedule)
    assert ahead(one, by, now=NOON) == ""
    assert one.state is State.REMOVED or brought_back(one, by, now=NOON) == one


@pytest.mark.parametrize("name", UNEXPLAINED)
def test_what_nothing_explains_is_told_and_brought_back(name: str) -> None:
    schedule, said = UNEXPLAINED[name]
    one, by = made(said), planning(**schedule)
    assert "later than its schedule" in ahead(one, by, now=NOON)
    back = brought_back(one, by, now=NOON)
    assert ahead(back, by, now=NOON) == ""
    assert back.ready <= NOON + 8 * DAY or not back.waits
    assert back.once == one.once or back.slot == back.planned
    assert (back.state is State.DONE) is (name == "a rule that is over")


@pytest.mark.parametrize("name", ["a cron", "a rule", "an every"])
def test_a_first_time_that_was_named_explains_no_other_time(name: str) -> None:
    schedule, said = UNEXPLAINED[name]
    by = planning(**schedule)
    one = made({**said, "first": said["slot"]})
    other = made({**said, "first": NOON + 2 * YEARS})
    assert ahead(one, by, now=NOON) == ""
    assert "later than its schedule" in ahead(other, by, now=NOON)


LONG: dict[str, Said] = {
    "a retry": {"slot": NOON - HOUR, "attempt": 3, "ready": NOON + 3 * DAY},
    "a jitter": {"slot": THREE, "ready": THREE + 3 * DAY},
}


@pytest.mark.parametrize("name", LONG)
def test_a_wait_that_only_a_handler_explains_is_not_judged_without_it(name: str) -> None:
    """Unless the run before it says that the clock was wrong."""
    spec = encode_spec(Spec(cron="0 3 * * *"))
    schedule = settings(**DAILY).schedule
    assert schedule is not None
    patient = replace(handler(), spec=Spec(backoff="4d", jitter="4d"))
    told = {}
    for known, handlers in {
        "nothing": {},
        "the handler": {"t": patient},
        "another": {"t": replace(patient, spec=Spec())},
    }.items():
        by = Planning(settings=resolver(Settings(), handlers)("t", spec), schedules=[schedule])
        told[known] = ahead(made(LONG[name]), by, now=NOON) != ""
        wrong = made({**LONG[name], "stop": NOON + YEARS})
        assert is_set_back(wrong, by, now=NOON) is (known != "the handler")
    assert told == {"nothing": False, "the handler": False, "another": True}


EARLY = {
    "a time that was named": {"at": "2026-12-24T18:00Z"},
    "a rule that ends": {"rrule": "FREQ=DAILY;UNTIL=20261231T000000Z"},
}


@pytest.mark.parametrize("name", EARLY)
@pytest.mark.parametrize("paused", ["", "{}"])
def test_what_is_done_before_its_time_waits_for_it_again(name: str, paused: str) -> None:
    """Under a clock that was ahead its last slot had come."""
    by = planning(**EARLY[name])
    said = {"slot": NOON - HOUR, "state": State.DONE, "schedule": by.settings.text}
    one = made({**said, "start": NOON + YEARS, "stop": NOON + YEARS, "paused": paused})
    assert "is done, but is due 2026-" in ahead(one, by, now=NOON)
    back = brought_back(one, by, now=NOON)
    assert ahead(back, by, now=NOON) == ""
    assert back.state is (State.PAUSED if paused else State.ACTIVE)
    assert NOON < back.ready == back.slot == back.planned <= datetime(2027, 1, 1, tzinfo=UTC)


def test_either_schedule_may_explain_a_time() -> None:
    """The settings have another one by now, and the token is of before."""
    old, new = settings(every="30d").schedule, settings(every="1h").schedule
    assert old is not None
    assert new is not None
    one = made({"slot": NOON + 20 * DAY})
    both = Planning(settings=settings(every="1h"), schedules=[new, old])
    assert not is_set_back(one, both, now=NOON)
    assert is_set_back(one, planning(every="1h"), now=NOON)


@pytest.mark.parametrize(("schedule", "within"), [(EVERY, 8 * HOUR), (DAILY, DAY)])
@pytest.mark.parametrize("missed", ["one", "all", "none"])
@pytest.mark.parametrize("asked", [False, True])
def test_a_run_that_began_in_the_future_does_not_set_its_item_back(
    schedule: Said, within: timedelta, missed: str, *, asked: bool
) -> None:
    """The clock was put right while it ran."""
    slot = NOON + YEARS
    began = running(slot=slot, planned=slot + DAY if asked else slot, start=slot)
    run = settings(**schedule, missed=missed)
    plan = after(began, "ok", run=run, now=NOON)
    assert plan.ready <= NOON + within or asked


# --- a board


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


async def alarms(scene: Scene) -> list[str]:
    """What `check` says of davis: not that its run failed."""
    davis, now = await scene.item(), await scene.board.table.now()
    lock = await scene.other.lock("davis") if davis.running else None
    one = status_of(davis, lock, now=now, resolution=scene.board.table.resolution)
    told = [alarm.problem for alarm in alarms_of(one, planning_of(scene.board, davis), now=now)]
    return [problem for problem in told if problem != "failing"]


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
    assert codes(await found(scene.board)) == ["D11"]
    assert codes(await repaired(scene.board)) == ["D11"]
    assert (await scene.lock()).nonce == made.nonce, "it may be alive"
    await scene.let_go(made)
    davis = await scene.item()
    assert davis.ready <= scene.clock.now() + HOUR
    assert (await repaired(scene.board)).clean
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


@pytest.mark.parametrize("said", [EVERY, DAILY, RULE], ids=["every", "cron", "rrule"])
@pytest.mark.parametrize("first", [31 * DAY, 60 * 366 * DAY])
@story
async def test_a_first_time_that_a_person_named_outlasts_runs_that_are_asked_for(
    scene: Scene, said: Said, first: timedelta
) -> None:
    """While they wait, run, are tried again, and when they have ended."""
    named = scene.clock.now() + first
    spec = Spec(**said, retries=1, backoff="6h")  # type: ignore[arg-type]
    await add(scene.other, item_id="davis", item_type="feed", spec=spec, first=named)

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


@story
async def test_a_named_first_time_does_not_hide_a_clock_that_was_wrong(scene: Scene) -> None:
    """Also when it has run rightly since, so that nothing but the plan is of the future."""
    first = scene.clock.now() + HOUR
    spec = Spec(cron="0 3 * * *")
    await add(scene.other, item_id="davis", item_type="feed", spec=spec, first=first)
    await set_clock(scene, YEARS)
    await scene.let_go(await scene.claimed())
    await set_clock(scene, -YEARS)
    scene.later(seconds=30)
    await run_now(scene.other, "davis")
    await scene.let_go(await scene.claimed())
    assert codes(await repaired(scene.board)) == ["D11"]
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
