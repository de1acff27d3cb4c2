"""One calendar out of many feeds: an event that several feeds have is kept once, with all its
sources.

`duplicates.py` decides which events are the same. Of the copies of an event, that of a primary
source is kept unless it is stale; else the one that says most; else one that is not stale; else
that of the first feed in the city's list. The names, addresses and UIDs of the others are added to
it. Two events of one feed with two UIDs are two. The order in which feeds arrived, and that of the
events within them, changes nothing.

Events are in the order of their local start, all-day events first in their day. An event whose
times do not exist in the city's zone is left out and counted.
"""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from zoneinfo import ZoneInfo

import msgspec

from .duplicates import LONG, Match, adds_its_place, agreement, same_title
from .events import plain_words
from .records import Edges, Parsed, Text, Window, is_day, local_of

MANY = 50
"""With more events of one title and one start than this, only those of the same place are one."""
_SOME = 10

_LENGTHS = (1, 80, 400)
"""A description of at least such a length counts as richer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedSource:
    """A feed's part in the calendar."""

    name: str
    url: str
    """Its address, which may hold secrets: nothing but digests of it is written."""
    parsed: Parsed
    primary: bool = False
    stale: bool = False
    """Whether its events are those of an earlier run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CityEvent:
    """One event of the city. `recurrence` and moments as in `records`."""

    uid: str
    recurrence: str
    start: str
    end: str
    text: Text
    sources: tuple[str, ...]
    """The source whose copy is kept, then the others."""
    merged: tuple[str, ...] = ()
    """The UIDs it has in the other sources."""
    links: tuple[tuple[str, str], ...] = ()
    """The address that each source gives it, where there are several sources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """A copy of an event that is not kept. Sources are numbers in the order of the list."""

    source: int
    uid: str
    title: str
    start: str
    kept: int
    """The source whose copy is kept."""
    kept_uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The city's events, and what is not among them."""

    events: list[CityEvent]
    drops: list[Drop]
    counts: list[int]
    """By source, how many events it has in the window, those of others too."""
    misplaced: dict[int, int]
    """By source, how many of these have times that do not exist in the city's zone."""

    def dropped(self, sources: Sequence[FeedSource]) -> list[dict[str, str]]:
        """The drops as a report has them: which copy of which source, in favour of which."""
        return [
            {
                "title": one.title,
                "start": one.start,
                "source": sources[one.source].name,
                "uid": one.uid,
                "kept": sources[one.kept].name,
                "kept_uid": one.kept_uid,
            }
            for one in self.drops
        ]


@dataclass(frozen=True, slots=True)
class _Copy:
    """One feed's copy of an event."""

    feed: int
    """Its number in the city's list."""
    event: CityEvent
    order: tuple[str, ...]
    primary: bool
    richness: int
    stale: bool

    @property
    def preference(self) -> tuple[bool, int, bool, int, tuple[str, ...]]:
        """The copy with the lowest is kept."""
        return (not self.primary, -self.richness, self.stale, self.feed, self.order)


def merged(sources: Sequence[FeedSource], window: Window) -> Merged:
    """The city's events in the window."""
    edges = window.edges()
    events_by_source = [_events_of(source, edges) for source in sources]
    copies, misplaced = _copies(sources, events_by_source, ZoneInfo(window.zone))
    starts: defaultdict[str, list[_Copy]] = defaultdict(list)
    for one in copies:
        starts[one.event.start].append(one)
    kept: list[_Copy] = []
    drops: list[Drop] = []
    for same in starts.values():
        for group in _titles(same):
            for same_event in _events(group):
                kept.append(_credited(same_event, sources))
                drops += _dropped(same_event)
    kept.sort(key=lambda one: (one.order, one.feed))
    return Merged(
        events=_with_own_uids(kept, sources),
        drops=sorted(drops, key=lambda one: (one.start, one.source, one.title, one.uid)),
        counts=[len(events) for events in events_by_source],
        misplaced=misplaced,
    )


