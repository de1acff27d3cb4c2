"""What is kept of the tokens of a shard, and how far it is read."""

from collections.abc import Iterable
from typing import Any

from blackboard.model import replace
from blackboard.spec import RunSettings
from blackboard.tables.base import LARGEST_PAGE
from blackboard.worker.backlog import PREFERENCE, Backlog, Candidate, Unread, choose
from blackboard.worker.peers import FIRST, HEAD_START, Turn
from blackboard.worker.selection import (
    AHEAD,
    AHEAD_OF_A_SLOT,
    FEW_SLOTS,
    MOST_FOR_A_CYCLE,
    MOST_READ,
    Selection,
)
from blackboard.worker.slots import FreeSlots
from tests.support.candidates import SECOND, candidate, ids
from tests.support.clocks import START

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
    return [candidate(f"{mark}{n}", after=after, **about) for n in range(count)]


def limited(item_id: str, slots: int, **about: Any) -> Candidate:
    """A token of a type that has so many slots at the most."""
    return replace(candidate(item_id, item_type="slow", **about), settings=RunSettings(slots=slots))


def taken(made: Selection, slots: int, **running: int) -> str:
    """What is claimed at once of what was read."""
    kept, _ = made.settle(NOW)
    backlog = Backlog(cycle=60.0, shards=1)
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
        backlog = Backlog(cycle=60.0, shards=1)
        backlog.expect(0, unread)
        assert backlog.to_read(now), "once a slot is free"


def test_where_a_shard_is_read_on_what_the_backlog_has_stays_and_takes_its_slots() -> None:
    made = selection(slots=2)
    made.keep([candidate("a", after=0), candidate("z", after=2000)], NOW)
    assert read(made, many(500)) == 1 + AHEAD + 1
    kept, _ = made.settle(NOW)
    assert len(kept) == 2 + AHEAD + 1
    assert {one.id for one in kept} >= {"a", "z", "n0"}


def test_others_are_kept_for_free_slots_alone_the_last_of_them_first() -> None:
    """The worker that comes first begins at the other end."""
    made = selection(slots=2, peers=1)
    read(made, [candidate(one, after=0, turn=second()) for one in "abc"])
    kept, again = made.settle(NOW)
    assert ids(kept) == "cb"
    assert again == [Unread(START, second())], "they are read again for another slot"


def test_no_others_are_claimed_beside_its_own() -> None:
    """They would be lost together, where the other worker is faster."""
    for slots in (2, 3):
        made = selection(slots=slots, peers=1)
        read(made, [candidate("a", after=0, turn=second()), candidate("b", after=0)])
        kept, again = made.settle(NOW)
        assert ids(kept) == "b"
        assert again == [Unread(START, Turn(0.5, NOW + HEAD_START))]


def test_of_others_those_go_first_of_which_fewer_workers_come_before() -> None:
    made = selection(slots=1, peers=2)
    read(
        made,
        [
            candidate("a", after=0, turn=Turn(2 / 3, NOW)),
            candidate("b", after=0, turn=Turn(1 / 3, NOW)),
        ],
    )
    assert taken(made, 1) == "b"


def test_nothing_is_taken_before_the_turn_of_the_worker_begins() -> None:
    made = selection(slots=2, peers=1)
    read(
        made,
        [
            candidate("a", after=1, turn=second(begins=1)),
            candidate("b", after=0, turn=second(begins=2)),
        ],
    )
    kept, again = made.settle(NOW)
    assert kept == []
    assert again == [Unread(START, second(begins=1))], "due since the first, read for the soonest"


def test_those_passed_over_are_read_again_once_its_own_are_claimed() -> None:
    made = selection(slots=1, peers=1)
    read(
        made,
        [
            candidate("a", after=0, turn=second()),
            candidate("b", after=20),
            candidate("c", after=25),
        ],
    )
    kept, ((_, turn, *_),) = made.settle(NOW)
    assert ids(kept) == "bc"
    assert turn.begins == NOW
    backlog = Backlog(cycle=60.0, shards=1)
    backlog.put(0, kept)
    backlog.expect(0, Unread(START, turn))
    ((moment, _),) = backlog.to_read(NOW)
    assert all(one.ready <= moment for one in backlog.ready(NOW)), "they go first"


def test_one_that_has_waited_for_much_longer_goes_before_its_own() -> None:
    made = selection(slots=1, peers=1)
    read(made, [candidate("a", after=0, turn=second()), candidate("b", after=61)])
    assert taken(made, 1) == "a"


def test_what_comes_after_a_token_of_others_does_not_take_the_slot_meanwhile() -> None:
    """It is claimed after its own, and would be lost with them; a slot is kept for it."""
    made = selection(slots=2, peers=1)
    some = [candidate("f", after=0, priority=1), candidate("a", after=0, priority=1, turn=second())]
    read(made, [*some, candidate("g", after=0)])
    kept, again = made.settle(NOW)
    assert ids(kept) == "f"
    assert again == [Unread(START, Turn(0.0, NOW + HEAD_START))]
    made = selection(slots=1, peers=1)
    read(made, [*some[1:], candidate("g", after=0)])
    assert taken(made, 1) == "a"


def test_old_ones_of_others_come_before_its_own_one_slot_after_the_other() -> None:
    made = selection(slots=1, peers=1)
    read(
        made, [candidate(one, after=0, turn=second()) for one in "ab"] + [candidate("o", after=600)]
    )
    kept, again = made.settle(NOW)
    assert ids(kept) == "b"
    assert again == [Unread(START, Turn(0.0, START + PREFERENCE / 2))], "its own too"


def test_what_is_passed_over_is_read_again_before_the_rest_if_it_is_more_urgent() -> None:
    for rest, reads_on in ((20, True), (40, False)):
        made = selection(slots=2, peers=1)
        passed_over = [candidate("o", after=0), candidate("t", after=0, turn=second())]
        read(made, [*passed_over, *many(500, after=rest, turn=second())])
        kept, again = made.settle(NOW)
        assert ids(kept) == "o"
        assert again == [Unread(START, Turn(0.5, NOW + HEAD_START))]
        assert made.reads_on == reads_on


def test_a_type_that_is_full_keeps_no_other_from_the_free_slots() -> None:
    for turn in (FIRST, second()):
        made = selection(slots=8, peers=1, running=1, of_type="slow")
        some = [limited(f"s{n}", 1, after=0, turn=turn) for n in range(300)]
        read(made, [*some, candidate("f", after=30, turn=second())])
        assert taken(made, 8, slow=1) == "f", turn
        assert made.rest is not None
        assert not made.reads_on, "all that is ready was read"


def test_a_type_with_few_slots_keeps_no_other_from_being_read() -> None:
    made = selection(slots=8, peers=1)
    some = [limited(f"s{n}", 2, after=0, turn=second(begins=1)) for n in range(300)]
    read(made, [*some, candidate("f", after=30)])
    assert taken(made, 8) == "f"


def test_one_that_is_coming_and_of_which_another_is_the_first_is_not_kept() -> None:
    made = selection(slots=2, peers=1)
    read(
        made,
        [
            candidate("a", after=READY + 10, turn=second(begins=11)),
            candidate("b", after=READY + 20),
        ],
    )
    kept, again = made.settle(NOW)
    assert ids(kept) == "b"
    assert again == [Unread(NOW + 10 * SECOND, second(begins=11))]
