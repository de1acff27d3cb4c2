"""The processes of a world: real workers, each in a simulated process, and housekeepers.

Where a world has shared work, each worker takes part in all of it.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Protocol

from blackboard.assembly import WorkerSetup, assemble
from blackboard.board_worker import WorkerSettings
from blackboard.clock import Chance
from blackboard.emitter import EventEmitter
from blackboard.events import BoardEvent
from blackboard.protocol.board_table import BoardTable, Resolve
from blackboard.protocol.retention import Retention, prune_unreleased
from blackboard.rules.applied import REMEMBERED
from blackboard.runners.runner import HandlerCall, Reporter
from blackboard.simulator.changes import AppliedChange
from blackboard.simulator.handlers import HandlerRun, HandlerRuns, SimulatedRunner
from blackboard.simulator.network import BusFault, Network
from blackboard.simulator.processes import HostClock, Process, ProcessLoop, Timeline, stream
from blackboard.simulator.scenario import BOARD, Fault, Scenario
from blackboard.simulator.store import AppliedBatch, NewerClient, Sender, Store, StoreClient
from blackboard.table import Requests, TableError
from blackboard.worker.wake import Wake, until_beat
from blackboard.worker.worker import Mode, Worker

GRACE = timedelta(seconds=30)
DECADE = 10 * 365 * 86_400.0
RATE = 0.01
"""The largest share by which a clock is too fast or too slow."""


class Happening(StrEnum):
    STARTS = "starts"
    ASKED_TO_STOP = "is asked to stop"
    STANDS_STILL = "stands still"
    GOES_ON = "goes on"
    GONE = "is gone"


class Participant(Protocol):
    """What one worker does for shared work."""

    async def work(self) -> None:
        """Takes part until `stop` is called, or it is cancelled."""

    def stop(self) -> None: ...


@dataclass(slots=True, kw_only=True, eq=False)
class WorkerProcess:
    process: Process
    worker: Worker
    requests: Requests
    shared: Mapping[str, Participant]
    """What it does for the shared work, by the names of that."""
    task: asyncio.Task[None] = field(init=False)
    asked_to_stop: float | None = None
    """The moment when it was first asked to stop."""

    async def work(self) -> None:
        """Works as `BoardWorker.work` does."""
        async with asyncio.TaskGroup() as beside:
            for part in self.shared.values():
                beside.create_task(part.work())
            await self.worker.work(Mode.FOREVER)

    def stop(self) -> None:
        """SIGTERM: as `BoardWorker.stop`."""
        for part in self.shared.values():
            part.stop()
        self.worker.stop()


class SharedPart:
    """Shared work in a world: each worker takes part in it, and its invariants are checked. What a
    kind of work has no need of does nothing.
    """

    @property
    def longest(self) -> float:
        """Seconds until all is well after any trouble."""
        raise NotImplementedError

    def participant(
        self,
        process: Process,
        seat: int,
        *,
        board: BoardTable,
        settings: WorkerSettings,
        events: EventEmitter,
    ) -> Participant:
        """What a worker that starts in a seat does for it."""
        raise NotImplementedError

    def begin(self, process: Process, call: HandlerCall, report: Reporter) -> HandlerRun:
        raise NotImplementedError

    def changed(self, change: AppliedChange) -> None:
        """Called with every change."""

    def written(self, batch: AppliedBatch) -> None:
        """Called with every batch, before its changes."""

    def check(self) -> None:
        """Checks what no write shows. Called every cycle."""

    def check_end(self) -> None:
        """Checks the end of a world: there were no faults for `longest`."""

    def happened(self, member: WorkerProcess, happening: Happening) -> None:
        """Called before a worker is gone, and after every other event of a worker."""

    def troubled(self) -> None:
        """Called at faults of requests about it, and when the store's clock is set."""

    def was_away(self, since: float) -> None:
        """Called when the store is back, with the moment since when it was away."""

    def bus_fails(self, how: BusFault) -> None:
        """Called when its bus begins to fail."""

    def bus_recovers(self) -> None:
        """Called when its bus has recovered."""

    def faults_stop(self) -> None:
        """Called when all faults stop."""


