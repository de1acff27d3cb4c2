"""The workers of a world: the real ones, each in a process of its own that can come to harm."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from blackboard.board import WorkerSettings, assemble
from blackboard.events import Event, Events
from blackboard.handlers import Handler
from blackboard.protocol.reading import BoardTable, Resolve
from blackboard.simulator.beats import Beats
from blackboard.simulator.chance import stream
from blackboard.simulator.handlers import SimulatedRunner, Stage
from blackboard.simulator.host import HostClock, Process
from blackboard.simulator.network import Network
from blackboard.simulator.scenario import Scenario, Trouble
from blackboard.simulator.store import Sender, Store
from blackboard.simulator.timeline import ProcessLoop, Timeline
from blackboard.simulator.versions import NewerWire
from blackboard.simulator.wire import Wire
from blackboard.table import Requests
from blackboard.worker.worker import Mode, Worker

BOARD = "simulated"
GRACE = timedelta(seconds=30)
DECADE = 10 * 365 * 86_400.0
RATE = 0.01
"""By which a clock may be too fast or too slow."""


@dataclass(slots=True, kw_only=True, eq=False)
class Member:
    """One worker process."""

    process: Process
    worker: Worker
    task: asyncio.Task[None]
    requests: Requests
    hired: float
    """When it started: a moment of the world."""
    asked_to_stop: float | None = None
    """When it was first asked."""


@dataclass(slots=True, kw_only=True)
class Crew:
    """Seats, and who sits there. Whoever dies or ends leaves an empty seat."""

    scenario: Scenario
    timeline: Timeline
    network: Network
    store: Store
    stage: Stage
    handlers: Mapping[str, Handler]
    resolve: Resolve
    hears: Callable[[Process, Event], None]
    ended: Callable[[Member, int, BaseException | None], None]
    """Hears of whoever has ended by itself, where it sat, and of what made it end if that was an
    error.
    """
    seats: dict[int, Member | None] = field(default_factory=dict)
    by_name: dict[str, Member] = field(default_factory=dict)
    """Everybody who ever was, but for those who are dead."""
    spent: Requests = field(default_factory=Requests)
    """By those who are gone."""
    _hired: int = 0

    def hire(self, seat: int) -> Member:
        """A new worker takes a seat."""
        self._hired += 1
        process = self.process(f"host-{seat}:{self._hired}")
        process.newer = Trouble.VERSIONS in self.scenario.faults and seat % 2 == 1
        sender = Sender(name=process.name, newer=process.newer)
        rows = self.scenario.page_rows
        way = NewerWire if process.newer else Wire
        wire = way(self.network, self.store, process, sender, page_rows=rows)
        board = BoardTable(
            wire,
            name=BOARD,
            shards=self.scenario.shards,
            clock=process.clock,
            chance=process.chance,
            resolve=self.resolve,
        )
        events = Events(process.name)
        events.subscribe(lambda event: self.hears(process, event))
        runner = SimulatedRunner(self.stage, process)
        process.loop.enter()
        worker = assemble(
            board,
            owner=process.name,
            settings=WorkerSettings(
                cycle=self.scenario.cycle, slots=self.scenario.slots, grace=GRACE
            ),
            handlers=self.handlers,
            job_settings={},
            events=events,
            wake=Beats(self.scenario.cycle.total_seconds(), process.chance),
            inline=runner,
            process=runner,
        )
        task = process.loop.spawn(worker.work(Mode.FOREVER))
        self.timeline.leave()
        member = Member(
            process=process,
            worker=worker,
            task=task,
            requests=wire.requests,
            hired=self.timeline.now,
        )
        task.add_done_callback(lambda _: self._is_over(member))
        self.seats[seat] = member
        self.by_name[process.name] = member
        return member

    def process(self, name: str) -> Process:
        """A new process, on a host whose clocks are what they are."""
        chance = stream(self.scenario.seed, f"process {name}")
        offset, rate = 0.0, 1.0
        if Trouble.SKEW in self.scenario.faults:
            far = DECADE if chance.fraction() < 0.05 else 90.0
            offset = far * (2 * chance.fraction() - 1)
            rate += RATE * (2 * chance.fraction() - 1)
        loop = ProcessLoop(self.timeline, rate=rate, began=1000 * chance.fraction())
        clock = HostClock(self.timeline, loop, offset=offset)
        return Process(name=name, loop=loop, clock=clock, chance=chance)

    def kill(self, member: Member) -> None:
        """Nothing that it would still do happens."""
        if not member.process.loop.dead:
            member.process.loop.kill()
            self.stage.died(member.process)
            self._leaves(member)

    def ask_to_stop(self, member: Member) -> None:
        """SIGTERM."""
        if member.asked_to_stop is None:
            member.asked_to_stop = self.timeline.now
        member.worker.stop()

    def seat_of(self, member: Member) -> int:
        return next(seat for seat, sits in self.seats.items() if sits is member)

    @property
    def members(self) -> list[Member]:
        """Those that sit somewhere, seat by seat."""
        return [member for _, member in sorted(self.seats.items()) if member is not None]

    @property
    def requests(self) -> Requests:
        """All that was asked of the store by workers."""
        total = self.spent
        for member in self.members:
            total = _plus(total, member.requests)
        return total

    def _is_over(self, member: Member) -> None:
        problem = None if member.task.cancelled() else member.task.exception()
        seat = self.seat_of(member)
        member.process.loop.dead = True
        self.stage.died(member.process)
        self._leaves(member)
        self.ended(member, seat, problem)

    def _leaves(self, member: Member) -> None:
        self.spent = _plus(self.spent, member.requests)
        del self.by_name[member.process.name]
        self.seats[self.seat_of(member)] = None


def _plus(one: Requests, other: Requests) -> Requests:
    return Requests(one.commits + other.commits, one.pages + other.pages, one.others + other.others)
