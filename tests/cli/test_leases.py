"""`blackboard leases`: groups, their partitions, and the exit code for probes."""

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from blackboard.display.sharing import last_move
from blackboard.handlers.handler import Handler, handlers_of, pump
from blackboard.handlers.registry import by_type
from blackboard.model import Ended, Mark, Outcome, Token, replace
from blackboard.protocol.additions import ensure
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import Claim, claim
from blackboard.protocol.edits import pause, resume
from blackboard.protocol.keys import group_key, item_key, meta_partition, next_key
from blackboard.protocol.members import announce
from blackboard.protocol.releases import FinishedRun, release
from blackboard.rules.shares import names_of
from blackboard.rules.status import status_of
from blackboard.settings import Settings, resolver
from blackboard.table import ANY, Delete, Insert, Merge, Op, Replace, Value, read
from blackboard.worker.membership import new_member
from tests.cli.command_line import CommandLine, blackboard
from tests.support.plans import NOON, item

pytestmark = pytest.mark.of_one_store("what is said of partitions is judged above the store")

__all__ = ["blackboard"]


@pump("clicks", partitions=3, lease="30s")
async def clicks(partition: object, ctx: object) -> None: ...


PUMP: Handler = handlers_of(clicks)[0]


@pytest.fixture(name="town")
def _town(blackboard: CommandLine) -> CommandLine:
    """A board with a group of three partitions that nobody holds."""
    blackboard("init")

    async def made(board: BoardTable) -> None:
        await group(board)

    blackboard.on_board(made)
    return blackboard


async def group(board: BoardTable) -> BoardTable:
    """The group's board, made where it is not there."""
    found = board.group("clicks")
    found.resolve = resolver(Settings(), by_type([PUMP]))
    table = board.table
    await BoardTable.create(
        table,
        name=found.name,
        shards=1,
        clock=found.clock,
        chance=found.chance,
        resolve=found.resolve,
    )
    rows = [row async for row in table.scan(meta_partition(board.name), "group:", "group;")]
    if not rows:
        about: dict[str, Value] = {"version": 1, "kind": "pump", "partitions": 3, "lease": 30.0}
        await table.commit(meta_partition(board.name), [Insert(group_key("clicks"), about)])
    await ensure(found, names_of(3), "clicks")
    return found


def held(town: CommandLine, *partitions: str, owner: str) -> tuple[Claim, ...]:
    async def take(board: BoardTable) -> tuple[Claim, ...]:
        found = await group(board)
        now = await board.table.now() + timedelta(days=1)
        rows = [one async for one in found.walk(0, until=now) if one.id in partitions]
        tokens = [one for one in rows if isinstance(one, Token)]
        answer = await claim(found, tokens, owner=owner)
        return answer.claims

    return town.on_board(take)


def test_a_board_without_groups_says_what_makes_one(blackboard: CommandLine) -> None:
    blackboard("init")
    assert "a worker with a pump" in blackboard("leases").out
    assert blackboard("leases", "--json").json == []


@pytest.mark.of_each_store
def test_groups_and_partitions_are_shown_with_who_holds_them(town: CommandLine) -> None:
    held(town, "0", "1", owner="rabbit:7:abc")
    held(town, "2", owner="fox:8:def")
    lines = [line.split() for line in town("leases").out.splitlines()]
    assert lines[1] == ["clicks", "3", "3", "2", "1-2", "30s", "-"]
    shown = town("leases", "clicks").out
    assert [line.split()[:2] for line in shown.splitlines()[1:4]] == [
        ["0", "rabbit:7"],
        ["1", "rabbit:7"],
        ["2", "fox:8"],
    ]
    assert shown.endswith("3 of 3 partitions held by 2 workers\n")
    view = town("leases", "clicks", "--json").json
    assert (view["group"], view["held"], view["workers"], view["well"]) == ("clicks", 3, 2, True)
    assert view["partitions"][2]["worker"] == "fox:8:def"
    assert view["partitions"][2]["fence"] == 1


