"""One run for one city: brings in its feeds, merges them, writes its files and the report.

The report is for the people who look after a city's feeds, the worst feed first. For each feed it
has: its state and since when it fails, what its server answered, how many events it has and had
last time, what it took, and how many of its events other feeds have too. `table` names the columns
of `blackboard report ID`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from blackboard import BadInput
from blackboard.errors import BlackboardError
from blackboard.phrases import command

from .addresses import redacted
from .cache import FOLDER, Cache, FetchCache, Level, key_of, load_cache, parser_version
from .harvest import Harvest, Harvester, Status
from .merge import FeedSource, Merged, merged
from .output import calendar_file, events_file
from .params import City, JobSettings, RunContext
from .publish import CACHE, CALENDAR, EVENTS, REPORT, Output, Overtaken, output_of

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
"""After this time, the events that a city has left count as its usual number."""


def names_of(harvests: Sequence[Harvest]) -> list[str]:
    """What each feed is called: as its list has it, else as it calls itself, else as its address
    says.
    """
    return distinct(
        [
            (one.feed.name if one.feed.named else one.past.name or one.feed.name, one.feed.name)
            for one in harvests
        ]
    )


def distinct(names: list[tuple[str, str]]) -> list[str]:
    """The names, made distinct: of those that share one, all but the first get their other name
    added, or a number.
    """
    taken: set[str] = set()
    distinct_names = []
    for name, other in names:
        best = name
        if best in taken and other != name:
            best = f"{name} ({other})"
        number = 2
        plain = best
        while best in taken:
            best, number = f"{plain} ({number})", number + 1
        taken.add(best)
        distinct_names.append(best)
    return distinct_names


def level_of(before: Level, events: int, now: datetime) -> tuple[Level, list[str]]:
    """The usual number of events from now on, and a warning if the city has lost more than half of
    them. After a week, those that are left are the usual number. A loss that begins in the future,
    by a wrong clock, begins now.
    """
    since = min(before.lost_since or now, now)
    if events * 2 >= before.events or now - since >= _ACCEPTED:
        return msgspec.structs.replace(before, events=events, lost_since=None), []
    lost = f"lost more than half of its events: {events:,} now, {before.events:,} before"
    return msgspec.structs.replace(before, lost_since=since), [lost]


def _level_before(cache: Cache, city: City) -> Level:
    """The level of the last run; none where other params may be why there are fewer events."""
    urls = sorted(feed.url for feed in city.feeds)
    params = key_of("\n".join([str(city.window.days), str(city.window.private), *urls]))
    return cache.level if cache.level.params == params else Level(params=params)


def report_file(
    city: str,
    harvests: Sequence[Harvest],
    sources: Sequence[FeedSource],
    merge: Merged,
    *,
    summary: dict[str, Any],
    fence: int,
) -> bytes:
    """The whole .report.json."""
    given = Counter(one.source for one in merge.drops)
    taken = Counter(one.kept for one in merge.drops)
    feeds = [
        {
            **_feed(one, source.name, merge.counts[number]),
            "skipped": one.parsed.skipped + merge.misplaced.get(number, 0),
            "duplicates": {"given": given[number], "taken": taken[number]},
        }
        for number, (one, source) in enumerate(zip(harvests, sources, strict=True))
    ]
    report = {
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
    return msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"


def _feed(one: Harvest, name: str, count: int) -> dict[str, Any]:
    before = one.before.events
    return {
        "name": name,
        "url": redacted(one.feed.url),
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
        "seconds": {phase: round(took, 3) for phase, took in asdict(one.seconds).items()},
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


class NothingCame(BlackboardError):
    """All feeds of a city failed, so its calendar stays as it was."""


async def aggregate_city(city: City, *, settings: JobSettings, run: RunContext) -> dict[str, Any]:
    """Makes the city's files; the answer is the summary of the run.

    Raises BadInput when the folder cannot be used, Overtaken when the files belong to a later
    run or this one has lost its lock, NothingCame when all feeds failed: then the report says why,
    and the calendar stays as it was.
    """
    output = output_of(city.out, city.id)
    cache = load_cache(output.path(CACHE), run.log)
    fetches = FetchCache(output.folder / FOLDER, city.id, clock=run.clock).tidied()
    harvests = await Harvester(city, settings, run, cache, fetches).all()
    sources = _sources(harvests)
    merge = merged(sources, city.window)
    summary = _summary(city, harvests, merge)
    if run.lost():
        raise Overtaken(f"{city.id}: the lock was lost before anything was written")
    nothing = all(one.status is Status.FAILED for one in harvests)
    level, warnings = cache.level, list[str]()
    if not nothing:
        before = _level_before(cache, city)
        level, warnings = level_of(before, len(merge.events), run.clock.now())
    files = {
        REPORT: report_file(city.id, harvests, sources, merge, summary=summary, fence=run.fence),
        CACHE: msgspec.json.encode(_kept(cache, harvests, merge.counts, level, fence=run.fence)),
    }
    if not nothing:
        files[CALENDAR] = calendar_file(city.id, merge.events, city.window)
        files[EVENTS] = events_file(city.id, merge.events, city.window)
    await _publish(output, files, run)
    _log_failures(harvests, sources, run)
    if nothing:
        raise NothingCame(_why_nothing(city, harvests, sources))
    if failed := summary[Status.FAILED.value]:
        warnings.append(f"{failed:,} of {len(harvests):,} feeds failed")
    for one in warnings:
        run.warn(one)
    return {**summary, "report": str(output.path(REPORT).resolve())}


def _sources(harvests: Sequence[Harvest]) -> list[FeedSource]:
    return [
        FeedSource(
            name=name,
            url=one.feed.url,
            parsed=one.parsed,
            primary=one.feed.primary,
            stale=one.stale,
        )
        for name, one in zip(names_of(harvests), harvests, strict=True)
    ]


async def _publish(output: Output, files: Mapping[str, bytes], run: RunContext) -> None:
    try:
        await output.publish(files, fence=run.fence, fenced=run.fenced)
    except OSError as problem:
        where = Path(problem.filename or output.folder)
        raise BadInput("params.out", f"{where}: {problem.strerror or problem}") from problem


def _summary(city: City, harvests: list[Harvest], merge: Merged) -> dict[str, Any]:
    how = Counter(one.status for one in harvests)
    return {
        "feeds": len(harvests),
        **{status.value: how[status] for status in Status},
        "events": len(merge.events),
        "duplicates": len(merge.drops) + sum(one.parsed.repeated for one in harvests),
        "from": city.window.first.isoformat(),
        "days": city.window.days,
        "timezone": city.window.zone,
    }


def _kept(
    before: Cache, harvests: list[Harvest], counts: list[int], level: Level, *, fence: int
) -> Cache:
    """The cache for the next run. When all feeds failed at once the cause is probably this host:
    then none of them counts as gone.
    """
    keys = [key_of(one.feed.url) for one in harvests]
    pasts = [
        msgspec.structs.replace(one.past, events=count)
        for one, count in zip(harvests, counts, strict=True)
    ]
    entries = [one.entry for one in harvests]
    if all(one.status is Status.FAILED for one in harvests):
        pasts = [
            msgspec.structs.replace(past, gone=one.before.gone)
            for past, one in zip(pasts, harvests, strict=True)
        ]
        entries = [before.entries.get(key) for key in keys]
    return Cache(
        fence=fence,
        parser=parser_version(),
        entries={key: one for key, one in zip(keys, entries, strict=True) if one is not None},
        pasts=dict(zip(keys, pasts, strict=True)),
        level=level,
    )


def _why_nothing(city: City, harvests: list[Harvest], sources: list[FeedSource]) -> str:
    first = f"{sources[0].name}: {harvests[0].error}"
    if len(harvests) == 1:
        return f"its only feed failed, so its calendar stays as it was ({first})"
    return (
        f"all {len(harvests):,} feeds failed, so its calendar stays as it was (the first, {first};"
        f" {command('report', city.id)} shows all)"
    )


def _log_failures(harvests: list[Harvest], sources: list[FeedSource], run: RunContext) -> None:
    for one, source in zip(harvests, sources, strict=True):
        if one.status is Status.FAILED:
            where = f" ({redacted(one.feed.url)})" if one.feed.url else ""
            words = f' "{one.said}"' if one.said else ""
            run.log.warning("%s%s: %s%s", source.name, where, one.error, words)
