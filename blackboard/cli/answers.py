"""What commands print: records as JSON for programs, and a line per changed item for people.

In records, times are ISO 8601 in UTC with Z, durations are seconds, and what is not there is null.
JSON text in a row comes out decoded.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click

from blackboard.cli.session import emit, note
from blackboard.display.layout import shown
from blackboard.model import Item, Mark, Run, State
from blackboard.phrases import exactly, iso
from blackboard.protocol.reading import BoardTable
from blackboard.records import decoded, decoded_as
from blackboard.rules.status import ItemStatus, status_of
from blackboard.worker.membership import Sighting

JSON = dict[str, Any]


def item_view(one: ItemStatus) -> JSON:
    """An item. `due` is the slot of its pending or running run, `ready` when that may start or
    might have; both are null when it is done. `owner` runs it, or ran it last.
    """
    item, lock = one.item, one.lock
    spec = decoded(item.spec)
    done = item.state is State.DONE
    return {
        "id": item.id,
        "type": item.type,
        "state": item.state.value,
        "schedule": item.schedule,
        "timezone": item.timezone,
        "params": spec.get("params", {}) if isinstance(spec, dict) else {},
        "start": moment(item.start),
        "stop": moment(item.stop),
        "running": item.running,
        "outcome": item.outcome.value if item.outcome else None,
        "due": None if done else iso(item.slot),
        "ready": None if done else iso(item.ready),
        "owner": item.owner or None,
        "fence": item.fence,
        "attempt": item.attempt,
        "runs": item.runs,
        "failures": item.failures,
        "error": item.error or None,
        "result": decoded(item.result),
        "warnings": one.warnings,
        "paused": marked(item.paused),
        "resumed": marked(item.resumed),
        "progress": decoded(lock.progress) if lock else None,
        "stale_after": lock.stale_after if lock else None,
        "overdue": one.overdue,
        "stale": one.stale,
    }


def run_view(run: Run, *, output: bool = False) -> JSON:
    """A run of the history; what its handler printed on request."""
    view = {
        "id": run.id,
        "type": run.type,
        "due": iso(run.slot),
        "start": iso(run.start),
        "stop": iso(run.stop),
        "lag": run.lag,
        "duration": run.duration,
        "outcome": run.outcome.value,
        "worker": run.worker,
        "fence": run.fence,
        "attempt": run.attempt,
        "result": decoded(run.result),
        "error": run.error or None,
        "note": marked(run.note),
    }
    return {**view, "output": run.output} if output else view


def worker_view(one: Sighting) -> JSON:
    """A worker. `age` is how long ago it was seen, null when its host has booted since."""
    member = one.member
    return {
        "owner": member.owner,
        "host": host_of(member.owner),
        "started": iso(member.started),
        "seen": iso(member.seen),
        "age": round(one.age, 3) if math.isfinite(one.age) else None,
        "alive": not one.lost,
        "slots": member.slots,
        "running": member.running,
        "types": [name for name in member.types.split(",") if name],
        "cycle": member.cycle,
        "version": member.release,
    }


def host_of(owner: str) -> str:
    """The host of a worker named host:pid:boot nonce."""
    return owner.rsplit(":", 2)[0]


def moment(value: datetime | None) -> str | None:
    return None if value is None else iso(value)


def marked(text: str) -> Any:
    """Who did something, when and why, with the time as all others are."""
    mark = decoded_as(Mark, text)
    return {"by": mark.by, "at": iso(mark.at), "reason": mark.reason} if mark else decoded(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of one item: as it is now, and in words."""

    item: Item
    words: str
    """Behind the id: "is paused"."""
    changed: bool = True
    no: bool = False
    """The answer is no: exit code 1."""


async def print_answers(board: BoardTable, answers: Sequence[Answer], *, json: bool) -> int:
    """Print the answers; the exit code."""
    if json:
        now, resolution = await board.table.now(), board.table.resolution
        emit(
            [
                item_view(status_of(one.item, None, now=now, resolution=resolution))
                | {"changed": one.changed, "message": one.words}
                for one in answers
            ]
        )
    for one in answers:
        line = f"{shown(one.item.id)} {one.words}"
        if one.no:
            note(line)
        elif not json:
            click.echo(line)
    return 1 if any(one.no for one in answers) else 0


def due_words(item: Item, now: datetime) -> str:
    """As in "is due now" and "is due 2026-11-21 09:00:00Z (in 7h 5m)"."""
    if item.running:
        return "is running"
    if item.state is not State.ACTIVE:
        return f"is {item.state.value}"
    return "is due now" if item.ready <= now else f"is due {exactly(item.ready, now)}"