def test_a_live_worker_that_holds_nothing_is_counted(town: CommandLine) -> None:
    """Where it should hold some, nothing else shows that: all partitions are held."""
    held(town, "0", "1", "2", owner="rabbit:7:abc")

    async def announced(board: BoardTable) -> None:
        found, now = await group(board), await board.table.now()
        for owner in ("rabbit:7:abc", "fox:8:def", "owl:9:fed"):
            member = new_member(owner, now=now, types="clicks", cycle=10.0)
            await announce(found, replace(member, slots=0 if owner.startswith("owl") else 1))

    town.on_board(announced)
    assert town("leases").out.splitlines()[1].split() == [
        "clicks",
        "3",
        "3",
        "2",
        "0-3",
        "30s",
        "-",
    ]
    shown = town("leases", "clicks").out
    assert shown.endswith("3 of 3 partitions held by 1 worker, 1 more without any\n")
    view = town("leases", "clicks", "--json").json
    assert (view["held"], view["workers"], view["well"]) == (3, 2, True)


def test_the_board_of_a_group_has_no_elections(town: CommandLine) -> None:
    held(town, "0", "1", "2", owner="rabbit:7:abc")
    assert town(*CLICKS, "check").out == "all well: 3 items\n"
    assert "coordinator  none" in town(*CLICKS, "status").out
    assert town(*CLICKS, "leader").out.startswith("no elections")


def test_a_partition_that_was_taken_by_a_clock_that_was_ahead_shows_that(
    town: CommandLine,
) -> None:
    held(town, "0", owner="rabbit:7:abc")

    async def ahead(board: BoardTable) -> None:
        found, now = board.group("clicks"), await board.table.now()
        started = Merge(item_key("0"), {"start": now + timedelta(hours=2, seconds=30)}, ANY)
        await board.table.commit(found.partition("0"), [started])

    town.on_board(ahead)
    assert " 2h ahead (clock) " in town("leases", "clicks").out


def test_neither_show_nor_types_names_a_schedule_of_partitions(
    town: CommandLine, tmp_path: Path
) -> None:
    held(town, "0", owner="rabbit:7:abc")
    line = town("show", "0", "--board", "blackboard.clicks").out.splitlines()[1]
    assert line.split()[:3] == ["0", "clicks", "-"]
    jobs = tmp_path / "clicks_jobs.py"
    jobs.write_text(
        "from blackboard import pump\n\n\n"
        '@pump("clicks", partitions=3)\nasync def clicks(partition, ctx): ...\n'
    )
    assert "every" not in town("types", "--jobs", str(jobs)).out


def test_who_removes_a_partition_reads_that_its_checkpoint_is_lost(town: CommandLine) -> None:
    on_group = ("--board", "blackboard.clicks")
    town.on_board(group)
    town(*on_group, "edit", "1", "--checkpoint", "741")
    assert town(*on_group, "rm", "1", "2").out == (
        "1 is removed; its checkpoint 741 is lost: a pump that still names it begins it anew\n"
        "2 is removed\n"
    )


def test_a_partition_that_nobody_holds_is_no_alarm_for_as_long_as_a_lease(
    town: CommandLine,
) -> None:
    held(town, "0", owner="rabbit:7:abc")
    shown = town("leases", "clicks").out
    assert "1 of 3 partitions held by 1 worker, free for" in shown

    async def shorter(board: BoardTable) -> None:
        lease = Merge(group_key("clicks"), {"lease": 0.001}, ANY)
        await board.table.commit(meta_partition(board.name), [lease])

    town.on_board(shorter)
    assert town("leases", code=1).out.split()[-1] != "-"
    assert "free for" in town("leases", "clicks", code=1).out
    assert town("leases", "clicks", "--json", code=1).json["well"] is False


def test_a_paused_partition_is_no_alarm(town: CommandLine) -> None:
    async def paused(board: BoardTable) -> None:
        found, now = await group(board), await board.table.now()
        await pause(found, "0", Mark(by="ann", at=now, reason="poison"))

    town.on_board(paused)
    view = town("leases", "clicks", "--json").json
    assert (view["partitions"][0]["paused"], view["partitions"][0]["free"]) == (True, 0.0)


