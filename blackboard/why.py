"""Why an item runs, or does not, in one paragraph. Pure: the same words for every reader.

The decision is not made here but asked of `rules/due.py`, as a worker that takes the item's
type would ask it; the rest is what the item and its lock say.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from blackboard.errors import BadInput
from blackboard.model import NEVER, Item, Lock, Mark, Outcome, State, replace
from blackboard.phrases import exactly, first_line, plural, span
from blackboard.protocol.batches import token_of
from blackboard.records import Progress, decoded_as
from blackboard.rules.due import Move, decide_lock, decide_token, may_take_over
from blackboard.rules.next_run import planned_after
from blackboard.rules.status import ItemStatus
from blackboard.schedule.schedule import Every, Schedule, parse_schedule
from blackboard.schedule.words import describe
from blackboard.spec import RunSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a worker that takes the type and has a free slot does now, and why."""

    move: Move
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What there is to go by, besides the item and its lock."""

    now: datetime
    """The store's."""
    resolution: float
    settings: RunSettings | None
    """None: they cannot be computed here."""
    takers: int | None = None
    """Workers that are there and take the item's type; None: not looked at."""


def explain(one: ItemStatus, known: Circumstances) -> Explanation:
    """The decision about an item, and the paragraph that gives its reasons."""
    item = one.item
    move = _move(one, known)
    told = [_opening(one, known), _schedule(item, known)]
    if item.running:
        told += _running(one, known)
    if item.is_paused:
        told += [_paused(item, known)]
    elif item.state is State.DONE:
        told += ["Nothing is due any more: `blackboard run` would run it once again."]
    elif not item.running:
        told += [_due(item, known), _queue(item), _taken(item, move, known)]
    told += [_last(item, known)]
    return Explanation(move=move, text=" ".join(sentence for sentence in told if sentence))


def _move(one: ItemStatus, known: Circumstances) -> Move:
    item, types = one.item, {one.item.type}
    if one.lock is not None:
        return decide_lock(
            one.lock, owner="", types=types, in_flight=(), resolution=known.resolution
        )
    if not item.waits or known.settings is None:
        return Move.LEAVE
    return decide_token(token_of(item), now=known.now, types=types, settings=known.settings)


def _opening(one: ItemStatus, known: Circumstances) -> str:
    item = one.item
    if one.stale:
        state = "is running, but its lock is stale"
    elif item.running:
        state = "is running"
    elif item.state is not State.ACTIVE:
        state = f"is {item.state.value}"
    elif one.overdue:
        state = f"has been ready for {span((known.now - item.ready).total_seconds())}: overdue"
    elif item.ready <= known.now:
        state = "is due now"
    else:
        state = "is waiting"
    return f"{item.id} (type {item.type}) {state}."


# ---- what the schedule says


def _schedule(item: Item, known: Circumstances) -> str:
    schedule = _schedule_of(item, known)
    if schedule is None:
        return f"Its schedule is {item.schedule!r}." if item.schedule else "It has no schedule."
    counted = ", counted from its last start" if isinstance(schedule, Every) else ""
    return f"Its schedule is {describe(schedule)}{counted}."


def _schedule_of(item: Item, known: Circumstances) -> Schedule | None:
    """As it is resolved here; else as a worker, who may know more handlers, resolved it last."""
    if known.settings is not None and known.settings.schedule is not None:
        return known.settings.schedule
    try:
        return parse_schedule(item.schedule, item.timezone) if item.schedule else None
    except BadInput:
        return None


def _due(item: Item, known: Circumstances) -> str:
    """Why a waiting item is due when it is."""
    slot = exactly(item.slot, known.now)
    if item.attempt > 1:
        tries = f" of {known.settings.retries + 1}" if known.settings else ""
        what = f"Attempt {item.attempt}{tries} at the run that was due at {slot}"
        return f"{what} may start at {exactly(item.ready, known.now)}, after backing off."
    if item.is_asked_for:
        told = f"A run was requested at {slot}"
        policy = known.settings.missed if known.settings else ""
        is_made_up = policy == "all" or (policy == "one" and bool(item.once))
        if item.planned > item.slot or (is_made_up and item.planned != NEVER):
            told += f"; by its schedule it is due at {exactly(item.planned, known.now)}"
        return f"{told}."
    schedule = _schedule_of(item, known)
    if item.start is None:
        told = f"It has never run; its first run is due at {slot}"
    elif isinstance(schedule, Every) and item.start + schedule.interval == item.slot:
        told = f"It is due at {slot}: it last started at {exactly(item.start, known.now)}"
    else:
        told = f"It is due at {slot}"
    if item.ready > item.slot:
        jitter = " with its share of the jitter" if known.settings and known.settings.jitter else ""
        told += f", and may start{jitter} at {exactly(item.ready, known.now)}"
    return f"{told}."


