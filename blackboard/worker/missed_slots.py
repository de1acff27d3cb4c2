"""Skips or puts off the missed slots that a worker has read: their items get their next token.

That costs two requests for each item, so it is done after the claims, for a limited number of items
of each shard; the shard is read again soon for the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from blackboard.emitter import EventEmitter
from blackboard.errors import BadInput
from blackboard.events import SlotPutOff, SlotSkipped
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import pass_over
from blackboard.rules.due import Move
from blackboard.worker.backlog import Judged
from blackboard.worker.judge import Judge
from blackboard.worker.left_alone import LeftAlone

PASSED_OVER, PARTS = 50, 8
"""The most items of a shard whose slots a walk skips or puts off: 50 or, of many, an eighth."""


@dataclass(slots=True, kw_only=True)
class MissedSlots:
    """By shard, ready tokens that are not to be run now, as of its last reading."""

    board: BoardTable
    events: EventEmitter
    judge: Judge
    left_alone: LeftAlone
    _of: dict[int, list[Judged]] = field(default_factory=dict)

    def put(self, number: int, missed: Sequence[Judged]) -> None:
        """Replaces the missed slots of a shard."""
        self._of.pop(number, None)
        if missed:
            self._of[number] = list(missed)

    @property
    def shards(self) -> tuple[int, ...]:
        """The shards that have any."""
        return tuple(self._of)

    def count(self, number: int) -> int:
        """How many missed slots of a shard there are."""
        return len(self._of.get(number, ()))

    def take_some(self, number: int) -> Sequence[Judged]:
        """Takes out the missed slots of a shard, and returns those to pass over now, not too many
        at a time. Of many, it begins with those of which this worker is the first, at a random
        place: so workers do not all try the same ones, and those that fail again and again do not
        block the others.
        """
        missed = self._of.pop(number, [])
        if len(missed) > PASSED_OVER:
            begin = int(self.board.chance.fraction() * len(missed))
            missed = missed[begin:] + missed[:begin]
            missed.sort(key=lambda slot: slot.candidate.turn.share)
        return missed[: max(PASSED_OVER, len(missed) // PARTS)]

    async def pass_over(self, missed: Judged) -> bool:
        """Skips or puts off the slot of an item. Returns whether that was done."""
        token, move = missed.candidate.token, missed.move
        try:
            after = await pass_over(self.board, token, move=move)
        except (BadInput, ValueError) as error:
            self.left_alone.report(token, error)
            return False
        if after is None:
            self.judge.set_aside(token)
            return False
        if move is Move.SKIP:
            self.events.emit_of(token, SlotSkipped, due=token.slot)
        else:
            until = after.ready if after.waits and after.slot == token.slot else None
            self.events.emit_of(token, SlotPutOff, due=token.slot, until=until)
        return True
