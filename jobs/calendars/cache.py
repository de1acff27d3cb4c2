"""The caches of a city: the events of its last run, and the fetches that cities share.

**Events.** Of each feed the file holds its validators, digests and expanded events, and its history
of failures. A feed's events are expanded for more days than were asked for, so that the windows of
the next days are covered: a feed that does not change is parsed again only when the window has
moved beyond, about once a month when each run starts today. One that has more events than it may is
parsed again for each window: the first ones are others then. The window alone decides which events
are shown, so a calendar made from the cache is the same as one made without it. The file is JSON,
never a pickle. A damaged one, or one of another format, counts as empty. Events of another version
of the parser serve only where a feed fails.

**Fetches.** They are in the folder that the cities write to, for as long as their server calls them
fresh. A city uses the same fetch once: when it runs again it asks again, so a repaired feed shows
at once. Cities that want the same feed at the same time wait for the first of them. All of this is
best effort: a fetch that cannot be read or written here is made again.
"""

import contextlib
import hashlib
import logging
import os
import secrets
import stat
from datetime import datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from blackboard import BadInput
from blackboard.clock import Clock, SystemClock
from blackboard.named_files import bytes_of

from .records import PARSER, Parsed, Window
from .responses import Body, Fetched

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
    """The history of a feed."""

    events: int | None = None
    """Its events in the window of the last run; None before its first."""
    good: datetime | None = None
    """When it last succeeded."""
    failures: int = 0
    """Runs in a row in which it failed."""
    gone: int = 0
    """Runs in a row in which its server said that there is no such feed."""
    until: datetime | None = None
    """The earliest time at which its server wants the next request."""
    name: str = ""
    """The name that the calendar gives itself."""


class Level(msgspec.Struct, frozen=True):
    """How many events the city usually has, and since when it has too few, if it has."""

    events: int = 0
    lost_since: datetime | None = None
    params: str = ""
    """A digest of the params for which it has so many."""


