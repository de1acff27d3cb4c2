"""What follows when a lock is made, overridden or freed: SERVED, SLOT, ATTEMPTS, PARAMS.

The table of "Release" in docs/rows.md is computed here again, without `rules/`: from the item
before, the row of its run, and the schedule. A slot later than expected means that one was skipped,
and its run never starts. SLOT also: a run starts at a slot of its schedule, and at none that lies
before the edit by which it has this schedule. CLOSED: none starts by its schedule in a time without
runs.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from blackboard.model import (
    NEVER,
    Item,
    Lock,
    Outcome,
    QueuedRun,
    Run,
    State,
    Token,
    replace,
    whole_milliseconds,
)
from blackboard.rules.next_run import MILLISECOND, is_ahead, is_exhausted, phase, serves, slot_of
from blackboard.schedule.schedule import (
    Every,
    Once,
    Schedule,
    due_between,
    next_due,
    opens,
    without_limits,
)
from blackboard.simulator.changes import AppliedChange
from blackboard.spec import RunSettings
from blackboard.table import Delete, Insert, Replace

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
TAKEOVERS = 3
"""Attempts that may be overridden, where retries allow fewer."""
DECIDED_WITHIN = timedelta(minutes=1)
"""The longest time from a worker's decision to its write."""
FAILING = {Outcome.FAILED, Outcome.TIMEOUT, Outcome.ABANDONED}
Difference = tuple[str, str, Any, Any]
"""A kind of violation; a column; the expected value, and the actual one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The expected plan after a run. `ready` is the earliest moment, `latest` the latest."""

    slot: datetime
    ready: datetime
    latest: datetime
    planned: datetime
    attempt: int
    once: str = ""
    queue: tuple[QueuedRun, ...] = ()
    done: bool = False


