"""What the simulator's invariant says about edits of runs that were put back."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from blackboard.model import NEVER, Item, QueuedRun, State, replace
from blackboard.protocol import keys
from blackboard.simulator.changes import AppliedChange, Shadow, Touch
from blackboard.simulator.invariants import Violation
from blackboard.simulator.invariants.requests import OperatorChanges
from blackboard.simulator.store import AppliedBatch, Sender
from blackboard.table import Delete
from tests.support.plans import HOUR, HOURLY, MINUTE, NOON, item, settings

NOW = NOON + MINUTE
WINDOW = "sat 11:00-18:00"
BY = settings(cron=HOURLY, blackout=WINDOW)
ENDS = NOON + 6 * HOUR
WAITS = replace(
    item(start=NOON),
    stop=NOW,
    ready=ENDS,
    put_back=True,
    schedule=BY.text,
    timezone=BY.timezone,
)


TWICE = replace(WAITS, planned=NOON + HOUR)
"""Its schedule was edited before."""


def check(
    said: dict[str, Any],
    ready: datetime,
    *,
    before: Item = WAITS,
    now: datetime = NOW,
    **changed: Any,
) -> None:
    """An edit of an item that waits for the end of its window."""
    by = settings(**said)
    after = replace(before, ready=ready, schedule=by.text, timezone=by.timezone, **changed)
    sender = Sender(name="ann", verb="edit")
    batch = AppliedBatch(
        sender=sender,
        partition="town",
        ops=(),
        before={},
        after={},
        moment=0.0,
        sent=0.0,
        now=now,
        latest=now,
    )
    op = Delete(keys.item_key(before.id), "etag")
    touch = Touch(op=op, old=before, new=after, age=0.0)
    change = AppliedChange(
        id=before.id,
        batch=batch,
        touches={Item: [touch]},
        before=before,
        shadow=Shadow(item=after),
    )
    OperatorChanges(lambda _: by, lambda _: True)(change)


OPEN: dict[str, Any] = {"cron": "30 * * * *"}
CLOSED: dict[str, Any] = OPEN | {"blackout": WINDOW}
SHORTER: dict[str, Any] = OPEN | {"blackout": "sat 11:00-14:00"}
SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("said", "ready"),
    [
        (OPEN, NOW),
        ({}, NOW),
        (CLOSED, ENDS),
        (SHORTER, NOON + 2 * HOUR),
        (OPEN | {"blackout": "sat 11:00-20:00"}, ENDS + 2 * HOUR),
        ({"cron": HOURLY, "blackout": WINDOW}, ENDS),
    ],
)
@pytest.mark.parametrize("before", [WAITS, TWICE], ids=["once", "twice"])
def test_a_run_that_was_put_back_may_wait_for_the_window_that_it_is_in(
    before: Item, said: dict[str, Any], ready: datetime
) -> None:
    check(said, ready, before=before)
    check(said, ready, before=before, now=NOW + SECOND / 2)  # written later than decided


@pytest.mark.parametrize(
    ("said", "ready"),
    [
        (OPEN, ENDS),
        (OPEN, NOW + 2 * SECOND),
        (OPEN, NOW - SECOND),
        (CLOSED, NOW),
        (CLOSED, ENDS - SECOND),
        (CLOSED, ENDS + SECOND),
        (SHORTER, NOW),
        (SHORTER, ENDS),
        (OPEN | {"blackout": "sat 11:00-20:00"}, ENDS),
        ({"cron": HOURLY, "blackout": WINDOW}, NOW),
    ],
)
@pytest.mark.parametrize("before", [WAITS, TWICE], ids=["once", "twice"])
def test_a_run_that_was_put_back_waits_for_that_window_and_no_other(
    before: Item, said: dict[str, Any], ready: datetime
) -> None:
    with pytest.raises(Violation, match=r"SERVED|SLOT"):
        check(said, ready, before=before)


NEVER_ENDS: dict[str, Any] = OPEN | {"blackout": "mon-sun"}
DONE: dict[str, Any] = {"state": State.DONE}
FIRST = QueuedRun(name="a", slot=NOW)
OTHER = QueuedRun(name="b", slot=NOW + SECOND, once="{}")
QUEUED = replace(WAITS, requests=(FIRST, OTHER))
IN_HAND: dict[str, Any] = {"slot": NOW, "planned": NEVER, "requests": (OTHER,)}


@pytest.mark.parametrize(
    ("before", "ready", "changed"),
    [(WAITS, ENDS, DONE), (TWICE, ENDS, DONE), (QUEUED, NOW, IN_HAND)],
)
def test_a_run_that_was_put_back_is_not_made_where_a_window_has_no_end(
    before: Item, ready: datetime, changed: dict[str, Any]
) -> None:
    check(NEVER_ENDS, ready, before=before, **changed)


def test_a_run_that_was_put_back_and_does_not_wait_stays_until_a_worker_puts_it_off() -> None:
    check(NEVER_ENDS, NOW, before=replace(WAITS, ready=NOW))


@pytest.mark.parametrize(
    ("said", "before", "ready", "changed"),
    [
        ({}, WAITS, ENDS, DONE),
        (OPEN | {"max_runs": 1}, replace(WAITS, runs=1), NOW, DONE),
        (NEVER_ENDS, WAITS, ENDS, {}),
        (NEVER_ENDS, WAITS, ENDS, DONE | {"attempt": 2}),
        (NEVER_ENDS, WAITS, ENDS, DONE | {"slot": NOW}),
        (NEVER_ENDS, WAITS, ENDS, DONE | {"requests": (FIRST,)}),
        (NEVER_ENDS, QUEUED, ENDS, {}),
        (NEVER_ENDS, QUEUED, ENDS, DONE),
        (NEVER_ENDS, QUEUED, NOW, IN_HAND | {"slot": NOON}),
        (NEVER_ENDS, QUEUED, NOW, IN_HAND | {"once": "{}"}),
        (NEVER_ENDS, QUEUED, NOW, IN_HAND | {"requests": ()}),
        (SHORTER, QUEUED, NOW, IN_HAND),
    ],
)
def test_a_run_that_was_put_back_is_not_lost_otherwise(
    said: dict[str, Any], before: Item, ready: datetime, changed: dict[str, Any]
) -> None:
    with pytest.raises(Violation, match=r"SERVED|SLOT|ATTEMPTS|PARAMS|RUN NOW LOST"):
        check(said, ready, before=before, **changed)
