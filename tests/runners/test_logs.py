"""What handlers log, by `ctx.log` and by `logging`, is kept with the run."""

import asyncio
import contextvars
import logging
import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from blackboard.model import LogLine, Outcome, replace
from blackboard.phrases import LONGEST_ERROR, LONGEST_LINE, LONGEST_LOG
from blackboard.runners.handler_run import RunReport
from blackboard.runners.logs import Logged, keep_logs, kept_logs, own_logs
from blackboard.runners.process import ProcessRunner
from blackboard.runners.runner import Runner
from blackboard.runners.secrets import NOTHING, Mask
from tests.support.clocks import START
from tests.support.runs import PATIENCE, Told, call_of, on_the_loop, run, with_shared_processes

KINDS = [(on_the_loop, "a-log"), (with_shared_processes, "log")]
on_each_runner = pytest.mark.parametrize(("on", "type_"), KINDS, ids=["coroutine", "plain"])


@pytest.fixture(autouse=True)
def _loggers_as_they_were() -> Iterator[None]:
    feeds, handlers = logging.getLogger("feeds"), list(logging.root.handlers)
    yield
    feeds.setLevel(logging.NOTSET)
    logging.root.handlers[:] = handlers


@on_each_runner
def test_what_a_handler_logs_is_kept_with_its_time_level_and_logger(on: Any, type_: str) -> None:
    async def story(runner: Runner) -> None:
        told = Told()
        ended = await run(runner, type_, told=told, texts=["12 events"])
        assert ended.outcome is Outcome.OK
        lines = [(one.level, one.logger, one.text.partition("\n")[0]) for one in ended.log]
        assert lines == [
            ("DEBUG", "", "by ctx.log"),
            ("INFO", "feeds", "12 events"),
            ("ERROR", "feeds", "it failed"),
            ("ERROR", "feeds", "in a thread"),
        ]
        assert "ValueError: 12 events" in ended.log[2].text
        age = datetime.now(UTC) - ended.log[0].at
        assert timedelta(0) <= age < timedelta(seconds=PATIENCE)
        # The worker's own log has what `ctx.log` says, and no more.
        assert (logging.DEBUG, "by ctx.log") in told.logs
        assert not any("12 events" in text for _, text in told.logs)

    on(story)


@on_each_runner
def test_of_a_long_log_the_last_lines_are_kept_and_of_a_long_line_both_ends(
    on: Any, type_: str
) -> None:
    async def story(runner: Runner) -> None:
        ended = await run(runner, type_, texts=[f"{n} {'x' * 9_000} {n}" for n in range(99)])
        assert len(msgspec.json.encode(ended.log)) <= LONGEST_LOG + 1
        assert ended.log[-1].text == "in a thread"
        whole = [one.text for one in ended.log if one.level == "INFO"]
        assert whole[-1].startswith("98 x")
        assert whole[-1].endswith("x 98")
        assert len(whole[-1]) == LONGEST_LINE

    on(story)


@on_each_runner
def test_a_line_that_is_long_in_json_does_not_drop_those_before_it(on: Any, type_: str) -> None:
    async def story(runner: Runner) -> None:
        ended = await run(runner, type_, texts=["before", "\x00" * LONGEST_LINE])
        texts = [one.text for one in ended.log if one.level == "INFO"]
        assert len(texts[-1]) == LONGEST_LINE // 2
        assert texts[-1].endswith("\x00")
        ended = await run(runner, type_, texts=["before", "\x00" * 500])
        assert next(one.text for one in ended.log if one.level == "INFO") == "before"
        assert len(msgspec.json.encode(ended.log)) <= LONGEST_LOG + 1

    on(story)


@on_each_runner
def test_secrets_in_a_log_are_masked(on: Any, type_: str) -> None:
    async def story(runner: Runner) -> None:
        call = call_of(type_, texts=["token hunter2hunter2"])
        call = replace(call, mask=Mask({"TOKEN": "hunter2hunter2"}))
        execution = runner.start(call, Told(), math.inf)
        ended = await asyncio.wait_for(execution.wait(), PATIENCE)
        assert ended.log[1].text == "token ${TOKEN}"
        assert "hunter2hunter2" not in repr(ended)

    on(story)


