"""What is asked of Azure tables: the store's own counters against the emulator's log."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from time import monotonic, sleep

import pytest

from benchmarks.boards import new_board
from blackboard.bench import worker_on
from blackboard.clock import SystemClock
from blackboard.events import BoardEvent, Walked
from blackboard.model import Outcome
from blackboard.stores import open_table
from blackboard.table import Requests, Table
from blackboard.tables import azurite
from blackboard.tables.azurite import Emulator
from blackboard.worker import membership
from blackboard.worker.worker import Mode
from tests.support.patience import patience
from tests.support.workers import IN_BULK, PATIENCE, SINGLY


class Logged:
    """An emulator and what it says it was asked for."""

    def __init__(self, emulator: Emulator, log: Path) -> None:
        self.emulator = emulator
        self._log = log

    def requests(self, *, at_least: int = 0) -> Requests:
        """Waits for so many of them: the emulator writes a line a moment after it has answered."""
        until = monotonic() + PATIENCE
        while (found := self._read()).total < at_least and monotonic() < until:
            sleep(0.01)
        return found

    def _read(self) -> Requests:
        lines = re.findall(r'"([A-Z]+) /devstoreaccount1/(\S*) HTTP', self._log.read_text())
        kinds = Counter(
            "commits" if path == "$batch" else "pages" if method == "GET" else "others"
            for method, path in lines
        )
        return Requests(**kinds)


@pytest.fixture
def logged(azurite: Emulator, tmp_path: Path) -> Iterator[Logged]:
    """One of its own, which writes a log."""
    with azurite_with(tmp_path / "log") as emulator:
        yield Logged(emulator, tmp_path / "log")


def azurite_with(log: Path) -> Emulator:
    return azurite.start(log=log)


async def opened(logged: Logged) -> Table:
    return await open_table(logged.emulator.url, SystemClock(), create=True)


@pytest.mark.parametrize(
    ("items", "slots", "most"), [(40, 1, SINGLY), (1_000, 200, IN_BULK)], ids=["singly", "in bulk"]
)
def test_what_a_run_costs(
    logged: Logged, items: int, slots: int, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "ANNOUNCE_SOON", ())  # as many, however long it takes

    async def story() -> None:
        table = await opened(logged)
        board = await new_board(table, items, item_type="bench-coroutine")
        before = replace(table.requests)
        assert logged.requests(at_least=before.total) == before
        await worker_on(board, slots=slots).work(Mode.UNTIL_IDLE)
        spent = table.requests.since(before)
        await table.close()
        assert logged.requests(at_least=table.requests.total) == table.requests
        assert spent.total / items <= most

    asyncio.run(story())


def test_what_nothing_to_do_costs(logged: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    """One page a shard and cycle, whatever the number of items; and to be seen once a minute."""
    monkeypatch.setattr(membership, "ANNOUNCE_SOON", ())

    async def story() -> None:
        table = await opened(logged)
        board = await new_board(table, 100, item_type="bench-coroutine")
        await worker_on(board, slots=100).work(Mode.UNTIL_IDLE)
        worker = worker_on(board, slots=100, cycle=timedelta(seconds=0.2))
        walked: list[Walked] = []
        enough = asyncio.Event()

        def count(event: BoardEvent) -> None:
            if isinstance(event, Walked):
                walked.append(event)
                if len(walked) == 12:
                    enough.set()

        worker.events.subscribe(count)
        working = asyncio.create_task(worker.work(Mode.FOREVER))
        await asyncio.wait_for(enough.wait(), patience(60))
        before = replace(table.requests)
        asked = [event.requests for event in walked[2:]]
        assert asked == [{"commits": 0, "pages": 1, "others": 0, "total": 1}] * len(asked)
        worker.stop()
        await working
        outcomes = {item.outcome async for item in board.items()}
        await table.close()
        assert outcomes == {Outcome.OK}
        assert table.requests.since(before).commits == 1, "its membership ends"
        assert logged.requests(at_least=table.requests.total) == table.requests

    asyncio.run(story())
