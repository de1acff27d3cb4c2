"""`--watch` on a real terminal: keys, what they do to the board, and the terminal as it was."""

import os
import pty
import select
import signal
import sys
import termios
import threading

import pytest

from blackboard.cli import output
from blackboard.cli import terminal as cli_terminal
from tests.cli.command_line import CommandLine, blackboard
from tests.support.patience import patience
from tests.support.processes import eventually
from tests.support.terminals import Terminal, terminal

__all__ = ["blackboard"]

above_the_store = pytest.mark.of_one_store("keys and the terminal are the same above any store")
LEAVE_OTHER_SCREEN = "\x1b[?1049l"
ENTER_OTHER_SCREEN = "\x1b[?1049h"
UP, DOWN, PAGE_DOWN, END, HOME = "\x1b[A", "\x1b[B", "\x1b[6~", "\x1b[F", "\x1bOH"
ENTER, ESC, BACKSPACE = "\r", "\x1b", "\x7f"
LOCAL = 3
"""Where `termios.tcgetattr` has the flags of the line."""


@pytest.fixture(name="towns")
def _towns(blackboard: CommandLine) -> CommandLine:
    blackboard("init")
    blackboard("add", "davis", "keene", "--type", "calendars", "--every", "8h")
    blackboard("pause", "keene")
    return blackboard


def left_as_it_was(screen: Terminal) -> bool:
    """Whether the first screen is back, with a cursor, and keys are echoed again."""
    flags = screen.modes()[LOCAL]
    assert "Traceback" not in screen.all
    assert "Aborted" not in screen.all
    return (
        not screen.display.is_other
        and screen.all.rfind("\x1b[?25h") > screen.all.rfind("\x1b[?25l")
        and screen.all.rfind("\x1b[?7h") > screen.all.rfind("\x1b[?7l")
        and bool(flags & termios.ECHO)
        and bool(flags & termios.ICANON)
    )


def test_the_table_follows_the_board_and_leaves_the_screen_as_it_was(towns: CommandLine) -> None:
    with terminal("show", "--watch", "0.1", folder=towns.folder) as screen:
        screen.wait_to_see("davis", "2 items, 1 paused, next now")
        assert screen.display.is_other
        assert not screen.modes()[LOCAL] & (termios.ECHO | termios.ICANON)
        towns("add", "montclair", "--type", "calendars", "--every", "8h")
        screen.wait_to_see("montclair", "3 items")
        screen.process.send_signal(signal.SIGINT)
        assert screen.end() == 0
        assert left_as_it_was(screen)


@above_the_store
def test_keys_choose_an_item_and_act_on_it(towns: CommandLine) -> None:
    with terminal("show", "--watch", "0.1", folder=towns.folder) as screen:
        screen.wait_to_see("> davis")
        screen.press("p")
        screen.wait_to_see("pause davis, because")
        screen.press("moving", ENTER)
        screen.wait_to_see("davis is paused", "2 paused")
        screen.press(DOWN)
        screen.wait_to_see("> keene")
        screen.press("p", ENTER)
        screen.wait_to_see("keene is resumed", "1 paused")
        screen.press("r")
        screen.wait_to_see("run keene now? y/n")
        screen.press("y")
        screen.wait_to_see("keene is due now")
        screen.press("c")
        screen.wait_to_see("keene does not run")
        screen.press("k", "r", "y")
        screen.wait_to_see("davis is paused: `resume` it first")
        screen.press("q")
        assert screen.end() == 0
        assert left_as_it_was(screen)
    mark = towns("show", "davis", "--json").json[0]["paused"]
    assert mark["reason"] == "moving"
    assert "@" in mark["by"]
    assert towns.item("keene").paused == ""


def test_a_running_item_is_cancelled_and_its_run_says_by_whom(towns: CommandLine) -> None:
    towns.start("davis", owner="rabbit:7:abc")
    with terminal("show", "--watch", folder=towns.folder) as screen:
        screen.wait_to_see("> davis", "1 running")
        screen.press("c")
        screen.wait_to_see("cancel the run of davis, because")
        screen.press("wrong feeds", ENTER)
        screen.wait_to_see("davis is cancelled")
        screen.press("q")
        assert screen.end() == 0
    (run,) = towns("log", "davis", "--json").json
    assert (run["outcome"], run["note"]["reason"]) == ("cancelled", "wrong feeds")


