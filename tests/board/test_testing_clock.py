"""`blackboard.testing`: a clock that tests turn, and a ctx for a direct call."""

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from blackboard import BadInput, BlackboardError, Context, Item, Retry, handler, testing
from blackboard.model import Mark
from blackboard.protocol.board_pause import pause_board
from blackboard.protocol.board_table import BoardTable
from blackboard.testing import BoardUnderTest, azurite_board, context, sqlite_board

__all__ = ["azurite_board", "sqlite_board"]


@handler("feed", every="8h")
def feed(item: Item, ctx: Context) -> int:
    if ctx.attempt <= item.params.get("fails", 0):
        raise ValueError("as it was told")
    return ctx.attempt


@handler("again", every="1d")
async def again(item: Item, ctx: Context) -> int:
    if ctx.attempt < 3:
        raise Retry("2h")
    return ctx.attempt


def test_a_retry_comes_after_its_backoff_without_sleeping(sqlite_board: BoardUnderTest) -> None:
    sqlite_board.add("davis", "feed", params={"fails": 1}, retries=1, backoff="1h")
    begun = time.monotonic()
    assert [run.outcome for run in sqlite_board.work(feed)] == ["failed"]
    assert sqlite_board.work(feed) == []
    sqlite_board.advance("1h")
    [retry] = sqlite_board.work(feed)
    assert (retry.outcome, retry.attempt) == ("ok", 2)
    assert time.monotonic() - begun < 1_800


def test_schedules_come_due_as_the_clock_is_turned(sqlite_board: BoardUnderTest) -> None:
    start = sqlite_board.now()
    sqlite_board.add("davis", "feed")
    sqlite_board.work(feed)
    assert sqlite_board.advance("7h") - start >= timedelta(hours=7)
    assert sqlite_board.work(feed) == []
    sqlite_board.advance(3_601)
    [run] = sqlite_board.work(feed)
    assert run.start - start >= timedelta(hours=8)


@pytest.mark.parametrize(("missed", "runs"), [("one", 1), ("all", 3), ("none", 0)])
def test_missed_runs_are_made_up_for(sqlite_board: BoardUnderTest, missed: str, runs: int) -> None:
    sqlite_board.add("davis", "feed", cron="30 3 * * *", missed=missed)  # type: ignore[arg-type]
    sqlite_board.work(feed)
    due = sqlite_board.item("davis").due
    assert due is not None
    sqlite_board.advance(due + timedelta(days=2, hours=7) - sqlite_board.now())
    assert len(sqlite_board.work(feed)) == runs


def test_a_worker_that_works_for_a_day_runs_each_thing_when_it_is_due(
    sqlite_board: BoardUnderTest,
) -> None:
    start = sqlite_board.now()
    sqlite_board.add("davis", "feed")
    sqlite_board.add("keene", "again")
    runs = sqlite_board.work(feed, again, lasting="20h")
    hours = [(run.id, round((run.start - start) / timedelta(hours=1))) for run in runs]
    assert sorted(hours) == [
        ("davis", 0), ("davis", 8), ("davis", 16), ("keene", 0), ("keene", 2), ("keene", 4),
    ]  # fmt: skip
    assert sqlite_board.result("keene") == 3
    assert sqlite_board.now() - start >= timedelta(hours=20)


def test_what_is_due_and_cannot_be_run_keeps_no_work_from_its_end(
    sqlite_board: BoardUnderTest,
) -> None:
    async def paused(board: BoardTable) -> None:
        await pause_board(board, Mark(by="ann", at=await board.table.now()))

    start = sqlite_board.now()
    sqlite_board.add("davis", "feed")
    sqlite_board.do(paused)
    assert sqlite_board.work(feed, lasting="20h") == []
    assert sqlite_board.now() - start >= timedelta(hours=20)


def test_the_clock_of_the_emulator_is_not_turned(azurite_board: BoardUnderTest) -> None:
    with pytest.raises(BadInput, match="use sqlite_board"):
        azurite_board.advance("1h")


