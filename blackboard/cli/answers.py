"""What a verb says of the items it was about: a line each for people, records for programs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import click

from blackboard.cli.session import emit, note
from blackboard.cli.text import shown
from blackboard.cli.views import item_view
from blackboard.model import Item, State
from blackboard.phrases import exactly
from blackboard.protocol.reading import BoardTable
from blackboard.rules.status import status_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of one item: as it is now, and in words."""

    item: Item
    words: str
    """Behind the id: "is paused"."""
    changed: bool = True
    no: bool = False
    """The answer is no: exit code 1."""


async def tell(board: BoardTable, answers: Sequence[Answer], *, json: bool) -> int:
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
