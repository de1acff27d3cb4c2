"""Looks at every row of a board, reports what is wrong, and repairs what is safe to repair.

Workers may write meanwhile. Each shard is read once, the items first. That is no snapshot: an item
that moved meanwhile looks broken. What looks broken is therefore read again, between two readings
of its item with the same etag: since whatever moves a token writes its item, that is one moment's
picture. It is reported only if it is still broken there. A repair is one batch that states the etag
of the item as it was judged: an item that has moved is left alone, and judged anew.

Not promised: that a clean board stays clean, or that everything that is reported can be repaired.
History is never rewritten; a repair deletes what is kept beyond the retention.
"""

from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

from blackboard.doctor.diagnosis import Bounds, Case, Finding, diagnose, repair_ops
from blackboard.errors import BadInput, BadRow
from blackboard.model import VERSION, Item, Lock, Run, State, Token, replace
from blackboard.phrases import plural, since, span
from blackboard.protocol import keys
from blackboard.protocol.members import Sighting, takers, workers
from blackboard.protocol.planning import planning_of, why_unplanned
from blackboard.protocol.reading import PAGE, BoardTable, Pause, paged
from blackboard.protocol.retention import Retention, prune_all
from blackboard.protocol.rows import record_of, version_of
from blackboard.rules.due import lease
from blackboard.table import Conflict, Etag, Op, Refused, Row, Unknown, read

Record = TypeVar("Record", Item, Token, Lock, Run)

TRIES = 5
"""Repairs of one item that others keep changing."""
LOOKS = 5
"""Tries to read an item that keeps moving as it is at one moment."""
NEWER = "D10"
NAMELESS = "does not say which item it is of: it is damaged, or of another program"
LARGEST_SKEW = 5.0
"""Seconds between the store's clock and this host's that are not reported."""
USUAL_LEASE = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What to look for, and whether to repair."""

    cycle: timedelta = timedelta(seconds=60)
    """The workers' cycle: what is due is taken within it."""
    types: Collection[str] | None = None
    """The types that have a handler; None: unknown."""
    repair: bool = False
    retention: Retention = field(default_factory=Retention)
    """What a repair leaves of the histories."""
    quick: bool = False
    """Leaves out the histories, which are most of a board, and what the store says of itself."""


