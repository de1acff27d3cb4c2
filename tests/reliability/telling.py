"""Figures in words and tables of Markdown, one function for each part of the proof."""

from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from blackboard.phrases import plural, span
from blackboard.simulator.weather import Fate
from tests.model.conditions import Conditions
from tests.reliability.measured import Figures, Measured
from tests.reliability.promises import PROMISES


def table(head: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Numbers have commas."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def source(measured: Measured) -> str:
    """Where figures come from."""
    origin = measured.origin
    commit = f"`{origin.commit}`" + (" with changes" if origin.changed else "")
    form = ", the long form" if measured.nightly else ""
    took = f"{span(measured.seconds)} of processor time"
    return f"*{origin.date}, version {origin.version}, commit {commit}{form}; {took}.*"


def promises() -> str:
    head = ("promise", "simulator", "model", "histories", "chaos")
    return table(
        head,
        (
            (
                one.says,
                ", ".join(one.simulator) or "-",
                ", ".join(invariant.partition(":")[0] for invariant in one.model) or "-",
                one.histories or "-",
                ", ".join(f"`{test}`" for test in one.chaos),
            )
            for one in PROMISES
        ),
    )


# ---- the simulator


WENT_WRONG = {
    "asked": "people asked for something",
    "jumped": "a clock was set",
    "killed": "a worker was killed",
    "outages": "the store was away",
    "partitions": "a worker was cut off from the store",
    "sick partitions": "one partition was away, busy, slow or lost replies",
    "store jumped": "the store's clock was set",
    "paused": "a worker stood still",
    "redeployed": "a worker was replaced",
    "faults": "requests that came to harm, in any way",
    Fate.BUSY: "the store had no time for a request",
    Fate.NEVER: "a request was lost",
    Fate.UNHEARD: "a reply was lost",
    Fate.LATE: "a batch landed after its sender had given up",
}
"""As the simulator counts what befalls workers, and single requests."""


def worlds(figures: Figures) -> str:
    return table(
        ("", "figure"),
        [
            ("worlds", figures["worlds"]),
            ("seeds", f"{figures['first_seed']} to {figures['last_seed']}"),
            ("worker-hours", round(figures["worker_hours"])),
            *_before(figures),
            ("violations", len(figures["violations"])),
            ("claims", figures["claims"]),
            ("overrides", figures["overrides"]),
            ("renewals", figures["renewals"]),
            ("late finishers", figures["late"]),
            *((f"runs: {name}", times) for name, times in sorted(figures["outcomes"].items())),
        ],
    )


def _before(figures: Figures) -> Iterator[tuple[str, str]]:
    """The worker-hours that were of earlier commits."""
    for one in figures.get("before", ()):
        commit = f"`{one['commit']}`" + (" with changes" if one["changed"] else "")
        yield "of them earlier", f"{one['worker_hours']:,.0f} of commit {commit}"


def went_wrong(figures: Figures) -> str:
    counted = figures["troubles"] | figures["fates"]
    known = [name for name in WENT_WRONG if name in counted]
    others = sorted(counted.keys() - WENT_WRONG.keys())
    return table(
        ("what went wrong", "times"),
        ((WENT_WRONG.get(name, name), counted[name]) for name in [*known, *others]),
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
    """In percent; nothing is 0, and little is not."""
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
        ("bug", "planted", "worker-hours", "told as"),
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


def searches(figures: Figures) -> str:
    head = ("bounds", "worlds", "steps", "steps to the farthest")
    total = ("all", *(sum(one[name] for one in figures["kept"]) for name in ("worlds", "steps")))
    rows = [(one["bounds"], one["worlds"], one["steps"], one["depth"]) for one in figures["kept"]]
    return table(head, [*rows, (*total, "")])


def conditions(figures: Figures) -> str:
    left_out = figures["left_out"]
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


def histories(figures: Figures) -> str:
    head = ("store", "histories", "operations", "without an answer", "at once with another")
    names = ("histories", "operations", "unanswered", "at_once")
    return table(
        head,
        (
            (store, *(counted.get(name, 0) for name in names))
            for store, counted in figures["stores"].items()
        ),
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
    """A row for each, with the columns under their titles."""
    head = [title for _, title in columns]
    return table(head, (tuple(one[name] for name, _ in columns) for one in figures))


def tests(figures: Figures) -> str:
    """How many passed, and how many did not because nobody expected it."""
    skipped = figures["skipped"]
    but = f"; {skipped} could not be run there, or are known to fail" if skipped else ""
    return f"{plural(figures['tests'], 'test')} passed{but}."


def mutants(figures: Figures) -> str:
    return (
        f"{figures['killed']:,} of {figures['mutants']:,} were killed: "
        f"{figures['percent']:.2f} %, by {figures['tool']}. Each of the "
        f"{plural(figures['survivors'], 'survivor')} has its reason in "
        "`tests/mutants/survivors.toml`."
    )


CONDITIONS = len(Conditions._fields)
