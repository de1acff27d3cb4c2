"""The terminal as a screen of its own: keys are read one by one, and lines are drawn in place.

Only lines that differ are sent, so nothing flickers. The terminal is as it was again in every way
out: at the end, after an error, and while the process is stopped by Ctrl-Z.

No write waits for the terminal: one that takes no output, as after Ctrl-S, holds up no signal and
no key. What is newest is drawn when it takes output again.

Keys that print are themselves; the others have the names of `KEYS`, "esc" and "ctrl-x".
"""

import asyncio
import codecs
import os
import re
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self

from blackboard.cli.output import colour
from blackboard.display.layout import Line, cropped, measure, text_of
from blackboard.errors import BadInput

if TYPE_CHECKING:
    from blackboard.cli.watch import WatchLoop

KEYS = {
    "\r": "enter",
    "\n": "enter",
    "\t": "tab",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    **dict.fromkeys(("\x1b[H", "\x1b[1~", "\x1b[7~"), "home"),
    **dict.fromkeys(("\x1b[F", "\x1b[4~", "\x1b[8~"), "end"),
}
ESC = "\x1b"
ESC_ALONE = 0.05
"""Seconds after which ESC is a key, and not the beginning of a longer sequence."""
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1bO[@-~]")
_BEGUN = re.compile(r"\x1b(\[[0-?]*[ -/]*|O)?")
_PRESSED = re.compile(r"\x1bO(?=[A-DHF]$)")
"""The beginning of a cursor key in application mode."""

_SETTLED = "\x1b[?25l\x1b[?7l"
"""No cursor, and no line wrap."""
_ENTER = f"\x1b[?1049h{_SETTLED}\x1b[2J"
"""Enters the alternate screen, without a cursor and without line wrap."""
_LEAVE = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
_AT = "\x1b[{};1H"
_REST_OF_LINE = "\x1b[K"
TAKES_WITHIN = 1.0
"""Seconds after which a terminal that takes no output, as after Ctrl-S, is left as it is."""
ASKED_EVERY = 0.01
"""Seconds between two attempts to write what a terminal has not taken."""
ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that end it, unless they are ignored, as SIGHUP is after `nohup`."""


class KeyReader:
    """Turns the bytes of a terminal into keys, however they are cut into reads."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._left = ""

    @property
    def waits(self) -> bool:
        """Whether it has the beginning of a sequence, or an ESC."""
        return bool(self._left)

    def read(self, data: bytes) -> list[str]:
        """The keys that are complete."""
        text, keys = self._left + self._decoder.decode(data), []
        while text:
            if (whole := _SEQUENCE.match(text)) is not None:
                key = KEYS.get(_PRESSED.sub("\x1b[", whole[0]))
                keys += [key] if key else []
                text = text[whole.end() :]
            elif _BEGUN.fullmatch(text):
                break
            else:
                keys += _plain(text[0])
                text = text[1:]
        self._left = text
        return keys

    def flush(self) -> list[str]:
        """The incomplete rest of the input, as keys."""
        text, self._left = self._left, ""
        return [key for part in text for key in _plain(part)]


def _plain(text: str) -> list[str]:
    if text == ESC:
        return ["esc"]
    if text in KEYS:
        return [KEYS[text]]
    if "\x01" <= text <= "\x1a":
        return [f"ctrl-{chr(ord(text) + 96)}"]
    return [text] if text.isprintable() else []


