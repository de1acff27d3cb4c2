"""What `next` says of an item: its pending run first, then what the schedule says."""

from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest

from blackboard.cli.next import upcoming
from blackboard.model import Item, State, replace
from blackboard.schedule.schedule import parse_schedule

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
WAITING = Item(id="a", type="t", state=State.ACTIVE, spec="{}", slot=NOON, ready=NOON, planned=NOON)


def hours(*numbers: float) -> list[datetime]:
    return [NOON + number * HOUR for number in numbers]


@pytest.mark.parametrize(
    ("case", "schedule", "columns", "now", "after", "expected"),
    [
        ("waiting", "every 2h", {}, -1, None, hours(0, 2, 4)),
        ("overdue", "every 2h", {}, 3, None, hours(0, 5, 7)),
        ("later", "every 2h", {}, -1, 5, hours(6, 8, 10)),
        ("running", "every 2h", {"running": True, "start": NOON}, 1, None, hours(2, 4, 6)),
        ("retry", "every 2h", {"ready": NOON + HOUR, "attempt": 2}, 0, None, hours(1, 3, 5)),
        ("cron", "cron 0 * * * *", {}, -1, None, hours(0, 1, 2)),
        ("cron, overdue", "cron 0 * * * *", {}, 2.5, None, hours(0, 3, 4)),
        ("cron, later", "cron 0 * * * *", {}, -1, 5.5, hours(6, 7, 8)),
        (
            "cron, running",
            "cron 0 * * * *",
            {"running": True, "start": NOON},
            0,
            None,
            hours(1, 2, 3),
        ),
        ("asked for", "cron 0 */6 * * *", {"planned": NOON + 6 * HOUR}, 0, None, hours(0, 6, 12)),
        (
            "asked for, later",
            "cron 0 */6 * * *",
            {"planned": NOON + 6 * HOUR},
            0,
            6,
            hours(12, 18, 24),
        ),
        ("paused", "every 2h", {"state": State.PAUSED}, -1, None, hours(0, 2, 4)),
        ("once", "at 2026-11-21T12:00:00+00:00", {}, -1, None, hours(0)),
        ("no schedule", None, {}, -1, None, hours(0)),
        ("no schedule, running", None, {"running": True}, 0, None, []),
        ("done", "every 2h", {"state": State.DONE}, 0, None, []),
    ],
)
def test_the_times_of_an_item(
    *,
    case: str,
    schedule: str | None,
    columns: dict[str, Any],
    now: float,
    after: float | None,
    expected: list[datetime],
) -> None:
    found = upcoming(
        replace(WAITING, **columns),
        parse_schedule(schedule) if schedule else None,
        now=NOON + now * HOUR,
        after=None if after is None else NOON + after * HOUR,
    )
    assert list(islice(found, 3)) == expected
