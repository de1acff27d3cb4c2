"""Broken pieces of the protocol: what stands in the place of an honest one while a bug is planted.

Each wraps the original function and leaves one condition out, as a programmer might do who does not
see its purpose.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from types import FunctionType
from typing import Any

from blackboard.model import Item, Lock, Mark, Outcome, Run, State, replace
from blackboard.protocol import batches, checkpoints, claims, edits, releases
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import Claim
from blackboard.protocol.keys import lock_key
from blackboard.protocol.releases import FinishedRun, Released, until_answered
from blackboard.protocol.rows import text_of
from blackboard.rules.breaker import DOUBTS
from blackboard.rules.due import Move, decide_lock, is_missed
from blackboard.rules.transitions import late_move, released, removed, replanned, run_of, unlocked
from blackboard.schedule.schedule import Cron, Once, RRule, due_between
from blackboard.spec import RunSettings
from blackboard.table import ANY, Delete, Etag, Insert, Merge, Op, Unknown, Value
from blackboard.tables.memory import Contents
from blackboard.worker.backlog import Candidate
from blackboard.worker.heartbeat import Heartbeat
from blackboard.worker.holdings import Holding, Holdings
from blackboard.worker.judge import Judge
from blackboard.worker.stale_locks import Attempt, StaleLocks
from blackboard.worker.store_breaker import GuardedTable, Request, StoreBreaker
from blackboard.worker.walk import Walk, WalkResult

MILLISECOND = timedelta(milliseconds=1)


def with_other(function: Any, **instead: Any) -> Any:
    """A function that finds other things under some names of its module."""
    made = FunctionType(function.__code__, {**function.__globals__, **instead})
    made.__kwdefaults__ = function.__kwdefaults__
    return made


# ---- conditions on rows


def blind(ops: Sequence[Op], prefix: str) -> list[Op]:
    """The batch without the condition on a row."""
    return [
        replace(op, etag=ANY) if not isinstance(op, Insert) and op.key.startswith(prefix) else op
        for op in ops
    ]


def without_etag(name: str, prefix: str) -> Callable[..., list[Op]]:
    honest = getattr(batches, name)
    return lambda *given, **named: blind(honest(*given, **named), prefix)


def blind_merge(key: str, data: Any, _etag: Etag) -> Merge:
    return Merge(key, data, ANY)


_honest_insert_next = batches.insert_next


def forgets_the_tries(item: Item) -> Insert:
    return _honest_insert_next(replace(item, attempt=1))


_honest_apply = Contents.apply


def counts_each_row(
    contents: Contents,
    partition: str,
    ops: Sequence[Op],
    datas: list[dict[str, Value]],
    *,
    moment: float,
) -> list[Etag]:
    """Etags that count the writes of a row, and start again when it comes again."""
    part = contents.parts.get(partition)
    counts = {op.key: part.rows[op.key].etag for op in ops if part and op.key in part.rows}
    etags = _honest_apply(contents, partition, ops, datas, moment=moment)
    rows = contents.parts[partition].rows
    for number, op in enumerate(ops):
        if not isinstance(op, Delete):
            etags[number] = str(int(counts.get(op.key, "0")) + 1)
            rows[op.key] = rows[op.key]._replace(etag=etags[number])
    return etags


# ---- fences, and lives of an id


def keeps_the_fence(item: Item, etag: Etag, after: Item, run: Run) -> list[Op]:
    return batches.free_ops(item, etag, replace(after, fence=item.fence), run)


def forgets_the_fence(item: Item, *, over: Item | None) -> list[Op]:
    return batches.add_ops(replace(item, fence=0, born=0), over=over)


def counts_anew(before: Item, after: Item) -> list[Op]:
    resumed = before.state is State.PAUSED and after.state is State.ACTIVE
    return batches.change_ops(before, replace(after, fence=after.born) if resumed else after)


def born_as_before(item: Item, *, now: datetime) -> Item:
    return replace(removed(item, now=now), fence=item.fence + item.running)


# ---- what people ask for


def touches_the_lock(before: Item, after: Item) -> list[Op]:
    touched: list[Op] = [Merge(lock_key(before.id), {}, ANY)] if before.running else []
    return batches.change_ops(before, after) + touched


def leaves_the_lock(item: Item, etag: Etag, after: Item, run: Run) -> list[Op]:
    ops = batches.free_ops(item, etag, after, run)
    return ops[1:] if run.outcome is Outcome.CANCELLED else ops


async def unlocks_whoever_it_is(
    board: BoardTable,
    item_id: str,
    mark: Mark,
    *,
    fence: int,
) -> edits.Changed:
    def ended(item: Item, now: datetime | None) -> Run:
        assert now is not None
        return run_of(item, Outcome.ABANDONED, now=now, error="unlocked", note=text_of(mark))

    def build(item: Item, now: datetime) -> Item | None:
        return unlocked(item, ended(item, now)) if item.running else None

    def write(item: Item, after: Item) -> list[Op]:
        return batches.free_ops(item, ANY, after, ended(item, after.stop))

    return await edits.change_item(board, item_id, build, write=write)


# ---- releases


def forgets_the_pause(item: Item, run: Run, **about: Any) -> Item:
    return released(replace(item, state=State.ACTIVE), run, **about)


def forgets_run_now(item: Item, run: Run, **about: Any) -> Item:
    return released(replace(item, requests=()), run, **about)


def forgets_its_birth(item: Item | None, **about: Any) -> Any:
    return late_move(item and replace(item, born=0), **about)


def takes_no_type_for_fenced(item: Item | None, **about: Any) -> Any:
    return late_move(item, **{**about, "fenced": False})


def loses_the_token_of_a_failure(item: Item, etag: str, after: Item, run: Run) -> list[Op]:
    ops = batches.release_ops(item, etag, after, run)
    failed = run.outcome is Outcome.FAILED
    return [op for op in ops if not (failed and op.key.startswith("next:"))]


_honest_until_it_lands = releases._until_it_lands


async def settles_from_memory(
    board: BoardTable, finished: FinishedRun, *, ready: datetime | None
) -> Any:
    def prepare(board: BoardTable, one: FinishedRun, *, now: datetime) -> Any:
        item = replace(finished.claim.item, etag=one.claim.item.etag)
        built = replace(one, claim=replace(one.claim, item=item))
        return releases.prepare(board, built, now=now)

    return await with_other(_honest_until_it_lands, prepare=prepare)(board, finished, ready=ready)


_honest_settle = releases.settle


async def settles_with_any_lock(
    board: BoardTable, one: FinishedRun, *, ready: datetime | None
) -> Released:
    made = one.claim
    lock = await until_answered(board, made.id, lambda: board.lock(made.id))
    if lock is not None:
        one = replace(one, claim=replace(made, lock=replace(made.lock, nonce=lock.nonce)))
    return await _honest_settle(board, one, ready=ready)


async def takes_a_race_for_a_loss(
    board: BoardTable, one: FinishedRun, *, ready: datetime | None
) -> Released:
    return await releases._without_lock(board, one, ready=ready)


def counts_the_one_before(
    schedule: Cron | RRule | Once, after: datetime, until: datetime, limit: int
) -> list[datetime]:
    return due_between(schedule, after - MILLISECOND, until, limit)


def keeps_the_slot_of_what_is_paused(item: Item, *, settings: RunSettings, now: datetime) -> Item:
    plan = replanned(item, settings=settings, now=now)
    return replace(plan, state=item.state) if item.state is State.PAUSED else plan


def forgets_the_pause_of_what_is_done(item: Item, *, settings: RunSettings, now: datetime) -> Item:
    plan = replanned(item, settings=settings, now=now)
    is_back = item.state is State.DONE and plan.state is State.PAUSED
    return replace(plan, state=State.ACTIVE) if is_back else plan


# ---- claims and overrides


async def takes_silence_for_a_yes(
    _board: BoardTable, _partition: str, claims: Sequence[Claim]
) -> tuple[Claim, ...]:
    return tuple(claims)


_honest_claim_of = claims._claim_of


def named_by_its_owner(board: BoardTable, item: Item, **about: Any) -> Claim:
    claim = _honest_claim_of(board, item, **about)
    return replace(claim, lock=replace(claim.lock, nonce=f"{item.owner}/{item.id}"))


_honest_abandoned_run = claims.abandoned_run


def counts_as_completed(item: Item, lock: Lock, *, now: datetime) -> Run:
    return replace(_honest_abandoned_run(item, lock, now=now), outcome=Outcome.OK)


def forgets_to_adopt(lock: Lock, **about: Any) -> Move:
    move = decide_lock(lock, **about)
    return Move.LEAVE if move is Move.ADOPT else move


def overrides_too_soon(lock: Lock, **about: Any) -> Move:
    return decide_lock(replace(lock, age=lock.age * 1.5), **about)


def rounds_against_the_holder(lock: Lock, *, resolution: float) -> bool:
    return lock.age > lock.stale_after - resolution


_honest_take = StaleLocks.take


async def compares_two_clocks(locks: StaleLocks, lock: Lock, **about: Any) -> Attempt:
    """The store's stamp, and the worker's own time."""
    ahead = locks.board.clock.now() - await locks.board.table.now()
    lock = replace(lock, age=lock.age + ahead.total_seconds())
    return await _honest_take(locks, lock, **about)


def forgets_to_override(lock: Lock, **about: Any) -> Move:
    move = decide_lock(lock, **about)
    return Move.LEAVE if move is Move.OVERRIDE else move


_honest_let_go = Holdings.release


def keeps_the_slot_of_a_lost_lock(holdings: Holdings, nonce: str) -> None:
    lost = any(held.lost for held in holdings if held.claim.nonce == nonce)
    if not lost:
        _honest_let_go(holdings, nonce)


_honest_claim = claims.claim


async def claims_without_reading(*about: Any, **named: Any) -> claims.Claimed:
    return replace(await _honest_claim(*about, **named), reread=False)


# ---- saves


async def takes_silence_for_a_save(board: BoardTable, item_id: str, ask: Any) -> Any:
    try:
        return await until_answered(board, item_id, ask)
    except Unknown:
        return [""]


_honest_save = checkpoints.save


async def saves_from_memory(board: BoardTable, made: Claim, checkpoint: str) -> Claim | None:
    saved = await _honest_save(board, made, checkpoint)
    if saved is None:
        return None
    item = replace(made.item, checkpoint=checkpoint, etag=saved.item.etag)
    return replace(saved, item=item)


# ---- walks


async def has_to_look_at_all(_walk: Walk) -> None:
    """Whatever is in the backlog, it is time for a walk over the board."""


_honest_walk = Walk.walk


async def sees_a_crowd(walk: Walk) -> WalkResult:
    return replace(await _honest_walk(walk), crowded=True)


# ---- time


async def asks_its_own_clock(table: GuardedTable) -> datetime:
    return table._breaker._clock.now()


_honest_decide = Judge.decide


def misses_by_its_own_clock(judge: Judge, candidate: Candidate, now: datetime) -> Move:
    move = _honest_decide(judge, candidate, now)
    now = judge.board.clock.now()
    missed = is_missed(candidate.token, now=now, settings=candidate.settings)
    return Move.SKIP if move is Move.RUN and missed else move


_honest_ask = Heartbeat.ask


def counts_from_the_last_send(heartbeat: Heartbeat, *holdings: Holding) -> None:
    _honest_ask(heartbeat, *holdings)
    for held in holdings:
        if held.asking:
            held.asked = None
            held.claim = replace(held.claim, sent=heartbeat.board.clock.monotonic())


_honest_renew_all = claims.renew_all


async def goes_on_without_its_lock(
    board: BoardTable, asked: Sequence[tuple[Claim, str]]
) -> tuple[Claim, ...]:
    renewed = {one.nonce: one for one in await _honest_renew_all(board, asked)}
    now = board.clock.monotonic()
    return tuple(renewed.get(one.nonce) or replace(one, sent=now) for one, _ in asked)


# ---- the breaker

_honest_answered = StoreBreaker.answered


def takes_no_page_for_an_answer(
    breaker: StoreBreaker, request: Request, *, batch: bool, written: bool = False
) -> None:
    part = breaker._partition(request.partition)
    before = part.reply
    _honest_answered(breaker, request, batch=batch, written=written)
    if part.circuit.doubts >= DOUBTS:
        part.reply = before
