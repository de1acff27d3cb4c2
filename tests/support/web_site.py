"""Requesting and reading the pages of a board in tests, without a browser."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, TypeVar

from httpx2 import ASGITransport, AsyncClient, Response
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Message

from blackboard.board import Board
from blackboard.location import Location
from blackboard.protocol.board_table import BoardTable
from blackboard.settings import Settings
from blackboard.spec import Spec
from blackboard.tables.memory import Contents, MemoryTable
from blackboard.web.access import REFUSAL_PAUSE
from blackboard.web.server import below
from tests.support.boards import Scene, make_board
from tests.support.clocks import ManualClock
from tests.support.faults import FaultyTable
from tests.support.patience import patience

T = TypeVar("T")
LOCAL = "http://127.0.0.1"
PATHS = (
    "/",
    "/item",
    "/run",
    "/runs",
    "/timeline",
    "/failures",
    "/workers",
    "/leases",
    "/leaders",
    "/health",
    "/report",
    "/actions",
)
HERE = ("127.0.0.1", 50_000)
PATIENCE = patience(20.0)
"""Seconds to wait for a condition before a test fails."""


class PageClock(ManualClock):
    """A clock on which the pause after a refusal takes no time, and is counted."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = 0

    async def sleep(self, seconds: float) -> None:
        if seconds == REFUSAL_PAUSE:
            self.refused += 1
        else:
            await super().sleep(seconds)


def door(board: BoardTable) -> Board:
    """The board as a program has it."""
    location = Location(
        settings=Settings(),
        folder=Path(),
        store="memory:",
        name=board.name,
        clock=board.clock,
    )
    return Board(board, location)


