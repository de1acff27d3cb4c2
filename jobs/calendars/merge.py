"""One calendar out of many feeds: what is the same event is kept once, with all its sources.

Two feeds tell of the same event when its title, but for case, punctuation and spacing, and its
start are the same. The feed that stands first in the city's list keeps its own event; the others'
names and UIDs are added to it. What one feed says twice with two UIDs is two events. The order in
which feeds arrived changes nothing.
"""

import hashlib
import html
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .records import Edges, Parsed, Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A feed's part in the calendar."""

    name: str
    key: str
    """Stands for its address."""
    parsed: Parsed


@dataclass(frozen=True, slots=True, kw_only=True)
class CityEvent:
    """One event of the city. `recurrence` and moments as in `records`."""

    uid: str
    recurrence: str
    start: str
    end: str
    text: Text
    sources: tuple[str, ...]
    merged: tuple[str, ...] = ()
    """The UIDs it has in the other sources."""


@dataclass(frozen=True, slots=True)
class _Told:
    """An event as one feed tells it."""

    feed: int
    event: CityEvent


def merged(sources: Sequence[Source], edges: Edges) -> tuple[list[CityEvent], int]:
    """The city's events in the window, in order of their start, and how many duplicates across
    sources were dropped.
    """
    told = [
        _Told(number, event)
        for number, source in enumerate(sources)
        for event in events_of(source, edges)
    ]
    groups: defaultdict[tuple[str, ...], list[_Told]] = defaultdict(list)
    for number, one in enumerate(told):
        title = plain_title(one.event.text.title)
        groups[(title, one.event.start) if title else (str(number),)].append(one)
    kept: list[_Told] = []
    for group in groups.values():
        kept += _one_source(group)
    events = sorted(_apart(kept, sources), key=_order)
    return events, len(told) - len(kept)


def events_of(source: Source, edges: Edges) -> list[CityEvent]:
    """What one feed tells of the window."""
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


def plain_title(title: str) -> str:
    """A title as it is compared; a title of signs alone stays as it is."""
    text = unicodedata.normalize("NFKC", html.unescape(title)).casefold()
    words = "".join(
        " " if unicodedata.category(letter)[0] in "PZC" else letter for letter in text
    ).split()
    return " ".join(words) or " ".join(text.split())


def _one_source(group: list[_Told]) -> list[_Told]:
    """The events of the first source in a group, the first of them credited to all."""
    first = min(one.feed for one in group)
    ours = sorted((one for one in group if one.feed == first), key=lambda one: _order(one.event))
    others = sorted(
        (one for one in group if one.feed != first), key=lambda one: (one.feed, _order(one.event))
    )
    event = ours[0].event
    names = dict.fromkeys([*event.sources, *(other.event.sources[0] for other in others)])
    uids = dict.fromkeys(other.event.uid for other in others if other.event.uid != event.uid)
    credited = replace(event, sources=tuple(names), merged=tuple(uids))
    return [_Told(first, credited), *ours[1:]]


def _apart(kept: list[_Told], sources: Sequence[Source]) -> list[CityEvent]:
    """No two events of a calendar may have one UID and one place in its series."""
    times = Counter(one.event.uid for one in kept)
    taken: set[tuple[str, str]] = set()
    events = []
    for one in sorted(kept, key=lambda one: (one.feed, _order(one.event))):
        event = one.event
        if times[event.uid] > 1 and not event.recurrence:
            event = replace(event, recurrence=event.start)
        mark = sources[one.feed].key.encode("utf-8", "surrogatepass")
        while (event.uid, event.recurrence) in taken:
            mark = hashlib.sha256(mark).digest()
            event = replace(event, uid=f"{one.event.uid}-{mark.hex()[:8]}")
        taken.add((event.uid, event.recurrence))
        events.append(event)
    return events


def _order(event: CityEvent) -> tuple[str, str, str, str]:
    return (event.start, event.text.title, event.uid, event.recurrence)
