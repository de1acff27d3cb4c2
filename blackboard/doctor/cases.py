"""Reads the rows of a shard and groups them by id: all of them in one pass, or those of one id at
one moment.

Each shard is read once, the items first. That is no snapshot: an item that was written meanwhile
looks broken. Rows that were read between two readings of an item with the same etag are of one
moment, because each batch that moves a token or a lock writes the item. So the items are read once
more in one range, however many look broken (`Cases.moved`), and the rows of those that have changed
one by one (`look`).
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta

from blackboard.doctor.diagnosis import BadCaseRow, Case, Finding, Unreadable, judged_in
from blackboard.model import VERSION, Item, Lock, Run, Token, replace
from blackboard.protocol import keys
from blackboard.protocol.reading import UNREADABLE_MARK, BoardTable, Pause, mark_in, paged
from blackboard.protocol.retention import Retention
from blackboard.protocol.rows import version_of
from blackboard.table import Etag, Row, just_after, read

LOOKS = 5
"""Tries to read an item at one moment, while others keep writing it."""
NAMELESS = "does not say which item it is of: it is damaged, or of another program"
FAMILIES = (keys.ITEM, keys.LOCK, keys.NEXT, keys.RUN)
"""The families of rows in a shard; the row of a pause has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """What to look for, and whether to repair."""

    cycle: timedelta = timedelta(seconds=60)
    """The workers' cycle: what is due is taken within it."""
    types: Collection[str] | None = None
    """The types that have a handler; None: unknown."""
    repair: bool = False
    retention: Retention = field(default_factory=Retention)
    """How many runs of an item a repair keeps."""
    quick: bool = False
    """Leaves out the histories, which are most of a board, unless it repairs; the rows beside the
    items, except those in the partition of the board's own row; the boards of groups and elections;
    and the check of the store itself."""
    pause: Pause | None = None
    """Awaited after each page that is read."""

    @property
    def without_histories(self) -> bool:
        """Whether no run is read. A repair needs the newest run of an item."""
        return self.quick and not self.repair


