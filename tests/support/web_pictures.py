"""The pictures of the pages in docs/, made anew: `python -m tests.support.web_pictures`.

A worker runs two days of a small board, under a clock that the program advances; then two workers
in processes of their own run longer items, the pages are served, and a browser draws them.
"""

import contextlib
import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import sync_playwright

from blackboard import Context, Item, handler
from blackboard.clock import SystemClock
from blackboard.testing import BoardUnderTest, TurnedClock, _board
from tests.support.processes import Site, eventually, site
from tests.support.terminal_pictures import AS_HOST, DOCS

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SIZE = {"width": 1280, "height": 800}
OF_A_PHONE = {"width": 390, "height": 780}
WORKED = timedelta(hours=48)
TOWNS = ("brattleboro", "davis", "derry", "exeter", "keene", "montclair", "salem", "westlafcals")
FEEDS = ("arts", "council", "library", "parks", "schools", "weather")
PICTURES: Mapping[str, tuple[str, str]] = {
    "board": ("", "light"),
    "board-dark": ("?sort=next", "dark"),
    "board-phone": ("?sort=next", "dark"),
    "item": ("item?id=keene", "light"),
    "run": ("runs?outcome=failed", "light"),
    "timeline": ("timeline?hours=24", "light"),
    "failures": ("failures", "light"),
    "workers": ("workers", "dark"),
    "leases": ("leases?group=clicks", "light"),
    "leaders": ("leaders", "light"),
    "health": ("health", "light"),
    "report": ("report?id=davis", "light"),
    "actions": ("actions", "light"),
}
"""Names of pictures; the queries of the pages that they show, and the themes."""
JOBS = """
import asyncio

from blackboard import handler, pump


@handler("calendars", every="2h", stale_after="1m", description="a town's calendars in one")
async def calendars(item, ctx):
    ctx.progress(23, 60)
    await asyncio.sleep(3600)


@handler("feed", every="1h", tags=["news"])
async def feed(item, ctx):
    return {"entries": 12}


@handler("report", cron="30 6 * * mon-fri", timezone="America/New_York", owner="desk")
async def report(item, ctx):
    ctx.progress(2, 5)
    await asyncio.sleep(3600)


@handler("backup", cron="0 3 * * *", timezone="Europe/Berlin")
async def backup(item, ctx):
    return {"bytes": 1_048_576}


@pump("clicks", partitions=6, lease="30s")
async def clicks(partition, ctx):
    await ctx.save(1000 + int(partition.id))
    await ctx.stopping.wait(3600)
"""
SETTINGS = """
[board]
jobs = ["jobs.py"]
"""
REPORT = {
    "summary": {"feeds": 4, "ok": 2, "events": 412},
    "table": {
        "rows": "feeds",
        "columns": [
            {"title": "feed", "key": "name"},
            {"title": "status", "key": "status"},
            {"title": "events", "key": "events"},
            {"title": "change", "key": "change", "signed": True},
            {"title": "dropped", "key": "dropped"},
            {"title": "the server said", "key": "said"},
        ],
    },
    "feeds": [
        {"name": "arts center", "level": "bad", "status": "gone", "events": 0, "said": "410 Gone"},
        {"name": "library", "level": "late", "status": "slow", "events": 61, "change": -3,
         "dropped": 2, "said": "200 OK after 9 s"},
        {"name": "city council", "status": "ok", "events": 214, "change": 8, "said": "200 OK"},
        {"name": "farmers market", "status": "unchanged", "events": 137, "said": "304"},
    ],
}  # fmt: skip


