"""What the verbs of operators make of an item: item and `now` in, item out.

    pause        no run starts; what runs may finish
    resume       what came due meanwhile is due at once
    reschedule   an edit gave it another schedule

A `run now` is in `rules/requests.py`; unlock and cancel follow from the end of a run, and are in
`rules/outcomes.py`.
"""

from dataclasses import replace
from datetime import datetime

from blackboard.model import NEVER, Item, State
from blackboard.rules.outcomes import PLANNED, Plan, edited_plan
from blackboard.rules.requests import is_asked_for, slot_asked_for
from blackboard.schedule.schedule import Once
from blackboard.spec import RunSettings


def planned(item: Item, plan: Plan) -> Item:
    """The item with a plan's columns."""
    return replace(item, **{name: getattr(plan, name) for name in PLANNED})


def paused(item: Item, mark: str) -> Item | None:
    """The item after a pause; `mark` is JSON of who paused it. None: there is nothing to pause."""
    if item.state is not State.ACTIVE:
        return None
    return replace(item, state=State.PAUSED, paused=mark)


def resumed(item: Item, mark: str, *, now: datetime) -> Item | None:
    """The item after it was resumed; one without a next slot is done. None: it is not paused."""
    if not item.is_paused:
        return None
    after = replace(item, paused="", resumed=mark)
    if item.state is State.DONE:
        return after
    ready = item.ready if item.running else max(item.ready, now)
    return replace(after, state=State.ACTIVE, ready=ready)


def rescheduled(item: Item, *, settings: RunSettings, had_time: bool, now: datetime) -> Item:
    """The item under its new schedule. `had_time` tells that the old one was an `at`: otherwise an
    item that never ran keeps the first time it was given.
    """
    plan = edited_plan(item, settings=settings, now=now)
    has_time = isinstance(settings.schedule, Once)
    if item.state is State.DONE:
        return planned(item, plan)
    if is_asked_for(item):
        return _beside_one_asked_for(item, plan)
    if item.running or item.attempt > 1:
        return item
    if item.start is None and not (had_time or has_time):
        return item
    return planned(item, plan)


def _beside_one_asked_for(item: Item, plan: Plan) -> Item:
    """A run that was asked for goes on waiting, or running. What is planned changes, and no more
    than a millisecond of its slot.
    """
    if plan.state is State.DONE:
        return replace(item, planned=NEVER)
    slot = item.slot if item.running else slot_asked_for(item.slot, beside=plan.planned)
    return replace(item, slot=slot, planned=plan.planned)
