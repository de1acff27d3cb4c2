"""The results of a simulated board: a table for people, a record for programs.

The record always has the same keys; times are in seconds, shares between 0 and 1:

    scenario     seed, items, workers, slots, shards, cycle, hours, faults, trouble_every
    seconds      simulated and counted below; until the violation, if there is one
    runs         runs that began, each with a claim or an override
    outcomes     outcomes of the runs that ended
    late         p50, p99, worst: from ready to start, of runs and of waiting items;
                 later_than_a_cycle; waiting: ready at the end, and not claimed
    overrides    stale locks that were taken over
    superseded   runs that ended after that
    overlap      runs that began during another run of the same item; seconds; share of the
                 running time of handlers
    busy         share of all slots, over the whole time
    requests     batches, pages, total, per_run, a_month
    stored_bytes when the history has its full length
    bill         on Azure, a month: currency, requests, storage, total, price_per_million,
                 storage_price_per_gb
    faults       how often each kind occurred; clock skew is not counted
    fingerprint  of the whole trace: equal for equal commands
    violation    null, or kind, what, item, at
    story        the last lines of the trace that concern it
    again        the command that repeats the simulation
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from blackboard import cost
from blackboard.cli.cost import amount
from blackboard.cli.output import table_text, wrapped
from blackboard.display.escaping import shown
from blackboard.display.layout import Column, Line, Style
from blackboard.model import Outcome
from blackboard.phrases import plural, span
from blackboard.simulator.invariants import Violation
from blackboard.simulator.network import Fate
from blackboard.simulator.results import Figures
from blackboard.simulator.scenario import Fault, Scenario
from blackboard.simulator.world import World

LONGEST = 40
"""The most lines of a story."""
SHARED_ACTORS = {"world", "store"}


def story_of(item_id: str, lines: Sequence[str], *, scenario: Scenario) -> list[str]:
    """The last lines about an item and about the actors that touched it; without an item, all of
    the last lines.
    """
    mine = re.compile(rf"(?<![\w-]){re.escape(item_id)}(?![\w-])" if item_id else "")
    actors = {_who(line) for line in lines if mine.search(line)} | SHARED_ACTORS
    ids = {item.id for item in scenario.items}
    chosen = [
        line
        for line in lines
        if mine.search(line) or (_who(line) in actors and not ids & _words(line))
    ]
    return chosen[-LONGEST:]


def _who(line: str) -> str:
    return line.split()[1]


def _words(line: str) -> set[str]:
    return set(re.split(r"[ ,:]+", line))


COLUMNS = (
    Column(title="", least=8, usual=20, worth=9),
    Column(title="found", least=6, usual=16, worth=8),
    Column(title="that is", least=8, usual=70, worth=1),
)
ENDS = (Outcome.OK, Outcome.FAILED, Outcome.TIMEOUT, Outcome.CANCELLED, Outcome.ABANDONED)
COUNTED = {
    Fault.KILL: "killed",
    Fault.PAUSE: "paused",
    Fault.JUMP: "jumped",
    Fault.PARTITION: "partitions",
    Fault.OUTAGE: "outages",
    Fault.SHARD: "sick partitions",
    Fault.CLOCK: "store jumped",
    Fault.REDEPLOY: "redeployed",
    Fault.VERSIONS: "taken over",
    Fault.EDIT: "asked",
}
"""Faults of workers or of the store, and the names that a world counts them by."""
FATES = {
    Fault.LOST: (Fate.NEVER, Fate.REPLY_LOST),
    Fault.LATE: (Fate.LATE,),
    Fault.TWICE: (Fate.TWICE,),
    Fault.BUSY: (Fate.BUSY,),
}
"""Faults that are the fates of single requests."""


@dataclass(frozen=True, kw_only=True)
class Simulated:
    world: World
    violation: Violation | None
    size: int
    """Bytes of the board when its history has its full length."""
    price: float
    """US dollars for a million requests."""
    again: str

    @property
    def figures(self) -> Figures:
        return self.world.figures

    @property
    def scenario(self) -> Scenario:
        return self.world.scenario

    @property
    def runs(self) -> int:
        return self.figures.claims + self.figures.overrides

    @property
    def busy(self) -> float:
        """The share of all slots that was used, over the whole time."""
        slots = self.scenario.workers * self.scenario.slots
        return _share(self.figures.worked, slots * self.figures.seconds)

    @property
    def overlap(self) -> float:
        """The share of the running time of handlers."""
        return _share(self.figures.overlapped, self.figures.worked)

    @property
    def requests_per_run(self) -> float:
        return _share(self.figures.requests.total, self.runs)

    @property
    def requests_a_month(self) -> float:
        figures = self.figures
        return _share(figures.requests.total * cost.MONTH.total_seconds(), figures.seconds)

    @cached_property
    def later_than_a_cycle(self) -> int:
        return self.figures.later_than(self.scenario.cycle.total_seconds())

    @cached_property
    def faults(self) -> Mapping[str, int]:
        counts = {trouble: self.figures.troubles[name] for trouble, name in COUNTED.items()}
        fates = Counter(message.fate for message in self.world.fated)
        counts |= {trouble: sum(fates[fate] for fate in kinds) for trouble, kinds in FATES.items()}
        chosen = self.scenario.faults - {Fault.SKEW}
        return {fault.value: counts[fault] for fault in Fault if fault in chosen}

    @cached_property
    def story(self) -> Sequence[str]:
        if self.violation is None:
            return ()
        return story_of(self.violation.item, [*self.world.trace.last], scenario=self.scenario)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def lines(simulated: Simulated) -> Iterator[str]:
    scenario, figures = simulated.scenario, simulated.figures
    kinds = ", ".join(sorted(scenario.faults)) if scenario.faults else "none"
    yield wrapped(
        f"{plural(len(scenario.items), 'item')}, {plural(scenario.workers, 'worker')} with "
        f"{plural(scenario.slots, 'slot')}, {plural(scenario.shards, 'shard')}, cycle "
        f"{span(scenario.cycle.total_seconds())}; {span(figures.seconds)} simulated, "
        f"seed {scenario.seed}"
    )
    yield wrapped(f"faults: {kinds}", margin="  ")
    yield ""
    yield table_text(COLUMNS, _rows(simulated), fold=True)
    yield ""
    if simulated.violation is None:
        yield f"violations: none, at {plural(simulated.world.trace.lines, 'step')}"
    else:
        yield from _violated(simulated, simulated.violation)


def _rows(simulated: Simulated) -> list[Line]:
    figures, requests = simulated.figures, simulated.figures.requests
    ends = ", ".join(f"{figures.outcomes[outcome]:,} {outcome.value}" for outcome in ENDS)
    cycle = f"of {span(simulated.scenario.cycle.total_seconds())}"
    beside = f"{span(figures.overlapped)}, {simulated.overlap:.2%} of the running time of handlers"
    taken = f"stale locks that were taken over; {figures.late:,} of their runs ended later"
    bill = amount(cost.bill(simulated.requests_a_month, size=simulated.size, price=simulated.price))
    priced = f"a month on Azure, at ${simulated.price:g} for a million requests"
    rows = [
        ("runs", f"{simulated.runs:,}", ends),
        ("late, usually", span(figures.lag(0.5)), "half of the runs began sooner"),
        ("late, rarely", span(figures.lag(0.99)), "1 in 100 began later"),
        ("late, at worst", span(figures.lag(1.0)), ""),
        ("later than a cycle", f"{simulated.later_than_a_cycle:,}", cycle),
        ("still waiting", f"{len(figures.waits):,}", "ready at the end, and not started"),
        ("overrides", f"{figures.overrides:,}", taken),
        ("overlaps", f"{figures.overlaps:,}", beside),
        ("slots busy", f"{simulated.busy:.1%}", "on the mean"),
        ("requests", f"{requests.total:,}", f"{simulated.requests_per_run:,.1f} a run"),
        ("requests a month", f"{simulated.requests_a_month:,.0f}", ""),
        ("bill", bill, priced),
    ]
    rows += [(f"fault: {name}", f"{count:,}", "") for name, count in simulated.faults.items()]
    return [
        ((name, Style.PLAIN), (value, Style.TITLE), (meaning, Style.QUIET))
        for name, value, meaning in rows
    ]


def _violated(simulated: Simulated, violation: Violation) -> Iterator[str]:
    words = f"VIOLATION after {span(simulated.figures.seconds)}: {shown(str(violation))}"
    yield wrapped(words, margin="  ")
    yield from ("", f"before it, the last {plural(len(simulated.story), 'line')} that concern it:")
    yield from (wrapped(shown(line), first="  ", margin="    ") for line in simulated.story)
    yield from ("", "to repeat it:", f"  {simulated.again}")


def view(simulated: Simulated) -> dict[str, Any]:
    figures, scenario, monthly = simulated.figures, simulated.scenario, simulated.requests_a_month
    violation = simulated.violation
    return {
        "scenario": {
            "seed": scenario.seed,
            "items": len(scenario.items),
            "workers": scenario.workers,
            "slots": scenario.slots,
            "shards": scenario.shards,
            "cycle": scenario.cycle.total_seconds(),
            "hours": scenario.hours,
            "faults": sorted(scenario.faults),
            "trouble_every": scenario.trouble_every,
        },
        "seconds": figures.seconds,
        "runs": simulated.runs,
        "outcomes": {outcome.value: figures.outcomes[outcome] for outcome in Outcome},
        "late": {
            "p50": figures.lag(0.5),
            "p99": figures.lag(0.99),
            "worst": figures.lag(1.0),
            "later_than_a_cycle": simulated.later_than_a_cycle,
            "waiting": len(figures.waits),
        },
        "overrides": figures.overrides,
        "superseded": figures.late,
        "overlap": {
            "runs": figures.overlaps,
            "seconds": figures.overlapped,
            "share": simulated.overlap,
        },
        "busy": simulated.busy,
        "requests": {
            "batches": figures.requests.commits,
            "pages": figures.requests.pages,
            "total": figures.requests.total,
            "per_run": simulated.requests_per_run,
            "a_month": round(monthly),
        },
        "stored_bytes": simulated.size,
        "bill": cost.bill_record(monthly, size=simulated.size, price=simulated.price),
        "faults": simulated.faults,
        "fingerprint": simulated.world.trace.fingerprint,
        "violation": violation
        and {
            "kind": violation.kind,
            "what": violation.problem,
            "item": violation.item,
            "at": figures.seconds,
        },
        "story": list(simulated.story),
        "again": simulated.again,
    }
