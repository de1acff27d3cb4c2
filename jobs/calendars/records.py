"""The records that the parser's process, the cache and the merge exchange.

Moments are text that sorts as time passes: `2026-08-21` for an all-day event, and
`2026-08-21T22:00:00Z`, always UTC, for a timed one. This file imports no library but msgspec, so
that the child process starts quickly.
"""

import struct
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import msgspec

PARSER = 18
"""Raise it when the same bytes would give other events: cached ones are then parsed again."""

_FIRST, _LAST = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, 23, 59, 59, tzinfo=UTC)

HEAD = struct.Struct(">II")
"""The head of a request to the parser's process: its length, and that of the feed's bytes."""
ANSWER = struct.Struct(">I")
"""The head of an answer: its length."""


class Text(msgspec.Struct, array_like=True, frozen=True):
    """The texts of one VEVENT, shared by its occurrences."""

    uid: str
    title: str = ""
    description: str = ""
    location: str = ""
    url: str = ""
    categories: tuple[str, ...] = ()
    status: str = ""
    access: str = ""
    """PRIVATE or CONFIDENTIAL; "" for what is public."""
    geo: str = ""
    """Latitude and longitude, with a semicolon between."""
    image: str = ""


class Occurrence(msgspec.Struct, array_like=True, frozen=True):
    """One time that an event takes place. `recurrence` is the start it has in its series, or ""
    for an event that stands alone; `text` is the index of what it says.
    """

    text: int
    start: str
    end: str
    recurrence: str = ""


class Window(msgspec.Struct, frozen=True):
    """What is asked of a feed: `days` days from `first` on, in a zone; with what it marks as
    private, or without.
    """

    first: date
    days: int
    zone: str
    private: bool = False

    @property
    def end(self) -> date:
        """The first day after the window."""
        return self.first + timedelta(days=self.days)

    def has(self, day: date) -> bool:
        return self.first <= day < self.end

    def covers(self, other: "Window") -> bool:
        """Whether events expanded for this window hold all of the other's."""
        alike = (self.zone, self.private) == (other.zone, other.private)
        return alike and self.first <= other.first and other.end <= self.end

    def edges(self) -> "Edges":
        zone = ZoneInfo(self.zone)
        return Edges(
            first=self.first.isoformat(),
            last=self.end.isoformat(),
            begin=instant_text(datetime.combine(self.first, time(), zone)),
            stop=instant_text(datetime.combine(self.end, time(), zone)),
        )


class Edges(msgspec.Struct, frozen=True):
    """A window's edges as moments: days for all-day events, instants for timed ones."""

    first: str
    last: str
    begin: str
    stop: str

    def meet(self, start: str, end: str) -> bool:
        """Whether an event from `start` to `end` takes place in the window, if only in part."""
        if is_day(start):
            return start < self.last and end > self.first
        return start < self.stop and (end > self.begin or start >= self.begin)


class Ask(msgspec.Struct, frozen=True):
    """A request to the parser's process, about the bytes that follow."""

    window: Window
    known: str = ""
    """The meaning of the feed as last parsed: when it is the same, nothing is expanded."""
    charset: str = ""
    base: str = ""
    """The feed's own address, against which relative ones are resolved."""


class Parsed(msgspec.Struct, frozen=True):
    """A parsed feed, or why it could not be parsed."""

    meaning: str = ""
    """A digest of all that matters: not of stamps, sequence numbers or the order of events."""
    same: bool = False
    texts: tuple[Text, ...] = ()
    occurrences: tuple[Occurrence, ...] = ()
    seen: int = 0
    """Events in the feed, in the window or not."""
    skipped: int = 0
    """Events left out because they cannot be understood or go on beyond every bound."""
    repeated: int = 0
    """Events left out because another of the feed has their UID, time, title and place."""
    problem: str = ""
    """The first reason for skipping one."""
    private: int = 0
    """Events left out because they are marked as private."""
    mended: int = 0
    """Events of which an unreadable part was left out: an end, a rule."""
    mending: str = ""
    """The first reason for mending one."""
    is_cut: bool = False
    """Whether a bound has left out events that may be among the first ones of another window."""
    error: str = ""
    """Why the feed as a whole is refused."""
    large: bool = False
    """Whether its reader may have become large."""


def is_day(moment: str) -> bool:
    """Whether this is the start of an all-day event."""
    return len(moment) == len("2026-08-21")


def instant_text(moment: datetime) -> str:
    """An aware time as text in UTC."""
    return moment.astimezone(UTC).replace(tzinfo=None, microsecond=0).isoformat() + "Z"


def instant_of(text: str) -> datetime:
    """The aware time, UTC, that `instant_text` wrote."""
    return datetime.fromisoformat(text)


def local_of(text: str, zone: ZoneInfo) -> datetime:
    """The same in a zone; what lies within a day of the first or the last time that a datetime
    can hold is that day's edge.
    """
    instant = instant_of(text)
    return max(_FIRST, min(instant, _LAST)).astimezone(zone)
