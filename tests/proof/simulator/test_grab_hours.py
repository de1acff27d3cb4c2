"""The lease grab, for hours of virtual time: nothing moves without a reason. Where nodes answer
late, partitions jump as published, and a guard keeps them where they are.
"""

import pytest

from tests.support.grabbing import FOUR, QUIET_HOUR, GrabWorld, settled

SEEDS = range(2)
LOADS = {
    "one answers up to 3 s late": ({"owl": 3.0}, 10),
    "all answer up to 1 s late": (dict.fromkeys(FOUR, 1.0), 300),
}
"""Who is late, and moves in an hour, at the least, as published."""


@pytest.mark.parametrize(("late", "moves"), LOADS.values(), ids=LOADS)
def test_under_load_partitions_jump_as_published(late: dict[str, float], moves: int) -> None:
    for seed in SEEDS:
        with GrabWorld(12, seed=seed) as world:
            settled(world, *FOUR, late=late)
            assert world.moves_in(QUIET_HOUR) >= moves


@pytest.mark.parametrize("view_every", [0.0, 10.0])
@pytest.mark.parametrize(("late", "moves"), LOADS.values(), ids=LOADS)
def test_under_load_a_guard_keeps_them_where_they_are(
    late: dict[str, float], moves: int, view_every: float
) -> None:
    """Also with a view of the lock rows that is up to 10 s old."""
    for seed in SEEDS:
        with GrabWorld(12, seed=seed, guarded=True, view_every=view_every) as world:
            settled(world, *FOUR, late=late)
            assert world.moves_in(QUIET_HOUR) <= 3
            assert (world.pumps.unowned(), world.pumps.at_once) == (0, 0)
            assert world.spread() <= 3


@pytest.mark.parametrize(("partitions", "guarded"), [(10, False), (12, True)])
def test_nothing_moves_in_a_quiet_hour(partitions: int, *, guarded: bool) -> None:
    for seed in SEEDS:
        with GrabWorld(partitions, seed=seed, guarded=guarded) as world:
            settled(world, *FOUR)
            assert world.spread() <= 1
            assert world.moves_in(QUIET_HOUR) == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_lost_messages_cost_moves_and_with_locks_never_two_pumps(seed: int) -> None:
    with GrabWorld(12, seed=seed, guarded=True) as world:
        world.shared.lost = 0.2
        settled(world, *FOUR)
        world.kill(FOUR[0])
        world.join("yak")
        assert world.moves_in(QUIET_HOUR) < 20
        assert (world.pumps.unowned(), world.pumps.at_once) == (0, 0)
        assert world.spread() <= 2
