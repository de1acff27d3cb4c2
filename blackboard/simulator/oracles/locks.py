"""Who may write a lock, and when: whoever finds its item due by the store's own clock, its holder,
and whoever finds it stale.
"""

from blackboard.model import Item, Lock, Outcome, Run, State
from blackboard.simulator.changes import Change, Touch
from blackboard.simulator.violation import Violation
from blackboard.table import Delete, Insert, Merge, Replace

FREEING = {"unlock", "cancel"}


class Locks:
    """Remembers the highest fence that a lock of each id had, over all its lives."""

    def __init__(self) -> None:
        self._fences: dict[str, int] = {}

    def __call__(self, change: Change) -> None:
        before, after = change.before, change.shadow.item
        if before is not None and after is not None and after.fence < before.fence:
            raise self._violation(change, "FENCE", f"from {before.fence} back to {after.fence}")
        for touch in change.of(Lock):
            match touch.op:
                case Delete():
                    self._freed(change, touch)
                case Insert() | Replace():
                    self._taken(change, touch)
                case Merge():
                    self._renewed(change, touch)

    def _taken(self, change: Change, touch: Touch) -> None:
        new, old = touch.new, touch.old
        assert isinstance(new, Lock)
        if change.sender.is_person:
            raise self._violation(change, "LOCK", f"written by a person's {change.sender.verb}")
        highest = self._fences.get(change.id, 0)
        if new.fence <= highest:
            raise self._violation(change, "FENCE", f"{new.fence} after {highest}")
        self._fences[change.id] = new.fence
        if isinstance(old, Lock):
            self._must_be_stale(change, old, touch.age)
            self._must_be_told(change, old)
        elif change.before is not None and change.latest < change.before.ready:
            early = (change.before.ready - change.latest).total_seconds()
            raise self._violation(change, "EARLY", f"by {early:.3f} s")
        if new.since > change.latest:
            raise self._violation(change, "CLOCK", f"it began at {new.since}, after now")
        if new.owner != change.sender.name:
            raise self._violation(change, "LOCK", f"of {new.owner} by {change.sender.name}")
        before = change.before
        if before is None or before.state is not State.ACTIVE:
            state = before.state.value if before else "not there"
            raise self._violation(change, "STARTED", f"although it is {state}")

    def _renewed(self, change: Change, touch: Touch) -> None:
        old, new = touch.old, touch.new
        assert isinstance(old, Lock)
        assert isinstance(new, Lock)
        if change.sender.is_person:
            raise self._violation(change, "LOCK", f"written by a person's {change.sender.verb}")
        if old.owner != change.sender.name:
            raise self._violation(change, "RENEWED", f"a lock of {old.owner}")
        if (old.nonce, old.fence, old.stale_after) != (new.nonce, new.fence, new.stale_after):
            raise self._violation(change, "RENEWED", "another lock than it was")

    def _freed(self, change: Change, touch: Touch) -> None:
        old, sender = touch.old, change.sender
        assert isinstance(old, Lock)
        told = [one.new for one in change.of(Run) if isinstance(one.new, Run)]
        run = next((one for one in told if one.fence == old.fence), None)
        if sender.is_person:
            if sender.verb in FREEING and old.fence != sender.fence:
                what = f"took fence {old.fence}, meant was {sender.fence}"
                raise self._violation(change, "RETRY", what)
            if sender.verb not in {*FREEING, "remove"}:
                raise self._violation(change, "LOCK", f"freed by a person's {sender.verb}")
        elif run is None:
            fences = [one.fence for one in told]
            what = f"fence {old.fence} of {old.owner} by {sender.name}, told as {fences}"
            raise self._violation(change, "FOREIGN release", what)
        elif run.outcome is Outcome.ABANDONED:
            self._must_be_stale(change, old, touch.age)
        elif run.nonce != old.nonce or old.owner != sender.name:
            what = f"fence {old.fence} of {old.owner} by {sender.name}"
            raise self._violation(change, "FOREIGN release", what)
        if run is None and change.of(Item):
            raise self._violation(change, "HISTORY", f"has nothing of fence {old.fence}")
        item, is_its_own = change.shadow.item, old.owner == sender.name
        if item is not None and item.fence <= old.fence and not is_its_own:
            raise self._violation(change, "FENCE", f"{old.fence} was taken away and is the highest")

    def _must_be_told(self, change: Change, old: Lock) -> None:
        for touch in change.of(Run):
            run = touch.new
            if isinstance(run, Run) and run.fence == old.fence:
                if run.outcome is not Outcome.ABANDONED:
                    what = f"fence {old.fence} was overridden and is told as {run.outcome.value}"
                    raise self._violation(change, "HISTORY", what)
                return
        raise self._violation(change, "HISTORY", f"has nothing of fence {old.fence}")

    def _must_be_stale(self, change: Change, old: Lock, age: float) -> None:
        if age <= old.stale_after:
            what = f"of a lock untouched for {age:.3f} s, good for {old.stale_after:g} s"
            raise self._violation(change, "OVERRIDE", what)

    def _violation(self, change: Change, kind: str, what: str) -> Violation:
        return Violation(kind, what, item=change.id)
