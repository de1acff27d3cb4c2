"""What a batch did, in words."""

from blackboard.model import Item, Lock, Outcome, Run, State
from blackboard.simulator.changes import Change
from blackboard.table import Delete, Insert, Merge, Replace


def told(change: Change) -> str:
    """Of one item."""
    if change.sender.is_person:
        return f"{change.sender.verb} {change.id}{_now(change.shadow.item)}"
    for touch in change.of(Lock):
        match touch.op, touch.new or touch.old:
            case Insert(), Lock() as lock:
                return f"claims {change.id}, fence {lock.fence}"
            case Replace(), Lock() as lock:
                return f"overrides {change.id}, untouched for {touch.age:.1f} s, fence {lock.fence}"
            case Merge(), Lock() as lock:
                return f"renews {change.id}, fence {lock.fence}"
            case Delete(), Lock() as lock:
                return f"{_freed(change)} {change.id}, fence {lock.fence}{_now(change.shadow.item)}"
    for touch in change.of(Run):
        if isinstance(touch.new, Run):
            return f"tells of {change.id}, fence {touch.new.fence}: {touch.new.outcome.value}"
        return f"prunes {change.id}"
    return f"moves {change.id}{_now(change.shadow.item)}"


def _freed(change: Change) -> str:
    outcome = next((one.new.outcome for one in change.of(Run) if isinstance(one.new, Run)), None)
    return "frees" if outcome is Outcome.ABANDONED else f"lets go ({outcome})"


def _now(item: Item | None) -> str:
    """How it goes on."""
    if item is None or item.state is not State.ACTIVE:
        return f": {item.state.value}" if item else ""
    return "" if item.running else f": due {item.ready:%d %H:%M:%S}"
