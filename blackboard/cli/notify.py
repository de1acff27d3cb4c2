"""`blackboard notify --test`: whether notices arrive."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from functools import partial

import click

from blackboard.cli.options import Chosen, cli_command
from blackboard.cli.output import JSON, emit, wrapped
from blackboard.cli.session import Session
from blackboard.clock import SystemClock
from blackboard.display.escaping import shown
from blackboard.errors import BadInput
from blackboard.notify.channels import NoticeChannel, dead_man_of, routes_of
from blackboard.notify.exchange import NotSent
from blackboard.notify.notices import Composer


@cli_command("""\
Examples:
  blackboard notify --test
  blackboard notify --test --json
""")
@click.option("--test", is_flag=True, help="Send a test notice through every channel of [notify].")
def notify_command(*, chosen: Chosen, test: bool) -> int:
    """Send a test notice through every channel of [notify] and its routes, and request the dead-man
    address.

    `${NAME}` is taken from the environment of this command, as a worker takes it from its own.
    Exit 1 when one of them was not sent. Of addresses only the host is shown.
    """
    if not test:
        raise click.UsageError("Say --test to send a test notice.")
    session = Session.start(chosen)
    tried = asyncio.run(_tried(session))
    if chosen.json:
        emit(tried)
    else:
        width = 1 + max((len(answer["channel"]) for answer in tried), default=0)
        for answer in tried:
            outcome = "sent" if answer["sent"] else answer["problem"]
            words = f"{shown(answer['to'])}  {shown(outcome)}"
            click.echo(wrapped(words, first=f"{answer['channel']:<{width}}"))
    return 0 if all(answer["sent"] for answer in tried) else 1


async def _tried(session: Session) -> list[JSON]:
    """A record for each channel: where a test notice goes, whether it was sent, and the problem."""
    table = session.settings.notify
    if table is None:
        raise BadInput(
            "notify", "there is nowhere to send notices", "add a table [notify] to blackboard.toml"
        )
    composer = Composer(board=session.name, worker=socket.gethostname())
    payload = composer.test(at=SystemClock().now())
    channels = [channel for route in routes_of(table, os.environ) for channel in route.channels]
    sending: list[tuple[NoticeChannel, Callable[[], Awaitable[None]]]]
    sending = [(channel, partial(channel.send, payload)) for channel in channels]
    dead_man = dead_man_of(table, os.environ)
    if dead_man is not None:
        sending.append((dead_man, dead_man.ping))
    tried = []
    for channel, send in sending:
        problem: str | None = None
        try:
            await send()
        except NotSent as trouble:
            problem = str(trouble)
        record = {"channel": channel.name, "to": channel.where(), "sent": problem is None}
        tried.append({**record, "problem": problem})
    return tried
