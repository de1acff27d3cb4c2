"""The batches of the model are those of the product: the same rows in the same order, written in
the same way and on the same condition; the same columns, as far as the model has them; the same
fences and states.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import fields

from blackboard import model as product
from blackboard.model import replace
from blackboard.protocol import claims
from blackboard.protocol.batches import (
    add_ops,
    change_ops,
    claim_ops,
    free_ops,
    late_ops,
    override_ops,
    release_ops,
    remove_ops,
    save_ops,
)
from blackboard.rules.transitions import removed, run_of, saved
from blackboard.rules.transitions import unlocked as unlocked_by
from blackboard.table import ANY as ANY_ETAG
from blackboard.table import Delete as ProductDelete
from blackboard.table import Insert as ProductInsert
from blackboard.table import Merge as ProductMerge
from blackboard.table import Op
from tests.proof.model import batches, rows
from tests.proof.model.conditions import ALL
from tests.proof.model.store import ANY, Batch, Delete, Insert, Merge
from tests.proof.model.world import UNREAD, Task
from tests.protocol.test_batches import (
    LATER,
    LOCK,
    PAUSED,
    RUN,
    RUNNING,
    TOKEN,
    WAITING,
)
from tests.support.pages import scene_in_memory
from tests.support.plans import NOON

ETAGS = {ANY: ANY_ETAG, 1: "I", 2: "L", 3: "T", 4: "R", 5: "X"}
"""Those of the samples: item, lock, token, run, tombstone."""
NUMBERS = {"fence", "born", "running", "state", "outcome"}
"""Columns whose values are the same in both."""
FAMILIES: dict[str, Any] = {
    "item": rows.Item,
    "next": rows.Token,
    "lock": rows.Lock,
    "run": rows.Run,
}

waiting = rows.Item("active", running=False, fence=4, born=0, spec=0, slot=0, ready=0)
running = waiting._replace(running=True)
paused = waiting._replace(state="paused")
done = waiting._replace(state="done")
DONE = replace(WAITING, state=product.State.DONE)
TAKEN = replace(RUNNING, fence=5), replace(LOCK, fence=5)
GIVEN_UP = replace(RUN, outcome=product.Outcome.ABANDONED)
NAMED = (product.Applied(name="1", at=NOON),)
UNLOCKED = run_of(RUNNING, product.Outcome.ABANDONED, now=NOON)
TOLD_LATE = replace(RUN, outcome=product.Outcome.SUPERSEDED)
task = Task("", 0, fence=4, born=0, spec=0, slot=0, held=2, known=1, nonce=7)
taken = task._replace(fence=5, nonce=8, other=7)
abandoned = rows.Run(4, 7, "abandoned")
unlocked = rows.Run(4, 0, "abandoned")


def product_free(
    item: product.Item,
    run: product.Run,
    lock_etag: str,
    applied: tuple[product.Applied, ...] = (),
) -> list[Op]:
    after = replace(unlocked_by(item, run), ready=LATER.ready, applied=applied)
    return free_ops(item, lock_etag, after, run)


def model_free(item: rows.Item, run: rows.Run, lock: int, applied: tuple[int, ...] = ()) -> Batch:
    after = batches.freed(item, ALL, ready=4)._replace(applied=applied)
    return batches.free(0, item, after, run, lock=lock, etag=1, keep=ALL)


def product_remove(item: product.Item) -> list[Op]:
    return remove_ops(item, replace(removed(item, now=NOON), applied=NAMED))


RUNNING_PAUSED = replace(RUNNING, state=product.State.PAUSED)
running_paused = running._replace(state="paused")

SAME: dict[str, tuple[list[Op], Batch]] = {
    "add": (add_ops(WAITING, over=None), batches.add(0, waiting, UNREAD)),
    "add over a tombstone": (
        add_ops(WAITING, over=replace(WAITING, etag="X")),
        batches.add(0, waiting, 5),
    ),
    "claim": (
        claim_ops(TOKEN, *TAKEN),
        batches.claim(task._replace(held=3, fence=5), 0),
    ),
    "release": (release_ops(RUNNING, LOCK.etag, WAITING, RUN), batches.release(task, ALL)),
    "save": (save_ops(RUNNING, saved(RUNNING, "1")), batches.save(task, ALL)),
    "release that empties what was saved": (
        release_ops(replace(RUNNING, checkpoint="1"), LOCK.etag, WAITING, RUN),
        batches.release(task._replace(checkpoint=1), ALL),
    ),
    "release of a paused item": (
        release_ops(RUNNING, LOCK.etag, PAUSED, RUN),
        batches.release(task._replace(state="paused"), ALL),
    ),
    "release of an item that is done": (
        release_ops(RUNNING, LOCK.etag, DONE, RUN),
        batches.release(task, ALL, only=True),
    ),
    "override": (
        override_ops(RUNNING, LOCK, *TAKEN, GIVEN_UP),
        batches.override(taken, 0, ALL),
    ),
    "override that runs nothing": (
        product_free(RUNNING, GIVEN_UP, "L"),
        model_free(running, abandoned, 2),
    ),
    "override of a paused item": (
        product_free(RUNNING_PAUSED, GIVEN_UP, "L"),
        model_free(running_paused, abandoned, 2),
    ),
    "unlock": (
        product_free(RUNNING, UNLOCKED, ANY_ETAG, NAMED),
        model_free(running, unlocked, ANY, (1,)),
    ),
    "edit": (
        change_ops(WAITING, replace(WAITING, spec="[]", applied=NAMED)),
        batches.change(0, waiting, 1, waiting._replace(spec=1, applied=(1,))),
    ),
    "edit of a running item": (
        change_ops(RUNNING, replace(RUNNING, spec="[]", applied=NAMED)),
        batches.change(0, running, 1, running._replace(spec=1, applied=(1,))),
    ),
    "run now": (
        change_ops(WAITING, replace(LATER, slot=LATER.ready, applied=NAMED)),
        batches.change(0, waiting, 1, waiting._replace(slot=1, ready=-1, applied=(1,))),
    ),
    "run now of a running item": (
        change_ops(
            RUNNING,
            replace(RUNNING, requests=(product.QueuedRun(name="1", slot=NOON),), applied=NAMED),
        ),
        batches.change(0, running, 1, running._replace(requests=(1,), applied=(1,))),
    ),
    "run now of an item that is done": (
        change_ops(DONE, replace(WAITING, applied=NAMED)),
        batches.change(0, done, 1, waiting._replace(applied=(1,))),
    ),
    "pause": (
        change_ops(WAITING, replace(PAUSED, applied=NAMED)),
        batches.change(0, waiting, 1, paused._replace(applied=(1,))),
    ),
    "resume": (
        change_ops(PAUSED, replace(WAITING, applied=NAMED)),
        batches.change(0, paused, 1, waiting._replace(applied=(1,))),
    ),
    "remove": (product_remove(WAITING), batches.remove(0, waiting, 1, 1, ALL)),
    "remove a running item": (product_remove(RUNNING), batches.remove(0, running, 1, 1, ALL)),
    "remove a paused item": (product_remove(PAUSED), batches.remove(0, paused, 1, 1, ALL)),
    "late, and its row pruned": (late_ops(WAITING, TOLD_LATE, None), batches.late(task, ALL)),
    "late, and a newer result is there": (
        late_ops(None, TOLD_LATE, replace(RUN, etag="R")),
        batches.late(task._replace(row=4, known=UNREAD), ALL),
    ),
    "late, told as abandoned": (
        late_ops(WAITING, TOLD_LATE, replace(RUN, etag="R")),
        batches.late(task._replace(row=4), ALL),
    ),
}


@pytest.mark.parametrize(("ops", "batch"), SAME.values(), ids=SAME.keys())
def test_a_batch_is_the_same_in_the_model(ops: list[Op], batch: Batch) -> None:
    assert_same(ops, batch)


def test_a_renewal_is_the_same_in_the_model() -> None:
    async def story() -> list[Op]:
        scene = await scene_in_memory()
        await scene.add()
        made = await scene.claimed()
        await claims.renew(scene.board, made)
        return [
            replace(op, etag="L" if op.etag == made.lock.etag else op.etag)
            for op in scene.table.batches[-1]
            if isinstance(op, ProductMerge)
        ]

    assert_same(asyncio.run(story()), batches.renew(task))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (product.Item, rows.Item),
        (product.Token, rows.Token),
        (product.Lock, rows.Lock),
        (product.Run, rows.Run),
    ],
)
def test_the_model_has_no_column_that_the_product_has_not(theirs: Any, ours: Any) -> None:
    assert set(ours._fields) <= {field.name for field in fields(theirs)}


def assert_same(ops: Sequence[Op], batch: Batch) -> None:
    assert told(ops) == told_of(batch)
    for theirs, ours in zip(ops, batch, strict=True):
        if isinstance(theirs, ProductDelete) or isinstance(ours, Delete):
            continue
        columns = dict(ours.columns) if isinstance(ours, Merge) else ours.data._asdict()
        known = set(FAMILIES[ours.key[0]]._fields)
        if not isinstance(ours, Merge) and columns.get("checkpoint") == 0:
            del columns["checkpoint"]  # a new row has none
        assert set(columns) == known & set(theirs.data), f"columns of {ours}"
        for name in NUMBERS & set(columns):
            assert theirs.data[name] == columns[name], f"{name} of {ours}"
        if "nonce" in columns:
            assert bool(theirs.data["nonce"]) == bool(columns["nonce"]), f"nonce of {ours}"


def told(ops: Sequence[Op]) -> str:
    """A batch in words: "delete lock L, insert next, merge item I, insert run"."""
    return ", ".join(
        f"{type(op).__name__.lower()} {op.key.partition(':')[0]}"
        + ("" if isinstance(op, ProductInsert) else f" {op.etag}")
        for op in ops
    )


def told_of(batch: Batch) -> str:
    """As `told` has it."""
    return ", ".join(
        f"{type(op).__name__.lower()} {op.key[0]}"
        + ("" if isinstance(op, Insert) else f" {ETAGS[op.etag]}")
        for op in batch
    )
