"""Two boards in one table, and two versions on one board, do not disturb each other.

The newer version is played by hand: it writes columns that this one does not know, rows that say
they are of a higher version, types for which there is no handler here.
"""

from typing import Any

import pytest

from blackboard.doctor import Examination, examine
from blackboard.errors import BadInput, BadRow
from blackboard.events import LockAdopted, LockOverridden, RunEnded
from blackboard.handlers.handler import handler, handlers_of
from blackboard.model import ANNOUNCE_EVERY, VERSION, Member
from blackboard.protocol import edits, keys
from blackboard.protocol.additions import ensure
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.checkpoints import save
from blackboard.protocol.claims import override, pass_over, renew
from blackboard.protocol.groups import read_groups
from blackboard.protocol.members import announce, workers
from blackboard.protocol.rename import rename
from blackboard.protocol.status import read_status
from blackboard.rules.due import Move
from blackboard.table import ANY, Data, Delete, Insert, Merge, read
from tests.support.boards import Scene, disagreements, make_board, story
from tests.support.clocks import ManualClock
from tests.support.verbs import VERBS, ready_for, says
from tests.support.workers import HANDLERS, Workplace, with_workers

pytestmark = pytest.mark.of_one_store("what is read and written is decided above the store")

NEWER = VERSION + 1
MORE: Data = {"flavour": "vanilla", "weight": 2.5, "crates": 2**40, "ripe": True}
"""Columns of a newer version, of every kind but a time."""
START = ManualClock().now()
MEMBER = Member(
    owner="rabbit:1:a", started=START, seen=START, slots=1, running=0, release="9", types="shiny"
)


@handler("shiny")
async def _shiny(item: Any, ctx: Any) -> None:
    """Of a type that only the newer version has."""


# ---- two boards in one table

NAMES = {"town": 1, "town2": 1, "town_00": 1, "town_": 3, "Town": 1, "tow": 2, "t": 1}
"""Boards whose names begin like each other's partitions, and their shards."""


async def partitions(board: BoardTable) -> list[str]:
    shards = [board.shard(number) for number in range(board.shards)]
    return [*shards, keys.meta_partition(board.name), keys.workers_partition(board.name)]


async def everything(board: BoardTable) -> dict[tuple[str, str], str]:
    """The etags of all rows of a board: whatever is written changes one."""
    return {
        (partition, row.key): row.etag
        for partition in await partitions(board)
        async for row in board.table.scan(partition)
    }


@with_workers
async def test_what_happens_on_one_board_changes_no_row_of_another(place: Workplace) -> None:
    """They have items of the same ids, due at the same time; a worker is at one of them."""
    table, clock = place.other.table, place.clock
    boards = {
        name: await make_board(table, clock, name=name, shards=shards, seed=7)
        for name, shards in NAMES.items()
    }
    ids = ("davis", "town2", "item:davis", "town-00")
    for board in boards.values():
        there = Scene(table=place.table, clock=clock, board=board, other=board)
        for item_id in ids:
            await there.add(item_id)
        await announce(board, MEMBER)
    others = [board for name, board in boards.items() if name != "town"]
    before = [await everything(board) for board in others]
    worker = await place.worker()
    for item_id in ids:
        (await worker.run(item_id)).end()
        assert await place.ended(item_id) == [(1, "ok")]
    await edits.pause(place.other, "town2", place.mark())
    await edits.remove(place.other, "item:davis")
    place.later(hours=2)
    await worker.walk()
    assert [await everything(board) for board in others] == before
    assert len({row for rows in before for row in rows}) == sum(map(len, before))
    for board in others:
        assert {item.id async for item in board.items()} == set(ids)
        assert [one.owner for one in await workers(board)] == [MEMBER.owner]
        assert await disagreements(board) == []


# ---- one board, two versions: columns that this one does not know


async def add_more(scene: Scene, more: Data = MORE) -> None:
    """The newer version adds its columns to every row of davis that there is."""
    rows = await scene.rows()
    await scene.table.table.commit(
        scene.other.partition("davis"), [Merge(row.key, more, ANY) for row in rows]
    )


