"""Pauses a whole board: while it is paused, no worker claims or overrides anything.

Each shard of a paused board has a row, between its locks and its tokens: a walk that reads the
shard finds it without another request. So a worker learns of a pause at its next walk, a cycle
later at the most. Runs under way go on, and are renewed and released. The pauses of single items
are left alone. Pumps and elections go on, because they have boards of their own. Those boards
cannot be paused as a whole, since no worker of a group and no candidate looks for the row; their
items can.

Shard 0 decides for the board: its row is inserted, or deleted, before those of the others. A
command that has written any of these rows reads all of them afterwards, and writes again while one
differs from shard 0. When a pause and a resume run at the same time, one of them wins in all
shards, because each command ends only after it has read all shards and found them alike. A command
that is killed may leave the shards different: the next such command makes them alike, and so do
workers. A row pauses nothing where shard 0 has none, and the walk that meets it deletes it; a row
that is missing is inserted after the walk.
"""

from contextlib import suppress

from blackboard.errors import BadInput, BlackboardError
from blackboard.model import Mark
from blackboard.protocol.board_table import BoardTable, mark_in
from blackboard.protocol.keys import MAINTENANCE, group_of
from blackboard.protocol.rows import text_of
from blackboard.table import (
    Conflict,
    Delete,
    Insert,
    Op,
    Replace,
    Row,
    commit_again,
    read,
    try_delete,
)

PASSES = 20
"""Readings of all shards, at most, while other commands pause and resume the board."""


async def paused_by(board: BoardTable) -> Mark | None:
    """Who paused the board, when and why; None: it is not paused."""
    row = await _row(board, 0)
    return None if row is None else mark_in(row)


async def pause_board(board: BoardTable, mark: Mark) -> bool:
    """Pauses the board. Returns whether a shard was not paused before; where shard 0 was, its mark
    stays. Another command may have resumed the board meanwhile: see `paused_by`. Raises BadInput
    for the board of a group or of elections, BlackboardError as `agree`, and TableError.
    """
    if group_of(board.name):
        problem = f"{board.name} has what is held, and its holders look for no pause of a board"
        raise BadInput("board", problem, f"`blackboard --board {board.name} pause '*'`")
    row = await _row(board, 0)
    if row is None:
        await _apply(board, 0, Insert(MAINTENANCE, {"mark": text_of(mark)}))
    return await agree(board) or row is None


async def resume_board(board: BoardTable) -> bool:
    """Ends the pause of the board. Returns whether a shard was paused. Another command may have
    paused the board meanwhile: see `paused_by`. Raises BlackboardError as `agree`, and
    TableError.
    """
    row = await _row(board, 0)
    if row is not None:
        await _apply(board, 0, Delete(MAINTENANCE, row.etag))
    return await agree(board) or row is not None


async def agree(board: BoardTable) -> bool:
    """Makes all shards like shard 0, until it reads them alike. Returns whether one differed.
    Raises BlackboardError where other commands change them each time, and TableError.
    """
    changed = False
    for _ in range(PASSES):
        first, written = await _row(board, 0), False
        for number in range(1, board.shards):
            op = _missing(first, await _row(board, number))
            if op is not None:
                changed = written = True
                await _apply(board, number, op)
        if not written:
            return changed
    raise BlackboardError("other commands pause and resume the board at the same time: try again")


async def is_paused(board: BoardTable, number: int) -> bool:
    """Whether a shard is paused. Where shard 0 has no row, that of another shard was left by a
    command that was killed, or is about to be deleted by one: it is deleted.
    """
    row = await _row(board, number)
    if row is None or number == 0 or await _row(board, 0) is not None:
        return row is not None
    await try_delete(board.table, board.shard(number), [Delete(MAINTENANCE, row.etag)])
    return False


async def _row(board: BoardTable, number: int) -> Row | None:
    return await read(board.table, board.shard(number), MAINTENANCE)


def _missing(first: Row | None, row: Row | None) -> Op | None:
    """The operation that makes a shard with `row` like shard 0, which has `first`. None: they are
    alike.
    """
    if first is None:
        return None if row is None else Delete(MAINTENANCE, row.etag)
    mark = str(first.data.get("mark"))
    if row is None:
        return Insert(MAINTENANCE, {"mark": mark})
    if str(row.data.get("mark")) == mark:
        return None
    return Replace(MAINTENANCE, {"mark": mark}, row.etag)


async def _apply(board: BoardTable, number: int, op: Op) -> None:
    """Applies an operation to a shard, unless another command was faster: `agree` reads what is
    there. Raises TableError.
    """
    with suppress(Conflict):
        await commit_again(board.table, board.shard(number), [op])
