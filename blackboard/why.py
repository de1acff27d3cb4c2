"""Why an item runs, or does not: labelled facts, and what would change it.

The decision is made by `rules/due.py`, as for a worker that takes the item's type; the rest comes
from the item and its lock. `explained` reads the board, and `explain` makes words of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from blackboard import phrases
from blackboard.errors import BadInput, BadSpec
from blackboard.model import NEVER, VERSION, Item, Lock, Mark, Member, State, decoded_as, replace
from blackboard.protocol.batches import token_of
from blackboard.protocol.board_pause import paused_by
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.keys import LEADERS, group_board, group_of, next_key, permits_partition
from blackboard.protocol.members import lost_since, takers, with_silence
from blackboard.protocol.permits import LEASE, Limit, Occupied, occupied
from blackboard.protocol.planning import check_runnable, planning_of, problem_of, settings_of
from blackboard.protocol.rename_marks import renaming_of
from blackboard.protocol.rows import version_of
from blackboard.records import BoardItem, Progress, item_record
from blackboard.rules.due import Move, decide_lock, decide_token, is_closed, may_take_over
from blackboard.rules.next_run import MILLISECOND, part_of_jitter, planned_after
from blackboard.rules.status import ItemStatus, status_of
from blackboard.rules.wrong_clock import problem_of_times
from blackboard.schedule.schedule import Every, Schedule, opens, parse_schedule
from blackboard.schedule.words import NO_SCHEDULE, NOT_KNOWN, describe
from blackboard.spec import Labels, RunSettings
from blackboard.table import read

LONGEST_CHECKPOINT = 200
"""Characters of a checkpoint that are shown, at most."""
MORE_SLOTS = "start another worker, or one with more `--slots`"
NEWER = "a newer version of blackboard wrote it: workers of this version leave it alone"
RESUME_BOARD = "`blackboard resume --board`"
REPAIR = "`blackboard doctor --repair` plans it anew"
MOST_OCCUPANTS = 5
"""Items in full slots that are shown, at most."""
MOVES = {
    Move.RUN: "is due now",
    Move.SKIP: "has missed its time",
    Move.PUT_OFF: "waits for the end of its blackout",
}
"""The state of an item that is ready, by what a worker does about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a worker that takes the type and has a free slot does now, and why."""

    move: Move
    headline: str
    """The item and its state, in a sentence."""
    facts: tuple[tuple[str, str], ...]
    """Labels and their texts."""

    @property
    def text(self) -> str:
        """A line for the headline, and one for each fact."""
        return "\n".join([self.headline, *(f"  {label:<12}  {fact}" for label, fact in self.facts)])


class ExplainedItem(BoardItem, frozen=True, kw_only=True):
    """An item, and why it runs or does not."""

    decision: str
    """What a worker does with it now."""
    headline: str
    facts: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What the decision depends on, besides the item and its lock."""

    now: datetime
    """The store's time."""
    resolution: float
    settings: RunSettings | None
    """The item's settings; None where this process could not run it by them."""
    problem: str = ""
    """Why it could not, and what would change that."""
    is_damaged: bool = False
    """Whether the reason is that its spec, or the params of its next run, are not JSON."""
    takers: int | None = None
    """Workers that have announced themselves and take the item's type; None: they were not read."""
    seen: float = 0.0
    """Seconds since one of them has announced itself."""
    board_paused: Mark | None = None
    occupants: tuple[str, ...] = ()
    """Where the slots of all workers that take the type are full: the items that run in them."""
    has_other_slots: bool = False
    """Whether one of these workers has free slots, but none of the type."""
    permitted: tuple[str, ...] = ()
    """Where the limit of its type on the board is reached: the items that run under it."""
    permit_rows: tuple[str, ...] = ()
    """Rows that count against this limit and cannot be read, each in words."""
    is_newer_permit: bool = False
    """Whether a newer version wrote one of them."""
    clock: str = ""
    """What is wrong with the item's times because of a wrong clock."""
    group: str = ""
    """The board of the group, for an item of a pump's type that is no partition and never runs."""
    is_election: bool = False
    """Whether it is an election, which candidates claim and no worker runs."""


