"""Reads the rows of a shard: all of them in one pass, which finds the ids whose rows disagree; and
those of one id at one moment, by which it is judged.

The pass reads the other rows before the items, and keeps of each only what its item has to agree
with. That is not a snapshot: an item that was written meanwhile looks broken. So what the rows of
an item say together is reported only of rows that were read between two readings of the item with
the same etag (`look`): they are of one moment, because each batch that moves a token or a lock
writes the item.
"""

from collections import Counter
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, field
from datetime import timedelta
from operator import attrgetter

from blackboard.doctor import diagnosis
from blackboard.model import VERSION, Item, Lock, Run, Token, replace
from blackboard.protocol import keys
from blackboard.protocol.batches import token_of
from blackboard.protocol.board_table import UNREADABLE_MARK, BoardTable, Pause, mark_in, paged
from blackboard.protocol.retention import Retention
from blackboard.protocol.rows import version_of
from blackboard.table import Row, read

LOOKS = 5
"""Tries to read an item at one moment, while others keep writing it."""
NAMELESS = "does not say which item it is of: it is damaged, or of another program"
FAMILIES = (keys.ITEM, keys.LOCK, keys.NEXT, keys.RUN)
"""The families of rows in a shard; the row of a pause has none."""
_repeated = attrgetter("id", "born", *diagnosis.COMPARED)
"""Returns what a token repeats of its item."""


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
    """Awaited after each page that is read, and whenever some more items were looked at."""

    @property
    def without_histories(self) -> bool:
        """Whether no run is read. A repair needs the newest run of an item."""
        return self.quick and not self.repair


class Shard:
    """One pass over the rows of a shard. Ids are as they stand in keys."""

    def __init__(self, board: BoardTable, number: int) -> None:
        self._board = board
        self.number = number
        self._left: dict[str, Lock | diagnosis.LastRun | int] = {}
        """By key what no item was found for: locks, the newest run of each id under the fence 0,
        and digests of tokens."""
        self.doubtful: dict[str, set[str]] = {}
        """Ids with a row that cannot be judged, or that does not agree with another; and the keys
        of such tokens."""
        self.foreign: list[diagnosis.Finding] = []
        """Findings about rows that belong to no id."""
        self.rows = Counter[str]()
        """How many rows there are of each family."""
        self.paused = False
        """Whether the shard has the row of a board that is paused."""

    async def cases(self, request: Examination) -> AsyncIterator[tuple[diagnosis.Case, Item]]:
        """The items that can be read, each with a case of those of its rows that agree with it.
        After the last one `doubtful` has all ids with a row that is left over.
        """
        scan, partition = self._board.table.scan, self._board.shard(self.number)
        last = keys.end_of(keys.NEXT) if request.without_histories else None
        async for row in paged(scan(partition, keys.LOCK, last), request.pause):
            self._add(row)
        async for row in paged(scan(partition, "", keys.LOCK), request.pause):
            if (item := self._add(row)) is not None:
                yield self._case_of(item), item
        for key in self._left:
            self.doubt(key)

    def doubt(self, key: str) -> None:
        """Notes that the row with this key may not be as it should."""
        tokens = self.doubtful.setdefault(_part(key), set())
        if key.startswith(keys.NEXT):
            tokens.add(key)

    def _add(self, row: Row) -> Item | None:
        """Counts a row, and keeps what its item needs of it. Returns an item itself."""
        if row.key == keys.MAINTENANCE:
            self._add_pause(row)
            return None
        is_run_of_none = row.key.startswith(keys.RUN) and row.key.count(":") < 2
        if is_run_of_none or not row.key.startswith(FAMILIES):
            self._add_foreign(row)
            return None
        self.rows[f"{row.key.partition(':')[0]}:"] += 1
        try:
            record = _record_in(self._board, row)
        except diagnosis.Unreadable:
            self.doubt(row.key)
            return None
        match record:
            case Item():
                return record
            case Lock():
                self._left[row.key] = record
            case Token():
                self._left[row.key] = hash(_repeated(record))
            case Run():
                self._left.setdefault(keys.run_key(record.id, 0), diagnosis.LastRun.of(record))
        return None

    def _case_of(self, item: Item) -> diagnosis.Case:
        lock = self._left.pop(keys.lock_key(item.id), None)
        newest = self._left.pop(keys.run_key(item.id, 0), None)
        key, tokens = keys.next_key(item.ready, item.id), dict[str, Token]()
        if item.waits and self._left.get(key) == hash(_repeated(item)):
            del self._left[key]
            tokens[key] = token_of(item)
        return diagnosis.Case(
            part=keys.encode_id(item.id),
            id=item.id,
            shard=self.number,
            item=item,
            lock=lock if isinstance(lock, Lock) else None,
            tokens=tokens,
            newest=newest if isinstance(newest, diagnosis.LastRun) else None,
            highest=newest.fence if isinstance(newest, diagnosis.LastRun) else 0,
        )

    def _add_pause(self, row: Row) -> None:
        self.paused = True
        if mark_in(row) is UNREADABLE_MARK:
            subject = f"{self._board.shard(self.number)} {row.key}"
            problem = (
                "cannot be read: the board is paused, by whom and why is lost "
                "(`blackboard resume --board` ends it)"
            )
            self.foreign.append(
                diagnosis.Finding(code="D7", subject=subject, problem=problem, grave=False)
            )

    def _add_foreign(self, row: Row) -> None:
        in_the_way = keys.LOCK < row.key < keys.end_of(keys.NEXT)
        means = "each walk reads it" if in_the_way else "nothing reads it"
        problem = f"no row of {self._board.shard(self.number)} has such a key: {means} (delete it)"
        finding = diagnosis.Finding(code="D9", subject=row.key, problem=problem, grave=in_the_way)
        self.foreign.append(finding)


