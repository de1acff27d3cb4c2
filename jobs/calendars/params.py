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
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import msgspec

from blackboard import BadInput
from blackboard.clock import Clock, SystemClock
from blackboard.inputs import check_names
from blackboard.named_files import NotAFile, regular_file
from blackboard.schedule.times import parse_duration
from blackboard.schedule.zones import find_zone

from .addresses import Policy, name_from, policy
from .records import Window
from .responses import Limits

_ADDRESS = re.compile(r"(?:https?|webcals?|file|ftp)://[^\s\"<>]+|file:/[^\s\"<>]+", re.IGNORECASE)
_NOTE = re.compile(r"[a-z][a-z0-9_-]*\s*[:=]\s")
_RULE = re.compile(r"[-=*#_~]{3,}")
_PRIMARY = re.compile(r"[\s,;|]+primary\s*[=:]\s*(?:true|yes)\s*$", re.IGNORECASE)
_AROUND = " \t|,;=:*-\u2013\u2014\"'<>()\u200b"
_BEHIND = "\"'>,;\u201c\u201d\u200b"
"""What stands behind an address, and is not of it."""
_NO_NAME = re.compile(r"\d{1,4}[.)]?|[\u201c\u201d\u201e]*")
"""Matches the number of a line, and a quote that begins with the address."""
_PAIRS = {")": "(", "]": "["}


@dataclass(frozen=True, slots=True)
class CityFeed:
    """One source of events. `url` may hold secrets; what is shown goes through `redacted`."""

    url: str
    """"": the list has no address in its place."""
    name: str
    """"", as a list is read: it gives none."""
    primary: bool = False
    """Whether its copy of an event is kept instead of those of other sources."""
    named: bool = field(default=True, compare=False)
    """Whether the list gave the name; else the calendar may name itself."""


def read_feeds(text: str) -> list[CityFeed]:
    """The feeds of a list, in its order. A line that holds no address is taken for one: whether
    it is, its fetch shows.
    """
    feeds: list[CityFeed] = []
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


def _feeds_in(line: str, above: str) -> Iterator[CityFeed]:
    """Those of a line: one, as a rule."""
    line, marks = _PRIMARY.subn("", line)
    first = _ADDRESS.search(line)
    if first is None:
        yield CityFeed(line, above, bool(marks))
        return
    before, rest = line[: first.start()], line[first.end() :]
    text, *comment = re.split(r"\s#", rest, maxsplit=1)
    others = _ADDRESS.findall(text)
    after = "" if others or not text.strip(_AROUND) else rest
    name = _bare(before) or _bare(after)
    name = name or _name_in("".join(comment).strip(), above) or above
    for one in (first[0], *others):
        yield CityFeed(_without_end(one), name, bool(marks))


def _bare(text: str) -> str:
    """A name without what surrounds it, such as the brackets of Markdown; "" where it is none."""
    text = text.strip(_AROUND).removesuffix("[").strip(_AROUND)
    if _NO_NAME.fullmatch(text):
        return ""
    return text[1:-1] if text[:1] == "[" and text.find("]") == len(text) - 1 else text


def _without_end(address: str) -> str:
    """An address without the signs behind it, and without a bracket that was opened before it."""
    address = address.rstrip(_BEHIND)
    for last, first in _PAIRS.items():
        if address.endswith(last) and address.count(last) > address.count(first):
            bare = address.rstrip(last + _BEHIND)
            return bare + last * (bare.count(first) - bare.count(last))
    return address


_MOST_FEEDS = 2_000
_LONGEST_LIST = 4_000_000
_EARLIEST, _LATEST = 1900, 2200


class CalendarParams(msgspec.Struct, frozen=True, kw_only=True):
    """The params of an item. Raises BadInput naming the one that cannot be used."""

    feeds: list[Any] | str | None = None
    """Addresses, or tables with url, name and primary; or the text of a list."""
    feeds_file: str | None = None
    """The path of such a list, which each run reads."""
    timezone: str | None = None
    days: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 90
    first: date | None = msgspec.field(name="from", default=None)
    private: bool = False
    out: str = "out"

    def __post_init__(self) -> None:
        if self.feeds is None and self.feeds_file is None:
            remedy = "addresses, or the text of a list; or the path of one as feeds_file"
            raise BadInput("params.feeds", "is missing", remedy)
        if self.feeds is not None and self.feeds_file is not None:
            raise BadInput("params.feeds_file", "stands beside feeds", "leave one")
        if self.timezone is not None:
            _check_zone(self.timezone)
        if self.first is not None and not _EARLIEST <= self.first.year <= _LATEST:
            problem = f"{self.first} is out of range"
            raise BadInput("params.from", problem, f"{_EARLIEST} to {_LATEST}")
        if not self.out.strip() or "\0" in self.out:
            raise BadInput("params.out", f"{self.out!r} is not a folder", "a path like out/cities")


