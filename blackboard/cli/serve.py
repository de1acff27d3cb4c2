"""`blackboard serve`: the board in a browser."""

import asyncio
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import click

from blackboard.board import Board
from blackboard.cli.options import Chosen, cli_command
from blackboard.cli.output import emit, if_writable, note
from blackboard.cli.session import Session, interrupted_by
from blackboard.endpoint import Endpoint
from blackboard.errors import BadInput
from blackboard.runners.secrets import WEB_TOKEN

if TYPE_CHECKING:
    from starlette.types import ASGIApp

PORT = 8080
LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
"""Where this machine alone can see the pages."""
_PREFIX = re.compile(r"(/(?!\.+(/|$))[A-Za-z0-9._~-]+)+")
OPTIONS = {
    "token": WEB_TOKEN,
    "user_header": "user-header",
    "proxies": "proxy",
    "hosts": "allow-host",
}
"""The arguments of `Board.web`, as this command takes them."""


@cli_command("""\
Examples:
  blackboard serve
  blackboard serve --operator --listen 127.0.0.1:9000
  BLACKBOARD_WEB_TOKEN=$(openssl rand -hex 16) blackboard serve --listen 0.0.0.0:8080
  blackboard serve --user-header X-Forwarded-User --proxy 10.0.0.7 --prefix /board
""")
@click.option(
    "--listen", default=str(PORT), metavar="[HOST:]PORT", help=f"[127.0.0.1:{PORT}]; port 0: any."
)
@click.option(
    "--operator",
    is_flag=True,
    help="Let visitors run, pause, cancel, edit, rename and remove items.",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Answer requests for this host name.",
)
@click.option(
    "--user-header",
    metavar="NAME",
    help="The header in which a proxy sends the name of the visitor.",
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Accept that header from this address or network alone.",
)
@click.option(
    "--prefix",
    default="",
    metavar="PATH",
    help="The path below which a reverse proxy shows the pages, as in /board.",
)
def serve_command(
    *,
    chosen: Chosen,
    listen: str,
    operator: bool,
    hosts: tuple[str, ...],
    user_header: str | None,
    proxies: tuple[str, ...],
    prefix: str,
) -> int:
    """Show the board in a browser, live: items, runs, a timeline, failures, workers.

    It is read-only without --operator. On this machine's own address (127.0.0.1) a visitor need not
    sign in; on any other a visitor needs the token in BLACKBOARD_WEB_TOKEN, or a proxy that signs
    people in and names them in --user-header. Ctrl-C ends it.
    """
    endpoint = Endpoint.parse(listen, "listen")
    token = os.environ.pop(WEB_TOKEN, "")
    check_open(endpoint.host, token=token, user_header=user_header or "")
    session = Session.start(chosen).with_defaults(changes=True)
    begun = False

    def serves(url: str) -> None:
        nonlocal begun
        begun = True
        _print(url, as_json=chosen.json)

    async def work() -> None:
        async with session.board() as table:
            try:
                pages = Board(table, session).web(
                    operator=operator,
                    token=token,
                    user_header=user_header or "",
                    proxies=proxies,
                    hosts=(*hosts, *_own_names(endpoint.host)),
                )
            except BadInput as bad:
                raise BadInput(OPTIONS.get(bad.field, bad.field), bad.problem, bad.remedy) from None
            try:
                check_prefix(prefix, pages.addresses)
                await serve(pages, endpoint, prefix=prefix, serves=serves)
            finally:
                await pages.close()

    with interrupted_by(signal.SIGTERM):
        try:
            asyncio.run(work())
        except KeyboardInterrupt:
            if not begun:
                raise
    return 0


def _print(url: str, *, as_json: bool) -> None:
    with if_writable(sys.stdout):
        if as_json:
            emit({"url": url}, in_a_line=True)
        else:
            click.echo(url)
    if not as_json:
        with if_writable(sys.stderr):
            note("Ctrl-C ends it")


def check_prefix(prefix: str, addresses: Collection[str]) -> None:
    """Raises BadInput for what is not a path of an address, as a browser sends it, and for one of
    the pages' own: below it the server could not tell whether a proxy has removed the prefix.
    """
    if prefix and not _PREFIX.fullmatch(prefix):
        raise BadInput("prefix", f"{prefix!r} is not a path", "as in /board or /ops/board")
    first = "/".join(prefix.split("/")[:2])
    if first in addresses:
        raise BadInput("prefix", f"{first} is an address of the pages", "another path")


def check_open(host: str, *, token: str, user_header: str) -> None:
    """Raises BadInput where other hosts could see the pages without signing in."""
    if host in LOOPBACK_HOSTS or token or user_header:
        return
    remedy = f"set {WEB_TOKEN}, or name a proxy that signs people in: --user-header, --proxy"
    raise BadInput("listen", f"on {host} others could see the board", remedy)


def _own_names(host: str) -> tuple[str, ...]:
    """The names of this machine, under which the pages are served anyhow. Under an address they are
    in any case, and one of IPv6 is not in a list of names.
    """
    if host in LOOPBACK_HOSTS:
        return ("localhost",)
    own = (host, socket.gethostname(), socket.getfqdn())
    return ("localhost", *(name for name in own if name.strip(".") and ":" not in name))


async def serve(
    pages: "ASGIApp", endpoint: Endpoint, *, prefix: str, serves: Callable[[str], None]
) -> None:
    """Serve pages until Ctrl-C or SIGTERM; once they are served, `serves` is called with their
    address. Raises BadInput when the address cannot be used.
    """
    try:
        from blackboard.web.server import PageServer, below  # noqa: PLC0415 - of this command alone
    except ImportError as missing:
        remedy = "pip install 'blackboard-scheduler[web]'"
        raise BadInput("web", f"the server needs {missing.name}", remedy) from None

    listeners = listeners_on(endpoint)
    url = f"http://{endpoint._replace(port=listeners[0].getsockname()[1])}{prefix}/"
    app = below(prefix, pages) if prefix else pages
    await PageServer(app, lambda: serves(url)).serve(sockets=listeners)


def listeners_on(endpoint: Endpoint) -> list[socket.socket]:
    """Sockets that listen at an endpoint. Raises BadInput when it cannot be used."""
    listeners = endpoint.listeners("listen")
    for listener in listeners:
        # Connections inherit it. Without it the second part of an answer waits 40 ms for the
        # acknowledgement of the first; asyncio sets it only where a socket names its protocol.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listeners
