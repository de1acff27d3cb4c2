"""Events of workers, as tests make and emit them."""

from datetime import timedelta

from blackboard.emitter import EventEmitter
from blackboard.events import RunEnded, Walked
from blackboard.model import Outcome
from blackboard.records import BoardRun
from tests.support.clocks import START


def ended(
    outcome: Outcome = Outcome.OK,
    *,
    error: str = "",
    release: str = "done",
    attempt: int = 1,
    seconds: float = 0.0,
) -> RunEnded:
    """The end of run 7 of the item davis."""
    run = BoardRun(
        id="davis",
        type="feed",
        fence=7,
        attempt=attempt,
        due=START,
        start=START,
        stop=START + timedelta(seconds=seconds),
        lag=0.25,
        outcome=outcome,
        worker="host:1:ab",
        result=None,
        duration=seconds,
        error=error or None,
        skipped=None,
        warnings=(),
        output="",
        log=(),
        note=None,
    )
    return RunEnded(
        "host:1:ab",
        run.id,
        run.type,
        run.fence,
        run=run,
        release=release,
        ready=START,
        failures=0,
        warned=0,
        retried=False,
    )


def emit_walk(events: EventEmitter) -> None:
    """A walk that found nothing."""
    events.emit(Walked, claims=0, due=0, locks=0, missed=0, complete=True, requests={})
