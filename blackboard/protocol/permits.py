"""Permits: so many runs of a type go on at a time on the whole board.

A type with a `concurrency` of N has N permits, numbered from 0; with a `key`, N for each value of
that param. A permit that is in use is a row, in a partition of its own. A worker takes one before
it claims or overrides, renews it while the run goes on, and gives it back when the run is released.
The rows keep to the conditions of locks: one is inserted where there is none, replaced by its etag
once it has outlived its lease, and merged and deleted by its etag alone. So two workers never have
the same permit, and a worker that died keeps none for longer than the lease.

Permits are read and taken many at once: one range, one batch. A reply that is lost is settled by
the nonces in the rows. What is taken and not known to be goes stale.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from blackboard.model import VERSION, Item, Permit, Token, replace
from blackboard.protocol import keys
from blackboard.protocol.reading import BoardTable, with_nonces
from blackboard.protocol.rows import data_of, readable, version_of
from blackboard.rules.due import is_stale
from blackboard.spec import RunSettings, params_of
from blackboard.table import (
    Conflict,
    Delete,
    Insert,
    Merge,
    Op,
    Replace,
    Row,
    Unknown,
    try_delete,
)

LEASE = 60.0
"""Seconds that a permit may go untouched. It has nothing to do with the lease of an item: what a
dead worker held is free again after a minute, however long its locks are good."""
FORGOTTEN_AFTER = 86_400.0
"""Seconds without a renewal after which a permit is deleted."""
TRIES = 4
"""Readings of the permits of one limit, while other workers are faster."""
RENEWALS = 3
"""Batches for one renewal before it is left to the next."""
MOST_DIGITS = 9
"""Of the number of a permit."""

LimitName = tuple[str, str]
"""A type, and the JSON of a value of its key or ""."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What the runs of a type, or of a type and a value of its key, are counted by."""

    type: str
    value: str
    """JSON; "" without a key."""
    most: int

    @property
    def name(self) -> LimitName:
        """Equal for all runs that are counted together."""
        return self.type, self.value


def limit_of(work: Item | Token, settings: RunSettings) -> Limit | None:
    """What a run is counted by; None: its type has no limit on the board."""
    concurrency = settings.concurrency
    if concurrency is None:
        return None
    value = concurrency.value_of(params_of(work.spec, work.once)) if concurrency.key else ""
    return Limit(work.type, value, concurrency.most)


@dataclass(frozen=True, slots=True)
class HeldPermit:
    """A permit of this worker."""

    permit: Permit
    sent: float
    """When its last write that was acknowledged was sent, in monotonic seconds."""

    @property
    def key(self) -> str:
        return keys.permit_key(self.permit.type, self.permit.value, self.permit.number)


@dataclass(frozen=True, slots=True)
class PermitRow:
    """A row of a permit: by its key, whatever else it says."""

    number: int
    """-1: that of no permit."""
    row: Row
    permit: Permit | None
    """None: a newer version wrote it, or it cannot be read."""
    is_stale: bool
    is_newer: bool


@dataclass(frozen=True, slots=True)
class Occupied:
    """What keeps the permits of a limit."""

    items: tuple[str, ...] = ()
    newer: tuple[str, ...] = ()
    """The keys of rows that a newer version wrote: they count as held for ever."""
    unreadable: tuple[str, ...] = ()
    """The keys of rows that cannot be read: they count as held until they are as old as a lease."""

    def __len__(self) -> int:
        return len(self.items) + len(self.newer) + len(self.unreadable)


async def occupied(board: BoardTable, limit: Limit) -> Occupied:
    """What `take` counts as held."""
    held = [one for one in await _read(board, limit) if not one.is_stale]
    odd = [one for one in held if one.permit is None]
    return Occupied(
        items=tuple(one.permit.id for one in held if one.permit is not None),
        newer=tuple(one.row.key for one in odd if one.is_newer),
        unreadable=tuple(one.row.key for one in odd if not one.is_newer),
    )


