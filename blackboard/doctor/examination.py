"""Looks at every row of a board, reports what is wrong, and repairs what is safe to repair.

It reads the board, and the boards of its groups and elections: each shard, as described here, and
all other rows (`board_rows.py`).

Workers may write meanwhile. What looks broken is reported only if it is broken at one moment
(`cases.py`). A repair is one batch that states the etag of the item as it was judged: an item that
has changed since is left alone, and judged anew.

A quick examination, as the coordinator makes it each hour, takes one request for the workers, one
for the board's own partition, those that read the locks and tokens, and those that read the items;
and a few more for each item that looks broken, or was written meanwhile, for `MOST_LOOKED_AT` of a
shard at the most: the rest is left to `blackboard doctor`.

Not promised: that a clean board stays clean, or that everything that is reported can be repaired.
History is never rewritten; a repair deletes the runs beyond the number that is kept, and none for
its age: no command knows whether the clock is right.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice

from blackboard.doctor.board_rows import NO_BOARD, examine_others
from blackboard.doctor.cases import LOOKS, Examination, Shard, look
from blackboard.doctor.diagnosis import LEASE_NOT_KNOWN, REPAIR, Bounds, Case, Finding, diagnose
from blackboard.doctor.repair import repair_ops
from blackboard.errors import BadInput, BadRow
from blackboard.model import Item, Member, State, TypesTaken, replace
from blackboard.phrases import plural, since, some, span
from blackboard.protocol import keys
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.groups import is_group
from blackboard.protocol.leaders import LOST, open_elections
from blackboard.protocol.members import served_types, workers
from blackboard.protocol.planning import planning_of, why_unplanned
from blackboard.protocol.retention import Retention, prune_all
from blackboard.rules.due import lease
from blackboard.table import Conflict, Op, Refused, Unknown, read

TRIES = 5
"""Tries to judge and repair one item that others keep changing."""
LARGEST_SKEW = 5.0
"""Seconds between the store's clock and this host's that are not reported."""
LOOKED_AT = 100
"""Items that are looked at between two calls of `pause`: each takes a few requests."""
MOST_LOOKED_AT = 1_000
"""Items of a shard that a quick examination looks at: where a newer version writes all rows, or a
clock was wrong, each item of a large board may look broken.
"""
MENDED = {"D1", "D2", "D3", "D4", "D5", "D6", "D8", "D11"}
"""The findings about items that a repair mends. They are about several rows, or about a time that
only a wrong clock explains."""
MOST_NAMED = 5
"""Shards that a finding names, at most."""


@dataclass(slots=True, kw_only=True)
class DoctorReport:
    """What was looked at, and what was found. The counts are of the board alone, the findings also
    of its groups and elections.
    """

    items: int = 0
    """Rows of items, also of those that cannot be read."""
    tombstones: int = 0
    """Rows of removed items."""
    waiting: int = 0
    locks: int = 0
    runs: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing is broken, or everything that was is repaired."""
        return not any(finding.grave and not finding.repaired for finding in self.findings)


async def examine(board: BoardTable, request: Examination) -> DoctorReport:
    present = await workers(board)
    served = served_types(present)
    report, types = await _examine_items(board, request, served)
    report.findings += _unserved(types, request, served)
    report.findings += await examine_others(board, request, of="")
    report.findings += _lost(present)
    report.findings += _clock(await board.table.now(), board.clock.now())
    if trouble := board.trouble:
        report.findings.append(Finding(code="store", subject="store", problem=trouble))
    if not request.quick:
        report.findings += await _belonging(board, request)
        report.findings += await _integrity(board)
    if request.repair:
        report.findings += await _prune(board, request.retention)
    return report


def unopened(board: str, bad: BadRow) -> DoctorReport:
    """The report of a board whose own row cannot be read: nothing else can be looked at."""
    problem = f"{bad.problem} in the row of {keys.meta_partition(board)}: {NO_BOARD}"
    return DoctorReport(findings=[Finding(code="D7", subject=keys.BOARD_KEY, problem=problem)])


async def _examine_items(
    board: BoardTable, request: Examination, served: TypesTaken
) -> tuple[DoctorReport, Counter[str]]:
    """What is wrong in the shards of one board, and how many active items there are of each type.
    `served` are the types that its workers take.
    """
    report, types, paused = DoctorReport(), Counter[str](), list[int]()
    now = await board.table.now()
    for number in range(board.shards):
        shard, by_part = Shard(board, number), dict[str, list[Finding]]()
        judge = _Judge(board, request, served, now, shard)
        async for case, item in shard.cases(request):
            if item.state is State.ACTIVE:
                types[item.type] += 1
            report.tombstones += item.state is State.REMOVED
            if findings := judge.certain(case, item):
                by_part[case.part] = findings
        by_part |= await judge.doubtful()
        report.findings += [finding for part in sorted(by_part) for finding in by_part[part]]
        report.findings += shard.foreign
        report.items += shard.rows[keys.ITEM]
        report.waiting += shard.rows[keys.NEXT]
        report.locks += shard.rows[keys.LOCK]
        report.runs += shard.rows[keys.RUN]
        if shard.paused:
            paused.append(number)
    report.items -= report.tombstones
    report.findings += await _half_paused(board, paused)
    return report, types


