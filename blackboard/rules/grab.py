"""The lease grab: how nodes share partitions over a bus of two hashes and two channels.

Nodes compete for the partitions. The fewer partitions a node has, the earlier it competes, so that
the partitions come to lie evenly. No node counts the others, and there is no master. The rule was
published in 2015; its author gave it up later. For each partition, with the durations of `Times`:

    1   A node that does not own the partition looks once in a normal lease time. When no race is
        won at the moment (no mark in the hash `grab`), it publishes the partition in `grab-lease`.
        When nothing was published for the maximum lease time, counted from the start of the node
        at the earliest, it first clears both hashes.
    2   A node that receives this starts its normal lease time anew, and waits:
            as the owner            (held - 1) x per_held
            otherwise               (held + 0.5) x per_held
        So an owner is ahead of all that have no fewer than it has after the move.
    3   Then it writes its name into the hash `grab`, if there is none. An owner that comes too late
        stops its pump; when that has ended, it clears its name in the hash `allocation` and
        publishes the partition in `allocated`.
    4   The winner starts its pump when the partition has no name in the hash `allocation`;
        otherwise when it receives `allocated`, and without that after the shutdown time.
    5   It writes its name into the hash `allocation`.
    6   It clears its name in the hash `grab` after the minimum time.

Five things are not in the published rule. The moment of step 1 is drawn for each node and partition
from the second part of the normal lease time, so that one node publishes, and not all at once. A
winner that waits counts what it waits for as held. A winner that loses a later race while it waits
does not start. A node that leaves publishes its partitions in `grab-lease` when their pumps have
ended, and so does the owner of a pump that ends by itself, so that they do not lie idle until the
next look. And a node that reads the rows takes over what they say (`RowsRead`): which partitions
there are, and which of them it holds.

The published rule is right as long as messages take less time than `per_held`. Nodes under load
answer later: then partitions move without reason, which is why the author gave it up. And after the
shutdown time two pumps may run. So here the rows of the locks decide, and the race only says who
tries:

    -   A node competes for a partition only if that is free or stale by the rows, or if its holder
        has at least two more than the node.
    -   A holder that lost a race stops its pump only if it has at least two more than the winner.
    -   A paused partition stays with its holder: no node competes for it.
    -   A winner starts its pump at once if the partition is free or stale by the rows, and not
        because its field in the hash `allocation` is empty or the shutdown time is over.
    -   A mark in the hash `grab` is void when it is still there twice the minimum time after the
        race was published, and not only after the maximum time: its node has died, or its message
        was lost. Otherwise a partition would wait for the maximum time, and for ever where no node
        lives for so long.

A node takes the counts of other nodes from the rows, and its own count from its state. Rows may be
some seconds old: so a partition counts as free for the minimum time after a message in `allocated`,
and the code that starts a pump claims the lock first, and reports `PumpEnded` when it does not get
it. The winner then waits as in step 4.

A `Grab` is the state of one node. `step` takes an event and returns the next state and the actions.
Actions of one partition must be carried out one after the other in the order given, across steps
too. An action that fails is left out, and its answer with it, except that a failed `SetIfAbsent` is
reported as `Raced` without a winner. Moments and durations are monotonic seconds of the node.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from msgspec import Struct

from blackboard.errors import BadInput
from blackboard.model import replace

SHORTEST_PER_HELD = 0.05
"""Seconds. Below that, the time that a message takes decides races, and not what nodes hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The five durations of a lease grab, in seconds. All nodes of a group have the same ones.

    Raises BadInput for those that cannot work together.
    """

    normal: float = 60.0
    """A partition is raced for once in this time."""
    maximum: float = 180.0
    """What the hashes say is void when no race was published for this time."""
    shutdown: float = 30.0
    """How long a winner waits for the pump of the loser to end."""
    minimum: float = 10.0
    """How long a race stays won. All delays of a race must be over by then."""
    per_held: float = 0.25
    """How much later a node competes, for each partition that it holds."""

    def __post_init__(self) -> None:
        for name in ("normal", "maximum", "shutdown", "minimum", "per_held"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise BadInput(name, f"{value} is not a duration", "give seconds, more than 0")
        if self.minimum >= self.normal:
            raise BadInput(
                "minimum",
                f"{self.minimum:g} s is not shorter than normal, {self.normal:g} s: "
                "each race would find the mark of the one before",
                "make minimum shorter, or normal longer",
            )
        if self.maximum < 2 * self.normal:
            raise BadInput(
                "maximum",
                f"{self.maximum:g} s is shorter than twice normal, {self.normal:g} s: "
                "one lost message would void what is held",
                f"give {2 * self.normal:g} s or more",
            )
        if self.shutdown >= self.maximum:
            raise BadInput(
                "shutdown",
                f"{self.shutdown:g} s is not shorter than maximum, {self.maximum:g} s: "
                "what is held would be void before a pump must have ended",
                "make shutdown shorter, or maximum longer",
            )
        if self.per_held < SHORTEST_PER_HELD:
            raise BadInput(
                "per_held",
                f"{self.per_held:g} s is shorter than messages may take",
                f"give {SHORTEST_PER_HELD:g} s or more; 0.1 to 0.5 s are usual",
            )

    def check_drain(self, drain: float) -> None:
        """`drain` is how many seconds a pump has to end. Raises BadInput where a winner would not
        wait for so long.
        """
        if drain >= self.shutdown:
            raise BadInput(
                "drain",
                f"{drain:g} s is not shorter than shutdown, {self.shutdown:g} s: "
                "a winner gives up before the pump of the loser has to end",
                "make drain shorter, or shutdown longer",
            )


class Hash(StrEnum):
    """The hashes of the bus. Their fields are partitions, their values names of nodes."""

    ALLOCATION = "allocation"
    """The node whose pump runs."""
    GRAB = "grab"
    """The node that has won the race."""


class Channel(StrEnum):
    """The channels of the bus. A message is the name of a partition."""

    GRAB_LEASE = "grab-lease"
    """A race begins."""
    ALLOCATED = "allocated"
    """The pump of a loser has ended."""


class LockHolders:
    """Who holds which partition, by the rows of the locks."""

    def __init__(self, holders: Mapping[str, str], paused: Collection[str] = ()) -> None:
        """`holders` has the owner of each partition whose lock is not stale. The `paused` ones stay
        with their owners.
        """
        self._holders = holders
        self._held = Counter(holders.values())
        self._paused = frozenset(paused)

    def holder(self, partition: str) -> str | None:
        return self._holders.get(partition)

    def held(self, node: str) -> int:
        """How many partitions a node holds."""
        return self._held[node]

    def may_move(self, partition: str) -> bool:
        """Whether a holder may give it up for another node."""
        return partition not in self._paused


# ---- events


class Woken(Struct, frozen=True):
    """The moment of the last `WakeAt` has come. It does no harm at any other time."""


class Notified(Struct, frozen=True):
    """A message was received."""

    channel: Channel
    partition: str


class Raced(Struct, frozen=True):
    """The answer to `SetIfAbsent`: the name that the field has now. None: there was no answer."""

    partition: str
    winner: str | None


class Found(Struct, frozen=True):
    """The answer to `Get`."""

    hash: Hash
    partition: str
    value: str | None


class PumpStarted(Struct, frozen=True):
    """The pump that `StartPump` asked for runs."""

    partition: str


class PumpEnded(Struct, frozen=True):
    """A pump has ended, for any reason; or the one that `StartPump` asked for does not start."""

    partition: str


class RowsRead(Struct, frozen=True):
    """The node has read the rows: the partitions there are, and those whose pump it runs."""

    partitions: frozenset[str]
    held: frozenset[str]


class Leaving(Struct, frozen=True):
    """The node is asked to stop: it gives up all that it holds and takes part in no race."""


PartitionEvent = Notified | Raced | Found | PumpStarted | PumpEnded
Event = Woken | RowsRead | Leaving | PartitionEvent


# ---- actions


class Publish(Struct, frozen=True):
    """Publishes a partition in a channel."""

    channel: Channel
    partition: str


class SetIfAbsent(Struct, frozen=True):
    """Writes a value into a field that is empty. `Raced` has the answer."""

    hash: Hash
    partition: str
    value: str


class Get(Struct, frozen=True):
    """Reads a field. `Found` has the answer."""

    hash: Hash
    partition: str


class Put(Struct, frozen=True):
    """Writes a value into a field."""

    hash: Hash
    partition: str
    value: str


class DropIf(Struct, frozen=True):
    """Clears a field if it has this value."""

    hash: Hash
    partition: str
    value: str


class StartPump(Struct, frozen=True):
    """Claims the partition and starts its pump. `PumpStarted` or `PumpEnded` follows."""

    partition: str


class StopPump(Struct, frozen=True):
    """Asks the pump to stop. `PumpEnded` follows."""

    partition: str


class WakeAt(Struct, frozen=True):
    """Asks for `Woken` at this moment, in place of the moment asked for before."""

    moment: float


Action = Publish | SetIfAbsent | Get | Put | DropIf | StartPump | StopPump | WakeAt


# ---- the node


class _Phase(StrEnum):
    """How far a node is with a partition."""

    IDLE = "idle"
    WON = "won"
    """It waits until the owner, if there is one, has released it."""
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


_OWNED = (_Phase.STARTING, _Phase.RUNNING)
_HELD = (_Phase.WON, *_OWNED)


class _Part(Struct, frozen=True, kw_only=True):
    """The state of one partition in one node. A moment that is infinite never comes."""

    phase: _Phase = _Phase.IDLE
    signaled: float
    """When a race was last published; if none was, when the node first read of the partition."""
    look_at: float
    """When the node looks whether to publish one, if it is idle."""
    race_at: float = math.inf
    """When it competes in the race that was published."""
    start_at: float = math.inf
    """When a node that has won starts without a message of the owner."""
    unmark_at: float = math.inf
    """When it clears its mark in the hash `grab`."""
    free_until: float = -math.inf
    """Until when it counts as free, whatever the rows say, because its owner has released it."""
    moment: float = math.inf
    """The earliest moment at which there is something to do for it. It is stored because each step
    reads it of all parts."""

    def with_moment(self, *, is_leaving: bool) -> "_Part":
        moments = [self.race_at, self.unmark_at]
        if self.phase is _Phase.IDLE and not is_leaving:
            moments.append(self.look_at)
        if self.phase is _Phase.WON:
            moments.append(self.start_at)
        return replace(self, moment=min(moments))


@dataclass(frozen=True, slots=True, kw_only=True)
class Grab:
    """The state of one node in a lease grab. A new one has no partitions: `RowsRead` names them."""

    node: str
    times: Times = field(default_factory=Times)
    is_leaving: bool = False
    parts: Mapping[str, _Part] = field(default_factory=dict, repr=False)

    @property
    def held(self) -> frozenset[str]:
        """The partitions that count as held: won, starting or running."""
        return frozenset(name for name, part in self.parts.items() if part.phase in _HELD)

    @property
    def running(self) -> frozenset[str]:
        """The partitions whose pumps are to run: starting or running."""
        return frozenset(name for name, part in self.parts.items() if part.phase in _OWNED)

    @property
    def pumping(self) -> frozenset[str]:
        """The partitions whose pumps run, or are asked to end."""
        pumping = {_Phase.RUNNING, _Phase.STOPPING}
        return frozenset(name for name, part in self.parts.items() if part.phase in pumping)

    def publishes_after(self, partition: str) -> float:
        """Seconds without a race after which this node publishes one: up to a normal lease time,
        and longer than a race stays won. The same for the same node and partition.
        """
        digest = hashlib.sha256(f"{self.node}/{partition}".encode()).digest()
        fraction = int.from_bytes(digest[:4]) / 2**32
        return self.times.normal - fraction * (self.times.normal - self.times.minimum) / 2

    def step(
        self, event: Event, now: float, holders: LockHolders
    ) -> tuple["Grab", tuple[Action, ...]]:
        """The state after an event, and the actions to carry out. `holders` is the newest view of
        the locks. Events of other partitions are ignored.
        """
        step = _Step(self, now, holders, is_leaving=self.is_leaving or isinstance(event, Leaving))
        match event:
            case Woken():
                for name in [name for name, part in self.parts.items() if part.moment <= now]:
                    step.woken(name)
            case RowsRead(partitions, held):
                step.read_rows(partitions, held)
            case Leaving():
                for name in self.parts:
                    step.leave(name)
            case _ if event.partition in self.parts:
                step.take(event)
        grab = replace(self, parts=step.parts, is_leaving=step.is_leaving)
        return grab, (*step.actions, *_wake(grab))


def _wake(grab: Grab) -> tuple[WakeAt, ...]:
    moment = min((part.moment for part in grab.parts.values()), default=math.inf)
    return () if moment == math.inf else (WakeAt(moment),)


class _Step:
    """One step of a node: its partitions as they become, and the actions."""

    def __init__(self, grab: Grab, now: float, holders: LockHolders, *, is_leaving: bool) -> None:
        self._grab = grab
        self.is_leaving = is_leaving
        self._node = grab.node
        self._times = grab.times
        self._now = now
        self._holders = holders
        self.parts = dict(grab.parts)
        self.actions: list[Action] = []

    def _change(self, name: str, **changes: Any) -> _Part:
        part = replace(self.parts[name], **changes)
        self.parts[name] = part.with_moment(is_leaving=self.is_leaving)
        return self.parts[name]

    def _held(self) -> int:
        return sum(part.phase in _HELD for part in self.parts.values())

    def take(self, event: PartitionEvent) -> None:
        name = event.partition
        match event:
            case Notified(Channel.GRAB_LEASE):
                self._race_published(name)
            case Notified(Channel.ALLOCATED):
                self._owner_released(name)
            case Raced(winner=winner):
                self._raced(name, winner)
            case Found(Hash.GRAB, value=value):
                self._found_mark(name, value)
            case Found(Hash.ALLOCATION, value=value):
                self._found_owner(name, value)
            case PumpStarted():
                self._started(name)
            case PumpEnded():
                self._ended(name)

    # ---- time passes

    def woken(self, name: str) -> None:
        part = self.parts[name]
        if part.unmark_at <= self._now:
            self._unmark(name)
        if part.race_at <= self._now:
            self._change(name, race_at=math.inf)
            if self._may_compete_for(name):
                self.actions.append(SetIfAbsent(Hash.GRAB, name, self._node))
        if part.phase is _Phase.WON and part.start_at <= self._now:
            if self._is_free(name):
                self._start(name)
            else:
                self._become_idle(name)
        if self.parts[name].phase is _Phase.IDLE and part.look_at <= self._now:
            self._look(name)

    def _look(self, name: str) -> None:
        """Step 1: reads the hashes. `_found_mark` and `_found_owner` act on the answers."""
        part = self.parts[name]
        if self.is_leaving:
            return
        void_at = part.signaled + self._times.maximum
        again = self._now + self._grab.publishes_after(name)
        self._change(name, look_at=min(again, void_at) if void_at > self._now else again)
        if void_at <= self._now:
            self.actions.append(Get(Hash.ALLOCATION, name))
        self.actions.append(Get(Hash.GRAB, name))

    def _unmark(self, name: str) -> None:
        self._change(name, unmark_at=math.inf)
        self.actions.append(DropIf(Hash.GRAB, name, self._node))

    # ---- answers of the bus

    def _found_mark(self, name: str, value: str | None) -> None:
        part = self.parts[name]
        quiet = self._now - part.signaled
        if part.phase is not _Phase.IDLE or self.is_leaving:
            return
        if quiet < self._grab.publishes_after(name):
            return
        if value is not None:
            if quiet < 2 * self._times.minimum:  # a winner that lives clears its mark sooner
                return
            self.actions.append(DropIf(Hash.GRAB, name, value))
        self.actions.append(Publish(Channel.GRAB_LEASE, name))

    def _found_owner(self, name: str, value: str | None) -> None:
        part = self.parts[name]
        if part.phase is _Phase.WON:
            if self._is_free(name):
                self._start(name)
        elif part.phase is _Phase.IDLE and value is not None:
            is_void = self._now - part.signaled >= self._times.maximum
            if is_void and not self.is_leaving:
                self.actions.append(DropIf(Hash.ALLOCATION, name, value))

    def _raced(self, name: str, winner: str | None) -> None:
        """Step 3."""
        phase = self.parts[name].phase
        if winner is None:
            self._change(name, unmark_at=self._now + self._times.minimum)
        elif winner == self._node:
            self._change(name, unmark_at=self._now + self._times.minimum)
            if self.is_leaving:
                self._unmark(name)
            elif phase is _Phase.IDLE:
                start_at = self._now + self._times.shutdown
                self._change(name, phase=_Phase.WON, start_at=start_at)
                self.actions.append(Get(Hash.ALLOCATION, name))
        elif phase is _Phase.WON:
            self._become_idle(name)
        elif phase in _OWNED and self._yields_to(winner, name):
            self._stop(name)

    # ---- messages

    def _race_published(self, name: str) -> None:
        """Step 2."""
        part = self.parts[name]
        self._change(name, signaled=self._now, look_at=self._now + self._grab.publishes_after(name))
        if self.is_leaving or part.phase is _Phase.STOPPING or part.race_at < math.inf:
            return
        held = self._held()
        ahead_of = held - 1 if part.phase in _OWNED else held + 0.5
        self._change(name, race_at=self._now + ahead_of * self._times.per_held)

    def _owner_released(self, name: str) -> None:
        """Step 4, after a message of the owner."""
        self._change(name, free_until=self._now + self._times.minimum)
        if self.parts[name].phase is _Phase.WON:
            self._start(name)

    # ---- pumps

    def _started(self, name: str) -> None:
        """Step 5."""
        if self.parts[name].phase is _Phase.STARTING:
            self._change(name, phase=_Phase.RUNNING)
            self.actions.append(Put(Hash.ALLOCATION, name, self._node))

    def _ended(self, name: str) -> None:
        """Step 3, when the pump of the loser has ended. A winner whose pump did not start waits
        again, until its time is over.
        """
        part = self.parts[name]
        if part.phase in {_Phase.IDLE, _Phase.WON}:
            return
        if part.phase is _Phase.STARTING and part.start_at > self._now:
            self._change(name, phase=_Phase.WON)
            return
        self._become_idle(name)
        if part.phase is _Phase.STARTING:
            return
        self.actions.append(DropIf(Hash.ALLOCATION, name, self._node))
        self.actions.append(Publish(Channel.ALLOCATED, name))
        if self.is_leaving or part.phase is _Phase.RUNNING:
            self.actions.append(Publish(Channel.GRAB_LEASE, name))

    def read_rows(self, partitions: frozenset[str], held: frozenset[str]) -> None:
        """Takes over what the rows say, but for a pump that is just being started."""
        for name in sorted(partitions - self.parts.keys()):
            look_at = self._now + self._grab.publishes_after(name)
            part = _Part(signaled=self._now, look_at=look_at)
            self.parts[name] = part.with_moment(is_leaving=self.is_leaving)
        for name, part in tuple(self.parts.items()):
            if name in held and part.phase in {_Phase.IDLE, _Phase.WON}:
                self._change(name, phase=_Phase.STARTING)
                self._started(name)
            elif name not in held and part.phase in {_Phase.RUNNING, _Phase.STOPPING}:
                self._ended(name)
            if name not in partitions and self.parts[name].phase is _Phase.IDLE:
                del self.parts[name]

    def leave(self, name: str) -> None:
        part = self._change(name, race_at=math.inf)
        if part.unmark_at < math.inf:
            self._unmark(name)
        if part.phase is _Phase.WON:
            self._become_idle(name)
        elif part.phase in _OWNED:
            self._stop(name)

    def _start(self, name: str) -> None:
        self._change(name, phase=_Phase.STARTING)
        self.actions.append(StartPump(name))

    def _stop(self, name: str) -> None:
        self._change(name, phase=_Phase.STOPPING, race_at=math.inf)
        self.actions.append(StopPump(name))

    def _become_idle(self, name: str) -> None:
        self._change(name, phase=_Phase.IDLE)

    # ---- the rows

    def _may_compete_for(self, name: str) -> bool:
        if self.parts[name].phase in _OWNED or self._is_free(name):
            return True
        holder = self._holders.holder(name)
        if holder is None or not self._holders.may_move(name):
            return False
        return self._holders.held(holder) - self._held() >= 2

    def _yields_to(self, winner: str, name: str) -> bool:
        has_fewer = self._held() - self._holders.held(winner) >= 2
        return has_fewer and self._holders.may_move(name)

    def _is_free(self, name: str) -> bool:
        """Whether it is free by the rows, or because its owner has just released it."""
        was_released = self._now < self.parts[name].free_until
        return was_released or self._holders.holder(name) in {None, self._node}
