"""What is masked in all that a run says, and what stays."""

import html
import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from itertools import product
from typing import Any
from urllib.parse import quote, quote_plus, urlencode

import msgspec
import pytest

from blackboard.model import Ended, Outcome, replace
from blackboard.phrases import LONGEST_ERROR, LONGEST_OUTPUT
from blackboard.runners.output import Tail
from blackboard.runners.secrets import NOTHING, SHORTEST, Mask, mask_of_worker, values_in
from blackboard.tables.base import MAX_VALUE

TOKEN = 'ca/na+ry="ü"\\: 99'
MASK = Mask({"TOKEN": TOKEN, "USER": "ann", "EMPTY": ""})


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (TOKEN, "${TOKEN}"),
        (f"{TOKEN}, {TOKEN}{TOKEN}.", "${TOKEN}, ${TOKEN}${TOKEN}."),
        (repr(TOKEN), "'${TOKEN}'"),
        (json.dumps({"a": TOKEN}), '{"a": "${TOKEN}"}'),
        (f"https://ann/{quote(TOKEN)}?x=1", "https://ann/${TOKEN}?x=1"),
        (f"https://ann?t={quote(TOKEN, safe='')}", "https://ann?t=${TOKEN}"),
        (urlencode({"t": TOKEN}), "t=${TOKEN}"),
        (quote_plus(TOKEN), "${TOKEN}"),
        (re.sub("%..", lambda one: one[0].lower(), quote_plus(TOKEN)), "${TOKEN}"),
        (f"<b>{html.escape(TOKEN)}</b>", "<b>${TOKEN}</b>"),
        (f"https://ann/{quote(TOKEN, safe='!$&()*+,;=:@/')}", "https://ann/${TOKEN}"),
        (f"https://ann/{quote(TOKEN, safe='=:').replace('%20', '+')}", "https://ann/${TOKEN}"),
        (html.escape(TOKEN, quote=False), "${TOKEN}"),
        (html.escape(TOKEN).replace("&quot;", "&#34;"), "${TOKEN}"),
        (html.escape(TOKEN).replace("&quot;", "&#x22;").replace("ü", "&uuml;"), "${TOKEN}"),
        (html.escape(TOKEN).replace("&quot;", "&QUOT;"), "${TOKEN}"),
        (TOKEN.replace(" ", "+"), "${TOKEN}"),
        (json.dumps(TOKEN).replace("=", "\\u003D"), '"${TOKEN}"'),
        (json.dumps(TOKEN).replace("=", "\\u003d").replace("\\\\", "\\u005c"), '"${TOKEN}"'),
        (
            json.dumps(json.dumps(TOKEN, ensure_ascii=False).replace("=", "\\u003d")),
            '"\\"${TOKEN}\\""',
        ),
        (ascii(TOKEN), "'${TOKEN}'"),
        (repr(TOKEN.encode()), "b'${TOKEN}'"),
        (json.dumps(TOKEN).replace("/", "\\/"), '"${TOKEN}"'),
        (json.dumps(json.dumps(TOKEN)), '"\\"${TOKEN}\\""'),
        (encoded(TOKEN), "${TOKEN}"),
        (urlsafe_b64encode(TOKEN.encode()).decode().rstrip("="), "${TOKEN}"),
        ("ann said nothing of it", "ann said nothing of it"),
        ("", ""),
    ],
)
def test_a_value_is_masked_however_it_looks(said: str, told: str) -> None:
    assert MASK.text(said) == told


@pytest.mark.parametrize("value", ["secret", "sevensx", "eightsxx", "ninesxxxx", TOKEN])
def test_a_value_is_masked_within_what_was_encoded(value: str) -> None:
    """At most the digits stay that it shares with its neighbours: two at either end."""
    mask = Mask({"TOKEN": value})
    for user, rest in product(("", "a", "ab", "abc", "ann:"), ("", "y", "yz", ":more")):
        said = encoded(user + value + rest)
        told = mask.text(f"Authorization: Basic {said}")
        left = told.removeprefix("Authorization: Basic ").replace("${TOKEN}", "", 1)
        assert len(said) - len(left) >= len(encoded(value).rstrip("=")) - 3, (user, rest)
        assert "${TOKEN}" in told, (user, rest)


