"""What a handler returned, raised, warned of or logged, as the row of its run can hold it.

It is encoded, masked and cut where the handler ran, so that no more than a row holds is passed on.
A result is nested no deeper than params are: how deep a JSON reader can go depends on the stack
that is in use by then, and a result that could be written might not be read.
"""

import logging
import math
import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import CoroutineType, TracebackType
from typing import Any, Final, cast

import msgspec

from blackboard.errors import LeaseLost
from blackboard.handlers.context import Fail, HandlerAnswer, Retry, Skip, reason_of, seconds_until
from blackboard.model import Ended, LogLine, Outcome, replace
from blackboard.phrases import LONGEST_LINE, LONGEST_LOG, class_of, cut_middle, message_of
from blackboard.protocol.results import LONGEST_WARNING, not_kept, warnings_of
from blackboard.runners import wire
from blackboard.runners.logs import Logged, encodable
from blackboard.runners.runner import Reporter
from blackboard.runners.secrets import MOST_MASKED, Mask
from blackboard.spec import DEEPEST, is_nested_deeper, plain
from blackboard.table import units

LONGEST_LOGGER = 100
"""Characters of a logger's name that are kept: the head and the tail of a longer one."""


class Notes:
    """What is kept of a run beside its result, masked: its warnings, and the last of its log."""

    def __init__(self) -> None:
        self._warnings: tuple[str, ...] = ()
        self._log: deque[tuple[LogLine, int]] = deque()
        self._size = 0

    def take(self, message: wire.Reported, report: Reporter) -> None:
        """Keeps warnings and log; passes progress, and lines of `ctx.log`, on to `report`."""
        match message:
            case wire.WarnMessage(text):
                self.warn(text)
            case wire.ProgressMessage(done, total):
                report.progress(done, total)
            case wire.LogMessage(logged):
                self.log(logged)
                if not logged.logger:
                    report.log(logged.level, logged.text)

    def warn(self, text: str) -> None:
        self._warnings = warnings_of((*self._warnings, text))

    def log(self, logged: Logged) -> None:
        line = LogLine(
            at=logged.at,
            level=logging.getLevelName(logged.level),
            text=cut_middle(logged.text, LONGEST_LINE),
            logger=cut_middle(logged.logger, LONGEST_LOGGER),
        )
        size = _size_of(line)
        if size > LONGEST_LOG:  # a character may be six in JSON: the loop below would drop it
            line = replace(line, text=cut_middle(line.text, LONGEST_LINE // 2))
            size = _size_of(line)
        self._log.append((line, size))
        self._size += size
        while self._size > LONGEST_LOG:
            self._size -= self._log.popleft()[1]

    def added_to(self, ended: Ended, *, output: str) -> Ended:
        """How the run ended, with its warnings, its log and its output."""
        log = tuple([line for line, _ in self._log])
        return replace(ended, warnings=self._warnings, log=log, output=output)


def _size_of(line: LogLine) -> int:
    """Bytes of a line in JSON, and of the comma after it."""
    return len(msgspec.json.encode(line)) + 1


def fitting_warning(text: str, mask: Mask) -> str:
    """What a handler gave `ctx.warn`, masked and cut."""
    return mask.short(encodable(str(text)), LONGEST_WARNING)


_PACKAGE, _PYTHON = Path(__file__).parent.parent, Path(traceback.__file__).parent
_OURS = (
    *(str(_PACKAGE / name) for name in ("runners", "handlers", "cli", "testing.py", "tasks.py")),
    *(str(_PYTHON / name) for name in ("asyncio", "importlib")),
    "<frozen importlib",
)
"""Files whose frames are left out at the beginning of a traceback: they are not the handler's."""


_Group = BaseExceptionGroup[BaseException]


class Unfit(ValueError):
    """A handler returned, or saves, what JSON cannot hold."""


class _GoodExit:
    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, problem: BaseException | None, _frames: object) -> bool:
        return type(problem) is SystemExit and (problem.code is None or problem.code == 0)


GOOD_EXIT: Final = _GoodExit()
"""A handler called `with` it may end by `sys.exit()` or `sys.exit(0)`, which is as if it returned
None. For the call alone: before it, nothing was done."""


def fitting_result(value: Any, mask: Mask, *, limit: int) -> bytes:
    """A handler's result as JSON, masked, in at most `limit` characters as stores count them. One
    that is longer is replaced by a warning: the run did its work. Raises Unfit.
    """
    encoded = encode_result(value)
    if len(encoded) > MOST_MASKED:
        return msgspec.json.encode(not_kept("", f"{len(encoded):,} bytes", limit=limit))
    try:
        encoded = mask.result(encoded, limit)
        msgspec.json.decode(encoded)
    except ValueError as problem:
        raise Unfit(f"the handler returned raw JSON that is none: {problem}") from None
    if len(encoded) > limit and (size := units(text := encoded.decode())) > limit:
        return msgspec.json.encode(not_kept(text, f"{size:,} characters", limit=limit))
    return encoded


def fitting_checkpoint(value: Any, mask: Mask, *, limit: int) -> str:
    """What a handler saves, as JSON text of at most `limit` characters as stores count them. It is
    kept as it is, or not at all: a masked one would be of no use to the next run. Raises Unfit.
    """
    encoded = encode_result(value, verb="saves")
    text = encoded.decode()
    if len(encoded) > limit and (size := units(text)) > limit:
        raise Unfit(f"the checkpoint is {size:,} characters of JSON; {limit:,} can be saved")
    for key in (key for part in _all_in(value) if isinstance(part, dict) for key in part):
        if not isinstance(key, str):  # the next run would not find it
            raise Unfit(f"the handler saves the key {key!r}, which is not text: give it as text")
    if mask.result(encoded, len(encoded)) != encoded:
        raise Unfit("the checkpoint holds the value of a ${NAME} of the params: it would be shown")
    return text


def _own_class(value: Any) -> Any:
    """The plain value of a subclass of str, int or float, and the text of a key that is a constant
    of JSON. Raises TypeError for anything else.
    """
    if value is None or isinstance(value, bool):
        return msgspec.json.encode(value).decode()
    if isinstance(value, str | int | float):
        return plain(value)
    raise TypeError(f"Encoding objects of type {type(value).__qualname__} is unsupported")


_ENCODER = msgspec.json.Encoder(enc_hook=_own_class)


def encode_result(value: Any, *, verb: str = "returned") -> bytes:
    """A handler's result as JSON. Raises Unfit, which names the type or number that does not
    fit.
    """
    kind = type(value).__qualname__
    if isinstance(value, CoroutineType):
        remedy = "await it; around an `async def`, a decorator makes an `async def`, too"
        raise Unfit(f"the handler {verb} a coroutine, {value.__qualname__}: {remedy}")
    buffer = bytearray()
    try:
        # Not `encode`: where there is no memory left, that ends the process by SIGSEGV.
        _ENCODER.encode_into(value, buffer)
        encoded = bytes(buffer)
        looked_at = len(encoded) <= MOST_MASKED
        # Numbers that JSON lacks become null; most results hold none and need no search.
        odd = _not_finite(value) if looked_at and b"null" in encoded else None
        deep = looked_at and is_nested_deeper(encoded.decode(), DEEPEST)
    except RecursionError:
        deep, odd = True, None
    except MemoryError:
        raise Unfit(f"the handler {verb} {kind}, for which there is no memory as JSON") from None
    except Exception as problem:  # noqa: BLE001 - odd objects raise anything
        raise Unfit(f"the handler {verb} {kind}, which is not JSON: {problem}") from None
    if deep:
        raise Unfit(
            f"the handler {verb} {kind}, which is not JSON that can be kept: it is nested deeper "
            f"than {DEEPEST} levels, or holds itself"
        )
    if odd is not None:
        raise Unfit(f"the handler {verb} the number {odd}, which JSON cannot hold")
    return encoded


def _not_finite(value: Any) -> float | None:
    """An infinity or a NaN in a value that can be encoded, or None."""
    numbers = (part for part in _all_in(value) if isinstance(part, float))
    return next((number for number in numbers if not math.isfinite(number)), None)


def _all_in(value: Any) -> Iterator[Any]:
    """A value that can be encoded, and all that is in it. The keys of its objects are as they were
    given: msgspec makes text of most.
    """
    left = [value]
    while left:
        yield (part := left.pop())
        match part:
            case dict():
                left += part.values()
            case list() | tuple() | set() | frozenset():
                left += part
            case msgspec.Raw():
                left.append(msgspec.json.decode(part))
            case msgspec.Struct():
                left += [getattr(part, name) for name in part.__struct_fields__]
            case Enum():
                left.append(part.value)
            case _ if is_dataclass(part):
                left += [getattr(part, each.name) for each in fields(part)]
            case _:
                of_attrs = getattr(type(part), "__attrs_attrs__", ())
                left += [getattr(part, each.name) for each in of_attrs]


def failure(problem: BaseException) -> str:
    """Type and message on the first line, then the traceback from the handler's own code on. Never
    raises, whatever is wrong with the exception.
    """
    try:
        return _described(problem)
    except BaseException as second:  # noqa: BLE001 - what a handler raises may be of any class
        return f"{name_of(problem)}: (what it says raised {name_of(second)})"


def ended_by(problem: BaseException, mask: Mask) -> Ended:
    """How a run ended whose handler raised `problem`. A group, as a TaskGroup makes it, is the
    first answer in it if all are of one kind. Never raises: an answer of a handler's own class that
    cannot be read is an error like any other.
    """
    is_lost = False
    with suppress(BaseException):
        raised = list(_raised(problem))
        for kind in (Retry, Skip, Fail):
            if all(is_kind(each, kind) for each in raised):
                return _answered(cast(HandlerAnswer, raised[0]), mask)
        is_lost = all(is_kind(each, LeaseLost) for each in raised)
    error = mask.short(failure(problem))
    return Ended(outcome=Outcome.FAILED, error=error, lease_lost=is_lost)


def _raised(problem: BaseException) -> Iterator[BaseException]:
    """A problem, or all in a group of them."""
    if is_kind(problem, BaseExceptionGroup):
        for inner in cast(_Group, problem).exceptions:
            yield from _raised(inner)
    else:
        yield problem


def is_kind(problem: object, *kinds: type[BaseException]) -> bool:
    """Whether its true type is one of these. `isinstance` would read `__class__`, where a handler's
    code may raise.
    """
    return issubclass(type(problem), kinds)


def _answered(answer: HandlerAnswer, mask: Mask) -> Ended:
    text = encodable(reason_of(answer))
    match answer:
        case Skip():
            return Ended(outcome=Outcome.OK, error=mask.short(text))
        case Retry():
            ended = Ended(outcome=Outcome.FAILED, retry_after=seconds_until(answer))
        case _:
            ended = Ended(
                outcome=Outcome.FAILED, final=isinstance(answer, Fail) and not answer.retry
            )
    if answer.__cause__ is not None:
        text = f"{text}\n{failure(answer.__cause__)}"
    return replace(ended, error=mask.short(text))


def name_of(problem: BaseException) -> str:
    """The name of its class, which a metaclass could make raise. Never raises."""
    return encodable(class_of(problem))


def _described(problem: BaseException) -> str:
    if type(problem) is Unfit:
        return encodable(str(problem))
    first = f"{name_of(problem)}: {message_of(problem)}"
    try:
        lines = traceback.format_exception(
            type(problem), problem, _handler_frames(problem.__traceback__)
        )
    except BaseException as second:  # noqa: BLE001 - what the exception holds may raise anything
        lines = [f"(its traceback raised {name_of(second)})"]
    return encodable(f"{first}\n{''.join(lines)}".rstrip())


def _handler_frames(frames: TracebackType | None) -> TracebackType | None:
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_OURS):
        frames = frames.tb_next
    return frames
