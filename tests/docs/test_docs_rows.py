"""docs/rows.md is true: its columns are the records', its keys and batches what the code makes, and
the hour that it tells of an item happens like that.
"""

import asyncio
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from msgspec import NODEFAULT
from msgspec.structs import fields

from blackboard import spec
from blackboard.model import (
    LOST_AFTER,
    Action,
    Item,
    Lock,
    Member,
    Message,
    Outcome,
    Permit,
    Run,
    State,
    Statistics,
    Token,
    replace,
)
from blackboard.notify.notice_rows import begin
from blackboard.notify.notices import Notice
from blackboard.notify.settings import NoticeKind
from blackboard.phrases import LONGEST_ERROR, LONGEST_OUTPUT, iso
from blackboard.protocol import claims, keys
from blackboard.protocol.actions import LONGEST_DETAIL, MOST_IDS
from blackboard.protocol.claims import ROWS_OF_A_CLAIM
from blackboard.protocol.permits import LEASE
from blackboard.protocol.releases import ROWS_OF_A_RELEASE
from blackboard.protocol.retention import KEPT_FOR_LATE, Retention
from blackboard.protocol.rows import data_of
from blackboard.rules.applied import ALWAYS, MOST, REMEMBERED, RETRIED_FOR
from blackboard.rules.due import (
    HOLDERS_SHARE,
    LONGEST_DEFAULT_LEASE,
    LONGEST_RENEWAL,
    SHORTEST_DEFAULT_LEASE,
    SHORTEST_DEFAULT_LIMIT,
    TAKEOVERS,
    deadline,
    is_stale,
    renew_every,
)
from blackboard.rules.next_run import LONGEST_BACKOFF, phase
from blackboard.rules.transitions import LONGEST_QUEUE
from blackboard.schedule.times import format_duration
from blackboard.table import Delete, Insert, Op, read
from blackboard.tables.azure import AzureTable
from blackboard.tables.azure_clock import JUMP
from blackboard.tables.base import MAX_FIELDS, MAX_VALUE
from tests.protocol.test_batches import CLAIM, LOCK, WAITING
from tests.support.pages import Table, page, scene_in_memory, words
from tests.support.plans import NOON

ROWS = page("rows.md")
RECORDS: dict[str, type[Any]] = {
    "item:": Item,
    "next:": Token,
    "lock:": Lock,
    "run:": Run,
    "worker:": Member,
    "permit:": Permit,
    "mail:": Message,
    "action:": Action,
    "stats": Statistics,
}
"""By the family of their rows."""


def repeated(text: str) -> str:
    """`x` 161 times, written out; other text as its backticks have it."""
    return "".join(
        found * int(times or 1) for found, times in re.findall(r"`([^`]*)`(?: (\d+) times)?", text)
    )


# ---- columns


@dataclass(frozen=True)
class Column:
    type: str
    absent: str


def columns(family: str) -> Table:
    """The table of a family's columns."""
    (found,) = [
        one
        for one in ROWS.tables()
        if one.head[:3] == ["column", "type", "if absent"] and one.before.startswith(f"`{family}`")
    ]
    return found


def documented(family: str) -> dict[str, Column]:
    """The columns of a family, by name."""
    rows = [(name, Column(*row[1:3])) for row in columns(family).rows for name in words(row[0])]
    assert len(dict(rows)) == len(rows), "a column stands there twice"
    return dict(rows)


def type_of(hint: Any) -> str:
    kind = get_args(hint)[0] if NoneType in get_args(hint) else hint
    if get_origin(kind) is tuple or issubclass(kind, StrEnum):
        return "String"
    return {str: "String", int: "Int", float: "Double", bool: "Boolean", datetime: "DateTime"}[kind]


def absent(default: Any) -> str:
    match default:
        case _ if default is NODEFAULT:
            return "needed"
        case None:
            return "none"
        case "" | ():
            return '`""`'
        case str():
            return f"`{default}`"
        case bool():
            return str(default).lower()
        case _:
            return f"{default:g}"


@pytest.mark.parametrize("family", RECORDS)
def test_the_columns_of_a_row_are_those_of_its_record(family: str) -> None:
    record = RECORDS[family]
    hints = get_type_hints(record)
    right = {
        "item" if one.name == "id" else one.name: Column(
            type_of(hints[one.name]), absent(one.default)
        )
        for one in fields(record)
        if one.name not in {"etag", "age"}
    }
    assert documented(family) == right


def test_every_table_of_columns_is_looked_at() -> None:
    headed = [
        one.before.split("`")[1] for one in ROWS.tables() if one.head[:2] == ["column", "type"]
    ]
    assert headed == list(RECORDS)


