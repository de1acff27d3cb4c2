"""Keeps the rows of a group of partitions: its board, an item for each partition, and its row on
the board that it belongs to; and asks for the names of the partitions.

A pump declares names, or a function that gives them, and may give others later. A function has a
minute: a coroutine is cancelled then, and asked again; a plain function runs in a thread, and a
call that is under way is waited for. No worker ends because of what it gives or raises.

Partitions that are named later are added; those that are named no more stay. A request to the store
without an answer is tried again at once; rows that cannot be made, when the names are due again. A
partition that cannot be added keeps no other from being served.
"""

import asyncio
import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from itertools import islice
from typing import Any

from blackboard.clock import Clock
from blackboard.emitter import EventEmitter
from blackboard.errors import AlreadyThere, BadRow, BlackboardError
from blackboard.events import GroupTrouble
from blackboard.handlers.handler import A_NAME, Names, check_partitions, is_partition
from blackboard.model import VERSION
from blackboard.phrases import plural
from blackboard.protocol.additions import ensure
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.groups import board_trouble, group_trouble
from blackboard.protocol.keys import group_key, meta_partition
from blackboard.protocol.rows import version_of
from blackboard.rules.breaker import REFUSED
from blackboard.rules.due import lease
from blackboard.runners.outcome import failure
from blackboard.sharing.lasting_trouble import LastingTrouble
from blackboard.table import Conflict, Insert, Merge, Op, Refused, Replace, Unknown, Value, read
from blackboard.tasks import Reply, in_thread, reply_of, until_one_ends

NAMED_EVERY = 60.0
"""Seconds between two calls of a function that names the partitions."""
ANSWERED_WITHIN = 60.0
"""Seconds that such a function has to answer."""
MOST_READ = 100_000
"""Values that are read of what it returns: a generator may have no end."""


class PartitionNames:
    """The names of the partitions of one group. `named` is called with those that a function has
    given.
    """

    def __init__(
        self,
        declared: tuple[str, ...] | Names,
        *,
        group: str,
        settings: Mapping[str, Any],
        clock: Clock,
        events: EventEmitter,
        named: Callable[[tuple[str, ...]], None],
    ) -> None:
        self._declared = declared
        self._group = group
        self._settings = settings
        self._clock = clock
        self._events = events
        self._named = named
        self._due_at = -math.inf
        """When declared names are taken again."""
        self._given: tuple[str, ...] | None = None
        """The names that a function has given, until they are taken."""
        self._pause = REFUSED.pause()
        """Seconds from one call of the function to the next."""
        self._call: asyncio.Future[Reply[Any]] | None = None
        """The call of a plain function, in a thread: while it lasts, no other thread is started."""
        self._trouble = LastingTrouble(clock)
        """That there are no names."""
        self._odd: Sequence[str] = ()
        """The values in the last answer that can be no partition."""

    def take(self, *, again: bool) -> tuple[str, ...] | None:
        """The names that are to be made: each answer of a function once, and declared names once in
        a while, where they are needed `again`. None: there are none.
        """
        if isinstance(self._declared, tuple):
            if not again or self._clock.monotonic() < self._due_at:
                return None
            self._due_at = self._clock.monotonic() + NAMED_EVERY
            return self._declared
        given, self._given = self._given, None
        return given

    async def keep_asking(self) -> None:
        """Asks a function for the names until it is cancelled."""
        while not isinstance(self._declared, tuple):
            asked_at = self._clock.monotonic()
            await self._ask(self._declared)
            await self._clock.sleep(max(asked_at + self._pause - self._clock.monotonic(), 0.0))

    async def _ask(self, names: Names) -> None:
        """Asks once. What is not answered in time is cancelled."""
        asking = asyncio.ensure_future(self._answer_of(names))
        try:
            await self._wait_for(asking)
            if asking.done():
                self._answered(asking.result())
            while not asking.done():
                asking.cancel()
                silence = f"their function has not answered within {ANSWERED_WITHIN:g} s"
                self._report(f"{silence}: it is asked again")
                await self._wait_for(asking)
        finally:
            asking.cancel()

    async def _wait_for(self, asking: "asyncio.Future[Any]") -> None:
        pause = self._clock.sleep(ANSWERED_WITHIN)
        await until_one_ends(asyncio.shield(asking), pause)

    def _answered(self, answer: tuple[str, ...] | str) -> None:
        if isinstance(answer, str):
            self._report(answer)
            return
        self._trouble.end()
        self._given, self._pause = answer, NAMED_EVERY
        self._named(answer)

    def _report(self, problem: str) -> None:
        if self._trouble.note(problem):
            message = f"the partitions of {self._group} cannot be named: {problem}"
            self._events.emit(GroupTrouble, message=message)

    async def _answer_of(self, names: Names) -> tuple[str, ...] | str:
        """The names that a function gives, or why there are none. Raises nothing: its errors end no
        worker.
        """
        try:
            return await self._names_of(names)
        except BaseException as problem:  # noqa: BLE001 - it is the pump's own
            return failure(problem).partition("\n")[0].rstrip(": ")

    async def _names_of(self, names: Names) -> tuple[str, ...]:
        """The names that a function gives, without values that can be no partition, such as some
        names of files. Raises BadInput where they are too many, and what the function raises.
        """
        answer: Any
        if iscoroutinefunction(names):
            answer = names(self._settings)
        else:
            answer = await self._called(names)
        if isawaitable(answer):
            answer = await answer
        if isinstance(answer, str | bytes):
            raise TypeError(f"{answer!r} is one text, not a list of names")
        named, odd = list[str](), list[str]()
        for name in islice(answer, MOST_READ):
            if is_partition(name):
                named.append(name)
            else:
                odd.append(_shown(name))
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
            message = f"{which} of {self._group} left out: {odd[0]} is no {A_NAME}"
            self._events.emit(GroupTrouble, message=message)
        self._odd = odd


