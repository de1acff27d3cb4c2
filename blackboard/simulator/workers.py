"""The worker processes of a world: real workers, each in a simulated process."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from blackboard.assembly import WorkerSettings, assemble
from blackboard.clock import Chance
from blackboard.events import BoardEvent, Events
from blackboard.handlers import Handler
from blackboard.protocol.reading import BoardTable, Resolve
from blackboard.simulator.handlers import HandlerRuns, SimulatedRunner
from blackboard.simulator.network import Network
from blackboard.simulator.processes import (
    HostClock,
    Process,
    ProcessLoop,
    Timeline,
    stream,
)
from blackboard.simulator.scenario import Fault, Scenario
from blackboard.simulator.store import NewerClient, Sender, Store, StoreClient
from blackboard.table import Requests
from blackboard.worker.wake import SPREAD, EarliestWake
from blackboard.worker.worker import Mode, Worker

BOARD = "simulated"
GRACE = timedelta(seconds=30)
DECADE = 10 * 365 * 86_400.0
RATE = 0.01
"""A clock may be too fast or too slow by so much."""


@dataclass(slots=True, kw_only=True, eq=False)
class WorkerProcess:
    """One worker process."""

    process: Process
    worker: Worker
    task: asyncio.Task[None]
    requests: Requests
    asked_to_stop: float | None = None
    """When it was first asked."""


@dataclass(slots=True, kw_only=True)
class Workers:
    """Seats with a worker process each. A process that dies or ends leaves its seat empty."""

    scenario: Scenario
    timeline: Timeline
    network: Network
    store: Store
    handler_runs: HandlerRuns
    handlers: Mapping[str, Handler]
    resolve: Resolve
    on_event: Callable[[Process, BoardEvent], None]
    on_ended: Callable[[WorkerProcess, int, BaseException | None], None]
    """Called with each process that has ended by itself, its seat, and its error, if any."""
    seats: dict[int, WorkerProcess | None] = field(default_factory=dict)
    by_name: dict[str, WorkerProcess] = field(default_factory=dict)
    """All processes that are alive."""
    spent: Requests = field(default_factory=Requests)
    """Of processes that are gone."""
    _count: int = 0

    def start(self, seat: int) -> WorkerProcess:
        """Starts a worker in a seat. On every second seat it is of a newer version."""
        self._count += 1
        process = self.process(f"host-{seat}:{self._count}")
        process.newer = Fault.VERSIONS in self.scenario.faults and seat % 2 == 1
        sender = Sender(name=process.name, newer=process.newer)
        rows = self.scenario.page_rows
        client_type = NewerClient if process.newer else StoreClient
        client = client_type(self.network, self.store, process, sender, page_rows=rows)
        board = BoardTable(
            client,
            name=BOARD,
            shards=self.scenario.shards,
            clock=process.clock,
            chance=process.chance,
            resolve=self.resolve,
        )
        events = Events(process.name)
        events.subscribe(lambda event: self.on_event(process, event))
        runner = SimulatedRunner(self.handler_runs, process)
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
            wake=CycleTimer(self.scenario.cycle.total_seconds(), process.chance),
            inline=runner,
            process=runner,
        )
        task = process.loop.spawn(worker.work(Mode.FOREVER))
        self.timeline.leave()
        member = WorkerProcess(
            process=process,
            worker=worker,
            task=task,
            requests=client.requests,
        )
        task.add_done_callback(lambda _: self._has_ended(member))
        self.seats[seat] = member
        self.by_name[process.name] = member
        return member

    def process(self, name: str) -> Process:
        """A new process, on a host with clocks of its own."""
        chance = stream(self.scenario.seed, f"process {name}")
        offset, rate = 0.0, 1.0
        if Fault.SKEW in self.scenario.faults:
            far = DECADE if chance.fraction() < 0.05 else 90.0
            offset = far * (2 * chance.fraction() - 1)
            rate += RATE * (2 * chance.fraction() - 1)
        loop = ProcessLoop(self.timeline, rate=rate, began=1000 * chance.fraction())
        clock = HostClock(self.timeline, loop, offset=offset)
        return Process(name=name, loop=loop, clock=clock, chance=chance)

    def kill(self, member: WorkerProcess) -> None:
        """SIGKILL."""
        if not member.process.loop.dead:
            member.process.loop.kill()
            self._remove(member)

    def ask_to_stop(self, member: WorkerProcess) -> None:
        """SIGTERM."""
        if member.asked_to_stop is None:
            member.asked_to_stop = self.timeline.now
        member.worker.stop()

    def seat_of(self, member: WorkerProcess) -> int:
        return next(seat for seat, sits in self.seats.items() if sits is member)

    @property
    def members(self) -> list[WorkerProcess]:
        """All that are alive, in the order of seats."""
        return [member for _, member in sorted(self.seats.items()) if member is not None]

    @property
    def requests(self) -> Requests:
        """All requests of workers to the store."""
        total = self.spent
        for member in self.members:
            total = _plus(total, member.requests)
        return total

    def _has_ended(self, member: WorkerProcess) -> None:
        problem = None if member.task.cancelled() else member.task.exception()
        seat = self.seat_of(member)
        member.process.loop.dead = True
        self._remove(member)
        self.on_ended(member, seat, problem)

    def _remove(self, member: WorkerProcess) -> None:
        self.handler_runs.died(member.process)
        self.spent = _plus(self.spent, member.requests)
        del self.by_name[member.process.name]
        self.seats[self.seat_of(member)] = None


def _plus(one: Requests, other: Requests) -> Requests:
    return Requests(one.commits + other.commits, one.pages + other.pages, one.others + other.others)


class CycleTimer(EarliestWake):
    """Wakes a worker every cycle, as `worker.wake.CycleWake` does, by the loop of its process."""

    def __init__(self, cycle: float, chance: Chance) -> None:
        super().__init__(cycle)
        self._chance = chance
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        spread = SPREAD * (2 * self._chance.fraction() - 1)
        pause = self._cycle * (1 - SPREAD + spread)
        self._timer = asyncio.get_running_loop().call_later(pause, self._wake)

    def stop(self) -> None:
        super().stop()
        if self._timer is not None:
            self._timer.cancel()

    def _wake(self) -> None:
        self.start()
        self.beat()
