"""Reads the rows of a shard and groups them by id: all of them in one pass, or those of one id at
one moment.

Each shard is read once, the items first. That is no snapshot: an item that was written meanwhile
looks broken. Rows that were read between two readings of an item with the same etag are of one
moment, because each batch that moves a token or a lock writes the item. So the items are read once
more in one range, however many look broken (`Cases.moved`), and the rows of those that have changed
one by one (`look`).
"""

from collections import Counter
from collections.abc import Collection, Sequence

from blackboard.doctor.diagnosis import NEWER, Case, Finding, Unreadable, record_in
from blackboard.model import VERSION, Item, Lock, Run, Token, replace
from blackboard.protocol import keys
from blackboard.protocol.reading import UNREADABLE_MARK, BoardTable, Pause, mark_in, paged
from blackboard.protocol.rows import version_of
from blackboard.table import Etag, Row, just_after, read

LOOKS = 5
"""Tries to read an item at one moment, while others keep writing it."""
NAMELESS = "does not say which item it is of: it is damaged, or of another program"
FAMILIES = (keys.ITEM, keys.LOCK, keys.NEXT, keys.RUN)
"""The families of rows in a shard; the row of a pause has none."""


class Cases:
    """The rows of one shard, grouped by id."""

    def __init__(self, board: BoardTable, shard: int) -> None:
        self._board = board
        self._shard = shard
        self._foreign: list[Finding] = []
        """Findings about rows that belong to no id."""
        self._nameless: dict[str, Etag] = {}
        """The etags, by key, of rows that name no item, or another one than their key. Such a lock
        is not renewed, such a token not claimed."""
        self._items: dict[str, Etag] = {}
        """The etags of the rows of items, by key."""
        self.by_id: dict[str, Case] = {}
        self.rows = Counter[str]()
        """How many rows there are of each family."""
        self.paused = False
        """Whether the shard has the row of a board that is paused."""

    @property
    def foreign(self) -> Sequence[Finding]:
        """Findings about rows that belong to no id, but for a lock or a token that an item lacks:
        that is found with the item.
        """
        if not self._nameless:
            return self._foreign
        lacked = {key for item_id in self.by_id for key in self._lacked(item_id)}
        return [one for one in self._foreign if one.subject not in lacked]

    def _lacked(self, item_id: str) -> Collection[str]:
        """The keys of the lock and the token of an item, where the rows there do not name it."""
        item = self.by_id[item_id].item
        if item is None or keys.item_key(item_id) in self._nameless:
            return ()
        return {keys.lock_key(item_id), keys.next_key(item.ready, item_id)} & self._nameless.keys()

    def case(self, item_id: str) -> Case:
        """The rows of an id. Nothing else is judged where the row of the item does not name it."""
        case, key = self.by_id[item_id], keys.item_key(item_id)
        if key in self._nameless:
            problem = f"{key} does not say that it is its: nothing else can be judged"
            finding = Finding(code="D7", subject=item_id, problem=problem)
            return replace(case, sealed=(*case.sealed, finding))
        lock, etags = keys.lock_key(item_id), self._nameless
        tokens = {name: etags[name] for name in self._lacked(item_id) if name != lock}
        return replace(
            case,
            blank_lock=etags.get(lock, "") if case.item is not None else "",
            unreadable={**case.unreadable, **tokens},
        )

    async def moved(self, ids: Collection[str], *, pause: Pause | None) -> set[str]:
        """Those of some ids whose items were written, added or removed since they were read."""
        if not ids:
            return set()
        by_key = {keys.item_key(one): one for one in ids}
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
            problem = "does not belong between lock: and next:"
            if not in_the_way:
                partition = self._board.shard(self._shard)
                problem = f"no row of {partition} has such a key: nothing reads it"
            finding = Finding(code="D9", subject=row.key, problem=problem, grave=in_the_way)
            self._foreign.append(finding)

    def _add_pause(self, row: Row) -> None:
        self.paused = True
        if mark_in(row) is UNREADABLE_MARK:
            subject = f"{self._board.shard(self._shard)} {row.key}"
            problem = (
                "cannot be read: the board is paused, by whom and why is lost "
                "(`blackboard resume --board` ends it)"
            )
            self._foreign.append(Finding(code="D7", subject=subject, problem=problem, grave=False))

    def _add_of_item(self, row: Row) -> None:
        """A row whose key does not fit its id is foreign, too."""
        item_id = row.data.get("item")
        if not isinstance(item_id, str) or not _fits(row.key, item_id):
            problem = "its key is not what its item makes of it"
            if not isinstance(item_id, str):
                problem = NAMELESS
            if row.key.startswith(keys.ITEM) or version_of(row.data) <= VERSION:
                self._nameless[row.key] = row.etag
            self._foreign.append(Finding(code="D9", subject=row.key, problem=problem))
            return
        case = self.by_id.get(item_id, Case(id=item_id, shard=self._shard))
        try:
            case = self._with(case, row)
        except Unreadable as trouble:
            problem = f"{row.key}: {trouble.problem}"
            finding = Finding(code=trouble.code, subject=item_id, problem=problem)
            case = replace(case, sealed=(*case.sealed, finding))
        self.by_id[item_id] = case

    def _with(self, case: Case, row: Row) -> Case:
        if row.key.startswith(keys.ITEM):
            item = record_in(Item, row)
            return replace(case, item=replace(item, result="", error="", warnings=()))
        if row.key.startswith(keys.LOCK):
            return replace(case, lock=record_in(Lock, row, age=self._board.table.age(row)))
        if row.key.startswith(keys.NEXT):
            return self._with_token(case, row)
        run = record_in(Run, row)
        if keys.run_key(run.id, run.fence) != row.key:
            raise Unreadable("D6", f"is the row of another fence than {run.fence}")
        if case.newest is not None:
            return case
        run = replace(run, result="", error="", warnings=(), output="", log=())
        return replace(case, newest=run)

    def _with_token(self, case: Case, row: Row) -> Case:
        try:
            return replace(case, tokens={**case.tokens, row.key: record_in(Token, row)})
        except Unreadable as trouble:
            if trouble.code == NEWER:
                raise
            return replace(case, unreadable={**case.unreadable, row.key: row.etag})


