"""Times and durations in words."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from blackboard.phrases import (
    brief,
    command,
    exactly,
    first_line,
    iso,
    plural,
    relative,
    span,
    stamp,
)

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)
MINUTE, HOUR, DAY = 60, 3_600, 86_400


@pytest.mark.parametrize(
    ("seconds", "short", "longer"),
    [
        (0, "0s", "0s"),
        (0.04, "0s", "0s"),
        (0.25, "0.2s", "0.2s"),
        (3, "3s", "3s"),
        (9.94, "9.9s", "9.9s"),
        (9.96, "9s", "9s"),
        (59, "59s", "59s"),
        (90, "90s", "1m 30s"),
        (119, "119s", "1m 59s"),
        (2 * MINUTE, "2m", "2m"),
        (119 * MINUTE, "119m", "1h 59m"),
        (2 * HOUR, "2h", "2h"),
        (8 * HOUR - 1, "7h", "7h 59m"),
        (47 * HOUR, "47h", "1d 23h"),
        (2 * DAY, "2d", "2d"),
        (1000 * DAY + HOUR, "1000d", "1000d 1h"),
        (-90, "-90s", "-90s"),
    ],
)
def test_durations_are_told_in_one_unit_or_two(seconds: float, short: str, longer: str) -> None:
    assert (brief(seconds), span(seconds)) == (short, longer)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "now"),
        (0.9, "now"),
        (-0.9, "now"),
        (1, "in 1s"),
        (-239, "3m ago"),
        (7.4 * HOUR, "in 7h"),
        (8 * HOUR - 1, "in 8h"),
        (1 - 8 * HOUR, "7h ago"),
        (2 * HOUR - 1, "in 2h"),
        (47.6 * HOUR, "in 2d"),
    ],
)
def test_times_are_told_from_here(seconds: float, words: str) -> None:
    assert relative(NOW + timedelta(seconds=seconds), NOW) == words


def test_an_exact_time_says_both_when_and_how_far() -> None:
    told = [exactly(NOW + timedelta(minutes=m), NOW) for m in (425, 0, -61)]
    assert told == [
        "2026-11-21 16:05:00Z (in 7h 5m)",
        "2026-11-21 09:00:00Z (now)",
        "2026-11-21 07:59:00Z (1h 1m ago)",
    ]


def test_times_for_programs_are_utc_with_milliseconds_and_z() -> None:
    there = datetime(2026, 11, 21, 10, 0, 0, 1_500, tzinfo=timezone(timedelta(hours=1)))
    assert iso(there) == "2026-11-21T09:00:00.001Z"
    assert stamp(there) == "2026-11-21 09:00:00Z"


def test_a_command_is_typed_as_it_is_written() -> None:
    assert command("run", "ann") == "`blackboard run ann`"
    assert command("rename", "two words", "-x") == "`blackboard rename -- 'two words' -x`"
    named = command("rm", "east; west", board="town.leaders")
    assert named == "`blackboard --board town.leaders rm 'east; west'`"


def test_numbers_of_things() -> None:
    assert [plural(n, "item") for n in (0, 1, 2, 2000)] == [
        "0 items",
        "1 item",
        "2 items",
        "2,000 items",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [("", ""), ("\n  \n ValueError: x \nTraceback", "ValueError: x"), ("one", "one")],
)
def test_an_error_is_told_by_its_first_line(text: str, line: str) -> None:
    assert first_line(text) == line
