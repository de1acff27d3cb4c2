"""The conditions that must hold after a storm, and how much was done in it.

Three witnesses: the items, their histories, and what the handlers themselves have written down.
That two handlers of an item overlap is not forbidden (a worker that stood still wakes too late);
it is counted.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from blackboard.model import Item, Outcome, Run
from blackboard.protocol.board_table import BoardTable
from blackboard.rules.due import may_take_over
from blackboard.rules.next_run import is_ahead
from blackboard.worker.running import NO_SLOT
from tests.support.processes import Site, whole_lines

TAKEN = {Outcome.ABANDONED, Outcome.SUPERSEDED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """A run, as its handler has written it down. Moments are monotonic seconds."""

    id: str
    fence: int
    worker: str
    began: float
    ended: float | None
    """None: it was cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """An item and its runs, the oldest first."""

    item: Item
    runs: list[Run]


def histories(site: Site) -> list[History]:
    async def found(board: BoardTable) -> list[History]:
        return [
            History(item=item, runs=[run async for run in board.runs(item.id)][::-1])
            async for item in board.items()
        ]

    return site.run(found)


def noted(log: Path) -> list[Noted]:
    """All runs that were written down, in the order of their beginning."""
    lines = [json.loads(line) for line in whole_lines(log)]
    ends = {(one["id"], one["fence"]): one["at"] for one in lines if one["what"] == "ended"}
    return [
        Noted(
            id=one["id"],
            fence=one["fence"],
            worker=one["worker"],
            began=one["at"],
            ended=ends.get((one["id"], one["fence"])),
        )
        for one in lines
        if one["what"] == "began"
    ]


def problems(histories: Iterable[History], notes: Sequence[Noted]) -> list[str]:
    """What must not be."""
    found = [
        f"{item_id}: fence {fence} began {count} times"
        for (item_id, fence), count in Counter((one.id, one.fence) for one in notes).items()
        if count > 1
    ]
    rows: dict[tuple[str, int], Run] = {}
    for one in histories:
        rows |= {(run.id, run.fence): run for run in one.runs}
        found += [f"{one.item.id}: {problem}" for problem in _problems(one.item, one.runs)]
    for note in notes:
        row = rows.get((note.id, note.fence))
        if row is None:
            found.append(f"{note.id}: fence {note.fence} ran and is not in the history")
        elif row.worker != note.worker:
            found.append(f"{note.id}: {note.worker} ran fence {note.fence} of {row.worker}")
        elif row.error == NO_SLOT:
            found.append(f"{note.id}: fence {note.fence} ran and is said to have had no slot")
    return found


def _problems(item: Item, runs: list[Run]) -> list[str]:
    fences = {run.fence for run in runs} | {run.fence + 1 for run in runs if was_freed(run)}
    found = [f"no fence {one}" for one in range(1, item.fence + 1) if one not in fences]
    if len(runs) > len({run.fence for run in runs}) or runs[-1].fence > item.fence:
        found.append(f"fences {[run.fence for run in runs]} of {item.fence}")
    if item.running:
        found.append(f"{item.owner} still has it")
    if len({run.nonce for run in runs}) < len(runs):
        found.append("two runs under one claim")
    found += [f"2 effective runs for {slot}" for slot in _slots_run_again(runs)]
    fair = {Outcome.OK, *TAKEN}
    odd = [run for run in runs if run.outcome not in fair and not _was_late(run)]
    return found + [f"fence {run.fence} {run.outcome.value}: {run.error}" for run in odd]


def _slots_run_again(runs: Iterable[Run]) -> Iterator[datetime]:
    """The slots of a second effective run. After one that began by a clock that was ahead of the
    clock of a later run, the slots are planned from now on again: so slots that ran by the first
    clock are not counted then.
    """
    ran = set[datetime]()
    latest = datetime.min.replace(tzinfo=UTC)
    for run in runs:
        if is_ahead(latest, now=run.start):
            ran.clear()
            latest = run.start
        latest = max(latest, run.start)
        if run.outcome is Outcome.OK:
            if run.slot in ran:
                yield run.slot
            ran.add(run.slot)


def _was_late(run: Run) -> bool:
    """Whether it was stopped because its worker stood still and nobody took its lock, or never
    began because its claim was answered after others had taken the slot.
    """
    put_back = run.outcome is Outcome.CANCELLED and run.error == NO_SLOT
    return put_back or run.outcome is Outcome.TIMEOUT or "lease ran out" in run.error


def was_freed(run: Run) -> bool:
    """Whether its lock was taken away and the item not run again at once, for it had been taken
    over often enough: a fence that nobody ran under says so.
    """
    return run.outcome in TAKEN and not may_take_over(run.attempt, retries=0)


# ---- how much


def done(
    histories: Iterable[History], notes: Sequence[Noted], *, within: tuple[float, float]
) -> dict[str, int]:
    """Effective runs of each item that began between two moments."""
    first, last = within
    began = {(one.id, one.fence) for one in notes if first <= one.began < last}
    return {
        one.item.id: sum(
            run.outcome is Outcome.OK and (run.id, run.fence) in began for run in one.runs
        )
        for one in histories
    }


def percent(done: Mapping[str, int], *, asked: int) -> float:
    """How much of what was asked for, of each item alike, was done: more than that of one item
    does not make up for another.
    """
    return 100 * sum(min(count, asked) for count in done.values()) / (asked * len(done))


def overlaps(notes: Iterable[Noted], *, killed: Mapping[int, float]) -> int:
    """Runs that began before an earlier one of their item had ended. Who was cut off ended with
    its worker, if that was killed; else nobody knows when, and it is not counted.
    """
    return sum(
        any(other.began < end for end in _ends(before, killed)) for before, other in _pairs(notes)
    )


def _pairs(notes: Iterable[Noted]) -> Iterable[tuple[list[Noted], Noted]]:
    """Each run, and those of its item that began before it."""
    before: dict[str, list[Noted]] = defaultdict(list)
    for one in sorted(notes, key=lambda note: note.began):
        yield list(before[one.id]), one
        before[one.id].append(one)


def _ends(notes: Iterable[Noted], killed: Mapping[int, float]) -> list[float]:
    ends = (
        killed.get(int(one.worker.split(":")[1])) if one.ended is None else one.ended
        for one in notes
    )
    return [end for end in ends if end is not None]


def late(notes: Iterable[Noted]) -> int:
    """Runs that began after one of a higher fence had."""
    return sum(any(one.fence > other.fence for one in before) for before, other in _pairs(notes))