async def read_shard(board: BoardTable, shard: int, *, pause: Pause | None, quick: bool) -> Cases:
    """All rows of one shard, grouped by id; with `quick` without the histories."""
    partition, cases = board.shard(shard), Cases(board, shard)
    ranges: list[tuple[str, str | None]] = [("", keys.LOCK), (keys.LOCK, keys.end_of(keys.NEXT))]
    if not quick:
        ranges.append((keys.end_of(keys.NEXT), None))
    for first, last in ranges:
        async for row in paged(board.table.scan(partition, first, last), pause):
            cases.add(row)
    return cases


async def look(board: BoardTable, case: Case, *, quick: bool) -> Case | None:
    """The rows of an id at one moment, with `quick` without its history; None when the item keeps
    changing, as healthy ones do.
    """
    partition = board.shard(case.shard)
    for _ in range(LOOKS):
        cases = Cases(board, case.shard)
        cases.by_id[case.id] = Case(id=case.id, shard=case.shard)
        first = await read(board.table, partition, keys.item_key(case.id))
        if first is not None:
            cases.add(first)
        item = cases.by_id[case.id].item
        named = {keys.next_key(item.ready, item.id)} if item else set()
        for key in (*sorted(named | case.etags.keys()), keys.lock_key(case.id)):
            if (row := await read(board.table, partition, key)) is not None:
                cases.add(row)
        if not quick:
            async for row in board.table.scan(partition, *keys.runs_range(case.id)):
                cases.add(row)
        again = await read(board.table, partition, keys.item_key(case.id))
        if (first and first.etag) == (again and again.etag):
            return cases.case(case.id)
    return None


def _fits(key: str, item_id: str) -> bool:
    """Whether a key is made of this id; the time in the key of a token is judged later."""
    family, _, rest = key.partition(":")
    part = keys.encode_id(item_id)
    match family:
        case "item" | "lock":
            return rest == part
        case "next":
            return rest.partition(":")[2] == part
        case _:
            return rest.rpartition(":")[0] == part
