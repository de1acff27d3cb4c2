"""`blackboard.open` and `blackboard.open_blocking`: what a program does with a board."""

import asyncio
import copy
import errno
import gc
import inspect
import os
import pickle
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from httpx2 import ASGITransport, AsyncClient

import blackboard
from blackboard import (
    BadInput,
    BlackboardError,
    BlockingBoard,
    Board,
    Context,
    Item,
    board_worker,
    handler,
)
from blackboard import board as board_module
from blackboard.blocking import BlockingWorker
from blackboard.board_worker import BoardWorker, Until
from blackboard.errors import BoardClosed
from blackboard.events import (
    BoardEvent,
    RunEnded,
    RunLogged,
    RunStarted,
    Walked,
    WorkerStarted,
    WorkerStopped,
)
from blackboard.model import Token
from blackboard.protocol import additions, edits
from blackboard.protocol.additions import ensure
from blackboard.protocol.board_row import Remade
from blackboard.protocol.claims import claim
from blackboard.protocol.keys import item_key, lock_key
from blackboard.stores import when_woken
from blackboard.table import ANY, Merge, TableError
from blackboard.worker import sigterm
from blackboard.worker.worker import Worker
from tests.support.patience import is_within, patience
from tests.support.processes import own_environ


@handler("feed", every="1h")
async def feed(item: Item, ctx: Context) -> dict[str, Any]:
    ctx.log.info("reading")
    if item.params.get("fails"):
        raise ValueError("as it was told")
    return {"url": item.params.get("url", ""), "warnings": ["slow"]}


@handler("long", every="1h", stale_after="1m")
async def long(item: Item, ctx: Context) -> str:
    ctx.progress(1, 3)
    await ctx.lost.wait()
    return "lost"


@handler("waiting", every="1h")
def waiting(item: Item, ctx: Context) -> None:
    ctx.lost.wait()


@handler("pid", every="1h")
def pid(item: Item, ctx: Context) -> int:
    return os.getpid()


@handler("plain", every="1h")
def plain(item: Item, ctx: Context) -> str:
    return f"{item.id} in {__name__}"


@handler("crawl", every="1d")
async def crawl(item: Item, ctx: Context) -> object:
    begun = ctx.checkpoint or 0
    for page in range(begun, 5):
        if page == item.params.get("breaks"):
            raise OSError("no route")
        await ctx.save(page + 1)
    return begun


@pytest.fixture(name="url")
def _url(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return store_url


@asynccontextmanager
async def opened(store: str | Path, **about: Any) -> AsyncIterator[Board]:
    given: dict[str, Any] = {"handlers": [feed, long, crawl], "create": True, **about}
    async with blackboard.open(store, **given) as board:
        yield board


@contextmanager
def blocking(store: str, **about: Any) -> Iterator[BlockingBoard]:
    given: dict[str, Any] = {"handlers": [feed, long], "create": True, **about}
    with blackboard.open_blocking(store, **given) as board:
        yield board


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(patience(60)):
        while not await condition():  # noqa: ASYNC110 - of another task
            await asyncio.sleep(0.02)


# ---- the verbs


def test_an_item_is_added_run_and_read(url: str) -> None:
    async def story() -> None:
        async with opened(url) as board:
            added = await board.add("toronto", "feed", params={"url": "x"})
            assert (added.id, added.type, added.state, added.schedule) == (
                *("toronto", "feed", "active"),
                "every 1h",
            )
            assert added.params == {"url": "x"}
            assert (added.outcome, added.result, added.error, added.start) == (
                None,
                None,
                None,
                None,
            )
            assert added.due is not None
            assert added.due.tzinfo is UTC
            await board.worker().work("idle")
            item = await board.item("toronto")
            assert (item.outcome, item.runs, item.running) == ("ok", 1, False)
            assert item.result == {"url": "x", "warnings": ["slow"]}
            assert item.warnings == ("slow",)
            [run] = [one async for one in board.runs("toronto", limit=10)]
            assert (run.id, run.outcome, run.attempt, run.result) == (
                *("toronto", "ok", 1),
                item.result,
            )
            assert run.start <= run.stop
            assert run.duration == (run.stop - run.start).total_seconds()
            assert "toronto (type feed) is waiting." in await board.why("toronto")

    asyncio.run(story())


def test_many_items_are_added_that_are_not_there_yet(url: str) -> None:
    async def story() -> None:
        async with blackboard.open(url, handlers=[feed], create=True) as board:
            await board.add("davis", "feed", every="8h")
            many = {f"town-{n:03}": {"url": f"https://example.org/{n}"} for n in range(120)}
            added = await board.add_many({"davis": None, **many}, "feed", every="2h")
            assert sorted(added) == [*many]
            town = await board.item("town-007")
            assert (town.params, town.schedule) == (many["town-007"], "every 2h")
            assert (await board.item("davis")).schedule == "every 8h"
            assert await board.add_many(many, "feed") == []
            for wrong in ({"dixon": None, "a*": None}, {"dixon": None, "winters": {"x": object()}}):
                with pytest.raises(BadInput):
                    await board.add_many(wrong, "feed")
            assert [one.id async for one in board.items("dixon*")] == []
            await board.worker().work("idle")
            assert (await board.item("town-119")).outcome == "ok"

    asyncio.run(story())


def test_schedules_and_durations_may_be_text_or_of_python(url: str) -> None:
    async def story() -> None:
        async with opened(url) as board:
            one = await board.add("a", "feed", cron="0 6 * * *", timezone="America/Toronto")
            assert (one.schedule, one.timezone) == ("cron 0 6 * * *", "America/Toronto")
            two = await board.add("b", "feed", every=timedelta(hours=2), timeout="90s")
            assert two.schedule == "every 2h"
            when = datetime(2030, 1, 2, 3, 4, tzinfo=UTC)
            three = await board.add("c", "feed", at=when, first=when)
            assert three.due == three.ready == when
            four = await board.add("d", "feed", cron="@daily", first="next")
            assert four.due is not None
            assert four.due > datetime.now(UTC)
            later = when + timedelta(days=1)
            assert (await board.edit("d", first=later)).due == later
            assert (await board.edit("d", first="2030-01-02T03:04")).due == when

    asyncio.run(story())


def test_items_are_found_by_glob_type_and_state(url: str) -> None:
    async def story() -> None:
        async with opened(url) as board:
            for name, type_, params in [
                ("b1", "feed", {"fails": True}),
                ("a1", "feed", {}),
                ("a2", "other", {}),
            ]:
                await board.add(name, type_, params=params)
            await board.worker(types=["feed"]).work("idle")
            assert [one.id async for one in board.items()] == ["a1", "a2", "b1"]
            assert [one.id async for one in board.items("a*")] == ["a1", "a2"]
            assert [one.id async for one in board.items(type="other")] == ["a2"]
            [failed] = [one async for one in board.items(state="failed")]
            assert (failed.id, failed.failures) == ("b1", 1)
            assert "ValueError: as it was told" in str(failed.error)
            with pytest.raises(BadInput, match="there is no state 'odd'"):
                [one async for one in board.items(state="odd")]
            assert [one.id async for one in board.items("state:failed")] == ["b1"]
            assert [one async for one in board.items("state:stale")] == []
            assert [one async for one in board.items("state:failed", type="other")] == []
            with pytest.raises(BadInput, match="there is no state 'odd'"):
                [one async for one in board.items("state:odd")]
            await ensure(board._table, ["state:odd"], "feed")  # as a partition may be named
            assert [one.id async for one in board.items("state:odd")] == ["state:odd"]

    asyncio.run(story())


@pytest.mark.of_one_store
def test_items_are_found_by_the_patterns_of_the_command_line(url: str) -> None:
    async def story() -> None:
        async with opened(url) as board:
            await board.add("feed1", "feed", tags=["eu", "daily"], owner="ann")
            await board.add("feed2", "other", tags=["us"])
            found = {
                pattern: [one.id async for one in board.items(pattern)]
                for pattern in ("feed1", "feed[1-3]", "tag:d*", "owner:ann", "type:other", "absent")
            }
            assert found == {
                "feed1": ["feed1"],
                "feed[1-3]": ["feed1", "feed2"],
                "tag:d*": ["feed1"],
                "owner:ann": ["feed1"],
                "type:other": ["feed2"],
                "absent": [],
            }
            assert [one async for one in board.items("feed1", type="other")] == []

    asyncio.run(story())


def test_the_runs_of_all_items_are_read_by_when_they_stopped(url: str) -> None:
    async def story() -> None:
        async with opened(url) as board:
            for name in "ab":
                await board.add(name, "feed")
                await board.worker().work("idle")
            await board.run("a")
            await board.worker().work("idle")
            await board.remove("b")
            runs = [run async for run in board.runs()]
            assert [(one.id, one.fence) for one in runs] == [("a", 2), ("b", 1), ("a", 1)]
            assert [one async for one in board.runs(limit=2)] == runs[:2]
            assert [one async for one in board.runs(until=runs[1].stop)] == runs[1:]
            assert [one async for one in board.runs("a", since=runs[1].stop)] == runs[:1]
            assert [one async for one in board.runs(limit=0)] == []
            with pytest.raises(BadInput, match="has no offset"):
                [one async for one in board.runs(since=datetime(2026, 11, 21, 9))]  # noqa: DTZ001

    asyncio.run(story())


@pytest.mark.of_one_store
def test_the_next_times_of_an_item_are_computed(url: str) -> None:
    async def story() -> None:
        async with opened(url) as board:
            item = await board.add("a", "feed", cron="0 6 * * *", blackout="sat-sun")
            times = await board.next("a", count=6)
            assert times[0] == item.due
            assert len(times) == 6
            assert {(one.hour, one.weekday() < 5) for one in times} == {(6, True)}
            assert len(await board.next("a")) == 5
            with pytest.raises(BadInput, match="count: 0 is too few"):
                await board.next("a", count=0)
            with pytest.raises(blackboard.Missing):
                await board.next("absent")

    asyncio.run(story())


def test_an_item_is_edited_paused_resumed_asked_for_and_removed(url: str) -> None:
    async def story() -> None:
        async with opened(url) as board:
            await board.add("a", "feed", params={"url": "x", "old": 1})
            with pytest.raises(BadInput, match="edit: nothing is changed"):
                await board.edit("a", every=None, tags=None, params={}, unset=[])
            edited = await board.edit("a", every="2h", params={"url": "y"}, unset=["old"])
            assert (edited.schedule, edited.params) == ("every 2h", {"url": "y"})
            assert (await board.edit("a", every="")).schedule == "every 1h"
            paused = await board.pause("a", reason="moving", by="jon")
            assert (paused.state, paused.paused and paused.paused.reason) == ("paused", "moving")
            assert paused.paused is not None
            assert paused.paused.by == "jon"
            with pytest.raises(BlackboardError, match="is paused"):
                await board.run("a")
            assert (await board.resume("a")).state == "active"
            first = await board.run("a", params={"url": "once"})
            second = await board.run("a", params={"url": "twice"})
            assert (first.ahead, second.ahead) == (0, 1)
            await board.worker().work("idle")
            urls = [run.result["url"] async for run in board.runs("a")]
            assert urls[-2:] == ["twice", "once"]
            await board.remove("a")
            with pytest.raises(blackboard.Missing):
                await board.item("a")
            assert len([run async for run in board.runs("a")]) == len(urls)

    asyncio.run(story())


def test_a_run_is_cancelled_and_a_lock_taken(url: str) -> None:
    async def story() -> None:
        async with opened(url) as board:
            await board.add("a", "long")
            with pytest.raises(BlackboardError, match="a does not run"):
                await board.cancel("a")
            with pytest.raises(BlackboardError, match="a is not locked"):
                await board.unlock("a")
            async with board.worker(grace="0") as worker:

                async def runs() -> bool:
                    return (await board.item("a")).running

                await until(runs)
                item = await board.item("a")
                assert (item.worker, item.running) == (worker.name, True)
                with pytest.raises(BlackboardError, match="is not locked with fence 77"):
                    await board.unlock("a", fence=77)
                with pytest.raises(BlackboardError, match="a does not run with fence 77"):
                    await board.cancel("a", fence=77)
                assert (await board.item("a")).running
                done = await board.cancel("a", fence=item.fence, reason="enough", by="jon")
                assert not done.running
            [run] = [one async for one in board.runs("a")]
            assert run.outcome in {"cancelled", "superseded"}
            assert run.note is not None
            assert (run.note.by, run.note.reason) == ("jon", "enough")

    asyncio.run(story())


def test_what_is_done_to_an_item_whose_lock_is_damaged_is_no_error(url: str) -> None:
    async def story() -> None:
        async with opened(url) as board:
            await board.add("a", "feed")
            table = board._table
            tokens = [
                one
                async for one in table.walk(0, until=await table.table.now())
                if isinstance(one, Token)
            ]
            await claim(table, tokens, owner="host:1:worker")
            damaged = Merge(lock_key("a"), {"fence": "high"}, ANY)
            await table.table.commit(table.partition("a"), [damaged])
            paused = await board.pause("a")
            assert (paused.state, paused.running) == ("paused", True)
            assert (await board.edit("a", every="2h")).schedule == "every 2h"
            assert (await board.resume("a")).state == "active"

    asyncio.run(story())


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda board: board.add("", "feed"), "id: it is empty"),
        (lambda board: board.add("a", ""), "a type is printable text"),
        (lambda board: board.add("a", "feed", every="8 parsecs"), "every: "),
        (lambda board: board.add("a", "feed", params={"x": float("nan")}), "params.x: nan"),
        (lambda board: board.add("a", "feed", params={"x": "y" * 2**20}), "params: they are"),
        (lambda board: board.add("a", "other", first="next"), "the handler of its type, which may"),
        (lambda board: board.item("absent"), "no item 'absent'"),
        (lambda board: board.edit("absent", every="1h"), "no item 'absent'"),
        (lambda board: board.edit("there", unset=["x"]), "unset: there is no 'x'"),
        (lambda board: board.edit("there", reason="storm"), "edit: nothing is changed"),
        (lambda board: board.run("there", params={"x": None}), "params.x: null"),
        (lambda board: board.add("there", "feed"), "is on this board already"),
        (lambda board: board.worker().work("whenever"), "until: there is no 'whenever'"),
    ],
)
def test_bad_input_is_refused_as_on_the_command_line(
    tmp_path: Path, call: Callable[[Board], Any], problem: str
) -> None:
    async def story() -> None:
        async with opened(str(tmp_path / "app.db")) as board:
            await board.add("there", "feed")
            with pytest.raises(BadInput) as refused:
                await call(board)
            assert problem in str(refused.value)
            assert [one.id async for one in board.items()] == ["there"]

    asyncio.run(story())


