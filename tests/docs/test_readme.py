"""The README is true, and short: its commands do what it shows, and what it names is there."""

import re
from pathlib import Path

import pytest

from tests.support.page_commands import Command, blocks, follow, typed

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MOST_LINES = 200


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the README has been followed from top to bottom."""
    return tmp_path_factory.mktemp("readme")


@pytest.fixture(scope="module")
def followed(folder: Path) -> list[Command]:
    return follow(README, folder)


def test_every_command_does_what_is_shown(followed: list[Command], folder: Path) -> None:
    assert len(followed) >= 6
    assert (folder / "blackboard.db").exists()


def test_blocks_that_are_not_run_are_the_two_commands() -> None:
    """They have tests of their own: ./bb is what runs this one."""
    assert {block.language for block in blocks(README)} == {
        "console",
        "python",
        "toml",
        "text",
        "sh",
    }
    assert [block.text for block in blocks(README) if block.language == "sh"] == [
        "./bb demo\n./bb test\n"
    ]


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= MOST_LINES


def test_a_handler_is_eight_lines() -> None:
    block = next(block for block in blocks(README) if block.language == "python")
    assert len([line for line in block.text.splitlines() if line and line[0] != "#"]) <= 8


def test_the_table_of_commands_is_whole() -> None:
    from blackboard.cli import COMMANDS

    section = README.partition("## The command line")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`([\w-]+)`", " ".join(rows))) == sorted(COMMANDS)


def test_the_test_of_a_handler_passes(tmp_path: Path) -> None:
    """The one of docs/testing.md, which is the way in for those who write jobs."""
    text = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    follow(text, tmp_path)
    typed(Command("python -m pytest -q -p no:cacheprovider test_hello.py", ""), tmp_path)
