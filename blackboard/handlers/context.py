"""What a handler is given: its item, and `ctx` for what belongs to this one run.

Coroutines on the worker's loop and plain functions in a child process get the same. Only
waiting differs: it blocks in a plain function and is awaited in a coroutine.

A handler may raise `Retry`, `Skip` or `Fail` to state how its run ended. That overrides `retries`,
the setting of the item. The reason is kept with the run, without a traceback but that of its cause
(`raise ... from problem`).
"""

import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from blackboard.errors import BadInput
from blackboard.phrases import quoted
from blackboard.rules.next_run import LONGEST_AFTER
from blackboard.schedule.times import duration_of
from blackboard.schedule.words import duration_in_words
from blackboard.spec import DEEPEST, is_nested_deeper

MOST = 2**53
"""The largest whole number that all JSON readers represent exactly."""
LONGEST_PARAMS = 4 << 20
"""Characters of all texts in params after `${NAME}` is replaced."""
_VARIABLE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class HandlerItem(Struct, frozen=True):
    """The item as its handler gets it. `${NAME}` in params has been replaced."""

    id: str
    type: str
    params: Any
    """A mapping; or an instance of the class that `@handler(params=...)` names."""
    timezone: str = "UTC"
    """The item's zone, an IANA name."""
    written: Mapping[str, Any] | None = None
    """The params with `${NAME}` as written, if they have any."""


