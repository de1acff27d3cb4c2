"""When an item is due: `Every`, `Cron`, `RRule` or `Once`, and the pure functions over them.

A schedule is a frozen value with a `zone` and a canonical `text` that fits on one line:

    every 8h        measured from the last start: the first slot after T is T + 8h
    cron 0 3 * * *  Debian cron in the zone, see `cron.py`
    rrule FREQ=...  RFC 5545 in the zone, see `rrule.py`
    at 2026-11-21T09:00:00+01:00      once

Its limits, if it has any, follow in parentheses: an end, a number of runs, windows without slots
(`limits.py`).

No function reads a clock. All take bounded time; an expression that never matches is refused when
the schedule is made. Arguments are aware times, results are UTC. Cron and rules cover the years
1601 to 9000; what is counted from the last start ends with the first slot after them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise, takewhile

from blackboard.errors import BadInput
from blackboard.model import whole_milliseconds
from blackboard.schedule.cron import HORIZON, Cron
from blackboard.schedule.limits import MOST_WINDOWS, NONE, Limits, limits
from blackboard.schedule.rrule import RRule
from blackboard.schedule.times import (
    EARLIEST,
    LATEST,
    format_duration,
    in_zone,
    last_moment,
    parse_duration,
    read_moment,
)
from blackboard.schedule.zones import find_zone

__all__ = [
    "Cron",
    "Every",
    "Once",
    "RRule",
    "Schedule",
    "due_between",
    "interval_of",
    "make_schedule",
    "next_due",
    "opens",
    "parse_schedule",
    "slots_after",
    "without_limits",
]

ALONE = timedelta(hours=1)
"""The interval of a schedule with one slot, or none."""
FEW = 5
"""The number of slots from which the interval of a schedule is computed."""
LONGEST_SEARCH = timedelta(days=HORIZON * 366)
"""How far a slot that is in no window is searched for."""

_INSTANT = timedelta(microseconds=1)
_FIRST = datetime(EARLIEST, 1, 1, tzinfo=UTC)
_LAST = datetime(LATEST, 1, 1, tzinfo=UTC)
_END = datetime.max.replace(tzinfo=UTC)
_LIMITED = re.compile(
    r"(?P<schedule>.*?)(?: \((?:until (?P<until>[^;)]+)(?:; )?)?"
    r"(?:(?P<runs>[\d,]{1,20}) runs?(?:; )?)?(?:not (?P<blackout>[^)]+))?\))?",
    re.DOTALL,
)
"""The text of a schedule with its limits."""


@dataclass(frozen=True, slots=True)
class Every:
    """A fixed time after the last start. The zone is used for windows, and to show times."""

    interval: timedelta
    zone: str = "UTC"
    limits: Limits = NONE

    def __post_init__(self) -> None:
        parse_duration(self.interval, "every")
        find_zone(self.zone)

    @property
    def text(self) -> str:
        return f"every {format_duration(self.interval)}{self.limits.text}"


@dataclass(frozen=True, slots=True)
class Once:
    """One moment, kept in UTC and whole milliseconds."""

    moment: datetime
    zone: str = "UTC"
    limits: Limits = NONE

    def __post_init__(self) -> None:
        object.__setattr__(self, "moment", whole_milliseconds(_utc(self.moment)))
        find_zone(self.zone)

    @property
    def text(self) -> str:
        shown = self.moment.astimezone(find_zone(self.zone)).isoformat()
        return f"at {shown}{self.limits.text}"


Schedule = Every | Cron | RRule | Once


def make_schedule(
    *,
    every: str | float | timedelta | None = None,
    cron: str | None = None,
    rrule: str | None = None,
    at: str | datetime | None = None,
    zone: str = "UTC",
    limits: Limits = NONE,
) -> Schedule | None:
    """The schedule of the one setting that is given; None without one.

    Raises BadInput naming the setting ("every", "cron", "rrule", "at", "timezone").
    """
    given = {"every": every, "cron": cron, "rrule": rrule, "at": at}
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        problem = f"an item has one schedule, not {' and '.join(names)}"
        raise BadInput(names[-1], problem, "keep one of them")
    find_zone(_text("timezone", zone))
    if every is not None:
        return Every(parse_duration(every, "every"), zone, limits)
    if cron is not None:
        return Cron(_text("cron", cron), zone, limits)
    if rrule is not None:
        return RRule(_text("rrule", rrule), zone, limits)
    if at is not None:
        if isinstance(at, datetime):
            return Once(in_zone(at, zone, "at"), zone, limits)
        return Once(read_moment(_text("at", at), zone, "at"), zone, limits)
    return None


@lru_cache(maxsize=4096)
def parse_schedule(text: str, zone: str = "UTC") -> Schedule:
    """The schedule whose canonical `text` this is; calendars that its limits name are not known.

    Raises BadInput, as `make_schedule` does, or naming "schedule" when it is of no known kind.
    """
    match = _LIMITED.fullmatch(text.strip())
    assert match is not None  # it matches any text
    kind, _, rest = match["schedule"].partition(" ")
    if kind not in {"every", "cron", "rrule", "at"}:
        raise BadInput("schedule", f"{text[:60]!r} is of no known kind", "every, cron, rrule or at")
    own_limits = limits(
        until=last_moment(match["until"], zone, "schedule") if match["until"] else None,
        runs=int(match["runs"].replace(",", "")) if match["runs"] else None,
        blackout=match["blackout"],
        zone=zone,
    )
    schedule = make_schedule(**{kind: rest}, zone=zone, limits=own_limits)
    assert schedule is not None
    return schedule


def without_limits(text: str) -> str:
    """The canonical text of a schedule without its limits."""
    match = _LIMITED.fullmatch(text)
    assert match is not None  # it matches any text
    return match["schedule"]


def slots_after(schedule: Schedule, after: datetime) -> Iterator[datetime]:
    """All slots strictly later than `after` (aware), in order: UTC."""
    after, until = _utc(after), schedule.limits.until or _END
    if isinstance(schedule, Once):
        slot = opens(schedule, schedule.moment)
        if slot is not None and after < slot <= until:
            yield slot
        return
    if not schedule.limits.windows:
        slots = _unlimited(schedule, after)
    elif isinstance(schedule, Every):
        slots = _put_off(schedule, after)
    else:
        slots = _outside(schedule, after)
    yield from takewhile(until.__ge__, slots)


def _put_off(schedule: Every, after: datetime) -> Iterator[datetime]:
    """The slots of an `every`: one in a window comes when that ends. The next counts from it."""
    while not _is_in_vain(schedule, after):
        slot = next(_unlimited(schedule, after), None)
        end = None if slot is None else opens(schedule, slot)
        if end is None:
            _found_none(schedule, after, until=slot)
            return
        yield end
        after = end


def _outside(schedule: Cron | RRule, after: datetime) -> Iterator[datetime]:
    """The slots that are in no window. Behind each window they are searched for anew."""
    slots: Iterator[datetime] | None = None
    while not _is_in_vain(schedule, after):
        slots = slots or _unlimited(schedule, after)
        first = slot = next(slots, None)
        windows = 0
        while first and slot and (end := opens(schedule, slot)) != slot:
            windows += 1
            if end is None or windows == MOST_WINDOWS or slot - first > LONGEST_SEARCH:
                _found_none(schedule, after, until=slot)
                return
            slots = _unlimited(schedule, end - _INSTANT)
            slot = next(slots, None)
        if slot is None:
            _found_none(schedule, after, until=None)
            return
        yield slot
        after = slot


_IN_VAIN: dict[Schedule, tuple[datetime, datetime]] = {}
"""The start and the end of the last search that found no slot, by schedule: it takes a second, and
is not made again from the times that it went through."""
_MOST_IN_VAIN = 1024
"""The number of schedules at which `_IN_VAIN` is emptied."""


def _is_in_vain(schedule: Schedule, after: datetime) -> bool:
    """Whether a search that found no slot has gone through the time `after`."""
    begin, end = _IN_VAIN.get(schedule, (_END, _END))
    return begin <= after < end


def _found_none(schedule: Schedule, after: datetime, *, until: datetime | None) -> None:
    """Notes a search from `after` on that found no slot; None: there are no more times."""
    if len(_IN_VAIN) >= _MOST_IN_VAIN:
        _IN_VAIN.clear()
    _IN_VAIN[schedule] = after, until or _END


def next_due(schedule: Schedule, after: datetime) -> datetime | None:
    """The first slot strictly later than `after` (aware): UTC. None when there are no more."""
    after = _utc(after)
    if isinstance(schedule, Every) and schedule.limits is NONE:
        return after + schedule.interval if after < _LAST else None
    return next(slots_after(schedule, after), None)


def due_between(
    schedule: Cron | RRule | Once, after: datetime, until: datetime, limit: int
) -> list[datetime]:
    """The last `limit` slots in (after, until], in order.

    However many slots there are, the work is in proportion to `limit`: where there are more, they
    are read backwards in steps that double, and halve where one has too many to be read.
    """

    def slots_in(begin: datetime, end: datetime) -> list[datetime]:
        """The first slots in (begin, end], one more than `limit` at the most."""
        return list(islice(takewhile(end.__ge__, slots_after(schedule, begin)), limit + 1))

    begin, end = _utc(after), _utc(until)
    last = slots_in(begin, end)
    if len(last) <= limit:
        return last
    last, step = [], limit * timedelta(seconds=1)
    while len(last) < limit:
        middle = end - min(step, end - begin)
        slots = slots_in(middle, end)
        if len(slots) > limit:
            step /= 2
        else:
            last, end, step = slots + last, middle, step * 2
    return last[-limit:]


def interval_of(schedule: Schedule | None, near: datetime) -> timedelta:
    """The schedule's own interval at the time `near`, which need not be a slot, since a first or a
    requested run may come at any time: the shortest time between two of its next few slots; where
    it ends, of its last few. One hour when there are not two, or no schedule.
    """
    if schedule is None:
        return ALONE
    return schedule.interval if isinstance(schedule, Every) else _shortest(schedule, _utc(near))


@lru_cache(maxsize=4096)
def _shortest(schedule: Cron | RRule | Once, near: datetime) -> timedelta:
    """As `interval_of`, cached: a run asks several times, and items of one schedule have the same
    slots.
    """
    slots = list(islice(slots_after(schedule, near), FEW))
    if len(slots) < FEW:
        slots = due_between(schedule, _FIRST, near, FEW) + slots
    return min((later - slot for slot, later in pairwise(slots)), default=ALONE)


def opens(schedule: Schedule | None, moment: datetime) -> datetime | None:
    """`moment`, or the end of the windows without slots that it is in; None: they do not end."""
    return schedule.limits.opens(moment) if schedule and schedule.limits.windows else moment


def _unlimited(schedule: Every | Cron | RRule, after: datetime) -> Iterator[datetime]:
    """The slots strictly later than `after` (UTC), in order, without regard to limits."""
    if isinstance(schedule, Every):
        while after < _LAST:
            after += schedule.interval
            yield after
    elif after < _LAST:
        try:
            for run in schedule.runs(max(after, _FIRST)):
                yield run
                if run >= _LAST:
                    return
        except Exception as error:
            problem = f"the times of {schedule.text!r} cannot be computed: {error!r}"
            raise BadInput("schedule", problem, "use another one") from error


def _utc(moment: datetime) -> datetime:
    """`moment` in UTC: Python compares two times of one zone without regard to changes of its
    clocks.
    """
    if moment.utcoffset() is None:
        raise ValueError(f"a schedule needs aware times, not {moment!r}")
    return moment.astimezone(UTC)


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise BadInput(field, f"{value!r} is not text", "write it in quotes")
    return value