def test_an_item_with_a_damaged_spec_is_refused(url: str) -> None:
    async def story() -> None:
        async with opened(url) as board:
            await board.add("a", "feed")
            table = board._table
            damaged = Merge(item_key("a"), {"spec": "{"}, ANY)
            await table.table.commit(table.partition("a"), [damaged])
            for refused in (board.edit("a", every="2h"), board.rename("a", "b")):
                with pytest.raises(BlackboardError, match="the spec of 'a' cannot be read"):
                    await refused
            assert not (await table.item("a") or pytest.fail("it is gone")).is_paused

    asyncio.run(story())


def test_an_option_that_is_none_is_no_option(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(str(tmp_path / "app.db")) as board:
            with pytest.raises(TypeError, match="'evry' is not an option of an item"):
                await board.add("a", "feed", evry="1h")  # type: ignore[call-arg]

    asyncio.run(story())


# ---- opening


def test_what_is_not_there_is_made_only_when_asked(tmp_path: Path) -> None:
    store = str(tmp_path / "app.db")

    async def story() -> None:
        with pytest.raises(blackboard.MissingStore):
            async with opened(store, create=False):
                pass
        async with opened(store, shards=3):
            pass
        async with opened(Path(store), create=False) as board:
            assert (board.store, board.name) == (store, "blackboard")
        with pytest.raises(BadInput, match="no board 'other'"):
            async with opened(store, create=False, name="other"):
                pass

    asyncio.run(story())


def test_a_board_in_memory_is_made_whenever_it_is_opened() -> None:
    async def story() -> None:
        async with opened("memory:", create=False) as board:
            await board.add("a", "feed")

    asyncio.run(story())


def test_settings_and_environment_say_where_the_board_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "hello.py").write_text(
        "from blackboard import handler\n@handler('hello', every='3h')\ndef hello(item, ctx): ...\n"
    )
    (tmp_path / "blackboard.toml").write_text(
        '[board]\nstore = "town.db"\nname = "town"\njobs = ["jobs"]\n[worker]\nslots = 3\n'
    )
    monkeypatch.delenv("BLACKBOARD_STORE", raising=False)

    async def where(**about: Any) -> tuple[str, str]:
        async with blackboard.open(create=True, **about) as board:
            return board.store, board.name

    async def story() -> None:
        file = tmp_path / "blackboard.toml"
        assert await where(settings=file) == (str(tmp_path / "town.db"), "town")
        async with blackboard.open(settings=file) as board:
            assert (await board.add("a", "hello")).schedule == "every 3h"
            async with board.worker():
                await until(lambda: _any_worker(board))
                [worker] = await board.workers()
                assert (worker.slots, worker.types, worker.alive) == (3, ("hello",), True)
        monkeypatch.setenv("BLACKBOARD_STORE", str(tmp_path / "other.db"))
        assert await where(settings=file) == (str(tmp_path / "other.db"), "town")
        with pytest.raises(BadInput, match=r"absent\.toml"):
            await where(settings=tmp_path / "absent.toml")

    asyncio.run(story())


