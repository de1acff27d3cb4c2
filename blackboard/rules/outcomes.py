"""What follows from the end of a run: the item's next token, or none.

    outcome                              next token
    -----------------------------------  ---------------------------------------------------------
    cancelled by its worker's shutdown   same slot, at once, same attempt
    failed or timeout, retries left      same slot, after a backoff, next attempt
    abandoned, takeovers left            (the overrider runs it: no token)
    anything else, and requests wait     the first request's slot, at once, attempt 1
    anything else                        the schedule's next slot, attempt 1; none: the item is done

A slot keeps its identity over retries and shutdowns. What the schedule says next depends on what
is wanted of slots that nobody could serve:

    one    a run covers every slot up to its own start; if more passed while it ran, one more run
    all    each slot has its run, the last `missed_limit` of them
    none   slots that have passed are forgotten

`Every` is measured from the last start, as in elmcity, whoever asked for that start: so nothing
of it is ever missed. A run that an operator asked for leaves the other schedules as they were: it
covers the slots up to its start as any other does, but for one that has params of its own.

A late finisher (its lock was overridden, unlocked or cancelled meanwhile) may still have something
to say. Its result goes into the item, unless the type is fenced, the item is another one by now, or
has the result of a newer run: `result_fence` only rises. The item's outcome and error stay those of
its last run; its own row in the history says superseded.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from blackboard.model import NEVER, Claim, Item, Outcome, State, whole_milliseconds
from blackboard.protocol.keys import phase
from blackboard.rules.clocks import no_later
from blackboard.rules.requests import (
    is_asked_for,
    requests_of,
    requests_text,
    slot_asked_for,
)
from blackboard.schedule.schedule import Every, Once, due_between, next_due
from blackboard.spec import RunSettings

FAILING = frozenset({Outcome.FAILED, Outcome.TIMEOUT, Outcome.ABANDONED})
LONGEST_BACKOFF = timedelta(hours=1)


PLANNED = ("state", "slot", "ready", "planned", "attempt", "failures", "once", "requests")
"""The columns of an item that a plan decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What becomes of an item: its columns, and whether a token waits for it."""

    state: State
    slot: datetime
    ready: datetime
    planned: datetime
    attempt: int
    failures: int
    once: str = ""
    requests: str = ""

    @property
    def waits(self) -> bool:
        return self.state is State.ACTIVE


def after_run(
    claim: Claim,
    outcome: Outcome,
    *,
    settings: RunSettings,
    now: datetime,
    fraction: float,
    requeue: bool = False,
) -> Plan:
    """The plan after a run of `claim` ended with `outcome` at `now`. `claim` carries what the
    item said when it was last read; `fraction`, drawn in [0, 1), is the jitter of a backoff;
    `requeue` marks a run that its worker's shutdown cut short.
    """
    failures = 0 if outcome is Outcome.OK else claim.failures + (outcome in FAILING)
    same = Plan(
        state=claim.state,
        slot=claim.slot,
        ready=now,
        planned=claim.planned,
        attempt=claim.attempt,
        failures=failures,
        once=claim.once,
        requests=claim.requests,
    )
    if requeue and outcome is Outcome.CANCELLED:
        return same
    retry = outcome in {Outcome.FAILED, Outcome.TIMEOUT} and claim.attempt <= settings.retries
    if retry:
        wait = backoff(claim.attempt, base=settings.backoff, fraction=fraction)
        return replace(same, ready=whole_milliseconds(now + wait), attempt=claim.attempt + 1)
    fresh = replace(same, attempt=1, once="")
    planned = planned_after(claim, settings=settings, now=now)
    if claim.requests:
        return _next_request(fresh, planned, now=now)
    if planned is None:
        return replace(fresh, state=State.DONE)
    ready = ready_for(claim.id, planned, settings=settings, first=False)
    return replace(fresh, slot=planned, ready=ready, planned=planned)


def _next_request(plan: Plan, planned: datetime | None, *, now: datetime) -> Plan:
    """The plan with the first of its requests in hand, and the schedule's next slot behind it."""
    first, *others = requests_of(plan)
    beside = planned or NEVER
    return replace(
        plan,
        slot=slot_asked_for(first.slot, beside=beside),
        ready=now,
        planned=beside,
        once=first.once,
        requests=requests_text(others),
    )


def planned_after(claim: Claim, *, settings: RunSettings, now: datetime) -> datetime | None:
    """The schedule's next slot after a run that started at `claim.start`. A start or slot in the
    future, where a clock was wrong, counts as now.
    """
    schedule = settings.schedule
    if schedule is None:
        return None
    slot, start = no_later(claim.slot, now=now), no_later(claim.start, now=now)
    if isinstance(schedule, Every):
        return next_due(schedule, start)
    if settings.missed == "none":
        passed = max(slot, now)
    elif settings.missed == "all":
        passed = slot
    else:
        passed = max(slot, start)
    if is_asked_for(claim):
        stays = settings.missed == "all" or (settings.missed == "one" and bool(claim.once))
        if claim.planned > passed or (stays and claim.planned != NEVER):
            return claim.planned
        return next_due(schedule, passed)
    following = next_due(schedule, passed)
    if settings.missed == "all" and following is not None and following <= now:
        return due_between(schedule, passed, now, settings.missed_limit)[0]
    return following


