"""Brings in a city's feeds: fetches them, and parses those that changed.

The last events of a feed that fails stay, marked `stale` in the report, as far as they are in the
window: a site that is down for a day does not empty a city. When the server says in three runs in a
row that the feed does not exist (404, 410), or at once when it may not be fetched, its events go. A
feed that does not fail leaves no trace of its earlier events.

A feed that is not done when the time of the run is over has failed. Feeds that failed last time are
asked last, so that they cannot delay the others again and again.
"""

import asyncio
import hashlib
import os
from collections import defaultdict
from dataclasses import dataclass, field, replace
from enum import StrEnum

import msgspec

from .addresses import same_place
from .cache import MORE_DAYS, Cache, Entry, FetchCache, Past, key_of
from .fetch import Fetcher, waiting
from .lines import calendar_name, why_no_calendar
from .params import City, CityFeed, JobSettings, RunContext
from .parser_pool import ParserPool
from .records import Ask, Parsed
from .responses import LONGEST_WAIT, Fetched, FetchFailed, Seconds, Why, cut_off, words_of

GONE_AFTER = 3
"""Runs in a row in which a server says that there is no such feed, until its events go."""


class Status(StrEnum):
    """The state of a feed after a run."""

    OK = "ok"
    UNCHANGED = "unchanged"
    """Unchanged since the last run, so its events were not expanded again."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Harvest:
    """The result of one feed. `entry` has the events that are shown, and is kept for the next
    run.
    """

    feed: CityFeed
    status: Status
    entry: Entry | None = None
    size: int = 0
    """Bytes, decompressed; of an unchanged feed, those of its last fetch."""
    error: str = ""
    said: str = ""
    """The server's words about a failure."""
    seconds: Seconds = field(default_factory=Seconds)
    before: Past = field(default_factory=Past)
    past: Past = field(default_factory=Past)
    """Its history, this run included; the events are counted later."""

    @property
    def parsed(self) -> Parsed:
        return self.entry.parsed if self.entry is not None else Parsed()

    @property
    def stale(self) -> bool:
        return self.status is Status.FAILED and self.entry is not None


