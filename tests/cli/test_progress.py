"""Bars of long work: when they appear, where, and what they say."""

import asyncio
import sys
from io import StringIO

import click
import pytest

from blackboard.cli.options import JSON_ASKED
from blackboard.cli.progress import MANY, counted, progress, reading
from blackboard.doctor import Examination, examine
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.status import count, write_statistics
from tests.cli.command_line import CommandLine, blackboard
from tests.support.clocks import ManualClock

__all__ = ["blackboard"]


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Stderr is one, from now on."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", screen := Terminal())
    return screen


def test_quick_work_has_no_bar(monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> None:
    screen = terminal(monkeypatch)
    with progress("adding", 10, clock=clock) as done:
        for _ in range(10):
            clock.advance(0.09)
            done.moved()
    assert screen.getvalue() == ""


def test_a_bar_appears_after_a_second_and_is_erased(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    screen = terminal(monkeypatch)
    with progress("adding", 10, clock=clock) as done:
        clock.advance(0.9)
        done.moved()
        assert screen.getvalue() == ""
        clock.advance(0.2)
        done.moved(4)
        assert "adding" in screen.getvalue()
        assert "50%" in screen.getvalue()
        clock.advance(0.05)
        done.moved(2)
        assert "70%" not in screen.getvalue()
        done.moved(3)
        assert "100%" in screen.getvalue()
    assert screen.getvalue().endswith("\x1b[1A\x1b[2K")


def test_a_bar_for_many_things_appears_at_once(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    screen = terminal(monkeypatch)
    with progress("adding", MANY, clock=clock):
        assert "adding" in screen.getvalue()


def test_where_the_number_is_not_known_it_is_counted(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    screen = terminal(monkeypatch)
    with progress("examining rows", clock=clock) as done:
        clock.advance(2.0)
        done.moved(1234)
        assert "examining rows 1,234" in screen.getvalue()
        assert "%" not in screen.getvalue()


def test_steps_say_what_is_done(monkeypatch: pytest.MonkeyPatch, clock: ManualClock) -> None:
    screen = terminal(monkeypatch)
    with progress("measuring", 4, at_once=True, clock=clock) as done:
        done.begun("measuring this", share=0.0)
        done.begun("measuring that", share=0.25)
    assert "measuring this" in screen.getvalue()
    assert "measuring that" in screen.getvalue()
    assert "25%" in screen.getvalue()


def test_there_is_no_bar_in_a_file_or_beside_json(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    monkeypatch.setattr(sys, "stderr", file := StringIO())
    with progress("adding", MANY, clock=clock) as done:
        done.moved(MANY)
    assert file.getvalue() == ""
    screen = terminal(monkeypatch)
    with click.Context(click.Command("export")) as context:
        context.meta[JSON_ASKED] = True
        with progress("adding", MANY, clock=clock) as done:
            done.moved(MANY)
    assert screen.getvalue() == ""


def test_colours_of_a_bar_can_be_declined(
    monkeypatch: pytest.MonkeyPatch, clock: ManualClock
) -> None:
    screen = terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    with progress("adding", MANY, clock=clock) as done:
        clock.advance(1.0)
        done.moved(MANY // 2)
    assert "━   " in screen.getvalue()
    assert "50%" in screen.getvalue()
    assert "\x1b[3" not in screen.getvalue()
    assert "\x1b[9" not in screen.getvalue()


@pytest.mark.not_on_azurite("the bar does not depend on the store")
def test_items_are_counted_as_they_are_read(
    blackboard: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blackboard.cli.progress.QUICK", 0.0)
    monkeypatch.setattr("blackboard.cli.progress.BETWEEN_DRAWINGS", 0.0)
    monkeypatch.setattr(sys, "stderr", StringIO())
    blackboard("add", "davis", "keene", "--type", "feed", "--every", "8h")
    screen = terminal(monkeypatch)

    async def looked(board: BoardTable) -> None:
        async with counted(board, "reading items") as through:
            assert len([one async for one in through.items()]) == 2
        assert "reading items 2" in screen.getvalue()
        screen.truncate(0)
        assert await write_statistics(board, await count(board))
        async with counted(board, "reading items") as through:
            assert len([one async for one in through.items()]) == 2
        assert "100%" in screen.getvalue()
        screen.truncate(0)
        async with reading(_open(board), "examining rows", whole=True) as through:
            assert (await examine(through, Examination())).clean
        assert "examining rows 4" in screen.getvalue()

    blackboard.on_board(looked)


class _open:  # noqa: N801 - as if it were a function
    """A board that is open."""

    def __init__(self, board: BoardTable) -> None:
        self._board = board

    async def __aenter__(self) -> BoardTable:
        return self._board

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0)
