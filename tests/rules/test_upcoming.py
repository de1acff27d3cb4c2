"""The next times of an item, as `next` and the pages show them."""

import math
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

import pytest

from blackboard.model import Item, QueuedRun, State, replace
from blackboard.rules import upcoming as upcoming_rules
from blackboard.rules.due import is_missed
from blackboard.rules.next_run import phase
from blackboard.rules.upcoming import MOST_COUNTED, upcoming
from blackboard.spec import RunSettings
from tests.support.plans import DAY, HOUR, HOURLY, MINUTE, NOON, item, running, settings

NO_SCHEDULE = settings()
EVERY = settings(every="8h")
CRON = settings(cron=HOURLY)
ONCE = settings(at=NOON.isoformat())
CLOSED = settings(cron=HOURLY, blackout="13:01-13:30")
EVERY_CLOSED = settings(every="8h", blackout="13:01-13:30")
MONDAY_CLOSED = settings(every="8h", blackout="2026-11-23 04:00-06:00")
UNMISSED = settings(cron=HOURLY, blackout="13:01-13:30", missed="none")
WAITING = item()
LATER = item(slot=NOON + HOUR)
ASKED = replace(item(slot=NOON + 10 * MINUTE), planned=NOON + HOUR)
"""A run that was asked for; its schedule goes on at the next hour."""
NAMED = replace(item(slot=NOON + 1.2 * HOUR), first=NOON + 1.2 * HOUR)
"""Its first time, which a person named, is not a slot of a schedule."""
MONTH = replace(WAITING, planned=NOON + 30 * DAY, first=NOON + 30 * DAY)
"""The same, and a run was asked for before it."""
RETRIED = replace(WAITING, ready=NOON + 1.5 * HOUR, attempt=2)
PAUSED = replace(WAITING, state=State.PAUSED, paused="{}")
JITTER = timedelta(minutes=3)
QUEUED = QueuedRun(name="1", slot=NOON, once="")


def spread(said: RunSettings, wait: timedelta) -> RunSettings:
    """The settings with a jitter of which the items here have `wait` for their part."""
    microseconds = wait.total_seconds() * 1e6 / phase(WAITING.id)
    return replace(said, jitter=timedelta(microseconds=math.ceil(microseconds)))


