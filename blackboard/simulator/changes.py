"""The changes of a batch, item by item, as records; and the current rows of all items.

Invariants are checked against these. Each row is parsed once, when it is written.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from msgspec import Struct, json

from blackboard.model import VERSION, Item, Lock, Run, Token
from blackboard.protocol import keys
from blackboard.protocol.rows import record_of
from blackboard.simulator.invariants import Violation
from blackboard.simulator.store import AppliedBatch, Sender
from blackboard.table import Delete, Insert, Merge, Op, Replace, Row

ItemRecord = Item | Token | Lock | Run
"""What the rows of an item hold."""
READERS: dict[str, Callable[[Row], ItemRecord]] = {
    keys.ITEM: partial(record_of, Item),
    keys.LOCK: partial(record_of, Lock),
    keys.NEXT: partial(record_of, Token),
    keys.RUN: partial(record_of, Run),
}
"""The parser of a row, by the family of its key."""


class Saved(NamedTuple):
    """The checkpoint of a simulated run: a number that only rises, and the run's fence."""

    number: int
    fence: int


def saved_in(checkpoint: Any) -> Saved:
    """The save in the value of a checkpoint; None: nothing was saved."""
    return Saved(0, 0) if checkpoint is None else Saved(*checkpoint)


def saved_of(item: Item) -> Saved:
    return saved_in(json.decode(item.checkpoint) if item.checkpoint else None)


def text_of_saved(saved: Saved) -> str:
    return json.encode(saved).decode()


class Touch(Struct, frozen=True, kw_only=True):
    """One operation, with the records before and after."""

    op: Op
    old: ItemRecord | None
    new: ItemRecord | None
    age: float
    """Seconds since the old row was written."""


@dataclass(slots=True)
class Shadow:
    """The rows of one id, without its history."""

    item: Item | None = None
    lock: Lock | None = None
    touched: float = 0.0
    """The moment when the lock was last written."""
    tokens: dict[str, Token] = field(default_factory=dict)


def is_newer(shadow: Shadow) -> bool:
    return shadow.item is not None and shadow.item.version > VERSION


class AppliedChange(Struct, frozen=True, kw_only=True):
    """The change of one item by one batch."""

    id: str
    batch: AppliedBatch
    touches: Mapping[type[ItemRecord | None], Sequence[Touch]]
    """By the type of the record."""
    before: Item | None
    shadow: Shadow
    """The rows after the batch."""

    @property
    def sender(self) -> Sender:
        return self.batch.sender

    @property
    def is_save(self) -> bool:
        """Whether it writes the checkpoint of an item and nothing else, as a run's save does."""
        ops = [touch.op for touches in self.touches.values() for touch in touches]
        saves = all(isinstance(op, Merge) and set(op.data) == {"checkpoint"} for op in ops)
        return saves and not self.sender.is_person

    @property
    def claimed(self) -> Lock | None:
        """The lock that it makes where there was none."""
        return self.shadow.lock if self._writes_lock(Insert) else None

    @property
    def taken(self) -> Lock | None:
        """The lock that it makes, also in the place of a stale one."""
        return self.shadow.lock if self._writes_lock(Insert, Replace) else None

    @property
    def frees_lock(self) -> bool:
        return self._writes_lock(Delete)

    def _writes_lock(self, *kinds: type[Op]) -> bool:
        return any(isinstance(touch.op, kinds) for touch in self.of(Lock))

    @property
    def recorded(self) -> list[Run]:
        """The runs that it writes into the history."""
        return [touch.new for touch in self.of(Run) if isinstance(touch.new, Run)]

    def run_under(self, lock: Lock) -> Run | None:
        """The run that it writes into the history under the fence of a lock."""
        return next((run for run in self.recorded if run.fence == lock.fence), None)

    def violation(self, kind: str, problem: str) -> Violation:
        return Violation(kind, problem, item=self.id)

    def of(self, record_type: type[ItemRecord]) -> Sequence[Touch]:
        return self.touches.get(record_type, ())


class Shadows:
    """The current rows of all items, by id."""

    def __init__(self) -> None:
        self.of: dict[str, Shadow] = {}
        self._records: dict[str, ItemRecord] = {}

    def changes(self, batch: AppliedBatch) -> list[AppliedChange]:
        """One change for each item of the batch; none when the batch is not about items."""
        touches: dict[str, list[Touch]] = {}
        for op in batch.ops:
            read = READERS.get(op.key[: op.key.find(":") + 1])
            if read is None:
                return []
            old_row, new_row = batch.before.get(op.key), batch.after.get(op.key)
            touch = Touch(
                op=op,
                old=self._records.pop(op.key, None),
                new=None if new_row is None else read(new_row),
                age=0.0 if old_row is None else batch.moment - float(old_row.stamp),
            )
            if touch.new is not None:
                self._records[op.key] = touch.new
            record = touch.new or touch.old
            assert record is not None, "a batch was applied and left nothing"
            touches.setdefault(record.id, []).append(touch)
        return [self._change(item_id, of_item, batch) for item_id, of_item in touches.items()]

    def _change(self, item_id: str, touches: list[Touch], batch: AppliedBatch) -> AppliedChange:
        shadow = self.of.setdefault(item_id, Shadow())
        before = shadow.item
        by_type: dict[type[ItemRecord | None], list[Touch]] = {}
        for touch in touches:
            by_type.setdefault(type(touch.new or touch.old), []).append(touch)
            self._take(shadow, touch, batch.moment)
        return AppliedChange(id=item_id, batch=batch, touches=by_type, before=before, shadow=shadow)

    def _take(self, shadow: Shadow, touch: Touch, moment: float) -> None:
        match touch.new or touch.old:
            case Item():
                shadow.item = touch.new if isinstance(touch.new, Item) else None
            case Lock():
                shadow.lock = touch.new if isinstance(touch.new, Lock) else None
                shadow.touched = moment
            case Token() as token:
                shadow.tokens.pop(touch.op.key, None)
                if touch.new is not None:
                    shadow.tokens[touch.op.key] = token
