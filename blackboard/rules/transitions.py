"""The life of an item: what each event makes of it. Item and event in, item out.

An item is in one of six phases, by its state and by whether it runs:

    waiting           active, with a waiting token
    running           active, with a lock
    running, paused   paused while it ran: its end leaves no token
    paused            neither token nor lock, until it is resumed
    done              no next slot
    done, paused      the same, and paused: not run until it is resumed

A seventh, absent, is an id that was never used or whose item was removed. An event that is not in
the table below for the phase an item is in is refused by IllegalTransition. `TRANSITIONS` is this
table, and this module has one function for each event.

    event         from                   to                      what it does
    ------------  ---------------------  ----------------------  ----------------------------------
    add           absent                 waiting                 a new life of the id: born with the
                                                                 fence the one before left
    copy          absent                 paused, done, paused    the life of another id goes on
                  paused                 paused, done, paused    under this one: a rename. A copy
                  done, paused           paused, done, paused    that is not whole is made again
    claim         waiting                running                 fence + 1
    skip          waiting                waiting, done           its slot was missed: it is not run
    put off       waiting                waiting, done           it is a time without runs: the same
                                                                 slot, when that ends; or the next,
                                                                 if the slot lies in such a time
    override      running                running                 fence + 1, attempt + 1, runs + 1,
                                                                 failures + 1: the same slot again
    save          running                running                 the checkpoint where the next run
                  running, paused        running, paused         goes on, if this one is not ok
    release       running                waiting, done           runs + 1; what is next: see below
                  running, paused        paused, done, paused
    free          as release             as release              the same, and fence + 1: a cancel,
                                                                 or an override that runs nothing
    unlock        running                waiting                 runs + 1, fence + 1: the same run,
                  running, paused        paused                  due at once
    pause         waiting                paused                  what runs may finish
                  running                running, paused
    resume        paused                 waiting                 what came due meanwhile is due now
                  running, paused        running
                  done, paused           done
    ask           waiting, done          waiting                 one more run: in hand at once, or
                  running                running                 behind the run in hand
    reschedule    waiting                waiting, done           a new schedule counts from now, an
                  paused                 paused, done, paused    `every` from the last start; a run
                  done                   waiting, done           that was asked for, runs, is tried
                  done, paused           paused, done, paused    again or was put back keeps its
                  running                running                 slot, and so does a first one that
                  running, paused        running, paused         was named, and what is due by the
                                                                 same times
    repair        all but absent         as reschedule           `doctor` takes back what a wrong
                                                                 clock planned
    remove        all but absent         absent                  fence + 1: a tombstone

A claim is made without reading its item: the token says what is needed of it, and the token that
the claim deletes proves the phase.

The end of a run. The first line that applies:

    outcome                              next token
    -----------------------------------  ---------------------------------------------------------
    cancelled because its worker stops,  same slot, at once, same attempt
    or its lock was lost; of a
    partition or an election, also by
    a person
    failed, its handler asks for a       same slot, at the time asked for, next attempt; unless the
    retry                                schedule's next slot comes first
    failed or timeout, retries left,     same slot, after a backoff, next attempt
    its handler neither asks for one
    nor refuses one
    abandoned, takeovers left            (the overrider runs it: no token); of a paused item: same
                                         slot, next attempt, when it is resumed
    anything else, and requests wait     the first request's slot, at once, attempt 1
    anything else                        the schedule's next slot, attempt 1; none: the item is done

Where a worker releases a pump that went on for its interval, a minute, attempts are counted anew
first: failures of months ago are not in a row with the next one.

The item is `put_back` after the first line, and after an unlock, until it is claimed or planned
anew. A slot keeps its identity over retries and shutdowns. `rules/next_run.py` has the slots.

Runs that are asked for. An item has one run in hand: the one that waits or runs, with its `slot`
and `once`. Requests queue behind it, and the first of them is taken in hand when the run in hand
has ended for good: its retries, its takeovers and its return after a shutdown come first. So a
request outlasts the failure, the loss and the cancelling of any other run.

    the item                                  a request is
    ----------------------------------------  ------------------------------------------------
    waits for its schedule, or is done        in hand at once, before the slot that is planned
    waits for a retry                         behind that retry, which is due at once
    waits for a run that was put back         in hand at once, before that run, whose slot it
                                              covers as any run does; with params: behind that
                                              run, which is due at once
    waits for such a run, and has had         joined to that run, which is due at once, also in
    another schedule since                    a window; with params: behind it
    runs, or waits for another request        behind it, or behind the last in the queue

A request without params joins the last one in line, if that has none either and has not started,
or the retry, or the run that was put back before an edit: then one run is for both.

Checkpoints. What a run has saved stays with the item until a run is ok: a retry, a takeover, a run
that was put back, and the next run by the schedule go on where it was saved. A run with params of
its own begins anew, and so does the one after it, since they do other work.

Late finishers. A run whose lock was overridden, unlocked or cancelled meanwhile may still end. Its
result goes into the item, unless the type is fenced, the item is another one by now, or has the
result of a newer run: `result_fence` only rises. The item's outcome and error stay those of its
last run; the late run's own row in the history says superseded.

Names. Every event that an operator causes carries a name, drawn for it, and the batch that applies
the event adds the name to the item's `applied`: see `rules/applied.py`.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from blackboard.errors import BlackboardError
from blackboard.model import (
    LONGEST_TEXT,
    NEVER,
    VERSION,
    Item,
    LogLine,
    Outcome,
    QueuedRun,
    Run,
    State,
    one_more,
    replace,
    whole_milliseconds,
)
from blackboard.rules.next_run import (
    APART,
    backoff,
    first_slot,
    missed_until,
    no_later,
    planned_after,
    ready_for,
    slot_after_edit,
    slot_asked_for,
    slot_that_stays,
)
from blackboard.rules.wrong_clock import (
    Planning,
    is_set_back,
    slot_brought_back,
    still_to_come,
)
from blackboard.schedule.schedule import Cron, Every, RRule, next_due, opens
from blackboard.spec import RunSettings

FAILING = frozenset({Outcome.FAILED, Outcome.TIMEOUT, Outcome.ABANDONED})
LONGEST_QUEUE = 100
"""Requests that wait behind the run in hand, at the most."""


class Phase(StrEnum):
    """Where an item is in its life."""

    ABSENT = "absent"
    WAITING = "waiting"
    RUNNING = "running"
    RUNNING_PAUSED = "running, paused"
    PAUSED = "paused"
    DONE = "done"
    DONE_PAUSED = "done, paused"


class ItemEvent(StrEnum):
    """What may happen to an item."""

    ADD = "add"
    COPY = "copy"
    CLAIM = "claim"
    SKIP = "skip"
    PUT_OFF = "put off"
    OVERRIDE = "override"
    SAVE = "save"
    RELEASE = "release"
    FREE = "free"
    UNLOCK = "unlock"
    PAUSE = "pause"
    RESUME = "resume"
    ASK = "ask"
    RESCHEDULE = "reschedule"
    REPAIR = "repair"
    REMOVE = "remove"


_ENDS = {
    Phase.RUNNING: {Phase.WAITING, Phase.DONE},
    Phase.RUNNING_PAUSED: {Phase.PAUSED, Phase.DONE_PAUSED},
}
_REPLANNED = {
    Phase.WAITING: {Phase.WAITING, Phase.DONE},
    Phase.PAUSED: {Phase.PAUSED, Phase.DONE_PAUSED},
    Phase.DONE: {Phase.WAITING, Phase.DONE},
    Phase.DONE_PAUSED: {Phase.PAUSED, Phase.DONE_PAUSED},
    Phase.RUNNING: {Phase.RUNNING},
    Phase.RUNNING_PAUSED: {Phase.RUNNING_PAUSED},
}
TRANSITIONS: Mapping[ItemEvent, Mapping[Phase, set[Phase]]] = {
    ItemEvent.ADD: {Phase.ABSENT: {Phase.WAITING}},
    ItemEvent.COPY: {
        before: {Phase.PAUSED, Phase.DONE_PAUSED}
        for before in (Phase.ABSENT, Phase.PAUSED, Phase.DONE_PAUSED)
    },
    ItemEvent.CLAIM: {Phase.WAITING: {Phase.RUNNING}},
    ItemEvent.SKIP: {Phase.WAITING: {Phase.WAITING, Phase.DONE}},
    ItemEvent.PUT_OFF: {Phase.WAITING: {Phase.WAITING, Phase.DONE}},
    ItemEvent.OVERRIDE: {Phase.RUNNING: {Phase.RUNNING}},
    ItemEvent.SAVE: {
        Phase.RUNNING: {Phase.RUNNING},
        Phase.RUNNING_PAUSED: {Phase.RUNNING_PAUSED},
    },
    ItemEvent.RELEASE: _ENDS,
    ItemEvent.FREE: _ENDS,
    ItemEvent.UNLOCK: {Phase.RUNNING: {Phase.WAITING}, Phase.RUNNING_PAUSED: {Phase.PAUSED}},
    ItemEvent.PAUSE: {Phase.WAITING: {Phase.PAUSED}, Phase.RUNNING: {Phase.RUNNING_PAUSED}},
    ItemEvent.RESUME: {
        Phase.PAUSED: {Phase.WAITING},
        Phase.RUNNING_PAUSED: {Phase.RUNNING},
        Phase.DONE_PAUSED: {Phase.DONE},
    },
    ItemEvent.ASK: {
        Phase.WAITING: {Phase.WAITING},
        Phase.DONE: {Phase.WAITING},
        Phase.RUNNING: {Phase.RUNNING},
    },
    ItemEvent.RESCHEDULE: _REPLANNED,
    ItemEvent.REPAIR: _REPLANNED,
    ItemEvent.REMOVE: {phase: {Phase.ABSENT} for phase in _REPLANNED},
}
"""For each event: the phases in which it may happen, each with those to which it may lead."""


class IllegalTransition(BlackboardError):
    """An event that cannot happen to an item in the phase it is in. Nothing was changed."""

    def __init__(self, event: ItemEvent, item: Item) -> None:
        super().__init__(f"{item.id} is {phase_of(item)}: {event} does not apply to it")


def phase_of(item: Item | None) -> Phase:
    if item is None:
        return Phase.ABSENT
    if item.running:
        return Phase.RUNNING if item.state is State.ACTIVE else Phase.RUNNING_PAUSED
    match item.state:
        case State.ACTIVE:
            return Phase.WAITING
        case State.PAUSED:
            return Phase.PAUSED
        case State.DONE:
            return Phase.DONE_PAUSED if item.is_paused else Phase.DONE
        case State.REMOVED:
            return Phase.ABSENT


def applies(event: ItemEvent, item: Item) -> bool:
    """Whether an event may happen to an item in the phase it is in."""
    return phase_of(item) in TRANSITIONS[event]


def _check(event: ItemEvent, item: Item) -> None:
    if not applies(event, item):
        raise IllegalTransition(event, item)


# ---- the life of an id


def added(
    item_id: str,
    item_type: str,
    spec: str,
    *,
    before: Item | None,
    floor: int = 0,
    settings: RunSettings,
    first: datetime | None,
    now: datetime,
) -> Item:
    """A new item, due at once or at `first`, an `at` at its time; `before` is the tombstone of an
    earlier life of the id. Without one the fence is `floor`: the tombstone may have been deleted.
    """
    if before is not None:
        _check(ItemEvent.ADD, before)
    fence = before.fence if before else floor
    slot = first_slot(settings, first=first, now=now)
    return Item(
        id=item_id,
        type=item_type,
        state=State.ACTIVE,
        spec=spec,
        fence=fence,
        born=fence,
        slot=slot,
        ready=ready_for(item_id, slot, settings=settings, first=True),
        planned=slot,
        first=slot if first else None,
        schedule=settings.text,
        timezone=settings.timezone,
    )


def copied(
    item: Item,
    item_id: str,
    *,
    before: Item | None,
    floor: int = 0,
    mark: str,
    settings: RunSettings,
) -> Item:
    """An item that does not run under another id, paused by `mark`; `before` and `floor` are of
    that id, as when one is added. Its history is not copied.
    """
    if before is not None:
        _check(ItemEvent.COPY, before)
    fence = max(item.fence, before.fence if before else floor)
    ready = ready_for(item_id, item.slot, settings=settings, first=False)
    return replace(
        item,
        id=item_id,
        state=State.DONE if item.state is State.DONE else State.PAUSED,
        fence=fence,
        born=fence,
        ready=item.ready if item.is_unscheduled else max(item.ready, ready),
        paused=mark,
        result_fence=0,
        applied=(),
        etag="",
    )


def removed(item: Item, *, now: datetime) -> Item:
    """The tombstone of an item: a fence, higher than any before, for the item that is added next
    under the id. So a run that is under way is found to be late, and no two lives of an id are born
    with one fence.
    """
    _check(ItemEvent.REMOVE, item)
    return Item(
        id=item.id,
        type=item.type,
        state=State.REMOVED,
        spec="{}",
        fence=one_more(item.fence),
        born=item.born,
        slot=item.slot,
        ready=item.ready,
        planned=item.planned,
        stop=now,
        applied=item.applied,
    )


# ---- runs


def claimed(item: Item, *, settings: RunSettings, owner: str, now: datetime) -> Item:
    """The item when a worker has claimed it."""
    _check(ItemEvent.CLAIM, item)
    return replace(
        item,
        fence=one_more(item.fence),
        start=now,
        running=True,
        put_back=False,
        owner=owner,
        schedule=settings.text,
        timezone=settings.timezone,
    )


def overridden(item: Item, *, owner: str, now: datetime) -> Item:
    """The item when another worker has overridden its lock, which was not renewed, and runs it
    again.
    """
    _check(ItemEvent.OVERRIDE, item)
    return replace(
        item,
        fence=one_more(item.fence),
        attempt=one_more(item.attempt),
        runs=one_more(item.runs),
        failures=one_more(item.failures),
        start=now,
        owner=owner,
    )


def released(
    item: Item,
    run: Run,
    *,
    settings: RunSettings,
    fraction: float,
    requeue: bool = False,
    retry_after: float | None = None,
    final: bool = False,
) -> Item:
    """The item when its holder has released it. `fraction`, drawn in [0, 1), is the jitter of a
    backoff; `requeue`: if it was cancelled, the same slot is run again; `retry_after` and `final`
    are its handler's answer.
    """
    _check(ItemEvent.RELEASE, item)
    after = after_run(
        replace(item, attempt=1) if has_lasted(run, settings) else item,
        run.outcome,
        settings=settings,
        now=run.stop,
        fraction=fraction,
        requeue=requeue,
        retry_after=retry_after,
        final=final,
    )
    after = _ended(after, run)
    if run.outcome is not Outcome.OK:
        return after
    warned = one_more(item.warned) if run.warnings else 0
    after = replace(after, warned=warned, warnings=run.warnings)
    return after if run.is_skipped else replace(after, result=run.result, result_fence=item.fence)


def has_lasted(run: Run, settings: RunSettings) -> bool:
    """Whether it is the run of a pump that went on for its interval or longer."""
    interval = settings.schedule.interval if isinstance(settings.schedule, Every) else None
    return settings.endless and interval is not None and run.stop - run.start >= interval


def freed(item: Item, run: Run, *, settings: RunSettings, requeue: bool = False) -> Item:
    """The item when another than its holder has ended its run, and does not run it. The fence
    rises, so that the holder's result is found to be late. `requeue`: the run was cancelled or
    abandoned, and is made again.
    """
    _check(ItemEvent.FREE, item)
    after = after_run(
        item, run.outcome, settings=settings, now=run.stop, fraction=0.0, requeue=requeue
    )
    return replace(_ended(after, run), fence=one_more(item.fence))


def unlocked(item: Item, run: Run) -> Item:
    """The item when an operator has taken its lock away: the same run is due at once, unchanged."""
    _check(ItemEvent.UNLOCK, item)
    return replace(_ended(item, run), ready=run.stop, put_back=True, fence=one_more(item.fence))


def passed_over(item: Item, *, settings: RunSettings, now: datetime) -> Item:
    """The item when its slot is passed over, with all later ones that are missed as well."""
    _check(ItemEvent.SKIP, item)
    missed = missed_until(item, settings=settings, now=now)
    following = next_due(settings.schedule, missed) if settings.schedule else None
    return _waiting_for(item, following, settings=settings, now=now)


def put_off(item: Item, *, settings: RunSettings, now: datetime) -> Item:
    """The item when its slot is put off to the end of the blackout; if that has no end, the item is
    done. A run that was asked for may go before it. A slot that lies in windows which are newer
    than it is left out, and gives way to the next one, unless its run had begun.
    """
    _check(ItemEvent.PUT_OFF, item)
    schedule = settings.schedule
    is_in_windows = item.slot != item.first and opens(schedule, item.slot) != item.slot
    if isinstance(schedule, Cron | RRule) and is_in_windows and not item.put_back:
        following = next_due(schedule, item.slot)
        return _waiting_for(item, following, settings=settings, now=now)
    end = opens(schedule, now)
    if item.requests:
        return _first_request(item, end and item.planned, now=now)
    if end is None:
        return replace(item, state=State.DONE, put_back=False)
    return replace(item, ready=ready_for(item.id, end, settings=settings, first=False))


def after_run(
    item: Item,
    outcome: Outcome,
    *,
    settings: RunSettings,
    now: datetime,
    fraction: float,
    requeue: bool,
    retry_after: float | None = None,
    final: bool = False,
) -> Item:
    """The item with what it waits for after a run: the table at the head of this module.
    `requeue`: where it was cancelled or abandoned, the same slot is run again.
    """
    failures = one_more(item.failures) if outcome in FAILING else item.failures
    failures = 0 if outcome is Outcome.OK else failures
    checkpoint = "" if outcome is Outcome.OK else item.checkpoint
    same = replace(item, ready=now, failures=failures, checkpoint=checkpoint)
    if requeue and outcome is Outcome.CANCELLED:
        return replace(same, put_back=True)
    if requeue and outcome is Outcome.ABANDONED:
        return replace(same, attempt=one_more(item.attempt))
    following = planned_after(item, settings=settings, now=now)
    wait: timedelta | None = None
    if outcome is Outcome.FAILED and retry_after is not None:
        asked = timedelta(seconds=retry_after)
        wait = asked if following is None or now + asked < following else None
    elif outcome in {Outcome.FAILED, Outcome.TIMEOUT} and item.attempt <= settings.retries:
        wait = None if final else backoff(item.attempt, base=settings.backoff, fraction=fraction)
    if wait is not None:
        return replace(same, ready=whole_milliseconds(now + wait), attempt=one_more(item.attempt))
    return _waiting_for(same, following, settings=settings, now=now)


def _ended(item: Item, run: Run) -> Item:
    return replace(
        item,
        stop=run.stop,
        running=False,
        outcome=run.outcome,
        runs=one_more(item.runs),
        error=run.error,
    )


def _first_request(item: Item, following: datetime | None, *, now: datetime) -> Item:
    """The item with the first of its requests in hand, and the schedule's next slot behind it."""
    first, *others = item.requests
    beside = following or NEVER
    return replace(
        _with_params(item, first.once),
        slot=slot_asked_for(first.slot, beside=beside),
        ready=now,
        planned=beside,
        put_back=False,
        requests=tuple(others),
    )


