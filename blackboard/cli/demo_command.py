"""`blackboard demo`: sixteen towns, two workers, a kill."""

import asyncio
import os
import signal
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import click

from blackboard.cli import terminal
from blackboard.cli.session import run
from blackboard.clock import SystemClock
from blackboard.errors import BadInput

EPILOG = """\b
Examples:
  blackboard demo
  blackboard demo >story.txt
"""
NEEDED = ("httpx2", "icalendar", "recurring_ical_events")


@click.command(epilog=EPILOG)
def command() -> int:
    """Watch two workers aggregate the calendars of sixteen towns, and what happens when one of
    them is killed.

    It takes less than a minute and no network. Everything is in a temporary folder, which is kept.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        problem = f"the calendars need {', '.join(missing)}"
        raise BadInput("demo", problem, "pip install 'blackboard-scheduler[calendars]'")
    try:
        run(_demo(Path(tempfile.mkdtemp(prefix="bb-demo-")).resolve()))
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise click.Abort from None
    return 0


async def _demo(folder: Path) -> None:
    from blackboard.demo.place import Place  # noqa: PLC0415 - after the check above
    from blackboard.demo.stage import Paper, Screen  # noqa: PLC0415
    from blackboard.demo.story import play  # noqa: PLC0415

    _end_when_told()
    live = terminal.is_terminal() and os.environ.get("TERM", "dumb") != "dumb"
    stage = Screen(sys.stdout, colour=terminal.colour()) if live else Paper(sys.stdout)
    program = os.environ.get("BLACKBOARD_PROG", "blackboard")
    try:
        await play(stage, Place(folder), clock=SystemClock(), program=program)
    finally:
        stage.close()


def _end_when_told() -> None:
    """A terminal that is closed, or a kill, ends the demo as Ctrl-C does: with all its workers."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