def explain(status: ItemStatus, facts: Circumstances) -> Explanation:
    """The decision about an item, and its reasons."""
    item, lock = status.item, status.lock
    move = _move(status, facts)
    lines = {
        "schedule": _schedule(item, facts),
        "version": NEWER if _is_newer(item) else "",
        "started": _started(item, facts) if item.running else "",
        "progress": _progress(lock) if lock else "",
        "worker": _silence(status),
        "lock": _lock(status, facts) if item.running else "",
        "board": _paused_board(facts),
        "paused": _paused(item, facts) if item.is_paused else "",
        "due": _due(item, facts) if item.state is not State.DONE and not item.running else "",
        "clock": facts.clock,
        "requests": _queue(item),
        "next": _next(item, move, facts),
        "labels": _labels(facts.settings.labels) if facts.settings else "",
        "checkpoint": _checkpoint(item),
        "last run": _last(item, facts),
        "acknowledged": _acknowledged(item, facts),
        "to change": _remedy(status, move, facts),
    }
    return Explanation(
        move=move,
        headline=_headline(status, move, facts),
        facts=tuple((label, fact) for label, fact in lines.items() if fact),
    )


def _move(status: ItemStatus, facts: Circumstances) -> Move:
    item, types = status.item, {status.item.type}
    if _is_newer(item) or (facts.board_paused and (item.waits or status.stale)):
        return Move.LEAVE
    if status.lock is not None:
        return decide_lock(
            status.lock, owner="", types=types, in_flight=(), resolution=facts.resolution
        )
    if not item.waits or facts.settings is None or facts.group:
        return Move.LEAVE
    return decide_token(token_of(item), now=facts.now, types=types, settings=facts.settings)


def _is_newer(item: Item) -> bool:
    """Whether workers of this version leave it alone."""
    return item.version > VERSION


def _headline(status: ItemStatus, move: Move, facts: Circumstances) -> str:
    item = status.item
    if status.stale:
        state = "is running, but its lock is stale"
    elif item.running:
        state = "is running"
    elif item.state is not State.ACTIVE:
        state = f"is {item.state.value}"
    elif move in {Move.SKIP, Move.PUT_OFF}:
        state = MOVES[move]
    elif status.overdue:
        waited = (facts.now - item.ready).total_seconds()
        state = f"has been ready for {phrases.span(waited)}: overdue"
    elif item.ready <= facts.now:
        state = MOVES[Move.RUN]
    else:
        state = "is waiting"
    return f"{item.id} (type {item.type}) {state}."


def _labels(labels: Labels) -> str:
    """The labels of the item, on one line."""
    owner = f"owner {labels.owner}" if labels.owner else ""
    parts = (labels.description, owner, " ".join(f"#{tag}" for tag in labels.tags))
    return "; ".join(part for part in parts if part)


# ---- the schedule


def _schedule(item: Item, facts: Circumstances) -> str:
    if facts.settings is not None and facts.settings.endless and not facts.group:
        return "none: it is a partition, whose pump runs until its worker releases it"
    if facts.is_election:
        return "none: it is an election, which its leader holds until its term is over"
    schedule = _schedule_of(item, facts)
    if schedule is None:
        knows_all = facts.settings is not None and facts.settings.has_handler
        if item.schedule and not knows_all:
            return repr(item.schedule)
        return no_schedule(item, facts.settings)
    counted = ", counted from its last start" if isinstance(schedule, Every) else ""
    return f"{describe(schedule)}{counted}"


def no_schedule(item: Item, settings: RunSettings | None) -> str:
    """Words for an item that has no schedule of its own, and none by its type as known here."""
    is_known = settings is None or settings.has_handler or item.has_no_schedule
    return NO_SCHEDULE if is_known else NOT_KNOWN


def _schedule_of(item: Item, facts: Circumstances) -> Schedule | None:
    """The schedule, as resolved here; else as a worker, which may have more handlers, had it."""
    settings = facts.settings
    if settings is not None and (settings.schedule is not None or settings.has_handler):
        return settings.schedule
    return _written_schedule(item)


