"""What a worker claims between two walks over the board, and when it reads a shard for more."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from blackboard.model import Token, replace
from blackboard.protocol.permits import Limit
from blackboard.spec import RunSettings
from blackboard.tables.base import LARGEST_PAGE
from blackboard.worker.backlog import (
    AHEAD,
    AHEAD_OF_A_SLOT,
    FEW_SLOTS,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    MOST_FOR_A_CYCLE,
    MOST_READ,
    PAUSE_GROWTH,
    PREFERENCE,
    Backlog,
    Candidate,
    Selection,
    Unread,
    choose,
)
from blackboard.worker.peers import FIRST, HEAD_START, Turn
from blackboard.worker.slots import FreeSlots
from tests.support.clocks import START

SECOND = timedelta(seconds=1)


def token(
    item_id: str, *, after: int, priority: int = 0, item_type: str = "feed", turn: Turn = FIRST
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
    return Candidate(made, RunSettings(priority=priority), turn=turn)


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
    backlog.put(0, [token("a", after=0), token("b", after=10, priority=5)])
    backlog.put(1, [token("c", after=5, priority=-1), token("d", after=7, priority=5)])
    now = START + 60 * SECOND
    assert ids(backlog.ready(now)) == "dbac"
    assert ids(backlog.ready_in(0, now)) == "ba"
    assert ids(backlog.ready(START + 6 * SECOND)) == "ac", "only among those that are ready"


def test_where_a_type_has_a_limit_on_the_board_the_most_overdue_goes_first() -> None:
    """The worker that gets the permit may be the second for it, and others get none."""
    backlog, limit = Backlog(cycle=60.0, shards=1), Limit("feed", "", 1)
    both = [token("a", after=0, turn=Turn(0.5, START)), token("b", after=10)]
    now = START + 20 * SECOND
    backlog.put(0, both)
    assert ids(backlog.ready(now)) == "ba"
    backlog.put(0, [replace(one, limit=limit) for one in both])
    assert ids(backlog.ready(now)) == "ab"


def test_those_of_which_the_worker_is_the_first_go_before_others_that_are_a_little_older() -> None:
    backlog, a_little = Backlog(cycle=60.0, shards=2), round(PREFERENCE.total_seconds() / 2)
    second = Turn(0.5, START)
    backlog.put(0, [token("a", after=0, turn=second), token("b", after=a_little - 1)])
    now = START + 100 * SECOND
    assert ids(backlog.ready(now)) == ids(backlog.ready_in(0, now)) == "ba"
    backlog.put(0, [token("a", after=0, turn=second), token("b", after=a_little + 1)])
    assert ids(backlog.ready(now)) == ids(backlog.ready_in(0, now)) == "ab"
    backlog.put(0, [token("a", after=0, turn=second, priority=1), token("b", after=0)])
    assert ids(backlog.ready(now)) == ids(backlog.ready_in(0, now)) == "ab"


def test_a_shard_is_read_again_when_the_turn_of_the_worker_begins() -> None:
    backlog = walked()
    backlog.expect(0, Unread(START, Turn(0.5, START + 3 * SECOND)))
    assert backlog.to_read(START + 2 * SECOND) == []
    assert backlog.to_read(START + 3 * SECOND) == [(START + 3 * SECOND, 0)]
    assert backlog.waiting(START) == 2, "beside the first that was read: it is due all the same"


# ---- what is kept of a shard

NOW = START + 1000 * SECOND
READY = 1000


def second(*, begins: int = 0) -> Turn:
    """The turn of the second of two workers, in so many seconds."""
    return Turn(0.5, NOW + begins * SECOND)


def selection(
    *, slots: int, peers: int = 0, running: int = 0, of_type: str = "feed", pace: int = 0
) -> Selection:
    taken = {of_type: running}
    return Selection(
        lambda times: FreeSlots(slots - running, taken, times=times),
        total=slots,
        workers=peers + 1,
        pace=pace,
    )


def read(made: Selection, tokens: Iterable[Candidate]) -> int:
    """Select tokens as a walk does; how many were read."""
    number, goes_on = 0, True
    for one in tokens:
        if not goes_on:
            break
        number += 1
        goes_on = made.add_later(one.ready, one) if one.ready > NOW else made.add(one)
    return number


def many(count: int, mark: str = "n", *, after: int = 0, **about: Any) -> list[Candidate]:
    return [token(f"{mark}{n}", after=after, **about) for n in range(count)]


def limited(item_id: str, slots: int, **about: Any) -> Candidate:
    """A token of a type that has so many slots at the most."""
    return replace(token(item_id, item_type="slow", **about), settings=RunSettings(slots=slots))


def taken(made: Selection, slots: int, **running: int) -> str:
    """What is claimed at once of what was read."""
    kept, _ = made.settle(NOW)
    backlog = walked()
    backlog.put(0, kept)
    return ids(choose(backlog.ready_in(0, NOW), FreeSlots(slots - sum(running.values()), running)))


def test_a_shard_is_read_until_the_slots_are_filled_and_some_ahead() -> None:
    made = selection(slots=2)
    assert read(made, many(500)) == 2 + AHEAD + 1
    assert len(made.settle(NOW)[0]) == 2 + AHEAD
    assert made.rest is not None
    assert made.rest.ready == START


def test_many_slots_use_up_the_larger_pages_that_they_need() -> None:
    assert read(selection(slots=FEW_SLOTS), many(2000)) == FEW_SLOTS + AHEAD + 1
    ahead = AHEAD + AHEAD_OF_A_SLOT * (100 - FEW_SLOTS)
    with_locks = 100 + 100 + ahead
    assert 0.9 * LARGEST_PAGE < with_locks <= LARGEST_PAGE
    assert read(selection(slots=100), many(2000)) == 100 + ahead + 1


def test_with_a_peer_twice_as_many_are_read_to_keep_as_many() -> None:
    made = selection(slots=2, peers=1)
    both = zip(many(500, "a", turn=second()), many(500, "b"), strict=True)
    assert read(made, [one for pair in both for one in pair]) == 2 * (2 + AHEAD) + 1
    kept, _ = made.settle(NOW)
    assert len(kept) == 2 + AHEAD
    assert all(one.turn is FIRST for one in kept)


def test_no_more_than_a_thousand_are_read_for_that() -> None:
    made = selection(slots=8, peers=50)
    assert MOST_READ - (8 + AHEAD) < read(made, many(5000, turn=second(begins=1))) <= MOST_READ + 1
    assert made.settle(NOW) == ([], [Unread(START, second(begins=1))])
    assert made.rest is not None, "there are more"
    assert made.reads_on


def test_as_many_are_read_as_were_claimed_in_the_cycle_before() -> None:
    made = selection(slots=2, peers=1, pace=300)
    both = zip(many(500, "a", turn=second()), many(500, "b"), strict=True)
    assert read(made, [one for pair in both for one in pair]) == 2 * 300 + 1
    assert len(made.settle(NOW)[0]) == 300
    assert read(selection(slots=2, peers=50, pace=300), many(9000)) == MOST_FOR_A_CYCLE + 1


def test_without_a_free_slot_its_own_are_kept_for_those_that_become_free() -> None:
    made = selection(slots=2, running=2, peers=1, pace=3)
    assert read(made, [*many(3, "a", turn=second()), *many(500, "b")]) == 2 * 3 + 1
    kept, again = made.settle(NOW)
    assert ids(kept) == "b0b1b2"
    assert [one.ready for one in again] == [START], "the others, by another reading"
    idle = selection(slots=2, running=2)
    assert read(idle, many(500)) == 1
    assert idle.settle(NOW) == ([], [])
    for now in (NOW, START + SECOND):
        none_of_its_own = selection(slots=2, running=2, peers=1, pace=3)
        read(none_of_its_own, many(3, turn=Turn(0.5, START)))
        kept, (unread,) = none_of_its_own.settle(now)
        assert (kept, unread.ready) == ([], START)
        backlog = walked()
        backlog.expect(0, unread)
        assert backlog.to_read(now), "once a slot is free"


def test_where_a_shard_is_read_on_what_the_backlog_has_stays_and_takes_its_slots() -> None:
    made = selection(slots=2)
    made.keep([token("a", after=0), token("z", after=2000)], NOW)
    assert read(made, many(500)) == 1 + AHEAD + 1
    kept, _ = made.settle(NOW)
    assert len(kept) == 2 + AHEAD + 1
    assert {one.id for one in kept} >= {"a", "z", "n0"}


def test_others_are_kept_for_free_slots_alone_the_last_of_them_first() -> None:
    """The worker that comes first begins at the other end."""
    made = selection(slots=2, peers=1)
    read(made, [token(one, after=0, turn=second()) for one in "abc"])
    kept, again = made.settle(NOW)
    assert ids(kept) == "cb"
    assert again == [Unread(START, second())], "they are read again for another slot"


def test_no_others_are_claimed_beside_its_own() -> None:
    """They would be lost together, where the other worker is faster."""
    for slots in (2, 3):
        made = selection(slots=slots, peers=1)
        read(made, [token("a", after=0, turn=second()), token("b", after=0)])
        kept, again = made.settle(NOW)
        assert ids(kept) == "b"
        assert again == [Unread(START, Turn(0.5, NOW + HEAD_START))]


def test_of_others_those_go_first_of_which_fewer_workers_come_before() -> None:
    made = selection(slots=1, peers=2)
    read(
        made,
        [token("a", after=0, turn=Turn(2 / 3, NOW)), token("b", after=0, turn=Turn(1 / 3, NOW))],
    )
    assert taken(made, 1) == "b"


def test_nothing_is_taken_before_the_turn_of_the_worker_begins() -> None:
    made = selection(slots=2, peers=1)
    read(
        made,
        [token("a", after=1, turn=second(begins=1)), token("b", after=0, turn=second(begins=2))],
    )
    kept, again = made.settle(NOW)
    assert kept == []
    assert again == [Unread(START, second(begins=1))], "due since the first, read for the soonest"


def test_those_passed_over_are_read_again_once_its_own_are_claimed() -> None:
    made = selection(slots=1, peers=1)
    read(made, [token("a", after=0, turn=second()), token("b", after=20), token("c", after=25)])
    kept, ((_, turn, *_),) = made.settle(NOW)
    assert ids(kept) == "bc"
    assert turn.begins == NOW
    backlog = walked()
    backlog.put(0, kept)
    backlog.expect(0, Unread(START, turn))
    ((moment, _),) = backlog.to_read(NOW)
    assert all(one.ready <= moment for one in backlog.ready(NOW)), "they go first"


def test_one_that_has_waited_for_much_longer_goes_before_its_own() -> None:
    made = selection(slots=1, peers=1)
    read(made, [token("a", after=0, turn=second()), token("b", after=61)])
    assert taken(made, 1) == "a"


def test_what_comes_after_a_token_of_others_does_not_take_the_slot_meanwhile() -> None:
    """It is claimed after its own, and would be lost with them; a slot is kept for it."""
    made = selection(slots=2, peers=1)
    some = [token("f", after=0, priority=1), token("a", after=0, priority=1, turn=second())]
    read(made, [*some, token("g", after=0)])
    kept, again = made.settle(NOW)
    assert ids(kept) == "f"
    assert again == [Unread(START, Turn(0.0, NOW + HEAD_START))]
    made = selection(slots=1, peers=1)
    read(made, [*some[1:], token("g", after=0)])
    assert taken(made, 1) == "a"


def test_old_ones_of_others_come_before_its_own_one_slot_after_the_other() -> None:
    made = selection(slots=1, peers=1)
    read(made, [token(one, after=0, turn=second()) for one in "ab"] + [token("o", after=600)])
    kept, again = made.settle(NOW)
    assert ids(kept) == "b"
    assert again == [Unread(START, Turn(0.0, START + PREFERENCE / 2))], "its own too"


def test_what_is_passed_over_is_read_again_before_the_rest_if_it_is_more_urgent() -> None:
    for rest, reads_on in ((20, True), (40, False)):
        made = selection(slots=2, peers=1)
        passed_over = [token("o", after=0), token("t", after=0, turn=second())]
        read(made, [*passed_over, *many(500, after=rest, turn=second())])
        kept, again = made.settle(NOW)
        assert ids(kept) == "o"
        assert again == [Unread(START, Turn(0.5, NOW + HEAD_START))]
        assert made.reads_on == reads_on


def test_a_type_that_is_full_keeps_no_other_from_the_free_slots() -> None:
    for turn in (FIRST, second()):
        made = selection(slots=8, peers=1, running=1, of_type="slow")
        some = [limited(f"s{n}", 1, after=0, turn=turn) for n in range(300)]
        read(made, [*some, token("f", after=30, turn=second())])
        assert taken(made, 8, slow=1) == "f", turn
        assert made.rest is not None
        assert not made.reads_on, "all that is ready was read"


def test_a_type_with_few_slots_keeps_no_other_from_being_read() -> None:
    made = selection(slots=8, peers=1)
    some = [limited(f"s{n}", 2, after=0, turn=second(begins=1)) for n in range(300)]
    read(made, [*some, token("f", after=30)])
    assert taken(made, 8) == "f"


def test_one_that_is_coming_and_of_which_another_is_the_first_is_not_kept() -> None:
    made = selection(slots=2, peers=1)
    read(made, [token("a", after=READY + 10, turn=second(begins=11)), token("b", after=READY + 20)])
    kept, again = made.settle(NOW)
    assert ids(kept) == "b"
    assert again == [Unread(NOW + 10 * SECOND, second(begins=11))]
