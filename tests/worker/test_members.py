"""Who is there, as far as they have said so."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from blackboard.display import health
from blackboard.display.health import read_alarms
from blackboard.doctor import Examination, examination
from blackboard.events import StoreAway
from blackboard.model import ANNOUNCE_EVERY, LOST_AFTER, VERSION, Member, replace
from blackboard.protocol.keys import worker_key, workers_partition
from blackboard.protocol.members import announce, forget, served_types, takers, workers
from blackboard.protocol.status import read_status
from blackboard.rules.breaker import REFUSED
from blackboard.table import ANY, Delete, Etag, Insert, Merge, Op, Refused, Value
from blackboard.tables.base import ForwardingTable
from blackboard.tables.sqlite import SqliteTable
from blackboard.tables.sqlite_open import Opening
from blackboard.worker.membership import ANNOUNCE_SOON, types_as_text
from tests.support.boards import Scene, make_board, story
from tests.support.clocks import ManualClock
from tests.support.faults import Fault
from tests.support.stores import rows_of
from tests.support.workers import HANDLERS, Workplace, with_workers

pytestmark = pytest.mark.of_one_store("a worker is the same above any store")

START = ManualClock().now()
A = Member(
    owner="host:1:a",
    started=START,
    seen=START,
    slots=8,
    running=0,
    release="0.1.0",
    types="calendars,feed",
    cycle=60.0,
)
B = replace(A, owner="host:2:b")


async def owners(scene: Scene) -> list[str]:
    return [one.owner for one in await workers(scene.other)]


@story
async def test_an_announcement_is_seen_with_its_age(scene: Scene) -> None:
    scene.later(seconds=7)
    announced = await announce(scene.board, A)
    assert announced.seen == scene.clock.now()
    scene.later(seconds=30)
    (seen,) = await workers(scene.other)
    assert replace(seen, age=0.0) == announced
    assert seen.age == pytest.approx(30.0, abs=0.1)
    assert not seen.lost


@story
async def test_no_time_passes_before_the_first_announcement(scene: Scene) -> None:
    """A worker of a group counts once it was seen to announce itself some time after its start."""
    lost = await announce(scene.other, replace(B, seen=START))
    scene.later(hours=25)

    class Slow(ForwardingTable):
        def scan(self, *about: Any, **how: Any) -> Any:
            scene.later(seconds=5)
            return super().scan(*about, **how)

    board = scene.board.using(Slow(scene.board.table))
    started = await board.table.now()
    first = await announce(board, replace(A, started=started))
    assert first.seen == first.started
    assert await owners(scene) == [A.owner], f"{lost.owner} is forgotten"


@story
async def test_the_next_announcement_writes_over_the_last(scene: Scene) -> None:
    first = await announce(scene.board, A)
    scene.later(seconds=60)
    await announce(scene.board, replace(first, running=3))
    (seen,) = await workers(scene.other)
    assert (seen.running, seen.started) == (3, START)
    assert seen.seen == scene.clock.now()


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.NEVER])
@story
async def test_a_lost_reply_leaves_one_row_and_no_error(scene: Scene, fault: Fault) -> None:
    first = await announce(scene.board, A)
    scene.table.script(fault)
    second = await announce(scene.board, replace(first, running=1))
    await announce(scene.board, replace(second, running=2))
    assert [one.running for one in await workers(scene.other)] == [2]


@story
async def test_a_worker_whose_row_was_deleted_announces_itself_anew(scene: Scene) -> None:
    first = await announce(scene.board, A)
    await forget(scene.other, A.owner)
    await announce(scene.board, first)
    assert await owners(scene) == [A.owner]


@story
async def test_whoever_restarts_under_its_name_takes_its_row_over(scene: Scene) -> None:
    await announce(scene.board, A)
    await announce(scene.board, replace(A, slots=2))
    assert [one.slots for one in await workers(scene.other)] == [2]


@pytest.mark.of_each_store
@story
async def test_a_row_that_others_keep_writing_is_given_up_for_now(scene: Scene) -> None:
    announced = await announce(scene.board, A)

    async def touch() -> None:
        touched = [Merge(worker_key(A.owner), {"slots": 1}, ANY)]
        await scene.other.table.commit(workers_partition(scene.other.name), touched)

    scene.table.script(*[touch] * 5)
    later = await announce(scene.board, replace(announced, running=7))
    await announce(scene.board, later)
    assert [one.running for one in await workers(scene.other)] == [7]


@story
async def test_who_leaves_in_good_order_is_forgotten_twice_without_harm(scene: Scene) -> None:
    await announce(scene.board, A)
    await announce(scene.board, B)
    await forget(scene.board, A.owner)
    await forget(scene.board, A.owner)
    assert await owners(scene) == [B.owner]


@story
async def test_after_a_day_a_newcomer_forgets_the_lost(scene: Scene) -> None:
    await announce(scene.board, A)
    scene.later(hours=23)
    await announce(scene.board, B)
    assert await owners(scene) == [A.owner, B.owner]
    scene.later(hours=2)
    await announce(scene.board, replace(B, owner="host:3:c"))
    assert await owners(scene) == [B.owner, "host:3:c"]


@pytest.mark.of_each_store
@story
async def test_a_row_under_the_key_of_another_worker_is_passed_over(scene: Scene) -> None:
    await announce(scene.board, A)
    (row,) = await rows_of(scene.table.table, workers_partition("town"))
    stray = Insert(worker_key("another:1:b"), row.data)
    await scene.table.table.commit(workers_partition("town"), [stray])
    assert len(await workers(scene.board)) == 1


@story
async def test_rows_that_cannot_be_read_are_passed_over_and_stay(scene: Scene) -> None:
    newer: dict[str, Value] = {"owner": "host:9:z", "version": VERSION + 1}
    rows = [Insert("worker:new", newer), Insert("worker:half", {"owner": "half"})]
    partition = workers_partition(scene.other.name)
    await scene.other.table.commit(partition, rows)
    scene.later(days=3)
    await announce(scene.board, A)
    assert await owners(scene) == [A.owner]
    await scene.other.table.commit(partition, [Delete(row.key, ANY) for row in rows])


@pytest.mark.parametrize("cycle", [0.1, 60.0, 3600.0])
def test_a_worker_is_lost_when_it_missed_two_announcements(cycle: float) -> None:
    """Whatever its cycle."""
    member = replace(A, cycle=cycle)
    assert LOST_AFTER > 2 * ANNOUNCE_EVERY
    assert not replace(member, age=LOST_AFTER).lost
    assert replace(member, age=LOST_AFTER + 0.1).lost
    assert replace(member, age=float("inf")).lost


def test_who_takes_a_type_and_is_there() -> None:
    seen = [
        replace(A, age=1.0),
        replace(B, age=9999.0),
        replace(A, types="feeds", age=1.0),
        replace(A, types="", age=1.0),
    ]
    assert takers(seen, "feed") == [seen[0]]


def test_a_worker_may_take_what_its_row_has_no_room_for() -> None:
    types = [f"type-{n}" for n in range(10, 100)]
    room = len("type-10,type-11,type-12,*")
    assert types_as_text(types[:3], limit=room - 2) == "type-10,type-11,type-12"
    seen = [replace(A, types=types_as_text(types, limit=room)), replace(B, types="type-11")]
    assert seen[0].types == "type-10,type-11,type-12,*"
    assert takers(seen, "type-11") == seen
    assert takers(seen, "type-99") == seen[:1]
    assert takers(seen, "type-09") == takers(seen, "type-111") == []
    served = served_types(seen)
    assert [one in served for one in ("type-09", "type-11", "type-111", "type-99")] == [
        False,
        True,
        False,
        True,
    ]
    assert "type-99" not in served_types([replace(seen[0], age=9999.0), seen[1]])


class CountedTypes(str):
    """Counts how often it is taken apart."""

    __slots__ = ()
    times = 0

    def split(self, *how: Any) -> list[str]:
        CountedTypes.times += 1
        return str(self).split(*how)


@pytest.mark.of_each_store
@story
async def test_a_reading_of_a_board_takes_the_types_of_a_worker_apart_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for each item."""

    async def present(_: object) -> list[Member]:
        return [replace(A, types=CountedTypes("calendars,feed"))]

    await scene.fill(20)
    scene.later(minutes=5)
    monkeypatch.setattr(health, "workers", present)
    monkeypatch.setattr(examination, "workers", present)
    CountedTypes.times = 0
    found, _ = await read_alarms(scene.board, await read_status(scene.board))
    assert [one.kind for one in found.alarms] == ["overdue"] * 20
    assert CountedTypes.times == 1
    await examination.examine(scene.board, Examination())
    assert CountedTypes.times == 2


