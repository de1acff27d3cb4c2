"""What each verb writes, and on what condition: the table at the head of `batches.py`."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from blackboard.model import Claim, Item, Lock, Outcome, Run, State
from blackboard.protocol.batches import (
    add_ops,
    change_ops,
    claim_ops,
    free_ops,
    held,
    late_ops,
    override_ops,
    release_ops,
    remove_ops,
    token_of,
    tombstone_of,
)
from blackboard.table import Insert, Merge, Op

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)

WAITING = Item(
    id="davis",
    type="feed",
    state=State.ACTIVE,
    spec="{}",
    fence=4,
    slot=NOON,
    ready=NOON,
    planned=NOON,
    etag="I",
)
RUNNING = replace(WAITING, running=True, start=NOON, owner="me")
PAUSED = replace(WAITING, state=State.PAUSED)
CLAIM: Claim = replace(held(RUNNING), nonce="n", lock_etag="L")
TOKEN = replace(token_of(WAITING), etag="T")
LOCK = Lock(
    id="davis",
    type="feed",
    owner="me",
    nonce="n",
    fence=4,
    born=0,
    slot=NOON,
    since=NOON,
    stale_after=60.0,
    attempt=1,
    etag="L",
)
RUN = Run(
    id="davis",
    type="feed",
    fence=4,
    attempt=1,
    slot=NOON,
    start=NOON,
    stop=NOON,
    lag=0.0,
    outcome=Outcome.OK,
    worker="me",
    nonce="n",
)
LATER = replace(WAITING, ready=NOON + timedelta(hours=1))


def told(ops: Sequence[Op]) -> str:
    """A batch in words: "delete lock L, insert next, merge item I, insert run"."""
    return ", ".join(
        f"{type(op).__name__.lower()} {op.key.partition(':')[0]}"
        + ("" if isinstance(op, Insert) else f" {op.etag}")
        for op in ops
    )


@pytest.mark.parametrize(
    ("ops", "batch"),
    [
        (add_ops(WAITING, over=None), "insert item, insert next"),
        (add_ops(WAITING, over=replace(WAITING, etag="X")), "replace item X, insert next"),
        (add_ops(PAUSED, over=None), "insert item"),
        (
            claim_ops(TOKEN, CLAIM, schedule="", timezone="UTC"),
            "delete next T, insert lock, merge item *",
        ),
        (
            release_ops(CLAIM, WAITING, RUN),
            "delete lock L, insert next, merge item I, insert run",
        ),
        (release_ops(CLAIM, PAUSED, RUN), "delete lock L, merge item I, insert run"),
        (override_ops(RUNNING, LOCK, CLAIM, RUN), "replace lock L, merge item I, insert run"),
        (
            free_ops(RUNNING, "L", WAITING, RUN),
            "delete lock L, insert next, merge item I, insert run",
        ),
        (free_ops(RUNNING, "L", PAUSED, RUN), "delete lock L, merge item I, insert run"),
        (change_ops(WAITING, replace(WAITING, spec="[]")), "merge item I, replace next *"),
        (change_ops(WAITING, LATER), "merge item I, delete next *, insert next"),
        (change_ops(WAITING, PAUSED), "merge item I, delete next *"),
        (change_ops(PAUSED, WAITING), "merge item I, insert next"),
        (change_ops(RUNNING, replace(RUNNING, spec="[]")), "merge item I"),
        (remove_ops(WAITING, tombstone_of(WAITING, now=NOON)), "replace item I, delete next *"),
        (
            remove_ops(RUNNING, tombstone_of(RUNNING, now=NOON)),
            "replace item I, delete lock *, insert run",
        ),
        (remove_ops(PAUSED, tombstone_of(PAUSED, now=NOON)), "replace item I"),
        (late_ops(WAITING, RUN, None), "insert run"),
        (late_ops(WAITING, RUN, replace(RUN, etag="R")), "merge item I, replace run R"),
        (late_ops(None, RUN, replace(RUN, etag="R")), "replace run R"),
    ],
)
def test_a_batch_and_its_conditions(ops: Sequence[Op], batch: str) -> None:
    assert told(ops) == batch


def test_a_change_writes_what_changed_and_nothing_else() -> None:
    merge = change_ops(RUNNING, replace(RUNNING, spec="[]", paused="why"))[0]
    assert isinstance(merge, Merge)
    assert merge.data == {"spec": "[]", "paused": "why"}


def test_only_a_good_run_writes_a_result() -> None:
    def columns(outcome: Outcome) -> set[str]:
        ops = release_ops(CLAIM, WAITING, replace(RUN, outcome=outcome))
        (merge,) = [op for op in ops if isinstance(op, Merge)]
        return set(merge.data)

    assert columns(Outcome.OK) - columns(Outcome.FAILED) == {"result", "result_fence"}
