"""How far a walk over the board has come, and its result."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from blackboard.model import Lock, Token
from blackboard.table import TableError


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkResult:
    """What a walk read and did, as far as its shards have answered."""

    claims: int
    """Items that were claimed, taken over or adopted."""
    locks: frozenset[str]
    """Nonces of the locks of types that this worker takes, without those that no worker can take
    over.
    """
    due: int
    """Tokens and stale locks that are there to be taken and were not, at the least: no slot was
    free, or other workers were faster.
    """
    more: bool
    """Whether a slot that becomes free is a reason to go on."""
    crowded: bool
    """Whether slots stayed free although more may be there: other workers were faster, or a claim
    was not answered.
    """
    soonest: timedelta | None
    """Until there is something to do, if that is within a cycle."""
    failed: Mapping[int, TableError]
    """Shards that did not answer."""
    late: frozenset[int]
    """Shards that took too long to be waited for and have not answered yet."""
    missed: int
    """Slots that were missed and are not to be made up, or that a blackout puts off."""
    skipped: int
    """Of them, those that this walk passed over."""
    lost: int
    """Batches of claims at which another worker was faster."""
    whole: bool
    """Whether all shards were to be read, and not only the backlog claimed."""
    overdue: tuple[Token, ...]
    """Ready for longer than is usual, of whatever type, and not taken."""
    freed: tuple[Lock, ...]
    """Stale locks that were freed without a run; or other workers were faster."""

    @property
    def answered(self) -> bool:
        """Whether every shard answered in time."""
        return not (self.late or self.failed)

    @property
    def complete(self) -> bool:
        """Whether all shards were read."""
        return self.whole and self.answered


@dataclass(slots=True, kw_only=True)
class WalkProgress:
    """A walk so far. A shard that is late adds to it after the walk."""

    now: datetime
    """By the store's clock."""
    whole: bool = False
    claims: int = 0
    locks: set[str] = field(default_factory=set)
    crowded: bool = False
    failed: dict[int, TableError] = field(default_factory=dict)
    late: set[int] = field(default_factory=set)
    missed: int = 0
    skipped: int = 0
    lost: int = 0
    refused: int = 0
    """Candidates for which no permit was left."""
    overdue: dict[str, Token] = field(default_factory=dict)
    freed: list[Lock] = field(default_factory=list)
    soonest: timedelta | None = None

    @property
    def silent(self) -> set[int]:
        """Shards of which not all was read that should be."""
        return self.late | self.failed.keys()

    def result(self, *, due: int, more: bool) -> WalkResult:
        """What it has come to, where so much is `due` in all, and there is `more` to do."""
        return WalkResult(
            claims=self.claims,
            locks=frozenset(self.locks),
            due=due,
            more=more,
            crowded=self.crowded,
            soonest=self.soonest,
            failed=dict(self.failed),
            late=frozenset(self.late),
            missed=self.missed,
            skipped=self.skipped,
            lost=self.lost,
            whole=self.whole,
            overdue=tuple(self.overdue.values()),
            freed=tuple(self.freed),
        )
