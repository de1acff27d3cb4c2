"""The origin of figures: the version of the product, its commit, and the day."""

import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from blackboard import __version__
from blackboard.phrases import span

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reliability.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The product that was measured, and when."""

    version: str
    commit: str
    changed: bool
    """Whether the checkout had changes that were not committed, besides figures."""
    date: str
    is_long: bool
    """Whether the long form was run."""

    @classmethod
    def of_this_checkout(cls, *, is_long: bool) -> "Origin":
        page = PAGE.relative_to(ROOT)
        return cls(
            version=__version__,
            commit=_git("rev-parse", "--short", "HEAD"),
            changed=bool(_git("status", "--porcelain", "--", ".", f":!{page}")),
            date=datetime.now(UTC).date().isoformat(),
            is_long=is_long,
        )

    def line(self, seconds: float) -> str:
        """The origin as Markdown; `seconds` is the CPU time of the run."""
        commit = f"`{self.commit}`" + (" with changes" if self.changed else "")
        form = ", the long form" if self.is_long else ""
        took = f"{span(seconds)} of processor time"
        return f"*{self.date}, version {self.version}, commit {commit}{form}; {took}.*"


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.strip()
