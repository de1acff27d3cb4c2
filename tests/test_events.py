"""Every subscriber hears every event, and none can stop the worker."""

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


@pytest.mark.case("DF04")
@pytest.mark.parametrize(
    "problem", [OSError(28, "No space left"), ValueError("closed"), KeyError(1)]
)
def test_a_subscriber_that_fails_is_dropped(problem: Exception) -> None:
    events, calls, heard = Events(), list[Event](), list[Event]()

    def fail(event: Event) -> None:
        calls.append(event)
        raise problem

    events.subscribe(fail)
    events.subscribe(heard.append)
    events.emit(Kind.WALKED)
    events.emit(Kind.WALKED)
    assert (len(calls), len(heard)) == (1, 2)
