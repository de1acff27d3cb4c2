"""Bad input: one line that names what is wrong and what to do, exit code 2, and nothing changed.

Here arguments, settings and jobs; damaged files and bad disks are in `test_bad_files.py`.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress

import click
import pytest

from blackboard.cli import group
from tests.cli.command_line import CommandLine, blackboard

__all__ = ["blackboard"]

pytestmark = pytest.mark.of_one_store("messages are the same above any store")

HELLO = """
from blackboard import handler


@handler("hello", every="8h")
def hello(item, ctx):
    return {"greeted": item.id}
"""


@pytest.fixture(name="town")
def _town(blackboard: CommandLine) -> CommandLine:
    """A board with an item, and a handler for it."""
    (blackboard.folder / "jobs").mkdir()
    blackboard.write(HELLO, "jobs/hello.py")
    blackboard("add", "davis", "--type", "hello", "--every", "8h", "--set", "days=90")
    return blackboard


# ---- arguments

SCHEDULES = {
    "a cron field out of range": (["--cron", "61 * * * *"], "cron: '61' is not a minute", "0-59"),
    "cron with too few fields": (["--cron", "0 3 *"], "cron: '0 3 *' has 3 fields", "write five"),
    "cron that never matches": (["--cron", "0 0 31 2 *"], "cron: '0 0 31 2 *' never", "name a day"),
    "a zone that is none": (["--tz", "Mars/Base"], "timezone: there is no zone", "Europe/Berlin"),
    "a zone that is a path": (["--tz", "../../etc/passwd"], "timezone: ", "an IANA name"),
    "a duration without unit": (["--every", "8"], "every: '8' has no unit", "8s"),
    "a duration of nothing": (["--every", "0s"], "every: '0s'", "90s"),
    "a duration before time": (["--every", "-5m"], "every: '-5m' is not a duration", "90s"),
    "a timeout that is not a duration": (["--timeout", "soon"], "timeout: 'soon'", "90s"),
    "a lease too short": (["--stale-after", "1s"], "stale_after: '1s' is too short", "3s"),
    "a rule that is none": (["--rrule", "FREQ=SOMETIMES"], "rrule: FREQ=SOMETIMES", "DAILY"),
    "a time that is none": (["--at", "someday"], "at: 'someday' is not a time", "2026-"),
    "two schedules": (["--every", "1h", "--cron", "@daily"], "cron: an item has one", "keep one"),
    "fewer than no retries": (["--retries", "-1"], "retries: -1 is out of range", "0 to 10000"),
    "a policy that is none": (["--missed", "some"], "missed: 'some'", "one, all or none"),
}
PARAMS = {
    "a param without value": (["--set", "days"], "set: 'days' is not KEY=VALUE", "as in --set"),
    "a param without key": (["--set", "=1"], "set: '' is not a key", "a name"),
    "a param from no file": (["--set", "feeds=@none.txt"], "feeds: 'none.txt': No such", "@ is"),
    "params of a MiB": (
        ["--set", "text=@mib.txt"],
        "params: they are 1,048,",
        "put them in a file",
    ),
    "params no row holds": (["--set", "text=@100k.txt"], "params: they are 100,0", "put them in a"),
}
BOTH = SCHEDULES | PARAMS

NEW = {
    "no id": (["", "--type", "hello"], "id: it is empty", "give the item a name"),
    "an id that is not text": (["\udcff", "--type", "hello"], "id: ", "use another"),
    "an id with a blank before it": ([" x", "--type", "hello"], "id: ' x' has blanks", "leave"),
    "an id of a blank": ([" ", "--type", "hello"], "id: ' ' has blanks", "leave them out"),
    "an id that looks like another": (
        ["cafe\N{COMBINING ACUTE ACCENT}", "--type", "hello"],
        "id: ",
        r"'caf\xe9' is",
    ),
    "an id like an option": (["-dash", "--type", "hello"], "No such option '-d'", "after --"),
    "an id that is a glob": (["*", "--type", "hello"], "id: '*' would mean other", "leave out *"),
    "an id that is a label": (["tag:eu", "--type", "hello"], "id: 'tag:eu' would", "tag:"),
    "an id that is a state": (["state:a", "--type", "hello"], "id: 'state:a' would", "state:"),
    "an id that is taken": (["davis", "--type", "hello"], "id: 'davis' is on this", "edit"),
    "a type that is no word": (["x", "--type", "a,b"], "type: ", "a short word"),
    "a first time that is none": (["x", "--type", "hello", "--first", "soon"], "first: ", "2026-"),
}

VERBS = {
    "an unknown command": (["shwo"], "No such command 'shwo'", "Did you mean 'show'?"),
    "an unknown option": (["show", "--bogus"], "No such option '--bogus'", "`blackboard show"),
    "an option that is nearly one": (["add", "x", "--evry", "8h"], "No such option", "'--every'"),
    "no argument": (["rm"], "Missing argument 'ID...'", "`blackboard rm --help`"),
    "an item that is not there": (["pause", "nobody"], "id: no item 'nobody'", "`blackboard show"),
    "a glob that matches nothing": (["rm", "x*"], "id: no item matches 'x*'", "`blackboard show"),
    "no slots": (["worker", "--slots", "0"], "Invalid value for '--slots': 0 is not", "1<=x"),
    "fewer than no slots": (["worker", "--slots", "-3"], "Invalid value for '--slots'", "1<=x"),
    "a type without handler": (
        ["worker", "--jobs", "jobs", "--types", "hello, helo"],
        "types: no handler for 'helo'",
        "there are handlers for: hello",
    ),
    "a demo for programs": (["--json", "demo"], "json: the demo is", "leave it out"),
    "types that name none": (
        ["worker", "--jobs", "jobs", "--types", " ,"],
        "types: it names none",
        "leave it out",
    ),
    "no handlers": (["worker"], "jobs: no handlers", "--jobs"),
    "several workers without handlers": (["worker", "--processes", "3"], "jobs: no", "--jobs"),
    "jobs that are not there": (
        ["worker", "--jobs", "jbos"],
        "jobs 'jbos': is not a folder or file in",
        "shipped:",
    ),
    "a cycle of nothing": (["worker", "--cycle", "0s", "--jobs", "jobs"], "cycle: '0s'", "90s"),
    "once and for all": (["worker", "--once", "--until-idle"], "--once and --until-idle", "--help"),
    "a store of an unknown kind": (["--store", "mysql:x", "show"], "store: no store", "sqlite:"),
    "a store without a path": (["--store", "", "show"], "store: it is empty", "leave it out"),
    "a store that ends with the command": (
        ["--store", "memory:", "show"],
        "store: memory:",
        "path",
    ),
    "a store that ends with the command, made": (
        ["--store", "memory:", "init"],
        "store: memory:",
        "path",
    ),
    "a store in no folder": (["--store", "no/b.db", "init"], "no folder ", "make it first"),
    "a board that is not there": (["--board", "towns", "show"], "board: no board", "towns init"),
    "a board whose name is none": (["--board", "a-b", "init"], "board: 'a-b'", "letters, digits"),
    "a board without a name": (["--board", "", "show"], "board: it is empty", "leave it out"),
    "a board after it without one": (["rm", "davis", "--board", ""], "board: it is empty", "leave"),
    "a whole board without a name": (["pause", "--board", ""], "board: it is empty", "leave"),
    "other shards": (["init", "--shards", "4"], "shards: ", "1"),
    "no settings": (["--config", "none.toml", "show"], "config: ", "name a file that can be read"),
    "settings without a name": (["--config", "", "show"], "config: it is empty", "leave it out"),
    "settings without a name, after the command": (
        ["show", "--config", ""],
        "config: it is empty",
        "leave it out",
    ),
    "a store that is a device": (
        ["--store", "/dev/null", "show"],
        "/dev/null is a device",
        "name a file",
    ),
    "a watch without terminal": (["show", "--watch"], "watch: needs a terminal", "--json"),
}

Case = tuple[Sequence[str], str, str]


def refused(town: CommandLine, args: Sequence[str], begin: str, remedy: str) -> None:
    told = town.refused(*args)
    assert told.startswith(begin)
    assert remedy in told.removeprefix(begin)
    assert "Traceback" not in told


@pytest.mark.of_sqlite("refused before a store is asked")
@pytest.mark.parametrize("verb", ["add", "edit"])
@pytest.mark.parametrize("case", BOTH.values(), ids=BOTH.keys())
def test_what_an_item_cannot_be_run_with(town: CommandLine, verb: str, case: Case) -> None:
    town.write("x" * (1 << 20), "mib.txt")
    town.write("x" * 100_000, "100k.txt")
    options, begin, remedy = case
    item = ["new", "--type", "hello"] if verb == "add" else ["davis"]
    refused(town, [verb, *item, *options], begin, remedy)


@pytest.mark.of_sqlite("refused before a store is asked")
@pytest.mark.parametrize("case", NEW.values(), ids=NEW.keys())
def test_what_cannot_be_an_item(town: CommandLine, case: Case) -> None:
    args, begin, remedy = case
    refused(town, ["add", *args], begin, remedy)


@pytest.mark.parametrize("case", VERBS.values(), ids=VERBS.keys())
def test_what_cannot_be_done(town: CommandLine, case: Case) -> None:
    town("add", "paused", "--type", "hello")
    town("pause", "paused")
    args, begin, remedy = case
    refused(town, args, begin, remedy)


@pytest.mark.of_sqlite("refused before a store is asked")
@pytest.mark.parametrize(
    "args",
    [
        ["log", "--since", ""],
        ["log", "--until", ""],
        ["log", "--grep", ""],
        ["show", "--type", "hello", "--type", ""],
        ["run", "davis", "--wait", "--timeout", ""],
        ["next", "--every", ""],
        ["worker", "--cycle", ""],
        ["cost", "--cycle", ""],
        ["serve", "--listen", ""],
        ["serve", "--user-header", ""],
    ],
    ids=" ".join,
)
def test_an_option_without_a_text_is_refused(town: CommandLine, args: Sequence[str]) -> None:
    """As where a script hands over a variable that is not set."""
    refused(town, args, f"{args[-2].lstrip('-')}: it is empty", "leave it out")


def numbers() -> Iterator[tuple[str, click.Parameter]]:
    """The options of all commands whose values are numbers, each with its command."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        for param in command.params:
            with suppress(click.BadParameter):
                if type(param.type.convert("10", param, context)) in {int, float}:
                    yield name, param


