"""Records a history: each operation with its client, its moments, and its answer.

All that write into one history share a scale of moments. Within a process it is a counter, so that
the same seed gives the same history; between processes it is the host's monotonic clock. An etag is
noted where nothing is lost on the way: a write that was sent twice may have touched a lock twice.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, TypeVar

from blackboard.errors import BlackboardError
from blackboard.model import Item, Lock, Token
from blackboard.protocol.claims import Claim
from blackboard.table import Busy
from tests.proof.history.model import Answer, Operation, Verb

Said = TypeVar("Said")
Tick = Callable[[], int]


def counted() -> Tick:
    """Moments of one process."""
    return count().__next__


def of_this_host() -> Tick:
    """Moments of all processes."""
    return time.monotonic_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Generic[Said]):
    """A question and its answer."""

    said: Said | None
    busy: bool
    """Whether the store was busy, or the item changed all the time, so that nothing was said."""
    invoked: int
    returned: int


@dataclass(slots=True, kw_only=True)
class Recorder:
    """Notes operations, in the order of their returns."""

    tick: Tick = field(default_factory=counted)
    with_etags: bool = True
    operations: list[Operation] = field(default_factory=list)

    async def ask(self, question: Awaitable[Said]) -> Asked[Said]:
        invoked = self.tick()
        try:
            said = await question
        except (Busy, BlackboardError):
            return Asked(said=None, busy=True, invoked=invoked, returned=self.tick())
        return Asked(said=said, busy=False, invoked=invoked, returned=self.tick())

    def read(self, asked: Asked[Said], row: Item | Lock | Token, *, client: str) -> None:
        """A row that was among the answer."""
        holder = ""
        if isinstance(row, Lock) or (isinstance(row, Item) and row.running):
            holder = row.owner
        self.operations.append(
            Operation(
                key=row.id,
                client=client,
                verb=Verb.READ,
                answer=Answer.YES,
                fence=row.fence,
                seen=self._etag(row),
                holder=holder,
                invoked=asked.invoked,
                returned=asked.returned,
            )
        )

    def wrote(
        self,
        asked: Asked[Said],
        verb: Verb,
        answer: Answer,
        *,
        client: str,
        about: Token | Lock | Claim | Item,
        got: int = 0,
        touch: str = "",
    ) -> None:
        """A request that is about a token, a lock, a claim or a running item."""
        self.operations.append(
            Operation(
                key=about.id,
                client=client,
                verb=verb,
                answer=answer,
                fence=about.fence,
                got=got,
                seen=self._etag(about) if verb is Verb.OVERRIDE else "",
                touch=touch if self.with_etags else "",
                invoked=asked.invoked,
                returned=None if answer is Answer.NONE else asked.returned,
            )
        )

    def _etag(self, row: Token | Lock | Claim | Item) -> str:
        """Of a lock: the other rows' are not part of what is checked."""
        return row.etag if self.with_etags and isinstance(row, Lock) else ""
