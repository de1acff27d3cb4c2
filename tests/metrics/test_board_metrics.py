"""The figures of a board: read from its rows, and from its statistics where they are current."""

from datetime import timedelta

import pytest

from blackboard.display.health import Overview, read_overview
from blackboard.metrics import MOST_NAMES, OTHERS, exposition
from blackboard.metrics.board import board_metrics
from blackboard.model import LOST_AFTER, Member, Statistics, Token, TypeCounts, replace
from blackboard.protocol.additions import add_election, ensure
from blackboard.protocol.board_pause import pause_board
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import claim
from blackboard.protocol.edits import pause
from blackboard.protocol.groups import GroupLeases
from blackboard.protocol.keys import group_key, meta_partition
from blackboard.protocol.leaders import Elections, open_elections
from blackboard.protocol.members import announce
from blackboard.protocol.status import count, write_statistics
from blackboard.rules.status import status_of
from blackboard.spec import Spec
from blackboard.table import Insert
from tests.support.boards import Scene, make_board, story
from tests.support.clocks import START
from tests.support.expositions import samples
from tests.support.metrics_page import EMPTY_BOARD as NOTHING
from tests.support.plans import item


def values(overview: Overview) -> dict[tuple[str, ...], float]:
    accept = "application/openmetrics-text; version=1.0.0"
    body = exposition(board_metrics(overview), accept).body
    return samples(body, "blackboard_board_")


async def read(board: BoardTable) -> Overview:
    return await read_overview(board, exact=False)


async def take(board: BoardTable, item_id: str) -> None:
    """A worker claims an item."""
    until = await board.table.now() + timedelta(days=1)
    tokens = [one async for one in board.walk(0, until=until) if one.id == item_id]
    assert isinstance(tokens[0], Token)
    await claim(board, [tokens[0]], owner="w")


async def group(scene: Scene) -> BoardTable:
    """A group of four partitions."""
    board = scene.board.group("clicks")
    row = Insert(group_key("clicks"), {"version": 1, "kind": "pump", "lease": 30.0})
    await board.table.commit(meta_partition(scene.board.name), [row])
    made = await make_board(board.table, scene.clock, name=board.name)
    await ensure(made, ["00", "01", "02", "03"], "clicks")
    return made


def member(owner: str, scene: Scene, *, slots: int, running: int) -> Member:
    now = scene.clock.now()
    return Member(owner=owner, started=now, seen=now, slots=slots, running=running, release="1.0")


@story
async def test_the_figures_are_those_of_the_rows(scene: Scene) -> None:
    await announce(scene.board, member("host:1:lost", scene, slots=3, running=1))
    scene.later(seconds=LOST_AFTER + 1)
    await announce(scene.board, member("host:2:well", scene, slots=8, running=2))
    for item_id in ("davis", "keene", "epsom"):
        await scene.add(item_id)
    await scene.add("milk", item_type="shop", every="1h")
    await pause(scene.board, "epsom", scene.mark())
    await scene.let_go(await scene.claimed("keene"), "failed", error="spoiled")
    await scene.claimed("davis")
    partitions = await group(scene)
    await take(partitions, "01")
    await take(partitions, "03")
    for name in ("02", "03"):
        await pause(partitions, name, scene.mark())
    elections = await open_elections(scene.board, create=True)
    for name in ("led", "free", "stopped"):
        await add_election(elections, name, "mutex", Spec(stale_after="5m"))
    await take(elections, "led")
    await pause(elections, "stopped", scene.mark())
    await pause_board(scene.board, scene.mark())
    scene.later(seconds=90)
    found = values(await read(scene.board))
    assert {key: value for key, value in found.items() if value or key[0] == "leader"} == {
        ("items", "active", "feed"): 2,
        ("items", "paused", "feed"): 1,
        ("items", "active", "shop"): 1,
        ("items_running", "feed"): 1,
        ("items_failing", "feed"): 1,
        ("items_overdue", "shop"): 1,
        ("oldest_ready_seconds",): 90,
        ("workers", "alive"): 1,
        ("workers", "lost"): 1,
        ("slots",): 8,
        ("slots_taken",): 2,
        ("partitions", "clicks", "held"): 2,
        ("partitions", "clicks", "free"): 1,
        ("partitions", "clicks", "paused"): 1,
        ("partition_free_seconds", "clicks"): 90,
        ("leader", "led"): 1,
        ("leader", "free"): 0,
        ("paused",): 1,
    }


@story
async def test_current_statistics_of_a_large_board_are_taken_and_old_ones_are_not(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blackboard.protocol.status.LARGE", 0)
    await scene.add("davis")
    await write_statistics(scene.board, await count(scene.board, by="w", term=1))
    await scene.add("keene")
    scene.later(minutes=10)
    found = values(await read(scene.board))
    assert (found["items", "active", "feed"], found["statistics_age_seconds",]) == (1, 600)
    scene.later(minutes=10)
    found = values(await read(scene.board))
    assert (found["items", "active", "feed"], found["statistics_age_seconds",]) == (2, 0)


def test_an_empty_board_has_figures() -> None:
    found = values(NOTHING)
    assert set(found.values()) == {0}
    assert ("oldest_ready_seconds",) in found
    as_text = exposition(board_metrics(NOTHING))
    assert as_text.content_type.startswith("text/plain; version=0.0.4")


def test_what_is_not_counted_by_type_is_of_others_and_names_have_an_end() -> None:
    counted = Statistics(
        at=START,
        by="",
        term=0,
        took=0.0,
        items=9,
        active=7,
        done=2,
        stale=3,
        by_type=(TypeCounts(type="feed", items=4, active=4, stale=1),),
    )
    many = [f"n{number:04d}" for number in range(MOST_NAMES + 9)]
    lease = timedelta(seconds=30)
    groups = [GroupLeases(name=name, lease=lease, partitions=(), now=START) for name in many]
    status = status_of(item(), None, now=START, resolution=0.0)
    statuses = [replace(status, item=replace(status.item, id=name)) for name in many]
    elections = Elections(statuses=statuses, now=START)
    overview = replace(NOTHING, counted=counted, elections=elections, groups=groups)
    found = values(overview)
    assert found["items", "active", OTHERS] == 3
    assert found["items", "done", OTHERS] == 2
    assert found["items_stale", OTHERS] == 2
    assert len([key for key in found if key[0] == "leader"]) == MOST_NAMES
    assert len([key for key in found if key[0] == "partition_free_seconds"]) == MOST_NAMES


def test_a_type_that_is_named_as_the_others_are_is_counted_with_them() -> None:
    one = TypeCounts(type=OTHERS, items=5, active=5, failing=1)
    counted = Statistics(at=START, by="", term=0, took=0.0, items=9, active=9, by_type=(one,))
    found = values(replace(NOTHING, counted=replace(counted, failing=1)))
    assert (found["items", "active", OTHERS], found["items_failing", OTHERS]) == (9, 1)


@pytest.mark.parametrize("text", ['a"b', "a\\b", "a\nb", "é", " "])
def test_odd_names_of_types_are_written_as_they_are(text: str) -> None:
    counts = TypeCounts(type=text, items=1, active=1)
    counted = Statistics(at=START, by="", term=0, took=0.0, items=1, active=1, by_type=(counts,))
    assert values(replace(NOTHING, counted=counted))["items", "active", text] == 1
