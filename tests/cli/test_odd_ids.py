"""Any text works as an id, from `add` to `rm`, and none steers a terminal."""

import re
import shlex
from pathlib import Path

import pytest

from blackboard import open_blocking
from blackboard.model import State
from tests.cli.command_line import CommandLine, blackboard

__all__ = ["blackboard"]

ROOT = Path(__file__).resolve().parents[2]

HELLO = """
from blackboard import handler


@handler("hello", every="8h")
def hello(item, ctx):
    return {"greeted": item.id}
"""

ODD = {
    "slash": "a/b",
    "backslash": "a\\b",
    "hash": "a#b",
    "question mark": "a?b",
    "percent": "a%b",
    "encoded": "a%2fb",
    "newline": "two\nlines",
    "control": "\x1b[31mred",
    "emoji": "\N{GRINNING FACE} \N{FAMILY}",
    "control of 8 bits": "\x9b31mred\x7f",
    "right to left": "\u202eabc",
    "dots": "..",
    "an option": "--help",
    "a glob": "[a]b",
    "blanks": "a  b",
    "quotes": "'\"`$HOME",
    "own prefix": "item:=41",
    "512 characters": "x" * 512,
    "513 characters": "x" * 513,
    "512 emoji": "\N{GRINNING FACE}" * 512,
}


@pytest.fixture(name="town")
def _town(blackboard: CommandLine) -> CommandLine:
    """An empty board, and a handler."""
    (blackboard.folder / "jobs").mkdir()
    blackboard.write(HELLO, "jobs/hello.py")
    blackboard("init")
    return blackboard


def test_any_text_is_an_id(town: CommandLine) -> None:
    """Added, shown, explained, run by a worker, told by the log, changed and removed."""
    ids = list(ODD.values())
    town("add", "--type", "hello", "--", *ids)
    assert town.ids() == sorted(ids)
    with open_blocking(town.store, handlers=["jobs"]) as board:
        board.worker(slots=1).work("idle")  # one child process
    shown = {one["id"]: one for one in town("show", "--json").json}
    runs = {one["id"]: one for one in town("log", "--json", "-n", "100").json}
    assert sorted(shown) == sorted(runs) == sorted(ids)
    for one in ids:
        assert shown[one]["outcome"] == "ok"
        assert runs[one]["result"] == {"greeted": one}
    for verb in (["why"], ["log"], ["next"], ["run"], ["edit", "--every", "2h"], ["pause"]):
        town(verb[0], "--exact", *verb[1:], "--", *ids)
    assert {one["state"] for one in town("show", "--json").json} == {"paused"}
    assert town("doctor").out.startswith("clean: ")
    town("rm", "--exact", "--", *ids)
    assert town.ids() == []


def test_odd_ids_survive_a_file(town: CommandLine) -> None:
    town("add", "--type", "hello", "--", *ODD.values())
    town.write(town("export").out, "items.toml")
    assert f"0 to add, {len(ODD)} to change, 0 to remove" in town("apply", "items.toml").out
    assert town("apply", "items.toml").out.startswith("nothing to do: ")
    town("--board", "copy", "apply", "items.toml")
    assert town("--board", "copy", "export").out == town("export").out


def test_the_remedy_for_an_odd_id_can_be_typed(town: CommandLine) -> None:
    for one in ("--help", "-x", "two words"):
        town("add", "--type", "hello", "--every", "8h", "--", one)
        town("pause", "--", one)
        for said in (town("why", "--", one).out, town("run", "--", one, code=1).err):
            [remedy] = re.findall("`blackboard (.*?)`", said)
            town(*shlex.split(remedy))
            assert town.item(one).state is State.ACTIVE
            town("pause", "--", one)


@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_an_odd_id_steers_no_terminal(town: CommandLine, form: list[str]) -> None:
    town("add", "--type", "hello", "--", *ODD.values())
    for args in (["show"], ["show", "--plain"], ["next"], ["export"], ["log", "--actions"]):
        assert printed(town(*args, *form).out) == ""
    assert printed(town("why", "--exact", *form, "--", *ODD.values()).out) == ""


def printed(text: str) -> str:
    """The characters of an output that steer a terminal, or turn what is beside them."""
    return "".join(char for char in text if not char.isprintable() and char != "\n")
