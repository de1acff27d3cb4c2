"""Turns the VEVENTs that share a UID into the times they take place.

A series is its recurring VEVENT with its exclusions, additions and overrides; recurring-ical-events
works it out. Where several VEVENTs share a UID without being a series, as some publishers do, each
is an event. A rule by the second or minute that would go on for ever is refused before it starts.
"""

import contextlib
import re
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta

import recurring_ical_events
from icalendar import Calendar, Event

from .budget import SERIES_EVENTS, STEPS, Budget, TooMuch
from .lines import Block
from .moments import Moment, Zones, known_zone
from .records import Edges, Window, instant_text

_DURATION = re.compile(
    r"([+-]?)P(?:(\d+)W)?(?:(\d+)D)?(?:T?(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)", re.IGNORECASE
)
_UNIT = {"SECONDLY": 1, "MINUTELY": 60}
_BLOCK, _PLACE = "X-BLOCK", "RECURRENCE-ID"
_DAY = timedelta(days=1)


@dataclass(slots=True)
class Member:
    """One VEVENT with its times read."""

    block: Block
    number: int
    start: Moment
    end: str = ""
    """A DTEND or DURATION property, or nothing."""
    recurrence: Moment | None = None
    this_and_future: bool = False
    sequence: int = 0
    order: str = ""
    """Settles ties in a way that the order of the feed does not change."""
    rules: list[str] = field(default_factory=list)
    additions: list[str] = field(default_factory=list)
    exclusions: list[str] = field(default_factory=list)

    @property
    def recurs(self) -> bool:
        return self.recurrence is None and bool(self.rules or self.additions)

    @property
    def rank(self) -> tuple[int, bool, str]:
        return (self.sequence, self.recurrence is not None, self.order)


@dataclass(frozen=True, slots=True)
class Happening:
    """One time that an event takes place, as text of moments."""

    member: int
    start: str
    end: str
    recurrence: str
    rank: tuple[int, bool, str]


def member_of(block: Block, number: int, zones: Zones, order: str) -> Member:
    """Reads the times of a VEVENT; ValueError when its start, or its place in a series, is none."""
    line = block.first("DTSTART")
    if line is None:
        raise ValueError("an event without DTSTART")
    member = Member(block, number, zones.moment(line, block.zone), order=order)
    member.end = _end_line(block, zones, member.start)
    override = block.first("RECURRENCE-ID")
    if override is not None:
        member.recurrence = zones.moment(override, block.zone)
        member.this_and_future = "THISANDFUTURE" in override.params.upper()
    digits = re.match(r"\s*(\d{1,18})", block.value("SEQUENCE"))
    member.sequence = int(digits[1]) if digits else 0
    member.rules = [f"RRULE:{_tidy(found.value)}" for found in block.all("RRULE")]
    member.additions = _dates(block, zones, "RDATE")
    member.exclusions = _dates(block, zones, "EXDATE")
    return member


def _tidy(rule: str) -> str:
    return re.sub(r"\s+", "", rule).strip(";").upper().removeprefix("RRULE:")


def _dates(block: Block, zones: Zones, name: str) -> list[str]:
    """An unreadable date among the exclusions is no reason to lose a series."""
    lines = []
    for line in block.all(name):
        with contextlib.suppress(ValueError):
            lines += [moment.line(name) for moment in zones.moments(line, block.zone)]
    return lines


def _end_line(block: Block, zones: Zones, start: Moment) -> str:
    """An unreadable end is no reason to lose an event: it is then as long as its kind is."""
    line = block.first("DTEND")
    if line is not None:
        try:
            end = zones.moment(line, block.zone)
        except ValueError:
            return ""
        return end.line("DTEND") if end.is_day == start.is_day else ""
    found = _DURATION.fullmatch(block.value("DURATION"))
    if found is None or found[1] == "-" or not any(found.groups()[1:]):
        return ""
    weeks, days, hours, minutes, seconds = (int(part or 0) for part in found.groups()[1:])
    if start.is_day:
        return f"DURATION:P{max(1, weeks * 7 + days)}D"
    return f"DURATION:P{weeks * 7 + days}DT{hours}H{minutes}M{seconds}S"


def happenings(
    members: list[Member], window: Window, *, edges: Edges, budget: Budget
) -> tuple[list[Happening], int]:
    """All times in the window that these VEVENTs of one UID take place, each one once, and how
    many were left out because another has their place.
    """
    mains = _highest([member for member in members if member.recurrence is None])
    overrides = _highest([member for member in members if member.recurrence is not None])
    series = [member for member in mains if member.recurs]
    found = [_alone(member) for member in mains if not member.recurs]
    for main in series:
        with budget.series(f"the series from {main.start.wall:%Y-%m-%d}"):
            found += _expanded(main, overrides, window)
    if not series:
        found += [_alone(member) for member in overrides]
    kept: dict[str, Happening] = {}
    inside = [one for one in found if edges.meet(one.start, one.end)]
    for one in inside:
        key = one.recurrence or one.start
        kept[key] = max(kept.get(key, one), one, key=lambda each: each.rank)
    if len(kept) > SERIES_EVENTS:
        raise TooMuch(f"one series makes more than {SERIES_EVENTS:,} events")
    dropped = len(members) - len(mains) - len(overrides) + len(inside) - len(kept)
    return list(kept.values()), dropped


