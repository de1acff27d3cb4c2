"""The elections of a board. They have a board of their own, NAME.leaders, with one item for each.

The first candidate makes that board's row, and makes it again where the table was deleted and made
anew without it.
"""

from collections.abc import Sequence
from typing import Any

from blackboard.errors import BadInput, BadRow
from blackboard.protocol import keys
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.groups import board_trouble
from blackboard.protocol.status import BoardStatus, read_status
from blackboard.rules.status import ItemStatus
from blackboard.spec import RunSettings, decode_spec, resolve

COORDINATOR = "coordinator"
"""The election of the workers, which no program can enter."""
LOST = "the next candidate that starts makes it anew: a worker does"
"""The remedy for a board of elections whose own row is lost."""


async def open_elections(board: BoardTable, *, create: bool = False) -> BoardTable:
    """The board that has the elections of a board. Raises BadInput when it does not exist and
    `create` is not set.
    """
    name = keys.leaders_board(board.name)
    about: dict[str, Any] = {"clock": board.clock, "chance": board.chance, "resolve": _settings}
    if create:
        elections = await BoardTable.create(board.table, name=name, shards=1, **about)
    else:
        elections = await BoardTable.open(board.table, name=name, **about)
    return elections.using(clock_proven_in=board.clock_proven_in)


class Elections(BoardStatus, frozen=True, kw_only=True):
    """Elections, as they were at `now`."""

    unreadable: Sequence[str] = ()
    """The keys of the rows of elections that cannot be read."""
    trouble: str = ""
    """Why the elections cannot be read; "" where they can."""

    @property
    def coordinator(self) -> ItemStatus | None:
        """The election of the coordinator; None where no worker leads it."""
        led = (status for status in self.statuses if status.holder)
        return next((status for status in led if status.item.id == COORDINATOR), None)


async def read_elections(board: BoardTable, name: str | None = None) -> Elections:
    """The elections of a board, or only the one called `name`. Raises BadInput where the board has
    no election of that name, or the elections' board cannot be used; BadRow where the row of that
    election cannot be read. A group has none.
    """
    if await _has_elections(board):
        result = await _read(await open_elections(board), name)
    else:
        result = Elections(statuses=(), now=await board.table.now())
    if name is not None and not result.statuses:
        raise BadInput("name", f"no election {name!r} on this board", "`blackboard leader`")
    return result


async def _has_elections(board: BoardTable) -> bool:
    """Whether a board has a board of elections. Raises BadInput where that cannot be used."""
    if keys.group_of(board.name):
        return False
    elections = board.group(keys.LEADERS)
    meta = keys.meta_partition(elections.name)
    own = await elections.own_row()
    if own is not None:
        if trouble := board_trouble(own, meta):
            raise BadInput("board", trouble)
        return True
    if [row async for row in board.table.scan(elections.name, limit=1)]:
        raise BadInput("board", f"the row {keys.BOARD_KEY} in {meta} is lost", LOST)
    return False


async def _read(elections: BoardTable, name: str | None) -> Elections:
    """All elections, or only the one called `name`. Raises BadRow for that one alone."""
    items = [item async for item in elections.items() if name is None or item.id == name]
    status = await read_status(elections, items)
    unreadable: Sequence[str] = elections.unreadable + elections.newer
    if name is not None:
        if keys.item_key(name) in unreadable:
            raise BadRow(keys.item_key(name), "it cannot be read", board=elections.name)
        unreadable = ()
    return Elections(statuses=status.statuses, now=status.now, unreadable=unreadable)


async def make_again(elections: BoardTable) -> None:
    """Makes the row of the elections' board where it is gone, because the table was deleted and
    made anew without it.
    """
    if await elections.own_row() is None:
        await elections.make()


def name_of_program(name: str) -> str:
    """Returns the name of an election if programs may enter it. Raises BadInput."""
    if not name:
        raise BadInput("name", "it is empty", "give the election a name")
    if name == COORDINATOR:
        problem = f"{name!r} is taken: workers elect their coordinator in it"
        raise BadInput("name", problem, "use another name")
    if "," in name:
        raise BadInput("name", f"{name!r} has a comma", "use another character")
    return name


def _settings(_type: str, spec: str) -> RunSettings:
    return resolve([decode_spec(spec)])
