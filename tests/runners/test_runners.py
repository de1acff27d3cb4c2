"""Plain handlers in child processes: what they are given, say, print and return."""

import logging
import math
import os
import select
import socket
import sys
import threading
from dataclasses import dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import msgspec
import pytest

from blackboard.model import Ended, Outcome
from blackboard.phrases import LONGEST_ERROR, LONGEST_OUTPUT
from blackboard.runners import outcome, wire
from blackboard.runners.child_main import ChildLoop
from blackboard.runners.process import ProcessRunner
from blackboard.runners.secrets import NOTHING
from tests.support.runs import DUE, PATIENCE, Told, run, with_shared_processes


def test_a_plain_handler_is_given_its_item_and_its_context_on_the_main_thread() -> None:
    async def story(runner: ProcessRunner) -> None:
        ended = await run(runner, "describe", feed="ü 🐝")
        pid = ended.result.pop("pid")
        assert pid != os.getpid()
        assert ended.outcome is Outcome.OK
        assert ended.result == {
            "id": "x",
            "type": "describe",
            "params": {"feed": "ü 🐝"},
            "due": DUE.isoformat(),
            "fence": 7,
            "attempt": 2,
            "worker": "host:1:nonce",
            "fenced": True,
            "settings": {"allow": ["file"]},
            "lost": False,
            "on_main_thread": True,
            "stdin": "",
        }

    with_shared_processes(story)


def test_a_path_among_the_folders_of_modules_is_passed_over_as_python_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, Path("/nowhere")])

    async def story(runner: ProcessRunner) -> None:
        assert (await run(runner, "return", value=1)).outcome is Outcome.OK

    with_shared_processes(story)


def test_what_a_plain_handler_returns_comes_back_as_json_holds_it() -> None:
    async def story(runner: ProcessRunner) -> None:
        for value in (None, True, 0, -1.5, "ü 🐝 \x00\n", [1, [2]], {"a": {"b": None}}):
            ended = await run(runner, "return", value=value)
            assert ended == Ended(outcome=Outcome.OK, result={"value": value, "bytes": ""})

    with_shared_processes(story)


@pytest.mark.parametrize(
    ("what", "problem"),
    [
        ("object", "returned object, which is not JSON"),
        ("nested", "returned dict, which is not JSON: Encoding objects of type object"),
        ("cycle", "returned list, which is not JSON"),
        ("lone", "returned str, which is not JSON"),
    ],
)
def test_a_result_that_json_cannot_hold_fails_the_run_and_names_its_type(
    what: str, problem: str
) -> None:
    async def story(runner: ProcessRunner) -> None:
        ended = await run(runner, "return-odd", what=what)
        assert (ended.outcome, ended.result) == (Outcome.FAILED, None)
        assert problem in ended.error

    with_shared_processes(story)


def test_tuples_and_sets_in_a_result_are_lists() -> None:
    assert (
        outcome.encode_result({"a": (1, {2}), "b": frozenset(["x"])}) == b'{"a":[1,[2]],"b":["x"]}'
    )


def test_keys_of_a_result_are_text_and_those_of_a_checkpoint_have_to_be() -> None:
    counted = {True: 3, False: 5, None: 1, 2: 0}
    assert outcome.encode_result(counted) == b'{"true":3,"false":5,"null":1,"2":0}'
    for key in counted:
        with pytest.raises(outcome.Unfit, match=f"saves the key {key}, which is not text"):
            outcome.fitting_checkpoint({key: 1}, NOTHING, limit=100)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_result_with_a_number_that_json_lacks_is_refused(number: float) -> None:
    kind: Any = Enum
    member = kind("Reading", {"LAST": number}).LAST
    of_attrs: Any = type("OfAttrs", (), {"__attrs_attrs__": (SimpleNamespace(name="mean"),)})()
    of_attrs.mean = number
    more = ({"a": [1.5, ({"b": number}, None)]}, {"c": {"d": number}}, [member], [of_attrs])
    for value in (number, *more):
        with pytest.raises(outcome.Unfit, match=f"the number {number}, which JSON cannot hold"):
            outcome.encode_result(value)


