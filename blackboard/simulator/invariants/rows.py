"""Invariants of rows, checked at every write.

The rows of one item agree with each other. Locks are written by a worker that finds the item due by
the store's clock, by their holder, and by a worker that finds them stale. The history has one row
for each fence, one completion for each run, one good run for each slot. A write of an older version
keeps what a newer version wrote.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from blackboard.model import VERSION, Item, Lock, Outcome, Run, State, Token
from blackboard.protocol.keys import ITEM, item_key, lock_key, next_key
from blackboard.protocol.retention import Retention
from blackboard.protocol.rows import version_of
from blackboard.rules.applied import REMEMBERED
from blackboard.rules.next_run import is_ahead, slots_in_line
from blackboard.simulator.changes import AppliedChange, Touch
from blackboard.simulator.invariants import Violation
from blackboard.simulator.invariants.transitions import was_closed
from blackboard.simulator.store import MORE, AppliedBatch
from blackboard.spec import RunSettings
from blackboard.table import Delete, Insert, Merge, Op, Replace, Row

REPEATED = [
    "slot",
    "ready",
    "planned",
    "attempt",
    "once",
    "requests",
    "checkpoint",
    "born",
    "runs",
    "failures",
    "type",
    "fence",
    "version",
]
"""Columns that a waiting token has from its item, besides the spec."""


def check_whole(change: AppliedChange) -> None:
    shadow = change.shadow
    for kind, problem in disagreements(shadow.item, shadow.lock, shadow.tokens):
        raise change.violation(kind, problem)


def disagreements(
    item: Item | None, lock: Lock | None, tokens: dict[str, Token]
) -> Iterator[tuple[str, str]]:
    """Yields what is wrong with the rows of one id; `tokens` are the waiting ones, by key."""
    if item is None:
        if lock is not None or tokens:
            yield "ORPHAN", "a lock or a token without an item"
        return
    if len(tokens) + (lock is not None) > 1:
        yield "TWO TOKENS", f"{len(tokens)} waiting, {int(lock is not None)} claimed"
    if item.state is State.ACTIVE and not tokens and lock is None:
        yield "NO TOKEN", "of an active item"
    if tokens and (item.state is not State.ACTIVE or item.paused):
        state = State.PAUSED if item.paused else item.state
        yield "WAITING TOKEN", f"of an item that is {state.value}"
    if item.state is State.REMOVED and lock is not None:
        yield "LOCK", "of a removed item"
    if item.running != (lock is not None):
        yield "RUNNING", f"is {item.running}, with {int(lock is not None)} locks"
    if lock is not None and lock.fence != item.fence:
        yield "FENCE", f"of the lock {lock.fence}, of the item {item.fence}"
    yield from _of_requests(item)
    for key, token in tokens.items():
        yield from _of_token(item, token, key)


def _of_requests(item: Item) -> Iterator[tuple[str, str]]:
    if item.requests and item.state in {State.DONE, State.REMOVED}:
        yield "RUN NOW LOST", f"requests of an item that is {item.state.value}"


def _of_token(item: Item, token: Token, key: str) -> Iterator[tuple[str, str]]:
    if key != next_key(item.ready, item.id):
        yield "KEY", "of the token is not what the item says"
    if token.spec != item.spec:
        yield "EDIT LOST", f"the token has {token.spec}, the item {item.spec}"
    for name in REPEATED:
        of_token, of_item = getattr(token, name), getattr(item, name)
        if of_token != of_item:
            yield "TOKEN", f"differs in {name}: {of_token}, the item {of_item}"


KEPT = Retention()
YOUNGEST_TOMBSTONE = REMEMBERED - timedelta(minutes=2)
"""The least age of a tombstone that is deleted; the store's clock may have been set meanwhile."""


