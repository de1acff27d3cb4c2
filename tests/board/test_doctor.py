"""What the doctor tells, and what it keeps to itself."""

import tracemalloc
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace as replace_spec

from blackboard.doctor import LARGEST_SKEW, Examination, examination, examine
from blackboard.doctor.diagnosis import Finding
from blackboard.model import VERSION, Member, replace
from blackboard.protocol import keys
from blackboard.protocol.additions import New, add
from blackboard.protocol.batches import token_of
from blackboard.protocol.edits import edit, pause, remove, unlock
from blackboard.protocol.members import announce
from blackboard.protocol.rows import data_of
from blackboard.spec import RunSettings, Spec
from blackboard.table import ANY, Delete, Insert, Merge
from blackboard.tables.base import ForwardingTable
from tests.support.boards import Scene, make_board, settings_of, story
from tests.support.clocks import ManualClock
from tests.support.faults import Fault, FaultyTable
from tests.support.wrong_rows import (
    Plant,
    a_run,
    codes,
    due_in_a_thousand_years,
    foreign_row,
    found,
    item_of_another_id,
    named_key,
    newer_item,
    newer_lock_of_another_id,
    newer_token,
    plant,
    repaired,
    time_that_is_none,
    unknown_state,
)

pytestmark = pytest.mark.of_one_store("rows are judged above the store")

ITEMS = 1_500
"""Of a board that is not small: a multiple of what is read between two pauses."""

# ---- a healthy board


@pytest.mark.of_each_store
@story
async def test_a_board_at_work_is_clean(scene: Scene) -> None:
    """Waiting, running, paused, paused while it runs, done, removed, failed, tried again."""
    for name in ("waits", "runs", "paused", "drains", "gone", "fails", "ran"):
        await scene.add(name)
    await scene.add("once", at="2026-01-01T00:00:00Z")
    await scene.add("retries", every="1h", retries=2)
    await scene.claimed("runs")
    await pause(scene.other, "paused", scene.mark())
    await scene.claimed("drains")
    await pause(scene.other, "drains", scene.mark())
    await remove(scene.other, "gone")
    for name, outcome in (
        ("fails", "failed"),
        ("ran", "ok"),
        ("once", "ok"),
        ("retries", "failed"),
    ):
        await scene.let_go(await scene.claimed(name), outcome, error="boom")
    report = await found(scene.board)
    assert (report.findings, report.clean) == ([], True)
    assert (report.items, report.tombstones, report.locks) == (8, 1, 2)
    assert (report.waiting, report.runs) == (4, 4)


@story
async def test_a_late_finisher_and_an_earlier_life_leave_the_board_clean(scene: Scene) -> None:
    await scene.add()
    late = await scene.claimed(owner="late")
    await remove(scene.other, "davis")
    await scene.add()
    again = await scene.claimed()
    await unlock(scene.other, "davis", scene.mark(), fence=again.fence)
    await scene.let_go(again)
    await scene.let_go(late)
    outcomes = [outcome for _, outcome in await scene.outcomes()]
    assert outcomes == ["cancelled", "superseded"], "the removal cut the first one short"
    assert (await found(scene.board)).findings == []


@story
async def test_an_item_that_moves_during_the_sweep_is_not_told(scene: Scene) -> None:
    """Its token is read while it waits, its record after it was claimed."""
    await scene.add()

    async def claim_it() -> None:
        await scene.claimed(board=scene.other)

    scene.table.script_reads(Fault.NONE, Fault.NONE, claim_it)
    report = await found(scene.board)
    assert report.waiting == 1
    assert report.findings == []


# ---- what is told, and not touched


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (foreign_row, ["D9"]),
        (item_of_another_id, ["D9"]),
        (newer_lock_of_another_id, ["D10"]),
        (newer_token, ["D10"]),
        (newer_item, ["D10"]),
        (unknown_state, ["D7"]),
        (time_that_is_none, ["D7"]),
    ],
)
@story
async def test_what_is_not_understood_is_told_and_not_touched(
    scene: Scene, broken: Plant, told: list[str]
) -> None:
    await scene.add()
    await plant(scene, *await broken(scene))
    before = await scene.rows()
    scene.table.batches.clear()
    mended = await repaired(scene.board)
    assert (codes(mended), mended.clean) == (told, False)
    assert scene.table.batches == []
    assert await scene.rows() == before
    await plant(scene, *[Delete(row.key, ANY) for row in before])


@story
async def test_a_time_that_no_schedule_makes_is_told(scene: Scene) -> None:
    await scene.add()
    await scene.let_go(await scene.claimed())
    await plant(scene, *await due_in_a_thousand_years(scene))
    (told,) = (await found(scene.board)).findings
    assert (told.code, told.subject, told.grave) == ("D7", "davis", True)
    assert told.problem.endswith("too far (`blackboard run davis` runs it now)")


