"""What the demo shows of a board: the columns of `show` that tell its story, and the history."""

from collections.abc import Callable, Sequence

from blackboard.cli.columns import (
    ITEM_COLUMNS,
    RUN_COLUMNS,
    item_cells,
    run_cells,
    summary,
    worker_name,
)
from blackboard.cli.gather import Gathered
from blackboard.cli.layout import Column, Line, Style, table
from blackboard.model import Run

_BOARD = ("id", "start", "stop", "running", "outcome", "next", "owner")
_HISTORY = ("stop", "outcome", "took", "fence", "worker", "result or error")

NameOf = Callable[[str], str]
"""A worker's short name, from its long one."""


def board_picture(board: Gathered, *, name_of: NameOf, width: int) -> list[Line]:
    """The board as `show` has it, without what is the same for all of its items."""
    cells = [item_cells(one, now=board.now, absolute=False) for one in board.statuses]
    owners = [one.item.owner for one in board.statuses]
    rows = [_renamed(line, owner, name_of) for line, owner in zip(cells, owners, strict=True)]
    total = summary(board.statuses, total=len(board.statuses), now=board.now)
    return [*_chosen(ITEM_COLUMNS, rows, _BOARD, width), [], [(total, Style.TITLE)]]


def history_picture(
    runs: Sequence[Run], *, board: Gathered, name_of: NameOf, width: int
) -> list[Line]:
    """Runs as `log` has them."""
    cells = [run_cells(one, now=board.now, absolute=False) for one in runs]
    owners = [one.worker for one in runs]
    rows = [_renamed(line, owner, name_of) for line, owner in zip(cells, owners, strict=True)]
    return _chosen(RUN_COLUMNS, rows, _HISTORY, width)


def _renamed(line: Line, owner: str, name_of: NameOf) -> Line:
    long = worker_name(owner)
    return [(name_of(owner) if text == long and owner else text, style) for text, style in line]


def _chosen(
    columns: Sequence[Column], rows: Sequence[Line], titles: Sequence[str], width: int
) -> list[Line]:
    places = [place for place, column in enumerate(columns) if column.title in titles]
    kept = [[line[place] for place in places] for line in rows]
    return table([columns[place] for place in places], kept, width=width)
