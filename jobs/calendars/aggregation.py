"""One run for one city: bring in its feeds, merge them, write its files."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from blackboard import BadInput
from blackboard.errors import BlackboardError

from .cache import Cache, Level, key_of, load, parser_version
from .city import City
from .harvest import Harvest, Harvester, Status
from .ics import calendar_file, events_file
from .merge import Merged, Source, events_of, merged
from .redact import shown
from .report import level_of, names_of, past_of, report_file
from .run import Run, Settings
from .shelf import FOLDER, Shelf
from .write import CACHE, CALENDAR, EVENTS, REPORT, Output, Overtaken, output_of


class NothingCame(BlackboardError):
    """All feeds of a city failed, so its calendar stays as it was."""


async def aggregate_city(
    city: City, *, settings: Settings | None = None, run: Run | None = None
) -> dict[str, Any]:
    """Makes the city's files; the answer is the summary of the run.

    Raises BadInput when the folder cannot be used, Overtaken when the files belong to a later
    run or this one has lost its lock, NothingCame when all feeds failed: then the report says why,
    and the calendar stays as it was.
    """
    settings, run = settings or Settings(), run or Run()
    output = output_of(city.out, city.id)
    cache = load(output.path(CACHE), run.log)
    shelf = Shelf(output.folder / FOLDER, city.id, clock=run.clock).tidied()
    harvests = await Harvester(city, settings, run, cache, shelf).all()
    sources = [
        Source(
            name=name,
            key=one.feed.url,
            parsed=one.parsed,
            primary=one.feed.primary,
            stale=one.stale,
        )
        for name, one in zip(names_of(harvests), harvests, strict=True)
    ]
    found = merged(sources, city.window)
    summary = _summary(city, harvests, found)
    if run.lost():
        raise Overtaken(f"{city.id}: the lock was lost before anything was written")
    nothing = all(one.status is Status.FAILED for one in harvests)
    level, warnings = cache.level, list[str]()
    if not nothing:
        level, warnings = level_of(cache.level, len(found.events), run.clock.now())
    edges = city.window.edges()
    counts = [len(events_of(source, edges)) for source in sources]
    files = {
        REPORT: report_file(
            city.id, harvests, sources, found, counts=counts, summary=summary, fence=run.fence
        ),
        CACHE: msgspec.json.encode(_kept(cache, harvests, counts, level, fence=run.fence)),
    }
    if not nothing:
        files[CALENDAR] = calendar_file(city.id, found.events, city.window)
        files[EVENTS] = events_file(city.id, found.events, city.window)
    await _publish(output, files, run)
    _tell(harvests, sources, run)
    if nothing:
        raise NothingCame(_why_nothing(city, harvests, sources))
    summary["report"] = str(output.path(REPORT).resolve())
    return {**summary, "warnings": warnings} if warnings else summary


async def _publish(output: Output, files: Mapping[str, bytes], run: Run) -> None:
    try:
        await output.publish(files, fence=run.fence, fenced=run.fenced)
    except OSError as problem:
        where = Path(problem.filename or output.folder)
        raise BadInput("params.out", f"{where}: {problem.strerror or problem}") from problem


def _summary(city: City, harvests: list[Harvest], found: Merged) -> dict[str, Any]:
    how = Counter(one.status for one in harvests)
    return {
        "feeds": len(harvests),
        **{status.value: how[status] for status in Status},
        "events": len(found.events),
        "duplicates": len(found.drops) + sum(one.parsed.repeated for one in harvests),
        "from": city.window.first.isoformat(),
        "days": city.window.days,
        "timezone": city.window.zone,
    }


def _kept(
    before: Cache, harvests: list[Harvest], counts: list[int], level: Level, *, fence: int
) -> Cache:
    """What the next run is told. When all feeds failed at once the trouble may well be here: then
    none of them counts as gone.
    """
    keys = [key_of(one.feed.url) for one in harvests]
    pasts = [past_of(one, count) for one, count in zip(harvests, counts, strict=True)]
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


def _why_nothing(city: City, harvests: list[Harvest], sources: list[Source]) -> str:
    first = f"{sources[0].name}: {harvests[0].error}"
    if len(harvests) == 1:
        return f"its only feed failed, so its calendar stays as it was ({first})"
    return (
        f"all {len(harvests):,} feeds failed, so its calendar stays as it was (the first, {first};"
        f" `blackboard report {city.id}` shows all)"
    )


def _tell(harvests: list[Harvest], sources: list[Source], run: Run) -> None:
    for one, source in zip(harvests, sources, strict=True):
        if one.status is Status.FAILED:
            where = f" ({shown(one.feed.url)})" if one.feed.url else ""
            said = f' "{one.said}"' if one.said else ""
            run.log.warning("%s%s: %s%s", source.name, where, one.error, said)
