"""Follows a page of the documentation: writes its files, types its commands in one folder, and
compares what the page shows of their output with what they print, but for times and the names of
workers.
"""

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from blackboard.cli import called
from tests.support.patience import patience

VOLATILE = (
    (re.compile(r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"\(in [\d dhms]+\)"), "(IN TIME)"),
    (re.compile(r"\b\d+s ago|\bnow\b"), "JUST NOW"),
    (re.compile(r"\b\d+(\.\d)?s\b"), "SECONDS"),
    (re.compile(r"\b[\w.-]+:\d+(?= |$)", re.MULTILINE), "WORKER"),
    (re.compile(r" +"), " "),
)

FIGURES = re.compile(r"\d[\d,.]*(%|[dhms]\b)?( \d+[hms]\b)?")
"""Figures of a simulation, which differ if a worker sends its requests in another order."""


@dataclass(frozen=True)
class Block:
    """The text between two code fences."""

    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The path of the file that the block is, if its first line names one."""
        match = re.match(r"# ([\w./]+\.(?:py|toml|txt))\n", self.text)
        return match[1] if match else None


@dataclass(frozen=True)
class Command:
    """A line to type, and the output that the page shows below it."""

    line: str
    shown: str


def blocks(text: str) -> list[Block]:
    found = re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [Block(match[1], match[2]) for match in found]


def commands(block: Block) -> Iterator[Command]:
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        line, _, shown = part.replace("\\\n", " ").partition("\n")
        yield Command(line, shown)


def same_each_time(command: Command, output: str) -> str:
    """An output, with the parts that vary replaced."""
    if "--after" in command.line:
        return output
    if " simulate " in command.line:
        output = FIGURES.sub("FIGURE", output)
    for pattern, word in VOLATILE:
        output = pattern.sub(word, output)
    return output


def environment() -> Mapping[str, str]:
    """The environment with `blackboard` on PATH, without COLUMNS and settings of boards."""
    kept = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    kept = {name: value for name, value in kept.items() if not name.startswith("BLACKBOARD_")}
    return kept | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


OF_THEIR_OWN = {"worker", "serve", "--version"}
"""Commands that are processes of their own also in a test: their signals and their children are."""


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """This process as one that was started in `folder`; modules from there are not kept."""
    path, modules = list(sys.path), set(sys.modules)
    with chdir(folder), mock.patch.dict(os.environ, environment(), clear=True):
        try:
            yield
        finally:
            sys.path[:] = path
            for name in set(sys.modules) - modules:
                if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
                    del sys.modules[name]


def called_here(line: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """`blackboard` in this process, which takes a tenth of the time."""
    out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    with alone(folder), redirect_stdout(out), redirect_stderr(err):
        code = called(line[1:])
    printed = (one.buffer.getvalue().decode() for one in (out, err))
    return subprocess.CompletedProcess(line, code, *printed)


def typed(command: Command, folder: Path) -> str:
    """Runs a command, which must succeed; returns what it prints."""
    name, first, *_ = line = [*shlex.split(command.line), ""]
    is_alone = name != "blackboard" or first in OF_THEIR_OWN
    done = (ran if is_alone else called_here)(line[:-1], folder)
    assert done.returncode == 0, f"$ {command.line}\n{done.stdout}{done.stderr}"
    assert "warning" not in done.stderr, f"$ {command.line}\n{done.stderr}"
    return done.stdout


def ran(line: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        line,
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(60),
    )


def follow(text: str, folder: Path) -> list[Command]:
    """Follows the page in order; returns its commands."""
    done = []
    for block in blocks(text):
        if block.file:
            file = folder / block.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            for command in commands(block):
                output = typed(command, folder)
                if command.shown:
                    assert same_each_time(command, output) == same_each_time(
                        command, command.shown
                    ), command.line
                done.append(command)
    return done
