"""What a worker claims between two walks over the board, and when it reads a shard for more."""

from datetime import timedelta

from blackboard.model import replace
from blackboard.protocol.permits import Limit
from blackboard.worker.backlog import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    PAUSE_GROWTH,
    PREFERENCE,
    Backlog,
    Unread,
)
from blackboard.worker.peers import Turn
from tests.support.candidates import SECOND, candidate, ids
from tests.support.clocks import START


def walked() -> Backlog:
    backlog = Backlog(cycle=60.0, shards=2)
    backlog.begin(100.0)
    backlog.put(0, [candidate("a", after=0), candidate("c", after=20)])
    backlog.put(1, [candidate("b", after=10), candidate("d", after=30)])
    return backlog


def test_before_the_first_walk_it_is_empty() -> None:
    backlog = Backlog(cycle=60.0, shards=2)
    assert backlog.lasts(100.0) == 0
    assert backlog.ready(START) == []
    assert backlog.to_read(START) == []
    assert backlog.next_at(START) is None


def test_a_walk_is_good_for_a_cycle() -> None:
    backlog = walked()
    assert [backlog.lasts(now) for now in (100.0, 130.0, 160.0, 500.0)] == [60, 30, 0, 0]
    backlog.expire()
    assert backlog.lasts(130.0) == 0


def test_a_cycle_ends_for_a_clock_that_is_a_little_slow() -> None:
    assert walked().lasts(160.0 - 1e-6) == 0


def test_ready_candidates_come_most_overdue_first_from_all_shards() -> None:
    backlog = walked()
    assert ids(backlog.ready(START + 20 * SECOND)) == "abc"
    assert ids(backlog.ready_in(1, START + 20 * SECOND)) == "b"
    backlog.drop(0, {"a"})
    assert ids(backlog.ready(START + 20 * SECOND)) == "bc"


def test_of_what_is_equally_overdue_a_worker_begins_in_a_shard_of_its_own() -> None:
    backlog = Backlog(cycle=60.0, shards=3, first_shard=1)
    backlog.begin(100.0)
    for shard, item_id in enumerate("abc"):
        backlog.put(shard, [candidate(item_id, after=0)])
    assert ids(backlog.ready(START)) == "bca"


def test_the_next_is_a_candidate_or_expected() -> None:
    backlog = walked()
    assert backlog.next_at(START + 10 * SECOND) == START + 20 * SECOND
    for after in (15, 25):
        backlog.expect(0, Unread(START + after * SECOND))
    assert backlog.next_at(START + 10 * SECOND) == START + 15 * SECOND
    assert backlog.next_at(START + 15 * SECOND) == START + 20 * SECOND
    assert backlog.next_at(START + 20 * SECOND) == START + 25 * SECOND
    assert backlog.next_at(START + 30 * SECOND) is None


def test_shards_with_more_are_read_again_most_overdue_first() -> None:
    backlog = walked()
    backlog.expect(0, Unread(START + 15 * SECOND))
    backlog.expect(1, Unread(START + 12 * SECOND))
    backlog.expect(1, Unread(START + 18 * SECOND))
    assert backlog.to_read(START + 11 * SECOND) == []
    assert backlog.to_read(START + 12 * SECOND) == [(START + 12 * SECOND, 1)]
    assert [shard for _, shard in backlog.to_read(START + 15 * SECOND)] == [1, 0]
    backlog.expect_none(1)
    assert [shard for _, shard in backlog.to_read(START + 20 * SECOND)] == [0]


def test_a_shard_is_read_on_unless_what_comes_before_is_due_sooner() -> None:
    backlog = walked()
    backlog.expect(0, Unread(START + 10 * SECOND))
    backlog.expect(0, Unread(START, key="next:c"))
    assert backlog.key_to_read_on(0) == "next:c"
    backlog.expect(0, Unread(START - SECOND))
    assert backlog.key_to_read_on(0) == ""
    backlog.expect_none(0)
    backlog.expect(0, Unread(START, key="next:c"))
    backlog.expect(0, Unread(START + 10 * SECOND))
    assert backlog.next_at(START) == START + 10 * SECOND, "it is not behind the rest"
    backlog.forget_rest(0)
    assert backlog.to_read(START + 10 * SECOND) == [(START + 10 * SECOND, 0)]
    assert backlog.key_to_read_on(0) == ""


def test_another_walk_forgets_the_last() -> None:
    backlog = walked()
    backlog.expect(1, Unread(START))
    backlog.begin(200.0)
    assert backlog.to_read(START) == []
    assert backlog.ready(START + 100 * SECOND) == []
    assert backlog.lasts(200.0) == 60


def pause(backlog: Backlog) -> float:
    """Seconds from a ready token of the first shard to its reading, at the most."""
    backlog.expect_none(0)
    backlog.expect(0, Unread(START, Turn(1.0, START)))
    ((moment, _),) = backlog.to_read(START + timedelta(days=1))
    return (moment - START).total_seconds()


