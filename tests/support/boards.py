"""Making boards in tests, and reading them.

`@story` runs an async test on a fresh board of every store, and checks at the end that the rows
still agree with each other.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from blackboard.clock import Clock
from blackboard.model import Ended, Item, Lock, Mark, Outcome, Run, State, Token, replace
from blackboard.protocol import keys
from blackboard.protocol.batches import add_ops
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import Claim, Claimed, claim
from blackboard.protocol.releases import FinishedRun, Released, release
from blackboard.protocol.rows import record_of
from blackboard.simulator.changes import Shadow
from blackboard.simulator.invariants import rows as whole
from blackboard.spec import RunSettings, Spec, decode_spec, encode_spec, resolve
from blackboard.table import Op, Row, Table
from tests.support.clocks import ManualClock, SeededChance
from tests.support.faults import FaultyTable
from tests.support.stores import OpenTable

ALL_DAY = timedelta(days=3660)
BY = "ann"


def settings_of(item_type: str, spec: str) -> RunSettings:
    """The settings from an item's spec alone; the type "fenced" drops late results."""
    return replace(resolve([decode_spec(spec)]), fenced=item_type == "fenced")


async def make_board(
    table: Table, clock: Clock, *, shards: int = 1, seed: int = 1, name: str = "town"
) -> BoardTable:
    return await BoardTable.create(
        table,
        name=name,
        shards=shards,
        clock=clock,
        chance=SeededChance(seed),
        resolve=settings_of,
    )


@dataclass(kw_only=True)
class Scene:
    """A board as two processes see it, one of them over a table that can fail."""

    table: FaultyTable
    clock: ManualClock
    board: BoardTable
    """The board under test, over the table with faults."""
    other: BoardTable
    """The same board in another process, whose requests are all answered."""

    def trust_clock(self) -> None:
        """Both processes have watched the clock for an hour: rows may be deleted for their age."""
        self.board.clock_proven_in = self.other.clock_proven_in = lambda: 0.0

    async def add(self, item_id: str = "davis", *, item_type: str = "feed", **said: Any) -> Item:
        """Adds an item that runs every hour by default; due at once or at `at`."""
        from blackboard.protocol.additions import New, add

        said = said or {"every": "1h"}
        first = self.clock.now() if said.keys() & {"cron", "rrule"} else None
        spec = Spec(**said)
        return (await add(self.other, New(id=item_id, type=item_type, spec=spec, first=first))).item

    async def fill(self, count: int, **said: Any) -> list[str]:
        """Adds items of one shard, in few batches; they run every eight hours by default. They have
        become ready one after the other, all of them by now.
        """
        now, spec = self.clock.now(), encode_spec(Spec(**(said or {"every": "8h"})))
        ids = [f"item-{n:04d}" for n in range(count)]
        ops: list[Op] = []
        for n, item_id in enumerate(ids):
            ready = now - timedelta(milliseconds=count - n)
            item = Item(
                id=item_id,
                type="feed",
                state=State.ACTIVE,
                spec=spec,
                slot=ready,
                ready=ready,
                planned=ready,
            )
            ops += add_ops(item, over=None)
        most = self.other.table.max_rows
        for start in range(0, len(ops), most):
            batch = ops[start : start + most]
            await self.other.table.commit(self.other.partition(ids[0]), batch)
        return ids

    async def item(self, item_id: str = "davis") -> Item:
        item = await self.other.item(item_id)
        assert item is not None, f"no item {item_id}"
        return item

    async def lock(self, item_id: str = "davis") -> Lock:
        lock = await self.other.lock(item_id)
        assert lock is not None, f"{item_id} has no lock"
        return lock

    async def tokens(self) -> list[Token]:
        """All waiting tokens, whenever they are ready."""
        until = self.clock.now() + ALL_DAY
        return [
            found
            for number in range(self.other.shards)
            async for found in self.other.walk(number, until=until)
            if isinstance(found, Token)
        ]

    async def token(self, item_id: str = "davis") -> Token:
        found = [one for one in await self.tokens() if one.id == item_id]
        assert len(found) == 1, f"{item_id} has {len(found)} waiting tokens"
        return found[0]

    async def runs(self, item_id: str = "davis") -> list[Run]:
        return [run async for run in self.other.runs(item_id)]

    async def outcomes(self, item_id: str = "davis") -> list[tuple[int, str]]:
        """The history as (fence, outcome), the oldest first."""
        return [(run.fence, run.outcome.value) for run in await self.runs(item_id)][::-1]

    async def take(
        self, *item_ids: str, board: BoardTable | None = None, owner: str = "me"
    ) -> Claimed:
        """Claim waiting items in one batch, through `board` (the one with faults)."""
        tokens = [await self.token(item_id) for item_id in item_ids or ("davis",)]
        return await claim(board or self.board, tokens, owner=owner)

    async def claimed(
        self, item_id: str = "davis", *, board: BoardTable | None = None, owner: str = "me"
    ) -> Claim:
        """The claim of one waiting item, for which no other worker races."""
        answer = await self.take(item_id, board=board, owner=owner)
        assert len(answer.claims) == 1, answer
        return answer.claims[0]

    async def let_go(
        self, made: Claim, outcome: str = "ok", *, board: BoardTable | None = None, **more: Any
    ) -> Released:
        (only,) = await release(board or self.board, [finished(made, outcome, **more)])
        return only

    async def rows(self, prefix: str = "", item_id: str = "davis") -> list[Row]:
        """Rows of the shard of an item."""
        partition = self.other.partition(item_id)
        found = self.table.table.scan(partition)
        return [row async for row in found if row.key.startswith(prefix)]

    def later(self, **by: float) -> datetime:
        """Advance the clock."""
        self.clock.advance(timedelta(**by).total_seconds())
        return self.clock.now()

    async def outlive(self, item_id: str = "davis") -> None:
        """Lets the lock of an item outlive its lease."""
        self.later(seconds=(await self.lock(item_id)).stale_after + 1.0)

    def mark(self, reason: str = "") -> Mark:
        return Mark(by=BY, at=self.clock.now(), reason=reason)


