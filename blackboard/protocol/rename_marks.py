"""What the row of an item says of a rename; `rename.py` has its steps. Pure.

Until a rename is done there are two items, both paused. The old one is an item like any other: the
rename writes nothing unless it is as it was copied. The copy is changed by the rename alone, since
it may be made anew. It is told by its latest name, that of the rename: the last step, as every
change, puts another name before it.
"""

import hashlib
import shlex
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from blackboard.errors import BeingRenamed
from blackboard.model import Item, Mark

RENAMED_TO, RENAMED_FROM = "renamed to ", "renamed from "
"""Before the other id, why the two items of a rename are paused meanwhile."""
INTERRUPTED_AFTER = timedelta(minutes=1)
"""A rename takes far less."""


class RenameMark(Mark, frozen=True, kw_only=True):
    """Why an item is paused until its rename is done. A person's mark may give the same reason."""

    to: str = ""
    """Of the old one: the new id."""
    before: str = ""
    """Of the copy: JSON of `Mark`, who had paused the item before the rename, and pauses it after
    that.
    """


class Renaming(NamedTuple):
    """A rename that is not done."""

    old_id: str
    new_id: str
    mark: RenameMark
    """Who asked for it, and when."""

    @property
    def remedy(self) -> str:
        ids = " ".join(map(shlex.quote, (self.old_id, self.new_id)))
        return f"`blackboard rename {ids}` finishes it"

    @property
    def words(self) -> str:
        """What is so of either item."""
        return f"is being renamed: {self.remedy}"

    def is_interrupted(self, *, now: datetime) -> bool:
        """Whether the process that began it has probably died."""
        return now - self.mark.at > INTERRUPTED_AFTER


def moved_name(new_id: str) -> str:
    """The name of a rename, in the tombstone that it leaves of the old one."""
    return f"renamed:{_digest(new_id)}"


def copied_name(old_id: str, born: int) -> str:
    """The name of a rename, in the copy that it makes of this life of an id."""
    return f"{_copies(old_id)}{born}"


def is_copied(item: Item, old_id: str) -> bool:
    """Whether an item is the copy of a life of another id, finished or not."""
    return any(one.name.startswith(_copies(old_id)) for one in item.applied)


def as_old(item: Item) -> Renaming | None:
    """The rename that has paused an item, which is the old one of it."""
    mark = _mark_of(item)
    return Renaming(item.id, mark.to, mark) if mark is not None and mark.to else None


def as_copy(item: Item) -> Renaming | None:
    """The rename that an item is the unfinished copy of."""
    mark = _mark_of(item)
    if mark is None or not mark.reason.startswith(RENAMED_FROM):
        return None
    old_id = mark.reason.removeprefix(RENAMED_FROM)
    if not item.applied or not item.applied[0].name.startswith(_copies(old_id)):
        return None
    return Renaming(old_id, item.id, mark)


def renaming_of(item: Item) -> Renaming | None:
    """The rename that an item is in; None: it is in none, or was not reached by it yet."""
    return as_old(item) or as_copy(item)


def check_no_copy(item: Item) -> None:
    """Raises BeingRenamed for the copy of a rename that is not done."""
    if (renaming := as_copy(item)) is not None:
        raise BeingRenamed(item.id, renaming.words)


def _mark_of(item: Item) -> RenameMark | None:
    """Why an item is paused; None: it is not, or that cannot be read."""
    try:
        return msgspec.json.decode(item.paused, type=RenameMark) if item.is_paused else None
    except (ValueError, RecursionError):
        return None


def _copies(old_id: str) -> str:
    """How the names of renames of an id begin, in their copies."""
    return f"rename:{_digest(old_id)}:"


def _digest(item_id: str) -> str:
    return hashlib.sha256(item_id.encode()).hexdigest()[:32]