@above_the_store
def test_all_that_matches_is_reached_on_a_small_screen(towns: CommandLine) -> None:
    towns("add", *(f"town-{n:02}" for n in range(20)), "--type", "calendars", "--every", "8h")
    with terminal("show", "--watch", "60", folder=towns.folder, size=(10, 40)) as screen:
        screen.wait_to_see("> davis", "town-04", "1-7 of 22")
        screen.press(PAGE_DOWN)
        screen.wait_to_see("> town-05", "2-8 of 22")
        screen.press(END)
        screen.wait_to_see("> town-19", "16-22 of 22", gone="davis")
        screen.press(UP)
        screen.wait_to_see("> town-18")
        screen.press(HOME)
        screen.wait_to_see("> davis", "1-7 of 22")
        screen.resize(16, 80)
        screen.wait_to_see("town-10", "1-13 of 22")
        screen.press("q")
        assert screen.end() == 0


@above_the_store
def test_items_are_filtered_and_sorted_by_keys(towns: CommandLine) -> None:
    with terminal("show", "--watch", "60", folder=towns.folder, size=(10, 60)) as screen:
        screen.wait_to_see("> davis", "keene")
        screen.press("/", "keX", BACKSPACE)
        screen.wait_to_see("filter (Enter: filter, Esc: not): ke_")
        screen.press(ENTER)
        screen.wait_to_see("> keene", "1 of 2 items", "filter ke", gone="davis")
        screen.press("/", "\x15", "state:gone", ENTER)
        screen.wait_to_see("state: there is no state 'gone'")
        screen.press(ESC)
        screen.wait_to_see("filter ke   ")
        screen.press("/", "X", ENTER)
        screen.wait_to_see("no item matches; Esc takes the filter away", "0 of 2 items")
        screen.press(ESC, "S")
        screen.wait_to_see("> keene", "davis", "by id, reversed", gone="filter")
        screen.press("s")
        screen.wait_to_see("by type, reversed")
        screen.press(" ")
        screen.wait_to_see("held")
        screen.press("q")
        assert screen.end() == 0


@above_the_store
def test_an_item_is_opened_and_scrolled(towns: CommandLine) -> None:
    held = towns.start("davis")
    towns.finish(held, error="ValueError: boom\n" + "\n".join(f"line {n}" for n in range(30)))
    with terminal("show", "--watch", folder=towns.folder, size=(12, 80)) as screen:
        screen.wait_to_see("> davis")
        screen.press(ENTER)
        screen.wait_to_see("davis (type calendars) is waiting.", "Esc back")
        screen.press(END)
        screen.wait_to_see("    line 29")
        screen.press("?")
        screen.wait_to_see("choose another item")
        screen.press(ESC)
        screen.wait_to_see("davis (type calendars) is waiting.")
        screen.press(ESC)
        screen.wait_to_see("> davis", "2 items")
        screen.press("q")
        assert screen.end() == 0


@above_the_store
def test_a_stop_leaves_the_terminal_and_a_start_takes_it_again(towns: CommandLine) -> None:
    """Where no shell waits for it, the kernel lets a process go on at once."""
    with terminal("show", "--watch", "60", folder=towns.folder) as screen:
        screen.wait_to_see("> davis")
        screen.text = ""
        screen.process.send_signal(signal.SIGTSTP)
        screen.wait_for(LEAVE_OTHER_SCREEN)
        screen.wait_for(ENTER_OTHER_SCREEN)
        screen.wait_to_see("> davis")
        screen.process.send_signal(signal.SIGSTOP)
        screen.text = ""
        screen.process.send_signal(signal.SIGCONT)
        screen.wait_for("davis")
        assert not screen.modes()[LOCAL] & (termios.ECHO | termios.ICANON)
        screen.press("q")
        assert screen.end() == 0
        assert left_as_it_was(screen)


@above_the_store
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_it_with_the_terminal_as_it_was(
    towns: CommandLine, number: signal.Signals
) -> None:
    with terminal("workers", "--watch", folder=towns.folder) as screen:
        screen.wait_to_see("no worker has announced itself", "q ends")
        screen.process.send_signal(number)
        assert screen.end() == -number
        assert left_as_it_was(screen)


@above_the_store
@pytest.mark.parametrize(
    ("number", "ended"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 0)]
)
def test_a_signal_ends_it_where_the_terminal_was_halted(
    towns: CommandLine, number: signal.Signals, ended: int
) -> None:
    """As by Ctrl-S, or by a connection that is stuck. It has then drawn what keys have changed."""
    with terminal("show", "--watch", "60", folder=towns.folder) as screen:
        screen.wait_to_see("> davis")
        screen.press("\x13", "p", "moving", ENTER)
        eventually(lambda: towns.item("davis").paused, "keys act where it is halted")
        screen.process.send_signal(number)
        assert screen.process.wait(patience(30)) == ended
        assert screen.modes()[LOCAL] & termios.ECHO


