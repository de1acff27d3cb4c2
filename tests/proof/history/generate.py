"""A history from start to end: a fresh board of a store, sixteen clients, so many operations."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from blackboard.clock import Clock
from blackboard.protocol.additions import New, add
from blackboard.protocol.board_table import BoardTable
from blackboard.spec import Spec
from blackboard.table import Table
from tests.proof.history.clients import LEASE, TYPE, Client, DoubtfulTable, Habits
from tests.proof.history.model import Operation
from tests.proof.history.recorder import Recorder
from tests.support.boards import TurningClock, settings_of
from tests.support.clocks import SeededChance
from tests.support.stores import OpenTable

CLIENTS = 16
CONNECTIONS = 4
"""To the store, each shared by a part of the clients."""
OPERATIONS = 5_000
RATE = 0.08
"""Of faults, where there are any: replies lost, batches late or never applied, a busy store."""
PACE = 0.06
"""Seconds that the clock is turned on before each turn of a client, at the most."""
OFTEN = Spec(every="1ms", stale_after=f"{LEASE:g}s", retries=10_000)
"""So that an item is always due, and is overridden however often it was before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """What kind of history it is to be."""

    seed: int
    amount: int = OPERATIONS
    faults: bool = False
    habits: Habits = field(default_factory=Habits)

    @property
    def name(self) -> str:
        """Of its board: several share a store."""
        return f"town{self.seed}"


async def make(open_table: OpenTable, making: Making) -> list[Operation]:
    """A history of clients that are tasks of this process, under a clock that they turn."""
    clock = TurningClock()
    tables = [await open_table(clock) for _ in range(CONNECTIONS)]
    recorder = Recorder(with_etags=not making.faults)
    try:
        await prepare(tables[0], clock, making)
        clients = await clients_of(tables, clock, making, recorder, numbers=range(CLIENTS))
        turned = random.Random(making.seed)
        await work(clients, making.amount, lambda: clock.advance(turned.random() * PACE))
    finally:
        for table in tables:
            await table.close()
    return recorder.operations


async def prepare(table: Table, clock: Clock, making: Making) -> None:
    """Make the board and its items."""
    board = await BoardTable.create(
        table,
        name=making.name,
        shards=1,
        clock=clock,
        chance=SeededChance(making.seed),
        resolve=settings_of,
    )
    for number in range(making.habits.keys):
        await add(board, New(id=f"item-{number}", type=TYPE, spec=OFTEN))


async def clients_of(
    tables: Sequence[Table],
    clock: Clock,
    making: Making,
    recorder: Recorder,
    *,
    numbers: Sequence[int],
) -> list[Client]:
    return [
        _client(tables[number % len(tables)], clock, making, recorder, number=number)
        for number in numbers
    ]


def _client(
    table: Table, clock: Clock, making: Making, recorder: Recorder, *, number: int
) -> Client:
    seed = making.seed * CLIENTS + number
    rate = RATE if making.faults else 0.0
    faulty = DoubtfulTable(table, chance=SeededChance(seed), rate=rate)

    def board(over: Table) -> BoardTable:
        return BoardTable(
            over,
            name=making.name,
            clock=clock,
            chance=SeededChance(seed),
            resolve=settings_of,
        )

    return Client(
        owner=f"client-{number:02}",
        table=faulty,
        board=board(faulty),
        desk=board(table),
        clock=clock,
        recorder=recorder,
        random=random.Random(seed),
        habits=making.habits,
    )


async def work(clients: Sequence[Client], amount: int, pace: Callable[[], object]) -> None:
    """All clients take their turns, until so many operations are noted; or until so many turns
    were taken that the board must be dead.
    """

    async def works(client: Client) -> None:
        for _ in range(amount // 4):
            if len(client.recorder.operations) >= amount:
                break
            pace()
            await client.turn()

    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(works(client))
