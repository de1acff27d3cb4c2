"""Reads one VEVENT: its start, its end, its rules, and its place in a series.

An event without a readable start is none. Whatever else of it cannot be read costs that alone, and
is said in `mended`: an end, a rule, an exclusion, a RECURRENCE-ID.
"""

import re
from dataclasses import dataclass, field
from datetime import timedelta

from .lines import Block, Line
from .moments import LATEST, Moment, Zones
from .rules import tidy
from .texts import plain, plain_words, readable

_DURATION = re.compile(
    r"([+-]?)P(?:(\d+)W)?(?:(\d+)D)?(?:T?(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)", re.IGNORECASE
)
LONGEST = timedelta(days=36_525)
"""A longer DURATION is none, and so is a longer way from start to end in a series."""


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
    place: str = ""
    """Where it takes place, as it is compared."""
    title: str = ""
    """As it is compared."""
    rules: list[str] = field(default_factory=list)
    exceptions: list[str] = field(default_factory=list)
    """Rules whose times are taken out: EXRULE."""
    additions: list[Moment] = field(default_factory=list)
    periods: list[tuple[Moment, str]] = field(default_factory=list)
    """Additions with an end of their own, as in `end`."""
    exclusions: list[Moment] = field(default_factory=list)
    mended: list[str] = field(default_factory=list)
    """What could not be read or is out of reach, and was left out or cut."""

    @property
    def recurs(self) -> bool:
        return self.recurrence is None and bool(self.rules or self.additions or self.periods)

    @property
    def rank(self) -> tuple[int, int, str]:
        return (self.sequence, 0, self.order)


def member_of(block: Block, number: int, zones: Zones, order: str) -> Member:
    """Reads a VEVENT; ValueError or OverflowError when it has no start."""
    line = block.first("DTSTART")
    if line is None:
        raise ValueError("an event without DTSTART")
    member = Member(block, number, zones.moment(line, block.zone), order=order)
    member.place = plain_words(readable(plain(block.value("LOCATION"), 2_000)))
    member.title = plain_words(readable(plain(block.value("SUMMARY"), 2_000)))
    return _Reading(block, zones, member).read()


class _Reading:
    """One VEVENT on its way through."""

    def __init__(self, block: Block, zones: Zones, member: Member) -> None:
        self._block = block
        self._zones = zones
        self._member = member

    def read(self) -> Member:
        member = self._member
        member.start = self._within(member.start, "a start")
        member.end = self._end()
        override = self._block.first("RECURRENCE-ID")
        if override is not None:
            member.recurrence = self._only(override)
            member.this_and_future = "THISANDFUTURE" in override.params.upper()
        digits = re.match(r"\s*(\d{1,18})", self._block.value("SEQUENCE"))
        member.sequence = int(digits[1]) if digits else 0
        member.rules = self._rules("RRULE")
        member.exceptions = self._rules("EXRULE")
        member.exclusions = [moment for moment, _end in self._dates("EXDATE")]
        for moment, said in self._dates("RDATE"):
            end = self._end_of_period(said, moment) if said else ""
            if end:
                member.periods.append((moment, end))
            else:
                member.additions.append(moment)
        return member

    def _within(self, moment: Moment, what: str) -> Moment:
        cut = moment.within()
        if cut != moment:
            self._member.mended.append(f"{what} in the year {moment.wall.year} is cut")
        return cut

    def _only(self, line: Line) -> Moment | None:
        try:
            return self._zones.moment(line, self._block.zone).within()
        except (ValueError, OverflowError) as problem:
            self._member.mended.append(str(problem))
            return None

    def _rules(self, name: str) -> list[str]:
        rules = []
        for line in self._block.all(name):
            try:
                rules.append(tidy(line.value))
            except (ValueError, OverflowError) as problem:
                self._member.mended.append(str(problem))
        return rules

    def _dates(self, name: str) -> list[tuple[Moment, str]]:
        """One unreadable date is no reason to lose the others of its line."""
        found = []
        for line in self._block.all(name):
            for part in line.value.split(","):
                try:
                    one = self._zones.periods(Line(name, line.params, part), self._block.zone)
                except (ValueError, OverflowError) as problem:
                    self._member.mended.append(str(problem))
                    continue
                found += [(moment.within(), end) for moment, end in one]
        return found

    def _end(self) -> str:
        """An unreadable end is no reason to lose an event: it is then as long as its kind is."""
        line = self._block.first("DTEND")
        if line is not None:
            end = self._only(line)
            if end is None or end.is_day != self._member.start.is_day:
                return ""
            return self._within(self._zones.moment(line, self._block.zone), "an end").line("DTEND")
        return self._duration(self._block.value("DURATION"), self._member.start)

    def _end_of_period(self, said: str, start: Moment) -> str:
        if said[:1] in "+-Pp":
            return self._duration(said, start)
        line = self._block.first("RDATE")
        end = self._only(Line("RDATE", line.params if line else "", said))
        return "" if end is None or end.is_day != start.is_day else end.line("DTEND")

    def _duration(self, said: str, start: Moment) -> str:
        found = _DURATION.fullmatch(said.strip())
        if found is None or found[1] == "-" or not any(found.groups()[1:]):
            if said.strip():
                self._member.mended.append(f"{said[:40]!r} is no duration")
            return ""
        parts = [int(part[:12] or 0) if part else 0 for part in found.groups()[1:]]
        weeks, days, hours, minutes, seconds = parts
        days += weeks * 7
        past = days * 86_400 + hours * 3_600 + minutes * 60 + seconds
        least = min(LONGEST, LATEST - start.within().wall)
        if past > least.total_seconds():
            self._member.mended.append(f"{said[:40]!r} is too long")
            return ""
        if start.is_day:
            return f"DURATION:P{max(1, days)}D"
        return f"DURATION:P{days}DT{hours}H{minutes}M{seconds}S"