def _written_schedule(item: Item) -> Schedule | None:
    """The schedule in its row, by which it was last planned; None where there is none to read."""
    try:
        return parse_schedule(item.schedule, item.timezone) if item.schedule else None
    except BadInput:
        return None


def _due(item: Item, facts: Circumstances) -> str:
    """Why a waiting item is due when it is."""
    if item.attempt > 1:
        return _due_as_retry(item, facts)
    return _due_by_request(item, facts) if item.is_unscheduled else _due_by_schedule(item, facts)


def _due_as_retry(item: Item, facts: Circumstances) -> str:
    slot, ready = (phrases.exactly(moment, facts.now) for moment in (item.slot, item.ready))
    most = facts.settings.retries + 1 if facts.settings else 0
    tries = f" of {most}" if item.attempt <= most else ""  # a handler may request more
    retry = f"attempt {item.attempt}{tries} at the run that was due at {slot}"
    return f"{retry} may start at {ready}, after backing off"


def _due_by_request(item: Item, facts: Circumstances) -> str:
    text = f"{phrases.exactly(item.slot, facts.now)}, by request"
    if item.start is not None and item.slot <= item.start:  # the row does not tell these apart
        text += ", or begun before its schedule was changed"
    policy = facts.settings.missed if facts.settings else ""
    is_made_up = policy == "all" or (policy == "one" and bool(item.once))
    if item.planned > item.slot or (is_made_up and item.planned != NEVER):
        text += f"; by its schedule it is due at {phrases.exactly(item.planned, facts.now)}"
    if item.put_back and item.ready > facts.now:
        text += f"; it may start at {phrases.exactly(item.ready, facts.now)}, after its blackout"
    return text


def _due_by_schedule(item: Item, facts: Circumstances) -> str:
    schedule, text = _schedule_of(item, facts), phrases.exactly(item.slot, facts.now)
    if item.start is None:
        text += ", for the first time"
    elif isinstance(schedule, Every) and item.start + schedule.interval == item.slot:
        text += f": it last started at {phrases.exactly(item.start, facts.now)}"
    if item.ready > item.slot:
        ready = phrases.exactly(item.ready, facts.now)
        text += f"; it may start{_delayed_by(item, facts)} at {ready}"
    if earlier := _earlier_schedule(item, facts):
        text += f". It was planned by its earlier schedule, {earlier}; "
        text += "the new one counts from then on"
    return text


def _earlier_schedule(item: Item, facts: Circumstances) -> str:
    """The schedule by which an item waits, where its type has another by now; else ""."""
    if facts.settings is None or facts.settings.schedule is None or item.start is None:
        return ""
    if (item.schedule, item.timezone) == (facts.settings.text, facts.settings.timezone):
        return ""
    earlier = _written_schedule(item)
    return describe(earlier) if earlier else ""


def _delayed_by(item: Item, facts: Circumstances) -> str:
    """Why a scheduled run starts later than its slot."""
    if facts.settings is None:
        return ""
    before = item.ready - part_of_jitter(item.id, facts.settings) - MILLISECOND
    if before >= item.slot and opens(facts.settings.schedule, before) != before:
        return " after its blackout"
    return " with its share of the jitter" if facts.settings.jitter else ""


def _next(item: Item, move: Move, facts: Circumstances) -> str:
    """When the item runs next, and what it waits for until then."""
    if item.state is not State.ACTIVE or item.running:
        return _afterwards(item, facts)
    if _is_newer(item):
        return ""
    if facts.group:
        return f"never: {item.type} is a pump, which serves the partitions of {facts.group}"
    if facts.board_paused and facts.settings is not None:
        return "it waits until the board is resumed"
    return _taken(item, move, facts)


