"""The demo's folder: the settings, the board, what the towns' calendars become, the logs."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from itertools import cycle
from pathlib import Path

from blackboard.cli.toml_text import lines_of
from blackboard.demo.server import Page
from blackboard.demo.towns import TOWNS, Feed, Town, feeds_of

SLOTS = 3
"""Towns that a worker does at a time."""
_HEAD = f"""\
# The demo's board: sixteen towns, whose calendars are aggregated every eight hours.

[board]
store = "blackboard.db"
jobs = ["calendars"]

[worker]
cycle = "2s"            # a minute is usual; the demo is in a hurry
slots = {SLOTS}
grace = "1s"

[types.calendars]
every = "8h"
stale_after = "5s"      # likewise: a minute is a good value
timeout = "1m"

[jobs.calendars]
allow = ["127.0.0.1"]   # feeds on this machine are refused unless this says otherwise
"""
_QUICKEST = 1.0
_STEPS = (0.7, 0.9, 0.6, 0.8, 1.0)
"""Seconds until a town's first feed comes, and from one to the next: some towns are slower."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where everything of one demo is."""

    folder: Path

    @property
    def settings(self) -> Path:
        return self.folder / "blackboard.toml"

    @property
    def store(self) -> Path:
        return self.folder / "blackboard.db"

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def write_settings(self, *, site: str, today: date) -> None:
        """Declare the board, with feeds at `site`."""
        tables = [_HEAD, *(self._table(town, site, today) for town in TOWNS)]
        self.settings.write_text("\n".join(tables), encoding="utf-8")

    def _table(self, town: Town, site: str, today: date) -> str:
        urls = [
            {"url": site + path_of(town, feed), "name": feed.group}
            for feed in feeds_of(town, today)
        ]
        item = {"id": town.id, "type": "calendars", "timezone": town.zone}
        params = {"out": str(self.out), "feeds": urls}
        lines = ["[[items]]", *lines_of(item), "[items.params]", *lines_of(params)]
        return "\n".join(lines) + "\n"


def pages(today: date) -> dict[str, Page]:
    """What the web server hands out: every feed of every town."""
    towns = zip(TOWNS, cycle(_STEPS), strict=False)
    return dict(page for town, step in towns for page in _pages_of(town, step, today))


def _pages_of(town: Town, step: float, today: date) -> Iterator[tuple[str, Page]]:
    for number, feed in enumerate(feeds_of(town, today)):
        delay = _QUICKEST + step * number
        yield path_of(town, feed), Page(body=feed.body, kind=feed.kind, delay=delay)


def path_of(town: Town, feed: Feed) -> str:
    return f"/{town.id}/{feed.group}.ics"
