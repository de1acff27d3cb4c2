"""How a worker takes items: claims tokens, overrides stale locks, and adopts locks of its own.

A slot is reserved from the request to its answer. A run of a type with a limit on the board needs a
permit first; a permit that was taken and not used is given back. Once the worker is asked to stop,
it claims and overrides nothing more.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import NamedTuple

from blackboard.emitter import EventEmitter
from blackboard.events import LockAdopted, LockOverridden
from blackboard.model import Item, Lock
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import (
    Claim,
    Claimed,
    Freed,
    StaleRun,
    adopt,
    claim,
    free_unless_retried,
    override_run,
    trusted,
)
from blackboard.protocol.keys import shard_of
from blackboard.protocol.permits import LimitName, limit_of
from blackboard.worker.backlog import Candidate
from blackboard.worker.permits import Grant, Permits
from blackboard.worker.running import Runs
from blackboard.worker.slots import FreeSlots, Slots


class NoPermit(NamedTuple):
    """A stale lock is left alone: its limits have no permit left."""

    limits: frozenset[LimitName]


class ClaimedBatch(NamedTuple):
    sent: Sequence[Candidate]
    """The candidates that had the permits they need."""
    answer: Claimed
    taken: Sequence[Claim]
    """The claims that may be run."""


@dataclass(slots=True, kw_only=True)
class Claimer:
    """Claims tokens, overrides stale locks and adopts its own, for one worker."""

    board: BoardTable
    owner: str
    runs: Runs
    permits: Permits
    events: EventEmitter

    @property
    def _slots(self) -> Slots:
        return self.runs.holdings.slots

    def free_slots(self, times: int = 1) -> FreeSlots:
        """The free slots, and what this worker has of the limits of the board; so many times."""
        return self._slots.free(
            self.permits.counts(),
            self.permits.exhausted(),
            paused=self.runs.paused_types(),
            times=times,
        )

    async def claim(self, shard: int, candidates: Sequence[Candidate]) -> ClaimedBatch:
        """Claims some tokens of a shard in one batch. Raises what the store raises."""
        self._slots.reserve(shard, [candidate.token.type for candidate in candidates])
        try:
            async with self.permits.asked(
                {candidate.id: candidate.limit for candidate in candidates}
            ) as grant:
                sent = [
                    candidate
                    for candidate in candidates
                    if grant.allows(candidate.id) and not self._slots.closed
                ]
                if not sent:
                    return ClaimedBatch((), Claimed(), ())
                answer = await claim(
                    self.board, [candidate.token for candidate in sent], owner=self.owner
                )
                taken = await self._trusted(answer.claims, grant)
                return ClaimedBatch(sent, answer, taken)
        finally:
            self._slots.unreserve(shard)

    async def override(
        self, lock: Lock, *, reserves: bool
    ) -> list[Claim] | NoPermit | Freed | None:
        """Overrides a stale lock; it `reserves` a slot until that is answered. Returns the claim to
        run, or no claim where it is not certain in time that the lock is ours; FREED: the lock was
        removed, and nothing is to be run; None: it was not taken. Raises what the store raises, and
        BadInput or ValueError for settings that cannot be computed.
        """
        shard = shard_of(lock.id, self.board.shards)
        if reserves:
            self._slots.reserve(shard, [lock.type])
        try:
            stale = await free_unless_retried(self.board, lock)
            if not isinstance(stale, StaleRun):
                return stale
            async with self._asked(stale.held) as grant:
                if not grant.allows(lock.id):
                    self.permits.keep_for_locks(grant.limits)
                    return NoPermit(grant.limits)
                if self._slots.closed:
                    return None
                taken = await override_run(self.board, stale, owner=self.owner)
                if taken is None:
                    return None
                self.events.emit_of(lock, LockOverridden, owner=lock.owner, age=lock.age)
                return await self._trusted([taken], grant)
        finally:
            self._slots.unreserve(shard)

    async def adopt(self, lock: Lock) -> list[Claim] | None:
        """Adopts a lock of this worker that none of its runs has. Returns the claim to run, or no
        claim, and raises, as `override` does; None: it was not adopted.
        """
        try:
            taken = await adopt(self.board, lock)
            if taken is None:
                return None
            self.events.emit_of(lock, LockAdopted)
            async with self._asked(taken.item) as grant:
                return await self._trusted([taken], grant)
        finally:
            self._slots.unreserve(shard_of(lock.id, self.board.shards))

    def _asked(self, item: Item) -> AbstractAsyncContextManager[Grant]:
        settings = self.board.resolve(item.type, item.spec)
        return self.permits.asked({item.id: limit_of(item, settings)})

    async def _trusted(self, claims: Sequence[Claim], grant: Grant) -> list[Claim]:
        """The claims that may be run. A claim without a permit, or with one that is too old to be
        trusted, is put back: its item is due again at once.
        """
        taken = []
        for certain in await trusted(self.board, claims):
            if grant.hold(certain.id, certain.nonce):
                taken.append(certain)
            else:
                self.runs.put_back(certain)
        return taken
