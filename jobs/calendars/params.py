"""What an item of type `calendars` asks for, checked; and the settings and context of its run.

**A list of feeds as text** has one feed a line: an address, or a name and an address in either
order, and `primary = true` after them where its copy of an event is preferred to those of others.
Several addresses on a line are a feed each. A comment right above a feed, or after it, is its name,
unless it is a note (`# cmd: ...`), a heading (`# --- Live feeds ---`) or an address that was
commented out. A name does not reach over blank lines and headings.
"""

import logging
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from blackboard import BadInput
from blackboard.clock import Clock, SystemClock
from blackboard.inputs import check_names, number_of
from blackboard.schedule.times import parse_duration

from .addresses import Policy, name_from, policy
from .records import Window
from .responses import Limits

_ADDRESS = re.compile(r"(?:https?|webcals?|file|ftp)://\S+|file:/\S+", re.IGNORECASE)
_NOTE = re.compile(r"[a-z][a-z0-9_-]*\s*[:=]\s")
_RULE = re.compile(r"[-=*#_~]{3,}")
_PRIMARY = re.compile(r"[\s,;|]+primary\s*[=:]\s*(?:true|yes)\s*$", re.IGNORECASE)
_AROUND = " \t|,;=:\u2013\u2014\"'<>()"


@dataclass(frozen=True, slots=True)
class Listed:
    """A feed's address, and the name that the list gives it, or ""."""

    url: str
    name: str
    primary: bool = False


def read_feeds(text: str) -> list[Listed]:
    """The feeds of a list, in its order. A line that holds no address is taken for one: whether
    it is, its fetch shows.
    """
    feeds: list[Listed] = []
    name = ""
    for raw in text.removeprefix("\ufeff").splitlines():
        line = raw.strip()
        if line.startswith(("#", "//")):
            name = _name_in(line.lstrip("#/").strip(), name)
        elif line:
            feeds += _feeds_in(line, name)
            name = ""
        else:
            name = ""
    return feeds


def _name_in(comment: str, before: str) -> str:
    if not comment or _RULE.match(comment) or _RULE.search(comment[-3:]):
        return ""
    if _NOTE.match(comment) or _ADDRESS.search(comment):
        return before
    return comment


def _feeds_in(line: str, above: str) -> Iterator[Listed]:
    """Those of a line: one, as a rule."""
    line, marks = _PRIMARY.subn("", line)
    first = _ADDRESS.search(line)
    if first is None:
        yield Listed(line, above, bool(marks))
        return
    before, rest = line[: first.start()], line[first.end() :]
    text, *comment = re.split(r"\s#", rest, maxsplit=1)
    others = _ADDRESS.findall(text)
    after = "" if others or not text.strip(_AROUND) else rest
    name = before.strip(_AROUND) or after.strip(_AROUND)
    name = name or _name_in("".join(comment).strip(), above) or above
    for one in (first[0], *others):
        yield Listed(one.rstrip("\"'>,;"), name, bool(marks))


_TAKEN = ("feeds", "feeds_file", "timezone", "days", "from", "private", "out")
_MOST_DAYS = 1_000
_MOST_FEEDS = 2_000
_LONGEST_LIST = 4_000_000
_EARLIEST, _LATEST = 1900, 2200
_NO_ADDRESS = 'not a feed: an address is missing, or {"url": ..., "name": ...}'


