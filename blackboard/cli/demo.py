"""`blackboard demo`: watch workers share the items of a board, in a minute."""

import asyncio
import os
import sys
import tempfile
import webbrowser
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from blackboard.cli.options import Chosen, bare_command, program
from blackboard.cli.output import colour, is_terminal, note, writable
from blackboard.cli.session import completed
from blackboard.clock import SystemChance, SystemClock
from blackboard.display.layout import texts_of
from blackboard.errors import BadInput
from blackboard.stores import open_table, resolve_path
from blackboard.tables.memory import MemoryTable

if TYPE_CHECKING:
    from blackboard.demo.board import DemoFolder


DRAWN = 2
"""Which pause `--svg` draws, counted from 0: the lock of a killed worker has gone stale."""
NEEDED = ("httpx2", "icalendar")


@bare_command("""\
Examples:
  blackboard demo
  blackboard demo >story.txt
  blackboard demo --store azurite:
  blackboard demo --svg demo.svg
  blackboard demo --sharing
  blackboard demo --web
""")
@click.option("--store", metavar="URL", help="The store of the board [a file of its own].")
@click.option(
    "--svg",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Also write a picture of the board at the moment when a lock goes stale.",
)
@click.option("--sharing", is_flag=True, help="Watch workers share partitions instead.")
@click.option("--web", is_flag=True, help="With the board in a browser beside it, until Ctrl-C.")
@click.pass_obj
def demo_command(
    chosen: Chosen | None, *, store: str | None, svg: Path | None, sharing: bool, web: bool
) -> int:
    """Watch two workers aggregate the calendars of sixteen towns, and what happens when one of
    them is killed. With --sharing: three workers share twelve partitions, one joins, one is killed,
    one leaves.

    It takes less than a minute and no network. All files are in a temporary folder, which is kept.
    In a store that --store names it makes a board of its own, which is kept as well;
    BLACKBOARD_STORE is ignored.
    """
    if chosen is not None and chosen.json:
        raise BadInput("json", "the demo is a story for people", "leave it out")
    if sharing and web:
        raise BadInput("web", "the page is of the other demo", "leave out --sharing")
    missing = [name for name in NEEDED if find_spec(name) is None and not sharing]
    if missing:
        problem = f"the calendars need {', '.join(missing)}"
        raise BadInput("demo", problem, "pip install 'blackboard-scheduler[calendars]'")
    if svg is not None:
        with writable(svg, "svg"):
            svg.open("a").close()
    try:
        where = store if store is not None or chosen is None else chosen.store
        picture = completed(_demo(where, sharing=sharing, web=web))
    except KeyboardInterrupt:
        raise click.Abort from None
    if svg is not None:
        svg.write_text(picture, encoding="utf-8")
    return 0


async def _demo(store: str | None, *, sharing: bool, web: bool) -> str:
    """The picture of the board at the drawn pause, as SVG."""
    from blackboard.cli.render import svg_of  # noqa: PLC0415 - rich is slow to load
    from blackboard.demo import sharing as shared  # noqa: PLC0415
    from blackboard.demo import story  # noqa: PLC0415
    from blackboard.demo.output import Output, TerminalOutput  # noqa: PLC0415 - after the check

    play = shared.play if sharing else partial(story.play, served=_served if web else None)
    place = await _place(store)
    live = is_terminal() and os.environ.get("TERM", "dumb") != "dumb"
    output = TerminalOutput(sys.stdout, colour=colour()) if live else Output(sys.stdout)
    try:
        await play(output, place, clock=SystemClock(), program=program())
    finally:
        output.close()
    title = "./bb demo --sharing" if sharing else "./bb demo"
    return svg_of(texts_of(output.pictures[DRAWN], colour=True), title=title)


async def _served(url: str, at_end: bool) -> None:  # noqa: FBT001 - as it is called
    """Print the page's address, and open it if there is a screen; at the end, wait for Ctrl-C."""
    if at_end:
        note(f"{url} goes on until Ctrl-C")
        await asyncio.Event().wait()
    note(f"the board in a browser: {url}")
    if sys.platform == "darwin" or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        await asyncio.to_thread(webbrowser.open, url)


async def _place(store: str | None) -> "DemoFolder":
    """An empty folder and an empty board, in `store` if it is given and can be used."""
    from blackboard.demo.board import DemoFolder  # noqa: PLC0415 - see above

    if store is None:
        return DemoFolder(_folder())
    store = resolve_path(store, Path.cwd())
    table = await open_table(store, SystemClock(), create=True)
    await table.close()
    if isinstance(table, MemoryTable):
        problem = "workers are other processes, and cannot read a store in memory"
        raise BadInput("store", problem, "a path, or azurite:")
    return DemoFolder(_folder(), store, f"demo{SystemChance().nonce()[:8]}")


def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="bb-demo-")).resolve()
