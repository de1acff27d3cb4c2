"""`@pump`: what it takes, what it refuses, and how a pump is asked to end."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import blackboard
from blackboard import BadInput, pump
from blackboard.events import BoardEvent, GroupTrouble, RunEnded
from blackboard.handlers.handler import MOST_PARTITIONS, Handler, handlers_of
from blackboard.handlers.registry import load
from blackboard.protocol.additions import ensure
from blackboard.rules.breaker import Backoff
from blackboard.rules.due import time_limit
from blackboard.rules.shares import Balance
from blackboard.settings import Settings, resolver
from blackboard.sharing import group_rows, lasting_trouble
from tests.support.clocks import START
from tests.support.patience import patience
from tests.support.processes import PATIENCE, eventually, own_environ


async def serve(partition: Any, ctx: Any) -> None:
    await ctx.stopping.wait()


def declared(**said: Any) -> Handler:
    async def function(partition: Any, ctx: Any) -> None: ...

    return handlers_of(pump("clicks", **said)(function))[0]


def test_a_pump_is_a_handler_of_its_group_without_a_time_limit() -> None:
    found = declared(partitions=12, lease=timedelta(seconds=30))
    assert found.pump is not None
    assert found.pump.partitions[:2] == ("00", "01")  # type: ignore[index]
    assert found.pump.balance is Balance.SHARES
    assert (found.pump.lease, found.pump.drain) == (timedelta(seconds=30), timedelta(seconds=10))
    settings = resolver(Settings(), {"clicks": found})("clicks", "{}")
    assert settings.stale_after == timedelta(seconds=30)
    assert settings.fenced
    assert time_limit(settings, START) is None


def test_the_durations_of_a_pump_may_be_seconds() -> None:
    found = declared(partitions=1, lease=4.5, drain=20).pump
    assert found is not None
    assert (found.lease, found.drain) == (timedelta(seconds=4.5), timedelta(seconds=20))


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"partitions": 0}, "partitions 0 is neither"),
        ({"partitions": 2.0}, "partitions 2.0 is neither"),
        ({"partitions": None}, "partitions None is neither"),
        ({"partitions": True}, "partitions True is neither"),
        ({"partitions": "abc"}, "partitions 'abc' is neither"),
        ({"partitions": b"abc"}, "partitions b'abc' is neither"),
        ({"partitions": MOST_PARTITIONS + 1}, "partitions 1001 is neither"),
        ({"partitions": []}, "0 partitions (1 to 1,000)"),
        ({"partitions": ["a", "a"]}, "two partitions are named 'a'"),
        ({"partitions": ["a", ""]}, "partition '' is not a name"),
        ({"partitions": ["a", 7]}, "partition 7 is not a name"),
        ({"partitions": ["x" * 1_001]}, "is not a name (printable text of 1 to 1,000 characters)"),
        ({"partitions": lambda a, b: ["x"]}, "partitions is a function of (a, b)"),
        ({"partitions": 1, "lease": "2s"}, "lease: '2s' is too short (3s at the least)"),
        ({"partitions": 1, "lease": "soon"}, "lease: 'soon'"),
        ({"partitions": 1, "lease": True}, "lease: True has no unit"),
        ({"partitions": 1, "drain": "soon"}, "drain: 'soon'"),
        ({"partitions": 1, "balance": "fair"}, "there is no balance 'fair'"),
        ({"partitions": 1, "balance": ["fair"]}, "there is no balance ['fair']"),
    ],
)
def test_what_cannot_be_used_is_named_when_the_module_is_imported(
    said: dict[str, Any], problem: str
) -> None:
    with pytest.raises(BadInput, match=r"pump 'clicks' \(.*test_pump.py:") as refused:
        declared(**said)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"slots": 2}, "slots: 'clicks' is a group of partitions"),
        ({"concurrency": 2}, "concurrency: 'clicks' is a group of partitions"),
        ({"concurrency": 1, "key": "host"}, "concurrency: 'clicks' is a group of partitions"),
        ({"until": "2026-01-01"}, "until: 'clicks' is a group of partitions"),
        ({"max_runs": 1}, "max_runs: 'clicks' is a group of partitions"),
        ({"cron": "@daily"}, "cron: 'clicks' is a group of partitions"),
        ({"timeout": "3s"}, "timeout: 'clicks' is a group .* have no time limit"),
    ],
)
def test_no_worker_is_made_with_limits_of_a_group(
    said: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    lines = "".join(f"{name} = {value!r}\n" for name, value in said.items())
    settings = tmp_path / "blackboard.toml"
    settings.write_text(f"[types.clicks]\n{lines}")

    async def story() -> None:
        handlers = [pump("clicks", partitions=6)(serve)]
        store = tmp_path / "x.db"
        opened = blackboard.open(store, handlers=handlers, settings=settings, create=True)
        async with opened as board:
            board.worker()

    with pytest.raises(BadInput, match=problem):
        asyncio.run(story())


def test_no_schedule_is_given_to_a_partition(tmp_path: Path) -> None:
    async def story() -> None:
        store = tmp_path / "x.db"
        async with blackboard.open(store, name="town", create=True) as town:
            await town._table.group("clicks").make()
        async with blackboard.open(store, name="town.clicks", create=True) as board:
            await ensure(board._table, ["07"], "clicks")
            with pytest.raises(BadInput, match=r"until: the partitions of town.clicks are held"):
                await board.edit("07", until="2026-01-01")
            with pytest.raises(BadInput, match=r"timeout: .* are held, and have no time limit"):
                await board.edit("07", timeout="3s")
            with pytest.raises(BadInput, match=r"id: town.clicks has the partitions that the pump"):
                await board.add("08", "clicks")

    asyncio.run(story())


@pytest.mark.parametrize("name", ["", "a-b", "a.b", "x" * 61, 7])
def test_the_name_of_a_group_is_part_of_a_boards_name(name: Any) -> None:
    with pytest.raises(BadInput, match=r"group: .* is not a name for a group"):
        pump(name, partitions=1)(serve)


def test_a_pump_and_a_handler_of_one_type_are_refused(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(
        "from blackboard import handler, pump\n\n"
        "@handler('clicks')\nasync def one(item, ctx): ...\n\n"
        "@pump('clicks', partitions=1)\nasync def two(partition, ctx): ...\n"
    )
    with pytest.raises(BadInput, match="the type 'clicks' has two handlers"):
        load(["two.py"], tmp_path)


PROGRAM = """
from blackboard import pump

