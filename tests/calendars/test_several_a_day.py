"""Series with several times a day, next to what dateutil alone says of them."""

import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from dateutil.rrule import rrulestr

from tests.calendars.support import calendar, read, times, window

ZONES = [
    *("Europe/Berlin", "Europe/London", "America/New_York", "America/Los_Angeles"),
    *("Asia/Tokyo", "Asia/Kolkata", "Pacific/Chatham", "UTC"),
]
SERIES = 12
"""Series of each zone, each of three to six times a day."""


def written(name: str, times: list[datetime], zone: str) -> str:
    """A property of these times, in a zone; in UTC where its clocks show one of them twice."""
    there = [one.astimezone(ZoneInfo(zone)) for one in times]
    if any(one.utcoffset() != one.replace(fold=1 - one.fold).utcoffset() for one in there):
        return written(name, times, "UTC")
    walls = ",".join(f"{one:%Y%m%dT%H%M%S}" for one in there)
    return f"{name}:{walls.replace(',', 'Z,')}Z" if zone == "UTC" else f"{name};TZID={zone}:{walls}"


class Series:
    """A series made by chance, and the instants at which it takes place."""

    def __init__(self, chance: random.Random, zone: str) -> None:
        self._chance, self._zone = chance, zone
        hours = sorted(chance.sample(range(24), chance.randint(3, 6)))
        day = datetime(2026, chance.choice([1, 3, 7, 10, 11]), chance.randint(1, 28), hours[0])  # noqa: DTZ001
        rule = f"FREQ=DAILY;BYHOUR={','.join(map(str, hours))};COUNT=30"
        start = day.replace(tzinfo=ZoneInfo(zone))
        self.times = {one.astimezone(UTC) for one in rrulestr(rule, dtstart=start)}
        self.lines = [written("DTSTART", [start], zone)]
        if chance.random() < 0.5:
            self.lines.append(f"RRULE:{rule}")
        else:
            self.lines.append(written("RDATE", sorted(self.times), self._any_zone()))
        self.window = window(f"{day - timedelta(days=2):%Y-%m-%d}", 40, chance.choice(ZONES))
        self.changes: list[str] = []

    def _any_zone(self) -> str:
        return self._chance.choice([self._zone, self._zone, "UTC", *ZONES])

    def _some(self) -> list[datetime]:
        """Times of the series, and an hour that may be none."""
        chance = self._chance
        some = chance.sample(sorted(self.times), 3)
        return [*some, some[0] + timedelta(hours=chance.randint(1, 9))]

    def exclude(self) -> None:
        for one in self._some():
            self.lines.append(written("EXDATE", [one], self._any_zone()))
            self.times.discard(one)

    def move(self) -> None:
        for one in self._chance.sample(sorted(self.times), 3):
            new = one + timedelta(minutes=30)
            place, start = self._any_zone(), self._any_zone()
            self.changes.append(
                f"{written('RECURRENCE-ID', [one], place)}\n{written('DTSTART', [new], start)}"
            )
            self.times ^= {one, new}


@pytest.mark.parametrize("zone", ZONES)
def test_what_is_said_of_one_time_of_a_day_is_not_said_of_another(zone: str) -> None:
    """In the zone of the series, in UTC and in others."""
    chance = random.Random(zone)
    for _ in range(SERIES):
        series = Series(chance, zone)
        series.exclude()
        series.move()
        head = "UID:s\nSUMMARY:S\n"
        body = calendar(*(head + one for one in ("\n".join(series.lines), *series.changes)))
        found = {start for _title, start, _end in times(read(body, window=series.window))}
        assert found == {f"{one:%Y-%m-%dT%H:%M:%SZ}" for one in series.times}, body.decode()


YOGA = """UID:y
SUMMARY:Yoga
DTSTART;TZID=Europe/Berlin:20261201T100000
RRULE:FREQ=DAILY;BYHOUR=10,11,16;COUNT=6"""
BERLIN = window("2026-12-01", zone="Europe/Berlin")
TIMES = ["01 09", "01 10", "01 15", "02 09", "02 10", "02 15"]
"""Its days and hours, in UTC."""


def at(*lines: str, changes: tuple[str, ...] = (), city: str = "Europe/Berlin") -> list[str]:
    body = calendar("\n".join([YOGA, *lines]), *(f"UID:y\nSUMMARY:C\n{one}" for one in changes))
    found = times(read(body, window=window("2026-12-01", zone=city)))
    return sorted(f"{start[8:10]} {start[11:13]}" for _title, start, _end in found)


def test_a_day_that_is_excluded_is_excluded_with_all_its_times() -> None:
    assert at("EXDATE;VALUE=DATE:20261202") == TIMES[:3]
    assert at("EXDATE;VALUE=DATE:20261201", "RDATE;TZID=Europe/Berlin:20261201T200000") == TIMES[3:]
    night = YOGA.replace("BYHOUR=10,11,16", "BYHOUR=0,10,23").replace("T10", "T00")
    body = calendar(f"{night}\nEXDATE;VALUE=DATE:20261201")
    starts = [start for _title, start, _end in times(read(body, window=BERLIN))]
    assert starts[0] == "2026-12-01T23:00:00Z"


def test_a_day_that_is_excluded_of_a_series_in_utc_is_one_of_the_feed() -> None:
    series = "UID:y\nSUMMARY:Y\nDTSTART:20261201T020000Z\nRRULE:FREQ=DAILY;BYHOUR=2,20;COUNT=4"
    body = calendar(f"{series}\nEXDATE;VALUE=DATE:20261201")
    found = times(read(body, window=window("2026-11-30", zone="America/Los_Angeles")))
    assert [start[8:13] for _title, start, _end in found] == ["01T02", "02T20"]


@pytest.mark.parametrize("city", ["Europe/Berlin", "America/New_York"])
def test_a_floating_time_beside_a_start_is_one_of_its_zone(city: str) -> None:
    """In New York, 10:00 is 16:00 in Berlin."""
    assert at("EXDATE:20261202T100000", city=city) == [*TIMES[:3], *TIMES[4:]]
    moved = "RECURRENCE-ID:20261202T100000\nDTSTART;TZID=Europe/Berlin:20261202T180000"
    assert at(changes=(moved,), city=city) == [*TIMES[:3], *TIMES[4:], "02 17"]


def test_a_time_that_is_none_of_the_series_is_excluded_in_vain() -> None:
    """10:00 in New York is 16:00 in Berlin, and 11:00 in Lisbon is noon."""
    assert at("EXDATE;TZID=America/New_York:20261202T100000") == TIMES[:5]
    assert at("EXDATE;TZID=Europe/Lisbon:20261202T110000") == TIMES


def test_a_change_of_a_time_that_is_excluded_too_is_there() -> None:
    moved = "RECURRENCE-ID:20261202T090000Z\nDTSTART:20261202T170000Z"
    assert at("EXDATE:20261202T090000Z", changes=(moved,)) == [*TIMES[:3], *TIMES[4:], "02 17"]


def test_a_change_of_all_later_times_changes_no_earlier_one_of_the_day() -> None:
    later = "RECURRENCE-ID;RANGE=THISANDFUTURE:20261201T100000Z\nDTSTART:20261201T103000Z"
    body = calendar(YOGA, f"UID:y\nSUMMARY:Later\n{later}")
    found = [(title, start[8:16]) for title, start, _end in times(read(body, window=BERLIN))]
    hours = ["01T10:30", "01T15:30", "02T09:30", "02T10:30", "02T15:30"]
    assert found == [*(("Later", hour) for hour in hours), ("Yoga", "01T09:00")]
