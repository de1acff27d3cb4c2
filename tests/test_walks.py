"""Random walks over the real code: whatever happens, in whatever order, the board stays whole.

The second half plants the bugs that the conditions of the protocol are there against, one at a
time, and sees that the walks find each: an oracle that calls a broken board whole is worth
nothing.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from blackboard.board import Board
from blackboard.keys import lock_key
from blackboard.model import Item, Lock, Outcome, State
from blackboard.rules import claims
from blackboard.rules.claims import Move, decide_lock
from blackboard.rules.outcomes import after_run, late_move
from blackboard.table import ANY, Delete, Insert, Merge, Op, Row
from blackboard.verbs import batches, change, free, release, take
from tests.oracle import Violation
from tests.steps import StillTable
from tests.walking import VERBS, World

STEPS = 400
WALKS = 150
ENOUGH = 2000
"""Walks in which a planted bug must show."""


def walk(seed: int, **world: Any) -> World:
    made = World(seed, **world)
    try:
        made.go(STEPS)
        made.drain()
    finally:
        made.close()
    return made


@pytest.mark.parametrize("hundred", range(3))
def test_the_board_stays_whole_whatever_happens(hundred: int) -> None:
    """And once faults stop, every active item is run again."""
    for seed in range(hundred * WALKS, (hundred + 1) * WALKS):
        try:
            walk(seed)
        except Violation as problem:
            raise AssertionError(f"seed {seed}: {problem}") from problem


def test_the_walks_go_everywhere() -> None:
    """Every verb of the protocol is applied many times, among them the rare ones."""
    seen: dict[str, int] = {}
    for seed in range(WALKS):
        for shape, count in walk(seed).table.seen.items():
            seen[shape] = seen.get(shape, 0) + count
    rare = {
        "walk replaces a lock",
        "walk merges a lock",
        "run replaces a run",
        "walk deletes a lock",
    }
    often = {"walk inserts a lock", "run deletes a lock", "run merges a lock"}
    asked = {f"{verb} writes an item" for verb in ("add", "edit", "pause", "resume", "remove")}
    taken = {f"{verb} deletes a lock" for verb in ("unlock", "cancel", "remove")}
    for shape in rare | often | asked | taken | {"run_now writes an item"}:
        assert seen.get(shape, 0) >= (5 if shape in rare | taken else 50), shape


def test_a_walk_is_the_same_every_time() -> None:
    assert walk(7).table.seen == walk(7).table.seen


# ---- planted bugs


def blind(ops: Sequence[Op], prefix: str) -> list[Op]:
    """The batch without the condition on a row."""
    return [
        replace(op, etag=ANY) if not isinstance(op, Insert) and op.key.startswith(prefix) else op
        for op in ops
    ]


def without_etag(name: str, prefix: str) -> Callable[..., list[Op]]:
    honest = getattr(batches, name)
    return lambda *given, **named: blind(honest(*given, **named), prefix)


class PerRowEtags(StillTable):
    """Etags that count the writes of a row, and start again when it comes again."""

    def __init__(self, clock: Any) -> None:
        super().__init__(clock)
        self.counts: dict[str, int] = {}

    def scan(self, *given: Any, **named: Any) -> Any:
        rows = super().scan(*given, **named)
        return (replace(row, etag=str(self.counts[row.key])) async for row in rows)

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[str]:
        there = {row.key: row async for row in super().scan(partition)}
        etags = await super().commit(partition, [self._translated(op, there) for op in ops])
        for op in ops:
            if isinstance(op, Delete):
                del self.counts[op.key]
            else:
                self.counts[op.key] = self.counts.get(op.key, 0) + 1
        return [
            "" if isinstance(op, Delete) else str(self.counts[op.key])
            for op, _ in zip(ops, etags, strict=True)
        ]

    def _translated(self, op: Op, there: dict[str, Row]) -> Op:
        if isinstance(op, Insert) or op.etag == ANY or op.key not in there:
            return op
        same = op.etag == str(self.counts[op.key])
        return replace(op, etag=there[op.key].etag if same else "another")


def keeps_the_fence(item: Item, etag: str, after: Item, run: Any) -> list[Op]:
    return batches.free_ops(item, etag, replace(after, fence=item.fence), run)


def forgets_its_birth(item: Item | None, **about: Any) -> Any:
    return late_move(item and replace(item, born=0), **about)


def forgets_the_fence(item: Item, *, over: Item | None) -> list[Op]:
    return batches.add_ops(replace(item, fence=0, born=0), over=over)


def forgets_the_pause(made: Any, outcome: Any, **about: Any) -> Any:
    return after_run(replace(made, state=State.ACTIVE), outcome, **about)


def touches_the_lock(before: Item, after: Item) -> list[Op]:
    touched: list[Op] = [Merge(lock_key(before.id), {}, ANY)] if before.running else []
    return batches.change_ops(before, after) + touched


def born_as_before(item: Item, **about: Any) -> Item:
    return replace(batches.tombstone_of(item, **about), fence=item.fence + item.running)


async def unlocks_whoever_it_is(board: Board, item_id: str, mark: Any, *, fence: int) -> Any:
    now = await board.table.now()

    def build(item: Item) -> Any:
        if not item.running:
            return None
        plan = free._plan_of(item, now)
        outcome = Outcome.ABANDONED
        return free._freed(item, plan, outcome=outcome, mark=mark, now=now)

    return await change.change_item(board, item_id, build)


def forgets_to_adopt(lock: Lock, **about: Any) -> Move:
    move = decide_lock(lock, **about)
    return Move.LEAVE if move is Move.ADOPT else move


def overrides_at_once(lock: Lock, **about: Any) -> Move:
    return decide_lock(replace(lock, age=lock.age * 1.5), **about)


PLANTED: dict[str, tuple[Any, str, Any, str]] = {
    "a release without the item's etag": (
        release,
        "release_ops",
        without_etag("release_ops", "item:"),
        "WAITING TOKEN|EDIT LOST|RUN NOW LOST|PROMISE",
    ),
    "an override without the item's etag": (
        take,
        "override_ops",
        without_etag("override_ops", "item:"),
        "WAITING TOKEN|EDIT LOST|RUN NOW LOST|STARTED",
    ),
    "a freed lock without the item's etag": (
        free,
        "free_ops",
        without_etag("free_ops", "item:"),
        "TOKEN|EDIT LOST|RUN NOW LOST|FENCE|RETRY",
    ),
    "a change without the item's etag": (
        change,
        "change_ops",
        without_etag("change_ops", "item:"),
        "TOKEN|EDIT LOST|RUN NOW LOST|TWICE",
    ),
    "a removal without the item's etag": (
        change,
        "remove_ops",
        without_etag("remove_ops", "item:"),
        "TOKEN|FENCE|TWICE|LOCK|RUNNING",
    ),
    "a claim without the token's etag": (
        take,
        "claim_ops",
        without_etag("claim_ops", "next:"),
        "EDIT LOST|RUN NOW LOST|FENCE|differs|LOCK",
    ),
    "an override without the lock's etag": (
        take,
        "override_ops",
        without_etag("override_ops", "lock:"),
        "OVERRIDE|FENCE",
    ),
    "an unlock that keeps the fence": (
        free,
        "free_ops",
        keeps_the_fence,
        "still the highest|HISTORY|run .* is above|FENCE",
    ),
    "a late word to whoever has the id now": (
        release,
        "late_move",
        forgets_its_birth,
        "LATE: fence . wrote into a life",
    ),
    "a late word without the item's etag": (
        release,
        "late_ops",
        without_etag("late_ops", "item:"),
        "LATE",
    ),
    "a late word said without looking at one's own row": (
        release,
        "_is_mine",
        lambda *_: False,
        "HISTORY|still the highest",
    ),
    "an adding that forgets the fence": (
        change,
        "add_ops",
        forgets_the_fence,
        "FENCE|is above",
    ),
    "a release that forgets the pause": (
        release,
        "after_run",
        forgets_the_pause,
        "WAITING TOKEN|PROMISE",
    ),
    "an edit that touches the lock": (
        change,
        "change_ops",
        touches_the_lock,
        "LOCK written by a person",
    ),
    "two lives born with one fence": (
        change,
        "tombstone_of",
        born_as_before,
        "TWICE: one remove",
    ),
    "an unlock of whoever holds the lock": (
        free,
        "unlock",
        unlocks_whoever_it_is,
        "RETRY took fence|TWICE: one unlock",
    ),
    "a run now that remembers the last request alone": (
        change,
        "TRIGGERS",
        1,
        "TWICE: one run_now",
    ),
    "an orphan that is not adopted": (
        claims,
        "decide_lock",
        forgets_to_adopt,
        "ORPHAN",
    ),
    "an override before the lease is over": (
        claims,
        "decide_lock",
        overrides_at_once,
        "OVERRIDE of a lock that is not stale",
    ),
}


LOOK_AT = {
    "two lives born with one fence": ("add", "remove"),
    "a run now that remembers the last request alone": ("run_now",),
}
"""The verbs that show a bug soonest."""


def found_by_walking(**world: Any) -> str:
    """What the first walk that finds anything says."""
    for seed in itertools.count():
        assert seed < ENOUGH, f"{ENOUGH} walks have found nothing"
        try:
            walk(seed, **world)
        except Violation as problem:
            return str(problem)
    raise AssertionError


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, broken, says = PLANTED[bug]
    monkeypatch.setattr(module, name, broken)
    with pytest.raises(AssertionError, match=says):
        raise AssertionError(found_by_walking(verbs=LOOK_AT.get(bug, VERBS)))


def test_etags_that_come_again_are_found() -> None:
    with pytest.raises(AssertionError, match=r"FENCE|FOREIGN|TOKEN|OVERRIDE|EDIT|RUN NOW"):
        raise AssertionError(found_by_walking(store=PerRowEtags))
