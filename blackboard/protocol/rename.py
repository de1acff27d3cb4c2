"""Renames an item. The two ids may be in two partitions, so no batch can do it. Four steps do, each
safe by itself; a rename that was interrupted is finished by asking for it again:

    1   pause the old one, with a mark that says why: no worker claims it from now on
    2   make the new one, paused, with all that the old one has but its history
    3   remove the old one, if it is as it was copied; else copy it again over the new one
    4   resume the new one, unless a person had paused the old one

The tombstone of the old one has the name of the rename: of two at a time, the one whose name is
there has renamed it, and the other takes its copy back. The history stays with the old id, as that
of a removed item does; what is known of the notices sent for it goes along at the end.
"""

import hashlib
import shlex
from contextlib import suppress
from typing import TypeGuard

import msgspec

from blackboard.errors import AlreadyThere, BlackboardError, Missing
from blackboard.model import Applied, Item, Mark, State, replace
from blackboard.protocol import edits
from blackboard.protocol.batches import add_ops, remove_ops
from blackboard.protocol.edits import TRIES, Changed, uncertain
from blackboard.protocol.keys import item_key, notice_key, notices_partition, notices_range
from blackboard.protocol.planning import settings_of
from blackboard.protocol.reading import BoardTable
from blackboard.protocol.rows import check_version, text_of
from blackboard.rules.applied import is_applied
from blackboard.rules.transitions import (
    RENAMED_FROM,
    RENAMED_TO,
    ItemEvent,
    applies,
    copied,
    removed,
)
from blackboard.spec import RunSettings
from blackboard.table import Conflict, Delete, Insert, Op, TableError, Unknown

MOVED = "renamed:"
"""How the name begins that the tombstone of an old one has."""


async def rename(board: BoardTable, item_id: str, new_id: str, mark: Mark) -> Changed:
    """Rename an item, or finish a rename that was interrupted. `mark` says who does it.

    Raises Missing, also where another rename was faster, AlreadyThere, BadInput when the schedule
    cannot be computed, BlackboardError when the item runs, keeps changing or has a damaged spec.
    """
    renaming = _Renaming(board, item_id, new_id, mark)
    for _ in range(TRIES):
        done = await renaming.go_on()
        if done is not None:
            with suppress(TableError):  # it is renamed
                await _move_notices(board, item_id, done.item)
            return done
    raise uncertain(item_id, renaming.unanswered)


class _Renaming:
    """A rename under way."""

    def __init__(self, board: BoardTable, item_id: str, new_id: str, mark: Mark) -> None:
        self.unanswered: Unknown | None = None
        """A request whose outcome is not known."""
        self._board = board
        self._old_id, self._new_id = item_id, new_id
        self._to = replace(mark, reason=RENAMED_TO + new_id)
        self._of = replace(mark, reason=RENAMED_FROM + item_id)
        self._copied = f"rename:{_digest(item_id)}"
        self._moved = MOVED + _digest(new_id)
        self._copy: Item | None = None
        """What this call has made."""

    async def go_on(self) -> Changed | None:
        """Take the next step by what is there; None: there are more."""
        old, new = await self._board.item(self._old_id), await self._board.item(self._new_id)
        if _is_there(new) and not is_applied(new, self._copied):
            raise AlreadyThere(self._new_id, "choose another name")
        if not _is_there(old):
            return await self._finish(old, new)
        check_version(old)
        settings = settings_of(self._board, old, old.spec)  # raises before anything is written
        if old.running:
            if _reason(old) == self._to.reason:
                await edits.resume(self._board, old.id, self._to)
            raise BlackboardError(f"{old.id} runs: wait for its end, or `blackboard cancel` it")
        if old.state is State.ACTIVE:
            await edits.pause(self._board, old.id, self._to)
        else:
            await self._move(old, new, settings)
        return None

    async def _move(self, old: Item, new: Item | None, settings: RunSettings) -> None:
        """Make the new one, over its tombstone or an earlier copy if there is one, and remove the
        old one. Where one of them has changed, or there was no answer, the next look decides.
        """
        if new is not None and not applies(ItemEvent.COPY, new):
            problem = f"{new.id}, the copy of {old.id}, was resumed already"
            raise BlackboardError(f"{problem}: remove one of them")
        now = await self._board.table.now()
        is_by_person = old.is_paused and not _reason(old).startswith(RENAMED_TO)
        copy = copied(
            old,
            self._new_id,
            before=new,
            floor=0 if new else await self._board.floor(),
            mark=old.paused if is_by_person else text_of(self._of),
            settings=settings,
        )
        copy = replace(copy, applied=(Applied(name=self._copied, at=now),))
        names = edits.remembered(old.id, old.applied, self._moved, now=now)
        tombstone = replace(removed(old, now=now), applied=names)
        try:
            etags = await self._board.commit(copy.id, add_ops(copy, over=new))
            self._copy = replace(copy, etag=etags[item_key(copy.id)])
            await self._board.commit(old.id, remove_ops(old, tombstone))
        except Conflict:
            return
        except Unknown as unanswered:
            self.unanswered = unanswered

    async def _finish(self, old: Item | None, new: Item | None) -> Changed:
        """Resume the new one where this rename, or the call that it finishes, removed the old one.
        `old` is its tombstone.
        """
        if not _is_there(new):
            raise Missing(self._old_id)
        if old is not None and not is_applied(old, self._moved):
            await self._check_whose(old, new)
        if _reason(new) == self._of.reason:
            return await edits.resume(self._board, new.id, self._of)
        return Changed(item=new)

    async def _check_whose(self, old: Item, new: Item) -> None:
        """The old one was removed, and not by this rename. Takes back the copy of this call, and
        raises Missing. Raises BlackboardError where the new one is the copy of a call that did not
        end, and the old one got another id meanwhile.
        """
        if self._copy is not None and new.etag == self._copy.etag:
            tombstone = removed(new, now=await self._board.table.now())
            with suppress(Conflict, Unknown):  # it was changed, or is left as a paused copy
                await self._board.commit(new.id, remove_ops(new, tombstone))
            raise Missing(old.id)
        if any(one.name.startswith(MOVED) for one in old.applied):
            remedy = f"`blackboard rm {shlex.quote(new.id)}` removes the copy"
            problem = f"{new.id} is a copy of {old.id}, which got another id meanwhile"
            raise BlackboardError(f"{problem}: {remedy}")


async def _move_notices(board: BoardTable, old_id: str, item: Item) -> None:
    """What was sent of the item counts under its new id. Where that fails, its next failure is
    sent once more. Raises TableError.
    """
    partition, (first, last) = notices_partition(board.name), notices_range(old_id)
    ops: list[Op] = []
    async for row in board.table.scan(partition, first, last):
        data = {**row.data, "item": item.id, "fence": item.fence}
        ops += [
            Insert(notice_key(item.id, row.key.removeprefix(first)), data),
            Delete(row.key, row.etag),
        ]
    if ops:
        await board.table.commit(partition, ops)


def _digest(item_id: str) -> str:
    return hashlib.sha256(item_id.encode()).hexdigest()[:32]


def _is_there(item: Item | None) -> TypeGuard[Item]:
    return item is not None and item.state is not State.REMOVED


def _reason(item: Item) -> str:
    """Why it is paused."""
    try:
        return msgspec.json.decode(item.paused, type=Mark).reason if item.paused else ""
    except (ValueError, RecursionError):
        return ""
