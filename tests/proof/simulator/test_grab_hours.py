"""The lease grab, for hours of virtual time: nothing moves without a reason, also where nodes
answer late.
"""

import pytest

from tests.support.grabbing import FOUR, QUIET_HOUR, GrabWorld, settled

SEEDS = range(2)
LOADS = {
    "one answers up to 3 s late": {"owl": 3.0},
    "all answer up to 1 s late": dict.fromkeys(FOUR, 1.0),
}


@pytest.mark.parametrize("view_every", [0.0, 10.0])
@pytest.mark.parametrize("late", LOADS.values(), ids=LOADS)
def test_under_load_partitions_stay_where_they_are(
    late: dict[str, float], view_every: float
) -> None:
    """Also with a view of the lock rows that is up to 10 s old."""
    for seed in SEEDS:
        with GrabWorld(12, seed=seed, view_every=view_every) as world:
            settled(world, *FOUR, late=late)
            assert world.moves_in(QUIET_HOUR) <= 3
            assert (world.pumps.unowned(), world.pumps.at_once) == (0, 0)
            assert world.spread() <= 3


@pytest.mark.parametrize("partitions", [10, 12])
def test_nothing_moves_in_a_quiet_hour(partitions: int) -> None:
    for seed in SEEDS:
        with GrabWorld(partitions, seed=seed) as world:
            settled(world, *FOUR)
            assert world.spread() <= 1
            assert world.moves_in(QUIET_HOUR) == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_lost_messages_cost_moves_and_with_locks_never_two_pumps(seed: int) -> None:
    with GrabWorld(12, seed=seed) as world:
        world.shared.lost = 0.2
        settled(world, *FOUR)
        world.kill(FOUR[0])
        world.join("yak")
        assert world.moves_in(QUIET_HOUR) < 20
        assert (world.pumps.unowned(), world.pumps.at_once) == (0, 0)
        assert world.spread() <= 2
