"""What a handler may raise to say how its run ended: Retry, Skip, Fail."""

import asyncio
import math
import pickle
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from blackboard import BadInput, Fail, Retry, Skip
from blackboard.handlers.context import SHORTEST_AFTER, HandlerAnswer
from blackboard.model import Ended, Outcome, replace
from blackboard.runners.outcome import ended_by
from blackboard.runners.process import ProcessRunner
from blackboard.runners.runner import Runner
from blackboard.runners.secrets import NOTHING, Mask
from tests.support.runs import PATIENCE, Told, call_of, on_the_loop, run, with_shared_processes

OK, FAILED = Outcome.OK, Outcome.FAILED
BUSY = "busy (asked for a retry in 5 minutes)"
BAD = "429 Too Many Requests, token ${TOKEN} (asked for a retry in 5 minutes)"


@pytest.mark.parametrize(
    ("kind", "ended"),
    [
        ("retry", Ended(outcome=FAILED, error=BAD, retry_after=300.0)),
        (
            "retry-silently",
            Ended(outcome=FAILED, error="asked for a retry in 2 seconds", retry_after=1.5),
        ),
        ("skip", Ended(outcome=OK, error="the feed is closed on Sundays, token ${TOKEN}")),
        ("fail", Ended(outcome=FAILED, error="no such feed, token ${TOKEN}", final=True)),
        ("fail-and-retry", Ended(outcome=FAILED, error="the feed is down")),
        ("of-an-own-class", Ended(outcome=FAILED, error="page 7", final=True)),
    ],
)
@pytest.mark.parametrize(
    ("on", "type_"),
    [(on_the_loop, "a-answer"), (with_shared_processes, "answer")],
    ids=["coroutine", "plain"],
)
def test_an_answer_is_the_end_of_the_run(on: Any, type_: str, kind: str, ended: Ended) -> None:
    async def story(runner: Runner) -> None:
        call = replace(call_of(type_, kind=kind), mask=Mask({"TOKEN": "hunter2hunter2"}))
        execution = runner.start(call, Told(), math.inf)
        assert await asyncio.wait_for(execution.wait(), PATIENCE) == ended

    on(story)


def test_the_cause_of_an_answer_is_kept_with_its_traceback() -> None:
    async def story(runner: Runner) -> None:
        ended = await run(runner, "a-answer", kind="caused")
        first, second, *_ = ended.error.splitlines()
        assert (first, second) == ("the item has no address", "KeyError: 'address'")
        assert "Traceback" in ended.error
        assert ended.final

    on_the_loop(story)


@pytest.mark.parametrize(
    ("problems", "ended"),
    [
        ([Retry("5m", "busy"), Retry("9m")], Ended(outcome=FAILED, error=BUSY, retry_after=300.0)),
        ([Skip("closed")], Ended(outcome=OK, error="closed")),
        ([ExceptionGroup("", [Fail("gone")])], Ended(outcome=FAILED, error="gone", final=True)),
    ],
)
def test_answers_of_one_kind_in_a_task_group_are_the_end_of_the_run(
    problems: list[Exception], ended: Ended
) -> None:
    assert ended_by(ExceptionGroup("of tasks", problems), NOTHING) == ended


@pytest.mark.parametrize(
    "other", [ValueError("bad"), Retry("5m"), ExceptionGroup("", [KeyError()])]
)
def test_an_answer_in_a_group_with_another_exception_fails_the_run(other: Exception) -> None:
    ended = ended_by(ExceptionGroup("of tasks", [Skip("closed"), other]), NOTHING)
    assert ended.outcome is FAILED
    assert ended.error.startswith("ExceptionGroup: of tasks")


def test_an_answer_that_cannot_be_read_fails_the_run() -> None:
    async def story(runner: Runner) -> None:
        ended = await run(runner, "a-answer", kind="no-answer")
        assert (ended.outcome, ended.retry_after) == (FAILED, None)
        assert "after: 'soon' is not a duration" in ended.error

    on_the_loop(story)


class Closed(Skip):
    reason = "closed on Sundays"

    def __init__(self) -> None: ...


@dataclass
class NotFound(Fail):
    url: str

    @property
    def reason(self) -> str:  # type: ignore[override]
        return f"{self.url} is not there"


class Busy(Retry):
    after = timedelta(days=400)

    def __init__(self, host: str) -> None: ...


class Silent(Fail):
    def __init__(self, page: int) -> None:
        super().__init__("")
        self.page = page


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Closed(), "closed on Sundays"),
        (NotFound("h7"), "h7 is not there"),
        (Busy("h7"), "h7 (asked for a retry in 366 days)"),
        (Silent(7), "silent"),
    ],
)
def test_an_own_class_may_state_its_reason_in_its_own_way(
    answer: HandlerAnswer, words: str
) -> None:
    assert ended_by(answer, NOTHING).error == words


@pytest.mark.parametrize(
    ("on", "type_"), [(on_the_loop, "a-answer"), (with_shared_processes, "answer")]
)
def test_an_answer_of_an_own_class_that_cannot_be_read_fails_the_run(on: Any, type_: str) -> None:
    async def story(runner: Runner) -> None:
        ended = await run(runner, type_, kind="unreadable")
        assert (ended.outcome, ended.final) == (FAILED, False)
        assert ended.error.startswith("Unreadable: (its message raised SystemExit)")

    on(story)


def test_a_child_whose_run_was_skipped_is_used_again() -> None:
    async def story(runner: ProcessRunner) -> None:
        first = await run(runner, "answer", kind="none")
        await run(runner, "answer", kind="skip")
        assert (await run(runner, "answer", kind="none")).result == first.result

    with_shared_processes(story)


@pytest.mark.parametrize("after", [90, 90.0, "90s", "1m30s", timedelta(seconds=90)])
def test_a_retry_is_asked_for_in_seconds_or_as_a_duration(after: Any) -> None:
    assert Retry(after).after == timedelta(seconds=90)


@pytest.mark.parametrize("after", [12.3456789, timedelta(seconds=12, microseconds=345_678)])
def test_a_retry_is_asked_for_in_whole_milliseconds(after: Any) -> None:
    """A time that was computed is finer."""
    assert Retry(after).after == timedelta(seconds=12, milliseconds=346)


@pytest.mark.parametrize(
    "after",
    [0, -3, 0.0003, 0.5, -math.inf, "0s", "500ms", timedelta(0), timedelta(microseconds=-3)],
)
def test_a_retry_at_once_is_in_a_second(after: Any) -> None:
    assert Retry(after).after == SHORTEST_AFTER


@pytest.mark.parametrize("after", ["", "90", "soon", math.nan, math.inf, 1e99, "500d", True, None])
def test_what_is_no_time_is_refused(after: Any) -> None:
    with pytest.raises(BadInput, match=r"^after: "):
        Retry(after)


@pytest.mark.parametrize("wrong", ["5m", timedelta(minutes=5)])
def test_a_duration_is_no_answer_to_whether_a_run_is_tried_again(wrong: Any) -> None:
    with pytest.raises(BadInput, match=r"is not True or False \(raise Retry\(after\)"):
        Fail("gone", retry=wrong)


@pytest.mark.parametrize("one", [Retry("5m", "x"), Skip("x"), Fail("x", True), Fail("x")])
def test_answers_can_be_pickled(one: Retry | Skip | Fail) -> None:
    """A pool of `multiprocessing` brings them from its process."""
    again = pickle.loads(pickle.dumps(one))
    assert type(again) is type(one)
    assert vars(again) == vars(one)
