"""What must hold after every single commit, whoever made it and however often it was tried.

The oracle sees the rows before and after, and who sent the batch. It remembers what no row says:
the fences that were used, the runs that completed, what a person was promised.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from blackboard import keys
from blackboard.clock import Clock
from blackboard.model import Item, Lock, Outcome, Run, State
from blackboard.rows import record_of
from blackboard.rules.outcomes import again_of
from blackboard.table import Delete, Insert, Merge, Op, Replace, Row
from tests.boards import disagreeing

Rows = dict[str, Row]
ONCE = {"add", "remove", "unlock", "cancel", "run_now"}
"""Requests that count once, however often they are sent."""
PEOPLES = ("state", "spec", "triggers", "paused", "born", "type")
"""Columns that are for people to change."""


class Violation(AssertionError):
    """An invariant does not hold."""


@dataclass(slots=True, kw_only=True, eq=False)
class Sender:
    """Who sends a batch: one task of a worker, or one request of a person."""

    verb: str
    """walk, run, or what a person asked for."""
    owner: str = ""
    """The worker that it is of."""
    nonce: str = ""
    """Of the claim that a task runs."""
    fence: int = 0
    """Of the claim that a task runs, or that a person means."""
    applied: int = 0
    """Batches of this sender that were applied."""

    @property
    def is_person(self) -> bool:
        return self.verb not in {"walk", "run"}


@dataclass(slots=True, kw_only=True)
class Oracle:
    """Checks one shard."""

    clock: Clock
    fences: Counter[str] = field(default_factory=Counter)
    """The highest fence any lock of an item had."""
    completed: set[tuple[str, int]] = field(default_factory=set)
    asked: dict[str, Any] = field(default_factory=dict)
    """The slot of the run that was asked for and has not started."""

    def check(self, sender: Sender, ops: Sequence[Op], before: Rows, after: Rows) -> None:
        """Raises Violation."""
        for problem in disagreeing(after):
            raise Violation(problem)
        sender.applied += 1
        if sender.verb in ONCE and sender.applied > 1:
            raise Violation(f"TWICE: one {sender.verb} was applied {sender.applied} times")
        for op in ops:
            if op.key.startswith(keys.LOCK):
                self._lock(sender, op, ops, before)
            elif op.key.startswith(keys.RUN):
                self._history(op, before, after)
            elif op.key.startswith(keys.ITEM):
                self._item(sender, op, ops, before, after)

    # ---- locks

    def _lock(self, sender: Sender, op: Op, ops: Sequence[Op], before: Rows) -> None:
        old = record_of(Lock, before[op.key]) if op.key in before else None
        if isinstance(op, Delete):
            assert old is not None
            self._freed(sender, old, ops, age=self._age(before[op.key]))
        elif sender.is_person:
            raise Violation(f"LOCK written by a person's {sender.verb}")
        elif isinstance(op, Insert | Replace):
            new = record_of(Lock, Row(op.key, "", op.data))
            if new.fence <= self.fences[new.id]:
                raise Violation(f"FENCE back: {new.fence} after {self.fences[new.id]}")
            self.fences[new.id] = new.fence
            if old is not None and self._age(before[op.key]) <= old.stale_after:
                raise Violation("OVERRIDE of a lock that is not stale")
            item = record_of(Item, before[keys.item_key(new.id)])
            if item.state is not State.ACTIVE:
                raise Violation(f"STARTED although it is {item.state.value}")
            if self.asked.get(new.id) == new.slot:
                del self.asked[new.id]
        elif old is None or old.owner != sender.owner or old.nonce != (sender.nonce or old.nonce):
            raise Violation("RENEWED a lock that is not its own")

    def _freed(self, sender: Sender, old: Lock, ops: Sequence[Op], *, age: float) -> None:
        if sender.verb == "run":
            if old.nonce != sender.nonce:
                raise Violation(f"FOREIGN release: fence {old.fence} by {sender.fence}")
            if (old.id, old.fence) in self.completed:
                raise Violation(f"TWICE completed: {old.id} {old.fence}")
            self.completed.add((old.id, old.fence))
        elif sender.verb == "walk" and age <= old.stale_after:
            raise Violation("OVERRIDE of a lock that is not stale")
        elif sender.verb in {"unlock", "cancel"} and old.fence != sender.fence:
            raise Violation(f"RETRY took fence {old.fence}, meant was {sender.fence}")
        if len(ops) == 1:
            raise Violation("ORPHAN: a lock was deleted that an item is run under")

    def _age(self, row: Row) -> float:
        return self.clock.monotonic() - float(row.stamp)

    # ---- the history

    def _history(self, op: Op, before: Rows, after: Rows) -> None:
        if isinstance(op, Delete) or op.key not in before:
            return
        old, new = record_of(Run, before[op.key]), record_of(Run, after[op.key])
        if (old.id, old.fence) in self.completed:
            raise Violation(f"HISTORY: a completed run became {new.outcome.value}")
        if old.outcome not in {Outcome.ABANDONED, Outcome.CANCELLED}:
            raise Violation(f"HISTORY: {old.outcome.value} became {new.outcome.value}")
        if new.outcome is not Outcome.SUPERSEDED or old.nonce not in {"", new.nonce}:
            raise Violation(f"HISTORY: {old.outcome.value} became {new.outcome.value} by another")

    # ---- items

    def _item(self, sender: Sender, op: Op, ops: Sequence[Op], before: Rows, after: Rows) -> None:
        new = record_of(Item, after[op.key])
        old = record_of(Item, before[op.key]) if op.key in before else None
        if old is not None:
            if new.fence < old.fence:
                raise Violation(f"FENCE of the item back from {old.fence} to {new.fence}")
            if not sender.is_person:
                self._promises(old, new)
            if sender.verb == "run" and not any(one.key.startswith(keys.LOCK) for one in ops):
                self._late(sender, old, op)
        self._asked(sender, old, new)

    def _promises(self, old: Item, new: Item) -> None:
        for name in PEOPLES:
            done = name == "state" and new.state is State.DONE
            if getattr(old, name) != getattr(new, name) and not done:
                raise Violation(f"PROMISE: a worker changed {name} of {old.id}")

    def _asked(self, sender: Sender, old: Item | None, new: Item) -> None:
        """A run that was asked for is there until it starts."""
        again = again_of(new)
        if new.state is State.REMOVED or old is None or sender.verb == "add":
            self.asked.pop(new.id, None)
        elif sender.verb == "run_now":
            self.asked[new.id] = again.slot if again else new.slot
        slots = {new.slot, again.slot if again else new.slot}
        if new.id in self.asked and self.asked[new.id] not in slots:
            raise Violation(f"RUN NOW LOST of {new.id}")

    def _late(self, sender: Sender, old: Item, op: Op) -> None:
        assert isinstance(op, Merge)
        if set(op.data) - {"result", "error", "result_fence"}:
            raise Violation(f"LATE: wrote {sorted(op.data)}")
        if old.born >= sender.fence:
            raise Violation(f"LATE: fence {sender.fence} wrote into a life born at {old.born}")
        if old.fence <= sender.fence:
            raise Violation(f"LATE: fence {sender.fence} was taken away and is still the highest")
        if old.state is State.REMOVED:
            raise Violation("LATE: wrote into a removed item")
        if old.type == "fenced":
            raise Violation("LATE: wrote into an item of a fenced type")
