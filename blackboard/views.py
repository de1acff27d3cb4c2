"""What programs are shown of a board, as JSON: the objects of `--json` and of the web API. Pure.

Times are ISO 8601 in UTC with Z, durations are seconds, and what is absent is null. JSON text in a
row is decoded.
"""

import math
from datetime import datetime
from typing import Any

from blackboard.display.health import Alarm
from blackboard.display.sharing import GroupLeases, last_move
from blackboard.model import Action, Mark, Run, State
from blackboard.phrases import iso
from blackboard.protocol.reading import BoardStatus
from blackboard.records import decoded, decoded_as
from blackboard.rules.next_run import says_future
from blackboard.rules.status import ItemStatus
from blackboard.schedule.times import parse_duration
from blackboard.spec import Labels, decode_spec
from blackboard.worker.membership import Sighting

JSON = dict[str, Any]


def item_view(one: ItemStatus, labels: Labels) -> JSON:
    """An item. `labels` are its own or those of its type. `due` is the slot of its waiting or
    running run, `ready` the time from which that may start; both are null when it is done or
    removed. `owner` is the worker of its running or last run.
    """
    item, lock = one.item, one.lock
    spec = decoded(item.spec)
    done = item.state in {State.DONE, State.REMOVED}
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
        "error": None if item.is_skipped else item.error or None,
        "skipped": item.error if item.is_skipped else None,
        "result": decoded(item.result),
        "warnings": [*one.warnings],
        "warned": item.warned,
        "paused": marked(item.paused),
        "resumed": marked(item.resumed),
        "acknowledged": marked(item.acknowledged) if item.is_acknowledged else None,
        "checkpoint": decoded(item.checkpoint),
        "progress": decoded(lock.progress) if lock else None,
        "stale_after": lock.stale_after if lock else None,
        "overdue": one.overdue,
        "stale": one.stale,
        "silent": one.silent is not None,
        "labels": {
            "description": labels.description,
            "owner": labels.owner,
            "tags": labels.tags,
        },
    }


def run_view(run: Run, *, output: bool = False) -> JSON:
    """A run of the history; with what its handler printed and logged if `output` says so."""
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
        "error": None if run.is_skipped else run.error or None,
        "skipped": run.error if run.is_skipped else None,
        "warnings": [*run.warnings],
        "note": marked(run.note),
    }
    if not output:
        return view
    log = [
        {"at": iso(one.at), "level": one.level, "logger": one.logger or None, "text": one.text}
        for one in run.log
    ]
    return {**view, "output": run.output, "log": log}


def action_view(action: Action) -> JSON:
    """What a person did. `ids` are the first of the items, `count` is how many there were, 0 where
    it was done to the board.
    """
    return {
        "at": iso(action.at),
        "by": action.by,
        "verb": action.verb,
        "ids": [*action.ids],
        "count": action.count,
        "reason": action.reason or None,
        "detail": action.detail or None,
        "via": action.via,
    }


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
    """A mark: who, when and why. Text that is no mark is decoded as it stands."""
    mark = decoded_as(Mark, text)
    return {"by": mark.by, "at": iso(mark.at), "reason": mark.reason} if mark else decoded(text)


def alarm_view(alarm: Alarm) -> JSON:
    """One thing that is wrong."""
    return {
        "id": alarm.id,
        "type": alarm.type,
        "problem": alarm.problem,
        "since": moment(alarm.since),
        "message": alarm.message,
    }


def group_view(one: GroupLeases) -> JSON:
    return {
        "group": one.name,
        "kind": "pump",
        "lease": one.lease.total_seconds(),
        "well": one.is_well,
        "held": sum(one.counts),
        "workers": len(one.counts),
        "free": one.free.total_seconds(),
        "partitions": [_partition_view(one, part) for part in one.partitions],
    }


def _partition_view(group: GroupLeases, one: ItemStatus) -> JSON:
    return {
        "id": one.item.id,
        "owner": group.owner_of(one) or None,
        "since": moment(one.item.start) if group.owner_of(one) else None,
        "fence": one.item.fence,
        "renewed": round(one.lock.age, 3) if one.lock else None,
        "free": group.free_for(one).total_seconds(),
        "paused": one.item.is_paused,
        "checkpoint": one.item.checkpoint or None,
        "failures": one.item.failures,
        "last_move": last_move(one) or None,
    }


def has_no_leader(one: ItemStatus, read: BoardStatus) -> bool:
    """Whether an election has had no leader for longer than its lease."""
    if one.stale and one.lock is not None:
        return one.lock.age - one.lock.stale_after > _lease_of(one)
    if one.item.waits and says_future(one.item, now=read.now):
        return True  # a clock was wrong: nothing says for how long
    return one.item.waits and (read.now - one.item.ready).total_seconds() > _lease_of(one)


def _lease_of(one: ItemStatus) -> float:
    """Seconds; infinity where the item does not say."""
    text = decode_spec(one.item.spec).stale_after
    return parse_duration(text).total_seconds() if text else math.inf


def leader_view(one: ItemStatus, *, late: bool) -> JSON:
    """An election. `term` is the highest so far; `renewed` is seconds ago, null without a lock."""
    item, lock = one.item, one.lock
    leads = lock is not None and not one.stale
    age = lock.age if lock else math.inf
    return {
        "election": item.id,
        "leader": item.owner if leads else None,
        "since": moment(item.start) if leads else None,
        "term": item.fence,
        "kind": item.type,
        "lease": _lease_of(one) if math.isfinite(_lease_of(one)) else None,
        "renewed": round(age, 3) if math.isfinite(age) else None,
        "paused": item.is_paused,
        "late": late,
    }
