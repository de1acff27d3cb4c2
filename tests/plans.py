"""A run of the slot noon, an item that waits for it, and the plan after it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from blackboard.model import Claim, Item, Outcome, Request, State
from blackboard.rules.outcomes import (
    Plan,
    after_run,
)
from blackboard.rules.requests import requests_text
from blackboard.spec import RunSettings, Spec, resolve

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
HOURLY = "0 * * * *"


def settings(**said: object) -> RunSettings:
    return resolve([Spec(**said)])  # type: ignore[arg-type]


def claim(
    *,
    slot: datetime = NOON,
    planned: datetime | None = None,
    start: datetime | None = None,
    attempt: int = 1,
    failures: int = 0,
    state: State = State.ACTIVE,
    once: str = "",
) -> Claim:
    """A run of the slot noon, started at once unless it is said otherwise."""
    return Claim(
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
        nonce="n",
        start=start or slot,
        stale_after=3600.0,
        sent=0.0,
        lock_etag="1",
        item_etag="2",
    )


def item(
    *,
    start: datetime | None = None,
    state: State = State.ACTIVE,
    slot: datetime = NOON,
    born: int = 0,
    requests: str = "",
    applied: str = "",
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
    made: Claim,
    outcome: str,
    *,
    run: RunSettings,
    requests: tuple[Request, ...] = (),
    now: datetime = NOON + MINUTE,
    fraction: float = 0.5,
    requeue: bool = False,
) -> Plan:
    return after_run(
        replace(made, requests=requests_text(requests)),
        Outcome(outcome),
        settings=run,
        now=now,
        fraction=fraction,
        requeue=requeue,
    )
