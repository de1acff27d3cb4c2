"""What limits a schedule: an end, a number of runs, and windows in which it has no slot.

Windows are written with commas between them, in the zone of the schedule:

    sat, sun             days of the week
    mon-fri 22:00-06:00  a time on some days; past midnight it ends on the day after
    12:00-13:00          a time on each day
    2026-12-24           a day, or several: 2026-12-24..2027-01-02
    12-24..01-02         days of each year
    holidays             the windows of a calendar, which `[calendars]` has by this name
    none                 no windows, and nothing else: for an item whose type has some

A slot of a cron expression or a rule that falls into a window is left out. One of an `every`, and
that of an `at`, comes when the window ends.

In a row the windows of a calendar stand behind its name, `holidays[01-01, 12-24]`: so another
calendar is another schedule, and a schedule that is read back has its windows.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from msgspec import Struct

from blackboard.errors import BadInput
from blackboard.model import replace
from blackboard.phrases import plural
from blackboard.schedule.times import last_moment
from blackboard.schedule.zones import find_zone, first_shown, replay_after, showings

Calendars = Mapping[str, Sequence[str]]
"""The windows of each calendar, by its name."""
MOST_WINDOWS = 4_000
"""The most windows one after the other, some ten years of days: where there are more, the schedule
counts as one that has no further slot."""
LONGEST_BLACKOUT = 10_000
"""The most characters, those of its calendars included: a row holds it together with a schedule."""
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY = timedelta(days=1)
_MIDNIGHT = 24 * 60
_TIMES = re.compile(r"(\d\d?):(\d\d)-(\d\d?):(\d\d)", re.ASCII)
_WEEK = re.compile(r"([a-z]{3})(?:-([a-z]{3}))?")
_DATES = re.compile(r"((?:\d{4}-)?\d\d-\d\d)(?:\.\.((?:\d{4}-)?\d\d-\d\d))?", re.ASCII)
_NAME = re.compile(r"[a-z_][\w-]*", re.IGNORECASE)
_WRITTEN = re.compile(r"([a-z_][\w-]*)\[([^\[\]]*)\]")
"""A calendar with its windows, as in a row."""
_BETWEEN = re.compile(r",(?![^\[]*\])")
"""A comma between two windows, and not between those of a calendar."""
_REMEDY = "as in: sat-sun, mon-fri 22:00-06:00, 2026-12-24..2027-01-02, 01-01"


class Window(Struct, frozen=True, kw_only=True):
    """A time on some days."""

    weekdays: frozenset[int] | None = None
    """Monday is 0; None: on any."""
    first: tuple[int, ...] = ()
    """A date, or month and day of each year; (): on any day."""
    last: tuple[int, ...] = ()
    begin: int = 0
    """Minutes after midnight."""
    end: int = _MIDNIGHT
    """Minutes after the same midnight; past 24:00 on the day after."""

    def on(self, day: date) -> bool:
        """Whether it begins on this day."""
        if self.weekdays is not None:
            return day.weekday() in self.weekdays
        if not self.first:
            return True
        parts = (day.year, day.month, day.day)[-len(self.first) :]
        if self.first <= self.last:
            return self.first <= parts <= self.last
        return parts >= self.first or parts <= self.last

    def end_of(self, wall: datetime) -> datetime | None:
        """Its end, where it contains a wall time (naive)."""
        today, minute = wall.date(), wall.hour * 60 + wall.minute
        for day, passed in ((today, minute), (today - _DAY, minute + _MIDNIGHT)):
            if self.begin <= passed < self.end and self.on(day):
                return datetime.combine(day, time()) + timedelta(minutes=self.end)
        return None


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of one schedule, as the function `limits` makes them."""

    until: datetime | None = None
    """The last moment at which a slot may be; UTC."""
    runs: int | None = None
    """After so many runs there is no further slot."""
    blackout: str = ""
    """The windows, as they are written, with those of calendars behind their names."""
    zone: str = "UTC"
    windows: tuple[Window, ...] = ()

    @property
    def text(self) -> str:
        """The text that follows the schedule in a row: " (until ...; 10 runs; not sat-sun)"."""
        parts = [
            f"until {_end_text(self.until, self.zone)}" if self.until else "",
            plural(self.runs, "run") if self.runs else "",
            f"not {self.blackout}" if self.blackout else "",
        ]
        words = "; ".join(part for part in parts if part)
        return f" ({words})" if words else ""

    def opens(self, moment: datetime) -> datetime | None:
        """`moment` if it is in no window, else the end of the windows around it. Returns None if
        `MOST_WINDOWS` windows follow one another.
        """
        zone = find_zone(self.zone)
        for _ in range(MOST_WINDOWS):
            local = moment.astimezone(zone)
            wall = local.replace(tzinfo=None)
            end = max((at for window in self.windows if (at := window.end_of(wall))), default=None)
            if end is None:
                return moment
            after, change = _shown_after(moment, end, zone), replay_after(local)
            # A clock that is put back may show a time before the windows.
            moment = after if change is None or not moment < change < after else change
        return None


def _end_text(until: datetime, zone: str) -> str:
    """`until` as `last_moment` reads it: a day, where all of it is included."""
    shown = until.astimezone(find_zone(zone))
    day = shown.date().isoformat()
    return day if last_moment(day, zone, "until") == until else shown.isoformat()


NONE = Limits()
NO_WINDOWS = "none"