def test_a_group_that_is_not_there_is_refused_by_name(town: CommandLine) -> None:
    assert "group: there is no 'mail' on this board" in town.refused("leases", "mail")
    assert "group: 'a-b' is not a name" in town.refused("leases", "a-b")


@pytest.mark.parametrize(
    ("outcome", "error", "attempt", "words"),
    [
        (None, "", 1, ""),
        (None, "", 2, "taken over"),
        ("cancelled", "released for another worker", 1, "released for another worker"),
        ("cancelled", "released for another worker", 2, "released for another worker"),
        ("ok", "", 2, "taken over"),
        ("failed", "OSError: no route\nmore", 2, "OSError: no route"),
    ],
)
def test_the_last_move_is_that_of_the_present_worker(
    outcome: str | None, error: str, attempt: int, words: str
) -> None:
    moved = replace(
        item(), outcome=Outcome(outcome) if outcome else None, error=error, attempt=attempt
    )
    status = status_of(moved, None, now=NOON, resolution=0.0)
    assert last_move(status) == words


def test_watch_needs_a_terminal(town: CommandLine) -> None:
    assert "watch: needs a terminal" in town.refused("leases", "--watch")


@pytest.mark.of_each_store
def test_check_names_the_partitions_that_nobody_serves(town: CommandLine) -> None:
    assert town("check").code == 0

    async def long_ago(board: BoardTable) -> None:
        found = await group(board)
        item = await found.item("1")
        assert item is not None
        ready = item.ready - timedelta(minutes=1)
        rows = [Merge(item_key("1"), {"ready": ready}, ANY)]
        await found.table.commit(found.partition("1"), rows)

    town.on_board(long_ago)
    answer = town("check", "--json", code=1).json
    assert [(one["kind"], one["id"]) for one in answer["problems"]] == [("unowned", "clicks/1")]
    assert town("check", "--type", "shell").code == 0
    town("add", "davis", "--type", "shell", "--at", "2090-01-01")
    assert town("check", "davis", "--type", "clicks").code == 0, "partitions are left out"


def test_a_partition_that_is_done_is_named_with_what_brings_it_back(town: CommandLine) -> None:
    async def done(board: BoardTable) -> None:
        found = await group(board)
        item = await found.item("1")
        assert item is not None
        rows: list[Op] = [
            Merge(item_key("1"), {"state": "done", "ready": item.ready - timedelta(hours=1)}, ANY),
            Delete(next_key(item.ready, "1"), ANY),
        ]
        await found.table.commit(found.partition("1"), rows)

    town.on_board(done)
    remedy = "`blackboard --board blackboard.clicks run 1`"
    (problem,) = town("check", "--json", code=1).json["problems"]
    assert (problem["kind"], problem["id"]) == ("unowned", "clicks/1")
    assert remedy in problem["problem"]
    assert remedy in town("leases", code=1).out
    assert remedy in town("leases", "clicks", "--json", code=1).json["problem"]
    town("run", "1", "--board", "blackboard.clicks")
    assert town("leases").code == 0


CLICKS = ("--board", "blackboard.clicks")


@pytest.mark.cases_of_one_store("schedules are refused above the store")
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("every", "1h"),
        ("cron", "@daily"),
        ("rrule", "FREQ=DAILY"),
        ("at", "2026-12-24T18:00"),
        ("until", "2026-01-01"),
        ("max-runs", "1"),
        ("blackout", "sat-sun"),
        ("missed", "none"),
        ("jitter", "1h"),
    ],
)
def test_no_schedule_is_given_to_what_is_held(town: CommandLine, option: str, value: str) -> None:
    """It could be done by it, and no worker would serve it any more."""
    refused = f"{option.replace('-', '_')}: the partitions of blackboard.clicks are held"
    assert refused in town.refused("edit", "1", f"--{option}", value, *CLICKS)
    key = option.replace("-", "_")
    text = value if value.isdigit() else f'"{value}"'
    file = town.write(f'[[items]]\nid = "1"\ntype = "clicks"\n{key} = {text}\n', "clicks.toml")
    assert refused.replace(": ", f": {file.name}:4: ", 1) in town.refused(
        "apply", file.name, *CLICKS
    )
    assert town("show", "--json", *CLICKS).json[1]["state"] == "active"


