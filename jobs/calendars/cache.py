"""What one run leaves for the next: of each feed its validators, digests and expanded events, and
how it went with it so far.

A feed's events are expanded for more days than were asked for, so that tomorrow's window finds
them too: a feed that does not change is parsed again only when the window has moved beyond what
was expanded, about once a month when each run starts today. Which of the events are shown is
decided by the window alone, so a calendar made from the cache is the one made without it.

The file is JSON, never a pickle. One that is damaged, or of another format, counts as none. Events
that another version of the parser has found serve only where a feed fails.
"""

import hashlib
import logging
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from .records import PARSER, Parsed, Window

MORE_DAYS = 31
_FORMAT = 2


class Entry(msgspec.Struct, frozen=True):
    """The last good events of a feed."""

    parsed: Parsed
    window: Window
    """The days for which its events were expanded."""
    digest: str
    size: int
    etag: str = ""
    modified: str = ""


class Past(msgspec.Struct, frozen=True, omit_defaults=True):
    """How it went with a feed until now."""

    events: int | None = None
    """Its events in the window of the last run; None before its first."""
    good: datetime | None = None
    """When it was last well."""
    failures: int = 0
    """Runs in a row in which it failed."""
    gone: int = 0
    """Runs in a row in which its server said that there is no such feed."""
    until: datetime | None = None
    """Before then its server does not want to be asked."""
    name: str = ""
    """The name that the calendar gives itself."""


class Level(msgspec.Struct, frozen=True):
    """How many events the city usually has, and since when it has too few, if it has."""

    events: int = 0
    lost_since: datetime | None = None


class Cache(msgspec.Struct, frozen=True):
    """All of a city's feeds, by `key_of` their address."""

    fence: int = 0
    parser: str = ""
    format: int = _FORMAT
    entries: dict[str, Entry] = {}
    pasts: dict[str, Past] = {}
    level: Level = Level()

    def usable(self, key: str, window: Window) -> Entry | None:
        """What is known of a feed, if it holds all events of the window."""
        entry = self.entries.get(key)
        if entry is None or not entry.parsed.meaning:
            return None
        return entry if entry.window.covers(window) else None

    def old(self, key: str, window: Window) -> Entry | None:
        """The last good events of a feed, for when it fails, if some may be in the window."""
        entry = self.entries.get(key)
        if entry is None or entry.window.zone != window.zone:
            return None
        if entry.window.private and not window.private:
            return None
        return entry if entry.window.end > window.first else None


def key_of(address: str) -> str:
    """Stands for an address, which may hold secrets."""
    return hashlib.sha256(address.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def parser_version() -> str:
    """Changes when the same bytes might give other events."""
    return ", ".join(
        [str(PARSER), *map(_release, ("recurring-ical-events", "icalendar", "tzdata"))]
    )


def _release(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return package


def load(path: Path, log: logging.Logger) -> Cache:
    """The cache in a file; an empty one when there is none that can be used."""
    try:
        cache = msgspec.json.decode(path.read_bytes(), type=Cache)
    except FileNotFoundError:
        return Cache()
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
        log.warning("%s is damaged and not used: %s", path.name, problem)
        return Cache()
    if cache.format != _FORMAT or not _sound(cache):
        log.info("%s is of another version and not used", path.name)
        return Cache(fence=cache.fence)
    if cache.parser != parser_version():
        log.info("%s is of another version: all feeds are read anew", path.name)
        entries = {key: _to_be_read(entry) for key, entry in cache.entries.items()}
        return msgspec.structs.replace(cache, entries=entries)
    return cache


def _to_be_read(entry: Entry) -> Entry:
    """The entry without what would say that its feed has not changed."""
    parsed = msgspec.structs.replace(entry.parsed, meaning="")
    return msgspec.structs.replace(entry, parsed=parsed, digest="", etag="", modified="")


def _sound(cache: Cache) -> bool:
    """Whether every occurrence has its text."""
    return all(
        0 <= one.text < len(entry.parsed.texts)
        for entry in cache.entries.values()
        for one in entry.parsed.occurrences
    )
