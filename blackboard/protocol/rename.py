"""Renames an item. The two ids may be in two partitions, so no batch can do it. It takes four
steps, each safe by itself; a rename that was interrupted is finished by running it again:

    1   pause the old item, with a mark that says why: no worker claims it from now on
    2   make the new one, paused, with all that the old one has but its history
    3   remove the old one, if it has not changed since; else copy it again over the new one
    4   resume the new one; or pause it as the old one was, where a person had paused that

Changes of the old item meanwhile are copied as well; changes of the copy are refused until the
rename is done. A person may undo it until step 3: by resuming the old item, and then removing the
copy, which is refused while the old one is not active. `rename_marks.py` has how the two are
recognised.

The tombstone of the old item has the name of the rename: of two renames at a time, the one whose
name is there has succeeded, and the copy of the other is removed. An old item that a person removes
while a rename is at work stays removed, and the copy goes; after a rename was interrupted the copy
is the item that is left, and the next call finishes it. The copy names the life of the
old id that it is of: an item that is added under the old id after step 3 is another one. The
history stays with the old id, as after a removal; the rows of notices move to the new id at the
end.
"""

from contextlib import suppress
from datetime import datetime
from typing import TypeGuard

import msgspec

from blackboard.errors import AlreadyThere, BadInput, BlackboardError, Missing
from blackboard.model import Acknowledgement, Item, Mark, State, replace
from blackboard.protocol import edits
from blackboard.protocol.batches import add_ops, change_ops, remove_ops
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.edits import Changed, Tries
from blackboard.protocol.groups import check_not_made
from blackboard.protocol.keys import notice_key, notices_partition, notices_range
from blackboard.protocol.planning import check_fences, planning_of, settings_of
from blackboard.protocol.rename_marks import (
    RENAMED_FROM,
    RENAMED_TO,
    RenameMark,
    as_copy,
    as_old,
    check_no_copy,
    copied_name,
    is_copied,
    is_copy_of,
    is_moved,
    moved_name,
)
from blackboard.protocol.rows import check_version, text_of
from blackboard.rules.applied import is_applied, requests_of
from blackboard.rules.transitions import copied, removed, resumed
from blackboard.spec import RunSettings
from blackboard.table import Conflict, Delete, Insert, Op, Replace, Row, TableError, Unknown


async def rename(board: BoardTable, item_id: str, new_id: str, mark: Mark) -> Changed:
    """Renames an item, or finishes a rename that was interrupted; one that was done before changes
    nothing. `mark` says who does it.

    Raises Missing, also where another rename was faster; AlreadyThere; BadInput for the same id or
    one whose fences are used up, on the board of a group or of elections, and when the schedule
    cannot be computed; BlackboardError when the item runs, keeps changing or has a damaged spec.
    """
    check_not_made(board.name)
    if new_id == item_id:
        raise BadInput("new_id", "it is the same", "give another one")
    renaming = _Renaming(board, item_id, new_id, mark, began=await board.table.now())
    while True:
        await renaming.tries.begin()
        done = await renaming.go_on()
        if done is not None:
            with suppress(TableError):  # it is renamed
                await _move_notices(board, item_id, done.item)
            return done


