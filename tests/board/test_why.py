"""Why an item runs, or does not, in words."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from blackboard.model import NEVER, Applied, Item, Lock, Mark, Outcome, QueuedRun, State, replace
from blackboard.protocol.additions import ensure
from blackboard.protocol.claims import renew
from blackboard.protocol.edits import pause, run_now
from blackboard.protocol.rename_marks import copied_name
from blackboard.rules.due import Move
from blackboard.rules.status import status_of
from blackboard.spec import RunSettings, Spec, resolve
from blackboard.why import MORE_SLOTS, Circumstances, Explanation, explain, explained
from tests.support.boards import Scene, settings_of, story
from tests.support.clocks import ManualClock
from tests.support.wrong_rows import repaired

NOW = ManualClock().now()
HOUR = timedelta(hours=1)
EVERY = resolve([Spec(every="8h", retries=2)])
CRON = resolve([Spec(cron="0 3 * * *", timezone="America/Los_Angeles", jitter="1h")])
CLOSED = resolve([Spec(cron="0 * * * *", blackout="08:30-11:00")])
NONE = resolve([Spec(cron="0 * * * *", missed="none")])
ALL = resolve([Spec(cron="0 * * * *", missed="all")])
ITEM = Item(
    id="davis",
    type="calendars",
    state=State.ACTIVE,
    spec="{}",
    fence=3,
    slot=NOW + 7 * HOUR,
    ready=NOW + 7 * HOUR,
    planned=NOW + 7 * HOUR,
    start=NOW - HOUR,
    stop=NOW - HOUR + timedelta(seconds=12),
    outcome=Outcome.OK,
    schedule="every 8h",
    owner="host:1:a",
)
RUNS: dict[str, Any] = {"running": True, "start": NOW - HOUR / 10, "slot": NOW - HOUR / 10}
LOCK = Lock(
    id="davis",
    type="calendars",
    owner="host:1:a",
    nonce="n",
    fence=3,
    born=0,
    slot=NOW,
    since=NOW - HOUR / 10,
    stale_after=120,
    attempt=1,
    age=12.0,
)
BEFORE: dict[str, Any] = {"slot": NOW - HOUR, "ready": NOW - HOUR, "planned": NOW - HOUR}
MARK = '{"at":"2026-11-21T08:00:00Z","by":"ann","reason":"feeds are broken"}'


def why(
    item: Mapping[str, Any],
    lock: Lock | None = None,
    *,
    settings: RunSettings | None = EVERY,
    takers: int | None = None,
) -> Explanation:
    one = status_of(replace(ITEM, **item), lock, now=NOW, resolution=0.01)
    return explain(one, Circumstances(now=NOW, resolution=0.01, settings=settings, takers=takers))


@pytest.mark.parametrize(
    ("item", "more", "move", "sentences"),
    [
        (
            {},
            {},
            Move.LEAVE,
            [
                "davis (type calendars) is waiting.",
                "schedule      every 8 hours, counted from its last start",
                (
                    "due           2026-11-21 16:00:00Z (in 7h): it last started at 2026-11-21 "
                    "08:00:00Z (1h ago)"
                ),
                "any worker that takes calendars starts it then, as soon as it has a free slot",
                "to change     `blackboard run davis` starts it at once",
                "last run      ended ok at 2026-11-21 08:00:12Z (59m 48s ago) after 12s",
            ],
        ),
        (
            {"start": None, "stop": None, "outcome": None, "slot": NOW, "ready": NOW}
            | {"planned": NOW},
            {"takers": 2},
            Move.RUN,
            [
                "is due now.",
                "due           2026-11-21 09:00:00Z (now), for the first time",
                "any of the 2 workers that take calendars starts it in its next walk",
            ],
        ),
        (
            BEFORE,
            {"takers": 0},
            Move.RUN,
            [
                "has been ready for 1h: overdue.",
                "no worker that takes calendars is at work to start it",
                "to change     start a worker that has the jobs of calendars: `blackboard worker`",
            ],
        ),
        (
            BEFORE,
            {"settings": NONE},
            Move.SKIP,
            ["missed runs are not made up for: the next walk reschedules"],
        ),
        (
            BEFORE,
            {"settings": CLOSED},
            Move.PUT_OFF,
            [
                "waits for the end of its blackout.",
                "its blackout lets no run begin until 2026-11-21 11:00:00Z (in 2h): the next walk",
                "to change     `blackboard run davis` starts it at once",
            ],
        ),
        (
            BEFORE | {"ready": NOW + 2 * HOUR},
            {"settings": CLOSED},
            Move.LEAVE,
            ["; it may start after its blackout at 2026-11-21 11:00:00Z (in 2h)"],
        ),
        (
            dict.fromkeys(BEFORE, NOW + HOUR),
            {"settings": CLOSED, "takers": 1},
            Move.LEAVE,
            ["next          its blackout lets no run begin until 2026-11-21 11:00:00Z (in 2h)\n"],
        ),
        (BEFORE, {"settings": None}, Move.LEAVE, ["a worker like this leaves it alone"]),
        (
            BEFORE
            | {"ready": NOW + timedelta(seconds=9), "attempt": 2, "outcome": Outcome.FAILED}
            | {"failures": 4, "error": "ValueError: boom\nTraceback"},
            {"takers": 1},
            Move.LEAVE,
            [
                (
                    "attempt 2 of 3 at the run that was due at 2026-11-21 08:00:00Z (1h ago) may "
                    "start at 2026-11-21 09:00:09Z (in 9s), after backing off"
                ),
                "the one worker that takes calendars, last seen 0s ago, starts it then",
                (
                    "ended failed at 2026-11-21 08:00:12Z (59m 48s ago) after 12s, "
                    "4 failures in a row: ValueError: boom"
                ),
            ],
        ),
        (
            {"slot": NOW, "ready": NOW},
            {},
            Move.RUN,
            ["2026-11-21 09:00:00Z (now), by request; by its schedule it is due"],
        ),
        (
            BEFORE | {"planned": NOW + HOUR, "start": NOW - HOUR, "outcome": Outcome.CANCELLED},
            {"settings": CLOSED},
            Move.RUN,
            [", by request, or begun before its schedule was changed; by its schedule it is due"],
        ),
        (
            {"slot": NOW - HOUR, "ready": NOW + 2 * HOUR, "start": NOW - HOUR, "put_back": True},
            {"settings": CLOSED},
            Move.LEAVE,
            [
                "; by its schedule it is due at 2026-11-21 16:00:00Z (in 7h)",
                "; it may start at 2026-11-21 11:00:00Z (in 2h), after its blackout",
            ],
        ),
        (
            {"slot": NOW, "ready": NOW, "planned": NOW - HOUR},
            {"settings": ALL},
            Move.RUN,
            ["by its schedule it is due at 2026-11-21 08:00:00Z (1h ago)"],
        ),
        (
            {"slot": NOW + HOUR, "ready": NOW + 1.2 * HOUR, "planned": NOW + HOUR},
            {"settings": CRON},
            Move.LEAVE,
            [
                "schedule      at 03:00 every day (America/Los_Angeles)",
                "; it may start with its share of the jitter at 2026-11-21 10:12:00Z (in 1h 12m)",
            ],
        ),
        (
            {"slot": NOW - HOUR, "ready": NOW, "planned": NOW - HOUR},
            {},
            Move.RUN,
            ["due           2026-11-21 08:00:00Z (1h ago); it may start at 2026-11-21 09:00:00Z"],
        ),
        (
            {"schedule": ""},
            {"settings": resolve([Spec()])},
            Move.LEAVE,
            ["schedule      none: it runs once, and again when it is requested"],
        ),
        (
            {"schedule": "", "start": None, "stop": None, "outcome": None},
            {"settings": replace(resolve([Spec()]), has_handler=False)},
            Move.LEAVE,
            ["schedule      not known here: the handler of its type, which may have one, is not"],
        ),
        (
            {"schedule": "", "planned": NEVER},
            {"settings": replace(resolve([Spec()]), has_handler=False)},
            Move.LEAVE,
            ["schedule      none: it runs once, and again when it is requested"],
        ),
        (
            {"schedule": ""},  # and the slot of an earlier one: it was given another type
            {"settings": replace(resolve([Spec()]), has_handler=False)},
            Move.LEAVE,
            ["schedule      not known here: the handler of its type, which may have one, is not"],
        ),
        (
            {"schedule": "moon phase"},
            {"settings": None},
            Move.LEAVE,
            ["schedule      'moon phase'"],
        ),
        (
            {"schedule": "every 9h"},
            {},
            Move.LEAVE,
            ["was planned by its earlier schedule, every 9 hours; the new one counts from then on"],
        ),
        (
            {"schedule": "every 9h"},
            {"settings": None},
            Move.LEAVE,
            ["schedule      every 9 hours, counted from its last start"],
        ),
        (
            {"state": State.PAUSED, "paused": MARK},
            {},
            Move.LEAVE,
            [
                "davis (type calendars) is paused.",
                "paused        by ann at 2026-11-21 08:00:00Z (1h ago): feeds are broken\n",
                "due           2026-11-21 16:00:00Z (in 7h)",
                "to change     `blackboard resume davis`",
            ],
        ),
        ({"state": State.PAUSED}, {}, Move.LEAVE, ["paused        no run starts"]),
        (
            {"state": State.PAUSED, "paused": MARK.replace("{", '{"to":"a b",')},
            {},
            Move.LEAVE,
            ["to change     `blackboard rename davis 'a b'` finishes it"],
        ),
        (
            {
                "state": State.PAUSED,
                "paused": MARK.replace("feeds are broken", "renamed from a"),
                "applied": (Applied(name=copied_name("a", 0), at=NOW),),
            },
            {},
            Move.LEAVE,
            ["to change     `blackboard rename a davis` finishes it"],
        ),
        (
            {"state": State.DONE},
            {},
            Move.LEAVE,
            ["is done.", "nothing is due any more", "`blackboard run davis` runs it once again"],
        ),
        (
            RUNS,
            {"lock": replace(LOCK, progress="[40,100]")},
            Move.LEAVE,
            [
                "is running.",
                "at 2026-11-21 08:54:00Z (6m ago) by host:1:a, as attempt 1 with fence 3",
                "progress      40 of 100",
                (
                    "lock          last renewed 12s ago; unless renewed, it is good for 1m 48s "
                    "more (of 2m) and then stale: any worker that takes calendars may override it"
                ),
                "next          2026-11-21 16:54:00Z (in 7h 54m), after this run",
                "to change     `blackboard cancel davis` ends the run",
                "last run      ended ok at 2026-11-21 08:00:12Z (59m 48s ago)\n",
            ],
        ),
        (RUNS, {"lock": replace(LOCK, progress="[7,null]")}, Move.LEAVE, ["progress      7\n"]),
        (
            RUNS,
            {"lock": replace(LOCK, age=130.0)},
            Move.OVERRIDE,
            [
                "is running, but its lock is stale.",
                (
                    "lock          last renewed 2m 10s ago, and it was good for 2m: the next walk "
                    "of any worker that takes calendars overrides it and runs attempt 2"
                ),
                "to change     `blackboard unlock davis` takes the lock at once",
            ],
        ),
        (
            RUNS,
            {"lock": replace(LOCK, age=float("inf"), attempt=9), "takers": 0},
            Move.OVERRIDE,
            [
                (
                    "last renewed before this host was started, and it was good for 2m: "
                    "the first worker that takes calendars frees it without another attempt, but "
                    "none is at work"
                )
            ],
        ),
        (
            RUNS | {"state": State.PAUSED},
            {"lock": replace(LOCK, age=130.0)},
            Move.OVERRIDE,
            ["takes calendars frees it; attempt 2 may start when the item is resumed"],
        ),
        (
            RUNS | {"planned": NOW - 2 * HOUR},
            {"lock": LOCK, "settings": ALL},
            Move.LEAVE,
            ["2026-11-21 07:00:00Z (2h ago), after this run"],
        ),
        (RUNS, {}, Move.LEAVE, ["lock          not found: it has just been released"]),
        (
            RUNS | {"requests": (QueuedRun(name="a", slot=NOW),)},
            {"lock": LOCK},
            Move.LEAVE,
            ["requests      another run was requested and follows"],
        ),
        (
            RUNS,
            {"lock": LOCK, "settings": replace(resolve([Spec()]), has_handler=False)},
            Move.LEAVE,
            ["(in 7h 54m), after this run"],
        ),
        (
            RUNS | {"schedule": "", "planned": RUNS["slot"]},
            {"lock": LOCK, "settings": resolve([Spec()])},
            Move.LEAVE,
            ["nothing is due any more after this run"],
        ),
        (
            RUNS | {"state": State.PAUSED, "paused": MARK},
            {"lock": LOCK},
            Move.LEAVE,
            ["the run under way may finish"],
        ),
        (
            RUNS | {"outcome": None, "failures": 2},
            {"lock": LOCK},
            Move.LEAVE,
            ["last run      2 failures in a row"],
        ),
    ],
)
def test_every_situation_is_told_with_its_reasons(
    item: dict[str, Any], more: dict[str, Any], move: Move, sentences: list[str]
) -> None:
    told = why(item, **more)
    assert told.move is move
    assert [one for one in sentences if one not in told.text] == []


async def told_of(scene: Scene) -> Explanation:
    item = await scene.item()
    lock = await scene.other.lock(item.id)
    resolution = scene.other.table.resolution
    now = await scene.other.table.now()
    one = status_of(item, lock, now=now, resolution=resolution)
    settings = settings_of(item.type, item.spec)
    return explain(one, Circumstances(now=now, resolution=resolution, settings=settings))


@story
async def test_the_words_follow_an_item_through_its_life(scene: Scene) -> None:
    await scene.add(every="1h", stale_after="30s")
    assert "is due now" in (await told_of(scene)).text
    made = await scene.claimed()
    scene.later(seconds=20)
    assert await renew(scene.board, made, progress="[1,2]")
    told = await told_of(scene)
    assert "is running" in told.text
    assert "1 of 2" in told.text
    await run_now(scene.other, "davis", trigger="again")
    assert "another run was requested" in (await told_of(scene)).text
    scene.later(seconds=31)
    assert (await told_of(scene)).move is Move.OVERRIDE
    await scene.let_go(made, "failed", error="ValueError: boom\nTraceback ...")
    told = await told_of(scene)
    assert (told.move, "ended failed" in told.text) == (Move.RUN, True)
    assert dict(told.facts)["last run"].endswith("ValueError: boom")
    await pause(scene.other, "davis", scene.mark("enough"))
    assert "paused        by ann at" in (await told_of(scene)).text


def test_a_partition_has_no_schedule_to_speak_of() -> None:
    pumped = replace(EVERY, endless=True)
    running = why(RUNS, LOCK, settings=pumped).text
    assert "it is a partition, whose pump runs until its worker releases it" in running
    assert "after this run" not in running
    assert "it is a partition" in why(BEFORE, settings=pumped).text


@pytest.mark.of_one_store("what is said is judged above the store")
@story
async def test_an_item_of_a_pump_never_runs_beside_its_partitions(scene: Scene) -> None:
    await scene.add("davis", item_type="clicks")
    board = scene.board.using(resolve=lambda *_: RunSettings(endless=True))
    _, told = await explained(board, await scene.item(), ())
    facts = dict(told.facts)
    assert told.move is Move.LEAVE
    assert facts["next"] == "never: clicks is a pump, which serves the partitions of town.clicks"
    assert facts["to change"] == "`blackboard rm davis`"
    assert "it is a partition" not in told.text
    group = scene.board.group("clicks")  # of a pump that is not at hand
    await ensure(group, ["a"], "clicks")
    _, told = await explained(group, await group.found("a"), ())
    assert "it is a partition" in told.text


def test_a_stale_lock_on_a_paused_board_waits_until_that_is_resumed() -> None:
    one = status_of(replace(ITEM, **RUNS), replace(LOCK, age=300.0), now=NOW, resolution=0.01)
    paused = Mark(by="ann", at=NOW, reason="an upgrade")
    facts = Circumstances(now=NOW, resolution=0.01, settings=EVERY, takers=1, board_paused=paused)
    told = explain(one, facts)
    assert told.move is Move.LEAVE
    assert dict(told.facts)["lock"].endswith("no worker overrides it until the board is resumed")
    assert dict(told.facts)["to change"] == "`blackboard resume --board`"


@pytest.mark.parametrize(
    ("settings", "move", "remedy"),
    [
        (CLOSED, Move.PUT_OFF, "`blackboard run davis` starts it at once"),
        (NONE, Move.SKIP, None),
        (EVERY, Move.RUN, f"{MORE_SLOTS}; or cancel one of them"),
    ],
)
def test_more_slots_are_asked_for_where_a_run_waits_for_them(
    settings: RunSettings, move: Move, remedy: str | None
) -> None:
    one = status_of(replace(ITEM, **BEFORE), None, now=NOW, resolution=0.01)
    told = explain(
        one,
        Circumstances(now=NOW, resolution=0.01, settings=settings, takers=1, occupants=("keene",)),
    )
    facts = dict(told.facts)
    assert (told.move, facts.get("to change")) == (move, remedy)
    assert ("held by keene" in facts["next"]) is (move is Move.RUN)


def test_a_stale_lock_of_an_item_of_a_newer_version_is_left_alone() -> None:
    told = why(RUNS | {"version": 2}, replace(LOCK, age=300.0), takers=1)
    assert told.move is Move.LEAVE
    assert dict(told.facts)["lock"].endswith("and it was good for 2m")
    assert dict(told.facts)["to change"] == "upgrade blackboard and its workers"
    fresh = why(RUNS | {"version": 2}, LOCK, takers=1)
    assert dict(fresh.facts)["lock"].endswith("and then stale")


@pytest.mark.cases_of_one_store("what a clock has planned is judged above the store")
@pytest.mark.parametrize(
    ("said", "ahead", "words"),
    [
        (
            {"every": "1h"},
            HOUR,
            "is due 2026-11-21 11:00:00Z, later than its schedule (every 1h) explains",
        ),
        (
            {"cron": "0 3 * * *"},
            400 * 24 * HOUR,
            "is due 2027-12-27 03:00:00Z, later than its schedule (cron 0 3 * * *) explains",
        ),
        (
            {"cron": "0 3 * * *"},
            HOUR,
            "says that it started 2026-11-21 10:00:00Z and stopped 2026-11-21 10:00:00Z, which",
        ),
        ({"at": "2026-11-21T09:30Z"}, HOUR, "is done, but is due 2026-11-21 09:30:00Z"),
    ],
    ids=["every", "cron", "past", "at"],
)
@story
async def test_an_item_that_a_wrong_clock_has_set_back_says_so_and_what_mends_it(
    scene: Scene, said: dict[str, str], ahead: timedelta, words: str
) -> None:
    """As `check` and `doctor` have it."""
    await scene.add(**said)
    scene.clock.jump(ahead.total_seconds())
    await scene.rows()
    await scene.other.item("davis")
    await scene.let_go(await scene.claimed())
    scene.clock.jump(-ahead.total_seconds())
    await scene.rows()
    _, told = await explained(scene.board, await scene.item(), [])
    facts = dict(told.facts)
    assert facts["clock"].startswith(words)
    assert facts["clock"].endswith(": a clock was wrong")
    assert facts["to change"].startswith("`blackboard doctor --repair` plans it anew")
    assert (await repaired(scene.board)).clean
    _, told = await explained(scene.board, await scene.item(), [])
    assert "clock" not in dict(told.facts)
    assert "doctor" not in told.text


@story
async def test_while_an_item_runs_nothing_mends_what_a_wrong_clock_has_planned(
    scene: Scene,
) -> None:
    scene.clock.jump(HOUR.total_seconds())
    await scene.rows()
    await scene.add(every="1h")
    await scene.claimed()
    scene.clock.jump(-HOUR.total_seconds())
    await scene.rows()
    _, told = await explained(scene.board, await scene.item(), [])
    assert "which is in the future: a clock was wrong" in dict(told.facts)["clock"]
    assert "doctor" not in dict(told.facts)["to change"]
