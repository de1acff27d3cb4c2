"""Many workers at once, on every store: a lock keeps the others out, and its fence rises."""

import asyncio
from datetime import timedelta

import pytest

from blackboard.model import Token
from blackboard.protocol.claims import Claim, claim
from blackboard.protocol.releases import release
from blackboard.table import Busy
from tests.support.boards import Scene, TurningClock, finished, make_board, story
from tests.support.stores import OpenTable

pytestmark = pytest.mark.of_one_store("what is read and written is decided above the store")

WORKERS = 8
ITEMS = ("a", "b")
INCREMENTS = 25


@pytest.mark.case("ME05", "S1")
@story
async def test_me05_counters_that_only_a_lock_protects_are_exact(scene: Scene) -> None:
    counters = dict.fromkeys(ITEMS, 0)
    fences: dict[str, list[int]] = {name: [] for name in ITEMS}
    for name in ITEMS:
        await scene.add(name, every="1ms")

    async def due() -> list[Token]:
        scene.later(milliseconds=1)
        now = scene.clock.now()
        return [row async for row in scene.other.walk(0, until=now) if isinstance(row, Token)]

    async def taken(number: int) -> Claim | None:
        tokens = [one for one in await due() if counters[one.id] < INCREMENTS]
        if not tokens:
            await asyncio.sleep(0)
            return None
        token = min(tokens, key=lambda one: (number + len(fences[one.id])) % 2)
        board = scene.board if number % 2 else scene.other
        answer = await claim(board, [token], owner=f"worker-{number}")
        return answer.claims[0] if answer.claims else None

    async def works(number: int) -> None:
        board = scene.board if number % 2 else scene.other
        while min(counters.values()) < INCREMENTS:
            try:
                made = await taken(number)
            except Busy:
                continue
            if made is not None:
                before = counters[made.id]
                await asyncio.sleep(0)
                counters[made.id] = before + 1
                fences[made.id].append(made.fence)
                await release(board, [finished(made)])

    await asyncio.gather(*(works(number) for number in range(WORKERS)))
    for name in ITEMS:
        runs = await scene.outcomes(name)
        assert [fence for fence, _ in runs] == fences[name] == sorted(set(fences[name]))
        assert counters[name] == len(runs) == (await scene.item(name)).runs >= INCREMENTS


@pytest.mark.case("LF03", "S3")
def test_lf03_fences_rise_over_a_restart_of_the_store(open_table: OpenTable) -> None:
    async def told() -> list[int]:
        clock, fences = TurningClock(), []
        for seed in range(3):
            table = await open_table(clock)
            board = await make_board(table, clock, seed=seed)
            scene = Scene(table=None, clock=clock, board=board, other=board)  # type: ignore[arg-type]
            if seed == 0:
                await scene.add("davis")
            made = await scene.claimed("davis")
            fences.append(made.fence)
            await scene.let_go(made)
            scene.later(seconds=timedelta(hours=1).total_seconds())
            await table.close()
        return fences

    assert asyncio.run(told()) == [1, 2, 3]
