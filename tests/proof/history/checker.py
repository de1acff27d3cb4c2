"""Whether a history is linearizable: whether each operation can have taken effect at one moment
between its invocation and its return, so that the lock behaved as the model says.

This is the search of Wing and Gong ("Testing and Verifying Concurrent Objects", 1993) with what
Lowe added ("Testing for linearizability", 2017): each key alone; remembered by (operations that
have taken effect, state); and just in time: the history is gone through once, and an operation
takes effect only when another's return, or its own, asks for it. So a history needs not be cut, and
one that is wrong costs no more than one that is right: the search ends where the first return has
no explanation. An idle operation takes effect as soon as it can: that closes no way.

An operation without an answer never returns, and may take effect late or never.

The search is bounded. If it is given up, the verdict is UNDECIDED, which counts as VIOLATED.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from blackboard.model import replace
from tests.proof.history.model import NEW, ItemStatus, Operation, after, is_spent

MOST = 200_000
"""Ways gone in the search of one key, at the most."""

Way = tuple[ItemStatus, int]
"""A state, and those of the open operations that have taken effect, as bits."""


class Finding(StrEnum):
    """What became of a search."""

    LINEARIZABLE = "linearizable"
    VIOLATED = "violated"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found about one key, with the part of its history that shows it."""

    finding: Finding
    ways: int
    """How many were gone."""
    start: ItemStatus = NEW
    """The lock before the window, of which there is no doubt."""
    window: tuple[Operation, ...] = ()
    """Operations that together have no explanation, in the order of their invocations. The one
    whose return is not explained returns last; what had not returned by then has not returned."""


def by_key(history: Iterable[Operation]) -> dict[str, list[Operation]]:
    keys: dict[str, list[Operation]] = defaultdict(list)
    for operation in history:
        keys[operation.key].append(operation)
    return dict(keys)


def check(operations: Sequence[Operation], *, start: ItemStatus = NEW, most: int = MOST) -> Verdict:
    """Search the history of one key, whose lock was `start` before."""
    search = _Search(start, most)
    for moment, is_return, number in _events(operations):
        operation = operations[number]
        if not is_return:
            search.invoke(number, operation)
        elif not search.returns(number):
            if search.gone > most:
                return Verdict(finding=Finding.UNDECIDED, ways=search.gone)
            told = [operations[one] for one in search.since]
            window = [_as_of(moment, one) for one in told]
            shortest = _without_needless(search.start, window)
            return Verdict(
                finding=Finding.VIOLATED, ways=search.gone, start=search.start, window=shortest
            )
    return Verdict(finding=Finding.LINEARIZABLE, ways=search.gone)


def _events(operations: Sequence[Operation]) -> list[tuple[int, bool, int]]:
    """Moments, whether they are returns, and whose. At one moment all invocations come first."""
    invoked = [(one.invoked, False, number) for number, one in enumerate(operations)]
    returned = [
        (one.returned, True, number)
        for number, one in enumerate(operations)
        if one.returned is not None
    ]
    return sorted(invoked + returned)


def _as_of(moment: int, operation: Operation) -> Operation:
    """An operation as it stood at a moment."""
    if operation.returned is None or operation.returned <= moment:
        return operation
    return replace(operation, returned=None)


def _without_needless(start: ItemStatus, window: list[Operation]) -> tuple[Operation, ...]:
    """A window without the idle operations that it is wrong without. No other may be left out:
    what changed the lock explains what came later.
    """
    for operation in [one for one in window if one.is_idle]:
        fewer = [one for one in window if one is not operation]
        if check(fewer, start=start).finding is Finding.VIOLATED:
            window = fewer
    return tuple(sorted(window, key=lambda one: one.invoked))


class _Search:
    """All ways in which a history can have gone so far."""

    def __init__(self, start: ItemStatus, most: int) -> None:
        self.most = most
        self.gone = 0
        self.ways: set[Way] = {(start, 0)}
        self.start = start
        """The lock when it was last beyond doubt."""
        self.since: list[int] = []
        """Operations that took effect since then, or may have, or may yet."""
        self._open: dict[int, Operation] = {}
        """By their bits: invoked, and neither returned nor spent."""
        self._bits: dict[int, int] = {}
        self._numbers: dict[int, int] = {}

    def invoke(self, number: int, operation: Operation) -> None:
        bit = 1
        while bit in self._open:
            bit <<= 1
        self._open[bit], self._bits[number], self._numbers[bit] = operation, bit, number
        self.since.append(number)
        self.ways = {self._settled(*way) for way in self.ways}

    def returns(self, number: int) -> bool:
        """Whether there is a way on, after this return, within the bound."""
        bit = self._bits.pop(number)
        self.ways = {(state, done & ~bit) for state, done in self._ways_past(bit)}
        del self._open[bit]
        self._forget_spent()
        if len(self.ways) == 1:
            ((self.start, done),) = self.ways
            self.since = [self._numbers[one] for one in self._open if not done & one]
        return bool(self.ways) and self.gone <= self.most

    def _ways_past(self, bit: int) -> set[Way]:
        """The ways on which the operation with this bit has taken effect, after as few others
        as can be.
        """
        todo, seen, past = list(self.ways), set(self.ways), set()
        while todo and self.gone <= self.most:
            state, done = way = todo.pop()
            if done & bit:
                past.add(way)
                continue
            for one, operation in self._open.items():
                if done & one or operation.is_idle:
                    continue
                then = after(state, operation)
                if then is not None and (further := self._settled(then, done | one)) not in seen:
                    seen.add(further)
                    todo.append(further)
                    self.gone += 1
        return past

    def _settled(self, state: ItemStatus, done: int) -> Way:
        """A way with all idle operations that can take effect there, and with those that never
        return and can do nothing any more.
        """
        for bit, operation in self._open.items():
            if done & bit:
                continue
            if operation.is_idle:
                over = after(state, operation) is not None
            else:
                over = operation.returned is None and is_spent(state, operation)
            if over:
                done |= bit
        return state, done

    def _forget_spent(self) -> None:
        never = [bit for bit, one in self._open.items() if one.returned is None]
        for bit in never:
            if all(done & bit for _, done in self.ways):
                del self._open[bit], self._bits[self._numbers[bit]]
                self.ways = {(state, done & ~bit) for state, done in self.ways}
