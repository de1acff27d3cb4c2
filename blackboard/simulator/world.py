"""A world: one simulated board, its workers and its faults, from one seed, in one thread.

First the faults are injected. Then all faults stop, and the world goes on until every lock of a
dead worker is stale and every due item must have started. A broken invariant raises `Violation`.
"""

from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from blackboard.events import (
    BoardEvent,
    ItemLeftAlone,
    LockAdopted,
    LockLost,
    RunEnded,
    RunStarted,
    SlotSkipped,
    Walked,
)
from blackboard.model import Item
from blackboard.protocol.edits import add
from blackboard.protocol.reading import BoardTable
from blackboard.settings import resolver
from blackboard.simulator.changes import AppliedChange, Shadows, saved_in
from blackboard.simulator.faults import FaultInjector, Operators
from blackboard.simulator.handlers import HandlerRun, HandlerRuns
from blackboard.simulator.invariants.checkpoints import Checkpoints
from blackboard.simulator.invariants.liveness import Liveness, Priority, Refusals, Walks
from blackboard.simulator.invariants.requests import OperatorChanges, RequestedRuns
from blackboard.simulator.invariants.rows import Etags, History, Locks, Versions, check_whole
from blackboard.simulator.invariants.runs import HandlerInvariants
from blackboard.simulator.invariants.transitions import ClaimedSlots, Transitions
from blackboard.simulator.network import Fated, Fates, Network, StoreRequest
from blackboard.simulator.processes import Process, Timeline, stream
from blackboard.simulator.results import Figures, Trace, described
from blackboard.simulator.scenario import Fault, FaultPlan, Scenario, draw_plan
from blackboard.simulator.store import Sender, Store, StoreClient, StoreClock, Written
from blackboard.simulator.workers import BOARD, RATE, WorkerProcess, Workers
from blackboard.spec import RunSettings
from blackboard.table import Op, TableError