@pytest.mark.parametrize(
    "value",
    [
        r"canary\u0041-12",
        r"canary\u005c-12",
        r"\\\u005Ccanary",
        r"canary\u005c",
        r"canary\x5c12",
        "canary\x00\x1b\x7f\\x1b",
        "canary\\\u00e9\\xe9\u20ac\\u20ac",
        "canary\U0001f600\\ud83d\\ude00",
        "can\"ary's\n\\n",
    ],
)
def test_a_value_is_masked_in_quotes_within_quotes(value: str) -> None:
    """Also one that holds what looks like an escaped character."""
    mask, said = Mask({"TOKEN": value}), {value}
    for _ in range(3):
        said = {form(text) for text in said for form in (json.dumps, repr, ascii)}
        for text in said:
            told = mask.text(text)
            assert re.fullmatch(r"""[\\"']+\$\{TOKEN\}[\\"']+""", told), text


@pytest.mark.parametrize("value", ["canary\\u005c", "can\"ary's\n\\n", "canary\x1b\u00e9<\\"])
def test_a_value_is_masked_in_json_that_is_escaped_again(value: str) -> None:
    said = json.dumps(value)
    told = [Mask({"TOKEN": value}).text(one) for one in (quote(said), html.escape(said))]
    assert told == ["%22${TOKEN}%22", "&quot;${TOKEN}&quot;"]


@pytest.mark.parametrize("value", ["redis://:p%5Cw@h/0?a&b", '"%5cabc"d', "%25%5Cn&%5C%5C"])
@pytest.mark.parametrize(
    "written",
    [
        lambda text: text.replace("&", "\\u0026").replace('"', "%22"),
        lambda text: html.escape(json.dumps(text)[1:-1]).replace("/", "\\/"),
        lambda text: json.dumps(json.dumps(json.dumps(text)))[5:-5].replace("&", "\\\\u0026"),
        lambda text: quote(json.dumps(text)[1:-1], safe="/"),
    ],
)
def test_a_backslash_as_in_a_url_may_be_part_of_a_value(
    value: str, written: Callable[[str], str]
) -> None:
    assert "%5C" not in Mask({"S": value}).text(f"({written(value)})").upper()


def test_a_value_with_nothing_to_escape_is_found_beside_what_is_escaped() -> None:
    assert Mask({"TOKEN": "secret-1"}).text("a%20secret-1&amp;b") == "a%20${TOKEN}&amp;b"


def test_what_has_few_characters_stays() -> None:
    """It would be found everywhere by chance."""
    short, long = "x" * (SHORTEST - 1), "y" * SHORTEST
    assert Mask({"A": short, "B": long}).text(f"{short} {long}") == f"{short} ${{B}}"


def test_the_longer_of_two_values_goes_first() -> None:
    mask = Mask({"PART": "canary", "WHOLE": "canary-and-more"})
    assert mask.text("canary-and-more canary") == "${WHOLE} ${PART}"


def test_each_line_of_a_value_is_masked_and_the_space_around_it_is_none_of_it() -> None:
    mask = Mask({"KEY": "\n-----BEGIN-----\nabcdefgh\n ijklmnop\n"})
    assert mask.text("> abcdefgh\n> ijklmnop") == "> ${KEY}\n> ${KEY}"
    assert mask.text("-----BEGIN-----\nabcdefgh\n ijklmnop") == "${KEY}"


def test_a_value_that_is_no_text_is_masked_too() -> None:
    """A variable may hold any bytes."""
    mask = Mask({"TOKEN": "canary\udcff99"})
    assert (
        mask.text("canary\udcff99 'canary\\udcff99' canary%FF99") == "${TOKEN} '${TOKEN}' ${TOKEN}"
    )


def test_a_mask_shows_nothing_of_itself() -> None:
    assert "canary" not in f"{Mask({'TOKEN': 'canary'})!r} {Mask({'TOKEN': 'canary'})}"


# ---- how a run ended


def ended(**said: Any) -> Ended:
    return masked(MASK, Ended(outcome=Outcome.OK, **said))


def masked(mask: Mask, said: Ended) -> Ended:
    """As a runner masks the end of a run."""
    result = msgspec.json.decode(mask.result(msgspec.json.encode(said.result), MAX_VALUE))
    error, output = mask.short(said.error), mask.output(said.output)
    return replace(said, result=result, error=error, output=output)


def test_error_output_and_result_are_masked() -> None:
    result = {"url": f"?t={quote(TOKEN)}", TOKEN: [1.5, None, True, {"deep": [TOKEN]}], "n": 12345}
    assert ended(error=f"ValueError: {TOKEN}", output=f"{TOKEN}\n", result=result) == Ended(
        outcome=Outcome.OK,
        error="ValueError: ${TOKEN}",
        output="${TOKEN}\n",
        result={
            "url": "?t=${TOKEN}",
            "${TOKEN}": [1.5, None, True, {"deep": ["${TOKEN}"]}],
            "n": 12345,
        },
    )


@pytest.mark.parametrize("result", [None, 0, False, "", [], {}, 'a\n"\\ü🐝', 2**63, 1e300])
def test_a_result_that_holds_no_secret_stays_as_it_is(result: Any) -> None:
    assert ended(result=result).result == result
    assert type(ended(result=result).result) is type(result)


def test_a_number_is_no_text() -> None:
    assert masked(Mask({"PIN": "123456"}), Ended(outcome=Outcome.OK, result=[123456])).result == [
        123456
    ]


def test_a_result_may_be_deep() -> None:
    deep: Any = TOKEN
    for _ in range(900):
        deep = [deep]
    found = ended(result=deep).result
    for _ in range(900):
        (found,) = found
    assert found == "${TOKEN}"


def test_a_value_that_the_kept_output_begins_within_is_masked() -> None:
    """Only the end of much output is kept, from wherever that begins."""
    told = set()
    for rest in range(LONGEST_OUTPUT - len(TOKEN.encode()) - 1, LONGEST_OUTPUT + 1):
        tail = Tail()
        tail.add(f"before {TOKEN}{'.' * rest}".encode())
        output = ended(output=tail.text()).output
        assert all(TOKEN[n : n + SHORTEST] not in output for n in range(len(TOKEN) - SHORTEST + 1))
        told.add(output.strip("."))
    assert {"${TOKEN}", ""} <= told


def test_an_output_that_is_kept_whole_may_begin_as_a_value_ends() -> None:
    mask = Mask({"PASSWORD": "db-password-production"})
    said = "production deploy finished"
    assert mask.output(said) == said
    assert mask.output(said + "." * LONGEST_OUTPUT).startswith(".")
    cut = said + "." * (LONGEST_OUTPUT - len(said) - 3)
    assert mask.output(cut).startswith("${PASSWORD} deploy finished.")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("value", ["x" * 4_000_000, "key-0001\n" * 100_000 + "end" * 10])
def test_masking_takes_time_in_proportion_to_what_is_masked(value: str) -> None:
    """Looking for each end of the value by itself would take an hour."""
    mask = Mask({"LONG": value})
    assert masked(mask, Ended(outcome=Outcome.OK)) == Ended(outcome=Outcome.OK)
    output = f"{value[1 - LONGEST_OUTPUT :]}."
    said = Ended(outcome=Outcome.OK, output=output, error="none", result=["x"] * 9000)
    told = masked(mask, said)
    assert (told.error, told.result) == (said.error, said.result)
    assert set(told.output.split("\n")) <= {"${LONG}", "${LONG}."}


def test_values_that_overlap_are_both_masked() -> None:
    mask = Mask({"A": "canary-one", "B": "one-canary"})
    assert mask.text("<canary-one-canary>") == "<${A}>"


def test_what_stands_for_one_value_is_not_masked_for_another() -> None:
    mask = Mask({"SECRET_NAME": "canary-one", "OTHER": "SECRET_NAME"})
    assert mask.text("canary-one SECRET_NAME") == "${SECRET_NAME} ${OTHER}"


