"""A world: everything that happens on one board, from one seed, in one thread.

First comes the time in which things go wrong. Then all troubles stop, whoever is away comes back,
and the world goes on until everything that was left behind must have been made good: what is then
still waiting, held or lost is a violation.
"""

from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from blackboard.events import Event, Kind
from blackboard.model import Item
from blackboard.protocol.edits import add
from blackboard.protocol.reading import BoardTable
from blackboard.settings import resolver
from blackboard.simulator.chance import stream
from blackboard.simulator.changes import Change, Shadows
from blackboard.simulator.crew import BOARD, RATE, Crew, Member
from blackboard.simulator.desk import Desk
from blackboard.simulator.figures import Figures
from blackboard.simulator.handlers import Handling, Nature, Stage
from blackboard.simulator.host import Process
from blackboard.simulator.mishaps import Mishaps
from blackboard.simulator.network import Network, Request
from blackboard.simulator.oracles.history import History
from blackboard.simulator.oracles.limits import Etags, Refusals, Walks
from blackboard.simulator.oracles.locks import Locks
from blackboard.simulator.oracles.people import People
from blackboard.simulator.oracles.plans import Plans
from blackboard.simulator.oracles.priority import Priority
from blackboard.simulator.oracles.quiet import Quiet
from blackboard.simulator.oracles.runs import Runs
from blackboard.simulator.oracles.slots import Slots
from blackboard.simulator.oracles.transitions import Transitions
from blackboard.simulator.oracles.whole import check_whole
from blackboard.simulator.plan import Plan, draw_plan
from blackboard.simulator.scenario import Scenario, Trouble
from blackboard.simulator.store import Sender, Store, StoreClock, Written
from blackboard.simulator.telling import told
from blackboard.simulator.timeline import Timeline
from blackboard.simulator.trace import Trace
from blackboard.simulator.versions import Versions
from blackboard.simulator.weather import DrawnWeather, Fated, PlannedWeather
from blackboard.simulator.wire import Wire
from blackboard.spec import RunSettings
from blackboard.table import Op, TableError


