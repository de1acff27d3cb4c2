"""One lock and those who want it: again, from elsewhere, a moment too early, or too late."""

import asyncio

import pytest

from blackboard.model import Token
from blackboard.protocol.claims import Claim, Claimed, claim, override, renew
from blackboard.protocol.edits import unlock
from blackboard.protocol.releases import ReleaseOutcome
from blackboard.rules.due import Move, decide_lock
from blackboard.tables.azure_clock import TICK
from tests.support.boards import Scene, TurningClock, make_board, story
from tests.support.faults import FaultyTable
from tests.support.stores import OpenTable

pytestmark = pytest.mark.of_one_store("a worker is the same above any store")

LEASE = 60.0
MS = 0.001
CONTENDERS = 8


@pytest.mark.case("ME13")
def test_me13_a_lock_outlives_the_client_that_made_it(open_table: OpenTable) -> None:
    """Its holder goes on through another client; no other worker gets it meanwhile."""

    async def told() -> None:
        clock = TurningClock()
        first = await open_table(clock)
        board = await make_board(first, clock, seed=1)
        scene = Scene(table=FaultyTable(first), clock=clock, board=board, other=board)
        await scene.add("davis", every="1h")
        token = await scene.token()
        made = await scene.claimed("davis")
        await first.close()
        second = await open_table(clock)
        again = await make_board(second, clock, seed=2)
        assert await claim(again, [token], owner="you") == Claimed(reread=True)
        renewed = await renew(again, made)
        assert renewed is not None
        scene.board = scene.other = again
        assert (await scene.let_go(renewed)).how is ReleaseOutcome.DONE
        assert await scene.outcomes() == [(1, "ok")]
        await second.close()

    asyncio.run(told())


@pytest.mark.case("ME15")
@story
async def test_me15_of_many_who_want_a_turn_one_gets_it_each_time(scene: Scene) -> None:
    """So each contender gets one after as many turns as there are contenders, at the latest."""
    await scene.add("davis", every="1s")
    waiting, turns = set(range(CONTENDERS)), list[int]()

    async def wants(number: int, token: Token) -> tuple[Claim, ...]:
        board = scene.board if number % 2 else scene.other
        return (await claim(board, [token], owner=str(number))).claims

    while waiting:
        token = await scene.token()
        answers = await asyncio.gather(*(wants(number, token) for number in sorted(waiting)))
        ((made,),) = [claims for claims in answers if claims]
        await scene.let_go(made)
        turns.append(int(made.owner))
        waiting.remove(turns[-1])
        scene.later(seconds=1)
    assert sorted(turns) == list(range(CONTENDERS))
    assert await scene.outcomes() == [(fence, "ok") for fence in range(1, CONTENDERS + 1)]


@pytest.mark.case("DD01", "S1")
@story
async def test_dd01_whoever_comes_second_to_a_period_finds_it_done(scene: Scene) -> None:
    """What it read before is not there any more; and what it reads now is the next period."""
    await scene.add("davis", every="1h")
    seen = await scene.token()
    await scene.let_go(await scene.claimed("davis", board=scene.other, owner="you"))
    again = await claim(scene.board, [seen], owner="me")
    assert again == Claimed(reread=True)
    assert (await scene.token()).ready > scene.clock.now()
    assert await scene.outcomes() == [(1, "ok")]


@pytest.mark.case("DD01", "S1")
@story
async def test_dd01_a_second_call_for_a_period_knows_that_it_is_one_and_takes_effect_once(
    scene: Scene,
) -> None:
    """The first was taken for dead: the handler is called again, for the same slot, and of the
    two one is told as ok.
    """
    await scene.add("davis", every="1h")
    first = await scene.claimed("davis")
    await stale(scene)
    second = await override(scene.other, await scene.lock(), owner="you")
    assert second is not None
    assert (second.slot, second.attempt, second.fence) == (first.slot, 2, 2)
    assert (await scene.let_go(second, board=scene.other)).how is ReleaseOutcome.DONE
    assert (await scene.let_go(first)).how is ReleaseOutcome.LATE
    assert await scene.outcomes() == [(1, "superseded"), (2, "ok")]