@pytest.mark.parametrize("size", [5_000, 30_000, 2_000_000])
def test_a_long_error_is_masked_before_it_is_cut(size: int) -> None:
    """Also where so much of it is a value that what was cut out is not far from its ends."""
    value = "".join(f"{n:05}" for n in range(size // 5))
    said = "ValueError: " + f"{value}{value[::-1]} " * (4_000_000 // size)
    told = Mask({"LONG": value, "BACK": value[::-1]}).short(said)
    assert len(told) <= LONGEST_ERROR
    assert told.startswith("ValueError: ${LONG}")
    assert not re.search(r"\d{6}", re.sub(r"\[\.\.\. .*? left out \.\.\.\]", "", told))


# ---- what fits a row

LONG_NAME = "A_NAME_" * 20


def test_masked_output_is_cut_to_what_is_kept() -> None:
    told = Mask({LONG_NAME: "canary"}).output("canary " * (LONGEST_OUTPUT // 7))
    assert LONGEST_OUTPUT - 1 <= len(told.encode()) <= LONGEST_OUTPUT
    assert "canary" not in told


def test_a_result_that_fits_still_does_when_it_is_masked() -> None:
    mask = Mask({LONG_NAME: "canary"})
    assert mask.result(b'["canary"]', 1000) == f'["${{{LONG_NAME}}}"]'.encode()
    result = json.dumps(["canary", "more"] * 500).encode()
    told = mask.result(result, len(result))
    assert json.loads(told) == ["***", "more"] * 500
    assert len(told) <= len(result)


# ---- where it comes from


def test_the_variables_that_params_name_are_masked_and_no_others() -> None:
    params = {"a": ["${TOKEN}", {"b": "${HOST_NAME}:${MISSING}"}], "c": "$${OTHER}", "${KEY}": 1}
    environ = dict.fromkeys(("TOKEN", "HOST_NAME", "OTHER", "KEY"), "")
    environ = {name: f"value-of-{name}" for name in environ}
    told = Mask(values_in(params, environ)).text(" ".join(environ.values()))
    assert told == "${TOKEN} ${HOST_NAME} value-of-OTHER value-of-KEY"


def test_what_names_no_variable_is_handed_through() -> None:
    for mask in (NOTHING, Mask(values_in({"a": ["x", 1, None]}, {}))):
        assert mask.text(TOKEN) == TOKEN


@pytest.mark.parametrize(
    "text", ["\\" * 100_000, '\\"' * 50_000, "%5C" * 30_000, '"\\u005c' * 10_000]
)
@pytest.mark.parametrize("value", ["\\a\\b\\c" * 9, '"\\"\\"\\"', "%5C%5C"])
def test_a_text_of_escapes_alone_is_searched_in_time(value: str, text: str) -> None:
    """One that was searched anew from each place would take minutes."""
    assert "a" not in Mask({"TOKEN": value}).text(text)


def test_a_text_that_lacks_a_part_of_a_value_is_searched_in_time() -> None:
    text = "a+" * 500_000
    assert Mask({"TOKEN": f"a{' a' * 1_900}b"}).text(text) == text


def test_a_control_character_is_masked_as_json_escapes_it() -> None:
    value = 'p"ss\b\fw<rd'
    said = json.dumps(value).replace("<", "\\u003c")
    assert Mask({"TOKEN": value}).text(said) == '"${TOKEN}"'


def test_a_joined_mask_has_both_values_of_a_name() -> None:
    both = Mask({"TOKEN": "first-value"}).joined({"TOKEN": "second-value"})
    assert both.text("first-value second-value") == "${TOKEN} ${TOKEN}"
    assert both.joined({"TOKEN": "first-value"}) is both


def test_the_token_of_the_pages_is_masked_in_every_run() -> None:
    mask = mask_of_worker({"BLACKBOARD_WEB_TOKEN": "fox:0123456789"})
    assert mask.text("Bearer fox:0123456789") == "Bearer ${BLACKBOARD_WEB_TOKEN}"


@pytest.mark.parametrize(
    ("variable", "text", "secret"),
    [
        ("BLACKBOARD_CONNECTION_STRING", "AccountName=ann;AccountKey=abc+/==;X=y", "abc+/=="),
        (
            "BLACKBOARD_CONNECTION_STRING",
            "TableEndpoint=https://ann;SharedAccessSignature=sv=1&sig=uB7x%2Fq0%3D&se=2",
            "uB7x/q0=",
        ),
        ("BLACKBOARD_REDIS_URL", "rediss://ann:p%40ssword@host:1/0", "p@ssword"),
        ("BLACKBOARD_REDIS_URL", "redis://:password@host", "password"),
        ("BLACKBOARD_REDIS_URL", "redis://:pass@word@host", "pass@word"),
        (
            "BLACKBOARD_REDIS_URL",
            "unix:///redis.sock?db=1&password=pass%2Fword",
            "pass/word",
        ),
    ],
)
def test_what_opens_the_store_or_the_bus_is_masked_in_every_run(
    variable: str, text: str, secret: str
) -> None:
    mask = mask_of_worker({variable: text, "OTHER": "plain text"})
    assert mask_of_worker({variable: "redis://host:6379/0"}).text("redis://host:6379/0 is up") == (
        "redis://host:6379/0 is up"
    )
    told = mask.text(f"{text} {secret} {quote(secret)} plain text")
    assert told == f"${{{variable}}} ${{{variable}}} ${{{variable}}} plain text"
    assert mask.values == {}
    assert mask.of_run({variable: text}).values == {variable: text}
