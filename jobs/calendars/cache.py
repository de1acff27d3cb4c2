"""What one run leaves for the next: of each feed its validators, digests and expanded events.

A feed's events are expanded for more days than were asked for, so that tomorrow's window finds
them too: a feed that does not change is parsed again only when the window has moved beyond what
was expanded, about once a month when each run starts today. Which of the events are shown is
decided by the window alone, so a calendar made from the cache is the one made without it.

The file is JSON, never a pickle. One that is damaged, or of another version, counts as none.
"""

import hashlib
import logging
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from .records import PARSER, Parsed, Window

MORE_DAYS = 31
_FORMAT = 1


class Entry(msgspec.Struct, frozen=True):
    """What is known of a feed."""

    parsed: Parsed
    window: Window
    """The days for which its events were expanded."""
    digest: str
    size: int
    etag: str = ""
    modified: str = ""


class Cache(msgspec.Struct, frozen=True):
    """All of a city's feeds, by `key_of` their address."""

    fence: int = 0
    parser: str = ""
    format: int = _FORMAT
    entries: dict[str, Entry] = {}

    def usable(self, key: str, window: Window) -> Entry | None:
        """What is known of a feed, if it holds all events of the window."""
        entry = self.entries.get(key)
        return entry if entry is not None and entry.window.covers(window) else None


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
    if cache.format != _FORMAT or cache.parser != parser_version() or not _sound(cache):
        log.info("%s is of another version and not used", path.name)
        return Cache(fence=cache.fence)
    return cache


def _sound(cache: Cache) -> bool:
    """Whether every occurrence has its text."""
    return all(
        0 <= one.text < len(entry.parsed.texts)
        for entry in cache.entries.values()
        for one in entry.parsed.occurrences
    )
