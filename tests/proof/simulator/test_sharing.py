"""Many workers share many partitions: how long that takes, what moves, and what is left.

In worlds without harm to requests, with the bounds of docs/sharing.md; in the long form with up
to a thousand partitions and a hundred workers, too. And in the small worlds in which bugs of groups
are hunted, the honest product does no harm.
"""

from collections.abc import Callable

import pytest

from blackboard.rules.grab import Times
from blackboard.rules.shares import HURRY, UNTAKEN, WATCHFUL, Balance
from blackboard.simulator.scenario import Scenario
from blackboard.simulator.world import World
from tests.proof.form import LONG
from tests.proof.planted.scenarios import (
    away_and_replaced,
    by_people,
    by_races,
    by_workers,
    raced_without_a_store,
    without_a_store,
)
from tests.proof.simulator.balances import QUIET_ROUNDS, Shared, story
from tests.proof.simulator.worlds import moves_and_terms

LEASE, ROUND, DRAIN = 30.0, 10.0, 10.0
TAKEN = LEASE + 2 * ROUND + 5.0
"""Seconds from the last renewal of a dead worker."""
HANDOVER = ROUND / 2
"""Seconds that a partition is nobody's, where its worker hands it over."""
TAKEN_BY_ANY = UNTAKEN + WATCHFUL + HURRY
"""The same, where so many leave at once that those it is dealt to do not get to it: the others find
it free, and may take it after `UNTAKEN`.
"""
SIZES = [(73, 20, 1), *([(300, 30, 2), (1_000, 100, 1)] if LONG else [])]
"""Partitions, workers, and the seed of a world."""


@pytest.mark.case("BAL02", on="memory")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("partitions", "workers", "seed"), SIZES)
def test_all_hold_their_shares_soon_and_as_little_moves_as_there_can(
    partitions: int, workers: int, seed: int
) -> None:
    started, joined, more, killed, left, quiet = story(partitions, workers, Balance.SHARES, seed)
    handed_over = 3 * ROUND + DRAIN
    assert (started.moves, quiet.moves) == (0, 0)
    assert started.seconds <= ROUND
    assert joined.seconds <= handed_over
    assert joined.moves == partitions // (workers + 1)
    assert more.seconds <= handed_over
    assert max(joined.gap, more.gap) <= HANDOVER
    assert left.gap <= TAKEN_BY_ANY
    assert max(killed.gap, killed.seconds) <= TAKEN
    assert left.seconds <= handed_over


def test_races_come_to_the_same_shares_later_and_hand_over_sooner() -> None:
    times = Times()
    started, joined, more, killed, left, quiet = story(12, 4, Balance.GRAB, seed=1)
    assert max(started.seconds, joined.seconds, more.seconds, left.seconds) <= 2 * times.normal
    assert killed.seconds <= times.maximum + times.normal
    assert joined.moves >= 12 // 5
    assert max(joined.gap, more.gap) <= 1.0
    assert quiet.moves == 0
    assert 12 / 2 <= quiet.bus_requests <= 12 * 3


def test_a_worker_makes_four_requests_a_round_and_those_of_its_saves() -> None:
    world = Shared(73, 20, Balance.SHARES, seed=2)
    world.after("20 start", lambda: world.join(range(20)))
    requests = world.rest(QUIET_ROUNDS).requests
    world.kill(world.workers.members)
    assert 3.5 <= requests * ROUND / 60 <= 4.5


def test_the_next_worker_takes_what_a_fleet_that_is_gone_has_let_go() -> None:
    world = Shared(3, 1, Balance.SHARES, seed=3)
    world.after("one starts", lambda: world.join([0]))
    world.leave(world.workers.members)
    while world.workers.members:
        world._run_on(ROUND)
    world._run_on(6 * ROUND)  # nothing moves any more
    assert world.after("another starts", lambda: world.join([1])).moves == 3
    world.kill(world.workers.members)


@pytest.mark.parametrize(
    ("draw", "seed"),
    [
        (without_a_store, 1),
        (without_a_store, 4),
        (away_and_replaced, 0),
        (by_workers, 0),
        (by_people, 0),
        (by_people, 200_000),  # a leader is cancelled
        (by_races, 2),
        (raced_without_a_store, 2),
    ],
)
def test_where_bugs_of_groups_are_hunted_the_honest_product_does_no_harm(
    draw: Callable[[int], Scenario], seed: int
) -> None:
    world = World(draw(seed))
    world.run()
    moves, terms = moves_and_terms(world)
    assert moves > 0
    assert terms > 0
