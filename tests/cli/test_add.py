"""`init` and `add`: what they make, what they say, and what they refuse without a trace."""

import stat
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from blackboard import location
from blackboard.cli import init
from blackboard.clock import SystemClock
from blackboard.model import State
from blackboard.spec import Spec, decode_spec
from blackboard.table import Etag, Op, Table
from blackboard.tables.sqlite import SqliteTable
from tests.cli.command_line import CommandLine, blackboard
from tests.support.boards import make_board

__all__ = ["blackboard"]

pytestmark = pytest.mark.of_one_store(
    "the verb itself is in tests/protocol, and test_actions.py calls it on each store"
)


def test_init_makes_a_board(blackboard: CommandLine) -> None:
    said = blackboard("init", "--shards", "4")
    assert said.out == f"made the board 'blackboard' in {blackboard.store}, with 4 shards\n"


@pytest.mark.of_sqlite("permissions of a file")
def test_a_file_is_for_its_owner_alone(blackboard: CommandLine) -> None:
    blackboard("init")
    mode = stat.S_IMODE((blackboard.folder / "blackboard.db").stat().st_mode)
    assert mode == 0o600


def test_init_again_is_fine_but_not_with_other_shards(blackboard: CommandLine) -> None:
    blackboard("init", "--shards", "4")
    again = blackboard("init").out
    assert again == f"the board 'blackboard' is in {blackboard.store} already, with 4 shards\n"
    blackboard("init", "--shards", "4")
    assert blackboard.refused("init", "--shards", "2").startswith("shards: ")
    assert blackboard.refused("init", "--shards", "0").startswith("shards: ")


@pytest.mark.of_sqlite("a file is seen at once")
@pytest.mark.parametrize("shards", ["0", "101"])
def test_init_with_shards_that_no_board_has_makes_no_store(
    blackboard: CommandLine, shards: str
) -> None:
    assert blackboard.refused("init", "--shards", shards).startswith("shards: ")
    assert not (blackboard.folder / "blackboard.db").exists()


def test_the_first_add_makes_the_board_and_says_so(blackboard: CommandLine) -> None:
    said = blackboard("add", "davis", "--type", "calendars")
    made = f"blackboard: made the board 'blackboard' in {blackboard.store}, with 1 shard\n"
    assert said.err == made
    assert said.out == "davis is added (calendars) and is due now\n"
    assert blackboard("add", "other", "--type", "calendars").err == ""


@pytest.mark.parametrize("at_once", ["init", "add"])
def test_of_two_commands_that_make_a_board_at_once_one_says_so(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch, at_once: str
) -> None:
    async def is_not_there_yet(table: Table, name: str) -> bool:
        await make_board(table, SystemClock(), name=name)
        return False

    monkeypatch.setattr(location, "is_there", is_not_there_yet)
    monkeypatch.setattr(init, "is_there", is_not_there_yet)
    if at_once == "add":
        assert blackboard("add", "davis", "--type", "calendars").err == ""
    else:
        said = blackboard("init").out
        assert said == f"the board 'blackboard' is in {blackboard.store} already, with 1 shard\n"


def test_add_finds_a_board_of_many_shards(blackboard: CommandLine) -> None:
    blackboard("init", "--shards", "16")
    blackboard("add", "a", "b", "c", "--type", "calendars")
    assert blackboard.ids() == ["a", "b", "c"]


def test_add_keeps_what_the_options_said(blackboard: CommandLine) -> None:
    blackboard.write("https://example.org/a.ics\n", "feeds.txt")
    blackboard(
        *("add", "davis", "--type", "calendars", "--cron", "0 3 * * *", "--tz", "Europe/Berlin"),
        *("--timeout", "5m", "--stale-after", "1m", "--retries", "2", "--backoff", "1s"),
        *("--jitter", "3m", "--missed", "all", "--missed-limit", "7", "--missed-after", "1h"),
        *("--set", "feeds=@feeds.txt", "--set", "window.days=90"),
    )
    item = blackboard.item("davis")
    assert decode_spec(item.spec) == Spec(
        cron="0 3 * * *",
        timezone="Europe/Berlin",
        timeout="5m",
        stale_after="1m",
        retries=2,
        backoff="1s",
        jitter="3m",
        missed="all",
        missed_limit=7,
        missed_after="1h",
        params={"feeds": "https://example.org/a.ics\n", "window": {"days": 90}},
    )
    assert (item.type, item.state, item.schedule) == ("calendars", State.ACTIVE, "cron 0 3 * * *")


