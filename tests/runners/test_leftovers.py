"""What one run leaves behind in its process, no other meets."""

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from blackboard.model import Outcome
from blackboard.runners import leftovers
from blackboard.runners.process import ProcessRunner
from tests.jobs_for_tests import leaving
from tests.support.processes import is_gone
from tests.support.runs import Told, eventually, run, with_processes

ROOT = Path(__file__).resolve().parents[2]


def all_gone(pids: Sequence[int]) -> bool:
    return all(is_gone(pid) for pid in pids)


COPIES = """
import json, os, subprocess
from blackboard.runners import leftovers
from tests.jobs_for_tests import leaving

found = {}
for what, leave in {**leaving.WAYS, "nothing": lambda: None}.items():
    theirs, ours = os.pipe()
    if (pid := os.fork()) == 0:
        before = leftovers.first_state()
        leave()
        try:
            left = leftovers.left(before)
        except OSError as problem:
            left = [str(problem)]
        os.write(ours, json.dumps(left).encode())
        for one in leaving.KEPT:
            if isinstance(one, subprocess.Popen):
                one.kill()
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(ours)
    found[what] = json.loads(os.read(theirs, 65536))
    os.close(theirs)
print(json.dumps(found))
"""
"""Leaves each thing behind in a copy of one process: a child would take 0.2 s to start."""
SOME = ("a variable", "a closed stdout", "no descriptor that is free", "a thread", "a process")


def test_what_a_handler_leaves_behind_is_found() -> None:
    done = subprocess.run([sys.executable, "-c", COPIES], cwd=ROOT, capture_output=True, check=True)
    found = json.loads(done.stdout)
    assert found.pop("nothing") == []
    assert found.keys() == leaving.WAYS.keys()
    assert [what for what, parts in found.items() if not parts] == []


def test_a_child_in_which_a_handler_left_something_behind_is_not_used_again() -> None:
    async def story(runner: ProcessRunner) -> None:
        for what in SOME:
            told = Told()
            ended = await run(runner, "leave-behind", told=told, what=what)
            assert ended.outcome is Outcome.OK, (what, ended.error)
            await eventually(partial(all_gone, ended.result))
            after = await run(runner, "tidy")
            assert after.result[0] not in ended.result, what
            ((level, text),) = told.logs
            assert level == logging.DEBUG
            assert text.startswith("its child process is not used again, because it left behind: ")

    with_processes(story)


def test_a_run_in_a_process_that_cannot_be_looked_at_is_ok_and_ends_its_child() -> None:
    """For want of a descriptor, or of /proc."""

    async def story(runner: ProcessRunner) -> None:
        told = Told()
        runs = [await run(runner, "take-all-descriptors", told=told) for _ in range(2)]
        assert [ended.outcome for ended in runs] == [Outcome.OK] * 2, runs[0].error
        assert runs[0].result != runs[1].result
        assert ["what cannot be looked at" in text for _, text in told.logs] == [True] * 2

    with_processes(story)


def test_a_child_is_used_again_after_runs_that_put_everything_back() -> None:
    async def story(runner: ProcessRunner) -> None:
        runs = [(await run(runner, "tidy")).result for _ in range(3)]
        assert runs == [[runs[0][0], "nothing"]] * 3

    with_processes(story)


def test_a_thread_that_was_joined_may_be_listed_a_moment_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = leftovers.state()
    listed = [before["a thread"] + 1] * 3
    now = leftovers._threads
    monkeypatch.setitem(leftovers._LOOKS, "a thread", lambda: before["a thread"] + 1)
    monkeypatch.setattr(leftovers, "_threads", lambda: listed.pop() if listed else now())
    assert "a thread" not in leftovers.left(before)
    monkeypatch.setattr(leftovers, "_threads", lambda: before["a thread"] + 1)
    assert "a thread" in leftovers.left(before)


def test_a_thread_that_was_joined_before_a_run_hides_none_that_the_run_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alive = threading.active_count()
    listed = [alive + 1] * 3
    looked = lambda: listed.pop() if listed else alive  # noqa: E731
    monkeypatch.setattr(leftovers, "_threads", looked)
    monkeypatch.setitem(leftovers._LOOKS, "a thread", looked)
    assert leftovers.first_state()["a thread"] == alive


def test_a_dump_that_a_run_has_planned_does_not_end_the_next() -> None:
    async def story(runner: ProcessRunner) -> None:
        pid = (await run(runner, "plan-a-dump")).result
        ended = await run(runner, "rest", seconds=1.2)
        assert (ended.outcome, ended.result) == (Outcome.OK, pid)

    with_processes(story)


@pytest.mark.parametrize("what", ["value", "exit", "interrupt"])
def test_a_child_in_which_a_run_failed_is_not_used_again(what: str) -> None:
    async def story(runner: ProcessRunner) -> None:
        first = (await run(runner, "describe")).result["pid"]
        assert (await run(runner, "describe")).result["pid"] == first
        await run(runner, "raise", what=what)
        assert (await run(runner, "describe")).result["pid"] != first

    with_processes(story)


def test_a_child_is_replaced_after_a_number_of_runs() -> None:
    async def story(runner: ProcessRunner) -> None:
        pids = [(await run(runner, "describe")).result["pid"] for _ in range(7)]
        assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3, 1]

    with_processes(story, runs=3)


@pytest.fixture(name="here")
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_working_folder_is_told_by_what_it_is(here: Path) -> None:
    """Another one may have its name by now."""
    before = leftovers.state()
    here.rename(here.with_name("old"))
    assert "the working folder" not in leftovers.left(before)
    here.mkdir()
    (here / "x").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        assert "the working folder" in leftovers.left(before)
