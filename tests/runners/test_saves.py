"""`ctx.checkpoint` and `ctx.save`, in coroutines and in child processes."""

import asyncio
import json
import math
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from blackboard.errors import BlackboardError, LeaseLost
from blackboard.model import Ended, Outcome, replace
from blackboard.runners.inline import InlineRunner
from blackboard.runners.process import ProcessRunner
from blackboard.runners.runner import Runner
from blackboard.runners.secrets import Mask
from tests.support.runs import (
    PATIENCE,
    Told,
    call_of,
    eventually,
    on_the_loop,
    run,
    with_processes,
    with_shared_processes,
)

Story = Callable[[Any], Coroutine[Any, Any, None]]
ON: dict[str, Callable[[Story], None]] = {"a-save": on_the_loop, "save": with_shared_processes}
LIMIT = 32_768
SECRET = "0123456789abcdef"


@pytest.fixture(params=ON)
def type_(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.mark.parametrize("value", [57, "p57", {"page": 57, "of": [1, None]}, "x" * (LIMIT - 2), 0])
def test_a_value_is_saved_as_json_and_the_one_before_is_given(type_: str, value: object) -> None:
    async def story(runner: Runner) -> None:
        told = Told()
        call = call_of(type_, value=value, checkpoint={"page": 3})
        ended = await runner.start(call, told, math.inf).wait()
        assert ended == Ended(outcome=Outcome.OK, result={"before": {"page": 3}})
        assert [json.loads(one) for one in told.saved] == [value]
        ended = await run(runner, type_, value=value)
        assert ended.result == {"before": None}

    ON[type_](story)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("x" * (LIMIT - 1), "ValueError: the checkpoint is 32,769 characters of JSON; 32,768 can"),
        (f"key={SECRET}", "the checkpoint holds the value of a ${NAME} of the params"),
    ],
)
def test_what_cannot_be_saved_is_refused_in_the_handler(
    type_: str, value: object, problem: str
) -> None:
    async def story(runner: Runner) -> None:
        told = Told()
        call = replace(call_of(type_, value=value), mask=Mask({"TOKEN": SECRET}))
        ended = await runner.start(call, told, math.inf).wait()
        assert ended.outcome is Outcome.FAILED
        assert problem.removeprefix("ValueError: ") in ended.error.splitlines()[0]
        assert SECRET not in ended.error
        assert told.saved == []

    ON[type_](story)


@pytest.mark.parametrize(
    ("refusal", "first"),
    [
        (LeaseLost("its lock was overridden"), "LeaseLost: its lock was overridden"),
        (BlackboardError("the store will not take it"), "BlackboardError: the store will not"),
    ],
)
def test_a_refused_save_is_raised_in_the_handler(
    type_: str, refusal: BlackboardError, first: str
) -> None:
    async def story(runner: Runner) -> None:
        ended = await run(runner, type_, told=Told(refusal=refusal), value=1)
        assert ended.outcome is Outcome.FAILED
        assert ended.error.startswith(first)
        assert ended.lease_lost is isinstance(refusal, LeaseLost)

    ON[type_](story)


def test_a_save_that_fails_without_a_word_is_no_save() -> None:
    async def story(runner: ProcessRunner) -> None:
        ended = await run(runner, "save", told=Told(refusal=MemoryError()), value=1)
        assert ended.error.startswith("BlackboardError: MemoryError")

    with_shared_processes(story)


def test_the_threads_of_a_plain_function_save_one_after_another() -> None:
    async def story(runner: ProcessRunner) -> None:
        told = Told()
        assert (await run(runner, "save-in-threads", told=told)).outcome is Outcome.OK
        assert sorted(told.saved) == [str(number) for number in range(8)]

    with_shared_processes(story)


def test_a_fork_of_a_handler_reports_and_saves_nothing_and_learns_why() -> None:
    async def story(runner: ProcessRunner) -> None:
        told = Told()
        ended = await run(runner, "report-in-a-fork", told=told)
        problem = "ctx reports and saves from the handler's own process, not from one it forks"
        assert ended.result == [problem] * 3
        assert (told.saved, told.progressed, told.logs, ended.warnings) == ([], [], [], ())

    with_shared_processes(story)


def test_a_thread_that_outlives_its_run_changes_nothing_in_the_next() -> None:
    async def story(runner: ProcessRunner) -> None:
        first = replace(call_of("outlived", token=SECRET), mask=Mask({"TOKEN": SECRET}))
        ended = await runner.start(first, Told(), math.inf).wait()
        told = Told()
        second = await run(runner, "outlived", told=told)
        assert second.result == [ended.result, ["the run is over"]]
        assert (told.saved, told.progressed, second.warnings) == (['"of the second"'], [], ())
        assert [one.text for one in second.log] == ["of ${TOKEN}"]
        assert second.output == "${TOKEN} is printed\n"

    with_shared_processes(story)


class Waiting(Told):
    """Its saves have no answer."""

    async def save(self, checkpoint: str) -> None:
        await super().save(checkpoint)
        await asyncio.Event().wait()


def test_a_run_that_waits_for_its_save_is_stopped_like_any_other(type_: str) -> None:
    async def story(runner: Runner) -> None:
        told = Waiting()
        execution = runner.start(call_of(type_, value=1), told, math.inf)
        await eventually(lambda: told.saved == ["1"])
        execution.stop(Outcome.TIMEOUT, "it ran longer than 1m")
        ended = await asyncio.wait_for(execution.wait(), PATIENCE)
        assert (ended.outcome, ended.error) == (Outcome.TIMEOUT, "it ran longer than 1m")

    ON[type_](story)


def test_a_save_that_has_no_answer_at_the_end_of_its_run_holds_up_none_of_the_next() -> None:
    async def story(runner: ProcessRunner) -> None:
        waiting = Waiting()
        first = call_of("outlived", token=SECRET, saves=True)
        execution = runner.start(first, waiting, math.inf)
        await eventually(lambda: waiting.saved == ['"of the first"'])
        execution.lose("as the test has it")
        pid = (await asyncio.wait_for(execution.wait(), PATIENCE)).result
        told = Told()
        second = await run(runner, "outlived", told=told)
        assert second.result == [pid, ["the run is over"] * 2]
        assert told.saved == ['"of the second"']

    with_processes(story)


def test_a_coroutine_that_saves_after_its_run_is_told_so() -> None:
    async def story(runner: InlineRunner) -> None:
        seen: list[Any] = []

        async def kept(_item: Any, ctx: Any) -> None:
            seen.append(ctx)

        call = call_of("a-save", value=1)
        call = replace(call, handler=replace(call.handler, function=kept))
        assert (await runner.start(call, Told(), math.inf).wait()).outcome is Outcome.OK
        with pytest.raises(LeaseLost, match="the run is over"):
            await seen[0].save(1)

    on_the_loop(story)