class Cases:
    """The rows of one shard, grouped by id."""

    def __init__(self, board: BoardTable, shard: int) -> None:
        self._board = board
        self._shard = shard
        self._items: dict[str, Etag] = {}
        """The etags of the rows of items, by key."""
        self.by_part: dict[str, Case] = {}
        """By the id as it stands in their keys."""
        self.foreign: list[Finding] = []
        """Findings about rows that belong to no id."""
        self.rows = Counter[str]()
        """How many rows there are of each family."""
        self.paused = False
        """Whether the shard has the row of a board that is paused."""

    async def moved(self, parts: Collection[str], *, pause: Pause | None) -> set[str]:
        """Those of some ids whose items were written, added or removed since they were read; ids
        are as they stand in keys.
        """
        if not parts:
            return set()
        by_key = {f"{keys.ITEM}{one}": one for one in parts}
        partition, end = self._board.shard(self._shard), just_after(max(by_key))
        rows = self._board.table.scan(partition, min(by_key), end)
        again = {row.key: row.etag async for row in paged(rows, pause) if row.key in by_key}
        return {one for key, one in by_key.items() if again.get(key) != self._items.get(key)}

    def add(self, row: Row) -> None:
        """Adds a row to the case of its id, or to the foreign ones if it belongs to none."""
        if row.key == keys.MAINTENANCE:
            self._add_pause(row)
        elif row.key.startswith(FAMILIES):
            if row.key.startswith(keys.ITEM):
                self._items[row.key] = row.etag
            self.rows[f"{row.key.partition(':')[0]}:"] += 1
            self._add_of_item(row)
        else:
            in_the_way = keys.LOCK < row.key < keys.end_of(keys.NEXT)
            partition = self._board.shard(self._shard)
            problem = f"no row of {partition} has such a key: nothing reads it (delete it)"
            if in_the_way:
                problem = f"no row of {partition} has such a key: each walk reads it (delete it)"
            finding = Finding(code="D9", subject=row.key, problem=problem, grave=in_the_way)
            self.foreign.append(finding)

    def _add_pause(self, row: Row) -> None:
        self.paused = True
        if mark_in(row) is UNREADABLE_MARK:
            subject = f"{self._board.shard(self._shard)} {row.key}"
            problem = (
                "cannot be read: the board is paused, by whom and why is lost "
                "(`blackboard resume --board` ends it)"
            )
            self.foreign.append(Finding(code="D7", subject=subject, problem=problem, grave=False))

    def _add_of_item(self, row: Row) -> None:
        """Adds a row to the case that its key names, whatever its columns say."""
        part, item_id = _part(row.key), row.data.get("item")
        case = self.by_part.get(part) or Case(part=part, id=part or row.key, shard=self._shard)
        if row.key.startswith(keys.RUN):
            case = replace(case, highest=max(case.highest, keys.fence_in(row.key) or 0))
        try:
            if version_of(row.data) <= VERSION:
                if not isinstance(item_id, str):
                    raise Unreadable("D9", NAMELESS)
                if row.key.startswith(keys.RUN) and not keys.fence_in(row.key):
                    raise Unreadable("D9", "no run has such a fence")
            if isinstance(item_id, str) and keys.encode_id(item_id) == part:
                case = replace(case, id=item_id)
            case = self._with(case, row)
        except Unreadable as trouble:
            bad = BadCaseRow(
                etag=row.etag,
                code=trouble.code,
                problem=trouble.problem,
                age=self._board.table.age(row),
                has_nonce="nonce" in row.data,
            )
            case = replace(case, bad={**case.bad, row.key: bad})
        self.by_part[part] = case

    def _with(self, case: Case, row: Row) -> Case:
        """The case with the record in a row. Raises Unreadable."""
        if row.key.startswith(keys.ITEM):
            item = judged_in(Item, row)
            return replace(case, item=replace(item, result="", error="", warnings=()))
        if row.key.startswith(keys.LOCK):
            return replace(case, lock=judged_in(Lock, row, age=self._board.table.age(row)))
        if row.key.startswith(keys.NEXT):
            return replace(case, tokens={**case.tokens, row.key: judged_in(Token, row)})
        run = judged_in(Run, row)
        if case.newest is not None:
            return case
        run = replace(run, result="", error="", warnings=(), output="", log=())
        return replace(case, newest=run)


async def read_shard(board: BoardTable, shard: int, request: Examination) -> Cases:
    """All rows of one shard, grouped by id."""
    partition, cases = board.shard(shard), Cases(board, shard)
    ranges: list[tuple[str, str | None]] = [("", keys.LOCK), (keys.LOCK, keys.end_of(keys.NEXT))]
    if not request.without_histories:
        ranges.append((keys.end_of(keys.NEXT), None))
    for first, last in ranges:
        async for row in paged(board.table.scan(partition, first, last), request.pause):
            cases.add(row)
    return cases


async def look(board: BoardTable, case: Case, request: Examination) -> Case | None:
    """The rows of an id at one moment; None when the item keeps changing, as healthy ones do."""
    partition, item_key = board.shard(case.shard), f"{keys.ITEM}{case.part}"
    for _ in range(LOOKS):
        cases = Cases(board, case.shard)
        cases.by_part[case.part] = Case(part=case.part, id=case.id, shard=case.shard)
        first = await read(board.table, partition, item_key)
        if first is not None:
            cases.add(first)
        item = cases.by_part[case.part].item
        named = {keys.next_key(item.ready, item.id)} if item else set()
        for key in (*sorted(named | case.etags.keys()), f"{keys.LOCK}{case.part}"):
            if (row := await read(board.table, partition, key)) is not None:
                cases.add(row)
        if not request.without_histories:
            family = f"{keys.RUN}{case.part}:"
            async for row in board.table.scan(partition, family, keys.end_of(family)):
                cases.add(row)
        again = await read(board.table, partition, item_key)
        if (first and first.etag) == (again and again.etag):
            return cases.by_part[case.part]
    return None


def _part(key: str) -> str:
    """The id in a key, as it stands there."""
    family, _, rest = key.partition(":")
    match family:
        case "item" | "lock":
            return rest
        case "next":
            return rest.partition(":")[2]
        case _:
            return rest.rpartition(":")[0]