@pytest.mark.parametrize("text", ["1_0", " 10", "10 ", "\u0661\u0660", "0xa", "1e1", "nan", "inf"])
def test_a_number_is_what_a_person_types_as_one(text: str) -> None:
    """`int` and `float` of Python take more."""
    found = [*numbers()]
    assert {"add --retries", "bench --seconds", "simulate --hours", "worker --slots"} <= {
        f"{command} {param.opts[0]}" for command, param in found
    }
    for command, param in found:
        with pytest.raises(click.BadParameter, match=r"is not a valid (whole )?number"):
            raise AssertionError(command, param.name, param.type.convert(text, param, None))


@pytest.mark.of_sqlite("refused before a store is asked")
@pytest.mark.parametrize("text", ["1_0", " 10", "\u0661\u0660", "1e1", "nan"])
def test_a_price_and_the_seconds_of_a_watch_are_numbers_as_a_person_types_them(
    town: CommandLine, text: str
) -> None:
    refused(town, ["cost", "--price", text], f"price: {text!r} is not a price", "US dollars")
    refused(town, ["show", "--watch", text, "davis"], "watch: ", "say the seconds")


@pytest.mark.of_sqlite("no store is asked")
def test_a_number_need_not_begin_with_a_nought(town: CommandLine) -> None:
    assert town("cost", "--price", ".036").out == town("cost", "--price", "0.036").out