async def _belonging(board: BoardTable, request: Examination) -> list[Finding]:
    """What is wrong with the boards of the groups and of the elections, one after the other."""
    findings, meta = list[Finding](), keys.meta_partition(board.name)
    if keys.group_of(board.name):
        return findings
    rows = [row async for row in board.table.scan(meta, keys.GROUP, keys.end_of(keys.GROUP))]
    for row in rows:
        if is_group(row):
            group = board.group(row.key.removeprefix(keys.GROUP))
            if await group.own_row() is None:
                findings += await _lost_row(
                    group, "a worker of the group that starts makes it anew"
                )
            findings += await examine_others(group, request, of=f"{group.name} ")
            findings += await _items_of(group, request, served_types(await workers(group)))
    elections = board.group(keys.LEADERS)
    if await elections.own_row() is None:
        return findings + await _lost_row(elections, LOST)
    findings += await examine_others(elections, request, of=f"{elections.name} ")
    try:
        elections = await open_elections(board)
    except (BadInput, BadRow):
        return findings  # with the finding about its own row
    # An election needs no candidates: that it is late without them is no fault.
    items = await _items_of(elections, request, served_types(()))
    return findings + [
        finding for finding in items if finding.grave or finding.repaired or finding.code == "D11"
    ]


async def _lost_row(board: BoardTable, remedy: str) -> list[Finding]:
    """The finding that a board lacks its own row; none where it has no items either."""
    if not [row async for row in board.table.scan(board.name, limit=1)]:
        return []
    problem = f"the row is lost, and no command opens the board: {remedy}"
    return [Finding(code="D7", subject=f"{board.name} {keys.BOARD_KEY}", problem=problem)]


async def _items_of(board: BoardTable, request: Examination, served: TypesTaken) -> list[Finding]:
    """What is wrong in the shards of a board that belongs to another, under its name."""
    report, _ = await _examine_items(board, request, served)
    if request.repair:
        report.findings += await _prune(board, request.retention)
    return [
        replace(finding, subject=f"{board.name} {finding.subject}") for finding in report.findings
    ]


@dataclass(slots=True)
class _Judge:
    """Judges the items of one shard, and repairs them."""

    _board: BoardTable
    _request: Examination
    _served: TypesTaken
    _now: datetime
    _shard: Shard

    def bounds(self, item: Item | None) -> Bounds:
        planning = planning_of(self._board, item) if item else None
        return Bounds(
            now=self._now,
            board=self._board.name,
            shards=self._board.shards,
            cycle=self._request.cycle,
            lease=lease(planning.settings, item.slot) if item and planning else LEASE_NOT_KNOWN,
            planning=planning,
            unplanned=why_unplanned(self._board, item) if item else "",
            served=item is not None and item.type in self._served,
            paused=self._shard.paused,
        )

    def certain(self, case: Case, item: Item) -> list[Finding]:
        """What is wrong with an item by its rows as a scan found them, one after the other. Where a
        repair mends that, the item is in doubt instead.
        """
        bounds = self.bounds(item)
        findings = diagnose(case, bounds)
        is_mended = any(finding.code in MENDED for finding in findings)
        if is_mended or (findings and self.repairs(case, bounds)):
            self._shard.doubt(keys.item_key(case.id))
            return []
        return findings

    async def doubtful(self) -> dict[str, list[Finding]]:
        """What is wrong with the ids that are in doubt, by their part of keys."""
        most = MOST_LOOKED_AT if self._request.without_histories else None
        found: dict[str, list[Finding]] = {}
        in_doubt = islice(sorted(self._shard.doubtful.items()), most)
        for looked, (part, tokens) in enumerate(in_doubt):
            if self._request.pause is not None and looked % LOOKED_AT == 0:
                await self._request.pause()
            found[part] = await self.findings(part, tokens)
        return found

    async def findings(self, part: str, tokens: Collection[str]) -> list[Finding]:
        """What is wrong with the rows of an id at one moment, as `look` reads them; repaired, if
        that is requested.
        """
        mended: list[Finding] = []
        findings: list[Finding] = []
        for _ in range(TRIES):
            case = await look(self._board, self._shard.number, part, tokens, self._request)
            if case is None:
                return mended
            self._now = await self._board.table.now()  # a run since then is not in the future
            bounds = self.bounds(case.item)
            findings = diagnose(case, bounds)
            mended = _no_longer(mended, findings)
            ops = self.repairs(case, bounds) if findings else []
            if not ops:
                break
            if not self._request.repair:
                return [_with_remedy(finding) for finding in findings]
            try:
                is_applied = await self._commit(ops)
            except Refused as refused:
                return mended + [_with_refusal(finding, refused) for finding in findings]
            if is_applied:
                mended += [replace(finding, repaired=True) for finding in findings]
                findings = []
        return mended + findings

    def repairs(self, case: Case, bounds: Bounds) -> list[Op]:
        try:
            return repair_ops(case, bounds)
        except BadInput:  # its schedule cannot be computed, so the item is not planned anew
            return repair_ops(case, replace(bounds, planning=None))

    async def _commit(self, ops: Sequence[Op]) -> bool:
        """Whether a repair may have been applied. After a lost reply the next reading shows it; a
        batch that arrives late is refused, if its rows have changed. Raises Refused.
        """
        table = self._board.table
        try:
            await table.commit(self._board.shard(self._shard.number), ops[: table.max_rows])
        except Conflict:
            return False
        except Unknown:
            return True
        return True


