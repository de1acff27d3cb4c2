"""Why an item runs, or does not, in one paragraph. Pure.

The decision is made by `rules/due.py`, as for a worker that takes the item's type; the rest comes
from the item and its lock.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from blackboard.errors import BadInput
from blackboard.model import NEVER, Item, Lock, Mark, Outcome, State, replace
from blackboard.phrases import cut_middle, exactly, first_line, plural, span
from blackboard.protocol.batches import token_of
from blackboard.records import Progress, decoded_as
from blackboard.rules.due import Move, decide_lock, decide_token, may_take_over
from blackboard.rules.next_run import planned_after
from blackboard.rules.status import ItemStatus
from blackboard.schedule.schedule import Every, Schedule, parse_schedule
from blackboard.schedule.words import describe
from blackboard.spec import RunSettings

LONGEST_CHECKPOINT = 200
"""Characters of it that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a worker that takes the type and has a free slot does now, and why."""

    move: Move
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What the decision depends on, besides the item and its lock."""

    now: datetime
    """The store's."""
    resolution: float
    settings: RunSettings | None
    """None where they cannot be computed in this process."""
    takers: int | None = None
    """Workers that have announced themselves and take the item's type; None: they were not read."""


def explain(one: ItemStatus, facts: Circumstances) -> Explanation:
    """The decision about an item, and the paragraph that gives its reasons."""
    item = one.item
    move = _move(one, facts)
    sentences = [_opening(one, facts), _schedule(item, facts)]
    if item.running:
        sentences += _running(one, facts)
    if item.is_paused:
        sentences += [_paused(item, facts)]
    elif item.state is State.DONE:
        sentences += ["Nothing is due any more: `blackboard run` would run it once again."]
    elif not item.running:
        sentences += [_due(item, facts), _queue(item), _taken(item, move, facts)]
    sentences += [_checkpoint(item), _last(item, facts)]
    return Explanation(move=move, text=" ".join(sentence for sentence in sentences if sentence))


def _move(one: ItemStatus, facts: Circumstances) -> Move:
    item, types = one.item, {one.item.type}
    if one.lock is not None:
        return decide_lock(
            one.lock, owner="", types=types, in_flight=(), resolution=facts.resolution
        )
    if not item.waits or facts.settings is None:
        return Move.LEAVE
    return decide_token(token_of(item), now=facts.now, types=types, settings=facts.settings)


def _opening(one: ItemStatus, facts: Circumstances) -> str:
    item = one.item
    if one.stale:
        state = "is running, but its lock is stale"
    elif item.running:
        state = "is running"
    elif item.state is not State.ACTIVE:
        state = f"is {item.state.value}"
    elif one.overdue:
        state = f"has been ready for {span((facts.now - item.ready).total_seconds())}: overdue"
    elif item.ready <= facts.now:
        state = "is due now"
    else:
        state = "is waiting"
    return f"{item.id} (type {item.type}) {state}."


# ---- the schedule


def _schedule(item: Item, facts: Circumstances) -> str:
    if facts.settings is not None and facts.settings.endless:
        return "It is a partition: its pump runs until its worker lets it go."
    schedule = _schedule_of(item, facts)
    if schedule is None:
        return f"Its schedule is {item.schedule!r}." if item.schedule else "It has no schedule."
    counted = ", counted from its last start" if isinstance(schedule, Every) else ""
    return f"Its schedule is {describe(schedule)}{counted}."


def _schedule_of(item: Item, facts: Circumstances) -> Schedule | None:
    """As it is resolved here; else as a worker, which may have more handlers, resolved it last."""
    if facts.settings is not None and facts.settings.schedule is not None:
        return facts.settings.schedule
    try:
        return parse_schedule(item.schedule, item.timezone) if item.schedule else None
    except BadInput:
        return None


def _due(item: Item, facts: Circumstances) -> str:
    """Why a waiting item is due when it is."""
    slot = exactly(item.slot, facts.now)
    if item.attempt > 1:
        tries = f" of {facts.settings.retries + 1}" if facts.settings else ""
        what = f"Attempt {item.attempt}{tries} at the run that was due at {slot}"
        return f"{what} may start at {exactly(item.ready, facts.now)}, after backing off."
    if item.is_asked_for:
        text = f"A run was requested at {slot}"
        policy = facts.settings.missed if facts.settings else ""
        is_made_up = policy == "all" or (policy == "one" and bool(item.once))
        if item.planned > item.slot or (is_made_up and item.planned != NEVER):
            text += f"; by its schedule it is due at {exactly(item.planned, facts.now)}"
        return f"{text}."
    schedule = _schedule_of(item, facts)
    if item.start is None:
        text = f"It has never run; its first run is due at {slot}"
    elif isinstance(schedule, Every) and item.start + schedule.interval == item.slot:
        text = f"It is due at {slot}: it last started at {exactly(item.start, facts.now)}"
    else:
        text = f"It is due at {slot}"
    if item.ready > item.slot:
        jitter = " with its share of the jitter" if facts.settings and facts.settings.jitter else ""
        text += f", and may start{jitter} at {exactly(item.ready, facts.now)}"
    return f"{text}."


