"""Takes items and keeps them: claims, renews, adopts and overrides.

A lost race is no error: no claim is returned. A lost reply is settled by reading the lock: each
claim has a fresh nonce, and the nonce in the lock says whose it is. A claim that is applied after
its worker has stopped waiting for the answer is found by the worker's next walk, and adopted. A
claim whose answer comes when its lease is nearly over is renewed before it is run.

Renewals, and until when a holder trusts its lock, are in `renewals.py`.
"""

import asyncio
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from msgspec import Struct

from blackboard.errors import BadInput
from blackboard.model import LARGEST, VERSION, Item, Lock, Outcome, Run, State, Token, replace
from blackboard.protocol import keys
from blackboard.protocol.batches import (
    change_ops,
    claim_ops,
    free_ops,
    item_of,
    lock_of,
    override_ops,
)
from blackboard.protocol.board_table import BoardTable, Resolve
from blackboard.protocol.planning import TOO_LARGE
from blackboard.protocol.renewals import RENEWALS, landed, renew_rows
from blackboard.protocol.rows import check_version
from blackboard.rules.due import Move, deadline, lease, may_take_over
from blackboard.rules.transitions import claimed, freed, overridden, passed_over, put_off, run_of
from blackboard.spec import RunSettings
from blackboard.table import Conflict, ConflictKind, Merge, Op, Refused, TableError, Unknown

ROWS_OF_A_CLAIM = 3
"""Operations of a claim, in this order: delete the token, insert the lock, merge the item."""


class Claim(Struct, frozen=True, gc=False, kw_only=True):
    """A lock and its item as the holder of the lock last read or wrote them, with the settings of
    the run: all that is needed to run the item and to release it.
    """

    item: Item
    """The item as last read; after a claim, as much of it as the token repeats. Its etag is "" when
    it has to be read before the release."""
    lock: Lock
    settings: RunSettings
    """Those of the item's spec or, where this worker cannot compute them for an item that was
    edited, those of its spec before."""
    sent: float
    """Monotonic seconds at the send of the claim, or of the last renewal known to be applied."""

    @property
    def id(self) -> str:
        return self.item.id

    @property
    def type(self) -> str:
        return self.item.type

    @property
    def spec(self) -> str:
        return self.item.spec

    @property
    def fence(self) -> int:
        return self.item.fence

    @property
    def slot(self) -> datetime:
        return self.item.slot

    @property
    def attempt(self) -> int:
        return self.item.attempt

    @property
    def owner(self) -> str:
        return self.lock.owner

    @property
    def nonce(self) -> str:
        return self.lock.nonce

    @property
    def row_key(self) -> str:
        """That of the lock."""
        return keys.lock_key(self.id)

    @property
    def row_etag(self) -> str:
        """That of the lock."""
        return self.lock.etag

    @property
    def start(self) -> datetime:
        return self.lock.since

    @property
    def stale_after(self) -> float:
        return self.lock.stale_after

    @property
    def deadline(self) -> float:
        """The moment until which the holder may trust the lock, in monotonic seconds."""
        return deadline(self.sent, self.stale_after)

    def answered(self, *, lock_etag: str, item_etag: str) -> "Claim":
        """The claim after its batch was answered: the rows have these etags."""
        item = replace(self.item, etag=item_etag)
        return replace(self, item=item, lock=replace(self.lock, etag=lock_etag))

    def renewed(self, row_etag: str, *, sent: float) -> "Claim":
        """The claim after a renewal: its lock has this etag."""
        return replace(self, lock=replace(self.lock, etag=row_etag), sent=sent)

    def found(self, row_etag: str, *, sent: float) -> "Claim":
        """The claim after no answer: its lock was found with this etag; its item has to be read
        again before the release.
        """
        return replace(self.answered(lock_etag=row_etag, item_etag=""), sent=sent)

    def with_item(self, item: Item, resolve: Resolve) -> "Claim":
        """The claim with its item as that was just read or written: attempt, owner and start are
        the lock's, and the settings those of the item, if it was edited.
        """
        settings = self.settings
        if item.spec != self.spec:
            with suppress(BadInput, ValueError):
                settings = resolve(item.type, item.spec)
        return replace(self, item=held_item(item, self.lock), settings=settings)