@above_the_store
def test_a_terminal_that_was_halted_shows_what_is_newest(towns: CommandLine) -> None:
    with terminal("show", "--watch", "60", folder=towns.folder) as screen:
        screen.wait_to_see("> davis", "1 paused")
        screen.press("\x13", "p", "moving", ENTER)
        eventually(lambda: towns.item("davis").paused, "keys act where it is halted")
        screen.press("\x11")
        screen.wait_to_see("davis is paused", "2 items, 2 paused", gone="because")
        screen.press("q")
        assert screen.end() == 0
        assert left_as_it_was(screen)


def test_a_terminal_that_takes_less_than_it_seems_to_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one of macOS does, which is halted, or one that is nearly full."""
    master, slave = pty.openpty()
    late = list[bool]()

    def goes_on() -> None:
        late.append(True)
        termios.tcflow(slave, termios.TCOON)

    with open(slave, "w", encoding="utf-8") as stream:  # noqa: PTH123 - a descriptor
        screen = cli_terminal.Terminal()
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(select, "select", lambda *_: ([], [slave], []))
        termios.tcflow(slave, termios.TCOOFF)
        timer = threading.Timer(patience(5), goes_on)
        timer.start()
        screen._leave()
        timer.cancel()
        assert not late
        assert os.get_blocking(slave)
    os.close(master)


@above_the_store
def test_a_signal_that_was_ignored_before_it_began_does_not_end_it(towns: CommandLine) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with terminal("show", "--watch", "0.1", folder=towns.folder) as screen:
            screen.wait_to_see("> davis")
            screen.process.send_signal(signal.SIGHUP)
            towns("add", "montclair", "--type", "calendars")
            screen.wait_to_see("montclair")
            screen.press("q")
            assert screen.end() == 0
    finally:
        signal.signal(signal.SIGHUP, before)


@above_the_store
def test_a_window_that_is_closed_ends_it_without_a_word(towns: CommandLine) -> None:
    """The kernel then lets it go on, in case that it was stopped."""
    errors = towns.folder / "errors"
    with (
        errors.open("wb") as file,
        terminal("show", "--watch", folder=towns.folder, errors=file.fileno()) as screen,
    ):
        screen.wait_to_see("> davis")
        screen.process.send_signal(signal.SIGSTOP)
        screen.hang_up()
        screen.process.send_signal(signal.SIGCONT)
        assert screen.process.wait(patience(30)) in {0, 2}, "2: not all was written"
    assert errors.read_text() == ""


@above_the_store
@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("workers", "no worker has announced itself"),
        ("leases", "no groups"),
        ("leader", "no elections yet"),
        ("status", "coordinator  none"),
    ],
)
def test_what_is_watched_has_keys_as_well(towns: CommandLine, line: str, seen: str) -> None:
    with terminal(line, "--watch", "0.1", folder=towns.folder, size=(8, 80)) as screen:
        screen.wait_to_see(seen, "? keys, q ends")
        screen.press(" ")
        screen.wait_to_see("held")
        screen.press("?")
        screen.wait_to_see("PgUp PgDn")
        screen.press("q", " ")
        screen.wait_to_see(seen, gone="held")
        screen.press("q")
        assert screen.end() == 0
        assert left_as_it_was(screen)


@above_the_store
def test_a_first_reading_that_cannot_be_is_an_error_on_the_first_screen(
    towns: CommandLine,
) -> None:
    with terminal("show", "nobody", "--watch", folder=towns.folder) as screen:
        assert screen.end() == 2
        assert left_as_it_was(screen)
        assert "no item 'nobody'" in screen.display.text
    dumb = {"TERM": "dumb"}
    with terminal("show", "--watch", folder=towns.folder, environment=dumb) as screen:
        assert screen.end() == 2
        assert "this terminal cannot move its cursor" in screen.text
        assert "\x1b" not in screen.text


@above_the_store
def test_colours_are_for_terminals(towns: CommandLine) -> None:
    with terminal("show", folder=towns.folder) as screen:
        assert screen.end() == 0
    assert "\x1b[90mkeene" in screen.text
    assert "\x1b[" not in towns("show").out


@above_the_store
@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_can_be_declined(
    towns: CommandLine, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert output.colour()
    monkeypatch.setenv(name, value)
    assert not output.colour()
    assert "\x1b[" not in towns("show").out