async def _any_worker(board: Board) -> bool:
    return bool(await board.workers())


@pytest.mark.parametrize(
    ("handlers", "problem"),
    [
        ([len], "is not a handler"),
        (["absent.py"], "no such file"),
        ("feeds", "is not a list"),
        (["x" * 300], "cannot be read: File name too long"),
    ],
)
def test_handlers_that_cannot_be_used_are_refused(
    tmp_path: Path, handlers: Any, problem: str
) -> None:
    async def story() -> None:
        async with opened(str(tmp_path / "app.db"), handlers=handlers):
            pass

    with pytest.raises(BadInput, match=problem):
        asyncio.run(story())


# ---- a worker beside a program


def test_a_run_goes_on_where_the_one_before_has_saved(url: str) -> None:
    async def story() -> None:
        async with opened(url) as board:
            await board.add("news", "crawl", params={"breaks": 3})
            await board.worker().work("idle")
            assert (await board.item("news")).checkpoint == 3
            await board.edit("news", unset=["breaks"])
            await board.run("news")
            await board.worker().work("idle")
            item = await board.item("news")
            assert (item.result, item.checkpoint) == (3, None)
            edited = await board.edit("news", checkpoint=4)
            assert edited.checkpoint == 4
            assert (await board.edit("news", checkpoint=None)).checkpoint is None
            with pytest.raises(BadInput, match="checkpoint: "):
                await board.edit("news", checkpoint="x" * 40_000)

    asyncio.run(story())


def test_a_worker_works_beside_and_stops_at_the_end(url: str) -> None:
    async def story() -> None:
        async with opened(url) as board:
            heard: list[BoardEvent] = []
            board.subscribe(heard.append)
            async with board.worker(slots=2, cycle="1h") as worker:
                await until(lambda: _any_worker(board))
                await board.add("a", "feed")

                async def ended() -> bool:
                    return any(isinstance(event, RunEnded) for event in heard)

                await until(ended)
            assert (await board.item("a")).runs == 1
            assert [one async for one in board.items(state="running")] == []
            assert any(isinstance(event, Walked) for event in heard)
            kinds = [type(event) for event in heard if not isinstance(event, Walked)]
            assert kinds == [WorkerStarted, RunStarted, RunLogged, RunEnded, *kinds[4:]]
            assert kinds[-1] is WorkerStopped
            [end] = [event for event in heard if isinstance(event, RunEnded)]
            assert end.run == next(iter([run async for run in board.runs("a")]))
            assert (end.id, end.type, end.fence) == ("a", "feed", end.run.fence)
            assert {event.worker for event in heard} == {worker.name}
            assert await board.workers() == []

    asyncio.run(story())


def test_a_program_that_changes_its_folder_goes_on_with_its_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()

    async def story() -> None:
        heard = asyncio.Event()
        async with opened("app.db") as board:
            monkeypatch.chdir("elsewhere")
            with when_woken(str(tmp_path / "app.db"), heard.set):
                await board.add("toronto", "feed")
                async with asyncio.timeout(patience(60)):
                    await heard.wait()

    asyncio.run(story())
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_what_is_done_on_the_pages_of_a_board_wakes_its_workers(url: str) -> None:
    async def story() -> None:
        async with opened(url) as board, board.worker(cycle="1h"):
            await until(lambda: _any_worker(board))
            await board.add("a", "feed", first="next")
            pages = AsyncClient(
                transport=ASGITransport(app=board.web(operator=True)), base_url="http://localhost"
            )
            async with pages:
                answer = await pages.post("/api/v1/run", json={"id": "a"})
            assert answer.status_code == 200, answer.text

            async def has_run() -> bool:
                return (await board.item("a")).runs == 1

            await until(has_run)

    asyncio.run(story())


def test_a_change_of_many_items_is_finished_before_its_board_closes(url: str) -> None:
    """Where the pages are below another application, which runs no lifespan of theirs."""

    async def story() -> None:
        async with opened(url) as board:
            for number in range(60):
                await board.add(f"a{number}", "feed", first="next")
            pages = AsyncClient(
                transport=ASGITransport(app=board.web(operator=True)), base_url="http://localhost"
            )
            async with pages:
                found = re.search(r'name="csrf" value="([^"]+)"', (await pages.get("/")).text)
                assert found is not None
                form = {"csrf": found[1], "verb": "pause", "count": "60"}
                assert (await pages.post("/confirm", data=form)).status_code == 303
        async with opened(url) as board:
            assert all([one.paused async for one in board.items()])
            assert [(one.verb, one.count) for one in await board.actions()] == [("pause", 60)]

    asyncio.run(story())


def test_tags_are_taken_back_in_an_edit(url: str) -> None:
    @handler("tagged", tags=["of-the-type"])
    async def tagged(item: Item, ctx: Context) -> None: ...

    async def story() -> None:
        async with opened(url, handlers=[tagged]) as board:
            assert (await board.add("a", "tagged", tags=["own"])).labels.tags == ("own",)
            assert (await board.edit("a", tags="")).labels.tags == ("of-the-type",)

    asyncio.run(story())


def test_what_several_remove_at_once_is_recorded_once(url: str) -> None:
    async def story() -> None:
        async with opened(url) as board:
            await board.add("a", "feed")
            removing = (board.remove("a", by="ann") for _ in range(8))
            await asyncio.gather(*removing, return_exceptions=True)
            assert [one.verb for one in await board.actions()] == ["remove"]

    asyncio.run(story())


def test_a_worker_works_in_one_block(tmp_path: Path) -> None:
    with blocking(str(tmp_path / "app.db")) as board:
        worker = board.worker()
        with worker:
            pass
        with pytest.raises(BlackboardError, match="a worker works once"), worker:
            pass


def test_a_board_whose_loop_cannot_be_made_raises_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_descriptors() -> asyncio.AbstractEventLoop:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(asyncio, "new_event_loop", no_descriptors)
    with pytest.raises(OSError, match="Too many open files"), blocking(str(tmp_path / "app.db")):
        pass


def test_the_error_of_a_part_is_raised_and_not_what_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board_worker, "LONGEST_END", 0.01)

    async def fails() -> None:
        raise OSError("the disk is gone")

    async def story() -> None:
        async with opened(tmp_path / "board.db") as board:
            for _ in range(20):
                parts = [fails(), *(asyncio.sleep(3600) for _ in range(3))]
                with pytest.raises(OSError, match="the disk is gone"):
                    await board.worker()._all_of(*parts)

    asyncio.run(story())


def test_what_runs_is_put_back_when_its_grace_is_over(url: str) -> None:
    async def story() -> None:
        async with opened(url) as board:
            await board.add("a", "long")
            async with board.worker(grace=timedelta(0)):

                async def runs() -> bool:
                    return (await board.item("a")).running

                await until(runs)
            item = await board.item("a")
            assert (item.running, item.state) == (False, "active")
            assert item.ready is not None
            assert item.ready <= datetime.now(UTC) + timedelta(seconds=5)

    asyncio.run(story())


class Broken(Exception):
    """What a test breaks a worker with."""


def ends_with_an_error(worker: Worker) -> None:
    """As when its board was deleted and made anew meanwhile."""
    worker._remade = Remade("made anew with other shards")
    worker.stop()


