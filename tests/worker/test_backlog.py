"""What a worker claims between two walks over the board, and when it reads a shard for more."""

from datetime import timedelta

from blackboard.model import Token
from blackboard.spec import RunSettings
from blackboard.worker.backlog import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    PAUSE_GROWTH,
    Backlog,
    Candidate,
    rotated,
)
from tests.support.clocks import START

SECOND = timedelta(seconds=1)


def token(item_id: str, *, after: int, priority: int = 0) -> Candidate:
    ready = START + after * SECOND
    made = Token(
        id=item_id,
        type="feed",
        spec="{}",
        fence=0,
        born=0,
        slot=ready,
        ready=ready,
        planned=ready,
        attempt=1,
        runs=0,
        failures=0,
        once="",
    )
    return Candidate(made, RunSettings(priority=priority))


def walked() -> Backlog:
    backlog = Backlog(cycle=60.0, shards=2)
    backlog.begin(100.0)
    backlog.put(0, [token("a", after=0), token("c", after=20)])
    backlog.put(1, [token("b", after=10), token("d", after=30)])
    return backlog


def ids(candidates: list[Candidate]) -> str:
    return "".join(one.id for one in candidates)


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
        backlog.put(shard, [token(item_id, after=0)])
    assert ids(backlog.ready(START)) == "bca"


def test_the_next_is_a_candidate_or_expected() -> None:
    backlog = walked()
    assert backlog.next_at(START + 10 * SECOND) == START + 20 * SECOND
    for after in (15, 25):
        backlog.expect(0, START + after * SECOND)
    assert backlog.next_at(START + 10 * SECOND) == START + 15 * SECOND
    assert backlog.next_at(START + 15 * SECOND) == START + 20 * SECOND
    assert backlog.next_at(START + 20 * SECOND) == START + 25 * SECOND
    assert backlog.next_at(START + 30 * SECOND) is None


def test_shards_with_more_are_read_again_most_overdue_first() -> None:
    backlog = walked()
    backlog.expect(0, START + 15 * SECOND)
    backlog.expect(1, START + 12 * SECOND)
    backlog.expect(1, START + 18 * SECOND)
    assert backlog.to_read(START + 11 * SECOND) == []
    assert backlog.to_read(START + 12 * SECOND) == [(START + 12 * SECOND, 1)]
    assert [shard for _, shard in backlog.to_read(START + 15 * SECOND)] == [1, 0]
    backlog.expect_none(1)
    assert [shard for _, shard in backlog.to_read(START + 20 * SECOND)] == [0]


def test_another_walk_forgets_the_last() -> None:
    backlog = walked()
    backlog.expect(1, START)
    backlog.begin(200.0)
    assert backlog.to_read(START) == []
    assert backlog.ready(START + 100 * SECOND) == []
    assert backlog.lasts(200.0) == 60


def test_a_shard_is_contended_from_a_lost_race_until_a_claim_a_cycle_later() -> None:
    backlog = walked()
    assert not backlog.contended(0)
    backlog.lost_race(0, 110.0)
    assert [backlog.contended(0), backlog.contended(1)] == [True, False]
    backlog.won(0, 169.0)
    assert backlog.contended(0)
    backlog.won(0, 170.0)
    assert not backlog.contended(0)


def pause(backlog: Backlog) -> float:
    """Seconds from a ready token of the first shard to its reading, at the most."""
    backlog.expect_none(0)
    backlog.expect(0, START, share=1.0)
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
    backlog.expect(0, START, share=0.5)
    assert backlog.to_read(START + 10 * SECOND) == []
    backlog.won(0, 112.0)
    ((moment, _),) = backlog.to_read(START + 10 * SECOND)
    assert moment == START + timedelta(seconds=FIRST_PAUSE / 2)


def test_it_says_whether_this_worker_can_take_what_is_expected() -> None:
    backlog = walked()
    backlog.expect(0, START, claimable=False)
    assert not backlog.expects(0, START)
    backlog.expect(0, START + SECOND)
    assert [backlog.expects(0, START + after * SECOND) for after in (0, 1)] == [False, True]


def test_a_walk_does_not_forget_the_pause() -> None:
    backlog = walked()
    backlog.found_none(0, 110.0)
    backlog.begin(200.0)
    assert pause(backlog) == FIRST_PAUSE


def test_the_highest_priority_goes_first_and_then_the_most_overdue() -> None:
    backlog = Backlog(cycle=60.0, shards=2)
    backlog.put(0, [token("a", after=0), token("b", after=10, priority=5)])
    backlog.put(1, [token("c", after=5, priority=-1), token("d", after=7, priority=5)])
    now = START + 60 * SECOND
    assert ids(backlog.ready(now)) == "dbac"
    assert ids(backlog.ready_in(0, now)) == "ba"
    assert ids(backlog.ready(START + 6 * SECOND)) == "ac", "only among those that are ready"
    some = [token(one, after=0, priority=one == "z") for one in "wxyz"]
    assert ids(rotated(some, 0.25)) == "zxyw"