def test_a_partition_is_not_run_with_params_of_its_own(town: CommandLine) -> None:
    """Such a run begins without the checkpoint."""
    said = town.refused("run", "1", "--set", "x=1", *CLICKS)
    assert said.startswith("params: what is held in blackboard.clicks has no runs with params")


def test_what_a_row_says_of_its_times_is_taken_back(town: CommandLine) -> None:
    async def said(board: BoardTable) -> None:
        rows = [Merge(item_key("1"), {"spec": '{"until":"2026-01-01"}'}, ANY)]
        await board.table.commit("blackboard.clicks", rows)

    town.on_board(said)
    town("edit", "1", "--description", "clicks of Keene", *CLICKS)
    town("edit", "1", "--until", "", *CLICKS)
    refused = town.refused("edit", "1", "--until", "2026-01-01", *CLICKS)
    assert "are held" in refused


@pytest.mark.parametrize("named", [("pause", "--board", CLICKS[1]), (*CLICKS, "pause", "--board")])
def test_the_board_of_a_group_is_paused_partition_by_partition(
    town: CommandLine, named: tuple[str, ...]
) -> None:
    """Its workers would go on."""
    refused = town.refused(*named)
    assert "board: blackboard.clicks has what is held" in refused
    assert "`blackboard --board blackboard.clicks pause '*'`" in refused
    town("pause", "*", *CLICKS)
    assert {one["paused"] for one in town("leases", "clicks", "--json").json["partitions"]} == {
        True
    }
    assert "was not paused" in town("resume", "--board", CLICKS[1]).out


def test_a_partition_is_of_its_groups_type(town: CommandLine) -> None:
    refused = "type: the partitions of blackboard.clicks are of the type clicks"
    assert refused in town.refused("edit", "1", "--type", "shell", *CLICKS)


def test_a_group_has_the_partitions_that_its_program_names(town: CommandLine) -> None:
    """A worker would give its pump any other, too."""
    refused = "id: blackboard.clicks has the partitions that the pump clicks names, and no others"
    assert refused in town.refused("add", "3", "--type", "clicks", *CLICKS)
    assert refused in town.refused("rename", "1", "one", *CLICKS)
    file = town.write('[[items]]\nid = "3"\ntype = "clicks"\n', "clicks.toml")
    assert refused in town("apply", file.name, "--dry-run", *CLICKS, code=2).err
    assert len(town("show", "--json", *CLICKS).json) == 3


def failed(town: CommandLine, partition: str, *, times: int = 2) -> None:
    """The pump of a partition raised, so often in a row."""
    for _ in range(times):
        (one,) = held(town, partition, owner="rabbit:7:abc")
        town.on_board(partial(_fail, held=one))


async def _fail(board: BoardTable, *, held: Claim) -> None:
    found = await group(board)
    done = Ended(outcome=Outcome.FAILED, error="OSError: no such stream")
    await release(found, [FinishedRun(claim=held, ended=done)])


def moved(town: CommandLine, partition: str, **by: timedelta) -> None:
    """Let moments of a partition be other ones."""

    async def move(board: BoardTable) -> None:
        found = await group(board)
        item = await found.item(partition)
        assert item is not None
        rows = [Merge(item_key(partition), {n: getattr(item, n) + d for n, d in by.items()}, ANY)]
        await found.table.commit(found.partition(partition), rows)

    town.on_board(move)


