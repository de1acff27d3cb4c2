"""The type `shell`, with real commands: in this process, and in a child process of a worker."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pytest

from blackboard import BadInput, Context, Item
from blackboard.handlers.context import expand
from blackboard.handlers.params import described, with_params
from blackboard.handlers.registry import load
from blackboard.model import Ended, Outcome
from blackboard.runners.process import ProcessRunner
from blackboard.runners.runner import HandlerCall
from jobs import shell
from jobs.shell import CommandFailed, run
from tests.support.processes import is_gone
from tests.support.runs import DUE, HERE, PATIENCE, Told, eventually, with_processes

ALLOWED = {"allow": True}
PARAMS = described(shell.ShellParams, "shell")


class Held:
    """`ctx.lost` of a run that keeps its lock."""

    reason = ""

    def __bool__(self) -> bool:
        return False

    def wait(self, timeout: float | None = None) -> bool:
        return False


def context(settings: dict[str, Any] | None = None) -> Context:
    return Context(
        due=DUE,
        fence=7,
        attempt=2,
        worker="host:1:nonce",
        settings=ALLOWED if settings is None else settings,
        log=logging.getLogger("shell"),
        lost=Held(),
        stopping=Held(),
        progress=lambda _done, _total: None,
        warn=lambda _text: None,
        save=lambda _value: None,
    )


def called(item: Item, ctx: Context | None = None) -> dict[str, int]:
    """Calls the handler as a runner does."""
    return run(with_params(item, PARAMS), ctx or context())


def shell_run(**params: Any) -> dict[str, int]:
    PARAMS.check(params)
    return called(Item("nightly", "shell", params))


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def test_exit_code_0_is_the_result_and_both_streams_are_kept(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert shell_run(command="echo out; echo err >&2", shell=True) == {"exit": 0}
    assert capfd.readouterr() == ("out\n", "err\n")


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 3", "exit code 3"),
        ("exit 255", "exit code 255"),
        ("kill -9 $$", "killed by SIGKILL"),
        ("kill -SEGV $$", "killed by SIGSEGV"),
        (f"kill -{int(signal.SIGRTMIN) + 1} $$", f"killed by signal {int(signal.SIGRTMIN) + 1}"),
    ],
)
def test_a_command_that_ends_badly_fails_the_run_and_says_how(script: str, said: str) -> None:
    with pytest.raises(CommandFailed) as caught:
        shell_run(command=f"ulimit -c 0; {script}", shell=True)
    assert str(caught.value) == said


def test_a_list_is_never_read_by_a_shell(capfd: pytest.CaptureFixture[str]) -> None:
    hostile = "$(echo no); `echo no` && echo 'no' | cat * > x"
    shell_run(command=["printf", "%s|", hostile, "", "two words"])
    assert capfd.readouterr().out == f"{hostile}||two words|"


def test_a_command_has_the_environment_of_the_worker_its_own_and_that_of_its_run(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROM_WORKER", "w")
    monkeypatch.setenv("REPLACED", "w")
    names = "FROM_WORKER REPLACED ADDED BLACKBOARD_ITEM BLACKBOARD_DUE BLACKBOARD_ATTEMPT"
    shell_run(
        command=f"for n in {names} BLACKBOARD_FENCE; do eval echo \\$$n; done",
        shell=True,
        env={"REPLACED": "i", "ADDED": "ü $HOME"},
    )
    assert capfd.readouterr().out.splitlines() == [
        *("w", "i", "ü $HOME"),
        *("nightly", "2026-03-01T04:05:06.789Z", "2", "7"),
    ]
    assert os.environ["REPLACED"] == "w"


def test_a_command_runs_where_it_is_told_to_and_reads_nothing(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shell_run(command="pwd; cat", shell=True, cwd=str(tmp_path))
    assert capfd.readouterr().out == f"{tmp_path}\n"


def test_a_setting_that_means_nothing_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match=r"^jobs\.shell\.cwd: means nothing to shell"):
        run(Item("nightly", "shell", {"command": ["true"]}), context({"allow": True, "cwd": "/"}))


@pytest.mark.parametrize("settings", [{}, {"allow": False}, {"allow": "no"}, {"allow": 1}])
def test_nothing_runs_unless_the_settings_say_allow_true(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    item = Item("nightly", "shell", {"command": ["touch", str(tmp_path / "ran")]})
    with pytest.raises(BadInput, match=r"allow = true under \[jobs.shell\]"):
        called(item, context(settings))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({}, "params.command"),
        ({"command": []}, "params.command"),
        ({"command": [""]}, "params.command"),
        ({"command": " ", "shell": True}, "params.command"),
        ({"command": "echo x"}, "params.command"),
        ({"command": 7}, "params.command"),
        ({"command": ["echo", 7]}, "params.command[1]"),
        ({"command": ["echo", "a\0b"]}, "params"),
        ({"command": ["no-such-program-here"]}, "params.command"),
        ({"command": ["/"]}, "params.command"),
        ({"command": ["echo"], "shell": True}, "params.shell"),
        ({"command": "echo", "shell": "yes"}, "params.shell"),
        ({"command": ["true"], "env": ["A=b"]}, "params.env"),
        ({"command": ["true"], "env": {"A": 1}}, "params.env.A"),
        ({"command": ["true"], "env": {"A=B": "x"}}, "params.env"),
        ({"command": ["true"], "env": {"": "x"}}, "params.env"),
        ({"command": ["true"], "cwd": "no/such/folder"}, "params.cwd"),
        ({"command": ["true"], "cwd": 7}, "params.cwd"),
        ({"command": ["true"], "timeout": 10}, "params.timeout"),
        ({"command": ["true"], "timeout": "soon"}, "params.timeout"),
        ({"command": ["true"], "comand": "x"}, "params.comand"),
    ],
)
def test_a_param_that_cannot_be_used_is_named(params: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInput) as caught:
        shell_run(**params)
    assert caught.value.field == field


def test_a_timeout_ends_the_command_and_all_that_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    family = f"sleep 600 & echo $! > {pids}; (sleep 600 & echo $! >> {pids}); exec sleep 600"
    with pytest.raises(CommandFailed, match=r"^stopped after its timeout of 1s$"):
        shell_run(command=family, shell=True, timeout="1s")
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == 2
    asyncio.run(eventually(lambda: all(map(is_gone, started))))


def test_a_timeout_asks_first_and_does_not_take_no_for_an_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shell, "GRACE", 1.0)
    asked = tmp_path / "asked"
    before = psutil.Process().children()
    stubborn = f"trap 'touch {asked}' TERM; while :; do sleep 0.1; done"
    with pytest.raises(CommandFailed) as caught:
        shell_run(command=stubborn, shell=True, timeout="1s")
    assert asked.exists()
    assert "SIGTERM" in caught.value.__notes__[0]
    assert psutil.Process().children() == before


def test_what_a_command_leaves_in_the_background_ends_with_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    shell_run(command=f"sleep 600 & echo $! > {pid}", shell=True)
    asyncio.run(eventually(lambda: is_gone(int(pid.read_text()))))


def test_a_process_that_is_killed_takes_its_command_with_it(tmp_path: Path) -> None:
    """Nothing in Python gets to run in a process that is killed; the command ends all the same."""
    pid = tmp_path / "pid"
    code = (
        "from tests.board.test_shell import shell_run\n"
        f"shell_run(command='echo $$ > {pid}; sleep 600 & wait', shell=True)"
    )
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(python(code), cwd=root) as handler:
        asyncio.run(eventually(lambda: pid.is_file() and bool(pid.read_text().strip())))
        command = psutil.Process(int(pid.read_text()))
        family = [command, *command.children()]
        handler.kill()
    asyncio.run(eventually(lambda: all(is_gone(one.pid) for one in family)))


# ---- what is in the worker's environment


def test_a_command_runs_for_an_item_of_any_id(capfd: pytest.CaptureFixture[str]) -> None:
    """No variable has a NUL: it is left out."""
    command = {"command": ["printenv", "BLACKBOARD_ITEM"]}
    for one in ("-rf", "$(date)", "a\nb", "a\0b"):
        assert called(Item(one, "shell", command)) == {"exit": 0}
    assert capfd.readouterr().out == "-rf\n$(date)\na\nb\nab\n"


def expanded(**written: Any) -> Item:
    """The item as a worker would hand it over."""
    return Item("nightly", "shell", expand(written, os.environ), written=written)


class Remembered(subprocess.Popen[bytes]):
    """Processes whose arguments are kept."""

    seen: ClassVar[list[Any]] = []

    def __init__(self, args: Any, **how: Any) -> None:
        self.seen.append(args)
        super().__init__(args, **how)


def test_a_variable_in_text_is_left_to_the_shell(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So its value is no argument of any process, and no code either."""
    monkeypatch.setenv("TOKEN", "canary; echo run")
    monkeypatch.setattr(subprocess, "Popen", Remembered)
    called(expanded(command='printf "<%s>" "${TOKEN}" "$${TOKEN}"', shell=True))
    assert capfd.readouterr().out == "<canary; echo run>" * 2
    assert len(Remembered.seen) == 2  # the command, and what ends its group
    assert "canary" not in str(Remembered.seen)


