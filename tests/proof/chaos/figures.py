"""Prints the figures of a run of chaos, and leaves them for `python -m tests.proof --record`."""

import json
from dataclasses import asdict, dataclass

from tests.proof.chaos.storm import Storm
from tests.proof.chaos.troubles import PARTITIONS, Trouble
from tests.proof.chaos.verdict import TAKEN, History, Noted, done, late, overlaps, percent
from tests.proof.figures import leave
from tests.support.wire import Kind

JUMPS = (Trouble.DAY, Trouble.FALL_BACK, Trouble.CATCH_UP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one storm."""

    store: str
    seed: int
    seconds: float
    runs: int
    kills: int
    pauses: int
    clock_jumps: int
    partitions: int
    busy_replies: int
    lost_replies: int
    overrides: int
    overlaps: int
    late_beginnings: int
    """Runs that began after one of a higher fence had."""
    percent_done: float
    """Of what the schedules asked for."""
    problems: int


def figures_of(
    storm: Storm,
    told: list[History],
    notes: list[Noted],
    *,
    store: str,
    seed: int,
    within: tuple[float, float],
    asked: int,
    problems: int,
) -> Figures:
    """`asked`: runs of each item between the two moments `within`."""
    harm = [seat.proxy.happened for seat in storm.seats if seat.proxy is not None]
    happened = storm.happened
    return Figures(
        store=store,
        seed=seed,
        seconds=round(within[1] - within[0], 1),
        runs=len(notes),
        kills=happened[Trouble.KILL],
        pauses=happened[Trouble.STOP],
        clock_jumps=sum(happened[one] for one in JUMPS),
        partitions=sum(happened[one] for one in PARTITIONS),
        busy_replies=sum(one[kind, "Says"] for one in harm for kind in Kind),
        lost_replies=sum(one[kind, "Lost"] for one in harm for kind in Kind),
        overrides=sum(run.outcome in TAKEN for one in told for run in one.runs),
        overlaps=overlaps(notes, killed=storm.killed),
        late_beginnings=late(notes),
        percent_done=round(percent(done(told, notes, within=within), asked=asked), 1),
        problems=problems,
    )


def tell(name: str, figures: object) -> None:
    """Print the figures (a dataclass), and leave them for `--record`."""
    plain = asdict(figures)  # type: ignore[call-overload]
    print(json.dumps(plain, indent=1))  # noqa: T201 - told by pytest when the test fails
    leave(name, plain)
