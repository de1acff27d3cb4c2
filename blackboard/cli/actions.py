"""The actions of operators: recorded by the commands, and listed by `log --actions`."""

import asyncio
from collections.abc import Iterable, Sequence

import click

from blackboard.board import operator
from blackboard.cli.output import emit, is_terminal, table_lines, warn
from blackboard.cli.session import Session
from blackboard.display.columns import ACTION_COLUMNS, action_cells, wide
from blackboard.protocol.actions import actions, record_action
from blackboard.protocol.reading import BoardTable
from blackboard.records import action_record
from blackboard.table import TableError


async def record(
    board: BoardTable,
    verb: str,
    ids: Sequence[str],
    *,
    reason: str = "",
    details: Iterable[str] = (),
) -> None:
    """Record what a command has done to items or, with no `ids`, to the board. It is done: a store
    that does not take the record is a warning.
    """
    try:
        await record_action(
            board,
            by=operator(),
            verb=verb,
            ids=ids,
            reason=reason,
            detail=", ".join(dict.fromkeys(details)),
            via="cli",
        )
    except TableError as trouble:
        warn(f"{verb}: it is done, and not recorded for `log --actions`: {trouble}")


def show_actions(session: Session, *, number: int, absolute: bool) -> int:
    """Print the newest actions; the exit code."""

    async def read() -> None:
        async with session.board() as board:
            found = await actions(board, limit=number)
            now = await board.table.now()
        if session.chosen.json:
            emit([action_record(one) for one in found])
        elif not found:
            click.echo("no actions")
        else:
            rows = [action_cells(one, now=now, absolute=absolute) for one in found]
            click.echo("\n".join(table_lines(wide(ACTION_COLUMNS, absolute=absolute), rows)))
            if len(found) == number and is_terminal():
                click.echo(f"\nthe newest {number}; -n shows more")

    asyncio.run(read())
    return 0
