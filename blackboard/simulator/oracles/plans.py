"""What people's requests make of an item's plan: SERVED, ATTEMPTS, PARAMS; and RETRY, of which life
of an id they reach.

Pause, resume and run now change what they are for and nothing else. An edit of the schedule plans
anew, but for a slot that runs, is tried again or was asked for; its new slot is the schedule's
first, or an earlier one.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from blackboard.model import NEVER, Item, Lock, QueuedRun, State, whole_milliseconds
from blackboard.rules.next_run import phase
from blackboard.schedule.schedule import Every, Once, next_due
from blackboard.simulator.changes import Change
from blackboard.simulator.oracles.transitions import Difference, same
from blackboard.simulator.violation import Violation
from blackboard.spec import RunSettings
from blackboard.table import Delete

MILLISECOND = timedelta(milliseconds=1)
PLAN = "slot planned attempt once"
OUTCOME = "runs failures outcome result error result_fence start stop fence born type"
BOUND = {"edit", "pause", "resume", "run_now", "unlock", "cancel", "remove"}
"""Requests that are about the item that they read first."""


class Plans:
    """Judges every change that a person makes."""

    def __init__(self, settings_of: Callable[[Item], RunSettings]) -> None:
        self._settings_of = settings_of

    def __call__(self, change: Change) -> None:
        before, after, sender = change.before, change.shadow.item, change.sender
        if not sender.is_person or after is None or not change.of(Item):
            return
        if sender.verb in BOUND and before is not None and sender.born not in {None, before.born}:
            what = f"{sender.verb} of a life born at {sender.born} met one born at {before.born}"
            raise Violation("RETRY", what, item=change.id)
        for kind, column, should, is_now in self._differences(change, before, after):
            if should != is_now:
                what = f"{sender.verb}: {column} should be {should}, and is {is_now}"
                raise Violation(kind, what, item=change.id)

    def _differences(
        self, change: Change, before: Item | None, after: Item
    ) -> Iterator[Difference]:
        if any(isinstance(one.op, Delete) for one in change.of(Lock)):
            return
        if before is None or before.state is State.REMOVED:
            if change.sender.verb == "add":
                yield from self._added(change, after)
            return
        match change.sender.verb:
            case "pause":
                yield from same(before, after, f"{PLAN} ready requests {OUTCOME}")
            case "resume":
                yield from same(before, after, f"{PLAN} requests {OUTCOME}")
                yield from _no_later(after.ready, max(before.ready, change.latest))
                yield from _no_earlier(after.ready, before.ready)
            case "run_now":
                yield from same(before, after, f"{OUTCOME} spec")
                yield from _asked(change, before, after)
            case "edit":
                yield from same(before, after, OUTCOME)
                yield from self._edited(change, before, after)

    def _added(self, change: Change, after: Item) -> Iterator[Difference]:
        schedule = self._settings_of(after).schedule
        if isinstance(schedule, Once):
            yield "SLOT", "slot", whole_milliseconds(schedule.moment), after.slot
        else:
            yield from _no_later(after.slot, change.latest)
        yield "SLOT", "planned", after.slot, after.planned
        yield "ATTEMPTS", "attempt", 1, after.attempt

    def _edited(self, change: Change, before: Item, after: Item) -> Iterator[Difference]:
        """A later slot than the new schedule's first one is one that was jumped over."""
        settings = self._settings_of(after)
        queue = before.requests
        asked_for = before.slot != before.planned and before.state is not State.DONE
        if before.running:
            yield from same(before, after, "slot ready attempt state once requests")
        elif asked_for:
            yield from same(before, after, "ready attempt state once requests")
            yield from _one_of(after.slot, before.slot, before.slot - MILLISECOND)
        elif before.attempt > 1 and before.state is not State.DONE:
            yield from same(before, after, f"{PLAN} ready state requests")
        elif queue:
            if (before.slot, before.ready) != (after.slot, after.ready):
                yield from _one_of(after.slot, queue[0].slot, queue[0].slot - MILLISECOND)
                yield "RUN NOW LOST", "requests", queue[1:], after.requests
        elif (after.slot, after.ready) != (before.slot, before.ready):
            yield "ATTEMPTS", "attempt", 1, after.attempt
            yield "SLOT", "planned", after.slot, after.planned
            yield from self._anew(change, after, settings)
        if settings.schedule is not None and not before.running and after.state is State.DONE:
            yield from self._has_no_more(change, after, settings)

    def _anew(self, change: Change, after: Item, settings: RunSettings) -> Iterator[Difference]:
        schedule, latest = settings.schedule, change.latest
        if schedule is None or after.state is State.DONE:
            return
        if isinstance(schedule, Once):
            yield "SLOT", "slot", whole_milliseconds(schedule.moment), after.slot
            return
        if isinstance(schedule, Every):
            following = next_due(schedule, after.start) if after.start else latest
        else:
            following = next_due(schedule, max(latest, after.start or latest))
        if following is None:
            return
        jitter = settings.jitter * phase(after.id)
        is_first = not isinstance(schedule, Every) or after.start is None
        yield from _no_later(after.slot, following)
        yield from _no_later(after.ready, whole_milliseconds(after.slot + jitter * is_first))

    def _has_no_more(
        self, change: Change, after: Item, settings: RunSettings
    ) -> Iterator[Difference]:
        schedule = settings.schedule
        if isinstance(schedule, Every) or (
            schedule is not None and next_due(schedule, change.latest) is not None
        ):
            yield "SERVED", "state", State.ACTIVE, after.state


def _asked(change: Change, before: Item, after: Item) -> Iterator[Difference]:
    """In hand at once; or the last in line, behind what runs, is tried again or was asked for."""
    old, new = before.requests, after.requests
    is_retry = before.waits and before.attempt > 1
    in_hand = before.running or is_retry or (before.waits and before.slot != before.planned)
    if in_hand or old:
        yield from same(before, after, f"{PLAN} state")
        yield from _no_later(after.ready, max(before.ready, change.latest))
        yield "RUN NOW LOST", "requests", old, new[: len(old)]
        yield from _in_line(before, old, new)
        return
    done = before.state is State.DONE
    yield "SLOT", "planned", NEVER if done else before.planned, after.planned
    yield "ATTEMPTS", "attempt", 1, after.attempt
    yield from _no_later(after.ready, change.latest)
    yield from _one_of(after.slot, after.ready, after.ready - MILLISECOND)


def _in_line(
    before: Item, old: tuple[QueuedRun, ...], new: tuple[QueuedRun, ...]
) -> Iterator[Difference]:
    """One more at the end; or none, where one run is for both: no params, and not started."""
    if len(new) == len(old):
        last = old[-1].once if old else before.once
        yield "RUN NOW LOST", "params of the last in line", "", last
        yield "RUN NOW LOST", "running", False, before.running and not old
    else:
        yield "RUN NOW LOST", "requests", len(old) + 1, len(new)


def _no_later(moment: datetime, latest: datetime) -> Iterator[Difference]:
    if moment > latest:
        yield "SERVED", "it", f"{latest} at the latest", moment


def _no_earlier(moment: datetime, earliest: datetime) -> Iterator[Difference]:
    if moment < earliest:
        yield "SLOT", "it", f"{earliest} at the earliest", moment


def _one_of(moment: datetime, *allowed: datetime) -> Iterator[Difference]:
    if moment not in allowed:
        yield "SLOT", "slot", allowed[0], moment
