"""How pages are served: by `blackboard serve`, and by the server of another application."""

import asyncio
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from blackboard import open_blocking
from blackboard.cli.serve import listeners_on
from blackboard.endpoint import Endpoint
from blackboard.tables.memory import MemoryTable
from blackboard.web import app, live, server
from blackboard.web import site as web_site
from blackboard.web.server import PageServer, most_connections
from tests.metrics.shortage import answered_after_shortage
from tests.support.boards import make_board
from tests.support.patience import patience
from tests.support.processes import eventually, site
from tests.support.web_site import PageClock, door

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


INTERRUPTED = """
import signal, sys
from blackboard.cli import main, serve

def interrupted(where, number=int(sys.argv.pop()), listeners_on=serve.listeners_on):
    signal.raise_signal(number)
    return listeners_on(where)

serve.listeners_on = interrupted
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_server_that_is_interrupted_before_it_serves_says_so(
    tmp_path: Path, number: signal.Signals
) -> None:
    with open_blocking(tmp_path / "blackboard.db", create=True):
        pass
    with site(tmp_path, str(tmp_path / "blackboard.db")) as place:
        program = ("-c", INTERRUPTED, *SERVE[2:], str(int(number)))
        server = place.start(program=program)
        assert server.ended() == 130
        assert server.text.strip() == "blackboard: interrupted"


def test_a_small_answer_does_not_wait_for_an_acknowledgement() -> None:
    (listener,) = listeners_on(Endpoint("127.0.0.1", 0))
    with (
        listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


# ---- slow clients

LARGE = 20_000_000
"""Bytes: more than the buffers of a connection hold."""
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _page(_: Request) -> Response:
    return PlainTextResponse("ok")


async def _form(request: Request) -> Response:
    return PlainTextResponse(await request.body())


async def _large(_: Request) -> Response:
    return Response(bytes(LARGE))


async def _live(request: Request) -> Response:
    async def events() -> AsyncIterator[str]:
        yield "first"
        await request.state.over.wait()
        yield "last"

    return StreamingResponse(events())


PAGES = (
    Route("/", _page),
    Route("/form", _form, methods=["POST"]),
    Route("/large", _large),
    Route("/live", _live),
)


@dataclass
class Served:
    """Pages that are served within this process, and their clients."""

    server: PageServer
    port: int
    statuses: list[int]
    """Of all answers."""
    over: asyncio.Event
    """Ends the live page."""
    clients: list[Client] = field(default_factory=list)

    async def sends(self, text: str) -> Client:
        """A client that sends a part of a request, or one or more."""
        client = await asyncio.open_connection("127.0.0.1", self.port)
        self.clients.append(client)
        client[1].write(text.encode())
        await client[1].drain()
        return client

    async def get(self, path: str) -> bytes:
        """The answer to a whole request, with its head."""
        reader, _ = await self.sends(request(path, "Connection: close"))
        return await rest(reader)

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait for what the server does."""
        while not holds():  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0.005)


def request(path: str, *headers: str, method: str = "GET") -> str:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""])


async def rest(reader: asyncio.StreamReader) -> bytes:
    """What comes until the server closes the connection."""
    found = b""
    with suppress(ConnectionResetError):
        while part := await reader.read(100_000):
            found += part
    return found


def serving(
    story: Callable[[Served], Coroutine[Any, Any, None]],
    pages: Callable[[], Coroutine[Any, Any, ASGIApp]] | None = None,
) -> None:
    """Plays a story with a server, of `PAGES` or of other pages."""

    async def played() -> None:
        app = Starlette(routes=PAGES) if pages is None else await pages()
        begun, over, statuses = asyncio.Event(), asyncio.Event(), list[int]()

        async def noted(scope: Scope, receive: Receive, send: Send) -> None:
            scope.setdefault("state", {})["over"] = over

            async def sent(message: Message) -> None:
                if message["type"] == "http.response.start":
                    statuses.append(message["status"])
                await send(message)

            await app(scope, receive, sent)

        (listener,) = listeners_on(Endpoint("127.0.0.1", 0))
        port = listener.getsockname()[1]
        made = PageServer(noted, begun.set)
        serves = asyncio.create_task(made.serve([listener]))
        found = Served(made, port, statuses, over)
        async with asyncio.timeout(patience(60)):
            await begun.wait()
            try:
                await story(found)
            finally:
                for _, writer in found.clients:
                    writer.transport.abort()
                made.should_exit = True
                await serves

    asyncio.run(played())


