"""What is done about single rows that are not as they should be: nobody goes by them or is held up
by them, and the doctor tells.
"""

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from blackboard import Context, Item, handler
from blackboard import open as open_board
from blackboard.display.toml_text import lines_of
from blackboard.errors import BadInput, BadRow, BadSpec, BlackboardError
from blackboard.events import ItemLeftAlone
from blackboard.handlers.context import decoded_checkpoint
from blackboard.model import LARGEST, Applied, Mark, QueuedRun, decoded_as, replace
from blackboard.protocol import keys
from blackboard.protocol.batches import token_of
from blackboard.protocol.board_table import BoardTable, mark_in
from blackboard.protocol.claims import override, renew
from blackboard.protocol.edits import pause, remove
from blackboard.protocol.retention import raise_floor
from blackboard.protocol.rows import data_of, record_of, text_of
from blackboard.records import decoded, item_record
from blackboard.spec import DEEPEST, Labels, decode_spec, is_nested_deeper, params_of
from blackboard.table import ANY, Delete, Insert, Merge, Op, Row, Value
from blackboard.tables.base import ForwardingTable
from blackboard.why import explained
from tests.cli.command_line import CommandLine, blackboard
from tests.protocol.test_rows import ITEM, LOCK, MEMBER, RUN, TOKEN
from tests.support.boards import Scene, settings_of, story
from tests.support.faults import Fault
from tests.support.patience import patience
from tests.support.workers import Workplace, with_workers
from tests.support.wrong_rows import codes, found, plant, repaired

pytestmark = pytest.mark.of_one_store("what is read and written is decided above the store")

__all__ = ["blackboard"]

DEEP = "[" * 5_000
KEY = keys.item_key("davis")


@pytest.mark.parametrize(
    ("record", "column", "value"),
    [
        (ITEM, "state", 3),
        (ITEM, "outcome", []),
        (ITEM, "running", "yes"),
        (ITEM, "fence", True),
        (ITEM, "spec", 5),
        (ITEM, "requests", "{"),
        (ITEM, "requests", '[{"name":"a","slot":"2026-11-21T09:00"}]'),
        (ITEM, "requests", DEEP),
        (ITEM, "applied", '{"a":1}'),
        (TOKEN, "ready", "soon"),
        (TOKEN, "ready", datetime(2026, 11, 21)),  # noqa: DTZ001 - that is what is wrong
        (TOKEN, "slot", datetime.max.replace(tzinfo=UTC)),
        (TOKEN, "planned", datetime.min.replace(tzinfo=UTC)),
        (TOKEN, "slot", datetime(1600, 12, 31, tzinfo=UTC)),
        (TOKEN, "fence", -1),
        (TOKEN, "attempt", 10**12),
        (LOCK, "stale_after", float("nan")),
        (LOCK, "owner", None),
        (RUN, "lag", float("inf")),
        (MEMBER, "seen", 7),
        (TOKEN, "fence", "\ud800"),
        (TOKEN, "ready", "\ud800"),
        (TOKEN, "requests", "\ud800"),
        (ITEM, "state", "\ud800"),
        (ITEM, "running", "\ud800"),
        (LOCK, "stale_after", "\ud800"),
    ],
)
def test_a_column_that_is_not_what_its_field_says_makes_a_row_unreadable(
    record: Any, column: str, value: Any
) -> None:
    row = Row("key", "1", {**data_of(record), column: value})
    with pytest.raises(BadRow, match=f"no good {column}"):
        record_of(type(record), row)


@pytest.mark.of_one_store("what is added to a number is the rules' own")
@story
async def test_what_this_program_adds_to_the_largest_numbers_can_still_be_read(
    scene: Scene,
) -> None:
    item = await scene.add(every="1h", retries=3)
    large: dict[str, Value] = dict.fromkeys(("runs", "failures", "attempt", "warned"), LARGEST)
    large["fence"] = LARGEST - 1
    rows = (KEY, keys.next_key(item.ready, "davis"))
    await plant(scene, *[Merge(key, large, ANY) for key in rows])
    await scene.let_go(await scene.claimed(), "failed")
    last = await scene.item()
    assert (last.fence, last.runs, last.failures) == (LARGEST, LARGEST, LARGEST)
    _, told = (await found(scene.board)).findings
    assert told.problem.startswith("no worker runs it: fence: no fence is above 999,999,999,999")
    await remove(scene.other, "davis")
    assert (await scene.item()).fence == LARGEST