async def look(
    board: BoardTable, shard: int, part: str, tokens: Collection[str], request: Examination
) -> diagnosis.Case | None:
    """The rows of an id, as it stands in keys, at one moment; `tokens` are keys of its tokens
    beside the one that the item names. None when the item keeps changing, as healthy ones do.
    """
    partition, item_key = board.shard(shard), f"{keys.ITEM}{part}"
    for _ in range(LOOKS):
        case = diagnosis.Case(part=part, id=part, shard=shard)
        first = await read(board.table, partition, item_key)
        if first is not None:
            case = _with(board, case, first)
        async for row in _rows_beside(board, case, tokens, request):
            case = _with(board, case, row)
        again = await read(board.table, partition, item_key)
        if (first and first.etag) == (again and again.etag):
            return case
    return None


async def _rows_beside(
    board: BoardTable, case: diagnosis.Case, tokens: Collection[str], request: Examination
) -> AsyncIterator[Row]:
    """The rows beside that of an item, if there is one: its token and those of `tokens`, its lock,
    and its history, if that is looked at.
    """
    partition, item = board.shard(case.shard), case.item
    named = {keys.next_key(item.ready, item.id)} if item else set()
    for key in (*sorted(named.union(tokens)), f"{keys.LOCK}{case.part}"):
        if (row := await read(board.table, partition, key)) is not None:
            yield row
    if not request.without_histories:
        family = f"{keys.RUN}{case.part}:"
        async for row in board.table.scan(partition, family, keys.end_of(family)):
            if _part(row.key) == case.part:
                yield row


def _with(board: BoardTable, case: diagnosis.Case, row: Row) -> diagnosis.Case:
    """The case with one more of its rows, whatever the columns of that say."""
    item_id = row.data.get("item")
    if isinstance(item_id, str) and keys.encode_id(item_id) == case.part:
        case = replace(case, id=item_id)
    case = replace(case, id=case.id or row.key)
    if row.key.startswith(keys.RUN):
        case = replace(case, highest=max(case.highest, keys.fence_in(row.key) or 0))
    try:
        record = _record_in(board, row)
    except diagnosis.Unreadable as trouble:
        bad = diagnosis.BadCaseRow(
            etag=row.etag,
            code=trouble.code,
            problem=trouble.problem,
            age=board.table.age(row),
            has_nonce="nonce" in row.data,
        )
        return replace(case, bad={**case.bad, row.key: bad})
    match record:
        case Item():
            return replace(case, item=record)
        case Lock():
            return replace(case, lock=record)
        case Token():
            return replace(case, tokens={**case.tokens, row.key: record})
        case Run():
            return replace(case, newest=case.newest or diagnosis.LastRun.of(record))


def _record_in(board: BoardTable, row: Row) -> Item | Lock | Token | Run:
    """The record in a row of an item. Raises Unreadable."""
    if version_of(row.data) <= VERSION:
        if not isinstance(row.data.get("item"), str):
            raise diagnosis.Unreadable("D9", NAMELESS)
        if row.key.startswith(keys.RUN) and not keys.fence_in(row.key):
            raise diagnosis.Unreadable("D9", "no run has such a fence")
    if row.key.startswith(keys.ITEM):
        return diagnosis.judged_in(Item, row)
    if row.key.startswith(keys.LOCK):
        return diagnosis.judged_in(Lock, row, age=board.table.age(row))
    if row.key.startswith(keys.NEXT):
        return diagnosis.judged_in(Token, row)
    return diagnosis.judged_in(Run, row)


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
