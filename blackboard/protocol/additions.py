"""Adding items: one, many in a batch, or those of a group or an election that are missing.

An addition has a name, which the item remembers: one that was applied, and whose answer was lost,
is not applied again, and is not taken for an item that another process added under the same id. An
item that is added over the tombstone of an earlier life of its id goes on with its fence.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from msgspec import Struct

from blackboard.errors import AlreadyThere, BadInput, BadRow
from blackboard.model import VERSION, Item, State, replace
from blackboard.protocol.batches import add_ops
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.edits import READINGS, Changed, Tries, check_in_time, remembered
from blackboard.protocol.groups import check_no_pump, check_not_made
from blackboard.protocol.keys import FLOOR_KEY, item_key
from blackboard.protocol.planning import check_fences
from blackboard.protocol.rows import check_version
from blackboard.rules.applied import ADDED, additions, is_applied
from blackboard.rules.transitions import added
from blackboard.spec import Spec, encode_spec
from blackboard.table import Conflict, Refused, Unknown
from blackboard.tasks import in_turns

FEW = 16
"""Items that are looked for each by its row when they are added; for more the board is read."""


class New(Struct, frozen=True, kw_only=True):
    """An item that is to be added."""

    id: str
    type: str
    spec: Spec
    first: datetime | None = None
    """When it runs first; None: at once, or as its schedule says."""
    declared_by: str = ""


class Addition(Struct, frozen=True, kw_only=True):
    """The name of an addition, and when it was first tried, by the store's clock."""

    name: str
    began: datetime

    @classmethod
    async def begin(cls, board: BoardTable) -> "Addition":
        return cls(name=ADDED + board.chance.nonce(), began=await board.table.now())


async def add(board: BoardTable, new: New) -> Changed:
    """Adds an item. Raises AlreadyThere, and BadInput on the board of a group or of elections."""
    check_not_made(board.name)
    return await _add(board, new, await Addition.begin(board))


async def add_election(board: BoardTable, name: str, kind: str, spec: Spec) -> Changed:
    """Adds an election that a candidate enters. Raises AlreadyThere."""
    return await _add(board, New(id=name, type=kind, spec=spec), await Addition.begin(board))


async def _add(
    board: BoardTable, new: New, addition: Addition, *, doubtful: bool = False
) -> Changed:
    """Adds an item. `doubtful`: the addition may have been applied already."""
    tries = Tries(board, new.id)
    while True:
        await tries.begin()
        old = await board.item(new.id)
        if old is not None and is_applied(old, addition.name):
            return Changed(item=old)  # also when it was removed since
        now = await board.table.now()
        tries.check()
        if doubtful:
            check_in_time(new.id, first=addition.began, now=now)
        if old is not None and old.state is not State.REMOVED:
            raise AlreadyThere(new.id)
        floor = 0 if old else await board.floor()
        item = _new_item(board, new, addition, over=old, floor=floor, now=now)
        try:
            etags = await board.commit(new.id, add_ops(item, over=old))
        except Conflict:
            continue
        except Unknown as unanswered:
            doubtful = True
            tries.lost(unanswered)
            continue
        return Changed(item=replace(item, etag=etags[item_key(new.id)]))


def _new_item(
    board: BoardTable, new: New, addition: Addition, *, over: Item | None, floor: int, now: datetime
) -> Item:
    """The item that an addition writes. `over` is the tombstone of an earlier life of its id."""
    if over is not None:
        check_version(over)
        check_fences(over)
    spec = encode_spec(new.spec)
    settings = board.resolve(new.type, spec)
    check_no_pump(board.name, new.type, settings)
    item = added(
        new.id,
        new.type,
        spec,
        before=over,
        floor=floor,
        settings=settings,
        first=new.first,
        now=now,
    )
    item = replace(item, applied=additions(over), declared_by=new.declared_by)
    return replace(item, applied=remembered(board, item, addition.name, now=addition.began))


async def add_many(
    board: BoardTable,
    new: Sequence[New],
    *,
    tombstones: Mapping[str, Item],
    on_added: Callable[[Sequence[Item]], None] = lambda _: None,
) -> Mapping[str, str]:
    """Adds items, many in a batch; `tombstones` are those of the board, by id. An addition that was
    interrupted has added whole items. `on_added` is called with each batch. Returns, by their ids,
    why some could not be added: a row that is there cannot be read, or a newer version wrote it, or
    the store refuses the item. Raises AlreadyThere when another process adds one of them meanwhile,
    and BadInput on the board of a group or of elections.
    """
    if new:
        check_not_made(board.name)
    left = dict[str, str]()
    for some in _batches(board, new):
        left |= await _add_divided(board, some, tombstones, on_added)
    return left


async def add_missing(
    board: BoardTable, new: Sequence[New], *, on_added: Callable[[Sequence[Item]], None]
) -> Mapping[str, str]:
    """As `add_many`, of those items alone that are not on the board, also where other processes add
    some of them meanwhile. Raises BadInput, before any is added, for what `add` refuses.
    """
    check_not_made(board.name)
    for new_item in new:
        check_no_pump(
            board.name, new_item.type, board.resolve(new_item.type, encode_spec(new_item.spec))
        )
    while True:
        present, gone = set[str](), dict[str, Item]()
        async for item in _there(board, new):
            if item.state is State.REMOVED:
                gone[item.id] = item
            else:
                present.add(item.id)
        missing = [new_item for new_item in new if new_item.id not in present]
        with suppress(AlreadyThere):
            return await add_many(board, missing, tombstones=gone, on_added=on_added)


