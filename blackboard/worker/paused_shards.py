"""The shards that a worker finds paused: `protocol/board_pause.py` says how a board is paused."""

from contextlib import suppress
from dataclasses import dataclass, field

from blackboard.emitter import EventEmitter
from blackboard.errors import BlackboardError
from blackboard.events import BoardPaused, BoardResumed
from blackboard.model import Mark
from blackboard.protocol.board_pause import agree, is_paused
from blackboard.protocol.board_table import BoardTable
from blackboard.table import TableError


@dataclass(slots=True, kw_only=True)
class PausedShards:
    """Shards in which nothing is claimed, as of their last readings."""

    board: BoardTable
    events: EventEmitter
    _marks: dict[int, Mark] = field(default_factory=dict)

    def __contains__(self, number: int) -> bool:
        return number in self._marks

    async def is_paused(self, number: int) -> bool:
        """Whether a shard that has the row of a pause is paused: shard 0 decides. Also True where
        the store does not answer.
        """
        if number == 0 or 0 in self._marks:
            return True
        try:
            return await is_paused(self.board, number)
        except TableError:
            return True

    def note(self, number: int, mark: Mark | None) -> None:
        """Notes whether a shard is paused; reports when the board is that was not, or no more."""
        before = bool(self._marks)
        if mark is None:
            self._marks.pop(number, None)
        else:
            self._marks[number] = mark
        if mark is not None and not before:
            self.events.emit(BoardPaused, by=mark.by, reason=mark.reason)
        elif before and not self._marks:
            self.events.emit(BoardResumed)

    async def finish(self) -> None:
        """Pauses the shards that a pause has not reached because its command was killed, once all
        shards were read.
        """
        if 0 in self._marks and len(self._marks) < self.board.shards:
            with suppress(TableError, BlackboardError):  # the next walk tries again
                await agree(self.board)
