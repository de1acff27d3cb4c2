"""`blackboard azurite`: an emulator of Azure Table Storage, on this machine."""

import json as json_text
import signal
from pathlib import Path

import click

from blackboard.cli.options import Chosen
from blackboard.cli.session import note
from blackboard.cli.text import shown
from blackboard.errors import BadInput, StoreProblem
from blackboard.tables import azurite

EPILOG = """\b
Examples:
  blackboard azurite
  blackboard azurite --port 10012 --location rows
  blackboard azurite --json
"""


@click.command(epilog=EPILOG)
@click.option(
    "--port",
    metavar="N",
    type=click.IntRange(0, 65535),
    default=10002,
    help="On 127.0.0.1; 0: any that is free [10002].",
)
@click.option("--location", metavar="FOLDER", help="Keep rows there [in memory, until it ends].")
@click.option("--log", metavar="FILE", help="Write a line for each request there.")
@click.option("--json", "as_json", is_flag=True, help="JSON, for programs: one line.")
@click.pass_obj
def command(
    chosen: Chosen | None, *, port: int, location: str | None, log: str | None, as_json: bool
) -> int:
    """Start Azurite, the emulator of Azure Table Storage, and tell its store URL.

    It runs until Ctrl-C or SIGTERM. The first time it is installed, from the registry that npm is
    set up for. Rows that are kept are saved when it ends.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    if log is not None:
        _check_writable(Path(log))
    folder = None if location is None else Path(location)
    file = None if log is None else Path(log)
    with azurite.start(port=port, folder=folder, log=file, progress=note) as emulator:
        try:
            if as_json or (chosen is not None and chosen.json):
                record = {"store": emulator.url, "port": emulator.port, "location": location}
                click.echo(json_text.dumps(record, ensure_ascii=False))
            else:
                click.echo(_told(emulator.url, location))
            said = emulator.wait()
        except KeyboardInterrupt:
            return 0
    raise StoreProblem(f"Azurite has ended; it said:\n{said}")


def _check_writable(file: Path) -> None:
    """Raises BadInput when nothing can be written there."""
    try:
        file.open("a").close()
    except OSError as error:
        remedy = "name a file that can be written"
        raise BadInput("log", f"{shown(str(file))}: {error.strerror}", remedy) from None


def _told(url: str, location: str | None) -> str:
    where = "in memory, until it ends" if location is None else f"kept in {shown(location)}"
    return f"""\
{url}

In another terminal:
  export BLACKBOARD_STORE={url}
  blackboard init

Rows are {where}. Ctrl-C ends it."""