@pytest.mark.parametrize(
    ("first", "slot"),
    [
        ("2030-06-01T12:00:00Z", "2030-06-01T12:00:00.000Z"),
        ("2030-06-01T12:00:00", "2030-06-01T10:00:00.000Z"),
        ("2030-06-01T12:00:00.123456+01:00", "2030-06-01T11:00:00.123Z"),
    ],
)
def test_first_is_a_time_in_the_items_zone(blackboard: CommandLine, first: str, slot: str) -> None:
    said = blackboard(
        *("add", "a", "--type", "calendars", "--every", "8h", "--first", first),
        *("--tz", "Europe/Berlin", "--json"),
    )
    assert said.json[0]["due"] == slot


def test_first_now_is_now_whatever_the_schedule(blackboard: CommandLine) -> None:
    said = blackboard("add", "a", "--type", "calendars", "--at", "2035-01-01", "--first", "now")
    assert said.out == "a is added (calendars) and is due now\n"


def test_first_next_waits_for_the_schedule(blackboard: CommandLine) -> None:
    said = blackboard(
        *("add", "a", "--type", "calendars", "--cron", "7 3 29 2 *", "--first", "next", "--json")
    )
    assert said.json[0]["due"].endswith("-02-29T03:07:00.000Z")
    assert said.json[0]["changed"] is True


@pytest.mark.parametrize(
    ("settings", "args", "now"),
    [
        ("", ["--every", "8h"], True),
        ("", ["--cron", "7 3 29 2 *"], False),
        ("", ["--rrule", "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=3;BYHOUR=4"], False),
        ("", [], True),
        ('first = "next"', ["--every", "8h"], False),
        ('first = "now"', ["--cron", "7 3 29 2 *"], True),
        ('first = "now"', ["--cron", "7 3 29 2 *", "--first", "next"], False),
        ('first = "2035-01-01"', ["--every", "8h"], False),
    ],
)
def test_the_first_run_is_that_of_the_item_then_of_its_type_then_of_its_schedule(
    blackboard: CommandLine, settings: str, args: list[str], *, now: bool
) -> None:
    blackboard.write(f"[types.feed]\n{settings}\n")
    said = blackboard("add", "a", "--type", "feed", *args).out
    assert said.startswith("a is added (feed) and is due ")
    assert said.endswith("due now\n") is now


@pytest.mark.parametrize("first", ["2h", "in 2h", "120 minutes"])
def test_first_may_be_a_time_from_now(blackboard: CommandLine, first: str) -> None:
    said = blackboard("add", "a", "--type", "feed", "--every", "8h", "--first", first).out
    assert said.endswith(("(in 2h)\n", "(in 1h 59m)\n"))


def test_a_time_may_be_a_day_in_the_zone_of_the_type(blackboard: CommandLine) -> None:
    """It is kept as the time that it means now."""
    blackboard.write('[types.feed]\ntimezone = "Asia/Tokyo"\n')
    blackboard("add", "a", "--type", "feed", "--at", "tomorrow 05:00")
    at = datetime.fromisoformat(blackboard("show", "a", "--json").json[0]["schedule"][3:])
    assert (at.hour, at.minute, at.utcoffset()) == (5, 0, timedelta(hours=9))
    assert timedelta(0) < at - datetime.now(UTC) < timedelta(days=2)
    blackboard("edit", "a", "--at", "yesterday 05:00", "--tz", "UTC")
    again = datetime.fromisoformat(blackboard("show", "a", "--json").json[0]["schedule"][3:])
    assert timedelta(days=1) < at - again < timedelta(days=3)
    assert blackboard.item("a").slot == again


