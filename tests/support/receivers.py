"""Receivers of notices: a web server, and a channel that keeps notices in memory."""

import asyncio
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from blackboard.events import RunEnded
from blackboard.model import Outcome
from blackboard.notify.channels import Route
from blackboard.notify.notices import Notice, Payload
from blackboard.notify.notifier import Notifier
from blackboard.notify.settings import NoticeKind
from blackboard.protocol import keys
from blackboard.table import Row
from tests.support.clocks import START
from tests.support.turns import one_turn
from tests.support.workers import PATIENCE, WorkerScene, Workplace, until

NOTICE = Notice(
    event=NoticeKind.FAILED,
    id="davis",
    type="feed",
    fence=3,
    outcome="failed",
    error="ValueError: bad",
    due=START,
    ready=START,
    start=START + timedelta(minutes=90),
    stop=START + timedelta(minutes=91),
    attempt=1,
    failures=1,
)


@dataclass(frozen=True)
class Asked:
    """One request, as the server saw it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Listener:
    """Replies 200, or what is scripted; while there is a `hold`, requests wait until it is set."""

    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    answers: deque[int] = field(default_factory=deque)
    location: str = ""
    hold: threading.Event | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def listening() -> Iterator[Listener]:
    """A server on a port of its own, for the length of a `with`."""
    listener = Listener()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            listener.asked.append(Asked(self.command, self.path, headers, body))
            if listener.hold is not None:
                listener.hold.wait(30)
            self.send_response(listener.answers.popleft() if listener.answers else 200)
            if listener.location:
                self.send_header("Location", listener.location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Keeps tests quiet."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Logs nothing: in some tests the client closes the connection."""

    server = Server(("127.0.0.1", 0), Handler)
    listener.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield listener
    finally:
        if listener.hold is not None:
            listener.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Box:
    """A channel that raises the errors in `refusals`, and then keeps all that is sent."""

    name: str = "box"
    got: list[Payload] = field(default_factory=list)
    pings: int = 0
    refusals: deque[Exception] = field(default_factory=deque)
    asked: int = 0

    def check(self) -> None:
        """Does nothing: it needs no settings."""

    def where(self) -> str:
        return "here"

    async def send(self, payload: Payload) -> None:
        self._ask()
        self.got.append(payload)

    async def ping(self) -> None:
        self._ask()
        self.pings += 1

    def _ask(self) -> None:
        self.asked += 1
        if self.refusals:
            raise self.refusals.popleft()

    @property
    def told(self) -> list[tuple[str, str]]:
        """The event and the id of each notice, in their order."""
        return [(one["event"], one.get("id", "")) for one in self.got]


@asynccontextmanager
async def notifying(at: WorkerScene, *channels: Box, **settings: Any) -> AsyncIterator[Notifier]:
    """A notifier of a worker's events, which runs for the length of a `with`."""
    worker = at.worker
    made = Notifier(
        board=worker.board,
        events=worker.events,
        routes=[
            *settings.get("routes", ()),
            Route(match=None, channels=channels, on=settings.get("on", frozenset(NoticeKind))),
        ],
        dead_man=settings.get("dead_man"),
        late=settings.get("late", timedelta(minutes=10)),
        again=settings.get("again", timedelta(days=1)),
        at_most=settings.get("at_most", 20),
        warned_after=settings.get("warned_after", 1),
        looks=settings.get("looks", False),
    )
    worker.events.subscribe(made.on_event)
    worker.walk.overdue_after = made.overdue_after
    task = asyncio.get_running_loop().create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def notices(place: Workplace) -> list[Row]:
    """The rows of notices, but for those of recoveries."""
    partition = keys.notices_partition("town")
    rows = place.table.table.scan(partition, keys.NOTICE, keys.end_of(keys.NOTICE))
    return [row async for row in rows if not row.key.endswith(":recovered")]


async def in_states(place: Workplace, *expected: str) -> None:
    """Wait until the rows of notices are in these states."""
    found = list[str]()
    async with asyncio.timeout(PATIENCE):
        while found != sorted(expected):
            found = sorted(str(row.data["state"]) for row in await notices(place))
            await one_turn()


async def ends(
    place: Workplace, at: WorkerScene, outcome: Outcome = Outcome.OK, **said: Any
) -> None:
    """Ends the item's next run with an outcome, an hour after the last one: only then is it due,
    and no notice of that one is on its way any more.
    """
    number = sum(run.ended.done() for run in at.inline.runs["davis"])
    if number:
        place.later(hours=1)
    await at.walk()
    run = await at.run("davis", number)
    run.end(outcome, **said)
    await at.tells(RunEnded, number + 1)


async def told(box: Box, *expected: tuple[str, str]) -> None:
    """Wait until exactly these notices were sent."""
    await until(lambda: len(box.told) >= len(expected), f"{expected} is told")
    assert box.told == list(expected)
