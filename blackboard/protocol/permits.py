"""Permits: they limit how many runs of a type go on at a time on the whole board.

A type with a `concurrency` of N has N permits, numbered from 0; with a `key`, N for each value of
that param. A permit that is in use is a row; all of them are in a partition of their own. A worker
takes one before it claims or overrides, renews it while the run goes on, and gives it back when the
run is released. The rows are written as locks are: inserted where there is none, replaced under
their etag once they are stale, and merged and deleted only under their etag. So two workers never
have the same permit, and a worker that died keeps none for longer than the lease.

Many permits are read in one range and taken in one batch. A lost reply, or one to a batch that came
twice, is settled by the nonces in the rows. A permit that was taken without its worker learning of
it goes stale. Renewals, and until when a holder trusts its permit, are in `renewals.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from blackboard.model import VERSION, Item, Permit, Token, replace
from blackboard.protocol import keys
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.renewals import landed, renew_rows
from blackboard.protocol.rows import data_of, readable, version_of
from blackboard.rules.due import is_stale
from blackboard.spec import RunSettings, params_of
from blackboard.table import Conflict, Delete, Insert, Op, Replace, Row, Unknown, try_delete

LEASE = 60.0
"""Seconds that a permit may go without a renewal. They do not depend on the lease of an item: the
permits of a dead worker are free again after a minute, however long its locks are good."""
LONGEST_LEASE = 86_400.0
"""Seconds. A permit with a longer lease counts as one that cannot be read, and one that was not
renewed for so long is deleted."""
TRIES = 4
"""Tries to take or give back permits of one limit, while other workers are faster."""
MOST_DIGITS = 9
"""Digits of the number of a permit, at most."""

LimitName = tuple[str, str]
"""A type, and the JSON of a value of its key; "" without a key."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit that runs count against: of a type, or of a type and a value of its key."""

    type: str
    value: str
    """JSON; "" without a key."""
    most: int

    @property
    def name(self) -> LimitName:
        """Equal for all runs that are counted together."""
        return self.type, self.value


def limit_of(work: Item | Token, settings: RunSettings) -> Limit | None:
    """The limit that a run counts against; None: its type has no limit on the board."""
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
    """When the last acknowledged write of it was sent, in monotonic seconds."""

    @property
    def row_key(self) -> str:
        return keys.permit_key(self.permit.type, self.permit.value, self.permit.number)

    @property
    def row_etag(self) -> str:
        return self.permit.etag

    @property
    def nonce(self) -> str:
        return self.permit.nonce

    def renewed(self, row_etag: str, *, sent: float) -> "HeldPermit":
        """The permit after a renewal: its row has this etag."""
        return HeldPermit(replace(self.permit, etag=row_etag), sent)

    def found(self, row_etag: str, *, sent: float) -> "HeldPermit":
        """The permit after no answer: its row was found with this etag."""
        return self.renewed(row_etag, sent=sent)


@dataclass(frozen=True, slots=True)
class PermitRow:
    """A row of a permit. Its number is that of its key, whatever its columns say."""

    number: int
    """-1: the key is not that of a permit."""
    row: Row
    permit: Permit | None
    """None: a newer version wrote it, or it cannot be read."""
    is_stale: bool
    is_newer: bool


@dataclass(frozen=True, slots=True)
class Occupied:
    """The items, and the rows, that hold the permits of a limit."""

    items: tuple[str, ...] = ()
    newer: tuple[str, ...] = ()
    """The keys of rows that a newer version wrote: they count as held for ever."""
    unreadable: tuple[str, ...] = ()
    """The keys of rows that cannot be read: they count as held until they are as old as a lease."""

    def __len__(self) -> int:
        return len(self.items) + len(self.newer) + len(self.unreadable)


async def occupied(board: BoardTable, limit: Limit) -> Occupied:
    """The permits that `take` counts as held."""
    held = [row for row in await _read(board, limit) if not row.is_stale]
    odd = [row for row in held if row.permit is None]
    return Occupied(
        items=tuple(row.permit.id for row in held if row.permit is not None),
        newer=tuple(row.row.key for row in odd if row.is_newer),
        unreadable=tuple(row.row.key for row in odd if not row.is_newer),
    )


