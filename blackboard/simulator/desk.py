"""The people of a world: what they ask for goes the same way to the store as everything else."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from blackboard.errors import BlackboardError
from blackboard.model import Mark
from blackboard.phrases import iso
from blackboard.protocol import edits
from blackboard.protocol.reading import BoardTable
from blackboard.simulator.host import Process
from blackboard.simulator.scenario import Declared
from blackboard.simulator.store import Sender
from blackboard.simulator.wire import Wire
from blackboard.spec import Spec
from blackboard.table import TableError

MISSED = ("one", "all", "none")
JITTERS = (None, None, "90s")
HALF = 0.5
ABOUT_NOW = timedelta(hours=1)
"""How far off a single time is, at the most, before or after."""


class Desk:
    """Where people ask. Each request is a task and a sender of its own."""

    def __init__(
        self, board: BoardTable, wire: Wire, process: Process, items: Sequence[Declared]
    ) -> None:
        self._board = board
        self._wire = wire
        self._process = process
        self._items = items
        self._asked = 0

    def ask(self, verb: str, number: int, detail: float) -> None:
        """One request; it may be refused, or find nothing to do."""
        self._asked += 1
        sender = Sender(name=f"person-{self._asked}", verb=verb)
        board = self._board.asked_through(self._wire.sent_by(sender))
        self._process.loop.spawn(
            self._asks(board, sender, self._items[number % len(self._items)], detail)
        )

    async def _asks(self, board: BoardTable, sender: Sender, item: Declared, detail: float) -> None:
        mark = Mark(by="ann", at=board.clock.now())
        try:
            await self._do(board, sender, item, detail, mark)
        except (BlackboardError, TableError):
            return

    async def _do(
        self, board: BoardTable, sender: Sender, item: Declared, detail: float, mark: Mark
    ) -> None:
        spec = other_spec(self._items, detail, mark.at)
        match sender.verb:
            case "add":
                await edits.add(board, item_id=item.id, item_type=item.type, spec=spec)
            case "edit":
                await edits.edit(board, item.id, lambda *_: spec)
            case "pause":
                await edits.pause(board, item.id, mark)
            case "resume":
                await edits.resume(board, item.id, mark)
            case "run_now":
                await edits.run_now(board, item.id, once=own_params(sender, detail))
            case "remove":
                await edits.remove(board, item.id)
            case verb:
                found = await board.item(item.id)
                if found is not None and found.running:
                    sender.fence = found.fence
                    await _FREES[verb](board, item.id, mark, fence=found.fence)


_FREES: dict[str, Callable[..., Any]] = {"unlock": edits.unlock, "cancel": edits.cancel}


def own_params(sender: Sender, detail: float) -> dict[str, object] | None:
    """Params for one run: none as often as some, which no other request has."""
    return {"request": sender.name} if detail < HALF else None


def other_spec(items: Sequence[Declared], detail: float, now: datetime) -> Spec:
    """What somebody may say of an item instead: as of another one, with any policy for what was
    missed, and perhaps a jitter; now and then a single time, or none. `detail` is in [0, 1).
    """
    number, part = divmod(detail * len(items), 1.0)
    missed = MISSED[int(part * 1000) % len(MISSED)]
    jitter = JITTERS[int(part * 100) % len(JITTERS)]
    params = {"said": int(part * 10)} if part > HALF else {}
    other = replace(items[int(number)].spec, missed=missed, jitter=jitter, params=params)
    if part < 0.25:
        other = replace(other, every=None, cron=None)
    if part < 0.2:
        other = replace(other, at=iso(now + ABOUT_NOW * (part * 10 - 1)))
    return other
