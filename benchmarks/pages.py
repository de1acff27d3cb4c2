"""The board in a browser: how long a page takes, and what viewers cost a worker.

python -m benchmarks.pages      in two minutes
"""

import json
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

from benchmarks.fleet import together
from benchmarks.growth import FEW, MANY, board_in
from benchmarks.measure import BLACKBOARD, report, seconds
from blackboard.bench import Measurement

VIEWERS = 10
ROUNDS = 5
TIMES = 21
PATIENCE = 120.0
PAGES = {  # with a number that is another one each time
    "the board": "/",
    "the board, searched": "/?q={:04}",
    "the board, overdue": "/?state=overdue",
    "the board, sorted, another page": "/?sort=stop&order=desc&page={}",
    "an item": "/item?id=town-{:06}",
    "the timeline": "/timeline",
    "health": "/health",
}


def measured() -> Iterator[Measurement]:
    yield _watched_worker()
    few, many = _pages(FEW), _pages(MANY)
    for name, taken in many.items():
        yield Measurement(
            name=f"{name}, {MANY:,} items",
            value=1000 * taken,
            unit="ms",
            beside=1000 * few[name],
            reference=f"{FEW:,} items",
        )


# ---- a worker whose board is watched


def _watched_worker() -> Measurement:
    """A worker works off a board, in turn watched and not."""
    alone, watched = [], []
    for _ in range(ROUNDS):
        alone.append(together(1).rate)
        watched.append(together(1, beside=_watched).rate)
    return Measurement(
        name=f"a worker, {VIEWERS} viewers",
        value=median(watched),
        unit="runs/s",
        beside=median(alone),
        reference="no pages",
    )


@contextmanager
def _watched(folder: Path) -> Iterator[None]:
    """Viewers look at the board as long as the block takes."""
    with _served(folder) as address:
        viewers = [_Viewer(address) for _ in range(VIEWERS)]
        yield
    assert all(viewer.events() for viewer in viewers), "each viewer was sent the board"


class _Viewer:
    """A browser that shows the board: it keeps the stream of the page open."""

    def __init__(self, address: str) -> None:
        self._connection = HTTPConnection(address, timeout=PATIENCE)
        self._connection.request("GET", "/live/board")
        self._answer = self._connection.getresponse()
        assert self._answer.status == 200, self._answer.status
        self._events = 0
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        for line in self._answer:
            self._events += line.startswith(b"id:")

    def events(self) -> int:
        """How many have come, once the server has ended."""
        self._thread.join()
        return self._events


# ---- how long a page takes


def _pages(items: int) -> dict[str, float]:
    """Seconds from the request to the whole page."""
    with tempfile.TemporaryDirectory() as name, _served(board_in(Path(name), items)) as address:
        connection = HTTPConnection(address, timeout=PATIENCE)
        return {
            page: median(
                seconds(partial(_get, connection, path.format(number)))
                for number in range(1, TIMES + 1)
            )
            for page, path in PAGES.items()
        }


def _get(connection: HTTPConnection, path: str) -> bytes:
    connection.request("GET", path)
    answer = connection.getresponse()
    assert answer.status == 200, f"{path}: {answer.status}"
    return answer.read()


@contextmanager
def _served(folder: Path) -> Iterator[str]:
    """HOST:PORT of `blackboard serve` on the board of a folder."""
    command = [*BLACKBOARD, "serve", "--listen", "0", "--json"]
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE)  # noqa: S603 - our own
    assert server.stdout is not None
    try:
        yield urlsplit(json.loads(server.stdout.readline())["url"]).netloc
    finally:
        server.terminate()
        server.communicate()


if __name__ == "__main__":
    report(measured())
