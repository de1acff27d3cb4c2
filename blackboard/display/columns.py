"""The columns of `show`, `status`, `log`, `workers`, `leases` and `leader`. Pure. Colours follow
the state, and words repeat it: "overdue 5m", "stale 2m", "failed x3".
"""

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from blackboard import phrases
from blackboard.display.escaping import shown
from blackboard.display.item_queries import ItemsFound
from blackboard.display.layout import Cell, Column, Line, Style
from blackboard.display.sharing import last_move
from blackboard.model import (
    Action,
    Item,
    Member,
    Outcome,
    Run,
    State,
    Statistics,
    TypeCounts,
    replace,
)
from blackboard.protocol.groups import GroupLeases
from blackboard.records import decoded
from blackboard.rules.groups import Partition, PartitionState
from blackboard.rules.next_run import is_ahead
from blackboard.rules.status import ItemStatus, counts_of
from blackboard.schedule.limits import without_windows
from blackboard.schedule.rrule import BREAK
from blackboard.schedule.schedule import without_limits

NOTHING = "-"
FEW_ITEMS = 3
"""The most items that the line of an action names."""
MOST_LINES = 10
"""The most warnings below a board."""
MOMENT = 20
"""The width of a time in full, in cells of the terminal; it is never cut."""
ITEM_COLUMNS = (
    Column(title="id", least=10, usual=24, worth=9),
    Column(title="type", least=4, usual=12, worth=3, spare=True),
    Column(title="schedule", least=8, usual=21, worth=4),
    Column(title="start", least=7, usual=MOMENT, worth=2, words=True, spare=True),
    Column(title="stop", least=7, usual=MOMENT, worth=1, words=True, spare=True),
    Column(title="running", least=7, usual=10, worth=6, words=True),
    Column(title="outcome", least=7, usual=12, worth=5, words=True),
    Column(title="next", least=7, usual=MOMENT, worth=7, words=True),
    Column(title="worker", least=6, usual=16, worth=0, spare=True),
)
RUN_COLUMNS = (
    Column(title="stop", least=7, usual=MOMENT, worth=8, words=True),
    Column(title="id", least=10, usual=24, worth=9),
    Column(title="type", least=5, usual=12, worth=1, spare=True),
    Column(title="outcome", least=9, usual=10, worth=7),
    Column(title="took", least=4, usual=6, worth=5),
    Column(title="lag", least=4, usual=6, worth=4, spare=True),
    Column(title="try", least=3, usual=3, worth=2, spare=True),
    Column(title="fence", least=5, usual=6, worth=3),
    Column(title="worker", least=8, usual=16, worth=0, spare=True),
    Column(title="result or error", least=12, usual=26, worth=6),
)
ACTION_COLUMNS = (
    Column(title="at", least=7, usual=MOMENT, worth=8, words=True),
    Column(title="by", least=8, usual=20, worth=7),
    Column(title="verb", least=6, usual=20, worth=9),
    Column(title="ids", least=8, usual=24, worth=6),
    Column(title="reason", least=8, usual=24, worth=5),
    Column(title="via", least=3, usual=6, worth=1, spare=True),
)
WORKER_COLUMNS = (
    Column(title="worker", least=12, usual=32, worth=9),
    Column(title="state", least=5, usual=5, worth=8),
    Column(title="started", least=7, usual=MOMENT, worth=3, words=True),
    Column(title="seen", least=7, usual=MOMENT, worth=7, words=True),
    Column(title="slots", least=5, usual=5, worth=4),
    Column(title="running", least=7, usual=7, worth=6),
    Column(title="types", least=5, usual=24, worth=5),
    Column(title="version", least=7, usual=12, worth=1),
)
TYPE_COLUMNS = (
    Column(title="type", least=8, usual=24, worth=9),
    Column(title="items", least=5, usual=9, worth=8),
    Column(title="active", least=6, usual=9, worth=4),
    Column(title="paused", least=6, usual=7, worth=3),
    Column(title="done", least=4, usual=7, worth=2),
    Column(title="running", least=7, usual=7, worth=5),
    Column(title="stale", least=5, usual=6, worth=1),
    Column(title="overdue", least=7, usual=7, worth=7),
    Column(title="failing", least=7, usual=7, worth=6),
)
GROUP_COLUMNS = (
    Column(title="group", least=5, usual=24, worth=9),
    Column(title="partitions", least=10, usual=10, worth=6),
    Column(title="held", least=4, usual=5, worth=7),
    Column(title="workers", least=7, usual=7, worth=5),
    Column(title="each", least=4, usual=7, worth=4),
    Column(title="lease", least=5, usual=6, worth=3),
    Column(title="free for", least=8, usual=8, worth=8),
)
PARTITION_COLUMNS = (
    Column(title="partition", least=5, usual=24, worth=9),
    Column(title="worker", least=12, usual=32, worth=8),
    Column(title="held for", least=8, usual=MOMENT, worth=6),
    Column(title="fence", least=5, usual=5, worth=3),
    Column(title="renewed", least=7, usual=8, worth=5),
    Column(title="checkpoint", least=10, usual=20, worth=4),
    Column(title="last move", least=9, usual=24, worth=2),
)