class World:
    """One world. `run` is called once."""

    def __init__(
        self,
        scenario: Scenario,
        plan: Plan | None = None,
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
        fated = self.plan.fated
        self.drawn = DrawnWeather(stream(scenario.seed, "weather"), scenario.weather)
        self.network = Network(
            timeline=self.timeline,
            chance=stream(scenario.seed, "network"),
            weather=self.drawn if fated is None else PlannedWeather(fated),
            spring=lambda *about: self.mishaps.spring(*about),  # noqa: PLW0108 - it is made below
            tell=self._went_wrong,
            refused=self._was_refused,
        )
        takes = {one.id: one.takes for one in scenario.items}
        self.stage = Stage(
            timeline=self.timeline,
            seed=scenario.seed,
            nature=Nature(takes=takes.__getitem__, failing=scenario.failing),
        )
        handlers = scenario.types.handlers
        resolve = resolver(scenario.types.settings, handlers)
        self.store = Store(timeline=self.timeline, clock=_store_clock(scenario, self.timeline))
        self.crew = Crew(
            scenario=scenario,
            timeline=self.timeline,
            network=self.network,
            store=self.store,
            stage=self.stage,
            handlers=handlers,
            resolve=resolve,
            hears=self._hears,
            ended=lambda *about: self.mishaps.ended(*about),  # noqa: PLW0108
        )
        self._desk = desk = self.crew.process("desk")
        self._wire = Wire(self.network, self.store, desk, Sender(name="desk", verb="ask"))
        self.board = BoardTable(
            self._wire,
            name=BOARD,
            shards=scenario.shards,
            clock=desk.clock,
            chance=desk.chance,
            resolve=resolve,
        )
        self.desk = Desk(self.board, self._wire, desk, scenario.items)

        def settings_of(item: Item) -> RunSettings:
            return resolve(item.type, item.spec)

        self._runs = Runs(self.timeline, self.crew, settings_of)
        self.stage.begins = partial(self._soon, self._runs.begins)
        self.stage.ends = partial(self._soon, self._runs.ends)
        self._priority = Priority(self.shadows, self.crew, self.board.partition)
        self.quiet = Quiet(self.scenario, self.timeline, self.shadows, self.crew, self.stage)
        self._oracles: list[Callable[[Change], None]] = [
            People(),
            check_whole,
            Locks(),
            History(lambda item: resolve(item.type, item.spec).fenced),
            Slots(lambda item: resolve(item.type, item.spec).schedule),
            Transitions(settings_of),
            Plans(settings_of),
            self._runs,
            self._priority,
            self.quiet.changed,
            self.figures.changed,
        ]
        self.store.watchers = [Etags(), Versions(), refusals.written, self._written]
        self.mishaps = Mishaps(
            timeline=self.timeline,
            trace=self.trace,
            figures=self.figures,
            network=self.network,
            crew=self.crew,
            desk=self.desk,
            shadows=self.shadows,
        )
        self.last_members: list[Member] = []
        """Those who were there in the end."""

    @property
    def fated(self) -> tuple[Fated, ...]:
        """The requests that met with a fate so far, or were to by the plan."""
        return tuple(self.drawn.drawn) if self.plan.fated is None else self.plan.fated

    def watch(self, look: Callable[[Change], None]) -> None:
        """Somebody else looks at every change, too."""
        self._oracles.append(look)

    # ---- the whole of it

    def run(self) -> Figures:
        """Raises Violation as soon as anything is wrong."""
        try:
            self._happen()
        finally:
            self.last_members = self.crew.members
            for member in self.last_members:
                self.crew.kill(member)
            self._desk.loop.kill()
        return self.figures

    def _happen(self) -> None:
        self._add_items()
        starts = stream(self.scenario.seed, "starts")
        for seat in range(self.scenario.workers):
            late = starts.fraction() * self.scenario.cycle.total_seconds()
            self.timeline.at(late, self.mishaps.hire, seat)
        for one in self.plan.happenings:
            self.timeline.at(one.at, self.mishaps.happens, one)
        troubled = bool(self.scenario.faults)
        self._go_on(self.scenario.hours * 3600.0, calm=not troubled)
        self.figures.measure(self.crew, self.stage, self.timeline.now)
        if troubled:
            self.mishaps.stop()
            self._go_on(self.timeline.now + self.quiet.longest(), calm=False)
            self._go_on(self.timeline.now + self.quiet.enough, calm=True)

    def _go_on(self, until: float, *, calm: bool) -> None:
        """To a moment. Now and then somebody looks for what nobody wrote, and while it is calm for
        what nobody sees to.
        """
        step = self.quiet.bound if calm else self.scenario.cycle.total_seconds()
        while self.timeline.now < until:
            self.timeline.run(min(self.timeline.now + step, until))
            self.quiet.check()
            self._runs.check([one for some in self.stage.handled.values() for one in some])
            if calm:
                self.quiet.check_left()

    def _add_items(self) -> None:
        """The board and its items are there when the world begins."""
        board = self.board.asked_through(self._wire.at_once())
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

    # ---- what is seen

    def _written(self, written: Written) -> None:
        for change in self.shadows.changes(written):
            self.trace.add(written.moment, written.sender.name, told(change))
            for check in self._oracles:
                check(change)

    def _soon(self, judge: Callable[[Handling], None], handling: Handling) -> None:
        """Not at once: a violation is not for the worker to catch."""
        self.timeline.at(self.timeline.now, judge, handling)

    def _went_wrong(self, request: Request, what: str) -> None:
        process = request.process
        self.figures.count("faults")
        self._priority.troubled(process, request.ops)
        self._refusals.troubled(process)
        self.trace.add(self.timeline.now, process.name, what)

    def _was_refused(
        self, process: Process, sender: str, ops: Sequence[Op], problem: TableError
    ) -> None:
        self._refusals.refused(process, sender, ops, problem)
        self._priority.troubled(process, ops)

    def _hears(self, process: Process, event: Event) -> None:
        if event.kind in {Kind.CLAIMED, Kind.ENDED}:
            self._walks.ran(process)
        elif event.kind is Kind.WALKED:
            process.walks += event.record.complete
            self._priority.walked(process, self.timeline.now)
            held = len(self.crew.by_name[process.name].worker.holdings)
            # Not here: nobody who listens to a worker can stop it.
            self.timeline.at(
                self.timeline.now, self._walks.walked, process, event.record, held, process.requests
            )
        elif event.kind in _TOLD:
            what = f"{event.kind.value} {event.item}: {event.message}".rstrip(": ")
            self.trace.add(self.timeline.now, process.name, what)


_TOLD = {Kind.LOST, Kind.ADOPTED, Kind.LEFT, Kind.SKIPPED}


def _store_clock(scenario: Scenario, timeline: Timeline) -> StoreClock:
    if Trouble.CLOCK not in scenario.faults:
        return StoreClock(timeline)
    fraction = stream(scenario.seed, "store clock").fraction()
    return StoreClock(timeline, 1.0 + RATE * (2 * fraction - 1))


def _at_once(work: Coroutine[Any, Any, object]) -> None:
    """Runs what never waits."""
    with suppress(StopIteration):
        work.send(None)
        raise AssertionError("it waits")