def check_deleted(change: AppliedChange) -> None:
    """DELETED: of items, only tombstones are deleted, and not before the names of their requests
    may be forgotten; of histories, rows beyond the limit and rows of an earlier life.
    """
    for touch in change.of(Item):
        old = touch.old
        if isinstance(touch.op, Delete) and isinstance(old, Item):
            if old.state is not State.REMOVED or change.sender.is_person:
                raise change.violation("DELETED", f"an item that is {old.state.value}")
            if touch.age < YOUNGEST_TOMBSTONE.total_seconds():
                problem = f"a tombstone that was written {touch.age:.0f} s ago"
                raise change.violation("DELETED", problem)
    item = change.shadow.item
    if item is None or item.state is State.REMOVED:
        return
    for touch in change.of(Run):
        old = touch.old
        if isinstance(touch.op, Delete) and isinstance(old, Run):
            newer = item.fence - old.fence
            if old.fence > item.born and newer < KEPT.runs:
                raise change.violation("DELETED", f"run {old.fence}, with {newer} fences above it")


FREEING = {"unlock", "cancel"}


class Locks:
    """OVERRIDE, EARLY, RENEWED, FOREIGN release: which worker writes a lock, and when. FENCE: the
    fence rises over all lives of an id.
    """

    def __init__(self) -> None:
        self._fences: dict[str, int] = {}

    def __call__(self, change: AppliedChange) -> None:
        before, after = change.before, change.shadow.item
        if before is not None and after is not None and after.fence < before.fence:
            raise change.violation("FENCE", f"from {before.fence} back to {after.fence}")
        for touch in change.of(Lock):
            match touch.op:
                case Delete():
                    self._freed(change, touch)
                case Insert() | Replace():
                    self._taken(change, touch)
                case Merge():
                    self._renewed(change, touch)

    def _taken(self, change: AppliedChange, touch: Touch) -> None:
        new, old = touch.new, touch.old
        assert isinstance(new, Lock)
        if change.sender.is_person:
            raise change.violation("LOCK", f"written by a person's {change.sender.verb}")
        highest = self._fences.get(change.id, 0)
        if new.fence <= highest:
            raise change.violation("FENCE", f"{new.fence} after {highest}")
        self._fences[change.id] = new.fence
        if isinstance(old, Lock):
            self._must_be_stale(change, old, touch.age)
            self._must_be_recorded(change, old)
        elif change.before is not None and change.batch.latest < change.before.ready:
            early = (change.before.ready - change.batch.latest).total_seconds()
            raise change.violation("EARLY", f"by {early:.3f} s")
        if new.since > change.batch.latest:
            raise change.violation("CLOCK", f"it began at {new.since}, after now")
        if new.owner != change.sender.name:
            raise change.violation("LOCK", f"of {new.owner} by {change.sender.name}")
        before = change.before
        if before is None or before.state is not State.ACTIVE:
            state = before.state.value if before else "not there"
            raise change.violation("STARTED", f"although it is {state}")

    def _renewed(self, change: AppliedChange, touch: Touch) -> None:
        old, new = touch.old, touch.new
        assert isinstance(old, Lock)
        assert isinstance(new, Lock)
        if change.sender.is_person:
            raise change.violation("LOCK", f"written by a person's {change.sender.verb}")
        if old.owner != change.sender.name:
            raise change.violation("RENEWED", f"a lock of {old.owner}")
        if (old.nonce, old.fence, old.stale_after) != (new.nonce, new.fence, new.stale_after):
            raise change.violation("RENEWED", "another lock than it was")

    def _freed(self, change: AppliedChange, touch: Touch) -> None:
        old, sender = touch.old, change.sender
        assert isinstance(old, Lock)
        run = change.run_under(old)
        if sender.is_person:
            if sender.verb in FREEING and old.fence != sender.fence:
                raise change.violation("RETRY", f"took fence {old.fence}, meant was {sender.fence}")
            if sender.verb not in {*FREEING, "remove"}:
                raise change.violation("LOCK", f"freed by a person's {sender.verb}")
        elif run is None:
            fences = [other.fence for other in change.recorded]
            problem = f"fence {old.fence} of {old.owner} by {sender.name}, recorded as {fences}"
            raise change.violation("FOREIGN release", problem)
        elif run.outcome is Outcome.ABANDONED:
            self._must_be_stale(change, old, touch.age)
        elif run.nonce != old.nonce or old.owner != sender.name:
            problem = f"fence {old.fence} of {old.owner} by {sender.name}"
            raise change.violation("FOREIGN release", problem)
        if run is None and change.of(Item):
            raise change.violation("HISTORY", f"has nothing of fence {old.fence}")
        item, is_its_own = change.shadow.item, old.owner == sender.name
        if item is not None and item.fence <= old.fence and not is_its_own:
            raise change.violation("FENCE", f"{old.fence} was taken away and is the highest")

    def _must_be_recorded(self, change: AppliedChange, old: Lock) -> None:
        run = change.run_under(old)
        if run is None:
            raise change.violation("HISTORY", f"has nothing of fence {old.fence}")
        if run.outcome is not Outcome.ABANDONED:
            problem = f"fence {old.fence} was overridden, and recorded as {run.outcome.value}"
            raise change.violation("HISTORY", problem)

    def _must_be_stale(self, change: AppliedChange, old: Lock, age: float) -> None:
        if age <= old.stale_after:
            problem = f"of a lock untouched for {age:.3f} s, good for {old.stale_after:g} s"
            raise change.violation("OVERRIDE", problem)


