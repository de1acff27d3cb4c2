"""What came of a simulated board: a table for people, a record for programs.

The record has the same keys whatever happened; times are in seconds, shares between 0 and 1:

    scenario     seed, items, workers, slots, shards, cycle, hours, faults, trouble_every
    seconds      simulated and counted below; until the violation, if there is one
    runs         that began, each with a claim or an override
    outcomes     of those that ended
    late         p50, p99, worst: from ready to start, of runs and of what still waits;
                 later_than_a_cycle; waiting: ready in the end, and not claimed
    overrides    stale locks that were taken over
    superseded   runs that came back after that
    overlap      runs that began while another of the same item was going on; seconds; share of
                 the time that handlers worked
    busy         share of all slots, all the time
    requests     batches, pages, total, per_run, a_month
    stored_bytes once the history is as long as it gets
    bill         on Azure, a month: currency, requests, storage, total, price_per_million,
                 storage_price_per_gb
    faults       how often each kind occurred; clock skew is not counted
    fingerprint  of the whole story: the same command has the same
    violation    null, or kind, what, item, at
    story        the last lines that have to do with it
    again        the command that does the same
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from blackboard import cost
from blackboard.cli import terminal
from blackboard.cli.cost import amount
from blackboard.display.layout import Column, Line, Style, shown, table, texts_of
from blackboard.model import Outcome
from blackboard.phrases import plural, span
from blackboard.simulator.invariants import Violation
from blackboard.simulator.network import Fate
from blackboard.simulator.results import Figures
from blackboard.simulator.scenario import Fault, Scenario
from blackboard.simulator.world import World

LONGEST = 40
"""Lines."""
SHARED_ACTORS = {"world", "store"}


def story_of(item_id: str, lines: Sequence[str], *, scenario: Scenario) -> list[str]:
    """The last lines about an item, and about what befell those who touched it. All of the last
    when it is about no item.
    """
    mine = re.compile(rf"(?<![\w-]){re.escape(item_id)}(?![\w-])" if item_id else "")
    actors = {_who(line) for line in lines if mine.search(line)} | SHARED_ACTORS
    ids = {one.id for one in scenario.items}
    told = [
        line
        for line in lines
        if mine.search(line) or (_who(line) in actors and not ids & _words(line))
    ]
    return told[-LONGEST:]


def _who(line: str) -> str:
    return line.split()[1]


def _words(line: str) -> set[str]:
    return set(re.split(r"[ ,:]+", line))


COLUMNS = (
    Column(title="", least=8, usual=20, worth=9),
    Column(title="found", least=6, usual=14, worth=8),
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
"""Troubles of workers or of the store, and the names that a world counts them by."""
FATES = {
    Fault.LOST: (Fate.NEVER, Fate.UNHEARD),
    Fault.LATE: (Fate.LATE,),
    Fault.BUSY: (Fate.BUSY,),
}
"""Troubles that are the fates of single requests."""


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """A world that came to its end, or to a violation."""

    world: World
    violation: Violation | None
    size: int
    """Bytes that the board takes up, once its history is as long as it gets."""
    price: float
    """US dollars for a million requests."""
    again: str
    """The command that does the same."""

    @property
    def figures(self) -> Figures:
        return self.world.figures

    @property
    def scenario(self) -> Scenario:
        return self.world.scenario

    @property
    def runs(self) -> int:
        """That began."""
        return self.figures.claims + self.figures.overrides

    @property
    def busy(self) -> float:
        """The share of all slots, all the time."""
        slots = self.scenario.workers * self.scenario.slots
        return _share(self.figures.worked, slots * self.figures.seconds)

    @property
    def overlap(self) -> float:
        """The share of the time that handlers worked."""
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
        """How often each kind occurred."""
        befell = {one: self.figures.troubles[name] for one, name in COUNTED.items()}
        fates = Counter(one.fate for one in self.world.fated)
        befell |= {one: sum(fates[fate] for fate in some) for one, some in FATES.items()}
        chosen = self.scenario.faults - {Fault.SKEW}
        return {one.value: befell[one] for one in Fault if one in chosen}

    @cached_property
    def story(self) -> Sequence[str]:
        """How it came to the violation."""
        if self.violation is None:
            return ()
        return story_of(self.violation.item, [*self.world.trace.last], scenario=self.scenario)


def _share(some: float, whole: float) -> float:
    return some / whole if whole else 0.0


def lines(found: Simulated) -> Iterator[str]:
    """For people."""
    told, figures = found.scenario, found.figures
    kinds = ", ".join(sorted(told.faults)) if told.faults else "none"
    yield (
        f"{plural(len(told.items), 'item')}, {plural(told.workers, 'worker')} with "
        f"{plural(told.slots, 'slot')}, {plural(told.shards, 'shard')}, cycle "
        f"{span(told.cycle.total_seconds())}; {span(figures.seconds)} simulated, seed {told.seed}"
    )
    yield f"faults: {kinds}"
    yield ""
    yield texts_of(table(COLUMNS, _rows(found), width=terminal.width()), colour=terminal.colour())
    yield ""
    if found.violation is None:
        yield f"violations: none, at {plural(found.world.trace.lines, 'step')}"
    else:
        yield from _violated(found, found.violation)


def _rows(found: Simulated) -> list[Line]:
    figures, requests = found.figures, found.figures.requests
    ends = ", ".join(f"{figures.outcomes[one]:,} {one.value}" for one in ENDS)
    cycle = f"of {span(found.scenario.cycle.total_seconds())}"
    beside = f"{span(figures.overlapped)}, {found.overlap:.2%} of the time that handlers worked"
    taken = f"locks taken from workers that were not heard of; {figures.late:,} came back"
    bill = amount(cost.bill(found.requests_a_month, size=found.size, price=found.price))
    priced = f"a month on Azure, at ${found.price:g} for a million requests"
    rows = [
        ("runs", f"{found.runs:,}", ends),
        ("late, usually", span(figures.lag(0.5)), "half of the runs began sooner"),
        ("late, rarely", span(figures.lag(0.99)), "1 in 100 began later"),
        ("late, at worst", span(figures.lag(1.0)), ""),
        ("later than a cycle", f"{found.later_than_a_cycle:,}", cycle),
        ("still waiting", f"{len(figures.waits):,}", "ready, and the time was up"),
        ("overrides", f"{figures.overrides:,}", taken),
        ("overlaps", f"{figures.overlaps:,}", beside),
        ("slots busy", f"{found.busy:.1%}", "on the mean"),
        ("requests", f"{requests.total:,}", f"{found.requests_per_run:,.1f} a run"),
        ("requests a month", f"{found.requests_a_month:,.0f}", ""),
        ("bill", bill, priced),
    ]
    rows += [(f"fault: {name}", f"{count:,}", "") for name, count in found.faults.items()]
    return [((a, Style.PLAIN), (b, Style.TITLE), (c, Style.QUIET)) for a, b, c in rows]


def _violated(found: Simulated, violation: Violation) -> Iterator[str]:
    yield f"VIOLATION after {span(found.figures.seconds)}: {shown(str(violation))}"
    yield from ("", f"how it came to it, the last {plural(len(found.story), 'line')}:")
    yield from (f"  {shown(line)}" for line in found.story)
    yield from ("", "the same again:", f"  {found.again}")


def view(found: Simulated) -> dict[str, Any]:
    """For programs."""
    figures, told, monthly = found.figures, found.scenario, found.requests_a_month
    violation = found.violation
    return {
        "scenario": {
            "seed": told.seed,
            "items": len(told.items),
            "workers": told.workers,
            "slots": told.slots,
            "shards": told.shards,
            "cycle": told.cycle.total_seconds(),
            "hours": told.hours,
            "faults": sorted(told.faults),
            "trouble_every": told.trouble_every,
        },
        "seconds": figures.seconds,
        "runs": found.runs,
        "outcomes": {one.value: figures.outcomes[one] for one in Outcome},
        "late": {
            "p50": figures.lag(0.5),
            "p99": figures.lag(0.99),
            "worst": figures.lag(1.0),
            "later_than_a_cycle": found.later_than_a_cycle,
            "waiting": len(figures.waits),
        },
        "overrides": figures.overrides,
        "superseded": figures.late,
        "overlap": {
            "runs": figures.overlaps,
            "seconds": figures.overlapped,
            "share": found.overlap,
        },
        "busy": found.busy,
        "requests": {
            "batches": figures.requests.commits,
            "pages": figures.requests.pages,
            "total": figures.requests.total,
            "per_run": found.requests_per_run,
            "a_month": round(monthly),
        },
        "stored_bytes": found.size,
        "bill": {
            "currency": "USD",
            "requests": cost.bill(monthly, size=0, price=found.price),
            "storage": cost.bill(0, size=found.size),
            "total": cost.bill(monthly, size=found.size, price=found.price),
            "price_per_million": found.price,
            "storage_price_per_gb": cost.STORAGE_PRICE,
        },
        "faults": found.faults,
        "fingerprint": found.world.trace.fingerprint,
        "violation": violation
        and {
            "kind": violation.kind,
            "what": violation.what,
            "item": violation.item,
            "at": figures.seconds,
        },
        "story": list(found.story),
        "again": found.again,
    }
