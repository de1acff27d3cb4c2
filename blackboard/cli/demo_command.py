"""`blackboard demo`: sixteen towns, two workers, a kill."""

import asyncio
import os
import signal
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from blackboard.cli import terminal
from blackboard.cli.options import Chosen
from blackboard.cli.session import run
from blackboard.clock import SystemChance, SystemClock
from blackboard.errors import BadInput
from blackboard.stores import open_table, resolve_path
from blackboard.tables.memory import MemoryTable

if TYPE_CHECKING:
    from blackboard.demo.place import Place

EPILOG = """\b
Examples:
  blackboard demo
  blackboard demo >story.txt
  blackboard demo --store azurite:
  blackboard demo --svg demo.svg
"""
DRAWN_ACT = 4
"""The lock of a killed worker goes stale."""
NEEDED = ("httpx2", "icalendar", "recurring_ical_events")


@click.command(epilog=EPILOG)
@click.option("--store", metavar="URL", help="Where the board is to be [a file of its own].")
@click.option(
    "--svg",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Also write a picture of the board at the moment when a lock goes stale.",
)
@click.pass_obj
def command(chosen: Chosen | None, *, store: str | None, svg: Path | None) -> int:
    """Watch two workers aggregate the calendars of sixteen towns, and what happens when one of
    them is killed.

    It takes less than a minute and no network. Everything is in a temporary folder, which is kept.
    In a store that you name it makes a board of its own, which is kept as well; BLACKBOARD_STORE is
    left alone.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        problem = f"the calendars need {', '.join(missing)}"
        raise BadInput("demo", problem, "pip install 'blackboard-scheduler[calendars]'")
    try:
        picture = run(_demo(store if store is not None or chosen is None else chosen.store))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise click.Abort from None
    if svg is not None:
        svg.write_text(picture, encoding="utf-8")
    return 0


async def _demo(store: str | None) -> str:
    """The picture of the board at the drawn act, as SVG."""
    from blackboard.cli.render import svg_of  # noqa: PLC0415 - rich is slow to load
    from blackboard.demo.stage import Drawing, Paper, Screen  # noqa: PLC0415 - after the check
    from blackboard.demo.story import play  # noqa: PLC0415

    _end_when_told()
    place = await _place(store)
    live = terminal.is_terminal() and os.environ.get("TERM", "dumb") != "dumb"
    told = Screen(sys.stdout, colour=terminal.colour()) if live else Paper(sys.stdout)
    stage = Drawing(told, act=DRAWN_ACT)
    program = os.environ.get("BLACKBOARD_PROG", "blackboard")
    try:
        await play(stage, place, clock=SystemClock(), program=program)
    finally:
        stage.close()
    return svg_of(stage.picture, title="./bb demo")


async def _place(store: str | None) -> "Place":
    """An empty folder and an empty board, in `store` if it is told and can be used."""
    from blackboard.demo.place import Place  # noqa: PLC0415 - see above

    if store is None:
        return Place(_folder())
    store = resolve_path(store, Path.cwd())
    table = await open_table(store, SystemClock(), create=True)
    await table.close()
    if isinstance(table, MemoryTable):
        problem = "no worker sees what is in the memory of another process"
        raise BadInput("store", problem, "a path, or azurite:")
    return Place(_folder(), store, f"demo{SystemChance().nonce()[:8]}")


def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="bb-demo-")).resolve()


def _end_when_told() -> None:
    """A terminal that is closed, or a kill, ends the demo as Ctrl-C does: with all its workers."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
