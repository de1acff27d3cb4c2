"""The pictures of terminals in docs/, made anew: `python -m tests.support.terminal_pictures`.

Two workers work on a small board, each command is run on a terminal of its own, and what it writes
there is drawn. Process numbers, and the times of the runs, are other ones each time.
"""

import asyncio
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from blackboard.board import Board
from blackboard.cli.board_view import BoardView
from blackboard.cli.options import Chosen
from blackboard.cli.render import svg_of
from blackboard.cli.session import Session
from blackboard.display.item_queries import ItemQuery
from blackboard.display.layout import texts_of
from tests.support.processes import Site, Started, eventually, site
from tests.support.terminals import terminal

DOCS = Path(__file__).resolve().parents[2] / "docs"
COLUMNS, ROWS = 110, 60
WATCHED = 11
"""Height of the terminal on which the board is watched, in rows."""
JOBS = """
import asyncio

from blackboard import handler, pump


@handler("calendars", every="8h", retries=0, stale_after="3s")
async def calendars(item, ctx):
    await asyncio.sleep(0.1)
    if item.id == "montclair":
        raise ValueError("https://example.org/montclair.ics is no calendar")
    if item.id == "keene":
        ctx.warn("2 of 60 feeds failed")
    return {"feeds": len(item.id), "events": 31 * len(item.id)}


@handler("report", cron="30 6 * * mon-fri", first="now")
async def report(item, ctx):
    ctx.progress(40, 100)
    await asyncio.sleep(3600)


@pump("clicks", partitions=4, lease="30s")
async def clicks(partition, ctx):
    await ctx.save(1000 + int(partition.id))
    await ctx.stopping.wait(3600)
"""
SETTINGS = """
[board]
jobs = ["jobs.py"]
"""
AS_HOST = """
import socket, sys
host = sys.argv.pop(1)
socket.gethostname = lambda: host
from blackboard.cli import main
main()
"""
PICTURES: Mapping[str, tuple[str, ...]] = {
    "show": ("show",),
    "status": ("status",),
    "log": ("log",),
    "workers": ("workers",),
    "leases": ("leases", "clicks"),
}
"""Names of pictures, and the commands that they show."""
_WORKER = re.compile(r"(?<=rabbit:|badger:)\d+")


def make(folder: Path) -> list[Path]:
    """Write the pictures into a folder; their files."""
    files = []
    with TemporaryDirectory() as place, _board(Path(place)) as board:
        for name, command in PICTURES.items():
            title = " ".join(("blackboard", *command))
            files.append(folder / f"terminal-{name}.svg")
            _write(files[-1], svg_of(_written(board, *command), title=title))
        files.append(folder / "terminal-watch.svg")
        _write(files[-1], asyncio.run(_watched(board)))
    return files


def _write(file: Path, picture: str) -> None:
    file.write_text(picture.rstrip() + "\n", encoding="utf-8")


@contextmanager
def _board(folder: Path) -> Iterator[Site]:
    """A board with items in all states, and two workers at work."""
    (folder / "jobs.py").write_text(JOBS, encoding="utf-8")
    (folder / "blackboard.toml").write_text(SETTINGS, encoding="utf-8")
    with site(folder, "blackboard.db") as board:
        for line in (
            ("init",),
            ("add", "davis", "keene", "montclair", "salem", "--type", "calendars"),
            ("add", "westlafcals", "--type", "calendars"),
            ("add", "nightly-report", "--type", "report"),
            ("pause", "westlafcals", "--reason", "the feeds are being moved"),
        ):
            assert board.start(*line).ended() == 0
        rabbit = _worker(board, "rabbit")
        eventually(lambda: len(_ends(rabbit)) == 4, "the calendars are read")
        assert board.start("run", "montclair", "davis").ended() == 0
        eventually(lambda: len(_ends(rabbit)) == 6, "two of them are read again")
        _worker(board, "badger")
        shared = "4 of 4 partitions held by 2 workers"
        eventually(lambda: shared in _written(board, "leases", "clicks"), "two share them")
        eventually(lambda: "40%" in _written(board, "show"), "the report goes on")
        yield board


def _ends(worker: Started) -> list[str]:
    """The calendars that a worker has read."""
    ends = [one for one in worker.events if one["event"] == "ended"]
    return [one["item"] for one in ends if one["type"] == "calendars"]


def _worker(board: Site, host: str) -> Started:
    """A worker on a host of this name."""
    command = ("worker", "--cycle", "1s")
    started = board.start(*command, program=("-c", AS_HOST, host))
    return board.works(started)


def _written(board: Site, *command: str) -> str:
    """What a command writes on a terminal."""
    with terminal(*command, folder=board.folder, size=(ROWS, COLUMNS)) as screen:
        screen.end()
    lines = _of_any_time(screen.all).replace("\r", "").splitlines()
    return "\n".join(lines)


def _of_any_time(text: str) -> str:
    """A text with process numbers of the same length."""
    return _WORKER.sub(lambda number: "7301264"[: len(number[0])], text)


async def _watched(board: Site) -> str:
    """The screen of `show --watch`, with an item chosen."""
    session = Session.start(
        Chosen(store=str(board.folder / board.store), config=str(board.folder / "blackboard.toml"))
    )
    async with session.board() as table:
        view = BoardView(table, Board(table, session), ItemQuery())
        view.draw(COLUMNS, WATCHED)
        await view.read()
        for key in ("j", "j", "p", *"the feed is gone"):
            view.press(key)
        lines = view.draw(COLUMNS, WATCHED)
        texts = [[(_of_any_time(text), style) for text, style in line] for line in lines]
    return svg_of(texts_of(texts, colour=True), title="blackboard show --watch")


if __name__ == "__main__":
    for made in make(DOCS):
        sys.stdout.write(f"{made.relative_to(DOCS.parent)}\n")