class Transitions:
    """Checks every batch that writes a lock, and every slot that is passed over."""

    def __init__(
        self,
        settings_of: Callable[[Item], RunSettings],
        was_cut_short: Callable[[Item], bool],
        shared: Container[str],
    ) -> None:
        """`shared` are the ids of all items of shared work."""
        self._settings_of = settings_of
        self._was_cut_short = was_cut_short
        self._shared = shared

    def __call__(self, change: AppliedChange) -> None:
        before, after = change.before, change.shadow.item
        if before is None or after is None or after.state is State.REMOVED:
            return
        check_equal(change, self._differences(change, before, after))

    def _differences(
        self, change: AppliedChange, before: Item, after: Item
    ) -> Iterator[Difference]:
        locks = change.of(Lock)
        for touch in locks:
            match touch.op, touch.old, touch.new:
                case Insert(), _, Lock() as lock:
                    yield from self._claimed(before, after, lock)
                case Replace(), Lock() as old, Lock() as lock:
                    yield from self._overridden(before, after, old, lock)
                case Delete(), Lock() as lock, _:
                    yield from self._freed(change, before, after, lock)
        if not locks and not change.sender.is_person and change.of(Token):
            yield from self._passed_over(change, before, after)

    # ---- claims

    def _claimed(self, before: Item, after: Item, lock: Lock) -> Iterator[Difference]:
        yield from same(before, after, "slot ready planned attempt once runs failures")
        yield from _of_lock(before, after, lock, attempt=before.attempt)
        yield from self._lease(before, lock)

    def _overridden(self, before: Item, after: Item, old: Lock, lock: Lock) -> Iterator[Difference]:
        yield from same(before, after, "slot ready planned once")
        yield from _of_lock(before, after, lock, attempt=old.attempt + 1)
        yield from self._lease(before, lock)
        most = max(self._settings_of(before).retries, TAKEOVERS)
        if old.attempt > most:
            yield "ATTEMPTS", "attempt", f"{most} at the most, to be taken over", old.attempt
        for column in ("runs", "failures"):
            yield "ATTEMPTS", column, getattr(before, column) + 1, getattr(after, column)

    def _lease(self, item: Item, lock: Lock) -> Iterator[Difference]:
        lease = self._settings_of(item).stale_after
        if isinstance(lease, timedelta):
            yield "LEASE", "stale_after", lease.total_seconds(), lock.stale_after

    # ---- ends

    def _freed(
        self, change: AppliedChange, before: Item, after: Item, lock: Lock
    ) -> Iterator[Difference]:
        run = change.run_under(lock)
        if run is None:
            return  # a lock without an item, or one for other invariants
        yield from _of_run(before, lock, run)
        verb, settings = change.sender.verb, self._settings_of(before)
        if run.outcome is Outcome.ABANDONED and not verb and before.state is State.ACTIVE:
            most = max(settings.retries, TAKEOVERS)
            if lock.attempt <= most:
                yield "ATTEMPTS", "attempt", f"above {most}, to be given up", lock.attempt
        is_held = change.id in self._shared
        plan = expected(before, run, settings, verb=verb, is_held=is_held)
        yield from _plan_of(plan, after, before.state)
        yield "ATTEMPTS", "runs", before.runs + 1, after.runs
        if verb != "unlock":
            failures = before.failures + (run.outcome in FAILING)
            is_ok = run.outcome is Outcome.OK
            yield "ATTEMPTS", "failures", 0 if is_ok else failures, after.failures
        yield from _result(before, after, run)

    def _passed_over(
        self, change: AppliedChange, before: Item, after: Item
    ) -> Iterator[Difference]:
        settings = self._settings_of(before)
        if (
            settings.schedule is None
            or before.requests
            or is_ahead(before.ready, now=change.batch.latest)
        ):
            return
        if was_closed(settings.schedule, change) and not is_dropped(settings):
            if self._is_left_out(before, settings.schedule):
                yield "SLOT", "slot", next_due(settings.schedule, before.slot), after.slot
                return
            yield from same(before, after, "slot planned attempt runs failures")
            end = opens(settings.schedule, change.batch.latest) or change.batch.latest
            latest = _ready(before.id, end, settings)
            if after.ready > latest:
                yield "SERVED", "ready", f"{latest} at the latest", after.ready
            return
        following = next_due(settings.schedule, change.batch.latest)
        if following is None:
            return
        latest = _ready(before.id, following, settings)
        if after.slot > following or after.ready > latest:
            yield "SERVED", "slot", f"{following} at the latest", after.slot
        if after.slot <= before.slot:
            yield "SLOT", "slot", f"after {before.slot}", after.slot
        yield "ATTEMPTS", "attempt", 1, after.attempt
        yield from same(before, after, "runs failures")

    def _is_left_out(self, item: Item, schedule: Schedule) -> bool:
        """Whether the slot of an item lies in a window, which an edit has given to its schedule."""
        by_clock = not isinstance(schedule, Every | Once)
        is_closed = by_clock and opens(schedule, item.slot) != item.slot
        return is_closed and item.slot != item.first and not self._was_cut_short(item)


class CutShort:
    """SLOT: an item is `put_back` while it waits for a run that was cut short. Keeps the slot of
    each such run from the batch that put it back until its item is claimed. It is called after the
    invariants that ask `holds` about the item before the change.
    """

    def __init__(self, shared: Container[str]) -> None:
        self._shared = shared
        self._slots: dict[str, datetime] = {}

    def __call__(self, change: AppliedChange) -> None:
        before, after, verb = change.before, change.shadow.item, change.sender.verb
        if before is not None and change.frees_lock:
            is_held = change.id in self._shared
            ended = (run.outcome for run in change.recorded)
            if any(is_cut_short(outcome, verb=verb, is_held=is_held) for outcome in ended):
                self._slots[change.id] = before.slot
        if after is None:
            return
        should = self.holds(after)
        if not should:
            self._slots.pop(change.id, None)
        if should != after.put_back:
            raise change.violation("SLOT", f"put_back should be {should}, and is {after.put_back}")

    def holds(self, item: Item) -> bool:
        """Whether an item waits for a run that was cut short."""
        slot = self._slots.get(item.id)
        waits = not item.running and item.state not in {State.DONE, State.REMOVED}
        return slot is not None and waits and serves(item.slot, slot)


