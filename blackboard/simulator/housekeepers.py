"""The housekeeping of a world: two processes delete expired rows, at the same time.

A coordinator that stood still, and was replaced meanwhile, may send one more request. Here two of
them never stop, and pause before a request now and then, for up to a minute.
"""

from contextlib import suppress
from datetime import timedelta

from blackboard.protocol.reading import BoardTable, Resolve
from blackboard.protocol.retention import Retention, prune_unreleased
from blackboard.rules.applied import REMEMBERED
from blackboard.simulator.processes import Process
from blackboard.simulator.store import StoreClient
from blackboard.table import TableError

HOUSEKEEPERS = ("house-1", "house-2")
RETENTION = Retention(tombstones=REMEMBERED)
LONGEST_PAUSE = 60.0
"""Seconds of a pause before a request, at most; half of the pauses are shorter than one."""


class Housekeeper:
    """One process that deletes expired rows."""

    def __init__(
        self, process: Process, client: StoreClient, *, name: str, shards: int, resolve: Resolve
    ) -> None:
        self.process = process
        self._board = BoardTable(
            client,
            name=name,
            shards=shards,
            clock=process.clock,
            chance=process.chance,
            resolve=resolve,
        )

    def start(self, *, every: timedelta) -> None:
        self.process.loop.enter()
        self.process.loop.spawn(self._work(every.total_seconds()))

    async def _work(self, every: float) -> None:
        while True:
            await self._board.clock.sleep(every)
            with suppress(TableError):
                await prune_unreleased(self._board, retention=RETENTION, pause=self._pause)

    async def _pause(self) -> None:
        await self._board.clock.sleep(LONGEST_PAUSE * self._board.chance.fraction() ** 6)
