"""Every subscriber hears every event, and none can stop the worker, nor itself."""

import asyncio
import logging

import pytest

from blackboard.events import Event, Events, Kind


def test_all_subscribers_hear_all_events() -> None:
    events, first, second = Events("me"), list[Event](), list[Event]()
    events.subscribe(first.append)
    events.emit(Kind.STARTED, "8 slots")
    events.subscribe(second.append)
    events.emit(Kind.ENDED, "ok", item="davis", type="feed", fence=3, data={"lag": 1.5})
    assert [event.kind for event in first] == [Kind.STARTED, Kind.ENDED]
    assert second == first[1:]
    assert second[0] == Event(
        kind=Kind.ENDED,
        message="ok",
        worker="me",
        item="davis",
        type="feed",
        fence=3,
        data={"lag": 1.5},
    )


class Fails:
    """A subscriber that raises as long as it has something to raise."""

    def __init__(self, problem: BaseException | None = None) -> None:
        self.problem = problem
        self.heard: list[Event] = []
        self.asked = 0

    def __call__(self, event: Event) -> None:
        self.asked += 1
        if self.problem is not None:
            raise self.problem
        self.heard.append(event)


@pytest.mark.case("DF04")
@pytest.mark.parametrize(
    "problem",
    [
        OSError(28, "No space left"),
        ValueError("closed"),
        KeyError(1),
        RecursionError(),
        SystemExit(0),
        asyncio.CancelledError(),
    ],
)
def test_a_subscriber_that_fails_is_isolated_tried_again_and_counted(
    problem: BaseException,
) -> None:
    """It has its events again as soon as it takes them, and is told how many it missed."""
    events, fails, other = Events("me"), Fails(problem), Fails()
    events.subscribe(fails, "the log")
    events.subscribe(other)
    for _ in range(12):
        events.emit(Kind.WALKED)
    assert fails.asked == 12
    assert events.failures == 12
    assert [event.kind for event in other.heard].count(Kind.WALKED) == 12
    told = [event for event in other.heard if event.kind is Kind.SUBSCRIBER]
    assert [event.message.split(":")[0] for event in told] == [
        "the log fails (1)",
        "the log fails (10)",
    ]
    assert {event.level for event in told} == {logging.WARNING}
    fails.problem = None
    events.emit(Kind.ENDED, "ok")
    events.emit(Kind.WALKED)
    assert [event.kind for event in fails.heard] == [Kind.ENDED, Kind.SUBSCRIBER, Kind.WALKED]
    assert fails.heard[1].message.startswith("12 events were missed here: ")
    assert fails.heard[1].worker == "me"


def test_what_a_subscriber_says_of_its_failure_names_no_secret() -> None:
    events, fails, other = Events(), Fails(ValueError("https://a.example/?key=hush")), Fails()
    events.subscribe(fails)
    events.subscribe(other)
    events.emit(Kind.WALKED)
    fails.problem = None
    events.emit(Kind.WALKED)
    assert "hush" not in "".join(event.message for event in other.heard + fails.heard)


def test_two_subscribers_that_fail_do_not_tell_each_other_for_ever() -> None:
    events, one, another = Events(), Fails(KeyError(1)), Fails(KeyError(2))
    events.subscribe(one)
    events.subscribe(another)
    events.emit(Kind.WALKED)
    assert (one.asked, another.asked) == (2, 2)
    assert events.failures == 4


def test_an_event_that_a_subscriber_emits_itself_is_handed_on() -> None:
    events, other = Events(), Fails()

    def answers(event: Event) -> None:
        if event.kind is Kind.WALKED:
            events.emit(Kind.NOTIFY, "heard")

    events.subscribe(answers)
    events.subscribe(other)
    events.emit(Kind.WALKED)
    assert [event.kind for event in other.heard] == [Kind.NOTIFY, Kind.WALKED]
