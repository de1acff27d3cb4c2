"""Ctrl-C at the start of a command: no traceback, and the exit code of an interruption."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from blackboard.cli.options import Chosen
from blackboard.cli.session import Session
from tests.cli.command_line import ROOT, CommandLine, blackboard

__all__ = ["blackboard"]

SAID = "blackboard: interrupted"
PROGRAM = """
import runpy, signal, sys

class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == {during!r}:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, CtrlC())
sys.argv = ["blackboard", *{args!r}]
runpy.run_module("blackboard", run_name="__main__")
"""


@pytest.mark.not_on_azurite("nothing is read yet")
@pytest.mark.parametrize(
    ("args", "during", "code", "said"),
    [
        (["show"], "click", -signal.SIGINT, ""),
        (["check"], "blackboard.cli.check", -signal.SIGINT, ""),
        (["simulate"], "blackboard.simulator", -signal.SIGINT, ""),
        (["simulate", "--items", "3"], "blackboard.simulator.world", 130, SAID),
    ],
)
def test_while_modules_are_imported(
    tmp_path: Path, args: list[str], during: str, code: int, said: str
) -> None:
    program = PROGRAM.format(during=during, args=args)
    command = [sys.executable, "-c", program]
    env = {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    ended = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr.strip("\n")) == (code, said)


def test_while_a_class_is_made(blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: Chosen) -> Session:
        # As Python 3.11 does where `__set_name__` is interrupted.
        raise RuntimeError("Error calling __set_name__") from KeyboardInterrupt()

    monkeypatch.setattr(Session, "start", start)
    assert blackboard("show", code=130).err == f"{SAID}\n"