def _taken(item: Item, move: Move, known: Circumstances) -> str:
    """Who will start a waiting item."""
    if known.settings is None:
        return "Its settings cannot be computed here, so a worker like this one leaves it alone."
    if move is Move.SKIP:
        return "That was missed, and missed runs are not made up for: the next walk reschedules it."
    if known.takers == 0:
        return f"No worker that takes {item.type} is at work to start it (`blackboard workers`)."
    which = f"Any worker that takes {item.type}"
    if known.takers == 1:
        which = f"The one worker that takes {item.type}"
    elif known.takers is not None:
        which = f"Any of the {known.takers} workers that take {item.type}"
    when = "in its next walk" if move is Move.RUN else "then"
    return f"{which} starts it {when}, as soon as it has a free slot."


# ---- while it runs


def _running(one: ItemStatus, known: Circumstances) -> list[str]:
    item, lock = one.item, one.lock
    started = f" at {exactly(item.start, known.now)}" if item.start else ""
    told = [f"{item.owner} started it{started}, as attempt {item.attempt} with fence {item.fence}."]
    if lock is None:
        told.append(
            "Its lock was not found: it has just been released, or `blackboard doctor` reports it."
        )
    else:
        told += [_progress(lock), _lease(one, lock, known)]
    if item.requests:
        told.append(_queue(item))
    elif item.state is State.ACTIVE:
        told.append(_afterwards(item, known))
    return told


def _queue(item: Item) -> str:
    """What waits behind the run in hand."""
    queue = item.requests
    if not queue:
        return ""
    if len(queue) == 1:
        return "Another run was requested and follows."
    return f"{len(queue)} more runs were requested and follow in order."


def _progress(lock: Lock) -> str:
    found = decoded_as(Progress, lock.progress)
    if found is None:
        return ""
    done, total = found
    return f"It has done {done:g} of {total:g}." if total else f"It has done {done:g}."


def _lease(one: ItemStatus, lock: Lock, known: Circumstances) -> str:
    good = span(lock.stale_after)
    touched = "before this host was started" if lock.age == float("inf") else ""
    touched = touched or f"{span(lock.age)} ago"
    if not one.stale:
        left = span(max(lock.stale_after - lock.age, 0.0))
        return (
            f"It last renewed its lock {touched}; unless renewed, the lock is good for {left} more "
            f"(of {good}) and then stale: any worker that takes {one.item.type} may override it."
        )
    told = f"Its lock was last renewed {touched} and was good for {good}: "
    retries = known.settings.retries if known.settings else 0
    if one.item.state is not State.ACTIVE or not may_take_over(lock.attempt, retries=retries):
        follows = "frees it without another attempt"
    else:
        follows = f"overrides it and runs attempt {lock.attempt + 1}"
    if known.takers == 0:
        return f"{told}the first worker that takes {one.item.type} {follows}, but none is at work."
    return f"{told}the next walk of any worker that takes {one.item.type} {follows}."


def _afterwards(item: Item, known: Circumstances) -> str:
    settings = replace(known.settings or RunSettings(), schedule=_schedule_of(item, known))
    following = planned_after(item, settings=settings, now=known.now)
    if following is None:
        return "After this run nothing is due any more."
    return f"After this run it is due at {exactly(following, known.now)}."


# ---- what was before


def _paused(item: Item, known: Circumstances) -> str:
    mark = decoded_as(Mark, item.paused)
    told = "It was paused"
    if mark is not None:
        told = f"{mark.by} paused it at {exactly(mark.at, known.now)}"
        told += f": {mark.reason}" if mark.reason else ""
    finish = "the run under way may finish, and " if item.running else ""
    told = f"{told.rstrip('.')}; {finish}no run starts until `blackboard resume`"
    if item.state is State.DONE:
        return f"{told}. Nothing is due any more."
    return f"{told}." if item.running else f"{told}: it is due at {exactly(item.slot, known.now)}."


def _last(item: Item, known: Circumstances) -> str:
    """How it went last."""
    if item.outcome is None or item.stop is None:
        return "" if item.failures == 0 else f"{_in_a_row(item.failures)}."
    told = f"Its last run ended {item.outcome.value} at {exactly(item.stop, known.now)}"
    if item.start is not None and not item.running and item.stop >= item.start:
        told += f" after {span((item.stop - item.start) / timedelta(seconds=1))}"
    if item.failures > 1:
        told += f", {_in_a_row(item.failures)}"
    said = "" if item.outcome is Outcome.OK else first_line(item.error)
    return f"{told}: {said}" if said else f"{told}."


def _in_a_row(failures: int) -> str:
    return f"{plural(failures, 'failure')} in a row"
