"""`--watch`: one loop for all views. It reads the board again and again, draws the view, and passes
the keys to it; keys never wait for the store.

A reading takes no more than half of the time: after a slow one the next comes later. Ends by `q`,
Ctrl-C or a signal, with the terminal as it was.
"""

import asyncio
import re
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

import click
from msgspec import Struct

from blackboard.cli.output import is_terminal
from blackboard.cli.session import Session
from blackboard.cli.watch_keys import PAGE_KEYS, Scroll
from blackboard.clock import Clock, SystemClock
from blackboard.display.escaping import one_line
from blackboard.display.layout import Line, Style, measure, paragraph
from blackboard.errors import BadInput, BlackboardError
from blackboard.protocol.board_table import BoardTable
from blackboard.schedule.times import parse_duration
from blackboard.table import Busy, TableError, Unavailable
from blackboard.tasks import cancel_all

Work = Callable[[], Awaitable[None]]
"""A change of the board that a key has asked for."""


class WatchedView(Protocol):
    """A view that the loop reads, draws, and passes keys to."""

    @property
    def is_over(self) -> bool: ...

    @property
    def is_held(self) -> bool:
        """Whether the refresh is held: it is read only when it lacks what a key has asked for."""
        ...

    @property
    def lacks(self) -> bool:
        """Whether a key has asked for what was not read yet."""
        ...

    def draw(self, width: int, height: int) -> Sequence[Line]: ...

    def press(self, key: str) -> Work | None: ...

    async def read(self) -> None: ...

    trouble: str
    """Why the last reading failed, which is shown; "": it did not fail. The loop sets it."""


class Screen(Protocol):
    """What a terminal does for the loop; see `terminal.py`."""

    def size(self) -> tuple[int, int]: ...

    def draw(self, lines: Sequence[Line]) -> None: ...


def _seconds_of(text: str) -> float:
    if re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?", text):
        return max(float(text), 0.1)
    try:
        return parse_duration(text, "watch").total_seconds()
    except BadInput:
        remedy = "say the seconds, as in `--watch 2`"
        raise BadInput("watch", f"{text!r} is not a time", remedy) from None


watch_option = click.option(
    "--watch",
    is_flag=False,
    flag_value="2",
    metavar="[SECONDS]",
    help="Show it again every [2] s, until q; ? shows the keys.",
)


class WatchLoop:
    """The loop. It is the listener of a terminal."""

    def __init__(self, view: WatchedView, screen: Screen, *, clock: Clock, every: float) -> None:
        self._view = view
        self._screen = screen
        self._clock = clock
        self._every = every
        self._news = asyncio.Event()
        """Set when there is something new to draw."""
        self._hurry = asyncio.Event()
        """Set when the view must be read at once."""
        self._works: asyncio.Queue[Work] = asyncio.Queue()
        self._left = 0
        """The number of changes that are not done yet."""
        self.ended_by: int | None = None
        """The signal that has ended it; 0: the terminal is gone."""

    async def run(self) -> None:
        """Runs until the view is over or a signal comes. Finishes first what a key has begun.

        Raises what the first reading raises, unless the store is only away.
        """
        self._draw()
        self._hurry.set()
        tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._act())]
        for task in tasks:
            task.add_done_callback(lambda _: self._news.set())
        try:
            while self.ended_by is None and not (self._view.is_over and self._left == 0):
                self._draw()
                await self._news.wait()
                self._news.clear()
                for task in tasks:
                    if task.done():
                        task.result()
        finally:
            await cancel_all(tasks)

    def pressed(self, key: str) -> None:
        if self._view.is_over:
            return
        was_held = self._view.is_held
        work = self._view.press(key)
        if work is not None:
            self._left += 1
            self._works.put_nowait(work)
        if was_held and not self._view.is_held:
            self._hurry.set()
        self._news.set()

    def changed(self) -> None:
        """Called when everything must be drawn anew."""
        self._news.set()

    def ended(self, number: int) -> None:
        """Called when a signal ends this process; 0: the terminal is gone."""
        if self.ended_by is None:
            self.ended_by = number
        self._news.set()

    def _draw(self) -> None:
        try:
            self._screen.draw(self._view.draw(*self._screen.size()))
        except OSError:  # the terminal is gone
            self.ended(0)
        if self._view.lacks:  # the screen may have become larger
            self._hurry.set()

    async def _read(self) -> None:
        pause, is_first = self._every, True
        while True:
            await self._rest(pause)
            self._hurry.clear()
            began = self._clock.monotonic()
            try:
                await self._view.read()
            except (BlackboardError, TableError) as trouble:
                if is_first and not isinstance(trouble, Busy | Unavailable):
                    raise
                self._view.trouble = words_of(trouble)
            else:
                self._view.trouble = ""
                is_first = False
            self._news.set()
            pause = max(self._every, self._clock.monotonic() - began)

    async def _rest(self, seconds: float) -> None:
        """Waits for the time of the next reading, or until the view must be read at once."""
        while not self._hurry.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._hurry.wait()
            if not self._view.is_held:
                return

    async def _act(self) -> None:
        while True:
            work = await self._works.get()
            try:
                await work()
            finally:
                self._left -= 1
                self._hurry.set()
                self._news.set()