@dataclass(slots=True, kw_only=True)
class Workers:
    """Seats with a worker process each. A process that dies or ends leaves its seat empty."""

    scenario: Scenario
    timeline: Timeline
    network: Network
    store: Store
    handler_runs: HandlerRuns
    resolve: Resolve
    on_event: Callable[[Process, BoardEvent], None]
    on_ended: Callable[[WorkerProcess, int, BaseException | None], None]
    """Called with each process that has ended by itself, its seat, and its error, if any."""
    parts: Mapping[str, SharedPart]
    """The shared work, by name."""
    seats: dict[int, WorkerProcess | None] = field(default_factory=dict)
    by_name: dict[str, WorkerProcess] = field(default_factory=dict)
    """All processes that are alive, by the names of the processes."""
    spent: Requests = field(default_factory=Requests)
    """The requests of processes that are gone."""
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
        board = self.board(process, client)
        events = EventEmitter(process.name)
        events.subscribe(lambda event: self.on_event(process, event))
        types = self.scenario.types.handlers
        runner = SimulatedRunner(self.handler_runs, process, types.keys())
        settings = WorkerSettings(cycle=self.scenario.cycle, slots=self.scenario.slots, grace=GRACE)
        process.loop.enter()
        worker = assemble(
            board,
            WorkerSetup(settings=settings, events=events, inline=runner, process=runner),
            handlers=types,
            wake=CycleTimer(self.scenario.cycle.total_seconds(), process.chance),
        )
        shared = {
            name: part.participant(process, seat, board=board, settings=settings, events=events)
            for name, part in self.parts.items()
        }
        member = WorkerProcess(
            process=process, worker=worker, requests=client.requests, shared=shared
        )
        member.task = process.loop.spawn(member.work())
        self.timeline.leave()
        member.task.add_done_callback(lambda _: self._has_ended(member))
        self.seats[seat] = member
        self.by_name[process.name] = member
        self.happened(member, Happening.STARTS)
        return member

    def board(self, process: Process, client: StoreClient) -> BoardTable:
        """The board as a process has it, through its client."""
        return BoardTable(
            client,
            name=BOARD,
            shards=self.scenario.shards,
            clock=process.clock,
            chance=process.chance,
            resolve=self.resolve,
        )

    def housekeeper(self, name: str) -> "Housekeeper":
        process = self.process(name)
        client = StoreClient(self.network, self.store, process, Sender(name=name))
        board = self.board(process, client)
        # It has watched the store's clock for an hour.
        return Housekeeper(process, board.using(clock_proven_in=lambda: 0.0))

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
            self.happened(member, Happening.ASKED_TO_STOP)
        member.stop()

    def happened(self, member: WorkerProcess, happening: Happening) -> None:
        for part in self.parts.values():
            part.happened(member, happening)

    def seat_of(self, member: WorkerProcess) -> int:
        return next(seat for seat, sits in self.seats.items() if sits is member)

    @property
    def members(self) -> list[WorkerProcess]:
        """All processes that are alive, in the order of seats."""
        return [member for _, member in sorted(self.seats.items()) if member is not None]

    @property
    def requests(self) -> Requests:
        return sum((member.requests for member in self.members), self.spent)

    def _has_ended(self, member: WorkerProcess) -> None:
        problem = None if member.task.cancelled() else member.task.exception()
        seat = self.seat_of(member)
        member.process.loop.dead = True
        self._remove(member)
        self.on_ended(member, seat, problem)

    def _remove(self, member: WorkerProcess) -> None:
        self.happened(member, Happening.GONE)
        self.handler_runs.died(member.process)
        self.spent += member.requests
        del self.by_name[member.process.name]
        self.seats[self.seat_of(member)] = None


class CycleTimer(Wake):
    """Wakes a worker every cycle, as `worker.wake.CycleWake` does, by the loop of its process."""

    def __init__(self, cycle: float, chance: Chance) -> None:
        super().__init__(cycle)
        self._chance = chance
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        pause = until_beat(self._cycle, self._chance)
        self._timer = asyncio.get_running_loop().call_later(pause, self._wake)

    def stop(self) -> None:
        super().stop()
        if self._timer is not None:
            self._timer.cancel()

    def _wake(self) -> None:
        self.start()
        self.beat()


HOUSEKEEPERS = ("house-1", "house-2")
RETENTION = Retention(tombstones=REMEMBERED)
LONGEST_PAUSE = 60.0
"""Seconds of a pause before a request, at most; half of the pauses are shorter than one."""


@dataclass(frozen=True, slots=True)
class Housekeeper:
    """A process that deletes expired rows. A coordinator that stood still, and was replaced
    meanwhile, may send one more request: so two housekeepers work at the same time, never stop, and
    pause before a request now and then.
    """

    process: Process
    board: BoardTable

    def start(self, *, every: timedelta) -> None:
        self.process.loop.enter()
        self.process.loop.spawn(self._work(every.total_seconds()))

    async def _work(self, every: float) -> None:
        while True:
            await self.process.clock.sleep(every)
            with suppress(TableError):
                await prune_unreleased(self.board, retention=RETENTION, pause=self._pause)

    async def _pause(self) -> None:
        await self.process.clock.sleep(LONGEST_PAUSE * self.process.chance.fraction() ** 6)
