"""The records that the parser's process, the cache and the merge exchange; the bounds of the
parser.

Moments are text that sorts as time passes: `2026-08-21` for an all-day event, and
`2026-08-21T22:00:00Z`, always UTC, for a timed one. This file imports no library but msgspec, so
that the child process starts quickly.

**Bounds** for the cost of a hostile feed: the processor time of each series is limited by a timer
of this process's own processor time, so a busy machine refuses nothing that an idle one takes. Code
that does not return to the interpreter is ended from outside: the parent kills the process at its
deadline.
"""

import gc
import signal
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from time import process_time
from types import FrameType
from zoneinfo import ZoneInfo

import msgspec

PARSER = 4
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

    def covers(self, other: "Window") -> bool:
        """Whether events expanded for this window hold all of the other's."""
        alike = (self.zone, self.private) == (other.zone, other.private)
        return alike and self.first <= other.first and other.end <= self.end

    def wider(self, days: int) -> "Window":
        """The same window with some more days at its end."""
        return msgspec.structs.replace(self, days=self.days + days)

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
    """What the parser's process is asked to do with the bytes that follow."""

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
    """Events left out because another of the feed has their UID and their place."""
    problem: str = ""
    """The first reason for skipping one."""
    private: int = 0
    """Events left out because they are marked as private."""
    mended: int = 0
    """Events of which an unreadable part was left out: an end, a rule."""
    mending: str = ""
    """The first reason for mending one."""
    error: str = ""
    """Why the feed as a whole is refused."""


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


SERIES_SECONDS = 2.0
HURRY_SECONDS = 0.1
LAST_SECONDS = 0.01
REFUSED_BEFORE_HURRY = 5
SERIES_EVENTS = 5_000
FEED_SECONDS = 15.0
"""Of processor time, for all series of a feed that are refused."""
FEED_EVENTS = 50_000
LONG_SERIES = 500
"""Events from which on a series is left out when it would fill nearly all of that."""
FEED_TEXT = 64 * 1024 * 1024
"""Characters, when what an event says is counted once for each time it takes place."""
STEPS = 250_000
"""Steps from its start that a rule by the second or minute is followed, at most."""

_AGAIN = 0.05
"""Seconds of processor time until the timer goes off again."""
_LOSING = frozenset({"__del__", "_remove"})
"""Functions whose exceptions Python reports and drops."""


class TooMuch(Exception):
    """A series exceeds a bound."""


class Budget:
    """The processor time that each series of one feed is given: plenty, until some had to be
    refused; then little; and next to none when those that were refused have used up what the
    feed is given for them. What can be worked out in time costs the others nothing.
    """

    def __init__(self) -> None:
        self._refused = 0
        self._wasted = 0.0

    @contextmanager
    def series(self, what: str) -> Iterator[None]:
        seconds = SERIES_SECONDS if self._refused < REFUSED_BEFORE_HURRY else HURRY_SECONDS
        if self._wasted >= FEED_SECONDS:
            seconds = LAST_SECONDS
        begun = process_time()
        try:
            with processor_time(seconds, what):
                yield
        except TooMuch:
            self._refused += 1
            self._wasted += process_time() - begun
            raise


def _loses(frame: FrameType | None) -> bool:
    """Whether Python would drop an exception that is raised in a frame."""
    callbacks = [getattr(one, "__code__", None) for one in gc.callbacks]
    while frame is not None:
        if frame.f_code.co_name in _LOSING or frame.f_code in callbacks:
            return True
        frame = frame.f_back
    return False


@contextmanager
def processor_time(seconds: float, what: str) -> Iterator[None]:
    """Ends the block with TooMuch after so many seconds of processor time. In a destructor, or in a
    callback of a weak reference or of the garbage collector, where an exception would be lost, it
    waits for the timer again.
    """

    def expired(_signal: int, frame: FrameType | None) -> None:
        if _loses(frame):
            return
        raise TooMuch(f"{what} takes more than {seconds:g} s to work out")

    before = signal.signal(signal.SIGVTALRM, expired)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, _AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