def words_of(trouble: Exception) -> str:
    if isinstance(trouble, Busy | Unavailable):
        return one_line(f"store: {trouble}")
    return one_line(str(trouble) or "no answer came from the store: it may have been done")


def time_of_frame(session: Session) -> float:
    """The seconds between two frames. Raises BadInput, also where there is no terminal."""
    seconds = _seconds_of(session.chosen.watch or "")
    if session.chosen.json or not is_terminal():
        raise BadInput("watch", "needs a terminal", "for programs: the command with `--json`")
    return seconds


def watched(session: Session, view_of: Callable[[BoardTable], WatchedView]) -> int:
    """Watch a board on the terminal, as `--watch` says; the exit code."""
    from blackboard.cli.terminal import Terminal  # noqa: PLC0415 - not for --help

    every = time_of_frame(session)

    async def work() -> int | None:
        async with session.board() as board:
            view = view_of(board)
            with Terminal() as terminal:
                loop = WatchLoop(view, terminal, clock=SystemClock(), every=every)
                terminal.listen(loop)
                try:
                    await loop.run()
                finally:
                    terminal.ignore()
            return loop.ended_by

    try:
        number = asyncio.run(work())
    except KeyboardInterrupt:
        return 0
    if number:
        signal.raise_signal(number)
    return 0


def watched_page(session: Session, read: Callable[[BoardTable], Awaitable["Drawn"]]) -> int:
    """Watch a page about a board; the exit code."""
    return watched(session, lambda board: PageView(partial(read, board), SystemClock()))


# ---- pages, which scroll


class WatchedPage(Struct, frozen=True, kw_only=True):
    body: Sequence[Line]
    head: int = 0
    """The number of lines that stay at the top."""
    summary: str = ""


Drawn = Callable[[int], WatchedPage]
"""Lays out what was read for a number of columns."""


class PageView:
    """A page that is read again and again: `q`, space, `?`, and keys that scroll."""

    def __init__(self, read: Callable[[], Awaitable[Drawn]], clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self._drawn: Drawn = lambda _: WatchedPage(body=())
        self._at = ""
        self._scroll = Scroll()
        self.trouble = ""
        self._shows_keys = False
        self.is_over = False
        self.is_held = False
        self.lacks = False

    async def read(self) -> None:
        self._drawn = await self._read()
        self._at = f"{self._clock.now():%H:%M:%SZ}"

    def press(self, key: str) -> None:
        if key in {"q", "ctrl-c"}:
            if self._shows_keys and key == "q":
                self._shows_keys = False
            else:
                self.is_over = True
        elif key == " ":
            self.is_held = not self.is_held
        elif key == "?" or (self._shows_keys and key in {"esc", "enter"}):
            self._shows_keys = not self._shows_keys
            self._scroll = Scroll()
        else:
            self._scroll = self._scroll.pressed(key)

    def draw(self, width: int, height: int) -> Sequence[Line]:
        page = self._drawn(width)
        if self._shows_keys:
            page = WatchedPage(body=key_lines(PAGE_KEYS, width))
        room = max(height - page.head - 1, 1)
        self._scroll, on_screen = self._scroll.part_of(page.body[page.head :], room)
        lines = [*page.body[: page.head], *on_screen]
        if self.trouble:
            return [*lines, [(self.trouble, Style.BAD)]]
        parts = [
            page.summary,
            self._scroll.place,
            f"{self._at} held" if self.is_held else self._at,
            "? keys, q ends",
        ]
        return [*lines, [(fitting(parts, width), Style.TITLE)]]


def fitting(parts: Sequence[str], width: int) -> str:
    """The parts that fit into a line; the last ones are left out first."""
    kept: list[str] = []
    for part in filter(None, parts):
        if kept and measure("   ".join([*kept, part])) > width:
            break
        kept.append(part)
    return "   ".join(kept)


def key_lines(keys: Sequence[tuple[str, str]], width: int) -> list[Line]:
    margin = max(len(names) for names, _ in keys) + 2
    if width < 3 * margin:
        margin = 4
    lines: list[Line] = []
    for names, words in keys:
        first = names.ljust(margin)
        if len(first) > margin:
            lines.append([(names, Style.TITLE)])
            first = " " * margin
        lines += paragraph(words, width, first=first)
    return lines
