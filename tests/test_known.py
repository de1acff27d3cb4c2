"""What a worker knows between two looks, and for how long."""

from datetime import timedelta

from blackboard.known import Known
from blackboard.model import Token
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
    known = Known(cycle=60.0)
    known.look(100.0)
    known.put(0, [token("a", after=0), token("c", after=20)])
    known.put(1, [token("b", after=10), token("d", after=30)])
    return known


def ids(tokens: list[Token]) -> str:
    return "".join(one.id for one in tokens)


def test_before_the_first_look_nothing_is_known() -> None:
    known = Known(cycle=60.0)
    assert known.until(100.0) == 0
    assert known.ready(START) == []
    assert known.next(START) is None


def test_a_look_is_good_for_a_cycle() -> None:
    known = looked()
    assert [known.until(now) for now in (100.0, 130.0, 160.0, 500.0)] == [60, 30, 0, 0]
    known.forget()
    assert known.until(130.0) == 0


def test_what_is_ready_most_overdue_first_whatever_its_shard() -> None:
    known = looked()
    assert ids(known.ready(START + 20 * SECOND)) == "abc"
    assert ids(known.of_shard(1, START + 20 * SECOND)) == "b"
    known.drop(0, {"a"})
    assert ids(known.ready(START + 20 * SECOND)) == "bc"


def test_the_next_is_known_or_expected() -> None:
    known = looked()
    assert known.next(START + 10 * SECOND) == START + 20 * SECOND
    for after in (15, 25):
        known.expect(START + after * SECOND)
    assert known.next(START + 10 * SECOND) == START + 15 * SECOND
    assert known.next(START + 15 * SECOND) == START + 20 * SECOND
    assert known.next(START + 30 * SECOND) is None


def test_all_is_read_until_something_that_was_not_is_ready() -> None:
    known = looked()
    assert known.all_read(START + 1000 * SECOND)
    known.expect(START + 15 * SECOND)
    assert known.all_read(START + 14 * SECOND)
    assert not known.all_read(START + 15 * SECOND)


def test_another_look_forgets_the_last() -> None:
    known = looked()
    known.expect(START)
    known.look(200.0)
    assert known.all_read(START)
    assert known.ready(START + 100 * SECOND) == []
    assert known.until(200.0) == 60


def test_who_was_slower_is_not_alone_for_a_cycle() -> None:
    known = looked()
    assert known.alone(100.0)
    known.race(110.0)
    assert not known.alone(169.0)
    assert known.alone(170.0)