@pytest.mark.of_one_store("what is taken over is decided above the store")
@story
async def test_no_second_run_has_the_last_fence(scene: Scene) -> None:
    item = await scene.add(every="1h", stale_after="10s")
    rows = (KEY, keys.next_key(item.ready, "davis"))
    await plant(scene, *[Merge(key, {"fence": LARGEST - 1}, ANY) for key in rows])
    made = await scene.claimed()
    scene.later(seconds=11)
    assert await override(scene.other, await scene.lock(), owner="you") is None
    last = await scene.item()
    assert (made.fence, last.fence, last.running) == (LARGEST, LARGEST, False)
    assert await scene.outcomes() == [(LARGEST, "abandoned")]


@pytest.mark.of_one_store("what a worker may claim is judged above the store")
@with_workers
async def test_an_item_without_a_fence_for_another_run_is_left_alone(place: Workplace) -> None:
    for name in ("davis", "elko"):
        await place.add(name)
    token = keys.next_key((await place.item()).ready, "davis")
    await plant(place, *[Merge(key, {"fence": LARGEST}, ANY) for key in (KEY, token)])
    worker = await place.worker(at_once=True)
    await place.ended("elko")
    assert worker.order == ["elko"]
    (left,) = worker.of(ItemLeftAlone)
    assert left.message.startswith(
        "fence: no fence is above 999,999,999,999 (`blackboard rm davis`"
    )


@pytest.mark.of_one_store("what a worker may claim is judged above the store")
@with_workers
async def test_an_item_of_which_the_store_would_not_take_a_release_is_left_alone(
    place: Workplace,
) -> None:
    """It is not run first, and found to be too large then."""
    await place.add("davis", every="1h", description="x" * 200)
    await place.add("elko", every="1h")
    narrow = ForwardingTable(place.other.table)
    narrow.max_value = 100
    board = place.other.using(narrow)
    worker = await place.worker(at_once=True, board=board)
    await place.ended("elko")
    assert worker.order == ["elko"]
    (left,) = worker.of(ItemLeftAlone)
    assert "a value holds at most 100 (`blackboard edit` can shorten" in left.message


def test_what_a_release_goes_by_may_be_there() -> None:
    requests = (QueuedRun(name="a", slot=TOKEN.slot, once='{"a":1}'),)
    item = replace(
        ITEM, requests=requests, applied=(Applied(name="mine", at=TOKEN.slot),), etag="1"
    )
    assert record_of(type(item), Row("key", "1", data_of(item))) == item


def test_json_without_an_end_is_no_spec_and_is_shown_as_it_stands() -> None:
    with pytest.raises(BadSpec, match="nested too deeply"):
        decode_spec('{"params":' + '{"a":' * 5_000)
    assert decoded(DEEP) == DEEP
    assert decoded_as(Mark, DEEP) is None
    unseen = replace(ITEM, failures=1, acknowledged=DEEP, paused=DEEP)
    assert not unseen.is_acknowledged
    assert mark_in(Row("key", "1", {"mark": DEEP})).by == "unknown"