def test_an_item_that_is_due_again_whenever_it_has_run_ends_the_test(
    sqlite_board: BoardUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one that turns the clock on by its interval, as if its handler took so long."""
    monkeypatch.setattr(testing, "MOST_RUNS", 5)

    @handler("slow", every="1h")
    def slow(item: Item, ctx: Context) -> None:
        sqlite_board.advance("1h")

    sqlite_board.add("davis", "slow")
    with pytest.raises(BlackboardError, match="davis ran 5 times"):
        sqlite_board.work(slow)
    assert len(list(sqlite_board.runs("davis"))) >= 5


def test_what_is_no_duration_is_refused(sqlite_board: BoardUnderTest) -> None:
    for wrong in ("2", "soon", -1):
        with pytest.raises(BadInput, match="advance"):
            sqlite_board.advance(wrong)


@handler("steps")
def steps(item: Item, ctx: Context) -> object:
    ctx.log.warning("page %s", ctx.checkpoint)
    ctx.progress(1, 2)
    ctx.save({"page": 2})
    ctx.warn("half of it")
    return "lost" if ctx.lost or ctx.stopping.wait(60) else (ctx.settings, ctx.resources)


@handler("a-steps")
async def async_steps(item: Item, ctx: Context) -> object:
    await ctx.save({"page": 2})
    return "lost" if await ctx.lost.wait() else ctx.attempt


def test_a_handler_is_called_as_a_function(caplog: pytest.LogCaptureFixture) -> None:
    item = Item("davis", "steps", {})
    due = datetime(2026, 11, 21, 9, tzinfo=UTC)
    ctx = context(steps, settings={"a": 1}, checkpoint=1, resources="pool", due=due)
    assert steps(item, ctx) == ({"a": 1}, "pool")
    assert (ctx.warnings, ctx.progressed, ctx.saved) == (["half of it"], [(1, 2)], [{"page": 2}])
    assert (ctx.due, caplog.messages) == (due, ["page 1"])
    ctx.lost.set()
    assert steps(item, ctx) == "lost"


def test_warnings_are_kept_as_those_of_a_run() -> None:
    ctx = context(steps)
    for text in ("half  of it", "x" * 1_000, "half of it", *map(str, range(30))):
        ctx.warn(text)
    assert (ctx.warnings[0], len(ctx.warnings[1]), len(ctx.warnings)) == ("half of it", 500, 20)


def test_a_coroutine_is_called_as_one() -> None:
    item, ctx = Item("davis", "a-steps", {}), context(async_steps, attempt=2)
    assert asyncio.run(async_steps(item, ctx)) == 2
    ctx.lost.set("overtaken")
    assert (asyncio.run(async_steps(item, ctx)), ctx.lost.reason) == ("lost", "overtaken")
    assert ctx.saved == [{"page": 2}] * 2


def test_a_plain_function_gets_answers_and_a_coroutine_gets_coroutines_wherever_it_calls() -> None:
    ctx = context(steps)
    assert (ctx.lost.wait(60), ctx.stopping.wait(), ctx.save(1)) == (False, False, None)

    async def saves(item: Item, ctx: Context) -> None:
        save_later(ctx)

    def save_later(ctx: Context) -> None:
        tasks.append(asyncio.create_task(ctx.save(2)))

    async def call() -> None:
        await saves(Item("davis", "saves", {}), ctx)
        await tasks[0]

    tasks, ctx = list[asyncio.Task[None]](), context(saves)
    asyncio.run(call())
    assert ctx.saved == [2]


def test_what_is_saved_is_what_the_next_run_would_get() -> None:
    ctx, progress = context(steps), {"page": 1, "seen": ("a", "b")}
    ctx.save(progress)
    progress["page"] = 2
    ctx.save(progress)
    assert ctx.saved == [{"page": page, "seen": ["a", "b"]} for page in (1, 2)]


def test_what_could_not_be_saved_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON"):
        context(steps).save(object())
