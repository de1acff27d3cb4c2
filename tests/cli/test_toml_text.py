"""What is written as TOML is read back the same."""

import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blackboard.cli.export import item_text
from blackboard.display.toml_text import lines_of, value_text
from blackboard.errors import BadInput
from blackboard.protocol.rows import text_of

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
AWKWARD = st.text('ab"\\\n\r\t\0 #[]=\x7f\x9b\u2028\u202e\U000e0001', max_size=12)
VALUES = st.recursive(
    TEXTS
    | AWKWARD
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS | AWKWARD, inner),
    max_leaves=8,
)


@settings(max_examples=50)  # each is a whole table of awkward names and values
@given(st.dictionaries(TEXTS | AWKWARD, VALUES))
def test_any_table_is_read_back_the_same(table: dict[str, Any]) -> None:
    text = "\n".join(lines_of(table))
    assert text_of(tomllib.loads(text)) == text_of(table)


@settings(max_examples=20)  # of items: of what is in them the test above tries more
@given(st.lists(st.tuples(TEXTS, st.dictionaries(TEXTS | AWKWARD, VALUES)), max_size=3))
def test_any_items_are_read_back_the_same(items: list[tuple[str, dict[str, Any]]]) -> None:
    declared = [{"id": one, "type": "t", "retries": 1, "params": params} for one, params in items]
    text = "\n".join(item_text(one) for one in declared)
    read = [{"params": {}, **one} for one in tomllib.loads(text).get("items", [])]
    assert text_of(read) == text_of(declared)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", '"plain"'),
        ('"\\\n\x1b', '"\\"\\\\\\u000A\\u001B"'),
        ("\x9b31m\u202e\U000e0001", '"\\u009B31m\\u202E\\U000E0001"'),
        ("東京 é\xa0.", '"東京 é\\u00A0."'),
        (1e22, "1e+22"),
        ([], "[]"),
        ({}, "{}"),
        ({"a b": [True, 1]}, '{ "a b" = [true, 1] }'),
    ],
)
def test_values_are_written_as_people_write_them(value: Any, text: str) -> None:
    assert value_text(value, "x") == text


def test_long_lists_and_texts_of_several_lines_stay_readable() -> None:
    table = {
        "feeds": [f"https://example.org/calendars/{n}.ics" for n in range(3)],
        "text": "a\nb\n",
    }
    assert "\n".join(lines_of(table)).splitlines() == [
        "feeds = [",
        '  "https://example.org/calendars/0.ics",',
        '  "https://example.org/calendars/1.ics",',
        '  "https://example.org/calendars/2.ics",',
        "]",
        'text = """',
        "a",
        "b",
        '"""',
    ]


def test_null_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match=r"a\.b: TOML has no null"):
        list(lines_of({"a": {"b": None}}))
