"""Turns the VEVENTs that share a UID into the times at which they take place.

A series is its recurring VEVENT with its exclusions, additions and overrides; recurring-ical-events
expands it. Publishers also give one UID to several VEVENTs that are no series:

    SEQUENCE differs in each                    versions of one event: the highest is kept
    the same start, title and place             the same event twice: one is kept
    an impossible RECURRENCE-ID                 each an event of its own
    anything else                               each an event of its own

An event of its own that shares its UID has its start as its RECURRENCE-ID, whatever the window, so
that its identity does not change when the others have passed.
"""

from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from enum import IntEnum
from functools import partial
from typing import Protocol, TypeVar

import recurring_ical_events
from icalendar import Calendar, Event

from .budget import SERIES_EVENTS, Budget, TooMuch
from .events import Vevent
from .lengths import LONGEST, Length
from .records import Edges, Window, instant_text, is_day
from .rules import at_start, fits, meant_zone, refuse_bomb
from .times import LATEST, Moment
from .zone_names import zone_of_days

_BLOCK, _PLACE = "X-BLOCK", "RECURRENCE-ID"
_DAY = timedelta(days=1)
_EPOCH_YEAR = 1970


class Origin(IntEnum):
    """Where one time of a series comes from, the most specific last: that one is kept."""

    RULE = 0
    PERIOD = 1
    """An RDATE with a length of its own."""
    SINGLE = 2
    """A VEVENT that does not recur."""
    OVERRIDE = 3


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
    with budget.series("an event"):
        found = [_single(member, shared=shared) for member in mains if not member.recurs]
    for main in series:
        with budget.series(f"the series from {main.start.wall:%Y-%m-%d}"):
            found += _series(main, overrides, window)
    if not series:
        with budget.series("a change to a series"):
            found += [_single(member) for member in overrides]
    inside = [one for one in found if edges.meet(one.start, one.end)]
    kept = _once(inside)
    if len(kept) > SERIES_EVENTS:
        raise TooMuch(f"one series makes more than {SERIES_EVENTS:,} events")
    return kept, len(members) - len(mains) - len(overrides) + len(inside) - len(kept)


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
    """Of those with the same place in their series, the one with the highest SEQUENCE."""
    best: dict[Moment | None, Vevent] = {}
    for one in overrides:
        best[one.recurrence] = max(best.get(one.recurrence, one), one, key=lambda each: each.rank)
    return list(best.values())


