"""What a walk saw and did."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from blackboard.model import Lock, Token
from blackboard.table import TableError


@dataclass(slots=True, kw_only=True)
class Seen:
    """It grows while the walk goes on."""

    now: datetime
    """By the store's clock."""
    claims: int = 0
    """Taken in this walk."""
    locks: set[str] = field(default_factory=set)
    """Nonces of the locks of types that this worker takes, whoever holds them; but for those that
    nobody can take over."""
    due: int = 0
    """What is there to be taken, as far as is known, and was not: no slot was free, or others were
    faster."""
    more: bool = False
    """Whether a slot that becomes free is a reason to look again."""
    stale: int = 0
    """Of that, the stale locks."""
    crowded: bool = False
    """Whether slots stayed free although more may be there: others were faster, or a claim was not
    answered."""
    soonest: timedelta | None = None
    """Until there is something to do, if that is within the horizon."""
    failed: dict[int, TableError] = field(default_factory=dict)
    """Shards that did not answer."""
    late: set[int] = field(default_factory=set)
    """Shards that took too long to be waited for, until they have answered."""
    missed: int = 0
    """Slots that nobody wants any more."""
    skipped: int = 0
    """Of them, those that were passed over here."""
    whole: bool = False
    """Whether all shards were to be read, and not only what was known claimed."""
    looked: bool = False
    """Whether all of them were."""
    overdue: dict[str, Token] = field(default_factory=dict)
    """By id: ready for longer than is usual, of whatever type, and not taken."""
    full: list[Lock] = field(default_factory=list)
    """Stale locks for which there was no free slot."""
    freed: list[Lock] = field(default_factory=list)
    """Stale locks that were taken away, and nothing is run; or others were faster."""

    @property
    def unread(self) -> set[int]:
        """Shards of which not all is known that should be."""
        return self.late | self.failed.keys()
