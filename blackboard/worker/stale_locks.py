"""The stale locks that a worker reads: overridden, or waiting for a slot or a permit; and locks of
its own that none of its runs has, which it adopts.

Where a lock was not overridden, its shard is read again the first time, because its item may be
ready: the lock was freed, or another worker was faster. One that is still there then, unchanged,
cannot be overridden, and is left to the next walk.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from blackboard.errors import BadInput
from blackboard.handlers.handler import Handler
from blackboard.model import Lock
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import Claim, Freed
from blackboard.protocol.keys import shard_of
from blackboard.protocol.permits import LimitName
from blackboard.rules.due import Move, decide_lock
from blackboard.worker.claimer import Claimer, NoPermit
from blackboard.worker.holdings import Holdings
from blackboard.worker.judge import Version, version
from blackboard.worker.left_alone import LeftAlone

EMPTY_SPEC = "{}"
"""The spec of an item that sets nothing itself."""


class LockFate(Enum):
    """What became of a lock that was read."""

    KEPT = "kept"
    """It is not stale, or waits for a slot or a permit."""
    TAKEN = "taken"
    FREED = "freed"
    """It was removed without another attempt of its run: the item may be ready."""
    LOST = "lost"
    """Another worker was faster: the item may be ready."""
    STUCK = "stuck"
    """No worker can take it now, so no run of it will end."""


class Attempt(NamedTuple):
    """The fate of a lock, and the claim to run where it was TAKEN; none where the store is slow:
    the next walk adopts the lock, if it is this worker's.
    """

    fate: LockFate
    claims: Sequence[Claim] = ()


KEPT, STUCK = Attempt(LockFate.KEPT), Attempt(LockFate.STUCK)


@dataclass(slots=True, kw_only=True)
class StaleLocks:
    """Takes over stale locks for one worker, and keeps those that wait."""

    board: BoardTable
    owner: str
    handlers: Mapping[str, Handler]
    """The handlers of the types that this worker takes."""
    holdings: Holdings
    claimer: Claimer
    left_alone: LeftAlone
    _waiting: dict[str, Lock] = field(default_factory=dict)
    """By nonce, those that wait for a free slot or a permit, as of the last reading of their
    shards."""
    _unpermitted: dict[str, frozenset[LimitName]] = field(default_factory=dict)
    """By nonce of a waiting lock, the limits that had no permit for it."""
    _failed: set[Version] = field(default_factory=set)
    """Those that this walk over the board tried in vain to override."""
    _failed_before: set[Version] = field(default_factory=set)
    """Those of the walk before."""

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def begin(self) -> None:
        """Begins a walk over the board."""
        self._failed, self._failed_before = set(), self._failed
        self._unpermitted = {
            nonce: limits for nonce, limits in self._unpermitted.items() if nonce in self._waiting
        }

    def forget(self, number: int) -> None:
        """Forgets the waiting locks of a shard, which is being read again."""
        if self._waiting:
            self._waiting = {
                nonce: lock for nonce, lock in self._waiting.items() if self._shard(lock) != number
            }

    def waiting(self, *, but: Collection[int]) -> list[Lock]:
        """Those that wait, without those of the shards in `but`."""
        return [lock for lock in self._waiting.values() if self._shard(lock) not in but]

    def may_take(self, *, but: Collection[int]) -> bool:
        """Whether a waiting lock can be overridden now, in a shard that is not in `but`."""
        kinds = {
            (lock.type, self._unpermitted.get(lock.nonce)): lock for lock in self.waiting(but=but)
        }
        return any(map(self._may_override, kinds.values()))

    async def take(
        self, lock: Lock, *, ours: Collection[str], is_paused: bool, is_late: bool
    ) -> Attempt:
        """Overrides a stale lock, or adopts a lock of this worker that none of its runs has. `ours`
        has the nonces of its runs, when the lock was read and since. A shard that `is_paused` has
        none overridden; for one that `is_late` no slot is reserved. Raises what the store raises.
        """
        self._waiting.pop(lock.nonce, None)
        move = decide_lock(
            lock,
            owner=self.owner,
            types=self.handlers,
            in_flight=ours,
            given_up=self.holdings.given_up,
            resolution=self.board.table.resolution,
        )
        try:
            if move is Move.ADOPT:
                claims = await self.claimer.adopt(lock)
                return KEPT if claims is None else Attempt(LockFate.TAKEN, claims)
            if move is Move.OVERRIDE and is_paused:
                return STUCK
            if move is Move.OVERRIDE:
                return await self._override(lock, reserves=not is_late)
        except (BadInput, ValueError) as error:
            self.left_alone.report(lock, error)
            return STUCK if move is Move.OVERRIDE else KEPT
        return KEPT

    async def _override(self, lock: Lock, *, reserves: bool) -> Attempt:
        """Overrides a lock, or has it wait where there is no slot or no permit."""
        if not self._may_override(lock):
            self._waiting[lock.nonce] = lock
            return KEPT
        taken = await self.claimer.override(lock, reserves=reserves)
        if isinstance(taken, NoPermit):
            self._waiting[lock.nonce] = lock
            self._unpermitted[lock.nonce] = taken.limits
            return KEPT
        if isinstance(taken, list):
            return Attempt(LockFate.TAKEN, taken)
        if taken is Freed.FREED:
            return Attempt(LockFate.FREED)
        has_failed = version(lock) in self._failed | self._failed_before
        self._failed.add(version(lock))
        return STUCK if has_failed else Attempt(LockFate.LOST)

    def _may_override(self, lock: Lock) -> bool:
        """Whether there is a free slot for an override, and there may be a permit."""
        of_type = self.board.resolve(lock.type, EMPTY_SPEC)
        has_slot = self.claimer.free_slots().take(lock.type, of_type.slots)
        permits = self.claimer.permits
        return has_slot and permits.may_have(self._unpermitted.get(lock.nonce, ()))

    def _shard(self, lock: Lock) -> int:
        return shard_of(lock.id, self.board.shards)