def _shown_after(moment: datetime, wall: datetime, zone: ZoneInfo) -> datetime:
    """When clocks first show `wall` after `moment`, at which they show an earlier time."""
    times = showings(wall, zone) or [first_shown(wall, zone)]
    return next(later for later in times if later > moment)


def limits(
    *,
    until: datetime | None = None,
    runs: int | None = None,
    blackout: str | None = None,
    zone: str = "UTC",
    calendars: Calendars | None = None,
) -> Limits:
    """Makes the limits of a schedule. Names of calendars are looked up in `calendars`; None: a name
    has the windows that are written behind it, or none. Raises BadInput ("blackout") for windows
    that cannot be read.
    """
    if not blackout or blackout.strip().lower() == NO_WINDOWS:
        return Limits(until=until, runs=runs, zone=zone) if until or runs else NONE
    texts, windows = list[str](), list[Window]()
    for part in _BETWEEN.split(blackout):
        text, windows_of_part = _read(" ".join(part.split()).lower(), calendars)
        texts.append(text)
        windows += windows_of_part
    blackout = ", ".join(texts)
    if len(blackout) > LONGEST_BLACKOUT:
        problem = f"it has {len(blackout):,} characters with its calendars"
        raise BadInput("blackout", problem, f"{LONGEST_BLACKOUT:,} at the most")
    return Limits(until=until, runs=runs, blackout=blackout, zone=zone, windows=tuple(windows))


def _read(text: str, calendars: Calendars | None) -> tuple[str, Sequence[Window]]:
    """The text between two commas, as a row has it, and its windows."""
    if (window := _window(text)) is not None:
        return text, [window]
    if calendars is None and (written := _WRITTEN.fullmatch(text)):
        name, listed = written.groups()
        calendars = {name: [window_text for window_text in listed.split(",") if window_text]}
    elif _NAME.fullmatch(text):
        name = text
    else:
        raise BadInput("blackout", f"{text[:60]!r} is not a window", _REMEDY)
    if calendars is None:
        return text, []
    texts, windows = _calendar(name, calendars)
    return f"{name}[{', '.join(texts)}]", windows


def _calendar(name: str, calendars: Calendars) -> tuple[Sequence[str], Sequence[Window]]:
    """The windows of a calendar: their texts, and what they mean."""
    if name not in calendars:
        problem = f"there is no calendar {name!r}"
        raise BadInput("blackout", problem, f"write it below [calendars]; or {_REMEDY}")
    texts, windows = [" ".join(text.lower().split()) for text in calendars[name]], list[Window]()
    for text in texts:
        window = _window(text)
        if window is None:
            raise BadInput(name, f"{text[:60]!r} is not a window", _REMEDY)
        windows.append(window)
    return texts, windows


def without_windows(text: str) -> str:
    """The text of a schedule, for people: the calendars of its limits by their names."""
    return re.sub(r"\[[^\[\]]*\]", "", text)


def check_calendars(calendars: Calendars) -> None:
    """Raises BadInput naming the calendar that cannot be read."""
    for name in calendars:
        if _window(name) or name == NO_WINDOWS:
            remedy = "another name, as in holidays"
            raise BadInput(name, "it means something else in a blackout", remedy)
        if not _NAME.fullmatch(name) or name != name.lower():
            raise BadInput(name, "it is not a name of a calendar", "small letters, as in holidays")
        _calendar(name, calendars)


@lru_cache(maxsize=4096)
def _window(text: str) -> Window | None:
    """The window that a text in small letters means; None: the text is not a window."""
    days, _, times = text.rpartition(" ") if _TIMES.search(text) else (text, "", "")
    on_days = Window() if times and not days else _whole_days(days)
    minutes = _minutes(times) if times else (0, _MIDNIGHT)
    if on_days is None or minutes is None:
        return None
    begin, end = minutes
    return replace(on_days, begin=begin, end=end)


def _minutes(times: str) -> tuple[int, int] | None:
    """Begin and end of "22:00-06:00", as a window has them; None: the text is no such time."""
    match = _TIMES.fullmatch(times)
    if match is None:
        return None
    hour, minute, end_hour, end_minute = map(int, match.groups())
    begin, end = hour * 60 + minute, end_hour * 60 + end_minute
    is_empty = begin in {end, end + _MIDNIGHT}
    if max(begin, end) > _MIDNIGHT or max(minute, end_minute) > 59 or is_empty:
        return None
    return begin, end if begin < end else end + _MIDNIGHT


def _whole_days(text: str) -> Window | None:
    """The days of the week, or the dates, that a text means; None: it means neither."""
    if match := _WEEK.fullmatch(text):
        names = [name for name in match.groups() if name]
        if not set(names) <= set(WEEKDAYS):
            return None
        first, last = WEEKDAYS.index(names[0]), WEEKDAYS.index(names[-1])
        numbers = [(first + step) % 7 for step in range((last - first) % 7 + 1)]
        return Window(weekdays=frozenset(numbers))
    if match := _DATES.fullmatch(text):
        first_day, last_day = _date(match[1]), _date(match[2] or match[1])
        if not first_day or not last_day or len(first_day) != len(last_day):
            return None
        has_year = len(first_day) == 3
        if has_year and first_day > last_day:
            return None
        return Window(first=first_day, last=last_day)
    return None


def _date(text: str) -> tuple[int, ...]:
    """Year, month and day, or month and day; () if there is no such day."""
    numbers = tuple(int(number) for number in text.split("-"))
    year, month, day = (2000, *numbers)[-3:]
    try:
        date(year, month, day)
    except ValueError:
        return ()
    return numbers
