"""The README is true: its files are written, its commands run in order in one folder, and what it
shows of their output is what they print, but for times and the names of workers.
"""

import os
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")

ELSEWHERE = ("./bb ", "export BLACKBOARD_STORE=https:", "docker compose ")
"""How blocks begin that no folder of a test can run; what they name has tests of its own."""

VOLATILE = (
    (re.compile(r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"\b\d+s ago|\bnow\b"), "JUST NOW"),
    (re.compile(r"\b\d+(\.\d)?s\b"), "SECONDS"),
    (re.compile(r"\b[\w.-]+:\d+(?= |$)", re.MULTILINE), "WORKER"),
    (re.compile(r" +"), " "),
)

FIGURES = re.compile(r"\d[\d,.]*(%|[dhms]\b)?( \d+[hms]\b)?")
"""What a simulation found: another number whenever a worker asks its store in another order."""


@dataclass(frozen=True)
class Block:
    """What stands between two fences."""

    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The file it is, when its first line names one."""
        match = re.match(r"# ([\w./]+\.(?:py|toml|txt))\n", self.text)
        return match[1] if match else None


@dataclass(frozen=True)
class Command:
    """A line that is typed, and what the README shows below it."""

    line: str
    shown: str


def blocks() -> list[Block]:
    found = re.finditer(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [Block(match[1], match[2]) for match in found]


def commands(block: Block) -> Iterator[Command]:
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        line, _, shown = part.replace("\\\n", " ").partition("\n")
        yield Command(line, shown)


def told(command: Command, output: str) -> str:
    """An output, as far as it is the same each time."""
    if "--after" in command.line:
        return output
    if " simulate " in command.line:
        output = FIGURES.sub("FIGURE", output)
    for pattern, word in VOLATILE:
        output = pattern.sub(word, output)
    return output


def environment() -> Mapping[str, str]:
    """`blackboard` on the path, and nothing that says where a board is or how wide a terminal."""
    kept = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    kept = {name: value for name, value in kept.items() if not name.startswith("BLACKBOARD_")}
    return kept | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def typed(command: Command, folder: Path) -> str:
    """What the command prints; it must succeed."""
    done = subprocess.run(
        shlex.split(command.line),
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, f"$ {command.line}\n{done.stdout}{done.stderr}"
    assert "warning" not in done.stderr, f"$ {command.line}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the README has been followed from top to bottom."""
    here = tmp_path_factory.mktemp("readme")
    for block in blocks():
        if block.file:
            file = here / block.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            for command in commands(block):
                output = typed(command, here)
                if command.shown:
                    assert told(command, output) == told(command, command.shown), command.line
    return here


def test_every_command_does_what_is_shown(folder: Path) -> None:
    lines = [
        one.line for block in blocks() if block.language == "console" for one in commands(block)
    ]
    assert len(lines) > 15
    assert all(line.startswith("blackboard ") for line in lines)
    assert (folder / "blackboard.db").exists()


def test_blocks_that_are_not_run_are_the_known_ones() -> None:
    assert {block.language for block in blocks()} == {"console", "python", "toml", "text", "sh"}
    shell = [block.text for block in blocks() if block.language == "sh"]
    assert len(shell) == len(ELSEWHERE)
    assert all(text.startswith(how) for text, how in zip(shell, ELSEWHERE, strict=True))
    named = [block.file for block in blocks() if block.language in {"python", "toml"}]
    assert named == [
        "jobs/hello.py",
        "blackboard.toml",
        "blackboard.toml",
        "conftest.py",
        "test_hello.py",
    ]


def test_the_test_of_a_handler_passes(folder: Path) -> None:
    typed(Command("python -m pytest -q -p no:cacheprovider test_hello.py", ""), folder)


def test_a_handler_is_eight_lines() -> None:
    block = next(block for block in blocks() if block.language == "python")
    assert len([line for line in block.text.splitlines() if line and line[0] != "#"]) <= 8


def test_the_rows_are_where_it_says(folder: Path) -> None:
    (query,) = re.findall(r"`(select [^`]+)`", README)
    with closing(sqlite3.connect(folder / "blackboard.db")) as connection:
        keys = {key.partition(":")[0] for key, _ in connection.execute(query)}
    shown = next(block.text for block in blocks() if block.text.startswith("item:"))
    families = {line.partition(":")[0] for line in shown.splitlines()}
    assert families - {"lock"} <= keys


def test_the_table_of_commands_is_whole() -> None:
    from blackboard.cli import COMMANDS

    section = README.partition("## The command line")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(COMMANDS)


def test_the_sections_stand_in_their_order() -> None:
    assert re.findall(r"^## (.*)$", README, re.MULTILINE) == [
        "What it is not",
        "Two commands",
        "The cycle",
        "Promises",
        "A handler",
        "Schedules",
        "The command line",
        "Azure Table Storage",
        "Test your own jobs",
        "Try it before you deploy it",
        "Deploying",
        "The rows",
        "For developers",
    ]


def test_files_that_are_named_are_there() -> None:
    named = re.findall(r"[`(]((?:blackboard|tests|benchmarks|deploy|docs)/[\w./]*)[`)]", README)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []
