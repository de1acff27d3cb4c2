"""KEY=VALUE: what it means, and what is refused before anything is sent."""

from pathlib import Path
from typing import Any

import pytest

from blackboard.cli.spec_options import laid_over, parse_keys, parse_pairs
from blackboard.errors import BadInput
from blackboard.inputs import LARGEST_PARAMS, check_params_size, check_size
from blackboard.spec import Spec


@pytest.mark.parametrize(
    ("pair", "path", "value"),
    [
        ("days=90", ["days"], 90),
        ("ratio=0.5", ["ratio"], 0.5),
        ("on=true", ["on"], True),
        ("name=Davis", ["name"], "Davis"),
        ('name="90"', ["name"], "90"),
        ("empty=", ["empty"], ""),
        ('list=["a", {"b": 1}]', ["list"], ["a", {"b": 1}]),
        ("window.days=90", ["window", "days"], 90),
        ("url=https://example.org/?a=b", ["url"], "https://example.org/?a=b"),
        ("broken=[1,", ["broken"], "[1,"),
        ("word=NaN", ["word"], "NaN"),
        ("word=1e999", ["word"], "1e999"),
        ("broken=[NaN]", ["broken"], "[NaN]"),
        ('a={"b": 1, "c": {"b": 2}}', ["a"], {"b": 1, "c": {"b": 2}}),
        (f"number={'9' * 5000}", ["number"], f"{'9' * 5000}"),
        ('handle="@jon"', ["handle"], "@jon"),
        ("a=\N{SNOWMAN}", ["a"], "\N{SNOWMAN}"),
    ],
)
def test_a_value_is_json_if_it_can_be_else_text(pair: str, path: list[str], value: Any) -> None:
    (parsed,) = parse_pairs([pair])
    assert parsed == (path, value)
    assert type(parsed[1]) is type(value)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_an_at_sign_reads_the_text_of_a_file(tmp_path: Path, encoding: str) -> None:
    """Without the mark that some editors write at its beginning, as in settings."""
    file = tmp_path / "feeds.txt"
    file.write_text("https://example.org/a.ics\n\n# 1\n", encoding=encoding)
    assert parse_pairs([f"feeds=@{file}"]) == [(["feeds"], "https://example.org/a.ics\n\n# 1\n")]


@pytest.mark.parametrize(
    ("pair", "problem"),
    [
        ("days", "set: 'days' is not KEY=VALUE"),
        ("=1", "set: '' is not a key"),
        ("a..b=1", "set: 'a..b' is not a key"),
        ("a=null", "params.a: null says nothing"),
        ('a={"b": [null]}', "params.a.b: null says nothing"),
        ("a=@absent", "a: 'absent': No such file"),
        ("a=@.", "a: '.': Is a directory"),
        ('a={"b": 1, "b": 2}', "a: the key 'b' is there twice (name it once)"),
        (r'a=[{"c": 1}, {"b": {"c": 1, "\u0063": 1}}]', "a: the key 'c' is there twice"),
        (f"a=[{'9' * 5000}]", "a: it has a number that is too large (give that number as text"),
        ('a={"b": [1e999]}', "a: it has a number that is too large"),
        ("a=\udcff", "params.a: it is not UTF-8 text"),
        ("a=" + "[" * 100_000, "set: it is nested too deeply"),
        ("a=" + "[" * 150 + "]" * 150, "params.a: it is nested too deeply"),
    ],
)
def test_what_cannot_be_a_param_is_refused(
    pair: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput) as caught:
        parse_pairs([pair])
    assert str(caught.value).startswith(problem)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "feeds.bin"
    file.write_bytes(b"\xff\x00")
    with pytest.raises(BadInput, match="not UTF-8"):
        parse_pairs([f"feeds=@{file}"])


PARAMS = {"days": 90, "window": {"from": "today", "to": 5}}


@pytest.mark.parametrize(
    ("pairs", "unset", "after"),
    [
        ([], [], PARAMS),
        (["days=7"], [], {**PARAMS, "days": 7}),
        (["window.to=6"], [], {"days": 90, "window": {"from": "today", "to": 6}}),
        (["window=1"], [], {"days": 90, "window": 1}),
        (["new.deep.key=1"], [], {**PARAMS, "new": {"deep": {"key": 1}}}),
        (["a.b=1", "a.c=2"], [], {**PARAMS, "a": {"b": 1, "c": 2}}),
        ([], ["days"], {"window": PARAMS["window"]}),
        ([], ["window.to"], {"days": 90, "window": {"from": "today"}}),
        (["days.x=1"], ["days"], {"window": PARAMS["window"], "days": {"x": 1}}),
    ],
)
def test_pairs_are_laid_over_params(pairs: list[str], unset: list[str], after: Any) -> None:
    assert laid_over(PARAMS, parse_pairs(pairs), parse_keys(unset)) == after
    assert PARAMS == {"days": 90, "window": {"from": "today", "to": 5}}


@pytest.mark.parametrize(
    ("pairs", "unset", "problem"),
    [
        (["days.x=1"], [], "set: 'days' is not an object"),
        (["window.to.x=1"], [], "set: 'window.to' is not an object"),
        ([], ["absent"], "unset: there is no 'absent' in the params"),
        ([], ["absent.key"], "unset: there is no 'absent.key' in the params"),
        ([], ["days.x"], "unset: 'days' is not an object"),
    ],
)
def test_what_does_not_fit_the_params_is_refused(
    pairs: list[str], unset: list[str], problem: str
) -> None:
    with pytest.raises(BadInput) as caught:
        laid_over(PARAMS, parse_pairs(pairs), parse_keys(unset))
    assert str(caught.value).startswith(problem)


def test_params_of_a_mebibyte_are_refused_in_any_store() -> None:
    with pytest.raises(BadInput, match=r"params: they are 1,048,576 bytes of JSON"):
        check_params_size({"a": "x" * (LARGEST_PARAMS - len('{"a":""}'))})
    check_params_size({"a": "x" * (LARGEST_PARAMS - len('{"a":""}') - 1)})


def test_params_that_a_row_cannot_hold_are_refused() -> None:
    spec = Spec(params={"a": "\N{GRINNING FACE}" * 20})
    check_size(spec, limit=len('{"params":{"a":""}}') + 40)
    with pytest.raises(BadInput, match="a row holds 58"):
        check_size(spec, limit=len('{"params":{"a":""}}') + 39)