LATE_COLUMNS = {"result", "result_fence"}
Slot = tuple[str, int, datetime]
"""An item, the fence of its birth, and a slot."""
MAY_BE_LATE = {Outcome.ABANDONED, Outcome.CANCELLED}


class History:
    """HISTORY, TWICE, LATE, PASSED: what runs record, and which slots are passed over."""

    def __init__(self, settings_of: Callable[[Item], RunSettings]) -> None:
        self._settings_of = settings_of
        self.completed: set[tuple[str, int]] = set()
        self._good: Counter[Slot] = Counter()
        self._asked: Counter[Slot] = Counter()
        """Runs that people asked for. Two requests may have the same millisecond."""

    def __call__(self, change: AppliedChange) -> None:
        self._note_requests(change)
        for touch in change.of(Run):
            if not isinstance(touch.op, Delete):  # else it was pruned
                self._recorded(change, touch)
        self._late(change)
        self._passed_over(change)

    def _note_requests(self, change: AppliedChange) -> None:
        if change.sender.verb == "run_now" and (item := change.shadow.item) is not None:
            before = slots_in_line(change.before) if change.before else ()
            for slot in set(slots_in_line(item)) - set(before):
                self._asked[item.id, item.born, slot] += 1

    def _recorded(self, change: AppliedChange, touch: Touch) -> None:
        item, lock, new = change.shadow.item, change.shadow.lock, touch.new
        assert isinstance(new, Run)
        if isinstance(touch.op, Insert):
            is_end = change.frees_lock and not change.sender.is_person
            if is_end and new.outcome is not Outcome.ABANDONED:
                self._complete(change, new)
        else:
            self._turned(change, touch.old, new)
        if item is not None and new.fence > item.fence:
            problem = f"run {new.fence} is above the item's {item.fence}"
            raise change.violation("FENCE", problem)
        if lock is not None and lock.fence == new.fence:
            problem = f"{new.outcome.value} is recorded of fence {new.fence}, which is held"
            raise change.violation("HISTORY", problem)

    def _complete(self, change: AppliedChange, run: Run) -> None:
        if (run.id, run.fence) in self.completed:
            raise change.violation("TWICE", f"completed fence {run.fence}")
        self.completed.add((run.id, run.fence))
        if run.outcome is not Outcome.OK or change.before is None:
            return
        slot = (run.id, change.before.born, run.slot)
        self._good[slot] += 1
        if self._good[slot] > max(self._asked[slot], 1):
            problem = f"good for {run.slot.isoformat()}, again with fence {run.fence}"
            raise change.violation("TWICE", problem)

    def _turned(self, change: AppliedChange, old: object, new: Run) -> None:
        assert isinstance(old, Run)
        turned = f"{old.outcome.value} became {new.outcome.value}"
        if (old.id, old.fence) in self.completed:
            raise change.violation("HISTORY", f"a completed run: {turned}")
        if old.outcome not in MAY_BE_LATE or new.outcome is not Outcome.SUPERSEDED:
            raise change.violation("HISTORY", turned)
        if old.nonce not in {"", new.nonce}:
            raise change.violation("HISTORY", f"{turned}, by another claim")

    def _late(self, change: AppliedChange) -> None:
        """A worker that writes an item, and neither its lock nor a token, records a late result, or
        saves.
        """
        if change.sender.is_person or change.is_save or change.of(Lock) or change.of(Token):
            return
        for touch in change.of(Item):
            if not isinstance(touch.op, Delete):
                self._came_late(change, touch)

    def _came_late(self, change: AppliedChange, touch: Touch) -> None:
        old, op = touch.old, touch.op
        assert isinstance(old, Item)
        if not isinstance(op, Merge) or set(op.data) - LATE_COLUMNS:
            raise change.violation("LATE", "wrote more than a result")
        fence = int(str(op.data["result_fence"]))
        if old.result_fence >= fence:
            problem = f"fence {fence} wrote over the result of fence {old.result_fence}"
            raise change.violation("LATE", problem)
        if any(run.error for run in change.recorded):
            raise change.violation("LATE", f"fence {fence} failed, and wrote to the item")
        if old.born >= fence:
            raise change.violation("LATE", f"fence {fence} wrote into a life born at {old.born}")
        if old.fence <= fence:
            raise change.violation("LATE", f"fence {fence} was taken away and is still the highest")
        if old.state is State.REMOVED:
            raise change.violation("LATE", "wrote into a removed item")
        if self._settings_of(old).fenced:
            raise change.violation("LATE", "wrote into an item of a fenced type")

    def _passed_over(self, change: AppliedChange) -> None:
        """A worker may change a waiting item without a run only in a time without runs, or where
        missed slots are not run, and this slot was missed; or where it waits for a time so far
        ahead that a clock was wrong.
        """
        item = change.before
        if change.sender.is_person or change.of(Lock) or not change.of(Token) or item is None:
            return
        settings = self._settings_of(item)
        late = change.batch.latest - max(item.slot, item.ready)
        scheduled = item.attempt == 1 and item.slot == item.planned
        if scheduled and was_closed(settings.schedule, change):
            return
        if is_ahead(item.ready, now=change.batch.latest):
            return
        if settings.missed != "none" or not scheduled or late <= settings.missed_after:
            raise change.violation("PASSED", f"{item.slot} after {late.total_seconds():.3f} s")


