"""What a walk over the board has read and done."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from blackboard.model import Lock, Token
from blackboard.table import TableError


@dataclass(slots=True, kw_only=True)
class WalkResult:
    """What a walk read and did, as far as its shards have answered. The walk fills it in. A shard
    that is late changes it after the walk: read what you need before you wait for anything, and
    call `Walk.result` after that.
    """

    now: datetime
    """The store's time, as of the latest reading of a shard."""
    whole: bool
    """Whether all shards were to be read, and not only the backlog claimed."""
    claims: int = 0
    """Items that were claimed, taken over or adopted."""
    locks: set[str] = field(default_factory=set)
    """Nonces of the locks of types that this worker takes, without those that no worker can take
    over.
    """
    due: int = 0
    """Tokens and stale locks that are there to be taken and were not, at the least: no slot was
    free, or other workers were faster.
    """
    more: bool = False
    """Whether a slot that becomes free is a reason to go on."""
    crowded: bool = False
    """Whether slots stayed free although more may be there: other workers were faster, or a claim
    was not answered.
    """
    soonest: timedelta | None = None
    """How long until there is something to do, if that is within a cycle."""
    failed: dict[int, TableError] = field(default_factory=dict)
    """Shards that did not answer."""
    late: set[int] = field(default_factory=set)
    """Shards that took too long to be waited for and have not answered yet."""
    missed: int = 0
    """Slots that were missed and are not to be made up, or that a blackout puts off."""
    skipped: int = 0
    """Those of these slots that this walk passed over or put off."""
    lost: int = 0
    """Batches of claims at which another worker was faster."""
    refused: int = 0
    """Candidates for which no permit was left."""
    overdue_by_id: dict[str, Token] = field(default_factory=dict)
    freed: list[Lock] = field(default_factory=list)
    """Stale locks that this worker has removed without another attempt of their runs."""

    @property
    def overdue(self) -> tuple[Token, ...]:
        """Tokens of any type that were ready for longer than is usual, and were not taken."""
        return tuple(self.overdue_by_id.values())

    @property
    def silent(self) -> set[int]:
        """Shards that failed or are late, so that not all of them was read."""
        return self.late | self.failed.keys()

    @property
    def answered(self) -> bool:
        """Whether every shard answered in time."""
        return not self.silent

    @property
    def complete(self) -> bool:
        """Whether all shards were read."""
        return self.whole and self.answered
