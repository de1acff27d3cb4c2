"""Nothing that a handler returns, raises, prints or says is more than its own run's matter."""

import asyncio
import math
import subprocess
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from blackboard.errors import BadInput
from blackboard.events import RunEnded
from blackboard.handlers.context import LONGEST_PARAMS, decoded_checkpoint, expand
from blackboard.handlers.registry import Handlers, load
from blackboard.model import Ended, Outcome, replace
from blackboard.phrases import LONGEST_ERROR, LONGEST_OUTPUT
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.releases import FinishedRun, Released, release
from blackboard.protocol.results import warnings_in
from blackboard.runners.runner import Runner
from blackboard.runners.secrets import Mask
from blackboard.spec import DEEPEST
from blackboard.tables.base import MAX_VALUE
from blackboard.worker import release_queue as releases
from tests.support.patience import patience
from tests.support.runs import PATIENCE, Told, call_of, on_the_loop, with_shared_processes
from tests.support.workers import Workplace, with_workers

JOBS = """
import msgspec
from blackboard import handler

def nested(kind, depth):
    value = "end"
    for _ in range(depth):
        value = [value] if kind == "lists" else {"in": value} if kind == "objects" else (value,)
    return value

class Rude(Exception):
    def __str__(self):
        raise SystemExit(0)

def answer(item, ctx):
    match item.params:
        case {"nested": kind, "depth": depth}:
            return nested(kind, depth)
        case {"progress": number}:
            ctx.progress(float(number) if "." in number or "n" in number else int(number), 1)
        case {"raises": "rude"}:
            raise Rude
        case {"raises": "nested"}:
            problem = ValueError("in the middle")
            for _ in range(2000):
                problem = ExceptionGroup("and again", [problem])
            raise problem
        case {"raw": text}:
            return [msgspec.Raw(text.encode())]
        case {"logs": "wrong"}:
            ctx.log.info("%d of %s", "no number")
        case {"logs": "much"}:
            ctx.log.info("x" * 5_000_000)
        case {"secrets": count, "secret": secret}:
            for _ in range(count):
                print(secret)
            return [secret] * count

@handler("plain")
def plain(item, ctx):
    return answer(item, ctx)

@handler("async")
async def coroutine(item, ctx):
    return answer(item, ctx)
"""
SECRET_NAME = "A_NAME_OF_MANY_CHARACTERS"


Called = Callable[..., Coroutine[Any, Any, tuple[Ended, Told]]]
Story = Callable[[Called], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module", name="jobs")
def _jobs(tmp_path_factory: pytest.TempPathFactory) -> Handlers:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "hostile.py").write_text(JOBS)
    return load(["hostile.py"], folder)


@pytest.fixture(name="tell", params=["plain", "async"])
def _tell(request: pytest.FixtureRequest, jobs: Handlers) -> Callable[[Story], None]:
    """Runs a story of calls of one handler, as a plain function or as a coroutine."""

    async def with_runner(runner: Runner, story: Story) -> None:
        async def call(**params: Any) -> tuple[Ended, Told]:
            said = Told()
            secrets = {SECRET_NAME: params["secret"]} if "secret" in params else {}
            given = replace(call_of(request.param, jobs=jobs, **params), mask=Mask(secrets))
            execution = runner.start(given, said, math.inf)
            return await asyncio.wait_for(execution.wait(), PATIENCE), said

        await story(call)
        ended, _ = await call(nested="lists", depth=1)
        assert ended == Ended(outcome=Outcome.OK, result=["end"])

    def told(story: Story) -> None:
        run = with_shared_processes if request.param == "plain" else on_the_loop
        run(lambda runner: with_runner(runner, story))

    return told


@pytest.mark.parametrize("kind", ["lists", "objects", "tuples"])
def test_a_result_that_is_nested_too_deeply_fails_its_run(
    tell: Callable[[Story], None], kind: str, request: pytest.FixtureRequest
) -> None:
    """Also around the limit of recursion. A child is replaced after each: it tries fewer depths."""
    first = 960 + ["lists", "objects", "tuples"].index(kind)
    depths = range(960, 1000, 3) if "async" in request.node.name else range(first, 1000, 18)

    async def story(call: Called) -> None:
        ended, _ = await call(nested=kind, depth=DEEPEST)
        assert ended.outcome is Outcome.OK
        for depth in (DEEPEST + 1, *depths, 100_000):
            ended, _ = await call(nested=kind, depth=depth)
            assert (ended.outcome, ended.result) == (Outcome.FAILED, None)
            assert "it is nested deeper than 100 levels, or holds itself" in ended.error

    tell(story)


@pytest.mark.parametrize("number", ["nan", "inf", "1" * 30, "-" + "9" * 4000])
def test_progress_that_no_row_can_hold_fails_its_run(
    tell: Callable[[Story], None], number: str
) -> None:
    async def story(call: Called) -> None:
        ended, said = await call(progress=number)
        assert ended.outcome is Outcome.FAILED
        assert "ValueError: " in ended.error
        assert said.progressed == []

    tell(story)


@pytest.mark.parametrize(
    ("raises", "told"),
    [("rude", "Rude: (its message raised SystemExit)"), ("nested", "ExceptionGroup: and again")],
)
def test_an_exception_that_cannot_be_told_whole_is_told_as_well_as_it_can(
    tell: Callable[[Story], None], raises: str, told: str
) -> None:
    async def story(call: Called) -> None:
        ended, _ = await call(raises=raises)
        assert ended.outcome is Outcome.FAILED
        assert ended.error.startswith(told)

    tell(story)