def _found(names: Names, settings: Mapping[str, Any]) -> Any:
    """What a plain function that names partitions returns; its values are read here, too."""
    answer: Any = names(settings)
    if isawaitable(answer) or isinstance(answer, str | bytes):
        return answer
    return list(islice(answer, MOST_READ))


def _shown(odd: object) -> str:
    return reprlib.repr(odd) if isinstance(odd, str) else f"one of the type {type(odd).__name__}"


@dataclass(slots=True, kw_only=True)
class GroupRows:
    board: BoardTable
    """The board of the group."""
    parent: str
    """The name of the board that it belongs to."""
    group: str
    names: PartitionNames
    events: EventEmitter
    made: tuple[str, ...] | None = None
    """The partitions that were named last, and made as far as they could be; None: the group has
    not been made by this worker."""
    to_make: tuple[str, ...] | None = None
    """The partitions that are named, and still to be made."""
    _lacks_some: bool = False
    """Whether some could not be made: that is tried again."""
    _lacking: frozenset[str] = frozenset()
    """The partitions that could not be added because of a row that is there."""
    _trouble: LastingTrouble = field(init=False)
    """That the board, or partitions, cannot be made."""

    def __post_init__(self) -> None:
        self._trouble = LastingTrouble(self.board.clock)

    @property
    def lease(self) -> float:
        """The lease of the group in seconds: the pump's, where `[types]` says no other."""
        settings = self.board.resolve(self.group, "{}")
        return lease(settings, self.board.clock.now()).total_seconds()

    async def keep(self) -> None:
        """Makes the partitions that are named and not there. Raises TableError where the store does
        not answer: the next call goes on with these names.
        """
        if self.to_make is None:
            self.to_make = self.names.take(again=self.made is None or self._lacks_some)
        names = self.to_make
        if names is None:
            return
        try:
            await self._make_board()
        except BlackboardError as problem:
            self._cannot_make(problem)
            self._lacks_some = True
            if self.made is None:
                return  # nothing can be served before that
        else:
            self._lacks_some = not await self._add(names)
        self.made, self.to_make = names, None

    def gone(self) -> None:
        """Notes that the board of the group is gone: the next `keep` makes it anew."""
        if self.to_make is None:
            self.to_make = self.made

    def _cannot_make(self, problem: BlackboardError | Refused | str) -> None:
        if self._trouble.note(str(problem)):
            message = f"the partitions of {self.group} cannot be made: {problem}"
            self.events.emit(GroupTrouble, message=message)

    async def _make_board(self) -> None:
        """Makes the board of the group, and its row on the parent, where they are not there. Raises
        BlackboardError where the board cannot be used.
        """
        row = await self.board.own_row()
        if row is None:
            await self.board.make()
        elif problem := board_trouble(row, meta_partition(self.board.name)):
            raise BlackboardError(problem)
        await self._describe()

    async def _add(self, names: Sequence[str]) -> bool:
        """Adds the partitions that are not there. Returns whether all are there then; it reports
        why some are not.
        """
        try:
            left = await ensure(self.board, names, self.group)
        except (AlreadyThere, Conflict):
            self._cannot_make(row_in_the_way(self.board))
        except BadRow as bad:
            self._cannot_make(BadRow(bad.key, bad.problem, board=self.board.name))
        except (BlackboardError, Refused) as problem:
            self._cannot_make(problem)
        else:
            self._trouble.end()
            for name in left.keys() - self._lacking:
                message = f"{name} of {self.group} is left as it is: {left[name]}"
                self.events.emit(GroupTrouble, message=message)
            self._lacking = frozenset(left)
            return not left
        return False

    async def _describe(self) -> None:
        """Writes the group's row on its parent, where it is not as it should be."""
        about: dict[str, Value] = {"version": VERSION, "kind": "pump", "lease": self.lease}
        key, meta = group_key(self.group), meta_partition(self.parent)
        row = await read(self.board.table, meta, key)
        write: Op
        if row is None:
            write = Insert(key, about)
        elif version_of(row.data) > VERSION or about.items() <= row.data.items():
            return
        elif group_trouble(row, meta):
            write = Replace(key, about, row.etag)  # a row that is not JSON cannot be merged
        else:
            write = Merge(key, about, row.etag)
        with suppress(Conflict, Unknown):  # another worker was faster, or the next one writes it
            await self.board.table.commit(meta, [write])


def row_in_the_way(board: BoardTable) -> str:
    """The meaning, in words, of a conflict that comes again and again on the board of a group."""
    doctor = f"`blackboard --board {board.name} doctor`"
    return f"a row in {board.shard(0)} is in the way, or others keep changing it ({doctor})"