@dataclass(slots=True)
class Swept:
    """What a sweep counted, and what it found that belongs to no id."""

    items: int = 0
    waiting: int = 0
    locks: int = 0
    runs: int = 0
    foreign: list[Finding] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DoctorReport:
    """What was looked at, and what was found."""

    swept: Swept = field(default_factory=Swept)
    findings: list[Finding] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing is broken, or everything that was is repaired."""
        return not any(one.grave and not one.repaired for one in self.findings)


async def examine(
    board: BoardTable, request: Examination, *, pause: Pause | None = None
) -> DoctorReport:
    """Look at all of a board, with a pause after each page."""
    report = DoctorReport()
    present = await workers(board)
    judge = _Judge(board, request, present, now=await board.table.now())
    types: Counter[str] = Counter()
    for shard in range(board.shards):
        doubtful = []
        async for case in _sweep(board, shard, report.swept, pause=pause, quick=request.quick):
            if case.item is not None and case.item.state is State.ACTIVE:
                types[case.item.type] += 1
            if diagnose(case, judge.bounds(case)):
                doubtful.append(case)
        for case in doubtful:
            if pause is not None:
                await pause()
            report.findings += await judge.findings(case)
    report.findings += report.swept.foreign
    report.findings += _unserved(types, request, present)
    report.findings += await _floor(board)
    report.findings += _lost(present)
    report.findings += _clock(await board.table.now(), board.clock.now())
    if not request.quick:
        report.findings += await _integrity(board)
    if request.repair:
        report.findings += await _prune(board, request.retention)
    return report


class _Judge:
    """Judges what looks broken of one board, and repairs it."""

    def __init__(
        self,
        board: BoardTable,
        request: Examination,
        present: Sequence[Sighting],
        *,
        now: datetime,
    ) -> None:
        self._board = board
        self._request = request
        self._present = present
        self._now = now

    def bounds(self, case: Case) -> Bounds:
        """What a case is judged by."""
        item = case.item
        planning = planning_of(self._board, item) if item else None
        return Bounds(
            now=self._now,
            shards=self._board.shards,
            cycle=self._request.cycle,
            lease=_lease(self._board, item) if item else USUAL_LEASE,
            planning=planning,
            unplanned=why_unplanned(self._board, item) if item and planning is None else "",
            served=item is not None and bool(takers(self._present, item.type)),
        )

    async def findings(self, case: Case) -> list[Finding]:
        """What a second look confirms; repaired, if that is requested."""
        mended: list[Finding] = []
        found: list[Finding] = []
        for _ in range(TRIES):
            current = await _look(self._board, case)
            if current is None:
                return mended
            bounds = self.bounds(current)
            found = diagnose(current, bounds)
            still_there = {(one.code, one.problem) for one in found}
            mended = [one for one in mended if (one.code, one.problem) not in still_there]
            ops = repair_ops(current, bounds) if self._request.repair and found else []
            if not ops:
                break
            if await self._commit(case, ops):
                mended += [replace(one, repaired=True) for one in found]
                found = []
        return mended + found

    async def _commit(self, case: Case, ops: Sequence[Op]) -> bool:
        """Whether a repair may have been applied. After a lost reply the next look shows it; what
        lands late is refused, because its rows have moved.
        """
        table = self._board.table
        try:
            await table.commit(self._board.shard(case.shard), ops[: table.max_rows])
        except (Conflict, Refused):
            return False
        except Unknown:
            return True
        return True


def _lease(board: BoardTable, item: Item) -> timedelta:
    try:
        return lease(board.resolve(item.type, item.spec), item.slot)
    except (BadInput, ValueError):
        return USUAL_LEASE


# ---- reading what there is about an id


class _Cases:
    """What the rows of one shard say, id by id."""

    def __init__(self, board: BoardTable, shard: int, foreign: list[Finding]) -> None:
        self._board = board
        self._shard = shard
        self._foreign = foreign
        """Where rows go that belong to no id."""
        self._nameless: dict[str, Etag] = {}
        """By their keys, the etags of rows that do not say whose they are."""
        self.by_id: dict[str, Case] = {}

    def case(self, item_id: str) -> Case:
        """What was found of an id. Nothing can be said of one whose own row was damaged."""
        case, key = self.by_id[item_id], keys.item_key(item_id)
        if key in self._nameless:
            finding = Finding(code="D7", subject=item_id, problem=f"{key}: {NAMELESS}")
            return replace(case, sealed=(*case.sealed, finding))
        if case.item is None:
            return case
        lock, named = keys.lock_key(item_id), keys.next_key(case.item.ready, item_id)
        known = {lock, named} & self._nameless.keys()
        self._foreign[:] = [one for one in self._foreign if one.subject not in known]
        unreadable = {named: self._nameless[named]} if named in known else {}
        return replace(
            case,
            blank_lock=self._nameless.get(lock, ""),
            unreadable={**case.unreadable, **unreadable},
        )

    def add(self, row: Row) -> None:
        """Add a row to the case of its id. A key that is not what the id makes of it is foreign."""
        item_id = row.data.get("item")
        if not isinstance(item_id, str) or not _fits(row.key, item_id):
            problem = "its key is not what its item makes of it"
            if not isinstance(item_id, str):
                problem = NAMELESS
                self._nameless[row.key] = row.etag
            self._foreign.append(Finding(code="D9", subject=row.key, problem=problem))
            return
        case = self.by_id.get(item_id, Case(id=item_id, shard=self._shard))
        try:
            case = self._with(case, row)
        except _Unreadable as trouble:
            problem = f"{row.key}: {trouble.problem}"
            finding = Finding(code=trouble.code, subject=item_id, problem=problem)
            case = replace(case, sealed=(*case.sealed, finding))
        self.by_id[item_id] = case

    def _with(self, case: Case, row: Row) -> Case:
        if row.key.startswith(keys.ITEM):
            return replace(case, item=_record(Item, row))
        if row.key.startswith(keys.LOCK):
            return replace(case, lock=_record(Lock, row, age=self._board.table.age(row)))
        if row.key.startswith(keys.NEXT):
            return self._with_token(case, row)
        run = _record(Run, row)
        if keys.run_key(run.id, run.fence) != row.key:
            raise _Unreadable("D6", f"is the row of another fence than {run.fence}")
        return replace(case, newest=case.newest or run)

    def _with_token(self, case: Case, row: Row) -> Case:
        try:
            return replace(case, tokens={**case.tokens, row.key: _record(Token, row)})
        except _Unreadable as trouble:
            if trouble.code == NEWER:
                raise
            return replace(case, unreadable={**case.unreadable, row.key: row.etag})


class _Unreadable(Exception):
    """A row that cannot be judged, and why."""

    def __init__(self, code: str, problem: str) -> None:
        super().__init__(problem)
        self.code = code
        self.problem = problem


async def _sweep(
    board: BoardTable, shard: int, swept: Swept, *, pause: Pause | None, quick: bool
) -> AsyncIterator[Case]:
    """All that one shard says, id by id."""
    partition = board.shard(shard)
    cases = _Cases(board, shard, swept.foreign)
    table = board.table
    async for row in paged(table.scan(partition, keys.ITEM, keys.end_of(keys.ITEM)), pause):
        swept.items += 1
        cases.add(row)
    async for row in paged(table.scan(partition, keys.LOCK, keys.end_of(keys.NEXT)), pause):
        if row.key == keys.MAINTENANCE:
            continue
        if not row.key.startswith((keys.LOCK, keys.NEXT)):
            problem = "does not belong between lock: and next:"
            swept.foreign.append(Finding(code="D9", subject=row.key, problem=problem))
            continue
        swept.locks += row.key.startswith(keys.LOCK)
        swept.waiting += row.key.startswith(keys.NEXT)
        cases.add(row)
    if not quick:
        async for row in paged(table.scan(partition, keys.RUN, keys.end_of(keys.RUN)), pause):
            swept.runs += 1
            cases.add(row)
    for number, item_id in enumerate(cases.by_id):
        if pause is not None and number % PAGE == 0:
            await pause()
        yield cases.case(item_id)


async def _look(board: BoardTable, case: Case) -> Case | None:
    """One moment's picture of an id; None when it keeps moving, as healthy items do."""
    partition = board.shard(case.shard)
    for _ in range(LOOKS):
        cases = _Cases(board, case.shard, foreign=[])
        cases.by_id[case.id] = Case(id=case.id, shard=case.shard)
        first = await read(board.table, partition, keys.item_key(case.id))
        if first is not None:
            cases.add(first)
        item = cases.by_id[case.id].item
        named = {keys.next_key(item.ready, item.id)} if item else set()
        for key in (*sorted(named | case.etags.keys()), keys.lock_key(case.id)):
            if (row := await read(board.table, partition, key)) is not None:
                cases.add(row)
        async for row in board.table.scan(partition, *keys.runs_range(case.id)):
            cases.add(row)
        again = await read(board.table, partition, keys.item_key(case.id))
        if (first and first.etag) == (again and again.etag):
            return cases.case(case.id)
    return None


