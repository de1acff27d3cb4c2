"""Items, runs, workers and actions as they are shown: frozen records. Pure.

The Python interface gives them to programs, and `as_json` makes the objects of `--json` and of the
web API of them: the same names, times in ISO 8601 with Z, and null for None.

They are made from rows and are not rows: params and results are Python values, what is absent is
None, every time is aware and in UTC, every duration is in seconds. A record is how things stood
when it was read, and never changes.
"""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from blackboard.model import Action, LogLine, Mark, Member, Outcome, Run, State, decoded_as
from blackboard.phrases import iso
from blackboard.rules.status import ItemStatus
from blackboard.schedule.limits import without_windows
from blackboard.spec import DEEPEST, Labels, is_nested_deeper

Progress = tuple[float, float | None]
"""Units done, and their total, if that is counted."""


class BoardItem(Struct, frozen=True, kw_only=True):
    """An item as it stands on the board."""

    id: str
    type: str
    state: State
    """active, paused, done or removed: what a person decided, or what became of it."""
    schedule: str
    """As last resolved from item, settings and handler: "every 8h", "cron 0 3 * * *"; "" for
    none."""
    timezone: str
    params: Mapping[str, Any]
    """As they were written: `${NAME}` is not replaced."""
    due: datetime | None
    """The slot of its waiting or running run; None when nothing is due any more."""
    ready: datetime | None
    """When that run may start, or might have: `due`, or later by jitter or backoff."""
    running: bool
    worker: str | None
    """The worker that runs it, or ran it last."""
    start: datetime | None
    """The start of the running run, else of the last."""
    stop: datetime | None
    """The end of the last run that ended."""
    outcome: Outcome | None
    """The outcome of the last run that ended."""
    result: Any
    """What the handler returned, the last time that it ended well."""
    error: str | None
    """The error of the last run, when it did not end well."""
    skipped: str | None
    """Why the handler of the last run had nothing to do; None where it had."""
    warnings: tuple[str, ...]
    """The warnings of the last run, where that was ok."""
    warned: int
    """Good runs in a row that had warnings."""
    attempt: int
    """1, and one more for each retry or takeover of the same slot."""
    runs: int
    failures: int
    """Failed runs in a row, since the last success."""
    fence: int
    """Rises with every claim; higher than in any earlier run."""
    paused: Mark | None
    """Who paused it, when and why."""
    resumed: Mark | None
    """Who resumed it last, when and why."""
    acknowledged: Mark | None
    """Who acknowledged its failure, when and why; None once it has run again."""
    checkpoint: Any
    """The value that runs have saved, unless a run was ok since; None: nothing."""
    progress: Progress | None
    """Units that the running handler has done, and their total, if it reports them."""
    stale_after: float | None
    """Seconds without a renewal after which its lock is stale, while it runs."""
    overdue: bool
    """Whether it waits although it has been ready for longer than is usual."""
    stale: bool
    """Whether it runs and its lock was not renewed in time: any worker may override it."""
    silent: bool
    """Whether it runs and its worker was not seen when it should have been. False where the workers
    were not read with it."""
    labels: Labels
    """Description, owner and tags, its own or those of its type."""


class RunSummary(Struct, frozen=True, kw_only=True):
    """One run of the history, as a list has it."""

    id: str
    """The id of the item."""
    type: str
    fence: int
    """Names the run among those of its item; later runs have higher ones."""
    attempt: int
    due: datetime
    """The slot that it was for."""
    start: datetime
    stop: datetime
    lag: float
    """Seconds from when it was ready until it started."""
    outcome: Outcome
    worker: str
    result: Any
    """What the handler returned, when ok."""
    duration: float
    """Seconds from start to stop."""
    error: str | None
    """Type, message and traceback, or why it was stopped."""
    skipped: str | None
    """Why its handler had nothing to do: it is ok, and has no result; None where it had."""
    warnings: tuple[str, ...]
    """What it gave `ctx.warn`, or returned under `warnings`."""
    note: Mark | None
    """Who ended it, when and why, if a person did."""


class BoardRun(RunSummary, frozen=True, kw_only=True):
    """One run of the history, with what its handler printed and logged."""

    output: str
    """The last of what the handler printed; not in its `repr`, as it may be long."""
    log: tuple[LogLine, ...]
    """The last of what the handler logged, by `ctx.log` and by `logging`; not in its `repr`."""

    def __repr__(self) -> str:
        fields = (f"{name}={getattr(self, name)!r}" for name in RunSummary.__struct_fields__)
        return f"BoardRun({', '.join(fields)})"


class AnnouncedWorker(Struct, frozen=True, kw_only=True):
    """A worker as it announced itself to the board."""

    name: str
    """host:pid:boot nonce"""
    host: str
    started: datetime
    seen: datetime
    age: float | None
    """Seconds since it was seen; None when its host has booted since."""
    alive: bool
    slots: int
    running: int
    """Runs whose locks it holds."""
    types: tuple[str, ...]
    cycle: float
    """Seconds between two walks."""
    version: str
    """The version of its software."""


