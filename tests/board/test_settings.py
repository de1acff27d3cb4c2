"""The settings file is read whole and refused whole, with the line of what is wrong."""

import tomllib
import tracemalloc
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from blackboard.display.toml_text import line_of
from blackboard.errors import BadInput
from blackboard.handlers.handler import Handler, Source
from blackboard.location import Location
from blackboard.notify.settings import NotifyTable, RouteTable
from blackboard.settings import (
    BoardSettings,
    ItemTable,
    RedisTable,
    Settings,
    TypeTable,
    WorkerTable,
    find,
    load_settings,
    parse_settings,
    resolver,
)
from blackboard.spec import Spec, encode_spec
from tests.support.settings_page import described

WHOLE = """
[board]
store = "blackboard.db"
name = "towns"
jobs = ["jobs", "calendars"]
history = 20
history_age = "30d"

[worker]
cycle = "30s"
slots = 4
grace = "0s"
types = ["calendars"]

[types.calendars]
every = "8h"
stale_after = "2m"
slots = 3
fenced = false

[jobs.calendars]
allow = ["127.0.0.1"]

[[items]]
id = "westlafcals"
type = "calendars"
timezone = "America/Indiana/Indianapolis"
params = { feeds = ["https://example.org/a.ics"], out = "out" }

[[items]]
id = "davis"
type = "calendars"
cron = "0 3 * * *"
first = "next"
"""


def write(folder: Path, text: str) -> Path:
    file = folder / "blackboard.toml"
    file.write_text(dedent(text), encoding="utf-8")
    return file


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(BadInput) as caught:
        load_settings(write(folder, text))
    return str(caught.value).replace(f"{folder}/", "")


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, WHOLE))
    assert settings.board.name == "towns"
    assert settings.worker.slots == 4
    assert settings.types["calendars"].slots == 3
    assert settings.jobs["calendars"] == {"allow": ["127.0.0.1"]}
    assert [item.id for item in settings.items] == ["westlafcals", "davis"]
    assert settings.items[1].spec() == Spec(cron="0 3 * * *")


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    assert find(None, folder=tmp_path) == (Settings(), tmp_path)


