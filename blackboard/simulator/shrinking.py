"""Shrinking: a failure is reduced to the fewest faults, workers and items, and the shortest time.

Parts are left out one after the other, as long as the same kind of violation follows. The result is
a scenario and a plan that can be run again. It need not be the smallest failure, but no single part
of it can be left out.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from blackboard.model import replace
from blackboard.simulator.invariants import Violation
from blackboard.simulator.scenario import FaultPlan, Scenario
from blackboard.simulator.world import World

Part = TypeVar("Part")
INSTANT = 1e-9
"""Hours that are added after the violation, because of rounding."""
MOST_TRIES = 400
"""The most worlds to try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A world that ends in a violation, and its trace."""

    scenario: Scenario
    plan: FaultPlan
    violation: Violation
    moment: float
    """Seconds since the world began."""
    story: tuple[str, ...]
    """The last lines of the trace."""

    @property
    def size(self) -> int:
        fated = len(self.plan.fated or ())
        parts = len(self.plan.injections) + fated + len(self.scenario.items)
        return parts + len(self.scenario.shared) + self.scenario.workers


def failure_of(scenario: Scenario, plan: FaultPlan | None = None) -> Failure | None:
    world = World(scenario, plan)
    try:
        world.run()
    except Violation as violation:
        return failed(world, violation)
    return None


def failed(world: World, violation: Violation) -> Failure:
    """The failure of a world that has ended in a violation, with all drawn fates in its plan."""
    return Failure(
        scenario=world.scenario,
        plan=replace(world.plan, fated=world.fated),
        violation=violation,
        moment=world.timeline.now,
        story=tuple(world.trace.last),
    )


class Shrinker:
    """Tries smaller worlds. `report` is called with each that still fails."""

    def __init__(self, failure: Failure, *, report: Callable[[Failure], None]) -> None:
        self.failure = _ended_there(failure)
        self.tries = 0
        self._report = report

    def shrink(self) -> Failure:
        """Returns the smallest failure that is found."""
        before = -1
        while before != self.failure.size and self.tries < MOST_TRIES:
            before = self.failure.size
            self._leave_out_kinds()
            self._leave_out_parts()
            self._take_fewer_workers()
        return self.failure

    def _fails(self, scenario: Scenario, plan: FaultPlan) -> bool:
        """Whether the same kind of violation follows; if so, this is the failure from now on."""
        current = self.failure
        if self.tries >= MOST_TRIES or (scenario, plan) == (current.scenario, current.plan):
            return False
        self.tries += 1
        failure = failure_of(scenario, plan)
        if failure is None or failure.violation.kind != self.failure.violation.kind:
            return False
        self.failure = _ended_there(failure)
        self._report(self.failure)
        return True

    def _leave_out_kinds(self) -> None:
        for kind in {injection.fault: None for injection in self.failure.plan.injections}:
            injections = self.failure.plan.injections
            others = tuple(injection for injection in injections if injection.fault is not kind)
            self._fails(self.failure.scenario, replace(self.failure.plan, injections=others))
        self._fails(self.failure.scenario, replace(self.failure.plan, fated=()))

    def _leave_out_parts(self) -> None:
        for items in self._fewer(lambda: tuple(self.failure.scenario.items)):
            if items:
                self._fails(replace(self.failure.scenario, items=items), self.failure.plan)
        # After the items: without a group, an edit in the plan may concern another group.
        for shared in self._fewer(lambda: tuple(self.failure.scenario.shared)):
            self._fails(replace(self.failure.scenario, shared=shared), self.failure.plan)
        for injections in self._fewer(lambda: self.failure.plan.injections):
            self._fails(self.failure.scenario, replace(self.failure.plan, injections=injections))
        for fated in self._fewer(lambda: self.failure.plan.fated or ()):
            self._fails(self.failure.scenario, replace(self.failure.plan, fated=fated))

    def _take_fewer_workers(self) -> None:
        while (count := self.failure.scenario.workers) > 1:
            fewer = replace(self.failure.scenario, workers=count - 1)
            if not self._fails(fewer, self.failure.plan):
                return

    def _fewer(self, parts: Callable[[], Sequence[Part]]) -> Iterator[tuple[Part, ...]]:
        """Yields the parts without a half, a quarter, ... a single one of them."""
        size = max(len(parts()) // 2, 1)
        while parts():
            start = 0
            while start < len(whole := tuple(parts())):
                yield whole[:start] + whole[start + size :]
                if len(parts()) == len(whole):
                    start += size
            if size == 1:
                return
            size //= 2


def _ended_there(failure: Failure) -> Failure:
    """The failure, without faults and hours after the violation."""
    injections = tuple(
        injection for injection in failure.plan.injections if injection.at <= failure.moment
    )
    hours = min(failure.scenario.hours, failure.moment / 3600.0 + INSTANT)
    return replace(
        failure,
        scenario=replace(failure.scenario, hours=hours),
        plan=replace(failure.plan, injections=injections),
    )
