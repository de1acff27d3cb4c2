"""Turns the VEVENTs that share a UID into the times at which they take place.

A series is its recurring VEVENT with its exclusions, additions and overrides. Its rules are
expanded as those of schedules. An exclusion or an override names one time, as an instant, whatever
zone it is written in, or what may be meant instead (`_SeriesTimes`); an exclusion that is a day
names all times of that day. An override is there even if its time is excluded, unless its SEQUENCE
says that the exclusion is later. Publishers also give one UID to several VEVENTs that are no
series:

    SEQUENCE differs in each                    versions of one event: the highest is kept
    the same start, title and place             the same event twice: one is kept
    an impossible RECURRENCE-ID                 each an event of its own
    anything else                               each an event of its own

An event of its own that shares its UID has its start as its RECURRENCE-ID, whatever the window, so
that its identity does not change when the others have passed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from enum import IntEnum
from functools import partial
from itertools import islice
from typing import TypeVar

from icalendar.timezone import tzp

from .budget import SERIES_EVENTS, Budget
from .events import Vevent
from .records import Edges, Window, instant_of, instant_text, is_day
from .rules import Rule, at_start, has_start, meant_start, times_of, until_of
from .times import LATEST, LONGEST, Moment
from .zone_names import zone_of_days

_NONE, _SECOND, _DAY = timedelta(0), timedelta(seconds=1), timedelta(days=1)
_EPOCH_YEAR = 1970


class Origin(IntEnum):
    """Where one time of a series comes from, the most specific last: that one is kept."""

    RULE = 0
    PERIOD = 1
    """An RDATE with a length of its own."""
    SINGLE = 2
    """A VEVENT that does not recur."""
    STRAY = 3
    """An override that names no time of its series, though it names a day of the window."""
    OVERRIDE = 4


@dataclass(frozen=True, slots=True)
class Instance:
    """One time that an event takes place, as text of moments."""

    member: int
    start: str
    end: str
    recurrence: str
    origin: Origin
    rank: tuple[int, Origin, str]
    place: str
    """The place, normalized: two places are two events."""
    title: str
    """The title, normalized: two titles are two events."""


def instances_of(
    members: list[Vevent], window: Window, *, edges: Edges, budget: Budget
) -> tuple[list[Instance], int]:
    """All times in the window at which these VEVENTs of one UID take place, each once; and how many
    were left out because another one replaces them.
    """
    members = _without_impossible_ids(members)
    mains = _latest([member for member in members if member.recurrence is None])
    overrides = _highest([member for member in members if member.recurrence is not None])
    series = [member for member in mains if member.recurs]
    shared = len(mains) > 1
    with budget.bounded("an event"):
        instances = [_single(member, shared=shared) for member in mains if not member.recurs]
    for main in series:
        with budget.bounded(f"the series from {main.start.wall:%Y-%m-%d}"):
            instances += _series(main, overrides, window, budget)
    if not series:
        with budget.bounded("a change to a series"):
            instances += [_single(member) for member in overrides]
    inside = [one for one in instances if edges.meet(one.start, one.end)]
    kept = _once(inside)
    repeated = len(members) - len(mains) - len(overrides) + len(inside) - len(kept)
    if len(kept) > SERIES_EVENTS:
        _note_cut(members[0], "one UID", budget)
        kept = sorted(kept, key=lambda one: one.start)[:SERIES_EVENTS]
    return kept, repeated


def _note_cut(member: Vevent, subject: str, budget: Budget) -> None:
    member.mended.append(f"{subject}: the times after the first {SERIES_EVENTS:,} are left out")
    budget.is_cut = True


def _without_impossible_ids(members: list[Vevent]) -> list[Vevent]:
    """The VEVENTs without the RECURRENCE-IDs that cannot be true: those of the epoch, which a
    program writes that has none, and one that several VEVENTs of different times share and that is
    before their series.
    """
    first = min((one.start.wall for one in members if one.recurs), default=LATEST)
    starts: defaultdict[tuple[object, int], set[object]] = defaultdict(set)
    for one in members:
        starts[one.recurrence, one.sequence].add(one.start)
    return [
        replace(one, recurrence=None, this_and_future=False)
        if one.recurrence is not None
        and (
            one.recurrence.wall.year <= _EPOCH_YEAR
            or (one.recurrence.wall < first and len(starts[one.recurrence, one.sequence]) > 1)
        )
        else one
        for one in members
    ]


def _latest(mains: list[Vevent]) -> list[Vevent]:
    """The last version of each event; one of several with the same start, title and place."""
    for recurs in (True, False):
        kind = [one for one in mains if one.recurs is recurs]
        if len(kind) > 1 and len({one.sequence for one in kind}) == len(kind):
            last = max(kind, key=lambda one: one.sequence)
            mains = [one for one in mains if one.recurs is not recurs or one is last]
    starts: defaultdict[Moment, list[Vevent]] = defaultdict(list)
    for one in mains:
        starts[one.start].append(one)
    return [one for same in starts.values() for one in _places(same)]


def _highest(overrides: list[Vevent]) -> list[Vevent]:
    """Of those with the same RECURRENCE-ID, the one with the highest SEQUENCE."""
    best: dict[Moment | None, Vevent] = {}
    for one in overrides:
        best[one.recurrence] = max(best.get(one.recurrence, one), one, key=lambda each: each.rank)
    return list(best.values())


R = TypeVar("R", Vevent, Instance)


def _places(same: list[R]) -> list[R]:
    """Of what takes place at the same time, one for each title and place: another branch is
    another event. One without a place is the same as one of its title that has a place.
    """
    titles: defaultdict[str, list[R]] = defaultdict(list)
    for one in same:
        titles[one.title].append(one)
    return [kept for alike in titles.values() for kept in _places_of_one(alike)]


def _places_of_one(same: list[R]) -> list[R]:
    best: dict[str, R] = {}
    for one in sorted(same, key=lambda each: each.rank):
        best[one.place] = one
    if len(best) > 1 and "" in best:
        nowhere = best.pop("")
        other = max(best.values(), key=lambda each: each.rank)
        if nowhere.rank[:2] > other.rank[:2]:
            best[other.place] = nowhere
    return list(best.values())


def _once(instances: list[Instance]) -> list[Instance]:
    """One for each time, title and place. Where there is an override, only its RECURRENCE-ID
    counts: one that is moved to another time of its series is shown beside it. A stray one is not,
    where another one shows the same from start to end.
    """
    times: defaultdict[str, list[Instance]] = defaultdict(list)
    for one in instances:
        times[one.recurrence or one.start].append(one)
    shown: defaultdict[tuple[str, ...], list[Instance]] = defaultdict(list)
    for same in times.values():
        is_changed = any(one.origin >= Origin.STRAY for one in same)
        for one in [max(same, key=lambda each: each.rank)] if is_changed else _places(same):
            shown[one.start, one.end, one.title, one.place].append(one)
    kept: list[Instance] = []
    for alike in shown.values():
        known = {one.member: one for one in alike if one.origin is not Origin.STRAY}
        kept += known.values() or [max(alike, key=lambda each: each.rank)]
    return kept


def _single(member: Vevent, *, shared: bool = False, is_stray: bool = False) -> Instance:
    span = _span(member, member.start.time)
    if member.recurrence is not None:
        origin = Origin.STRAY if is_stray else Origin.OVERRIDE
        return _instance(member, span, _text(member.recurrence.time), origin)
    return _instance(member, span, span[0] if shared else "", Origin.SINGLE)


def _series(
    main: Vevent, overrides: list[Vevent], window: Window, budget: Budget
) -> list[Instance]:
    """The times of one series, and its overrides. Of its own times only the start if a rule
    cannot be followed.
    """
    points = [*main.exclusions, *map(_recurrence_id, overrides)]
    start = meant_start(
        main.start, main.rules, calendar=main.block.zone, city=window.zone, points=points
    )
    days = zone_of_days(main.block.zone, window.zone)
    exact = partial(at_start, start=start, days=days)
    written = main.start.zone
    main = replace(main, start=start, additions=[exact(one) for one in main.additions])
    changes = _named(overrides, exact)
    strays = set[int]()
    try:
        times, periods = _own_times(main, changes, window, budget), _periods(main)
        known = (*times, *(one.recurrence for one in periods))
        series_times = _SeriesTimes(known, points, start=start, written=written, days=days)
        changes = _named(overrides, lambda at: series_times.one(at) or exact(at))
        exclusions = [(at, series_times.named(at)) for at in main.exclusions]
        excluded = {name for _at, names in exclusions for name in names}
        excluded |= {_text(exact(at).time) for at in main.exclusions}
        hidden = excluded.union(map(_recurrence_of, changes))
        own = [*_instances(times, main, changes), *periods]
        instances = [one for one in own if one.recurrence not in hidden]
        ids = [(one, _recurrence_id(one)) for one in overrides]
        missed = [(one, at) for one, at in ids if not series_times.named(at)]
        strays = {one.number for one, at in missed if window.has(at.wall.date())}
        idle = [(main, "EXDATE", at) for at, names in exclusions if not names]
        idle += [(one, "RECURRENCE-ID", at) for one, at in missed]
        # Most of these name times outside the window. One is wrong if the series is shown on its
        # day, or if its day is in the window and it was written for an earlier version.
        shown = {one.recurrence for one in instances}
        for member, name, at in idle:
            is_outdated = member.sequence < main.sequence and window.has(at.wall.date())
            if is_outdated or shown.intersection(series_times.near(at)):
                member.mended.append(f"{name} {at.text} is not a time of its series")
        changes = [
            one
            for one in changes
            if one.sequence >= main.sequence or _recurrence_of(one) not in excluded
        ]
    except MemoryError:
        raise
    except Exception as problem:  # noqa: BLE001 - a library may raise anything for a bad series
        main.mended.append(f"a rule that cannot be followed: {problem}")
        instances = [_single(main, shared=bool(overrides))]
    return [*instances, *(_single(one, is_stray=one.number in strays) for one in changes)]


def _named(overrides: list[Vevent], name: Callable[[Moment], Moment]) -> list[Vevent]:
    """The overrides, each with the time of its series that its RECURRENCE-ID names."""
    return [replace(one, recurrence=name(_recurrence_id(one))) for one in overrides]


def _recurrence_id(override: Vevent) -> Moment:
    """The RECURRENCE-ID, which each override has."""
    assert override.recurrence is not None
    return override.recurrence


def _recurrence_of(change: Vevent) -> str:
    """The text of the time that a change to a series is of."""
    return _text(_recurrence_id(change).time)


class _SeriesTimes:
    """Finds the times of a series, near the window, that a moment names. Times are text."""

    def __init__(
        self,
        times: Iterable[str],
        moments: Iterable[Moment],
        *,
        start: Moment,
        written: str,
        days: str,
    ) -> None:
        """`moments` are all that name times of the series. `written` is the zone in which the feed
        has the start, `days` that of the feed's days.
        """
        self._written = written
        self._exact = partial(at_start, start=start, days=days)
        self._clock = tzp.timezone(days if start.zone in {"", "UTC"} else start.zone)
        self._on: defaultdict[date, list[str]] = defaultdict(list)
        self._times = set(times)
        for one in self._times:
            self._on[_day(one, self._clock)].append(one)
        self._sure = {_text(self._exact(one).time) for one in moments}
        """What is named as it is, and meant by no other moment."""

    def named(self, moment: Moment) -> list[str]:
        """All times that a moment names: those of a day, the one at the hour of the start first; or
        that of an instant. An instant that is not a time may mean the only one of its day: by the
        clocks in which the feed has the start, as many programs write a local time as UTC; or as a
        midnight, which some write behind a date. One in UTC is an hour of the day elsewhere: it is
        a date where its day by the clocks of the series has no other time.
        """
        exact = _text(self._exact(moment).time)
        if moment.is_day:
            return sorted(self.near(moment), key=lambda one: one != exact)
        if exact in self._times:
            return [exact]
        by_clock = [_text(self._exact(replace(moment, zone=self._written)).time)]
        for wall in self._walls(moment):
            on = self._on.get(wall.date(), [])
            is_date = wall.time() == time() and len(on) == 1
            if moment.zone == "UTC":
                is_date = is_date and self.near(moment) == on
            if (on == by_clock or is_date) and self._sure.isdisjoint(on):
                return on
        return []

    def one(self, moment: Moment) -> Moment | None:
        """The time that a change to a series names."""
        for named in self.named(moment):
            if is_day(named):
                return Moment(datetime.fromisoformat(named), "")
            return Moment(instant_of(named).replace(tzinfo=None), "UTC")
        return None

    def near(self, moment: Moment) -> list[str]:
        """The times on the day of a moment, as it is written and where the series is."""
        days = {wall.date() for wall in self._walls(moment)}
        return [one for day in days for one in self._on.get(day, [])]

    def _walls(self, moment: Moment) -> list[datetime]:
        local = _in(self._clock, moment)
        own = [local.replace(tzinfo=None)] if isinstance(local, datetime) else []
        return [moment.wall, *own]


def _own_times(
    main: Vevent, overrides: list[Vevent], window: Window, budget: Budget
) -> dict[str, date]:
    """The times near the window, by their text, without those that EXRULEs take away, as RFC 2445
    had it.
    """
    begin, end = _starts_for(window, main, overrides)
    near = partial(_near, start=main.start, stop=end + _DAY)
    firsts = [main.start.time] if has_start(main.rules, main.start) else []
    added = [one.time for one in main.additions]
    times = {_text(one): one for one in (*firsts, *added)}
    for rule in main.rules:
        moments, is_cut = _first_times(partial(near, rule), begin, end)
        if is_cut:
            _note_cut(main, f"FREQ={rule['FREQ']}", budget)
        times |= {_text(one.time): one.time for one in moments}
    for rule in main.exceptions:
        for one in near(rule, begin - _DAY):
            times.pop(_text(one.time), None)
    return times


def _starts_for(window: Window, main: Vevent, overrides: list[Vevent]) -> tuple[datetime, datetime]:
    """The wall times from which, and before which, a time of a series has to start to take place in
    the window, however long it lasts and however far an override of all later times moves it.
    """
    later = _later(main, overrides).values()
    moves = [_NONE, *(moved for _one, moved in later)]
    members = (main, *(one for one, _moved in later))
    lasts = max(_SECOND, *(_end(one, one.start.time) - one.start.time for one in members))
    first, stop = _walls_of(window, main.start)
    return first - lasts + _SECOND - max(moves), stop - min(moves)


def _first_times(
    times_from: Callable[[datetime], Iterator[Moment]], begin: datetime, end: datetime
) -> tuple[list[Moment], bool]:
    """The times of a rule from a day before `begin` on, from `begin` on the first `SERIES_EVENTS`;
    and whether some that are before `end` are left out.
    """
    moments = list(islice(times_from(begin - _DAY), SERIES_EVENTS + 1))
    if len(moments) <= SERIES_EVENTS:
        return moments, False
    before = [one for one in moments if one.wall < begin]
    moments = list(islice(times_from(begin), SERIES_EVENTS + 1))
    is_cut = len(moments) > SERIES_EVENTS and moments.pop().wall < end
    return [*moments, *before], is_cut


def _walls_of(window: Window, start: Moment) -> tuple[datetime, datetime]:
    """The begin and the end of the window by the clocks of a start."""
    midnights = (datetime.combine(day, time()) for day in (window.first, window.end))
    if start.is_day:
        first, end = midnights
    else:
        city, zone = tzp.timezone(window.zone), tzp.timezone(start.zone)
        first, end = (one.replace(tzinfo=city).astimezone(zone) for one in midnights)
    return first.replace(tzinfo=None), end.replace(tzinfo=None)


def _later(main: Vevent, overrides: list[Vevent]) -> dict[str, tuple[Vevent, timedelta]]:
    """The overrides of all later times, by their RECURRENCE-ID, and how far they move these."""
    start = main.start.time
    zone = start.tzinfo if isinstance(start, datetime) else None
    return {
        _recurrence_of(one): (one, _in(zone, one.start) - _in(zone, _recurrence_id(one)))
        for one in overrides
        if one.this_and_future and one.start.is_day == main.start.is_day
    }


def _instances(times: dict[str, date], main: Vevent, overrides: list[Vevent]) -> Iterator[Instance]:
    """The times of a series. Those after an override of all later ones are as that one is, and
    moved by as much.
    """
    later = _later(main, overrides)
    for recurrence, one in times.items():
        before = max((key for key in later if key < recurrence), default="")
        member, moved = later.get(before, (main, _NONE))
        origin = Origin.OVERRIDE if before else Origin.RULE
        yield _instance(member, _span(member, one + moved), recurrence, origin)


def _near(rule: Rule, begin: datetime, *, start: Moment, stop: datetime) -> Iterator[Moment]:
    """The times of a rule from one wall time to another."""
    until = until_of(rule)
    for wall in times_of(rule, start.wall).after(begin - _SECOND):
        one = replace(start, wall=wall)
        if wall > stop or (until is not None and one.time > until):
            break
        yield one


def _periods(main: Vevent) -> list[Instance]:
    """The additions that have a length of their own."""
    instances = []
    for start, end in main.periods:
        span = _span(replace(main, start=start, end=end, length=None), start.time)
        instances.append(_instance(main, span, span[0], Origin.PERIOD))
    return instances


def _instance(member: Vevent, span: tuple[str, str], recurrence: str, origin: Origin) -> Instance:
    return Instance(
        member=member.number,
        start=span[0],
        end=span[1],
        recurrence=recurrence,
        origin=origin,
        rank=(member.sequence, origin, member.order),
        place=member.place,
        title=member.title,
    )


def _span(member: Vevent, start: date) -> tuple[str, str]:
    """Start and end as text; an end before the start is ignored. A start in the hour that the
    clocks leave out is an hour later than its text: where that would take it to its end, the end is
    later by as much.
    """
    end = _end(member, start)
    first, last = _text(start), _text(end)
    if is_day(first) != is_day(last) or last < first:
        last = first
    if isinstance(start, datetime) and isinstance(end, datetime) and last == first and end > start:
        last = _text(start.astimezone(UTC) + (end - start))
    if isinstance(start, datetime) or last > first:
        return first, last
    return first, _text(start + _DAY)


def _end(member: Vevent, start: date) -> date:
    """The end of an event that begins then: as long after its start, by the clocks of the start's
    zone, as it says; the start where it does not say, or says a length that no series has.
    """
    if member.length is not None:
        return member.length.after(start)
    if member.end is None:
        return start
    zone = start.tzinfo if isinstance(start, datetime) else None
    lasts = _in(zone, member.end) - _in(zone, member.start)
    if member.recurs and lasts > LONGEST:
        return start
    return member.end.time if start == member.start.time else start + lasts


def _in(zone: tzinfo | None, moment: Moment) -> date:
    """A day, or a time by the clocks of a zone."""
    value = moment.time
    return value.astimezone(zone) if isinstance(value, datetime) else value


def _day(moment: str, zone: tzinfo | None) -> date:
    """The day of a zone on which a moment is."""
    if is_day(moment):
        return date.fromisoformat(moment)
    return instant_of(moment).astimezone(zone).date()


def _text(moment: date) -> str:
    """The text of a date or, which is a date too, a datetime."""
    return instant_text(moment) if isinstance(moment, datetime) else moment.isoformat()