def is_cut_short(outcome: Outcome, *, verb: str, is_held: bool) -> bool:
    """Whether a run whose lock was deleted is due again at once: its worker released it as
    cancelled, or a person unlocked it, or cancelled a partition or an election (`is_held`).
    """
    return verb == "unlock" or (outcome is Outcome.CANCELLED and (is_held or not verb))


def expected(item: Item, run: Run, settings: RunSettings, *, verb: str, is_held: bool) -> Expected:
    """The expected plan after a run, as the history has it. `verb` is that of a person's request;
    empty: a worker released the lock. `is_held`: of a partition or an election.
    """
    queue, now, attempt = item.requests, run.stop, item.attempt
    if settings.endless and not verb and run.outcome is not Outcome.ABANDONED:
        attempt = 1 if run.stop - run.start >= MINUTE else attempt  # its pump has begun well
    same = Expected(
        slot=item.slot,
        ready=now,
        latest=now,
        planned=item.planned,
        attempt=attempt,
        once=item.once,
        queue=queue,
    )
    if is_cut_short(run.outcome, verb=verb, is_held=is_held):
        return same
    if run.outcome in {Outcome.FAILED, Outcome.TIMEOUT} and attempt <= settings.retries:
        most = max(settings.backoff, HOUR)
        wait = min(settings.backoff * 2 ** min(attempt - 1, 20), most)
        return replace(same, latest=now + wait, attempt=attempt + 1)
    is_taken_away = run.outcome is Outcome.ABANDONED and item.state is State.PAUSED
    if is_taken_away and item.attempt <= max(settings.retries, TAKEOVERS):
        return replace(same, attempt=item.attempt + 1)
    planned = next_slot(item, run, settings)
    if queue:
        return taken_in_hand(same, planned or NEVER)
    if planned is None:
        return replace(same, attempt=1, once="", done=True)
    ready = _ready(item.id, planned, settings)
    return Expected(slot=planned, ready=ready, latest=ready, planned=planned, attempt=1)


def taken_in_hand(same: Expected, planned: datetime) -> Expected:
    """The expected plan with the first queued run as the next, at no slot of the schedule."""
    first, *others = same.queue
    slot = first.slot - MILLISECOND if first.slot == planned else first.slot
    return replace(
        same, slot=slot, planned=planned, attempt=1, once=first.once, queue=tuple(others)
    )


def next_slot(item: Item, run: Run, settings: RunSettings) -> datetime | None:
    """The first slot of the schedule that this run does not cover; none after its last run."""
    schedule = settings.schedule
    if schedule is not None and is_exhausted(schedule, item.runs + 1):
        return None
    is_planned = item.slot == item.planned  # else by a person; or the schedule was edited since
    match schedule:
        case None:
            is_left = not is_planned and item.planned != NEVER
            has_run = item.planned <= run.start and not _stays(item, settings)
            return item.planned if is_left and not has_run else None
        case Every():
            following = next_due(schedule, run.start)
            is_first = not is_planned and item.planned == item.first  # no other is kept
            is_ahead_of_it = item.planned > (following or run.start)
            return item.planned if is_first and is_ahead_of_it else following
        case _ if not is_planned:
            return _slot_after_request(item, run, settings, schedule)
    covered, passed = _covered(item, run, settings), run.stop - _jitter(item, settings)
    following = next_due(schedule, covered)
    if settings.missed == "all" and following is not None and following <= passed:
        return due_between(schedule, covered, passed, settings.missed_limit)[0]
    return following


def _slot_after_request(
    item: Item, run: Run, settings: RunSettings, schedule: Schedule
) -> datetime | None:
    """The same after a run at no planned slot, by a schedule that follows the clock."""
    if item.planned == NEVER:
        return next_due(schedule, run.stop)
    if item.planned > run.stop and item.planned != item.first:
        # If the clock was corrected, those before the planned slot may have had their runs.
        is_own = (item.schedule, item.timezone) == (settings.text, settings.timezone)
        latest = next_due(schedule, run.stop + MINUTE) if is_own else None
        is_corrected = latest is not None and item.planned <= latest
        return item.planned if is_corrected else next_due(schedule, run.stop)
    covered = _covered(item, run, settings)
    if item.planned > covered or _stays(item, settings):
        return item.planned
    return next_due(schedule, covered)