@story
async def test_a_time_that_is_too_far_is_repaired(scene: Scene) -> None:
    await scene.add()
    await scene.let_go(await scene.claimed())
    item, sixty_years = await scene.item(), timedelta(days=365 * 60)
    far = {name: getattr(item, name) + sixty_years for name in ("slot", "ready", "planned")}
    later = replace(item, **far)
    await plant(
        scene,
        Merge(keys.item_key("davis"), far, item.etag),
        Delete(keys.next_key(item.ready, "davis"), ANY),
        Insert(keys.next_key(later.ready, "davis"), data_of(token_of(later))),
    )
    mended = await repaired(scene.board)
    assert [(one.code, one.repaired) for one in mended.findings] == [("D7", True)]
    assert (await scene.item()).ready < scene.clock.now() + timedelta(days=1)
    assert (await found(scene.board)).findings == []


@pytest.mark.of_each_store
@pytest.mark.parametrize("key", ["run:", "run:davis"])
@story
async def test_a_history_of_no_item_is_told(scene: Scene, key: str) -> None:
    await plant(scene, Insert(key, {"item": "davis"}))
    (told,) = (await found(scene.board)).findings
    assert (told.code, told.subject) == ("D9", key)
    await plant(scene, Delete(key, ANY))


@story
async def test_rows_below_the_history_of_an_item_are_not_of_it(scene: Scene) -> None:
    item = await scene.add()
    below = "run:davis:b:000000000007"
    await plant(scene, Insert(below, {"item": "davis"}))
    await plant(scene, Merge(keys.item_key("davis"), {"running": True}, item.etag))
    told = (await found(scene.board)).findings
    assert {one.code for one in told if one.subject == "davis"} == {"D2"}
    await plant(scene, Delete(below, ANY))
    await repaired(scene.board)


@story
async def test_a_time_that_a_person_named_may_be_far(scene: Scene) -> None:
    far = datetime(2099, 1, 1, tzinfo=UTC)
    await add(scene.board, New(id="first", type="feed", spec=Spec(every="1h"), first=far))
    await scene.add("at", at="2099-01-01T00:00:00Z")
    await scene.add("again", at="2026-01-01T00:00:00Z")
    await scene.let_go(await scene.claimed("again"))
    await edit(scene.board, "again", lambda spec, _: replace_spec(spec, at="2099-01-01T00:00:00Z"))
    items = [await scene.item(name) for name in ("first", "at", "again")]
    assert [(one.waits, one.ready) for one in items] == [(True, far)] * 3
    assert (await found(scene.board)).findings == []


@story
async def test_a_row_that_cannot_be_read_is_told_in_plain_words(scene: Scene) -> None:
    await scene.add()
    await plant(scene, Insert(keys.lock_key("davis"), {"item": "davis"}))
    (told,) = (await found(scene.board)).findings
    assert told.code == "D7"
    assert told.problem.startswith("the row lock:davis in town: cannot be read: ")
    await plant(scene, Delete(keys.lock_key("davis"), ANY))


@story
async def test_an_item_in_a_wrong_shard_is_told_and_its_tokens_stay(scene: Scene) -> None:
    board = await make_board(scene.table, scene.clock, shards=2, name="fleet")
    wrong = board.shard(1 - keys.shard_of("davis", 2))
    there = await scene.add()
    await scene.table.commit(wrong, [Insert(keys.item_key("davis"), data_of(there))])
    token = replace(token_of(there), id="stray")
    stray = keys.next_key(token.ready, "stray")
    await scene.table.commit(wrong, [Insert(stray, data_of(token))])
    mended = await repaired(board)
    assert sorted((one.code, one.subject, one.repaired) for one in mended.findings) == [
        ("D4", "davis", False),
        ("D4", "stray", True),
    ]


# ---- late, with and without workers


def worker(types: str = "feed", **more: object) -> Member:
    start = ManualClock().now()
    made = Member(
        owner="host:1:a",
        started=start,
        seen=start,
        slots=8,
        running=0,
        release="1",
        types=types,
        cycle=60.0,
    )
    return replace(made, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("types", "grave"), [("feed", True), ("other", False), ("", False)])
@story
async def test_overdue_for_long_is_grave_only_when_a_worker_could_have_run_it(
    scene: Scene, *, types: str, grave: bool
) -> None:
    await scene.add()
    scene.later(seconds=61 + 3600)
    if types:
        await announce(scene.other, worker(types))
    report = await found(scene.board)
    assert [(one.code, one.grave) for one in report.findings] == [("D7", grave)]
    assert report.clean is not grave


@pytest.mark.parametrize(("lease", "older"), [("10s", 70), ("2m", 240)])
@story
async def test_a_lock_that_nobody_overrides_is_told(scene: Scene, lease: str, older: float) -> None:
    """It may be as old as two leases, or as a lease and a cycle."""
    await scene.add(every="1h", stale_after=lease)
    await scene.claimed()
    await announce(scene.other, worker())
    scene.later(seconds=older)
    assert (await found(scene.board)).clean
    scene.later(seconds=1)
    assert "D8" in codes(await found(scene.board))