def test_paths_start_from_the_folder_of_a_named_file(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    write(inner, WHOLE)
    settings, folder = find("inner/blackboard.toml", folder=tmp_path)
    assert (settings.board.name, folder) == ("towns", inner.resolve())


BAD = [
    ("a typo names what was meant", '[worker]\ncycel = "1m"', "cycel", 2, "did you mean cycle?"),
    ("an unknown table", "[wroker]\nslots = 1", "wroker", 1, "did you mean worker?"),
    ("a typo in a type", '[types.a]\n\nevry = "1h"', "evry", 3, "did you mean every?"),
    ("a typo in an item", '[[items]]\nid = "a"\ntyp = "t"', "typ", 3, "did you mean type?"),
    ("an option of an item", '[[items]]\nid = "a"\ntz = "UTC"', "tz", 3, "did you mean timezone?"),
    ("an option of a type", '[types.a]\ntz = "UTC"', "tz", 2, "did you mean timezone?"),
    (
        "a param beside the settings of its item",
        '[[items]]\nid = "a"\ngreeting = "x"',
        "greeting",
        3,
        "for its handler, params = { greeting = ... }",
    ),
    (
        "a param that another table has, too",
        '[[items]]\nid = "a"\ncommand = ["x"]',
        "command",
        3,
        "for its handler, params = { command = ... }",
    ),
    (
        "a setting of its type in an item",
        '[[items]]\nid = "a"\nslots = 2',
        "slots",
        3,
        "write it below [types.NAME]",
    ),
    ("an item's in a type", '[types.a]\nid = "a"', "id", 2, "write it below [[items]]"),
    ("a list above its table", 'jobs = ["jobs"]', "jobs", 1, "write it below [board]"),
    ("a list of tables", "[[worker]]\nslots = 1", "worker", 1, "one bracket: [...]"),
    ("a list of types above its table", 'types = ["a"]', "types", 1, "write it below [worker]"),
    ("no hint for nonsense", "[worker]\nzzzz = 1", "zzzz", 2, "known here: cycle, slots"),
    ("a missing type", '\n[[items]]\nid = "a"', "type", 2, "it is missing (add"),
    (
        "a missing id",
        '[[items]]\nid="a"\ntype="t"\n[[items]]\ntype = "t"',
        "id",
        4,
        "it is missing",
    ),
    ("a number for a duration", "[worker]\nslots = 2\ncycle = 60", "cycle", 3, 'as in "90s"'),
    ("a half for a number", "[worker]\nslots = 1.5", "slots", 2, "(write a whole number)"),
    ("a number for a switch", "[board]\ncoordinator = 1", "coordinator", 2, "write true or false"),
    ("a number in a list", '[board]\njobs = ["a", 1]', "jobs[1]", 2, "put it in quotes"),
    ("a number for a route", "[notify]\nroutes = [1]", "routes[0]", 2, "write a table, as in {"),
    ("a calendar that is not a list", "[calendars]\na = []\nb = 3", "b", 3, "put it in brackets"),
    ("text for a number", '[worker]\nslots = "8"', "slots", 2, "leave out the quotes"),
    (
        "a wrong value in a type",
        '[types.a]\n[types.b]\nretries = "x"',
        "retries",
        3,
        "whole number",
    ),
    ("a type that is no table", "[types]\na = 1", "a", 2, "not a table"),
    ("a job that is no table", "[jobs]\na = 1", "a", 2, "not a table"),
    ("text for a list", '[board]\njobs = "jobs"', "jobs", 2, "put it in brackets"),
    ("a table for a list", '[items]\nid = "a"', "items", 1, "[[...]]"),
    ("a bad duration", '[worker]\ncycle = "60"', "cycle", 2, "no unit"),
    ("a bad history age", '[board]\nhistory_age = "x"', "history_age", 2, "not a duration"),
    ("no history", "[board]\nhistory = 0", "history", 2, "too few"),
    ("a bad board name", '[board]\nname = "a-b"', "board", 2, "not a name for a board"),
    ("no slots", "[worker]\nslots = 0", "slots", 2, "too few"),
    ("slots without number", "[worker]\nslots = 99999999999", "slots", 2, "too many"),
    ("no type", "[worker]\ntypes = []", "types", 2, "it names none (leave it out for all types)"),
    ("no slots of a type", "[types.a]\nslots = 0", "slots", 2, "too few"),
    ("no run at all", "[types.a]\nconcurrency = 0", "concurrency", 2, "not a number of runs"),
    ("a key without a name", '[types.a]\nkey = ""', "key", 2, "not a name of a param"),
    ("a short lease", '[types.a]\nstale_after = "1s"', "stale_after", 2, "too short"),
    ("a type without a name", '[types.""]\nevery = "1h"', "type", 1, "printable text"),
    ("a type of two names", '[types."a,b"]\nevery = "1h"', "type", 1, "without commas"),
    ("an id that is a glob", '[[items]]\nid = "a*"\ntype = "t"', "id", 2, "would mean other items"),
    ("params of a type", "[types.a]\nparams = { x = 1 }", "params", 2, "a type has none"),
    ("a bad cron", '[[items]]\nid = "a"\ntype = "t"\ncron = "61 * * * *"', "cron", 4, ""),
    ("a bad zone", '[[items]]\nid = "a"\ntype = "t"\ntimezone = "Mars"', "timezone", 4, "no zone"),
    ("two schedules", '[[items]]\nid="a"\ntype="t"\nevery="1h"\ncron="@daily"', "cron", 5, "one"),
    ("nothing said", '[[items]]\nid="a"\ntype="t"\nevery=""', "every", 4, "it is empty"),
    ("an id twice", '[[items]]\nid="a"\ntype="t"\n[[items]]\nid="a"\ntype="t"', "id", 5, "twice"),
    ("an empty id", '[[items]]\nid = ""\ntype = "t"', "id", 2, "it is empty"),
    ("no Redis", '[redis]\nurl = "http://x"', "url", 2, "redis://HOST:6379/0"),
    ("an empty type", '[[items]]\nid = "a"\ntype = ""', "type", 3, "printable text"),
    ("a type of two", '[[items]]\nid = "a"\ntype = "he,llo"', "type", 3, "without commas"),
    ("a long id", f'[[items]]\nid = "{"x" * 1_001}"\ntype = "t"', "id", 2, "1,000 at the most"),
    ("a bad first", '[[items]]\nid = "a"\ntype = "t"\nfirst = "soon"', "first", 4, "now, next, or"),
    ("no number", '[[items]]\nid="a"\ntype="t"\nparams.x = nan', "params.x", 4, "not a number"),
    ("no number in a job", "[jobs.a]\nx = 1\nlimit = inf", "limit", 3, "not a number"),
    (
        "deep params",
        f'[[items]]\nid="a"\ntype="t"\nparams.x={"[" * 101}{"]" * 101}',
        "params.x",
        4,
        "",
    ),
]


def test_the_settings_of_a_job_are_what_json_can_hold(tmp_path: Path) -> None:
    """So a coroutine and a plain function, which gets them as a message, are given the same."""
    file = tmp_path / "blackboard.toml"
    file.write_text(
        "[jobs.a]\nday = 2026-01-02\nat = 2026-01-02T03:04:05Z\ndeep = [{ clock = 07:30:00 }]\n"
    )
    assert load_settings(file).jobs["a"] == {
        "day": "2026-01-02",
        "at": "2026-01-02T03:04:05Z",
        "deep": [{"clock": "07:30:00"}],
    }


@pytest.mark.parametrize(
    "text",
    ["x = " + "[" * 9_000 + "]" * 9_000, "[jobs.a]\n" + ".".join("x" * 3_000) + " = 1"],
    ids=["lists", "dotted keys"],
)
def test_what_is_nested_too_deeply_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadInput, match=r"blackboard\.toml.* is nested too deeply"):
        parse_settings(text, tmp_path / "blackboard.toml")


