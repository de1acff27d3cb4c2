"""Reads what the runs have written: files, reports, and a week in a town as people read it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from blackboard.cli.layout import fitted

_DAYS = 7
_TITLE = 34
KINDS = (
    (".ics", "the calendars, for any program that reads iCalendar"),
    (".json", "the same for programs of your own"),
    (".report.json", "how it went with each feed"),
    (".cache.json", "what the next run need not fetch or read again"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The files in a folder of calendars that end so, and their bytes together."""

    ending: str
    about: str
    number: int
    size: int


def files_in(folder: Path) -> list[Files]:
    """The files that the towns' runs have written, by kind."""
    there = [one for one in sorted(folder.iterdir()) if not one.name.startswith(".")]
    found = []
    for ending, about in KINDS:
        mine = [one for one in there if _kind(one) == ending]
        size = sum(one.stat().st_size for one in mine)
        found.append(Files(ending=ending, about=about, number=len(mine), size=size))
    return found


def _kind(file: Path) -> str:
    return file.name[file.name.index(".") :]


def failed_feeds(report: Path) -> Iterator[tuple[str, str]]:
    """Name and trouble of each feed that a run could not use."""
    for feed in msgspec.json.decode(report.read_bytes())["feeds"]:
        if feed["status"] == "failed":
            yield feed["name"], feed["error"]


def week_in(events: Path, *, today: date) -> list[str]:
    """A town's events of the coming days, a line each: in its own time, with all their sources."""
    told = msgspec.json.decode(events.read_bytes())["events"]
    last = today + timedelta(days=_DAYS)
    return [_line(one) for one in told if today <= _day(one["start"]) < last]


def _day(moment: str) -> date:
    return date.fromisoformat(moment[:10])


def _line(event: dict[str, Any]) -> str:
    times = "all day" if event["all_day"] else f"{_time(event['start'])}-{_time(event['end'])}"
    title = fitted(event["title"], _TITLE)
    return f"{_day(event['start']):%a %d %b}  {times:11}  {title}  {', '.join(event['sources'])}"


def _time(moment: str) -> str:
    return f"{datetime.fromisoformat(moment):%H:%M}"