def test_an_end_in_words_includes_the_day_and_is_of_the_zone_of_the_rule(
    blackboard: CommandLine,
) -> None:
    blackboard("add", "a", "--type", "feed", "--cron", "0 3 * * *", "--until", "tomorrow")
    day = (datetime.now(UTC) + timedelta(days=1)).date().isoformat()
    assert f"(until {day})" in blackboard("show", "a", "--json").json[0]["schedule"]
    rule = "DTSTART;TZID=America/New_York:20260101T090000\nRRULE:FREQ=DAILY"
    blackboard("add", "b", "--type", "feed", "--rrule", rule, "--until", "tomorrow 23:00")
    zone = ZoneInfo("America/New_York")
    end = (datetime.now(zone) + timedelta(days=1)).replace(hour=23, minute=0, second=0)
    said = f"until {end.isoformat(timespec='seconds')}"
    assert said in blackboard("show", "b", "--json").json[0]["schedule"]
    blackboard("edit", "a", "--rrule", rule, "--until", "tomorrow 23:00")
    assert said in blackboard("show", "a", "--json").json[0]["schedule"]


def test_steps_that_lead_beyond_their_field_are_pointed_out(blackboard: CommandLine) -> None:
    for told in (
        blackboard("add", "a", "--type", "feed", "--cron", "*/90 * * * *"),
        blackboard("edit", "a", "--cron", "*/90 * * * *"),
        blackboard("next", "--cron", "*/90 * * * *"),
    ):
        assert "*/90 matches the minute 0 alone; for other intervals use every" in told.err


def test_a_time_that_has_passed_is_pointed_out(blackboard: CommandLine) -> None:
    said = blackboard("add", "a", "--type", "feed", "--at", "2020-01-01T00:00Z").out
    assert said.startswith("a is added (feed) and is due now: its time was 2020-01-01 00:00:00Z (")
    said = blackboard(
        *("add", "b", "--type", "feed", "--cron", "0 3 * * *", "--missed", "none"),
        *("--first", "2020-01-01T00:00Z"),
    ).out
    missed = "b is added (feed) and has missed its time: its time was 2020"
    assert said.startswith(missed)
    days = (datetime.now(UTC) + timedelta(days=ahead) for ahead in (-1, 0, 1))
    closed = ", ".join(f"{day:%a}".lower() for day in days)
    said = blackboard(
        *("add", "c", "--type", "feed", "--cron", "0 * * * *"),
        *("--first", "2020-01-01T00:00Z", "--blackout", closed),
    ).out
    assert said.startswith("c is added (feed) and waits for the end of its blackout: its time was")


def test_a_handler_says_when_its_items_run_first(blackboard: CommandLine) -> None:
    blackboard.write(
        "from blackboard import handler\n\n"
        '@handler("feed", every="3h", first="next")\ndef feed(item, ctx):\n    pass\n',
        "mine.py",
    )
    blackboard.write('[board]\njobs = ["mine.py"]\n')
    assert "(in " in blackboard("add", "a", "--type", "feed").out
    blackboard.write('[board]\njobs = ["mine.py"]\n[types.feed]\nfirst = "now"\n')
    assert blackboard("add", "b", "--type", "feed").out.endswith("due now\n")


def test_a_rule_that_has_no_next_time_is_refused_unless_it_is_to_run_now(
    blackboard: CommandLine,
) -> None:
    over = ("--rrule", "FREQ=DAILY;UNTIL=20200101T000000Z")
    problem = blackboard.refused("add", "a", "--type", "feed", *over)
    assert problem.startswith("schedule: there is no next time")
    blackboard("add", "a", "--type", "feed", *over, "--first", "now")


