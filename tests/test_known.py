"""What a worker knows between two looks, and for how long."""

from datetime import timedelta

from blackboard.model import Token
from blackboard.worker.backlog import FIRST_PAUSE, LONGEST_PAUSE, PAUSE_GROWTH, Known
from tests.clocks import START

SECOND = timedelta(seconds=1)


def token(item_id: str, *, after: int) -> Token:
    ready = START + after * SECOND
    return Token(
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


def looked() -> Known:
    known = Known(cycle=60.0, shards=2)
    known.look(100.0)
    known.put(0, [token("a", after=0), token("c", after=20)])
    known.put(1, [token("b", after=10), token("d", after=30)])
    return known


def ids(tokens: list[Token]) -> str:
    return "".join(one.id for one in tokens)


def test_before_the_first_look_nothing_is_known() -> None:
    known = Known(cycle=60.0, shards=2)
    assert known.until(100.0) == 0
    assert known.ready(START) == []
    assert known.unread(START) == []
    assert known.next(START) is None


def test_a_look_is_good_for_a_cycle() -> None:
    known = looked()
    assert [known.until(now) for now in (100.0, 130.0, 160.0, 500.0)] == [60, 30, 0, 0]
    known.forget()
    assert known.until(130.0) == 0


def test_a_cycle_ends_for_a_clock_that_is_a_little_slow() -> None:
    assert looked().until(160.0 - 1e-6) == 0


def test_what_is_ready_most_overdue_first_whatever_its_shard() -> None:
    known = looked()
    assert ids(known.ready(START + 20 * SECOND)) == "abc"
    assert ids(known.of_shard(1, START + 20 * SECOND)) == "b"
    known.drop(0, {"a"})
    assert ids(known.ready(START + 20 * SECOND)) == "bc"


def test_of_what_is_equally_overdue_a_worker_begins_in_a_shard_of_its_own() -> None:
    known = Known(cycle=60.0, shards=3, first_shard=1)
    known.look(100.0)
    for shard, item_id in enumerate("abc"):
        known.put(shard, [token(item_id, after=0)])
    assert ids(known.ready(START)) == "bca"


def test_the_next_is_known_or_expected() -> None:
    known = looked()
    assert known.next(START + 10 * SECOND) == START + 20 * SECOND
    for after in (15, 25):
        known.expect(0, START + after * SECOND)
    assert known.next(START + 10 * SECOND) == START + 15 * SECOND
    assert known.next(START + 15 * SECOND) == START + 20 * SECOND
    assert known.next(START + 20 * SECOND) == START + 25 * SECOND
    assert known.next(START + 30 * SECOND) is None


def test_shards_with_more_are_read_again_most_overdue_first() -> None:
    known = looked()
    known.expect(0, START + 15 * SECOND)
    known.expect(1, START + 12 * SECOND)
    known.expect(1, START + 18 * SECOND)
    assert known.unread(START + 11 * SECOND) == []
    assert known.unread(START + 12 * SECOND) == [(START + 12 * SECOND, 1)]
    assert [shard for _, shard in known.unread(START + 15 * SECOND)] == [1, 0]
    known.expect_no_more(1)
    assert [shard for _, shard in known.unread(START + 20 * SECOND)] == [0]


def test_another_look_forgets_the_last() -> None:
    known = looked()
    known.expect(1, START)
    known.look(200.0)
    assert known.unread(START) == []
    assert known.ready(START + 100 * SECOND) == []
    assert known.until(200.0) == 60


def test_who_was_slower_is_not_alone_until_it_wins_a_cycle_later() -> None:
    known = looked()
    assert known.alone(0)
    known.raced(0, 110.0)
    assert [known.alone(0), known.alone(1)] == [False, True]
    known.won(0, 169.0)
    assert not known.alone(0)
    known.won(0, 170.0)
    assert known.alone(0)


def room(known: Known) -> float:
    """Seconds that others are left at a token of the first shard, at the most."""
    known.expect_no_more(0)
    known.expect(0, START, share=1.0)
    ((moment, _),) = known.unread(START + timedelta(days=1))
    return (moment - START).total_seconds()


def test_who_finds_nothing_left_leaves_more_room_each_time() -> None:
    known = looked()
    assert room(known) == 0
    rooms = []
    for _ in range(10):
        known.lost(0, 110.0)
        rooms.append(room(known))
    assert rooms[:4] == [FIRST_PAUSE * PAUSE_GROWTH**n for n in range(4)]
    assert rooms[-1] == LONGEST_PAUSE * 60.0


def test_who_gets_something_begins_anew_with_the_room_it_leaves() -> None:
    known = looked()
    for _ in range(5):
        known.lost(0, 110.0)
    known.raced(0, 111.0)
    assert room(known) > 50
    known.won(0, 112.0)
    assert room(known) == FIRST_PAUSE


def test_who_gets_something_comes_for_the_rest_as_soon_as_others_would() -> None:
    known = looked()
    for _ in range(5):
        known.lost(0, 110.0)
    known.expect(0, START, share=0.5)
    assert known.unread(START + 10 * SECOND) == []
    known.won(0, 112.0)
    ((moment, _),) = known.unread(START + 10 * SECOND)
    assert moment == START + timedelta(seconds=FIRST_PAUSE / 2)


def test_it_is_known_whether_what_is_expected_is_for_this_worker() -> None:
    known = looked()
    known.expect(0, START, is_for_us=False)
    assert not known.expects(0, START)
    known.expect(0, START + SECOND)
    assert [known.expects(0, START + after * SECOND) for after in (0, 1)] == [False, True]


def test_a_look_does_not_forget_how_much_room_others_want() -> None:
    known = looked()
    known.lost(0, 110.0)
    known.look(200.0)
    assert room(known) == FIRST_PAUSE