@pytest.mark.parametrize(
    ("one", "said", "more", "hours"),
    [
        (WAITING, NO_SCHEDULE, {}, [0]),
        (WAITING, EVERY, {}, [0, 8, 16]),
        (WAITING, CRON, {}, [0, 1, 2]),
        (WAITING, ONCE, {}, [0]),
        # one that is late runs now, and an `every` counts from then
        (WAITING, EVERY, {"now": NOON + 3 * HOUR}, [0, 11, 19]),
        (WAITING, CRON, {"now": NOON + 2.5 * HOUR}, [0, 3, 4]),
        (LATER, EVERY, {}, [1, 9, 17]),
        (LATER, CRON, {}, [1, 2, 3]),
        # what runs is not to come
        (running(), EVERY, {}, [8, 16, 24]),
        (running(start=NOON + HOUR), EVERY, {"now": NOON + 2 * HOUR}, [9, 17, 25]),
        (running(), CRON, {}, [1, 2, 3]),
        (running(), NO_SCHEDULE, {}, []),
        # it covers the slots that it outlasts, or has one more run for them, or one for each
        (running(), CRON, {"now": NOON + 2.5 * HOUR}, [2.5, 3, 4]),
        (running(), settings(cron=HOURLY, missed="all"), {"now": NOON + 2.5 * HOUR}, [2.5, 2.5, 3]),
        (running(), UNMISSED, {"now": NOON + 2.5 * HOUR}, [3, 4, 5]),
        # later than a time
        (WAITING, EVERY, {"after": NOON - HOUR}, [0, 8, 16]),
        (WAITING, EVERY, {"after": NOON}, [8, 16, 24]),
        (WAITING, EVERY, {"after": NOON + 8 * HOUR}, [16, 24, 32]),
        (WAITING, EVERY, {"after": NOON + 81 * HOUR}, [88, 96, 104]),
        (WAITING, CRON, {"after": NOON}, [1, 2, 3]),
        (WAITING, CRON, {"after": NOON + 5 * HOUR}, [6, 7, 8]),
        (WAITING, NO_SCHEDULE, {"after": NOON}, []),
        (WAITING, settings(cron=HOURLY, missed="all"), {"after": NOON + 5 * HOUR}, [6, 7, 8]),
        (WAITING, EVERY, {"wait": JITTER, "after": NOON + 81 * HOUR}, [88, 96, 104]),
        # an `every` counts from its first start, which the jitter puts off
        (replace(WAITING, ready=NOON + HOUR), EVERY, {"after": NOON + 81 * HOUR}, [89, 97, 105]),
        (RETRIED, CRON, {}, [1.5, 2, 3]),
        (RETRIED, CRON, {"after": NOON + HOUR}, [1.5, 2, 3]),
        # what an operator asked for, and the slot that the schedule has planned
        (ASKED, CRON, {}, [1 / 6, 1, 2]),
        (ASKED, CRON, {"after": NOON + HOUR}, [2, 3, 4]),
        (ASKED, CRON, {"after": NOON + HOUR - MINUTE}, [1, 2, 3]),
        (ASKED, CRON, {"now": NOON + 1.5 * HOUR}, [1 / 6, 2, 3]),
        (ASKED, CRON, {"now": NOON + HOUR}, [1 / 6, 2, 3]),
        (replace(ASKED, planned=NOON), CRON, {}, [1 / 6, 1, 2]),
        (replace(ASKED, planned=NOON + 1.5 * HOUR), CRON, {}, [1 / 6, 1, 2]),
        # the first slot, which was named, stays beside it
        (MONTH, EVERY, {}, [0, 720, 728]),
        (MONTH, EVERY, {"after": NOON + HOUR}, [720, 728, 736]),
        (MONTH, NO_SCHEDULE, {}, [0, 720]),
        (MONTH, NO_SCHEDULE, {"after": NOON + 40 * DAY}, []),
        # what was asked for besides comes first
        (replace(WAITING, requests=(QUEUED,)), CRON, {}, [0, 0, 1]),
        (replace(WAITING, requests=(QUEUED,)), CRON, {"after": NOON + HOUR / 2}, [1, 2, 3]),
        (replace(running(), requests=(QUEUED,)), CRON, {"now": NOON + 0.5 * HOUR}, [0.5, 1, 2]),
        # a part of the jitter, by which a run is ready after its slot
        (replace(WAITING, ready=NOON + JITTER), CRON, {"wait": JITTER}, [0.05, 1.05, 2.05]),
        (ASKED, CRON, {"wait": JITTER}, [1 / 6, 1.05, 2.05]),
        (ASKED, CRON, {"wait": JITTER, "after": NOON + HOUR}, [1.05, 2.05, 3.05]),
        (ASKED, CRON, {"wait": JITTER, "after": NOON + HOUR + JITTER}, [2.05, 3.05, 4.05]),
        (WAITING, CRON, {"wait": JITTER, "after": NOON + 3 * HOUR}, [3.05, 4.05, 5.05]),
        (WAITING, CRON, {"wait": JITTER, "after": NOON + 3 * HOUR + JITTER}, [4.05, 5.05, 6.05]),
        # a run that is late covers the slots whose jitter has passed
        (WAITING, CRON, {"wait": JITTER, "now": NOON + HOUR + MINUTE}, [0, 1.05, 2.05]),
        (WAITING, CRON, {"wait": JITTER, "now": NOON + 1.06 * HOUR}, [0, 2.05, 3.05]),
        (replace(WAITING, ready=NOON + 2.5 * HOUR), CRON, {"wait": 150 * MINUTE}, [2.5, 3.5, 4.5]),
        # where the part of the jitter ends in a time without runs, the run is ready at its slot
        (WAITING, CLOSED, {"wait": JITTER}, [0, 1, 2.05]),
        (WAITING, CLOSED, {"wait": JITTER, "after": NOON + HOUR}, [2.05, 3.05, 4.05]),
        (replace(ASKED, planned=NOON + HOUR), CLOSED, {"wait": JITTER}, [1 / 6, 1, 2.05]),
        (ASKED, CLOSED, {"wait": JITTER, "after": NOON + HOUR}, [2.05, 3.05, 4.05]),
        # what is ready, and late for a time without runs, waits for its end, or for its next slot
        (WAITING, CLOSED, {"now": NOON + 1.2 * HOUR}, [1.5, 2, 3]),
        (WAITING, CLOSED, {"now": NOON + 1.2 * HOUR, "wait": JITTER}, [1.55, 2.05, 3.05]),
        (WAITING, EVERY_CLOSED, {"now": NOON + 1.2 * HOUR, "wait": JITTER}, [1.5, 9.5, 17.5]),
        (WAITING, CLOSED, {"now": NOON + 1.2 * HOUR, "after": NOON + 1.5 * HOUR}, [2, 3, 4]),
        (WAITING, CLOSED, {"now": NOON + 1.2 * HOUR, "after": NOON + 1.3 * HOUR}, [1.5, 2, 3]),
        (WAITING, CLOSED, {"now": NOON + 1.7 * HOUR}, [0, 2, 3]),
        (WAITING, UNMISSED, {"now": NOON + 1.2 * HOUR}, [2, 3, 4]),
        (WAITING, UNMISSED, {"now": NOON + MINUTE}, [0, 1, 2]),
        (WAITING, UNMISSED, {"now": NOON + 6 * MINUTE}, [1, 2, 3]),
        (WAITING, UNMISSED, {"now": NOON + 3 * HOUR + MINUTE}, [3, 4, 5]),
        (WAITING, UNMISSED, {"now": NOON + 3 * HOUR + 6 * MINUTE}, [4, 5, 6]),
        (running(), UNMISSED, {"now": NOON + 3 * HOUR + MINUTE}, [4, 5, 6]),
        (ASKED, CLOSED, {"now": NOON + 1.2 * HOUR}, [1 / 6, 2, 3]),
        (NAMED, CLOSED, {}, [1.5, 2, 3]),
        (item(slot=NOON + 1.2 * HOUR), UNMISSED, {}, [2, 3, 4]),
        # no more than a number of runs, the one that runs or waits among them
        (replace(WAITING, runs=1), settings(cron=HOURLY, max_runs=3), {}, [0, 1]),
        (replace(WAITING, runs=1), settings(every="8h", max_runs=3), {}, [0, 8]),
        (replace(WAITING, runs=3, attempt=2), settings(cron=HOURLY, max_runs=3), {}, [0]),
        (replace(running(), runs=1), settings(cron=HOURLY, max_runs=3), {}, [1]),
        (replace(running(), runs=2), settings(cron=HOURLY, max_runs=3), {}, []),
        (replace(WAITING, runs=1), settings(cron=HOURLY, max_runs=4), {"after": NOON}, [1, 2]),
        (WAITING, settings(cron=HOURLY, max_runs=9), {"after": NOON + 5 * HOUR}, [6, 7, 8]),
        (WAITING, settings(cron=HOURLY, max_runs=8), {"after": NOON + 5.5 * HOUR}, [6, 7]),
        (WAITING, settings(cron=HOURLY, max_runs=8), {"after": NOON + 6.5 * HOUR}, [7]),
        (WAITING, settings(cron=HOURLY, max_runs=6), {"after": NOON + 5 * HOUR}, []),
        (WAITING, settings(every="8h", max_runs=5), {"after": NOON + 20 * HOUR}, [24, 32]),
        (WAITING, settings(every="8h", max_runs=3), {"after": NOON + 20 * HOUR}, []),
        (
            WAITING,
            settings(every="8h", max_runs=5, blackout="20:00-20:30"),
            {"after": NOON + 20 * HOUR},
            [24.5, 32.5],
        ),
        (ASKED, settings(cron=HOURLY, max_runs=2), {}, [1 / 6, 1]),
        # far from now, an `every` counts as if there were no windows on the way
        (WAITING, MONDAY_CLOSED, {"after": NOON + 60 * HOUR}, [64, 72, 80]),
        (WAITING, MONDAY_CLOSED, {"after": NOON + 36 * HOUR}, [42, 50, 58]),
        # a first time in a window waits for its end, also behind a run that was asked for
        (
            replace(ASKED, planned=NOON + 1.2 * HOUR, first=NOON + 1.2 * HOUR),
            CLOSED,
            {"after": NOON + 1.3 * HOUR},
            [1.5, 2, 3],
        ),
        # a paused item counts as if it were resumed, one that is done has no times
        (PAUSED, CRON, {}, [0, 1, 2]),
        (PAUSED, CRON, {"now": NOON + 1.6 * HOUR}, [1.6, 2, 3]),
        (PAUSED, UNMISSED, {"now": NOON + 1.6 * HOUR}, [2, 3, 4]),
        (PAUSED, CLOSED, {"now": NOON + 1.2 * HOUR}, [1.5, 2, 3]),
        (replace(WAITING, state=State.DONE), CRON, {}, []),
    ],
)
def test_the_next_times_of_an_item(
    one: Item, said: RunSettings, more: dict[str, Any], hours: list[float]
) -> None:
    times = {"now": NOON, **more}
    run = spread(said, times.pop("wait", timedelta(0)))
    found = islice(upcoming(one, run, **times), 3)
    assert [(at - NOON) / HOUR for at in found] == pytest.approx(hours)