def _stays(item: Item, settings: RunSettings) -> bool:
    """Whether a planned slot that has passed during another run still has its own."""
    return settings.missed == "all" or (settings.missed == "one" and item.once != "")


def _covered(item: Item, run: Run, settings: RunSettings) -> datetime:
    """The moment up to which a run covers the slots of its schedule."""
    match settings.missed:
        case "one":
            return max(item.slot, run.start - _jitter(item, settings))
        case "none":
            return max(item.slot, run.stop - _jitter(item, settings))
        case _:
            return item.slot


def _jitter(item: Item, settings: RunSettings) -> timedelta:
    """How long after its slots an item is ready."""
    return settings.jitter * phase(item.id)


def _ready(item_id: str, slot: datetime, settings: RunSettings) -> datetime:
    if isinstance(settings.schedule, Every):
        return slot
    ready = whole_milliseconds(slot + settings.jitter * phase(item_id))
    return ready if opens(settings.schedule, ready) == ready else slot


def is_closed(schedule: Schedule | None, change: AppliedChange) -> bool:
    """Whether a worker both decides and writes in a time without runs."""
    return all(opens(schedule, moment) != moment for moment in _moments(change))


def was_closed(schedule: Schedule | None, change: AppliedChange) -> bool:
    """Whether a worker decides or writes in a time without runs."""
    return any(opens(schedule, moment) != moment for moment in _moments(change))


def _moments(change: AppliedChange) -> tuple[datetime, datetime]:
    return change.batch.latest, change.batch.latest - DECIDED_WITHIN


def is_dropped(settings: RunSettings) -> bool:
    """Whether a slot that may not be run now is left out; else it waits."""
    return settings.missed == "none" and not isinstance(settings.schedule, Every)


def _times(item: Item) -> tuple[str, str]:
    """The schedule of an item without its limits, and its time zone."""
    return without_limits(item.schedule), item.timezone


def _plan_of(plan: Expected, after: Item, state: State) -> Iterator[Difference]:
    if plan.done or after.state is State.DONE:
        yield "SERVED", "state", State.DONE if plan.done else state, after.state
    kind = "SERVED" if after.slot > plan.slot else "SLOT"
    yield kind, "slot", plan.slot, after.slot
    if after.ready > plan.latest + MILLISECOND:
        yield "SERVED", "ready", f"{plan.latest} at the latest", after.ready
    if after.ready < plan.ready:
        yield "SLOT", "ready", f"{plan.ready} at the earliest", after.ready
    yield (
        "SERVED" if after.planned > plan.planned else "SLOT",
        "planned",
        plan.planned,
        after.planned,
    )
    yield "ATTEMPTS", "attempt", plan.attempt, after.attempt
    yield "PARAMS", "once", plan.once, after.once
    yield "RUN NOW LOST", "requests", plan.queue, after.requests


def check_equal(change: AppliedChange, differences: Iterator[Difference], prefix: str = "") -> None:
    """Raises Violation, which begins with `prefix`, for a value that is not the expected one."""
    for kind, column, should, is_now in differences:
        if should != is_now:
            raise change.violation(kind, f"{prefix}{column} should be {should}, and is {is_now}")


def same(before: Item, after: Item, columns: str) -> Iterator[Difference]:
    for name in columns.split():
        kind = _KINDS.get(name, "ATTEMPTS")
        yield kind, name, getattr(before, name), getattr(after, name)


_KINDS = {"slot": "SLOT", "ready": "SLOT", "planned": "SLOT", "once": "PARAMS"}