def test_the_rows_of_the_board_itself_and_of_notices_are_named_column_by_column() -> None:
    (paragraph,) = [one for one in ROWS.paragraphs if one.startswith("`board` has")]
    board, notice = paragraph.split("`notice:`")

    async def told() -> None:
        scene = await scene_in_memory()
        made = await read(scene.table, keys.meta_partition("town"), keys.BOARD_KEY)
        assert made is not None
        assert words(board)[1:] == list(made.data)
        news = Notice(
            event=NoticeKind.FAILED,
            id="davis",
            type="feed",
            fence=1,
            due=NOON,
            ready=NOON,
            attempt=1,
        )
        await begin(scene.board, news, again=None)
        row = await read(
            scene.table, keys.notices_partition("town"), keys.notice_key("davis", "failed")
        )
        assert row is not None
        shown = [one for one in words(notice) if one]
        assert shown == list(row.data)

    asyncio.run(told())


def test_states_and_outcomes_are_all_named() -> None:
    meanings = {words(row[0])[0]: row[3] for row in columns("item:").rows}
    assert [name for name in words(meanings["state"]) if name] == [one.value for one in State]
    outcomes = {*words(meanings["outcome"]), "superseded"}
    assert outcomes == {one.value for one in Outcome}


def test_the_settings_are_those_of_a_spec() -> None:
    named = ROWS.table("key", "default").rows
    assert {words(row[0])[0] for row in named} == set(spec.Spec.__struct_fields__)
    defaults = {words(row[0])[0]: row[1].strip("`") for row in named}
    assert defaults["backoff"] == format_duration(spec.DEFAULT_BACKOFF)
    assert defaults["missed_after"] == format_duration(spec.DEFAULT_MISSED_AFTER)
    plain = spec.RunSettings()
    for name in ("retries", "missed", "missed_limit", "timezone"):
        assert defaults[name] == str(getattr(plain, name))


# ---- keys


def test_ids_are_encoded_as_shown() -> None:
    rows = ROWS.table("id", "in a key").rows
    assert len(rows) > 3
    for item_id, part in rows:
        assert keys.encode_id(repeated(item_id)) == repeated(part)


def test_moments_are_written_as_shown() -> None:
    ((moment, key),) = re.findall(r"^`(20\S*Z)` is `(20\S*Z)`", ROWS.text, re.MULTILINE)
    assert keys.moment_key(datetime.fromisoformat(moment)) == key


def test_keys_and_ranges_are_as_shown() -> None:
    moment = datetime(2026, 11, 21, 9, 0, 4, 250_000, UTC)
    owner = "rabbit:7301:1f6d3c02"
    shown = [words(row[1])[0] for row in ROWS.table("key", "example").rows]
    assert shown == [
        keys.item_key("davis"),
        keys.lock_key("davis"),
        keys.next_key(moment, "davis"),
        keys.run_key("davis", 1),
        keys.worker_key(owner),
        keys.notice_key("davis", "failed"),
        keys.permit_key("feed", '"a.example"', 1),
        keys.mail_key(owner, moment, "5e1d" + 28 * "0"),
        keys.action_key(moment, "5e1d" + 28 * "0"),
    ]
    for bound in (keys.next_until(moment), *keys.runs_range("davis"), keys.LOCK):
        assert f"`{bound}`" in ROWS.text


def test_shards_and_phases_are_as_shown() -> None:
    found = ROWS.table("id", "of 2 shards")
    counts = [int(number) for head in found.head[1:-1] for number in re.findall(r"\d+", head)]
    assert counts == [2, 16, 100]
    for quoted, *shards, fraction in found.rows:
        (item_id,) = words(quoted)
        assert [int(one) for one in shards] == [keys.shard_of(item_id, one) for one in counts]
        assert float(fraction) == pytest.approx(phase(item_id), abs=1e-6)


def test_partitions_are_as_shown() -> None:
    group, leaders = keys.group_board("town", "clicks"), keys.leaders_board("town")
    named = [words(row[0]) for row in ROWS.table("PartitionKey").rows]
    assert named == [
        [keys.meta_partition("town")],
        [keys.partition("town", 0, 1)],
        [keys.partition("town", number, 16) for number in (0, 1)],
        [keys.workers_partition("town")],
        [keys.permits_partition("town")],
        *[[keys.meta_partition("town")]] * 3,
        [keys.partition(group, 0, 1), keys.meta_partition(group), keys.workers_partition(group)],
        [keys.notices_partition("town")],
        [keys.actions_partition("town")],
        [keys.partition(leaders, 0, 1)],
        [keys.meta_partition(leaders), keys.workers_partition(leaders)],
        [keys.mail_partition(leaders)],
    ]


# ---- numbers


