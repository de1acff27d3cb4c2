"""What handlers log: through `ctx.log`, and through the loggers of the standard library.

Both are kept with the run. Records of a logger of the standard library that reach the root logger
are found there: its parent is a logger of this module, which has a handler only where a job's
handler runs. So the handlers of the root logger, and what `logging.basicConfig` and `dictConfig` do
to them, stay as they are. Levels count as they are set: what a logger does not emit is not kept.

In a child process all records are the run's. Coroutines share a process: there a record is of the
run in whose context it is logged. That context goes on in tasks and in `asyncio.to_thread`, but not
in a plain `threading.Thread`. What other processes log, those that a handler forks too, is not
kept.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from blackboard.model import replace, whole_milliseconds
from blackboard.runners.secrets import Mask

_OWN: Final = "blackboard"
"""The logger of the worker's events, which are not a handler's."""
_CTX: Final = "blackboard.run"
"""The logger of a run, `ctx.log`."""


class Logged(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a handler logged."""

    level: int
    """As in `logging`."""
    text: str
    at: datetime
    logger: str = ""
    """Its name; "" for `ctx.log`."""

    def masked(self, mask: Mask) -> "Logged":
        return replace(
            self, text=mask.short(encodable(self.text)), logger=mask.short(encodable(self.logger))
        )


def encodable(text: str) -> str:
    """`text` as UTF-8 can hold it: lone surrogates are spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()


Send = Callable[[Logged], None]


class _Sender(logging.Handler):
    """Sends what is logged, from any thread. One serves all runs: to make one takes long."""

    def send(self, record: logging.LogRecord, send: Send) -> None:
        if os.getpid() != _pid or record.name == _OWN:
            return
        try:
            logged = Logged(
                level=record.levelno,
                text=self.format(record),
                at=whole_milliseconds(datetime.fromtimestamp(record.created, UTC)),
                logger="" if record.name == _CTX else record.name,
            )
            send(logged)
        except Exception:  # noqa: BLE001 - as logging does for arguments that do not fit
            self.handleError(record)

    def handle(self, record: logging.LogRecord) -> bool:
        """Takes no lock, unlike `logging`: no run waits while a record of another is formatted."""
        send = _of_context.get() or _of_process
        if send is not None:
            self.send(record, send)
        return True


_SENDER = _Sender()


class RunLogger(logging.Logger):
    """`ctx.log`: sends all that is logged, and has no parent. Not of `getLogger`: the log of one
    run must not reach the handlers of another.
    """

    def __init__(self, send: Send) -> None:
        super().__init__(_CTX, logging.DEBUG)
        self._send = send

    def callHandlers(self, record: logging.LogRecord) -> None:  # noqa: N802 - as logging names it
        _SENDER.send(record, self._send)
        if self.handlers:  # those that the handler of the run has added
            super().callHandlers(record)


_of_context: ContextVar[Send | None] = ContextVar("send", default=None)
_of_process: Send | None = None
_pid = os.getpid()
"""The process in which logs are kept: a fork of it has no connection of its own to the worker."""


class _AboveRoot:
    """The parent of the root logger, as `Logger.callHandlers` uses it."""

    parent = None
    propagate = False
    level = logging.NOTSET

    @property
    def handlers(self) -> list[_Sender]:
        """Empty where no job's handler runs: then logging works as without this module."""
        if os.getpid() != _pid or (_of_context.get() is None and _of_process is None):
            return []
        return [_SENDER]


_ABOVE_ROOT: Any = _AboveRoot()


def keep_logs(send: Send | None) -> None:
    """Sends what loggers of the standard library emit in this context from now on. None: where the
    whole process does.
    """
    global _pid  # noqa: PLW0603 - of the process
    _pid = os.getpid()
    logging.root.parent = _ABOVE_ROOT
    _of_context.set(send)


@contextmanager
def kept_logs(send: Send) -> Iterator[None]:
    """Sends what loggers of the standard library emit in the whole process."""
    global _of_process  # noqa: PLW0603 - of the process
    keep_logs(None)
    _of_process = send
    try:
        yield
    finally:
        _of_process = None


@contextmanager
def own_logs() -> Iterator[None]:
    """Keeps no logs in this context: here the worker does its own work for a handler."""
    token = _of_context.set(None)
    try:
        yield
    finally:
        _of_context.reset(token)


@contextmanager
def emitting_info(*but: str) -> Iterator[None]:
    """Lets the loggers of this process emit INFO, unless the root's level was changed from Python's
    WARNING. Loggers named in `but` keep WARNING.
    """
    if logging.root.level != logging.WARNING:
        yield
        return
    quiet = {logger: logger.level for logger in map(logging.getLogger, but)}
    logging.root.setLevel(logging.INFO)
    for logger in quiet:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logging.root.setLevel(logging.WARNING)
        for logger, level in quiet.items():
            logger.setLevel(level)
