"""One run for one city: bring in its feeds, merge them, write its files."""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from blackboard import BadInput

from .cache import Cache, key_of, load, parser_version
from .city import City
from .harvest import Harvest, Harvester, Status
from .ics import calendar_file, events_file
from .locate import shown
from .merge import Source, events_of, merged
from .run import Run, Settings
from .write import CACHE, CALENDAR, EVENTS, REPORT, Overtaken, output_of


async def aggregate_city(
    city: City, *, settings: Settings | None = None, run: Run | None = None
) -> dict[str, Any]:
    """Makes the city's files; the answer is the summary of the run.

    Raises BadInput when the folder cannot be used, Overtaken when the files belong to a later
    run or this one has lost its lock.
    """
    settings, run = settings or Settings(), run or Run()
    output = output_of(city.out, city.id)
    cache = load(output.path(CACHE), run.log)
    harvests = await Harvester(city, settings, run, cache).all()
    sources = [Source(name=one.feed.name, key=one.feed.url, parsed=one.parsed) for one in harvests]
    events, dropped = merged(sources, city.window.edges())
    summary = _summary(city, harvests, len(events), dropped)
    if run.lost():
        raise Overtaken(f"{city.id}: the lock was lost before anything was written")
    files = {
        REPORT: _report(city, harvests, sources, summary, run.fence),
        CALENDAR: calendar_file(city.id, events, city.window),
        EVENTS: events_file(city.id, events, city.window),
        CACHE: _cache(harvests, run.fence),
    }
    try:
        await output.publish(files, fence=run.fence, fenced=run.fenced)
    except OSError as problem:
        where = Path(problem.filename or output.folder)
        raise BadInput("params.out", f"{where}: {problem.strerror or problem}") from problem
    _tell(harvests, run)
    return summary


def _summary(city: City, harvests: list[Harvest], events: int, dropped: int) -> dict[str, Any]:
    how = Counter(one.status for one in harvests)
    return {
        "feeds": len(harvests),
        **{status.value: how[status] for status in Status},
        "events": events,
        "duplicates": dropped + sum(one.parsed.repeated for one in harvests),
        "from": city.window.first.isoformat(),
        "days": city.window.days,
        "timezone": city.window.zone,
    }


def _report(
    city: City,
    harvests: list[Harvest],
    sources: list[Source],
    summary: dict[str, Any],
    fence: int,
) -> bytes:
    edges = city.window.edges()
    told = {
        "id": city.id,
        "fence": fence,
        "summary": summary,
        "feeds": [
            {
                "name": one.feed.name,
                "url": shown(one.feed.url),
                "status": one.status.value,
                "bytes": one.size,
                "events": len(events_of(source, edges)),
                "seen": one.parsed.seen,
                "skipped": one.parsed.skipped,
                "stale": one.stale,
                "error": one.error,
                "duration": round(one.duration, 3),
            }
            for one, source in zip(harvests, sources, strict=True)
        ],
    }
    return msgspec.json.format(msgspec.json.encode(told), indent=1) + b"\n"


def _cache(harvests: list[Harvest], fence: int) -> bytes:
    entries = {key_of(one.feed.url): one.entry for one in harvests if one.entry is not None}
    return msgspec.json.encode(Cache(fence=fence, parser=parser_version(), entries=entries))


def _tell(harvests: list[Harvest], run: Run) -> None:
    for one in harvests:
        if one.status is Status.FAILED:
            where = f" ({shown(one.feed.url)})" if one.feed.url else ""
            run.log.warning("%s%s: %s", one.feed.name, where, one.error)