async def take(
    board: BoardTable, limit: Limit, items: Sequence[str], *, owner: str
) -> list[HeldPermit]:
    """Takes a permit for each of some items or, where fewer permits are left, for the first of
    them.
    """
    permits: list[HeldPermit] = []
    for tries_left in reversed(range(TRIES + 1)):
        rows = await _read(board, limit)
        if taken := _taken(permits, rows):  # what is in between has sent the batch twice
            return taken
        if not tries_left:
            break
        numbers = _free_numbers(board, limit, rows, most=len(items))
        if not numbers:
            break
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
            for number, item_id in zip(numbers, items, strict=False)
        ]
        by_number = {row.number: row for row in rows}
        ops = [_taking(held, by_number.get(held.permit.number)) for held in permits]
        try:
            etags = await board.table.commit(_partition(board), ops)
        except Conflict:
            continue
        except Unknown:
            return list(await landed(board, _partition(board), permits))
        return [held.renewed(etag, sent=sent) for held, etag in zip(permits, etags, strict=True)]
    return []


def _free_numbers(
    board: BoardTable, limit: Limit, rows: Sequence[PermitRow], *, most: int
) -> list[int]:
    """The numbers of permits that are left, as many as one batch takes and `most` at the most. The
    first is drawn: so workers that take some at the same time collide less.
    """
    held = [row.number for row in rows if not row.is_stale]  # a damaged one has the number -1
    free = sorted(set(range(limit.most)).difference(held))
    left = free[: max(limit.most - len(held), 0)]
    first = int(board.chance.fraction() * len(left))
    return (left[first:] + left[:first])[: min(most, board.table.max_rows)]


def _taken(permits: Sequence[HeldPermit], rows: Sequence[PermitRow]) -> list[HeldPermit]:
    """The permits whose rows carry their nonces."""
    etags = {row.row.data.get("nonce"): row.row.etag for row in rows}
    return [
        held.found(etags[held.nonce], sent=held.sent) for held in permits if held.nonce in etags
    ]


def _taking(held: HeldPermit, old: PermitRow | None) -> Op:
    data = data_of(held.permit)
    return Insert(held.row_key, data) if old is None else Replace(held.row_key, data, old.row.etag)


async def renew(board: BoardTable, permits: Sequence[HeldPermit]) -> tuple[HeldPermit, ...]:
    """Renews permits, as many as fit one batch. Those that are not returned are lost; the others
    are renewed all the same.
    """
    return await renew_rows(board, _partition(board), permits)


async def give_back(board: BoardTable, permits: Sequence[HeldPermit]) -> None:
    """Deletes permits, as many as fit one batch, but none that another worker has taken."""
    left = tuple(permits)
    for _ in range(TRIES):
        ops = [Delete(held.row_key, held.row_etag) for held in left]
        try:
            await board.table.commit(_partition(board), ops)
        except (Conflict, Unknown):
            left = await landed(board, _partition(board), left)
            if not left:
                return
        else:
            return


async def forget_lost(board: BoardTable) -> None:
    """Deletes the permits that were not renewed for a day: of workers that died, and of limits that
    are no longer in use. Rows of a newer version stay.
    """
    rows = board.table.scan(_partition(board), keys.PERMIT, keys.end_of(keys.PERMIT))
    old = [
        Delete(row.key, row.etag)
        async for row in rows
        if board.table.age(row) > LONGEST_LEASE and version_of(row.data) <= VERSION
    ]
    await try_delete(board.table, _partition(board), old)


async def _read(board: BoardTable, limit: Limit) -> list[PermitRow]:
    first, last = keys.permits_range(limit.type, limit.value)
    return [permit_in(board, row) async for row in board.table.scan(_partition(board), first, last)]


def permit_in(board: BoardTable, row: Row) -> PermitRow:
    """A permit's row, and whether it is stale. One that cannot be read counts as in use until it is
    older than a lease, one of a newer version for ever: more runs than the limit allows are worse
    than fewer. A permit with a lease above `LONGEST_LEASE` counts as one that cannot be read: a
    living holder renews it long before.
    """
    age, resolution = board.table.age(row), board.table.resolution
    if version_of(row.data) > VERSION:
        return PermitRow(_number(row.key), row, permit=None, is_stale=False, is_newer=True)
    permit = readable(Permit, row, age=age)
    if permit is not None and 0 < permit.stale_after <= LONGEST_LEASE:
        stale = is_stale(permit, resolution=resolution)
    else:
        permit, stale = None, age > LEASE + resolution
    return PermitRow(_number(row.key), row, permit, is_stale=stale, is_newer=False)


def _number(key: str) -> int:
    """The number of the permit that a key is of; -1 where it is of none."""
    digits = key.rpartition(":")[2]
    number = int(digits) if len(digits) <= MOST_DIGITS and digits.isdecimal() else -1
    return number if f"{number:05d}" == digits else -1


def _partition(board: BoardTable) -> str:
    return keys.permits_partition(board.name)
