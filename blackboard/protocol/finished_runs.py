"""Runs that have ended: their outcome is cut to fit a row, and the batch is built that releases
their item.

The batch states the etag of the item that it was built from, so an edit, a pause or a `run now`
that was made meanwhile is obeyed and not overwritten.
"""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from blackboard.errors import BadInput
from blackboard.model import Claim, Ended, Outcome, Run, replace
from blackboard.phrases import LONGEST_OUTPUT, cut_front, cut_middle
from blackboard.protocol.batches import release_ops
from blackboard.protocol.reading import BoardTable
from blackboard.protocol.results import not_kept, warnings_in, warnings_of
from blackboard.protocol.rows import text_of
from blackboard.rules.transitions import FAILING, released, run_of
from blackboard.spec import RunSettings
from blackboard.table import Op, units

ROWS_OF_A_RELEASE = 4
"""Operations of a release, at most: delete the lock, insert the next token, merge the item, insert
the run."""


class ReleaseOutcome(StrEnum):
    """How a release ended."""

    DONE = "done"
    LATE = "late"
    """Its lock had been taken away: the history says superseded."""
    DROPPED = "dropped"
    """Its item is gone, was made anew or cannot be read, or the store refuses the outcome."""


class FinishedRun(Struct, frozen=True, gc=False, kw_only=True):
    """A run that has ended and is to be released: its claim, and how it ended."""

    claim: Claim
    ended: Ended
    settings: RunSettings
    requeue: bool = False
    """Cut short by its worker's shutdown: due again at once."""


class Released(Struct, frozen=True, gc=False, kw_only=True):
    """A run that was released: how, its row in the history, and its item's next ready time."""

    how: ReleaseOutcome
    run: Run
    ready: datetime | None = None
    retried: bool = False
    """Whether the same slot is run again; False where a lost reply leaves that open."""


def fit(finished: FinishedRun, limit: int) -> FinishedRun:
    """The run, with an outcome that fits a row: a long error and a long output are cut, a result
    that is too long is replaced by a warning, and one that is no JSON makes the run a failure. The
    warnings of the result are added to those of the run, as many as fit.
    """
    ended = finished.ended
    try:
        text = "" if ended.result is None else text_of(ended.result)
        if (size := units(text)) > limit:
            ended = replace(ended, result=not_kept(text, f"{size:,} characters", limit=limit))
            text = text_of(ended.result)
        warnings = warnings_of((*ended.warnings, *warnings_in(text)))
        while units(text_of(warnings)) > limit:  # a control character takes six in JSON
            warnings = warnings[:-1]
        ended = replace(ended, warnings=warnings)
    except Exception as odd:  # noqa: BLE001 - any error here is the fault of this run alone
        problem = f"the result is no JSON that can be kept: {type(odd).__name__}"
        ended = replace(ended, outcome=Outcome.FAILED, result=None, error=problem)
    error, output = cut_middle(ended.error), cut_front(ended.output, LONGEST_OUTPUT)
    return replace(finished, ended=replace(ended, error=error, output=output))


def prepare(
    board: BoardTable, finished: FinishedRun, claim: Claim, *, now: datetime
) -> tuple[list[Op], Released]:
    """The batch that releases an item, built from the item in `claim`, and what it makes of the
    run.
    """
    settings = finished.settings
    if claim.spec != finished.claim.spec:
        settings = edited_settings(board, claim, otherwise=settings)
    run = ended_run(claim, finished.ended, now=now)
    after = released(
        claim.item,
        run,
        settings=settings,
        fraction=board.chance.fraction(),
        requeue=finished.requeue,
        retry_after=finished.ended.retry_after,
        final=finished.ended.final,
    )
    ready = after.ready if after.waits else None
    retried = after.waits and run.outcome in FAILING and after.attempt > claim.attempt
    done = Released(how=ReleaseOutcome.DONE, run=run, ready=ready, retried=retried)
    return release_ops(claim, after, run), done


def edited_settings(board: BoardTable, claim: Claim, *, otherwise: RunSettings) -> RunSettings:
    """The settings of an item that was edited while it ran; those it ran with, if the new ones
    cannot be computed by this worker.
    """
    try:
        return board.resolve(claim.type, claim.spec)
    except (BadInput, ValueError):
        return otherwise


def ended_run(claim: Claim, ended: Ended, *, now: datetime) -> Run:
    """The row of the history for a run."""
    return run_of(
        claim.item,
        ended.outcome,
        now=now,
        nonce=claim.nonce,
        result="" if ended.result is None else text_of(ended.result),
        error=ended.error,
        warnings=ended.warnings,
        output=ended.output,
        log=ended.log,
    )