async def kept(scene: Scene) -> Data:
    """What is left of them in the item."""
    (row,) = await scene.rows("item:")
    return {name: row.data[name] for name in row.data if name in MORE}


@pytest.mark.cases_of_one_store("what is written is built above the store")
@pytest.mark.case("RR04")
@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "remove"])
@story
async def test_what_people_do_keeps_them(scene: Scene, verb: str) -> None:
    await ready_for(verb, scene)
    await add_more(scene)
    assert (await VERBS[verb](scene)).changed
    assert await kept(scene) == MORE


@pytest.mark.case("RR04")
@story
async def test_a_run_keeps_them_from_its_claim_to_its_release(scene: Scene) -> None:
    """Also when it is overridden, comes late, and finds that its answers were lost."""
    await scene.add(every="1h", stale_after="10s", retries=1)
    await add_more(scene)
    late = await scene.claimed(owner="late")
    await add_more(scene)
    renewed = await renew(scene.board, late)
    assert renewed is not None, "the lock's new columns are in nobody's way"
    scene.later(minutes=1)
    taken = await override(scene.board, await scene.lock(), owner="me")
    assert taken is not None
    assert await kept(scene) == MORE
    await scene.let_go(renewed, result="late")
    assert await kept(scene) == MORE
    await edits.edit(scene.other, "davis", says(every="2h"))
    await scene.let_go(taken, "failed", error="boom")
    assert await scene.outcomes() == [(1, "superseded"), (2, "failed")]
    assert await kept(scene) == MORE


@pytest.mark.case("RR04")
@story
async def test_settings_that_are_not_known_here_go_from_token_to_token(scene: Scene) -> None:
    spec = '{"every":"1h","flavour":{"of":["vanilla",1.0]}}'
    item = await scene.add()
    token = await scene.token()
    partition = scene.other.partition("davis")
    changes = [Merge(keys.item_key("davis"), {"spec": spec}, item.etag)]
    changes.append(Merge(keys.next_key(token.ready, "davis"), {"spec": spec}, token.etag))
    await scene.table.table.commit(partition, changes)
    made = await scene.claimed()
    assert made.spec == spec
    await scene.let_go(made)
    assert ((await scene.item()).spec, (await scene.token()).spec) == (spec, spec)


@story
async def test_settings_that_are_not_known_here_outlast_an_edit(scene: Scene) -> None:
    item = await scene.add()
    await edits.pause(scene.other, "davis", scene.mark())
    spec = '{"every":"1h","flavour":{"of":["vanilla",1.0]}}'
    changes = [Merge(keys.item_key("davis"), {"spec": spec}, ANY)]
    await scene.table.table.commit(scene.other.partition(item.id), changes)
    await edits.edit(scene.other, "davis", says(every="2h"))
    edited = '{"every":"2h","flavour":{"of":["vanilla",1.0]}}'
    assert (await scene.item()).spec == edited
    assert not (await edits.edit(scene.other, "davis", says(every="2h"))).changed
    await edits.resume(scene.other, "davis", scene.mark())
    assert (await scene.token()).spec == edited


@pytest.mark.case("RR04")
@with_workers
async def test_they_are_in_nobodys_way(place: Workplace) -> None:
    """Of a worker, of who looks at the board, of the doctor: in rows of every family."""
    for name in ("davis", "held"):
        await place.add(name)
    made = await place.claimed("held")
    await announce(place.other, MEMBER)
    board, members = keys.meta_partition("town"), keys.workers_partition("town")
    await add_more(place)
    for partition, key in ((board, keys.BOARD_KEY), (members, keys.worker_key(MEMBER.owner))):
        await place.table.table.commit(partition, [Merge(key, MORE, ANY)])
    worker = await place.worker(owner="rabbit:2:b")
    (await worker.run("davis")).end()
    assert await place.ended("davis") == [(1, "ok")]
    await add_more(place)
    assert await place.outcomes() == [(1, "ok")]
    await looked_at(place, "davis", "held")
    report = await examine(place.other, Examination())
    assert [one for one in report.findings if one.grave] == []
    owners = {one.owner for one in await workers(place.other)}
    assert owners == {MEMBER.owner, "rabbit:2:b"}
    assert await announce(place.other, MEMBER)
    row = await read(place.other.table, members, keys.worker_key(MEMBER.owner))
    assert row is not None
    assert row.data["flavour"] == "vanilla"
    await place.let_go(made)