def _highest(members: list[Member]) -> list[Member]:
    """Of those with the same place, the one with the highest SEQUENCE."""
    best: dict[Moment, Member] = {}
    for member in members:
        key = member.recurrence or member.start
        best[key] = max(best.get(key, member), member, key=lambda each: each.rank)
    return list(best.values())


def _component(member: Member) -> Event:
    lines = [member.start.line("DTSTART"), member.end]
    if member.recurs:
        lines += [*member.rules, *member.additions, *member.exclusions]
    if member.recurrence is not None:
        reach = ";RANGE=THISANDFUTURE" if member.this_and_future else ""
        lines.append(member.recurrence.line(_PLACE).replace(_PLACE, _PLACE + reach, 1))
    lines += [f"SEQUENCE:{member.sequence}", "UID:series", f"{_BLOCK}:{member.number}"]
    text = "\r\n".join(["BEGIN:VEVENT", *filter(None, lines), "END:VEVENT", ""])
    event = Event.from_ical(text)
    if not isinstance(event, Event) or event.errors:
        raise ValueError("; ".join(f"{name}: {why}" for name, why in event.errors))
    return event


def _alone(member: Member) -> Happening:
    recurrence = member.recurrence
    event = _component(member)
    start, end = _span(event)
    place = "" if recurrence is None else _text(_time(event, _PLACE))
    return Happening(member.number, start, end, place, member.rank)


def _expanded(main: Member, overrides: list[Member], window: Window) -> list[Happening]:
    for rule in main.rules:
        _refuse_bomb(rule, main.start, window)
    calendar = Calendar()
    if known_zone(main.block.zone):
        calendar.add("X-WR-TIMEZONE", known_zone(main.block.zone))
    parts: dict[int, tuple[Member, Event]] = {}
    for member in (main, *overrides):
        parts[member.number] = (member, _component(member))
        calendar.add_component(parts[member.number][1])
    found = []
    begin, stop = window.first - _DAY, window.end + _DAY
    for event in recurring_ical_events.of(calendar).between(begin, stop):
        member, said = parts[int(event[_BLOCK])]
        start, end = _span(event)
        place = _text(_place(event, said) if member.this_and_future else _time(event, _PLACE))
        found.append(Happening(member.number, start, end, place, member.rank))
    return found


def _place(event: Event, said: Event) -> date:
    """All that follow a change come with the place of the first: their own is as far away from
    their start as that one's is.
    """
    moved = _time(said, "DTSTART") - _time(said, _PLACE)
    return _time(event, "DTSTART") - moved


def _refuse_bomb(rule: str, start: Moment, window: Window) -> None:
    """A rule by the second or minute is followed from its start, step by step."""
    parts = dict(
        part.partition("=")[::2] for part in rule.removeprefix("RRULE:").upper().split(";")
    )
    unit = _UNIT.get(parts.get("FREQ", "").strip())
    if unit is None:
        return
    seconds = unit * max(1, int(parts.get("INTERVAL") or 1))
    last = datetime.combine(window.end, datetime.min.time())
    until = re.match(r"(\d{4})(\d\d)(\d\d)", parts.get("UNTIL", ""))
    if until:
        last = min(last, datetime(*(int(part) for part in until.groups())) + _DAY)  # type: ignore[arg-type]  # noqa: DTZ001
    steps = (last - start.wall).total_seconds() / seconds
    plain = not any(name.startswith("BY") for name in parts)
    if plain and parts.get("COUNT", "").isdigit():
        steps = min(steps, int(parts["COUNT"]))
    first = datetime.combine(window.first, datetime.min.time())
    inside = (last - max(first, start.wall)).total_seconds() / seconds
    if steps > STEPS or (plain and min(steps, inside) > SERIES_EVENTS):
        raise TooMuch(f"FREQ={parts['FREQ']} makes more than {SERIES_EVENTS:,} events")


def _span(event: Event) -> tuple[str, str]:
    """Start and end as text; an end before the start is none."""
    start = _time(event, "DTSTART")
    end = start
    if "DTEND" in event:
        end = _time(event, "DTEND")
    elif "DURATION" in event:
        end = start + timedelta(seconds=_seconds(event))
    first, last = _text(start), _text(end)
    if len(first) != len(last) or last < first:
        last = first
    if isinstance(start, datetime) or last > first:
        return first, last
    return first, _text(start + _DAY)


def _time(event: Event, name: str) -> date:
    value = getattr(event.get(name), "dt", None)
    if not isinstance(value, date):
        raise ValueError(f"{name} is no date")  # noqa: TRY004 - what the feed says, not a type
    return value


def _seconds(event: Event) -> float:
    value = getattr(event.get("DURATION"), "dt", None)
    return value.total_seconds() if isinstance(value, timedelta) else 0.0


def _text(moment: date) -> str:
    """A datetime is a date too."""
    return instant_text(moment) if isinstance(moment, datetime) else moment.isoformat()
