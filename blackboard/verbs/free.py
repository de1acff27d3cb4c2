"""Taking a lock from its holder by a person's word: unlock and cancel.

Both are about the lock that was shown, by its fence, and do nothing to another. The fence rises, so
the holder's result is known for late; it is told at its next renewal or walk.
"""

from datetime import datetime

from blackboard.board import Board
from blackboard.model import Item, Mark, Outcome
from blackboard.rows import text_of
from blackboard.rules.outcomes import Plan, after_run, again_of, slot_asked_for
from blackboard.table import ANY, Op
from blackboard.verbs.batches import free_ops, freed, held, run_of
from blackboard.verbs.change import Changed, change_item, settings_of


async def unlock(board: Board, item_id: str, mark: Mark, *, fence: int) -> Changed:
    """Take the lock with this fence from its holder: the item is due again at once, with the slot
    it had. Nothing happens when the lock is another one by now.
    """

    def build(item: Item) -> tuple[list[Op], Item] | None:
        if not item.running or item.fence != fence:
            return None
        plan = _plan_of(item, now)
        return _freed(item, plan, outcome=Outcome.ABANDONED, mark=mark, now=now)

    now = await board.table.now()
    return await change_item(board, item_id, build)


async def cancel(board: Board, item_id: str, mark: Mark, *, fence: int) -> Changed:
    """End the run with this fence: its holder is told at its next renewal or walk, and the item
    waits for its next slot.
    """

    def build(item: Item) -> tuple[list[Op], Item] | None:
        if not item.running or item.fence != fence:
            return None
        plan = after_run(
            held(item),
            Outcome.CANCELLED,
            settings=settings_of(board, item, item.spec),
            now=now,
            fraction=0.0,
        )
        return _freed(item, plan, outcome=Outcome.CANCELLED, mark=mark, now=now)

    now = await board.table.now()
    return await change_item(board, item_id, build)


def _plan_of(item: Item, now: datetime) -> Plan:
    """The same slot, due at once; or the run that was asked for meanwhile."""
    again = again_of(item)
    return Plan(
        state=item.state,
        slot=slot_asked_for(again.slot, beside=item.planned) if again else item.slot,
        ready=now,
        planned=item.planned,
        attempt=1 if again else item.attempt,
        failures=item.failures,
        once=again.once if again else item.once,
    )


def _freed(
    item: Item, plan: Plan, *, outcome: Outcome, mark: Mark, now: datetime
) -> tuple[list[Op], Item]:
    """The item without its lock, and what the history says of the run that had it."""
    verb = "unlocked" if outcome is Outcome.ABANDONED else "cancelled"
    error = f"{verb} by {mark.by}" + (f": {mark.reason}" if mark.reason else "")
    run = run_of(held(item), outcome, now=now, error=error, note=text_of(mark))
    after = freed(item, plan, run)
    return free_ops(item, ANY, after, run), after