async def looked_at(scene: Scene, *item_ids: str) -> None:
    """What `show` and `check` are made of has these items."""
    status = await read_status(scene.other)
    assert [one.item.id for one in status.statuses] == list(item_ids)


# ---- rows of a higher version


async def raise_version(scene: Scene, *families: str, item_id: str = "newer") -> dict[str, str]:
    """The newer version writes these rows of an item; their etags by key."""
    rows = [
        row
        for row in await scene.rows()
        if row.key.startswith(families) and row.data["item"] == item_id
    ]
    assert len(rows) == len(families)
    changes = [Merge(row.key, {"version": NEWER, **MORE}, row.etag) for row in rows]
    etags = await scene.table.table.commit(scene.other.partition(item_id), changes)
    return {row.key: etag for row, etag in zip(rows, etags, strict=True)}


async def lower_version(scene: Scene, rows: dict[str, str]) -> None:
    """So that whoever looks at the end can read them. Nobody has touched them since."""
    changes = [Merge(key, {"version": VERSION}, etag) for key, etag in rows.items()]
    await scene.table.table.commit(scene.other.partition("newer"), changes)


@pytest.mark.case("RR04")
@with_workers
async def test_a_waiting_item_of_a_higher_version_is_left_alone(place: Workplace) -> None:
    await place.add("newer")
    await place.add("davis")
    newer = await raise_version(place, "item:", "next:")
    worker = await place.worker()
    (await worker.run("davis")).end()
    await place.ended("davis")
    await place.announced()
    place.later(hours=2)
    await worker.walk()
    await worker.run("davis", 1)
    await place.sleeps(ANNOUNCE_EVERY)
    assert set(worker.order) == {"davis"}
    await looked_at(place, "davis", "newer")
    report = await examine(place.other, Examination(repair=True))
    assert {(one.code, one.subject) for one in report.findings} == {("D10", "newer")}
    for verb in (edits.pause, edits.resume):
        with pytest.raises(BadInput, match="newer version"):
            await verb(place.other, "newer", place.mark())
    await lower_version(place, newer)


@pytest.mark.case("RR04")
@with_workers
async def test_a_stale_lock_of_a_higher_version_is_left_alone(place: Workplace) -> None:
    """Also one of the worker's own, as it were: it has the same owner, and nobody's nonce."""
    await place.add("newer", every="1h", stale_after="10s")
    await place.claimed("newer", owner="me")
    newer = await raise_version(place, "item:", "lock:")
    place.later(hours=2)
    for owner in ("me", "other"):
        worker = await place.worker(owner=owner)
        assert worker.order == []
        assert not worker.of(LockOverridden) + worker.of(LockAdopted)
    report = await examine(place.other, Examination(repair=True))
    assert {(one.code, one.subject) for one in report.findings} == {("D10", "newer")}
    with pytest.raises(BadInput, match="newer version"):
        await edits.unlock(place.other, "newer", place.mark(), fence=1)
    await lower_version(place, newer)


@story
async def test_a_stale_lock_of_an_item_that_became_newer_is_left_alone(scene: Scene) -> None:
    """Only its holder writes a lock, so its own version may be the older one."""
    await scene.add(every="1h", stale_after="10s")
    await scene.claimed(owner="dead")
    raised = [Merge(keys.item_key("davis"), {"version": NEWER}, ANY)]
    (etag,) = await scene.table.table.commit(scene.other.partition("davis"), raised)
    scene.later(minutes=1)
    with pytest.raises(BadInput, match="newer version"):
        await override(scene.board, await scene.lock(), owner="me")
    assert ((await scene.item()).etag, (await scene.lock()).owner) == (etag, "dead")


