"""`blackboard why`, `workers`, `check` and `doctor`."""

import re
import shlex
import shutil
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from blackboard import model
from blackboard.cli.output import MOST_LINES
from blackboard.model import VERSION, Member, Outcome
from blackboard.protocol import edits, keys
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.members import announce
from blackboard.protocol.permits import Limit, take
from blackboard.protocol.rename_marks import RenameMark
from blackboard.table import ANY, Data, Delete, Merge
from blackboard.why import MORE_SLOTS
from tests.cli.command_line import CommandLine, blackboard
from tests.support.wrong_rows import break_rules

pytestmark = pytest.mark.of_one_store("what is said of a board is judged above the store")

__all__ = ["blackboard"]

FREE_AFTER = (
    "which cannot be read and is free 1m after its last change; it starts when one of them is free"
)


@pytest.fixture(name="towns")
def _towns(blackboard: CommandLine) -> CommandLine:
    blackboard("init")
    blackboard("add", "davis", "keene", "--type", "calendars", "--every", "8h")
    return blackboard


def send(towns: CommandLine, *ops: Delete | Merge, partition: str = "blackboard") -> None:
    async def commit(board: BoardTable) -> None:
        await board.table.commit(partition, ops)

    towns.on_board(commit)


def appear(
    towns: CommandLine, owner: str, types: str = "calendars", running: int = 0, slots: int = 8
) -> None:
    async def work(board: BoardTable) -> None:
        now = await board.table.now()
        member = Member(
            owner=owner,
            started=now,
            seen=now,
            slots=slots,
            running=running,
            release="0.1.0",
            types=types,
            cycle=30.0,
        )
        await announce(board, member)

    towns.on_board(work)


def fail(towns: CommandLine, item_id: str) -> None:
    towns.finish(towns.start(item_id), Outcome.FAILED, error="ValueError: boom\x1b[0m\nTraceback")


# ---- why


@pytest.mark.of_each_store
def test_why_has_a_line_for_each_fact(towns: CommandLine) -> None:
    fail(towns, "keene")
    davis, keene = towns("why", "davis", "keene").out.split("\n\n")
    headline, *facts = davis.splitlines()
    assert headline == "davis (type calendars) is due now."
    labels = ("schedule", "due", "next", "to change")
    assert all(fact.startswith(f"  {label} ") for fact, label in zip(facts, labels, strict=True))
    assert "every 8 hours" in facts[0]
    assert facts[2].endswith("no worker that takes calendars is at work to start it")
    assert r"ValueError: boom\x1b[0m" in keene.split("last run ")[1].splitlines()[0]


def test_a_command_that_is_named_finds_the_board_that_was_looked_at(towns: CommandLine) -> None:
    given = ("--store", towns.store, "--board", "blackboard")
    options = f"--store {shlex.quote(towns.store)} --board blackboard"
    assert f": `blackboard {options} worker`" in towns(*given, "why", "davis").out
    (davis,) = towns(*given, "why", "davis", "--json").json
    assert davis["facts"]["to change"].endswith(": `blackboard worker`")
    towns("pause", "davis")
    assert f"`blackboard {options} resume davis`" in towns(*given, "why", "davis").out
    resume = f"`blackboard {options} resume --board`"
    for command in (("pause", "--board"), ("show",), ("status",), ("check",), ("why", "davis")):
        assert resume in towns(*given, *command).out
    towns(*given, "resume", "--board")
    assert f"`blackboard {options} show`" in towns(*given, "why", "nothing", code=2).err
    missing = towns("show", "--store", "missing.db", code=2).err
    assert "(make one with `blackboard --store missing.db init`)" in missing