LEADER_COLUMNS = (
    Column(title="election", least=10, usual=24, worth=9),
    Column(title="leader", least=6, usual=24, worth=8),
    Column(title="since", least=7, usual=MOMENT, worth=5, words=True),
    Column(title="term", least=4, usual=6, worth=6),
    Column(title="kind", least=5, usual=5, worth=3),
    Column(title="renewed", least=7, usual=10, worth=7, words=True),
)


class ShownTimes(Struct, frozen=True):
    """How a table shows times: from `now`, or in full if they are `absolute`."""

    now: datetime
    absolute: bool = False

    def columns(self, columns: Sequence[Column]) -> Sequence[Column]:
        """The columns, with room for the times."""
        wide = MOMENT if self.absolute else 0
        return [
            replace(column, least=max(column.least, wide)) if column.usual == MOMENT else column
            for column in columns
        ]

    def past(self, moment: datetime | None) -> Cell:
        """A time of the past. A wrong clock wrote one that is to come."""
        if moment is None:
            return NOTHING, Style.PLAIN
        if self.absolute:
            return phrases.stamp(moment), Style.PLAIN
        return _ahead(moment, self.now) or phrases.relative(moment, self.now), Style.PLAIN


def _ahead(moment: datetime, now: datetime) -> str:
    """By how much a time of the past is still to come; "" where it is past."""
    is_wrong = is_ahead(moment, now=now)
    return f"{phrases.span((moment - now).total_seconds())} ahead (clock)" if is_wrong else ""


def item_cells(status: ItemStatus, times: ShownTimes, *, held: bool = False) -> Line:
    """One line of `show`. What is `held`, a partition or an election, has no schedule."""
    item = status.item
    next_style = Style.PLAIN if item.state is State.ACTIVE else Style.QUIET
    if status.overdue:
        next_style = Style.LATE
    return (
        (item.id, style_of(status)),
        (item.type, Style.PLAIN),
        (NOTHING if held else _schedule(item), Style.PLAIN),
        times.past(item.start),
        times.past(item.stop),
        _running(status, now=times.now),
        outcome_cell(status),
        (next_words(status, times), next_style),
        (worker_name(item.owner), Style.BUSY if item.running else Style.QUIET),
    )


def _schedule(item: Item) -> str:
    """The text of a schedule; a single time is cut to the minute or second. Where there is none,
    the handler of the type, which only workers may have, decides about an item that never ran, or
    was given another type since.
    """
    text = without_windows(item.schedule).replace(BREAK, " ")
    if not text.startswith("at "):
        return text or ("once" if item.has_no_schedule else "by handler")
    alone = without_limits(text)
    try:
        moment = datetime.fromisoformat(alone.removeprefix("at "))
    except ValueError:  # as other software wrote it
        return text
    digits = "seconds" if moment.second else "minutes"
    time = moment.isoformat(" ", digits).replace("+00:00", "Z")
    return f"at {time}{text.removeprefix(alone)}"