def _fits(key: str, item_id: str) -> bool:
    """Whether a key is made of this id; a waiting token's time is judged later."""
    family, _, rest = key.partition(":")
    part = keys.encode_id(item_id)
    match family:
        case "item" | "lock":
            return rest == part
        case "next":
            return rest.partition(":")[2] == part
        case _:
            return rest.rpartition(":")[0] == part


def _record(record_type: type[Record], row: Row, **extra: float) -> Record:
    """The record in a row. Raises _Unreadable."""
    if version_of(row.data) > VERSION:
        problem = f"version {version_of(row.data)}, this program reads {VERSION}"
        raise _Unreadable(NEWER, problem)
    try:
        return record_of(record_type, row, **extra)
    except BadRow as bad:
        raise _Unreadable("D7", bad.problem) from None


# ---- what concerns the whole board


def _unserved(
    types: Counter[str], request: Examination, present: Sequence[Sighting]
) -> list[Finding]:
    """Types that neither a handler of this process nor a present worker can run."""
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


async def _floor(board: BoardTable) -> list[Finding]:
    """Whether ids can be added."""
    try:
        await board.floor()
    except BadRow as bad:
        problem = f"{bad.problem}: nothing can be added before it has the highest fence of all"
        return [Finding(code="D7", subject=keys.FLOOR_KEY, problem=problem)]
    return []


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
    problem = f"this host is {span(abs(skew))} {'ahead of' if skew > 0 else 'behind'} the store"
    return [Finding(code="clock", subject="clock", problem=problem, grave=False)]


async def _integrity(board: BoardTable) -> list[Finding]:
    """What the store says of itself, if it can."""
    ask = getattr(board.table, "integrity", None)
    if ask is None:
        return []
    return [Finding(code="store", subject="store", problem=problem) for problem in await ask()]