def _taken(item: Item, move: Move, facts: Circumstances) -> str:
    """Which worker starts a waiting item, and when."""
    if facts.settings is None:
        return f"a worker like this leaves it alone: {facts.problem}"
    if move is Move.SKIP:
        return "it was missed, and missed runs are not made up for: the next walk reschedules it"
    at = max(facts.now, item.ready)
    if is_closed(item, now=at, settings=facts.settings):
        end = opens(facts.settings.schedule, at)
        until = f"until {phrases.exactly(end, facts.now)}" if end else "any more"
        what_now = ": the next walk puts it off" if move is Move.PUT_OFF else ""
        return f"its blackout lets no run begin {until}{what_now}"
    if facts.is_election:
        return "the first of its candidates that looks leads: each looks again and again"
    if facts.takers == 0:
        return f"no worker that takes {item.type} is at work to start it"
    if shortage := _shortage(item, facts):
        return shortage.text
    when = "in its next walk" if move is Move.RUN else "then"
    return f"{_takers(item, facts)} starts it {when}, as soon as it has a free slot"


@dataclass(frozen=True, slots=True)
class _Shortage:
    """All permits, or slots, that a run of an item needs are held."""

    text: str
    """By what, and until when."""
    remedy: str
    """What makes room; "": only time does."""


def _shortage(item: Item, facts: Circumstances) -> _Shortage | None:
    """What a run of the item waits for beside a worker; None: nothing, or no worker is at work."""
    if facts.takers == 0:
        return None
    if facts.permitted or facts.permit_rows:
        return _shortage_of_permits(item, facts)
    if not facts.occupants:
        return None
    shown = phrases.some(facts.occupants, MOST_OCCUPANTS)
    which, more = "slots", MORE_SLOTS
    if facts.has_other_slots:
        which, more = f"the slots of {item.type}", _higher("slots", item)
    text = f"{which} are full: held by {shown}; it starts when one of them ends"
    return _Shortage(text, f"{more}; or cancel one of them")


def _shortage_of_permits(item: Item, facts: Circumstances) -> _Shortage:
    """What holds the places of a type whose runs are limited on the board."""
    concurrency = facts.settings.concurrency if facts.settings else None
    apart = f" of one {concurrency.key}" if concurrency and concurrency.key else ""
    if facts.permitted:
        until = f"ends, or {phrases.span(LEASE)} after its worker has died"
        remedy = f"{_higher('concurrency', item)}; or cancel one of them"
    elif facts.is_newer_permit:
        until = "is gone"
        remedy = "upgrade blackboard and its workers; without a newer worker, delete that row"
    else:
        until, remedy = "is free", ""
    held = facts.permitted + facts.permit_rows
    limit = f"{item.type} has {phrases.plural(len(held), 'run')}{apart} at a time"
    holders = phrases.some(held, MOST_OCCUPANTS)
    text = f"{limit} on the whole board: held by {holders}; it starts when one of them {until}"
    return _Shortage(text, remedy)


def _higher(limit: str, item: Item) -> str:
    return f"a higher `{limit}` in [types.{item.type}]"


def _takers(item: Item, facts: Circumstances) -> str:
    """Which workers may start an item; where they were not read, any that takes its type."""
    if facts.takers is None:
        return f"any worker that takes {item.type}"
    if facts.takers == 1:
        return f"the one worker that takes {item.type}, last seen {phrases.last_seen(facts.seen)},"
    return f"any of the {facts.takers} workers that take {item.type}"


# ---- while it runs


def _started(item: Item, facts: Circumstances) -> str:
    at = f"at {phrases.exactly(item.start, facts.now)} " if item.start else ""
    return f"{at}by {item.owner}, as attempt {item.attempt} with fence {item.fence}"


def _queue(item: Item) -> str:
    """The requested runs that wait."""
    if not item.requests:
        return ""
    if len(item.requests) == 1:
        return "another run was requested and follows"
    return f"{len(item.requests)} more runs were requested and follow in order"


def _checkpoint(item: Item) -> str:
    """The checkpoint from which its next run starts."""
    if not item.checkpoint:
        return ""
    text = phrases.cut_middle(item.checkpoint, LONGEST_CHECKPOINT)
    if item.running:
        return f"{text}, where another run goes on unless this one ends ok"
    return f"{text}, where its next run goes on"


def _progress(lock: Lock) -> str:
    progress = decoded_as(Progress, lock.progress)
    if progress is None:
        return ""
    done, total = progress
    return f"{done:g} of {total:g}" if total else f"{done:g}"


def _silence(status: ItemStatus) -> str:
    if status.silent is None:
        return ""
    return f"last seen {phrases.last_seen(status.silent)}: it has probably died"