class _Ranked(Protocol):
    """An instance with its rank."""

    @property
    def place(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def rank(self) -> tuple[int, int, str]: ...


R = TypeVar("R", bound=_Ranked)


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


def _once(found: list[Instance]) -> list[Instance]:
    """One for each time, title and place. Where there is an override, only its RECURRENCE-ID
    counts.
    """
    times: defaultdict[str, list[Instance]] = defaultdict(list)
    for one in found:
        times[one.recurrence or one.start].append(one)
    kept: list[Instance] = []
    for same in times.values():
        best = max(same, key=lambda one: one.rank)
        if any(one.origin is Origin.OVERRIDE for one in same):
            kept.append(best)
        else:
            kept += _places(same)
    return kept


def _component(member: Vevent) -> Event:
    lines = [member.start.line("DTSTART"), member.end]
    if member.recurs:
        lines += [f"RRULE:{rule}" for rule in member.rules]
        lines += [moment.line("RDATE") for moment in member.additions]
        lines += [moment.line("EXDATE") for moment in member.exclusions]
    if member.recurrence is not None:
        reach = ";RANGE=THISANDFUTURE" if member.this_and_future else ""
        lines.append(member.recurrence.line(_PLACE).replace(_PLACE, _PLACE + reach, 1))
    lines += [f"SEQUENCE:{member.sequence}", "UID:series", f"{_BLOCK}:{member.number}"]
    text = "\r\n".join(["BEGIN:VEVENT", *filter(None, lines), "END:VEVENT", ""])
    event = Event.from_ical(text)
    if not isinstance(event, Event) or event.errors:
        raise ValueError("; ".join(f"{name}: {why}" for name, why in event.errors))
    if "DTEND" in event:
        start, end = _time(event, "DTSTART"), _time(event, "DTEND")
        if end < start or (member.recurs and end - start > LONGEST):
            event.pop("DTEND")
    return event


def _single(member: Vevent, *, shared: bool = False) -> Instance:
    event = _component(member)
    start, end = _span(event, member.length)
    if member.recurrence is not None:
        place = _text(_time(event, _PLACE))
        return _instance(member, (start, end), place, Origin.OVERRIDE)
    return _instance(member, (start, end), start if shared else "", Origin.SINGLE)


def _series(main: Vevent, overrides: list[Vevent], window: Window) -> list[Instance]:
    """The times of one series; only the start if the library fails on its rule."""
    for rule in main.rules:
        refuse_bomb(rule, main.start, window)
    zone = meant_zone(
        main.start,
        main.rules,
        calendar=main.block.zone,
        city=window.zone,
        points=[*main.exclusions, *(one.recurrence for one in overrides if one.recurrence)],
    )
    days = zone_of_days(main.block.zone, window.zone)
    named = partial(at_start, start=main.start, zone=zone, days=days)
    main = replace(
        main,
        exclusions=[named(one) for one in main.exclusions],
        additions=[named(one) for one in main.additions],
    )
    overrides = [
        one if one.recurrence is None else replace(one, recurrence=named(one.recurrence))
        for one in overrides
    ]
    try:
        found = [*_expanded(main, overrides, zone, window), *_periods(main)]
        excluded = _excluded(main, zone, window)
    except (TooMuch, MemoryError):
        raise
    except Exception as problem:  # noqa: BLE001 - a library may raise anything for a bad series
        main.mended.append(f"a rule that cannot be followed: {problem}")
        alone = replace(_bare(main, main.start, main.end), length=main.length)
        found = [_single(alone, shared=bool(overrides))]
        return [*found, *(_single(one) for one in overrides)]
    return [one for one in found if one.origin is Origin.OVERRIDE or one.start not in excluded]


def _expanded(main: Vevent, overrides: list[Vevent], zone: str, window: Window) -> list[Instance]:
    calendar = Calendar()
    if zone:
        calendar.add("X-WR-TIMEZONE", zone)
    parts: dict[int, tuple[Vevent, Event]] = {}
    for member in (main, *overrides):
        parts[member.number] = (member, _component(member))
        calendar.add_component(parts[member.number][1])
    found = []
    begin, stop = window.first - _DAY, window.end + _DAY
    for event in recurring_ical_events.of(calendar).between(begin, stop):
        member, first = parts[int(event[_BLOCK])]
        place = _text(_place(event, first) if member.this_and_future else _time(event, _PLACE))
        origin = Origin.RULE if member is main else Origin.OVERRIDE
        found.append(_instance(member, _span(event, member.length), place, origin))
    return found


def _excluded(main: Vevent, zone: str, window: Window) -> set[str]:
    """The starts that EXRULEs take away, as RFC 2445 had it, and those of excluded periods."""
    taken = {_text(_time(_component(_bare(main, one)), "DTSTART")) for one in main.exclusions}
    if not main.exceptions:
        return taken if main.periods else set()
    for rule in main.exceptions:
        refuse_bomb(rule, main.start, window)
        every = replace(main, rules=[rule], additions=[], exclusions=[])
        taken |= {one.start for one in _expanded(every, [], zone, window)}
    if not fits(main.exceptions, main.start.wall):
        taken.discard(_span(_component(main))[0])
    return taken


def _periods(main: Vevent) -> list[Instance]:
    """The additions that have a length of their own."""
    found = []
    for start, end in main.periods:
        span = _span(_component(_bare(main, start, end)))
        found.append(_instance(main, span, span[0], Origin.PERIOD))
    return found


def _bare(main: Vevent, start: Moment, end: str = "") -> Vevent:
    """The event without its series, at this time."""
    one = replace(main, start=start, end=end, length=None)
    return replace(one, rules=[], additions=[], exclusions=[], periods=[])


def _instance(member: Vevent, span: tuple[str, str], place: str, origin: Origin) -> Instance:
    return Instance(
        member=member.number,
        start=span[0],
        end=span[1],
        recurrence=place,
        origin=origin,
        rank=(member.sequence, origin, member.order),
        place=member.place,
        title=member.title,
    )


def _place(event: Event, first: Event) -> date:
    """The RECURRENCE-ID of an event that follows a change of all later ones. The library gives all
    of them that of the first: theirs is as far from their start as the first one's is.
    """
    moved = _time(first, "DTSTART") - _time(first, _PLACE)
    return _time(event, "DTSTART") - moved


def _span(event: Event, length: Length | None = None) -> tuple[str, str]:
    """Start and end as text; an end before the start is ignored. `length` is what a DURATION said.
    A start in the hour that the clocks leave out is an hour later than its text: where that would
    take it to its end, the end is later by as much.
    """
    start = _time(event, "DTSTART")
    end = _time(event, "DTEND") if "DTEND" in event else start
    if length is not None:
        end = length.after(start)
    first, last = _text(start), _text(end)
    if is_day(first) != is_day(last) or last < first:
        last = first
    if isinstance(start, datetime) and isinstance(end, datetime) and last == first and end > start:
        last = _text(start.astimezone(UTC) + (end - start))
    if isinstance(start, datetime) or last > first:
        return first, last
    return first, _text(start + _DAY)


def _time(event: Event, name: str) -> date:
    value = getattr(event.get(name), "dt", None)
    if not isinstance(value, date):
        raise ValueError(f"{name} is no date")  # noqa: TRY004 - a fault of the feed, not of a type
    return value


def _text(moment: date) -> str:
    """The text of a date or, which is a date too, a datetime."""
    return instant_text(moment) if isinstance(moment, datetime) else moment.isoformat()