@story
async def test_a_row_of_the_future_is_forgotten_too(scene: Scene) -> None:
    """It was written under a clock that was wrong, and would never be a day old."""
    scene.clock.jump(3653 * 86_400.0)
    await owners(scene)
    await scene.board.item("davis")
    await announce(scene.board, A)
    scene.clock.jump(-3653 * 86_400.0)
    await owners(scene)
    await scene.board.item("davis")
    await announce(scene.board, B)
    assert await owners(scene) == [B.owner]


@pytest.mark.of_sqlite("a row that is not JSON")
@pytest.mark.parametrize("text", ["zz", "[]", "", "{}", '{"owner":7}'])
def test_a_worker_writes_its_row_anew_whatever_became_of_it(tmp_path: Path, text: str) -> None:
    async def told() -> None:
        clock, file = ManualClock(), tmp_path / "town.db"
        table = await SqliteTable.open(file, clock, Opening(create=True))
        board = await make_board(table, clock)
        announced = await announce(board, A)
        with closing(sqlite3.connect(file)) as rows, rows:
            changed = "UPDATE rows SET data = ?, etag = etag + 1000 WHERE key LIKE 'worker:%'"
            rows.execute(changed, [text])
        announced = await announce(board, replace(announced, running=3))
        with closing(sqlite3.connect(file)) as rows, rows:
            rows.execute("UPDATE rows SET data = ? WHERE key LIKE 'worker:%'", [text])
        await announce(board, replace(announced, running=4))
        assert [one.running for one in await workers(board)] == [4]
        await table.close()

    asyncio.run(told())


