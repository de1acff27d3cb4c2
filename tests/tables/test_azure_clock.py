"""What is known of a store's clock from replies that show it to the second."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blackboard.http_messages import date_of
from blackboard.tables.azure_clock import (
    AHEAD,
    DRIFT,
    JUMP,
    REMEMBERED,
    TICK,
    ServiceClock,
)
from tests.support.clocks import START, ManualClock


class Store:
    """A store whose clock shows `ahead` seconds more than ours, and whose replies take time."""

    def __init__(self, *, ahead: float = 0.0) -> None:
        self.clock = ManualClock()
        self.known = ServiceClock(self.clock)
        self.ahead = ahead

    @property
    def time(self) -> datetime:
        return self.clock.now() + timedelta(seconds=self.ahead)

    def stamp(self) -> datetime:
        """A row is written now."""
        return self.time

    def reply(self, *, there: float = 0.0, back: float = 0.0) -> None:
        """A request that takes so many seconds there, and so many back."""
        sent = self.clock.monotonic()
        self.clock.advance(there)
        shown = self.time.replace(microsecond=0)
        self.clock.advance(back)
        self.known.observe_reply(shown, sent=sent)


def test_now_is_at_most_what_the_store_shows_and_a_tick_less_at_the_most() -> None:
    store = Store(ahead=0.7)
    store.reply()
    assert timedelta(0) <= store.time - store.known.now() <= timedelta(seconds=TICK)


def test_replies_at_other_parts_of_a_second_tell_more() -> None:
    store = Store(ahead=0.3)
    for _ in range(40):
        store.reply()
        store.clock.advance(0.975)
    assert store.time - store.known.now() <= timedelta(seconds=0.05)


def test_who_has_read_a_row_is_not_behind_who_wrote_it() -> None:
    store = Store(ahead=0.8)
    store.reply()
    stamp = store.stamp()
    store.reply()
    store.known.observe_stamp(stamp)
    assert store.known.now() == stamp
    store.clock.advance(0.5)
    assert store.known.now() == store.time


def test_a_stamp_from_before_the_clock_was_set_back_says_nothing() -> None:
    store = Store(ahead=100.0)
    stamp = store.stamp()
    store.ahead = 0.0
    store.reply()
    store.known.observe_stamp(stamp)
    assert store.known.now() <= store.time


@pytest.mark.parametrize("zone", ["GMT", "-2359", "+2359"])
def test_a_date_at_the_end_of_all_dates_says_nothing(zone: str) -> None:
    """No time can be computed from it."""
    assert date_of(f"Fri, 31 Dec 9999 23:59:59 {zone}") is None


@pytest.mark.case("CS02", "CS04")
def test_our_own_wall_clock_plays_no_part() -> None:
    store = Store(ahead=-86_400 * 3653)
    store.reply()
    store.clock.jump(7 * 86_400)
    store.ahead -= 7 * 86_400
    assert store.known.now() == START - timedelta(days=3653)


def test_a_moment_that_was_slept_until_has_come() -> None:
    """Else a worker would wake a little early and look twice."""
    store = Store(ahead=0.4)
    store.reply(there=0.01, back=0.02)
    until = store.known.now() + timedelta(minutes=50)
    store.clock.advance(3000.0)
    store.reply(there=0.01, back=0.02)
    assert store.known.now() >= until


@pytest.mark.parametrize("ahead", [0.0, 0.49, -3600.25, 1e8])
def test_a_row_is_never_thought_older_than_it_is(ahead: float) -> None:
    store = Store(ahead=ahead)
    store.reply()
    stamp = store.stamp()
    for seconds in (0.0, 0.5, 59.0, 3600.0):
        store.clock.advance(seconds)
        store.reply(there=0.1, back=0.3)
        age = (store.time - stamp).total_seconds()
        assert age - TICK - 3600 * DRIFT - 0.4 <= store.known.age(stamp) <= age


@pytest.mark.case("OV08")
def test_a_worker_that_has_just_started_may_go_by_the_stores_own_two_stamps() -> None:
    store = Store()
    stamp = store.stamp()
    store.clock.advance(90.0)
    store.reply()
    assert store.known.age(stamp) == pytest.approx(90.0, abs=TICK)


@pytest.mark.case("CJ01")
@pytest.mark.parametrize("jump", [86_400.0, JUMP + 2 * TICK + 0.1])
def test_after_a_jump_ahead_a_row_is_as_old_as_the_jump_at_most(jump: float) -> None:
    store = Store()
    store.reply()
    stamp = store.stamp()
    store.clock.advance(10.0)
    store.ahead += jump
    store.reply()
    assert store.known.age(stamp) == 0.0
    store.clock.advance(30.0)
    assert store.known.age(stamp) == pytest.approx(30.0, abs=0.1)
    assert timedelta(0) <= store.time - store.known.now() <= timedelta(seconds=TICK)


@pytest.mark.case("CJ03")
def test_after_a_jump_back_a_stamp_of_the_future_still_grows_old() -> None:
    """Or its lock would be held until the clock is there again."""
    store = Store()
    store.reply()
    stamp = store.stamp()
    store.ahead -= 86_400.0
    store.reply()
    assert store.known.age(stamp) == 0.0
    store.clock.advance(30.0)
    assert store.known.age(stamp) == pytest.approx(30.0, abs=0.1)


def test_machines_of_one_service_that_differ_a_little_are_no_jump() -> None:
    store = Store()
    for ahead in (0.0, 1.4, -1.4, 0.9):
        store.ahead = ahead
        store.reply()
    stamp = store.stamp()
    store.clock.advance(600.0)
    store.ahead = 0.0
    assert 600.0 - 2 * (JUMP + TICK) <= store.known.age(stamp) <= 601.0


@pytest.mark.parametrize("apart", [5.0, -5.0, 45.0, 600.0])
def test_a_row_grows_old_where_two_machines_of_one_service_disagree(apart: float) -> None:
    """Replies of both come in turn: their clocks differ, and none was set."""
    store = Store()
    store.reply()
    stamp, age = store.stamp(), 0.0
    for number in range(20):
        store.clock.advance(15.0)
        age += 15.0
        store.ahead = apart if number % 2 == 0 else 0.0
        store.reply(there=0.01, back=0.02)
        assert store.known.age(stamp) <= age
    assert store.known.age(stamp) >= age - 15.0 - AHEAD


@pytest.mark.parametrize("apart", [5.0, 45.0, 600.0])
def test_a_row_of_a_machine_that_is_ahead_is_never_thought_older_than_it_is(apart: float) -> None:
    store = Store()
    store.reply()
    store.clock.advance(300.0)
    store.ahead = apart
    store.reply()
    stamp = store.stamp()
    for age in range(0, 900, 15):
        store.ahead = apart if age % 30 else 0.0
        store.reply()
        assert store.known.age(stamp) <= age
        store.clock.advance(15.0)


def test_a_stamp_of_a_machine_that_has_not_answered_yet_is_not_old() -> None:
    """It is a little ahead of those that have: its clock was not set back."""
    store = Store()
    store.reply()
    store.clock.advance(3600.0)
    store.reply()
    stamp = store.time + timedelta(seconds=AHEAD - TICK)
    assert store.known.age(stamp) == 0.0


def test_a_clock_that_was_set_is_forgotten_after_an_hour() -> None:
    """Rows are then as old as the clock shows that they are."""
    store = Store()
    store.reply()
    store.clock.advance(10.0)
    store.ahead = 30.0
    store.reply()
    stamp = store.stamp()
    store.clock.advance(100.0)
    store.reply()
    assert store.known.age(stamp) == pytest.approx(70.0, abs=TICK)
    store.clock.advance(REMEMBERED)
    store.reply()
    assert store.known.age(stamp) == pytest.approx(
        100.0 + REMEMBERED, abs=TICK + DRIFT * REMEMBERED
    )


@given(
    ahead=st.floats(-1e6, 1e6),
    replies=st.lists(
        st.tuples(st.floats(0, 5), st.floats(0, 5), st.floats(0, 100)), min_size=1, max_size=20
    ),
)
def test_whatever_the_replies_take_the_truth_is_never_overstated(
    ahead: float, replies: list[tuple[float, float, float]]
) -> None:
    store = Store(ahead=ahead)
    stamp = datetime(1, 1, 1, tzinfo=UTC)
    for there, back, pause in replies:
        store.reply(there=there, back=back)
        if stamp.year > 1:
            store.known.observe_stamp(stamp)
        stamp = max(stamp, store.stamp())
        store.clock.advance(pause)
        grain = timedelta(milliseconds=2)
        assert store.known.now() <= store.time + grain
        assert store.known.age(stamp) <= (store.time - stamp + grain).total_seconds()