@story
async def test_an_id_is_not_added_over_a_newer_tombstone(scene: Scene) -> None:
    await scene.add()
    await edits.remove(scene.other, "davis")
    raised = [Merge(keys.item_key("davis"), {"version": NEWER}, ANY)]
    (etag,) = await scene.table.table.commit(scene.other.partition("davis"), raised)
    with pytest.raises(BadInput, match="newer version"):
        await scene.add()
    assert (await scene.item()).etag == etag


@story
async def test_an_item_is_not_renamed_over_a_newer_tombstone(scene: Scene) -> None:
    await scene.add()
    await scene.add("dixon")
    before = await scene.item()
    await edits.remove(scene.other, "dixon")
    raised = await raise_version(scene, "item:", item_id="dixon")
    with pytest.raises(BadInput, match="newer version"):
        await rename(scene.board, "davis", "dixon", scene.mark())
    assert {(await scene.item("dixon")).etag} == set(raised.values())
    assert await scene.item() == before


@story
async def test_a_missed_slot_of_an_item_that_became_newer_is_left_alone(scene: Scene) -> None:
    """Its token was read before."""
    await scene.add(cron="0 * * * *", missed="none")
    scene.later(hours=5)
    token = await scene.token()
    raised = await raise_version(scene, "item:", "next:", item_id="davis")
    assert not await pass_over(scene.board, token, move=Move.SKIP)
    rows = [*await scene.rows("item:"), *await scene.rows("next:")]
    assert {row.key: row.etag for row in rows} == raised


@story
async def test_an_item_that_became_newer_gets_no_late_result(scene: Scene) -> None:
    """A newer worker overrode the lock. The history says how the run ended."""
    await scene.add(every="1h", stale_after="10s")
    late = await scene.claimed(owner="late")
    scene.later(minutes=1)
    taken = await override(scene.other, await scene.lock(), owner="newer")
    assert taken is not None
    raised = await raise_version(scene, "item:", item_id="davis")
    await scene.let_go(late, result="late")
    assert {row.key: row.etag for row in await scene.rows("item:")} == raised
    assert await scene.outcomes() == [(1, "superseded")]
    await scene.let_go(taken, board=scene.other)


@story
async def test_an_item_that_became_newer_while_it_ran_stays_so(scene: Scene) -> None:
    await scene.add(every="1h")
    made = await scene.claimed()
    raised = [Merge(keys.item_key("davis"), {"version": NEWER}, ANY)]
    await scene.table.table.commit(scene.other.partition("davis"), raised)
    await scene.let_go(made)
    assert await scene.outcomes() == [(1, "ok")]
    rows = [*await scene.rows("item:"), *await scene.rows("next:")]
    assert [row.data["version"] for row in rows] == [NEWER, NEWER]


@story
async def test_a_run_of_an_item_that_became_newer_saves_its_checkpoint_alone(scene: Scene) -> None:
    await scene.add(every="1h")
    made = await scene.claimed()
    raised = [Merge(keys.item_key("davis"), {"version": NEWER, **MORE}, ANY)]
    await scene.table.table.commit(scene.other.partition("davis"), raised)
    assert await save(scene.board, made, "57") is not None
    (item,) = await scene.rows("item:")
    assert (item.data["version"], item.data["checkpoint"]) == (NEWER, "57")
    assert await kept(scene) == MORE


@pytest.mark.of_each_store
@with_workers
async def test_an_item_that_cannot_be_read_any_more_does_not_end_who_runs_it(
    place: Workplace,
) -> None:
    """Its run is told, its lock stays; everybody else's runs go on."""
    await place.add("newer", every="1h")
    worker = await place.worker()
    run = await worker.run("newer")
    partition = place.other.partition("newer")
    key = keys.item_key("newer")
    await place.other.table.commit(partition, [Merge(key, {"state": "hibernating"}, ANY)])
    run.end()
    await worker.tells(RunEnded)
    assert worker.of(RunEnded)[0].release == "dropped"
    await place.add("davis")
    await worker.walk()
    (await worker.run("davis")).end()
    assert await place.ended("davis") == [(1, "ok")]
    await place.other.table.commit(partition, [Merge(key, {"state": "active"}, ANY)])