def _lock(status: ItemStatus, facts: Circumstances) -> str:
    lock = status.lock
    if lock is None:
        return "not found: it has just been released, or `blackboard doctor` reports it"
    good = phrases.span(lock.stale_after)
    touched = phrases.last_seen(lock.age)
    if not status.stale:
        left = phrases.span(max(lock.stale_after - lock.age, 0.0))
        text = (
            f"last renewed {touched}; unless renewed, it is good for {left} more (of {good}) and "
            "then stale"
        )
        if _is_newer(status.item) or facts.board_paused:
            return text
        return f"{text}: any {_taker(status.item, facts)} may override it"
    text = f"last renewed {touched}, and it was good for {good}"
    if _is_newer(status.item):
        return text
    if facts.board_paused:
        return f"{text}: no worker overrides it until the board is resumed"
    if not _has_attempts(lock, facts):
        follows = "frees it without another attempt"
    elif status.item.state is not State.ACTIVE:
        follows = f"frees it; attempt {lock.attempt + 1} may start when the item is resumed"
    elif shortage := _shortage(status.item, facts):
        return f"{text}; {shortage.text}"
    else:
        follows = f"overrides it and runs attempt {lock.attempt + 1}"
    taker = _taker(status.item, facts)
    if facts.takers == 0:
        return f"{text}: the first {taker} {follows}, but none is at work"
    return f"{text}: the next walk of any {taker} {follows}"


def _has_attempts(lock: Lock, facts: Circumstances) -> bool:
    """Whether the run of a stale lock is attempted again."""
    retries = facts.settings.retries if facts.settings else 0
    return may_take_over(lock.attempt, retries=retries, stood_still=lock.stood_still)


def _taker(item: Item, facts: Circumstances) -> str:
    """What may override the lock of an item."""
    return "candidate" if facts.is_election else f"worker that takes {item.type}"


def _afterwards(item: Item, facts: Circumstances) -> str:
    is_endless = facts.settings is not None and facts.settings.endless
    if item.state is State.DONE:
        return "nothing is due any more"
    if item.state is not State.ACTIVE or item.requests or is_endless or facts.is_election:
        return ""
    settings = replace(facts.settings or RunSettings(), schedule=_schedule_of(item, facts))
    try:
        following = planned_after(item, settings=settings, now=facts.now)
    except BadInput as bad:
        return f"never: {bad.problem}"
    if following is None:
        return "nothing is due any more after this run"
    return f"{phrases.exactly(following, facts.now)}, after this run"


# ---- the past


def _paused_board(facts: Circumstances) -> str:
    mark = facts.board_paused
    return f"paused {_by(mark, facts)}; no run starts on it ({RESUME_BOARD})" if mark else ""


def _by(mark: Mark, facts: Circumstances) -> str:
    """The user of a mark, when and why."""
    text = f"by {mark.by} at {phrases.exactly(mark.at, facts.now)}"
    return f"{text}: {mark.reason.rstrip('.')}" if mark.reason else text


def _paused(item: Item, facts: Circumstances) -> str:
    mark = decoded_as(Mark, item.paused)
    text = _by(mark, facts) if mark is not None else "no run starts"
    return f"{text}; the run under way may finish" if item.running else text


def _last(item: Item, facts: Circumstances) -> str:
    """How the last run ended."""
    in_a_row = phrases.plural(item.failures, "failure") + " in a row"
    if item.outcome is None or item.stop is None:
        return "" if item.failures == 0 else in_a_row
    how = "was skipped" if item.is_skipped else f"ended {item.outcome.value}"
    text = f"{how} at {phrases.exactly(item.stop, facts.now)}"
    if item.start is not None and not item.running and item.stop >= item.start:
        text += f" after {phrases.span((item.stop - item.start) / timedelta(seconds=1))}"
    if item.failures > 1:
        text += f", {in_a_row}"
    error = phrases.first_line(item.error)
    return f"{text}: {error}" if error else text


def _acknowledged(item: Item, facts: Circumstances) -> str:
    mark = decoded_as(Mark, item.acknowledged) if item.is_acknowledged else None
    return _by(mark, facts) if mark else ""