def plain_record(status: ItemStatus) -> str:
    """An item in four lines, as elmcity showed it in 2009."""
    start, stop = (
        phrases.iso(moment) if moment else "never"
        for moment in (status.item.start, status.item.stop)
    )
    return (
        f"id: {shown(status.item.id)}\nstart: {start}\nstop: {stop}\nrunning: {status.item.running}"
    )


def style_of(status: ItemStatus) -> Style:
    """The style of the most urgent state of an item."""
    if status.stale:
        return Style.LOST
    if status.running:
        return Style.BUSY
    if status.overdue:
        return Style.LATE
    if status.item.state is not State.ACTIVE:
        return Style.QUIET
    return Style.BAD if status.failing else Style.PLAIN


def next_words(status: ItemStatus, times: ShownTimes) -> str:
    """When an item is run next, or why it is not run."""
    item = status.item
    if item.state is not State.ACTIVE:
        return item.state.value
    if item.running:
        return "again" if item.requests else NOTHING
    if times.absolute:
        return phrases.stamp(item.ready)
    if status.overdue:
        return f"overdue {phrases.brief(int((times.now - item.ready).total_seconds()))}"
    words = "now" if item.ready <= times.now else phrases.relative(item.ready, times.now)
    return f"retry {words}" if item.attempt > 1 else words


def _running(status: ItemStatus, *, now: datetime) -> Cell:
    if not status.running or status.item.start is None:
        return NOTHING, Style.PLAIN
    if status.silent is not None and not status.stale:
        lasts = "" if math.isinf(status.silent) else f" {phrases.brief(status.silent)}"
        return f"silent{lasts}", Style.LOST
    words = phrases.brief(max(int((now - status.item.start).total_seconds()), 0))
    share = percent(decoded(status.lock.progress)) if status.lock else ""
    words = f"{words} {share}" if share else words
    return (f"stale {words}", Style.LOST) if status.stale else (words, Style.BUSY)


def percent(progress: Any) -> str:
    """Progress as a share of its total, or as the bare number when there is no total."""
    match progress:
        case [int() | float() as done, int() | float() as total] if total > 0:
            return f"{100 * done / total:.0f}%"
        case [int() | float() as done, *_]:
            return f"{done:g}"
        case _:
            return ""


SKIPPED = "skipped"
"""The word for the outcome "ok" where the handler had nothing to do."""


def outcome_cell(status: ItemStatus) -> Cell:
    """How the last run of an item ended, in a word or two."""
    item = status.item
    if item.failures:
        # An override counts as a failure before the item has a new outcome.
        ok = item.outcome in {None, Outcome.OK}
        word = Outcome.ABANDONED if ok else item.outcome
        times = f" x{item.failures}" if item.failures > 1 else ""
        return f"{word}{times}", Style.BAD
    if item.outcome is None:
        return NOTHING, Style.PLAIN
    if status.warnings:
        times = f" x{item.warned}" if item.warned > 1 else ""
        return f"warned{times}", Style.LATE
    if item.is_skipped:
        return SKIPPED, Style.QUIET
    return item.outcome.value, OUTCOME_STYLES[item.outcome]


OUTCOME_STYLES = {
    Outcome.OK: Style.GOOD,
    Outcome.FAILED: Style.BAD,
    Outcome.TIMEOUT: Style.BAD,
    Outcome.ABANDONED: Style.LOST,
    Outcome.SUPERSEDED: Style.LOST,
    Outcome.CANCELLED: Style.QUIET,
}