@pytest.mark.of_sqlite("refused before a store is asked")
@pytest.mark.parametrize("verb", ["pause", "resume", "ack", "cancel", "unlock", "run", "rm"])
def test_a_reason_that_no_row_can_have(town: CommandLine, verb: str) -> None:
    for subject in ["davis", "--board"] if verb in {"pause", "resume"} else ["davis"]:
        said = [verb, subject, "--reason"]
        refused(town, [*said, "a\udcff"], "reason: 'a\\udcff' is not UTF-8 text", "use another")
        refused(town, [*said, "x" * 1001], "reason: it has 1,001 characters", "1,000")


def test_one_bad_id_refuses_all(town: CommandLine) -> None:
    for verb in (["add", "--type", "hello"], ["edit", "--every", "2h"], ["rm"], ["pause"], ["run"]):
        others = ["new", "davis"] if verb[0] == "add" else ["davis", "nobody"]
        town.refused(*verb, *others)


def test_an_unknown_type_is_allowed_with_a_warning(town: CommandLine) -> None:
    said = town("add", "x", "--type", "hallo")
    assert said.err.startswith("blackboard: warning: no handler for the type 'hallo' is found here")
    assert said.err.count("\n") == 1
    assert town.item("x").type == "hallo"


def test_without_a_board_only_what_makes_one_makes_one(blackboard: CommandLine) -> None:
    for args in (["show"], ["log"], ["rm", "x"], ["check"], ["doctor"], ["workers"], ["export"]):
        assert "`blackboard init`" in blackboard.refused(*args)
    assert list(blackboard.folder.iterdir()) == []


