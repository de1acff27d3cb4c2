"""`ctx.warn`: a good run that has something to say, in coroutines and in child processes."""

import asyncio
import logging
import math
from typing import Any

import pytest

from blackboard.model import Ended, Outcome, replace
from blackboard.protocol.results import LONGEST_WARNING, MOST_WARNINGS
from blackboard.runners.runner import Runner
from blackboard.runners.secrets import Mask
from tests.support.runs import PATIENCE, Told, call_of, on_the_loop, run, with_shared_processes

KINDS = [(on_the_loop, "a-warn"), (with_shared_processes, "warn")]
on_each_runner = pytest.mark.parametrize(("on", "type_"), KINDS, ids=["coroutine", "plain"])


@on_each_runner
def test_what_a_handler_warns_of_ends_with_the_run_and_is_logged(on: Any, type_: str) -> None:
    async def story(runner: Runner) -> None:
        told = Told()
        ended = await run(runner, type_, told=told, texts=["2 of 60 feeds failed"])
        assert ended == Ended(
            outcome=Outcome.OK,
            result={"warnings": ["in the result"]},
            warnings=("2 of 60 feeds failed", "from a thread"),
            log=ended.log,
        )
        levels = [(logging.WARNING, text) for text in ended.warnings]
        assert [one for one in told.logs if one[0] > logging.DEBUG] == levels

    on(story)


@on_each_runner
def test_warnings_are_few_short_single_lines_and_said_once(on: Any, type_: str) -> None:
    async def story(runner: Runner) -> None:
        texts = ["twice", "two\n lines", "twice", "long " * 1_000]
        ended = await run(runner, type_, texts=[*texts, *map(str, range(100))])
        assert ended.warnings[:2] == ("twice", "two lines")
        assert ended.warnings[2].startswith("long long")
        assert len(ended.warnings[2]) <= LONGEST_WARNING
        assert len(ended.warnings) == MOST_WARNINGS

    on(story)


def test_a_coroutine_that_awaits_no_save_and_no_wait_is_warned_of() -> None:
    async def story(runner: Runner) -> None:
        told = Told()
        ended = await run(runner, "a-forgets-await", told=told)
        assert ended.warnings == (
            "ctx.save was called without `await`, and did nothing",
            "ctx.lost.wait was called without `await`, and did nothing",
        )
        assert told.saved == []
        assert (await run(runner, "a-save", value=1)).warnings == ()

    on_the_loop(story)


@pytest.mark.parametrize("how", ["as a task", "cancelled at once", "in a group"])
def test_a_save_or_wait_in_a_task_is_not_warned_of(how: str) -> None:
    async def story(runner: Runner) -> None:
        told = Told()
        ended = await run(runner, "a-makes-tasks-of-calls", told=told, how=how)
        assert (ended.outcome, ended.warnings) == (Outcome.OK, ())
        assert told.saved == ([] if how == "cancelled at once" else ["7"])

    on_the_loop(story)


@on_each_runner
def test_secrets_in_warnings_are_masked(on: Any, type_: str) -> None:
    async def story(runner: Runner) -> None:
        call = call_of(type_, texts=["refused: hunter2hunter2"])
        call = replace(call, mask=Mask({"TOKEN": "hunter2hunter2"}))
        execution = runner.start(call, Told(), math.inf)
        ended = await asyncio.wait_for(execution.wait(), PATIENCE)
        assert ended.warnings[0] == "refused: ${TOKEN}"

    on(story)