async def board_pages() -> ASGIApp:
    """The pages of a new board."""
    clock = PageClock()
    return door(await make_board(MemoryTable(clock), clock)).web(operator=True)


def test_clients_that_send_half_a_request_lock_no_other_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 8)

    async def story(pages: Served) -> None:
        viewer, _ = await pages.sends(request("/live"))
        await viewer.readuntil(b"first")
        slow = [await pages.sends("GET / HTTP/1.1\r\nHost: x\r\n") for _ in range(40)]
        assert (await pages.get("/")).endswith(b"ok")
        assert [await rest(reader) for reader, _ in slow[:-6]] == [b""] * 34
        reader, writer = slow[-1]
        writer.write(b"Connection: close\r\n\r\n")
        assert (await rest(reader)).endswith(b"ok")
        assert not viewer.at_eof()

    serving(story)


def test_live_pages_lock_no_other_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 8)
    monkeypatch.setattr(live, "MOST_STREAMS", 4)

    async def story(found: Served) -> None:
        for number in range(20):
            reader, _ = await found.sends(request("/live/board", "Connection: close"))
            await reader.readuntil(b"event: server\n" if number < 4 else b"event: polled\n")
            assert number < 4 or await rest(reader)
        assert (await found.get("/healthz")).endswith(b"ok\n")
        assert b'"items":0' in await found.get("/api/v1/board")

    serving(story, board_pages)


def test_half_of_the_descriptors_are_left_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    for allowed, most in ((256, 128), (1_000_000, 1_000), (-1, 1_000)):
        monkeypatch.setattr("resource.getrlimit", lambda _, allowed=allowed: (allowed, allowed))
        assert (most_connections(), live.most_streams()) == (most, most // 2)


@pytest.mark.parametrize(
    ("text", "answered"),
    [
        ("", 0),
        ("GET / HT", 0),
        ("GET / HTTP/1.1\r\nHost: x\r\n", 0),
        (request("/form", "Content-Length: 100", method="POST") + "token=x", 0),
        (request("/live", "Content-Length: 100"), 1),
        (request("/") + "GET / HT", 1),
    ],
)
def test_a_request_that_does_not_arrive_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, text: str, answered: int
) -> None:
    monkeypatch.setattr(server, "WITHIN", 0.1)

    async def story(pages: Served) -> None:
        reader, _ = await pages.sends(text)
        assert (await rest(reader)).count(b"HTTP/1.1 200 OK\r\n") == answered

    serving(story)


def test_an_answer_that_is_read_slowly_and_a_live_page_are_not_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "WITHIN", 0.1)
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 3)

    async def story(pages: Served) -> None:
        viewer, _ = await pages.sends(request("/live", "Connection: close"))
        await viewer.readuntil(b"first")
        large, _ = await pages.sends(request("/large"))
        await large.readuntil(b"\r\n\r\n")
        for _ in range(5):
            silent, _ = await pages.sends("")
            assert await rest(silent) == b""
        assert len(await large.readexactly(LARGE)) == LARGE
        pages.over.set()
        assert b"last" in await rest(viewer)

    serving(story)


def test_a_client_that_takes_nothing_of_its_answer_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 1)
    monkeypatch.setattr(server, "STALLED", 0.0)

    async def story(pages: Served) -> None:
        large, _ = await pages.sends(request("/large"))
        await large.readuntil(b"\r\n\r\n")
        assert (await pages.get("/")).endswith(b"ok")
        assert len(await rest(large)) < LARGE

    serving(story)


def test_a_shortage_of_descriptors_is_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(pages: Served) -> None:
        asked = request("/", "Connection: close").encode()
        answer = await answered_after_shortage(monkeypatch, pages.port, asked)
        assert answer.endswith(b"ok")

    serving(story)
    [told] = caplog.records
    assert "no descriptor is left for another connection" in told.getMessage()


