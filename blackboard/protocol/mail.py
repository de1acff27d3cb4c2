"""Mail: the messages of an election, as rows that their recipients fetch and delete.

A message that cannot be sent is lost; one whose deletion had no answer is fetched twice; and
messages to two candidates have no order. The rules of elections allow for all of this. A sender
deletes a message that was not fetched in the time that an answer takes, and so learns that the
recipient is silent. Mail for candidates that have ended is deleted after a day.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from blackboard.model import Message
from blackboard.protocol import keys
from blackboard.protocol.board_table import BoardTable, Pause, paged
from blackboard.protocol.rows import data_of, readable
from blackboard.table import ANY, Conflict, Delete, Insert, Unknown, commit_again, try_delete

FORGOTTEN_AFTER = timedelta(days=1)


async def send(board: BoardTable, messages: Sequence[Message]) -> dict[str, Message]:
    """Sends messages, in one batch as far as they fit it; returns each by the key of its row. A
    batch that is never answered may be lost.
    """
    sent = await board.table.now()
    made = {keys.mail_key(message.to, sent, board.chance.nonce()): message for message in messages}
    ops = [Insert(key, data_of(message)) for key, message in made.items()]
    partition, most = keys.mail_partition(board.name), board.table.max_rows
    for start in range(0, len(ops), most):
        with suppress(Unknown):
            await commit_again(board.table, partition, ops[start : start + most])
    return made


async def fetch(board: BoardTable, to: str) -> list[Message]:
    """Deletes and returns the messages to a candidate, the oldest first, as many as one batch
    deletes. Rows that cannot be read, or are of a newer version, are deleted unread.
    """
    first, last = keys.mail_range(to)
    partition = keys.mail_partition(board.name)
    rows = [row async for row in board.table.scan(partition, first, last, board.table.max_rows)]
    if rows:
        with suppress(Conflict, Unknown):  # a message that stays is fetched once more
            ops = [Delete(row.key, row.etag) for row in rows]
            await commit_again(board.table, partition, ops)
    return [message for row in rows if (message := readable(Message, row))]


async def take_back(board: BoardTable, key: str) -> bool:
    """Deletes a message that was not fetched. Returns whether it was still there; True also in
    doubt.
    """
    try:
        await commit_again(board.table, keys.mail_partition(board.name), [Delete(key, ANY)])
    except Conflict:
        return False
    except Unknown:
        return True
    return True


async def forget_old(board: BoardTable, *, pause: Pause | None = None) -> int:
    """Deletes the mail of candidates that have ended, and returns how many messages. Awaits `pause`
    at the start, between pages and before each batch.
    """
    if pause is not None:
        await pause()
    before = keys.moment_key(await board.table.now() - FORGOTTEN_AFTER)
    partition = keys.mail_partition(board.name)
    rows = paged(board.table.scan(partition, keys.MAIL, keys.end_of(keys.MAIL)), pause)
    old = [Delete(row.key, row.etag) async for row in rows if row.key.rsplit(":", 2)[1] < before]
    return await try_delete(board.table, partition, old, pause=pause)
