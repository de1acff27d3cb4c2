"""Bringing a failure down to what it takes: the fewest troubles, workers and items, the shortest
time.

A world is tried again and again with something left out, and what is left out stays out as long as
the same kind of violation comes about. The result is a scenario and a plan that anybody can run;
it need not be the smallest there is, only one from which no single part can be taken.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from blackboard.model import replace
from blackboard.simulator.plan import Plan
from blackboard.simulator.scenario import Scenario
from blackboard.simulator.violation import Violation
from blackboard.simulator.world import World

Part = TypeVar("Part")
INSTANT = 1e-9
"""Hours by which a world goes on after its violation, so that rounding does not end it before."""
MOST_TRIES = 400
"""Worlds that are tried, at the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A world that ends in a violation, and its story."""

    scenario: Scenario
    plan: Plan
    violation: Violation
    moment: float
    """Seconds since the world began."""
    story: tuple[str, ...]
    """Its last lines."""

    @property
    def size(self) -> int:
        """Of what it takes, all in all."""
        fated = len(self.plan.fated or ())
        parts = len(self.plan.happenings) + fated + len(self.scenario.items)
        return parts + self.scenario.workers


def failure_of(scenario: Scenario, plan: Plan | None = None) -> Failure | None:
    """Run a world; how it fails, or None when it does not."""
    world = World(scenario, plan)
    try:
        world.run()
    except Violation as violation:
        return failed(world, violation)
    return None


def failed(world: World, violation: Violation) -> Failure:
    """A world that has ended in a violation. All that was drawn is in the plan."""
    return Failure(
        scenario=world.scenario,
        plan=replace(world.plan, fated=world.fated),
        violation=violation,
        moment=world.timeline.now,
        story=tuple(world.trace.last),
    )


class Shrinker:
    """Tries smaller worlds. `tell` hears of each that still fails."""

    def __init__(self, failure: Failure, *, tell: Callable[[Failure], None] | None = None) -> None:
        self.failure = _ended_there(failure)
        self.tries = 0
        self._tell = tell

    def shrink(self) -> Failure:
        """The smallest that is found."""
        before = -1
        while before != self.failure.size and self.tries < MOST_TRIES:
            before = self.failure.size
            self._leave_out_kinds()
            self._leave_out_items()
            self._leave_out_happenings()
            self._leave_out_fates()
            self._take_fewer_workers()
        return self.failure

    def _fails(self, scenario: Scenario, plan: Plan) -> bool:
        """Whether the same kind of violation comes about; it is the failure from now on."""
        current = self.failure
        if self.tries >= MOST_TRIES or (scenario, plan) == (current.scenario, current.plan):
            return False
        self.tries += 1
        found = failure_of(scenario, plan)
        if found is None or found.violation.kind != self.failure.violation.kind:
            return False
        self.failure = _ended_there(found)
        if self._tell is not None:
            self._tell(self.failure)
        return True

    def _leave_out_kinds(self) -> None:
        for kind in {one.trouble: None for one in self.failure.plan.happenings}:
            others = tuple(one for one in self.failure.plan.happenings if one.trouble is not kind)
            self._fails(self.failure.scenario, replace(self.failure.plan, happenings=others))
        self._fails(self.failure.scenario, replace(self.failure.plan, fated=()))

    def _leave_out_happenings(self) -> None:
        for fewer in self._fewer(lambda: self.failure.plan.happenings):
            self._fails(self.failure.scenario, replace(self.failure.plan, happenings=fewer))

    def _leave_out_fates(self) -> None:
        for fewer in self._fewer(lambda: self.failure.plan.fated or ()):
            self._fails(self.failure.scenario, replace(self.failure.plan, fated=fewer))

    def _leave_out_items(self) -> None:
        for fewer in self._fewer(lambda: tuple(self.failure.scenario.items)):
            if fewer:
                self._fails(replace(self.failure.scenario, items=fewer), self.failure.plan)

    def _take_fewer_workers(self) -> None:
        while (count := self.failure.scenario.workers) > 1:
            fewer = replace(self.failure.scenario, workers=count - 1)
            if not self._fails(fewer, self.failure.plan):
                return

    def _fewer(self, parts: Callable[[], Sequence[Part]]) -> Iterator[tuple[Part, ...]]:
        """Without a half, a quarter, ... a single one of the parts that there are by then."""
        size = max(len(parts()) // 2, 1)
        while parts():
            start = 0
            while start < len(some := tuple(parts())):
                yield some[:start] + some[start + size :]
                if len(parts()) == len(some):
                    start += size
            if size == 1:
                return
            size //= 2


def _ended_there(failure: Failure) -> Failure:
    """Nothing that would come after the violation is part of it."""
    happenings = tuple(one for one in failure.plan.happenings if one.at <= failure.moment)
    hours = min(failure.scenario.hours, failure.moment / 3600.0 + INSTANT)
    return replace(
        failure,
        scenario=replace(failure.scenario, hours=hours),
        plan=replace(failure.plan, happenings=happenings),
    )
