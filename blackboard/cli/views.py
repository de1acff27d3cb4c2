"""What a board's records look like to programs: plain dictionaries, ready for JSON. Pure.

Times are ISO 8601 in UTC with Z, durations seconds; what is not there is null. Text that is JSON
in a row comes out decoded, as it was put in.
"""

import math
from datetime import datetime
from typing import Any

from blackboard.model import Run, State
from blackboard.phrases import iso
from blackboard.records import decoded, mark_of
from blackboard.rules.status import ItemStatus
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
    mark = mark_of(text)
    return {"by": mark.by, "at": iso(mark.at), "reason": mark.reason} if mark else decoded(text)
