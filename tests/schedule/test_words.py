"""Schedules in words: short where a short description is true, literal where it is not."""

from datetime import UTC, datetime, timedelta

import pytest

from blackboard.schedule.schedule import Cron, Every, Once, RRule, Schedule
from blackboard.schedule.words import describe

CRON = [
    ("* * * * *", "every minute"),
    ("*/15 * * * *", "every 15 minutes"),
    ("0,15,30,45 * * * *", "every 15 minutes"),
    ("*/7 * * * *", "every hour at minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56"),
    ("5/20 * * * *", "every hour at minutes 5, 25 and 45"),
    ("0 * * * *", "every hour"),
    ("@hourly", "every hour"),
    ("30 * * * *", "every hour at minute 30"),
    ("0 3 * * *", "at 03:00 every day"),
    ("0,30 3,15 * * *", "at 03:00, 03:30, 15:00 and 15:30 every day"),
    ("5 */2 * * *", "every 2 hours from 00:05"),
    ("0 9-17 * * 1-5", "every hour from 09:00 to 17:00 on Monday to Friday"),
    ("*/10 9-17 * * *", "every 10 minutes from 09:00 to 17:50"),
    ("* 2 * * *", "every minute from 02:00 to 02:59"),
    ("5 1,3,5,7,9,11,13 * * *", "at minute 5 of hours 1, 3, 5, 7, 9, 11 and 13 every day"),
    ("0-10 3 * * *", "at minutes 0 to 10 of hour 3 every day"),
    ("1-3,9 1,3 * * *", "at minutes 1 to 3 and 9 of hours 1 and 3 every day"),
    ("30 2 * * 1-5", "at 02:30 on Monday to Friday"),
    ("0 0 * * 0,6", "at 00:00 on Saturday and Sunday"),
    ("0 0 * * 0,1,3", "at 00:00 on Monday, Wednesday and Sunday"),
    ("0 0 1 * *", "at 00:00 on day 1 of the month"),
    ("0 0 1,15-18 * *", "at 00:00 on days 1 and 15 to 18 of the month"),
    ("@yearly", "at 00:00 on day 1 of the month in January"),
    ("0 0 * 3-5,12 *", "at 00:00 every day in March to May and December"),
    ("*/15 * * 1,2 *", "every 15 minutes in January and February"),
    # Day of month or day of week: either will do
    ("0 0 13 * 5", "at 00:00 on day 13 of the month or on Friday"),
    ("0 0 1-31 * 5", "at 00:00 every day"),
    ("0 0 13 * 0-6", "at 00:00 every day"),
    # One of them starts with *: both must match
    ("0 0 */10 * 5", "at 00:00 on days 1, 11, 21 and 31 of the month, but only on Friday"),
    ("0 0 1 * */1", "at 00:00 on day 1 of the month"),
]

RULES = [
    ("FREQ=DAILY", "at 00:00 every day"),
    ("FREQ=WEEKLY", "at 00:00 on Monday"),
    ("FREQ=MONTHLY", "at 00:00 on day 3 of the month"),
    ("FREQ=WEEKLY;BYDAY=MO,WE;BYHOUR=9;BYMINUTE=30", "at 09:30 on Monday and Wednesday"),
    ("FREQ=DAILY;BYMONTH=1,2;BYHOUR=3", "at 03:00 every day in January and February"),
    ("FREQ=MONTHLY;BYMONTHDAY=1,15", "at 00:00 on days 1 and 15 of the month"),
    ("FREQ=MONTHLY;BYMONTHDAY=13;BYDAY=FR", "at 00:00 on day 13 of the month, but only on Friday"),
    ("FREQ=DAILY;INTERVAL=2", "by the rule FREQ=DAILY;INTERVAL=2"),
    ("FREQ=MONTHLY;BYDAY=-1FR", "by the rule FREQ=MONTHLY;BYDAY=-1FR"),
    ("FREQ=MONTHLY;BYMONTHDAY=-1", "by the rule FREQ=MONTHLY;BYMONTHDAY=-1"),
    ("FREQ=YEARLY", "by the rule FREQ=YEARLY"),
    ("FREQ=DAILY;UNTIL=20301231", "by the rule FREQ=DAILY;UNTIL=20301231"),
    (
        "DTSTART:20260101T090000\nFREQ=DAILY",
        "by the rule DTSTART:20260101T090000 RRULE:FREQ=DAILY",
    ),
]

OTHERS: list[tuple[Schedule, str]] = [
    (Every(timedelta(hours=8)), "every 8 hours"),
    (Every(timedelta(hours=1), "Europe/Berlin"), "every hour"),
    (Every(timedelta(days=7)), "every week"),
    (Every(timedelta(days=8)), "every 8 days"),
    (Every(timedelta(days=1, hours=12)), "every 1 day and 12 hours"),
    (Every(timedelta(days=1, minutes=1, seconds=5)), "every 1 day, 1 minute and 5 seconds"),
    (Every(timedelta(milliseconds=500)), "every 500 milliseconds"),
    (Once(datetime(2026, 5, 4, 12, tzinfo=UTC)), "once, at 2026-05-04 12:00:00"),
    (
        Once(datetime(2026, 5, 4, 12, tzinfo=UTC), "Europe/Berlin"),
        "once, at 2026-05-04 14:00:00 (Europe/Berlin)",
    ),
    (Cron("0 3 * * *", "Europe/Berlin"), "at 03:00 every day (Europe/Berlin)"),
    (RRule("FREQ=YEARLY", "Europe/Berlin"), "by the rule FREQ=YEARLY (Europe/Berlin)"),
]


@pytest.mark.parametrize(("expression", "words"), CRON)
def test_cron_in_words(expression: str, words: str) -> None:
    assert describe(Cron(expression)) == words


@pytest.mark.parametrize(("rule", "words"), RULES)
def test_a_simple_rule_in_words_and_any_other_quoted(rule: str, words: str) -> None:
    assert describe(RRule(rule)) == words


@pytest.mark.parametrize(("schedule", "words"), OTHERS)
def test_durations_moments_and_zones_in_words(schedule: Schedule, words: str) -> None:
    assert describe(schedule) == words
