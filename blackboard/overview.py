"""A board in short: its statistics, its workers and the one that coordinates them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from blackboard.election import read_elections
from blackboard.model import Mark, Statistics
from blackboard.protocol.maintenance import paused_by
from blackboard.protocol.reading import BoardTable
from blackboard.protocol.statistics import count, read_statistics
from blackboard.rules.statistics import is_current
from blackboard.rules.status import ItemStatus
from blackboard.worker.coordinator import ELECTION
from blackboard.worker.membership import Sighting, workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """What is shown of a board."""

    counted: Statistics
    is_now: bool
    """Whether it was counted by this command."""
    present: Sequence[Sighting]
    elections: Sequence[ItemStatus]
    age: float
    """Seconds since the counting."""
    paused: Mark | None
    """Who paused the board, if it is paused."""
    now: datetime

    @property
    def coordinator(self) -> ItemStatus | None:
        """Its election; None where no worker leads it."""
        found = (one for one in self.elections if one.item.id == ELECTION and has_leader(one))
        return next(found, None)


def has_leader(election: ItemStatus) -> bool:
    """Whether a candidate holds the lock of an election."""
    return election.running and not election.stale


async def read_overview(board: BoardTable, *, exact: bool) -> Overview:
    counted = None if exact else await read_statistics(board)
    is_now = counted is None or not is_current(counted, now=await board.table.now())
    if counted is None or is_now:
        counted = await count(board)
    elections = await read_elections(board)
    return Overview(
        counted=counted,
        is_now=is_now,
        present=await workers(board),
        elections=elections.statuses if elections else (),
        age=max((await board.table.now() - counted.at).total_seconds(), 0.0),
        paused=await paused_by(board),
        now=await board.table.now(),
    )
