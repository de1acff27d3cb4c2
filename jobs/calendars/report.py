"""The report of a run, for the people who look after a city's feeds: what is worst comes first.

Of each feed: whether it is well, since when not, what its server said, how many events it has and
how many it had last time, what it took, and how many of its events other feeds have too. `table`
names what `blackboard report ID` shows of it.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from .cache import Level, Past
from .calname import apart
from .harvest import Harvest, Status
from .merge import Drop, Merged, Source
from .redact import shown

_COLUMNS = (
    ("feed", "name"),
    ("state", "state"),
    ("events", "events"),
    ("change", "change"),
    ("last good", "last_good"),
    ("in a row", "failures"),
    ("what is wrong", "problem"),
    ("connect", "seconds.connect"),
    ("wait", "seconds.wait"),
    ("read", "seconds.read"),
    ("parse", "seconds.parse"),
    ("given", "duplicates.given"),
    ("taken", "duplicates.taken"),
)
_ACCEPTED = timedelta(days=7)
"""After so long the events that a city has left are those that it has."""


def names_of(harvests: Sequence[Harvest]) -> list[str]:
    """What each feed is called: as its list has it, else as it calls itself, else as its address
    says.
    """
    return apart(
        [
            (one.feed.name if one.feed.named else one.past.name or one.feed.name, one.feed.name)
            for one in harvests
        ]
    )


def level_of(before: Level, events: int, now: datetime) -> tuple[Level, list[str]]:
    """How many events the city usually has from now on, and what is to be said if it has lost
    more than half of them. After a week it has those that are left. A loss that a clock has noted
    as later than now begins now.
    """
    since = min(before.lost_since or now, now)
    if events * 2 >= before.events or now - since >= _ACCEPTED:
        return Level(events), []
    lost = f"lost more than half of its events: {events:,} now, {before.events:,} before"
    return Level(before.events, since), [lost]


def report_file(
    city: str,
    harvests: Sequence[Harvest],
    sources: Sequence[Source],
    merge: Merged,
    *,
    counts: Sequence[int],
    summary: dict[str, Any],
    fence: int,
) -> bytes:
    """The whole .report.json. `counts` are the events of each feed in the window."""
    given, taken = duplicates(merge.drops)
    feeds = [
        {
            **_feed(one, source.name, counts[number]),
            "skipped": one.parsed.skipped + merge.misplaced.get(number, 0),
            "duplicates": {"given": given[number], "taken": taken[number]},
        }
        for number, (one, source) in enumerate(zip(harvests, sources, strict=True))
    ]
    told = {
        "id": city,
        "fence": fence,
        "summary": summary,
        "feeds": sorted(feeds, key=_worst_first),
        "table": {
            "rows": "feeds",
            "columns": [
                {"title": title, "key": key, "signed": key == "change"} for title, key in _COLUMNS
            ],
        },
        "dropped": merge.dropped(sources),
    }
    return msgspec.json.format(msgspec.json.encode(told), indent=1) + b"\n"


def duplicates(drops: Sequence[Drop]) -> tuple[Counter[int], Counter[int]]:
    """By the number of each feed: how many of its events were left out for those of others, and
    how many of others for its own.
    """
    return Counter(one.source for one in drops), Counter(one.kept for one in drops)


def past_of(harvest: Harvest, count: int) -> Past:
    """What the next run is told of a feed."""
    return msgspec.structs.replace(harvest.past, events=count)


def _feed(one: Harvest, name: str, count: int) -> dict[str, Any]:
    before = one.before.events
    return {
        "name": name,
        "url": shown(one.feed.url),
        "state": "old events" if one.stale else one.status.value,
        "status": one.status.value,
        "stale": one.stale,
        "error": one.error,
        "said": one.said,
        "problem": ", ".join(filter(None, (one.error, f'"{one.said}"' if one.said else ""))),
        "level": "bad" if one.status is Status.FAILED else "late" if one.error else "",
        "events": count,
        "change": None if before is None else count - before,
        "seen": one.parsed.seen,
        "mended": one.parsed.mended,
        "private": one.parsed.private,
        "bytes": one.size,
        "failures": one.past.failures,
        "last_good": _time(one.past.good),
        "ask_again": _time(one.past.until),
        "seconds": {
            "connect": round(one.seconds.connect, 3),
            "wait": round(one.seconds.wait, 3),
            "read": round(one.seconds.read, 3),
            "parse": round(one.seconds.parse, 3),
        },
        "duration": round(one.seconds.all, 3),
    }


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _worst_first(feed: dict[str, Any]) -> tuple[Any, ...]:
    """Failed without events, failed, events lost, events left out; then the slowest."""
    change = feed["change"] or 0
    halved = change < 0 and -change > feed["events"]
    return (
        feed["status"] != Status.FAILED,
        feed["stale"],
        -feed["failures"],
        not halved,
        change if halved else 0,
        -feed["skipped"],
        -feed["duration"],
    )
