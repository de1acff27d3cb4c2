"""Records to rows and back."""

from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import fields

from blackboard.errors import BadRow
from blackboard.model import (
    VERSION,
    Identifier,
    Item,
    Lock,
    LogLine,
    Member,
    Message,
    MessageKind,
    Outcome,
    Permit,
    QueuedRun,
    Run,
    State,
    Token,
    replace,
)
from blackboard.protocol.rows import (
    columns_of,
    data_of,
    readable,
    record_of,
    text_of,
    version_of,
)
from blackboard.table import Row
from tests.support import plans
from tests.support.plans import NOON

ITEM = Item(
    id="a/b",
    type="feed",
    state=State.PAUSED,
    spec='{"every":"8h"}',
    fence=3,
    born=1,
    slot=NOON,
    ready=NOON,
    planned=NOON,
    start=NOON,
    stop=NOON,
    acknowledged="{}",
    declared_by="towns.toml",
    running=True,
    put_back=True,
    owner="me",
    outcome=Outcome.TIMEOUT,
    result="[1]",
    error="late",
    checkpoint='"p57"',
    warned=2,
    warnings=("2 of 60 feeds failed",),
)
TOKEN = Token(
    id="a",
    type="feed",
    spec="{}",
    fence=3,
    born=1,
    slot=NOON,
    ready=NOON,
    planned=NOON,
    attempt=2,
    runs=4,
    failures=1,
    once="",
    checkpoint='"p57"',
    warned=2,
)
LOCK = Lock(
    id="a",
    type="feed",
    owner="me",
    nonce="n",
    fence=3,
    born=1,
    slot=NOON,
    since=NOON,
    stale_after=60.0,
    attempt=1,
    progress="[1,2]",
    stood_still=True,
)
PERMIT = Permit(
    type="feed",
    value='"a.example"',
    number=1,
    id="a",
    owner="me",
    nonce="n",
    since=NOON,
    stale_after=60.0,
)
RUN = replace(
    plans.RUN,
    fence=3,
    lag=0.5,
    warnings=("2 of 60 feeds failed",),
    log=(LogLine(at=NOON, level="INFO", text="read"),),
)
MEMBER = Member(owner="me", started=NOON, seen=NOON, slots=8, running=1, release="1.0", rank=5)
MESSAGE = Message(
    id="report",
    to="you",
    sender="me",
    rank=5,
    kind=MessageKind.ELECTION,
    number=2,
    ids=(Identifier(5, "me"), Identifier(7, "fox")),
)
RECORDS = [ITEM, TOKEN, LOCK, PERMIT, RUN, MEMBER, MESSAGE]


def test_a_row_is_not_burdened_with_an_empty_checkpoint_and_a_merge_empties_one() -> None:
    assert "checkpoint" not in data_of(replace(ITEM, checkpoint=""))
    assert columns_of(replace(ITEM, checkpoint=""), "checkpoint") == {"checkpoint": ""}


def test_a_row_is_not_burdened_with_the_rank_of_a_worker_that_is_no_candidate() -> None:
    assert "rank" not in data_of(replace(MEMBER, rank=0))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_comes_back_as_it_was(record: Any) -> None:
    row = Row("key", "7", data_of(record))
    assert record_of(type(record), row) == replace(record, etag="7")


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_row_is_flat_and_holds_neither_none_nor_what_the_store_knows(record: Any) -> None:
    data = data_of(record)
    assert {type(value) for value in data.values()} <= {str, int, float, bool, datetime}
    assert not data.keys() & {"id", "etag", "age"}


def test_the_id_is_the_column_item() -> None:
    assert data_of(ITEM)["item"] == "a/b"


def test_what_a_row_lacks_takes_the_records_default() -> None:
    needed = ("item", "type", "state", "spec", "slot", "ready", "planned")
    data = {name: data_of(ITEM)[name] for name in needed}
    item = record_of(Item, Row("key", "1", data))
    assert (item.fence, item.start, item.outcome, item.running) == (0, None, None, False)