class Terminal:
    """The terminal of this process, while it is entered: `with Terminal() as terminal`. There are
    no keys where the standard input is not a terminal.
    """

    def __init__(self) -> None:
        self._input = sys.stdin.fileno() if sys.stdin.isatty() else None
        self._before: list[Any] | None = None
        self._drawn: list[str] = []
        self._size = (0, 0)
        self._keys = KeyReader()
        self._later: asyncio.TimerHandle | None = None
        self._unsent = b""
        self._rest: asyncio.TimerHandle | None = None
        """When that is sent."""
        self._ending = [n for n in ENDING if signal.getsignal(n) is not signal.SIG_IGN]

    def __enter__(self) -> Self:
        if os.environ.get("TERM", "dumb") == "dumb":
            raise BadInput("watch", "this terminal cannot move its cursor (TERM)", "leave it out")
        sys.stdout.flush()
        self._enter()
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        try:
            columns, rows = os.get_terminal_size(sys.stdout.fileno())
        except (OSError, ValueError):
            columns, rows = 0, 0
        usual = shutil.get_terminal_size()
        return columns or usual.columns, rows or usual.lines

    def draw(self, lines: Sequence[Line]) -> None:
        """Show these lines from the top; those that do not fit are left out. Draws nothing where
        the terminal has not taken all of what was drawn before; the listener is called then.
        """
        if self._unsent:
            return
        columns, rows = size = self.size()
        in_colour = colour()
        texts = [text_of(cropped(line, columns), colour=in_colour) for line in lines[:rows]]
        texts += [""] * (rows - len(texts))
        if size != self._size:
            self.forget()
            self._size = size
        parts = ["\x1b[2J"] if not self._drawn else []
        for number, text in enumerate(texts):
            if not self._drawn or text != self._drawn[number]:
                plain = text_of(cropped(lines[number], columns), colour=False) if text else ""
                rest = _REST_OF_LINE if measure(plain) < columns else ""
                parts.append(f"{_AT.format(number + 1)}{text}{rest}")
        self._drawn = texts
        self._write("".join(parts))

    def forget(self) -> None:
        self._drawn = []

    # ---- keys and signals

    def listen(self, listener: "WatchLoop") -> None:
        """Have `listener` called from the event loop, until `ignore`."""
        self._listener, loop = listener, asyncio.get_running_loop()
        if self._input is not None:
            loop.add_reader(self._input, self._readable)
        loop.add_signal_handler(signal.SIGWINCH, self._anew)
        loop.add_signal_handler(signal.SIGCONT, self._went_on)
        self._await_signals()

    def _await_signals(self) -> None:
        """Handles the signals after which the terminal must be restored."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTSTP, self._stop)
        for number in self._ending:
            loop.add_signal_handler(number, self._listener.ended, number)

    def ignore(self) -> None:
        loop = asyncio.get_running_loop()
        if self._input is not None:
            loop.remove_reader(self._input)
        if self._later is not None:
            self._later.cancel()
        for number in (signal.SIGWINCH, signal.SIGCONT, signal.SIGTSTP, *self._ending):
            loop.remove_signal_handler(number)

    def _readable(self) -> None:
        assert self._input is not None
        loop, data = asyncio.get_running_loop(), b""
        with suppress(OSError):  # the terminal is gone
            data = os.read(self._input, 4096)
        if not data:
            loop.remove_reader(self._input)
            self._listener.ended(0)
            return
        self._heard(self._keys.read(data))
        if self._later is not None:
            self._later.cancel()
        if self._keys.waits:
            self._later = loop.call_later(ESC_ALONE, lambda: self._heard(self._keys.flush()))

    def _heard(self, keys: Sequence[str]) -> None:
        for key in keys:
            if key == "ctrl-l":
                self._anew()
            else:
                self._listener.pressed(key)

    def _anew(self) -> None:
        self.forget()
        self._listener.changed()

    def _stop(self) -> None:
        """Stop this process, as Ctrl-Z does, with the terminal as it was."""
        loop = asyncio.get_running_loop()
        self._leave()
        for number in (signal.SIGTSTP, *self._ending):  # meanwhile they have no handler
            loop.remove_signal_handler(number)
        os.kill(os.getpid(), signal.SIGTSTP)  # execution continues here after SIGCONT
        self._await_signals()
        self._enter()
        self._anew()

    def _went_on(self) -> None:
        """After SIGSTOP, which cannot be handled: the shell has used the terminal meanwhile."""
        self._read_singly()
        with suppress(OSError):  # the terminal is gone
            self._write(_SETTLED)
        self._anew()

    # ---- its modes

    def _enter(self) -> None:
        self._read_singly()
        self._write(_ENTER)
        self.forget()

    def _leave(self) -> None:
        if self._input is not None and self._before is not None:
            with suppress(termios.error):
                termios.tcsetattr(self._input, termios.TCSANOW, self._before)
        if self._rest is not None:
            self._rest.cancel()
        left, self._unsent = _LEAVE.encode(), b""
        with suppress(OSError), _without_waiting() as output:  # it is gone, or takes no more
            while left and select.select([], [output], [], TAKES_WITHIN)[1]:
                left = left[os.write(output, left) :]

    def _read_singly(self) -> None:
        """Keys come without waiting for the end of a line, and are not echoed; Ctrl-C and Ctrl-Z
        stay signals. Does not wait until the terminal has taken all output, which it may never do.
        """
        if self._input is None:
            return
        with suppress(termios.error):
            if self._before is None:
                self._before = termios.tcgetattr(self._input)
            tty.setcbreak(self._input, termios.TCSANOW)

    def _write(self, text: str) -> None:
        is_sending = bool(self._unsent)
        self._unsent += text.encode(sys.stdout.encoding or "utf-8", "replace")
        if not is_sending:
            self._send()

    def _send(self) -> None:
        """Write what the terminal takes now, and the rest later."""
        try:
            with _without_waiting() as output:
                while self._unsent:
                    self._unsent = self._unsent[os.write(output, self._unsent) :]
        except BlockingIOError:
            loop = asyncio.get_running_loop()
            self._rest = loop.call_later(ASKED_EVERY, self._send_rest)
        except OSError:  # the terminal is gone
            self._unsent = b""
            raise

    def _send_rest(self) -> None:
        try:
            self._send()
        except OSError:
            self._listener.ended(0)
        if not self._unsent:
            self._listener.changed()


@contextmanager
def _without_waiting() -> Iterator[int]:
    """The descriptor of the output; a write to it raises BlockingIOError rather than wait."""
    output = sys.stdout.fileno()
    os.set_blocking(output, False)
    try:
        yield output
    finally:
        os.set_blocking(output, True)
