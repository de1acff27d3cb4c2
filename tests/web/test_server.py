"""How pages are served: by `blackboard serve`, and by the server of another application."""

import re
import signal
import socket
from http.client import HTTPConnection
from pathlib import Path

import pytest

from blackboard import open_blocking
from blackboard.cli.serve import listener_on
from tests.support.processes import eventually, site

pytestmark = pytest.mark.of_sqlite("what a server does with connections")

SERVE = ("-m", "blackboard", "serve", "--listen", "127.0.0.1:0")
MOUNTED = """
import socket
from contextlib import asynccontextmanager

import blackboard
import uvicorn
from starlette.applications import Starlette

listener = socket.create_server(("127.0.0.1", 0))

@asynccontextmanager
async def lifespan(app):
    async with blackboard.open("blackboard.db") as board:
        app.mount("/jobs", board.web())
        print(f"http://127.0.0.1:{listener.getsockname()[1]}/jobs", flush=True)
        yield

uvicorn.Server(uvicorn.Config(Starlette(lifespan=lifespan))).run(sockets=[listener])
"""


@pytest.mark.parametrize(
    ("program", "number", "code"),
    [
        (SERVE, signal.SIGINT, 0),
        (SERVE, signal.SIGTERM, 0),
        (("-c", MOUNTED), signal.SIGTERM, -signal.SIGTERM),  # as uvicorn does
    ],
)
def test_a_server_ends_while_a_page_is_looked_at(
    tmp_path: Path, program: tuple[str, ...], number: signal.Signals, code: int
) -> None:
    with open_blocking(tmp_path / "blackboard.db", create=True):
        pass
    with site(tmp_path, str(tmp_path / "blackboard.db")) as place:
        server = place.start(program=program)
        url = re.compile(r"http://([\w.:]+)(\S*?)/?\s")
        host, root = eventually(lambda: url.findall(server.text), "the pages are served")[0]
        viewer = HTTPConnection(host)
        viewer.request("GET", f"{root}/live/board")
        page = viewer.getresponse()
        assert page.read1()
        server.send(number)
        page.read()  # raises where it is cut off
        viewer.close()
        assert server.ended() == code
        assert "Traceback" not in server.text


def test_a_small_answer_does_not_wait_for_an_acknowledgement() -> None:
    with (
        listener_on("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
