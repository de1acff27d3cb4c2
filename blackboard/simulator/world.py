"""A world: one simulated board, its workers and its faults, from one seed, in one thread.

First the faults are injected. Then all faults stop, and the world goes on until every lock of a
dead worker is stale and every due item must have started. A broken invariant raises `Violation`.
"""

from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from blackboard import events
from blackboard.model import Item
from blackboard.protocol.additions import New, add
from blackboard.protocol.keys import group_board
from blackboard.runners.runner import HandlerCall, Reporter
from blackboard.settings import resolver
from blackboard.simulator.changes import AppliedChange, Saved, Shadows, saved_in
from blackboard.simulator.faults import FaultInjector, Operators
from blackboard.simulator.handlers import HandlerRun, HandlerRuns
from blackboard.simulator.invariants import rows
from blackboard.simulator.invariants.liveness import Liveness, Priority, Refusals, Walks
from blackboard.simulator.invariants.requests import OperatorChanges, RequestedRuns
from blackboard.simulator.invariants.runs import Checkpoints, HandlerInvariants, LimitInvariants
from blackboard.simulator.invariants.transitions import ClaimedSlots, CutShort, Transitions
from blackboard.simulator.network import Fated, Fates, Network, StoreRequest
from blackboard.simulator.processes import Process, Timeline, Trap, stream
from blackboard.simulator.results import Figures, Trace, described
from blackboard.simulator.scenario import BOARD, Fault, FaultPlan, Injection, Scenario, draw_plan
from blackboard.simulator.store import AppliedBatch, Sender, Store, StoreClient, StoreClock
from blackboard.simulator.workers import HOUSEKEEPERS, RATE, SharedPart, WorkerProcess, Workers
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
        self._resolve = resolver(scenario.types.settings, scenario.handlers)
        self.parts: dict[str, SharedPart] = {}
        """The shared work, by name. It is made last: a part looks at all of the world."""
        self.network = Network(
            timeline=self.timeline,
            chance=stream(scenario.seed, "network"),
            fates=Fates(stream(scenario.seed, "fates"), scenario.request_odds, self.plan.fated),
            trigger=self._trigger,
            on_fault=self._on_fault,
            on_refused=self._on_refused,
        )
        self.handler_runs = HandlerRuns(
            timeline=self.timeline,
            seed=scenario.seed,
            takes={item.id: item.takes for item in scenario.items},
            failing=scenario.failing,
            saving=scenario.saving,
            others={
                item_type: partial(self._begin_shared, group.name)
                for group in scenario.shared
                for item_type in group.handlers
            },
            watcher=self,
        )
        self.store = Store(
            timeline=self.timeline,
            clock=_store_clock(scenario, self.timeline),
            on_written=self._written,
        )
        self.workers = Workers(
            scenario=scenario,
            timeline=self.timeline,
            network=self.network,
            store=self.store,
            handler_runs=self.handler_runs,
            resolve=self._resolve,
            on_event=self._on_event,
            on_ended=self._on_ended,
            parts=self.parts,
        )
        self._operator_process = self.workers.process("operators")
        """The process in which the commands of the operators run."""
        sender = Sender(name="operators", verb="ask")
        self._client = StoreClient(self.network, self.store, self._operator_process, sender)
        self.board = self.workers.board(self._operator_process, self._client)
        self.operators = Operators(self.board, self._client, self._operator_process, scenario)
        self._housekeepers = [self.workers.housekeeper(name) for name in HOUSEKEEPERS]
        self._make_invariants()
        self._make_parts()
        self.injector = FaultInjector(
            timeline=self.timeline,
            trace=self.trace,
            figures=self.figures,
            network=self.network,
            workers=self.workers,
            operators=self.operators,
            shadows=self.shadows,
            on_back=self._on_back,
        )
        self.last_workers: list[WorkerProcess] = []

    def _make_invariants(self) -> None:
        scenario, settings_of = self.scenario, self._settings_of
        self._refusals = Refusals()
        self._walks = Walks(scenario, self.timeline)
        self._runs = HandlerInvariants(self.timeline, self.shadows, self.workers, settings_of)
        self._checkpoints = Checkpoints()
        self._limits = LimitInvariants(
            timeline=self.timeline,
            handler_runs=self.handler_runs,
            settings_of=settings_of,
            resolve=self._resolve,
        )
        self._priority = Priority(self.shadows, self.workers, self.board.partition, self._limits)
        self.liveness = Liveness(
            scenario,
            self.timeline,
            self.shadows,
            self.workers,
            self.handler_runs,
            self._limits.has_room,
        )
        cut_short = CutShort(scenario.shared_ids)
        self._of_batches: list[Callable[[AppliedBatch], None]] = [
            rows.Etags(),
            rows.Versions(),
            self._refusals.written,
            self._limits.written,
        ]
        """Called with every batch that was applied, before its changes."""
        self._of_changes: list[Callable[[AppliedChange], None]] = [
            RequestedRuns(),
            rows.check_whole,
            rows.check_deleted,
            rows.Locks(),
            self._checkpoints,
            rows.History(settings_of),
            ClaimedSlots(settings_of),
            Transitions(settings_of, cut_short.holds, scenario.shared_ids),
            OperatorChanges(settings_of, cut_short.holds),
            cut_short,
            self._runs,
            self._priority,
            self.liveness.changed,
            self.figures.changed,
        ]

    def _make_parts(self) -> None:
        """Makes the shared work, whose own invariants are checked after those of the board."""
        for group in self.scenario.shared:
            part = group.in_world(self)
            self.parts[group.name] = part
            self._of_batches.append(part.written)
            self._of_changes.append(part.changed)

    def _settings_of(self, item: Item) -> RunSettings:
        return self._resolve(item.type, item.spec)

    def _begin_shared(
        self, name: str, process: Process, call: HandlerCall, report: Reporter
    ) -> HandlerRun:
        return self.parts[name].begin(process, call, report)

    @property
    def fated(self) -> tuple[Fated, ...]:
        """The fates of requests so far, or those of the plan."""
        return tuple(self.network.fates.fated)

    def watch(self, look: Callable[[AppliedChange], None]) -> None:
        """Calls `look` with every change, after the invariants."""
        self._of_changes.append(look)

    # ---- from start to end

    def run(self) -> Figures:
        """Runs the world. Raises Violation as soon as an invariant is broken."""
        try:
            self._run()
        finally:
            self.last_workers = self.workers.members
            for member in self.last_workers:
                self.workers.kill(member)
            self._operator_process.loop.kill()
            for housekeeper in self._housekeepers:
                housekeeper.process.loop.kill()
        return self.figures

    def _run(self) -> None:
        self._add_items()
        starts = stream(self.scenario.seed, "starts")
        for seat in range(self.scenario.workers):
            late = starts.fraction() * self.scenario.cycle.total_seconds()
            self.timeline.at(late, self.injector.start, seat)
        for injection in self.plan.injections:
            self.timeline.at(injection.at, self._inject, injection)
        if self.scenario.housekeeping is not None:
            for housekeeper in self._housekeepers:
                housekeeper.start(every=self.scenario.housekeeping)
            self.timeline.leave()
        has_faults = bool(self.scenario.faults)
        self._go_on(self.scenario.hours * 3600.0, calm=not has_faults)
        self.figures.measure(self.workers, self.handler_runs, self.timeline.now)
        if has_faults:
            self.injector.stop()
            longest = max(
                self.liveness.longest(), *(part.longest for part in self.parts.values()), 0.0
            )
            self._go_on(self.timeline.now + longest, calm=False)
            self._go_on(self.timeline.now + self.liveness.enough, calm=True)
            for part in self.parts.values():
                part.check_end()

    def _go_on(self, until: float, *, calm: bool) -> None:
        """Runs to a moment, in steps, and checks after each what no write shows. A step is a cycle;
        while `calm` it is `liveness.bound`, and stuck work is looked for, too.
        """
        step = self.liveness.bound if calm else self.scenario.cycle.total_seconds()
        while self.timeline.now < until:
            self.timeline.run(min(self.timeline.now + step, until))
            self.check()
            if calm:
                self.liveness.check_left()

    def check(self) -> None:
        """Checks what no write shows."""
        self.liveness.check()
        self._runs.check(self.handler_runs)
        for part in self.parts.values():
            part.check()

    def _add_items(self) -> None:
        """Creates the board and its items, before any fault."""
        board = self.board.using(self._client.direct())
        _at_once(board.make())
        for item in self.scenario.items:
            _at_once(add(board, New(id=item.id, type=item.type, spec=item.spec, first=item.first)))

    def _inject(self, injection: Injection) -> None:
        if injection.fault is Fault.CLOCK:
            for part in self.parts.values():
                part.troubled()
        self.injector.inject(injection)

    # ---- events

    def _trigger(self, process: Process, trap: Trap) -> None:
        self.injector.trigger(process, trap)

    def _on_ended(self, member: WorkerProcess, seat: int, problem: BaseException | None) -> None:
        self.injector.ended(member, seat, problem)

    def _on_back(self, since: float) -> None:
        for part in self.parts.values():
            part.was_away(since)

    def _written(self, batch: AppliedBatch) -> None:
        for check in self._of_batches:
            check(batch)
        for change in self.shadows.changes(batch):
            self.trace.add(batch.moment, batch.sender.name, described(change))
            for judge in self._of_changes:
                judge(change)

    # ---- called as handlers run

    def run_begins(self, run: HandlerRun) -> None:
        self._soon(self._begins, run)

    def run_ends(self, run: HandlerRun) -> None:
        self._soon(self._runs.ends, run)

    def lock_extended(self, run: HandlerRun) -> None:
        self._soon(self._runs.extends, run)

    def lock_gone(self, run: HandlerRun) -> None:
        self._soon(self._runs.loses, run)

    def acknowledged(self, item_id: str, saved: Saved) -> None:
        self._checkpoints.acknowledged(item_id, saved)

    def _begins(self, handler_run: HandlerRun) -> None:
        self._runs.begins(handler_run)
        self._limits.begins(handler_run)
        call = handler_run.call
        self._checkpoints.begins(call.item.id, call.fence, saved_in(call.checkpoint))

    def _soon(self, judge: Callable[[HandlerRun], None], handler_run: HandlerRun) -> None:
        """Checks outside the worker, which must not catch a violation."""
        self.timeline.at(self.timeline.now, judge, handler_run)

    def _on_fault(self, request: StoreRequest, fault: str) -> None:
        process = request.process
        self.figures.count("faults")
        for work in self.scenario.shared:
            if request.partition.startswith(group_board(BOARD, work.group)):
                self.parts[work.name].troubled()
        self._priority.troubled(process, request.ops)
        self._refusals.troubled(process)
        self.trace.add(self.timeline.now, process.name, fault)

    def _on_refused(
        self, process: Process, sender: str, ops: Sequence[Op], problem: TableError
    ) -> None:
        self._refusals.refused(process, sender, ops, problem)
        self._priority.troubled(process, ops)

    def _on_event(self, process: Process, event: events.BoardEvent) -> None:
        if isinstance(event, events.RunStarted | events.RunEnded):
            self._walks.ran(process)
        elif isinstance(event, events.Walked):
            process.walks += event.complete
            process.walked = self.timeline.now
            self._priority.walked(process, self.timeline.now)
            held = len(self.workers.by_name[process.name].worker.holdings)
            now, sent = self.timeline.now, process.requests - process.beside
            # A violation raised in a subscriber of a worker would be caught there.
            self.timeline.at(now, self._walks.walked, process, event, held, sent)
        elif isinstance(
            event, events.LockLost | events.LockAdopted | events.ItemLeftAlone | events.SlotSkipped
        ):
            words = f"{event.kind} {event.id}: {event.message}".rstrip(": ")
            self.trace.add(self.timeline.now, process.name, words)


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
