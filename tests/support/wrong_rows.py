"""All errors that the rows of a board can have, written without the protocol."""

from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime, timedelta

import pytest

from blackboard.doctor import DoctorReport, Examination, examine
from blackboard.doctor.diagnosis import HORIZON
from blackboard.model import VERSION, Lock, Outcome, Run, replace
from blackboard.protocol import keys
from blackboard.protocol.batches import token_of
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.edits import pause, remove
from blackboard.protocol.rows import data_of
from blackboard.schedule import schedule
from blackboard.schedule.rrule import RRule
from blackboard.table import ANY, Delete, Insert, Merge, Op, Replace
from tests.support.boards import Scene

HOUR = timedelta(hours=1)
Plant = Callable[[Scene], Awaitable[list[Op]]]


def break_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the library of rules raise from now on, as it may years after a first run."""

    def runs(self: RRule, after: datetime) -> Iterator[datetime]:
        raise IndexError("list index out of range")

    monkeypatch.setattr(RRule, "runs", runs)
    schedule._shortest.cache_clear()


async def plant(scene: Scene, *ops: Op, item_id: str = "davis") -> None:
    await scene.table.table.commit(scene.other.partition(item_id), ops)


async def named_key(scene: Scene) -> str:
    item = await scene.item()
    return keys.next_key(item.ready, item.id)


async def another_token(scene: Scene) -> Insert:
    """A second waiting token, an hour later than the item says."""
    item = await scene.item()
    token = replace(token_of(item), ready=item.ready + HOUR)
    return Insert(keys.next_key(token.ready, token.id), data_of(token))


async def another_lock(scene: Scene, *, above: int = 0, **differs: object) -> Insert:
    item = await scene.item()
    lock = Lock(
        id=item.id,
        type=item.type,
        owner="other:2:b",
        nonce="theirs",
        fence=item.fence + above,
        born=item.born,
        slot=item.slot,
        since=scene.clock.now(),
        stale_after=60.0,
        attempt=1,
    )
    return Insert(keys.lock_key(item.id), data_of(replace(lock, **differs)))  # type: ignore[arg-type]


async def a_run(scene: Scene, *, above: int = 0, **differs: object) -> Insert:
    item = await scene.item()
    now = scene.clock.now()
    run = Run(
        id=item.id,
        type=item.type,
        fence=item.fence + above,
        attempt=1,
        slot=item.slot,
        start=now,
        stop=now,
        lag=0.0,
        outcome=Outcome.OK,
        worker="me",
        nonce="theirs",
    )
    run = replace(run, **differs)  # type: ignore[arg-type]
    return Insert(keys.run_key(run.id, run.fence), data_of(run))


def codes(report: DoctorReport) -> list[str]:
    return [one.code for one in report.findings]


async def repaired(board: BoardTable) -> DoctorReport:
    return await examine(board, Examination(repair=True))


async def found(board: BoardTable) -> DoctorReport:
    return await examine(board, Examination())


# ---- errors that can be repaired


async def no_token(scene: Scene) -> list[Op]:
    return [Delete(await named_key(scene), ANY)]


async def two_tokens(scene: Scene) -> list[Op]:
    return [await another_token(scene)]


async def token_at_another_time(scene: Scene) -> list[Op]:
    return [Delete(await named_key(scene), ANY), await another_token(scene)]


async def lock_beside_the_token(scene: Scene) -> list[Op]:
    return [await another_lock(scene, above=1)]


async def lock_instead_of_the_token(scene: Scene) -> list[Op]:
    return [Delete(await named_key(scene), ANY), await another_lock(scene, above=1)]


async def lock_of_an_older_fence(scene: Scene) -> list[Op]:
    await scene.let_go(await scene.claimed())
    return [await another_lock(scene, above=-1)]


async def lock_of_an_earlier_life(scene: Scene) -> list[Op]:
    return [await another_lock(scene, above=3, born=7)]


async def running_without_lock(scene: Scene) -> list[Op]:
    await scene.claimed()
    return [Delete(keys.lock_key("davis"), ANY)]


async def running_with_a_token(scene: Scene) -> list[Op]:
    await scene.claimed()
    return [await another_token(scene)]


async def running_with_a_higher_lock(scene: Scene) -> list[Op]:
    await scene.claimed()
    return [Merge(keys.lock_key("davis"), {"fence": 5, "owner": "other:2:b"}, ANY)]


async def running_with_a_lower_lock(scene: Scene) -> list[Op]:
    await scene.claimed()
    return [Merge(keys.lock_key("davis"), {"fence": 0}, ANY)]


async def running_for_another_owner(scene: Scene) -> list[Op]:
    await scene.claimed()
    return [Merge(keys.lock_key("davis"), {"owner": "other:2:b"}, ANY)]


async def paused_with_a_token(scene: Scene) -> list[Op]:
    await pause(scene.other, "davis", scene.mark())
    return [await another_token(scene)]


async def paused_with_a_lock(scene: Scene) -> list[Op]:
    await pause(scene.other, "davis", scene.mark())
    return [await another_lock(scene)]


async def removed_with_a_token(scene: Scene) -> list[Op]:
    ops: list[Op] = [await another_token(scene)]
    await remove(scene.other, "davis")
    return ops


async def removed_with_a_lock(scene: Scene) -> list[Op]:
    ops: list[Op] = [await another_lock(scene, above=2)]
    await remove(scene.other, "davis")
    return ops


async def token_without_item(scene: Scene) -> list[Op]:
    token = replace(token_of(await scene.item()), id="nobody")
    return [Insert(keys.next_key(token.ready, "nobody"), data_of(token))]


async def lock_without_item(scene: Scene) -> list[Op]:
    lock = replace((await scene.claimed()).lock, id="nobody")
    return [Insert(keys.lock_key("nobody"), data_of(lock))]


async def token_of_an_earlier_life(scene: Scene) -> list[Op]:
    return [Merge(await named_key(scene), {"born": 7}, ANY)]


async def token_with_another_spec(scene: Scene) -> list[Op]:
    return [Merge(await named_key(scene), {"spec": '{"every":"9h"}'}, ANY)]


async def token_with_another_fence(scene: Scene) -> list[Op]:
    return [Merge(await named_key(scene), {"fence": 4, "attempt": 3}, ANY)]


async def token_with_another_checkpoint(scene: Scene) -> list[Op]:
    return [Merge(await named_key(scene), {"checkpoint": "7"}, ANY)]


async def token_that_cannot_be_read(scene: Scene) -> list[Op]:
    return [Merge(await named_key(scene), {"slot": "soon"}, ANY)]


async def token_that_names_no_item(scene: Scene) -> list[Op]:
    return [Replace(await named_key(scene), {"text": "of another program"}, ANY)]


async def token_that_names_another_item(scene: Scene) -> list[Op]:
    return [Merge(await named_key(scene), {"item": "elko"}, ANY)]


async def running_with_a_lock_that_says_nothing(scene: Scene) -> list[Op]:
    await scene.claimed()
    return [Replace(keys.lock_key("davis"), {"text": "of another program"}, ANY)]


async def running_with_a_lock_for_ages(scene: Scene) -> list[Op]:
    await scene.claimed()
    return [Merge(keys.lock_key("davis"), {"stale_after": 1e11}, ANY)]


async def history_above_the_item(scene: Scene) -> list[Op]:
    return [await a_run(scene, above=9)]


async def outcome_unlike_the_history(scene: Scene) -> list[Op]:
    await scene.let_go(await scene.claimed())
    return [Merge(keys.item_key("davis"), {"outcome": "failed"}, ANY)]


# ---- rows that cannot be read, or must not be changed


async def foreign_row(scene: Scene) -> list[Op]:
    return [Insert("mail:davis", {"item": "davis"})]


async def key_of_another_id(scene: Scene) -> list[Op]:
    token = token_of(await scene.item())
    return [Insert(keys.next_key(token.ready, "other"), data_of(token))]


async def row_without_id(scene: Scene) -> list[Op]:
    return [Insert("lock:nobody", {"fence": 1})]


async def item_of_another_id(scene: Scene) -> list[Op]:
    return [Merge(keys.item_key("davis"), {"item": "elko"}, ANY)]


async def newer_lock_of_another_id(scene: Scene) -> list[Op]:
    lock = await another_lock(scene, id="elko", version=VERSION + 1)
    return [Insert(keys.lock_key("davis"), lock.data)]


async def newer_token(scene: Scene) -> list[Op]:
    return [Merge(await named_key(scene), {"version": VERSION + 1, "fence": 99}, ANY)]


async def newer_item(scene: Scene) -> list[Op]:
    return [Merge(keys.item_key("davis"), {"version": VERSION + 1, "state": "archived"}, ANY)]


async def unknown_state(scene: Scene) -> list[Op]:
    return [Merge(keys.item_key("davis"), {"state": "asleep"}, ANY)]


async def time_that_is_none(scene: Scene) -> list[Op]:
    return [Merge(keys.item_key("davis"), {"ready": "soon"}, ANY)]


async def due_in_a_thousand_years(scene: Scene) -> list[Op]:
    item = await scene.item()
    there = replace(item, ready=item.ready + 10 * HORIZON)
    return [
        Delete(await named_key(scene), ANY),
        Merge(keys.item_key("davis"), {"ready": there.ready}, ANY),
        Insert(keys.next_key(there.ready, "davis"), data_of(token_of(there))),
    ]
