"""Applies a verb of an operator to an item: read, build, commit; once, whatever gets lost.

What is tried again after a lost race or a lost reply stays bound to what was first read: an item
removed and made anew meanwhile is another one, and a lock claimed meanwhile another lock. And it
carries a name, which the item remembers: a pause that was applied is not applied again over a
resume that came after it. `rules/applied.py` has how long a name is remembered, and why that is
long enough.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from blackboard.board import Board
from blackboard.errors import BadInput, BlackboardError
from blackboard.keys import item_key
from blackboard.model import VERSION, Applied, Item, State
from blackboard.rules.applied import (
    MOST,
    REMEMBERED,
    RETRIED_FOR,
    applied_to,
    is_applied,
    may_retry,
    remembering,
)
from blackboard.table import Conflict, Op, Unknown
from blackboard.times.durations import format_duration

TRIES = 20
"""Readings of an item that keeps changing under one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """The item as it is now, and whether this request made it so."""

    item: Item
    changed: bool = True


class Missing(BadInput):
    """There is no such item."""

    def __init__(self, item_id: str) -> None:
        super().__init__("id", f"no item {item_id!r} on this board", "`blackboard show` lists them")


Build = Callable[[Item, datetime], Item | None]
"""From an item as read, and the store's time: the item it becomes; None: there is nothing to do."""
Write = Callable[[Item, Item], list[Op]]
"""From an item before and after: the batch."""


async def change_item(
    board: Board,
    item_id: str,
    build: Build,
    *,
    write: Write,
    name: str = "",
    gone_is_done: bool = False,
) -> Changed:
    """Apply one verb. `name` is drawn where none is given. An item that a newer version wrote is
    left alone. Raises Missing, and BlackboardError when it is not known whether it was applied.
    """
    name = name or board.chance.nonce()
    began = await board.table.now()
    first: Item | None = None
    doubtful = False
    for _ in range(TRIES):
        item = await board.item(item_id)
        if item is None or item.state is State.REMOVED or (first and item.born != first.born):
            if first is not None and gone_is_done:
                return Changed(item=first)
            raise Missing(item_id)
        if item.version > VERSION:
            raise BadInput(
                "id", f"{item_id!r} was written by a newer version", "upgrade blackboard"
            )
        first = first or item
        if is_applied(item, name):
            return Changed(item=item, changed=doubtful)
        if doubtful:
            check_in_time(item_id, first=began, now=await board.table.now())
        after = build(item, began)
        if after is None:
            return Changed(item=item, changed=False)
        after = replace(after, applied=remembered(item_id, applied_to(item), name, now=began))
        ops = write(item, after)
        try:
            etags = await board.table.commit(board.partition(item_id), ops)
        except Conflict:
            continue
        except Unknown:
            doubtful = True
            continue
        written = [op.key for op in ops].index(item_key(item_id))
        return Changed(item=replace(after, etag=etags[written]))
    raise restless(item_id)


def remembered(item_id: str, before: Sequence[Applied], name: str, *, now: datetime) -> str:
    """The names of an item and one more, as they stand in its column. Raises BlackboardError when
    there is no room for it.
    """
    names = remembering(before, name, now=now)
    if names is None:
        raise BlackboardError(
            f"{item_id} was changed {MOST} times within {format_duration(REMEMBERED)}: "
            "try again in some minutes"
        )
    return names


def check_in_time(item_id: str, *, first: datetime, now: datetime) -> None:
    """Refuse to try again what may have been applied and forgotten."""
    if not may_retry(first=first, now=now):
        raise BlackboardError(
            f"the store did not say within {format_duration(RETRIED_FOR)} whether {item_id} was "
            "changed: look at it (`blackboard show`), and ask again if it was not"
        )


def restless(item_id: str) -> BlackboardError:
    return BlackboardError(f"{item_id} changed {TRIES} times under this request: try again")
