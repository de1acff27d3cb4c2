"""The people of a world: what they ask for goes the same way to the store as everything else."""

from collections.abc import Callable, Sequence
from typing import Any

from blackboard.board import Board
from blackboard.errors import BlackboardError
from blackboard.model import Mark
from blackboard.simulator.host import Process
from blackboard.simulator.scenario import Declared
from blackboard.simulator.store import Sender
from blackboard.simulator.wire import Wire
from blackboard.spec import Spec
from blackboard.table import TableError
from blackboard.verbs import change, free


class Desk:
    """Where people ask. Each request is a task and a sender of its own."""

    def __init__(
        self, board: Board, wire: Wire, process: Process, items: Sequence[Declared]
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
        board = self._board.seen_through(self._wire.sent_by(sender))
        self._process.loop.spawn(
            self._asks(board, sender, self._items[number % len(self._items)], detail)
        )

    async def _asks(self, board: Board, sender: Sender, item: Declared, detail: float) -> None:
        mark = Mark(by="ann", at=board.clock.now())
        other = self._items[int(detail * len(self._items))].spec
        try:
            await self._do(board, sender, item, other, mark)
        except (BlackboardError, TableError):
            return

    async def _do(
        self, board: Board, sender: Sender, item: Declared, other: Spec, mark: Mark
    ) -> None:
        match sender.verb:
            case "add":
                await change.add(board, item_id=item.id, item_type=item.type, spec=other)
            case "edit":
                await change.edit(board, item.id, lambda *_: other)
            case "pause":
                await change.pause(board, item.id, mark)
            case "resume":
                await change.resume(board, item.id, mark)
            case "run_now":
                await change.run_now(board, item.id)
            case "remove":
                await change.remove(board, item.id)
            case verb:
                found = await board.item(item.id)
                if found is not None and found.running:
                    sender.fence = found.fence
                    await _FREES[verb](board, item.id, mark, fence=found.fence)


_FREES: dict[str, Callable[..., Any]] = {"unlock": free.unlock, "cancel": free.cancel}