class Colour(Enum):
    RED = "red"


@dataclass
class Marks:
    by_day: dict[date, int]


@pytest.mark.parametrize(
    "value",
    [
        {1: "done"},
        [{"a": ({2.5: None},)}],
        {date(2026, 11, 21): 1},
        {UUID(int=1): 1},
        {b"x": 1},
        {Outcome.OK: {Colour.RED: 1}},
        Marks({date(2026, 11, 21): 1}),
    ],
)
def test_a_checkpoint_with_a_key_that_the_next_run_would_not_find_is_refused(value: Any) -> None:
    with pytest.raises(outcome.Unfit, match=r"saves the key .*, which is not text"):
        outcome.fitting_checkpoint(value, NOTHING, limit=100)
    assert outcome.fitting_checkpoint({"1": None}, NOTHING, limit=100) == '{"1":null}'


def test_a_coroutine_that_was_not_awaited_is_no_result() -> None:
    async def fetch() -> None: ...

    work = fetch()
    with pytest.raises(outcome.Unfit, match=r"returned a coroutine, .*fetch: await it"):
        outcome.encode_result(work)
    work.close()


def test_a_result_with_null_or_raw_json_in_it_is_encoded() -> None:
    assert outcome.encode_result([None, "null", msgspec.Raw(b"1.5")]) == b'[null,"null",1.5]'


def test_a_result_with_texts_and_numbers_of_own_classes_beside_null_is_encoded() -> None:
    class Text(str):
        __slots__ = ()

    class Real(float):
        pass

    value = {"title": Text("a"), "etag": None, "mean": [Real(0.5)]}
    assert outcome.encode_result(value) == b'{"title":"a","etag":null,"mean":[0.5]}'
    with pytest.raises(outcome.Unfit, match="the number nan"):
        outcome.encode_result([Text("a"), Real("nan")])


def test_a_result_larger_than_a_row_is_replaced_by_a_warning_that_names_both_sizes() -> None:
    async def story(runner: ProcessRunner) -> None:
        for size, told in ((24_600, "32,82"), (65 << 20, "90,876,")):
            ended = await run(runner, "return", value=1, size=size)
            assert ended.outcome is Outcome.OK
            (warning,) = ended.result["warnings"]
            assert warning.startswith(f"the result, {told}")
            assert "32,768" in warning
            assert warning.endswith("write it to a file or a blob and return where it is")
        assert (await run(runner, "return", value=1, size=24_500)).result["value"] == 1

    with_shared_processes(story)


@pytest.mark.parametrize("what", ["exit", "exit 0"])
def test_a_handler_that_exits_without_a_code_has_done_its_work(what: str) -> None:
    async def story(runner: ProcessRunner) -> None:
        ended = await run(runner, "raise", what=f"good {what}")
        assert (ended.outcome, ended.result, ended.error) == (Outcome.OK, None, "")
        assert (await run(runner, "describe")).outcome is Outcome.OK

    with_shared_processes(story)


def test_logs_and_progress_reach_the_report_in_order() -> None:
    async def story(runner: ProcessRunner) -> None:
        told = Told()
        assert (await run(runner, "speak", told=told)).outcome is Outcome.OK
        assert told.progressed == [(1, 3), (3, 3)]
        assert told.logs[:3] == [
            (logging.DEBUG, "a detail"),
            (logging.INFO, "one of 3"),
            (logging.WARNING, "grüße 🐝 \\ud800"),
        ]
        level, text = told.logs[3]
        assert level == logging.ERROR
        assert text.startswith("it went wrong\nTraceback")
        assert text.endswith("LookupError: nothing there")

    with_shared_processes(story)


def test_everything_printed_in_whatever_way_is_kept_and_nothing_of_another_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)

    async def story(runner: ProcessRunner) -> None:
        ended = await run(runner, "print")
        assert ended.output == (
            "from print, without a newline; from stderr\n"
            "from a descriptor\n"
            "from C\n"
            "from a grandchild\n"
            "not \ufffd UTF-8; über\n"
        )
        assert (await run(runner, "describe")).output == ""

    with_shared_processes(story)