NEVER = [
    ("until", ("--cron", "@daily", "--until", "2020-01-01")),
    ("until", ("--every", "1h", "--until", "2020-01-01")),
    ("until", ("--at", "2020-02-02", "--until", "2020-01-01")),
    ("blackout", ("--cron", "@daily", "--blackout", "sun-sat")),
    ("blackout", ("--cron", "0 23 * * *", "--blackout", "22:00-06:00")),
    ("blackout", ("--every", "1h", "--blackout", "mon-sun")),
]


@pytest.mark.parametrize(("field", "said"), NEVER)
def test_what_leaves_a_schedule_without_a_time_is_named(
    blackboard: CommandLine, field: str, said: tuple[str, ...]
) -> None:
    problem = blackboard.refused("add", "a", "--type", "feed", *said)
    assert problem.startswith(f"{field}: it leaves no next time")
    if said[0] == "--at":
        for first in ("2019-12-31", "now", "next"):
            problem = blackboard.refused("add", "a", "--type", "feed", *said, "--first", first)
            assert problem.startswith("until: it leaves no next time")
    elif field == "until":
        problem = blackboard.refused("add", "a", "--type", "feed", *said, "--first", "now")
        assert problem.startswith("first: ")
        assert "is after the end of the schedule" in problem
    else:
        blackboard("add", "a", "--type", "feed", *said, "--first", "now")


