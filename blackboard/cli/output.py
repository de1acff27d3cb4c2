"""What commands print: tables and lines for people, JSON for programs, notes on stderr.

In JSON, times are ISO 8601 in UTC with Z, durations are seconds, and what is absent is null. JSON
text in a row is decoded.
"""

import math
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click
import msgspec

from blackboard.display.layout import Column, Line, one_line, shown, table, text_of
from blackboard.errors import BlackboardError
from blackboard.model import Item, Mark, Run, State
from blackboard.phrases import exactly, iso
from blackboard.protocol.reading import BoardTable
from blackboard.records import decoded, decoded_as
from blackboard.rules.status import ItemStatus, status_of
from blackboard.spec import Labels
from blackboard.worker.membership import Sighting

JSON = dict[str, Any]


# ---- for people, and on stderr


def is_terminal() -> bool:
    return sys.stdout.isatty()


def colour() -> bool:
    """Colours on a terminal, but for https://no-color.org and terminals that are dumb."""
    return is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") != "dumb"


def width() -> int | None:
    """Columns to fit; None when a file or a pipe takes lines of any length."""
    if is_terminal() or os.environ.get("COLUMNS"):
        return shutil.get_terminal_size().columns
    return None


def wrapped(text: str, *, first: str = "", margin: str = "") -> str:
    """A paragraph as wide as the terminal, one line where there is none. `first` comes before its
    first line, `margin` before the others.
    """
    columns = width()
    if columns is None:
        return first + text
    return click.wrap_text(text, columns, initial_indent=first, subsequent_indent=margin)


def table_text(columns: Sequence[Column], rows: Sequence[Line]) -> str:
    """A table as wide as the terminal, in colours where it has some."""
    return "\n".join(table_lines(columns, rows))


def table_lines(columns: Sequence[Column], rows: Sequence[Line]) -> list[str]:
    """The titles, and a line for each row."""
    in_colour = colour()
    return [text_of(line, colour=in_colour) for line in table(columns, rows, width=width())]


def echo_paged(text: str) -> None:
    """Prints text; on a terminal through a pager ($PAGER, else less) where it has more lines than
    the screen.
    """
    if is_terminal() and text.count("\n") + 1 >= shutil.get_terminal_size().lines:
        # None: as the pager can; less is told to show colours.
        click.echo_via_pager(text, color=None if colour() else False)
    else:
        click.echo(text)


def note(message: str) -> None:
    """One line on stderr that is no error."""
    click.echo(f"blackboard: {one_line(message)}", err=True)


def warn(message: str) -> None:
    """One line on stderr about a probable mistake."""
    note(f"warning: {message}")


# ---- for programs


def emit(value: Any, *, in_a_line: bool = False) -> None:
    """JSON for programs: times are ISO 8601 in UTC with Z."""
    try:
        text = msgspec.json.format(msgspec.json.encode(value), indent=0 if in_a_line else 2)
    except RecursionError:
        raise BlackboardError("JSON that is nested so deeply cannot be written") from None
    click.echo(text)


def item_view(one: ItemStatus, labels: Labels) -> JSON:
    """An item. `labels` are its own or those of its type. `due` is the slot of its waiting or
    running run, `ready` the time from which that may start; both are null when it is done. `owner`
    is the worker of its running or last run.
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


def paused_words(mark: Mark, now: datetime) -> str:
    """What is said of a board that is paused."""
    reason = f": {shown(mark.reason)}" if mark.reason else ""
    who = f"{shown(mark.by)} at {exactly(mark.at, now)}{reason}"
    return f"the board is paused, by {who}; `blackboard resume --board` ends that"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of a command for one item: the item now, and words for people."""

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
                item_view(
                    status_of(one.item, None, now=now, resolution=resolution),
                    board.labels(one.item),
                )
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
    """When an item is due: "is due now", "is due 2026-11-21 09:00:00Z (in 7h 5m)"."""
    if item.running:
        return "is running"
    if item.state is not State.ACTIVE:
        return f"is {item.state.value}"
    return "is due now" if item.ready <= now else f"is due {exactly(item.ready, now)}"
