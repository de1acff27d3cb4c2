"""Brings in a city's feeds: fetches them, and has those read that changed.

What becomes of a feed that fails: the events it last gave stay, marked `stale` in the report, for
as long as they cover the window; a site that is down for a day does not empty a city. When the
server says that there is no such feed (404, 410), or it may not be fetched, its events go. A feed
that does not fail leaves no trace of what it said before.
"""

import asyncio
import hashlib
import os
from dataclasses import dataclass, replace
from enum import StrEnum

import msgspec

from .cache import MORE_DAYS, Cache, Entry, key_of
from .city import City, Feed
from .fetch import Fetched, Fetcher, FetchFailed
from .lines import refusal
from .parsers import Parsers
from .records import Ask, Parsed
from .run import Run, Settings


class Status(StrEnum):
    """How it went with a feed."""

    OK = "ok"
    UNCHANGED = "unchanged"
    """Nothing that matters has changed since the last run, so nothing was expanded again."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Harvest:
    """What came of one feed. `entry` is what is shown of it, and kept for the next run."""

    feed: Feed
    status: Status
    entry: Entry | None = None
    size: int = 0
    """Bytes that came, decompressed; of an unchanged feed, those that it has."""
    error: str = ""
    duration: float = 0.0

    @property
    def parsed(self) -> Parsed:
        return self.entry.parsed if self.entry is not None else Parsed()

    @property
    def stale(self) -> bool:
        return self.status is Status.FAILED and self.entry is not None


class Harvester:
    """The feeds of one run."""

    def __init__(self, city: City, settings: Settings, run: Run, cache: Cache) -> None:
        self._city = city
        self._run = run
        self._cache = cache
        self._fetcher = Fetcher(settings.policy, settings.limits)
        self._parsers = Parsers(
            size=min(settings.parsers, os.cpu_count() or 1),
            deadline=settings.parse_deadline,
            memory=settings.parse_memory,
        )
        self._places = asyncio.Semaphore(settings.limits.together)
        self._done = 0

    async def all(self) -> list[Harvest]:
        """What came of each feed, in the city's order: whatever becomes of one, the others are
        brought in.
        """
        async with self._parsers, asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._one(feed)) for feed in self._city.feeds]
        return [task.result() for task in tasks]

    async def _one(self, feed: Feed) -> Harvest:
        async with self._places:
            begun = self._run.clock.monotonic()
            entry = self._cache.usable(key_of(feed.url), self._city.window)
            try:
                harvest = await self._brought(feed, entry)
            except FetchFailed as problem:
                harvest = _failed(feed, str(problem), None if problem.gone else entry)
            except Exception as problem:
                self._run.log.exception("%s: reading it went wrong", feed.name)
                harvest = _failed(feed, type(problem).__name__, entry)
        self._done += 1
        self._run.progress(self._done, len(self._city.feeds))
        return replace(harvest, duration=self._run.clock.monotonic() - begun)

    async def _brought(self, feed: Feed, entry: Entry | None) -> Harvest:
        """No cache, no condition: validators are sent only with events to fall back on."""
        if feed.unusable:
            raise FetchFailed(feed.unusable, gone=True)
        fetched = await self._fetcher.fetch(
            feed.url,
            etag=entry.etag if entry else "",
            modified=entry.modified if entry else "",
        )
        body = fetched.body
        if body is None:
            assert entry is not None, "nobody says `unchanged` who was not asked"
            return _unchanged(feed, entry, fetched, entry.digest, entry.size)
        digest = hashlib.sha256(body).hexdigest()
        if entry is not None and entry.digest == digest:
            return _unchanged(feed, entry, fetched, digest, len(body))
        if problem := refusal(body):
            return replace(_failed(feed, problem, entry), size=len(body))
        window = self._city.window.wider(MORE_DAYS)
        known = entry.parsed.meaning if entry is not None else ""
        parsed = await self._parsers.parse(body, Ask(window, known, fetched.charset))
        if parsed.same and entry is not None:
            return _unchanged(feed, entry, fetched, digest, len(body))
        if parsed.error:
            return replace(_failed(feed, parsed.error, entry), size=len(body))
        fresh = Entry(
            parsed=parsed,
            window=window,
            digest=digest,
            size=len(body),
            etag=fetched.etag,
            modified=fetched.modified,
        )
        return Harvest(
            feed=feed, status=Status.OK, entry=fresh, size=len(body), error=_left_out(parsed)
        )


def _failed(feed: Feed, problem: str, entry: Entry | None) -> Harvest:
    return Harvest(feed=feed, status=Status.FAILED, entry=entry, error=problem)


def _unchanged(feed: Feed, entry: Entry, fetched: Fetched, digest: str, size: int) -> Harvest:
    now = msgspec.structs.replace(
        entry,
        digest=digest,
        size=size,
        etag=fetched.etag or (entry.etag if fetched.body is None else ""),
        modified=fetched.modified or (entry.modified if fetched.body is None else ""),
    )
    return Harvest(
        feed=feed, status=Status.UNCHANGED, entry=now, size=size, error=_left_out(entry.parsed)
    )


def _left_out(parsed: Parsed) -> str:
    if not parsed.skipped:
        return ""
    events = "1 event" if parsed.skipped == 1 else f"{parsed.skipped} events"
    return f"{events} left out: {parsed.problem}"
