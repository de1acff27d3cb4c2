"""The commands that look for what is wrong: `check` for a probe, `doctor` in every row; and
`notify`, which tries whether notices of it arrive.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import click
from msgspec.structs import asdict

from blackboard.cli import options
from blackboard.cli.output import JSON, emit, first_of_each, paused_words, wrapped
from blackboard.cli.progress import reading
from blackboard.cli.session import Session, completed
from blackboard.clock import SystemClock
from blackboard.display.escaping import shown
from blackboard.display.health import Alarm, Checked, read_alarms
from blackboard.display.item_queries import read_selected
from blackboard.errors import BadInput, BadRow
from blackboard.model import VERSION
from blackboard.phrases import plural
from blackboard.protocol.groups import group_names
from blackboard.schedule.times import parse_duration

if TYPE_CHECKING:
    from blackboard.doctor import DoctorReport
    from blackboard.doctor.diagnosis import Finding
    from blackboard.notify.channels import NoticeChannel


@options.cli_command("""\
Examples:
  blackboard check
  blackboard check --overdue 10m --type calendars
  blackboard check --json || send-an-alarm
""")
@options.ids_argument(required=False)
@options.overdue_option("10m")
@options.types_option
def check_command(
    *, chosen: options.Chosen, ids: tuple[str, ...], overdue: timedelta, types: tuple[str, ...]
) -> int:
    """Exit 0 when all is well, 1 when an item is overdue, unserved, stale, silent or failing, has a
    time that cannot be right, was left half renamed, or cannot be read or run, or when the store's
    disk is full; each is named.

    Overdue: it has been ready for longer than --overdue. Unserved: it is due, and no live worker
    takes its type. Stale: its worker has not renewed its lock in time. Silent: its worker has not
    announced itself in time, and its lock is still good. Failing: its last run was no success; or
    the pump of a partition failed soon after its start, and not for the first time. Clock: its row
    has a time in the future, or it waits longer than its schedule explains, because a clock was
    wrong: `doctor --repair` reschedules it. Renaming: a rename of it was interrupted, and it is
    paused until that is finished. Unowned: a partition has had no worker for longer than a lease.
    Damaged: its row cannot be read, or no worker can run it as it is. Store: the disk of the file
    has no room for what is to be written, or the file's log is too long. Where ids are given,
    partitions are left out. Items that people have paused raise no alarm, and on a board that is
    paused nothing is overdue, unserved or stale. `ack` silences a failure until the next run.
    """
    session = Session.start(chosen).with_labels(ids)

    async def read() -> Checked:
        async with reading(session.board(), "checking items") as board:
            status = await read_selected(board, ids, exact=chosen.exact, overdue_after=overdue)
            checked, names = await read_alarms(board, status, types=types, with_groups=not ids)
            if unmatched := {*types} - names:
                present = {item.type async for item in board.items()}
                present.update(await group_names(board))
                session.check_types(unmatched, present)
        return checked

    checked = asyncio.run(read())
    if chosen.json:
        emit(
            {
                "well": not checked.alarms,
                "items": checked.items,
                "board_paused": checked.paused,
                "problems": checked.alarms,
            }
        )
    else:
        if checked.paused:
            click.echo(wrapped(paused_words(checked.paused, checked.now), margin="  "))
        click.echo("\n".join(_alarm_lines(checked.alarms, items=checked.items)))
    return 1 if checked.alarms else 0


def _alarm_lines(alarms: Sequence[Alarm], *, items: int) -> Iterator[str]:
    if not alarms:
        yield f"all well: {plural(items, 'item')}"
    for alarm, more in first_of_each(alarms, lambda each: each.kind):
        problem = alarm.problem if alarm.kind == "failing" else options.as_typed(alarm.problem)
        words = f"{shown(alarm.id)}  {shown(problem)}"
        yield wrapped(words, first=f"{alarm.kind:<9}")
        if more:
            yield f"{alarm.kind:<9}... and {more:,} more (--json has all)"


# ---- doctor

COUNTED = {
    "items": "item",
    "tombstones": "tombstone",
    "waiting": "waiting token",
    "locks": "lock",
    "runs": "run",
}


@options.cli_command("""\
Examples:
  blackboard doctor
  blackboard doctor --jobs jobs --jobs calendars
  blackboard doctor --repair --json
