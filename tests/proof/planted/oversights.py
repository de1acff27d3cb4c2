"""Bugs in the consequences of a run, of an edit and of a stop: switches, as in planted.py, and the
broken pieces beside them.

No condition of a batch is missing here. The rows agree with each other, and what they say is wrong:
a slot is jumped over, a retry is lost, params stay, a handler is not stopped.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from blackboard.errors import BadRow
from blackboard.model import VERSION, Item, Lock, Outcome, Run, replace
from blackboard.protocol import batches, board_table, claims, edits, releases, renewals
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import Claim
from blackboard.protocol.rows import Record, data_of, record_in
from blackboard.rules import due, transitions
from blackboard.rules.due import Move
from blackboard.rules.transitions import LateMove, late_move, passed_over, released, unlocked
from blackboard.runners.secrets import Mask
from blackboard.schedule.schedule import Every
from blackboard.spec import RunSettings
from blackboard.table import Merge, Op, Replace, Row
from blackboard.worker import claimer, running
from blackboard.worker.backlog import Candidate
from blackboard.worker.heartbeat import Heartbeat
from blackboard.worker.holdings import Holding
from blackboard.worker.judge import Judge
from blackboard.worker.selection import Selection
from blackboard.worker.slots import Slots
from blackboard.worker.stale_locks import StaleLocks
from blackboard.worker.worker import Worker
from tests.proof.planted.planting import Planted
from tests.proof.planted.replacements import with_other
from tests.proof.planted.scenarios import closed, newer

TWO_MINUTES = timedelta(minutes=2)

# ---- slots


def counts_from_two_minutes_later(item: Item, run: Run, **about: Any) -> Item:
    started, ended = run.start + TWO_MINUTES, run.stop + TWO_MINUTES
    later = released(replace(item, start=started), replace(run, stop=ended), **about)
    honest = released(item, run, **about)
    retried = later.slot == item.slot or isinstance(about["settings"].schedule, Every)
    return honest if retried else replace(later, start=item.start, stop=run.stop)


def passes_over_the_jitter(item: Item, *, settings: RunSettings, now: datetime) -> Item:
    return passed_over(item, settings=settings, now=now + settings.jitter)


_honest_decide = Judge.decide


def begins_at_any_time(judge: Judge, candidate: Candidate, now: datetime) -> Move:
    move = _honest_decide(judge, candidate, now)
    return Move.RUN if move is Move.PUT_OFF else move


def is_not_put_back(item: Item, run: Run, **about: Any) -> Item:
    return released(item, run, **{**about, "requeue": False})


# ---- attempts


def unlocks_for_a_first_attempt(item: Item, run: Run) -> Item:
    return replace(unlocked(item, run), attempt=1)


def forgets_an_attempt(before: Item, stale: Lock, item: Item, lock: Lock, gone: Run) -> list[Op]:
    item, lock = replace(item, attempt=stale.attempt), replace(lock, attempt=stale.attempt)
    return batches.override_ops(before, stale, item, lock, gone)


def edits_away_the_retry(item: Item, *, settings: RunSettings, now: datetime) -> Item:
    return _honest_rescheduled(replace(item, attempt=1), settings=settings, now=now)


_honest_rescheduled = transitions.rescheduled

# ---- params


def keeps_once(item: Item, run: Run, **about: Any) -> Item:
    after = released(item, run, **about)
    return replace(after, once=after.once or item.once)


# ---- people

_honest_change_item = edits.change_item


async def edits_whoever_has_the_id(
    board: BoardTable, item_id: str, build: edits.Build, *, write: edits.Write
) -> edits.Changed:
    lives: list[int] = []

    async def item_as_first_read(one: str) -> Item | None:
        item = await board.item(one)
        if item is None:
            return None
        lives.append(item.born)
        return replace(item, born=lives[0])

    def write_of_its_life(before: Item, after: Item) -> list[Op]:
        born = lives[-1]
        return write(replace(before, born=born), replace(after, born=born))

    seen = board.using()
    seen.item = item_as_first_read  # type: ignore[method-assign,assignment]
    return await _honest_change_item(seen, item_id, build, write=write_of_its_life)


# ---- who is late


def takes_no_result_for_newer(item: Item | None, **about: Any) -> LateMove:
    return late_move(item and replace(item, result_fence=0), **about)


def tells_of_its_failure(item: Item | None, **about: Any) -> LateMove:
    return late_move(item, **{**about, "outcome": Outcome.OK})


# ---- workers


async def trusts_every_claim(_board: BoardTable, claims: Sequence[Claim]) -> tuple[Claim, ...]:
    return tuple(claims)


async def lets_it_go_on(_heartbeat: Heartbeat, _held: Any) -> None:
    """The handler is not stopped."""


def keeps_its_slots(_slots: Slots) -> None:
    """They stay open."""


def reads_no_further(selection: Selection, candidate: Candidate) -> bool:
    most = candidate.settings.slots
    if most is not None and not selection._to_fill.take(candidate.token.type, most):
        return False
    return _honest_add(selection, candidate)


_honest_add = Selection.add


async def claims_until_it_is_drained(worker: Worker) -> None:
    for _ in range(5):
        if len(worker.holdings):
            await worker._walk(whole=True, until_idle=False)
            await worker.board.clock.sleep(2.0)
    await _honest_drain(worker)


_honest_drain = Worker._drain


def gives_no_once(held: Holding, environ: Mapping[str, str], mask: Mask) -> Any:
    claim = replace(held.claim, item=replace(held.claim.item, once=""))
    return _honest_given(replace(held, claim=claim), environ, mask)


_honest_given = running.given


# ---- a newer version


def takes_any_version(
    record_type: type[Record], row: Row | None, *, age: float = 0.0
) -> Record | None:
    try:
        return None if row is None else record_in(record_type, row, age=age)
    except BadRow:
        return None


def knows_it(_item: Item) -> None:
    """Takes an item of any version for one of its own."""


def gives_it_a_late_result(item: Item | None, **about: Any) -> LateMove:
    """Gives an item of any version the result of a late run."""
    return late_move(item and replace(item, version=VERSION), **about)


def writes_the_item_anew(before: Item, after: Item) -> list[Op]:
    first, *others = batches.change_ops(before, after)
    return [Replace(first.key, data_of(after), before.etag), *others]


def releases_as_its_own_version(*given: Any) -> list[Op]:
    return [
        Merge(op.key, {**op.data, "version": VERSION}, op.etag) if isinstance(op, Merge) else op
        for op in batches.release_ops(*given)
    ]


OVERSIGHTS = (
    Planted(
        name="old result",
        without="a late result goes over a newer one",
        patches=((releases, "late_move", takes_no_result_for_newer),),
        shows="LATE",
        walks=False,
    ),
    Planted(
        name="late failure",
        without="a late failure is written into the item",
        patches=((releases, "late_move", tells_of_its_failure),),
        shows="LATE",
        walks=False,
    ),
    Planted(
        name="params kept back",
        without="a handler is not given the params of its run alone",
        patches=((running, "given", gives_no_once),),
        shows="PARAMS",
        walks=False,
        verbs=("run_now",),
    ),
    Planted(
        name="two minutes later",
        without="after a doubt a cron item's next slot is counted from two minutes later",
        patches=(
            (
                releases,
                "_until_it_lands",
                with_other(
                    releases._until_it_lands,
                    prepare=with_other(releases.prepare, released=counts_from_two_minutes_later),
                ),
            ),
        ),
        shows="SERVED|SLOT",
        walks=False,
    ),
    Planted(
        name="jitter twice",
        without="a missed slot that is passed over takes those within its jitter with it",
        patches=((claims, "passed_over", passes_over_the_jitter),),
        shows="SERVED",
        walks=False,
        verbs=("edit",),
    ),
    Planted(
        name="not put off",
        without="a slot that is ready in a time without runs is run",
        patches=((Judge, "decide", begins_at_any_time),),
        shows="CLOSED",
        walks=False,
        draw=closed,
    ),
    Planted(
        name="dropped",
        without="a slot that is ready in a time without runs is passed over",
        patches=((claims, "put_off", passed_over),),
        shows="SERVED|SLOT",
        walks=False,
        draw=closed,
    ),
    Planted(
        name="not put back",
        without="a run that its worker's shutdown cut short is not due again",
        patches=((releases, "released", is_not_put_back),),
        shows="SERVED|SLOT|PARAMS|ATTEMPTS",
        walks=False,
    ),
    Planted(
        name="first attempt",
        without="a run that is unlocked is recorded as the first attempt",
        patches=((edits, "unlocked", unlocks_for_a_first_attempt),),
        shows="ATTEMPTS",
        walks=False,
        verbs=("unlock",),
    ),
    Planted(
        name="override is none",
        without="an override is no attempt",
        patches=((claims, "override_ops", forgets_an_attempt),),
        shows="ATTEMPTS",
        walks=False,
    ),
    Planted(
        name="edited retry",
        without="an edit of the schedule drops a retry",
        patches=((edits, "rescheduled", edits_away_the_retry),),
        shows="ATTEMPTS|SLOT",
        walks=False,
        verbs=("edit",),
    ),
    Planted(
        name="sticky params",
        without="the params of one requested run stay for the next",
        patches=((releases, "released", keeps_once),),
        shows="PARAMS",
        walks=False,
        verbs=("run_now",),
    ),
    Planted(
        name="next life",
        seldom=True,
        without="the retry of an edit reaches the next life of an id",
        patches=((edits, "edit", with_other(edits.edit, change_item=edits_whoever_has_the_id)),),
        shows="RETRY",
        walks=False,
        verbs=("edit", "add", "remove"),
    ),
    Planted(
        name="untrusted",
        without="a claim is run whenever its answer came",
        patches=((claimer, "trusted", trusts_every_claim),),
        shows="UNTRUSTED",
        walks=False,
    ),
    Planted(
        name="found is sent",
        without="a renewal that is found in its lock counts from when it was found",
        patches=((renewals, "sent_in", lambda _, *, before, now: now),),
        shows="UNTRUSTED",
        walks=False,
    ),
    Planted(
        name="never stopped",
        without="a handler whose lock is lost is notified, and never stopped",
        patches=((Heartbeat, "_stop", lets_it_go_on),),
        shows="STOPPED",
        walks=False,
    ),
    Planted(
        name="claims on",
        without="a worker that was asked to stop goes on claiming",
        patches=(
            (Slots, "close", keeps_its_slots),
            (Worker, "_drain", claims_until_it_is_drained),
        ),
        shows="STOPPED",
        walks=False,
    ),
    Planted(
        name="full type",
        without="a type whose slots are full ends the reading of a shard",
        patches=((Selection, "add", reads_no_further),),
        shows="STUCK",
        walks=False,
    ),
    Planted(
        name="stale and forgotten",
        without="a stale lock that was read without a free slot is not looked for again",
        patches=((StaleLocks, "may_take", lambda *_, **__: False),),
        shows="PRIORITY|STUCK",
        walks=False,
    ),
    Planted(
        name="newer claimed",
        without="a waiting item of a newer version is claimed",
        patches=((board_table, "readable", takes_any_version), (due, "VERSION", VERSION + 1)),
        shows="VERSIONS",
        walks=False,
    ),
    Planted(
        name="newer overridden",
        seldom=True,
        without="a stale lock is overridden though its item became newer",
        patches=((claims, "check_version", knows_it),),
        shows="VERSIONS",
        walks=False,
    ),
    Planted(
        name="newer late",
        seldom=True,
        without="a late result goes into an item of a newer version",
        patches=((releases, "late_move", gives_it_a_late_result),),
        shows="VERSIONS",
        walks=False,
        draw=newer,
    ),
    Planted(
        name="newer edited",
        without="an item of a newer version is edited, paused and resumed",
        patches=((edits, "check_version", knows_it),),
        shows="VERSIONS",
        walks=False,
        verbs=("edit", "pause", "resume"),
    ),
    Planted(
        name="columns dropped",
        without="an edit writes the item anew, without the columns of a newer version",
        patches=((edits, "change_ops", writes_the_item_anew),),
        shows="VERSIONS",
        walks=False,
        verbs=("edit",),
    ),
    Planted(
        name="version lowered",
        without="a release writes its own version into the item",
        patches=((releases, "release_ops", releases_as_its_own_version),),
        shows="VERSIONS",
        walks=False,
    ),
)
