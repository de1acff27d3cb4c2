"""Looks at every row of a board, tells what is wrong, and puts right what is safe.

Workers may be at work meanwhile. What looks broken at first is looked at again, as it is at one
moment, and told only if it still is (`evidence.py`). A repair is one batch that states the
etag of the item as it was judged: an item that has moved is left alone, and judged anew.

Not promised: that a clean board stays clean, or that what is told and not repaired can be. History
is never rewritten; a repair deletes what is kept beyond the retention.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from blackboard.doctor.diagnosis import Bounds, Case, Finding, diagnose, repair_ops
from blackboard.doctor.evidence import Swept, look, sweep
from blackboard.errors import BadInput
from blackboard.model import Item, State, replace
from blackboard.phrases import plural, since, span
from blackboard.protocol.edits import settings_of
from blackboard.protocol.reading import BoardTable
from blackboard.protocol.retention import Retention, prune_all
from blackboard.rules.due import lease
from blackboard.rules.next_run import Planning
from blackboard.schedule.schedule import parse_schedule
from blackboard.table import Conflict, Op, Refused, Unknown
from blackboard.worker.membership import Sighting, takers, workers

TRIES = 5
"""Repairs of one item that others keep changing."""
LARGEST_SKEW = 5.0
"""Seconds between the store's clock and this host's that are worth a word."""
USUAL_LEASE = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What to look for, and whether to repair."""

    cycle: timedelta = timedelta(seconds=60)
    """The workers' cycle: what is due is taken within it."""
    types: Collection[str] | None = None
    """The types that have a handler; None: not known here."""
    repair: bool = False
    retention: Retention = field(default_factory=Retention)
    """What a repair leaves of the histories."""


@dataclass(slots=True, kw_only=True)
class DoctorReport:
    """What was looked at, and what was found."""

    swept: Swept = field(default_factory=Swept)
    findings: list[Finding] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing is broken, or everything that was has been put right."""
        return not any(one.grave and not one.repaired for one in self.findings)


async def examine(board: BoardTable, request: Examination) -> DoctorReport:
    """Look at all of a board."""
    report = DoctorReport()
    present = await workers(board)
    now = await board.table.now()
    types: Counter[str] = Counter()
    for shard in range(board.shards):
        doubtful = []
        async for case in sweep(board, shard, report.swept):
            if case.item is not None and case.item.state is State.ACTIVE:
                types[case.item.type] += 1
            if diagnose(case, _bounds(board, case, request, present, now=now)):
                doubtful.append(case)
        for case in doubtful:
            report.findings += await _judge(board, case, request, present, now=now)
    report.findings += report.swept.foreign
    report.findings += _unserved(types, request, present)
    report.findings += _lost(present)
    report.findings += _clock(await board.table.now(), board.clock.now())
    report.findings += await _integrity(board)
    if request.repair:
        report.findings += await _prune(board, request.retention)
    return report


async def _judge(
    board: BoardTable,
    case: Case,
    request: Examination,
    present: Sequence[Sighting],
    *,
    now: datetime,
) -> list[Finding]:
    """What a second look confirms; repaired, if that was asked for."""
    mended: list[Finding] = []
    found: list[Finding] = []
    for _ in range(TRIES):
        seen = await look(board, case)
        if seen is None:
            return mended
        bounds = _bounds(board, seen, request, present, now=now)
        found = diagnose(seen, bounds)
        mended = [one for one in mended if not _among(one, found)]
        ops = repair_ops(seen, bounds) if request.repair and found else []
        if not ops:
            break
        if await _commit(board, case, ops):
            mended += [replace(one, repaired=True) for one in found]
            found = []
    return mended + found


async def _commit(board: BoardTable, case: Case, ops: Sequence[Op]) -> bool:
    """Whether a repair may have been applied. After a lost reply the next look tells; what lands
    late finds that its rows have moved.
    """
    try:
        await board.table.commit(board.shard(case.shard), ops[: board.table.max_rows])
    except (Conflict, Refused):
        return False
    except Unknown:
        return True
    return True


def _among(one: Finding, others: Sequence[Finding]) -> bool:
    return any((one.code, one.problem) == (other.code, other.problem) for other in others)


def _bounds(
    board: BoardTable,
    case: Case,
    request: Examination,
    present: Sequence[Sighting],
    *,
    now: datetime,
) -> Bounds:
    item = case.item
    return Bounds(
        now=now,
        shards=board.shards,
        cycle=request.cycle,
        lease=_lease(board, item) if item else USUAL_LEASE,
        planning=planning_of(board, item) if item else None,
        served=item is not None and bool(takers(present, item.type)),
    )


def planning_of(board: BoardTable, item: Item) -> Planning | None:
    """None where it cannot be computed. A schedule that the settings have by now may not be the one
    that the waiting token was planned by: the item's row has that.
    """
    try:
        settings = settings_of(board, item, item.spec)
        written = parse_schedule(item.schedule, item.timezone) if item.schedule else None
    except (BadInput, ValueError):
        return None
    schedules = [settings.schedule] if settings.schedule else []
    if written is not None and written not in schedules:
        schedules.append(written)
    return Planning(settings=settings, schedules=schedules)


def _lease(board: BoardTable, item: Item) -> timedelta:
    try:
        return lease(board.resolve(item.type, item.spec), item.slot)
    except (BadInput, ValueError):
        return USUAL_LEASE


# ---- what concerns the whole board


def _unserved(
    types: Counter[str], request: Examination, present: Sequence[Sighting]
) -> list[Finding]:
    """Types that no handler here and no worker that is there can run."""
    if request.types is None:
        return []
    return [
        Finding(
            code="types",
            subject=name,
            problem=f"no handler here, no worker that takes it, but {plural(number, 'item')}",
        )
        for name, number in sorted(types.items())
        if name not in request.types and not takers(present, name)
    ]


async def _prune(board: BoardTable, retention: Retention) -> list[Finding]:
    """Runs that no release has deleted: of items that are removed, or never get to one."""
    pruned = await prune_all(board, retention=retention)
    if not pruned:
        return []
    problem = f"{plural(pruned, 'run')} kept beyond the retention"
    return [Finding(code="history", subject="history", problem=problem, grave=False, repaired=True)]


def _lost(present: Sequence[Sighting]) -> list[Finding]:
    return [
        Finding(
            code="workers",
            subject=one.member.owner,
            problem=f"was not seen {since(one.age)}",
            grave=False,
        )
        for one in present
        if one.lost
    ]


def _clock(store: datetime, own: datetime) -> list[Finding]:
    skew = (own - store).total_seconds()
    if abs(skew) <= LARGEST_SKEW:
        return []
    told = f"this host is {span(abs(skew))} {'ahead of' if skew > 0 else 'behind'} the store"
    return [Finding(code="clock", subject="clock", problem=told, grave=False)]


async def _integrity(board: BoardTable) -> list[Finding]:
    """What the store says of itself, if it can."""
    ask = getattr(board.table, "integrity", None)
    if ask is None:
        return []
    return [Finding(code="store", subject="store", problem=problem) for problem in await ask()]
