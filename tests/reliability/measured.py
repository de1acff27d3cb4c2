"""What a part of the proof came to, as it is kept in `figures/`: one JSON file for each part."""

import json
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from blackboard import __version__

ROOT = Path(__file__).resolve().parents[2]
FIGURES = Path(__file__).with_name("figures")
NOT_THE_PRODUCT = (":!tests/reliability/figures", ":!docs/reliability.md")
"""What measuring itself writes makes no other product of it."""

Figures = dict[str, Any]
"""As JSON has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What was measured, and when."""

    version: str
    commit: str
    changed: bool
    """Whether the checkout had changes that were not committed."""
    date: str

    @classmethod
    def of_this_checkout(cls) -> "Origin":
        return cls(
            version=__version__,
            commit=_git("rev-parse", "--short", "HEAD"),
            changed=bool(_git("status", "--porcelain", "--", ".", *NOT_THE_PRODUCT)),
            date=datetime.now(UTC).date().isoformat(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One part."""

    origin: Origin
    nightly: bool
    """Whether its long form was run."""
    seconds: float
    """Of processors, all together."""
    figures: Figures


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def keep(part: str, measured: Measured, folder: Path = FIGURES) -> None:
    """The old figures of the part are there until the new ones are, whole."""
    half = folder / f".{part}.half"
    half.write_text(json.dumps(asdict(measured), indent=1) + "\n")
    half.replace(folder / f"{part}.json")


def kept(folder: Path = FIGURES) -> dict[str, Measured]:
    """All parts that were measured, by their names."""
    return {path.stem: _read(path) for path in sorted(folder.glob("*.json"))}


def _read(path: Path) -> Measured:
    said = json.loads(path.read_text())
    return Measured(**{**said, "origin": Origin(**said["origin"])})
