"""The permits of one worker: asked for before a claim, renewed beside its run, given back after it.

Where no permit of a limit was left, the worker requests no more for some seconds, or until it gives
one back: other runs go first meanwhile.

A run whose permit could not be renewed in time, or was taken, is stopped and put back: its item is
due again at once, and waits for a permit like any other.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Container, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.keys import permits_partition
from blackboard.protocol.permits import (
    LEASE,
    HeldPermit,
    Limit,
    LimitName,
    forget_lost,
    give_back,
    renew,
    take,
)
from blackboard.rules.due import deadline, renew_every
from blackboard.table import Busy, TableError, Unavailable
from blackboard.worker.holdings import Holdings
from blackboard.worker.membership import SHUTDOWN_TIMEOUT

ASK_AGAIN = 5.0
"""Seconds for which a limit counts as exhausted, unless this worker gives a permit of it back."""
BEAT = 1.0
"""Seconds between two looks at the permits that are held."""
LOST = "its permit was not renewed in time, or another worker took it"


class Grant:
    """The permits that were granted to one batch of claims: which of its items may run."""

    def __init__(self, permits: "Permits", limits: Mapping[str, Limit]) -> None:
        self._permits = permits
        self._limits = limits
        """The limits of the items, where they have one."""
        self._granted: dict[str, HeldPermit] = {}

    def grant(self, permits: Iterable[HeldPermit]) -> None:
        self._granted |= {held.permit.id: held for held in permits}

    def allows(self, item_id: str) -> bool:
        """Whether there is a permit for the item, or it needs none."""
        return item_id not in self._limits or item_id in self._granted

    def hold(self, item_id: str, nonce: str) -> bool:
        """Keeps the permit of an item, which was claimed with this nonce, for its run. Returns
        whether it may run: it needs no permit, or has one that may still be trusted.
        """
        if item_id not in self._limits:
            return True
        permit = self._granted.get(item_id)
        if permit is None or not self._permits.trusts(permit):
            return False
        self._permits.hold(nonce, self._granted.pop(item_id))
        return True

    @property
    def limits(self) -> frozenset[LimitName]:
        return frozenset(limit.name for limit in self._limits.values())

    def take_unused(self) -> list[HeldPermit]:
        """Takes out the permits that no claim has used."""
        unused, self._granted = list(self._granted.values()), {}
        return unused


@dataclass(slots=True, kw_only=True)
class Permits:
    board: BoardTable
    renewing: BoardTable
    """The same board, asked with the priority of renewals."""
    owner: str
    holdings: Holdings
    freed: Callable[[], None]
    """Called when a limit that was exhausted has a permit again."""
    _exhausted: dict[LimitName, float] = field(default_factory=dict)
    """Limits of which no permit was left, and until when none are asked for, in monotonic seconds.
    """
    _kept: set[LimitName] = field(default_factory=set)
    """Limits whose permits are for stale locks first."""
    _asked: Counter[LimitName] = field(default_factory=Counter)
    """Permits that are being asked for or wait for the answer to their claims."""
    _has_asked: bool = False
    _held: dict[str, HeldPermit] = field(default_factory=dict)
    """The permits of runs, by the nonces of their claims."""
    _some: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while any is held."""
    _unneeded: list[HeldPermit] = field(default_factory=list)
    """Permits to be deleted."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when some were queued."""
    _deleting: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while some are being deleted."""
    _renewal: asyncio.Task[None] | None = None
    """The latest renewal, which may be under way."""

    # ---- asking

    def begin(self) -> None:
        """Begins a walk over the board, in which stale locks are looked at before tokens."""
        self._kept.clear()
        now = self.board.clock.monotonic()
        self._exhausted = {name: until for name, until in self._exhausted.items() if now < until}

    def exhausted(self) -> Container[LimitName]:
        """The limits of which no permits are asked for now, for tokens."""
        if not self._kept and not self._exhausted:
            return frozenset()
        now = self.board.clock.monotonic()
        return self._kept | {name for name, until in self._exhausted.items() if now < until}

    def may_have(self, limits: Iterable[LimitName]) -> bool:
        """Whether it is time to ask for permits of these limits again, for a stale lock."""
        now = self.board.clock.monotonic()
        return all(self._exhausted.get(name, now) <= now for name in limits)

    def keep_for_locks(self, names: Iterable[LimitName]) -> None:
        """Asks for no more permits of some limits until the next walk over the board: a stale lock
        waits for one.
        """
        self._kept.update(names)

    def counts(self) -> Mapping[LimitName, int]:
        """How many permits of each limit this worker has, or asks for."""
        if not self._held and not self._asked:
            return {}
        counts = Counter((held.permit.type, held.permit.value) for held in self._held.values())
        return counts + self._asked

    @asynccontextmanager
    async def asked(self, limits: Mapping[str, Limit | None]) -> AsyncIterator[Grant]:
        """Permits for items that are to be claimed now; `limits` has the limit of each, by its id.
        Permits that are not held by the end are given back.
        """
        limited = {item_id: limit for item_id, limit in limits.items() if limit is not None}
        grant = Grant(self, limited)
        if not limited:
            yield grant
            return
        asked = Counter(limit.name for limit in limited.values())
        self._asked += asked
        try:
            by_limit: dict[Limit, list[str]] = {}
            for item_id, limit in limited.items():
                by_limit.setdefault(limit, []).append(item_id)
            taken = await asyncio.gather(
                *(self._taken(limit, ids) for limit, ids in by_limit.items())
            )
            for permits in taken:
                grant.grant(permits)
            yield grant
        finally:
            self._asked -= asked
            self.give_back(grant.take_unused())

    async def _taken(self, limit: Limit, items: Sequence[str]) -> list[HeldPermit]:
        permits: list[HeldPermit] = []
        with suppress(TableError):  # the breaker reports it; no permit counts as left
            if not self._has_asked:
                await forget_lost(self.board)
                self._has_asked = True
            permits = await take(self.board, limit, items, owner=self.owner)
        if len(permits) < len(items):
            self._exhausted[limit.name] = self.board.clock.monotonic() + ASK_AGAIN
        return permits

    # ---- holding

    def trusts(self, permit: HeldPermit) -> bool:
        """Whether no other worker can have taken it by now."""
        return self.board.clock.monotonic() < deadline(permit.sent, LEASE)

    def hold(self, nonce: str, permit: HeldPermit) -> None:
        self._held[nonce] = permit
        self._some.set()

    def release(self, nonce: str) -> None:
        """Gives back the permit of a run that is released, if it has one."""
        permit = self._held.pop(nonce, None)
        if permit is not None:
            self.give_back([permit])

    def give_back(self, permits: Sequence[HeldPermit]) -> None:
        """Queues permits to be deleted."""
        if permits:
            self._unneeded += permits
            self._changed.set()

    async def keep_giving_back(self) -> None:
        """Deletes the permits that are given back, until it is cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._delete_unneeded()

    async def _delete_unneeded(self) -> None:
        """Deletes the permits that were queued, as many in one request as a batch may have."""
        async with self._deleting:
            while self._unneeded:
                some = self._unneeded[: self.board.table.max_rows]
                del self._unneeded[: len(some)]
                with suppress(TableError):  # they go stale
                    await give_back(self.board, some)
                names = {(held.permit.type, held.permit.value) for held in some}
                if names & (self._kept | self._exhausted.keys()):
                    self.freed()
                for name in names:
                    self._exhausted.pop(name, None)

    async def keep_renewing(self) -> None:
        """Renews the permits held, and stops runs whose permits are lost, until it is cancelled."""
        while True:
            if not self._held:
                self._some.clear()
            await self._some.wait()
            now = self.board.clock.monotonic()
            for nonce, permit in tuple(self._held.items()):
                if not self.trusts(permit):
                    self._lose(nonce)
            due = {
                nonce: permit
                for nonce, permit in self._held.items()
                if now - permit.sent >= renew_every(LEASE)
            }
            if due and (self._renewal is None or self._renewal.done()):
                self._renewal = asyncio.get_running_loop().create_task(self._renew(due))
            await self.board.clock.sleep(BEAT)

    async def _renew(self, due: dict[str, HeldPermit]) -> None:
        try:
            nonces, most = list(due), self.board.table.max_rows
            for at in range(0, len(nonces), most):
                some = nonces[at : at + most]
                renewed_permits = await renew(self.renewing, [due[nonce] for nonce in some])
                renewed = {held.permit.nonce: held for held in renewed_permits}
                for nonce in some:
                    self._renewed(nonce, renewed.get(due[nonce].permit.nonce))
        except (Busy, Unavailable) as trouble:
            partition = permits_partition(self.board.name)
            await self.renewing.ready(partition, trouble, failures=1)
        except TableError:
            await self.board.clock.sleep(BEAT)

    def _renewed(self, nonce: str, permit: HeldPermit | None) -> None:
        if nonce not in self._held:
            return  # it was released meanwhile
        if permit is None:
            self._lose(nonce)
        else:
            self._held[nonce] = permit

    def _lose(self, nonce: str) -> None:
        """Stops a run whose permit another worker may have. The row, if it is there, goes stale."""
        del self._held[nonce]
        held = self.holdings.get(nonce)
        if held is not None and not held.ended:
            held.cut_short(LOST)

    # ---- the end

    async def close(self) -> None:
        """Gives back the permits that are left, if the store answers soon."""
        for nonce in tuple(self._held):
            self.release(nonce)
        if self._renewal is not None:
            self._renewal.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(SHUTDOWN_TIMEOUT):
                await self._delete_unneeded()
