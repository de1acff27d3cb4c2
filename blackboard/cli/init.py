"""The commands to begin with: `init` makes a board, `demo` plays a story on one, `azurite` starts
an emulator of Azure tables.
"""

import asyncio
import os
import signal
import sys
import tempfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from blackboard.cli.options import (
    Chosen,
    WholeNumber,
    WholeNumberRange,
    bare_command,
    cli_command,
    program,
)
from blackboard.cli.output import colour, emit, if_writable, is_terminal, note, writable
from blackboard.cli.session import Session, completed, interrupted_by
from blackboard.clock import SystemChance, SystemClock
from blackboard.display.escaping import shown
from blackboard.display.layout import texts_of
from blackboard.errors import BadInput, StoreProblem
from blackboard.location import is_there
from blackboard.phrases import plural
from blackboard.protocol.board_row import check_new
from blackboard.stores import open_table, resolve_path
from blackboard.tables import azurite
from blackboard.tables.memory import MemoryTable

if TYPE_CHECKING:
    from blackboard.demo.board import DemoFolder


@cli_command("""\
Examples:
  blackboard init
  blackboard --store /var/lib/towns.db --board towns init --shards 4
""")
@click.option(
    "--shards",
    metavar="N",
    type=WholeNumber(),
    help="Partitions, fixed for ever; more for very many runs [1].",
)
def init_command(*, chosen: Chosen, shards: int | None) -> int:
    """Make a board, in a new or an existing store. A board that exists is left as it is."""
    completed(_init(Session.start(chosen), shards))
    return 0


async def _init(session: Session, shards: int | None) -> None:
    session.check_store()
    if shards is not None:
        check_new(shards)
    async with session.table(create=True) as table:
        if shards is not None or not await is_there(table, session.name):
            board = await session.made(table, shards=1 if shards is None else shards)
        else:
            board = await session.opened(table)
    made = board.was_made_here
    record = {"store": session.store, "board": board.name, "shards": board.shards, "made": made}
    if session.chosen.json:
        emit(record)
        return
    name, place = f"the board {board.name!r}", f"in {shown(session.store)}"
    begin = f"made {name} {place}" if made else f"{name} is {place} already"
    click.echo(f"{begin}, with {plural(board.shards, 'shard')}")


@bare_command("""\
Examples:
  blackboard azurite
  blackboard azurite --port 10012 --location rows
  blackboard azurite --json
""")
@click.option(
    "--port",
    metavar="N",
    type=WholeNumberRange(0, 65535),
    default=10002,
    help="On 127.0.0.1; 0: any free one [10002].",
)
@click.option("--location", metavar="FOLDER", help="Keep rows there [in memory, until it ends].")
@click.option("--log", metavar="FILE", help="Write a line for each request there.")
@click.option("--json", "as_json", is_flag=True, help="JSON, for programs: one line.")
@click.pass_obj
def azurite_command(
    chosen: Chosen | None, *, port: int, location: str | None, log: str | None, as_json: bool
) -> int:
    """Start Azurite, the emulator of Azure Table Storage, and print its store URL.

    It runs until Ctrl-C or SIGTERM. The first time it is installed, from the registry that npm is
    configured for. With --location, rows are saved when it ends.
    """
    folder = None if location is None else Path(location)
    file = None if log is None else Path(log)
    if file is not None:
        with writable(file, "log"):
            file.open("a").close()
    with (
        interrupted_by(signal.SIGTERM, signal.SIGHUP),
        azurite.start(port=port, folder=folder, log=file, progress=note) as emulator,
    ):
        try:
            with if_writable(sys.stdout):
                if as_json or (chosen is not None and chosen.json):
                    record = {"store": emulator.url, "port": emulator.port, "location": location}
                    emit(record, in_a_line=True)
                else:
                    click.echo(_instructions(emulator.url, location))
            output = emulator.wait()
        except KeyboardInterrupt:
            return 0
    raise StoreProblem(f"Azurite has ended; it said:\n{output}")


def _instructions(url: str, location: str | None) -> str:
    where = "in memory, until it ends" if location is None else f"kept in {shown(location)}"
    return f"""\
{url}

In another terminal:
  export BLACKBOARD_STORE={url}
  blackboard init

Rows are {where}. Ctrl-C ends it."""


# ---- demo

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
        import webbrowser  # noqa: PLC0415 - of this alone

        await asyncio.to_thread(webbrowser.open, url)


async def _place(store: str | None) -> "DemoFolder":
    """An empty folder, and a board in `store` if it is given and can be used."""
    from blackboard.demo.board import DemoFolder  # noqa: PLC0415 - see above

    where: tuple[str, ...] = ()
    if store is not None:
        where = resolve_path(store, Path.cwd()), f"demo{SystemChance().nonce()[:8]}"
        table = await open_table(where[0], SystemClock(), create=True)
        await table.close()
        if isinstance(table, MemoryTable):
            problem = "workers are other processes, and cannot read a store in memory"
            raise BadInput("store", problem, "a path, or azurite:")
    return DemoFolder(_folder(), *where)


def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="bb-demo-")).resolve()