def warning_lines(statuses: Sequence[ItemStatus]) -> list[Line]:
    """The warnings of items, a line each, up to `MOST_LINES`."""
    lines: list[Line] = [
        [(f"{shown(status.item.id)}: {shown(text)}", Style.LATE)]
        for status in statuses
        for text in status.warnings
    ]
    more = len(lines) - MOST_LINES
    if more > 0:
        lines = [*lines[:MOST_LINES], [(f"... and {more:,} warnings more", Style.QUIET)]]
    return lines


def worker_name(owner: str) -> str:
    """A worker's host and process, without its boot nonce."""
    return owner.rpartition(":")[0] or owner or NOTHING


def summary(statuses: Sequence[ItemStatus], *, total: int, now: datetime) -> str:
    return _summary(counts_of(statuses, now=now), total=total, now=now)


def found_summary(listed: ItemsFound) -> str:
    """All items that were found, or the board as it was counted some time ago, in one line; "" for
    a board without items.
    """
    return _summary(listed.counted, total=listed.total, now=listed.now) if listed.total else ""


def _summary(counted: Statistics, *, total: int, now: datetime) -> str:
    items = phrases.plural(counted.items, "item")
    if counted.items != total:
        items = f"{counted.items:,} of {phrases.plural(total, 'item')}"
    counts = {
        "running": counted.running - counted.stale,
        "stale": counted.stale,
        "overdue": counted.overdue,
        "failed": counted.failing,
        "warned": counted.warned,
        "paused": counted.paused,
        "done": counted.done,
    }
    parts = [items, *(f"{count:,} {name}" for name, count in counts.items() if count)]
    if (coming := counted.earliest) is not None:
        parts.append(f"next {'now' if coming <= now else phrases.relative(coming, now)}")
    words = ", ".join(parts)
    return f"{words} (counted {phrases.relative(counted.at, now)})" if counted.by else words


def type_cells(counts: TypeCounts) -> Line:
    return (
        (counts.type, Style.PLAIN),
        (f"{counts.items:,}", Style.PLAIN),
        (f"{counts.active:,}", Style.PLAIN),
        (f"{counts.paused:,}", Style.QUIET),
        (f"{counts.done:,}", Style.QUIET),
        (f"{counts.running:,}", Style.BUSY if counts.running else Style.PLAIN),
        (f"{counts.stale:,}", Style.LOST if counts.stale else Style.PLAIN),
        (f"{counts.overdue:,}", Style.LATE if counts.overdue else Style.PLAIN),
        (f"{counts.failing:,}", Style.BAD if counts.failing else Style.PLAIN),
    )


def run_outcome(run: Run) -> Cell:
    if run.outcome is Outcome.OK and run.warnings:
        return "warned", Style.LATE
    if run.is_skipped:
        return SKIPPED, Style.QUIET
    return run.outcome.value, OUTCOME_STYLES[run.outcome]


def run_words(run: Run) -> str:
    """A run in a line: its error, else its warnings, else its result."""
    return phrases.first_line(run.error) or "; ".join(run.warnings) or run.result


def run_cells(run: Run, times: ShownTimes) -> Line:
    """One line of `log`."""
    outcome = run_outcome(run)
    style = outcome[1] if run.error or run.warnings else Style.PLAIN
    return (
        times.past(run.stop),
        (run.id, Style.PLAIN),
        (run.type, Style.PLAIN),
        outcome,
        (phrases.brief(run.duration), Style.PLAIN),
        (phrases.brief(run.lag), Style.PLAIN),
        (str(run.attempt), Style.PLAIN),
        (str(run.fence), Style.PLAIN),
        (worker_name(run.worker), Style.QUIET),
        (run_words(run) or NOTHING, style),
    )


