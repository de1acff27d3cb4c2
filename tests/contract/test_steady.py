"""Every store's clock, as a worker follows it: a jump counts once it is confirmed."""

from datetime import datetime, timedelta

import pytest

from blackboard.emitter import EventEmitter
from blackboard.events import BoardEvent, ClockJumped
from blackboard.table import Table
from blackboard.worker.steady_clock import CONFIRMED_AFTER, PROVEN_AFTER, SteadyClock
from tests.support.clocks import START, ManualClock
from tests.support.stores import Run, rows_of

HOUR, YEARS = 3600.0, 3653 * 86_400.0
SECOND = timedelta(seconds=1)


class Follower:
    """Reads the store's clock after each request, as a worker does."""

    def __init__(self, table: Table, run: Run, clock: ManualClock) -> None:
        self.told: list[BoardEvent] = []
        events = EventEmitter("me")
        events.subscribe(self.told.append)
        self.steady = SteadyClock(clock, events)
        self._table, self._run = table, run

    def now(self) -> datetime:
        self._run(rows_of(self._table, "town"))
        self.steady.looked()
        return self.steady.follow(self._run(self._table.now()))

    def doubts(self) -> bool:
        return self.steady.doubtful


@pytest.fixture
def follower(table: Table, run: Run, clock: ManualClock) -> Follower:
    made = Follower(table, run, clock)
    near(made.now(), START)
    return made


def near(moment: datetime, expected: datetime) -> None:
    """A clock that is told in whole seconds may be one behind."""
    assert -SECOND <= moment - expected <= timedelta(0)


@pytest.mark.parametrize("jump", [YEARS, -YEARS, 62.0, -62.0])
def test_a_jump_counts_once_it_is_confirmed(
    follower: Follower, clock: ManualClock, jump: float
) -> None:
    clock.jump(jump)
    near(follower.now(), START)
    assert follower.doubts()
    clock.advance(CONFIRMED_AFTER - 1)
    near(follower.now(), START + (CONFIRMED_AFTER - 1) * SECOND)
    clock.advance(1)
    near(follower.now(), clock.now())
    assert not follower.doubts()
    assert list(map(type, follower.told)) == [ClockJumped] * 2
    assert ("ahead" if jump > 0 else "back") in follower.told[0].message


@pytest.mark.parametrize("jump", [YEARS, -YEARS])
def test_a_clock_that_is_wrong_for_a_moment_is_never_followed(
    follower: Follower, clock: ManualClock, jump: float
) -> None:
    clock.jump(jump)
    near(follower.now(), START)
    clock.advance(CONFIRMED_AFTER - 1)
    clock.jump(-jump)
    near(follower.now(), clock.now())
    assert not follower.doubts()
    clock.advance(3600)
    near(follower.now(), clock.now())
    assert len(follower.told) == 2


def test_a_clock_that_jumps_again_is_doubted_anew(follower: Follower, clock: ManualClock) -> None:
    clock.jump(YEARS)
    near(follower.now(), START)
    clock.advance(CONFIRMED_AFTER - 1)
    clock.jump(YEARS)
    near(follower.now(), START + (CONFIRMED_AFTER - 1) * SECOND)
    clock.advance(CONFIRMED_AFTER - 1)
    near(follower.now(), START + 2 * (CONFIRMED_AFTER - 1) * SECOND)
    clock.advance(1)
    near(follower.now(), clock.now())


def test_what_was_not_asked_for_confirms_nothing(
    follower: Follower, clock: ManualClock, table: Table, run: Run
) -> None:
    """The time of a store on another host goes on from its last reply."""
    clock.jump(YEARS)
    near(follower.now(), START)
    clock.advance(2 * CONFIRMED_AFTER)
    near(follower.steady.follow(run(table.now())), START + 2 * CONFIRMED_AFTER * SECOND)
    assert follower.doubts()
    near(follower.now(), clock.now())


@pytest.mark.parametrize("jump", [50.0, -50.0, 1.0])
def test_a_clock_that_is_nudged_is_followed_at_once(
    follower: Follower, clock: ManualClock, jump: float
) -> None:
    for _ in range(5):
        clock.jump(jump)
        near(follower.now(), clock.now())
        clock.advance(60)
    assert follower.told == []


@pytest.mark.of_one_store("how long the clock has gone on is counted above the store")
def test_rows_are_deleted_by_a_clock_that_has_not_jumped_for_an_hour(
    follower: Follower, clock: ManualClock
) -> None:
    """It may have been wrong from the start."""
    assert follower.steady.proven_in() == PROVEN_AFTER
    clock.advance(PROVEN_AFTER)
    follower.now()
    assert follower.steady.proven_in() == 0.0
    clock.jump(YEARS)
    near(follower.now(), START + PROVEN_AFTER * SECOND)
    assert follower.steady.proven_in() == 0.0, "it is not followed yet"
    clock.advance(CONFIRMED_AFTER)
    near(follower.now(), clock.now())
    assert follower.steady.proven_in() == PROVEN_AFTER - CONFIRMED_AFTER


@pytest.mark.of_one_store("where the clock has been is noted above the store")
@pytest.mark.parametrize(
    ("watched", "jumps", "returned"),
    [
        (HOUR, [YEARS, -YEARS], True),
        (HOUR, [YEARS, YEARS, -2 * YEARS], True),
        (HOUR, [YEARS, -YEARS - HOUR, HOUR], True),
        (HOUR, [YEARS], False),
        (HOUR, [YEARS, -HOUR], False),
        (HOUR, [YEARS, -YEARS - HOUR], False),
        (HOUR, [YEARS, -YEARS, -HOUR], False),
        (HOUR, [-YEARS], False),
        (HOUR, [-YEARS, YEARS], False),
        (HOUR, [-YEARS, YEARS, -YEARS], False),
        (HOUR - CONFIRMED_AFTER, [YEARS, -YEARS], False),
    ],
)
@pytest.mark.parametrize("confirmed", [True, False])
def test_a_clock_was_ahead_that_is_back_where_it_had_gone_on_for_an_hour(
    follower: Follower,
    clock: ManualClock,
    watched: float,
    jumps: list[float],
    *,
    returned: bool,
    confirmed: bool,
) -> None:
    """A clock that jumps back alone may be behind: by it all items wait for too long."""
    clock.advance(watched)
    follower.now()
    for number, jump in enumerate(jumps):
        clock.jump(jump)
        follower.now()
        if confirmed or number:
            clock.advance(CONFIRMED_AFTER)
            follower.now()
    assert (follower.steady.returned is not None) is returned
