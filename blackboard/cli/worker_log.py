"""The log of a worker: one line for each event, as text on a terminal and as JSON elsewhere."""

import codecs
import json
import sys
from datetime import datetime
from typing import Literal, TextIO

import msgspec

from blackboard.clock import Clock
from blackboard.events import BoardEvent
from blackboard.subscribers import Subscriber

LogForm = Literal["auto", "text", "json"]


def subscriber(
    clock: Clock, *, level: int, stream: TextIO | None = None, form: LogForm = "auto"
) -> Subscriber:
    """Writes every event of at least `level` to `stream`, stderr if none is given. The form "auto"
    is text on a terminal and JSON elsewhere. Raises OSError when a line cannot be written; the next
    one that can be written begins on a line of its own.
    """
    stream = stream or sys.stderr
    if form == "text" or (form == "auto" and stream.isatty()):
        from blackboard.cli.render import event_line  # noqa: PLC0415 - rich is slow to import

        line = event_line(stream)
    else:
        line = json_line if _takes_all(stream) else ascii_json_line
    is_torn = False

    def write(event: BoardEvent) -> None:
        nonlocal is_torn
        if event.level < level:
            return
        text = line(event, clock.now())
        was_torn, is_torn = is_torn, True
        stream.write("\n" * was_torn + text)
        stream.flush()
        is_torn = False

    return write


def _takes_all(stream: TextIO) -> bool:
    """Whether any character can be written to it: else a line would be no JSON."""
    try:
        return codecs.lookup(stream.encoding).name == "utf-8"
    except (AttributeError, LookupError, TypeError):  # a stream that a program has made
        return True


def ascii_json_line(event: BoardEvent, at: datetime) -> str:
    """As `json_line`, for a stream that takes no other characters."""
    line = json_line(event, at)
    return line if line.isascii() else json.dumps(json.loads(line)) + "\n"


def json_line(event: BoardEvent, at: datetime) -> str:
    """An event as one line of JSON. What concerns a run names its item, type, fence and worker."""
    time = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return msgspec.json.encode({"time": time, **event.line()}).decode() + "\n"