# ---- settings

TYPOS = {
    "a section": ("[wroker]\nslots = 4", "wroker: ", ":1: ", "did you mean worker?"),
    "a setting": ('[board]\n\nstroe = "x.db"', "stroe: ", ":3: ", "did you mean store?"),
    "a setting of a type": ('[types.hello]\nevrey = "8h"', "evrey: ", ":2: ", "mean every?"),
    "a setting of an item": (
        '[[items]]\nid = "a"\ntype = "hello"\ncorn = "@daily"',
        "corn: ",
        ":4: ",
        "did you mean cron?",
    ),
    "no TOML": ("[board\n", "config: ", ":1: ", "mend the TOML"),
    "a number of too many digits": (
        "slots = " + "9" * 5000,
        "config: ",
        ": a number has",
        "mend the TOML",
    ),
    "a text for a number": ('[worker]\nslots = "4"', "slots: ", ":2: ", "leave out the quotes"),
    "a time without quotes": (
        '[[items]]\nid = "a"\ntype = "hello"\nevery = 2027-01-01T00:00:00',
        "every: ",
        ":4: it is a time, not text",
        "put it in quotes",
    ),
    "a password": ('[redis]\nurl = "redis://:pw@h/0"', "url: ", ":2: it holds a", "REDIS_URL"),
    "no slots": ("[worker]\nslots = 0", "slots: ", ":2: 0 is too few", "1 or more"),
    "no slots of a type": ("[types.hello]\nslots = -1", "slots: ", ":2: -1 is too few", "1 or"),
    "a bad cycle": ('[worker]\n# so\ncycle = "soon"', "cycle: ", ":3: 'soon'", "90s"),
    "a bad cron": (
        '[[items]]\nid = "a"\ntype = "hello"\ncron = "61 * * * *"',
        "cron: ",
        ":4: '61' is not a minute",
        "0-59",
    ),
    "an id twice": (
        '[[items]]\nid = "a"\ntype = "hello"\n[[items]]\nid = "a"\ntype = "hello"',
        "id: ",
        ":5: 'a' is declared twice",
        "of its own",
    ),
}


@pytest.mark.of_sqlite("refused before a store is asked")
@pytest.mark.parametrize("case", TYPOS.values(), ids=TYPOS.keys())
@pytest.mark.parametrize("command", ["show", "apply", "worker"])
def test_a_slip_in_the_settings_names_its_line(
    town: CommandLine, command: str, case: tuple[str, str, str, str]
) -> None:
    text, field, place, remedy = case
    town.write(text)
    told = town.refused(command)
    assert told.startswith(field)
    assert f"blackboard.toml{place}" in told
    assert remedy in told


# ---- handlers

MODULES = {
    "a slip of syntax": ("def f(:\n", "SyntaxError", "bad.py:1"),
    "an import of nothing": ("import os\nimport nowhere_at_all\n", "No module named", "bad.py:2"),
    "an end of the program": ("raise SystemExit(3)\n", "SystemExit: 3", "bad.py:1"),
    "no handler": ("x = 1\n", "there is no handler in it", "mark one with @handler"),
    "two of one type": (
        f"{HELLO}{HELLO.replace('def hello', 'def other')}",
        "the type 'hello' has two handlers",
        "bad.py:12",
    ),
    "a bad default": (HELLO.replace("8h", "8"), "every: '8' has no unit", "8s"),
}


@pytest.mark.of_sqlite("refused before a store is asked")
@pytest.mark.parametrize("case", MODULES.values(), ids=MODULES.keys())
def test_jobs_that_cannot_be_loaded_name_the_place(
    town: CommandLine, case: tuple[str, str, str]
) -> None:
    text, problem, place = case
    town.write(text, "bad.py")
    told = town.refused("worker", "--jobs", "bad.py", "--once")
    assert told.startswith("jobs")
    assert problem in told
    assert place in told


def test_settings_whose_link_leads_nowhere_are_refused(town: CommandLine) -> None:
    (town.folder / "blackboard.toml").symlink_to(town.folder / "not-mounted.toml")
    for args in (["show"], ["add", "new", "--type", "hello"], ["worker", "--init"]):
        refused(town, args, "config: ", "name a file that can be read")


def test_a_declared_store_without_a_name_is_not_the_usual_one(
    town: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BLACKBOARD_STORE", raising=False)
    town.write('[board]\nstore = ""\n')
    assert town.refused("show").startswith("store: it is empty in [board]")
