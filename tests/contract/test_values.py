"""What a row can hold comes back as it was; what no store would take is refused by name."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum, StrEnum
from typing import Any

import pytest

from blackboard.table import ANY, Delete, Insert, Merge, Op, Refused, Replace, Table, read
from tests.support.stores import Run, rows_of

P = "town"
NEWFOUNDLAND = timezone(-timedelta(hours=3, minutes=30))
MOMENT = datetime(2026, 3, 29, 1, 30, 0, 123000, tzinfo=UTC)


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    LARGE = 3


VALUES: dict[str, Any] = {
    "text": "davis",
    "empty text": "",
    "text like a time": "2026-03-29T01:30:00Z",
    "text like a row's own time": '["2026-03-29T01:30:00Z"]',
    "text like a number": "0123",
    "text like JSON": '{"a": [1, "\\u00e9", null]}',
    "quotes and backslashes": 'it\'s "so" \\ or / so',
    "lines": "one\ntwo\r\nthree\ttab",
    "separators of lines and paragraphs": "one\u2028two\u2029three\x85four\x0bfive\x0csix",
    "beyond ASCII": "Zürich Łódź 東京 שלום",
    "emoji": "🏙️ 👩‍👩‍👧",
    "spaces at the ends": "  x  ",
    "true": True,
    "false": False,
    "one": 1,
    "zero": 0,
    "largest integer": 2**63 - 1,
    "smallest integer": -(2**63),
    "beyond a double": 2**53 + 1,
    "whole float": 1.0,
    "fraction": 0.1,
    "large float": 1.7976931348623157e308,
    "small float": 5e-324,
    "time": MOMENT,
    "whole second": datetime(2026, 1, 1, tzinfo=UTC),
    "long ago": datetime(1601, 1, 1, tzinfo=UTC),
    "far away": datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC),
}


@pytest.mark.parametrize("how", ["insert", "merge", "merge of another", "replace"])
def test_a_value_comes_back_with_its_type(table: Table, run: Run, how: str) -> None:
    def written(name: str, value: Any) -> list[Op]:
        if how == "insert":
            return [Insert(name, {"value": value})]
        if how == "merge of another":
            first = Insert(name, {"value": value, "other": 1})
            return [first, Merge(name, {"other": MOMENT}, ANY)]
        op = Merge if how == "merge" else Replace
        first = Insert(name, {"value": "before", "other": MOMENT})
        return [first, op(name, {"value": value}, ANY)]

    for batch in zip(*(written(*one) for one in VALUES.items()), strict=True):
        run(table.commit(P, batch))
    rows = {row.key: row.data for row in run(rows_of(table, P))}
    assert rows.keys() == VALUES.keys()
    for name, value in VALUES.items():
        found = rows[name]["value"]
        assert found == value, name
        assert (type(found), repr(found)) == (type(value), repr(value)), name
        assert rows[name].get("other") == (MOMENT if "merge" in how else None), name


def test_a_time_of_another_zone_comes_back_as_the_same_moment_in_utc(
    table: Table, run: Run
) -> None:
    moment = MOMENT.astimezone(NEWFOUNDLAND)
    run(table.commit(P, [Insert("a", {"at": moment})]))
    row = run(read(table, P, "a"))
    assert row is not None
    found = row.data["at"]
    assert isinstance(found, datetime)
    assert found == moment
    assert found.utcoffset() == timedelta(0)


class Moment(datetime):
    """As libraries for dates have them."""


def test_a_time_of_a_subclass_comes_back_plain(table: Table, run: Run) -> None:
    at = Moment(2026, 3, 29, 1, 30, tzinfo=UTC)
    run(table.commit(P, [Insert("a", {"at": at})]))
    row = run(read(table, P, "a"))
    assert row is not None
    assert row.data == {"at": datetime(2026, 3, 29, 1, 30, tzinfo=UTC)}
    assert type(row.data["at"]) is datetime


def test_the_value_of_an_enum_comes_back_plain(table: Table, run: Run) -> None:
    run(table.commit(P, [Insert("a", {"colour": Colour.RED, "size": Size.LARGE})]))
    row = run(read(table, P, "a"))
    assert row is not None
    assert row.data == {"colour": "red", "size": 3}
    assert [type(value) for value in row.data.values()] == [str, int]


BAD_VALUES: dict[str, Any] = {
    "none": None,
    "a list": ["a"],
    "a dict": {"a": 1},
    "bytes": b"a",
    "a time without a zone": datetime(2026, 1, 1),  # noqa: DTZ001 - that is the point
    "a time before 1601": datetime(1600, 12, 31, tzinfo=UTC),
    "a time that UTC does not have": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))),
    "not a number": float("nan"),
    "infinity": float("inf"),
    "64 bits and more": 2**63,
    "below 64 bits": -(2**63) - 1,
    "half a surrogate pair": "a\ud83c",
    "OP01 a long text": "x" * 32_769,
    "OP01 a long text of few characters": "🏙" * 16_385,
}


def refusal(table: Table, run: Run, ops: Sequence[Op], partition: str = P) -> Refused | None:
    """How the store refuses a batch; None: it takes it."""
    try:
        run(table.commit(partition, ops))
    except Refused as refused:
        return refused
    return None


@pytest.mark.case("OP01")
@pytest.mark.parametrize("op", [Insert, Merge, Replace])
def test_a_value_that_no_store_keeps_is_refused_by_its_field(
    table: Table, run: Run, op: Any
) -> None:
    run(table.commit(P, [Insert("there", {"n": 1}), Insert("other", {"n": 1})]))
    for name, value in BAD_VALUES.items():
        data = {"good": 1, "feeds": value}
        bad = Insert("a", data) if op is Insert else op("there", data, ANY)
        refused = refusal(table, run, [Merge("other", {"n": 2}, ANY), bad])
        assert refused is not None, name
        assert (refused.index, "feeds" in str(refused)) == (1, True), name
        assert [row.data for row in run(rows_of(table, P))] == [{"n": 1}, {"n": 1}], name


@pytest.mark.case("OP01")
@pytest.mark.parametrize("text", ["x" * 32_768, "é" * 32_768, "🏙" * 16_384])
def test_op01_the_longest_text_is_kept(table: Table, run: Run, text: str) -> None:
    assert table.max_value == 32_768
    run(table.commit(P, [Insert("a", {"text": text})]))
    row = run(read(table, P, "a"))
    assert row is not None
    assert row.data["text"] == text


@pytest.mark.case("OP01")
def test_op01_a_refusal_names_the_size(table: Table, run: Run) -> None:
    with pytest.raises(Refused, match=r"40,000 characters.*32,768"):
        run(table.commit(P, [Insert("a", {"result": "x" * 40_000})]))


@pytest.mark.case("OP01")
def test_op01_a_row_beyond_a_mebibyte_is_refused(table: Table, run: Run) -> None:
    texts = {f"text{number:02}": "x" * 32_000 for number in range(16)}
    run(table.commit(P, [Insert("fits", texts)]))
    with pytest.raises(Refused, match="1,048,576") as caught:
        run(table.commit(P, [Insert("a", {"n": 1}), Insert("b", texts | {"more": "x" * 32_000})]))
    assert caught.value.index == 1
    assert [row.key for row in run(rows_of(table, P))] == ["fits"]


@pytest.mark.case("OP01")
@pytest.mark.not_on_azurite("it does not measure what a merge makes")
def test_op01_a_row_does_not_grow_beyond_its_limits_by_merging(table: Table, run: Run) -> None:
    texts = {f"text{number:02}": "x" * 32_000 for number in range(16)}
    run(table.commit(P, [Insert("a", texts), Insert("b", {"n": 1})]))
    with pytest.raises(Refused, match="1,048,576") as caught:
        run(table.commit(P, [Merge("b", {"n": 2}, ANY), Merge("a", {"more": "x" * 32_000}, ANY)]))
    assert caught.value.index == 1
    row = run(read(table, P, "b"))
    assert row is not None
    assert row.data == {"n": 1}


@pytest.mark.case("OP01")
@pytest.mark.not_on_azurite("it does not measure what a merge makes")
def test_op01_a_row_has_at_most_252_fields(table: Table, run: Run) -> None:
    full = {f"f{number}": number for number in range(252)}
    with pytest.raises(Refused, match="253 fields"):
        run(table.commit(P, [Insert("a", full | {"more": 1})]))
    run(table.commit(P, [Insert("a", full)]))
    run(table.commit(P, [Merge("a", {"f0": 9}, ANY)]))
    with pytest.raises(Refused, match="253 fields"):
        run(table.commit(P, [Merge("a", {"more": 1}, ANY)]))
    row = run(read(table, P, "a"))
    assert row is not None
    assert row.data == full | {"f0": 9}


def test_a_field_has_the_name_of_a_variable(table: Table, run: Run) -> None:
    for name in ("", "a b", "a-b", "1a", "é", "x" * 256, "a\n"):
        assert refusal(table, run, [Insert("a", {name: 1})]) is not None, name
    assert run(rows_of(table, P)) == []


BAD_KEYS = [
    *("", "a/b", "a\\b", "a#b", "a?b", "a%b", "a\nb", "a\0b", "a\x7fb", "a\x9fb", "a\u200eb"),
    *("a\ud800", "x" * 513, "🏙" * 257),
]


@pytest.mark.case("HK01")
def test_hk01_a_key_that_some_store_could_not_keep_is_refused(table: Table, run: Run) -> None:
    for key in BAD_KEYS:
        refused = refusal(table, run, [Insert("a", {"n": 1}), Insert(key, {"n": 1})])
        assert (refused and refused.index) == 1, ascii(key)
        assert refusal(table, run, [Insert("a", {"n": 1})], partition=key), ascii(key)
    assert run(rows_of(table, P)) == []


@pytest.mark.case("HK01")
def test_hk01_any_other_key_is_kept(table: Table, run: Run) -> None:
    for key in ("x" * 512, "..", "it's", "a&b=c+d", "<a>", "é", "~", "a b"):
        run(table.commit(P, [Insert(key, {"n": 1})]))
        row = run(read(table, P, key))
        assert row is not None, key
        assert row.key == key
        run(table.commit(P, [Delete(key, ANY)]))
        assert run(rows_of(table, P)) == [], key


def test_a_batch_holds_at_most_max_rows(table: Table, run: Run) -> None:
    ops = [Insert(f"k{number}", {"n": 1}) for number in range(table.max_rows + 1)]
    with pytest.raises(Refused) as caught:
        run(table.commit(P, ops))
    assert caught.value.index == table.max_rows
    assert run(rows_of(table, P)) == []


@pytest.mark.case("OP01")
def test_a_batch_holds_at_most_max_bytes(table: Table, run: Run) -> None:
    row = {f"text{number:02}": "x" * 32_000 for number in range(16)}
    ops = [Insert(f"k{number}", row) for number in range(table.max_bytes // 1_024_000 + 2)]
    with pytest.raises(Refused, match="bytes") as caught:
        run(table.commit(P, ops))
    assert 0 < caught.value.index < len(ops)
    assert run(rows_of(table, P)) == []


def test_a_key_twice_in_a_batch_is_a_mistake_of_the_program(table: Table, run: Run) -> None:
    with pytest.raises(ValueError, match="twice"):
        run(table.commit(P, [Insert("a", {"n": 1}), Merge("a", {"n": 2}, ANY)]))
    assert run(rows_of(table, P)) == []
