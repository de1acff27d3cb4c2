"""Why an item runs or does not: reads what `why.py` explains it from."""

from collections.abc import Sequence
from datetime import datetime

from blackboard.errors import BadInput
from blackboard.model import Item
from blackboard.protocol.maintenance import paused_by
from blackboard.protocol.permits import in_use, limit_of
from blackboard.protocol.reading import BoardTable
from blackboard.rules.status import ItemStatus, status_of
from blackboard.spec import RunSettings
from blackboard.why import Circumstances, Explanation, explain
from blackboard.worker.membership import Sighting, silence, takers


async def explained(
    board: BoardTable, item: Item, present: Sequence[Sighting]
) -> tuple[ItemStatus, Explanation]:
    """An item as it stands now, and why it runs or does not. `present` are the board's workers."""
    status, now = await read_one(board, item)
    settings, problem = None, ""
    try:
        settings = board.resolve(item.type, item.spec)
    except (BadInput, ValueError) as error:
        problem = str(error)
    able = takers(present, item.type)
    circumstances = Circumstances(
        now=now,
        resolution=board.table.resolution,
        settings=settings,
        problem=problem,
        takers=len(able),
        occupants=await _occupants(board, able)
        if able and item.waits and item.ready <= now
        else (),
        permitted=await _permitted(board, item, settings)
        if settings and item.waits and item.ready <= now
        else (),
        silence=silence(present, item.owner) if item.running else None,
        board_paused=await paused_by(board),
    )
    return status, explain(status, circumstances)


async def _permitted(board: BoardTable, item: Item, settings: RunSettings) -> tuple[str, ...]:
    """What runs instead of an item whose type has a limit on the board; () if a permit is left."""
    limit = limit_of(item, settings)
    permits = [] if limit is None else await in_use(board, limit)
    if limit is None or len(permits) < limit.most:
        return ()
    return tuple(one.id for one in permits)


async def _occupants(board: BoardTable, workers: Sequence[Sighting]) -> tuple[str, ...]:
    """What runs in the slots of some workers; () if one of them has a free slot."""
    held: dict[str, list[str]] = {one.member.owner: [] for one in workers}
    async for lock in board.locks():
        if lock.owner in held:
            held[lock.owner].append(lock.id)
    if any(len(held[one.member.owner]) < one.member.slots for one in workers):
        return ()
    return tuple(item_id for ids in held.values() for item_id in ids)


async def read_one(board: BoardTable, item: Item) -> tuple[ItemStatus, datetime]:
    """An item with its lock, and the store's time."""
    lock = await board.lock(item.id) if item.running else None
    now = await board.table.now()
    return status_of(item, lock, now=now, resolution=board.table.resolution), now
