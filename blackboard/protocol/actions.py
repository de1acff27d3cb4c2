"""The record of what people do to a board: a row for each command, in a partition of its own.

The rows decide nothing. Each is inserted when the command's work is done: an action whose row
cannot be written is done all the same, and one of a process that is killed before is not recorded.
Their keys sort the newest first, those of one millisecond in any order. The coordinator deletes
those that are older than the history.

An action names params and never has their values, which may be secret.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import partial

from blackboard.model import VERSION, Action, Item, Via
from blackboard.protocol import keys
from blackboard.protocol.reading import PAGE, BoardTable, Pause, paged, readings
from blackboard.protocol.rows import data_of, readable, text_of, version_of
from blackboard.spec import Spec, decode_spec
from blackboard.table import Delete, Insert, commit_again, try_delete, units

MOST_IDS = 20
"""Ids that an action names."""
LONGEST_DETAIL = 500
LONGEST_REASON = 2_000
"""Characters of a reason, and of a name."""
MOST_FORGOTTEN = 10 * PAGE
"""Actions that are deleted in one turn."""


async def record_action(
    board: BoardTable,
    *,
    by: str,
    verb: str,
    ids: Sequence[str],
    reason: str = "",
    detail: str = "",
    via: Via,
) -> None:
    """Record an action on items, or with no `ids` on the board. Raises TableError when the store
    does not take it, or never says whether it did.
    """
    at, named = await board.table.now(), tuple(ids[:MOST_IDS])
    while units(text_of(named)) > board.table.max_value:
        named = named[: len(named) // 2]
    action = Action(
        at=at,
        by=_cut(by, LONGEST_REASON),
        verb=verb,
        ids=named,
        count=len(ids),
        reason=_cut(reason, LONGEST_REASON),
        detail=_cut(detail, LONGEST_DETAIL),
        via=via,
    )
    row = Insert(keys.action_key(at, board.chance.nonce()), data_of(action))
    await commit_again(board.table, keys.actions_partition(board.name), [row])


async def actions(board: BoardTable, *, limit: int) -> list[Action]:
    """The newest actions, the newest first. Rows that cannot be read, or are of a newer version,
    are passed over.
    """
    partition, family = keys.actions_partition(board.name), (keys.ACTION, keys.end_of(keys.ACTION))
    found = readings(board.table, partition, family, partial(readable, Action), limit=limit)
    return [action async for action in found]


async def forget_old_actions(board: BoardTable, *, age: timedelta, pause: Pause) -> int:
    """Delete actions that are older than `age`, some thousands at the most; their number. There is
    a pause before each request. Rows of a newer version stay.
    """
    await pause()
    forgotten = 0
    partition = keys.actions_partition(board.name)
    first, last = keys.actions_before(await board.table.now() - age)
    batch: list[Delete] = []
    async for row in paged(board.table.scan(partition, first, last, MOST_FORGOTTEN), pause):
        if version_of(row.data) <= VERSION:
            batch.append(Delete(row.key, row.etag))
        if len(batch) == board.table.max_rows:
            await pause()
            forgotten += await try_delete(board.table, partition, batch)
            batch = []
    if batch:
        await pause()
        forgotten += await try_delete(board.table, partition, batch)
    return forgotten


def changed_fields(before: Item, after: Item) -> list[str]:
    """What differs in an item that was edited, by name: "every", "params.days", "type"."""
    old, new = decode_spec(before.spec), decode_spec(after.spec)
    fields = [
        name
        for name in Spec.__struct_fields__
        if name != "params" and getattr(old, name) != getattr(new, name)
    ]
    params = [
        name
        for name in {**old.params, **new.params}
        if (name in old.params) != (name in new.params)
        or text_of(old.params[name]) != text_of(new.params[name])
    ]
    others = [one for one in ("type", "checkpoint") if getattr(before, one) != getattr(after, one)]
    return [*fields, *param_names(params), *others]


def param_names(params: Iterable[str]) -> list[str]:
    """The names of params, as an action has them."""
    return [f"params.{name}" for name in params]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
