"""Pauses a whole board: while it is paused no worker claims or takes over anything.

Each shard has a row then, between its locks and its tokens: a walk that reads the shard finds it
without another request. So a worker learns of a pause at its next walk, a cycle later at the most.
What runs goes on, is renewed and released. The items' own pauses are left alone. Pumps and
elections go on: their boards are others. Those boards are not paused so, since no worker of a group
and no candidate looks for that: the partitions and the elections themselves are.

Shard 0 decides for the board: its row is inserted, or deleted, before those of the others. A
command that has written any of these rows reads all of them afterwards, and writes again while one
differs from shard 0. So of a pause and a resume at the same time one wins, in all shards: the
command that wrote last has found them alike. What a command that was killed has left is finished by
asking again, and by the workers: a row that shard 0 does not have pauses nothing, and is deleted by
the walk that meets it; one that is missing is inserted after the walk.
"""

from blackboard.errors import BadInput, BlackboardError
from blackboard.model import Mark
from blackboard.protocol.keys import MAINTENANCE, group_of
from blackboard.protocol.reading import BoardTable, mark_in
from blackboard.protocol.rows import text_of
from blackboard.table import Conflict, Delete, Insert, Op, Replace, Row, Unknown, read, try_delete

TRIES = 20
"""Requests for one shard that may remain without an answer."""
PASSES = 20
"""Readings of all shards, while other commands pause and resume the board."""


async def paused_by(board: BoardTable) -> Mark | None:
    """Who paused the board, when and why; None: it is not paused."""
    row = await _row(board, 0)
    return None if row is None else mark_in(row)


async def pause_board(board: BoardTable, mark: Mark) -> bool:
    """Pause the board. Returns whether a shard was not paused before: where shard 0 was, the first
    mark stays. Another command may have resumed the board meanwhile: `paused_by` says it. Raises
    BadInput for the board of a group or of elections.
    """
    if group_of(board.name):
        problem = f"{board.name} has what is held, and its holders look for no pause of a board"
        raise BadInput("board", problem, f"`blackboard --board {board.name} pause '*'`")
    changed = await _settled(board, 0, Insert(MAINTENANCE, {"mark": text_of(mark)}))
    return await agree(board) or changed


async def resume_board(board: BoardTable) -> bool:
    """End the pause of the board. Returns whether a shard was paused. Another command may have
    paused the board meanwhile: `paused_by` says it.
    """
    row = await _row(board, 0)
    changed = row is not None and await _settled(board, 0, Delete(MAINTENANCE, row.etag))
    return await agree(board) or changed


async def agree(board: BoardTable) -> bool:
    """Make all shards as shard 0 is, until they are found so. Returns whether one was not."""
    changed = False
    for _ in range(PASSES):
        first, written = await _row(board, 0), False
        for number in range(1, board.shards):
            op = _missing(first, await _row(board, number))
            if op is not None:
                written = True
                changed |= await _settled(board, number, op)
        if not written:
            return changed
    raise BlackboardError("other commands pause and resume the board at the same time: try again")


async def is_paused(board: BoardTable, number: int) -> bool:
    """Whether a shard is paused. A row that shard 0 does not have was left by a command that was
    killed, or is about to be deleted: it is deleted.
    """
    row = await _row(board, number)
    if row is None or number == 0 or await _row(board, 0) is not None:
        return row is not None
    await try_delete(board.table, board.shard(number), [Delete(MAINTENANCE, row.etag)])
    return False


async def _row(board: BoardTable, number: int) -> Row | None:
    return await read(board.table, board.shard(number), MAINTENANCE)


def _missing(first: Row | None, row: Row | None) -> Op | None:
    """What makes a shard, with this row, as shard 0 is, with its `first` one. None: it is."""
    if first is None:
        return None if row is None else Delete(MAINTENANCE, row.etag)
    mark = str(first.data.get("mark"))
    if row is None:
        return Insert(MAINTENANCE, {"mark": mark})
    if str(row.data.get("mark")) == mark:
        return None
    return Replace(MAINTENANCE, {"mark": mark}, row.etag)


async def _settled(board: BoardTable, number: int, op: Op) -> bool:
    """Make a shard as wanted. Returns whether it was not; True also where a reply was lost."""
    doubtful = False
    for _ in range(TRIES):
        try:
            await board.table.commit(board.shard(number), [op])
        except Conflict:
            return doubtful
        except Unknown:
            doubtful = True
            continue
        return True
    raise BlackboardError("the store does not say whether the board was changed: try again")