def finished(
    made: Claim,
    outcome: str = "ok",
    *,
    result: Any = None,
    error: str = "",
    requeue: bool = False,
) -> FinishedRun:
    return FinishedRun(
        claim=made,
        ended=Ended(outcome=Outcome(outcome), result=result, error=error, output="printed"),
        requeue=requeue,
    )


class TurningClock(ManualClock):
    """A clock that each sleep advances at once: no test has to advance it."""

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)


Test = Callable[..., Awaitable[None]]


def on_each_store(
    told: Callable[..., Coroutine[Any, Any, None]], test: Test
) -> Callable[..., None]:
    """`told` as a test function on each store, in the place of `test`. It makes the value of the
    first parameter of `test`.
    """

    def run(open_table: OpenTable, **arguments: Any) -> None:
        asyncio.run(told(open_table, **arguments))

    parameters = list(inspect.signature(test).parameters.values())
    fixture = inspect.Parameter("open_table", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = inspect.Signature([fixture, *parameters[1:]])  # type: ignore[attr-defined]
    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
    for mark in getattr(test, "pytestmark", ()):
        run.pytestmark = [*getattr(run, "pytestmark", []), mark]  # type: ignore[attr-defined]
    return run


def story(test: Test) -> Callable[..., None]:
    """Run an async test on a fresh board of each store; check that the rows agree at the end."""

    async def told(open_table: OpenTable, **arguments: Any) -> None:
        clock = TurningClock()
        table, another = await open_table(clock), await open_table(clock)
        try:
            faulty = FaultyTable(table)
            scene = Scene(
                table=faulty,
                clock=clock,
                board=await make_board(faulty, clock, seed=1),
                other=await make_board(another, clock, seed=2),
            )
            await test(scene, **arguments)
            assert faulty.quiet, "not everything that was scripted has happened"
            assert await disagreements(scene.other) == []
        finally:
            await table.close()
            await another.close()

    return on_each_store(told, test)


async def disagreements(board: BoardTable) -> list[str]:
    """The errors in the rows of a board that does not change meanwhile."""
    found: list[str] = []
    for number in range(board.shards):
        rows = {row.key: row async for row in board.table.scan(board.shard(number))}
        found += disagreeing(rows)
    return found


def disagreeing(rows: dict[str, Row]) -> list[str]:
    """The errors in the rows of one shard."""
    shadows: dict[str, Shadow] = {}
    runs: list[Run] = []
    for key, row in rows.items():
        shadow = shadows.setdefault(str(row.data.get("item")), Shadow())
        if key.startswith(keys.ITEM):
            shadow.item = record_of(Item, row)
        elif key.startswith(keys.LOCK):
            shadow.lock = record_of(Lock, row)
        elif key.startswith(keys.NEXT):
            shadow.tokens[key] = record_of(Token, row)
        elif key.startswith(keys.RUN):
            runs.append(record_of(Run, row))
    found = [
        f"{item_id}: {kind} {what}"
        for item_id, one in shadows.items()
        for kind, what in whole.disagreements(one.item, one.lock, one.tokens)
    ]
    for run in runs:
        item = shadows[run.id].item
        if item is None:
            found.append(f"{run.id}: run {run.fence} without an item")
        elif run.fence > item.fence:
            found.append(f"{run.id}: run {run.fence} is above the item's fence {item.fence}")
    return found
