"""`blackboard check`: whether all is well."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta

import click

from blackboard.cli import options
from blackboard.cli.output import emit, first_of_each, paused_words, wrapped
from blackboard.cli.progress import reading
from blackboard.cli.session import Session
from blackboard.display.escaping import shown
from blackboard.display.health import Alarm, Checked, read_alarms
from blackboard.display.item_queries import read_selected
from blackboard.phrases import plural
from blackboard.protocol.groups import group_names


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