class _Renaming:
    """A rename under way."""

    def __init__(
        self, board: BoardTable, item_id: str, new_id: str, mark: Mark, *, began: datetime
    ) -> None:
        self.tries = Tries(board, item_id)
        self._board = board
        self._old_id, self._new_id = item_id, new_id
        self._mark, self._began = mark, began
        self._has_copied = self._was_there = False

    async def go_on(self) -> Changed | None:
        """Takes the next step, by the rows of both items. None: there are more steps."""
        old, new = await self._board.item(self._old_id), await self._board.item(self._new_id)
        for item in (old, new):
            if item is not None:
                check_version(item)
        is_done = not _is_there(old) and new is not None and is_copied(new, self._old_id)
        if _is_there(new) and not (is_done or self._is_unfinished(new)):
            raise AlreadyThere(self._new_id, "choose another name", field="new_id")
        if not _is_there(old):
            return await self._finish(old, new)
        self._was_there = True
        check_no_copy(old)
        if new is not None and not _is_there(new):
            check_fences(new)
        if _is_there(new) and not is_copy_of(new, old):
            return await self._end(new)
        settings = settings_of(self._board, old, old.spec)  # raises before anything is written
        renaming = as_old(old)
        if old.running:
            if renaming is not None and renaming.new_id == self._new_id:
                await edits.resume(self._board, old.id, self._marked(RENAMED_TO + self._new_id))
            raise BlackboardError(f"{old.id} runs: wait for its end, or `cancel` it")
        if old.state is State.ACTIVE:
            mark = self._marked(RENAMED_TO + self._new_id, to=self._new_id)
            await edits.pause(self._board, old.id, mark)
        else:
            await self._move(old, new, settings)
        return None

    async def _move(self, old: Item, new: Item | None, settings: RunSettings) -> None:
        """Makes the new one, over its tombstone or an earlier copy if there is one, unless it is
        there as it would be made; then removes the old one. Where one of them has changed, or there
        was no answer, the next call of `go_on` decides.
        """
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
        kept = replace(old, applied=requests_of(old))
        name, gone = copied_name(old.id, old.born), moved_name(self._new_id)
        copy = replace(
            copy,
            acknowledged=_acknowledged(old, copy.fence),
            applied=edits.remembered(self._board, kept, name, now=self._began),
        )
        names = edits.remembered(self._board, old, gone, now=self._began)
        tombstone = replace(removed(old, now=self._began), applied=names)
        self.tries.check()
        try:
            if new is None or replace(copy, etag=new.etag) != new:
                await self._board.commit(copy.id, add_ops(copy, over=new))
            self._has_copied = True
            await self._board.commit(old.id, remove_ops(old, tombstone))
        except Conflict:
            return
        except Unknown as unanswered:
            self.tries.lost(unanswered)

    async def _finish(self, old: Item | None, new: Item | None) -> Changed | None:
        """Ends the rename, where the old item exists no more; `old` is its tombstone."""
        if not _is_there(new):
            is_done = old is not None and is_applied(old, moved_name(self._new_id))
            why = f"it was renamed to {self._new_id!r}, which was removed" if is_done else ""
            raise Missing(self._old_id, why)
        if not self._is_unfinished(new):
            return Changed(item=new, changed=self._has_copied)
        if old is None or not self._is_left_over(new, old):
            return await self._end(new)
        tombstone = removed(new, now=await self._board.table.now())
        with suppress(Conflict, Unknown):  # another call does it, or is asked to
            await self._board.commit(new.id, remove_ops(new, tombstone))
        raise Missing(self._old_id)

    async def _end(self, copy: Item) -> Changed | None:
        """The last step: the copy becomes an item like any other. None: it has been removed."""
        by = text_of(self._marked(RENAMED_FROM + self._old_id))

        def build(item: Item, now: datetime) -> Item | None:
            renaming = as_copy(item)
            if renaming is None:  # another call has done it
                return None
            if renaming.mark.before:
                return replace(item, paused=renaming.mark.before)
            planning = planning_of(self._board, item)
            return resumed(item, by, settings=planning.settings if planning else None, now=now)

        try:
            done = await edits.change_item(
                self._board, copy.id, build, write=change_ops, also_copy=True
            )
        except Missing:
            return None
        return replace(done, changed=done.changed or self._has_copied)

    def _is_unfinished(self, new: Item) -> bool:
        """Whether the new one is a copy that this rename, or the one that it finishes, has made."""
        renaming = as_copy(new)
        return renaming is not None and renaming.old_id == self._old_id

    def _is_left_over(self, copy: Item, old: Item) -> bool:
        """Whether the item of a copy has another id, or was removed while this rename was at work;
        `old` is the tombstone.
        """
        is_over = self._was_there or is_moved(old)
        return is_over and is_copy_of(copy, old) and not is_applied(old, moved_name(copy.id))

    def _marked(self, reason: str, *, to: str = "", before: str = "") -> RenameMark:
        by, at = self._mark.by, self._mark.at
        return RenameMark(by=by, at=at, reason=reason, to=to, before=before)


async def _move_notices(board: BoardTable, old_id: str, item: Item) -> None:
    """Moves the notices of an item to its new id, and deletes those of an earlier item of that id.
    Where that fails, a notice that was sent may be sent once more. Raises TableError.
    """
    partition, between = notices_partition(board.name), notices_range(old_id)
    moved = [row async for row in board.table.scan(partition, *between)]
    rows = [row async for row in board.table.scan(partition, *notices_range(item.id))]
    left = {row.key: row.etag for row in rows if not _is_of(item, row)}
    its_own = {row.key for row in rows} - left.keys()
    ops: list[Op] = []
    for row in moved:
        key = notice_key(item.id, row.key.removeprefix(between[0]))
        data = {**row.data, "item": item.id, "fence": item.fence}
        ops.append(Delete(row.key, row.etag))
        if key in left:
            ops.append(Replace(key, data, left.pop(key)))
        elif key not in its_own:
            ops.append(Insert(key, data))
    ops += [Delete(key, etag) for key, etag in left.items()]
    if ops:
        await board.table.commit(partition, ops)


def _is_of(item: Item, notice: Row) -> bool:
    """Whether a notice was sent in this life of an item, or before it was renamed."""
    fence = notice.data.get("fence")
    return isinstance(fence, int) and fence >= item.born


def _acknowledged(item: Item, fence: int) -> str:
    """The acknowledgement of an item, for its copy: it names a fence, which is this one there."""
    if not item.is_acknowledged:
        return item.acknowledged
    mark = msgspec.json.decode(item.acknowledged, type=Acknowledgement)
    return text_of(replace(mark, fence=fence))


def _is_there(item: Item | None) -> TypeGuard[Item]:
    return item is not None and item.state is not State.REMOVED
