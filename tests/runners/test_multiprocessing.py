"""Handlers that start processes of their own, in each way that multiprocessing has."""

import asyncio
import math
import pickle
import sys
from pathlib import Path

import pytest

from blackboard.handlers.registry import Handlers, load
from blackboard.model import Outcome
from blackboard.runners.runner import Runner
from tests.support.runs import PATIENCE, Told, call_of, on_the_loop, with_processes

JOBS = """
import asyncio
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from blackboard import handler
from .helping import Point


@dataclass(frozen=True)
class Square:
    side: int


def area(square):
    return Point(square.side ** 2)


@handler("pool")
def pool(item, ctx):
    way = multiprocessing.get_context(item.params["way"])
    with way.Pool(2) as pool:
        return [one.x for one in pool.map(area, [Square(2), Square(3)])]


@handler("process")
def process(item, ctx):
    way = multiprocessing.get_context(item.params["way"])
    queue = way.Queue()
    started = way.Process(target=tell, args=(queue, Square(4)))
    started.start()
    answer = queue.get()
    started.join()
    return [answer.x, started.exitcode]


def tell(queue, square):
    queue.put(area(square))


@handler("executor")
async def executor(item, ctx):
    way = multiprocessing.get_context(item.params["way"])
    loop = asyncio.get_running_loop()
    with ProcessPoolExecutor(1, mp_context=way) as pool:
        return [(await loop.run_in_executor(pool, area, Square(5))).x]
"""
HELPING = """
from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    x: int
"""
WAYS = ["spawn", "forkserver", "fork"] if sys.platform == "linux" else ["spawn", "forkserver"]


@pytest.fixture(name="jobs")
def _jobs(tmp_path: Path) -> Handlers:
    """In a folder whose name is not a module's name."""
    folder = tmp_path / "my jobs.d 100%"
    folder.mkdir()
    (folder / "many.py").write_text(JOBS)
    (folder / "helping.py").write_text(HELPING)
    return load([str(folder / "many.py")], tmp_path)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("type_", "result"), [("pool", [4, 9]), ("process", [16, 0])])
def test_a_plain_handler_may_start_processes(
    jobs: Handlers, type_: str, result: list[int], way: str
) -> None:
    async def story(runner: Runner) -> None:
        execution = runner.start(call_of(type_, jobs=jobs, way=way), Told(), math.inf)
        ended = await asyncio.wait_for(execution.wait(), PATIENCE)
        assert (ended.outcome, ended.result) == (Outcome.OK, result), ended.error

    with_processes(story)


@pytest.mark.parametrize("way", ["spawn", "forkserver"])
def test_a_coroutine_may_have_work_done_in_processes(jobs: Handlers, way: str) -> None:
    async def story(runner: Runner) -> None:
        execution = runner.start(call_of("executor", jobs=jobs, way=way), Told(), math.inf)
        ended = await asyncio.wait_for(execution.wait(), PATIENCE)
        assert (ended.outcome, ended.result) == (Outcome.OK, [25]), ended.error

    on_the_loop(story)


def test_what_a_handlers_module_holds_can_be_pickled(jobs: Handlers) -> None:
    function = jobs["pool"].function
    data = pickle.dumps(function)
    loaded = [name for name in sys.modules if name.startswith("blackboard.handlers.code.")]
    modules = {name: sys.modules.pop(name) for name in loaded}
    again = pickle.loads(data)
    assert again is not function
    assert again.__qualname__ == "pool"
    sys.modules.update(modules)
