"""What the history may say: one row a fence, one completion a run, one good end a slot."""

from collections import Counter
from collections.abc import Callable
from datetime import datetime

from blackboard.model import Item, Lock, Outcome, Run, State, Token
from blackboard.rules.next_run import slots_in_line
from blackboard.simulator.changes import Change, Touch
from blackboard.simulator.violation import Violation
from blackboard.spec import decode_spec, resolve
from blackboard.table import Delete, Insert, Merge

LATE_COLUMNS = {"result", "result_fence"}
Slot = tuple[str, int, datetime]
"""An item, the fence it was born with, and the slot."""
MAY_BE_LATE = {Outcome.ABANDONED, Outcome.CANCELLED}


class History:
    """Remembers which runs completed, and which slots had good ones."""

    def __init__(self, is_fenced: Callable[[Item], bool]) -> None:
        self._is_fenced = is_fenced
        """Whether late results of an item are dropped."""
        self.completed: set[tuple[str, int]] = set()
        self._good: Counter[Slot] = Counter()
        self._asked: Counter[Slot] = Counter()
        """Runs that people asked for: two of them may do so in the same millisecond."""

    def __call__(self, change: Change) -> None:
        if change.sender.verb == "run_now" and (item := change.shadow.item) is not None:
            before = slots_in_line(change.before) if change.before else ()
            for slot in set(slots_in_line(item)) - set(before):
                self._asked[item.id, item.born, slot] += 1
        freed = any(isinstance(one.op, Delete) for one in change.of(Lock))
        for touch in change.of(Run):
            if isinstance(touch.op, Delete):
                continue  # pruned
            new = touch.new
            assert isinstance(new, Run)
            if isinstance(touch.op, Insert):
                if freed and not change.sender.is_person and new.outcome is not Outcome.ABANDONED:
                    self._complete(change, new)
            else:
                self._turned(change, touch.old, new)
            if change.shadow.item is not None and new.fence > change.shadow.item.fence:
                what = f"run {new.fence} is above the item's {change.shadow.item.fence}"
                raise Violation("FENCE", what, item=change.id)
            lock = change.shadow.lock
            if lock is not None and lock.fence == new.fence:
                what = f"{new.outcome.value} is told of fence {new.fence}, which is held"
                raise Violation("HISTORY", what, item=change.id)
        self._late(change)
        self._passed_over(change)

    def _complete(self, change: Change, run: Run) -> None:
        if (run.id, run.fence) in self.completed:
            raise Violation("TWICE", f"completed fence {run.fence}", item=run.id)
        self.completed.add((run.id, run.fence))
        if run.outcome is not Outcome.OK or change.before is None:
            return
        slot = (run.id, change.before.born, run.slot)
        self._good[slot] += 1
        if self._good[slot] > max(self._asked[slot], 1):
            what = f"good for {run.slot.isoformat()}, again with fence {run.fence}"
            raise Violation("TWICE", what, item=run.id)

    def _turned(self, change: Change, old: object, new: Run) -> None:
        assert isinstance(old, Run)
        told = f"{old.outcome.value} became {new.outcome.value}"
        if (old.id, old.fence) in self.completed:
            raise Violation("HISTORY", f"a completed run: {told}", item=change.id)
        if old.outcome not in MAY_BE_LATE or new.outcome is not Outcome.SUPERSEDED:
            raise Violation("HISTORY", told, item=change.id)
        if old.nonce not in {"", new.nonce}:
            raise Violation("HISTORY", f"{told}, by another claim", item=change.id)

    def _late(self, change: Change) -> None:
        """A worker writes an item, and neither its lock nor a token: it came late."""
        if change.sender.is_person or change.of(Lock) or change.of(Token):
            return
        for touch in change.of(Item):
            self._came_late(change, touch)

    def _came_late(self, change: Change, touch: Touch) -> None:
        old, op = touch.old, touch.op
        assert isinstance(old, Item)
        if not isinstance(op, Merge) or set(op.data) - LATE_COLUMNS:
            raise Violation("LATE", "wrote more than a result", item=change.id)
        fence = int(str(op.data["result_fence"]))
        if old.result_fence >= fence:
            what = f"fence {fence} wrote over the result of fence {old.result_fence}"
            raise Violation("LATE", what, item=change.id)
        if any(isinstance(one.new, Run) and one.new.error for one in change.of(Run)):
            raise Violation("LATE", f"fence {fence} was not good, and told it", item=change.id)
        if old.born >= fence:
            what = f"fence {fence} wrote into a life born at {old.born}"
            raise Violation("LATE", what, item=change.id)
        if old.fence <= fence:
            what = f"fence {fence} was taken away and is still the highest"
            raise Violation("LATE", what, item=change.id)
        if old.state is State.REMOVED:
            raise Violation("LATE", "wrote into a removed item", item=change.id)
        if self._is_fenced(old):
            raise Violation("LATE", "wrote into an item of a fenced type", item=change.id)

    def _passed_over(self, change: Change) -> None:
        """A worker moves a waiting item on without a run: only what wants no missed runs, and
        missed this one.
        """
        item = change.before
        if change.sender.is_person or change.of(Lock) or not change.of(Token) or item is None:
            return
        settings = resolve([decode_spec(item.spec)])
        late = change.latest - max(item.slot, item.ready)
        scheduled = item.attempt == 1 and item.slot == item.planned
        if settings.missed != "none" or not scheduled or late <= settings.missed_after:
            what = f"{item.slot} after {late.total_seconds():.3f} s"
            raise Violation("PASSED", what, item=change.id)
