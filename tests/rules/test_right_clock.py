"""Random lives of an item under a clock that is right: nothing in them is held against it."""

from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Any

from hypothesis import given, reject
from hypothesis import settings as effort
from hypothesis import strategies as st

from blackboard.errors import NoTimeLeft
from blackboard.inputs import first_of
from blackboard.model import Item, Outcome, Run, State
from blackboard.protocol.batches import token_of
from blackboard.rules.due import Move, decide_token
from blackboard.rules.transitions import (
    ItemEvent,
    added,
    applies,
    claimed,
    copied,
    freed,
    overridden,
    passed_over,
    paused,
    put_off,
    released,
    requested,
    rescheduled,
    resumed,
    run_of,
    unlocked,
)
from blackboard.rules.wrong_clock import Planning, problem_of_times
from blackboard.schedule.schedule import parse_schedule
from blackboard.spec import RunSettings
from tests.support.plans import DAY, HOUR, MINUTE, NOON, settings

Said = dict[str, object]
SCHEDULES: tuple[Said, ...] = (
    {},
    {"every": "1m"},
    {"every": "8h"},
    {"every": "30d"},
    {"cron": "*/5 * * * *"},
    {"cron": "30 2 * * *", "timezone": "Europe/Berlin"},
    {"cron": "0 0 29 2 *"},
    {"rrule": "FREQ=WEEKLY;BYDAY=MO;INTERVAL=2"},
    {"rrule": "FREQ=DAILY;UNTIL=20270101T000000Z"},
    {"at": "2026-11-21T18:00Z"},
    {"at": "2030-01-01T00:00Z"},
)
LIMITS: tuple[Said, ...] = (
    {},
    {"until": "2026-12-24"},
    {"max_runs": 3},
    {"blackout": "sat, sun, 12:00-18:00"},
    {"blackout": "2026-11-20..2027-02-01"},
)
WAITS = (timedelta(0), timedelta(milliseconds=1), MINUTE, HOUR, DAY, 3 * DAY, 40 * DAY)


@st.composite
def any_settings(draw: st.DrawFn) -> RunSettings:
    schedule = draw(st.sampled_from(SCHEDULES))
    return settings(
        **schedule,
        **(draw(st.sampled_from(LIMITS)) if schedule else {}),
        jitter=draw(st.sampled_from(["1ms", "10m", "1d"])),
        missed=draw(st.sampled_from(["one", "all", "none"])),
        retries=draw(st.sampled_from([0, 2])),
        backoff=draw(st.sampled_from(["10s", "2d"])),
    )


class Life:
    """An item, its settings, and the clock."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.now = NOON
        self.names = count()
        self.by: RunSettings = draw(any_settings())
        first = draw(st.sampled_from([None, *WAITS]))
        try:
            first_of(None, self.by, self.now)
        except NoTimeLeft:
            reject()
        self.item: Item = added(
            "davis",
            "feed",
            "{}",
            before=None,
            settings=self.by,
            first=first and self.now + first,
            now=self.now,
        )

    def time_passes(self) -> None:
        self.now += self.draw(st.sampled_from(WAITS))

    def a_worker_looks(self) -> None:
        if not self.item.waits:
            return
        match decide_token(token_of(self.item), now=self.now, types={"feed"}, settings=self.by):
            case Move.SKIP:
                self.item = passed_over(self.item, settings=self.by, now=self.now)
            case Move.PUT_OFF:
                self.item = put_off(self.item, settings=self.by, now=self.now)
            case Move.RUN:
                self.item = claimed(self.item, settings=self.by, owner="me", now=self.now)

    def its_run_ends(self) -> None:
        if not self.item.running:
            return
        run = run_of(self.item, self.draw(st.sampled_from(Outcome)), now=self.now)
        end = self.draw(st.sampled_from([self.released, self.freed, self.unlocked]))
        self.item = end(run)

    def released(self, run: Run) -> Item:
        return released(
            self.item,
            run,
            settings=self.by,
            fraction=0.99,
            requeue=self.draw(st.booleans()),
            retry_after=self.draw(st.sampled_from([None, 60.0, 366 * 86400.0])),
        )

    def freed(self, run: Run) -> Item:
        return freed(self.item, run, settings=self.by)

    def unlocked(self, run: Run) -> Item:
        return unlocked(self.item, run)

    def another_worker_takes_it_over(self) -> None:
        if applies(ItemEvent.OVERRIDE, self.item):
            self.item = overridden(self.item, owner="other", now=self.now)

    def a_run_is_asked_for(self) -> None:
        if applies(ItemEvent.ASK, self.item) and not self.item.is_paused:
            once, name = self.draw(st.sampled_from(["", "{}"])), str(next(self.names))
            self.item = requested(self.item, name=name, once=once, now=self.now).item

    def it_is_paused(self) -> None:
        if applies(ItemEvent.PAUSE, self.item):
            self.item = paused(self.item, "{}")

    def it_is_resumed(self) -> None:
        if applies(ItemEvent.RESUME, self.item):
            self.item = resumed(self.item, "{}", settings=self.by, now=self.now)

    def it_is_edited(self) -> None:
        self.by = self.draw(any_settings())
        if (self.by.text, self.by.timezone) != (self.item.schedule, self.item.timezone):
            self.item = rescheduled(self.item, settings=self.by, now=self.now)

    def it_is_renamed(self) -> None:
        if self.item.state is State.PAUSED and not self.item.running:
            name = f"davis-{next(self.names)}"
            self.item = copied(self.item, name, before=None, mark="{}", settings=self.by)

    @property
    def planning(self) -> Planning:
        text, zone = self.item.schedule, self.item.timezone
        return Planning(settings=self.by, written=parse_schedule(text, zone) if text else None)


@effort(max_examples=200)
@given(st.data())
def test_what_a_right_clock_has_planned_is_never_set_back(data: st.DataObject) -> None:
    life = Life(data.draw)
    steps = st.sampled_from(
        [
            life.time_passes,
            life.a_worker_looks,
            life.its_run_ends,
            life.another_worker_takes_it_over,
            life.a_run_is_asked_for,
            life.it_is_paused,
            life.it_is_resumed,
            life.it_is_edited,
            life.it_is_renamed,
        ]
    )
    for _ in range(data.draw(st.integers(1, 15))):
        data.draw(steps)()
        assert problem_of_times(life.item, life.planning, now=life.now) == "", life.item
