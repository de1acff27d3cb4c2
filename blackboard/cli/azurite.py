"""`blackboard azurite`: starts the emulator of Azure Table Storage."""

import signal
import sys
from pathlib import Path

import click

from blackboard.cli.options import Chosen, WholeNumberRange, bare_command
from blackboard.cli.output import emit, if_writable, note, writable
from blackboard.cli.session import interrupted_by
from blackboard.display.escaping import shown
from blackboard.errors import StoreProblem
from blackboard.tables import azurite


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