@pytest.mark.parametrize(("case", "text", "field", "line", "hint"), BAD)
def test_what_is_wrong_is_refused_with_its_line(
    *, tmp_path: Path, case: str, text: str, field: str, line: int, hint: str
) -> None:
    told = refusal(tmp_path, text)
    assert told.startswith(f"{field}: blackboard.toml:{line}: "), told
    assert hint in told


@pytest.mark.parametrize(
    ("at", "text"),
    [
        ("2026-11-21T09:00:00+01:00", "2026-11-21T09:00:00+01:00"),
        ("2026-11-21 09:00:00Z", "2026-11-21T09:00:00+00:00"),
        ("2026-11-21T09:00:00", "2026-11-21T09:00:00"),
        ("2026-11-21", "2026-11-21"),
        ('"2026-11-21T09:00"', "2026-11-21T09:00"),
    ],
)
def test_a_time_needs_no_quotes(tmp_path: Path, at: str, text: str) -> None:
    said = f"at = {at}\nfirst = {at}\n"
    file = write(tmp_path, f'[types.t]\n{said}[[items]]\nid = "a"\ntype = "t"\n{said}')
    settings = load_settings(file)
    for one in (settings.types["t"], settings.items[0]):
        assert (one.at, one.first) == (text, text)


def test_broken_toml_is_refused_with_its_line(tmp_path: Path) -> None:
    told = refusal(tmp_path, "[board]\n\nstore store\n")
    assert told.startswith("config: blackboard.toml:3: Expected '='")