class World:
    """One world; `run` may be called once."""

    def __init__(
        self,
        scenario: Scenario,
        plan: FaultPlan | None = None,
        *,
        sink: Callable[[str], None] | None = None,
    ) -> None:
        self.scenario = scenario
        self.plan = plan or draw_plan(scenario)
        self.timeline = Timeline()
        self.trace = Trace(sink)
        self.figures = Figures()
        self.shadows = Shadows()
        self._refusals = refusals = Refusals()
        self._walks = Walks(scenario, self.timeline)
        self.network = Network(
            timeline=self.timeline,
            chance=stream(scenario.seed, "network"),
            fates=Fates(stream(scenario.seed, "fates"), scenario.request_odds, self.plan.fated),
            trigger=lambda *about: self.injector.trigger(*about),  # noqa: PLW0108 - it is made below
            on_fault=self._on_fault,
            on_refused=self._on_refused,
        )
        self.handler_runs = HandlerRuns(
            timeline=self.timeline,
            seed=scenario.seed,
            takes={one.id: one.takes for one in scenario.items},
            failing=scenario.failing,
            saving=scenario.saving,
        )
        handlers = scenario.types.handlers
        resolve = resolver(scenario.types.settings, handlers)
        self.store = Store(timeline=self.timeline, clock=_store_clock(scenario, self.timeline))
        self.workers = Workers(
            scenario=scenario,
            timeline=self.timeline,
            network=self.network,
            store=self.store,
            handler_runs=self.handler_runs,
            handlers=handlers,
            resolve=resolve,
            on_event=self._on_event,
            on_ended=lambda *about: self.injector.ended(*about),  # noqa: PLW0108
        )
        self._operators = operators = self.workers.process("operators")
        self._client = StoreClient(
            self.network, self.store, operators, Sender(name="operators", verb="ask")
        )
        self.board = BoardTable(
            self._client,
            name=BOARD,
            shards=scenario.shards,
            clock=operators.clock,
            chance=operators.chance,
            resolve=resolve,
        )
        self.operators = Operators(self.board, self._client, operators, scenario.items)

        def settings_of(item: Item) -> RunSettings:
            return resolve(item.type, item.spec)

        self._runs = HandlerInvariants(self.timeline, self.workers, settings_of)
        self._checkpoints = Checkpoints()
        self.handler_runs.on_begin = partial(self._soon, self._begins)
        self.handler_runs.on_saved = self._checkpoints.acknowledged
        self.handler_runs.on_end = partial(self._soon, self._runs.ends)
        self._priority = Priority(self.shadows, self.workers, self.board.partition)
        self.liveness = Liveness(
            self.scenario, self.timeline, self.shadows, self.workers, self.handler_runs
        )
        self._invariants: list[Callable[[AppliedChange], None]] = [
            RequestedRuns(),
            check_whole,
            Locks(),
            self._checkpoints,
            History(lambda item: resolve(item.type, item.spec).fenced),
            ClaimedSlots(lambda item: resolve(item.type, item.spec).schedule),
            Transitions(settings_of),
            OperatorChanges(settings_of),
            self._runs,
            self._priority,
            self.liveness.changed,
            self.figures.changed,
        ]
        self.store.watchers = [Etags(), Versions(), refusals.written, self._written]
        self.injector = FaultInjector(
            timeline=self.timeline,
            trace=self.trace,
            figures=self.figures,
            network=self.network,
            workers=self.workers,
            operators=self.operators,
            shadows=self.shadows,
        )
        self.last_workers: list[WorkerProcess] = []
        """The workers at the end."""

    @property
    def fated(self) -> tuple[Fated, ...]:
        """The fates of requests so far, or those of the plan."""
        return tuple(self.network.fates.fated)

    def watch(self, look: Callable[[AppliedChange], None]) -> None:
        """Calls `look` with every change, after the invariants."""
        self._invariants.append(look)

    # ---- from start to end

    def run(self) -> Figures:
        """Runs the world. Raises Violation as soon as an invariant is broken."""
        try:
            self._run()
        finally:
            self.last_workers = self.workers.members
            for member in self.last_workers:
                self.workers.kill(member)
            self._operators.loop.kill()
        return self.figures

    def _run(self) -> None:
        self._add_items()
        starts = stream(self.scenario.seed, "starts")
        for seat in range(self.scenario.workers):
            late = starts.fraction() * self.scenario.cycle.total_seconds()
            self.timeline.at(late, self.injector.start, seat)
        for one in self.plan.injections:
            self.timeline.at(one.at, self.injector.inject, one)
        has_faults = bool(self.scenario.faults)
        self._go_on(self.scenario.hours * 3600.0, calm=not has_faults)
        self.figures.measure(self.workers, self.handler_runs, self.timeline.now)
        if has_faults:
            self.injector.stop()
            self._go_on(self.timeline.now + self.liveness.longest(), calm=False)
            self._go_on(self.timeline.now + self.liveness.enough, calm=True)

    def _go_on(self, until: float, *, calm: bool) -> None:
        """Runs to a moment. Checks every cycle what no write shows; while calm, what is stuck."""
        step = self.liveness.bound if calm else self.scenario.cycle.total_seconds()
        while self.timeline.now < until:
            self.timeline.run(min(self.timeline.now + step, until))
            self.liveness.check()
            self._runs.check(self.handler_runs)
            if calm:
                self.liveness.check_left()

    def _add_items(self) -> None:
        """Creates the board and its items, before any fault."""
        board = self.board.asked_through(self._client.direct())
        _at_once(
            BoardTable.create(
                board.table,
                name=board.name,
                shards=board.shards,
                clock=board.clock,
                chance=board.chance,
                resolve=board.resolve,
            )
        )
        for one in self.scenario.items:
            _at_once(add(board, item_id=one.id, item_type=one.type, spec=one.spec, first=one.first))

    # ---- events

    def _written(self, written: Written) -> None:
        for change in self.shadows.changes(written):
            self.trace.add(written.moment, written.sender.name, described(change))
            for check in self._invariants:
                check(change)

    def _begins(self, handler_run: HandlerRun) -> None:
        self._runs.begins(handler_run)
        call = handler_run.call
        self._checkpoints.begins(call.item.id, call.fence, saved_in(call.checkpoint))

    def _soon(self, judge: Callable[[HandlerRun], None], handler_run: HandlerRun) -> None:
        """Checks outside the worker, which must not catch a violation."""
        self.timeline.at(self.timeline.now, judge, handler_run)

    def _on_fault(self, request: StoreRequest, what: str) -> None:
        process = request.process
        self.figures.count("faults")
        self._priority.troubled(process, request.ops)
        self._refusals.troubled(process)
        self.trace.add(self.timeline.now, process.name, what)

    def _on_refused(
        self, process: Process, sender: str, ops: Sequence[Op], problem: TableError
    ) -> None:
        self._refusals.refused(process, sender, ops, problem)
        self._priority.troubled(process, ops)

    def _on_event(self, process: Process, event: BoardEvent) -> None:
        if isinstance(event, RunStarted | RunEnded):
            self._walks.ran(process)
        elif isinstance(event, Walked):
            process.walks += event.complete
            process.walked = self.timeline.now
            self._priority.walked(process, self.timeline.now)
            held = len(self.workers.by_name[process.name].worker.holdings)
            # A violation raised in a subscriber of a worker would be caught there.
            self.timeline.at(
                self.timeline.now, self._walks.walked, process, event, held, process.requests
            )
        elif isinstance(event, LockLost | LockAdopted | ItemLeftAlone | SlotSkipped):
            what = f"{event.kind} {event.id}: {event.message}".rstrip(": ")
            self.trace.add(self.timeline.now, process.name, what)


def _store_clock(scenario: Scenario, timeline: Timeline) -> StoreClock:
    if Fault.CLOCK not in scenario.faults:
        return StoreClock(timeline)
    fraction = stream(scenario.seed, "store clock").fraction()
    return StoreClock(timeline, 1.0 + RATE * (2 * fraction - 1))


def _at_once(work: Coroutine[Any, Any, object]) -> None:
    """Runs a coroutine that never waits."""
    with suppress(StopIteration):
        work.send(None)
        raise AssertionError("it waits")
