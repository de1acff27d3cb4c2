"""The command line helps, and fails in one line. Its start: `test_speed_of_start.py`."""

import os
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path

import click
import pytest

from blackboard.cli import COMMANDS, MEANT, group
from blackboard.errors import BlackboardError
from blackboard.table import Refused, Unavailable, Unknown, Unusable
from tests.cli.command_line import CommandLine, blackboard

pytestmark = pytest.mark.of_one_store("words are parsed above the store")

__all__ = ["blackboard"]


def environment() -> dict[str, str]:
    """For processes that are started somewhere else than in the checkout."""
    return {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}


@pytest.mark.parametrize(
    "name",
    [
        *("init", "add", "apply", "export", "edit", "rm", "next", "run"),
        *("cancel", "pause", "resume", "unlock"),
    ],
)
def test_each_command_helps_with_an_example(blackboard: CommandLine, name: str) -> None:
    told = blackboard(name, "--help").out
    assert f"blackboard {name}" in told.partition("Examples:")[2]
    assert "--json" in told


def test_the_group_lists_every_command(blackboard: CommandLine) -> None:
    told = blackboard("--help").out
    assert all(f"  {name} " in told for name in COMMANDS)
    assert list(group.list_commands(None)) == list(COMMANDS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["ad"], "No such command 'ad'. Did you mean 'add'? See `blackboard --help`."),
        (["list"], "No such command 'list'. Did you mean 'show'? See `blackboard --help`."),
        (["remove", "a"], "No such command 'remove'. Did you mean 'rm'?"),
        (["add", "a", "--params", "{}"], "No such option '--params'. Did you mean '--set'? See `"),
        (["serve", "--port=80"], "No such option '--port'. Did you mean '--listen'? See `blackboa"),
        (["show", "--port", "80"], "No such option '--port'. (Did you mean one of"),
        (["--bogus"], "No such option '--bogus'. See `blackboard --help`."),
        (["add", "a"], "Missing option '--type'. See `blackboard add --help`."),
        (["add", "a", "--type", "t", "--evry", "8h"], "No such option '--evry'."),
        (["rm"], "Missing argument 'ID...'. See `blackboard rm --help`."),
        (["add", "a", "--type", "t", "--retries", "x"], "Invalid value for '--retries'"),
        (["--config", "absent.toml", "export"], "config: "),
        (["--board", "a-b", "init"], "board: 'a-b' is not a name for a board"),
        (["--board", "x" * 61, "init"], f"board: {'x' * 61!r} is not a name for a board (up to 60"),
        (["--board", "a.b", "init"], "board: a.b has the partitions of the pump b, which workers"),
        (["--board", "a.leaders", "init"], "board: a.leaders has the elections of a, which"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(
    blackboard: CommandLine, args: list[str], problem: str
) -> None:
    assert blackboard.refused(*args).startswith(problem)


def test_each_synonym_means_a_command_or_an_option_and_is_no_command() -> None:
    context = click.Context(group)
    commands = {name: group.get_command(context, name) for name in group.list_commands(context)}
    options = {
        name
        for command in commands.values()
        if command is not None
        for param in command.params
        for name in param.opts
    }
    assert set(MEANT.values()) <= commands.keys() | options
    assert not MEANT.keys() & commands.keys()


@pytest.mark.parametrize("lacking", ["click", "msgspec"])
def test_a_python_without_the_packages_is_told_in_one_line(tmp_path: Path, lacking: str) -> None:
    if lacking != "click":
        (tmp_path / "click").symlink_to(Path(click.__file__).parent)
    environ = environment()
    environ["PYTHONPATH"] += f"{os.pathsep}{tmp_path}"
    done = subprocess.run(
        [sys.executable, "-S", "-m", "blackboard", "show"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    problem = f"the Python {sys.executable} lacks the package {lacking!r} (use that of the"
    assert done.stderr.startswith(f"blackboard: {problem}")


def test_the_version_is_told(blackboard: CommandLine) -> None:
    assert blackboard("--version").out.startswith("blackboard, version ")


@pytest.mark.of_each_store
def test_a_missing_board_is_one_line_with_its_remedy(blackboard: CommandLine) -> None:
    assert "blackboard init" in blackboard.refused("export")
    assert blackboard.rows() == []
    blackboard("init")
    words = blackboard.refused("--board", "a.clicks", "export")
    assert words == "board: no board 'a.clicks' in this store (a worker of a makes one)"


def test_options_count_before_and_behind_the_command(blackboard: CommandLine) -> None:
    a, b = blackboard.elsewhere("a"), blackboard.elsewhere("b")
    blackboard("--board", "towns", "--store", a, "init")
    blackboard("--store", b, "init", "--board", "towns")
    for store in (a, b):
        assert blackboard("--json", "init", "--store", store, "--board", "towns").json == {
            "store": store,
            "board": "towns",
            "shards": 1,
            "made": False,
        }


@pytest.mark.of_sqlite("relative paths")
def test_the_store_is_told_by_environment_and_settings(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    blackboard.write('[board]\nstore = "declared.db"\nname = "towns"')
    inner = blackboard.folder / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    declared = blackboard("--config", "../blackboard.toml", "--json", "init").json
    assert declared["board"] == "towns"
    assert (blackboard.folder / "declared.db").exists()
    monkeypatch.setenv("BLACKBOARD_STORE", "sqlite:environment.db")
    blackboard("init")
    assert (inner / "environment.db").exists()
    blackboard("init", "--store", "option.db")
    assert (inner / "option.db").exists()


@pytest.mark.of_sqlite("a damaged file")
def test_a_store_that_is_damaged_is_one_line(blackboard: CommandLine) -> None:
    (blackboard.folder / "blackboard.db").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    said = blackboard("export", code=2)
    assert said.err.startswith("blackboard: ")
    assert said.err.count("\n") == 1


@pytest.mark.cases_of_one_store("errors become lines above the store")
@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (Unavailable("nobody answers"), 3, "store: nobody answers"),
        (Unusable("b.db: the disk is full"), 2, "b.db: the disk is full"),
        (Unknown("no answer"), 3, "store: no answer"),
        (Refused(0, "a key of 2,000 characters"), 2, "the store will not take this: a key of"),
        (BlackboardError("two\nlines \x1b[31m"), 1, "two lines \\x1b[31m"),
    ],
)
def test_errors_of_the_store_are_one_line(
    blackboard: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    code: int,
    told: str,
) -> None:
    blackboard("init")

    async def items(_: object) -> AsyncIterator[None]:
        if error:
            raise error
        yield

    monkeypatch.setattr("blackboard.protocol.board_table.BoardTable.items", items)
    assert blackboard("export", code=code).err.startswith(f"blackboard: {told}")


def test_an_interrupt_is_one_line(blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    blackboard("init")
    monkeypatch.setattr("asyncio.run", interrupted)
    assert blackboard("export", code=130).err.strip() == "blackboard: interrupted"


def interrupted(work: Coroutine[None, None, None]) -> None:
    work.close()
    raise KeyboardInterrupt


def test_a_reader_that_has_enough_is_no_error(blackboard: CommandLine) -> None:
    text = "more than a pipe holds at once, together with all of the others: " * 40
    blackboard("add", *(f"town-{n}" for n in range(100)), "--type", "x", "--set", f"text={text}")
    command = f"{shlex.quote(sys.executable)} -m blackboard export | head -1"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, check=True, env=environment()
    )
    assert (done.stdout, done.stderr) == ("[[items]]\n", "")


def test_no_command_is_help_and_exit_code_2(blackboard: CommandLine) -> None:
    assert "Commands:" in blackboard(code=2).err


@pytest.mark.cases_of_one_store("the options of a worker are read above the store")
@pytest.mark.parametrize("options", [["--until-idle"], [], ["--processes", "2"]])
def test_a_worker_makes_a_board_only_when_told_to(
    blackboard: CommandLine, options: list[str]
) -> None:
    (blackboard.folder / "mine.py").write_text(
        'from blackboard import handler\n\n\n@handler("x")\nasync def x(item, ctx): ...\n'
    )
    refused = blackboard.refused("worker", "--jobs", "mine.py", *options)
    assert "init` makes one" in refused or "make one with `blackboard init`" in refused
    assert "board" in blackboard("show", code=2).err
    command = [sys.executable, "-m", "blackboard", "worker", "--jobs", "mine.py", "--init"]
    done = subprocess.run(
        [*command, "--once"], cwd=blackboard.folder, capture_output=True, text=True, check=True
    )
    assert f"made the board 'blackboard' in {blackboard.store}, with 1 shard" in done.stderr
    assert blackboard("show").out.startswith("no items yet")


@pytest.mark.of_sqlite("the default store is a file")
def test_the_default_store_lies_beside_the_settings_file(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BLACKBOARD_STORE", raising=False)
    inner = blackboard.folder / "etc"
    inner.mkdir()
    blackboard.write("", "etc/blackboard.toml")
    blackboard("--config", "etc/blackboard.toml", "init")
    assert (inner / "blackboard.db").is_file()
    assert not (blackboard.folder / "blackboard.db").exists()
    monkeypatch.chdir(inner)
    again = "the board 'blackboard' is in blackboard.db already, with 1 shard\n"
    assert blackboard("init").out == again
