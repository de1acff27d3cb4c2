"""What a notice says: the keys that docs/notify.md documents, and one line for a chat."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from blackboard.notify.notices import LONGEST_ERROR, LONGEST_LINE, MOST_NAMED, Composer
from blackboard.notify.settings import NoticeKind
from tests.support.clocks import START
from tests.support.receivers import NOTICE

COMPOSER = Composer(board="town", worker="rabbit:7301:ab")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({}, "failed: ValueError: bad"),
        ({"failures": 3}, "failed, 3 times in a row: ValueError: bad"),
        ({"outcome": "timeout", "error": ""}, "failed (timeout)"),
        ({"error": "\n\n  first\nsecond"}, "failed: first"),
        ({"event": NoticeKind.OVERDUE}, "is overdue: ready for 2h and not started"),
        ({"event": NoticeKind.WARNED, "error": "lost half; x"}, "warns: lost half; x"),
        ({"event": NoticeKind.CLOCK, "error": "is late"}, "is late"),
        ({"event": NoticeKind.RECOVERED, "failures": 1}, "recovered after 1 failure"),
        ({"event": NoticeKind.RECOVERED, "failures": 0}, "recovered, 1h 30m late"),
        ({"event": NoticeKind.RECOVERED, "failures": 0, "start": None}, "recovered"),
    ],
)
def test_the_line_says_what_happened(change: Mapping[str, Any], line: str) -> None:
    payload = COMPOSER.payload(replace(NOTICE, **change), at=START + timedelta(hours=2))
    assert payload["text"] == f"town: davis {line}"


def test_a_line_is_one_line_of_bounded_length_whatever_is_in_it() -> None:
    hostile = replace(NOTICE, id="a\nb\x1b[31m", error="x" * 5_000 + "\udcff")
    payload = COMPOSER.payload(hostile, at=START)
    assert payload["text"].isprintable()
    assert payload["text"].startswith("town: a b[31m failed: xxx")
    assert len(payload["text"]) == LONGEST_LINE
    assert len(payload["error"]) <= LONGEST_ERROR
    assert payload["id"] == "a\nb\x1b[31m"
    json.dumps(payload).encode("ascii").decode("utf-8")


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("<!channel> <!subteam^S1|ops>", "‹!channel> ‹!subteam^S1|ops>"),
        ("<@U123> <@&456> <https://a.example|click>", "‹@ U123> ‹@&456> ‹https://a.example|click>"),
        ("@everyone, @here! @@all", "@ everyone, @ here! @@ all"),
        ("@\u200beveryone <\u200b!here>", "@ everyone ‹!here>"),
        ("3 @ 4 < 5", "3 @ 4 ‹ 5"),
    ],
)
def test_what_an_error_holds_calls_nobody_in_a_chat(error: str, shown: str) -> None:
    payload = COMPOSER.payload(replace(NOTICE, id="a<@b", error=error), at=START)
    assert payload["text"] == f"town: a‹@ b failed: {shown}"
    assert (payload["id"], payload["error"]) == ("a<@b", error)


def test_what_items_are_called_calls_nobody_in_a_summary() -> None:
    payload = COMPOSER.summary([replace(NOTICE, id="<!here>"), NOTICE], at=START)
    assert payload["text"] == "town: 2 failed: ‹!here>, davis"
    assert payload["items"][0]["id"] == "<!here>"


def test_what_no_utf8_text_has_is_not_sent() -> None:
    payload = COMPOSER.payload(replace(NOTICE, error="a\udcffb"), at=START)
    assert payload["error"] == "a?b"
    json.dumps(payload, ensure_ascii=False).encode()


def test_what_is_not_known_is_null() -> None:
    bare = replace(NOTICE, event=NoticeKind.OVERDUE, outcome="", error="", start=None, stop=None)
    payload = COMPOSER.payload(bare, at=START)
    assert [key for key, value in payload.items() if value is None] == [
        "outcome",
        "error",
        "output",
        "start",
        "stop",
    ]


def test_the_end_of_the_output_is_sent() -> None:
    printed = "".join(f"line {number}\n" for number in range(50)) + "\n"
    payload = COMPOSER.payload(replace(NOTICE, output=printed), at=START)
    assert payload["output"].splitlines() == [f"line {number}" for number in range(30, 50)]
    long = COMPOSER.payload(replace(NOTICE, output="x" * 9_000 + "end"), at=START)
    assert long["output"].endswith("end")
    assert len(long["output"]) == LONGEST_ERROR


def test_a_summary_counts_all_and_names_some() -> None:
    many = [replace(NOTICE, id=f"item{n}") for n in range(MOST_NAMED + 50)]
    well = replace(NOTICE, event=NoticeKind.RECOVERED)
    payload = COMPOSER.summary([*many, well], at=START)
    assert payload["counts"] == {"failed": 150, "recovered": 1}
    assert len(payload["items"]) == MOST_NAMED
    assert payload["items"][0] == {"event": "failed", "id": "item0"}
    assert payload["text"].startswith("town: 150 failed, 1 recovered: item0, item1, ")
    assert payload["text"].endswith("item9, ...")