def _remedy(status: ItemStatus, move: Move, facts: Circumstances) -> str:
    """What a person can do about it."""
    item = status.item
    if _is_newer(item):
        return "upgrade blackboard and its workers"
    if facts.group:
        return phrases.command("rm", item.id)
    if facts.is_damaged:
        return f"{phrases.command('rm', item.id)}, and `blackboard add` it anew"
    if facts.settings is not None and facts.settings.endless:
        return ""
    if item.running:
        return _remedy_of_run(status, facts)
    remedy = _remedy_without_run(item, move, facts)
    return "; ".join(filter(None, (REPAIR, remedy))) if facts.clock else remedy


def _remedy_without_run(item: Item, move: Move, facts: Circumstances) -> str:
    if item.is_paused:
        renaming = renaming_of(item)
        resume = phrases.command("resume", item.id)
        remedy = renaming.remedy if renaming else resume
        return f"{remedy}; and {RESUME_BOARD}" if facts.board_paused else remedy
    if item.state is State.DONE:
        when = ", when the board is resumed" if facts.board_paused else ""
        return f"{phrases.command('run', item.id)} runs it once again{when}"
    return RESUME_BOARD if facts.board_paused else _remedy_of_wait(item, move, facts)


def _remedy_of_run(status: ItemStatus, facts: Circumstances) -> str:
    item, stale = status.item, status.lock if status.stale else None
    if stale is None and status.silent is None:
        return f"{phrases.command('cancel', item.id)} ends the run"
    if stale is not None and facts.board_paused:
        return RESUME_BOARD
    remedy = ""
    if stale is not None and item.state is State.ACTIVE and _has_attempts(stale, facts):
        shortage = _shortage(item, facts)
        remedy = shortage.remedy if shortage else _remedy_without_takers(item, facts)
    return remedy or f"{phrases.command('unlock', item.id)} takes the lock at once"


def _remedy_of_wait(item: Item, move: Move, facts: Circumstances) -> str:
    if facts.settings is None:
        return "mend that in the settings or `blackboard edit` the item, for all workers"
    if facts.is_election:
        return "start a program that enters the election"
    if remedy := _remedy_without_takers(item, facts):
        return remedy
    shortage = _shortage(item, facts)
    if shortage is not None and move not in {Move.SKIP, Move.PUT_OFF}:
        return shortage.remedy
    if move in {Move.LEAVE, Move.PUT_OFF}:
        return f"{phrases.command('run', item.id)} starts it at once"
    return ""


def _remedy_without_takers(item: Item, facts: Circumstances) -> str:
    """What makes workers take the item; "" where one is at work that does."""
    if facts.takers != 0:
        return ""
    return f"start a worker that has the jobs of {item.type}: `blackboard worker`"


async def explained(
    board: BoardTable, item: Item, present: Sequence[Member]
) -> tuple[ItemStatus, Explanation]:
    """An item as it stands now, and why it runs or does not. `present` are the board's workers."""
    item = replace(item, version=max(item.version, await _version_of_token(board, item)))
    status, now = await read_one(board, item)
    status = with_silence(status, lost_since(present))
    settings, limit, problem, is_damaged = None, None, "", False
    try:
        settings = board.resolve(item.type, item.spec)
        limit = check_runnable(board, item, settings_of(board, item, item.spec))
    except (BadInput, ValueError) as error:
        settings, problem, is_damaged = None, problem_of(error), isinstance(error, BadSpec)
    planning = planning_of(board, item)
    group = group_of(board.name)
    is_election, is_partition = group == LEADERS, group not in {"", LEADERS}
    if settings is not None and is_partition:  # also where the pump is not at hand
        settings = replace(settings, endless=True)
    is_endless = settings is not None and settings.endless
    able = takers(present, item.type)
    permits, slots = Occupied(), _Occupants()
    if status.stale or (item.waits and item.ready <= now):
        permits = await _permits_held(board, limit) if limit else permits
        if able and not group:  # partitions and elections take no slot
            slots = await _occupants(board, able, item.type, settings)
    circumstances = Circumstances(
        now=now,
        resolution=board.table.resolution,
        settings=settings,
        problem=problem,
        is_damaged=is_damaged,
        takers=None if is_election else len(able),
        seen=min((worker.age for worker in able), default=0.0),
        is_election=is_election,
        occupants=slots.items,
        has_other_slots=slots.has_others,
        permitted=permits.items,
        permit_rows=permit_rows(board, permits),
        is_newer_permit=bool(permits.newer),
        board_paused=await paused_by(board),
        clock=problem_of_times(item, planning, now=now) if planning and not is_endless else "",
        group=group_board(board.name, item.type) if is_endless and not group else "",
    )
    return status, explain(status, circumstances)