""")
@options.jobs_option("Check that every type has a handler in there.")
@click.option("--repair", is_flag=True, help="Mend what is safe to mend.")
def doctor_command(*, chosen: options.Chosen, jobs: tuple[str, ...], repair: bool) -> int:
    """Check every row of the board, of its groups and of its elections; exit 1 when something is
    broken.

    Workers may run meanwhile: a row that only looks broken because it has just changed is not
    reported. A repair is one batch for each item, on the condition that the item has not changed
    since. Lost workers and clocks that differ are reported without exit 1.
    """
    from blackboard.doctor import Examination, examine, unopened  # noqa: PLC0415 - of this alone

    session = Session.start(chosen)
    session = session.with_types(jobs) if jobs else session.with_defaults()
    request = Examination(
        cycle=parse_duration(session.settings.worker.cycle, "cycle"),
        types=set(session.handlers) or None,
        repair=repair,
        retention=session.settings.retention,
    )

    async def examined() -> "DoctorReport":
        label = "examining rows" if not repair else "examining and repairing rows"
        async with AsyncExitStack() as stack:
            try:
                opened = reading(session.board(), label, whole=True)
                board = await stack.enter_async_context(opened)
            except BadRow as bad:
                return unopened(session.name, bad)
            return await examine(board, request)

    report = completed(examined())
    if chosen.json:
        counts = {name: getattr(report, name) for name in COUNTED}
        findings = [asdict(finding) for finding in report.findings]
        emit({"clean": report.clean, "version": VERSION, **counts, "findings": findings})
    else:
        click.echo("\n".join(_report_lines(report, session)))
    return 0 if report.clean else 1


def _report_lines(report: "DoctorReport", session: Session) -> Iterator[str]:
    for first, more in first_of_each(report.findings, lambda each: (each.code, _fate(each))):
        words = f"{shown(first.subject)}  {shown(options.as_typed(first.problem))}{_fate(first)}"
        yield wrapped(words, first=f"{first.code:<8}")
        if more:
            yield f"{first.code:<8}... and {more:,} more{_fate(first)} (--json has all)"
    counts = (plural(getattr(report, name), noun) for name, noun in COUNTED.items())
    broken = sum(finding.grave and not finding.repaired for finding in report.findings)
    repaired = sum(finding.repaired for finding in report.findings)
    verdict = "clean" if report.clean else plural(broken, "finding")
    verdict += f", {repaired:,} repaired" if repaired else ""
    yield wrapped(f"{verdict}: {', '.join(counts)} in {shown(session.store)} (version {VERSION})")


def _fate(finding: "Finding") -> str:
    if finding.repaired:
        return "  [repaired]"
    return "" if finding.grave else "  [for your information]"


# ---- notify


@options.cli_command("""\
Examples:
  blackboard notify --test
  blackboard notify --test --json
""")
@click.option("--test", is_flag=True, help="Send a test notice through every channel of [notify].")
def notify_command(*, chosen: options.Chosen, test: bool) -> int:
    """Send a test notice through every channel of [notify] and its routes, and request the dead-man
    address.

    `${NAME}` is taken from the environment of this command, as a worker takes it from its own.
    Exit 1 when one of them was not sent. Of addresses only the host is shown.
    """
    if not test:
        raise click.UsageError("Say --test to send a test notice.")
    session = Session.start(chosen)
    tried = asyncio.run(_tried(session))
    if chosen.json:
        emit(tried)
    else:
        width = 1 + max((len(answer["channel"]) for answer in tried), default=0)
        for answer in tried:
            outcome = "sent" if answer["sent"] else answer["problem"]
            words = f"{shown(answer['to'])}  {shown(outcome)}"
            click.echo(wrapped(words, first=f"{answer['channel']:<{width}}"))
    return 0 if all(answer["sent"] for answer in tried) else 1


async def _tried(session: Session) -> list[JSON]:
    """A record for each channel: where a test notice goes, whether it was sent, and the problem."""
    from blackboard.notify.channels import dead_man_of, routes_of  # noqa: PLC0415 - of this alone
    from blackboard.notify.exchange import NotSent  # noqa: PLC0415
    from blackboard.notify.notices import Composer  # noqa: PLC0415

    table = session.settings.notify
    if table is None:
        raise BadInput(
            "notify", "there is nowhere to send notices", "add a table [notify] to blackboard.toml"
        )
    composer = Composer(board=session.name, worker=socket.gethostname())
    payload = composer.test(at=SystemClock().now())
    channels = [channel for route in routes_of(table, os.environ) for channel in route.channels]
    sending: list[tuple[NoticeChannel, Callable[[], Awaitable[None]]]]
    sending = [(channel, partial(channel.send, payload)) for channel in channels]
    dead_man = dead_man_of(table, os.environ)
    if dead_man is not None:
        sending.append((dead_man, dead_man.ping))
    tried = []
    for channel, send in sending:
        problem: str | None = None
        try:
            await send()
        except NotSent as trouble:
            problem = str(trouble)
        record = {"channel": channel.name, "to": channel.where(), "sent": problem is None}
        tried.append({**record, "problem": problem})
    return tried