def _check_zone(name: str) -> None:
    try:
        find_zone(name)
    except BadInput as problem:
        raise BadInput("params.timezone", problem.problem, problem.remedy) from None


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
    params: CalendarParams,
    *,
    due: datetime,
    zone: str = "UTC",
    allowed: Policy | None = None,
) -> City:
    """Reads the file of an item's list, where that is `allowed`. `from` is by default the day of
    `due` in the city's zone, so that a retry asks for the same days. `zone` is the item's own, for
    when `timezone` is not given.

    Raises BadInput naming the parameter. One feed that cannot be used is no reason: see `CityFeed`.
    """
    named = params.timezone or zone
    first = params.first or due.astimezone(ZoneInfo(named)).date()
    window = Window(first, params.days, named, params.private)
    feeds = _feeds(params, allowed or Policy())
    return City(id=item_id, feeds=feeds, window=window, out=Path(params.out).expanduser())


def _feeds(params: CalendarParams, allowed: Policy) -> tuple[CityFeed, ...]:
    if params.feeds_file is not None:
        listed = _in_file(params.feeds_file, allowed)
    elif isinstance(params.feeds, str):
        listed = read_feeds(params.feeds)
    else:
        listed = [_listed(entry) for entry in params.feeds or ()]
    if not listed:
        raise BadInput("params.feeds", "has no feed in it", "one address or more")
    if len(listed) > _MOST_FEEDS:
        raise BadInput("params.feeds", f"{len(listed)} feeds are too many", f"{_MOST_FEEDS:,}")
    names = (one.name or name_from(one.url) or f"feed {n}" for n, one in enumerate(listed, 1))
    return tuple(
        replace(one, name=name, named=bool(one.name))
        for one, name in zip(listed, names, strict=True)
    )


def _in_file(given: str, allowed: Policy) -> list[CityFeed]:
    """The feeds of a list that is a file. Of a line without an address nothing is shown: the file
    may be something else.
    """
    field_name = "params.feeds_file"
    if not allowed.files:
        raise BadInput(field_name, "files are not allowed", 'allow = ["file"] in [jobs.calendars]')
    try:
        with TextIOWrapper(regular_file(Path(given).expanduser()), "utf-8", "replace") as file:
            text = file.read(_LONGEST_LIST + 1)
    except (FileNotFoundError, NotADirectoryError, NotAFile):
        raise BadInput(field_name, f"{given!r} is not a file") from None
    except (OSError, ValueError, RuntimeError) as problem:
        raise BadInput(field_name, f"{given!r} cannot be read: {problem}") from None
    if len(text) > _LONGEST_LIST:
        long = f"{given!r} has more than {_LONGEST_LIST:,} characters"
        raise BadInput(field_name, long, f"a list of {_MOST_FEEDS:,} feeds at the most")
    return [one if _ADDRESS.match(one.url) else CityFeed("", "") for one in read_feeds(text)]


def _listed(entry: Any) -> CityFeed:
    """An entry of a list. One that is not an address gets "", and the others are fetched."""
    table = entry if isinstance(entry, Mapping) else {"url": entry}
    url, name, primary = table.get("url"), table.get("name"), table.get("primary", False)
    if not isinstance(primary, bool):
        raise BadInput("params.feeds", f"primary: {primary!r} is neither true nor false")
    return CityFeed(
        url.strip() if isinstance(url, str) else "",
        " ".join(name.split()) if isinstance(name, str) else "",
        primary,
    )


MEMORY = 512 * 1024 * 1024
LEAST = 128 * 1024 * 1024
_SIZE = re.compile(r"\s*([0-9]{1,9})\s*([kmg])i?b?\s*", re.IGNORECASE)


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
    """Seconds of processor time for one feed, after which its reader is killed."""
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
        parts = _SIZE.fullmatch(value)
        size = int(parts[1]) * 1024 ** (1 + "kmg".index(parts[2].lower())) if parts else None
    if not isinstance(size, int) or isinstance(size, bool):
        raise BadInput(field_name, f"{value!r} is not a size", 'such as "512MiB"')
    if size < LEAST:
        raise BadInput(field_name, f"{value!r} is too little for a reader", "128MiB or more")
    return size