def test_times_far_away_are_not_reached_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[datetime] = []

    def counted(one: Item, *, now: datetime, settings: RunSettings) -> bool:
        steps.append(now)
        return is_missed(one, now=now, settings=settings)

    monkeypatch.setattr(upcoming_rules, "is_missed", counted)
    after = NOON + 999 * DAY
    limited = [settings(**one, max_runs=99_999) for one in ({"every": "8h"}, {"cron": HOURLY})]
    for said in (CRON, EVERY, EVERY_CLOSED, *limited):
        assert next(upcoming(WAITING, said, now=NOON, after=after)) > after
    ended = [
        settings(every="8h", until="2027-06-01"),
        settings(cron=HOURLY, max_runs=MOST_COUNTED + 2),
    ]
    for said in ended:
        assert [*upcoming(WAITING, said, now=NOON, after=after)] == []
    many = settings(cron="* * * * *", max_runs=1_000_000)
    assert next(upcoming(WAITING, many, now=NOON, after=after)) == after + MINUTE, "as without"
    assert 0 < len(steps) < 22


def test_times_are_whole_milliseconds() -> None:
    wait = timedelta(microseconds=1_500)
    for one in (WAITING, ASKED):
        for at in islice(upcoming(one, spread(CRON, wait), now=NOON), 3):
            assert at.microsecond % 1_000 == 0
    after = NOON + HOUR + timedelta(milliseconds=1)
    assert next(upcoming(WAITING, spread(CRON, wait), now=NOON, after=after)) == after + HOUR


def test_a_slot_that_is_ready_when_a_run_starts_is_covered_by_it() -> None:
    until_two = settings(cron=HOURLY, blackout="13:01-14:00")
    found = islice(upcoming(NAMED, spread(until_two, timedelta(microseconds=1_500)), now=NOON), 2)
    late = timedelta(milliseconds=1)
    assert [*found] == [NOON + 2 * HOUR + late, NOON + 3 * HOUR + late]
