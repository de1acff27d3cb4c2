"""What an item of type `calendars` asks for, checked."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from blackboard import BadInput

from .feedlist import Listed, read_feeds
from .locate import name_from
from .records import Window

_KNOWN = frozenset({"feeds", "timezone", "days", "from", "out", "private"})
_MOST_DAYS = 1_000
_MOST_FEEDS = 2_000
_EARLIEST, _LATEST = 1900, 2200
_NO_ADDRESS = 'not a feed: an address is missing, or {"url": ..., "name": ...}'


@dataclass(frozen=True, slots=True)
class Feed:
    """One source of events. `url` may hold secrets; what is shown goes through `shown`."""

    url: str
    name: str
    unusable: str = ""
    """Why there is nothing to fetch, when the list has no address in its place."""
    named: bool = field(default=True, compare=False)
    """Whether the list gave the name; else the calendar may name itself."""
    primary: bool = False
    """Of two copies of an event, that of a primary source is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class City:
    """A place, its feeds in the order that decides which of two equal events is kept, the days
    asked for, and the folder for what comes of them.
    """

    id: str
    feeds: tuple[Feed, ...]
    window: Window
    out: Path


def city_of(
    item_id: str,
    params: Mapping[str, Any],
    *,
    due: datetime,
    zone: str = "UTC",
    log: logging.Logger | None = None,
) -> City:
    """Reads an item's params. `from` is by default the day of `due` in the city's zone, so that
    a retry asks for the same days. `zone` is the item's own, for when `timezone` is not given.

    Raises BadInput naming the parameter. One feed that cannot be used is no reason: see `Feed`.
    """
    for name in sorted(set(params) - _KNOWN):
        if log is not None:
            log.warning("the parameter %r means nothing to calendars", name)
    named = _zone(params.get("timezone", zone))
    first = _first(params.get("from"), due.astimezone(ZoneInfo(named)).date())
    if not _EARLIEST <= first.year <= _LATEST:
        raise BadInput("params.from", f"{first} is out of range", f"{_EARLIEST} to {_LATEST}")
    private = _switch("params.private", params.get("private", False))
    window = Window(first, _days(params.get("days", 90)), named, private)
    return City(id=item_id, feeds=_feeds(params), window=window, out=_out(params.get("out", "out")))


def _zone(name: Any) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, TypeError, OSError):
        raise BadInput(
            "params.timezone", f"{name!r} is no time zone", "an IANA name like Europe/Paris"
        ) from None
    return str(name)


def _days(value: Any) -> int:
    number = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= _MOST_DAYS:
        raise BadInput("params.days", f"{value!r} is not a number of days", f"1 to {_MOST_DAYS}")
    return number


def _first(value: Any, today: date) -> date:
    if value is None or value in {"", "today"}:
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
    """What `--set NAME=true` says is text."""
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


def _feeds(params: Mapping[str, Any]) -> tuple[Feed, ...]:
    given = params.get("feeds")
    if isinstance(given, str):
        listed = read_feeds(given)
    elif isinstance(given, list | tuple):
        listed = [_listed(entry) for entry in given]
    else:
        raise BadInput("params.feeds", "is missing or no list", "addresses, or the text of a list")
    if not listed:
        raise BadInput("params.feeds", "has no feed in it", "one address or more")
    if len(listed) > _MOST_FEEDS:
        raise BadInput("params.feeds", f"{len(listed)} feeds are too many", f"{_MOST_FEEDS:,}")
    return tuple(_feed(one, number) for number, one in enumerate(listed, start=1))


def _listed(entry: Any) -> Listed:
    """What is no address has the address "": the others of its list are fetched all the same."""
    said = entry if isinstance(entry, Mapping) else {"url": entry}
    url, name = said.get("url"), said.get("name")
    return Listed(
        url.strip() if isinstance(url, str) else "",
        " ".join(name.split()) if isinstance(name, str) else "",
        _switch("params.feeds", said.get("primary", False)),
    )


def _feed(listed: Listed, number: int) -> Feed:
    """`number` is its place in the list, for when nothing else names it."""
    place = f"feed {number}"
    if not listed.url:
        return Feed("", listed.name or place, unusable=_NO_ADDRESS)
    name = listed.name or name_from(listed.url) or place
    return Feed(listed.url, name, named=bool(listed.name), primary=listed.primary)
