"""The record of what people do to a board: a row for each command, in a partition of its own.

No decision depends on these rows. A row is inserted after the command has done its work: if the row
cannot be written, the work is done all the same; if the process is killed before, the action is not
recorded. The keys sort the newest action first; actions of one millisecond have no order among
them. The coordinator deletes rows that are older than the history.

An action has the names of params and never their values, which may be secret.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import partial

from blackboard.model import VERSION, Action, Item, Via
from blackboard.protocol import keys
from blackboard.protocol.reading import PAGE, BoardTable, Pause, paged, readings
from blackboard.protocol.rows import data_of, readable, text_of, version_of
from blackboard.spec import OF_ITS_SCHEDULE, Spec, decode_spec
from blackboard.table import Delete, Insert, commit_again, try_delete, units

MOST_IDS = 20
"""Ids that one action lists, at most; its `count` is of all."""
LONGEST_DETAIL = 500
LONGEST_REASON = 2_000
"""Characters of a reason, and of the name in `by`, at most."""
MOST_FORGOTTEN = 10 * PAGE
"""Actions that one call of `forget_old_actions` deletes, at most."""


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
    """Records an action on items or, without `ids`, on the board. Raises TableError when the store
    does not take the row, or never says whether it did.
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
    """Deletes actions that are older than `age`, at most `MOST_FORGOTTEN`, and returns how many.
    Awaits `pause` at the start, between pages and before each batch. Rows of a newer version stay.
    """
    await pause()
    partition = keys.actions_partition(board.name)
    first, last = keys.actions_before(await board.table.now() - age)
    rows = paged(board.table.scan(partition, first, last, MOST_FORGOTTEN), pause)
    old = [Delete(row.key, row.etag) async for row in rows if version_of(row.data) <= VERSION]
    return await try_delete(board.table, partition, old, pause=pause)


def changed_fields(before: Item, after: Item) -> list[str]:
    """The names of the fields that an edit has changed: "every", "params.days", "type"."""
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
    of_its_type = ("schedule", "timezone") if not {*fields} & {*OF_ITS_SCHEDULE} else ()
    names = (*of_its_type, "type", "first", "checkpoint")
    others = [one for one in names if getattr(before, one) != getattr(after, one)]
    return [*fields, *param_names(params), *others]


def param_names(params: Iterable[str]) -> list[str]:
    """The names of params, as an action has them."""
    return [f"params.{name}" for name in params]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
