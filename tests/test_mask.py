"""What is masked in all that a run says, and what stays."""

import json
from base64 import b64encode, urlsafe_b64encode
from typing import Any
from urllib.parse import quote, quote_plus, urlencode

import pytest

from blackboard.mask import NOTHING, SHORTEST, Mask, mask_of
from blackboard.model import Ended, Outcome
from blackboard.runners.prints import KEPT, Tail

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
        (encoded(TOKEN), "${TOKEN}"),
        (urlsafe_b64encode(TOKEN.encode()).decode().rstrip("="), "${TOKEN}"),
        ("ann said nothing of it", "ann said nothing of it"),
        ("", ""),
    ],
)
def test_a_value_is_masked_however_it_looks(said: str, told: str) -> None:
    assert MASK.text(said) == told


@pytest.mark.parametrize("value", ["secret", "sevensx", "eightsxx", "ninesxxxx", TOKEN])
@pytest.mark.parametrize("user", ["", "a", "ab", "abc", "ann:"])
@pytest.mark.parametrize("rest", ["", "y", "yz", ":more"])
def test_a_value_is_masked_within_what_was_encoded(value: str, user: str, rest: str) -> None:
    """At most the digits stay that it shares with its neighbours: two at either end."""
    said = encoded(user + value + rest)
    told = Mask({"TOKEN": value}).text(f"Authorization: Basic {said}")
    left = told.removeprefix("Authorization: Basic ").replace("${TOKEN}", "", 1)
    assert len(said) - len(left) >= len(encoded(value).rstrip("=")) - 3
    assert "${TOKEN}" in told


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
    return MASK.ended(Ended(outcome=Outcome.OK, **said))


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
    assert Mask({"PIN": "123456"}).ended(Ended(outcome=Outcome.OK, result=[123456])).result == [
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
    for rest in range(KEPT - len(TOKEN.encode()) - 1, KEPT + 1):
        tail = Tail()
        tail.add(f"before {TOKEN}{'.' * rest}".encode())
        output = ended(output=tail.text()).output
        assert all(TOKEN[n : n + SHORTEST] not in output for n in range(len(TOKEN) - SHORTEST + 1))
        told.add(output.strip("."))
    assert {"${TOKEN}", ""} <= told


# ---- where it comes from


def test_the_variables_that_params_name_are_masked_and_no_others() -> None:
    params = {"a": ["${TOKEN}", {"b": "${HOST_NAME}:${MISSING}"}], "c": "$${OTHER}", "${KEY}": 1}
    environ = dict.fromkeys(("TOKEN", "HOST_NAME", "OTHER", "KEY"), "")
    environ = {name: f"value-of-{name}" for name in environ}
    told = mask_of(params, environ).text(" ".join(environ.values()))
    assert told == "${TOKEN} ${HOST_NAME} value-of-OTHER value-of-KEY"


def test_what_names_no_variable_is_handed_through() -> None:
    said = Ended(outcome=Outcome.OK, result=object(), output=TOKEN)
    assert NOTHING.ended(said) is said
    assert mask_of({"a": ["x", 1, None]}, {}).ended(said) is said