def _taken(item: Item, move: Move, facts: Circumstances) -> str:
    """Which worker starts a waiting item, and when."""
    if facts.settings is None:
        return "Its settings cannot be computed here, so a worker like this one leaves it alone."
    if move is Move.SKIP:
        return "That was missed, and missed runs are not made up for: the next walk reschedules it."
    if facts.takers == 0:
        return f"No worker that takes {item.type} is at work to start it (`blackboard workers`)."
    which = f"Any worker that takes {item.type}"
    if facts.takers == 1:
        which = f"The one worker that takes {item.type}"
    elif facts.takers is not None:
        which = f"Any of the {facts.takers} workers that take {item.type}"
    when = "in its next walk" if move is Move.RUN else "then"
    return f"{which} starts it {when}, as soon as it has a free slot."


# ---- while it runs


def _running(one: ItemStatus, facts: Circumstances) -> list[str]:
    item, lock = one.item, one.lock
    started = f" at {exactly(item.start, facts.now)}" if item.start else ""
    sentences = [
        f"{item.owner} started it{started}, as attempt {item.attempt} with fence {item.fence}."
    ]
    if lock is None:
        sentences.append(
            "Its lock was not found: it has just been released, or `blackboard doctor` reports it."
        )
    else:
        sentences += [_progress(lock), _lease(one, lock, facts)]
    if item.requests:
        sentences.append(_queue(item))
    elif item.state is State.ACTIVE:
        sentences.append(_afterwards(item, facts))
    return sentences


def _queue(item: Item) -> str:
    """The requested runs that wait."""
    queue = item.requests
    if not queue:
        return ""
    if len(queue) == 1:
        return "Another run was requested and follows."
    return f"{len(queue)} more runs were requested and follow in order."


def _checkpoint(item: Item) -> str:
    """Where its next run goes on."""
    if not item.checkpoint:
        return ""
    text = cut_middle(item.checkpoint, LONGEST_CHECKPOINT)
    if item.running:
        return f"It has saved {text}, where another run goes on unless this one ends ok."
    return f"Its next run goes on at what was saved: {text}."


def _progress(lock: Lock) -> str:
    found = decoded_as(Progress, lock.progress)
    if found is None:
        return ""
    done, total = found
    return f"It has done {done:g} of {total:g}." if total else f"It has done {done:g}."


def _lease(one: ItemStatus, lock: Lock, facts: Circumstances) -> str:
    good = span(lock.stale_after)
    touched = "before this host was started" if lock.age == float("inf") else ""
    touched = touched or f"{span(lock.age)} ago"
    if not one.stale:
        left = span(max(lock.stale_after - lock.age, 0.0))
        return (
            f"It last renewed its lock {touched}; unless renewed, the lock is good for {left} more "
            f"(of {good}) and then stale: any worker that takes {one.item.type} may override it."
        )
    text = f"Its lock was last renewed {touched} and was good for {good}: "
    retries = facts.settings.retries if facts.settings else 0
    if one.item.state is not State.ACTIVE or not may_take_over(lock.attempt, retries=retries):
        follows = "frees it without another attempt"
    else:
        follows = f"overrides it and runs attempt {lock.attempt + 1}"
    if facts.takers == 0:
        return f"{text}the first worker that takes {one.item.type} {follows}, but none is at work."
    return f"{text}the next walk of any worker that takes {one.item.type} {follows}."


def _afterwards(item: Item, facts: Circumstances) -> str:
    if facts.settings is not None and facts.settings.endless:
        return ""
    settings = replace(facts.settings or RunSettings(), schedule=_schedule_of(item, facts))
    following = planned_after(item, settings=settings, now=facts.now)
    if following is None:
        return "After this run nothing is due any more."
    return f"After this run it is due at {exactly(following, facts.now)}."


# ---- the past


def _paused(item: Item, facts: Circumstances) -> str:
    mark = decoded_as(Mark, item.paused)
    text = "It was paused"
    if mark is not None:
        text = f"{mark.by} paused it at {exactly(mark.at, facts.now)}"
        text += f": {mark.reason}" if mark.reason else ""
    finish = "the run under way may finish, and " if item.running else ""
    text = f"{text.rstrip('.')}; {finish}no run starts until `blackboard resume`"
    if item.state is State.DONE:
        return f"{text}. Nothing is due any more."
    return f"{text}." if item.running else f"{text}: it is due at {exactly(item.slot, facts.now)}."


def _last(item: Item, facts: Circumstances) -> str:
    """How the last run ended."""
    if item.outcome is None or item.stop is None:
        return "" if item.failures == 0 else f"{_in_a_row(item.failures)}."
    text = f"Its last run ended {item.outcome.value} at {exactly(item.stop, facts.now)}"
    if item.start is not None and not item.running and item.stop >= item.start:
        text += f" after {span((item.stop - item.start) / timedelta(seconds=1))}"
    if item.failures > 1:
        text += f", {_in_a_row(item.failures)}"
    said = "" if item.outcome is Outcome.OK else first_line(item.error)
    return f"{text}: {said}" if said else f"{text}."


def _in_a_row(failures: int) -> str:
    return f"{plural(failures, 'failure')} in a row"
