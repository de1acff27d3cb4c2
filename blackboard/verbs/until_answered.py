"""Asking the store until it answers."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from blackboard.board import Board
from blackboard.table import Busy, Unavailable

Answer = TypeVar("Answer")

SHORTEST_WAIT, LONGEST_WAIT = 0.5, 10.0
"""Seconds between tries while the store is away, at the least and at the most."""


@dataclass(slots=True)
class Pause:
    """Between two tries, longer each time."""

    board: Board
    _wait: float = SHORTEST_WAIT

    async def after(self, trouble: Busy | Unavailable) -> None:
        """Wait as long as the store asks for, or a while."""
        if isinstance(trouble, Busy):
            wait = min(max(trouble.retry_after, SHORTEST_WAIT), LONGEST_WAIT)
        else:
            wait, self._wait = self._wait, min(2 * self._wait, LONGEST_WAIT)
        await self.board.clock.sleep(wait)


async def until_answered(board: Board, ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """The answer, however long it takes."""
    pause = Pause(board)
    while True:
        try:
            return await ask()
        except (Busy, Unavailable) as trouble:
            await pause.after(trouble)
