"""Shorthand for the tests of the calendars job."""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Self
from unittest import mock

import icalendar
import msgspec

from blackboard.handlers.params import described
from jobs.calendars import harvest
from jobs.calendars.addresses import policy
from jobs.calendars.aggregation import aggregate_city
from jobs.calendars.params import CalendarParams, JobSettings, RunContext, city_of
from jobs.calendars.parser import parse
from jobs.calendars.records import Ask, Parsed, Window
from jobs.calendars.responses import Fetched

FEEDS = Path(__file__).parent / "feeds"
DUE = datetime(2026, 8, 21, 12, tzinfo=UTC)
LOCAL = JobSettings(policy=policy(["127.0.0.1", "file"]))


def calendar(*events: str, head: str = "") -> bytes:
    """A feed of these events, each given as its lines."""
    blocks = "".join(f"BEGIN:VEVENT\n{event.strip()}\nEND:VEVENT\n" for event in events)
    text = f"BEGIN:VCALENDAR\nVERSION:2.0\nPRODID:test\n{head}{blocks}END:VCALENDAR\n"
    return text.replace("\n", "\r\n").encode()


def event(uid: str, title: str, start: str = "20260901T180000Z", *more: str) -> str:
    return "\n".join([f"UID:{uid}", f"SUMMARY:{title}", f"DTSTART:{start}", *more])


def window(
    first: str = "2026-08-21",
    days: int = 90,
    zone: str = "America/New_York",
    *,
    private: bool = False,
) -> Window:
    return Window(date.fromisoformat(first), days, zone, private)


def read(body: bytes, **more: Any) -> Parsed:
    """A feed as the parser's process would read it, in this process."""
    return parse(body, Ask(more.pop("window", window()), **more))


def body_of(fetched: Fetched) -> bytes | None:
    return None if fetched.content is None else fetched.content.read()


def times(parsed: Parsed) -> list[tuple[str, str, str]]:
    """Title, start and end of what takes place."""
    return sorted((parsed.texts[one.text].title, one.start, one.end) for one in parsed.occurrences)


def params_of(said: Mapping[str, Any]) -> CalendarParams:
    """The params of an item as its handler gets them."""
    declared = described(CalendarParams, "calendars")
    declared.check(said)
    made: CalendarParams = declared.made(said)
    return made


class ReadingHere:
    """Reads feeds in this process, one at a time, in the place of a ParserPool: no reader has to
    start. test_parsers.py is about the readers.
    """

    def __init__(self, **_bounds: Any) -> None:
        self._turns = asyncio.Semaphore()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing was started."""

    async def parse(self, body: bytes, ask: Ask, *, begins: Callable[[], None]) -> Parsed:
        async with self._turns:
            begins()
            return msgspec.json.decode(msgspec.json.encode(parse(body, ask)), type=Parsed)


def aggregate(
    out: Path,
    feeds: Sequence[Any] | str,
    *,
    name: str = "town",
    settings: JobSettings = LOCAL,
    run: RunContext | None = None,
    first: str = "2026-08-21",
    readers: bool = False,
    **params: Any,
) -> dict[str, Any]:
    """A whole run for a town; the answer is its summary. With `readers` it starts processes that
    read the feeds, as outside of tests.
    """
    said = {"timezone": "America/New_York", "from": first, **params}
    city = city_of(name, params_of({"feeds": feeds, "out": str(out), **said}), due=DUE)
    quiet = logging.Logger("quiet")  # noqa: LOG001 - below no other, so it prints nothing
    quiet.addHandler(logging.NullHandler())
    usual = nullcontext() if readers else mock.patch.object(harvest, "ParserPool", ReadingHere)
    with usual:
        return asyncio.run(
            aggregate_city(city, settings=settings, run=run or RunContext(log=quiet))
        )


def report(out: Path, name: str = "town") -> dict[str, Any]:
    """The report of the last run, feeds by name."""
    return {one["name"]: one for one in whole_report(out, name)["feeds"]}


def whole_report(out: Path, name: str = "town") -> dict[str, Any]:
    told: dict[str, Any] = json.loads((out / f"{name}.report.json").read_bytes())
    return told


def events(out: Path, name: str = "town") -> list[dict[str, Any]]:
    told: dict[str, Any] = json.loads((out / f"{name}.json").read_bytes())
    found: list[dict[str, Any]] = told["events"]
    return found


def vevents(written: bytes) -> list[Any]:
    """The events of a calendar, as the icalendar package reads it."""
    return list(icalendar.Calendar.from_ical(written).walk("VEVENT"))