def test_a_partition_whose_pump_fails_again_and_again_is_named(town: CommandLine) -> None:
    held(town, "0", owner="rabbit:7:abc")
    failed(town, "1", times=9)
    (alarm,) = town("check", "--json", code=1).json["problems"]
    assert (alarm["id"], alarm["type"], alarm["kind"]) == ("clicks/1", "clicks", "failing")
    assert alarm["problem"].startswith("the pump failed after ")
    assert alarm["problem"].endswith("s: OSError: no such stream; 9 failures so far")
    words = "the pumps of 1 partition fail: 1 (failed after "
    for args in (("leases",), ("leases", "clicks")):
        said = town(*args, code=1).out
        assert words in said
        assert "9 failures so far; `blackboard --board blackboard.clicks log`)" in said
    lines = town("leases", "clicks", code=1).out.splitlines()
    assert next(one.split()[1] for one in lines if one.startswith("1 ")) == "failing"
    (view,) = town("leases", "--json", code=1).json
    assert (view["well"], view["held"]) == (False, 1)
    assert view["problem"].startswith(words)
    assert town("status", "--line").out == "blackboard: 0 items; 1 partition failing; 0 workers\n"
    assert "partitions   1 held, 0 unowned, 1 failing\n" in town("status").out
    assert town("status", "--json").json["partitions"] == {"held": 1, "unowned": 0, "failing": 1}


def test_a_pump_that_worked_for_long_and_failed_is_no_alarm_for_as_long_as_a_lease(
    town: CommandLine,
) -> None:
    failed(town, "1")
    long_ago = timedelta(minutes=-5)
    moved(town, "1", start=long_ago)
    assert town("check").code == 0
    assert town("leases").code == 0
    moved(town, "1", start=long_ago, stop=long_ago)
    (alarm,) = town("check", "--json", code=1).json["problems"]
    assert (alarm["id"], alarm["kind"]) == ("clicks/1", "unowned")
    assert alarm["problem"].startswith("a partition of clicks without a worker for 5m")
    assert town("leases", "--json", code=1).json[0]["free"] > 299
    assert "; 1 partition unowned; " in town("status", "--line").out


def test_one_failure_of_a_pump_is_no_alarm(town: CommandLine) -> None:
    failed(town, "1", times=1)
    assert town("check").code == 0
    assert town("leases").code == 0
    assert "partition" not in town("status", "--line").out


def test_a_pump_that_fails_and_runs_is_no_alarm(town: CommandLine) -> None:
    failed(town, "1", times=9)
    held(town, "1", owner="rabbit:7:abc")
    assert town("check").code == 0
    assert town("leases").code == 0


@pytest.mark.of_each_store
def test_a_failing_partition_is_acknowledged_or_paused_as_an_item_is(town: CommandLine) -> None:
    own = ("--board", "blackboard.clicks")
    failed(town, "1")
    town("ack", "1", *own)
    earlier = timedelta(seconds=-45)  # longer ago than a lease: it waits for its next try
    moved(town, "1", start=earlier, stop=earlier)
    assert town("check").code == 0
    assert town("leases").code == 0
    failed(town, "1", times=1)
    assert town("check", code=1).out.startswith("failing  clicks/1")
    town("pause", "1", *own)
    assert town("check").code == 0
    assert town("leases").code == 0


def test_a_pause_of_a_partition_is_no_time_without_a_worker(town: CommandLine) -> None:
    failed(town, "1", times=1)

    async def paused(board: BoardTable) -> None:
        found, now = await group(board), await board.table.now()
        await pause(found, "1", Mark(by="ann", at=now, reason="poison"))

    async def resumed(board: BoardTable) -> None:
        found, now = await group(board), await board.table.now()
        await resume(found, "1", Mark(by="ann", at=now, reason=""))

    town.on_board(paused)
    moved(town, "1", start=timedelta(minutes=-5), stop=timedelta(minutes=-5))
    town.on_board(resumed)
    assert town("check").code == 0


