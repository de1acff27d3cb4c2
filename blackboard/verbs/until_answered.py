"""Asking the store until it answers."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from blackboard.board import Board
from blackboard.table import Busy, Unavailable

Answer = TypeVar("Answer")

SHORTEST_WAIT, LONGEST_WAIT = 0.5, 10.0
"""Seconds between tries while the store is away, at the least and at the most."""


async def until_answered(board: Board, ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """The answer, however long it takes."""
    wait = SHORTEST_WAIT
    while True:
        try:
            return await ask()
        except Busy as busy:
            await board.clock.sleep(min(max(busy.retry_after, SHORTEST_WAIT), LONGEST_WAIT))
        except Unavailable:
            await board.clock.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)