@pytest.mark.parametrize("data", [b"\xff\xfe", b"a = " + b"[" * 100_000])
def test_what_is_no_text_or_too_deep_is_refused(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "blackboard.toml"
    file.write_bytes(data)
    with pytest.raises(BadInput, match=r"blackboard\.toml"):
        load_settings(file)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file"):
        find("other.toml", folder=tmp_path)


LINES = '''
# [[items]]
note = """
[[items]]
id = "not this"
"""
items = [
  { id = "one" },
  { id = "two" },
]

[ types . "a b" ]   # a comment
every = "1h"
feeds = [
  "x = 1",

  "y",
]
[[list]]
a = 1
[list.inner]
b = 2
[[list]]
[list.inner]
b = 3
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ((), 1),
        (("note",), 3),
        (("items",), 7),
        (("items", 1, "id"), 7),
        (("types", "a b"), 12),
        (("types", "a b", "every"), 13),
        (("types", "a b", "feeds"), 14),
        (("types", "a b", "absent"), 12),
        (("list", 0, "inner", "b"), 22),
        (("list", 1), 23),
        (("list", 1, "inner"), 24),
        (("list", 1, "inner", "b"), 25),
        (("list", 2), 19),
        (("nowhere",), 1),
    ],
)
def test_the_line_of_a_value_is_where_its_statement_begins(
    path: tuple[str | int, ...], line: int
) -> None:
    assert line_of(LINES, path) == line


def test_the_line_is_found_in_a_long_file() -> None:
    text = "".join(f'[[items]]\nid = "{n}"\nfeeds = [\n  "a",\n]\n' for n in range(400))
    assert line_of(text, ("items", 321, "id")) == 321 * 5 + 2


def test_a_line_among_many_tables_is_found_without_reading_all_of_them_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "".join(f"# {n}\n[[items]]\nid = 'town-{n}'\n" for n in range(1_000))
    text += "[types.feed]\nevery = '8h'\n"
    read, loads = 0, tomllib.loads

    def reading(some: str) -> Any:
        nonlocal read
        read += len(some)
        return loads(some)

    monkeypatch.setattr("tomllib.loads", reading)
    assert line_of(text, ("items", 998, "id")) == 998 * 3 + 3
    assert line_of(text, ("items", 999, "cron")) == 999 * 3 + 2
    assert read < 3 * len(text)
    assert line_of(text, ("types", "feed", "every")) == 1_000 * 3 + 2


def test_what_only_looks_like_the_head_of_a_table_is_none() -> None:
    text = "[[items]]\nid = 'a'\nnote = '''\n[[items]]\n'''\n[[items]]\nid = 'b'\n"
    assert line_of(text, ("items", 1, "id")) == 7


@pytest.mark.parametrize("head", ["[[items]] # 1", "[[ items ]]", '[["\\u0069tems"]]'])
def test_however_the_head_of_a_table_is_written_it_is_the_head(head: str) -> None:
    text = f"{head}\nnote = '''\n[[items]]\n'''\nid = 'a'\n[[items]]\nid = 'b'\n"
    assert [line_of(text, ("items", number, "id")) for number in (0, 1)] == [5, 7]


@pytest.mark.parametrize(
    ("path", "line"), [(("types", "a b", "every"), 13), (("list", 1, "inner", "b"), 25)]
)
def test_the_line_is_found_where_lines_end_as_windows_ends_them(
    path: tuple[str | int, ...], line: int
) -> None:
    assert line_of(LINES.replace("\n", "\r\n"), path) == line


def handler() -> Handler:
    return Handler(
        type="t",
        function=print,
        is_async=False,
        spec=Spec(every="1h", timeout="5m", retries=2),
        slots=5,
        fenced=True,
        source=Source("", "builtins"),
    )


def test_an_item_wins_over_its_type_and_that_over_the_handler(tmp_path: Path) -> None:
    settings = load_settings(
        write(tmp_path, '[types.t]\ntimeout = "2m"\nretries = 1\nfenced = false')
    )
    resolve = resolver(settings, {"t": handler()})
    known = resolve("t", encode_spec(Spec(retries=0)))
    assert known.text == "every 1h"
    assert known.timeout is not None
    assert known.timeout.total_seconds() == 120
    assert (known.retries, known.fenced, known.slots) == (0, False, 5)
    assert resolve("t", encode_spec(Spec(retries=0))) is known


def test_long_params_of_many_items_do_not_fill_the_memory() -> None:
    resolve = resolver(Settings(), {})
    tracemalloc.start()
    try:
        for number in range(500):
            params = {"text": f"{number} {'x' * 20_000}"}
            settings = resolve("feed", encode_spec(Spec(every="1h", params=params)))
            assert settings is resolve("feed", encode_spec(Spec(every="1h")))
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_location_computes_the_settings_of_a_run_once(tmp_path: Path) -> None:
    """A command that reads or writes many items asks for each of them."""
    here = Location(settings=Settings(), folder=tmp_path, store="memory:", name="town")
    spec = encode_spec(Spec(every="1h"))
    assert here.resolve("feed", spec) is here.resolve("feed", spec)
    with_jobs = replace(here, handlers={"t": handler()})
    assert (here.resolve("t", "{}").text, with_jobs.resolve("t", "{}").text) == ("", "every 1h")


def test_a_schedule_of_the_item_replaces_the_handlers_whole(tmp_path: Path) -> None:
    resolve = resolver(Settings(), {"t": handler()})
    assert resolve("t", encode_spec(Spec(cron="0 3 * * *"))).text == "cron 0 3 * * *"
    assert resolve("other", encode_spec(Spec())).schedule is None


def test_every_setting_of_the_file_is_described() -> None:
    found = {(one.table, one.name): one for one in described()}
    tables = (
        BoardSettings,
        WorkerTable,
        Spec,
        TypeTable,
        ItemTable,
        NotifyTable,
        RouteTable,
        RedisTable,
    )
    assert {name for _, name in found} == {name for one in tables for name in one.__struct_fields__}
    assert all(one.meaning.endswith(".") for one in found.values())


@pytest.mark.parametrize(
    ("table", "name", "kind", "default"),
    [
        ("[board]", "history", "a whole number", "100"),
        ("[board]", "jobs", "a list", ""),
        ("[worker]", "cycle", "text", '"60s"'),
        ("[types.NAME], [[items]]", "backoff", "text", '"10s"'),
        ("[types.NAME], [[items]]", "timeout", "text", "the interval of the schedule, at least 1m"),
        ("[types.NAME], [[items]]", "every", "text", ""),
        ("[types.NAME]", "fenced", "true or false", "false"),
        ("[types.NAME]", "slots", "a whole number", "as many as it has slots"),
        ("[[items]]", "id", "text", "required"),
        ("[notify]", "at_most", "a whole number", "20"),
    ],
)
def test_a_setting_is_described_with_its_kind_and_default(
    table: str, name: str, kind: str, default: str
) -> None:
    assert [
        (one.kind, one.default) for one in described() if (one.table, one.name) == (table, name)
    ] == [(kind, default)]