@pytest.mark.parametrize("raw", ["{", "[" * 5000, "[" * 500 + "]" * 500, "\x00"])
def test_raw_json_that_is_none_fails_its_run(tell: Callable[[Story], None], raw: str) -> None:
    async def story(call: Called) -> None:
        ended, _ = await call(raw=raw)
        assert ended.outcome is Outcome.FAILED
        assert "the handler returned" in ended.error

    tell(story)


def test_no_log_line_fails_a_run_and_none_is_endless(tell: Callable[[Story], None]) -> None:
    async def story(call: Called) -> None:
        ended, said = await call(logs="wrong")
        assert ended.outcome is Outcome.OK
        assert "TypeError" in ended.output
        assert said.logs == []
        ended, said = await call(logs="much")
        assert ended.outcome is Outcome.OK
        ((_, text),) = said.logs
        assert len(text) == LONGEST_ERROR

    tell(story)


@pytest.mark.parametrize("secret", ["canary", "canary" * 5_000])
def test_masking_makes_no_good_run_fail(tell: Callable[[Story], None], secret: str) -> None:
    """Neither where names are longer than their values, nor where they are shorter."""

    async def story(call: Called) -> None:
        count = 2_800 if len(secret) == 6 else 5
        ended, _ = await call(secrets=count, secret=secret)
        assert ended.outcome is Outcome.OK, ended.error
        assert len(ended.result) == count
        assert set(ended.result) <= {"***", f"${{{SECRET_NAME}}}"}
        assert "canary" not in ended.output
        assert len(ended.output.encode()) <= LONGEST_OUTPUT

    tell(story)


# ---- params


@pytest.mark.parametrize("text", ["{", "nothing", "[" * 101 + "]" * 101, "[" * 900 + "]" * 900])
def test_a_checkpoint_that_other_software_broke_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="checkpoint: "):
        decoded_checkpoint(text)


def test_params_that_grow_beyond_measure_are_refused() -> None:
    environ = {"LONG": "x" * 100_000}
    few = {"a": ["${LONG}"] * (LONGEST_PARAMS // 100_007)}
    assert len(expand(few, environ)["a"]) == len(few["a"])
    with pytest.raises(BadInput, match="expanded, they have more than 4,194,304 characters"):
        expand({"a": "${LONG}" * 4_000}, environ)


# ---- the worker


def nested(depth: int) -> Any:
    value: Any = "end"
    for _ in range(depth):
        value = [value]
    return value


ODD: list[Any] = [nested(100_000), object(), "\ud800", {1: {object()}}]
NEAR = nested(976)
"""Nested as deeply as some versions of Python can encode, and others cannot."""


@with_workers
async def test_whatever_a_runner_answers_its_worker_lets_it_go(place: Workplace) -> None:
    names = [f"item-{n}" for n in range(len(ODD))]
    others = ("near", "long", "good")
    for name in (*names, *others):
        await place.add(name, every="1h")
    worker = await place.worker(slots=len(ODD) + 3)
    runs = [await worker.run(name) for name in (*names, *others)]
    for run, result in zip(runs, (*ODD, NEAR, "x" * MAX_VALUE, ["fine"]), strict=True):
        run.end(result=result)
    for name in names:
        assert await place.ended(name) == [(1, "failed")]
    assert [outcome in {"ok", "failed"} for _, outcome in await place.ended("near")] == [True]
    assert await place.ended("good") == await place.ended("long") == [(1, "ok")]
    long = await place.other.item("long")
    assert long is not None
    (warning,) = warnings_in(long.result)
    assert warning.startswith(
        "the result, 32,770 characters of JSON, was not kept: a row holds 32,768"
    )


@with_workers
async def test_an_error_and_an_output_of_any_length_are_cut(place: Workplace) -> None:
    await place.add("davis", every="1h")
    worker = await place.worker(slots=1)
    run = await worker.run("davis")
    run.ended.set_result(Ended(outcome=Outcome.OK, error="e" * 10**6, output="o" * 10**6))
    assert await place.ended("davis") == [(1, "ok")]


@with_workers
async def test_a_release_that_raises_ends_no_worker_and_no_other_run(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock goes stale, as if its worker had died."""

    async def raising(
        board: BoardTable, finished: Sequence[FinishedRun], **about: Any
    ) -> list[Released]:
        if any(one.claim.id == "odd" for one in finished):
            raise RecursionError("of whatever kind")
        return await release(board, finished, **about)

    for name in ("odd", "davis"):
        await place.add(name, every="1h")
    worker = await place.worker(slots=2)
    runs = [await worker.run(name) for name in ("odd", "davis")]
    with monkeypatch.context() as patch:
        patch.setattr(releases, "release", raising)
        for run in runs:
            run.end()
        assert await place.ended("davis") == [(1, "ok")]
        await worker.tells(RunEnded, 2)
    assert not worker.task.done()
    assert await place.outcomes("odd") == []


FULL = """
import resource
from pathlib import Path
from blackboard.runners.outcome import Unfit, encode_result

value = {value}
pages = int(Path("/proc/self/statm").read_text().split()[0])
most = pages * resource.getpagesize() + (20 << 20)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
try:
    encode_result(value)
except Unfit as problem:
    print(problem)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems limit no address space")
@pytest.mark.parametrize("value", ["'x' * (60 << 20)", "['x'] * (20 << 20)"])
def test_a_result_for_which_there_is_no_memory_ends_no_process(value: str) -> None:
    command = [sys.executable, "-c", FULL.format(value=value)]
    within = patience(60)
    done = subprocess.run(command, capture_output=True, text=True, timeout=within, check=False)
    kind = "str" if value.startswith("'") else "list"
    words = f"the handler returned {kind}, for which there is no memory as JSON\n"
    assert (done.returncode, done.stdout) == (0, words), done.stderr