def test_a_closed_output_is_read_to_its_end_and_not_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[int] = []
    read = os.read

    def counted(descriptor: int, size: int) -> bytes:
        data = read(descriptor, size)
        if not data:
            ends.append(descriptor)
        return data

    async def story(runner: ProcessRunner) -> None:
        assert (await run(runner, "silence-the-output")).result == "still here"
        monkeypatch.setattr(os, "read", counted)
        for _ in range(5):
            assert (await run(runner, "describe")).outcome is Outcome.OK
        assert len(ends) <= 1

    with_shared_processes(story)


def test_the_last_8_kib_of_much_output_are_kept_from_a_whole_character_on() -> None:
    async def story(runner: ProcessRunner) -> None:
        for lines in (5_000, 5_001):
            output = (await run(runner, "print-much", lines=lines)).output
            assert LONGEST_OUTPUT - 1 <= len(output.encode()) <= LONGEST_OUTPUT
            assert output.endswith(f"line {lines - 1}  {'ü' * 20}\n")
            assert "\ufffd" not in output

    with_shared_processes(story)


@pytest.mark.parametrize(
    ("what", "first_line"),
    [
        ("value", "ValueError: bad feed ü \\ud800"),
        ("exit", "SystemExit: 3"),
        ("interrupt", "KeyboardInterrupt: "),
    ],
)
def test_a_handler_that_raises_fails_with_a_traceback_of_its_own_frames_alone(
    what: str, first_line: str
) -> None:
    async def story(runner: ProcessRunner) -> None:
        ended = await run(runner, "raise", what=what)
        assert ended.outcome is Outcome.FAILED
        assert ended.error.splitlines()[0] == first_line
        assert "jobs_for_tests/plain.py" in ended.error
        assert "blackboard/runners" not in ended.error
        assert (await run(runner, "describe")).outcome is Outcome.OK

    with_shared_processes(story)


@pytest.mark.parametrize("what", ["long", "endless"])
def test_a_long_error_comes_with_its_head_and_its_end(what: str) -> None:
    async def story(runner: ProcessRunner) -> None:
        error = (await run(runner, "raise", what=what)).error
        assert len(error) == LONGEST_ERROR
        assert error.startswith("ValueError: xxx")
        assert error.endswith("xxx")
        assert "characters left out" in error

    with_shared_processes(story)


def test_a_handler_that_forks_and_returns_twice_is_answered_for_once() -> None:
    async def story(runner: ProcessRunner) -> None:
        assert (await run(runner, "fork")).result is True
        assert (await run(runner, "fork")).result is True

    with_shared_processes(story)


def test_an_exception_whose_message_raises_is_still_told() -> None:
    class Bad(Exception):
        def __str__(self) -> str:
            raise LookupError

    assert outcome.failure(Bad()).startswith("Bad: (its message raised LookupError)")


def test_a_child_ends_in_order_whose_worker_hangs_up_before_it_has_read_all() -> None:
    worker, child = socket.socketpair()
    with child:
        serving = threading.Thread(target=ChildLoop(child).serve, daemon=True)
        serving.start()
        select.select([worker], [], [], PATIENCE)  # it says that it is ready
        worker.close()
        serving.join(PATIENCE)
        assert not serving.is_alive()


def test_messages_are_read_as_they_come_and_one_that_announces_too_much_is_refused() -> None:
    whole = wire.frame(wire.WarnMessage("first")) + wire.frame(wire.ProgressMessage(1, 2))
    data, found = bytearray(), list[object]()
    for byte in whole:
        data.append(byte)
        found += wire.messages_in(data)
    assert found == [wire.WarnMessage("first"), wire.ProgressMessage(1, 2)]
    assert not data
    assert list(wire.messages_in(bytearray(wire.LARGEST_ANSWER.to_bytes(4)))) == []
    with pytest.raises(wire.TooLong, match="1,048,577 bytes"):
        list(wire.messages_in(bytearray((wire.LARGEST_ANSWER + 1).to_bytes(4))))
