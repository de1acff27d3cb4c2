"""Counters that nothing protects but a lock: each is exact in the end.

On Azurite, where each count takes half a dozen requests, they count a fifth as far but in
the long form of the proof.
"""

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from blackboard.model import Token
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import Claim, claim
from blackboard.protocol.releases import release
from blackboard.table import Busy
from tests.proof.form import LONG
from tests.support.boards import Scene, finished, story

WORKERS = 8
INCREMENTS = 100
FEWER = INCREMENTS if LONG else 20
"""On Azurite."""
SHORT = 10
"""Increments of the last worker: the others go on without it."""
LOCKS = ("a", "b")
WOKEN = 2
"""Of the workers that wait, after a release: one would be no race, all a waste of requests."""


@dataclass(slots=True, kw_only=True)
class Counting:
    """Workers that count, and what they have counted."""

    scene: Scene
    counters: dict[str, int] = field(default_factory=lambda: dict.fromkeys(LOCKS, 0))
    fences: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in LOCKS})
    released: asyncio.Condition = field(default_factory=asyncio.Condition)
    inside: set[str] = field(default_factory=set)

    async def works(self, number: int, increments: int) -> None:
        """One worker, until it has counted so far at each lock."""
        board = self.scene.board if number % 2 else self.scene.other
        todo = dict.fromkeys(LOCKS, increments)
        while wanted := {name for name, left in todo.items() if left}:
            try:
                claims = await self._taken(board, f"worker-{number}", wanted)
            except Busy:
                continue
            if claims:
                await asyncio.gather(*(self._count(made) for made in claims))
                await release(board, [finished(made) for made in claims])
            for made in claims:
                todo[made.id] -= 1
            await self._pass_on(waits=not claims)

    async def _taken(self, board: BoardTable, owner: str, wanted: set[str]) -> tuple[Claim, ...]:
        now = self.scene.later(milliseconds=1)
        found = [row async for row in board.walk(0, until=now)]
        tokens = [row for row in found if isinstance(row, Token) and row.id in wanted]
        if not tokens:
            return ()
        return (await claim(board, tokens, owner=owner)).claims

    async def _count(self, made: Claim) -> None:
        """Read, dawdle, write: who else comes in meanwhile is lost."""
        assert made.id not in self.inside, f"two are inside of {made.id}"
        self.inside.add(made.id)
        before = self.counters[made.id]
        for _ in range(random.Random(made.fence).randint(1, 5)):
            await asyncio.sleep(0)
        self.counters[made.id] = before + 1
        self.fences[made.id].append(made.fence)
        self.inside.remove(made.id)

    async def _pass_on(self, *, waits: bool) -> None:
        async with self.released:
            if waits and self.inside:
                await self.released.wait()
            else:
                self.released.notify(WOKEN)


@pytest.mark.case("ME05", "S1")
@story
async def test_me05_eight_workers_count_at_each_of_two_locks(scene: Scene, store: str) -> None:
    """A hundred times each, and one of them ten times."""
    for name in LOCKS:
        await scene.add(name, every="1ms")
    each = FEWER if store == "azurite" else INCREMENTS
    many = [each] * (WORKERS - 1) + [SHORT]
    counting = Counting(scene=scene)
    await asyncio.gather(*(counting.works(number, count) for number, count in enumerate(many)))
    for name in LOCKS:
        item = await scene.item(name)
        assert counting.counters[name] == item.runs == item.fence == sum(many)
        assert counting.fences[name] == list(range(1, sum(many) + 1))
