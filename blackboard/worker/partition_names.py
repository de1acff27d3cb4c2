"""Asks for the names of a pump's partitions, beside the rounds of its worker.

A pump declares names, or a function that gives them, and may give others later. A function has a
minute: a coroutine is cancelled then, and asked again; a plain function runs in a thread, and a
call that is under way is waited for. No worker ends because of what it gives or raises.
"""

import asyncio
import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from typing import Any, NamedTuple

from blackboard.clock import Clock
from blackboard.events import GroupTrouble
from blackboard.handlers.handler import A_NAME, Names, check_partitions, is_partition
from blackboard.phrases import plural
from blackboard.runners.output import failure
from blackboard.subscribers import Events
from blackboard.tasks import Reply, in_thread, reply_of

NAMED_EVERY = 60.0
"""Seconds between two calls of a function that names the partitions."""
ANSWERED_WITHIN = 60.0
"""Seconds that such a function has to answer."""
UNANSWERED_EVERY = 600.0
"""Seconds between two reports that it does not answer."""


class NamesAnswer(NamedTuple):
    """What a function answers."""

    names: tuple[str, ...] = ()
    problem: str = ""
    """Why there are no names."""


class PartitionNames:
    """The names of the partitions of one group. `answered` is called when a function has answered,
    with the names, or None where there are none.
    """

    def __init__(
        self,
        declared: tuple[str, ...] | Names,
        *,
        group: str,
        settings: Mapping[str, Any],
        clock: Clock,
        events: Events,
        answered: Callable[[tuple[str, ...] | None], None],
    ) -> None:
        self._declared = declared
        self._group = group
        self._settings = settings
        self._clock = clock
        self._events = events
        self._then = answered
        self._asked_at = -math.inf
        self._asking: asyncio.Future[NamesAnswer] | None = None
        """The latest request for the names, until its answer is taken."""
        self._given_up = False
        """Whether that took too long."""
        self._call: asyncio.Future[Reply[Any]] | None = None
        """The call of a plain function, in a thread: while it lasts, no other thread is started."""
        self._reported = -math.inf
        """When it was last reported that there is no answer."""
        self._odd: Sequence[str] = ()
        """The values in the last answer that can be no partition."""

    @property
    def given_up_in(self) -> float:
        """Seconds that are left for an answer; 0: none is waited for."""
        if self._asking is None:
            return 0.0
        return max(self._asked_at + ANSWERED_WITHIN - self._clock.monotonic(), 0.0)

    def named(self, *, first: bool, again: bool) -> tuple[str, ...] | None:
        """The names that are due to be made: at the `first` calls, and then once in a while, where
        a function gives them or they are needed `again`. None: they are not due, or a function has
        not answered yet, which is not waited for. A problem is reported.
        """
        is_due = first or self._clock.monotonic() >= self._asked_at + NAMED_EVERY
        if isinstance(self._declared, tuple):
            if not (first or (is_due and again)):
                return None
            self._asked_at = self._clock.monotonic()
            return self._declared
        if is_due and self._asking is None:
            self._ask(self._declared)
        self._give_up_late()
        return self._taken()

    def cancel(self) -> None:
        """Cancels the request, at the end of the worker."""
        if self._asking is not None:
            self._asking.cancel()

    # ---- a function is asked

    def _ask(self, names: Names) -> None:
        self._asked_at, self._given_up = self._clock.monotonic(), False
        self._asking = asyncio.ensure_future(self._answer_of(names))
        self._asking.add_done_callback(self._answered)

    def _taken(self) -> tuple[str, ...] | None:
        """The names in the answer, which is taken once."""
        asking = self._asking
        if asking is None or not asking.done():
            return None
        self._asking = None
        if asking.cancelled() or self._given_up:
            return None
        self._reported = -math.inf
        answer = asking.result()
        if answer.problem:
            self._report(answer.problem)
            return None
        return answer.names

    def _give_up_late(self) -> None:
        """Cancels a request that was not answered in its time, and reports that seldom."""
        if self._asking is None or self._asking.done() or self.given_up_in > 0:
            return
        self._given_up = True
        self._asking.cancel()
        now = self._clock.monotonic()
        if now >= self._reported + UNANSWERED_EVERY:
            self._reported = now
            problem = f"their function has not answered within {ANSWERED_WITHIN:g} s"
            self._report(f"{problem}: it is asked again")

    def _report(self, problem: str) -> None:
        """Reports that there are no names."""
        what = f"the partitions of {self._group} cannot be named: {problem}"
        self._events.emit(GroupTrouble, message=what)

    # ---- a function answers

    def _answered(self, asking: "asyncio.Future[NamesAnswer]") -> None:
        self._then(None if asking.cancelled() else asking.result().names)

    async def _answer_of(self, names: Names) -> NamesAnswer:
        """The answer of a function. Raises nothing: its errors end no worker."""
        try:
            return NamesAnswer(await self._names_of(names))
        except BaseException as problem:  # noqa: BLE001 - it is the pump's own
            return NamesAnswer(problem=failure(problem).partition("\n")[0].rstrip(": "))

    async def _names_of(self, names: Names) -> tuple[str, ...]:
        """The names that a function gives, without values that can be no partition, such as some
        names of files. Raises BadInput where they are too many, and what the function raises.
        """
        found: Any
        if iscoroutinefunction(names):
            found = names(self._settings)
        else:
            found = await self._called(names)
        if isawaitable(found):
            found = await found
        if isinstance(found, str | bytes):
            raise TypeError(f"{found!r} is one text, not a list of names")
        named, odd = list[str](), list[str]()
        for one in found:
            if is_partition(one):
                named.append(one)
            else:
                odd.append(_shown(one))
        self._leave_out(odd)
        return check_partitions(f"pump {self._group!r}", dict.fromkeys(named))

    async def _called(self, names: Names) -> Any:
        """What a plain function returns, in a thread. A call that is under way is waited for."""
        if self._call is None:
            naming = partial(_found, names, self._settings)
            self._call = asyncio.ensure_future(in_thread(reply_of, naming))
        reply = await asyncio.shield(self._call)
        self._call = None
        return reply.get()

    def _leave_out(self, odd: Sequence[str]) -> None:
        """Reports values that can be no partition, when they are others than before."""
        if odd and odd != self._odd:
            which = plural(len(odd), "partition")
            what = f"{which} of {self._group} left out: {odd[0]} is no {A_NAME}"
            self._events.emit(GroupTrouble, message=what)
        self._odd = odd


def _found(names: Names, settings: Mapping[str, Any]) -> Any:
    """What a plain function that names partitions returns; its values are read here, too."""
    found: Any = names(settings)
    return found if isawaitable(found) or isinstance(found, str | bytes) else list(found)


def _shown(odd: object) -> str:
    return reprlib.repr(odd) if isinstance(odd, str) else f"one of the type {type(odd).__name__}"