def first_plan(
    item_id: str, *, settings: RunSettings, first: datetime | None, now: datetime
) -> Plan:
    """The plan of a new item: at once, or at `first`; an `at` at its time."""
    slot = whole_milliseconds(first or now)
    if first is None and isinstance(settings.schedule, Once):
        slot = slot_of(settings.schedule)
    return Plan(
        state=State.ACTIVE,
        slot=slot,
        ready=ready_for(item_id, slot, settings=settings, first=True),
        planned=slot,
        attempt=1,
        failures=0,
    )


def passed_plan(item: Item, *, settings: RunSettings, now: datetime) -> Plan:
    """The plan of a waiting item whose slots up to `now` are passed over."""
    schedule = settings.schedule
    following = next_due(schedule, now) if schedule else None
    return _plan_at(item, following, settings=settings, now=now)


def edited_plan(item: Item, *, settings: RunSettings, now: datetime) -> Plan:
    """The plan of an item whose schedule was changed at `now`: an `at` at its time, an `every`
    from the last start, the others from now, or from the last start if that is later: the edit may
    have waited for its store. One that has run is done with an `at` in the past, also while it is
    paused; one that was done and has a slot again is active, or paused if it was. Without a
    schedule that is known here, what waits goes on waiting: its worker may know one.
    """
    schedule = settings.schedule
    planned: datetime | None
    if isinstance(schedule, Once):
        slot = slot_of(schedule)
        planned = None if item.start and slot <= now else slot
    elif isinstance(schedule, Every):
        planned = next_due(schedule, item.start) if item.start else now
    elif schedule is None and item.state is State.DONE:
        planned = None
    elif schedule is None:
        planned = item.planned if item.start else now
    else:
        planned = next_due(schedule, max(now, item.start or now))
    return _plan_at(item, planned, settings=settings, now=now)


def _plan_at(item: Item, planned: datetime | None, *, settings: RunSettings, now: datetime) -> Plan:
    """The item waits for the first of its requests, or its slot `planned`; or it is done."""
    slot = planned or item.slot
    state = State.PAUSED if item.is_paused else State.ACTIVE
    plan = Plan(
        state=state if planned or item.requests else State.DONE,
        slot=slot,
        ready=ready_for(item.id, slot, settings=settings, first=item.start is None),
        planned=slot,
        attempt=1,
        failures=item.failures,
        requests=item.requests,
    )
    return _next_request(plan, planned, now=now) if item.requests else plan


def unlocked_plan(item: Item, *, now: datetime) -> Plan:
    """The plan of an item whose lock an operator takes away: the same run, due at once."""
    return Plan(
        state=item.state,
        slot=item.slot,
        ready=now,
        planned=item.planned,
        attempt=item.attempt,
        failures=item.failures,
        once=item.once,
        requests=item.requests,
    )


def slot_of(schedule: Once) -> datetime:
    """The one slot there is."""
    return whole_milliseconds(schedule.moment.astimezone(UTC))


def ready_for(item_id: str, slot: datetime, *, settings: RunSettings, first: bool) -> datetime:
    """When a slot's token may be taken. The item's own part of the jitter is always the same; an
    `Every` keeps the phase of its first run by itself.
    """
    if isinstance(settings.schedule, Every) and not first:
        return slot
    return whole_milliseconds(slot + settings.jitter * phase(item_id))


def backoff(attempt: int, *, base: timedelta, fraction: float) -> timedelta:
    """Full jitter: anything up to base, 2 base, 4 base ... an hour, or base if that is longer."""
    doubled = base.total_seconds() * 2 ** min(attempt - 1, 30)
    longest = max(base, LONGEST_BACKOFF).total_seconds()
    return timedelta(seconds=min(doubled, longest)) * fraction


class LateMove(StrEnum):
    """What is written of a run that finished after its lock was taken away."""

    DROP = "drop"
    RECORD = "record"
    MERGE = "merge"


def late_move(item: Item | None, *, fence: int, outcome: Outcome, fenced: bool) -> LateMove:
    """Nothing, when the item is gone or born since; its row in the history; or that and its
    result. A run that failed, or was stopped for its lost lock, has no result to merge, and an
    older result does not go over a newer one.
    """
    if item is None or item.state is State.REMOVED or item.born >= fence:
        return LateMove.DROP
    if fenced or outcome is not Outcome.OK or item.result_fence > fence:
        return LateMove.RECORD
    return LateMove.MERGE