@dataclass(frozen=True, slots=True)
class Versions:
    """VERSIONS: an older program keeps the columns of a newer one, and leaves its items alone.

    Of such an item it may only release a lock of its own, and save under it (see CHECKPOINT).
    """

    def __call__(self, batch: AppliedBatch) -> None:
        for op in batch.ops:
            before, after = batch.before.get(op.key), batch.after.get(op.key)
            if before is not None and after is not None and op.key.startswith(ITEM):
                self._judge(batch, op, before, after)

    def _judge(self, batch: AppliedBatch, op: Op, before: Row, after: Row) -> None:
        who, item = batch.sender, str(before.data["item"])
        if version_of(after.data) < version_of(before.data):
            raise Violation("VERSIONS", f"{who.name} lowered the version", item=item)
        if who.newer:
            return
        is_of_another_life = isinstance(op, Replace) and "removed" in {
            before.data["state"],
            after.data["state"],
        }
        for name in () if is_of_another_life else MORE:
            if before.data.get(name) != after.data.get(name):
                problem = f"{name} was {before.data.get(name)}, and is {after.data.get(name)}"
                raise Violation("VERSIONS", f"{who.name}: {problem}", item=item)
        saves = isinstance(op, Merge) and set(op.data) == {"checkpoint"}
        if version_of(before.data) > VERSION and not saves and not _releases(batch, item):
            raise Violation("VERSIONS", f"{who.name} wrote an item of a newer version", item=item)


def _releases(batch: AppliedBatch, item: str) -> bool:
    """Whether the batch releases a lock of its sender, under the fence of that lock."""
    lock, after = batch.before.get(lock_key(item)), batch.after[item_key(item)]
    return (
        lock is not None
        and lock_key(item) not in batch.after
        and lock.data["owner"] == batch.sender.name
        and lock.data["fence"] == after.data["fence"]
    )


MOST_ROWS = 100


class Etags:
    """ETAG: no key has the same etag twice. LIMITS: a batch is small."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str, str]] = set()

    def __call__(self, batch: AppliedBatch) -> None:
        if len(batch.ops) > MOST_ROWS:
            raise Violation("LIMITS", f"{len(batch.ops)} rows in a batch")
        for key, row in batch.after.items():
            name = (batch.partition, key, row.etag)
            if name in self._seen:
                raise Violation("ETAG", f"{row.etag} came again for {key}")
            self._seen.add(name)
