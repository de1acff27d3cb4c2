"""What a worker claims between two walks over the board, and when it reads a shard for more."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from blackboard.model import Token
from blackboard.spec import RunSettings
from blackboard.worker.backlog import (
    AHEAD,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    MOST_READ,
    PAUSE_GROWTH,
    Backlog,
    Candidate,
    Selection,
)
from blackboard.worker.peers import OWN, Left
from blackboard.worker.running import FreeSlots
from tests.support.clocks import START

SECOND = timedelta(seconds=1)


def token(
    item_id: str, *, after: int, priority: int = 0, item_type: str = "feed", left: Left = OWN
) -> Candidate:
    ready = START + after * SECOND
    made = Token(
        id=item_id,
        type=item_type,
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
    return Candidate(made, RunSettings(priority=priority), left=left)


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


def pause(backlog: Backlog) -> float:
    """Seconds from a ready token of the first shard to its reading, at the most."""
    backlog.expect_none(0)
    backlog.expect(0, START, Left(1.0, START))
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
    backlog.expect(0, START, Left(0.5, START))
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


def test_what_is_left_to_peers_is_read_once_it_is_left_no_more() -> None:
    backlog = walked()
    backlog.expect(0, START, Left(0.5, START + 3 * SECOND))
    assert backlog.to_read(START + 2 * SECOND) == []
    assert backlog.to_read(START + 3 * SECOND) == [(START + 3 * SECOND, 0)]
    assert backlog.waiting(START) == 2, "it is due all the same"


# ---- what is kept of a shard

NOW = START + 1000 * SECOND


def selection(*, slots: int, peers: int = 0, running: int = 0) -> Selection:
    free = FreeSlots(slots, Counter(feed=running))
    return Selection(free, total=slots, peers=peers)


def left(share: float, *, until: int = 0) -> Left:
    return Left(share, NOW + until * SECOND)


def read(made: Selection, tokens: Iterable[Candidate]) -> int:
    """Select tokens as a walk does; how many were read."""
    number, goes_on = 0, True
    for one in tokens:
        if not goes_on:
            break
        number += 1
        if one.left is not OWN:
            goes_on = made.leave(one)
        elif one.ready > NOW:
            goes_on = made.add_later(one.ready, one)
        else:
            goes_on = made.add(one)
    for one in made.in_turn(NOW):
        made.add(one)
    return number


def many(count: int, mark: str = "n", **about: Any) -> list[Candidate]:
    return [token(f"{mark}{n}", after=0, **about) for n in range(count)]


def test_a_shard_is_read_until_the_slots_are_filled_and_some_ahead() -> None:
    made = selection(slots=2)
    assert read(made, many(500)) == 2 + AHEAD + 1
    assert len(made.candidates) == 2 + AHEAD
    assert made.unread == [(START, True)]


def test_with_peers_more_is_read_to_keep_as_many_of_its_own() -> None:
    made = selection(slots=2, peers=1)
    tokens = [
        one for n in range(500) for one in (*many(1, f"a{n}", left=left(0.5)), *many(1, f"b{n}"))
    ]
    assert read(made, tokens) == 2 * (2 + AHEAD)
    assert len(made.candidates) == 2 + AHEAD
    assert all(one.left is OWN for one in made.candidates)


def test_no_more_than_a_page_is_read_for_that() -> None:
    made = selection(slots=100, peers=50)
    assert read(made, many(5000, left=left(0.5, until=1))) == MOST_READ
    assert made.candidates == []
    assert made.unread == [(START, True)], "there are more"


def test_what_is_left_to_peers_is_taken_when_nothing_else_is_there() -> None:
    made = selection(slots=2, peers=2)
    read(made, [token("a", after=0, left=left(2 / 3)), token("b", after=0, left=left(1 / 3))])
    assert ids(made.candidates) == "b", "that which is left to fewer"
    assert made.still_left(NOW) == (START, left(2 / 3))


def test_it_is_taken_from_the_end_for_its_owner_begins_at_the_other() -> None:
    made = selection(slots=2, peers=1)
    read(made, [token(one, after=0, left=left(0.5)) for one in "abc"])
    assert ids(made.candidates) == "cba"


def test_it_is_not_taken_before_its_time() -> None:
    made = selection(slots=2, peers=1)
    read(made, [token("a", after=0, left=left(0.5, until=1))])
    assert made.candidates == []
    assert made.still_left(NOW) == (START, left(0.5, until=1))


def test_its_own_go_before_those_that_are_left_to_peers() -> None:
    made = selection(slots=2, peers=1)
    read(made, [token("a", after=0, left=left(0.5)), token("b", after=30)])
    assert ids(made.candidates) == "b"
    assert made.still_left(NOW) == (START + 30 * SECOND, left(0.5)), "when the others are taken"


def test_but_not_before_those_that_have_waited_for_much_longer() -> None:
    made = selection(slots=2, peers=1)
    read(made, [token("a", after=0, left=left(0.5)), token("b", after=61)])
    assert sorted(ids(made.candidates)) == ["a", "b"]


def test_nor_before_those_of_a_higher_priority() -> None:
    made = selection(slots=2, peers=1)
    read(made, [token("a", after=0, priority=1, left=left(0.5)), token("b", after=0)])
    assert sorted(ids(made.candidates)) == ["a", "b"]


def test_its_own_of_a_type_that_is_full_are_no_reason_to_leave_others() -> None:
    made = selection(slots=2, peers=1)
    full = replace(token("a", after=0), settings=RunSettings(slots=0))
    read(made, [full, token("b", after=0, item_type="plain", left=left(0.5))])
    assert sorted(ids(made.candidates)) == ["a", "b"]


def test_a_token_that_is_coming_and_left_to_peers_is_not_kept() -> None:
    made = selection(slots=2, peers=1)
    read(made, [token("a", after=1010, left=left(0.5, until=11)), token("b", after=1020)])
    assert ids(made.candidates) == "b"
    assert made.still_left(NOW) == (START + 1010 * SECOND, left(0.5, until=11))
