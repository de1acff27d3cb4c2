"""The limits of schedules: an end, a number of runs, windows without slots."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from time import process_time
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blackboard.errors import BadInput
from blackboard.schedule import schedule as engine
from blackboard.schedule.limits import WEEKDAYS, Limits, check_calendars, limits
from blackboard.schedule.schedule import (
    Cron,
    Schedule,
    due_between,
    interval_of,
    make_schedule,
    next_due,
    opens,
    parse_schedule,
    slots_after,
)
from blackboard.schedule.times import last_moment
from blackboard.schedule.words import describe
from blackboard.spec import Spec, resolve

FRIDAY = datetime(2026, 11, 20, 12, tzinfo=UTC)
THRICE = "rrule DTSTART:20261121T090000Z\\nRRULE:FREQ=DAILY;COUNT=3"
"""Saturday, Sunday and Monday."""
HOUR = timedelta(hours=1)


def schedule(said: str, zone: str = "UTC", **bounds: object) -> Schedule:
    kind, _, rest = said.partition(" ")
    found = make_schedule(
        **{kind: rest},
        zone=zone,
        limits=limits(zone=zone, **bounds),  # type: ignore[arg-type]
    )
    assert found is not None
    return found


def slots(one: Schedule, after: datetime, number: int) -> list[str]:
    found: list[datetime] = []
    while len(found) < number and (slot := next_due(one, found[-1] if found else after)):
        found.append(slot)
    return [f"{slot:%a %d %H:%M}" for slot in found]


@pytest.mark.parametrize(
    ("said", "blackout", "expected"),
    [
        ("cron 0 9 * * *", "sat-sun", ["Mon 23 09:00", "Tue 24 09:00"]),
        ("cron 0 9 * * *", "Sat, Sun , 2026-11-23", ["Tue 24 09:00", "Wed 25 09:00"]),
        ("cron 0 * * * *", "mon-fri 13:00-16:00", ["Fri 20 16:00", "Fri 20 17:00"]),
        ("cron 0 */6 * * *", "fri 18:00-06:00", ["Sat 21 06:00", "Sat 21 12:00"]),
        ("cron 0 9 * * *", "11-21..11-24", ["Wed 25 09:00", "Thu 26 09:00"]),
        ("cron 0 9 * * *", "11-21..01-02", ["Sun 03 09:00", "Mon 04 09:00"]),
        ("cron 0 9 * * *", "2026-11-21..2026-11-22, 11-23", ["Tue 24 09:00", "Wed 25 09:00"]),
        ("cron 0 9 * * *", "fri-mon", ["Tue 24 09:00", "Wed 25 09:00"]),
        ("at 2026-11-21T12:00Z", "sat", ["Sun 22 00:00"]),
        ("at 2026-11-21T12:00Z", "sun", ["Sat 21 12:00"]),
        ("at 2026-11-20T11:00Z", "11:00-13:00", ["Fri 20 13:00"]),
        ("at 2026-11-20T11:00Z", "11:00-12:00", []),
        ("at 2026-11-21T12:00Z", "mon-sun", []),
        ("every 8h", "12:00-22:00", ["Fri 20 22:00", "Sat 21 06:00", "Sat 21 22:00"]),
        ("every 8h", "sat-sun", ["Fri 20 20:00", "Mon 23 00:00", "Mon 23 08:00"]),
        ("rrule FREQ=DAILY;BYHOUR=9", "sat", ["Sun 22 09:00", "Mon 23 09:00"]),
        ("cron 0 9 * * *", "mon-sun", []),
        ("every 8h", "00:00-24:00", []),
    ],
)
def test_no_slot_is_in_a_window(said: str, blackout: str, expected: list[str]) -> None:
    one = schedule(said, blackout=blackout)
    assert slots(one, FRIDAY, len(expected) or 1) == expected


@pytest.mark.parametrize(
    ("blackout", "expected"),
    [
        ("sun", ["Sat 21 09:00", "Mon 23 09:00"]),
        ("sun-mon", ["Sat 21 09:00"]),
        ("sat-mon", []),
    ],
)
def test_a_rule_that_ends_has_no_slot_behind_its_last_one(
    blackout: str, expected: list[str]
) -> None:
    assert slots(schedule(THRICE, blackout=blackout), FRIDAY, 9) == expected


@pytest.mark.parametrize("text", ["none", " None "])
def test_an_item_can_be_without_the_windows_of_its_type(text: str) -> None:
    of_type = Spec(every="1h", blackout="sat-sun, holidays")
    alone = resolve([Spec(every="1h")])
    assert resolve([Spec(blackout=text), of_type], calendars={"holidays": ["01-01"]}) == alone


def test_windows_are_in_the_zone_of_the_schedule() -> None:
    berlin = schedule("cron 30 * * * *", "Europe/Berlin", blackout="13:00-15:00")
    assert slots(berlin, FRIDAY - HOUR, 2) == ["Fri 20 11:30", "Fri 20 14:30"]


@pytest.mark.parametrize(
    ("limit", "value", "is_enough"),
    [
        ("LONGEST_SEARCH", timedelta(days=14), True),
        ("LONGEST_SEARCH", timedelta(days=14, seconds=-1), False),
        ("MOST_WINDOWS", 4, True),
        ("MOST_WINDOWS", 3, False),
    ],
)
def test_a_search_goes_so_far_and_past_so_many_windows(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: object, *, is_enough: bool
) -> None:
    monkeypatch.setattr(engine, limit, value)
    monkeypatch.setattr(engine, "_IN_VAIN", {})
    mondays = schedule("cron 0 9 * * mon", blackout="2026-11-23, 2026-11-30, 2026-12-07")
    fourth = datetime(2026, 12, 14, 9, tzinfo=UTC)
    assert next_due(mondays, FRIDAY) == (fourth if is_enough else None)


def test_a_search_that_found_none_is_made_again_from_where_it_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "LONGEST_SEARCH", timedelta(days=10))
    mondays = schedule("cron 0 9 * * mon", blackout="2026-11-23, 2026-11-30, 2026-12-07")
    ended = datetime(2026, 12, 7, 9, tzinfo=UTC)
    assert next_due(mondays, FRIDAY) is None
    assert next_due(mondays, ended - HOUR) is None
    assert next_due(mondays, ended) == ended + timedelta(days=7)


@pytest.mark.parametrize(
    ("moment", "blackout", "opened"),
    [
        ("2026-03-29T00:30Z", "01:00-02:30", "2026-03-29T01:00Z"),  # 02:30 is jumped over
        ("2026-10-24T23:10Z", "01:00-02:30", "2026-10-25T00:30Z"),  # 02:30 is shown twice
        ("2026-10-25T01:10Z", "01:00-02:30", "2026-10-25T01:30Z"),  # the second time
        ("2026-10-25T00:10Z", "01:00-03:00", "2026-10-25T02:00Z"),
        ("2026-10-25T00:40Z", "02:30-06:00", "2026-10-25T01:00Z"),  # 02:00 is shown again
        ("2026-10-25T01:40Z", "02:30-06:00", "2026-10-25T05:00Z"),
    ],
)
def test_windows_end_when_clocks_show_it(moment: str, blackout: str, opened: str) -> None:
    one = schedule("every 1h", "Europe/Berlin", blackout=blackout)
    assert opens(one, datetime.fromisoformat(moment)) == datetime.fromisoformat(opened)


CALENDARS = {"holidays": ["2026-11-23", "11-24"], "nights": ["22:00-06:00"]}


def test_a_calendar_is_named() -> None:
    one = schedule("cron 0 9,23 * * *", blackout="sat-sun, Holidays, nights", calendars=CALENDARS)
    assert slots(one, FRIDAY, 2) == ["Wed 25 09:00", "Thu 26 09:00"]
    windows = "holidays[2026-11-23, 11-24], nights[22:00-06:00]"
    assert one.text == f"cron 0 9,23 * * * (not sat-sun, {windows})"
    assert describe(one).endswith("(not sat-sun, holidays, nights)")
    assert parse_schedule(one.text) == one, "a schedule that is read back has its windows"
    with pytest.raises(BadInput, match="there is no calendar 'feasts'"):
        schedule("every 1h", blackout="feasts", calendars=CALENDARS)
    with pytest.raises(BadInput, match="is not a window"):
        schedule("every 1h", blackout="holidays[01-01]", calendars=CALENDARS)


@pytest.mark.parametrize(
    "text",
    [
        *("25:00-26:00", "1:60-2:00", "12:00-12:00", "24:00-24:00", "24:00-0:00"),
        *("2026-13-01", "02-30", "mon-xyz 1:00-2:00", ""),
        *("\N{FULLWIDTH DIGIT TWO}2:00-23:00", "\N{ARABIC-INDIC DIGIT ONE}2-24"),
    ],
)
def test_what_is_no_window_is_refused(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        limits(blackout=f"sat, {text}", calendars={})
    assert caught.value.field == "blackout"


@pytest.mark.parametrize(
    "calendars", [{"sat": ["01-01"]}, {"A b": []}, {"days": ["moon"]}, {"none": ["01-01"]}]
)
def test_what_is_no_calendar_is_refused(calendars: dict[str, list[str]]) -> None:
    with pytest.raises(BadInput) as caught:
        check_calendars(calendars)
    assert caught.value.field in calendars


def test_a_schedule_ends() -> None:
    until = datetime(2026, 11, 22, 9, tzinfo=UTC)
    assert slots(schedule("cron 0 9 * * *", until=until), FRIDAY, 5) == [
        "Sat 21 09:00",
        "Sun 22 09:00",
    ]
    just_before = until - timedelta(milliseconds=1)
    assert slots(schedule("every 9h", until=just_before), FRIDAY, 9) == [
        f"{FRIDAY + number * 9 * HOUR:%a %d %H:%M}" for number in range(1, 5)
    ]
    both = schedule("every 8h", until=until, blackout="sat-mon")
    assert slots(both, FRIDAY, 5) == ["Fri 20 20:00"]


@pytest.mark.parametrize(
    ("said", "bounds"),
    [
        ("every 8h", {}),
        ("every 8h", {"runs": 3}),
        ("cron 0 3 * * *; 30 12 * * 6", {"until": FRIDAY}),
        ("rrule FREQ=DAILY;BYHOUR=9", {"blackout": "sat-sun, 22:00-06:00", "runs": 1}),
        ("at 2026-12-24T18:00:00+00:00", {"until": FRIDAY, "runs": 7_000, "blackout": "12-24"}),
    ],
)
def test_a_text_is_read_back_as_the_same_schedule(said: str, bounds: dict[str, object]) -> None:
    one = schedule(said, "Europe/Berlin", **bounds)
    assert parse_schedule(one.text, "Europe/Berlin") == one


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ("2026-12-31", "every 8h (until 2026-12-31)"),
        ("2026-12-31T12:00", "every 8h (until 2026-12-31T12:00:00+01:00)"),
        ("2026-12-31T23:59:59Z", "every 8h (until 2027-01-01T00:59:59+01:00)"),
        ("2026-10-25", "every 8h (until 2026-10-25)"),
        ("20261231", "every 8h (until 2026-12-31)"),
        ("2026-W53-4", "every 8h (until 2026-12-31)"),
        ("8999-12-31", "every 8h (until 8999-12-31)"),
    ],
)
def test_a_day_is_an_end_as_it_was_written(said: str, text: str) -> None:
    """Also the one on which clocks change."""
    one = schedule("every 8h", "Europe/Berlin", until=last_moment(said, "Europe/Berlin", "until"))
    assert one.text == text
    assert parse_schedule(text, "Europe/Berlin") == one


def test_the_last_moment_is_included_where_a_window_ends_just_then() -> None:
    """An `every` and an `at` move to the end of a window."""
    until = FRIDAY + 10 * HOUR
    for said in ("every 8h", "at 2026-11-20T13:00Z"):
        one = schedule(said, blackout="12:00-22:00", until=until)
        assert slots(one, FRIDAY, 9) == ["Fri 20 22:00"]
        one = schedule(said, blackout="12:00-22:01", until=until)
        assert slots(one, FRIDAY, 9) == []


@pytest.mark.parametrize(
    ("said", "blackout"),
    [
        ("rrule FREQ=SECONDLY;BYHOUR=22", "22:00-23:00"),
        ("rrule FREQ=SECONDLY;BYMINUTE=7", ", ".join(f"{n:02}:07-{n:02}:08" for n in range(24))),
        ("rrule FREQ=YEARLY;BYMONTH=1;BYMONTHDAY=1", "01-01"),
        (THRICE, "sat-mon"),
        ("every 8h", "sat-mon, tue-fri"),
    ],
)
def test_a_schedule_without_slots_is_soon_found_to_have_none(
    monkeypatch: pytest.MonkeyPatch, said: str, blackout: str
) -> None:
    """A worker asks at each claim and at each release, and does nothing else meanwhile."""
    one, began = schedule(said, blackout=blackout), process_time()
    assert next_due(one, FRIDAY) is None
    assert process_time() - began < 5
    searches = Mock(side_effect=engine._unlimited)
    monkeypatch.setattr(engine, "_unlimited", searches)
    for again in (FRIDAY, FRIDAY + HOUR):
        assert next_due(one, again) is None
    assert not searches.called


@pytest.mark.parametrize(
    ("said", "interval"),
    [("rrule DTSTART:20270101T080000\\nFREQ=DAILY", HOUR), ("every 8h", 8 * HOUR)],
)
def test_a_long_time_without_slots_is_behind_a_search_that_found_none(
    said: str, interval: timedelta
) -> None:
    one, after = schedule(said, blackout="2026-01-01..2037-12-31"), datetime(2038, 1, 1, tzinfo=UTC)
    assert next_due(one, FRIDAY) is None, "some ten years of windows"
    assert next_due(one, after) == after + 8 * HOUR
    assert interval_of(one, FRIDAY) == interval
    assert next_due(one, after) == after + 8 * HOUR


def test_slots_go_on_behind_several_windows() -> None:
    one = Cron("0 */6 * * *", limits=limits(blackout="sat 06:00-18:00, sun 06:00-07:00"))
    found = due_between(one, FRIDAY, FRIDAY + 48 * HOUR, 99)
    assert [f"{slot:%a %H}" for slot in found] == ["Fri 18", "Sat 00", "Sat 18", "Sun 00", "Sun 12"]
    every = schedule("every 8h", blackout="sat")
    assert slots(every, FRIDAY, 3) == ["Fri 20 20:00", "Sun 22 00:00", "Sun 22 08:00"]


def test_many_slots_between_two_windows_are_one_search(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Cron("*/5 * * * *", limits=limits(blackout="sat-sun"))
    searches = Mock(side_effect=engine._unlimited)
    monkeypatch.setattr(engine, "_unlimited", searches)
    assert len(list(islice(slots_after(one, FRIDAY), 1_000))) == 1_000
    assert searches.call_count == 2


_BLACKOUTS = st.lists(
    st.one_of(
        st.sampled_from(WEEKDAYS[:6]),
        st.builds(
            "{:02}:{:02}-{:02}:{:02}".format,
            st.integers(0, 11),
            st.integers(0, 59),
            st.integers(12, 22),
            st.integers(0, 59),
        ),
        st.dates(date(2026, 11, 1), date(2026, 12, 31)).map(str),
    ),
    min_size=1,
    max_size=5,
).map(", ".join)


_WEEKS = [datetime(2026, *day, 10, tzinfo=UTC) for day in ((3, 27), (10, 23), (11, 20))]
"""They begin on a Friday; in two of them clocks change in Europe, on the third day."""


@settings(max_examples=30, deadline=None)
@given(
    _BLACKOUTS,
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
    st.sampled_from(_WEEKS),
)
def test_slots_are_those_of_the_schedule_that_are_in_no_window(
    blackout: str, zone: str, begin: datetime
) -> None:
    """Beside a search minute by minute."""
    bounds = limits(blackout=blackout, zone=zone)
    plain = Cron("*/20 * * * *", zone)
    limited = replace(plain, limits=bounds)
    until = begin + timedelta(days=9)
    expected = [
        slot for slot in due_between(plain, begin, until, 1_000) if bounds.opens(slot) == slot
    ]
    assert due_between(limited, begin, until, 1_000) == expected
    assert due_between(limited, begin, until, 7) == expected[-7:]
    for slot in islice(expected, 3):
        assert _is_open(bounds, slot)


def _is_open(bounds: Limits, moment: datetime) -> bool:
    wall = moment.astimezone(UTC).replace(tzinfo=None)
    return bounds.zone != "UTC" or all(one.end_of(wall) is None for one in bounds.windows)


def test_several_expressions_match_whenever_one_does() -> None:
    one = schedule("cron 0 9 * * 1-5; 30 14 * * 6")
    assert slots(one, FRIDAY, 3) == ["Sat 21 14:30", "Mon 23 09:00", "Tue 24 09:00"]
    with pytest.raises(BadInput, match="2 fields"):
        schedule("cron 0 9 * * 1-5; 30 14")


@pytest.mark.parametrize("said", ["cron 30 1,2 * * *", "rrule FREQ=DAILY;BYHOUR=1,2;BYMINUTE=30"])
def test_a_time_in_a_gap_that_begins_when_a_blackout_ends_runs_right_after_both(said: str) -> None:
    nightly = schedule(said, "Europe/Berlin", blackout="01:00-02:00")
    run = next_due(nightly, datetime(2027, 3, 27, 12, tzinfo=UTC))
    assert run == datetime(2027, 3, 28, 1, tzinfo=UTC)