class Freed(Enum):
    """A stale lock was removed without another attempt of its run."""

    FREED = "freed"


class StaleRun(Struct, frozen=True, gc=False, kw_only=True):
    """The run of a stale lock, which may be attempted again: what `override_run` needs."""

    lock: Lock
    item: Item
    """The item as its row says."""
    settings: RunSettings
    abandoned: Run
    """The row of the history for the attempt whose holder has stopped renewing the lock."""

    @property
    def held(self) -> Item:
        """The item as it was run under the lock."""
        return held_item(self.item, self.lock)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """The result of a batch of claims: all were made, or none."""

    claims: tuple[Claim, ...] = ()
    reread: bool = False
    """Another worker was faster: the range has to be read again."""
    broken: Token | None = None
    """A token that failed for another reason than a lost race: it does not fit its item, or the
    store refuses its claim. It is not tried again in this walk."""
    refused: BadInput | None = None
    """Why the store refuses the claim of `broken`, where that is the reason."""


def claims_at_once(board: BoardTable) -> int:
    """How many claims fit one batch."""
    return board.table.max_rows // ROWS_OF_A_CLAIM


async def claim(board: BoardTable, tokens: Sequence[Token], *, owner: str) -> Claimed:
    """Claims tokens of one shard in one batch."""
    now, sent = await board.table.now(), board.clock.monotonic()
    claims = []
    for token in tokens:
        settings = board.resolve(token.type, token.spec)
        item = claimed(item_of(token), settings=settings, owner=owner, now=now)
        claims.append(_claim_of(board, item, settings=settings, sent=sent))
    ops = [
        op
        for token, made in zip(tokens, claims, strict=True)
        for op in claim_ops(token, made.item, made.lock)
    ]
    partition, nonces = board.partition(tokens[0].id), {made.nonce for made in claims}
    board.in_flight |= nonces
    try:
        etags = await board.table.commit(partition, ops)
    except Unknown:
        return Claimed(claims=await landed(board, partition, claims))
    except Conflict as lost:
        return await _lost(board, tokens[lost.index // ROWS_OF_A_CLAIM], lost)
    except Refused as refused:
        broken = tokens[refused.index // ROWS_OF_A_CLAIM]
        return Claimed(reread=True, broken=broken, refused=_problem(refused))
    finally:
        board.in_flight -= nonces
    return Claimed(
        claims=tuple(
            made.answered(lock_etag=lock_etag, item_etag=item_etag)
            for made, lock_etag, item_etag in zip(
                claims, etags[1::ROWS_OF_A_CLAIM], etags[2::ROWS_OF_A_CLAIM], strict=True
            )
        )
    )


def _problem(refused: Refused) -> BadInput:
    return BadInput("item", f"the store does not take its rows: {refused.reason}", TOO_LARGE)


@contextmanager
def _one_item() -> Iterator[None]:
    """Raises BadInput where the store refuses the rows of one item, so that other items go on."""
    try:
        yield
    except Refused as refused:
        raise _problem(refused) from None


async def _lost(board: BoardTable, token: Token, lost: Conflict) -> Claimed:
    """What a conflict of claims means: another worker was faster; or the token has no item, and is
    deleted; or its item has a lock, and the token is left alone.
    """
    if lost.index % ROWS_OF_A_CLAIM == 0:
        return Claimed(reread=True)
    if lost.kind is ConflictKind.MISSING:
        await board.delete(token.id, keys.next_key(token.ready, token.id), token.etag)
    return Claimed(reread=True, broken=token)


def _claim_of(board: BoardTable, item: Item, *, settings: RunSettings, sent: float) -> Claim:
    """The claim of an item whose run begins, with a new nonce."""
    stale_after = lease(settings, item.slot).total_seconds()
    lock = lock_of(item, nonce=board.chance.nonce(), stale_after=stale_after)
    return Claim(item=item, lock=lock, settings=settings, sent=sent)


def held_item(item: Item, lock: Lock) -> Item:
    """An item as it is run under a lock: attempt, owner and start are the lock's."""
    return replace(item, attempt=lock.attempt, owner=lock.owner, start=lock.since)


async def renew(board: BoardTable, claim: Claim, *, progress: str = "") -> Claim | None:
    """Renews a lock, and writes `progress` (JSON) into it. None: it is lost, and its handler must
    stop. The deadline of the returned claim counts from when the applied request was sent.
    """
    return next(iter(await renew_all(board, [(claim, progress)])), None)


async def renew_all(board: BoardTable, claims: Sequence[tuple[Claim, str]]) -> tuple[Claim, ...]:
    """Renews locks of one shard in one batch, each with its progress. Claims that are not returned
    are lost. The others are renewed all the same, also where the store refuses one: that is
    returned as it was, or, where it is the only one, Refused is raised. A claim whose `sent` is as
    before has no renewal that is known to be applied.
    """
    held = [claim for claim, _ in claims]
    progress = {claim.nonce: {"progress": text} for claim, text in claims if text}
    return await renew_rows(board, board.partition(held[0].id), held, beside=progress)


async def adopt(board: BoardTable, lock: Lock) -> Claim | None:
    """Adopts a lock of this worker that none of its runs has. It is renewed first, so that it has a
    deadline; the row of the item decides what is run. Raises BadInput or ValueError where no
    settings can be computed from the row, or the store refuses the lock: then it is not renewed,
    and goes stale.
    """
    item = await board.item(lock.id)
    if not holds(item, lock):
        await board.delete(lock.id, keys.lock_key(lock.id), lock.etag)
        return None
    assert item is not None
    settings = board.resolve(item.type, item.spec)
    held = Claim(item=held_item(item, lock), lock=lock, settings=settings, sent=-math.inf)
    with _one_item():
        return await renew(board, held)


async def trusted(board: BoardTable, claims: Sequence[Claim]) -> tuple[Claim, ...]:
    """The claims that may be run. A claim whose answer came after its deadline is renewed first,
    because another worker may override it at any moment. One that is lost by then, or whose renewal
    has no answer, is not run: if it is still this worker's, the next walk adopts it.
    """
    if not any(_is_past(claim, board) for claim in claims):
        return tuple(claims)
    nonces = {claim.nonce for claim in claims}
    board.in_flight |= nonces  # else a look meanwhile would adopt them
    try:
        renewed = await asyncio.gather(*(_renewed(board, claim) for claim in claims))
    finally:
        board.in_flight -= nonces
    return tuple(claim for claim in renewed if claim is not None and not _is_past(claim, board))


async def _renewed(board: BoardTable, claim: Claim) -> Claim | None:
    """The claim, renewed until its deadline is ahead, a few times. None: it is lost, or the store
    is away.
    """
    for _ in range(RENEWALS):
        if not _is_past(claim, board):
            break
        try:
            renewed = await renew(board, claim)
        except TableError:
            return None
        if renewed is None:
            return None
        claim = renewed
    return claim


def _is_past(claim: Claim, board: BoardTable) -> bool:
    return board.clock.monotonic() >= claim.deadline


def holds(item: Item | None, lock: Lock) -> bool:
    """Whether item and lock agree that the item is being run under this lock."""
    return item is not None and item.running and item.fence == lock.fence


async def pass_over(board: BoardTable, token: Token, *, move: Move) -> Item | None:
    """Reschedules a waiting item without a run: to its next slot, where this one is missed (SKIP),
    or to the end of a blackout (PUT_OFF). None: another worker was faster, or a newer version wrote
    the item after the token was read; or there is no such item, and the token is deleted. Raises
    BadInput where the store refuses the item's rows, or its next slot cannot be computed.
    """
    item = await board.item(token.id)
    if item is None:
        await board.delete(token.id, keys.next_key(token.ready, token.id), token.etag)
        return None
    if item.version > VERSION or not item.waits or _missable(item) != _missable(token):
        return None
    change = put_off if move is Move.PUT_OFF else passed_over
    settings = board.resolve(token.type, token.spec)
    after = change(item, settings=settings, now=await board.table.now())
    try:
        with _one_item():
            await board.commit(item.id, change_ops(item, after))
    except (Conflict, Unknown):
        return None
    return after


def _missable(waiting: Item | Token) -> tuple[object, ...]:
    """The fields that decide whether a slot is missed."""
    return waiting.type, waiting.spec, waiting.slot, waiting.ready, waiting.planned, waiting.attempt


async def override(board: BoardTable, lock: Lock, *, owner: str) -> Claim | None:
    """Takes a stale lock from its holder, for another attempt of its run. None: another worker was
    faster, or there is no other attempt, and the lock was removed. Raises as `free_unless_retried`.
    """
    stale = await free_unless_retried(board, lock)
    return await override_run(board, stale, owner=owner) if isinstance(stale, StaleRun) else None


async def free_unless_retried(board: BoardTable, lock: Lock) -> StaleRun | Freed | None:
    """Removes a stale lock, unless its run is to be attempted again: then returns that run, and the
    lock stays. FREED: the item is paused, or its attempts are used up, and the lock was removed.
    None: another worker was faster, or the lock had no item and was deleted. Raises BadInput for an
    item that a newer version wrote (its lock may be of an older one, because only the holder writes
    it), and for one whose rows the store refuses.
    """
    item = await board.item(lock.id)
    if not holds(item, lock):
        await board.delete(lock.id, keys.lock_key(lock.id), lock.etag)
        return None
    assert item is not None
    check_version(item)
    settings = board.resolve(item.type, item.spec)
    gone = abandoned_run(item, lock, now=await board.table.now())
    stale = StaleRun(lock=lock, item=item, settings=settings, abandoned=gone)
    stood_still = lock.stood_still
    has_tries = may_take_over(lock.attempt, retries=settings.retries, stood_still=stood_still)
    if item.state is State.ACTIVE and has_tries and item.fence < LARGEST:
        return stale
    after = freed(stale.held, gone, settings=settings, requeue=has_tries)
    return await _freed(board, after, free_ops(item, lock.etag, after, gone))


async def override_run(board: BoardTable, stale: StaleRun, *, owner: str) -> Claim | None:
    """Replaces a stale lock by one of `owner`, for another attempt of its run. None: another worker
    was faster. Raises BadInput where the store refuses the rows.
    """
    item, lock = stale.item, stale.lock
    now, sent = await board.table.now(), board.clock.monotonic()
    after = overridden(stale.held, owner=owner, now=now)
    taken = _claim_of(board, after, settings=stale.settings, sent=sent)
    board.in_flight.add(taken.nonce)
    try:
        with _one_item():
            ops = override_ops(item, lock, taken.item, taken.lock, stale.abandoned)
            etags = await board.commit(lock.id, ops)
    except Conflict:
        return None
    except Unknown:
        return next(iter(await landed(board, board.partition(lock.id), [taken])), None)
    finally:
        board.in_flight.discard(taken.nonce)
    return taken.answered(
        lock_etag=etags[keys.lock_key(lock.id)], item_etag=etags[keys.item_key(item.id)]
    )


async def _freed(board: BoardTable, after: Item, ops: Sequence[Op]) -> Freed | None:
    """Commits the batch that frees an item. None: another worker was faster. A lost reply is
    settled by reading the item.
    """
    try:
        with _one_item():
            await board.commit(after.id, ops)
    except Conflict:
        return None
    except Unknown:
        item = await board.item(after.id)
        if item is None or (item.fence, item.stop) != (after.fence, after.stop):
            return None
    return Freed.FREED


async def mark_standstill(board: BoardTable, item_id: str, fence: int) -> None:
    """Writes into a lock that its handler keeps the loop of its worker from turning."""
    lock = await board.lock(item_id)
    if lock is not None and lock.fence == fence:
        op = Merge(keys.lock_key(item_id), {"stood_still": True}, lock.etag)
        with suppress(Conflict, Unknown):
            await board.table.commit(board.partition(item_id), [op])


def abandoned_run(item: Item, lock: Lock, *, now: datetime) -> Run:
    """The row of the history for a run whose holder has stopped renewing its lock."""
    error = f"its lock was not renewed for {lock.stale_after:g} s"
    if lock.stood_still:
        error = "its handler kept the loop of its worker from turning, and the worker was ended"
    held = held_item(item, lock)
    return run_of(held, Outcome.ABANDONED, now=now, nonce=lock.nonce, error=error)