class Cache(msgspec.Struct, frozen=True):
    """All of a city's feeds, by `key_of` their address."""

    fence: int = 0
    parser: str = ""
    format: int = _FORMAT
    entries: dict[str, Entry] = {}
    pasts: dict[str, Past] = {}
    level: Level = Level()

    def usable(self, key: str, window: Window) -> Entry | None:
        """The entry of a feed, if it has all events of the window."""
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
    """A digest of an address, which may hold secrets."""
    return hashlib.sha256(address.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def parser_version() -> str:
    """Changes when the same bytes might give other events."""
    return ", ".join([str(PARSER), *map(_release, ("python-dateutil", "icalendar", "tzdata"))])


def _release(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return package


def load_cache(path: Path, log: logging.Logger) -> Cache:
    """The cache in a file; an empty one when there is none, or it is damaged or of another version.
    Raises BadInput when it cannot be read: it may have the only events of a feed that fails.
    """
    try:
        cache = msgspec.json.decode(bytes_of(path), type=Cache)
    except FileNotFoundError:
        return Cache()
    except OSError as problem:
        raise BadInput("params.out", f"{path}: {problem.strerror or problem}") from problem
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
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
    """The entry without validators and digests, so that its feed is read again."""
    parsed = msgspec.structs.replace(entry.parsed, meaning="")
    return msgspec.structs.replace(entry, parsed=parsed, digest="", etag="", modified="")


def _sound(cache: Cache) -> bool:
    """Whether every occurrence has its text."""
    return all(
        0 <= one.text < len(entry.parsed.texts)
        for entry in cache.entries.values()
        for one in entry.parsed.occurrences
    )


FOLDER = ".fetched"
_PAUSE = 0.1
_KEPT = timedelta(hours=2)
"""Older files are deleted: no fetch is fresh for so long, and no run takes so long."""


class _Head(msgspec.Struct):
    """The head of a stored fetch. `users` are the cities that have used it."""

    at: datetime
    fresh: float
    users: list[str]
    etag: str = ""
    modified: str = ""
    charset: str = ""
    body: str = ""
    """The name of the file with its bytes; "" when the server said that nothing changed."""


class FetchCache:
    """The fetches of a folder, as one city sees them. Without a folder there are none."""

    def __init__(
        self, folder: Path | None = None, user: str = "", *, clock: Clock | None = None
    ) -> None:
        self.folder = folder
        self._user = user
        self._clock = clock or SystemClock()

    def tidied(self) -> "FetchCache":
        """This cache without outdated files; one without a folder if the folder cannot be used, or
        is another user's, or a link: what it leads to is not ours to read, or to delete.
        """
        if self.folder is None:
            return self
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            status = self.folder.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                return FetchCache(clock=self._clock)
            oldest = (self._clock.now() - _KEPT).timestamp()
            for path in self.folder.iterdir():
                with contextlib.suppress(FileNotFoundError):  # other cities remove theirs
                    if path.lstat().st_mtime < oldest:
                        path.unlink()
        except OSError:
            return FetchCache(clock=self._clock)
        return self

    async def taken(self, key: str, conditions: dict[str, str], wait: float) -> Fetched | None:
        """A fetch of another city that this one has not used, if it is fresh. Waits up to
        `wait` seconds while another city fetches it.
        """
        if self.folder is None:
            return None
        waited = 0.0
        while waited < wait and self._under_way(key, wait):
            await self._clock.sleep(_PAUSE)
            waited += _PAUSE
        return self._usable(key, conditions.get("If-None-Match", ""))

    def begin(self, key: str) -> bool:
        """Makes others wait for this fetch. Returns whether `end` is to be called."""
        if self.folder is None:
            return False
        with contextlib.suppress(OSError):
            self._write(self._path(key, ".lock"), self._user.encode("utf-8", "surrogatepass"))
            return True
        return False

    def end(self, key: str) -> None:
        with contextlib.suppress(OSError):
            self._path(key, ".lock").unlink(missing_ok=True)

    def put(self, key: str, fetched: Fetched) -> None:
        """Stores what was fetched, for other cities."""
        of_use = fetched.content is not None or fetched.etag
        if self.folder is None or fetched.fresh <= 0 or not of_use:
            return
        head = _Head(
            at=self._clock.now(),
            fresh=fetched.fresh,
            users=[self._user],
            etag=fetched.etag,
            modified=fetched.modified,
            charset=fetched.charset,
        )
        with contextlib.suppress(OSError):
            if fetched.content is not None:
                head.body = f"{key_of(key)}.{secrets.token_hex(6)}.kept"
                self._write(self.folder / head.body, fetched.content.read())
            self._write_head(key, head)

    def _under_way(self, key: str, longest: float) -> bool:
        """Whether another city fetches it just now. One that died is not waited for for long."""
        path = self._path(key, ".lock")
        try:
            begun = path.stat().st_mtime
            mine = path.read_bytes() == self._user.encode("utf-8", "surrogatepass")
        except OSError:
            return False
        return not mine and abs(self._clock.now().timestamp() - begun) < longest

    def _usable(self, key: str, etag: str) -> Fetched | None:
        assert self.folder is not None
        content = Body(self.folder)
        try:
            head = msgspec.json.decode(self._path(key, ".json").read_bytes(), type=_Head)
            age = (self._clock.now() - head.at).total_seconds()
            if not 0 <= age < head.fresh or self._user in head.users:
                return None
            if head.body:
                content.write((self.folder / head.body).read_bytes())
            elif not etag or etag != head.etag:
                return None
            head.users.append(self._user)
            self._write_head(key, head)
        except (OSError, ValueError, RecursionError):
            content.close()
            return None
        return Fetched(
            content=content if head.body else None,
            etag=head.etag,
            modified=head.modified,
            charset=head.charset,
            way=None,
        )

    def _write_head(self, key: str, head: _Head) -> None:
        self._write(self._path(key, ".json"), msgspec.json.encode(head))

    def _write(self, path: Path, content: bytes) -> None:
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(6)}.tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as sink:
                sink.write(content)
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def _path(self, key: str, ending: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{key_of(key)}{ending}"