def jobs_under(clock: TurnedClock, report: Path) -> list[Callable[..., Any]]:
    """Handlers that advance the clock instead of taking time."""
    numbers = count(1)

    def takes(seconds: float) -> int:
        number = next(numbers)
        clock.turn(timedelta(seconds=seconds * (1 + number * 7919 % 23 / 20)))
        return number

    @handler("calendars", every="2h", retries=1, backoff="3m")
    async def calendars(item: Item, ctx: Context) -> dict[str, Any]:
        turn = takes(40 + 9 * len(item.id))
        if item.id == "montclair" and turn % 3:
            raise ConnectionError("https://example.org/montclair.ics: 502 Bad Gateway")
        if item.id == "keene" and turn % 4 == 0:
            ctx.warn("2 of 60 feeds failed: library, arts center")
        return {"feeds": len(item.id), "events": 31 * len(item.id), "report": str(report)}

    @handler("feed", every="1h", tags=["news"])
    async def feed(item: Item, ctx: Context) -> dict[str, Any]:
        if takes(6) % 11 == 0:
            raise TimeoutError("https://example.org/feed.xml: no answer in 10 s")
        return {"entries": 12}

    @handler("backup", every="24h")
    async def backup(item: Item, ctx: Context) -> dict[str, Any]:
        takes(400)
        return {"bytes": 1_048_576}

    return [calendars, feed, backup]


def history(board: BoardUnderTest, clock: TurnedClock, folder: Path) -> None:
    """Runs two days of the board, up to now."""
    report = folder / "davis.report.json"
    report.write_text(json.dumps(REPORT), encoding="utf-8")
    jobs = jobs_under(clock, report)
    for one in TOWNS:
        board.add(one, "calendars", params={"feeds": f"{one}.txt", "days": 60}, tags=["town"])
    for one in FEEDS:
        board.add(one, "feed", params={"url": f"https://example.org/{one}.xml"}, tags=["news"])
    board.add("nightly-backup", "backup")
    while board.now() < SystemClock().now() - timedelta(hours=1):
        board.work(*jobs, lasting=timedelta(minutes=10))


@contextlib.contextmanager
def served(folder: Path) -> Iterator[tuple[Site, str]]:
    """A board with two days behind it, two workers at work on it, and its pages."""
    (folder / "jobs.py").write_text(JOBS, encoding="utf-8")
    (folder / "blackboard.toml").write_text(SETTINGS, encoding="utf-8")
    store = str(folder / "blackboard.db")
    clock = TurnedClock()
    clock.turn(-WORKED)
    with _board(store, clock) as board:
        history(board, clock, folder)
    with site(folder, store) as place:
        for line in (
            ("add", "morning-report", "--type", "report", "--first", "now"),
            ("pause", "westlafcals", "--reason", "the feeds are being moved"),
            ("edit", "weather", "--every", "30m"),
            ("run", "keene", "exeter", "--set", "days=90"),
        ):
            assert place.start(*line).ended() == 0
        command = ("worker", "--cycle", "1s", "--slots", "6")
        workers = [
            place.works(place.start(*command, program=("-c", AS_HOST, host)))
            for host in ("rabbit", "badger")
        ]
        eventually(lambda: place.item("keene").running, "a calendar is read")
        eventually(lambda: place.item("morning-report").running, "the report goes on")
        eventually(
            lambda: any("coordinator elected" in one.text for one in workers), "one coordinates"
        )
        pages = place.start("serve", "--operator", "--listen", "127.0.0.1:0", "--json")
        eventually(lambda: "url" in pages.text, "the pages are served")
        yield place, json.loads(pages.text.splitlines()[0])["url"]


def make(folder: Path) -> list[Path]:
    """Write the pictures into a folder; their files."""
    files = []
    with (
        TemporaryDirectory() as place,
        served(Path(place)) as (_, url),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        for name, (address, theme) in PICTURES.items():
            size = OF_A_PHONE if name.endswith("-phone") else SIZE
            context = browser.new_context(viewport=size, color_scheme=theme)  # type: ignore[arg-type]
            page = context.new_page()
            page.goto(url + address)
            page.wait_for_timeout(700)
            files.append(folder / f"web-{name}.png")
            page.screenshot(path=str(files[-1]))
            context.close()
        browser.close()
    return files


def main(folder: str = str(DOCS)) -> None:
    """Write the pictures, and say which."""
    logging.getLogger("blackboard").setLevel(logging.CRITICAL)
    for file in make(Path(folder)):
        sys.stdout.write(f"{file}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
