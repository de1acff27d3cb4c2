"""What a message says to write instead is taken, once it is written."""

import re
from typing import Any

import pytest

from blackboard.errors import BadInput
from blackboard.spec import Spec, check_spec

DAILY = "0 3 * * *"
DURATIONS = ("8h", "90s", "1d12h", "1w", "500ms")
WINDOWS = ("sat-sun", "mon-fri 22:00-06:00", "2026-12-24..2027-01-02", "01-01")
AT = ("2026-11-21T09:00",)
ZONES = ("Europe/Berlin", "UTC")
FIELD = ("*", "5", "1-5", "*/10", "1-30/5")

OF_ONE_FIELD: list[tuple[str, Any, tuple[Any, ...]]] = [
    ("every", "10000d", ("3653d",)),
    ("every", "3653d1ms", ("3653d",)),
    ("every", "999999999999w", ("3653d",)),
    ("every", "10", ("10s",)),
    ("every", "1.5", ("1.5s",)),
    ("every", "315619200", ("315619200s",)),
    ("every", "315619201", DURATIONS),
    ("every", "1.0005", DURATIONS),
    ("every", "0", DURATIONS),
    ("every", "0s", DURATIONS),
    ("every", "-5m", DURATIONS),
    ("every", "10y", DURATIONS),
    ("timeout", "10000d", ("3653d",)),
    ("timeout", "0", DURATIONS),
    ("jitter", "3654d", ("3653d",)),
    ("backoff", "7", ("7s",)),
    ("missed_after", "none", DURATIONS),
    ("stale_after", "2s", ("3s",)),
    ("stale_after", "3654d", ("3653d",)),
    ("retries", -1, (0, 10000)),
    ("max_runs", 0, (1, 1000000)),
    ("missed_limit", 1001, (1, 1000)),
    ("priority", 101, (-100, 100)),
    ("missed", "never", ("one", "all", "none")),
    ("at", "tomorrow", AT),
    ("at", "9001-01-01", AT),
    ("at", "2026-12-24-05:00", AT),
    ("cron", "60 * * * *", ("0", "59")),
    ("cron", "1-x * * * *", FIELD),
    ("cron", "22-6 * * * *", ("22-59,0-6",)),
    ("cron", "* 22-6 * * *", ("* 22-23,0-6",)),
    ("cron", "* * 25-5 * *", ("* * 25-31,1-5",)),
    ("cron", "* * * nov-feb *", ("* * * nov-dec,jan-feb",)),
    ("cron", "* * * * fri-mon", ("* * * * fri-sat,sun-mon",)),
    ("cron", "* * * * sat-sun", ("* * * * sat-7",)),
    ("cron", "* * * * 7-1", ("* * * * 7,0-1",)),
    ("cron", "* * * * L", ("* * * * sat",)),
    ("cron", "* * L-31 * *", tuple(f"* * {day} * *" for day in FIELD)),
    ("cron", "daily", ("@daily",)),
    ("cron", "@dayly", ("@yearly", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")),
    ("cron", "0 3 * *", (DAILY,)),
    ("rrule", "FREQ=DAILY;COUNT=5", ("DTSTART:20261231T090000",)),
    ("rrule", "FREQ=DAYLY", ("SECONDLY", "MINUTELY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY")),
]
"""A field, a value that is refused, and the values that the remedy names."""


def written(field: str, wrong: Any, named: Any) -> dict[str, Any]:
    """The whole field, where what is named is a part of it."""
    if field == "cron" and not str(named).startswith("@"):
        return {field: " ".join([*str(named).split(), *["*"] * 4][:5]) if named != DAILY else named}
    if field == "rrule":
        rule = str(wrong).replace("DAYLY", str(named))
        return {field: f"{named}\n{rule}" if ":" in named else rule}
    return {field: named}


def refusal_of(said: dict[str, Any]) -> BadInput:
    with pytest.raises(BadInput) as caught:
        check_spec(Spec(**said))
    return caught.value


@pytest.mark.parametrize(("field", "wrong", "named"), OF_ONE_FIELD)
def test_what_a_remedy_names_is_taken(field: str, wrong: Any, named: tuple[Any, ...]) -> None:
    refusal = refusal_of({field: wrong})
    assert refusal.field == field
    for value in named:
        assert str(value).removeprefix("* ").split("* ")[-1] in refusal.remedy
        check_spec(Spec(**written(field, wrong, value)))


@pytest.mark.parametrize(
    ("field", "wrong", "named"),
    [
        *(("blackout", text, WINDOWS) for text in ("10:00", "12-24..2027-01-02", "sat sun")),
        *(("until", text, AT) for text in ("tomorrow", "2026-13-01", "9001-01-01")),
        ("timezone", "Berlin", ZONES[:1]),
        ("timezone", "PST", ZONES),
        ("timezone", "UTC+2", ("Etc/GMT-2",)),
    ],
)
def test_what_a_remedy_names_is_taken_beside_a_schedule(
    field: str, wrong: str, named: tuple[str, ...]
) -> None:
    refusal = refusal_of({"cron": DAILY, field: wrong})
    for value in named:
        assert value in refusal.remedy
        check_spec(Spec(**dict[str, Any](cron=DAILY) | {field: value}))


@pytest.mark.parametrize(
    ("expression", "rule"),
    [
        ("0 3 L * *", "FREQ=MONTHLY;BYMONTHDAY=-1;BYHOUR=3;BYMINUTE=0"),
        ("0 3 L-3 * *", "FREQ=MONTHLY;BYMONTHDAY=-4;BYHOUR=3;BYMINUTE=0"),
        ("30 9,17 L mar,jun *", "FREQ=MONTHLY;BYMONTH=3,6;BYMONTHDAY=-1;BYHOUR=9,17;BYMINUTE=30"),
        ("0 3 1W 2-4 *", "FREQ=MONTHLY;BYMONTH=2,3,4;{};BYSETPOS=1;BYHOUR=3;BYMINUTE=0"),
        ("*/20 3 LW * *", "FREQ=MONTHLY;{};BYSETPOS=-1;BYHOUR=3;BYMINUTE=0,20,40"),
        ("0 3 * * 5L", "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=3;BYMINUTE=0"),
        ("0 3 * 1-12 friL", "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=3;BYMINUTE=0"),
        ("0 3 * 1 6#3", "FREQ=MONTHLY;BYMONTH=1;BYDAY=3SA;BYHOUR=3;BYMINUTE=0"),
        ("0 3 * * fri#2", "FREQ=MONTHLY;BYDAY=2FR;BYHOUR=3;BYMINUTE=0"),
        # What an element of a list, or one of two days, does not say by itself is left open
        ("0 3 * * 1#1,1#3", "FREQ=MONTHLY;BYMONTH=...;BYDAY=1MO;BYHOUR=...;BYMINUTE=..."),
        ("0 3 15,L 3 *", "FREQ=MONTHLY;BYMONTH=...;BYMONTHDAY=-1;BYHOUR=...;BYMINUTE=..."),
        ("0 3 13 * 5L", "FREQ=MONTHLY;BYMONTH=...;BYDAY=-1FR;BYHOUR=...;BYMINUTE=..."),
        ("0 * L * *", "FREQ=MONTHLY;BYMONTHDAY=-1;BYHOUR=...;BYMINUTE=0"),
    ],
)
def test_a_rule_that_a_remedy_names_is_taken(expression: str, rule: str) -> None:
    named = re.search(r"FREQ=\S+", refusal_of({"cron": expression}).remedy)
    assert named is not None
    assert named[0] == rule.format("BYDAY=MO,TU,WE,TH,FR")
    check_spec(Spec(rrule=named[0].replace("...", "3")))
