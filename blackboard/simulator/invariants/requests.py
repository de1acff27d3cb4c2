"""Invariants of people's requests: what they change stays, happens once, and in their order.

SERVED, SLOT, ATTEMPTS, PARAMS: pause, resume and run now change what they are for and nothing else.
An edit of the schedule plans anew, but for a slot that runs, is retried or was asked for; the new
slot is the first one of the schedule, or an earlier one. RETRY: a request changes only the life of
an id that it read. TWICE, PROMISE, RUN NOW LOST: no request is applied twice, undone or lost.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta

from blackboard.model import LONG_AGO, NEVER, Item, Lock, QueuedRun, State, whole_milliseconds
from blackboard.rules.applied import REMEMBERED
from blackboard.rules.next_run import is_exhausted, phase, serves, slot_of
from blackboard.schedule.schedule import Every, Once, next_due, opens
from blackboard.simulator.changes import AppliedChange
from blackboard.simulator.invariants import Violation
from blackboard.simulator.invariants.transitions import Difference, check_equal, same
from blackboard.simulator.scenario import VERBS
from blackboard.spec import RunSettings

MILLISECOND = timedelta(milliseconds=1)
PLAN = "slot planned attempt once"
OUTCOME = "runs failures outcome result error result_fence start stop fence born type"
BOUND = {"edit", "pause", "resume", "run_now", "unlock", "cancel", "remove"}
"""Requests that concern the item that they read first."""


class OperatorChanges:
    """Checks every change by an operator."""

    def __init__(
        self, settings_of: Callable[[Item], RunSettings], was_cut_short: Callable[[Item], bool]
    ) -> None:
        self._settings_of = settings_of
        self._was_cut_short = was_cut_short

    def __call__(self, change: AppliedChange) -> None:
        before, after, sender = change.before, change.shadow.item, change.sender
        if not sender.is_person or after is None or not change.of(Item):
            return
        if sender.verb in BOUND and before is not None and sender.born not in {None, before.born}:
            problem = f"{sender.verb} of a life born at {sender.born} met one born at {before.born}"
            raise change.violation("RETRY", problem)
        check_equal(change, self._differences(change, before, after), f"{sender.verb}: ")

    def _differences(
        self, change: AppliedChange, before: Item | None, after: Item
    ) -> Iterator[Difference]:
        if change.frees_lock:
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
                yield from _no_later(after.ready, max(before.ready, change.batch.latest))
                if after.ready < before.ready:
                    yield "SLOT", "it", f"{before.ready} at the earliest", after.ready
            case "run_now":
                yield from same(before, after, f"{OUTCOME} spec")
                yield from self._asked(change, before, after)
            case "edit":
                yield from same(before, after, OUTCOME)
                yield from self._edited(change, before, after)

    def _added(self, change: AppliedChange, after: Item) -> Iterator[Difference]:
        schedule = self._settings_of(after).schedule
        if isinstance(schedule, Once):
            yield "SLOT", "slot", slot_of(schedule), after.slot
        else:
            following = None
            if after.first is None and schedule is not None and not isinstance(schedule, Every):
                following = next_due(schedule, change.batch.latest)
            elif after.first is None:
                following = opens(schedule, change.batch.latest)
            yield from _no_later(after.slot, following or change.batch.latest)
        yield "SLOT", "planned", after.slot, after.planned
        yield "ATTEMPTS", "attempt", 1, after.attempt

    def _edited(self, change: AppliedChange, before: Item, after: Item) -> Iterator[Difference]:
        """SERVED: a later slot than the first one of the new schedule skips that one."""
        settings = self._settings_of(after)
        queue = before.requests
        is_moved = (before.slot, before.ready) != (after.slot, after.ready)
        asked_for = before.slot != before.planned and before.state is not State.DONE
        if before.running:
            yield from same(before, after, "slot ready attempt state once requests")
        elif before.state is not State.DONE and self._was_cut_short(before):
            yield from _put_back(change, before, after, settings)
        elif asked_for:
            yield from same(before, after, "ready attempt state once requests")
            yield from _one_of(after.slot, before.slot, before.slot - MILLISECOND)
        elif before.state is not State.DONE and before.attempt > 1:
            yield from same(before, after, "slot ready attempt state once requests")
        elif queue:
            if is_moved:
                yield from _takes_first_of(queue, after)
        elif is_moved or _is_unwanted(before, after):
            yield "ATTEMPTS", "attempt", 1, after.attempt
            yield "SLOT", "planned", after.slot, after.planned
            yield from self._anew(change, after, settings)
        if settings.schedule is not None and not before.running and after.state is State.DONE:
            yield from self._has_no_more(change, after, settings)

    def _anew(
        self, change: AppliedChange, after: Item, settings: RunSettings
    ) -> Iterator[Difference]:
        schedule, latest = settings.schedule, change.batch.latest
        if schedule is None or after.state is State.DONE:
            return
        if isinstance(schedule, Once):
            yield "SLOT", "slot", slot_of(schedule), after.slot
            return
        begins = after.start or max(latest, after.first or latest)
        if not isinstance(schedule, Every):
            following = next_due(schedule, max(latest, begins))
        else:
            following = next_due(schedule, begins) if after.start else opens(schedule, begins)
        if following is None:
            return
        jitter = settings.jitter * phase(after.id)
        is_first = not isinstance(schedule, Every) or after.start is None
        yield from _no_later(after.slot, following)
        yield from _no_later(after.ready, whole_milliseconds(after.slot + jitter * is_first))

    def _has_no_more(
        self, change: AppliedChange, after: Item, settings: RunSettings
    ) -> Iterator[Difference]:
        schedule = settings.schedule
        if schedule is None or is_exhausted(schedule, after.runs):
            return
        begin = after.start if isinstance(schedule, Every) else None
        if next_due(schedule, begin or change.batch.latest) is not None:
            yield "SERVED", "state", State.ACTIVE, after.state

    def _asked(self, change: AppliedChange, before: Item, after: Item) -> Iterator[Difference]:
        """A requested run is next, or queued behind one that runs, is retried or was requested."""
        old, new = before.requests, after.requests
        has_params = len(new) > len(old) or after.once != ""
        is_retry = before.waits and (
            before.attempt > 1 or (has_params and self._was_cut_short(before))
        )
        in_hand = before.running or is_retry or (before.waits and before.slot != before.planned)
        if in_hand or old:
            yield from same(before, after, f"{PLAN} state")
            yield from _no_later(after.ready, max(before.ready, change.batch.latest))
            yield "RUN NOW LOST", "requests", old, new[: len(old)]
            yield from _in_line(before, old, new)
            return
        done = before.state is State.DONE
        yield "SLOT", "planned", NEVER if done else before.planned, after.planned
        yield "ATTEMPTS", "attempt", 1, after.attempt
        yield from _no_later(after.ready, change.batch.latest)
        yield from _one_of(after.slot, after.ready, after.ready - MILLISECOND)


def _put_back(
    change: AppliedChange, before: Item, after: Item, settings: RunSettings
) -> Iterator[Difference]:
    """A run that was put back, and waits for the end of a window, waits after an edit for the end
    of those that it is in by the new schedule. Where these have no end, the first request is next,
    or the item is done. The time of the edit is known to a minute.
    """
    schedule, latest = settings.schedule, change.batch.latest
    due = max(before.stop or latest, latest)
    end = opens(schedule, due)
    is_moved = (before.state, before.ready) != (after.state, after.ready)
    if end is None and (is_moved or before.ready > due):
        yield "ATTEMPTS", "attempt", 1, after.attempt
        if before.requests:
            yield from same(before, after, "state")
            yield "PARAMS", "once", before.requests[0].once, after.once
            yield from _takes_first_of(before.requests, after)
        else:
            yield "SERVED", "state", State.DONE, after.state
            yield from same(before, after, "slot requests")
        return
    yield from same(before, after, "attempt state once requests")
    earlier = MILLISECOND * (before.slot != before.planned)
    yield from _one_of(after.slot, before.slot, before.slot - earlier)
    if not _has_another(before, after):
        yield from same(before, after, "ready")
    elif end is not None and (is_moved or before.ready > due):
        jitter = settings.jitter * phase(after.id) * (not isinstance(schedule, Every))
        yield from _no_later(after.ready, whole_milliseconds(end + jitter * (end > due)))
        yield "SLOT", "ready", opens(schedule, after.ready), after.ready
        yield "SLOT", "ready", max(after.ready, before.stop or after.ready), after.ready


def _takes_first_of(queue: Sequence[QueuedRun], after: Item) -> Iterator[Difference]:
    """The first request is in hand, and the others wait behind it."""
    yield from _one_of(after.slot, queue[0].slot, queue[0].slot - MILLISECOND)
    yield "RUN NOW LOST", "requests", queue[1:], after.requests


def _is_unwanted(before: Item, after: Item) -> bool:
    """Whether an item that never ran waits for a slot of its old schedule, which nobody named."""
    return _has_another(before, after) and before.start is None and before.first is None


def _has_another(before: Item, after: Item) -> bool:
    """Whether an edit gave the item another schedule."""
    return (before.schedule, before.timezone) != (after.schedule, after.timezone)


def _in_line(
    before: Item, old: tuple[QueuedRun, ...], new: tuple[QueuedRun, ...]
) -> Iterator[Difference]:
    """One more run is queued; or none, if the last one has no params and has not started."""
    if len(new) == len(old):
        last = old[-1].once if old else before.once
        yield "RUN NOW LOST", "params of the last in line", "", last
        yield "RUN NOW LOST", "running", False, before.running and not old
    else:
        yield "RUN NOW LOST", "requests", len(old) + 1, len(new)


def _no_later(moment: datetime, latest: datetime) -> Iterator[Difference]:
    if moment > latest:
        yield "SERVED", "it", f"{latest} at the latest", moment


def _one_of(moment: datetime, *allowed: datetime) -> Iterator[Difference]:
    if moment not in allowed:
        yield "SLOT", "slot", allowed[0], moment


PEOPLES = ("state", "spec", "paused", "born", "type")
"""Columns that only people change."""


class RequestedRuns:
    """Checks that requested runs stay until they start. Keeps those that have not started."""

    def __init__(self) -> None:
        self._asked: defaultdict[str, list[QueuedRun]] = defaultdict(list)
        """Requested runs that have not started, by item, in the order of their starts."""

    def __call__(self, change: AppliedChange) -> None:
        sender = change.sender
        if sender.verb in VERBS and sender.applied > 1:
            raise change.violation("TWICE", f"one {sender.verb} was applied {sender.applied} times")
        if change.taken is not None:
            self._started(change, change.taken)
        before, after = change.before, change.shadow.item
        if after is None or not change.of(Item):
            return
        if before is not None and not sender.is_person:
            self._kept(before, after)
        self._expected(change, before, after)

    def _kept(self, old: Item, new: Item) -> None:
        for name in PEOPLES:
            done = name == "state" and new.state is State.DONE
            if getattr(old, name) != getattr(new, name) and not done:
                raise Violation("PROMISE", f"a worker changed {name}", item=old.id)
        newest = max((applied.at for applied in new.applied), default=LONG_AGO)
        for applied in old.applied:  # one that plans an item anew adds a name
            if applied not in new.applied and newest - applied.at < REMEMBERED:
                raise Violation("PROMISE", f"a worker dropped the name {applied.name}", item=old.id)

    def _started(self, change: AppliedChange, lock: Lock) -> None:
        asked = self._asked[change.id]
        for number, request in enumerate(asked):
            if serves(lock.slot, request.slot):
                if number:
                    problem = f"the run asked for at {request.slot} started before {number} others"
                    raise change.violation("RUN NOW LOST", problem)
                del asked[0]
                return

    def _expected(self, change: AppliedChange, old: Item | None, new: Item) -> None:
        """Checks that each requested run stays, with its own params, until it starts."""
        if new.state is State.REMOVED or old is None or change.sender.verb == "add":
            self._asked.pop(new.id, None)
            return
        line = _line_of(new)
        if change.sender.verb == "run_now":
            earlier = {request.slot for request in _line_of(old)}
            self._asked[new.id] += [request for request in line if request.slot not in earlier]
        for asked in self._asked[new.id]:
            waiting = next((each for each in line if serves(each.slot, asked.slot)), None)
            if waiting is None:
                raise change.violation("RUN NOW LOST", "it was asked for and never started")
            if waiting.once != asked.once:
                problem = f"asked for with {asked.once!r}, and waits with {waiting.once!r}"
                raise change.violation("PARAMS", problem)


def _line_of(item: Item) -> list[QueuedRun]:
    """The next run, and all that are queued behind it."""
    return [QueuedRun(name="", slot=item.slot, once=item.once), *item.requests]
