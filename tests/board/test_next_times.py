"""What `next` lists is what a worker runs, whatever people have done to an item before."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import count, takewhile
from pathlib import Path
from random import Random
from typing import Any

import pytest

from blackboard import Context, Item, handler
from blackboard.errors import BadInput, BlackboardError
from blackboard.model import Item as Row
from blackboard.model import State
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.planning import settings_of
from blackboard.rules.upcoming import upcoming
from blackboard.testing import BoardUnderTest, TurnedClock, _board
from blackboard.why import due_words

STARTS = (
    datetime(2026, 12, 30, 21, 17, 3, tzinfo=UTC),  # a year ends
    datetime(2027, 3, 27, 13, 41, 59, tzinfo=UTC),  # Berlin loses an hour
    datetime(2027, 4, 3, 9, 2, 1, tzinfo=UTC),  # Lord Howe gains half of one
    datetime(2027, 10, 30, 12, 0, 7, tzinfo=UTC),  # Berlin gains an hour
    datetime(2028, 2, 28, 3, 59, 58, tzinfo=UTC),  # before a leap day
)
SCHEDULES: tuple[dict[str, Any], ...] = (
    {},
    {"every": "47m"},
    {"every": "8h"},
    {"every": "3653d"},
    {"cron": "*/20 * * * *"},
    {"cron": "30 2 * * *"},
    {"cron": "0 9-17 * * mon-fri; 15 2 * * sun"},
    {"cron": "0 0 29 2 *"},
    {"rrule": "FREQ=HOURLY;BYMINUTE=0,30"},
    {"rrule": "DTSTART:20260101T023000\nRRULE:FREQ=DAILY;COUNT=500"},
    {"at": "2027-10-31T02:30"},
    {"at": "2028-02-29T00:00"},
)
ZONES = ("UTC", "Europe/Berlin", "Australia/Lord_Howe", "Antarctica/Troll", "Africa/Casablanca")
LIMITS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"max_runs": 3},
    {"until": "2027-03-28"},
    {"until": "2027-10-31T02:30"},
    {"blackout": "22:00-03:00"},
    {"blackout": "sat, sun 00:00-02:45"},
    {"blackout": "12-30..01-01, 02-29"},
    {"blackout": "mon-sun"},
)
POLICIES: tuple[dict[str, Any], ...] = (
    {},
    {"jitter": "10m"},
    {"missed": "all"},
    {"missed": "all", "missed_limit": 2, "jitter": "40m"},
    {"missed": "none"},
    {"missed": "none", "missed_after": "1h", "jitter": "25m"},
)


@handler("feed")
async def feed(item: Item, ctx: Context) -> None:
    """Ends at once, and well."""


class StillClock(TurnedClock):
    """The store's time moves when it is turned, and else stands still."""

    def __init__(self, start: datetime) -> None:
        super().__init__()
        self._start = start

    def now(self) -> datetime:
        return self._start + self._ahead


class Story:
    """A board, the people who change it, and what was to come at each moment."""

    def __init__(self, board: BoardUnderTest, chance: Random) -> None:
        self.board = board
        self.chance = chance
        self.names = (f"item-{number}" for number in count())

    def said(self) -> dict[str, Any]:
        schedule = self.chance.choice(SCHEDULES)
        said = schedule | {"timezone": self.chance.choice(ZONES)}
        said |= self.chance.choice(LIMITS) if schedule else {}
        return said | self.chance.choice(POLICIES)

    def add(self) -> None:
        first = self.chance.choice(["now", "now", "2h", "30h", None])
        with suppress(BadInput):  # no time is left
            self.board.add(next(self.names), "feed", first=first, **self.said())

    def change(self, item_id: str) -> None:
        """Something that a person does, if it may be done."""
        taken_back = dict.fromkeys(("every", "cron", "rrule", "at", "until", "max_runs"), "")
        taken_back |= dict.fromkeys(("blackout", "jitter", "missed", "missed_limit"), "")
        verbs: list[Callable[[], Any]] = [
            lambda: self.board.edit(item_id, **taken_back | self.said()),
            lambda: self.board.run(item_id),
            lambda: self.board.run(item_id, params={"own": self.chance.random()}),
            lambda: self.board.pause(item_id),
            lambda: self.board.resume(item_id),
            lambda: self.board.rename(item_id, next(self.names)),
            lambda: self.board.remove(item_id),
            self.add,
        ]
        with suppress(BlackboardError):
            self.chance.choice(verbs)()

    def planned(self, until: datetime) -> dict[str, list[datetime]]:
        """The times to come of all active items, and whether other words agree with them."""

        async def read(board: BoardTable) -> dict[str, list[datetime]]:
            now, found = await board.table.now(), dict[str, list[datetime]]()
            async for row in board.items():
                if row.state is State.ACTIVE:
                    times = upcoming(row, settings_of(board, row, row.spec), now=now)
                    to_come = [*takewhile(until.__ge__, times)]
                    agree(board, row, to_come, now)
                    found[row.id] = [max(at, now) for at in to_come]
            return found

        return self.board.do(read)


def agree(board: BoardTable, row: Row, times: list[datetime], now: datetime) -> None:
    """What is said to be due now is the next to run; what is passed over or put off is not."""
    if due_words(board, row, now) == "is due now":
        assert times[0] == row.ready
    elif times:
        assert times[0] >= row.ready if row.ready > now else times[0] > row.ready


@pytest.fixture
def story(tmp_path: Path, seed: int) -> Iterator[Story]:
    chance = Random(seed)
    clock = StillClock(chance.choice(STARTS))
    with _board(str(tmp_path / "blackboard.db"), clock) as board:
        yield Story(board, chance)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_to_come_is_what_runs(story: Story, seed: int) -> None:
    for _ in range(5):
        story.add()
    for _ in range(7):
        for item in story.board.items():
            if story.chance.random() < 0.6:
                story.change(item.id)
        lasting = story.chance.choice([timedelta(hours=3), timedelta(hours=31)])
        until = story.board.now() + lasting
        planned = story.planned(until)
        started = defaultdict[str, list[datetime]](list)
        for run in story.board.work(feed, lasting=lasting):
            started[run.id].append(run.start)
        assert started == {item_id: times for item_id, times in planned.items() if times}
        if story.chance.random() < 0.5:  # no worker is there
            story.board.advance(story.chance.choice(["1h", "2d", "40d"]))