def test_columns_of_newer_versions_are_passed_over() -> None:
    row = Row("key", "1", {**data_of(TOKEN), "flavour": "vanilla"})
    assert record_of(Token, row) == replace(TOKEN, etag="1")


def test_an_age_is_handed_in() -> None:
    assert record_of(Lock, Row("key", "1", data_of(LOCK)), age=4.5).age == 4.5


@pytest.mark.parametrize(
    ("record_type", "data"),
    [
        (Token, {"item": "a"}),
        (Item, {**data_of(ITEM), "state": "asleep"}),
        (Run, {**data_of(RUN), "outcome": "splendid"}),
    ],
)
def test_a_row_that_is_none_of_ours_is_named_with_what_is_wrong(
    record_type: type[Any], data: dict[str, Any]
) -> None:
    with pytest.raises(BadRow, match=r"row item:a: .*doctor"):
        record_of(record_type, Row("item:a", "1", data))


def test_a_merge_writes_the_named_columns_and_never_none() -> None:
    assert columns_of(ITEM, "state", "outcome", "fence") == {
        "state": "paused",
        "outcome": "timeout",
        "fence": 3,
    }
    fresh = replace(ITEM, outcome=None, start=None)
    assert columns_of(fresh, "outcome", "start", "error") == {"error": "late"}


def test_nested_values_are_json_that_does_not_depend_on_order() -> None:
    assert text_of({"b": 1, "a": [True, None]}) == '{"a":[true,null],"b":1}'
    request = QueuedRun(name="a", slot=NOON)
    assert text_of([request]) == '[{"name":"a","slot":"2026-11-21T12:00:00Z","once":""}]'


@pytest.mark.parametrize(("data", "version"), [({}, 1), ({"version": 4}, 4), ({"version": 2.0}, 2)])
def test_the_version_of_a_row(data: dict[str, Any], version: int) -> None:
    assert version_of(data) == version


@pytest.mark.parametrize("odd", ["2", "odd", "", [2], None, 0, -1, 1.5, True, float("nan")])
def test_what_is_no_version_makes_a_row_unreadable_whatever_it_is(odd: Any) -> None:
    assert version_of({"version": odd}) == 0
    records: tuple[Any, ...] = (ITEM, LOCK, TOKEN, RUN)
    for one in records:
        row = Row("key", "1", {**data_of(one), "version": odd})
        assert readable(type(one), row) is None
        with pytest.raises(BadRow, match="no good version"):
            record_of(type(one), row)


@pytest.mark.parametrize("huge", [1e300, 2**62, 10**400, float(2**53)])
def test_a_version_that_is_huge_is_a_newer_one_that_can_be_printed(huge: Any) -> None:
    assert VERSION < version_of({"version": huge}) <= 10**12


def test_a_version_that_another_language_writes_as_a_double_is_a_version() -> None:
    row = Row("key", "1", {**data_of(ITEM), "version": 1.0})
    assert record_of(type(ITEM), row).version == 1


@pytest.mark.parametrize(
    ("record", "column", "value"),
    [(MEMBER, "cycle", one) for one in (1e300, 0.0, 1e-300, -60.0, 10**11)],
)
def test_seconds_that_make_no_sense_make_a_row_unreadable(
    record: Any, column: str, value: float
) -> None:
    row = Row("key", "1", {**data_of(record), column: value})
    with pytest.raises(BadRow, match=f"no good {column}"):
        record_of(type(record), row)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_every_field_of_a_record_has_a_column(record: Any) -> None:
    """So that none is forgotten in a row and comes back as its default."""
    names = {"item" if field.name == "id" else field.name for field in fields(record)}
    absent = {name for name in names - {"item"} if getattr(record, name) is None}
    assert data_of(record).keys() == names - {"etag", "age"} - absent