class Signal(Protocol):
    """A signal to a running handler: false until it comes, true from then on."""

    @property
    def reason(self) -> str:
        """Why it came, in words; "" until then."""
        ...

    def __bool__(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> Any:
        """Waits for it, or for `timeout` seconds; returns whether it came. To be awaited in a
        coroutine.
        """
        ...


class Context(Struct, frozen=True, kw_only=True):
    """`ctx`: the run of a handler."""

    due: datetime
    """The slot of this run: aware, UTC. The same in a retry."""
    fence: int
    """Higher than in any earlier run of this item, so that the target of the handler's writes can
    refuse a run that was overtaken."""
    attempt: int
    """1, and one more for each retry or takeover of the same slot."""
    worker: str
    fenced: bool = False
    """Whether the output of this run must not replace that of a later one: the setting of the
    type, else of `@handler`."""
    settings: Mapping[str, Any]
    """The table `[jobs.TYPE]` of the settings file."""
    log: logging.Logger
    """The logger of this run. Its lines are kept with the run, and are in the worker's log."""
    lost: Signal
    """This run has lost its lock: another run may have begun, or the run was cancelled. The handler
    is stopped soon."""
    stopping: Signal
    """A pump is to save and return: its partition goes to another worker, or this one ends. True as
    well when `lost` is."""
    progress: Callable[[int, int], None]
    """`ctx.progress(done, total)`, in any unit; `show` shows it."""
    warn: Callable[[str], None]
    """`ctx.warn("2 of 60 feeds failed")`: the run may be ok, and something needs a person. `show`,
    `log` and notices show it; up to 20 of a run, of 500 characters."""
    time_left: Callable[[], float | None] = lambda: None
    """`ctx.time_left()`: the seconds until this run is stopped by its time limit, such as for the
    timeout of an HTTP client; None: it has no limit."""
    resources: Any = None
    """The value that `@handler(resources=...)` has opened for this worker or child process."""
    checkpoint: Any = None
    """The value that earlier runs of the item saved, unless one was ok since; None: nothing."""
    save: Callable[[Any], Any]
    """`await ctx.save(value)`, in a plain function `ctx.save(value)`: the next run goes on there,
    unless this one is ok. JSON of up to 32,768 characters. Returns when it is in the store. Raises
    ValueError for what cannot be saved, LeaseLost when the lock is lost: nothing was saved then."""


def decoded_checkpoint(text: str) -> Any:
    """`ctx.checkpoint`, from the text in the item's row. Raises BadInput for text that is not JSON,
    or is nested too deeply: other software wrote it.
    """
    if not text:
        return None
    if is_nested_deeper(text, DEEPEST):
        raise BadInput("checkpoint", "nested too deeply", f"{DEEPEST} levels at the most")
    try:
        return msgspec.json.decode(text)
    except ValueError:
        remedy = "`blackboard edit ID --checkpoint VALUE`"
        raise BadInput("checkpoint", "it is not JSON", remedy) from None


def progress_of(done: int, total: int) -> tuple[int, int]:
    """A handler's progress, as a row can hold it. Raises ValueError or TypeError, in the
    handler.
    """
    try:
        progress = int(done), int(total)
    except OverflowError:
        progress = MOST + 1, 0
    if not all(-MOST <= number <= MOST for number in progress):
        raise ValueError(f"progress is two whole numbers up to {MOST:,}")
    return progress


def expand(params: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """`params` with `${NAME}` replaced from `environ` in every string, however deep; `$${` stands
    for `${`. Keys are left as they are.

    Raises BadInput naming the variable that is missing, and its place; and for params that are too
    long once they are expanded. How deep they are nested is checked where their row is read.
    """
    texts = list(_texts(params))
    names = (name for text in texts for name in _VARIABLE.findall(text))
    length = sum(map(len, texts)) + sum(len(environ.get(name, "")) for name in names)
    if length > LONGEST_PARAMS:
        problem = f"expanded, they have more than {LONGEST_PARAMS:,} characters"
        raise BadInput("params", problem, "let the handler read the variable, or a file")
    return {key: _expanded(value, environ, f"params.{key}") for key, value in params.items()}


def is_expanded(text: str) -> bool:
    """Whether `expand` may change, or refuse, params with this JSON text: hardly any does."""
    return "$" in text or "\\u0024" in text


def variables(value: Any) -> set[str]:
    """Every NAME of a `${NAME}` in `value`."""
    return {name for text in _texts(value) for name in _VARIABLE.findall(text) if name}


def unescaped(text: str) -> str:
    """`text` with `$${` replaced by `${`, and no variables."""
    return text.replace("$${", "${")


def _texts(value: Any) -> Iterator[str]:
    """Every text in `value`, however deep, but no keys."""
    match value:
        case str():
            yield value
        case dict():
            for inner in value.values():
                yield from _texts(inner)
        case list():
            for inner in value:
                yield from _texts(inner)


def _expanded(value: Any, environ: Mapping[str, str], where: str) -> Any:
    def replaced(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            return "${"
        if name not in environ:
            problem = f"the environment variable {name} is not set"
            raise BadInput(where, problem, "set it where the worker runs; $${ stands for ${")
        return environ[name]

    match value:
        case str():
            return _VARIABLE.sub(replaced, value)
        case dict():
            return {
                key: _expanded(inner, environ, f"{where}.{key}") for key, inner in value.items()
            }
        case list():
            return [_expanded(inner, environ, f"{where}[{n}]") for n, inner in enumerate(value)]
        case _:
            return value


# ---- how a run ended, as its handler states it

SHORTEST_AFTER = timedelta(seconds=1)
"""The shortest time until a retry: a Retry-After of 0, or of the past, counts as a second."""


class HandlerAnswer(Exception):
    """An exception that a handler raises on purpose; the base of all below."""

    reason: str = ""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = str(reason)

    def __str__(self) -> str:
        # The class of a handler may have a `reason` of its own, or not call the `__init__` above.
        is_given = bool(self.reason) or "reason" in vars(self)
        return str(self.reason) if is_given else super().__str__()


class Skip(HandlerAnswer):
    """There was nothing to do. The run is ok and shown as skipped; what an earlier run returned
    stays the item's result.
    """


class Retry(HandlerAnswer):
    """The run failed, and is run again for the same slot after `after` (seconds, "5m" or a
    timedelta; a second at the least), with no limit of attempts (`ctx.attempt` counts them); unless
    the schedule's next slot comes first. Raises BadInput where `after` is no such time.
    """

    after = SHORTEST_AFTER

    def __init__(self, after: float | str | timedelta, reason: str = "") -> None:
        super().__init__(reason)
        self.args = (after, reason)  # pickle makes a copy from these
        asked = after.total_seconds() if isinstance(after, timedelta) else after
        shortest = SHORTEST_AFTER.total_seconds()
        at_once = asked < shortest if isinstance(asked, int | float) else asked == "0s"
        self.after = SHORTEST_AFTER if at_once else max(duration_of(asked, "after"), SHORTEST_AFTER)
        if self.after > LONGEST_AFTER:
            raise BadInput("after", f"{after!r} is too long", "a year at the most")


class Fail(HandlerAnswer):
    """The run failed for the given reason, and is not run again before its next slot. With `retry`
    it is run again as `retries` says. Raises BadInput for a duration, which is what Retry takes.
    """

    retry = False

    def __init__(self, reason: str, retry: bool = False) -> None:  # noqa: FBT001, FBT002 - as called
        super().__init__(reason)
        given: Any = retry
        if isinstance(given, str | timedelta):  # a duration, as Retry has it
            remedy = "raise Retry(after) to be run again after a time"
            raise BadInput("retry", f"{quoted(given)} is not True or False", remedy)
        self.args = (reason, retry)
        self.retry = bool(retry)


def seconds_until(retry: Retry) -> float:
    """Seconds until the run is tried again. The class of a handler may have set any time."""
    return min(max(retry.after, SHORTEST_AFTER), LONGEST_AFTER).total_seconds()


def reason_of(answer: HandlerAnswer) -> str:
    """The reason; where none was given, the name of the answer."""
    reason = str(answer)
    if isinstance(answer, Retry):
        after = timedelta(seconds=math.ceil(seconds_until(answer)))
        asked = f"asked for a retry in {duration_in_words(after)}"
        return f"{reason} ({asked})" if reason else asked
    return reason or type(answer).__name__.lower()
