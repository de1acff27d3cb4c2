"""An item that runs for the slot noon, one that waits for it, and what it waits for afterwards; and
a run that has ended.
"""

from datetime import UTC, datetime, timedelta

from blackboard.model import Applied, Item, Outcome, QueuedRun, Run, State, replace
from blackboard.rules.transitions import released, run_of
from blackboard.spec import RunSettings, Spec, resolve

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
HOURLY = "0 * * * *"


RUN = Run(
    id="davis",
    type="feed",
    fence=1,
    attempt=1,
    slot=NOON,
    start=NOON,
    stop=NOON,
    lag=0.0,
    outcome=Outcome.OK,
    worker="me",
    nonce="n",
)
"""A run that was ok, and took no time."""


def settings(**said: object) -> RunSettings:
    return resolve([Spec(**said)])  # type: ignore[arg-type]


def running(
    *,
    slot: datetime = NOON,
    planned: datetime | None = None,
    start: datetime | None = None,
    attempt: int = 1,
    failures: int = 0,
    state: State = State.ACTIVE,
    once: str = "",
) -> Item:
    """An item that runs; by default for the slot noon, and started at once."""
    return Item(
        id="davis",
        type="feed",
        spec="{}",
        once=once,
        state=state,
        fence=5,
        born=0,
        slot=slot,
        ready=slot,
        planned=planned or slot,
        attempt=attempt,
        runs=4,
        failures=failures,
        owner="me",
        start=start or slot,
        running=True,
    )


def item(
    *,
    start: datetime | None = None,
    state: State = State.ACTIVE,
    slot: datetime = NOON,
    born: int = 0,
    requests: tuple[QueuedRun, ...] = (),
    applied: tuple[Applied, ...] = (),
) -> Item:
    return Item(
        id="davis",
        type="feed",
        state=state,
        spec="{}",
        slot=slot,
        ready=slot,
        planned=slot,
        start=start,
        born=born,
        failures=2,
        requests=requests,
        applied=applied,
    )


def after(
    made: Item,
    outcome: str,
    *,
    run: RunSettings,
    requests: tuple[QueuedRun, ...] = (),
    now: datetime = NOON + MINUTE,
    fraction: float = 0.5,
    requeue: bool = False,
) -> Item:
    made = replace(made, requests=requests)
    ended = run_of(made, Outcome(outcome), now=now)
    return released(made, ended, settings=run, fraction=fraction, requeue=requeue)
