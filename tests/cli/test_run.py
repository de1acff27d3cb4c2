"""`run`: due now, followed to its outcome, or run in this very process."""

import asyncio
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from blackboard.cli import follow, local_run, many
from blackboard.clock import SystemClock
from blackboard.model import Mark, Member, Outcome, Run, State, Token
from blackboard.protocol import claims
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import Claimed
from blackboard.protocol.edits import pause, remove, run_now
from blackboard.protocol.keys import permits_partition
from blackboard.protocol.members import announce, workers
from blackboard.protocol.permits import Limit, occupied, take
from blackboard.rules.transitions import LONGEST_QUEUE
from blackboard.spec import params_of
from blackboard.table import ANY, Busy, Merge, TableError, Unavailable, Unusable
from tests.cli.command_line import CommandLine, Said, blackboard, processed
from tests.support.faults import Fault, FaultyTable

__all__ = ["blackboard"]

pytestmark = pytest.mark.of_one_store(
    "the verb itself is in tests/protocol, and test_actions.py calls it on each store"
)

HANDLERS = """
from blackboard import handler

@handler("plain", retries=1)
def plain(item, ctx):
    print("printed by", item.id)
    ctx.log.info("logged")
    ctx.progress(1, 2)
    assert not ctx.lost
    return {"params": dict(item.params), "fence": ctx.fence, "settings": dict(ctx.settings)}

@handler("coroutine")
async def coroutine(item, ctx):
    return await ctx.lost.wait(0.01)

@handler("failing")
def failing(item, ctx):
    raise ValueError("no such town\\x9b31m")

@handler("stopped")
def stopped(item, ctx):
    raise KeyboardInterrupt

@handler("skipping")
def skipping(item, ctx):
    from blackboard import Skip
    raise Skip("not modified")

@handler("warning")
def warning(item, ctx):
    ctx.warn("2 of 60 feeds failed")

@handler("given-up")
async def given_up(item, ctx):
    import asyncio
    raise asyncio.CancelledError("given up")

@handler("unfit")
def unfit(item, ctx):
    return object()

@handler("robbed")
def robbed(item, ctx):
    from blackboard.cli import called
    assert called(["unlock", item.id]) == 0
    assert ctx.lost.wait(60)
    return ctx.lost.reason

@handler("robbed-coroutine")
async def robbed_coroutine(item, ctx):
    import asyncio
    from blackboard.cli import called
    assert await asyncio.to_thread(called, ["unlock", item.id]) == 0
    assert await ctx.lost.wait(60)
    return ctx.lost.reason

@handler("counted", concurrency=1)
def counted(item, ctx):
    from blackboard.cli import called
    others = [item.params["other"]] if "other" in item.params else []
    return [called(["run", one, "--here", "--jobs", "mine.py"]) for one in others]

@handler("outlived", concurrency=1)
def outlived(item, ctx):
    assert ctx.lost.wait(60)
    return ctx.lost.reason
"""


@pytest.fixture(name="towns")
def _towns(blackboard: CommandLine) -> CommandLine:
    blackboard("init")
    blackboard(
        *("add", "davis", "--type", "calendars", "--every", "8h"),
        *("--first", "2035-01-01T00:00:00Z", "--set", "days=90", "--set", "window.from=today"),
    )
    return blackboard


def test_run_makes_an_item_due_and_leaves_its_schedule(towns: CommandLine) -> None:
    before = towns.item("davis")
    assert towns("run", "davis", "--set", "days=7", "--set", "window.to=5").out == (
        "davis is due now\n"
    )
    after = towns.item("davis")
    assert after.ready < before.ready
    assert after.planned == before.planned
    assert params_of(after.spec, after.once) == {
        "days": 7,
        "window": {"from": "today", "to": 5},
    }
    assert after.spec == before.spec