def _with_params(item: Item, once: str) -> Item:
    """The item with these params for its next run alone; "": it has none of its own."""
    return item if once == item.once else replace(item, once=once, checkpoint="")


def _waiting_for(
    item: Item, following: datetime | None, *, settings: RunSettings, now: datetime
) -> Item:
    """The item that waits for the first of its requests, or for its slot `following`; without both
    it is done. One that was done and has a slot again is active, or paused if it was.
    """
    state = State.PAUSED if item.is_paused else State.ACTIVE
    after = replace(_with_params(item, ""), state=state, attempt=1, put_back=False)
    if item.requests:
        return _first_request(after, following, now=now)
    if following is None:
        return replace(after, state=State.DONE)
    ready = ready_for(item.id, following, settings=settings, first=item.start is None)
    return replace(after, slot=following, ready=ready, planned=following)


# ---- the history


def run_of(
    item: Item,
    outcome: Outcome,
    *,
    now: datetime,
    nonce: str = "",
    result: str = "",
    error: str = "",
    warnings: tuple[str, ...] = (),
    output: str = "",
    log: tuple[LogLine, ...] = (),
    note: str = "",
) -> Run:
    """The row in the history of an item's run that ended at `now`, in whatever way. `nonce` is that
    of its lock, "" where the lock was not read.
    """
    start = item.start or item.ready
    return Run(
        id=item.id,
        type=item.type,
        fence=item.fence,
        attempt=item.attempt,
        slot=item.slot,
        start=start,
        stop=now,
        lag=max((start - item.ready).total_seconds(), 0.0),
        outcome=outcome,
        worker=item.owner[: LONGEST_TEXT // 2],
        nonce=nonce,
        result=result,
        error=error,
        warnings=warnings,
        output=output,
        log=log,
        note=note,
    )


class LateMove(StrEnum):
    """What is written of a run that finished after its lock was taken away."""

    DROP = "drop"
    RECORD = "record"
    MERGE = "merge"


def late_move(
    item: Item | None, *, fence: int, outcome: Outcome, fenced: bool, skipped: bool = False
) -> LateMove:
    """DROP when the item is gone, or was added since; RECORD for its row in the history; MERGE for
    that and its result. A run that failed, was skipped, or was stopped for its lost lock has no
    result to merge, one of a fenced type merges none, an older result does not replace a newer one,
    and an item of a newer version is left alone.
    """
    if item is None or item.state is State.REMOVED or item.born >= fence:
        return LateMove.DROP
    is_newer = item.version > VERSION
    if fenced or skipped or is_newer or outcome is not Outcome.OK or item.result_fence > fence:
        return LateMove.RECORD
    return LateMove.MERGE


def stays(row: Run, late: Run) -> bool:
    """Whether a row of the history stays as it is, though its run came back: it says superseded
    already, or says that an operator cancelled a run that did not end well, or is of another run,
    which got the same fence after the store was set back to an earlier state.
    """
    cancelled = row.outcome is Outcome.CANCELLED and late.outcome is not Outcome.OK
    of_another = row.nonce not in ("", late.nonce)
    return row.outcome is Outcome.SUPERSEDED or cancelled or of_another


def superseded(late: Run, row: Run | None) -> Run:
    """The row in the history of a late run; the note of an operator in its `row` stays."""
    return replace(late, outcome=Outcome.SUPERSEDED, note=row.note if row else "")


def saved(item: Item, checkpoint: str) -> Item:
    """The item when its run has saved a checkpoint, JSON."""
    _check(ItemEvent.SAVE, item)
    return replace(item, checkpoint=checkpoint)


# ---- what operators do


def paused(item: Item, mark: str) -> Item:
    """The item when it is paused: no run starts. `mark` is JSON of who paused it."""
    _check(ItemEvent.PAUSE, item)
    return replace(item, state=State.PAUSED, paused=mark)


def resumed(item: Item, mark: str, *, settings: RunSettings | None, now: datetime) -> Item:
    """The item when it is resumed: runs start again. `mark` is JSON of who resumed it. One without
    a next slot is done. A slot that came meanwhile is ready from now on, and not late; but with
    `missed = "none"` in `settings` (None: they cannot be computed) it stays as late as it is.
    """
    _check(ItemEvent.RESUME, item)
    after = replace(item, paused="", resumed=mark)
    if item.state is State.DONE:
        return after
    stays_late = settings is not None and settings.missed == "none"
    ready = item.ready if item.running or stays_late else max(item.ready, now)
    return replace(after, state=State.ACTIVE, ready=ready)


class Requested(Struct, frozen=True, kw_only=True):
    """An item after a request: the slot of the run that serves it, and how many come before."""

    item: Item
    changed: bool = True
    """False: the request was applied by an earlier call."""
    slot: datetime
    ahead: int = 0
    """Runs that come first, the running one included."""
    joined: bool = False
    """Whether the run was asked for before, is a retry, or was put back before an edit: one run is
    for both.
    """


def requested(item: Item, *, name: str, once: str, now: datetime) -> Requested:
    """The item after one more run was asked for at `now`; `once` is JSON of params, or ""."""
    _check(ItemEvent.ASK, item)
    queue = item.requests
    retried = item.waits and (item.attempt > 1 or (bool(once) and item.put_back))
    in_hand = item.running or retried or (item.waits and (bool(queue) or item.is_unscheduled))
    if not in_hand:
        beside = NEVER if item.state is State.DONE else item.planned
        slot = slot_asked_for(now, beside=beside)
        after = replace(
            _with_params(item, once),
            state=State.ACTIVE,
            slot=slot,
            ready=now,
            planned=beside,
            put_back=False,
        )
        return Requested(item=after, slot=slot)
    if item.waits:  # for a retry, or the end of a window
        item = replace(item, ready=min(item.ready, now))
    ahead = len(queue) + 1
    if not once:
        if queue and not queue[-1].once:
            return Requested(item=item, slot=queue[-1].slot, ahead=ahead - 1, joined=True)
        if not queue and not item.running and not item.once:
            return Requested(item=item, slot=item.slot, joined=True)
    last = queue[-1].slot if queue else item.slot
    slot = max(now, last + APART)
    queue = (*queue, QueuedRun(name=name, slot=slot, once=once))
    return Requested(item=replace(item, requests=queue), slot=slot, ahead=ahead)


def rescheduled(item: Item, *, settings: RunSettings, now: datetime) -> Item:
    """The item under the schedule of its new settings; `item` has the old one."""
    _check(ItemEvent.RESCHEDULE, item)
    after = replace(item, schedule=settings.text, timezone=settings.timezone)
    if item.state is State.DONE:
        return replanned(after, settings=settings, now=now)
    stays = slot_that_stays(item, settings=settings, now=now)
    if stays is not None and item.is_planned_first:
        after = replace(after, first=stays)
    if item.running or item.attempt > 1 or item.put_back or item.is_unscheduled:
        ready = _ready_after_edit(item, settings=settings, now=now)
        if ready is None:
            return replanned(after, settings=settings, now=now)
        following = stays or slot_after_edit(after, settings=settings, now=now)
        return _planned_beside(replace(after, ready=ready), following or NEVER)
    if stays is not None:
        return _waiting_for(after, stays, settings=settings, now=now)
    return replanned(after, settings=settings, now=now)


def _ready_after_edit(item: Item, *, settings: RunSettings, now: datetime) -> datetime | None:
    """When the run in hand, which keeps its slot, is due. One that was put back, and waits for the
    end of a window, waits for the end of those that it is in by the new schedule; None: they have
    no end.
    """
    due = max(item.stop or now, now)
    if not item.put_back or item.ready <= due:
        return item.ready
    end = opens(settings.schedule, due)
    if end is None or end == due:
        return end
    return ready_for(item.id, end, settings=settings, first=False)


def first_moved(item: Item, first: datetime, *, settings: RunSettings, now: datetime) -> Item:
    """The item, which never ran, with another first time, which an operator named."""
    _check(ItemEvent.RESCHEDULE, item)
    slot = whole_milliseconds(first)
    after = replace(item, first=slot)
    if item.is_unscheduled and item.state is not State.DONE:
        return _planned_beside(after, slot)
    return _waiting_for(after, slot, settings=settings, now=now)


def replanned(item: Item, *, settings: RunSettings, now: datetime) -> Item:
    """The item that waits for the next slot of its new schedule, or its first request."""
    following = slot_after_edit(item, settings=settings, now=now)
    return _waiting_for(item, following, settings=settings, now=now)


def _planned_beside(item: Item, planned: datetime) -> Item:
    """The item with another planned slot, while its run goes on, or waits for a retry or because it
    was asked for. The slot of that run is moved by a millisecond at the most.
    """
    if planned == item.planned:
        return item
    slot = item.slot if item.running else slot_asked_for(item.slot, beside=planned)
    return replace(item, slot=slot, planned=planned)


# ---- what doctor does


def brought_back(item: Item, planning: Planning, *, now: datetime) -> Item:
    """An item that does not run, as if its clock had been right: a start or stop in the future
    becomes now, and a slot that nothing explains is planned anew. A run that was asked for, is
    tried again, or was put back, is due at once.
    """
    _check(ItemEvent.REPAIR, item)
    after = replace(
        item,
        start=item.start and no_later(item.start, now=now),
        stop=item.stop and no_later(item.stop, now=now),
    )
    if coming := still_to_come(item, planning, now=now):
        return _moved_to(after, coming, planning)
    if not is_set_back(item, planning, now=now):
        return after
    planned = slot_brought_back(item, planning, now=now)
    has_begun = item.attempt > 1 or item.put_back
    if item.is_unscheduled or (has_begun and planned == item.planned):
        beside = planned or NEVER
        slot = item.slot
        if item.is_unscheduled:
            slot = slot_asked_for(no_later(item.slot, now=now), beside=beside)
        return replace(after, slot=slot, ready=min(item.ready, now), planned=beside)
    if planned is None:
        return replace(_with_params(after, ""), state=State.DONE, attempt=1, put_back=False)
    return _moved_to(after, planned, planning)


def _moved_to(item: Item, slot: datetime, planning: Planning) -> Item:
    state = State.PAUSED if item.is_paused else State.ACTIVE
    ready = ready_for(item.id, slot, settings=planning.settings, first=False)
    after = _with_params(item, "")
    return replace(
        after, state=state, slot=slot, ready=ready, planned=slot, attempt=1, put_back=False
    )