@pump("plain", partitions=2, lease="3s", drain="20s")
def plain(partition, ctx):
    position = ctx.checkpoint or 0
    while not ctx.stopping.wait(0.02):
        position += 1
        ctx.save(position)
    ctx.save([position, ctx.stopping.reason])
"""


def test_a_plain_pump_runs_in_a_child_process_and_saves_when_it_is_asked_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pumps.py").write_text(PROGRAM)
    ended: list[RunEnded] = []

    def listen(event: BoardEvent) -> None:
        if isinstance(event, RunEnded):
            ended.append(event)

    async def story() -> list[Any]:
        async with blackboard.open("x.db", handlers=["pumps.py"], create=True) as board:
            board.subscribe(listen)
            async with board.worker():
                await saved("x.db", lambda found: all(found.values()) and len(found) == 2)
            return list((await checkpoints("x.db")).values())

    found = asyncio.run(story())
    assert [reason for _, reason in found] == ["the worker is stopping"] * 2
    assert {(one.run.outcome, one.run.error) for one in ended} == {
        ("cancelled", "the worker is stopping")
    }


async def checkpoints(store: str) -> dict[str, Any]:
    async with blackboard.open(store, name="blackboard.plain") as group:
        return {item.id: item.checkpoint async for item in group.items()}


async def saved(store: str, until: Callable[[dict[str, Any]], bool]) -> None:
    """Wait until the checkpoints of the partitions are as asked."""

    def look() -> bool:
        try:
            return until(asyncio.run(checkpoints(store)))
        except BadInput:
            return False  # the worker has not made the group yet

    assert threading.current_thread() is threading.main_thread()
    await asyncio.to_thread(eventually, look, "the pumps have saved", seconds=PATIENCE)


class FixedNames:
    def __call__(self, settings: Any, *, also: bool = True) -> list[str]:
        return ["a", "b"]


@pytest.mark.parametrize(
    "names", [lambda: ["a", "b"], lambda _: ["a", "b"], lambda *_: ["a", "b"], FixedNames()]
)
def test_a_function_that_gives_names_may_take_the_settings_of_its_group(names: Any) -> None:
    found = declared(partitions=names).pump
    assert found is not None
    assert list(found.partitions({})) == ["a", "b"]  # type: ignore[operator, arg-type]


@pump("clicks", partitions=lambda: ["a"])
def typed(partition: Any, ctx: Any) -> None:
    """Type checkers take a function of nothing, too."""


def test_a_worker_with_an_end_serves_no_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def story() -> None:
        handlers = [pump("clicks", partitions=1)(serve)]
        async with blackboard.open("x.db", handlers=handlers, create=True) as board:
            async with asyncio.timeout(PATIENCE):
                await board.worker().work("idle")

    asyncio.run(story())
    with pytest.raises(BadInput, match=r"no board 'blackboard.plain'"):
        asyncio.run(checkpoints("x.db"))


def test_a_plain_function_that_blocks_holds_up_nothing_and_is_called_once_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(group_rows, "ANSWERED_WITHIN", 0.05)
    monkeypatch.setattr(lasting_trouble, "AGAIN_AFTER", 0.0)
    monkeypatch.setattr(group_rows, "REFUSED", Backoff(shortest=0.1, longest=0.1))
    freed, told, calls = threading.Event(), list[str](), list[str]()

    def names(_: object) -> Iterator[str]:
        """Of a folder that is away: also what it gives is waited for."""
        calls.append(threading.current_thread().name)
        yield "a"
        freed.wait(PATIENCE)
        yield "b"

    def listen(event: BoardEvent) -> None:
        if isinstance(event, GroupTrouble):
            told.append(event.message)

    @pump("plain", partitions=names, lease="3s")
    async def plain(partition: Any, ctx: Any) -> None:
        await ctx.save(1)
        await ctx.stopping.wait()

    async def story() -> None:
        async with blackboard.open("x.db", handlers=[plain], create=True) as board:
            board.subscribe(listen)
            async with board.worker():
                async with asyncio.timeout(PATIENCE):
                    while len(told) < 3:  # noqa: ASYNC110 - the worker is another task
                        await asyncio.sleep(0.01)
                assert len(calls) == 1
                freed.set()
                async with asyncio.timeout(PATIENCE):
                    while await saved_in("x.db") != {"a": 1, "b": 1}:  # noqa: ASYNC110 - as above
                        await asyncio.sleep(0.1)

    try:
        asyncio.run(story())
    finally:
        freed.set()
    assert calls == ["blackboard-call"]
    assert "has not answered within 0.05 s" in told[0]


async def saved_in(store: str) -> dict[str, Any]:
    try:
        return await checkpoints(store)
    except BadInput:
        return {}  # the worker has not made the group yet


HUNG = """
import time
from pathlib import Path
from blackboard import pump