def test_what_clients_have_given_up_meanwhile_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_site, "READ_AT_ONCE", 1)
    read, signature = app.PAGES["workers"]
    asked, over = list[str](), asyncio.Event()

    async def slowly(site: web_site.Site, request: Request) -> Mapping[str, Any]:
        asked.append(request.url.path)
        await over.wait()
        return await read(site, request)

    monkeypatch.setitem(app.PAGES, "workers", (slowly, signature))

    async def story(found: Served) -> None:
        state = found.server.server_state
        first, _ = await found.sends(request("/workers", "Connection: close"))
        await found.until(lambda: asked)
        left = [await found.sends(request("/workers")) for _ in range(18)]
        await found.until(lambda: len(state.tasks) == 19)
        for _, writer in left:
            writer.transport.abort()
        await found.until(lambda: len(state.connections) == 1)
        last, _ = await found.sends(request("/workers", "Connection: close"))
        await found.until(lambda: len(state.tasks) == 20)
        other, _ = await found.sends(request("/api/v1/workers", "Connection: close"))
        assert (await rest(other)).startswith(b"HTTP/1.1 200"), "other pages do not wait"
        over.set()
        assert (await rest(first)).startswith(b"HTTP/1.1 200")
        assert (await rest(last)).startswith(b"HTTP/1.1 200")
        assert asked == ["/workers"] * 2
        assert sorted(found.statuses) == [200, 200, 200, *[400] * 18]

    serving(story, board_pages)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/login", "application/x-www-form-urlencoded"),
        ("/act/run", "application/x-www-form-urlencoded"),
        ("/confirm", "application/x-www-form-urlencoded"),
        ("/api/v1/run", "application/json"),
    ],
)
def test_a_client_that_hangs_up_in_its_request_is_no_fault(
    caplog: pytest.LogCaptureFixture, path: str, kind: str
) -> None:
    async def story(found: Served) -> None:
        headers = (f"Content-Type: {kind}", "Content-Length: 100")
        _, writer = await found.sends(request(path, *headers, method="POST") + "token=x")
        tasks = found.server.server_state.tasks
        await found.until(lambda: tasks)
        writer.close()
        await found.until(lambda: not tasks)
        assert found.statuses == [400]  # reaches no client

    serving(story, board_pages)
    assert caplog.records == []


def test_a_request_for_another_protocol_is_answered_as_any_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(pages: Served) -> None:
        headers = ("Connection: Upgrade, close", "Upgrade: websocket")
        reader, _ = await pages.sends(request("/", *headers))
        assert (await reader.read()).endswith(b"ok")

    serving(story)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://localhost/", 200),
        ("HTTP://localhost:80?q=a", 200),
        ("https://localhost/api/v1/items?q=a", 200),
        ("http://evil.example/", 421),
        ("http://evil.example/healthz", 200),
        ("http://localhost@evil.example/", 404),
        ("http://evil.example@localhost/", 404),
        ("http:///", 404),
        ("ftp://localhost/", 404),
        ("*", 404),
    ],
)
@pytest.mark.parametrize("header", ["localhost", "evil.example"])
def test_the_host_in_a_target_counts_and_not_that_in_the_header(
    target: str, status: int, header: str
) -> None:
    """As a proxy is asked (RFC 9112, 3.2.2). A target that names no host is refused by its path."""

    async def pages() -> ASGIApp:
        clock = PageClock()
        return door(await make_board(MemoryTable(clock), clock)).web(hosts=["localhost"])

    async def story(served: Served) -> None:
        head = f"GET {target} HTTP/1.1\r\nHost: {header}\r\nConnection: close\r\n\r\n"
        reader, _ = await served.sends(head)
        is_by_header = status == 404 and header == "evil.example"
        assert int((await rest(reader)).split()[1]) == (421 if is_by_header else status)

    serving(story, pages)


def test_what_is_no_http_is_refused_without_a_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(pages: Served) -> None:
        for sent in ("\x16\x03\x01\x02", request("/", "Content-Length: -5")):
            reader, _ = await pages.sends(sent + "\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")

    serving(story)
    assert caplog.records == []
