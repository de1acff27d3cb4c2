"""The messages between a worker and its child processes: JSON in frames, over a socket pair.

A frame is four bytes of length, the highest first, and the message. No pickle: a handler's result
is data, and data cannot run code in the worker.
"""

from collections.abc import Iterator
from io import BufferedReader
from typing import Final, Literal

import msgspec

from blackboard.handlers.code import Code
from blackboard.handlers.handler import Source
from blackboard.model import Ended
from blackboard.runners.logs import Logged
from blackboard.runners.runner import RunData

LARGEST: Final = 64 << 20
"""Bytes of a message to a child, with the params of its run."""
LARGEST_ANSWER: Final = 1 << 20
"""Bytes of a message to the worker. The child cuts its texts to what a row holds."""
HEAD: Final = 4


class _Message(msgspec.Struct, tag=True, tag_field="message"):
    """A message, tagged with the name of its class."""


class CodeMessage(_Message):
    """To the child, before all others: the code of the worker's jobs."""

    code: Code


class RunMessage(_Message):
    """To the child: call the handler of the item's type in the module at `source`."""

    source: Source
    data: RunData
    secrets: dict[str, str]
    """The value of each `${NAME}` in the params, to be masked in all output."""
    called: float | None
    """From when on the time limit counts, in monotonic seconds of this host; None: from when the
    module is imported, which a CalledMessage reports.
    """


class SavedMessage(_Message, kw_only=True):
    """To the child: the answer to the SaveMessage with this number."""

    number: int
    lost: str = ""
    """Why the lock is lost; nothing was saved."""
    error: str = ""
    """Why the store refused it."""


SignalName = Literal["lost", "stopping"]
"""The signals of a run, as `ctx` names them."""


class SignalMessage(_Message):
    """To the child: a signal to the handler of the current run."""

    name: SignalName
    reason: str


class ReadyMessage(_Message):
    """To the worker, first: the child can call handlers."""


class CalledMessage(_Message):
    """To the worker, in a child's first run: the module is imported, and the time limit counts."""


class SaveMessage(_Message):
    """To the worker, from `ctx.save`, which waits for the SavedMessage."""

    number: int
    checkpoint: str


class ProgressMessage(_Message):
    """To the worker, from `ctx.progress`."""

    done: int
    total: int


class LogMessage(_Message):
    """To the worker, from `ctx.log` and the loggers of the standard library."""

    logged: Logged


class WarnMessage(_Message):
    """To the worker, from `ctx.warn`."""

    text: str


class FinishedMessage(_Message, kw_only=True):
    """To the worker: how the handler ended."""

    ended: Ended
    took: float
    """Seconds in the child, without the import of its module."""
    left: list[str] = []
    """What it left behind that could affect another run."""


Reported = ProgressMessage | LogMessage | WarnMessage
ToChild = CodeMessage | RunMessage | SignalMessage | SavedMessage
OfRun = CalledMessage | Reported | SaveMessage | FinishedMessage
ToWorker = ReadyMessage | OfRun

_to_child: msgspec.json.Decoder[ToChild] = msgspec.json.Decoder(ToChild)
_to_worker: msgspec.json.Decoder[ToWorker] = msgspec.json.Decoder(ToWorker)


class TooLong(ValueError):
    """The message does not fit a frame."""

    def __init__(self, size: int, largest: int) -> None:
        super().__init__(f"{size:,} bytes of JSON; {largest:,} fit a message")


def frame(message: ToChild | ToWorker, *, largest: int = LARGEST) -> bytes:
    """The message as it is sent. Raises TooLong, or TypeError for what JSON cannot hold."""
    body = msgspec.json.encode(message)
    if len(body) > largest:
        raise TooLong(len(body), largest)
    return len(body).to_bytes(HEAD) + body


def read_message(stream: BufferedReader) -> ToChild | None:
    """The worker's next message, blocking; None when the worker has closed the socket."""
    try:
        head = stream.read(HEAD)
        size = int.from_bytes(head)
        body = stream.read(size)
    except ConnectionResetError:  # it has not read all that was sent
        return None
    return _to_child.decode(body) if len(head) == HEAD and len(body) == size else None


def messages_in(data: bytearray) -> Iterator[ToWorker]:
    """The child's messages that are complete in `data`, and takes them out of it. Raises TooLong,
    or msgspec.MsgspecError for an invalid one.
    """
    while len(data) >= HEAD:
        size = int.from_bytes(data[:HEAD])
        if size > LARGEST_ANSWER:
            raise TooLong(size, LARGEST_ANSWER)
        if len(data) < HEAD + size:
            return
        body = bytes(data[HEAD : HEAD + size])
        del data[: HEAD + size]
        yield _to_worker.decode(body)