@pytest.mark.cases_of_one_store("rows are judged above the store")
@pytest.mark.parametrize(
    "at", ["2026-01-01T00:00:00", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-05:00", "x"]
)
@story
async def test_marks_whose_times_make_no_sense_are_shown_as_none(scene: Scene, at: str) -> None:
    await scene.add("davis")
    await pause(scene.board, "davis", scene.mark())
    text = text_of({"by": "ann", "at": at, "reason": "x", "fence": 0})
    item = replace(await scene.item(), resumed=text, paused=text, acknowledged=text, failures=1)
    write = Merge(KEY, data_of(item), ANY)
    await scene.table.commit(scene.board.partition("davis"), [write])
    one, why = await explained(scene.board, await scene.item(), ())
    assert "paused" in why.headline
    found = item_record(one, Labels())
    assert (found.paused, found.resumed, found.acknowledged) == (None, None, None)


@with_workers
async def test_a_token_under_another_key_holds_up_nobody(place: Workplace) -> None:
    """It comes first in every walk, and nobody could claim it."""
    await place.add("davis")
    stray = keys.NEXT + "20000101T000000.000Z:davis"
    await plant(place, Insert(stray, data_of(await place.token("davis"))))
    worker = await place.worker(at_once=True)
    await place.ended("davis")
    assert worker.order == ["davis"]
    assert codes(await repaired(place.other)) == ["D9"]
    assert await place.rows(stray) == []


@with_workers
async def test_a_token_in_a_wrong_shard_holds_up_nobody(place: Workplace, *, shards: int) -> None:
    await place.add("davis")
    wrong = place.other.shard(1 - keys.shard_of("davis", shards))
    name = next(one for one in "abcdef" if place.other.partition(one) == wrong)
    await place.add(name)
    token = await place.token("davis")
    stray = replace(token, ready=datetime(2000, 1, 1, tzinfo=UTC))
    key = keys.next_key(stray.ready, "davis")
    await place.table.table.commit(wrong, [Insert(key, data_of(stray))])
    worker = await place.worker(at_once=True)
    await place.ended(name)
    assert sorted(worker.order) == sorted(["davis", name])
    assert [one.repaired for one in (await repaired(place.other)).findings] == [True]


test_a_token_in_a_wrong_shard_holds_up_nobody = pytest.mark.parametrize("shards", [2])(
    test_a_token_in_a_wrong_shard_holds_up_nobody
)


@story
async def test_a_token_that_is_ready_at_another_time_than_its_key_says_is_told_and_put_right(
    scene: Scene,
) -> None:
    item = await scene.add()
    token = replace(token_of(item), ready=datetime(2400, 1, 1, tzinfo=UTC))
    key = keys.next_key(item.ready, "davis")
    await plant(scene, Merge(key, {"ready": token.ready}, ANY))
    assert await scene.tokens() == []
    mended = await repaired(scene.board)
    assert [(one.code, one.repaired) for one in mended.findings] == [("D9", True)]
    assert (await scene.token()).ready == item.ready


@story
async def test_a_history_whose_item_is_lost_is_told(scene: Scene) -> None:
    await scene.add()
    await scene.let_go(await scene.claimed())
    rows = await scene.rows("item:")
    lost: list[Op] = [Delete(row.key, ANY) for row in await scene.rows() if "run:" not in row.key]
    await plant(scene, *lost)
    report = await repaired(scene.board)
    assert [(one.code, one.subject, one.repaired) for one in report.findings] == [
        ("D6", "davis", False)
    ]
    assert not report.clean
    await plant(scene, Insert(KEY, {**rows[0].data, "state": "removed"}))


@story
async def test_an_item_that_says_no_sense_is_refused_and_told(scene: Scene) -> None:
    await scene.add()
    before = (await scene.rows("item:"))[0].data
    await plant(scene, Merge(KEY, {"requests": "soon"}, ANY))
    with pytest.raises(BadRow, match="no good requests"):
        await scene.board.item("davis")
    assert [item async for item in scene.board.items()] == []
    report = await repaired(scene.board)
    (told,) = report.findings
    assert told.code == "D7"
    assert told.problem.startswith("the row item:davis in town: no good requests: ")
    assert "(write good values into it, or `blackboard rm davis` removes it)" in told.problem
    await plant(scene, Merge(KEY, before, ANY))


@story
async def test_a_removal_passes_over_damaged_keys_of_the_history(scene: Scene) -> None:
    """Else the next item of the id would begin with the fence of a run."""
    await scene.add(every="1h")
    for _ in range(3):
        await scene.let_go(await scene.claimed())
    token = keys.next_key((await scene.item()).ready, "davis")
    damaged = keys.run_key("davis", LARGEST)
    await plant(scene, Delete(token, ANY), Merge(KEY, {"fence": "?"}, ANY), Insert(damaged, {}))
    removal = await remove(scene.board, "davis")
    assert removal.item.fence == 4
    await plant(scene, Delete(damaged, ANY))


@story
async def test_what_is_damaged_is_removed_only_as_what_it_can_be_seen_to_be(scene: Scene) -> None:
    """Neither by a file, whose it may not be; nor one of a newer version, whose token says so; nor
    one whose row was mended meanwhile.
    """
    item = await scene.add(every="1h")
    with pytest.raises(BlackboardError, match="was changed meanwhile"):
        await scene.board.stand_in("davis")
    await plant(scene, Merge(KEY, {"version": "?"}, ANY))
    with pytest.raises(BadRow, match="no good version"):
        await remove(scene.board, "davis", declared_by="towns.toml")
    token = keys.next_key(item.ready, "davis")
    await plant(scene, Merge(token, {"version": 2}, ANY))
    with pytest.raises(BadInput, match="newer version"):
        await remove(scene.board, "davis")
    await plant(scene, Merge(token, {"version": 1}, ANY))
    assert (await remove(scene.board, "davis")).changed


@story
async def test_what_is_damaged_is_removed_as_it_was_read_or_not_at_all(scene: Scene) -> None:
    """It may be mended, or its lock renewed, meanwhile."""
    await scene.add(every="1h")
    made = await scene.claimed()
    await plant(scene, Merge(KEY, {"requests": "soon"}, ANY))
    scene.table.script(lambda: renew(scene.other, made))
    with pytest.raises(BlackboardError, match="was changed meanwhile"):
        await remove(scene.board, "davis")
    scene.table.script(lambda: plant(scene, Merge(KEY, {"requests": ""}, ANY)))
    with pytest.raises(BlackboardError, match="was changed meanwhile"):
        await remove(scene.board, "davis")
    assert (await scene.item()).running
    await plant(scene, Merge(KEY, {"requests": "soon"}, ANY))
    assert (await remove(scene.board, "davis")).changed
    assert await scene.board.lock("davis") is None
    assert await scene.outcomes() == [(1, "cancelled")]


@story
async def test_what_is_damaged_leaves_a_fence_above_the_floor(scene: Scene) -> None:
    await raise_floor(scene.board, 9)
    item = await scene.add(every="1h")
    await plant(scene, Delete(keys.next_key(item.ready, "davis"), ANY))
    await plant(scene, Merge(KEY, {"fence": "?"}, ANY))
    assert (await remove(scene.board, "davis")).item.fence == 10


@with_workers
async def test_a_run_of_a_type_that_is_unknown_here_fails_and_ends_nobody(
    place: Workplace,
) -> None:
    """Its lock names a type that is taken here, its item another."""
    await place.add("davis", every="1h", stale_after="3s")
    await place.add("paris")
    await place.claimed("davis", board=place.other, owner="dead")
    await plant(place, Merge(KEY, {"type": "gosling"}, ANY))
    place.later(seconds=4)
    worker = await place.worker(at_once=True)
    await place.ended("davis", runs=2)
    await place.ended("paris")
    assert await place.outcomes("davis") == [(1, "abandoned"), (2, "failed")]
    assert "no handler here for 'gosling'" in (await place.item("davis")).error
    assert worker.order == ["paris"]


@story
async def test_a_board_without_a_number_of_shards_is_refused(scene: Scene) -> None:
    partition = keys.meta_partition(scene.board.name)
    for wrong in (0, 101, "2", 1.0):
        await scene.table.table.commit(partition, [Merge("board", {"shards": wrong}, ANY)])
        with pytest.raises(BadRow, match="no good shards"):
            await type(scene.board).open(
                scene.table,
                name="town",
                clock=scene.clock,
                chance=scene.board.chance,
                resolve=settings_of,
            )


def harm(blackboard: CommandLine, **columns: Any) -> None:
    """Write over columns of davis."""

    async def done(board: BoardTable) -> None:
        await board.table.commit(board.partition("davis"), [Merge(KEY, columns, ANY)])

    blackboard.on_board(done)


def test_a_pause_that_cannot_be_read_is_one_that_nobody_knows_of(blackboard: CommandLine) -> None:
    blackboard("init")
    blackboard("add", "davis", "--type", "feed", "--every", "1h")
    blackboard("pause", "davis")
    for broken in ("soon", '"x"', DEEP):
        harm(blackboard, paused=broken)
        assert "no run starts" in blackboard("why", "davis").out


@pytest.mark.of_each_store
def test_a_run_whose_item_has_no_spec_is_not_cancelled_and_that_is_told(
    blackboard: CommandLine,
) -> None:
    blackboard("init")
    blackboard("add", "davis", "--type", "feed", "--every", "1h")
    blackboard.start("davis")
    harm(blackboard, spec="soon")
    said = blackboard("cancel", "davis", code=1)
    assert "the spec of 'davis' cannot be read" in said.err


def test_what_is_nested_too_deeply_is_refused_in_one_line() -> None:
    nested: list[Any] = []
    for _ in range(20_000):
        nested = [nested]
    with pytest.raises(BadInput, match="nested too deeply"):
        list(lines_of({"params": nested}))


@pytest.mark.timeout(20)
def test_text_whose_quotes_do_not_end_is_read_once() -> None:
    text = "[" * DEEPEST + '"' + '\\"' * 16_000 + "[]"
    for _ in range(100):
        assert not is_nested_deeper(text, DEEPEST)


@pytest.mark.parametrize("levels", [DEEPEST + 3, 16_000])
def test_text_that_is_nested_too_deeply_is_no_value_on_any_python(levels: int) -> None:
    """Newer ones read text that older ones do not, and write the longest of a row as 256 MB."""
    text = "[" * levels + "]" * levels
    assert decoded(text) == text
    with pytest.raises(BadSpec, match="nested too deeply"):
        decode_spec(f'{{"params":{{"a":{text}}}}}')
    with pytest.raises(BadSpec, match="nested too deeply"):
        params_of("{}", f'{{"a":{text}}}')
    with pytest.raises(BadInput, match="checkpoint: nested too deeply"):
        decoded_checkpoint(text)


@pytest.mark.of_each_store
@story
async def test_a_run_whose_fence_the_history_has_does_not_hold_up_its_worker(scene: Scene) -> None:
    """Its token was put back to an older fence: what it is to release is in the history already."""

    async def enough() -> None:
        raise AssertionError("it is sent again and again")

    await scene.add()
    await scene.let_go(await scene.claimed())
    item = await scene.item()
    await plant(scene, Merge(keys.next_key(item.ready, "davis"), {"fence": 0}, ANY))
    again = await scene.claimed()
    scene.table.script(*[Fault.NONE] * 100, enough)
    await scene.let_go(again)
    scene.table._commits.clear()


def test_many_rows_of_items_that_are_no_json_keep_no_worker_from_its_end(tmp_path: Path) -> None:
    @handler("quick", every="1h")
    async def quick(item: Item, ctx: Context) -> None: ...

    async def story() -> None:
        file = tmp_path / "app.db"
        async with open_board(file, handlers=[quick], create=True) as board:
            for number in range(12):
                await board.add(f"a{number:02}", "quick")
            with closing(sqlite3.connect(file)) as rows, rows:
                rows.execute(
                    "UPDATE rows SET data = '[]' WHERE key GLOB 'item:a*' AND key < 'item:a11'"
                )
            async with asyncio.timeout(patience(60)):
                await board.worker(slots=20).work("idle")
            assert (await board.item("a11")).runs == 1

    asyncio.run(story())


@pytest.mark.of_each_store
@story
async def test_what_was_left_out_is_as_the_latest_reading_found_it(scene: Scene) -> None:
    """A process that lives long reads a board again and again."""
    item = await scene.add()
    damaged = Merge(keys.item_key("davis"), {"slot": "soon"}, item.etag)
    await scene.other.table.commit(scene.other.partition("davis"), [damaged])
    assert [one async for one in scene.board.items()] == []
    assert scene.board.unreadable == [keys.item_key("davis")]
    mended = Merge(keys.item_key("davis"), {"slot": item.slot}, ANY)
    await scene.other.table.commit(scene.other.partition("davis"), [mended])
    assert [one.id async for one in scene.board.items()] == ["davis"]
    assert scene.board.unreadable == []


@pytest.mark.of_each_store
@story
async def test_what_one_reading_left_out_is_known_while_another_one_is_under_way(
    scene: Scene,
) -> None:
    """As two visitors of `serve` read the board at a time."""
    for item_id in ("a", "davis", "z"):
        await scene.add(item_id)
    key, partition = keys.item_key("davis"), scene.other.partition("davis")
    await scene.other.table.commit(partition, [Merge(key, {"slot": "soon"}, ANY)])
    assert [one.id async for one in scene.board.items()] == ["a", "z"]
    known = [scene.board.unreadable async for _ in scene.board.items()]
    assert known == [[key], [key]]
    token = keys.next_key((await scene.token()).ready, "davis")
    await scene.other.table.commit(partition, [Delete(key, ANY), Delete(token, ANY)])
    assert [scene.board.unreadable async for _ in scene.board.items()] == [[key], [key]]
    assert scene.board.unreadable == []
