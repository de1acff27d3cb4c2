"""Pages of a board with a worker, requested in this process: no socket, no server."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal
from starlette.testclient import TestClient
from starlette.types import ASGIApp

import blackboard
from blackboard import Board, Context, Item, handler
from tests.support.patience import patience

ODD = "näs/ 1?&=%2F#+"
"""An id that has to be encoded in each part of a URL."""
RAN = ("davis", "eureka")


@handler("feed", every="1h")
async def feed(item: Item, ctx: Context) -> dict[str, Any]:
    ctx.log.info("reading")
    if item.params.get("fails"):
        raise ValueError("as it was told")
    return {"found": 3}


@handler("long", every="1h", stale_after="1m")
async def long(item: Item, ctx: Context) -> str:
    ctx.progress(1, 3)
    await ctx.lost.wait()
    return "lost"


@dataclass(kw_only=True)
class PagedBoard:
    """A board that is open on the event loop of a portal."""

    board: Board
    portal: BlockingPortal

    def client(self, **access: Any) -> TestClient:
        """A client of its pages, served with `access` on the event loop of the portal; what the
        server raises is raised.
        """
        client = TestClient(self.app(**access), base_url="http://localhost")
        client.portal = self.portal
        return client

    def app(self, **access: Any) -> ASGIApp:
        return self.board.web(**access)

    def do(self, verb: Callable[..., Any], *said: Any, **named: Any) -> Any:
        """Call a coroutine function on the event loop of the portal."""
        return self.portal.call(lambda: verb(*said, **named))

    def until(self, condition: Callable[[], Any]) -> None:
        """Wait for a condition."""
        deadline = time.monotonic() + patience(30)
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.02)


@contextmanager
def paged_board(folder: Path) -> Iterator[PagedBoard]:
    """A board with items that ran, failed, wait and are paused; no worker runs."""
    with start_blocking_portal() as portal:
        opened = blackboard.open(folder / "town.db", handlers=[feed, long], create=True)
        with portal.wrap_async_context_manager(opened) as board:
            made = PagedBoard(board=board, portal=portal)
            made.do(board.add, "davis", "feed", tags=["eu"], owner="ann")
            made.do(board.add, "eureka", "feed", params={"fails": True})
            made.do(board.add, ODD, "feed", cron="0 3 * * *", description="odd")
            made.do(board.add, "harbor", "page")
            made.do(board.pause, "harbor", reason="holidays", by="ann")
            with portal.wrap_async_context_manager(board.worker()):
                made.until(lambda: all(made.do(board.item, one).stop for one in RAN))
            yield made


@contextmanager
def busy_board(folder: Path) -> Iterator[PagedBoard]:
    """The same board with a worker, and a run that does not end."""
    with paged_board(folder) as made:
        made.do(made.board.add, "endless", "long")
        worker = made.board.worker(cycle="1s", grace="1s")
        with made.portal.wrap_async_context_manager(worker):
            made.until(lambda: made.do(made.board.item, "endless").running)
            yield made
