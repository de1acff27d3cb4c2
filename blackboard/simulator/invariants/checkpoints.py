"""Invariants of checkpoints: CHECKPOINT, START.

CHECKPOINT: a run saves under its own lock, and no lower number than what is saved. A good run,
other params, an edit and a removal empty the checkpoint, and nothing else changes it.

START: a run starts from no lower number than any save that was acknowledged to a run before it,
unless the checkpoint was emptied after that save was written. The acknowledgement may arrive later
than both.
"""

from collections import Counter, defaultdict

from blackboard.model import Item, Lock, Outcome, Run
from blackboard.simulator.changes import AppliedChange, Saved, saved_of
from blackboard.simulator.invariants import Violation
from blackboard.table import Delete

EMPTYING = {"edit", "remove"}
"""Requests that may empty a checkpoint, whatever else they change."""


class Checkpoints:
    """Checks every change of an item, and the start of every handler."""

    def __init__(self) -> None:
        self._emptied: Counter[str] = Counter()
        """How often the checkpoint of an item was emptied."""
        self._written: dict[tuple[str, Saved], int] = {}
        """By save that is not acknowledged: how often the checkpoint was emptied before it."""
        self._acknowledged: defaultdict[str, dict[int, int]] = defaultdict(dict)
        """By item: the last acknowledged number of each fence since the checkpoint was emptied."""

    def __call__(self, change: AppliedChange) -> None:
        before, after = change.before, change.shadow.item
        if before is None or after is None:
            return
        if change.is_save:
            self._saved(change, before, after)
        elif change.of(Item):
            self._kept_or_emptied(change, before, after)

    def _saved(self, change: AppliedChange, before: Item, after: Item) -> None:
        saved, lock = saved_of(after), change.shadow.lock
        who = f"fence {saved.fence} of {change.sender.name}"
        if lock is None or not after.running:
            raise Violation("CHECKPOINT", f"{who} saves, and nothing runs", item=change.id)
        if (lock.owner, lock.fence) != (change.sender.name, saved.fence):
            what = f"{who} saves under fence {lock.fence} of {lock.owner}"
            raise Violation("CHECKPOINT", what, item=change.id)
        if saved.number < saved_of(before).number:
            what = f"{who} saves {saved.number}, which was {saved_of(before).number}"
            raise Violation("CHECKPOINT", what, item=change.id)
        self._written[change.id, saved] = self._emptied[change.id]

    def _kept_or_emptied(self, change: AppliedChange, before: Item, after: Item) -> None:
        must = _ends_well(change) or before.once != after.once
        if must and after.checkpoint:
            what = f"{after.checkpoint} stays after a good run, or for other params"
            raise Violation("CHECKPOINT", what, item=change.id)
        if after.checkpoint == before.checkpoint:
            return
        if after.checkpoint or not (must or change.sender.verb in EMPTYING):
            what = f"from {before.checkpoint} to {after.checkpoint or 'nothing'}, not by a save"
            raise Violation("CHECKPOINT", what, item=change.id)
        self._emptied[change.id] += 1
        self._acknowledged.pop(change.id, None)

    # ---- handlers

    def acknowledged(self, item_id: str, saved: Saved) -> None:
        """Called when a save was acknowledged to its run."""
        times = self._emptied[item_id]
        if self._written.pop((item_id, saved), times) == times:
            self._acknowledged[item_id][saved.fence] = saved.number

    def begins(self, item_id: str, fence: int, last: Saved) -> None:
        """Checks that a handler which starts from the save `last` starts late enough."""
        acknowledged = self._acknowledged.get(item_id, {})
        least = max((acknowledged[one] for one in acknowledged if one < fence), default=0)
        if last.number < least:
            what = f"fence {fence} goes on at {last.number}, and {least} was acknowledged"
            raise Violation("START", what, item=item_id)


def _ends_well(change: AppliedChange) -> bool:
    """Whether the change releases a run that ended `ok`."""
    released = any(isinstance(one.op, Delete) for one in change.of(Lock))
    ended = (one.new for one in change.of(Run))
    return released and any(isinstance(one, Run) and one.outcome is Outcome.OK for one in ended)
