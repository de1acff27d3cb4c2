"""What is remembered, and no more."""

from blackboard.worker.holdings import MOST_GIVEN_UP, Holdings, Latest


def test_the_latest_stay_and_the_oldest_go() -> None:
    latest = Latest(3)
    for name in ("a", "b", "c", "a", "d"):
        latest.add(name)
    assert [name for name in "abcd" if name in latest] == ["a", "c", "d"]


def test_runs_that_cannot_be_let_go_are_not_remembered_for_ever() -> None:
    given_up = Holdings(1).given_up
    for number in range(3 * MOST_GIVEN_UP):
        given_up.add(str(number))
    first = 2 * MOST_GIVEN_UP
    assert (str(first - 1) in given_up, str(first) in given_up) == (False, True)
