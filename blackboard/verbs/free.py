"""Taking a lock from its holder by a person's word: unlock and cancel.

Both are about the lock that was shown, by its fence, and do nothing to another. The fence rises, so
the holder's result is known for late; it is told at its next renewal or walk.
"""

from datetime import datetime

from blackboard.board import Board
from blackboard.model import Item, Mark, Outcome, Run
from blackboard.rows import text_of
from blackboard.rules.outcomes import after_run, unlocked_plan
from blackboard.table import ANY, Op
from blackboard.verbs.batches import free_ops, freed, held, run_of
from blackboard.verbs.change import settings_of
from blackboard.verbs.once import Changed, Write, change_item


async def unlock(board: Board, item_id: str, mark: Mark, *, fence: int) -> Changed:
    """Take the lock with this fence from its holder: the item is due again at once, with the slot
    it had. Nothing happens when the lock is another one by now.
    """

    def build(item: Item, now: datetime) -> Item | None:
        if not item.running or item.fence != fence:
            return None
        run = _ended(item, Outcome.ABANDONED, mark=mark, now=now)
        return freed(item, unlocked_plan(item, now=now), run)

    return await change_item(board, item_id, build, write=_write(Outcome.ABANDONED, mark))


async def cancel(board: Board, item_id: str, mark: Mark, *, fence: int) -> Changed:
    """End the run with this fence: its holder is told at its next renewal or walk, and the item
    waits for its next slot.
    """

    def build(item: Item, now: datetime) -> Item | None:
        if not item.running or item.fence != fence:
            return None
        plan = after_run(
            held(item),
            Outcome.CANCELLED,
            settings=settings_of(board, item, item.spec),
            now=now,
            fraction=0.0,
        )
        return freed(item, plan, _ended(item, Outcome.CANCELLED, mark=mark, now=now))

    return await change_item(board, item_id, build, write=_write(Outcome.CANCELLED, mark))


def _ended(item: Item, outcome: Outcome, *, mark: Mark, now: datetime) -> Run:
    """What the history says of the run whose lock was taken."""
    verb = "unlocked" if outcome is Outcome.ABANDONED else "cancelled"
    error = f"{verb} by {mark.by}" + (f": {mark.reason}" if mark.reason else "")
    return run_of(held(item), outcome, now=now, error=error, note=text_of(mark))


def _write(outcome: Outcome, mark: Mark) -> Write:
    """The batch that takes the lock, and tells the history."""

    def write(item: Item, after: Item) -> list[Op]:
        assert after.stop is not None
        run = _ended(item, outcome, mark=mark, now=after.stop)
        return free_ops(item, ANY, after, run)

    return write