class Harvester:
    """The feeds of one run."""

    def __init__(
        self,
        city: City,
        settings: JobSettings,
        run: RunContext,
        cache: Cache,
        fetch_cache: FetchCache,
    ) -> None:
        self._city = city
        self._settings = settings
        self._run = run
        self._cache = cache
        self._fetcher = Fetcher(
            settings.policy, settings.limits, clock=run.clock, fetch_cache=fetch_cache
        )
        readers = min(settings.readers, os.cpu_count() or 1)
        self._readers = asyncio.Semaphore(readers)
        self._parsers = ParserPool(
            size=readers,
            deadline=settings.parse_deadline,
            memory=settings.memory // settings.readers,
            folder=settings.places,
        )
        self._held = sum(map(self._weight_before, {key_of(feed.url) for feed in city.feeds}))
        """The weight of the events that are held until the files are written. Those of the run
        before are held from the beginning: a feed that fails or is unchanged keeps them."""
        self._done = 0

    async def all(self) -> list[Harvest]:
        """The result of each feed, in the city's order. One that fails does not keep the others
        from being brought in. An address that is listed twice is fetched once.
        """
        feeds = self._city.feeds
        places: defaultdict[str, list[int]] = defaultdict(list)
        for number, feed in enumerate(feeds):
            places[same_place(feed.url) or f"feed {number}"].append(number)
        harvests: dict[int, Harvest] = {}
        async with self._parsers:
            tasks = {
                asyncio.create_task(self._one(feeds[numbers[0]], len(numbers))): numbers
                for numbers in sorted(places.values(), key=self._order)
            }
            try:
                await asyncio.wait(tasks, timeout=self._settings.deadline)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                self._fetcher.close()
        for task, numbers in tasks.items():
            for number in numbers:
                one = self._too_late(feeds[number]) if task.cancelled() else task.result()
                harvests[number] = replace(one, feed=feeds[number])
        return [harvests[number] for number in range(len(feeds))]

    def _order(self, numbers: list[int]) -> tuple[bool, int]:
        """The sort key of a feed: those that failed last time are fetched last."""
        return self._past(self._city.feeds[numbers[0]]).failures > 0, numbers[0]

    def _past(self, feed: CityFeed) -> Past:
        return self._cache.pasts.get(key_of(feed.url), Past())

    async def _one(self, feed: CityFeed, times: int) -> Harvest:
        try:
            harvest = await self._brought(feed)
        except FetchFailed as problem:
            harvest = self._failed(feed, problem)
        except Exception as problem:
            self._run.log.exception("%s: reading it went wrong", feed.name)
            harvest = self._failed(feed, FetchFailed(type(problem).__name__))
        self._done += times
        self._run.progress(self._done, len(self._city.feeds))
        return harvest

    def _too_late(self, feed: CityFeed) -> Harvest:
        time = f"{self._settings.deadline:g} s"
        return self._failed(feed, FetchFailed(f"not done when the time was up ({time})"))

    async def _brought(self, feed: CityFeed) -> Harvest:
        """Fetches and reads one feed. Validators are sent only where the cache has its events. A
        time to wait that is too far away was noted by a clock that was ahead, and is ignored.
        """
        if not feed.url:
            problem = 'not a feed: an address is missing, or {"url": ..., "name": ...}'
            raise FetchFailed(problem, why=Why.REFUSED)
        until = self._past(feed).until
        now = self._run.clock.now()
        if until is not None and now < until <= now + LONGEST_WAIT:
            raise FetchFailed(waiting(until), until=until)
        entry = self._cache.usable(key_of(feed.url), self._city.window)
        fetched = await self._fetcher.fetch(
            feed.url, etag=entry.etag if entry else "", modified=entry.modified if entry else ""
        )
        if fetched.content is None:
            assert entry is not None, "a server says `unchanged` only when it was asked"
            return self._unchanged(feed, entry, fetched)
        try:
            async with self._readers:
                return await self._read(feed, entry, fetched, fetched.content.read())
        except FetchFailed as problem:
            problem.seconds = fetched.seconds
            raise
        finally:
            fetched.content.close()

    async def _read(
        self, feed: CityFeed, entry: Entry | None, fetched: Fetched, body: bytes
    ) -> Harvest:
        digest = hashlib.sha256(body).hexdigest()
        known = msgspec.structs.replace(entry, digest=digest, size=len(body)) if entry else None
        name = calendar_name(body)
        if entry is not None and known is not None and entry.digest == digest:
            return self._unchanged(feed, known, fetched, name)
        problem = why_no_calendar(body)
        if problem:
            way = fetched.way
            words = "" if way is None else words_of(body, feed.url, *way)
            raise FetchFailed(problem, said=words)
        if problem := cut_off(body):
            raise FetchFailed(problem)
        asked = self._city.window
        window = msgspec.structs.replace(asked, days=asked.days + MORE_DAYS)
        meaning = entry.parsed.meaning if entry is not None else ""
        clock, begun = self._run.clock, list[float]()
        parsed = await self._parsers.parse(
            body,
            Ask(window, meaning, fetched.charset, feed.url),
            begins=lambda: begun.append(clock.monotonic()),
        )
        fetched.seconds.parse = clock.monotonic() - begun[0]
        if parsed.same and known is not None:
            return self._unchanged(feed, known, fetched, name)
        if parsed.error:
            raise FetchFailed(parsed.error)
        self._hold(feed, parsed)
        fresh = Entry(
            parsed=parsed,
            window=asked if parsed.is_cut else window,
            digest=digest,
            size=len(body),
            etag=fetched.etag,
            modified=fetched.modified,
        )
        return self._well(feed, Status.OK, fresh, fetched, name)

    def _hold(self, feed: CityFeed, parsed: Parsed) -> None:
        """Holds new events of a feed in place of those before. Raises FetchFailed where they take
        more room than there is.
        """
        more = weight(parsed) - self._weight_before(key_of(feed.url))
        limit = self._settings.memory // 4
        if more > 0 and self._held + more > limit:
            problem = f"with it the city's events would take more than {limit >> 20} MiB"
            raise FetchFailed(problem)
        self._held += more

    def _weight_before(self, key: str) -> int:
        entry = self._cache.entries.get(key)
        return 0 if entry is None else weight(entry.parsed)

    def _unchanged(self, feed: CityFeed, entry: Entry, fetched: Fetched, name: str = "") -> Harvest:
        not_modified = fetched.content is None
        now = msgspec.structs.replace(
            entry,
            etag=fetched.etag or (entry.etag if not_modified else ""),
            modified=fetched.modified or (entry.modified if not_modified else ""),
        )
        return self._well(feed, Status.UNCHANGED, now, fetched, name)

    def _well(
        self, feed: CityFeed, status: Status, entry: Entry, fetched: Fetched, name: str
    ) -> Harvest:
        before = self._past(feed)
        name = before.name if fetched.content is None else name
        return Harvest(
            feed=feed,
            status=status,
            entry=entry,
            size=entry.size,
            error=_left_out(entry.parsed),
            seconds=fetched.seconds,
            before=before,
            past=Past(good=self._run.clock.now(), name=name),
        )

    def _failed(self, feed: CityFeed, problem: FetchFailed) -> Harvest:
        before = self._past(feed)
        gone = before.gone + 1 if problem.why is Why.GONE else 0
        lost = problem.why is Why.REFUSED or gone >= GONE_AFTER
        past = msgspec.structs.replace(
            before, failures=before.failures + 1, gone=gone, until=problem.until
        )
        return Harvest(
            feed=feed,
            status=Status.FAILED,
            entry=None if lost else self._cache.old(key_of(feed.url), self._city.window),
            error=str(problem),
            said=problem.said,
            seconds=problem.seconds,
            before=before,
            past=past,
        )


def weight(parsed: Parsed) -> int:
    """The approximate size of a feed's events in bytes."""
    texts = sum(
        len(one.title) + len(one.description) + len(one.location) + 500 for one in parsed.texts
    )
    return texts + 300 * len(parsed.occurrences)


def _left_out(parsed: Parsed) -> str:
    counts = (
        (parsed.skipped, "left out", parsed.problem),
        (parsed.mended, "mended", parsed.mending),
    )
    return "; ".join(
        f"{'1 event' if count == 1 else f'{count:,} events'} {fate}: {why}"
        for count, fate, why in counts
        if count
    )