def test_the_name_of_a_logger_is_masked_and_can_be_written() -> None:
    named = f"client.hunter2hunter2.\ud800.{'x' * 3_000_000}"
    logged = Logged(level=20, text="hello", at=START, logger=named)
    masked = logged.masked(Mask({"TOKEN": "hunter2hunter2"}))
    assert masked.logger.startswith("client.${TOKEN}.\\ud800.x")
    assert len(masked.logger) <= LONGEST_ERROR


def test_a_run_that_is_killed_leaves_its_log() -> None:
    async def story(runner: ProcessRunner) -> None:
        ended = await run(runner, "log", texts=["12 events"], end=True)
        assert ended.outcome is Outcome.FAILED
        assert [one.text for one in ended.log][1] == "12 events"

    with_shared_processes(story)


def test_a_fork_of_a_handler_logs_as_python_does_and_not_to_the_worker() -> None:
    """Two processes that write to one connection would garble it."""

    async def story(runner: ProcessRunner) -> None:
        ended = await run(runner, "log-in-a-fork")
        assert ended.outcome is Outcome.OK
        assert [one.text for one in ended.log] == ["before"]
        assert "in the fork" in ended.output

    with_shared_processes(story)


def test_a_record_is_of_the_run_in_whose_context_it_is_logged() -> None:
    feeds = logging.getLogger("feeds")
    kept: dict[str, list[str]] = {"a": [], "b": []}

    def log(name: str) -> None:
        def send(logged: Logged) -> None:
            kept[name].append(logged.text)

        keep_logs(send)
        feeds.warning("of %s", name)
        with own_logs():
            feeds.warning("of the worker")
        feeds.warning("again of %s", name)
        logging.getLogger("blackboard").warning("an event of the worker")

    for name in kept:
        contextvars.copy_context().run(log, name)
    feeds.warning("of no run")
    assert kept == {"a": ["of a", "again of a"], "b": ["of b", "again of b"]}


def test_outside_of_runs_logging_works_as_python_has_it(capsys: Any) -> None:
    """Without a handler, warnings go to stderr."""
    feeds = logging.getLogger("feeds")
    logging.root.handlers.clear()
    with kept_logs(lambda _: None):
        feeds.warning("kept")
    feeds.warning("printed")
    assert capsys.readouterr().err == "printed\n"


def test_a_line_as_it_stands_in_a_row_says_no_more_than_it_has_to() -> None:
    line = LogLine(at=datetime(2026, 11, 21, 9, tzinfo=UTC), level="INFO", text="x")
    assert msgspec.json.encode(line) == b'{"at":"2026-11-21T09:00:00Z","level":"INFO","text":"x"}'


def test_what_is_logged_while_a_message_is_sent_is_sent_after_it() -> None:
    """By a signal handler or a finalizer, which Python calls between two pieces of a message."""
    pieces: list[object] = []

    def send(message: Any) -> None:
        pieces.append(message.logged.text)
        if message.logged.text == "first":
            for text in ("second", "third"):
                report.log(replace(logged, text=text))
        pieces.append("end")

    logged = Logged(level=logging.INFO, text="first", at=START)
    report = RunReport(NOTHING, limit=100, send=send)
    report.log(logged)
    assert pieces == ["first", "end", "second", "end", "third", "end"]


def test_a_line_of_a_logger_is_masked_once() -> None:
    async def story(runner: Runner) -> None:
        mask = Mask({"PASSWORD": "PASSWORD"})
        call = replace(call_of("log", texts=["by PASSWORD"]), mask=mask)
        ended = await asyncio.wait_for(runner.start(call, Told(), math.inf).wait(), PATIENCE)
        assert ended.log[1].text == "by ${PASSWORD}"

    with_shared_processes(story)