def _no_longer(mended: Sequence[Finding], findings: Sequence[Finding]) -> list[Finding]:
    """The findings that a repair has mended, without those that were found again."""
    again = {(finding.code, finding.problem) for finding in findings}
    return [finding for finding in mended if (finding.code, finding.problem) not in again]


def _with_refusal(finding: Finding, refused: Refused) -> Finding:
    """A finding whose repair the store refuses, with the reason."""
    reason = f"the store does not take its repair: {refused.reason}"
    return replace(finding, problem=f"{finding.problem} ({reason})")


def _with_remedy(finding: Finding) -> Finding:
    """A finding of an item that a repair changes: with the remedy, where it says none."""
    if finding.code not in MENDED or finding.problem.endswith(")"):
        return finding
    return replace(finding, problem=f"{finding.problem} ({REPAIR} puts that right)")


# ---- what concerns the whole board


def _unserved(types: Counter[str], request: Examination, served: TypesTaken) -> list[Finding]:
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
        if name not in request.types and name not in served
    ]


async def _half_paused(board: BoardTable, paused: Sequence[int]) -> list[Finding]:
    """Whether some shards are paused and others are not, by the row that each of them has. A
    command that pauses or resumes the board writes the shards one after the other, so a difference
    is reported only if two readings find the same one.
    """
    for _ in range(LOOKS):
        if len(paused) in {0, board.shards}:
            return []
        again = [
            shard
            for shard in range(board.shards)
            if await read(board.table, board.shard(shard), keys.MAINTENANCE)
        ]
        if again == paused:
            break
        paused = again
    names = some([board.shard(shard) for shard in paused], MOST_NAMED)
    problem = (
        f"the board is paused in {len(paused)} of its {board.shards} shards: no worker claims "
        f"anything in {names} (`blackboard resume --board` ends that, `blackboard pause "
        "--board` pauses the others)"
    )
    return [Finding(code="D13", subject=keys.MAINTENANCE, problem=problem)]


async def _prune(board: BoardTable, retention: Retention) -> list[Finding]:
    """Deletes the runs that no release has deleted: of items that are removed, or whose runs end in
    none.
    """
    pruned = await prune_all(board, retention=retention)
    if not pruned:
        return []
    problem = f"{plural(pruned, 'run')} more than are kept"
    return [Finding(code="history", subject="history", problem=problem, grave=False, repaired=True)]


def _lost(present: Sequence[Member]) -> list[Finding]:
    return [
        Finding(
            code="workers",
            subject=worker.owner,
            problem=f"was not seen {since(worker.age)}",
            grave=False,
        )
        for worker in present
        if worker.lost
    ]


def _clock(store: datetime, own: datetime) -> list[Finding]:
    skew = (own - store).total_seconds()
    if abs(skew) <= LARGEST_SKEW:
        return []
    problem = f"this host is {span(abs(skew))} {'ahead of' if skew > 0 else 'behind'} the store"
    return [Finding(code="clock", subject="clock", problem=problem, grave=False)]


async def _integrity(board: BoardTable) -> list[Finding]:
    """The damage that the store finds in itself, if it can check that."""
    ask = getattr(board.table, "integrity", None)
    problems = await ask() if ask else ()
    return [Finding(code="store", subject="store", problem=problem) for problem in problems]