def test_an_error_of_the_worker_ends_the_block_and_is_raised(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(str(tmp_path / "app.db")) as board:
            worker = board.worker()
            async with worker:
                asyncio.get_running_loop().call_later(0.05, ends_with_an_error, worker._worker)
                await asyncio.sleep(patience(60))
                pytest.fail("the block goes on without its worker")

    with pytest.raises(Remade, match="made anew"):
        asyncio.run(story())


def test_an_error_of_the_block_is_raised_when_the_worker_has_stopped(tmp_path: Path) -> None:
    heard: list[BoardEvent] = []

    async def story() -> None:
        async with opened(str(tmp_path / "app.db")) as board:
            board.subscribe(heard.append)
            async with board.worker():
                raise Broken

    with pytest.raises(Broken):
        asyncio.run(story())
    assert isinstance(heard[-1], WorkerStopped)


def test_a_cancelled_block_stops_its_worker_and_stays_cancelled(tmp_path: Path) -> None:
    heard: list[BoardEvent] = []

    async def story() -> None:
        async with opened(str(tmp_path / "app.db")) as board:
            board.subscribe(heard.append)
            inside = asyncio.Event()

            async def block() -> None:
                async with board.worker():
                    inside.set()
                    await asyncio.sleep(patience(60))

            task = asyncio.get_running_loop().create_task(block())
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelled()

    asyncio.run(story())
    assert isinstance(heard[-1], WorkerStopped)


def test_a_cancelled_worker_puts_back_what_it_runs(url: str) -> None:
    """Whoever cancels it: a timeout, its task, Ctrl-C, or the block that it works beside."""

    async def story() -> None:
        async with opened(url) as board:
            await board.add("a", "long")

            async def runs() -> bool:
                return (await board.item("a")).running

            async def block() -> None:
                async with board.worker(grace="0"):
                    await asyncio.sleep(patience(60))

            for work in (board.worker().work, block):
                task = asyncio.get_running_loop().create_task(work())
                await until(runs)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                item = await board.item("a")
                assert (item.running, item.outcome, item.attempt) == (False, "cancelled", 1)
                assert item.ready == item.stop

    asyncio.run(story())


def test_what_runs_is_put_back_when_its_loop_ends(url: str) -> None:
    """All tasks are cancelled at the same time then: at a second Ctrl-C, or when the main task ends
    before that which the worker is in.
    """

    async def main() -> list[asyncio.Task[None]]:
        running = asyncio.Event()

        async def block() -> None:
            async with opened(url, handlers=[long, waiting]) as board, board.worker(grace="1h"):
                await board.add("a", "long")
                await board.add("b", "waiting")
                await until(lambda: all_run(board))
                running.set()
                await asyncio.sleep(patience(60))

        task = asyncio.create_task(block())
        await running.wait()
        return [task]

    async def all_run(board: Board) -> bool:
        return all([(await board.item(item_id)).running for item_id in "ab"])

    async def story() -> None:
        async with opened(url) as board:
            for item_id in "ab":
                item = await board.item(item_id)
                assert (item.running, item.outcome, item.attempt) == (False, "cancelled", 1)
                assert item.ready == item.stop
            assert await board.workers() == []

    assert asyncio.run(main())[0].cancelled()
    asyncio.run(story())


def test_a_board_that_is_cancelled_while_it_closes_ends_its_workers_first(url: str) -> None:
    async def story() -> None:
        boards, working = list[Board](), list[asyncio.Task[None]]()

        async def block() -> None:
            async with opened(url) as board:
                boards.append(board)
                await board.add("a", "long")
                working.append(asyncio.ensure_future(board.worker().work()))

                async def runs() -> bool:
                    return (await board.item("a")).running

                await until(runs)
                this = asyncio.current_task()
                assert this is not None
                asyncio.get_running_loop().call_soon(this.cancel)

        with pytest.raises(asyncio.CancelledError):
            await asyncio.ensure_future(block())
        assert working[0].done()
        with pytest.raises(BlackboardError, match="this board is closed"):
            await boards[0].item("a")
        async with opened(url) as board:
            item = await board.item("a")
            assert (item.running, item.outcome) == (False, "cancelled")

    asyncio.run(story())


def test_a_board_whose_loop_was_ended_is_closed(tmp_path: Path) -> None:
    with blocking(str(tmp_path / "app.db")) as board:
        loop, _ = board._portal._started.result()

        def cancel_all() -> None:
            for task in asyncio.all_tasks(loop):
                task.cancel()

        loop.call_soon_threadsafe(cancel_all)
        board._portal._thread.join(patience(60))
        with pytest.raises(BlackboardError, match="this board is closed"):
            board.add("davis", "feed")


def test_a_closed_board_says_so(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(str(tmp_path / "app.db")) as board:
            await board.add("a", "feed")
        assert board.name == "blackboard"
        for use in (board.worker, lambda: board.election("e")):
            with pytest.raises(BlackboardError, match="this board is closed"):
                use()
        with pytest.raises(BlackboardError, match="this board is closed"):
            await board.run("a")

    asyncio.run(story())


def test_a_worker_that_never_worked_says_that_its_board_is_closed(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(str(tmp_path / "app.db")) as board:
            worker = board.worker()
        with pytest.raises(BoardClosed):
            await worker.work("idle")

    asyncio.run(story())


def test_a_verb_under_way_is_done_before_its_board_closes(url: str) -> None:
    async def story() -> None:
        for steps in range(5):
            async with opened(url) as board:
                adding = asyncio.create_task(board.add(f"a{steps}", "feed"))
                for _ in range(steps):
                    await asyncio.sleep(0)
            assert (await adding).id == f"a{steps}"
        async with opened(url) as board:
            assert [one.id async for one in board.items()] == [f"a{n}" for n in range(5)]

    asyncio.run(story())


def test_a_board_is_refused_on_another_loop_with_the_remedy(tmp_path: Path) -> None:
    """As in a `def` endpoint of a web application, which runs on a thread: it would work on SQLite
    alone, and leave the workers of the board asleep.
    """

    async def story() -> None:
        async with opened(str(tmp_path / "app.db")) as board:
            await board.add("a", "feed")

            async def read() -> list[str]:
                return [one.id async for one in board.items()]

            async def made() -> object:
                return board.worker()

            for use in (board.pause("a"), read(), made()):
                with pytest.raises(BlackboardError, match="run_coroutine_threadsafe"):
                    await asyncio.to_thread(asyncio.run, use)
            assert not (await board.item("a")).paused
            here = asyncio.get_running_loop()

            def endpoint() -> blackboard.BoardItem:
                return asyncio.run_coroutine_threadsafe(board.pause("a"), here).result()

            assert (await asyncio.to_thread(endpoint)).paused

    asyncio.run(story())


def test_what_a_board_has_made_is_refused_on_another_loop(tmp_path: Path) -> None:
    """Else it could not be ended with its board, whose closing would fail."""

    async def story() -> None:
        async with opened(str(tmp_path / "app.db")) as board:
            worker, election = board.worker(), board.election("report")

            async def entered(made: Any) -> None:
                async with made:
                    pass

            for use in (entered(worker), worker.work("idle"), entered(election), election.won()):
                with pytest.raises(BlackboardError, match="run_coroutine_threadsafe"):
                    await asyncio.to_thread(asyncio.run, use)
            async with election as leader, worker:
                await leader.won()

    asyncio.run(story())


def test_a_board_is_opened_on_a_loop_of_asyncio(tmp_path: Path) -> None:
    """Trio drives coroutines without one."""
    opening = blackboard.open(tmp_path / "app.db", create=True).__aenter__()
    with pytest.raises(BlackboardError, match="with trio"):
        opening.send(None)


def test_a_verb_that_is_cancelled_is_finished_with_its_record(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(str(tmp_path / "app.db")) as board:
            for steps in range(12):
                await board.add(f"a{steps}", "feed")
                pausing = asyncio.create_task(board.pause(f"a{steps}", by="ann"))
                for _ in range(steps + 1):
                    await asyncio.sleep(0)
                pausing.cancel()
                await asyncio.wait([pausing])
            paused = {item.id async for item in board.items(state="paused")}
            recorded = {one for action in await board.actions() for one in action.ids}
            assert len(paused) == 12
            assert recorded == paused

    asyncio.run(story())


async def pausing_until_cancelled(board: Board, way: str) -> None:
    """By a timeout that cancels once, or by anyio, which cancels again in each turn of the loop."""
    if way == "anyio":
        with anyio.move_on_after(0.01) as scope:
            await board.pause("a", by="ann")
        assert scope.cancelled_caught
    else:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await board.pause("a", by="ann")


@pytest.mark.parametrize("way", ["asyncio", "anyio"])
def test_a_caller_that_is_cancelled_waits_for_its_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    pause = edits.pause

    async def slow(*args: Any, **options: Any) -> object:
        await asyncio.sleep(0.05)
        return await pause(*args, **options)

    monkeypatch.setattr(edits, "pause", slow)
    monkeypatch.setattr(board_module, "CALLER_WAITS", patience(60))

    async def story() -> None:
        async with opened(str(tmp_path / "app.db")) as board:
            await board.add("a", "feed")
            await pausing_until_cancelled(board, way)
            assert (await board.item("a")).paused

    asyncio.run(story())


@pytest.mark.parametrize("way", ["asyncio", "anyio"])
def test_a_change_goes_on_where_its_caller_has_waited_long_enough_for_a_locked_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(board_module, "CALLER_WAITS", 0.01)

    async def story() -> None:
        async with opened(tmp_path / "app.db") as board:
            await board.add("a", "feed")
            with closing(sqlite3.connect(tmp_path / "app.db", isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                await pausing_until_cancelled(board, way)
                other.execute("ROLLBACK")
        async with opened(tmp_path / "app.db") as board:
            assert (await board.item("a")).paused
            assert [action.verb for action in await board.actions()] == ["pause"]

    asyncio.run(story())


@pytest.mark.parametrize("waits", [0.01, 60.0])
def test_the_error_of_a_change_whose_caller_was_cancelled_is_logged_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, waits: float
) -> None:
    async def fails(*_: Any, **__: Any) -> object:
        await asyncio.sleep(0.05)
        raise TableError("no route")

    monkeypatch.setattr(edits, "pause", fails)
    monkeypatch.setattr(board_module, "CALLER_WAITS", waits)

    async def story() -> None:
        async with opened(str(tmp_path / "app.db")) as board:
            await board.add("a", "feed")
            await pausing_until_cancelled(board, "anyio")
        gc.collect()  # asyncio reports then what was never asked for

    asyncio.run(story())
    [line] = caplog.messages
    assert line == "pause of a, whose caller was cancelled, failed: no route"


def test_params_of_items_whose_addition_fails_after_a_cancellation_are_not_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(*_: Any, **__: Any) -> object:
        await asyncio.sleep(0.05)
        raise TableError("no route")

    monkeypatch.setattr(additions, "add_missing", fails)

    async def story() -> None:
        async with opened(str(tmp_path / "app.db")) as board:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await board.add_many({"a": {"password": "swordfish"}}, "feed")

    asyncio.run(story())
    assert caplog.messages == ["add_many, whose caller was cancelled, failed: no route"]


def test_a_handler_may_call_verbs_until_it_has_ended(tmp_path: Path) -> None:
    """Also one that is stopped because its board closes."""
    boards = list[Board]()

    @handler("follower", every="1h")
    async def follower(item: Item, ctx: Context) -> None:
        try:
            await asyncio.sleep(600)
        finally:
            await boards[0].run("next")
            with pytest.raises(BoardClosed):
                boards[0].worker()

    async def story() -> None:
        async with opened(str(tmp_path / "app.db"), handlers=[follower]) as board:
            boards.append(board)
            await board.add("next", "follower", first="2035-01-01T00:00Z")
            await board.add("a", "follower")

            async def runs() -> bool:
                return (await board.item("a")).running

            working = asyncio.create_task(board.worker(grace="1s").work())
            await until(runs)
        await asyncio.gather(working, return_exceptions=True)
        async with opened(str(tmp_path / "app.db")) as board:
            assert (await board.item("a")).outcome != "error"
            due = (await board.item("next")).ready
            assert due is not None
            assert due < datetime(2035, 1, 1, tzinfo=UTC)

    asyncio.run(story())


def test_an_action_on_the_pages_is_done_before_its_board_closes(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(str(tmp_path / "app.db")) as board:
            await board.add("a", "feed")
            pages = AsyncClient(
                transport=ASGITransport(app=board.web(operator=True)), base_url="http://localhost"
            )
            began = asyncio.Event()
            pausing = edits.pause

            async def pause(*about: Any) -> Any:
                began.set()
                for _ in range(100):
                    await asyncio.sleep(0)
                return await pausing(*about)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(edits, "pause", pause)
                asked = asyncio.create_task(pages.post("/api/v1/pause", json={"id": "a"}))
                await began.wait()
        answer = await asked
        assert answer.status_code == 200, answer.text

    asyncio.run(story())


def test_an_iteration_says_that_its_board_is_closed(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(str(tmp_path / "app.db")) as board:
            await board.add("a", "feed")
            await board.add("b", "feed")
            left = board.items()
            assert (await anext(left)).id == "a"
            async with aclosing(board.runs("a")) as runs:
                assert [run async for run in runs] == []
        with pytest.raises(BoardClosed):
            await anext(left)

    asyncio.run(story())


def test_an_iteration_refuses_what_it_cannot_use_at_the_call(tmp_path: Path) -> None:
    number: Any = 5

    async def story() -> None:
        async with opened(str(tmp_path / "app.db")) as board:
            for call in (board.items, board.runs):
                with pytest.raises(BadInput):
                    call(number)

    asyncio.run(story())
    with blocking(str(tmp_path / "app.db")) as board, pytest.raises(BadInput):
        board.items(number)


def test_a_subscription_can_be_ended(tmp_path: Path) -> None:
    """For the workers that are there, and for those that are made later."""

    async def story() -> None:
        async with opened(str(tmp_path / "app.db")) as board:
            heard = list[BoardEvent]()
            before, end = board.worker(), board.subscribe(heard.append)
            board.subscribe(heard.append)
            end()
            end()  # a second time does nothing: not to another subscription either
            await before.work("once")
            await board.worker().work("once")
            started = [event.worker for event in heard if isinstance(event, WorkerStarted)]
            assert (len(started), len(set(started))) == (2, 2)

    asyncio.run(story())
    with blocking(str(tmp_path / "app.db")) as board:
        heard = list[BoardEvent]()

        def first(event: BoardEvent) -> None:
            heard.append(event)
            end()  # on the loop of the board

        end = board.subscribe(first)
        board.worker().work("once")
        board.worker().work("once")
        assert len({event.worker for event in heard}) == 1
    end()  # a board that is closed has none


def test_a_worker_whose_board_closes_before_it_begins_ends_its_block(tmp_path: Path) -> None:
    async def story() -> None:
        opening = opened(str(tmp_path / "app.db"))
        board = await opening.__aenter__()
        async with board.worker():
            await opening.__aexit__(None, None, None)

    asyncio.run(story())


def test_a_worker_without_handlers_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(str(tmp_path / "app.db"), handlers=()) as board:
            with pytest.raises(BadInput, match=r"handlers=\[\.\.\.\]"):
                board.worker()
        async with opened(str(tmp_path / "app.db")) as board:
            with pytest.raises(BadInput, match="no handler for 'other'"):
                board.worker(types=["other"])
            with pytest.raises(BadInput, match="slots: 0"):
                board.worker(slots=0)

    asyncio.run(story())


# ---- plain functions, which run in child processes


def test_a_worker_starts_no_more_child_processes_than_it_has_slots(tmp_path: Path) -> None:
    with blocking(str(tmp_path / "app.db"), handlers=[pid]) as board:
        for n in range(16):
            board.add(f"item-{n}", "pid")
        board.worker(slots=2).work("idle")
        assert len({board.item(f"item-{n}").result for n in range(16)}) <= 2


def test_a_plain_function_of_a_module_runs_in_a_child_process(tmp_path: Path) -> None:
    async def story() -> None:
        async with opened(str(tmp_path / "app.db"), handlers=[plain]) as board:
            await board.add("a", "plain")
            await board.worker().work("idle")
            assert (await board.item("a")).result == f"a in {__name__}"

    asyncio.run(story())


def test_a_function_that_no_child_could_import_is_refused_by_name(tmp_path: Path) -> None:
    @handler("inner")
    def inner(item: Item, ctx: Context) -> None: ...

    unnamed = handler("lambda")(lambda item, ctx: None)

    async def story() -> None:
        for one, why in ((inner, "is defined inside another function"), (unnamed, "is a lambda")):
            async with opened(str(tmp_path / "app.db"), handlers=[one, feed]) as board:
                with pytest.raises(BadInput) as refused:
                    board.worker()
                assert why in str(refused.value)
                assert "top level" in str(refused.value)
                assert refused.value.field.startswith("handler '")
                board.worker(types=["feed"])

    asyncio.run(story())


TWINS = """\
from blackboard import handler

@handler("feed")
def feed_of_old(item, ctx): ...

@handler("feed")
def feed(item, ctx): ...

@handler("other")
def other(item, ctx):
    return "found"
"""
ONE_NAMED = """\
import sys
import blackboard, jobs

named = getattr(jobs, sys.argv[1])
with blackboard.open_blocking("app.db", handlers=[named], create=True) as board:
    board.add("a", sys.argv[1])
    board.worker().work("idle")
    print(board.item("a").result)
"""


def test_a_function_whose_module_has_another_of_its_type_is_refused(tmp_path: Path) -> None:
    """A child process finds it by its type."""
    (tmp_path / "jobs.py").write_text(TWINS)
    refusal = program(tmp_path, "-c", ONE_NAMED, "feed", code=1).splitlines()[-1]
    assert "the type 'feed' has two handlers" in refusal
    (tmp_path / "app.db").unlink()
    assert program(tmp_path, "-c", ONE_NAMED, "other") == "found\n"


def test_a_coroutine_function_may_be_made_anywhere(tmp_path: Path) -> None:
    found = []

    @handler("closure")
    async def closure(item: Item, ctx: Context) -> None:
        found.append(item.id)

    async def story() -> None:
        async with opened(str(tmp_path / "app.db"), handlers=[closure]) as board:
            await board.add("a", "closure")
            await board.worker().work("idle")

    asyncio.run(story())
    assert found == ["a"]


HEAD = """\
import asyncio, os, sys
import blackboard
from blackboard import handler

@handler("where")
def where(item, ctx):
    return [__name__, os.getpid()]

async def main(*handlers):
    async with blackboard.open("app.db", handlers=handlers, create=True) as board:
        await board.add("a", "where")
        await board.worker().work("idle")
        [run] = [run async for run in board.runs("a")]
        print(run.outcome, *(run.result or [run.error]))
        print(os.getpid())
"""
GUARDED = 'if __name__ == "__main__":\n    asyncio.run(main(where))\n'


def program(folder: Path, *args: str, stdin: str = "", code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, *args],
        cwd=folder,
        env=own_environ(),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.mark.parametrize(
    ("file", "args", "name"),
    [
        ("app.py", ["app.py"], "app"),
        ("my-app.py", ["my-app.py"], "my-app"),
        ("below/app.py", ["below/app.py"], "app"),
        ("below/app.py", ["-m", "below.app"], "below.app"),
    ],
)
def test_a_function_of_the_script_itself_runs_in_a_child_process(
    tmp_path: Path, file: str, args: list[str], name: str
) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(HEAD + GUARDED)
    said, pid = program(tmp_path, *args).splitlines()
    outcome, module, child = said.split()
    assert outcome == "ok"
    assert module.rpartition("/")[2].removesuffix("]") in {name, f"{tmp_path.name}.{name}"}
    assert child != pid


@pytest.mark.parametrize(
    ("args", "stdin"),
    [
        (["-c", HEAD + "asyncio.run(main(where))"], ""),
        (["-"], HEAD + GUARDED),
        (["own.jobs.py"], ""),
        (["package"], ""),
    ],
)
def test_a_function_of_a_program_that_no_child_can_import_is_refused(
    tmp_path: Path, args: list[str], stdin: str
) -> None:
    (tmp_path / "package").mkdir()
    for name in ("own.jobs.py", "package/__main__.py"):
        (tmp_path / name).write_text(HEAD + GUARDED)
    said = program(tmp_path, *args, stdin=stdin, code=1).splitlines()[-1]
    assert "BadInput: handler 'where' (" in said
    assert "its program is not a Python file" in said
    assert "move it to a module that the program imports, start the program" in said


def test_a_function_below_the_guard_is_refused(tmp_path: Path) -> None:
    body = '    @handler("where")\n    def late(item, ctx): ...\n    asyncio.run(main(late))\n'
    (tmp_path / "app.py").write_text(HEAD + 'if __name__ == "__main__":\n' + body)
    said = program(tmp_path, "app.py", code=1).splitlines()[-1]
    assert 'it is defined below `if __name__ == "__main__"`' in said


def test_another_of_its_type_below_the_guard_is_no_reason_to_refuse_a_function(
    tmp_path: Path,
) -> None:
    """No child process gets there."""
    body = '    @handler("where")\n    def late(item, ctx): ...\n    asyncio.run(main(where))\n'
    (tmp_path / "app.py").write_text(HEAD + 'if __name__ == "__main__":\n' + body)
    assert program(tmp_path, "app.py").startswith("ok app ")


def test_threads_of_a_script_make_workers_at_the_same_time(tmp_path: Path) -> None:
    """Python 3.11 builds the trees of `ast` in a state that all threads share: each collection of
    garbage may let another thread go on, in the middle of a tree.
    """
    long = "".join(
        f"def f{n}(a, b): return [a + b * {n} for _ in range(a) if a < b]\n" for n in range(400)
    )
    body = """
import gc, threading, time
def make(n):
    with blackboard.open_blocking(f"app{n}.db", handlers=[where], create=True) as board:
        for _ in range(5):
            board.worker()
    made.append(n)
if __name__ == "__main__":
    made = []
    gc.set_threshold(100)
    gc.callbacks.append(lambda *_: time.sleep(0))
    threads = [threading.Thread(target=make, args=(n,)) for n in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(sorted(made))
"""
    (tmp_path / "app.py").write_text(HEAD + long + body)
    assert program(tmp_path, "app.py") == "[0, 1, 2, 3]\n"


LATE = """
        @handler("late")
        def late(item, ctx): ...
if __name__ == '__main__':
    asyncio.run(main(where, late))
"""


@pytest.mark.parametrize(
    "before",
    [
        "if __name__ == '__main__':\n    if True:",
        "if __name__ != 'x':  # a remark\n# in the first column\n\n    with open(os.devnull):",
        "if __name__ == 'x':\n    pass\nelse:\n    if True:",
        "if {0: 1, 'x'[0:]: 2} and (lambda: __name__)() != 'x':\n    if True:",
    ],
)
def test_whatever_is_below_an_if_about_the_name_is_refused(tmp_path: Path, before: str) -> None:
    (tmp_path / "app.py").write_text(HEAD + before + LATE)
    said = program(tmp_path, "app.py", code=1)
    assert 'it is defined below `if __name__ == "__main__"`' in said


@pytest.mark.parametrize(
    "before",
    [
        "if False:\n    pass\nelif True:\n    if True:",
        "if __name__ == 'x':\n    pass\nif True:\n    if True:",
    ],
)
def test_what_is_below_another_if_runs_in_a_child_process(tmp_path: Path, before: str) -> None:
    (tmp_path / "app.py").write_text(HEAD + before + LATE)
    assert program(tmp_path, "app.py").startswith("ok ")


def test_a_script_without_the_guard_starts_no_workers_in_its_children(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(HEAD + "asyncio.run(main(where))\n")
    said = program(tmp_path, "app.py")
    assert said.startswith("failed")
    assert 'start the program below `if __name__ == "__main__":`' in said


# ---- the blocking door


def test_a_handler_of_sigterm_that_a_program_installs_in_an_election_stays(
    tmp_path: Path,
) -> None:
    def own(*_: object) -> None:
        """What the program does about it."""

    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with blackboard.open_blocking(tmp_path / "app.db", create=True) as board:
            with board.election("report"):
                assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
            for installed in (own, signal.SIG_IGN):
                with board.election("report"):
                    signal.signal(signal.SIGTERM, installed)
                assert signal.signal(signal.SIGTERM, signal.SIG_DFL) is installed
            with pytest.raises(SystemExit), board.election("report"):
                signal.raise_signal(signal.SIGTERM)
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_blocking_door_has_the_same_verbs_with_the_same_signatures() -> None:
    for ours, theirs in ((BlockingBoard, Board), (BlockingWorker, BoardWorker)):
        verbs = {
            name: found
            for name, found in vars(theirs).items()
            if inspect.isfunction(found) and not name.startswith("_")
        }
        verbs.pop("web", None)  # an ASGI application belongs to a loop of its own
        assert verbs
        for name, method in verbs.items():
            assert inspect.signature(getattr(ours, name)) == inspect.signature(method)
            assert getattr(ours, name).__doc__ == method.__doc__


def test_what_belongs_to_one_process_says_so_where_it_is_copied_or_sent(tmp_path: Path) -> None:
    async def parts() -> None:
        async with blackboard.open("memory:", handlers=[feed]) as board:
            refused(board, board.worker(), board.election("report"))
            async with board.election("report") as leader:
                refused((await leader.won()).lost)

    def refused(*objects: object) -> None:
        for one in objects:
            name = type(one).__name__
            for send in (pickle.dumps, copy.deepcopy, copy.copy):
                with pytest.raises(TypeError, match=f"a {name} cannot be copied, or sent to an"):
                    send(one)

    asyncio.run(parts())
    with blackboard.open_blocking(tmp_path / "app.db", handlers=[feed], create=True) as board:
        refused(board, board.worker(), board.election("report"))
        with board.election("report") as leader:
            refused(leader.won().lost)


def test_a_program_without_a_loop_does_the_same(url: str) -> None:
    with blocking(url) as board:
        board.add("a", "feed", params={"url": "x"})
        with board.worker(cycle="1h") as worker:
            board.run("a")
            while not (item := board.item("a")).runs:
                threading.Event().wait(0.02)
            assert item.worker == worker.name
        assert [one.id for one in board.items("*", state="waiting")] == ["a"]
        # the run that was asked for may have been ended with the worker, if it came after the first
        good = [one for one in board.runs("a") if one.outcome == "ok"]
        assert good[0].result["url"] == "x"
        assert next(board.runs("a", limit=1)).fence >= good[0].fence
        board.pause("a", reason="enough")
        board.worker().work("idle")
        assert board.item("a").state == "paused"
        with pytest.raises(blackboard.Missing):
            board.item("absent")


def test_many_threads_share_one_board(tmp_path: Path) -> None:
    with blocking(str(tmp_path / "app.db")) as board:
        threads = [
            threading.Thread(target=board.add, args=(f"item-{number}", "feed"))
            for number in range(20)
        ]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert len(list(board.items())) == 20


def test_an_iteration_may_be_left(tmp_path: Path) -> None:
    with blocking(str(tmp_path / "app.db")) as board:
        board.add("a", "feed")
        board.add("b", "feed")
        for item in board.items():
            assert item.id == "a"
            break
        with closing(board.items()) as items:
            next(items)
        left = board.items()
        next(left)
    del left


def test_an_error_of_the_worker_is_raised_at_the_end_of_the_block(tmp_path: Path) -> None:
    with blocking(str(tmp_path / "app.db")) as board:
        worker = board.worker()
        with pytest.raises(Remade, match="made anew"), worker:
            ends_with_an_error(worker._inner._worker)
        assert not list(board.items())


def test_an_error_of_a_block_closes_the_board(tmp_path: Path) -> None:
    before = threading.active_count()
    with pytest.raises(Broken), blocking(str(tmp_path / "app.db")) as board, board.worker():
        raise Broken
    assert threading.active_count() == before
    with pytest.raises(BlackboardError, match="this board is closed"):
        board.item("a")


def test_a_board_that_cannot_be_opened_leaves_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    with pytest.raises(blackboard.MissingStore), blocking(str(tmp_path / "x.db"), create=False):
        pass
    assert threading.active_count() == before


@pytest.mark.parametrize("has_begun", [False, True])
def test_ctrl_c_while_the_thread_of_a_board_starts_leaves_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_begun: bool
) -> None:
    """As in a prompt or a notebook, whose process goes on."""
    start, started = threading.Thread.start, list[threading.Thread]()

    def interrupted(thread: threading.Thread) -> None:
        if has_begun or thread.name != "blackboard":
            start(thread)
        if thread.name == "blackboard":
            started.append(thread)
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt), blocking(str(tmp_path / "app.db")):
            pass
    [thread] = started
    if has_begun:
        thread.join(patience(5))
    assert not thread.is_alive()


def test_a_coroutine_on_the_loop_of_the_board_may_not_wait_for_it(tmp_path: Path) -> None:
    boards: list[BlockingBoard] = []

    @handler("waits")
    async def waits(item: Item, ctx: Context) -> None:
        boards[0].item("a")

    with blocking(str(tmp_path / "app.db"), handlers=[waits]) as board:
        boards.append(board)
        board.add("a", "waits")
        board.worker().work("idle")
        assert "call it on another thread" in str(board.item("a").error)


def test_a_verb_in_a_subscriber_is_refused_with_the_remedy(tmp_path: Path) -> None:
    refused = set[str]()
    with blocking(str(tmp_path / "app.db")) as board:

        def asks(_: BoardEvent) -> None:
            with pytest.raises(BlackboardError) as problem:
                board.item("a")
            refused.add(str(problem.value))

        board.subscribe(asks)
        board.worker().work("once")
    [message] = refused
    assert "handlers and subscribers are called: call it on another thread" in message


FORKED = """
import os, sys, blackboard
with blackboard.open_blocking("app.db", create=True) as board:
    os.dup2(sys.stdout.fileno(), sys.stderr.fileno())
    if (child := os.fork()) == 0:
        try:
            board.items().__next__()
        except blackboard.BlackboardError as problem:
            print(problem, flush=True)
        raise SystemExit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""


def test_a_forked_process_is_told_to_open_its_own_board(tmp_path: Path) -> None:
    # Python warns of forks in a process with threads.
    [line] = program(tmp_path, "-W", "ignore::DeprecationWarning", "-c", FORKED).splitlines()
    assert "opened before this process was forked" in line


LEFT_OPEN = """
import atexit, signal, sqlite3, sys
import blackboard
from blackboard import handler

@handler("long")
async def long(item, ctx):
    await ctx.lost.wait()

opening = blackboard.open_blocking("app.db", handlers=[long], create=True)
board = opening.__enter__()
board.add("a", "long")
worker = board.worker(grace="1h")
worker.__enter__()
while not board.item("a").running:
    pass
if not sys.argv[1:]:
    raise ValueError("as it was told")
other = sqlite3.connect("app.db", isolation_level=None)
other.execute("BEGIN IMMEDIATE")
signal.signal(signal.SIGINT, signal.default_int_handler)
atexit.register(print, "ends", flush=True)
"""


def test_a_program_that_leaves_its_board_open_puts_back_what_it_runs_and_ends(
    tmp_path: Path,
) -> None:
    """As a prompt, a notebook, or a program whose error keeps the frame of its board."""
    assert "ValueError: as it was told" in program(tmp_path, "-c", LEFT_OPEN, code=1)
    with blocking(str(tmp_path / "app.db")) as board:
        item = board.item("a")
        assert (item.running, item.outcome) == (False, "cancelled")


KEPT_TO_THE_LAST = """
import atexit, gc, os, sys
os.dup2(sys.stdout.fileno(), sys.stderr.fileno())

kept = []

def clear():
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "blackboard":
            vars(module).update(dict.fromkeys([key for key in vars(module) if key[:2] != "__"]))
    kept.clear()
    gc.collect()

atexit.register(clear)

import blackboard
from blackboard import handler

@handler("quick")
async def quick(item, ctx):
    return 1

opening = blackboard.open_blocking("app.db", handlers=[quick], create=True)
board = opening.__enter__()
worker = board.worker()
worker.__enter__()
kept += opening, board, worker
del opening, board, worker
"""


def test_a_board_that_outlives_its_modules_ends_without_a_word(tmp_path: Path) -> None:
    """As under uWSGI, which drops the application after the interpreter has cleared modules."""
    assert program(tmp_path, "-c", KEPT_TO_THE_LAST) == ""


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 0)]
)
def test_a_signal_ends_a_program_that_waits_for_its_board_at_its_end(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LEFT_OPEN, "locked"],
        cwd=tmp_path,
        env=own_environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as ending:
        assert ending.stdout is not None
        assert ending.stdout.readline() == "ends\n"
        time.sleep(0.3)  # it begins to wait
        ending.send_signal(number)
        begun = time.monotonic()
        _, said = ending.communicate()
    assert is_within(time.monotonic() - begun, 5)
    assert ending.returncode == code
    assert "Traceback" not in said


# ---- SIGTERM


@pytest.fixture(name="sigterm")
def _sigterm() -> Iterator[None]:
    """SIGTERM as a program finds it."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    assert signal.signal(signal.SIGTERM, before) is signal.SIG_DFL


@pytest.mark.usefixtures("sigterm")
def test_at_sigterm_a_worker_of_a_program_puts_back_what_it_runs(url: str) -> None:
    async def story() -> None:
        async with opened(url) as board, board.worker(grace="0"):
            await board.add("a", "long")

            async def runs() -> bool:
                return (await board.item("a")).running

            await until(runs)
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(patience(60))

    with pytest.raises(SystemExit) as ended:
        asyncio.run(story())
    assert ended.value.code == 128 + signal.SIGTERM
    with blocking(url) as board:
        assert (board.item("a").running, board.item("a").outcome) == (False, "cancelled")
        board.run("a")

        def works() -> None:
            with board.worker(grace="0"):
                while not board.item("a").running:
                    threading.Event().wait(0.02)
                signal.raise_signal(signal.SIGTERM)

        with pytest.raises(SystemExit) as ended:
            works()
        assert ended.value.code == 128 + signal.SIGTERM
        assert not board.item("a").running


def check_put_back_at_sigterm(folder: Path, program: Callable[[], None]) -> None:
    """A program that SIGTERM ends while its worker runs `a`."""
    with pytest.raises(SystemExit) as ended:
        program()
    assert ended.value.code == 128 + signal.SIGTERM
    with blocking(str(folder / "app.db")) as board:
        assert (board.item("a").running, board.item("a").outcome) == (False, "cancelled")


@pytest.mark.parametrize("mode", ["stopped", "idle", "once"])
@pytest.mark.usefixtures("sigterm")
def test_at_sigterm_work_that_a_program_waits_for_puts_back_what_it_runs(
    tmp_path: Path, mode: Until
) -> None:
    def ends(event: BoardEvent) -> None:
        if isinstance(event, RunStarted):
            os.kill(os.getpid(), signal.SIGTERM)

    async def story() -> None:
        async with opened(tmp_path / "app.db") as board:
            board.subscribe(ends)
            await board.add("a", "long")
            await board.worker().work(mode)

    def blocking_story() -> None:
        with blocking(str(tmp_path / "app.db")) as board:
            board.subscribe(ends)
            board.run("a")
            board.worker().work(mode)

    check_put_back_at_sigterm(tmp_path, lambda: asyncio.run(story()))
    check_put_back_at_sigterm(tmp_path, blocking_story)


@pytest.mark.usefixtures("sigterm")
def test_a_second_sigterm_ends_the_grace_of_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = BoardWorker.stop

    def stopped(self: BoardWorker) -> None:
        stop(self)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(BoardWorker, "stop", stopped)

    async def is_running(board: Board) -> bool:
        return (await board.item("a")).running

    async def story() -> None:
        async with opened(tmp_path / "app.db") as board, board.worker(grace="1h"):
            await board.add("a", "long")
            await until(lambda: is_running(board))
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(patience(60))

    def blocking_story() -> None:
        with blocking(str(tmp_path / "app.db")) as board, board.worker(grace="1h"):
            board.run("a")
            while not board.item("a").running:
                threading.Event().wait(0.02)
            signal.raise_signal(signal.SIGTERM)

    check_put_back_at_sigterm(tmp_path, lambda: asyncio.run(story()))
    check_put_back_at_sigterm(tmp_path, blocking_story)


@pytest.mark.usefixtures("sigterm")
def test_a_block_that_was_never_left_keeps_sigterm_from_no_other_one(tmp_path: Path) -> None:
    async def enters() -> sigterm.OfTask:
        block = sigterm.OfTask()
        sigterm.catch(block)
        return block

    async def story() -> None:
        async with opened(tmp_path / "app.db") as board, board.worker():
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(patience(60))

    left = asyncio.run(enters())
    with pytest.raises(SystemExit):
        asyncio.run(story())
    assert not left.is_terminated
    sigterm.reset()


ENTERED = """
import asyncio, blackboard, os, signal, sys, time

@blackboard.handler("feed")
async def feed(item, ctx): ...

async def entered():
    board = await blackboard.open("memory:", handlers=[feed], create=True).__aenter__()
    worker = board.worker()
    await worker.__aenter__()
    return board, worker

runner = asyncio.Runner()
"""


def test_sigterm_ends_a_program_whose_block_was_entered_by_a_task_that_is_over(
    tmp_path: Path,
) -> None:
    """As in a fixture of pytest-asyncio, or a cell of a notebook."""
    code = (
        ENTERED
        + """
kept = runner.run(entered())
async def other():
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(60)
runner.run(other())
"""
    )
    program(tmp_path, "-c", code, code=-signal.SIGTERM)


NEVER_LEFT = """
import asyncio, blackboard

@blackboard.handler("feed")
async def feed(item, ctx): ...

async def main():
    opening = blackboard.open("app.db", handlers=[feed], create=True)
    board = await opening.__aenter__()
    blocks = board.worker(), board.election("report")
    for block in blocks:
        await block.__aenter__()
    await board.add_many({"a": {}, "b": {}}, "feed")
    items = board.items()
    await anext(items)
    return opening, blocks, items

kept = asyncio.run(main())
"""


def test_a_board_that_was_entered_and_never_left_is_closed_at_the_end_of_its_loop(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", NEVER_LEFT],
        cwd=tmp_path,
        env=own_environ(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("", "")
    assert [file.name for file in tmp_path.glob("app.db*")] == ["app.db"]


BLOCKS_IN_TASKS = """
import asyncio, blackboard, os, signal

@blackboard.handler("feed")
async def feed(item, ctx): ...

async def stays(block, turns):
    try:
        async with block:
            entered.append(block)
            await asyncio.Event().wait()
    finally:
        for _ in range(turns):
            await asyncio.sleep(0)
        print("left", flush=True)

async def main():
    async with blackboard.open("memory:", handlers=[feed], create=True) as board:
        async with asyncio.TaskGroup() as tasks:
            blocks = board.worker(), board.election("a"), board.election("b")
            for block, turns in zip(blocks, TURNS):
                tasks.create_task(stays(block, turns))
            while len(entered) < 3:
                await asyncio.sleep(0)
            os.kill(os.getpid(), signal.SIGTERM)

entered = []
try:
    asyncio.run(main())
except SystemExit as ended:
    print("ended", ended.code)
"""


@pytest.mark.parametrize("turns", [(1, 1, 1), (1, 20, 200), (200, 20, 1), (20, 200, 1)])
def test_at_sigterm_a_program_with_blocks_in_several_tasks_ends_without_an_error(
    turns: tuple[int, int, int], tmp_path: Path
) -> None:
    """And each task, which leaves its block when it can, cleans up to its end."""
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", BLOCKS_IN_TASKS.replace("TURNS", str(turns))],
        cwd=tmp_path,
        env=own_environ(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout.split(), done.stderr) == (["left"] * 3 + ["ended", "143"], "")


GOES_ON = """
import asyncio, blackboard, contextlib, os, signal, sys
from blackboard.board_worker import BoardWorker, Until

_, kind, what = sys.argv

@blackboard.handler("feed")
async def feed(item, ctx): ...

async def fails(worker):
    await asyncio.sleep(0.2)
    raise blackboard.BlackboardError("it could not be stopped")

def block(board):
    return board.worker() if kind == "worker" else board.election("a")

async def enters(board):
    async with block(board):
        print("entered", flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if what == "exits":
                sys.exit(3)
            if what != "catches":
                raise

async def cleans_up():
    try:
        await asyncio.sleep(60)
    finally:
        for _ in range(20):
            await asyncio.sleep(0)
        print("cleaned up", flush=True)

async def main():
    async with blackboard.open("memory:", handlers=[feed], create=True) as board:
        beside = asyncio.create_task(cleans_up())
        async with board.worker() if what == "nested" else contextlib.nullcontext():
            while True:
                with contextlib.suppress(asyncio.CancelledError, blackboard.BlackboardError):
                    await enters(board)

if what == "fails":
    BoardWorker.work = fails
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("kind", "what", "code"),
    [
        ("election", "goes on", 143),
        ("election", "catches", 143),
        ("election", "exits", 3),
        ("election", "nested", 143),
        ("worker", "goes on", 143),
        ("worker", "catches", 143),
        ("worker", "exits", 3),
        ("worker", "fails", 143),
    ],
)
def test_a_program_that_goes_on_after_its_block_was_cancelled_ends_at_the_next(
    tmp_path: Path, kind: str, what: str, code: int
) -> None:
    """Also where it catches the cancellation inside its block, or the block ends with an error; one
    that exits by itself does so once. What it has beside that cleans up.
    """
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", GOES_ON, kind, what],
        cwd=tmp_path,
        env=own_environ(),
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(30),
    )
    assert (done.stdout, done.stderr, done.returncode) == ("entered\ncleaned up\n", "", code)


SEVERAL_GO_ON = """
import asyncio, blackboard, contextlib, os, signal

@blackboard.handler("long", every="1h", stale_after="1m")
async def long(item, ctx):
    running.append(item.id)
    await asyncio.Event().wait()

async def goes_on(board, after):
    while True:
        try:
            async with board.worker(slots=1, grace="0"):
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            while not after.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await after.wait()
            print("went on", flush=True)

async def main():
    at_once, later = asyncio.Event(), asyncio.Event()
    at_once.set()
    try:
        async with blackboard.open("app.db", handlers=[long], create=True) as board:
            await board.add_many({"a": {}, "b": {}, "c": {}}, "long")
            events = at_once, later, later
            tasks = [asyncio.create_task(goes_on(board, event)) for event in events]
            while len(running) < 3:
                await asyncio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGTERM)
            try:
                await asyncio.sleep(60)
            finally:
                async with board.worker(slots=1, grace="0"):
                    print("cleans up", flush=True)
                later.set()
                await asyncio.wait(tasks)
    finally:
        print("closed", flush=True)

running = []
asyncio.run(main())
"""


def test_tasks_that_go_on_after_their_blocks_were_cancelled_let_the_others_clean_up(
    tmp_path: Path,
) -> None:
    """Also where one of them enters a block to clean up."""
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", SEVERAL_GO_ON],
        cwd=tmp_path,
        env=own_environ(),
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(30),
    )
    assert done.returncode == 143
    assert done.stdout == "went on\ncleans up\nwent on\nwent on\nclosed\n"
    assert done.stderr.count("WentOn: SIGTERM ends the program, but") == 2
    assert "Exception ignored" not in done.stderr
    assert "never" not in done.stderr
    assert [file.name for file in tmp_path.glob("app.db*")] == ["app.db"]
    with blocking(str(tmp_path / "app.db")) as board:
        assert [item.running for item in board.items()] == [False] * 3


def test_a_loop_that_runs_on_after_sigterm_is_ended_by_the_next_one(tmp_path: Path) -> None:
    code = (
        ENTERED
        + """
async def stays(board):
    async with board.worker():
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(60)

async def main():
    async with blackboard.open("memory:", handlers=[feed], create=True) as board:
        await asyncio.wait([asyncio.create_task(stays(board))])
        await asyncio.sleep(0.2)
        print("went on")

for _ in range(2):
    try:
        runner.run(main())
    except SystemExit as ended:
        print(ended.code)
"""
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=own_environ(),
        capture_output=True,
        text=True,
        check=True,
        timeout=patience(30),
    )
    assert (done.stdout, done.stderr) == ("143\n143\n", "")


FORKED_IN_A_WORKER = (
    ENTERED
    + """
def fork():
    if (child := os.fork()) == 0:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
        os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

async def forks():
    async with blackboard.open("memory:", handlers=[feed], create=True) as board:
        async with board.worker():
            await asyncio.to_thread(fork) if "thread" in sys.argv else fork()

if "blocking" not in sys.argv:
    runner.run(forks())
else:
    with blackboard.open_blocking("memory:", handlers=[feed], create=True) as board:
        with board.worker():
            fork()
"""
)


@pytest.mark.parametrize("door", ["loop", "thread", "blocking"])
def test_sigterm_ends_a_process_that_is_forked_in_the_block_of_a_worker(
    tmp_path: Path, door: str
) -> None:
    said = program(tmp_path, "-c", FORKED_IN_A_WORKER, door)
    assert said.split() == [str(-signal.SIGTERM)]


# ---- the package


def test_importing_the_package_loads_none_of_it(tmp_path: Path) -> None:
    code = "import sys, blackboard; print(*(m for m in sys.modules if 'blackboard' in m))"
    assert program(tmp_path, "-c", code).split() == ["blackboard"]


@pytest.mark.parametrize("name", blackboard.__all__)
def test_every_name_of_the_package_is_there(name: str) -> None:
    assert getattr(blackboard, name) is not None
    assert name in dir(blackboard)