@pytest.mark.parametrize("quick", [True, False])
@story
async def test_many_items_that_are_late_cost_no_request_each(scene: Scene, *, quick: bool) -> None:
    await scene.fill(30)
    requests, costs = scene.table.requests, list[int]()
    for hours, late in ((0, 0), (20, 30)):
        scene.later(hours=hours)
        before = requests.total
        report = await examine(scene.board, Examination(quick=quick))
        costs.append(requests.total - before)
        assert codes(report) == ["D7"] * late
    assert costs[1] == costs[0]


@story
async def test_a_quick_examination_looks_at_few_items_however_many_look_broken(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examination, "MOST_LOOKED_AT", 3)
    await scene.fill(8)
    newer = [Merge(row.key, {"version": VERSION + 1}, ANY) for row in await scene.rows()]
    await plant(scene, *[one for one in newer if one.key.startswith(keys.NEXT)])
    assert codes(await examine(scene.board, Examination(quick=True))) == ["D10"] * 3
    assert codes(await examine(scene.board, Examination())) == ["D10"] * 8
    await plant(scene, *[Merge(one.key, {"version": VERSION}, ANY) for one in newer])


@pytest.mark.of_each_store
@story
async def test_a_quick_examination_reads_no_history(scene: Scene) -> None:
    await scene.add()
    await plant(scene, await a_run(scene, above=9), Delete(await named_key(scene), ANY))
    assert codes(await found(scene.board)) == ["D1", "D6", "D6"]
    assert codes(await examine(scene.board, Examination(quick=True))) == ["D1"]
    assert (await repaired(scene.board)).clean


@pytest.mark.of_one_store("what an examination keeps is counted above the store")
@story
async def test_what_is_kept_in_memory_of_an_item_is_little(scene: Scene) -> None:
    """Neither its row nor that of its token, but an id and a number."""
    held = list[int]()

    async def pause() -> None:
        held.append(tracemalloc.get_traced_memory()[0])

    await scene.fill(ITEMS)
    await found(scene.board)
    tracemalloc.start()
    report = await examine(scene.board, Examination(pause=pause))
    tracemalloc.stop()
    assert (report.clean, report.items) == (True, ITEMS)
    assert held[-1] / ITEMS < 1_000


# ---- the board as a whole


@story
async def test_a_type_that_nobody_can_run_is_told(scene: Scene) -> None:
    for name, kind in (("a", "feed"), ("b", "feed"), ("c", "known"), ("d", "taken")):
        await scene.add(name, item_type=kind, every="1h")
    await scene.add("e", item_type="asleep", every="1h")
    await pause(scene.other, "e", scene.mark())
    await announce(scene.other, worker("taken"))
    report = await examine(scene.board, Examination(types={"known"}))
    assert report.findings == [
        Finding(
            code="types",
            subject="feed",
            problem="no handler here, no worker that takes it, but 2 items",
        )
    ]
    assert (await found(scene.board)).clean


@story
async def test_an_item_of_a_type_that_is_a_pump_is_told(scene: Scene) -> None:
    """As where the type became one later: it runs for partitions alone, on a board of their own."""
    await scene.add()

    def resolve(item_type: str, spec: str) -> RunSettings:
        return replace(settings_of(item_type, spec), endless=True)

    (told,) = (await found(scene.board.using(resolve=resolve))).findings
    assert (told.code, told.subject, told.grave) == ("D12", "davis", True)
    assert told.problem.startswith("no worker runs it: type: 'feed' is a pump")


@story
async def test_lost_workers_are_told_and_are_no_alarm(scene: Scene) -> None:
    await announce(scene.other, worker())
    scene.later(hours=1)
    report = await found(scene.board)
    assert [(one.code, one.subject, one.grave) for one in report.findings] == [
        ("workers", "host:1:a", False)
    ]
    assert report.clean


@pytest.mark.of_each_store
@pytest.mark.parametrize(("ahead", "told"), [(0, []), (4, []), (90, ["clock"]), (-90, ["clock"])])
@story
async def test_clocks_that_differ_are_told(scene: Scene, ahead: float, told: list[str]) -> None:
    assert LARGEST_SKEW > 4
    here = ManualClock()
    here.advance(1000 + ahead)
    scene.later(seconds=1000)
    board = await make_board(scene.table, here)
    assert codes(await found(board)) == told


@pytest.mark.of_each_store
@story
async def test_what_the_store_says_of_itself_is_told(scene: Scene) -> None:
    class Damaged(FaultyTable):
        async def integrity(self) -> list[str]:
            return ["row 3 missing from index"]

    board = await make_board(Damaged(scene.table.table), scene.clock)
    report = await found(board)
    assert [(one.code, one.problem) for one in report.findings] == [
        ("store", "row 3 missing from index")
    ]
    assert not report.clean


@pytest.mark.of_each_store
@story
async def test_a_log_of_the_store_that_grows_is_told_also_by_a_coordinator(scene: Scene) -> None:
    class Growing(FaultyTable):
        trouble = "the log grows"

    board = await make_board(ForwardingTable(Growing(scene.table.table)), scene.clock)
    report = await examine(board, Examination(quick=True))
    assert [(one.code, one.problem) for one in report.findings] == [("store", "the log grows")]