@dataclass(frozen=True, kw_only=True)
class WebSite:
    """A board in memory and its pages."""

    app: ASGIApp
    client: TestClient
    board: BoardTable
    clock: PageClock

    @property
    def scene(self) -> Scene:
        """The same board as a scene, for the steps of workers."""
        faulty = FaultyTable(self.board.table)
        return Scene(table=faulty, clock=self.clock, board=self.board, other=self.board)

    def do(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine function in the event loop of the pages."""
        portal = self.client.portal
        assert portal is not None
        found: T = portal.call(work)
        return found

    def add(self, *ids: str, item_type: str = "feed", **said: Any) -> None:
        """Adds items, which run every hour by default."""
        from blackboard.protocol.additions import New, add

        async def work() -> None:
            for one in ids:
                await add(
                    self.board,
                    New(
                        id=one,
                        type=item_type,
                        spec=Spec(**said or {"every": "1h"}),
                    ),
                )

        self.do(work)
        self.clock.advance(2)

    def get(self, path: str, **headers: str) -> Response:
        return self.client.get(path, headers=named(headers), follow_redirects=False)

    def post(self, path: str, fields: Any, **headers: str) -> Response:
        return self.client.post(path, data=fields, headers=named(headers), follow_redirects=False)

    def visitor(self) -> AsyncClient:
        """The visitor in the event loop of the pages, for requests at the same time."""
        cookie = "; ".join(f"{name}={value}" for name, value in self.client.cookies.items())
        transport = ASGITransport(app=self.app)
        return AsyncClient(transport=transport, base_url=LOCAL, headers={"cookie": cookie})

    def csrf(self, path: str = "/") -> str:
        """The CSRF token in the last form of a page."""
        return forms_of(self.get(path).text)[-1]["csrf"]


def named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


@contextmanager
def served(
    *,
    mounted: str = "",
    prefix: str = "",
    base: str = LOCAL,
    client: tuple[str, int] = HERE,
    **about: Any,
) -> Iterator[WebSite]:
    """The pages of a new board; `mounted`: below this path of another application, `prefix`: below
    this one of a proxy.
    """
    clock = PageClock()
    board = asyncio.run(make_board(MemoryTable(clock, Contents()), clock))
    app: ASGIApp = door(board).web(**{"hosts": ["localhost"], **about})
    if mounted:
        app = Starlette(routes=[Mount(mounted, app)])
    if prefix:
        app = below(prefix, app)
    with TestClient(app, base_url=base, client=client) as visitor:
        yield WebSite(app=app, client=visitor, board=board, clock=clock)


# ---- the contents of a page


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.forms: list[dict[str, str]] = []
        self.fields: defaultdict[str, dict[str, str]] = defaultdict(dict)
        """The fields of a form, by its id."""
        self._form = ""
        self._area: tuple[str, str] | None = None
        """The form and the name of the text area that is being parsed."""

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attrs}
        names = ("href", "src", "action", "formaction", "hx-get", "hx-sse:connect", "data-url")
        self.addresses += [said[name] for name in names if name in said]
        if tag == "form":
            self.forms.append({})
            self._form = said.get("id", "")
        if tag not in {"input", "textarea"} or "name" not in said:
            return
        form, name, value = said.get("form", self._form), said["name"], said.get("value", "")
        sent = value.replace("\n", "\r\n" if said.get("type") == "hidden" else "")
        if self.forms:
            self.forms[-1][name] = sent
        self.fields[form][name] = sent
        self._area = (form, name) if tag == "textarea" else None

    def handle_data(self, data: str) -> None:
        if self._area is not None:
            form, name = self._area
            self.fields[form][name] += data.replace("\n", "\r\n")

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            self._area = None


def addresses_of(html: str) -> list[str]:
    """All addresses that a page refers to."""
    page = _Page()
    page.feed(html)
    return page.addresses


def forms_of(html: str) -> list[dict[str, str]]:
    """The fields of each form of a page that has any."""
    page = _Page()
    page.feed(html)
    return [one for one in page.forms if "csrf" in one]


def fields_of(html: str, form: str) -> dict[str, str]:
    """The fields that a browser sends for a form, also those outside of it that name it."""
    page = _Page()
    page.feed(html)
    return page.fields[form]


def main_of(html: str) -> str:
    """The live part of a page, line by line."""
    return html.partition('<main id="live"')[2].partition(">\n")[2].partition("</main>")[0]


# ---- streams


@dataclass(kw_only=True)
class Stream:
    """The stream of events for a live page."""

    status: int = 0
    text: str = ""
    is_over: bool = False
    """Whether the server has ended it."""

    @property
    def events(self) -> list[str]:
        """The data of each event."""
        found = [one.split("\n") for one in self.text.split("\n\n")[:-1]]
        return [
            "\n".join(line.removeprefix("data: ") for line in lines if line.startswith("data: "))
            for lines in found
            if lines[0].startswith("id: ")
        ]

    async def until(self, holds: Callable[["Stream"], bool]) -> None:
        """Wait until a condition holds for the stream."""
        async with asyncio.timeout(PATIENCE):
            while not holds(self):  # noqa: ASYNC110 - what is sent is looked at, not signalled
                await asyncio.sleep(0.002)


@asynccontextmanager
async def streamed(
    app: ASGIApp, path: str, query: str = "", *, cookie: str = "", seen: str = ""
) -> AsyncIterator[Stream]:
    """The stream of a live page, as for a browser, for the length of a `with`; `seen` is the id of
    the last event of an earlier one.
    """
    found, left = Stream(), asyncio.Event()
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [
            (b"host", b"127.0.0.1"),
            (b"cookie", cookie.encode()),
            (b"last-event-id", seen.encode()),
        ],
        "client": HERE,
        "server": ("127.0.0.1", 80),
    }

    async def receive() -> Message:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            found.status = message["status"]
        else:
            found.text += message.get("body", b"").decode()
            found.is_over = not message.get("more_body", False)

    async def answered() -> None:
        await app(scope, receive, send)

    task = asyncio.create_task(answered())
    try:
        yield found
    finally:
        left.set()
        await task
