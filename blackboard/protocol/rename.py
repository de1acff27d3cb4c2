"""Renames an item. The two ids may be in two partitions, so no batch can do it. Four steps do, each
safe by itself; a rename that was interrupted is finished by asking for it again:

    1   pause the old one, with a mark that says why: no worker claims it from now on
    2   make the new one, paused, with all that the old one has but its history
    3   remove the old one, if it is as it was copied; else make the new one again
    4   resume the new one, unless a person had paused the old one

The history stays with the old id, as that of a removed item does.
"""

import hashlib
from typing import TypeGuard

import msgspec

from blackboard.errors import AlreadyThere, BlackboardError, Missing
from blackboard.model import Applied, Item, Mark, State, replace
from blackboard.protocol import edits
from blackboard.protocol.batches import add_ops, remove_ops
from blackboard.protocol.edits import TRIES, Changed, uncertain
from blackboard.protocol.planning import settings_of
from blackboard.protocol.reading import BoardTable
from blackboard.protocol.rows import check_version, text_of
from blackboard.rules.applied import is_applied
from blackboard.rules.transitions import RENAMED_FROM, RENAMED_TO, copied, removed
from blackboard.spec import RunSettings
from blackboard.table import Conflict, Unknown


async def rename(board: BoardTable, item_id: str, new_id: str, mark: Mark) -> Changed:
    """Rename an item, or finish a rename that was interrupted. `mark` says who does it.

    Raises Missing, AlreadyThere, BadInput when the schedule cannot be computed,
    BlackboardError when the item runs, keeps changing or has a damaged spec.
    """
    to, of = RENAMED_TO + new_id, RENAMED_FROM + item_id
    name = "rename:" + hashlib.sha256(item_id.encode()).hexdigest()[:32]
    unanswered: Unknown | None = None
    for _ in range(TRIES):
        old, new = await board.item(item_id), await board.item(new_id)
        is_made = _is_there(new) and is_applied(new, name)
        if _is_there(new) and not is_made:
            raise AlreadyThere(new_id, "choose another name")
        if not _is_there(old):
            if is_made:
                return await _resumed(board, new_id, replace(mark, reason=of))
            raise Missing(item_id)
        check_version(old)
        settings = settings_of(board, old, old.spec)  # raises before anything is written
        if old.running:
            if _reason(old) == to:
                await edits.resume(board, item_id, mark)
            raise BlackboardError(f"{item_id} runs: wait for its end, or `blackboard cancel` it")
        if old.state is State.ACTIVE:
            await edits.pause(board, item_id, replace(mark, reason=to))
            continue
        if is_made:
            new = (await edits.remove(board, new_id)).item
        mark_of_new = replace(mark, reason=of)
        unanswered = await _move(
            board, old, new, new_id, name=name, mark=mark_of_new, settings=settings
        )
    raise uncertain(item_id, unanswered)


async def _move(
    board: BoardTable,
    old: Item,
    new: Item | None,
    new_id: str,
    *,
    name: str,
    mark: Mark,
    settings: RunSettings,
) -> Unknown | None:
    """Make the new one, over its tombstone if there is one, and remove the old one. Where one of
    them has changed, or there was no answer, which is returned, the next look decides.
    """
    by_us = _reason(old) == RENAMED_TO + new_id or not old.is_paused
    now = await board.table.now()
    copy = copied(
        old,
        new_id,
        before=new,
        floor=0 if new else await board.floor(),
        mark=text_of(mark) if by_us else old.paused,
        settings=settings,
    )
    copy = replace(copy, applied=(Applied(name=name, at=now),))
    try:
        await board.commit(new_id, add_ops(copy, over=new))
        await board.commit(old.id, remove_ops(old, removed(old, now=now)))
    except Conflict:
        return None
    except Unknown as unanswered:
        return unanswered
    return None


async def _resumed(board: BoardTable, new_id: str, mark: Mark) -> Changed:
    item = await board.item(new_id)
    if item is not None and _reason(item) == mark.reason:
        return await edits.resume(board, new_id, mark)
    if item is None:
        raise Missing(new_id)
    return Changed(item=item)


def _is_there(item: Item | None) -> TypeGuard[Item]:
    return item is not None and item.state is not State.REMOVED


def _reason(item: Item) -> str:
    """Why it is paused."""
    try:
        return msgspec.json.decode(item.paused, type=Mark).reason if item.paused else ""
    except ValueError:
        return ""