def test_times_are_the_stores_where_the_clock_of_this_host_is_wrong(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ahead(SystemClock):
        def now(self) -> datetime:
            return super().now() + timedelta(hours=2)

    blackboard("init")
    monkeypatch.setattr("blackboard.cli.items.SystemClock", Ahead)
    until = datetime.now(UTC) + timedelta(hours=1)
    blackboard("add", "a", "--type", "feed", "--every", "10m", "--until", until.isoformat())
    blackboard("add", "b", "--type", "feed", "--at", "in 30m")
    assert blackboard.item("b").slot < until
    blackboard("edit", "b", "--at", "in 40m")
    assert blackboard.item("b").slot < until


def test_a_type_of_the_settings_gives_the_schedule(blackboard: CommandLine) -> None:
    blackboard.write('[types.feed]\nevery = "8h"\n')
    said = blackboard("add", "a", "--type", "feed", "--first", "next", "--json")
    assert said.json[0]["schedule"] == "every 8h"
    assert "warning" not in said.err


def test_handlers_of_the_settings_are_known_types(blackboard: CommandLine) -> None:
    blackboard.write('[board]\njobs = ["mine.py"]\n')
    blackboard.write(
        "from blackboard import handler\n\n"
        '@handler("feed", every="3h")\ndef feed(item, ctx):\n    pass\n',
        "mine.py",
    )
    said = blackboard("add", "a", "--type", "feed", "--json")
    assert said.json[0]["schedule"] == "every 3h"
    assert "warning" not in said.err


def test_what_is_not_added_is_not_warned_about(blackboard: CommandLine) -> None:
    blackboard("add", "a", "--type", "calendar")
    assert blackboard.refused("add", "a", "--type", "calendar").startswith("id: 'a' is on this")


def test_jobs_that_cannot_be_loaded_are_a_warning(blackboard: CommandLine) -> None:
    blackboard.write('[board]\njobs = ["absent.module"]\n')
    said = blackboard("add", "a", "--type", "calendars", "--every", "8h")
    assert "warning: jobs 'absent.module': " in said.err
    assert blackboard.ids() == ["a"]


def test_where_jobs_cannot_be_loaded_no_item_is_due_that_may_have_a_schedule_there(
    blackboard: CommandLine,
) -> None:
    nightly = """
from blackboard import handler

@handler("nightly", cron="0 3 * * *")
def nightly(item, ctx): ...
"""
    blackboard.write('[board]\njobs = ["mine.py"]\n[[items]]\nid = "c"\ntype = "nightly"\n')
    blackboard.write(nightly, "mine.py")
    blackboard("add", "a", "b", "--type", "nightly")
    blackboard("pause", "b")
    before = blackboard.rows()
    blackboard.write(nightly + "def f(:", "mine.py")
    for command in (
        *("add c --type nightly", "edit a --tz Asia/Tokyo", "edit a --first now", "rename a d"),
        *("edit a --type nightly2", "apply"),
    ):
        refused = blackboard(*command.split(), code=2).err
        assert "may have its schedule there" in refused
    assert blackboard.rows() == before
    planned = blackboard.item("a").slot
    assert blackboard("edit", "a", "--tags", "new", "--set", "x=1", "--json").json[0]["due"]
    assert blackboard.item("a").slot == planned
    blackboard("edit", "a", "--cron", "0 4 * * *")
    blackboard("pause", "a")
    assert "no handler" not in blackboard("resume", "a").err


def test_an_unknown_type_is_a_warning_and_allowed(blackboard: CommandLine) -> None:
    said = blackboard("add", "a", "--type", "calendar")
    assert "warning: no handler for the type 'calendar' is found here" in said.err
    assert "did you mean 'calendars'?" in said.err
    assert blackboard.item("a").type == "calendar"


@pytest.mark.parametrize(
    "item_id",
    [
        *("a/b", "a\\b", "a#b", "a?b", "100%", "a b", "two\nlines", "\x1b[31mred", "'", '"'),
        *("\N{GRINNING FACE}", "x" * 512, "\N{SNOWMAN}" * 512, "..", "[x]", "naïve", "a:b", "=41"),
    ],
)
def test_any_text_is_an_id(blackboard: CommandLine, item_id: str) -> None:
    said = blackboard("add", item_id, "--type", "calendars", "--json")
    assert said.json[0]["id"] == item_id
    assert blackboard.ids() == [item_id]
    told = blackboard("pause", item_id).out
    assert told.count("\n") == 1
    assert "\x1b" not in told
    blackboard("rm", item_id)
    assert blackboard.ids() == []


def test_an_id_may_begin_with_a_dash_behind_two(blackboard: CommandLine) -> None:
    blackboard("add", "--type", "calendars", "--", "-x")
    assert blackboard.ids() == ["-x"]


BAD = [
    (["--cron", "61 * * * *"], "cron: "),
    (["--cron", "0 0 31 2 *"], "cron: "),
    (["--cron", "@never"], "cron: "),
    (["--every", "8"], "every: "),
    (["--every", "0s"], "every: "),
    (["--every", ""], "every: it is empty"),
    (["--rrule", "FREQ=SOMETIMES"], "rrule: "),
    (["--at", "someday"], "at: "),
    (["--every", "8h", "--cron", "@daily"], "cron: "),
    (["--timezone", "Mars/Olympus"], "timezone: "),
    (["--timeout", "soon"], "timeout: "),
    (["--stale-after", "1s"], "stale_after: "),
    (["--retries", "-1"], "retries: "),
    (["--missed", "some"], "missed: "),
    (["--missed-limit", "0"], "missed_limit: "),
    (["--first", "sometime"], "first: "),
    (["--every", "1h", "--jitter", "2h"], "jitter: '2h' is longer than the interval"),
    (["--first", "next"], "first: there is no schedule"),
    (["--first", ""], "first: "),
    (["--at", "2020-01-01T00:00", "--first", "next"], "first: the schedule has no next time"),
    (["--set", "days"], "set: "),
    (["--set", "a=null"], "params.a: "),
    (["--set", "a=@absent.txt"], "a: "),
    (["--set", "a=@big.txt"], "params: they are 1,048,584 bytes of JSON"),
    (["--set", "a=\udcff"], "params.a: "),
    (["--type", ""], "type: "),
    (["--type", "a,b"], "type: "),
]


@pytest.mark.of_sqlite("refused before a store is asked")
@pytest.mark.parametrize(("args", "problem"), BAD)
def test_bad_input_is_refused_by_name_and_changes_nothing(
    blackboard: CommandLine, args: list[str], problem: str
) -> None:
    blackboard.write("x" * (1 << 20), "big.txt")
    base = ["add", "new", "--type", "calendars"]
    assert blackboard.refused(*base, *args).startswith(problem)
    assert blackboard.rows() == []
    blackboard("add", "old", "--type", "calendars")
    assert blackboard.refused(*base, *args).startswith(problem)
    assert blackboard.ids() == ["old"]


@pytest.mark.parametrize("item_id", ["", "\udcff"])
def test_what_is_no_text_is_no_id(blackboard: CommandLine, item_id: str) -> None:
    assert blackboard.refused("add", item_id, "--type", "calendars").startswith("id: ")


def test_one_id_that_is_taken_refuses_them_all(blackboard: CommandLine) -> None:
    blackboard("add", "b", "--type", "calendars")
    told = blackboard.refused("add", "a", "b", "c", "--type", "calendars")
    assert told.startswith("id: 'b' is on this board already")


def test_an_id_can_be_added_again_after_its_removal(blackboard: CommandLine) -> None:
    blackboard("add", "a", "--type", "calendars")
    blackboard("rm", "a")
    blackboard("add", "a", "--type", "shell", "--every", "1h")
    assert blackboard.item("a").type == "shell"


def test_a_typo_in_the_settings_refuses_every_command(blackboard: CommandLine) -> None:
    blackboard.write("[wroker]\n")
    told = blackboard.refused("add", "a", "--type", "calendars")
    assert told.endswith("blackboard.toml:1: there is no such setting (did you mean worker?)")
    assert blackboard.rows() == []
    blackboard.write('store = "board.db"\n')
    assert "(write it below [board])" in blackboard.refused("show")


@pytest.mark.parametrize(
    "label",
    ["日本\u3000語", "\N{MAN}\N{ZERO WIDTH JOINER}\N{PERSONAL COMPUTER}", "a\xa0b"],
)
def test_a_label_is_any_line_that_can_be_seen(blackboard: CommandLine, label: str) -> None:
    said = ("--description", label, "--owner", label)
    blackboard("add", "davis", "--type", "calendars", *said)
    labels = blackboard("show", "davis", "--json").json[0]["labels"]
    assert (labels["description"], labels["owner"]) == (label, label)
    blackboard.write(blackboard("export").out, "made.toml")
    [changed] = blackboard("apply", "made.toml", "--json").json["change"]
    assert [one["field"] for one in changed["differences"]] == ["declared by"]


@pytest.mark.parametrize(
    ("label", "problem"),
    [
        ("two\nlines", "description: it holds U+000A (one line of characters that can be seen)"),
        ("a\N{RIGHT-TO-LEFT OVERRIDE}b", "description: it holds U+202E"),
        ("  ", "description: it is empty"),
        ("x" * 1_001, "description: it has 1,001 characters (1,000 at the most)"),
    ],
)
def test_what_is_no_label_is_refused_by_what_is_wrong(
    blackboard: CommandLine, label: str, problem: str
) -> None:
    said = blackboard("add", "davis", "--type", "calendars", "--description", label, code=2)
    assert problem in said.err


def test_many_items_are_added_in_one_batch(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a token for each; also those whose ids were in use before."""
    ids = [f"town-{number:02}" for number in range(40)]
    blackboard("add", ids[3], "--type", "calendars")
    blackboard("rm", ids[3])
    batches: list[int] = []
    commit = SqliteTable.commit

    async def counted(table: SqliteTable, partition: str, ops: Sequence[Op]) -> list[Etag]:
        batches.append(len(ops))
        return await commit(table, partition, ops)

    monkeypatch.setattr(SqliteTable, "commit", counted)
    said = blackboard("add", *ids, "--type", "calendars")
    assert said.out.startswith("town-00 is added (calendars) and is due now\ntown-01 is added")
    assert blackboard.ids() == ids
    assert batches == [80]
    assert blackboard.item(ids[3]).born > 0