def _of_lock(before: Item, after: Item, lock: Lock, *, attempt: int) -> Iterator[Difference]:
    yield "ATTEMPTS", "attempt of the lock", attempt, lock.attempt
    yield "ATTEMPTS", "attempt", attempt, after.attempt
    yield "SLOT", "slot of the lock", before.slot, lock.slot
    yield "LOCK", "born of the lock", before.born, lock.born
    yield "LOCK", "type of the lock", before.type, lock.type
    yield "LOCK", "start", lock.since, after.start
    yield "LOCK", "owner", lock.owner, after.owner


def _of_run(before: Item, lock: Lock, run: Run) -> Iterator[Difference]:
    yield "HISTORY", "attempt of the run", lock.attempt, run.attempt
    yield "HISTORY", "slot of the run", before.slot, run.slot
    yield "HISTORY", "start of the run", lock.since, run.start
    yield "HISTORY", "worker of the run", lock.owner, run.worker


def _result(before: Item, after: Item, run: Run) -> Iterator[Difference]:
    good = run.outcome is Outcome.OK
    yield "HISTORY", "outcome", run.outcome, after.outcome
    yield "HISTORY", "error", run.error, after.error
    yield "HISTORY", "result", run.result if good else before.result, after.result
    fence = run.fence if good else before.result_fence
    yield "HISTORY", "result_fence", fence, after.result_fence


class ClaimedSlots:
    """SLOT: a claim is for a slot of the item's schedule since its last edit, for the first slot of
    the item, or for one that was claimed before (a retry, or a run that was cut short).
    CLOSED: in a time without runs only retries and runs that a person asked for are claimed.
    """

    def __init__(self, settings_of: Callable[[Item], RunSettings]) -> None:
        self._settings_of = settings_of
        self._first: dict[str, datetime] = {}
        self._claimed: defaultdict[str, set[datetime]] = defaultdict(set)
        self._counted: defaultdict[str, set[datetime]] = defaultdict(set)
        """Slots of an `every`, counted from each start. A slot stays planned while requested runs
        start, also where an earlier one is counted from these, because the clock went back.
        """
        self._edited: dict[str, datetime] = {}
        """The moment of the edit that gave an item its present schedule."""

    def __call__(self, change: AppliedChange) -> None:
        before, now = change.before, change.shadow.item
        if now is not None and now.start is None:
            self._first[now.id] = now.planned
        if before is not None and now is not None and change.sender.verb == "edit":
            if _times(before) != _times(now):
                self._edited[now.id] = now.applied[0].at
            else:  # a slot that has come stays, also where its windows are gone
                self._count(before)
        elif change.sender.verb in {"add", "remove"}:
            self._edited.pop(change.id, None)
        if before is None or change.claimed is None:
            return
        schedule = self._settings_of(before).schedule
        is_scheduled = before.slot == before.planned
        if is_scheduled and before.attempt == 1 and is_closed(schedule, change):
            raise change.violation("CLOSED", f"claimed at {change.batch.latest}")
        self._count(before)
        claimed = self._claimed[before.id]
        is_old = before.slot in claimed or before.slot == self._first[before.id]
        claimed.add(before.slot)
        if not is_old and is_scheduled and not self._has(before):
            problem = f"{before.slot} is not a slot of {before.schedule or 'nothing'}"
            raise change.violation("SLOT", problem)
        edited = self._edited.get(before.id, before.slot)
        by_clock = not isinstance(schedule, Every | Once | None)
        if by_clock and not is_old and is_scheduled and before.slot < edited:
            problem = f"{before.slot} lies before the edit of its schedule, at {edited}"
            raise change.violation("SLOT", problem)

    def _count(self, item: Item) -> None:
        """Notes the slot of an `every` after the item's last start."""
        schedule = self._settings_of(item).schedule
        if isinstance(schedule, Every) and item.start is not None:
            self._counted[item.id].add(next_due(schedule, item.start) or item.start)

    def _has(self, item: Item) -> bool:
        """Whether the schedule of the item has its slot."""
        match self._settings_of(item).schedule:
            case None:
                return True  # what waits when its schedule is taken away goes on waiting
            case Once() as once:
                return item.slot == slot_of(once)
            case Every():
                return item.slot in self._counted[item.id]
            case schedule:
                return item.slot == next_due(schedule, item.slot - MILLISECOND)
