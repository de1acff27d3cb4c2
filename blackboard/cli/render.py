"""The only importer of rich: bars of progress, pictures, and what a worker logs on a terminal.

Text from the board reaches rich as text, never as markup, and never with its control characters.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from io import StringIO
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from blackboard import events
from blackboard.display.columns import worker_name
from blackboard.display.escaping import one_line
from blackboard.phrases import brief

LEVELS = {10: "bright_black", 20: "", 30: "yellow", 40: "red", 50: "bold red"}
EVENT_STYLES: Mapping[type[events.BoardEvent], str] = {
    events.RunStarted: "cyan",
    events.RunEnded: "green",
    events.LockOverridden: "magenta",
    events.LockAdopted: "magenta",
    events.LockLost: "red",
    events.StoreAway: "red",
    events.StoreBack: "red",
}
"""The styles of events whose level has no style."""

_FONTS = re.compile(r"@font-face\s*\{[^}]*\}\s*")
"""Matches the fonts that an SVG of rich would load from another host."""

ANY = "any"
COMMON = {"attempt": 1, "release": "done", "outcome": ANY}
"""Usual values of a run, which are left out; its outcome is in the message."""


def _console(stream: TextIO, *, soft_wrap: bool = False) -> Console:
    """A console that writes text as it is, in colours where the terminal has some: without any
    for https://no-color.org.
    """
    return Console(
        file=stream,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=soft_wrap,
    )


def svg_of(text: str, *, title: str) -> str:
    """What a command has written on a terminal, as an SVG document without references to other
    files, for a page of Markdown.
    """
    picture = Text.from_ansi(text, no_wrap=True, overflow="crop", end="")
    width = max((line.cell_len for line in picture.split()), default=1)
    console = Console(record=True, width=width, file=StringIO(), color_system="truecolor")
    console.print(picture)
    return _FONTS.sub("", console.export_svg(title=title))


def event_line(stream: TextIO) -> Callable[[events.BoardEvent, datetime], str]:
    """Makes an event of a worker a line for people, with colours if `stream` is a terminal."""
    console = _console(stream, soft_wrap=True)

    def line(event: events.BoardEvent, at: datetime) -> str:
        with console.capture() as printed:
            console.print(event_text(event, at))
        return printed.get()

    return line


def event_text(event: events.BoardEvent, at: datetime) -> Text:
    """An event in a line: time, kind, item or else worker, message, and what is uncommon."""
    style = LEVELS.get(event.level, "")
    text = Text(f"{at:%H:%M:%SZ} ", "bright_black")
    text.append(f"{event.kind:<16}", style or EVENT_STYLES.get(type(event), ""))
    if isinstance(event, events.BoardItemEvent):
        text.append(f" {one_line(event.id)}", "bold")
        text.append(f" {one_line(event.type)} #{event.fence}", "bright_black")
    elif event.worker:
        text.append(f" {one_line(worker_name(event.worker))}", "bright_black")
    message = event.message
    if message:
        text.append(f"  {one_line(message)}", style)
    for name, value in event.details.items():
        if COMMON.get(name) in (ANY, value):
            continue
        words = brief(value) if isinstance(value, float) else one_line(str(value))
        if isinstance(value, dict) and "total" in value:
            words = str(value["total"])
        text.append(f" {name}={words}", "bright_black")
    return text


@contextmanager
def bar(stream: TextIO) -> Iterator[Callable[[str, float | None], None]]:
    """A progress bar on a terminal, erased at the end. Its function takes the name of the work and
    the share that is done, where that is known.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(
        *columns,
        TimeRemainingColumn(elapsed_when_finished=True),
        console=_console(stream),
        transient=True,
        auto_refresh=False,
    ) as progress:
        task = progress.add_task("", total=None, visible=False)

        def moved(label: str, share: float | None) -> None:
            total = None if share is None else 1.0
            progress.update(
                task,
                description=label,
                completed=share or 0.0,
                total=total,
                visible=True,
                refresh=True,
            )

        yield moved
