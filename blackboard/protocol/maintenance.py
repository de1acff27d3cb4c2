"""Pauses a whole board: while it is paused no worker claims or takes over anything.

Each shard has a row then, between its locks and its tokens: a walk that reads the shard finds it
without another request. So a worker learns of a pause at its next walk, a cycle later at the most.
What runs goes on, is renewed and released. The items' own pauses are left alone. Pumps and
elections go on: their boards are others.

A pause that was cut short is finished by asking for it again, and so is its end. Shard 0 has the
row first and last, so it decides for the board.
"""

from blackboard.errors import BlackboardError
from blackboard.model import Mark
from blackboard.protocol.keys import MAINTENANCE
from blackboard.protocol.reading import BoardTable, mark_in
from blackboard.protocol.rows import text_of
from blackboard.table import ANY, Conflict, Delete, Insert, Op, Unknown, read

TRIES = 20
"""Requests for one shard that may remain without an answer."""


async def paused_by(board: BoardTable) -> Mark | None:
    """Who paused the board, when and why; None: it is not paused."""
    row = await read(board.table, board.shard(0), MAINTENANCE)
    return None if row is None else mark_in(row)


async def pause_board(board: BoardTable, mark: Mark) -> bool:
    """Pause the board. Returns whether it was not paused before: otherwise the first mark stays."""
    data = {"mark": text_of(mark)}
    changed = [
        await _settled(board, number, Insert(MAINTENANCE, data)) for number in range(board.shards)
    ]
    return any(changed)


async def resume_board(board: BoardTable) -> bool:
    """End the pause of the board. Returns whether it was paused."""
    changed = [
        await _settled(board, number, Delete(MAINTENANCE, ANY))
        for number in reversed(range(board.shards))
    ]
    return any(changed)


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