async def take(
    board: BoardTable, limit: Limit, items: Sequence[str], *, owner: str
) -> list[HeldPermit]:
    """Take a permit for each of some items, or for as many of the first of them as there are
    permits left.
    """
    for _ in range(TRIES):
        rows = await _read(board, limit)
        found = {one.number: one for one in rows}
        held = {one.number for one in rows if not one.is_stale}
        left = max(limit.most - sum(not one.is_stale for one in rows), 0)
        free = [number for number in range(limit.most) if number not in held][:left]
        # From a random one on: workers that take some at the same time collide less.
        first = int(board.chance.fraction() * len(free))
        numbers = (free[first:] + free[:first])[: min(len(items), board.table.max_rows)]
        if not numbers:
            return []
        wanted = dict(zip(numbers, items, strict=False))
        since, sent = await board.table.now(), board.clock.monotonic()
        permits = [
            HeldPermit(
                Permit(
                    type=limit.type,
                    value=limit.value,
                    number=number,
                    id=item_id,
                    owner=owner,
                    nonce=board.chance.nonce(),
                    since=since,
                    stale_after=LEASE,
                ),
                sent,
            )
            for number, item_id in wanted.items()
        ]
        try:
            etags = await board.table.commit(
                _partition(board), [_taking(one, found.get(one.permit.number)) for one in permits]
            )
        except Conflict:
            continue
        except Unknown:
            return await _landed(board, permits)
        return [_with_etag(one, etag) for one, etag in zip(permits, etags, strict=True)]
    return []


def _taking(one: HeldPermit, found: PermitRow | None) -> Op:
    data = data_of(one.permit)
    return Insert(one.key, data) if found is None else Replace(one.key, data, found.row.etag)


async def renew(board: BoardTable, permits: Sequence[HeldPermit]) -> list[HeldPermit]:
    """Touch permits, as many as fit one batch. Those that do not come back are lost; they keep no
    other from being renewed.
    """
    left = list(permits)
    for _ in range(RENEWALS):
        sent = board.clock.monotonic()
        ops = [Merge(one.key, {}, one.permit.etag) for one in left]
        try:
            etags = await board.table.commit(_partition(board), ops)
        except (Conflict, Unknown):
            left = await _landed(board, left)
            if not left:
                break
        else:
            return [
                _with_etag(HeldPermit(one.permit, sent), etag)
                for one, etag in zip(left, etags, strict=True)
            ]
    return left


async def give_back(board: BoardTable, permits: Sequence[HeldPermit]) -> None:
    """Delete permits, as many as fit one batch. One that another worker has taken is left alone."""
    left = list(permits)
    for _ in range(TRIES):
        ops = [Delete(one.key, one.permit.etag) for one in left]
        try:
            await board.table.commit(_partition(board), ops)
        except (Conflict, Unknown):
            left = await _landed(board, left)
            if not left:
                return
        else:
            return


async def forget_lost(board: BoardTable) -> None:
    """Delete the permits that nobody has renewed for a day: of workers that died, and of limits
    that are asked for no more.
    """
    rows = board.table.scan(_partition(board), keys.PERMIT, keys.end_of(keys.PERMIT))
    old = [row async for row in rows if board.table.age(row) > FORGOTTEN_AFTER]
    for row in old:
        await try_delete(board.table, _partition(board), [Delete(row.key, row.etag)])


async def _landed(board: BoardTable, permits: Sequence[HeldPermit]) -> list[HeldPermit]:
    """Those whose rows carry their nonces, with the rows' present etags."""
    by_key = {one.key: one for one in permits}
    nonces = {key: one.permit.nonce for key, one in by_key.items()}
    etags = await with_nonces(board.table, _partition(board), nonces)
    return [_with_etag(by_key[key], etag) for key, etag in etags.items()]


def _with_etag(one: HeldPermit, etag: str) -> HeldPermit:
    return HeldPermit(replace(one.permit, etag=etag), one.sent)


async def _read(board: BoardTable, limit: Limit) -> list[PermitRow]:
    first, last = keys.permits_range(limit.type, limit.value)
    return [permit_in(board, row) async for row in board.table.scan(_partition(board), first, last)]


def permit_in(board: BoardTable, row: Row) -> PermitRow:
    """A row that cannot be read counts as a permit in use until it is as old as a lease, one of a
    newer version for ever: more runs than the limit allows are worse than fewer. One that says that
    it is good for longer than any is as one that cannot be read: its holder renews it long before.
    """
    age, resolution = board.table.age(row), board.table.resolution
    if version_of(row.data) > VERSION:
        return PermitRow(_number(row.key), row, permit=None, is_stale=False, is_newer=True)
    permit = readable(Permit, row, age=age)
    if permit is not None and 0 < permit.stale_after <= FORGOTTEN_AFTER:
        stale = is_stale(permit, resolution=resolution)
    else:
        permit, stale = None, age > LEASE + resolution
    return PermitRow(_number(row.key), row, permit, is_stale=stale, is_newer=False)


def _number(key: str) -> int:
    """Of the permit that lies under a key; -1 where none does."""
    digits = key.rpartition(":")[2]
    number = int(digits) if len(digits) <= MOST_DIGITS and digits.isdecimal() else -1
    return number if f"{number:05d}" == digits else -1


def _partition(board: BoardTable) -> str:
    return keys.permits_partition(board.name)
