"""A run that has ended: what its runner said of it, and the batch that lets its item go.

The batch states the item's etag it was built from, so that an edit, a pause or a `run now` made
meanwhile is obeyed and not overwritten.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from blackboard.board import Board
from blackboard.errors import BadInput
from blackboard.model import Claim, Ended, Item, Outcome, Run
from blackboard.phrases import LONGEST_OUTPUT, cut_front, cut_middle, too_long
from blackboard.rows import text_of
from blackboard.rules.outcomes import after_run
from blackboard.rules.transitions import planned
from blackboard.spec import RunSettings
from blackboard.table import Op, units
from blackboard.verbs.batches import release_ops, run_of


class Release(StrEnum):
    """How a run got into the history."""

    DONE = "done"
    LATE = "late"
    """Its lock had been taken away: it is told as superseded."""
    DROPPED = "dropped"
    """Its item is gone, was made anew or cannot be read, or the store takes no word of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A run to be let go: the claim, and what its runner said."""

    claim: Claim
    ended: Ended
    settings: RunSettings
    requeue: bool = False
    """Cut short by its worker's shutdown: due again at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """A run that was let go: how, its row in the history, and its item's next ready time."""

    how: Release
    run: Run
    ready: datetime | None = None


def fit(finished: Finished, limit: int) -> Finished:
    """A run whose outcome fits a row, whatever its runner said: a long error and a long output are
    cut, a result that is too long or no JSON is a failure.
    """
    ended = finished.ended
    try:
        size = 0 if ended.result is None else units(text_of(ended.result))
        problem = f"the result is {size:,} characters of JSON and {too_long(limit)}"
    except Exception as odd:  # noqa: BLE001 - whatever it is, it is the fault of this run alone
        size, problem = limit + 1, f"the result is no JSON that can be kept: {type(odd).__name__}"
    if size > limit:
        ended = replace(ended, outcome=Outcome.FAILED, result=None, error=problem)
    error, output = cut_middle(ended.error), cut_front(ended.output, LONGEST_OUTPUT)
    return replace(finished, ended=replace(ended, error=error, output=output))


async def each_for_itself(
    write: Callable[[Sequence[Finished]], Awaitable[list[Released]]], batch: Sequence[Finished]
) -> list[Released]:
    """Let runs go together by `write`. If that raises what nothing foresees, each is let go by
    itself, and one of which it is raised again is dropped: its lock goes stale.
    """
    try:
        return await write(batch)
    except Exception as problem:  # noqa: BLE001 - one run must not end its worker
        if len(batch) > 1:
            return [one for each in batch for one in await each_for_itself(write, [each])]
        claim = batch[0].claim
        error = f"its outcome could not be written: {type(problem).__name__}: {problem}"
        ended = Ended(outcome=Outcome.FAILED, error=cut_middle(error))
        return [Released(how=Release.DROPPED, run=run_told(claim, ended, now=claim.start))]


def prepare(
    board: Board, finished: Finished, claim: Claim, *, now: datetime
) -> tuple[list[Op], Released]:
    """The batch that lets a run go, built from what `claim` says of its item."""
    ended = finished.ended
    settings = finished.settings
    if claim.spec != finished.claim.spec:
        settings = _edited(board, claim, otherwise=settings)
    plan = after_run(
        claim,
        ended.outcome,
        settings=settings,
        now=now,
        fraction=board.chance.fraction(),
        requeue=finished.requeue,
    )
    run = run_told(claim, ended, now=now)
    after = replace(
        planned(_item_of(claim), plan),
        stop=now,
        outcome=ended.outcome,
        runs=claim.runs + 1,
        error=run.error,
        result=run.result,
        result_fence=claim.fence,
    )
    ready = plan.ready if plan.waits else None
    let_go = Released(how=Release.DONE, run=run, ready=ready)
    return release_ops(claim, after, run), let_go


def _edited(board: Board, claim: Claim, *, otherwise: RunSettings) -> RunSettings:
    """The settings of an item that was edited while it ran; those it ran with, if the new ones
    cannot be computed here.
    """
    try:
        return board.resolve(claim.type, claim.spec)
    except (BadInput, ValueError):
        return otherwise


def _item_of(claim: Claim) -> Item:
    """As much of an item as its next token needs."""
    return Item(
        id=claim.id,
        type=claim.type,
        state=claim.state,
        spec=claim.spec,
        fence=claim.fence,
        born=claim.born,
        slot=claim.slot,
        ready=claim.ready,
        planned=claim.planned,
        version=claim.version,
        etag=claim.item_etag,
    )


def run_told(claim: Claim, ended: Ended, *, now: datetime) -> Run:
    """What the history says of it."""
    result = "" if ended.result is None else text_of(ended.result)
    return run_of(
        claim, ended.outcome, now=now, result=result, error=ended.error, output=ended.output
    )
