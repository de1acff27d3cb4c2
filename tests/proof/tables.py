"""Figures in words and tables of Markdown: functions for the parts of the proof."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from blackboard.phrases import plural
from blackboard.simulator.network import Fate

Figures = dict[str, Any]
"""Figures as decoded from JSON."""


def table(head: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """A table in Markdown; numbers have thousands separators."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)


# ---- the simulator


WENT_WRONG = {
    "asked": "people asked for something",
    "jumped": "a clock was set",
    "killed": "a worker was killed",
    "outages": "the store was away",
    "partitions": "a worker was cut off from the store",
    "sick partitions": "one partition was away, busy, slow or lost replies",
    "sick buses": "a bus was away, answered late or lost messages",
    "store jumped": "the store's clock was set",
    "paused": "a worker stood still",
    "redeployed": "a worker was replaced",
    "taken over": "an item was taken over by a newer version",
    "faults": "requests that came to harm, in any way",
    Fate.BUSY: "the store had no time for a request",
    Fate.NEVER: "a request was lost",
    Fate.REPLY_LOST: "a reply was lost",
    Fate.LATE: "a batch landed after its sender had given up",
    Fate.TWICE: "a batch was sent once more by something on the way",
}
"""The counters of the simulator for faults of workers and of single requests, in words."""


def worlds(figures: Figures) -> str:
    return table(
        ("", "figure"),
        [
            ("worlds", figures["worlds"]),
            ("seeds", f"0 to {figures['worlds'] - 1}"),
            ("worker-hours", round(figures["worker_hours"])),
            ("violations", len(figures["violations"])),
            ("claims", figures["claims"]),
            ("overrides", figures["overrides"]),
            ("renewals", figures["renewals"]),
            ("late finishers", figures["late"]),
            *((f"runs: {name}", times) for name, times in sorted(figures["outcomes"].items())),
        ],
    )


def went_wrong(figures: Figures) -> str:
    counted = figures["troubles"] | figures["fates"]
    known = [name for name in WENT_WRONG if name in counted]
    others = sorted(counted.keys() - WENT_WRONG.keys())
    return table(
        ("what went wrong", "times"),
        ((WENT_WRONG.get(name, name), counted[name]) for name in [*known, *others]),
    )


def calm(figures: Figures) -> str:
    return (
        f"Without faults, {round(figures['worker_hours']):,} worker-hours had "
        f"{len(figures['violations'])} violations, {figures['overrides']} overrides and "
        f"{figures['overlaps']} overlaps."
    )


def overlap(worlds: Figures, calm: Figures) -> str:
    head = ("", "worker-hours", "handlers that ran", "that overlapped", "share", "share of seconds")
    return table(
        head,
        (
            (
                name,
                round(figures["worker_hours"]),
                figures["handled"],
                figures["overlaps"],
                share(figures["overlaps"], figures["handled"]),
                share(figures["overlapped"], figures["worked"]),
            )
            for name, figures in (("with all faults", worlds), ("without faults", calm))
        ),
    )


def share(part: float, whole: float) -> str:
    """A share in percent; 0 only if it is exactly 0."""
    return f"{100 * part / whole:.2g} %" if part else "0"


def planted_in_short(figures: Figures) -> str:
    bugs = figures["bugs"]
    found = [bug for bug in bugs if None not in bug["worker_hours"]]
    hours = [one for bug in bugs for one in bug["worker_hours"] if one is not None]
    return (
        f"{len(found)} of {len(bugs)} were found, each looked for "
        f"{plural(len(bugs[0]['worker_hours']), 'time')}; half of them within "
        f"{median(hours):.2g} worker-hours, the last after {max(hours):.3g}."
    )


def planted(figures: Figures) -> str:
    return table(
        ("bug", "planted", "worker-hours", "found as"),
        (
            (
                bug["bug"],
                bug["without"],
                f"{median(one for one in bug['worker_hours'] if one is not None):.2g}",
                ", ".join(sorted({kind for kind in bug["kinds"] if kind})),
            )
            for bug in figures["bugs"]
        ),
    )


# ---- the others


def searches(kept: Sequence[Figures]) -> str:
    head = ("bounds", "worlds", "steps", "steps to the farthest")
    total = ("all", *(sum(one[name] for one in kept) for name in ("worlds", "steps")))
    rows = [(one["bounds"], one["worlds"], one["steps"], one["depth"]) for one in kept]
    return table(head, [*rows, (*total, "")])


def conditions(left_out: Sequence[Figures]) -> str:
    return table(
        ("condition", "what breaks without it", "steps of the shortest story"),
        (
            (
                name,
                ", ".join(
                    dict.fromkeys(one["breaks"] for one in left_out if one["condition"] == name)
                ),
                min(one["steps"] for one in left_out if one["condition"] == name),
            )
            for name in dict.fromkeys(one["condition"] for one in left_out)
        ),
    )


def histories(stores: Mapping[str, Mapping[str, int]]) -> str:
    head = ("store", "histories", "operations", "without an answer", "at once with another")
    names = ("histories", "operations", "unanswered", "at_once")
    return table(
        head,
        ((store, *(counted[name] for name in names)) for store, counted in stores.items()),
    )


def damaged(figures: Figures) -> str:
    return (
        f"Of histories that were damaged on purpose, in {figures['ways']} ways, {figures['found']} "
        f"of {figures['planted']} were found out."
    )


STORM = (
    ("store", "store"),
    ("seconds", "seconds"),
    ("runs", "runs"),
    ("kills", "killed"),
    ("pauses", "stood still"),
    ("clock_jumps", "clocks set"),
    ("partitions", "cut off"),
    ("busy_replies", "503"),
    ("lost_replies", "lost replies"),
    ("overrides", "overrides"),
    ("overlaps", "overlaps"),
    ("percent_done", "% done"),
    ("problems", "problems"),
)
STARVED = (
    ("store", "store"),
    ("seconds", "seconds"),
    ("hogs", "processes beside them"),
    ("renewals", "renewals"),
    ("renew_every", "due every, s"),
    ("longest_between", "longest between two, s"),
    ("lost_locks", "locks lost"),
)


def chosen(columns: Sequence[tuple[str, str]], figures: Iterable[Figures]) -> str:
    """A table with a row for each of the figures, and their columns under titles."""
    head = [title for _, title in columns]
    return table(head, (tuple(one[name] for name, _ in columns) for one in figures))


def tests(*, passed: int, skipped: int) -> str:
    but = f"; {skipped} could not be run there, or are known to fail" if skipped else ""
    others = "full and failing disks, stores that go away, handlers that cannot be stopped"
    return f"With the other tests of chaos ({others}), {plural(passed, 'test')} passed{but}."


def mutants(figures: Figures) -> str:
    share = f"{figures['percent']:.2f} %, by {figures['tool']}"
    return f"{figures['killed']:,} of {figures['mutants']:,} were killed: {share}."