async def stale(scene: Scene) -> None:
    scene.later(seconds=(await scene.lock()).stale_after + 2 * TICK)


@pytest.mark.case("LF09", "S2")
@pytest.mark.parametrize("outcome", ["ok", "failed", "cancelled"])
@story
async def test_lf09_a_worker_does_not_let_its_newer_claim_go_for_the_older(
    scene: Scene, outcome: str
) -> None:
    await scene.add("davis")
    older = await scene.claimed("davis", owner="me")
    await unlock(scene.other, "davis", scene.mark(), fence=1)
    newer = await scene.claimed("davis", owner="me")
    assert (await scene.let_go(older, outcome)).how is ReleaseOutcome.LATE
    assert (await scene.lock()).etag == newer.lock.etag
    assert (await scene.let_go(newer)).how is ReleaseOutcome.DONE


@pytest.mark.case("LF05", "S2")
@story
async def test_lf05_what_was_let_go_cannot_be_let_go_or_renewed_again(scene: Scene) -> None:
    """Not while it waits, nor while another has it."""
    await scene.add("davis", every="1h")
    made = await scene.claimed("davis")
    await scene.let_go(made)
    waits = await scene.token()
    assert await renew(scene.board, made) is None
    await scene.let_go(made)
    assert await scene.token() == waits
    scene.later(hours=1)
    taken = await scene.claimed("davis", board=scene.other, owner="you")
    assert await renew(scene.board, made) is None
    await scene.let_go(made)
    assert (await scene.lock()).etag == taken.lock.etag
    assert await scene.outcomes() == [(1, "ok")]


# ---- when a lock is stale


@pytest.mark.case("OV08", "OV12", "S4")
def test_ov08_a_process_that_has_just_started_overrides_at_once_what_is_surely_stale(
    open_table: OpenTable,
) -> None:
    """By the store's own two stamps: at exactly the lease, or a millisecond beside it, none does;
    nor before the resolution of the store's clock allows it.
    """

    async def told() -> None:
        clock = TurningClock()
        table = await open_table(clock)
        board = await make_board(table, clock)
        scene = Scene(table=FaultyTable(table), clock=clock, board=board, other=board)
        await scene.add("davis", every="1h", stale_after=f"{LEASE:g}s")
        await scene.claimed("davis", owner="dead")
        claimed = clock.monotonic()
        surely = LEASE + table.resolution + TICK + 2 * MS
        for age in (LEASE - MS, LEASE, LEASE + MS, LEASE + table.resolution - MS, surely):
            clock.advance(claimed + age - clock.monotonic())
            fresh = await open_table(clock)
            scene.board = await make_board(fresh, clock, seed=round(age * 1000))
            lock = await scene.board.lock("davis")
            assert lock is not None
            resolution = fresh.resolution
            move = decide_lock(
                lock, owner="new", types={"feed"}, in_flight=(), resolution=resolution
            )
            assert move is (Move.OVERRIDE if age == surely else Move.LEAVE), age
            if move is Move.OVERRIDE:
                assert await override(scene.board, lock, owner="new") is not None
            await fresh.close()
        assert (await scene.lock()).owner == "new"
        await table.close()

    asyncio.run(told())


@pytest.mark.case("OV06", "S4")
@story
async def test_ov06_who_waits_for_a_lock_to_grow_stale_finds_it_renewed_and_leaves_it(
    scene: Scene,
) -> None:
    async def looks(after: float) -> Move:
        scene.later(seconds=after)
        resolution = scene.board.table.resolution
        return decide_lock(
            await scene.lock(), owner="you", types={"feed"}, in_flight=(), resolution=resolution
        )

    await scene.add("davis", stale_after=f"{LEASE:g}s")
    made = await scene.claimed("davis")
    assert await looks(LEASE - 2) is Move.LEAVE
    assert await renew(scene.board, made) is not None
    assert await looks(10) is Move.LEAVE
    assert await looks(LEASE - 12) is Move.LEAVE
    assert await looks(12) is Move.OVERRIDE
