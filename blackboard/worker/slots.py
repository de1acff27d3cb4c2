"""The slots of a worker, each of which is for one run at a time. Pure.

A run takes a slot from its claim until its release is sent or, where writes are quick or late,
answered (`release_queue.py`). It gets none when its claim was answered so late that other runs have
the slots. A claim under way reserves its slots by shard; they are given to other claims when the
shard is late.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping

from blackboard.protocol.permits import Limit, LimitName


class FreeSlots:
    """The free slots of a worker, counted down as runs are selected for them."""

    def __init__(
        self,
        free: int,
        running: Mapping[str, int],
        *,
        permits: Mapping[LimitName, int] | None = None,
        exhausted: Container[LimitName] = (),
        paused: Container[str] = (),
        times: int = 1,
    ) -> None:
        """`free` is the number of free slots. `running` has the slots that each type takes,
        `permits` the permits that this worker has of each limit of the board, `exhausted` the
        limits of which no permits are left, `paused` the types that get no slot now. With `times`,
        each free slot and permit counts as so many: to select tokens ahead of time.
        """
        self._running = running
        self._permits = permits or {}
        self._exhausted = exhausted
        self._paused = paused
        self._times = times
        self._taken: dict[str, int] = {}
        self._limited: dict[LimitName, int] = {}
        self.left = free * times

    def take(self, item_type: str, most: int | None, limit: Limit | None = None) -> bool:
        """Takes a slot, if one is free and the type has fewer than `most`, and its `limit` on the
        board may have a permit; None: there is no such limit.
        """
        if self.left <= 0 or item_type in self._paused:
            return False
        taken = self._taken.get(item_type, 0)
        if most is not None and taken >= (most - self._running.get(item_type, 0)) * self._times:
            return False
        if limit is not None:
            name = limit.name
            limited = self._limited.get(name, 0)
            free = (limit.most - self._permits.get(name, 0)) * self._times
            if name in self._exhausted or limited >= free:
                return False
            self._limited[name] = limited + 1
        self.left -= 1
        self._taken[item_type] = taken + 1
        return True


class Slots:
    """The slots of a worker, and what takes them."""

    def __init__(self, total: int) -> None:
        self.total = total
        """How many there are; none once the worker is to stop."""
        self.vacated = 0
        """How many became free so far."""
        self._occupied: dict[str, str] = {}
        """The type of each run that has a slot, by its nonce."""
        self._running: dict[str, int] = {}
        """The slots that each type takes."""
        self._reserved: dict[int, Counter[str]] = {}
        """The types of what is being claimed, by shard."""

    def close(self) -> None:
        """Makes all slots unavailable, so that no further run begins."""
        self.total = 0

    @property
    def taken(self) -> int:
        """How many of them runs take now."""
        return len(self._occupied)

    @property
    def closed(self) -> bool:
        return self.total == 0

    def free(
        self,
        permits: Mapping[LimitName, int] | None = None,
        exhausted: Container[LimitName] = (),
        *,
        paused: Container[str] = (),
        times: int = 1,
    ) -> FreeSlots:
        """The slots that no run takes and that are not reserved. The arguments are those of
        `FreeSlots`.
        """
        running, free = self._running.copy(), self.total - len(self._occupied)
        for types in self._reserved.values():
            for item_type, count in types.items():
                running[item_type] = running.get(item_type, 0) + count
                free -= count
        free = max(free, 0)
        return FreeSlots(
            free, running, permits=permits, exhausted=exhausted, paused=paused, times=times
        )

    def occupy(self, nonce: str, item_type: str, most: int | None) -> bool:
        """Takes a slot for a claimed run, also one that is reserved for another claim: the first
        claim that is answered gets it. Returns whether there was a slot.
        """
        running = self._running.get(item_type, 0)
        if len(self._occupied) >= self.total or (most is not None and running >= most):
            return False
        self._occupied[nonce] = item_type
        self._running[item_type] = running + 1
        return True

    def has(self, nonce: str) -> bool:
        """Whether a run has a slot."""
        return nonce in self._occupied

    def vacate(self, nonce: str) -> None:
        """Frees the slot of a run, if it has one."""
        item_type = self._occupied.pop(nonce, None)
        if item_type is not None:
            self._running[item_type] -= 1
            self.vacated += 1

    def reserve(self, shard: int, types: Iterable[str]) -> None:
        """Keeps slots for what is being claimed in a shard."""
        self._reserved[shard] = Counter(types)

    def unreserve(self, shard: int) -> None:
        """Ends a reservation: the claims of the shard are answered, or not waited for any more."""
        self._reserved.pop(shard, None)