def test_a_variable_in_a_list_is_refused_and_the_remedy_works(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "canary")
    with pytest.raises(BadInput) as refused:
        called(expanded(command=["echo", "$${TOKEN}", "--token=${TOKEN}"]))
    assert refused.value.field == "params.command[2]"
    assert refused.value.remedy.startswith('env = { TOKEN = "${TOKEN}" } ')
    assert "canary" not in str(refused.value)
    called(expanded(command=["printenv", "TOKEN"], env={"TOKEN": "${TOKEN}"}))
    called(expanded(command=["echo", "$${TOKEN}"]))
    assert capfd.readouterr().out == "canary\n${TOKEN}\n"


def test_a_command_does_not_learn_what_opens_the_store(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless it is given it under another name; here and in a worker."""
    monkeypatch.setenv("BLACKBOARD_CONNECTION_STRING", "canary")
    shell_run(command=["env"])
    assert "canary" not in capfd.readouterr().out
    mine = {"MINE": "${BLACKBOARD_CONNECTION_STRING}"}
    called(expanded(command=["printenv", "MINE"], env=mine))
    assert capfd.readouterr().out == "canary\n"

    async def story(runner: ProcessRunner) -> None:
        done = await ended(runner, command="cat /proc/$PPID/environ; env", shell=True)
        assert "BLACKBOARD_FENCE=7" in done.output
        assert "canary" not in done.output

    with_processes(story)


def call(**params: Any) -> HandlerCall:
    return HandlerCall(
        handler=load(["shell"], HERE)["shell"],
        item=Item("nightly", "shell", params),
        due=DUE,
        fence=7,
        attempt=2,
        worker="host:1:nonce",
        settings=ALLOWED,
    )


async def ended(runner: ProcessRunner, **params: Any) -> Ended:
    execution = runner.start(call(**params), Told(), float("inf"))
    return await asyncio.wait_for(execution.wait(), PATIENCE)


def test_in_a_worker_the_outcome_is_the_exit_code_and_the_output_is_kept() -> None:
    async def story(runner: ProcessRunner) -> None:
        well = await ended(runner, command="echo out; echo err >&2", shell=True)
        assert well == Ended(outcome=Outcome.OK, result={"exit": 0}, output="out\nerr\n")
        badly = await ended(runner, command="echo about to fail; exit 3", shell=True)
        assert (badly.outcome, badly.output) == (Outcome.FAILED, "about to fail\n")
        assert badly.error == "exit code 3"

    with_processes(story)


def test_in_a_worker_a_stopped_run_takes_its_command_with_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    async def story(runner: ProcessRunner) -> None:
        params = {"command": f"echo $$ > {pid}; exec sleep 600", "shell": True}
        execution = runner.start(call(**params), Told(), float("inf"))
        await eventually(lambda: pid.is_file() and bool(pid.read_text().strip()))
        execution.stop(Outcome.CANCELLED, "by a person")
        stopped = await asyncio.wait_for(execution.wait(), PATIENCE)
        assert stopped.outcome is Outcome.CANCELLED
        await eventually(lambda: is_gone(int(pid.read_text())))

    with_processes(story)