def test_the_pause_grows_each_time_that_no_token_is_left() -> None:
    backlog = walked()
    assert pause(backlog) == 0
    pauses = []
    for _ in range(10):
        backlog.found_none(0, 110.0)
        pauses.append(pause(backlog))
    assert pauses[:4] == [FIRST_PAUSE * PAUSE_GROWTH**n for n in range(4)]
    assert pauses[-1] == LONGEST_PAUSE * 60.0


def test_the_pause_lasts_from_a_lost_race_until_a_claim_a_cycle_later() -> None:
    backlog = walked()
    backlog.lost_race(0, 110.0)
    assert pause(backlog) == FIRST_PAUSE
    backlog.won(0, 169.0)
    assert pause(backlog) == FIRST_PAUSE
    backlog.won(0, 170.0)
    assert pause(backlog) == 0


def test_a_claim_makes_the_pause_short_again() -> None:
    backlog = walked()
    for _ in range(5):
        backlog.found_none(0, 110.0)
    backlog.lost_race(0, 111.0)
    assert pause(backlog) > 50
    backlog.won(0, 112.0)
    assert pause(backlog) == FIRST_PAUSE


def test_after_a_claim_the_rest_is_read_after_the_short_pause() -> None:
    backlog = walked()
    for _ in range(5):
        backlog.found_none(0, 110.0)
    backlog.expect(0, Unread(START, Turn(0.5, START)))
    assert backlog.to_read(START + 10 * SECOND) == []
    backlog.won(0, 112.0)
    ((moment, _),) = backlog.to_read(START + 10 * SECOND)
    assert moment == START + timedelta(seconds=FIRST_PAUSE / 2)


def test_it_says_whether_this_worker_can_take_what_is_expected() -> None:
    backlog = walked()
    backlog.expect(0, Unread(START, claimable=False))
    assert not backlog.expects(0, START)
    backlog.expect(0, Unread(START + SECOND))
    assert [backlog.expects(0, START + after * SECOND) for after in (0, 1)] == [False, True]


def test_a_walk_does_not_forget_the_pause() -> None:
    backlog = walked()
    backlog.found_none(0, 110.0)
    backlog.begin(200.0)
    assert pause(backlog) == FIRST_PAUSE


def test_the_highest_priority_goes_first_and_then_the_most_overdue() -> None:
    backlog = Backlog(cycle=60.0, shards=2)
    backlog.put(0, [candidate("a", after=0), candidate("b", after=10, priority=5)])
    backlog.put(1, [candidate("c", after=5, priority=-1), candidate("d", after=7, priority=5)])
    now = START + 60 * SECOND
    assert ids(backlog.ready(now)) == "dbac"
    assert ids(backlog.ready_in(0, now)) == "ba"
    assert ids(backlog.ready(START + 6 * SECOND)) == "ac", "only among those that are ready"


def test_where_a_type_has_a_limit_on_the_board_the_most_overdue_goes_first() -> None:
    """The worker that gets the permit may be the second for it, and others get none."""
    backlog, limit = Backlog(cycle=60.0, shards=1), Limit("feed", "", 1)
    both = [candidate("a", after=0, turn=Turn(0.5, START)), candidate("b", after=10)]
    now = START + 20 * SECOND
    backlog.put(0, both)
    assert ids(backlog.ready(now)) == "ba"
    backlog.put(0, [replace(one, limit=limit) for one in both])
    assert ids(backlog.ready(now)) == "ab"


def test_those_of_which_the_worker_is_the_first_go_before_others_that_are_a_little_older() -> None:
    backlog, a_little = Backlog(cycle=60.0, shards=2), round(PREFERENCE.total_seconds() / 2)
    second = Turn(0.5, START)
    backlog.put(0, [candidate("a", after=0, turn=second), candidate("b", after=a_little - 1)])
    now = START + 100 * SECOND
    assert ids(backlog.ready(now)) == ids(backlog.ready_in(0, now)) == "ba"
    backlog.put(0, [candidate("a", after=0, turn=second), candidate("b", after=a_little + 1)])
    assert ids(backlog.ready(now)) == ids(backlog.ready_in(0, now)) == "ab"
    backlog.put(0, [candidate("a", after=0, turn=second, priority=1), candidate("b", after=0)])
    assert ids(backlog.ready(now)) == ids(backlog.ready_in(0, now)) == "ab"


def test_a_shard_is_read_again_when_the_turn_of_the_worker_begins() -> None:
    backlog = walked()
    backlog.expect(0, Unread(START, Turn(0.5, START + 3 * SECOND)))
    assert backlog.to_read(START + 2 * SECOND) == []
    assert backlog.to_read(START + 3 * SECOND) == [(START + 3 * SECOND, 0)]
    assert backlog.waiting(START) == 2, "beside the first that was read: it is due all the same"
