"""What a worker tells: one line an event, for people on a terminal, as JSON otherwise."""

import json as json_text
import sys
from datetime import datetime
from typing import TextIO

from blackboard.clock import Clock
from blackboard.events import BoardEvent, Subscriber


def subscriber(
    clock: Clock, *, level: int, stream: TextIO | None = None, json: bool = False
) -> Subscriber:
    """Tells every event of at least `level` on `stream`, stderr if none is given; as JSON on a
    terminal, too, if `json` says so.
    """
    stream = stream or sys.stderr
    if stream.isatty() and not json:
        from blackboard.cli.render import event_printer  # noqa: PLC0415 - rich is slow to import

        line = event_printer(stream)
    else:

        def line(event: BoardEvent, at: datetime) -> None:
            stream.write(json_line(event, at))
            stream.flush()

    def tell(event: BoardEvent) -> None:
        if event.level >= level:
            line(event, clock.now())

    return tell


def json_line(event: BoardEvent, at: datetime) -> str:
    """An event as one line of JSON. What concerns a run names its item, type, fence and worker."""
    time = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json_text.dumps({"time": time, **event.line()}, ensure_ascii=False) + "\n"
