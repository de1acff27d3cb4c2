"""Reading a page of the documentation: its tables, and its words in backticks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from blackboard.tables.memory import MemoryTable
from tests.support.boards import Scene, make_board
from tests.support.clocks import ManualClock
from tests.support.faults import FaultyTable

DOCS = Path(__file__).resolve().parents[2] / "docs"


@dataclass(frozen=True)
class Table:
    """A table: the paragraph before it, its head, its rows."""

    before: str
    head: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Page:
    """A page of docs/."""

    text: str

    @property
    def prose(self) -> str:
        """The text without line ends."""
        return " ".join(self.text.split())

    @property
    def paragraphs(self) -> list[str]:
        return self.text.split("\n\n")

    def tables(self) -> Iterator[Table]:
        for before, paragraph in pairwise(self.paragraphs):
            if paragraph.startswith("|"):
                head, _, *rows = paragraph.splitlines()
                yield Table(before, cells(head), [cells(row) for row in rows])

    def table(self, *head: str) -> Table:
        """The one table that begins with these columns."""
        (found,) = [one for one in self.tables() if one.head[: len(head)] == list(head)]
        return found


def page(name: str) -> Page:
    return Page((DOCS / name).read_text(encoding="utf-8"))


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def words(cell: str) -> list[str]:
    """The words in backticks."""
    return re.findall(r"`([^`]*)`", cell)


async def scene_in_memory() -> Scene:
    """A fresh board, with no requests recorded yet."""
    clock = ManualClock()
    faulty = FaultyTable(MemoryTable(clock))
    board = await make_board(faulty, clock)
    faulty.batches.clear()
    return Scene(table=faulty, clock=clock, board=board, other=board)