def _events_of(source: FeedSource, edges: Edges) -> list[CityEvent]:
    """The events of one feed in the window."""
    texts = source.parsed.texts
    return [
        CityEvent(
            uid=texts[one.text].uid,
            recurrence=one.recurrence,
            start=one.start,
            end=one.end,
            text=texts[one.text],
            sources=(source.name,),
        )
        for one in source.parsed.occurrences
        if edges.meet(one.start, one.end)
    ]


def _copies(
    sources: Sequence[FeedSource], events_by_source: Sequence[list[CityEvent]], zone: ZoneInfo
) -> tuple[list[_Copy], dict[int, int]]:
    """The copies of all events, and how many of each source have no place in the zone."""
    copies = []
    misplaced: defaultdict[int, int] = defaultdict(int)
    for number, (source, events) in enumerate(zip(sources, events_by_source, strict=True)):
        for event in events:
            try:
                order = _order(event, zone)
            except (ValueError, OverflowError):
                misplaced[number] += 1
                continue
            copies.append(
                _Copy(
                    feed=number,
                    event=event,
                    order=order,
                    primary=source.primary and not source.stale,
                    richness=_richness(event),
                    stale=source.stale,
                )
            )
    return copies, dict(misplaced)


def _order(event: CityEvent, zone: ZoneInfo) -> tuple[str, ...]:
    """The place of an event in the calendar: its local day, in which all-day events come first, and
    its start; what follows makes it definite. Raises ValueError or OverflowError when one of its
    times does not exist in the zone.
    """
    days = [
        (date.fromisoformat(one) if is_day(one) else local_of(one, zone)).isoformat()[:10]
        for one in (event.start, event.end, event.recurrence)
        if one
    ]
    text = event.text
    start = "" if is_day(event.start) else event.start
    place = (days[0], start, text.title, text.location, event.uid, event.recurrence)
    return (*place, text.url, text.description, event.end)


def _richness(event: CityEvent) -> int:
    """How much a copy says. Small differences do not count, so that it does not change each day."""
    text = event.text
    fields = (text.location, text.url, text.categories, text.geo, text.image)
    long = sum(len(text.description) >= length for length in _LENGTHS)
    return sum(map(bool, fields)) + long + (event.end > event.start and not is_day(event.start))


def _titles(same: list[_Copy]) -> list[list[_Copy]]:
    """The events of one start, in groups whose titles may be the same."""
    titles: defaultdict[str, list[_Copy]] = defaultdict(list)
    groups: list[list[_Copy]] = []
    for one in same:
        title = plain_words(one.event.text.title)
        if title:
            titles[title].append(one)
        else:
            groups.append([one])
    for title in sorted(titles, key=len, reverse=True):
        for short in _beginnings(title):
            if short in titles and _one_title(titles[title], titles[short]):
                titles[short] += titles.pop(title)
                break
    return [*groups, *titles.values()]


def _beginnings(title: str) -> list[str]:
    """The first words of a title, from one on."""
    words = title.split(" ", LONG)
    return [" ".join(words[:end]) for end in range(1, len(words))]


def _one_title(longer: list[_Copy], shorter: list[_Copy]) -> bool:
    return len({one.feed for one in (*longer, *shorter)}) > 1 and any(
        adds_its_place(left.event.text, right.event.text)
        for left in longer[:_SOME]
        for right in shorter[:_SOME]
    )


def _events(group: list[_Copy]) -> list[list[_Copy]]:
    """The copies of each event of a group, the one that is kept first."""
    group = sorted(group, key=lambda one: one.preference)
    if len({one.feed for one in group}) == 1:
        return [[one] for one in group]
    if len(group) > MANY:
        return _by_place(group)
    events: list[list[_Copy]] = []
    for one in group:
        copies = _copies_of(one, events)
        if copies is None:
            events.append([one])
        else:
            copies.append(one)
    return events