def names():
    Path("called").touch()
    time.sleep(600)

@pump("hung", partitions=names, lease="3s")
async def hung(partition, ctx): ...
"""


def test_a_worker_whose_function_never_returns_lives_and_ends_when_it_is_asked_to(
    tmp_path: Path,
) -> None:
    (tmp_path / "jobs.py").write_text(HUNG)
    command = [sys.executable, "-m", "blackboard", "--store", "x.db", "worker", "--init"]
    process = subprocess.Popen(
        [*command, "--jobs", "jobs.py"], cwd=tmp_path, env=own_environ(), stderr=subprocess.DEVNULL
    )
    try:
        eventually((tmp_path / "called").exists, "it is asked for names")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(6.0)  # twice its lease
        process.terminate()
        assert process.wait(patience(20)) == 0
    finally:
        process.kill()
        process.wait()


def test_no_item_is_of_the_type_of_a_pump(tmp_path: Path) -> None:
    """No worker runs it: a worker serves the partitions alone."""

    async def story() -> None:
        handlers = [pump("clicks", partitions=6)(serve)]
        async with blackboard.open(tmp_path / "x.db", handlers=handlers, create=True) as board:
            with pytest.raises(BadInput, match="type: 'clicks' is a pump, whose workers make"):
                await board.add("x", "clicks")
            with pytest.raises(BadInput, match="type: 'clicks' is a pump, whose workers make"):
                await board.add_many({"x": None, "y": None}, "clicks")

    asyncio.run(story())