async def _there(board: BoardTable, new: Sequence[New]) -> AsyncIterator[Item]:
    """The items and tombstones of the ids of few items that are to be added; for many, those of the
    whole board, which has a row for each removed item, too.
    """
    if len(new) > FEW:
        async for item in board.items(removed=True):
            yield item
        return
    there = list[Item]()

    async def look(new_item: New) -> None:
        with suppress(BadRow):  # adding it shows what is wrong
            if (item := await board.item(new_item.id)) is not None:
                there.append(item)

    await in_turns(deque(new), look, at_once=FEW)
    for item in there:
        yield item


def _batches(board: BoardTable, new: Sequence[New]) -> Iterator[list[New]]:
    """The items in batches: as many of a shard as fit one batch."""
    shards: dict[str, list[New]] = {}
    for new_item in new:
        shards.setdefault(board.partition(new_item.id), []).append(new_item)
    most = board.table.max_rows // 2
    for of_shard in shards.values():
        for at in range(0, len(of_shard), most):
            yield of_shard[at : at + most]


async def _add_divided(
    board: BoardTable,
    new: Sequence[New],
    tombstones: Mapping[str, Item],
    on_added: Callable[[Sequence[Item]], None],
) -> Mapping[str, str]:
    """Adds items of one shard. Returns why some could not be added. A batch that is refused is
    divided, so that the item that it was refused for is alone in the end.
    """
    if len(new) == 1:
        added = await _added_or_problem(board, new[0])
        if isinstance(added, str):
            return {new[0].id: added}
        on_added([added])
        return {}
    try:
        items = await _add_batch(board, new, tombstones)
    except AlreadyThere:
        raise
    except (Conflict, Refused, BadInput, ValueError) as refused:
        _check_floor(refused)
        half = len(new) // 2
        left = await _add_divided(board, new[:half], tombstones, on_added)
        return {**left, **await _add_divided(board, new[half:], tombstones, on_added)}
    on_added(items)
    return {}


async def _added_or_problem(board: BoardTable, new: New) -> Item | str:
    """Adds an item. Returns it, or why it could not be added. Raises AlreadyThere."""
    try:
        return (await _add(board, new, await Addition.begin(board))).item
    except AlreadyThere:
        raise
    except (BadInput, ValueError) as problem:
        _check_floor(problem)
        return str(problem)
    except Refused as refused:
        return f"the store will not take this: {refused.reason}"


def _check_floor(problem: Exception) -> None:
    """Raises the problem if it is one with the floor: then nothing can be added."""
    if isinstance(problem, BadRow) and problem.key == FLOOR_KEY:
        raise problem


async def _add_batch(
    board: BoardTable, new: Sequence[New], tombstones: Mapping[str, Item]
) -> list[Item]:
    """Adds items of one shard, all or, raising Conflict, Refused, BadInput or ValueError, none."""
    addition = await Addition.begin(board)
    floor = await board.floor()  # after they were found missing
    items = [
        _new_item(
            board,
            new_item,
            addition,
            over=tombstones.get(new_item.id),
            floor=floor,
            now=addition.began,
        )
        for new_item in new
    ]
    ops = [op for item in items for op in add_ops(item, over=tombstones.get(item.id))]
    try:
        await board.table.commit(board.partition(new[0].id), ops)
    except Conflict:
        first = None
        with suppress(BadRow):  # the caller reads the rows one by one then
            first = await board.item(new[0].id)
        if first is None or not is_applied(first, addition.name):  # else it came twice
            raise
    except Unknown:
        return [(await _add(board, new_item, addition, doubtful=True)).item for new_item in new]
    return items


async def ensure(board: BoardTable, ids: Sequence[str], item_type: str) -> Mapping[str, str]:
    """Adds those of some items that are not there, due at once. All of them are of one type, and
    have no other settings. Items that others add meanwhile are left as they are; so are rows that
    cannot be read, and tombstones of a newer version: returns, by their ids, what is wrong with
    them.
    """
    readings = 0
    while True:
        readings += 1
        items = {item.id: item async for item in board.items(removed=True)}
        gone = {item.id: item for item in items.values() if item.state is State.REMOVED}
        left = left_alone(board, ids, gone)
        missing = [
            New(id=item_id, type=item_type, spec=Spec())
            for item_id in ids
            if item_id not in left and (item_id not in items or item_id in gone)
        ]
        try:
            for some in _batches(board, missing):
                await _add_batch(board, some, gone)
        except (Conflict, AlreadyThere):  # another worker was faster
            if readings == READINGS:
                raise
        else:
            return left


def left_alone(
    board: BoardTable, ids: Sequence[str], gone: Mapping[str, Item]
) -> Mapping[str, str]:
    """The items that cannot be added because of the row that is there, as items were last read, and
    what is wrong with it. `gone` are the tombstones.
    """
    unreadable, newer = set(board.unreadable), set(board.newer)
    doctor, left = f"`blackboard --board {board.name} doctor`", dict[str, str]()
    for item_id in ids:
        key = item_key(item_id)
        if key in unreadable:
            left[item_id] = f"the row {key} in {board.partition(item_id)} cannot be read ({doctor})"
        elif key in newer or (item_id in gone and gone[item_id].version > VERSION):
            where = f"the row {key} in {board.partition(item_id)}"
            left[item_id] = f"a newer version wrote {where} (upgrade blackboard)"
    return left