@story
async def test_a_worker_whose_cycle_makes_no_sense_is_as_one_that_cannot_be_read(
    scene: Scene,
) -> None:
    await announce(scene.board, A)
    write = Merge(worker_key(A.owner), {"cycle": 1e300}, ANY)
    await scene.other.table.commit(workers_partition(scene.other.name), [write])
    assert await owners(scene) == []


@with_workers
async def test_a_worker_of_more_types_than_a_value_holds_is_seen_with_some_of_them(
    place: Workplace,
) -> None:
    names = [f"{'tenant-type-' * 9}{number:04d}" for number in range(300)]
    await place.worker(handlers={name: replace(HANDLERS["feed"], type=name) for name in names})
    await place.sleeps(ANNOUNCE_SOON[0])
    (seen,) = await workers(place.other)
    types = seen.types.removesuffix(",*").split(",")
    assert types == names[: len(types)]
    assert takers([seen], names[-1]) == [seen]
    assert len(types) > 280


class RefusingMembers(ForwardingTable):
    refuses = True

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        if self.refuses and partition.endswith("-workers"):
            raise Refused(0, "a bad row")
        return await super().commit(partition, ops)


@pytest.mark.of_one_store("what a store refuses is said above it")
@with_workers
async def test_a_row_that_the_store_refuses_is_reported_once_until_it_is_written(
    place: Workplace,
) -> None:
    table = RefusingMembers(place.other.table)
    worker = await place.worker(board=place.other.using(table))
    for _ in range(3):
        await place.sleeps(REFUSED.pause())
        place.later(seconds=REFUSED.pause())
    await place.sleeps(REFUSED.pause())
    said = [one.message for one in worker.of(StoreAway)]
    assert said == ["the row of this worker: operation 0: a bad row"]
    table.refuses = False
    place.later(seconds=REFUSED.pause())
    await place.sleeps(ANNOUNCE_SOON[0])
    assert [one.owner for one in await workers(place.other)] == ["me"]
