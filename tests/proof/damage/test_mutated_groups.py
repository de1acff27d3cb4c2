"""Rows of groups and elections that came to harm end no worker, and hold up no other partition.

A candidate whose election cannot be read goes on.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from blackboard.clock import Clock
from blackboard.handlers.context import Context, HandlerItem
from blackboard.handlers.handler import handlers_of, pump
from blackboard.protocol import keys
from blackboard.protocol.board_table import BoardTable
from blackboard.rules.shares import names_of
from blackboard.settings import Settings
from blackboard.table import Table
from blackboard.tables.memory import Contents, MemoryTable
from tests.board.test_election import Town
from tests.proof.damage.mutations import Kept, Mutation, Mutator
from tests.proof.damage.test_mutated_rows import into_memory
from tests.proof.form import LONG
from tests.support.clocks import ManualClock
from tests.support.faults import FaultyTable
from tests.support.fleet import Fleet, Network
from tests.support.groups import GROUP, LEASE, ROUND, Group, Log
from tests.support.workers import board_on

SEEDS = range(400 if LONG else 24)
PARTITIONS = 12
BALANCES = ("shares", "grab")
HARMED = 6
"""Rows of one group, one after another."""


async def harm(table: Table, mutator: Mutator, *, healthy: Sequence[str]) -> Mutation | None:
    """One row of the partitions, drawn from the mutator's seed; None when there is none left."""
    rows = [
        Kept(partition=partition, key=row.key, data=row.data)
        for partition in mutator.partitions
        async for row in table.scan(partition)
    ]
    left = [row for row in rows if row.id not in healthy and row.data]
    if not left:
        return None
    (row,) = mutator.random.choices(left)
    mutation = mutator.mutated(row)
    await into_memory(table, mutation)
    return mutation


def partitions_of(board: BoardTable) -> list[str]:
    meta = keys.meta_partition(board.name)
    return [board.shard(0), keys.workers_partition(board.name), meta]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_worker_of_a_group_ends_and_the_other_partitions_are_served(seed: int) -> None:
    healthy = names_of(PARTITIONS)[: PARTITIONS // 2]
    done: list[Mutation | None] = []

    async def story() -> None:
        clock, contents = ManualClock(), Contents()
        table = MemoryTable(clock, contents)
        board = await board_on(table, clock, Settings())
        log = Log(fleet := fleet_on(board, contents), unlocked=True)

        async def serve(item: HandlerItem, ctx: Context) -> None:
            log.running[item.id].append(ctx.worker)
            try:
                while not ctx.stopping:
                    await clock.sleep(1.0)
            finally:
                log.running[item.id].remove(ctx.worker)

        balance = BALANCES[seed % 2]
        declared = pump(
            GROUP, partitions=PARTITIONS, lease=f"{LEASE:g}s", drain="5s", balance=balance
        )(serve)
        group = Group(fleet, log, handlers_of(declared)[0])
        await group.join("ann", "ben")
        await fleet.turn(2 * ROUND)
        owners = ("ann", "ben", "cleo:1:x")
        mutator = Mutator(seed, partitions=partitions_of(group.board), owners=owners, wild=True)
        for _ in range(HARMED):
            done.append(await harm(table, mutator, healthy=[*healthy, *owners]))
            if mutator.random.random() < 0.3:
                clock.jump(mutator.random.choice((-7200.0, -600.0, 600.0)))
            await fleet.turn(mutator.random.choice((1.0, ROUND)))
        await group.join("dora")
        await fleet.turn(3 * LEASE)
        for one in group.hands.values():
            if one.task.done():
                await one.task
                raise AssertionError("a worker ended")
        assert set(healthy) <= set(log.owners)
        for one in group.hands.values():
            await one.dies()

    told_of(story(), done)


def fleet_on(board: BoardTable, contents: Contents) -> Fleet:
    async def another(clock: Clock) -> Table:
        return MemoryTable(clock, contents)

    clock = board.clock
    assert isinstance(clock, ManualClock)
    return Fleet(
        table=FaultyTable(board.table),
        clock=clock,
        board=board,
        other=board,
        open_table=another,
        network=Network(),
    )


def told_of(story: Coroutine[Any, Any, None], done: Sequence[Mutation | None]) -> None:
    """Run it; whatever fails, what was harmed is told."""
    try:
        asyncio.run(story)
    except BaseException as error:
        error.add_note("\n".join(map(str, done)))
        raise


@pytest.mark.parametrize("kind", ["mutex", "bully", "ring"])
@pytest.mark.parametrize("seed", range(SEEDS.stop // 3))
def test_a_candidate_goes_on(seed: int, kind: str) -> None:
    done: list[Mutation | None] = []

    async def story() -> None:
        async with AsyncExitStack() as stack:
            town = Town(ManualClock(), Contents(), stack)
            other = await town.candidate(name="other")
            ranks = (0, 0) if kind == "mutex" else (1, 2)
            some = [await town.candidate(kind=kind, rank=rank) for rank in ranks]
            await town.turns(30.0)
            table = MemoryTable(town.clock, town.contents)
            places = partitions_of(await town.elections())
            places.append(keys.mail_partition((await town.elections()).name))
            owners = [one.owner for one in (other, *some)]
            mutator = Mutator(seed, partitions=places, owners=owners, wild=True)
            for _ in range(HARMED):
                done.append(await harm(table, mutator, healthy=["other", other.owner]))
                await town.turns(mutator.random.choice((1.0, 20.0)))
            assert other.is_leader

    told_of(story(), done)