def written(
    town: CommandLine, key: str, *, partition: str = "blackboard-meta", **columns: Any
) -> None:
    """A row of the town as it is now: without columns, nothing of it can be read."""

    async def write(board: BoardTable) -> None:
        found = await read(board.table, partition, key)
        data = {**(found.data if found and columns else {}), **columns}
        op = Replace(key, data, ANY) if found else Insert(key, data)
        await board.table.commit(partition, [op])

    town.on_board(write)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({}, "has no good kind, lease"),
        ({"kind": "x"}, "has no good kind"),
        ({"lease": 1e300}, "has no good lease"),
        ({"lease": 2**62}, "has no good lease"),
        ({"lease": -30.0}, "has no good lease"),
        ({"lease": "30s"}, "has no good lease"),
        ({"version": "x"}, "has no good version"),
    ],
)
def test_a_group_whose_row_is_damaged_is_shown_with_what_is_wrong(
    town: CommandLine, columns: dict[str, Any], words: str
) -> None:
    held(town, "0", "1", "2", owner="rabbit:7:abc")
    written(town, "group:clicks", **columns)
    problem = f"the row group:clicks in blackboard-meta {words} (a worker of the group that starts"
    for args in (("leases",), ("leases", "clicks")):
        said = town(*args, code=1).out
        assert problem in said
        assert "rabbit:7" in said or said.splitlines()[1].split()[:3] == ["clicks", "3", "3"]
    (view,) = town("leases", "--json", code=1).json
    assert (view["well"], view["lease"], view["free"]) == (False, 30.0, 0.0)
    assert view["problem"].startswith(problem)
    (alarm,) = town("check", "--json", code=1).json["problems"]
    assert (alarm["id"], alarm["kind"]) == ("clicks", "damaged")
    assert alarm["problem"].startswith(problem)


def test_a_group_of_a_newer_version_says_so_and_is_no_alarm(town: CommandLine) -> None:
    written(town, "group:clicks", version=2)
    said = town("leases").out
    assert "a newer version wrote the row group:clicks in blackboard-meta (upgrade" in said
    assert town("leases", "--json").json[0]["problem"].startswith("a newer version")
    assert town("check").code == 0


@pytest.mark.parametrize("key", ["group:a.b", "group:", "group:leaders", "group:" + "x" * 61])
def test_a_row_that_names_no_group_hides_no_group(town: CommandLine, key: str) -> None:
    written(town, key, version=1, kind="pump", lease=30.0)
    said = town("leases", code=1).out
    assert f"the key of the row {key} in blackboard-meta names no group (delete it)" in said
    assert {line.split()[0] for line in said.splitlines()[1:3]} <= {"clicks", key, key[:24]}
    assert town("leases", "clicks").code == 0
    (alarm,) = town("check", "--json", code=1).json["problems"]
    assert (alarm["id"], alarm["kind"]) == (key, "damaged")


def test_a_partition_whose_row_cannot_be_read_is_named(town: CommandLine) -> None:
    written(town, "item:1", partition="blackboard.clicks", slot="zz")
    words = "the row item:1 in blackboard.clicks cannot be read (`blackboard --board"
    assert words in town("leases", code=1).out
    assert words in town("leases", "clicks", code=1).out
    (alarm,) = town("check", "--json", code=1).json["problems"]
    assert (alarm["id"], alarm["kind"]) == ("clicks/item:1", "damaged")
    assert alarm["problem"].startswith(words)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({}, "the row board in blackboard.clicks-meta has no good shards (delete it"),
        (
            {"version": "x"},
            "the row board in blackboard.clicks-meta has no good version (delete it",
        ),
        ({"shards": 2}, "the row board in blackboard.clicks-meta says 2 shards, not 1 (delete it"),
    ],
)
def test_the_own_row_of_a_groups_board_is_named(
    town: CommandLine, columns: dict[str, Any], words: str
) -> None:
    written(town, "board", partition="blackboard.clicks-meta", **columns)
    assert words in town("leases", code=1).out
    (alarm,) = town("check", "--json", code=1).json["problems"]
    assert (alarm["id"], alarm["kind"]) == ("clicks", "damaged")
