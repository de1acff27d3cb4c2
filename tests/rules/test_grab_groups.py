"""Groups of nodes that race for partitions, in virtual time, on a simulated bus."""

import pytest

from blackboard.rules.grab import Hash
from tests.support.grabbing import FOUR, QUIET_HOUR, GrabWorld, settled

SEEDS = range(2)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_new_node_gets_its_share_within_the_normal_lease_time(seed: int) -> None:
    with GrabWorld(12, seed=seed) as world:
        settled(world, *FOUR[:3])
        assert set(world.shares().values()) == {4}
        world.join(FOUR[3])
        assert world.moves_in(1 + 60 + 5) <= 5
        assert set(world.shares().values()) == {3}
        assert (world.pumps.at_once, world.pumps.unowned()) == (0, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_partition_stays_where_it_is(seed: int) -> None:
    with GrabWorld(1, seed=seed) as world:
        settled(world, *FOUR)
        assert world.pumps.moves == 1
        assert world.moves_in(QUIET_HOUR) == 0
        assert world.shared.published > QUIET_HOUR / 60


@pytest.mark.parametrize("seed", SEEDS)
def test_partitions_of_a_killed_node_are_back_after_about_the_maximum_lease_time(seed: int) -> None:
    with GrabWorld(12, seed=seed) as world:
        settled(world, *FOUR)
        world.kill(FOUR[0])
        assert world.pumps.unowned() == 3
        world.run(25)
        assert world.pumps.unowned() == 3, "nothing is void yet"
        world.run(180 - 25)
        assert world.pumps.unowned() == 0
        assert set(world.shares().values()) == {4}


@pytest.mark.parametrize("seed", SEEDS)
def test_one_that_is_killed_between_its_win_and_its_start_leaves_a_mark_until_that_is_void(
    seed: int,
) -> None:
    with GrabWorld(1, seed=seed) as world:
        settled(world, "fox", "owl")
        (holder,) = world.pumps.running["00"]
        other = "owl" if holder == "fox" else "fox"
        world.shared.hashes[Hash.GRAB]["00"] = "dead"
        world.kill(holder)
        world.run(25)
        assert world.pumps.unowned() == 1
        world.run(70 - 25)
        assert world.pumps.running["00"] == {other}


@pytest.mark.parametrize("view_every", [0, 10])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_leaving_node_had_is_taken_in_seconds(seed: int, view_every: float) -> None:
    with GrabWorld(12, seed=seed, view_every=view_every) as world:
        settled(world, *FOUR)
        world.leave(FOUR[0])
        world.run(3)
        shares = world.shares()
        assert (shares[FOUR[0]], world.pumps.unowned(), world.pumps.at_once) == (0, 0, 0)


def test_while_the_bus_is_away_nothing_moves() -> None:
    """After the maximum lease time the hashes are void, though their owners live: the locks keep a
    second pump from running.
    """
    with GrabWorld(12, seed=1) as world:
        settled(world, *FOUR[:3])
        world.shared.go_away()
        assert world.moves_in(1000) == 0
        assert world.pumps.unowned() == 0
        world.join(FOUR[3])
        world.shared.come_back()
        world.run(90)
        assert set(world.shares().values()) == {3}
        assert world.pumps.at_once == 0


def test_the_same_seed_is_the_same_hour() -> None:
    def hour(seed: int) -> tuple[int, int, list[tuple[str, int]]]:
        with GrabWorld(12, seed=seed) as world:
            settled(world, *FOUR, late=dict.fromkeys(FOUR, 1.0))
            return world.pumps.moves, world.shared.published, sorted(world.shares().items())

    assert hour(1) == hour(1)
    assert hour(1) != hour(2)
