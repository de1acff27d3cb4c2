"""What the tests of deploy/ read: the files, and the command lines that are in them."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pycep import BicepParser

from blackboard.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd" / "blackboard-worker@.service"

_CALL = re.compile(
    rf"(?<![\w./-])(?:/opt/blackboard/bin/)?blackboard"
    rf"((?: --[a-z-]+ [^\s\"]+)* (?:{'|'.join(COMMANDS)})\b[^`\"#;|&\n]*)"
)


@dataclass(frozen=True)
class Instruction:
    """A line of the Dockerfile, its continuations included."""

    name: str
    text: str

    @property
    def argv(self) -> list[str]:
        """Of the exec form, which is JSON: no shell reads it."""
        found: list[str] = json.loads(self.text)
        return found


def dockerfile() -> list[Instruction]:
    text = re.sub(r"^\s*#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [Instruction(*line.split(maxsplit=1)) for line in lines if line]


def image() -> dict[str, Instruction]:
    """The last stage, which is the image: each instruction's last occurrence."""
    every = dockerfile()
    last = max(n for n, one in enumerate(every) if one.name == "FROM")
    return {one.name: one for one in every[last:]}


def environment() -> dict[str, str]:
    """What the image sets."""
    return dict(pair.split("=", 1) for pair in shlex.split(image()["ENV"].text))


def health_check() -> list[str]:
    return Instruction("CMD", image()["HEALTHCHECK"].text.partition(" CMD ")[2]).argv


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


def manifest(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "kubernetes" / name).read_text())
    return found


def pod() -> dict[str, Any]:
    found: dict[str, Any] = manifest("deployment.yaml")["spec"]["template"]["spec"]
    return found


def bicep() -> dict[str, Any]:
    text = (DEPLOY / "azure" / "main.bicep").read_text()
    return dict(BicepParser().parse(text=text))


def unit() -> dict[str, list[str]]:
    """The settings of the unit; one that stands there several times has several values."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def texts() -> list[Path]:
    """All that a person reads or runs."""
    found = [path for path in DEPLOY.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    return [*sorted(found), ROOT / "docs" / "deploy.md", ROOT / ".dockerignore"]


def calls_in(text: str) -> Iterator[list[str]]:
    """The arguments of each `blackboard COMMAND ...` in a text."""
    joined = re.sub(r"\\\n\s*(?:#\s*)?", " ", text)
    for found in _CALL.finditer(joined):
        yield shlex.split(found[1])
