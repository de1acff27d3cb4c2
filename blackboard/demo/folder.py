"""The folder of a demo: settings, calendars, logs, and the board in a file or in another store."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from itertools import cycle
from pathlib import Path

from blackboard.assembly import DEFAULT_BOARD
from blackboard.demo.feeds import TOWNS, Feed, Page, Town, feeds_of
from blackboard.display.toml_text import lines_of

SLOTS = 3
"""Towns that a worker does at a time."""
_HEAD = """\
# The demo's board: sixteen towns, whose calendars are aggregated every eight hours.

[board]
{board}
jobs = ["calendars"]

[worker]
cycle = "2s"            # a minute is usual; a demo has to be short
slots = {slots}
grace = "1s"

[types.calendars]
every = "8h"
stale_after = "5s"      # likewise: a minute is a good value
timeout = "1m"

[jobs.calendars]
allow = ["127.0.0.1"]   # feeds on this machine are refused unless this says otherwise
"""
_FILE = "blackboard.db"
_QUICKEST = 1.0
_STEPS = (0.7, 0.9, 0.6, 0.8, 1.0)
"""Seconds until a town's first feed comes, and from one to the next: some towns are slower."""


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """The paths of one demo, and its board."""

    path: Path
    elsewhere: str = ""
    """The URL of the store of the board; "" for a file in the folder."""
    board: str = DEFAULT_BOARD
    """Its name: unique in a store that others use."""

    @property
    def settings(self) -> Path:
        return self.path / "blackboard.toml"

    @property
    def store(self) -> str:
        """What `--store` takes, in any folder."""
        return self.elsewhere or str(self.path / _FILE)

    @property
    def out(self) -> Path:
        return self.path / "out"

    def write_settings(self, *, site: str, today: date) -> None:
        """Declare the board, with feeds at `site`."""
        board = lines_of({"store": self.elsewhere or _FILE, "name": self.board})
        head = _HEAD.format(board="\n".join(board), slots=SLOTS)
        tables = [head, *(self._table(town, site, today) for town in TOWNS)]
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
