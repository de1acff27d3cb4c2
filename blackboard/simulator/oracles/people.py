"""What people asked for: it stays as they said, and it happens once, in the order of asking."""

from collections import defaultdict

from blackboard.model import Item, Lock, QueuedRun, State
from blackboard.rules.next_run import serves
from blackboard.simulator.changes import Change
from blackboard.simulator.plan import VERBS
from blackboard.simulator.violation import Violation
from blackboard.table import Insert, Replace

PEOPLES = ("state", "spec", "applied", "paused", "born", "type")
"""Columns that are for people to change."""


class People:
    """Remembers the runs that were asked for and have not started."""

    def __init__(self) -> None:
        self._asked: defaultdict[str, list[QueuedRun]] = defaultdict(list)
        """In the order in which they are to start."""

    def __call__(self, change: Change) -> None:
        sender = change.sender
        if sender.verb in VERBS and sender.applied > 1:
            what = f"one {sender.verb} was applied {sender.applied} times"
            raise Violation("TWICE", what, item=change.id)
        for touch in change.of(Lock):
            new = touch.new
            if isinstance(touch.op, Insert | Replace) and isinstance(new, Lock):
                self._started(change, new)
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

    def _started(self, change: Change, lock: Lock) -> None:
        asked = self._asked[change.id]
        for number, one in enumerate(asked):
            if serves(lock.slot, one.slot):
                if number:
                    what = f"the run asked for at {one.slot} started before {number} others"
                    raise Violation("RUN NOW LOST", what, item=change.id)
                del asked[0]
                return

    def _expected(self, change: Change, old: Item | None, new: Item) -> None:
        """Each run that was asked for is there until it starts, with its own params."""
        if new.state is State.REMOVED or old is None or change.sender.verb == "add":
            self._asked.pop(new.id, None)
            return
        line = _line_of(new)
        if change.sender.verb == "run_now":
            there = {one.slot for one in _line_of(old)}
            self._asked[new.id] += [one for one in line if one.slot not in there]
        for asked in self._asked[new.id]:
            found = [one for one in line if serves(one.slot, asked.slot)]
            if not found:
                raise Violation("RUN NOW LOST", "it was asked for and never started", item=new.id)
            if found[0].once != asked.once:
                what = f"asked for with {asked.once!r}, and waits with {found[0].once!r}"
                raise Violation("PARAMS", what, item=new.id)


def _line_of(item: Item) -> list[QueuedRun]:
    """The run in hand and all requests behind it."""
    return [QueuedRun(name="", slot=item.slot, once=item.once), *item.requests]