async def explained_record(
    board: BoardTable, item: Item, present: Sequence[Member]
) -> ExplainedItem:
    """The same as a record."""
    status, why = await explained(board, item, present)
    return ExplainedItem(
        **msgspec.structs.asdict(item_record(status, board.labels(item))),
        decision=why.move.value,
        headline=why.headline,
        facts=dict(why.facts),
    )


async def _version_of_token(board: BoardTable, item: Item) -> int:
    """The version of the token by which workers see an item that waits."""
    if not item.waits:
        return item.version
    row = await read(board.table, board.partition(item.id), next_key(item.ready, item.id))
    return item.version if row is None else version_of(row.data)


async def _permits_held(board: BoardTable, limit: Limit) -> Occupied:
    """The permits that keep an item from running, whose type has a limit on the board; none if a
    permit is left.
    """
    held = await occupied(board, limit)
    return Occupied() if len(held) < limit.most else held


def permit_rows(board: BoardTable, held: Occupied) -> tuple[str, ...]:
    """The rows that count as permits and cannot be read, in words."""
    where = permits_partition(board.name)
    newer = "which a newer version wrote"
    damaged = f"which cannot be read and is free {phrases.span(LEASE)} after its last change"
    return (
        *(f"the row {key} in {where}, {newer}" for key in held.newer),
        *(f"the row {key} in {where}, {damaged}" for key in held.unreadable),
    )


@dataclass(frozen=True, slots=True)
class _Occupants:
    """The items that run in the slots of all workers that take a type."""

    items: tuple[str, ...] = ()
    has_others: bool = False
    """Whether one of the workers has free slots, but none for the type."""


async def _occupants(
    board: BoardTable, workers: Sequence[Member], item_type: str, settings: RunSettings | None
) -> _Occupants:
    """What runs in the slots of some workers; nothing if one of them has a free slot for the type.
    A worker may have fewer slots for a type than it has.
    """
    held: dict[str, list[Lock]] = {worker.owner: [] for worker in workers}
    async for lock in board.locks():
        if lock.owner in held:
            held[lock.owner].append(lock)
    of_type = settings.slots if settings else None
    ids, has_others = list[str](), False
    for worker in workers:
        locks = held[worker.owner]
        if len(locks) < worker.slots:
            locks = [lock for lock in locks if lock.type == item_type]
            if of_type is None or len(locks) < of_type:
                return _Occupants()
            has_others = True
        ids += [lock.id for lock in locks]
    return _Occupants(tuple(ids), has_others)


async def read_one(board: BoardTable, item: Item) -> tuple[ItemStatus, datetime]:
    """An item with its lock, and the store's time."""
    lock = await board.lock(item.id) if item.running else None
    now = await board.table.now()
    return status_of(item, lock, now=now, resolution=board.table.resolution), now


# ---- when an item is due


def due_words(board: BoardTable, item: Item, now: datetime) -> str:
    """When an item is due: "is due now", "is due 2026-11-21 09:00:00Z (in 7h 5m)"."""
    if item.running:
        return "is running"
    if item.state is not State.ACTIVE:
        return f"is {item.state.value}"
    if item.ready > now:
        return f"is due {phrases.exactly(item.ready, now)}"
    try:
        settings = settings_of(board, item, item.spec)
    except (BadInput, ValueError):
        return MOVES[Move.RUN]  # `why` says what is wrong with them
    move = decide_token(token_of(item), now=now, types={item.type}, settings=settings)
    return MOVES.get(move, MOVES[Move.RUN])
