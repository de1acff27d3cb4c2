"""How long events last when the clocks change: on 2026-03-08 and 2026-11-01 in Los Angeles."""

import pytest

from tests.calendars.support import calendar, read, window

SPRING = window("2026-03-01", zone="America/Los_Angeles")
AUTUMN = window("2026-10-20", zone="America/Los_Angeles")


def spans(*lines: str, spring: bool = False) -> list[tuple[str, str]]:
    body = calendar("\n".join(["UID:e", "SUMMARY:E", *lines]))
    found = read(body, window=SPRING if spring else AUTUMN).occurrences
    return sorted((one.start[5:16], one.end[5:16]) for one in found)


def at(wall: str, name: str = "DTSTART") -> str:
    return f"{name};TZID=America/Los_Angeles:{wall}"


DURATIONS = {
    "hours are exact": ("PT2H", "11-01T09:30"),
    "so are minutes": ("PT120M", "11-01T09:30"),
    "a day is the same hour of the next day": ("P1D", "11-02T08:30"),
    "24 hours are not": ("PT24H", "11-02T07:30"),
    "days come first": ("P1DT2H", "11-02T10:30"),
    "a week": ("P1W", "11-08T08:30"),
}


@pytest.mark.parametrize("rule", [[], ["RRULE:FREQ=DAILY;COUNT=1"]])
@pytest.mark.parametrize(("duration", "end"), DURATIONS.values(), ids=DURATIONS)
def test_hours_of_a_duration_are_exact_and_its_days_nominal(
    duration: str, end: str, rule: list[str]
) -> None:
    begins = at("20261101T003000")
    assert spans(begins, f"DURATION:{duration}", *rule) == [("11-01T07:30", end)]
    added = spans(
        at("20261021T003000"),
        f"RDATE;VALUE=PERIOD;TZID=America/Los_Angeles:20261101T003000/{duration}",
    )
    assert added[-1] == ("11-01T07:30", end)


@pytest.mark.parametrize(
    ("duration", "end"),
    [("PT10H", 2), ("PT24H", 2), ("PT36H", 3), ("PT48H", 3), ("P1DT1H", 3), ("PT0S", 2)],
)
@pytest.mark.parametrize("rule", [[], ["RRULE:FREQ=DAILY;COUNT=1"]])
def test_days_are_whole_where_their_duration_is_in_hours(
    duration: str, end: int, rule: list[str]
) -> None:
    body = calendar("\n".join(["UID:e", "DTSTART:20261101", f"DURATION:{duration}", *rule]))
    (one,) = read(body, window=AUTUMN).occurrences
    assert (one.start, one.end) == ("2026-11-01", f"2026-11-0{end}")


def test_each_time_of_a_series_is_as_long_as_its_duration_says() -> None:
    found = spans(at("20261031T003000"), "DURATION:PT2H", "RRULE:FREQ=DAILY;COUNT=3")
    assert found == [
        ("10-31T07:30", "10-31T09:30"),
        ("11-01T07:30", "11-01T09:30"),
        ("11-02T08:30", "11-02T10:30"),
    ]


GAP = {
    "the end is in the hour that is left out": ("T013000", "T023000", "03-08T09:30", "03-08T10:30"),
    "the start is": ("T023000", "T033000", "03-08T10:30", "03-08T11:30"),
    "the start is, and the end is earlier": ("T023000", "T031500", "03-08T10:30", "03-08T11:15"),
    "both are": ("T021500", "T024500", "03-08T10:15", "03-08T10:45"),
}


@pytest.mark.parametrize(("start", "end", "begins", "ends"), GAP.values(), ids=GAP)
def test_no_event_loses_its_length_in_the_hour_that_is_left_out(
    start: str, end: str, begins: str, ends: str
) -> None:
    alone = spans(at(f"20260308{start}"), at(f"20260308{end}", "DTEND"), spring=True)
    assert alone == [(begins, ends)]
    series = spans(
        at(f"20260301{start}"),
        at(f"20260301{end}", "DTEND"),
        "RRULE:FREQ=WEEKLY;COUNT=3",
        spring=True,
    )
    assert (begins, ends) in series
    assert all(one[0] < one[1] for one in series)
