"""What the row of an item says of a rename under way; `rename.py` has the steps. Pure.

Until a rename is done there are two items, both paused. The old one may be changed like any other:
it is removed only if it has not changed since it was copied. The copy is changed by the rename
alone, since it may be made anew; it may be removed while the old one is active, and is thus not the
only one. It is recognised by the newest name in `applied`, which is the rename's: the last step, as
every change, puts another name before it.
"""

import hashlib
from datetime import datetime, timedelta
from typing import NamedTuple

from blackboard.errors import BeingRenamed
from blackboard.model import Item, Mark, decoded_as
from blackboard.phrases import command
from blackboard.rules.applied import COPIED, MOVED, is_applied

RENAMED_TO, RENAMED_FROM = "renamed to ", "renamed from "
"""The reasons why the two items of a rename are paused; the other id follows."""
INTERRUPTED_AFTER = timedelta(minutes=1)
"""The age at which a rename counts as interrupted: it takes far less."""


class RenameMark(Mark, frozen=True, kw_only=True):
    """Why an item is paused until its rename is done. A person's mark may give the same reason."""

    to: str = ""
    """In the old item: the new id."""
    before: str = ""
    """In the copy: JSON of the `Mark` with which a person had paused the item before the rename; it
    is paused by that again afterwards."""


class Renaming(NamedTuple):
    """A rename that is not done."""

    old_id: str
    new_id: str
    mark: RenameMark
    """Who asked for it, and when."""

    @property
    def remedy(self) -> str:
        """In either item. Neither way loses the item, whatever was done since."""
        undo = f"{command('resume', self.old_id)} and then {command('rm', self.new_id)} undo it"
        finish = f"{command('rename', self.old_id, self.new_id)} finishes it"
        return f"{finish}; while {self.old_id} is there, {undo}"

    @property
    def words(self) -> str:
        """What messages say of either item."""
        return f"is being renamed: {self.remedy}"

    def is_interrupted(self, *, now: datetime) -> bool:
        """Whether the process that began it has probably died, also if its clock was ahead."""
        return abs(now - self.mark.at) > INTERRUPTED_AFTER


def moved_name(new_id: str) -> str:
    """The name of a rename, in the tombstone that it leaves of the old one."""
    return f"{MOVED}{_digest(new_id)}"


def is_moved(tombstone: Item) -> bool:
    """Whether an item was removed by a rename."""
    return any(applied.name.startswith(MOVED) for applied in tombstone.applied)


def copied_name(old_id: str, born: int) -> str:
    """The name of a rename, in the copy that it makes of this life of an id."""
    return f"{_copies(old_id)}{born}"


def is_copy_of(copy: Item, old: Item) -> bool:
    """Whether a copy is of this life of the old item; `old` may be the tombstone that it left."""
    return is_applied(copy, copied_name(old.id, old.born))


def is_copied(item: Item, old_id: str) -> bool:
    """Whether an item is the copy of a life of another id, finished or not."""
    return any(applied.name.startswith(_copies(old_id)) for applied in item.applied)


def as_old(item: Item) -> Renaming | None:
    """The rename that has paused an item as the old one; None: there is none."""
    mark = _mark_of(item)
    return Renaming(item.id, mark.to, mark) if mark is not None and mark.to else None


def as_copy(item: Item) -> Renaming | None:
    """The rename of which an item is the unfinished copy; None: there is none."""
    mark = _mark_of(item)
    if mark is None or not mark.reason.startswith(RENAMED_FROM):
        return None
    old_id = mark.reason.removeprefix(RENAMED_FROM)
    if not item.applied or not item.applied[0].name.startswith(_copies(old_id)):
        return None
    return Renaming(old_id, item.id, mark)


def renaming_of(item: Item) -> Renaming | None:
    """The rename of which an item is the old one or the copy; None: there is none, or it has not
    written the item yet.
    """
    return as_old(item) or as_copy(item)


def check_no_copy(item: Item) -> None:
    """Raises BeingRenamed for the copy of a rename that is not done."""
    if (renaming := as_copy(item)) is not None:
        raise BeingRenamed(item.id, renaming.words)


def _mark_of(item: Item) -> RenameMark | None:
    """Why an item is paused; None: it is not, or that cannot be read."""
    return decoded_as(RenameMark, item.paused) if item.is_paused else None


def _copies(old_id: str) -> str:
    """The beginning of the names that renames of an id put into its copies."""
    return f"{COPIED}{_digest(old_id)}:"


def _digest(item_id: str) -> str:
    return hashlib.sha256(item_id.encode()).hexdigest()[:32]
