"""Renames an item. The two ids may be in two partitions, so no batch can do it. Four steps do, each
safe by itself; a rename that was interrupted is finished by asking for it again:

    1   pause the old one, with a mark that says why: no worker claims it from now on
    2   make the new one, paused, with all that the old one has but its history
    3   remove the old one, if it is as it was copied; else copy it again over the new one
    4   resume the new one; or pause it as the old one was, where a person had paused that

What is done to the old one meanwhile is copied as well; what would be done to the copy is refused
until the rename is done. `rename_marks.py` has how the two are told.

The tombstone of the old one has the name of the rename: of two at a time, the one whose name is
there has renamed it, and the copy of the other goes. The copy has the life that it is of: an item
that is added under the old id after step 3 is another one. The history stays with the old id, as
that of a removed item does; what is known of the notices sent for it goes along at the end.
"""

from contextlib import suppress
from datetime import datetime
from typing import TypeGuard

import msgspec

from blackboard.errors import AlreadyThere, BadInput, BlackboardError, Missing
from blackboard.model import Acknowledgement, Applied, Item, Mark, State, replace
from blackboard.protocol import edits
from blackboard.protocol.batches import add_ops, change_ops, remove_ops
from blackboard.protocol.edits import TRIES, Changed, uncertain
from blackboard.protocol.keys import notice_key, notices_partition, notices_range
from blackboard.protocol.planning import planning_of, settings_of
from blackboard.protocol.reading import BoardTable
from blackboard.protocol.rename_marks import (
    RENAMED_FROM,
    RENAMED_TO,
    RenameMark,
    as_copy,
    as_old,
    check_no_copy,
    copied_name,
    is_copied,
    moved_name,
)
from blackboard.protocol.rows import check_version, text_of
from blackboard.rules.applied import is_applied
from blackboard.rules.transitions import copied, removed, resumed
from blackboard.spec import RunSettings
from blackboard.table import Conflict, Delete, Insert, Op, TableError, Unknown


async def rename(board: BoardTable, item_id: str, new_id: str, mark: Mark) -> Changed:
    """Rename an item, or finish a rename that was interrupted; one that was done before changes
    nothing. `mark` says who does it.

    Raises Missing, also where another rename was faster, AlreadyThere, BadInput for the same id and
    when the schedule cannot be computed, BlackboardError when the item runs, keeps changing or has
    a damaged spec.
    """
    if new_id == item_id:
        raise BadInput("id", "it is the same", "give another one")
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
        self._mark = mark
        self._has_copied = False

    async def go_on(self) -> Changed | None:
        """Take the next step by what is there; None: there are more."""
        old, new = await self._board.item(self._old_id), await self._board.item(self._new_id)
        for one in (old, new):
            if one is not None:
                check_version(one)
        is_done = not _is_there(old) and new is not None and is_copied(new, self._old_id)
        if _is_there(new) and not (is_done or self._is_unfinished(new)):
            raise AlreadyThere(self._new_id, "choose another name")
        if not _is_there(old):
            return await self._finish(old, new)
        check_no_copy(old)
        if _is_there(new) and not _is_copy_of(new, old):
            return await self._end(new)
        settings = settings_of(self._board, old, old.spec)  # raises before anything is written
        renaming = as_old(old)
        if old.running:
            if renaming is not None and renaming.new_id == self._new_id:
                await edits.resume(self._board, old.id, self._marked(RENAMED_TO + self._new_id))
            raise BlackboardError(f"{old.id} runs: wait for its end, or `blackboard cancel` it")
        if old.state is State.ACTIVE:
            mark = self._marked(RENAMED_TO + self._new_id, to=self._new_id)
            await edits.pause(self._board, old.id, mark)
        else:
            await self._move(old, new, settings)
        return None

    async def _move(self, old: Item, new: Item | None, settings: RunSettings) -> None:
        """Make the new one, over its tombstone or an earlier copy if there is one, and remove the
        old one. Where one of them has changed, or there was no answer, the next look decides.
        """
        now = await self._board.table.now()
        is_paused = old.is_paused and as_old(old) is None
        mark = self._marked(RENAMED_FROM + old.id, before=old.paused if is_paused else "")
        copy = copied(
            old,
            self._new_id,
            before=new,
            floor=0 if new else await self._board.floor(),
            mark=text_of(mark),
            settings=settings,
        )
        copy = replace(
            copy,
            acknowledged=_acknowledged(old, copy.fence),
            applied=(Applied(name=copied_name(old.id, old.born), at=now),),
        )
        name = moved_name(self._new_id)
        names = edits.remembered(self._board, old.id, old.applied, name, now=now)
        tombstone = replace(removed(old, now=now), applied=names)
        try:
            await self._board.commit(copy.id, add_ops(copy, over=new))
            self._has_copied = True
            await self._board.commit(old.id, remove_ops(old, tombstone))
        except Conflict:
            return
        except Unknown as unanswered:
            self.unanswered = unanswered

    async def _finish(self, old: Item | None, new: Item | None) -> Changed:
        """End the rename, where the old one is there no more; `old` is its tombstone."""
        if not _is_there(new):
            raise Missing(self._old_id)
        if not self._is_unfinished(new):
            return Changed(item=new, changed=self._has_copied)
        if old is None or is_applied(old, moved_name(new.id)) or not _is_copy_of(new, old):
            return await self._end(new)
        tombstone = removed(new, now=await self._board.table.now())
        with suppress(Conflict, Unknown):  # another call does it, or is asked to
            await self._board.commit(new.id, remove_ops(new, tombstone))
        raise Missing(self._old_id)

    async def _end(self, copy: Item) -> Changed:
        """The last step: the copy is an item like any other."""
        by = text_of(self._marked(RENAMED_FROM + self._old_id))

        def build(item: Item, now: datetime) -> Item | None:
            renaming = as_copy(item)
            if renaming is None:  # another call has done it
                return None
            if renaming.mark.before:
                return replace(item, paused=renaming.mark.before)
            planning = planning_of(self._board, item)
            return resumed(item, by, settings=planning.settings if planning else None, now=now)

        done = await edits.change_item(
            self._board, copy.id, build, write=change_ops, by_rename=True
        )
        return replace(done, changed=done.changed or self._has_copied)

    def _is_unfinished(self, new: Item) -> bool:
        """Whether the new one is a copy that this rename, or the one that it finishes, has made."""
        renaming = as_copy(new)
        return renaming is not None and renaming.old_id == self._old_id

    def _marked(self, reason: str, *, to: str = "", before: str = "") -> RenameMark:
        by, at = self._mark.by, self._mark.at
        return RenameMark(by=by, at=at, reason=reason, to=to, before=before)


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


def _acknowledged(item: Item, fence: int) -> str:
    """What the copy of an item, which has this fence, says of an acknowledgement: it is for one."""
    if not item.is_acknowledged:
        return item.acknowledged
    seen = msgspec.json.decode(item.acknowledged, type=Acknowledgement)
    return text_of(replace(seen, fence=fence))


def _is_copy_of(copy: Item, old: Item) -> bool:
    """Whether it is of this life of the old one, or of the one that left this tombstone."""
    return is_applied(copy, copied_name(old.id, old.born))


def _is_there(item: Item | None) -> TypeGuard[Item]:
    return item is not None and item.state is not State.REMOVED
