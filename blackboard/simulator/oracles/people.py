"""What people asked for: it stays as they said, and it happens once."""

from datetime import datetime

from blackboard.model import Item, Lock, State
from blackboard.rules.outcomes import again_of, serves
from blackboard.simulator.changes import Change
from blackboard.simulator.violation import Violation
from blackboard.table import Insert, Replace

ONCE = {"add", "remove", "unlock", "cancel", "run_now"}
"""Requests that count once, however often they are sent."""
PEOPLES = ("state", "spec", "triggers", "paused", "born", "type")
"""Columns that are for people to change."""


class People:
    """Remembers the runs that were asked for and have not started."""

    def __init__(self) -> None:
        self._asked: dict[str, datetime] = {}

    def __call__(self, change: Change) -> None:
        sender = change.sender
        if sender.verb in ONCE and sender.applied > 1:
            what = f"one {sender.verb} was applied {sender.applied} times"
            raise Violation("TWICE", what, item=change.id)
        for touch in change.of(Lock):
            new = touch.new
            if not isinstance(touch.op, Insert | Replace) or not isinstance(new, Lock):
                continue
            asked = self._asked.get(change.id)
            if asked is not None and serves(new.slot, asked):
                del self._asked[change.id]
        old, new_item = change.before, change.shadow.item
        if new_item is None or not change.of(Item):
            return
        if old is not None and not sender.is_person:
            self._kept(old, new_item)
        self._expected(change, old, new_item)

    def _kept(self, old: Item, new: Item) -> None:
        for name in PEOPLES:
            done = name == "state" and new.state is State.DONE
            if getattr(old, name) != getattr(new, name) and not done:
                raise Violation("PROMISE", f"a worker changed {name}", item=old.id)

    def _expected(self, change: Change, old: Item | None, new: Item) -> None:
        """A run that was asked for is there until it starts."""
        again = again_of(new)
        if new.state is State.REMOVED or old is None or change.sender.verb == "add":
            self._asked.pop(new.id, None)
        elif change.sender.verb == "run_now":
            self._asked[new.id] = again.slot if again else new.slot
        slots = {new.slot, again.slot if again else new.slot}
        asked = self._asked.get(new.id)
        if asked is not None and not any(serves(slot, asked) for slot in slots):
            raise Violation("RUN NOW LOST", "it was asked for and never started", item=new.id)