def test_a_running_item_is_run_once_more(towns: CommandLine) -> None:
    towns("run", "davis")
    held = towns.start("davis")
    assert "once more" in towns("run", "davis").out
    towns.finish(held)
    assert towns.item("davis").ready <= towns.item("davis").stop  # type: ignore[operator]


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["--timeout", "5s"], "timeout: "),
        (["--wait", "--timeout", "5"], "timeout: "),
        (["--jobs", "x"], "jobs: "),
        (["--wait", "--here"], "wait: "),
        (["--set", "x"], "set: "),
        (["--set", "days.x=1"], "set: 'days' is not an object"),
        (["--set", "x=@big.txt"], "params: "),
        (["--here"], "jobs: no handler for 'calendars'"),
        (["--here", "--jobs", "absent.module"], "jobs 'absent.module': "),
    ],
)
def test_bad_input_is_refused(towns: CommandLine, args: list[str], problem: str) -> None:
    towns.write("x" * (1 << 20), "big.txt")
    assert towns.refused("run", "davis", *args).startswith(problem)


def test_a_paused_item_is_named_and_nothing_is_written(towns: CommandLine) -> None:
    towns("pause", "davis")
    before = towns.rows()
    problem = "is paused: `blackboard resume davis` first"
    assert towns("run", "davis", code=1).err == f"blackboard: davis {problem}\n"
    (found,) = towns("run", "d*", "--json", code=1).json
    assert (found["id"], found["changed"], found["message"]) == ("davis", False, problem)
    (found,) = towns("run", "davis", "--wait", "--json", code=1).json
    assert found == {"id": "davis", "end": "refused", "message": problem, "run": None}
    assert towns.rows() == before


@pytest.mark.parametrize(
    "patterns", [["d*"], ["type:calendars"], ["state:waiting", "state:paused"], ["dayton", "davis"]]
)
def test_items_that_cannot_run_are_named_and_the_others_are_requested(
    towns: CommandLine, patterns: list[str]
) -> None:
    towns("add", "dayton", "--type", "calendars", "--first", "2035-01-01T00:00:00Z")
    towns("pause", "dayton")
    said = towns("run", *patterns, "--set", "days=7", code=1)
    assert said.out == "davis is due now\n"
    assert said.err == "blackboard: dayton is paused: `blackboard resume dayton` first\n"
    assert towns.item("davis").once == '{"days":7}'
    (action,) = [one for one in towns("log", "--actions", "--json").json if one["verb"] == "run"]
    assert action["ids"] == ["davis"]


def test_items_that_cannot_run_are_named_and_the_others_are_waited_for(
    towns: CommandLine, meanwhile: Callable[..., None]
) -> None:
    towns("add", "dayton", "--type", "calendars", "--first", "2035-01-01T00:00:00Z")
    towns("pause", "dayton")
    announce_worker(towns)
    meanwhile(served(towns))
    refused, followed = towns("run", "dayton", "davis", "--wait", "--json", code=1).json
    assert (refused["id"], refused["end"]) == ("dayton", "refused")
    assert (followed["id"], followed["run"]["outcome"]) == ("davis", "ok")


def test_params_that_one_item_cannot_have_are_refused_with_its_name(towns: CommandLine) -> None:
    towns("add", "dayton", "--type", "calendars", "--set", "days.from=1")
    assert towns.refused("run", "da*", "--set", "days.to=2").startswith("set: davis: 'days' is not")