class AskedRun(Struct, frozen=True, kw_only=True):
    """A run that was asked for."""

    id: str
    due: datetime
    """The slot of the run that is for the request."""
    ahead: int
    """Runs of the item that come before it, the running one included."""
    joined: bool
    """Whether the run is for another request, too, or is a retry."""
    changed: bool
    """False: it was asked for by the same trigger before, and there is no second run."""


class BoardAction(Struct, frozen=True, kw_only=True):
    """What a person did by one command, to items or to the board."""

    at: datetime
    by: str
    verb: str
    """"run", "pause", "edit" and so on; "pause board" and "resume board"."""
    ids: tuple[str, ...]
    """The first of the items."""
    count: int
    """The number of all items; 0: it was done to the board."""
    reason: str | None
    detail: str | None
    """What an edit changed, and the params of a run, by name; the new id of a rename."""
    via: str
    """cli, python or web."""


def item_record(status: ItemStatus, labels: Labels) -> BoardItem:
    """An item as it stood when it was read, with its lock."""
    item = status.item
    spec = decoded(item.spec)
    done = item.state in {State.DONE, State.REMOVED}
    return BoardItem(
        id=item.id,
        type=item.type,
        state=item.state,
        schedule=without_windows(item.schedule),
        timezone=item.timezone,
        params=spec.get("params", {}) if isinstance(spec, dict) else {},
        due=None if done else item.slot,
        ready=None if done else item.ready,
        running=item.running,
        worker=item.owner or None,
        start=item.start,
        stop=item.stop,
        outcome=item.outcome,
        result=decoded(item.result),
        error=None if item.is_skipped else item.error or None,
        skipped=item.error if item.is_skipped else None,
        warnings=status.warnings,
        warned=item.warned,
        attempt=item.attempt,
        runs=item.runs,
        failures=item.failures,
        fence=item.fence,
        paused=decoded_as(Mark, item.paused),
        resumed=decoded_as(Mark, item.resumed),
        acknowledged=decoded_as(Mark, item.acknowledged) if item.is_acknowledged else None,
        checkpoint=decoded(item.checkpoint),
        progress=decoded_as(Progress, status.lock.progress) if status.lock else None,
        stale_after=status.lock.stale_after if status.lock else None,
        overdue=status.overdue,
        stale=status.stale,
        silent=status.silent is not None,
        labels=labels,
    )


def run_record(run: Run) -> BoardRun:
    return BoardRun(
        id=run.id,
        type=run.type,
        fence=run.fence,
        attempt=run.attempt,
        due=run.slot,
        start=run.start,
        stop=run.stop,
        lag=run.lag,
        outcome=run.outcome,
        worker=run.worker,
        result=decoded(run.result),
        duration=run.duration,
        error=None if run.is_skipped else run.error or None,
        skipped=run.error if run.is_skipped else None,
        warnings=run.warnings,
        output=run.output,
        log=run.log,
        note=decoded_as(Mark, run.note),
    )


def run_summary(run: Run) -> RunSummary:
    """A run of the history, without what its handler printed and logged."""
    record = run_record(run)
    return RunSummary(**{name: getattr(record, name) for name in RunSummary.__struct_fields__})


def worker_record(member: Member) -> AnnouncedWorker:
    return AnnouncedWorker(
        name=member.owner,
        host=member.owner.rsplit(":", 2)[0],
        started=member.started,
        seen=member.seen,
        age=round(member.age, 3) if math.isfinite(member.age) else None,
        alive=not member.lost,
        slots=member.slots,
        running=member.running,
        types=tuple(name for name in member.types.split(",") if name),
        cycle=member.cycle,
        version=member.release,
    )


def action_record(action: Action) -> BoardAction:
    return BoardAction(
        at=action.at,
        by=action.by,
        verb=action.verb,
        ids=action.ids,
        count=action.count,
        reason=action.reason or None,
        detail=action.detail or None,
        via=action.via,
    )


# ---- JSON


def as_json(value: Any) -> Any:
    """Records, and values with records in them, as values that `json` can write."""
    return _with_times(msgspec.to_builtins(value, builtin_types=(datetime,)), _DEPTH)


def _with_times(value: Any, depth: int) -> Any:
    """The value with its times as text, `depth` levels deep. Dicts, which are new, are changed in
    place: a long list of items takes half as long.
    """
    kind = type(value)
    if kind is datetime:
        return iso(value)
    if depth and kind is dict:
        for key, inner in value.items():
            if type(inner) in _HAVE_TIMES:
                value[key] = _with_times(inner, depth - 1)
    elif depth and (kind is list or kind is tuple):
        return [_with_times(inner, depth - 1) for inner in value]
    return value


_HAVE_TIMES = {dict, list, tuple, datetime}
_DEPTH = 8
"""Levels of answers and records. The result of a handler may be deeper, and has no times."""


def decoded(text: str) -> Any:
    """The value of JSON text; None for an empty one; text that is not JSON, or is nested deeper
    than a handler's result can be, stays as it is.
    """
    if not text:
        return None
    if is_nested_deeper(text, DEEPEST):
        return text
    try:
        return msgspec.json.decode(text)
    except ValueError:
        return text
