"""Events are values. Every subscriber gets each of them, and none can stop the worker."""

import asyncio
import io
import logging
from collections import Counter
from typing import get_args, get_type_hints

import pytest

import blackboard.events
from blackboard.cli.worker_log import subscriber
from blackboard.emitter import EventEmitter, log_event
from blackboard.events import (
    BoardEvent,
    BoardFinding,
    EventsMissed,
    FreedLock,
    LockLost,
    NoticeFailed,
    OverdueRun,
    RunStarted,
    SlotSkipped,
    Walked,
    WorkerStopped,
    WorkerStopping,
)
from blackboard.model import Outcome
from blackboard.records import BoardRun
from tests.support.clocks import START, ManualClock
from tests.support.events import emit_walk, ended


def test_all_subscribers_hear_all_events() -> None:
    events, first, second = EventEmitter("me"), list[BoardEvent](), list[BoardEvent]()
    events.subscribe(first.append)
    events.emit(WorkerStopping, message="nothing runs")
    events.subscribe(second.append)
    events.emit_of(ended(), LockLost, message="it was overridden")
    assert list(map(type, first)) == [WorkerStopping, LockLost]
    assert second == first[1:]
    assert second[0] == LockLost("me", "davis", "feed", 7, message="it was overridden")


class Fails:
    """A subscriber that raises as long as it has something to raise."""

    def __init__(self, problem: BaseException | None = None) -> None:
        self.problem = problem
        self.heard: list[BoardEvent] = []
        self.asked = 0

    def __call__(self, event: BoardEvent) -> None:
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
        GeneratorExit(),
    ],
)
def test_a_subscriber_that_fails_is_isolated_tried_again_and_counted(
    problem: BaseException,
) -> None:
    """It has its events again as soon as it takes them, and is told how many it missed."""
    events, fails, other = EventEmitter("me"), Fails(problem), Fails()
    events.subscribe(fails, "the log")
    events.subscribe(other)
    for _ in range(12):
        emit_walk(events)
    assert fails.asked == 12
    assert events.failures == 12
    assert list(map(type, other.heard)).count(Walked) == 12
    told = [event for event in other.heard if isinstance(event, EventsMissed)]
    assert [event.message.split(":")[0] for event in told] == [
        "the log fails (1)",
        "the log fails (10)",
    ]
    assert {event.level for event in told} == {logging.WARNING}
    fails.problem = None
    events.emit(WorkerStopping, message="now")
    emit_walk(events)
    assert list(map(type, fails.heard)) == [WorkerStopping, EventsMissed, Walked]
    assert fails.heard[1].message.startswith("12 events were missed here: ")
    assert fails.heard[1].worker == "me"


def test_what_a_subscriber_says_of_its_failure_names_no_secret() -> None:
    events, fails, other = EventEmitter(), Fails(ValueError("https://a.example/?key=hush")), Fails()
    events.subscribe(fails)
    events.subscribe(other)
    emit_walk(events)
    fails.problem = None
    emit_walk(events)
    assert "hush" not in "".join(event.message for event in other.heard + fails.heard)


def test_a_subscriber_without_a_name_is_named_by_its_class_or_function() -> None:
    def refuses(_event: BoardEvent) -> None:
        raise ValueError

    events, other = EventEmitter(), Fails()
    events.subscribe(Fails(KeyError(1)))
    events.subscribe(refuses)
    events.subscribe(other)
    emit_walk(events)
    told = [event for event in other.heard if isinstance(event, EventsMissed)]
    assert [one.subscriber.rpartition(".")[2] for one in told] == ["Fails", "refuses"]
    assert all(one.message.startswith(f"{one.subscriber} fails (") for one in told)


def test_two_subscribers_that_fail_do_not_tell_each_other_for_ever() -> None:
    events, one, another = EventEmitter(), Fails(KeyError(1)), Fails(KeyError(2))
    events.subscribe(one)
    events.subscribe(another)
    emit_walk(events)
    assert (one.asked, another.asked) == (2, 2)
    assert events.failures == 4


def test_an_event_that_a_subscriber_emits_itself_is_handed_on() -> None:
    events, other = EventEmitter(), Fails()

    def answers(event: BoardEvent) -> None:
        if isinstance(event, Walked):
            events.emit(NoticeFailed, message="heard")

    events.subscribe(answers)
    events.subscribe(other)
    emit_walk(events)
    assert list(map(type, other.heard)) == [NoticeFailed, Walked]


# ---- the classes

CLASSES = [
    found
    for found in vars(blackboard.events).values()
    if isinstance(found, type) and issubclass(found, BoardEvent)
]
PUBLIC = {BoardFinding, BoardRun, FreedLock, Outcome, OverdueRun}


@pytest.mark.parametrize("event", CLASSES)
def test_an_event_holds_nothing_internal_and_cannot_be_changed(event: type[BoardEvent]) -> None:
    """Else a program would depend on rows and on what the protocol passes about."""
    left = [hint for name, hint in get_type_hints(event).items() if name != "kind"]
    while left:
        hint = left.pop()
        left += get_args(hint)
        if isinstance(hint, type) and hint.__module__.startswith("blackboard"):
            assert hint in PUBLIC
    assert event.__struct_config__.frozen


def test_a_kind_of_event_is_named_once_in_logs() -> None:
    kinds = Counter(vars(event)["kind"] for event in CLASSES if "kind" in vars(event))
    assert set(kinds.values()) == {1}
    unnamed = {event for event in CLASSES if not hasattr(event, "kind")}
    assert {one.__name__ for one in unnamed} == {"BoardEvent", "BoardItemEvent", "TroubleEvent"}


def test_the_page_of_the_module_names_each_class() -> None:
    parents = {parent for event in CLASSES for parent in event.__mro__[1:]}
    listed = (blackboard.events.__doc__ or "").partition("def count")[0].split()
    assert {one.__name__ for one in CLASSES if one not in parents} <= set(listed)


def test_no_text_is_made_where_no_subscriber_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> str:
        raise AssertionError("it was formatted")

    heard: list[BoardEvent] = []
    events = EventEmitter("me")
    events.subscribe(heard.append)
    events.subscribe(subscriber(ManualClock(), level=logging.ERROR, stream=io.StringIO()))
    events.subscribe(log_event)
    monkeypatch.setattr(logging.getLogger("blackboard"), "level", logging.ERROR)
    monkeypatch.setattr(blackboard.events, "stamp", fails)
    monkeypatch.setattr(blackboard.events, "first_line", fails)
    events.emit_of(ended(), RunStarted, due=START, attempt=1)
    events.emit_of(ended(), SlotSkipped, due=START)
    assert events.failures == 0
    with pytest.raises(AssertionError):
        _ = heard[0].message


def test_an_event_without_words_is_logged_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="blackboard")
    events = EventEmitter("me")
    events.subscribe(log_event)
    events.emit(WorkerStopped, runs=0, requests={})
    assert caplog.messages == ["worker stopped"]


def test_a_run_is_shown_without_what_its_handler_printed() -> None:
    run = ended(error="ValueError: bad").run
    assert "error='ValueError: bad'" in repr(run)
    assert "output" not in repr(run)