@pytest.fixture(name="meanwhile")
def _meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What other processes do while a command waits: a step at each of its pauses."""

    def plan(*steps: Callable[[], Any], then: float = 0.0) -> None:
        left = list(steps)
        passed = 0.0

        async def sleep(_: Any, __: float) -> None:
            nonlocal passed
            passed += then
            if left:
                thread = threading.Thread(target=left.pop(0))  # it has a loop of its own
                thread.start()
                thread.join()
            elif not then:
                raise AssertionError("the command waits for nothing")

        monkeypatch.setattr("blackboard.clock.SystemClock.sleep", sleep)
        monkeypatch.setattr("blackboard.clock.SystemClock.monotonic", lambda _: passed)

    return plan


def announce_worker(towns: CommandLine) -> None:
    async def work(board: BoardTable) -> None:
        now = await board.table.now()
        about: dict[str, Any] = {"slots": 8, "running": 0, "release": "0.1.0", "cycle": 30.0}
        await announce(board, Member(owner="me", started=now, seen=now, types="calendars", **about))

    towns.on_board(work)


def served(towns: CommandLine, outcome: Outcome = Outcome.OK, **ended: Any) -> Callable[[], None]:
    """A worker runs the item."""
    return lambda: towns.finish(towns.start("davis"), outcome, **ended)


def test_wait_follows_a_run_to_its_end(towns: CommandLine, meanwhile: Callable[..., None]) -> None:
    meanwhile(lambda: None, served(towns, result={"events": 12}))
    said = towns("run", "davis", "--wait")
    assert said.out.startswith("davis ok in ")
    assert said.out.endswith(': {"events":12}\n')


def test_wait_ends_with_1_when_the_run_fails(
    towns: CommandLine, meanwhile: Callable[..., None]
) -> None:
    meanwhile(served(towns, Outcome.FAILED, error="ValueError: no\nTraceback ..."))
    said = towns("run", "davis", "--wait", "--json", code=1).json
    assert (said[0]["end"], said[0]["run"]["outcome"]) == ("ended", "failed")
    meanwhile(served(towns, Outcome.FAILED, error="ValueError: no\nTraceback ..."))
    assert towns("run", "davis", "--wait", code=1).out.endswith(": ValueError: no\n")


def test_wait_follows_a_run_through_its_retries(
    towns: CommandLine, meanwhile: Callable[..., None]
) -> None:
    towns("edit", "davis", "--retries", "1")
    meanwhile(served(towns, Outcome.FAILED, error="x"), lambda: None, served(towns))
    assert towns("run", "davis", "--wait").out.startswith("davis ok in ")


def test_wait_tells_of_an_attempt_that_failed_and_when_the_next_one_comes(
    towns: CommandLine, meanwhile: Callable[..., None]
) -> None:
    towns("edit", "davis", "--retries", "1", "--backoff", "1000h")
    meanwhile(served(towns, Outcome.FAILED, error="ValueError: no\nTraceback"), then=10.0)
    said = towns("run", "davis", "--wait", code=1)
    assert "davis failed: ValueError: no; attempt 2 may start at 20" in said.err


def test_wait_tells_that_the_board_is_paused(
    towns: CommandLine, meanwhile: Callable[..., None]
) -> None:
    announce_worker(towns)
    towns("pause", "--board")
    meanwhile(then=20.0)
    said = towns("run", "davis", "--wait", "--timeout", "1m", code=1)
    assert "davis waits: the board is paused by " in said.err


def test_wait_follows_the_run_behind_the_running_one(
    towns: CommandLine, meanwhile: Callable[..., None]
) -> None:
    towns("run", "davis")
    held = towns.start("davis")
    meanwhile(lambda: towns.finish(held, Outcome.FAILED, error="x"), served(towns))
    assert towns("run", "davis", "--wait").out.startswith("davis ok in ")


def test_wait_gives_up_when_no_worker_takes_the_type(
    towns: CommandLine, meanwhile: Callable[..., None]
) -> None:
    meanwhile(then=10.0)
    said = towns("run", "davis", "--wait", code=1)
    assert "davis waits for a worker that takes calendars: none is at work\n" in said.err
    assert "davis waits: no worker takes 'calendars'; start one with `blackboard wo" in said.err
    assert towns.item("davis").state is State.ACTIVE


@pytest.mark.parametrize(
    ("running", "words"),
    [
        (True, "davis still runs (host:1:worker) after 10s, and goes on\n"),
        (False, "davis has not been started after 10s; it stays due\n"),
    ],
)
def test_wait_has_an_end_of_its_own(
    towns: CommandLine, meanwhile: Callable[..., None], *, running: bool, words: str
) -> None:
    meanwhile(*([lambda: towns.start("davis")] if running else []), then=4.0)
    said = towns("run", "davis", "--wait", "--timeout", "10s", code=1)
    assert words in said.err


@pytest.fixture(name="away")
def _away(monkeypatch: pytest.MonkeyPatch) -> Callable[[TableError], Callable[[], None]]:
    """What the store answers from now on to who reads the workers; None: these."""
    answers: list[TableError | None] = [None]

    async def asked(board: BoardTable) -> Any:
        if answers[-1] is not None:
            raise answers[-1]
        return await workers(board)

    monkeypatch.setattr(follow, "workers", asked)
    return lambda answer: lambda: answers.append(answer)


@pytest.mark.parametrize("trouble", [Busy(1.0), Unavailable("cable cut")])
def test_wait_goes_on_after_the_store_was_away(
    towns: CommandLine, meanwhile: Callable[..., None], away: Any, trouble: TableError
) -> None:
    """Also for longer than without a worker: nobody knows whether there was one."""
    meanwhile(away(trouble), *[lambda: None] * 4, away(None), served(towns), then=20.0)
    said = towns("run", "davis", "--wait")
    assert said.out.startswith("davis ok in ")
    assert said.err.count(f"store: {trouble}; it is asked again\n") == 1


@pytest.mark.parametrize(
    ("trouble", "timeout", "passes"),
    [
        (Unavailable("cable cut"), "1000h", 360.0),
        (Unavailable("cable cut"), "1s", 40.0),
        (Unusable("it is another file"), "1000h", 40.0),
    ],
)
def test_wait_ends_where_the_store_does_not_come_back(
    towns: CommandLine,
    meanwhile: Callable[..., None],
    away: Any,
    *,
    trouble: TableError,
    timeout: str,
    passes: float,
) -> None:
    meanwhile(away(trouble), then=40.0)
    code = 2 if isinstance(trouble, Unusable) else 3
    said = towns("run", "davis", "--wait", "--timeout", timeout, code=code)
    assert str(trouble) in said.err
    assert ("it is asked again" in said.err) is (timeout == "1000h" and code == 3)
    assert SystemClock().monotonic() == passes


def test_wait_for_many_reads_what_they_have_in_common_once(
    towns: CommandLine, meanwhile: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"town-{number}" for number in range(8)]
    towns("add", *names, "--type", "calendars", "--first", "2035-01-01T00:00:00Z")
    looks = list[str]()
    read_workers = workers

    async def counted(board: BoardTable) -> Any:
        looks.append("workers")
        return await read_workers(board)

    monkeypatch.setattr(follow, "workers", counted)
    meanwhile(lambda: towns.finish(towns.start("town-3")), then=11.0)
    said = towns("run", "town-*", "--wait", code=1)
    assert said.out.startswith("town-3 ok in ")
    assert said.err.count(": no worker takes 'calendars'") == 7
    assert looks.count("workers") < len(names)


def test_wait_for_many_reads_a_few_of_them_at_a_time(
    towns: CommandLine, meanwhile: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"town-{number}" for number in range(5)]
    towns("add", *names, "--type", "calendars", "--first", "2035-01-01T00:00:00Z")
    for module in (many, follow):
        monkeypatch.setattr(module, "AT_ONCE", 2)
    most = dict[str, int]()

    def count(owner: Any, name: str) -> None:
        read, under_way = getattr(owner, name), 0

        async def counted(*about: Any, **named: Any) -> Any:
            nonlocal under_way
            under_way += 1
            most[name] = max(most.get(name, 0), under_way)
            for _ in range(20):
                await asyncio.sleep(0)
            try:
                return await read(*about, **named)
            finally:
                under_way -= 1

        monkeypatch.setattr(owner, name, counted)

    count(BoardTable, "existing")
    count(follow.Followed, "look")

    def finish_all() -> None:
        for name in names:
            towns.finish(towns.start(name))

    meanwhile(finish_all, then=11.0)
    towns("run", "town-*", "--wait")
    assert most == {"existing": 2, "look": 2}


def test_of_many_the_looks_are_further_apart(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "MOST_READ", 0.5)
    pauses = list[float]()
    passed = 0.0

    async def sleep(_: Any, seconds: float) -> None:
        nonlocal passed
        passed += seconds
        pauses.append(seconds)

    monkeypatch.setattr("blackboard.clock.SystemClock.sleep", sleep)
    monkeypatch.setattr("blackboard.clock.SystemClock.monotonic", lambda _: passed)
    towns("add", "dayton", "--type", "calendars", "--first", "2035-01-01T00:00:00Z")
    towns("run", "da*", "--wait", "--timeout", "9s", code=1)
    assert pauses[:3] == [4.0, 4.0, 1.0]


@pytest.mark.parametrize(
    ("verb", "words"), [("remove", "was removed meanwhile"), ("pause", "was paused meanwhile")]
)
def test_wait_ends_when_the_run_will_not_come(
    towns: CommandLine, meanwhile: Callable[..., None], verb: str, words: str
) -> None:
    async def do(board: BoardTable) -> None:
        mark = Mark(by="ann", at=await board.table.now())
        await (remove(board, "davis") if verb == "remove" else pause(board, "davis", mark))

    meanwhile(lambda: towns.on_board(do))
    assert words in towns("run", "davis", "--wait", code=1).err


def test_each_request_with_params_is_acknowledged_in_its_turn(towns: CommandLine) -> None:
    said = [towns("run", "davis", "--set", f"date={day}").out for day in ("mon", "tue", "wed")]
    assert said == [
        "davis is due now\n",
        "davis is due now; the run of this request follows 1 run\n",
        "davis is due now; the run of this request follows 2 runs\n",
    ]
    assert [one.once for one in towns.item("davis").requests] == [
        '{"date":"tue"}',
        '{"date":"wed"}',
    ]
    assert "2 more runs were requested" in towns("why", "davis").out


def test_a_request_that_joins_another_says_so(towns: CommandLine) -> None:
    towns("run", "davis")
    said = towns("run", "davis").out
    assert said == "davis is due now: one run is for this request and for one that waits already\n"
    towns("run", "davis", "--set", "days=1")
    towns("run", "davis")
    said = towns("run", "davis").out
    assert (
        said
        == "davis is due after 2 runs: one run is for this request and for one that waits already\n"
    )


def test_a_paused_board_starts_nothing_that_is_asked_for_and_that_is_said(
    towns: CommandLine,
) -> None:
    towns("pause", "--board", "--reason", "moving")
    for args in (["run", "davis"], ["add", "dixon", "--type", "calendars"]):
        said = towns(*args)
        assert "is due now" in said.out
        assert said.err.startswith("blackboard: the board is paused, by ")
        assert "moving" in said.err
    towns("resume", "--board")
    assert towns("run", "davis").err == ""


def test_the_same_trigger_twice_is_one_run(towns: CommandLine) -> None:
    assert towns("run", "davis", "--trigger", "delivery-7").out == "davis is due now\n"
    again = "davis was asked for by this trigger before: there is no second run\n"
    assert towns("run", "davis", "--trigger", "delivery-7").out == again
    (said,) = towns("run", "davis", "--trigger", "delivery-7", "--json").json
    assert not said["changed"]
    assert len(towns("log", "--actions", "--json").json) == 1
    assert towns("run", "davis", "--trigger", "delivery-7").out == again
    assert len(towns.item("davis").requests) == 0
    for wrong, words in (["", "it is empty"], ["add:7", "without 'add:'"]):
        assert words in towns("run", "davis", "--trigger", wrong, code=2).err


def test_a_full_queue_is_the_answer_no(towns: CommandLine) -> None:
    async def fill(board: BoardTable) -> None:
        for n in range(LONGEST_QUEUE + 1):
            await run_now(board, "davis", once={"n": n})

    towns.on_board(fill)
    said = towns("run", "davis", "--set", "days=1", code=1)
    assert "100 runs wait already" in said.err


def test_of_several_one_whose_queue_is_full_is_named_and_the_others_are_requested(
    towns: CommandLine,
) -> None:
    async def fill(board: BoardTable) -> None:
        for n in range(LONGEST_QUEUE + 1):
            await run_now(board, "keene", once={"n": n})

    towns("add", "keene", "--type", "calendars")
    towns.on_board(fill)
    said = towns("run", "keene", "davis", "--set", "days=1", code=1)
    assert said.err.startswith("blackboard: keene cannot be asked to run once more: 100 runs wait")
    assert said.out == "davis is due now\n"
    assert towns.item("davis").once == '{"days":1}'


# ---- in this process


@pytest.fixture(name="jobs")
def _jobs(towns: CommandLine) -> CommandLine:
    towns.write(HANDLERS, "mine.py")
    for item_type in ("plain", "coroutine", "failing", "stopped", "unfit", "robbed", "given-up"):
        towns("add", item_type, "--type", item_type, "--every", "8h", "--set", "days=90")
    return towns


def here(jobs: CommandLine, item_id: str, *args: str, code: int = 0) -> Said:
    return jobs("run", item_id, "--here", "--jobs", "mine.py", *args, code=code)


def history(jobs: CommandLine, item_id: str) -> list[Run]:
    async def read(board: BoardTable) -> list[Run]:
        return [run async for run in board.runs(item_id)]

    return jobs.on_board(read)


def test_a_plain_handler_runs_here_and_prints_here(jobs: CommandLine) -> None:
    said = here(jobs, "plain", "--set", "days=7")
    assert said.out.startswith("printed by plain\nplain ok in ")
    assert '"params":{"days":7}' in said.out
    assert "info: logged" in said.err
    (run,) = history(jobs, "plain")
    assert (run.outcome, run.fence, run.worker.count(":")) == (Outcome.OK, 1, 2)
    assert not jobs.item("plain").running


def test_a_store_that_answers_too_late_is_told_and_nothing_is_run_here(
    jobs: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "deadline", lambda *_: -math.inf)
    said = here(jobs, "plain", code=1)
    assert "answered too late for plain" in said.err
    assert "`blackboard unlock plain`" in said.err
    assert jobs.item("plain").running
    jobs("unlock", "plain")
    assert not jobs.item("plain").running


def test_a_run_here_is_told_that_the_store_refuses_the_rows_of_its_claim(
    jobs: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(board: BoardTable, tokens: Sequence[Token], *, owner: str) -> Claimed:
        table = FaultyTable(board.table)
        table.script(Fault.REFUSED)
        return await claims.claim(board.using(table), tokens, owner=owner)

    monkeypatch.setattr(local_run, "claim", refused)
    said = here(jobs, "plain", code=2)
    assert "item: the store does not take its rows: too large for this store" in said.err
    assert not jobs.item("plain").running


def test_a_run_here_has_a_permit_like_any_other(jobs: CommandLine) -> None:
    for one, other in (("a", "b"), ("b", "c"), ("c", "")):
        pairs = ("--set", f"other={other}") if other else ()
        jobs("add", one, "--type", "counted", "--every", "8h", *pairs)
    said = here(jobs, "a")
    assert "as many runs of counted go on as its concurrency allows (a)" in said.err
    assert [run.result for run in history(jobs, "a")] == ["[1]"]
    assert history(jobs, "b") == []
    here(jobs, "c")
    limit = Limit("counted", "", 1)
    assert len(jobs.on_board(lambda board: occupied(board, limit))) == 0


def test_a_run_here_is_told_of_a_row_that_counts_as_a_permit_and_cannot_be_read(
    jobs: CommandLine,
) -> None:
    jobs("add", "a", "--type", "counted", "--every", "8h")

    async def damage(board: BoardTable) -> str:
        (permit,) = await take(board, Limit("counted", "", 1), ["b"], owner="other")
        partition = permits_partition(board.name)
        await board.table.commit(partition, [Merge(permit.row_key, {"stale_after": -60.0}, ANY)])
        return permit.row_key

    key = jobs.on_board(damage)
    said = here(jobs, "a", code=1)
    assert f"the row {key} in " in said.err
    assert history(jobs, "a") == []


def test_a_run_here_is_told_that_its_permit_is_lost(
    jobs: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blackboard.worker.permits.LEASE", 0.9)
    jobs("add", "a", "--type", "outlived", "--every", "8h")
    said = here(jobs, "a")
    lost = "its permit was not renewed in time, or another worker took it"
    assert f"blackboard: stopped: {lost}" in said.err
    assert lost in str(history(jobs, "a")[0].result)


def test_a_handler_here_gets_the_settings_of_its_job(jobs: CommandLine) -> None:
    jobs.write('[board]\njobs = ["mine.py"]\n[jobs.plain]\nallow = true\n')
    said = jobs("run", "plain", "--here", "--json")
    assert said.json["result"]["settings"] == {"allow": True}


@pytest.mark.parametrize("args", [[], ["--json"]])
def test_what_a_handler_prints_here_is_its_output_and_never_between_the_json(
    jobs: CommandLine, args: list[str]
) -> None:
    """Nor what its module prints."""
    jobs.write(f"print('printed by the module')\n{HANDLERS}", "mine.py")
    said = here(jobs, "plain", *args)
    printed, other = (said.err, said.out) if args else (said.out, said.err)
    assert printed.startswith("printed by the module\nprinted by plain\n")
    assert "printed by" not in other
    assert [run.output for run in history(jobs, "plain")] == ["printed by plain\n"]


def test_a_coroutine_runs_here(jobs: CommandLine) -> None:
    assert "false" in here(jobs, "coroutine").out
    assert [run.outcome for run in history(jobs, "coroutine")] == [Outcome.OK]


UNCLOSED = """\
import contextlib
from blackboard import handler