@dataclass(frozen=True, slots=True)
class CityFeed:
    """One source of events. `url` may hold secrets; what is shown goes through `shown`."""

    url: str
    name: str
    unusable: str = ""
    """Why there is nothing to fetch, when the list has no address in its place."""
    named: bool = field(default=True, compare=False)
    """Whether the list gave the name; else the calendar may name itself."""
    primary: bool = False
    """Whether its copy of an event is kept instead of those of other sources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class City:
    """A place, its feeds in the order that decides which of two equal events is kept, the days
    asked for, and the folder for what comes of them.
    """

    id: str
    feeds: tuple[CityFeed, ...]
    window: Window
    out: Path


def city_of(
    item_id: str,
    params: Mapping[str, Any],
    *,
    due: datetime,
    zone: str = "UTC",
    allowed: Policy | None = None,
) -> City:
    """Reads an item's params, and the file of its list where that is `allowed`. `from` is by
    default the day of `due` in the city's zone, so that a retry asks for the same days. `zone` is
    the item's own, for when `timezone` is not given.

    Raises BadInput naming the parameter. One feed that cannot be used is no reason: see `CityFeed`.
    """
    check_names(params, _TAKEN, of="calendars", where="params.")
    named = _zone(params.get("timezone", zone))
    first = _first(params.get("from"), due.astimezone(ZoneInfo(named)).date())
    if not _EARLIEST <= first.year <= _LATEST:
        raise BadInput("params.from", f"{first} is out of range", f"{_EARLIEST} to {_LATEST}")
    private = _switch("params.private", params.get("private", False))
    window = Window(first, _days(params.get("days", 90)), named, private)
    feeds = _feeds(params, allowed or Policy())
    return City(id=item_id, feeds=feeds, window=window, out=_out(params.get("out", "out")))


def _zone(name: Any) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, TypeError, OSError):
        raise BadInput(
            "params.timezone", f"{name!r} is no time zone", "an IANA name like Europe/Paris"
        ) from None
    return str(name)


def _days(value: Any) -> int:
    number = number_of(value.strip()) if isinstance(value, str) else value
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= _MOST_DAYS:
        raise BadInput("params.days", f"{value!r} is not a number of days", f"1 to {_MOST_DAYS}")
    return number


def _first(value: Any, today: date) -> date:
    if value in (None, "", "today"):
        return today
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        raise BadInput("params.from", f"{value!r} is no day", "like 2026-08-21, or today") from None


def _switch(where: str, value: Any) -> bool:
    """True or false, also as text: "true", "no". Raises BadInput."""
    said = value.strip().lower() if isinstance(value, str) else value
    if said in (True, "true", "yes"):
        return True
    if said in (False, "false", "no"):
        return False
    raise BadInput(where, f"{value!r} is neither true nor false")


def _out(value: Any) -> Path:
    if not isinstance(value, str | Path) or not str(value).strip() or "\0" in str(value):
        raise BadInput("params.out", f"{value!r} is no folder", "a path like out/cities")
    return Path(value).expanduser()


def _feeds(params: Mapping[str, Any], allowed: Policy) -> tuple[CityFeed, ...]:
    given = params.get("feeds")
    if given is not None and "feeds_file" in params:
        raise BadInput("params.feeds_file", "stands beside feeds", "leave one")
    if "feeds_file" in params:
        listed = _in_file(params["feeds_file"], allowed)
    elif isinstance(given, str):
        listed = read_feeds(given)
    elif isinstance(given, list | tuple):
        listed = [_listed(entry) for entry in given]
    else:
        remedy = "addresses, or the text of a list; or the path of one as feeds_file"
        raise BadInput("params.feeds", "is missing or no list", remedy)
    if not listed:
        raise BadInput("params.feeds", "has no feed in it", "one address or more")
    if len(listed) > _MOST_FEEDS:
        raise BadInput("params.feeds", f"{len(listed)} feeds are too many", f"{_MOST_FEEDS:,}")
    return tuple(_made_feed(one, number) for number, one in enumerate(listed, start=1))


def _in_file(given: Any, allowed: Policy) -> list[Listed]:
    """The feeds of a list that is a file. Of a line without an address nothing is shown: the file
    may be something else.
    """
    field_name = "params.feeds_file"
    if not allowed.files:
        raise BadInput(field_name, "files are not allowed", 'allow = ["file"] in [jobs.calendars]')
    try:
        path = Path(given).expanduser()
        if not path.is_file():
            raise BadInput(field_name, f"{given!r} is no file")
        with path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(_LONGEST_LIST + 1)
    except (OSError, TypeError, ValueError, RuntimeError) as problem:
        raise BadInput(field_name, f"{given!r} cannot be read: {problem}") from None
    if len(text) > _LONGEST_LIST:
        long = f"{given!r} has more than {_LONGEST_LIST:,} characters"
        raise BadInput(field_name, long, f"a list of {_MOST_FEEDS:,} feeds at the most")
    return [one if _ADDRESS.match(one.url) else Listed("", "") for one in read_feeds(text)]


def _listed(entry: Any) -> Listed:
    """An entry of a list. One that is no address gets "": the others are fetched all the same."""
    said = entry if isinstance(entry, Mapping) else {"url": entry}
    url, name = said.get("url"), said.get("name")
    return Listed(
        url.strip() if isinstance(url, str) else "",
        " ".join(name.split()) if isinstance(name, str) else "",
        _switch("params.feeds", said.get("primary", False)),
    )


def _made_feed(listed: Listed, number: int) -> CityFeed:
    """`number` is its place in the list, for when nothing else names it."""
    place = f"feed {number}"
    if not listed.url:
        return CityFeed("", listed.name or place, unusable=_NO_ADDRESS)
    name = listed.name or name_from(listed.url) or place
    return CityFeed(listed.url, name, named=bool(listed.name), primary=listed.primary)


MEMORY = 512 * 1024 * 1024
LEAST = 128 * 1024 * 1024
_SIZE = re.compile(r"\s*(\d{1,9})\s*([kmg])i?b?\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """The settings of `[jobs.calendars]`, and bounds that these do not change."""

    policy: Policy = field(default_factory=Policy)
    limits: Limits = field(default_factory=Limits)
    memory: int = MEMORY
    """Bytes that all readers of feeds may take together."""
    deadline: float = 300.0
    """Seconds for bringing in all feeds; what is not there then has failed."""
    readers: int = 2
    parse_deadline: float = 60.0
    """Seconds for one feed, after which its reader is killed."""
    places: Path | None = None
    """The folder in which runs share the places of readers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The part of the handler's context that a run uses."""

    fence: int = 0
    fenced: bool = True
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("calendars"))
    progress: Callable[[int, int], None] = lambda _done, _total: None
    warn: Callable[[str], None] = lambda _text: None
    lost: Callable[[], bool] = lambda: False
    clock: Clock = field(default_factory=SystemClock)


def job_settings(table: Mapping[str, Any]) -> JobSettings:
    """`[jobs.calendars]` checked. Raises BadInput naming the setting."""
    taken = ("allow", "memory", "deadline")
    check_names(table, taken, of="calendars", where="jobs.calendars.")
    memory = _memory(table.get("memory", MEMORY))
    deadline = parse_duration(table.get("deadline", "5m"), "jobs.calendars.deadline")
    return JobSettings(
        policy=policy(table.get("allow", [])),
        memory=memory,
        deadline=deadline.total_seconds(),
        readers=2 if memory >= 2 * LEAST else 1,
        places=Path(tempfile.gettempdir()),
    )


def _memory(value: Any) -> int:
    """Bytes, or text such as "512MiB"."""
    field_name = "jobs.calendars.memory"
    size = value
    if isinstance(value, str):
        found = _SIZE.fullmatch(value)
        size = int(found[1]) * 1024 ** (1 + "kmg".index(found[2].lower())) if found else None
    if not isinstance(size, int) or isinstance(size, bool):
        raise BadInput(field_name, f"{value!r} is no size", 'such as "512MiB"')
    if size < LEAST:
        raise BadInput(field_name, f"{value!r} is too little for a reader", "128MiB or more")
    return size