@pytest.mark.parametrize(
    "sentence",
    [
        f"{HOLDERS_SHARE:g} x `stale_after`",
        f"It is good for `stale_after`, {LEASE:g} s: renew it every {renew_every(LEASE):g} s",
        f"for {deadline(0.0, LEASE):g} s on your monotonic clock",
        f"every third of `stale_after`, at least every {LONGEST_RENEWAL:g} s",
        f"by more than {AzureTable.resolution:g} s",
        f"attempt > max(retries, {TAKEOVERS})",
        f"clock by more than {JUMP:g} s",
        f"the interval, at least {SHORTEST_DEFAULT_LEASE.total_seconds():g} s",
        f"and at most {LONGEST_DEFAULT_LEASE.total_seconds():g} s | of its locks",
        f"the interval, at least {SHORTEST_DEFAULT_LIMIT.total_seconds():g} s | how long a run",
        f"at least {spec.SHORTEST_LEASE.total_seconds():g} s",
        f"of max(backoff, {format_duration(LONGEST_BACKOFF)}) at most",
        f"latest {ALWAYS} requests",
        f"younger than {format_duration(REMEMBERED)}",
        f"up to {MOST}",
        f"up to {LONGEST_QUEUE} and",
        f"after {format_duration(RETRIED_FOR)} of doubt",
        f"lost when {LOST_AFTER:g} s old",
        f"{MAX_VALUE:,} UTF-16 units, a row 1 MiB and {MAX_FIELDS} columns",
        f"up to {AzureTable.max_rows} rows: {AzureTable.max_rows // ROWS_OF_A_CLAIM} claims",
        f"claims, {AzureTable.max_rows // ROWS_OF_A_RELEASE} releases",
        f"to {LONGEST_ERROR:,} characters",
        f"({LONGEST_OUTPUT:,} bytes)",
        f"the items, the first {MOST_IDS}",
        f"the new id; at most {LONGEST_DETAIL} characters",
        f"latest {Retention().runs} and {Retention().age.days} days",
    ],
)
def test_a_number_is_the_codes(sentence: str) -> None:
    assert sentence in ROWS.prose


def test_the_words_about_times_are_the_rules() -> None:
    assert (renew_every(30.0), renew_every(3600.0)) == (10.0, 60.0)
    assert KEPT_FOR_LATE.total_seconds() == 3600, "for an hour"
    assert replace(CLAIM, sent=100.0).deadline == 148.0
    stale = replace(LOCK, age=60.6)
    assert is_stale(stale, resolution=AzureTable.resolution)
    assert not is_stale(replace(stale, age=60.4), resolution=AzureTable.resolution)


# ---- the example


def example() -> list[list[tuple[str, dict[str, Any] | None]]]:
    """The batches of the last section: operation and key, data."""
    text = ROWS.text.partition("```text\n")[2].partition("```")[0]
    batches = []
    for batch in text.strip().split("\n\n"):
        lines = re.split(r"\n(?=\S)", batch)
        parts = [line.partition("\n") for line in lines]
        batches.append([(head, json.loads(data) if data else None) for head, _, data in parts])
    return batches


def without_defaults(family: str, data: dict[str, Any]) -> dict[str, Any]:
    defaults = {
        one.name: "" if one.default == () else one.default for one in fields(RECORDS[family])
    }
    return {name: value for name, value in data.items() if defaults.get(name, NODEFAULT) != value}


def shown(op: Op) -> tuple[str, dict[str, Any] | None]:
    head = f"{type(op).__name__} {op.key}"
    if isinstance(op, Delete):
        return head, None
    data = dict(op.data)
    if isinstance(op, Insert):
        data = without_defaults(op.key.partition(":")[0] + ":", data)
    plain = {name: iso(one) if isinstance(one, datetime) else one for name, one in data.items()}
    return head, plain


def test_the_hour_of_davis_happens_as_it_is_told() -> None:
    async def story() -> list[list[tuple[str, dict[str, Any] | None]]]:
        scene = await scene_in_memory()
        scene.table.batches.clear()
        await scene.add("davis", every="1h", stale_after="1m")
        scene.later(seconds=4.25)
        made = await scene.claimed(owner="rabbit:7301:1f6d3c02")
        scene.later(seconds=20)
        renewed = await claims.renew(scene.board, made, progress="[3,10]")
        assert renewed is not None
        scene.later(seconds=6.5)
        await scene.let_go(renewed, result={"events": 12})
        return [[shown(op) for op in batch] for batch in scene.table.batches]

    assert asyncio.run(story()) == example()


def test_what_the_example_leaves_out_is_written() -> None:
    assert set(data_of(WAITING)) == set(documented("item:")) - {
        "start",
        "stop",
        "outcome",
        "first",
        "checkpoint",
        "warned",
        "warnings",
        "declared_by",
        "acknowledged",
        "put_back",
    }