@contextlib.contextmanager
def broken():
    yield
    raise OSError("no route")

@handler("plain-unclosed", every="8h", resources=broken)
def plain(item, ctx):
    return 7

@handler("unclosed", every="8h", resources=broken)
async def coroutine(item, ctx):
    return 7
"""


@pytest.mark.parametrize("item_type", ["plain-unclosed", "unclosed"])
def test_what_resources_raise_here_as_they_are_closed_is_logged(
    towns: CommandLine, item_type: str
) -> None:
    towns.write(UNCLOSED, "unclosed.py")
    towns("add", item_type, "--type", item_type, "--every", "8h")
    said = processed("run", item_type, "--here", "--jobs", "unclosed.py", folder=towns.folder)
    assert (said.returncode, said.stdout.splitlines()[-1]) == (0, "7"), said.stderr
    assert "OSError: no route" in towns("log", item_type, "--full").out


@pytest.mark.parametrize(
    ("item_id", "outcome", "error", "code"),
    [
        ("failing", Outcome.FAILED, "ValueError: no such town", 1),
        ("stopped", Outcome.CANCELLED, "interrupted", 130),
        ("given-up", Outcome.FAILED, "CancelledError", 1),
        ("unfit", Outcome.FAILED, "the handler returned object", 1),
    ],
)
def test_a_run_here_that_ends_badly_is_told_and_kept(
    jobs: CommandLine, item_id: str, outcome: Outcome, error: str, code: int
) -> None:
    said = here(jobs, item_id, code=code)
    assert error in said.err
    assert "\x9b" not in said.err, "it steers no terminal"
    (run,) = history(jobs, item_id)
    assert run.outcome is outcome
    assert run.error.startswith(error)
    assert "blackboard/cli" not in run.error


@pytest.mark.parametrize(
    ("item_id", "words", "why"),
    [
        ("skipping", "skipped", "not modified"),
        ("warning", "warned", "2 of 60 feeds failed"),
    ],
)
def test_a_run_that_is_skipped_or_warns_is_told_by_these_words(
    jobs: CommandLine, meanwhile: Callable[..., None], item_id: str, words: str, why: str
) -> None:
    jobs("add", item_id, "--type", item_id, "--every", "8h")
    said = here(jobs, item_id)
    assert said.out.startswith(f"{item_id} {words} in ")
    assert said.err.endswith(f"{why}\n")
    in_full = jobs("log", item_id, "--full").out.splitlines()
    assert in_full[0] == f"{item_id}  {words}  fence 1, attempt 1"
    kept = {"error": why} if words == "skipped" else {"warnings": (why,)}
    meanwhile(lambda: jobs.finish(jobs.start(item_id), **kept))
    waited = jobs("run", item_id, "--wait").out
    assert waited.startswith(f"{item_id} {words} in ")
    assert waited.endswith(f": {why}\n")


@pytest.mark.parametrize("item_type", ["robbed", "robbed-coroutine"])
def test_a_handler_here_is_told_when_its_lock_is_lost(jobs: CommandLine, item_type: str) -> None:
    jobs("add", "a", "--type", item_type, "--every", "8h", "--stale-after", "3s")
    said = here(jobs, "a", code=1)
    assert "its lock was overridden, unlocked or removed" in said.err
    assert [run.outcome for run in history(jobs, "a")] == [Outcome.SUPERSEDED]


SIGNALS = """
import asyncio
from contextlib import suppress
from blackboard import handler

