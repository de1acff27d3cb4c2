"""`blackboard notify --test`: see whether notices arrive."""

import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import click

from blackboard.cli.options import Chosen, common
from blackboard.cli.session import Session, emit, run
from blackboard.cli.text import shown
from blackboard.clock import SystemClock
from blackboard.errors import BadInput

EPILOG = """\b
Examples:
  blackboard notify --test
  blackboard notify --test --json
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One way, and what became of a test notice there."""

    way: str
    to: str
    sent: bool
    problem: str = ""


@click.command(epilog=EPILOG)
@click.option("--test", is_flag=True, help="Send a test notice in every way of [notify].")
@common()
def command(*, chosen: Chosen, test: bool) -> int:
    """Send a test notice in every way that [notify] names, and ask for the dead-man address.

    `${NAME}` is taken from the environment of this command, as a worker takes it from its own.
    Exit 1 when one of them was not sent. Of addresses only the host is shown.
    """
    if not test:
        raise click.UsageError("Say --test to send a test notice.")
    session = Session.start(chosen)
    tried = run(_tried(session))
    if chosen.json:
        emit([asdict(one) for one in tried])
    else:
        for one in tried:
            told = "sent" if one.sent else one.problem
            click.echo(f"{one.way:<9}{shown(one.to)}  {shown(told)}")
    return 0 if all(one.sent for one in tried) else 1


async def _tried(session: Session) -> Sequence[Tried]:
    from blackboard.notify.notices import Teller  # noqa: PLC0415 - help does without
    from blackboard.notify.ways import NotSent, Way, dead_man_of, ways_of  # noqa: PLC0415

    table = session.settings.notify
    if table is None:
        raise BadInput("notify", "nobody is to be told", "add a table [notify] to blackboard.toml")
    teller = Teller(board=session.name, worker=socket.gethostname())
    payload = teller.test(at=SystemClock().now())
    sending: list[tuple[Way, Callable[[], Awaitable[None]]]]
    sending = [(way, partial(way.send, payload)) for way in ways_of(table, os.environ)]
    dead_man = dead_man_of(table, os.environ)
    if dead_man is not None:
        sending.append((dead_man, dead_man.ping))
    tried = []
    for way, send in sending:
        try:
            await send()
        except NotSent as trouble:
            tried.append(Tried(way=way.name, to=way.where(), sent=False, problem=str(trouble)))
        else:
            tried.append(Tried(way=way.name, to=way.where(), sent=True))
    return tried