@pytest.mark.case("RR04")
@story
async def test_a_state_that_this_version_does_not_know_hides_no_other_item(scene: Scene) -> None:
    await scene.add("newer")
    await scene.add("davis")
    odd = Merge(keys.item_key("newer"), {"version": NEWER, "state": "hibernating"}, ANY)
    partition = scene.other.partition("newer")
    await scene.table.table.commit(partition, [odd])
    await looked_at(scene, "davis")
    assert [one.code for one in (await examine(scene.other, Examination())).findings] == ["D10"]
    assert [item.id async for item in scene.other.items()] == ["davis"]
    assert (scene.other.unreadable, scene.other.newer) == ([], [odd.key])
    with pytest.raises(BadRow, match="a newer version wrote it: upgrade blackboard"):
        await edits.pause(scene.other, "newer", scene.mark())
    await scene.table.table.commit(
        partition, [Merge(odd.key, {"version": VERSION, "state": "active"}, ANY)]
    )


@pytest.mark.of_each_store
@story
async def test_a_partition_in_a_state_of_a_higher_version_is_not_damaged(scene: Scene) -> None:
    meta, group = keys.meta_partition("town"), scene.other.group("clicks")
    row: Data = {"kind": "pump", "lease": 30.0, "version": VERSION}
    await scene.table.table.commit(meta, [Insert(f"{keys.GROUP}clicks", row)])
    await group.make()
    await ensure(group, ["1"], "clicks")
    odd = Merge(keys.item_key("1"), {"version": NEWER, "state": "hibernating"}, ANY)
    await scene.table.table.commit(group.shard(0), [odd])
    (found,) = await read_groups(scene.other)
    words = f"a newer version wrote the row {odd.key} in town.clicks (upgrade blackboard)"
    assert (found.damaged, found.unreadable, found.newer) == ([], [], [words])
    assert await ensure(group, ["1"], "clicks") == {"1": words}


@pytest.mark.of_each_store
@story
async def test_a_worker_of_a_higher_version_is_passed_over_and_not_forgotten(scene: Scene) -> None:
    partition, key = keys.workers_partition("town"), keys.worker_key("newer:1:c")
    data: Data = {"owner": "newer:1:c", "version": NEWER, **MORE}
    (etag,) = await scene.table.table.commit(partition, [Insert(key, data)])
    scene.later(days=2)
    await announce(scene.board, MEMBER)
    assert [one.owner for one in await workers(scene.other)] == [MEMBER.owner]
    await scene.table.table.commit(partition, [Delete(key, etag)])


# ---- types of the newer version


@with_workers
async def test_types_are_run_by_whoever_knows_them(place: Workplace) -> None:
    await place.add("new", item_type="shiny")
    await place.add("old")
    older = await place.worker(owner="older")
    (await older.run("old")).end()
    await place.ended("old")
    await older.walk()
    assert older.order == ["old"]
    known = {**HANDLERS, "shiny": handlers_of(_shiny)[0]}
    newer = await place.worker(owner="newer", board=await place.board_of_its_own(), handlers=known)
    (await newer.run("new")).end()
    assert await place.ended("new") == [(1, "ok")]
    (run,) = await place.runs("new")
    assert run.worker == "newer"


@with_workers
async def test_a_stale_lock_of_an_unknown_type_waits_for_who_knows_it(place: Workplace) -> None:
    await place.add("new", item_type="shiny", every="1h", stale_after="10s")
    await place.claimed("new", owner="dead")
    place.later(minutes=10)
    older = await place.worker(owner="older")
    assert older.order == []
    assert (await place.lock("new")).owner == "dead"
    known = {**HANDLERS, "shiny": handlers_of(_shiny)[0]}
    newer = await place.worker(owner="newer", board=await place.board_of_its_own(), handlers=known)
    (await newer.run("new")).end()
    assert await place.ended("new", runs=2) == [(1, "abandoned"), (2, "ok")]