@handler("plain-signals")
def plain(item, ctx):
    return [one.wait(0.01) for one in (ctx.stopping, ctx.lost)]

@handler("signals")
async def coroutine(item, ctx):
    return [await one.wait(0.01) for one in (ctx.stopping, ctx.lost)]

@handler("left-signals")
async def left(item, ctx):
    asyncio.ensure_future(ctx.stopping.wait())
    with suppress(TimeoutError):
        await asyncio.wait_for(ctx.lost.wait(), 0.01)
    return [False, False]
"""


@pytest.mark.parametrize("item_type", ["plain-signals", "signals", "left-signals"])
def test_a_handler_that_runs_here_may_wait_for_its_signals(
    towns: CommandLine, item_type: str
) -> None:
    towns.write(SIGNALS, "my_signals.py")
    towns("add", item_type, "--type", item_type, "--every", "8h")
    said = processed("run", item_type, "--here", "--jobs", "my_signals.py", folder=towns.folder)
    assert said.returncode == 0, said.stderr
    assert towns("show", item_type, "--json").json[0]["result"] == [False, False]


ENDED = """
import asyncio, signal
from blackboard import handler

@handler("SIGHUP")
def plain(item, ctx):
    signal.raise_signal(signal.SIGHUP)

@handler("SIGTERM")
async def coroutine(item, ctx):
    asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGTERM)
    await ctx.lost.wait(60)