def test_remedies_name_the_program_as_it_was_called(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLACKBOARD_PROG", "./bb")
    assert "has the jobs of calendars: `./bb worker`" in towns("why", "davis").out


def test_commands_in_the_words_of_users_and_handlers_stay_as_they_are(towns: CommandLine) -> None:
    named = "see `blackboard log`"
    towns("edit", "davis", "--description", named)
    towns.finish(towns.start("davis"), Outcome.FAILED, error=named)
    for command, code in (("why", 0), ("check", 1)):
        assert named in towns("--board", "blackboard", command, "davis", code=code).out


def test_why_knows_the_workers_that_are_there(towns: CommandLine) -> None:
    appear(towns, "host:1:a")
    appear(towns, "host:2:b", types="feeds")
    assert "the one worker that takes calendars, last seen " in towns("why", "davis").out


def test_why_says_which_runs_hold_the_slots_of_all_workers(towns: CommandLine) -> None:
    appear(towns, "host:1:a", slots=1)
    appear(towns, "host:2:b", types="feeds")
    towns.start("keene", owner="host:1:a")
    (davis,) = towns("why", "davis", "--json").json
    assert davis["facts"]["next"].startswith("slots are full: held by keene; ")
    assert "--slots" in davis["facts"]["to change"]
    appear(towns, "host:3:c", slots=1)
    (davis,) = towns("why", "davis", "--json").json
    assert davis["facts"]["next"].startswith("any of the 2 workers that take calendars starts it ")


def test_why_says_which_runs_hold_the_slots_of_a_type(towns: CommandLine) -> None:
    """Also where a worker has others that are free."""
    (towns.folder / "blackboard.toml").write_text("[types.calendars]\nslots = 1\n")
    appear(towns, "host:1:a")
    towns.start("keene", owner="host:1:a")
    (davis,) = towns("why", "davis", "--json").json
    assert davis["facts"]["next"].startswith("the slots of calendars are full: held by keene; ")
    assert davis["facts"]["to change"].startswith("a higher `slots` in [types.calendars]; or ")
    appear(towns, "host:2:b")
    (davis,) = towns("why", "davis", "--json").json
    assert davis["facts"]["next"].startswith("any of the 2 workers that take calendars starts it ")


@pytest.mark.parametrize("column", ["spec", "once"])
def test_what_no_command_reads_is_told_by_why_and_doctor(towns: CommandLine, column: str) -> None:
    """The params of a run where its type is counted by one of them: no worker claims it."""
    jobs = towns.folder / "work"
    jobs.mkdir()
    handler = '@handler("calendars", key="url")\ndef f(item, ctx): ...\n'
    (jobs / "calendars.py").write_text(f"from blackboard import handler\n{handler}")
    towns.write('[board]\njobs = ["work"]\n')
    appear(towns, "host:1:a")
    send(towns, Merge(keys.item_key("davis"), {column: "{bad"}, ANY))
    (davis,) = towns("why", "davis", "--json").json
    assert davis["facts"]["next"].startswith(
        "a worker like this leaves it alone: its spec cannot be read: "
    )
    assert davis["facts"]["to change"] == "`blackboard rm davis`, and `blackboard add` it anew"
    found = towns("doctor", "--json", code=1).json["findings"]
    (told,) = [one for one in found if one["code"] == "D12"]
    assert told["problem"].startswith("no worker runs it: its spec cannot be read: ")
    assert "doctor" not in told["problem"] + davis["facts"]["next"]


def test_why_says_which_runs_hold_the_permits_of_a_type(towns: CommandLine) -> None:
    (towns.folder / "blackboard.toml").write_text("[types.calendars]\nconcurrency = 1\n")
    appear(towns, "host:1:a")

    async def permit(board: BoardTable) -> None:
        await take(board, Limit("calendars", "", 1), ["keene"], owner="host:1:a")

    towns.on_board(permit)
    (davis,) = towns("why", "davis", "--json").json
    assert davis["facts"]["next"] == (
        "calendars has 1 run at a time on the whole board: held by keene; "
        "it starts when one of them ends, or 1m after its worker has died"
    )
    assert "concurrency" in davis["facts"]["to change"]


@pytest.mark.parametrize("full", ["slots", "permits"])
def test_why_says_what_keeps_a_stale_lock_from_being_overridden(
    towns: CommandLine, full: str
) -> None:
    if full == "permits":
        (towns.folder / "blackboard.toml").write_text("[types.calendars]\nconcurrency = 1\n")
    appear(towns, "host:1:a", slots=1 if full == "slots" else 2)
    towns.start("davis", owner="host:9:dead")
    send(towns, Merge(keys.lock_key("davis"), {"stale_after": -60.0}, ANY))
    assert (
        towns("why", "davis", "--json")
        .json[0]["facts"]["lock"]
        .endswith(
            "the next walk of any worker that takes calendars overrides it and runs attempt 2"
        )
    )
    towns.start("keene", owner="host:1:a")

    async def permit(board: BoardTable) -> None:
        await take(board, Limit("calendars", "", 1), ["keene"], owner="host:1:a")

    towns.on_board(permit)
    facts = towns("why", "davis", "--json").json[0]["facts"]
    words, remedy = "slots are full: held by keene; it starts when one of them ends", MORE_SLOTS
    if full == "permits":
        words = "calendars has 1 run at a time on the whole board: held by keene; "
        words += "it starts when one of them ends, or 1m after its worker has died"
        remedy = "a higher `concurrency` in [types.calendars]"
    assert facts["lock"].endswith(f"; {words}")
    assert facts["to change"] == f"{remedy}; or cancel one of them"
    towns("pause", "davis")
    assert "`blackboard unlock davis`" in towns("why", "davis").out


@pytest.mark.parametrize("holder", ["davis", "keene"])
def test_why_of_a_stale_lock_asks_for_a_worker_where_there_is_none(
    towns: CommandLine, holder: str
) -> None:
    """Also while the permit of a run whose worker died counts, which may be its own."""
    (towns.folder / "blackboard.toml").write_text("[types.calendars]\nconcurrency = 1\n")
    towns.start("davis", owner="host:9:dead")
    send(towns, Merge(keys.lock_key("davis"), {"stale_after": -60.0}, ANY))

    async def permit(board: BoardTable) -> None:
        await take(board, Limit("calendars", "", 1), [holder], owner="host:9:dead")

    towns.on_board(permit)
    facts = towns("why", "davis", "--json").json[0]["facts"]
    assert facts["lock"].endswith(
        ": the first worker that takes calendars overrides it and runs attempt 2, "
        "but none is at work"
    )
    assert (
        facts["to change"] == "start a worker that has the jobs of calendars: `blackboard worker`"
    )
    towns("pause", "davis")
    assert "`blackboard unlock davis`" in towns("why", "davis").out


@pytest.mark.parametrize(
    ("columns", "words", "remedy"),
    [
        (
            {"version": 2},
            "which a newer version wrote; it starts when one of them is gone",
            "upgrade blackboard and its workers; without a newer worker, delete that row",
        ),
        (
            {"stale_after": 1e11},
            FREE_AFTER,
            None,
        ),
    ],
)
def test_why_names_the_row_of_a_permit_that_cannot_be_read(
    towns: CommandLine, columns: dict[str, Any], words: str, remedy: str | None
) -> None:
    (towns.folder / "blackboard.toml").write_text("[types.calendars]\nconcurrency = 1\n")
    appear(towns, "host:1:a")

    async def permit(board: BoardTable) -> None:
        await take(board, Limit("calendars", "", 1), ["keene"], owner="host:1:a")

    towns.on_board(permit)
    key = keys.permit_key("calendars", "", 0)
    send(towns, Merge(key, columns, ANY), partition="blackboard-permits")
    (davis,) = towns("why", "davis", "--json").json
    assert davis["facts"]["next"] == (
        "calendars has 1 run at a time on the whole board: held by the row "
        f"permit:calendars::00000 in blackboard-permits, {words}"
    )
    assert davis["facts"].get("to change") == remedy


def test_why_is_wrapped_where_there_is_a_width(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    lines = towns("why", "davis").out.splitlines()
    assert len(lines) > 3
    assert max(map(len, lines)) <= 60


def test_why_gives_programs_the_facts(towns: CommandLine) -> None:
    held = towns.start("davis")
    davis, keene = towns("why", "davis", "keene", "--json").json
    assert (davis["decision"], davis["running"], davis["fence"]) == ("leave", True, held.fence)
    assert davis["stale_after"] == 300
    assert (keene["decision"], keene["id"]) == ("run", "keene")
    assert davis["headline"] == "davis (type calendars) is running."
    assert davis["facts"]["started"].endswith("as attempt 1 with fence 1")


def test_why_uses_the_defaults_of_the_jobs_it_can_load(towns: CommandLine) -> None:
    jobs = towns.folder / "work"
    jobs.mkdir()
    handler = '@handler("moons", every="3h")\ndef f(item, ctx): ...\n'
    (jobs / "moons.py").write_text(f"from blackboard import handler\n{handler}")
    towns.write('[board]\njobs = ["work"]\n')
    towns("add", "luna", "--type", "moons")
    assert "every 3 hours" in towns("why", "luna").out


NEWER = "a newer version of blackboard wrote it: workers of this version leave it alone"


def raise_version(towns: CommandLine, item_id: str) -> None:
    send(towns, Merge(keys.item_key(item_id), {"version": 2}, ANY))


@pytest.mark.parametrize("state", ["waiting", "running", "paused"])
def test_an_item_of_a_newer_version_waits_for_newer_workers(towns: CommandLine, state: str) -> None:
    appear(towns, "rabbit:7:abc")
    if state == "running":
        towns.start("davis")
    elif state == "paused":
        towns("pause", "davis")
    raise_version(towns, "davis")
    told = towns("why", "davis").out
    assert f"  version    {NEWER}\n" in told
    assert "  to change  upgrade blackboard and its workers\n" in told
    assert "starts it" not in told
    assert "`blackboard" not in told
    assert towns("why", "davis", "--json").json[0]["decision"] == "leave"


def test_check_says_that_a_newer_version_wrote_what_no_worker_starts(towns: CommandLine) -> None:
    raise_version(towns, "davis")
    appear(towns, "rabbit:7:abc", types="shell")
    davis, keene = towns("check", code=1).out.splitlines()
    assert davis.startswith("unserved")
    assert davis.endswith(f": {NEWER}")
    assert keene.endswith(", and no live worker takes calendars")
    appear(towns, "fox:8:def")
    overdue = towns("check", "--overdue", "1ms", code=1).out.splitlines()
    assert [one.startswith("overdue") for one in overdue] == [True, True]
    assert [one.endswith(NEWER) for one in overdue] == [True, False]


def test_check_is_well_where_a_newer_version_has_states_of_its_own(towns: CommandLine) -> None:
    appear(towns, "rabbit:7:abc")
    newer: Data = {"version": VERSION + 1, "state": "hibernating"}
    send(towns, Merge(keys.item_key("davis"), newer, ANY))
    assert towns("check").out == "all well: 1 item\n"
    for command in ("why", "show", "run"):
        assert "a newer version wrote it: upgrade blackboard" in towns(command, "davis", code=2).err


def test_why_says_that_a_newer_version_wrote_the_token_alone(towns: CommandLine) -> None:
    appear(towns, "rabbit:7:abc")
    item = towns.item("davis")
    token = keys.next_key(item.ready, item.id)
    send(towns, Merge(token, {"version": VERSION + 1}, ANY))
    told = towns("why", "davis").out
    assert f"  version    {NEWER}\n" in told
    assert "starts it" not in told


def test_why_waits_for_a_paused_board_to_be_resumed(towns: CommandLine) -> None:
    towns("pause", "keene")
    towns("add", "over", "--type", "calendars", "--at", "2020-01-01T00:00Z", "--missed", "none")
    towns("pause", "--board")
    for workers in range(2):
        told = towns("why", "davis").out
        assert "  next       it waits until the board is resumed\n" in told
        assert "  to change  `blackboard resume --board`\n" in told
        assert "worker" not in told, f"{workers} workers take it"
        appear(towns, "rabbit:7:abc")
    assert towns("why", "davis", "--json").json[0]["decision"] == "leave"
    told = towns("why", "keene").out
    assert "  to change  `blackboard resume keene`; and `blackboard resume --board`\n" in told
    told = towns("why", "over").out
    assert "reschedules it" not in told
    assert "  next       it waits until the board is resumed\n" in told
    towns("resume", "--board")
    assert "the one worker that takes calendars, last seen " in towns("why", "davis").out


def test_why_of_what_is_not_there_is_refused(towns: CommandLine) -> None:
    assert towns.refused("why", "nobody").startswith("id: no item 'nobody'")
    assert towns("why", code=2).out == ""


# ---- workers


@pytest.mark.of_each_store
def test_workers_lists_who_is_there_and_counts_their_locks(towns: CommandLine) -> None:
    appear(towns, "rabbit:7:abc", types="calendars,shell", running=5)
    for one in ("davis", "keene"):
        towns.start(one, owner="rabbit:7:abc")
    title, line = towns("workers").out.splitlines()
    titles = "worker state started seen slots running types version"
    assert " ".join(title.split()) == titles
    ago = r"(now|\d+s ago)"
    told = rf"rabbit:7:abc +alive +{ago} +{ago} +8 +2 +calendars,shell +0\.1\.0"
    assert re.fullmatch(told, line.strip())
    (view,) = towns("workers", "--json").json
    assert (view["name"], view["host"], view["alive"]) == ("rabbit:7:abc", "rabbit", True)
    assert (view["slots"], view["running"], view["types"]) == (8, 2, ["calendars", "shell"])
    assert (view["cycle"], view["version"]) == (30.0, "0.1.0")
    assert view["started"].endswith("Z")
    assert view["seen"].endswith("Z")
    assert 0 <= view["age"] < 100


def test_no_workers_says_how_to_start_one(towns: CommandLine) -> None:
    assert towns("workers").out.startswith("no worker has announced itself: `blackboard worker")
    assert towns("workers", "--json").json == []


# ---- check


def test_check_of_a_board_in_order(towns: CommandLine) -> None:
    appear(towns, "rabbit:7:abc")
    assert towns("check").out == "all well: 2 items\n"
    assert towns("check", "--json").json == {
        "well": True,
        "items": 2,
        "board_paused": None,
        "problems": [],
    }


def test_check_refuses_a_type_that_it_has_nothing_of(towns: CommandLine) -> None:
    """A probe of a misspelled type would be green for ever."""
    appear(towns, "rabbit:7:abc")
    for named in ([], ["davis"], ["d*"]):
        words = towns.refused("check", *named, "--type", "calendar")
        assert words.startswith("type: no item has the type 'calendar'")
        assert "did you mean 'calendars'?" in words
    assert towns("check", "--type", "shell").out == "all well: 0 items\n"
    towns.write('[types.tide]\nevery = "8h"\n')
    towns("check", "--type", "tide", "--type", "calendars")
    towns("add", "toronto", "--type", "feeds", "--every", "1h")
    assert towns("check", "davis", "--type", "feeds").out == "all well: 0 items\n"


def test_check_refuses_no_type_while_the_jobs_cannot_be_read(towns: CommandLine) -> None:
    """A probe may run on a host without the packages that the handlers import."""
    appear(towns, "rabbit:7:abc")
    towns.write('[board]\njobs = ["no_such_jobs.py"]\n')
    said = towns("check", "--type", "tide")
    assert said.out == "all well: 0 items\n"
    assert "no_such_jobs.py" in said.err


@pytest.mark.of_each_store
def test_check_names_what_is_wrong(towns: CommandLine) -> None:
    towns("add", "toronto", "--type", "feeds", "--every", "1h")
    fail(towns, "keene")
    appear(towns, "rabbit:7:abc")
    towns.start("toronto", owner="rabbit:7:abc")
    send(towns, Merge(keys.lock_key("toronto"), {"stale_after": -60.0}, ANY))
    lines = towns("check", "--overdue", "1ms", code=1).out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["overdue", "davis"],
        ["failing", "keene"],
        ["stale", "toronto"],
    ]
    assert lines[1].endswith(r"1 failure in a row: ValueError: boom\x1b[0m")
    assert "rabbit:7:abc has not renewed its lock" in lines[2]
    problems = towns("check", "--overdue", "1ms", "--json", code=1).json["problems"]
    assert [(one["id"], one["kind"]) for one in problems] == [
        ("davis", "overdue"),
        ("keene", "failing"),
        ("toronto", "stale"),
    ]
    assert set(problems[0]) == {"id", "type", "kind", "since", "problem"}
    assert towns("check", "--type", "feeds", code=1).out.startswith("stale ")
    assert towns("check", "davis").out == "all well: 1 item\n"


def test_check_names_a_rename_that_was_interrupted(towns: CommandLine) -> None:
    """One that is under way is no alarm."""

    async def pause(board: BoardTable) -> None:
        now = await board.table.now()
        for item_id, minutes in (("davis", 2), ("keene", 0)):
            at = now - timedelta(minutes=minutes)
            mark = RenameMark(by="ann", at=at, reason="", to=f"new {item_id}")
            await edits.pause(board, item_id, mark)

    towns.on_board(pause)
    said = towns("check", code=1).out
    assert [line.split()[:2] for line in said.splitlines()] == [["renaming", "davis"]]
    assert "is being renamed: `blackboard rename davis 'new davis'` finishes it" in said
    assert "; while davis is there, `blackboard resume davis` and then `blackboard rm " in said
    assert "D14" in towns("doctor", code=1).out
    towns("rename", "davis", "new davis")
    assert "renam" not in towns("check", code=1).out


def test_items_of_a_newer_version_that_cannot_be_read_are_named_and_no_alarm(
    towns: CommandLine,
) -> None:
    """As while the hosts of a deployment get the new version, one after the other."""
    odd: Data = {"version": VERSION + 1, "state": "hibernating"}
    send(towns, *(Merge(keys.item_key(one), odd, ANY) for one in ("davis", "keene")))
    named = "2 items left out, which a newer version wrote: item:davis, item:keene"
    for args, code in (["show"], 0), (["check"], 0), (["export"], 1), (["export", "--json"], 1):
        said = towns(*args, code=code)
        assert f"{named} (upgrade blackboard)" in " ".join(said.err.split()), args
        assert "cannot be read" not in said.err + said.out


@pytest.mark.parametrize("nothing", ["0", "0s", "00 ms"])
def test_with_no_grace_all_that_is_ready_is_overdue(towns: CommandLine, nothing: str) -> None:
    towns("add", "later", "--type", "feeds", "--every", "1h", "--first", "2099-01-01")
    problems = towns("check", "--overdue", nothing, "--json", code=1).json["problems"]
    assert [(one["id"], one["kind"]) for one in problems] == [
        ("davis", "overdue"),
        ("keene", "overdue"),
    ]
    assert towns("check", "later", "--overdue", nothing).out == "all well: 1 item\n"


def test_what_is_due_and_taken_by_no_live_worker_is_unserved(towns: CommandLine) -> None:
    towns("add", "later", "--type", "feeds", "--every", "1h", "--first", "2099-01-01")
    appear(towns, "rabbit:7:abc", types="shell")
    lines = towns("check", code=1).out.splitlines()
    assert [line.split()[:2] for line in lines] == [["unserved", "davis"], ["unserved", "keene"]]
    assert lines[0].endswith(", and no live worker takes calendars")
    (first, _) = towns("check", "--overdue", "1ms", "--json", code=1).json["problems"]
    assert first["kind"] == "overdue"
    assert first["problem"].endswith(", and no live worker takes calendars")


def test_a_run_whose_worker_is_silent_is_named_before_its_lock_is_stale(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    appear(towns, "rabbit:7:abc")
    towns.start("davis", owner="fox:8:def")
    towns.start("keene", owner="rabbit:7:abc")
    assert towns("check").code == 0
    assert "last seen" not in towns("why", "keene").out
    assert towns("show", "keene", "--json").json[0]["silent"] is False
    monkeypatch.setattr(model, "LOST_AFTER", -1.0)
    assert [one["silent"] for one in towns("show", "--json").json] == [False, True]
    assert [one["silent"] for one in towns("why", "*", "--json").json] == [False, True]
    assert re.search(r" silent \d+(\.\d)?s ", towns("show", "keene").out)
    (line,) = towns("check", code=1).out.splitlines()
    assert line.startswith("silent   keene  rabbit:7:abc was last seen ")
    assert "last seen " in towns("why", "keene").out
    assert "last seen" not in towns("why", "davis").out, "no row says when"


@pytest.mark.parametrize("bad", ["", "-0s", "0x", "-1m"])
def test_a_grace_that_is_no_duration_is_refused(towns: CommandLine, bad: str) -> None:
    assert towns.refused("check", f"--overdue={bad}").startswith("overdue: ")


def test_what_is_paused_is_nobodys_alarm(towns: CommandLine) -> None:
    appear(towns, "rabbit:7:abc")
    fail(towns, "keene")
    towns("check", code=1)
    towns("pause", "keene", "--reason", "we know")
    assert towns("check").code == 0
    towns("edit", "keene", "--at", "2020-01-01T00:00Z")
    assert towns("show", "keene", "--json").json[0]["state"] == "done"
    assert towns("check").code == 0


@pytest.mark.of_sqlite("a damaged file")
def test_a_probe_can_tell_a_store_that_cannot_be_read_from_an_alarm(
    blackboard: CommandLine,
) -> None:
    (blackboard.folder / "blackboard.db").write_bytes(b"no database" * 1000)
    for command in ("check", "doctor", "show", "log", "workers"):
        said = blackboard(command, code=2)
        assert said.err.startswith("blackboard: ")
        assert said.out == ""


# ---- doctor


def break_davis(towns: CommandLine) -> None:
    item = towns.item("davis")
    send(towns, Delete(keys.next_key(item.ready, "davis"), ANY))


def test_doctor_of_a_healthy_board(towns: CommandLine) -> None:
    towns.start("keene")
    towns("rename", "davis", "woodland")
    assert towns("doctor").out == (
        "clean: 2 items, 1 tombstone, 1 waiting token, 1 lock, 0 runs "
        f"in {towns.store} (version 1)\n"
    )
    said = towns("doctor", "--json").json
    assert (said["clean"], said["findings"]) == (True, [])
    assert (said["items"], said["tombstones"]) == (2, 1)
    assert (said["items"], said["waiting"], said["locks"], said["runs"]) == (2, 1, 1, 0)


def test_check_and_doctor_name_the_first_of_many_that_have_one_problem(towns: CommandLine) -> None:
    towns("add", *(f"town-{number}" for number in range(30)), "--type", "feed", "--every", "1h")
    for item_id in towns.ids():
        towns.set_back(item_id, timedelta(days=1))
    for command, code in (("doctor", 0), ("check", 1)):
        lines = towns(command, code=code).out.splitlines()
        assert len([line for line in lines if " town-" in line]) <= MOST_LINES
        assert any(line.split(" ", 1)[1].lstrip().startswith("... and 12 more") for line in lines)
    found = towns("doctor", "--json").json["findings"]
    assert len([one for one in found if one["code"] == "D7"]) == 32


@pytest.mark.of_each_store
def test_doctor_finds_and_repairs(towns: CommandLine) -> None:
    break_davis(towns)
    said = towns("doctor", code=1)
    assert said.out.startswith("D1      davis  waits, but has no token")
    assert said.out.splitlines()[-1].startswith("1 finding: ")
    (finding,) = towns("doctor", "--json", code=1).json["findings"]
    assert (finding["code"], finding["subject"], finding["repaired"]) == ("D1", "davis", False)
    said = towns("doctor", "--repair")
    assert said.out.splitlines()[0].endswith("[repaired]")
    assert said.out.splitlines()[-1].startswith("clean, 1 repaired: ")
    assert towns("doctor", "--json").json["findings"] == []
    towns.start("davis")


def test_doctor_asks_the_jobs_for_their_handlers(towns: CommandLine) -> None:
    jobs = towns.folder / "work"
    jobs.mkdir()
    handler = '@handler("moons", every="3h")\ndef f(item, ctx): ...\n'
    (jobs / "moons.py").write_text(f"from blackboard import handler\n{handler}")
    said = towns("doctor", "--jobs", "work", code=1).out
    assert said.startswith("types   calendars  no handler here, no worker that takes it")
    assert towns.refused("doctor", "--jobs", "nothing").startswith("jobs 'nothing'")
    appear(towns, "rabbit:7:abc")
    towns("doctor", "--jobs", "work")


def test_a_schedule_that_cannot_be_computed_is_named_and_hides_no_other_item(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for item_id in ("odd", "runs"):
        towns("add", item_id, "--type", "calendars", "--rrule", "FREQ=DAILY;BYHOUR=4")
    towns.start("runs")
    break_rules(monkeypatch)
    why = "cannot be computed: IndexError('list index out of range')"
    waits = " ".join(towns("why", "odd").out.split())
    assert "leaves it alone: schedule: the times of" in waits
    assert "to change mend that in the settings or `blackboard edit` the item" in waits
    assert why in " ".join(towns("why", "runs").out.split())
    for flags in ([], ["--repair"]):
        found = " ".join(towns("doctor", *flags, code=1).out.split())
        for item_id in ("odd", "runs"):
            assert f" {item_id} no worker runs it: schedule: the times of" in found
    said = towns("next", "-n", "9")
    assert "davis" in said.out
    assert why in said.err
    assert towns.refused("next", "odd").startswith("schedule: odd: the times of")
    assert "davis" in towns("show").out
    assert towns("check", code=1).out.count(why) == 2
    towns("cost")
    towns("status")


@pytest.mark.parametrize("spec", ['{"timezone":"Nowhere/Land","every":"1h"}', "oops"])
def test_settings_that_cannot_be_computed_are_told_and_stop_nobody(
    towns: CommandLine, spec: str
) -> None:
    item = towns.item("davis")
    send(
        towns,
        Merge(keys.item_key("davis"), {"spec": spec}, ANY),
        Merge(keys.next_key(item.ready, "davis"), {"spec": spec}, ANY),
    )
    assert "a worker like this leaves it alone: " in towns("why", "davis").out
    assert towns("why", "davis", "--json").json[0]["decision"] == "leave"
    assert "no worker runs it: " in towns("doctor", code=1).out
    towns("show")
    towns("show", "--json")


@pytest.mark.of_sqlite("the disk of its file")
def test_a_disk_that_has_no_room_is_an_alarm(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nothing is said until items are overdue, and then not why."""
    blackboard("init")
    for command in ("check", "doctor"):
        assert "disk" not in blackboard(command).out
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=200_000))
    for command in ("check", "doctor"):
        assert "has 0.2 MB left, and the log" in " ".join(blackboard(command, code=1).out.split())