def action_cells(action: Action, times: ShownTimes) -> Line:
    named = phrases.some(action.ids, FEW_ITEMS, total=action.count)
    return (
        times.past(action.at),
        (action.by, Style.PLAIN),
        (f"{action.verb}: {action.detail}" if action.detail else action.verb, Style.PLAIN),
        (named if action.count else "the board", Style.PLAIN),
        (action.reason or NOTHING, Style.PLAIN),
        (action.via, Style.QUIET),
    )


def worker_cells(member: Member, times: ShownTimes) -> Line:
    return (
        (member.owner, Style.LOST if member.lost else Style.PLAIN),
        ("lost", Style.LOST) if member.lost else ("alive", Style.GOOD),
        times.past(member.started),
        times.past(member.seen),
        (str(member.slots), Style.PLAIN),
        (str(member.running), Style.BUSY if member.running else Style.PLAIN),
        (member.types or NOTHING, Style.PLAIN),
        (member.release, Style.QUIET),
    )


def leader_cells(status: ItemStatus, times: ShownTimes) -> Line:
    item, lock = status.item, status.lock
    if status.holder:
        leader, since = (worker_name(status.holder), Style.BUSY), item.start
    else:
        paused = item.is_paused
        leader, since = ("paused", Style.QUIET) if paused else ("none", Style.LOST), None
    return (
        (item.id, Style.PLAIN),
        leader,
        times.past(since),
        (str(item.fence), Style.PLAIN),
        (item.type, Style.PLAIN),
        (
            phrases.last_seen(lock.age) if lock else NOTHING,
            Style.LOST if status.stale else Style.PLAIN,
        ),
    )


def group_cells(group: GroupLeases) -> Line:
    counts = group.counts
    held = sum(counts)
    least_and_most = dict.fromkeys([*counts[:1], *counts[-1:]])  # one number where they are equal
    each = "-".join(map(str, least_and_most))
    return (
        (group.name, Style.PLAIN),
        (f"{len(group.partitions):,}", Style.PLAIN),
        (f"{held:,}", Style.GOOD if held == len(group.partitions) else Style.LATE),
        (str(len(counts)), Style.PLAIN),
        (each or NOTHING, Style.PLAIN),
        (phrases.span(group.lease.total_seconds()), Style.QUIET),
        _free_cell(group, group.free),
    )


def _free_cell(group: GroupLeases, free: timedelta) -> tuple[str, Style]:
    if not free:
        return NOTHING, Style.PLAIN
    return phrases.span(free.total_seconds()), Style.BAD if free > group.lease else Style.LATE


def partition_cells(group: GroupLeases, partition: Partition) -> Line:
    item, owner = partition.item, partition.holder
    held = NOTHING
    if owner and item.start is not None:
        seconds = max((group.now - item.start).total_seconds(), 0.0)
        held = _ahead(item.start, group.now) or phrases.span(seconds)
    if owner:
        who = (worker_name(owner), Style.BUSY)
    elif partition.state in {PartitionState.FAILING, PartitionState.PAUSED}:
        is_failing = partition.state is PartitionState.FAILING
        who = (partition.state.value, Style.BAD if is_failing else Style.PLAIN)
    else:
        text, style = _free_cell(group, partition.free)
        who = (f"free for {text}" if partition.free else "waits", style)
    return (
        (item.id, Style.PLAIN),
        who,
        (held, Style.PLAIN),
        (str(item.fence), Style.QUIET),
        (phrases.last_seen(partition.lock.age) if partition.lock else NOTHING, Style.PLAIN),
        (item.checkpoint or NOTHING, Style.PLAIN),
        (last_move(partition) or NOTHING, Style.QUIET),
    )


def leases_summary(group: GroupLeases) -> str:
    counts = group.counts
    held, idle = sum(counts), counts.count(0)
    workers = phrases.plural(len(counts) - idle, "worker")
    workers += f", {idle:,} more without any" if idle else ""
    free = f", free for {phrases.span(group.free.total_seconds())}" if group.free else ""
    return (
        f"{held:,} of {phrases.plural(len(group.partitions), 'partition')} held by {workers}{free}"
    )