"""


@pytest.mark.parametrize("item_type", ["SIGHUP", "SIGTERM"])
def test_a_run_here_that_a_signal_ends_gives_its_lock_back(
    towns: CommandLine, item_type: str
) -> None:
    towns.write(ENDED, "ended.py")
    towns("add", item_type, "--type", item_type, "--every", "8h")
    said = processed("run", item_type, "--here", "--jobs", "ended.py", folder=towns.folder)
    assert (said.returncode, said.stderr) == (130, "blackboard: interrupted\n")
    assert [run.outcome for run in history(towns, item_type)] == [Outcome.CANCELLED]
    assert not towns.item(item_type).running


FORKS = """
import os, signal
from blackboard import handler

@handler("plain-fork")
def plain(item, ctx):
    child = os.fork()
    if not child:
        signal.alarm(10)  # if it goes on
        return "from the fork"
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

@handler("fork")
async def coroutine(item, ctx):
    return plain(item, ctx)
"""


@pytest.mark.parametrize("item_type", ["plain-fork", "fork"])
def test_a_fork_of_a_handler_that_runs_here_ends_when_it_returns(
    towns: CommandLine, item_type: str
) -> None:
    towns.write(FORKS, "forks.py")
    towns("add", item_type, "--type", item_type, "--every", "8h")
    said = processed("run", item_type, "--here", "--jobs", "forks.py", folder=towns.folder)
    assert said.returncode == 0, said.stderr
    assert towns("show", item_type, "--json").json[0]["result"] == 0


def test_what_a_worker_runs_does_not_run_here(jobs: CommandLine) -> None:
    jobs.start("plain")
    assert "plain is being run by host:1:worker" in here(jobs, "plain", code=1).err


def test_a_request_that_waits_is_run_here_unless_its_params_are_others(jobs: CommandLine) -> None:
    jobs("run", "plain")
    assert "plain ok in" in here(jobs, "plain").out
    assert len(history(jobs, "plain")) == 1
    jobs("run", "plain", "--set", "days=7")
    assert "plain has 1 run to do first: " in here(jobs, "plain", code=1).err
    jobs("run", "plain", "--set", "days=8")
    assert "plain has 2 runs to do first: " in here(jobs, "plain", "--set", "days=9", code=1).err
    assert len(history(jobs, "plain")) == 1


def test_one_item_at_a_time_runs_here(jobs: CommandLine) -> None:
    before = jobs.rows()
    assert "one item at a time" in here(jobs, "*", code=2).err
    assert jobs.rows() == before