def _copies_of(one: _Copy, events: list[list[_Copy]]) -> list[_Copy] | None:
    """The copies of the event that this is one of; None without one, or with two at different
    places.
    """
    matches = [(match, copies) for copies in events if (match := _match(one, copies))]
    if not matches:
        return None
    best = max(match for match, _copies in matches)
    choice = [copies for match, copies in matches if match is best]
    first = choice[0]
    if best is not Match.SAME and any(
        agreement(first[0].event.text, other[0].event.text) is Match.OTHER for other in choice[1:]
    ):
        return None
    return first


def _match(one: _Copy, copies: list[_Copy]) -> Match:
    """How well an event agrees with all the copies of another."""
    worst = Match.SAME
    for other in copies:
        # One feed has two copies of an event only if these are the same.
        if one.feed == other.feed and (other is copies[0] or _contents(one) != _contents(other)):
            return Match.OTHER
        if not same_title(one.event.text, other.event.text):
            return Match.OTHER
        worst = min(worst, agreement(one.event.text, other.event.text))
        if worst is Match.OTHER:
            break
    return worst


def _contents(one: _Copy) -> tuple[str, ...]:
    text = one.event.text
    return (plain_words(text.title), text.location, text.url, text.description, one.event.end)


def _by_place(group: list[_Copy]) -> list[list[_Copy]]:
    """The copies of each event of a group that is too large to compare each with each."""
    places: dict[tuple[str, ...], list[_Copy]] = {}
    alone = []
    for one in group:
        copies = places.setdefault((plain_words(one.event.text.location), *_contents(one)[:1]), [])
        if any(one.feed == other.feed for other in copies):
            alone.append([one])
        else:
            copies.append(one)
    return [*places.values(), *alone]


def _credited(copies: list[_Copy], sources: Sequence[FeedSource]) -> _Copy:
    """The copy that is kept, with the sources, UIDs and addresses of the others."""
    first, *others = copies
    others.sort(key=lambda one: (one.feed, one.order))
    event = first.event
    names = dict.fromkeys(sources[one.feed].name for one in (first, *others))
    uids = dict.fromkeys(one.event.uid for one in others if one.event.uid != event.uid)
    links = dict.fromkeys(
        (sources[one.feed].name, one.event.text.url)
        for one in (first, *others)
        if one.event.text.url
    )
    text = event.text
    if links and not text.url:
        text = msgspec.structs.replace(text, url=next(iter(links))[1])
    credited = replace(
        event,
        text=text,
        sources=tuple(names),
        merged=tuple(uids),
        links=tuple(links) if others else (),
    )
    return replace(first, event=credited)


def _dropped(copies: list[_Copy]) -> list[Drop]:
    first, *others = copies
    return [
        Drop(
            source=one.feed,
            uid=one.event.uid,
            title=one.event.text.title,
            start=one.event.start,
            kept=first.feed,
            kept_uid=first.event.uid,
        )
        for one in others
    ]


def _with_own_uids(kept: list[_Copy], sources: Sequence[FeedSource]) -> list[CityEvent]:
    """The events with UIDs that differ: no two may have one UID and one RECURRENCE-ID. The first
    feed keeps its UID; a digest of the event is added to those of the others, so that they stay the
    same from day to day.
    """
    taken: set[tuple[str, str]] = set()
    apart: dict[int, CityEvent] = {}
    for number, one in sorted(enumerate(kept), key=lambda each: (each[1].feed, each[1].order)):
        event = one.event
        identity = (sources[one.feed].url, event.start, event.recurrence, event.text.location)
        mark = "\0".join(identity).encode("utf-8", "surrogatepass")
        while (event.uid, event.recurrence) in taken:
            mark = hashlib.sha256(mark).digest()
            event = replace(event, uid=f"{one.event.uid}-{mark.hex()[:8]}")
        taken.add((event.uid, event.recurrence))
        apart[number] = event
    return [apart[number] for number in range(len(kept))]
