"""The record of what people do to a board: a row for each command, in a partition of its own.

No decision depends on these rows. A row is inserted after the command has done its work: if the row
cannot be written, the work is done all the same; if the process is killed before, the action is not
recorded. A command for many items, which lasts longer, inserts a row before the first of them as
well, and deletes it at the end. The keys sort the newest action first; actions of one millisecond
have no order among them. The coordinator deletes rows that are older than the history.

An action has the names of params and never their values, which may be secret.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from blackboard.model import VERSION, Action, Item, Via
from blackboard.protocol import keys
from blackboard.protocol.board_table import PAGE, BoardTable, Pause, paged, readings
from blackboard.protocol.rows import data_of, readable, text_of, version_of
from blackboard.rules.next_run import MILLISECOND, TOLERANCE, is_ahead
from blackboard.spec import OF_ITS_SCHEDULE, Spec, decode_spec
from blackboard.table import (
    ANY,
    Conflict,
    Delete,
    Insert,
    TableError,
    commit_again,
    try_delete,
    units,
)

MOST_IDS = 20
"""Ids that one action lists, at most; its `count` is of all."""
LONGEST_DETAIL = 500
LONGEST_REASON = 2_000
"""Characters of a reason, and of the name in `by`, at most."""
BEGUN = "begun, and not recorded how it ended"
"""The detail of an action that is not over."""
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
    row = await _row(board, by=by, verb=verb, ids=ids, reason=reason, detail=detail, via=via)
    await commit_again(board.table, keys.actions_partition(board.name), [row])


@dataclass(frozen=True, slots=True)
class Done:
    """What an action has done so far."""

    ids: set[str] = field(default_factory=set)
    """The items that it has changed."""
    details: list[str] = field(default_factory=list)


@asynccontextmanager
async def recording_action(
    board: BoardTable,
    *,
    by: str,
    verb: str,
    ids: Sequence[str],
    reason: str,
    via: Via,
    warn: Callable[[str], None],
) -> AsyncIterator[Done]:
    """Records what is done to some of these items in a `with` as one action, also where an error
    ends it in the middle. Of several items, a row says before the first is changed that it was
    begun; at the end the action takes its place or, where nothing was changed, it is deleted.
    Raises TableError at the beginning, when the store does not take that row; at the end, when all
    is done, it calls `warn` instead.
    """
    row_of = partial(_row, board, by=by, verb=verb, reason=reason, via=via)
    begun: Insert | None = None
    if len(ids) > 1:
        begun = await row_of(ids=ids, detail=BEGUN)
        await commit_again(board.table, keys.actions_partition(board.name), [begun])
    done = Done()
    try:
        yield done
    finally:
        changed = [item_id for item_id in ids if item_id in done.ids]
        detail = ", ".join(dict.fromkeys(done.details))
        try:
            ended = await row_of(ids=changed, detail=detail) if changed else None
            await _replace(board, begun, ended)
        except TableError as trouble:
            words = "it is done, and not recorded for `log --actions`"
            if begun is not None:
                words = "`log --actions` says that it was begun, and not how it ended"
            warn(f"{verb}: {words}: {trouble}")


async def _replace(board: BoardTable, begun: Insert | None, ended: Insert | None) -> None:
    """Puts the row of an action that is over in the place of the one that says that it was begun,
    if there are such rows.
    """
    partition = keys.actions_partition(board.name)
    over = [] if ended is None else [ended]
    if begun is not None:
        with suppress(Conflict):  # the row is gone: it was too old
            await commit_again(board.table, partition, [*over, Delete(begun.key, ANY)])
            return
    if over:
        await commit_again(board.table, partition, over)


async def _row(
    board: BoardTable, *, by: str, verb: str, ids: Sequence[str], reason: str, detail: str, via: Via
) -> Insert:
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
    return Insert(keys.action_key(at, board.chance.nonce()), data_of(action))


async def actions(board: BoardTable, *, limit: int) -> list[Action]:
    """The newest actions, the newest first; behind them those whose time is still to come, as a
    clock was ahead. Rows that cannot be read, or are of a newer version, are passed over.
    """

    async def of(family: tuple[str, str]) -> list[Action]:
        partition, reading = keys.actions_partition(board.name), partial(readable, Action)
        newest = readings(board.table, partition, family, reading, limit=limit)
        return [action async for action in newest]

    found = await of((keys.ACTION, keys.end_of(keys.ACTION)))
    now = await board.table.now()
    ahead = [action for action in found if is_ahead(action.at, now=now)]
    if not ahead:
        return found
    past = await of(keys.actions_before(now + TOLERANCE + MILLISECOND))
    return [*past, *ahead][:limit]


async def forget_old_actions(board: BoardTable, *, age: timedelta, pause: Pause) -> int:
    """Deletes actions that are older than `age`, at most `MOST_FORGOTTEN`, and returns how many.
    Awaits `pause` at the start, between pages and before each batch. Rows of a newer version stay.
    """
    await pause()
    partition, now = keys.actions_partition(board.name), await board.table.now()
    if board.clock_proven_in():
        return 0
    first, last = keys.actions_before(now - age)
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
    others = [name for name in names if getattr(before, name) != getattr(after, name)]
    return [*fields, *param_names(params), *others]


def param_names(params: Iterable[str]) -> list[str]:
    """The names of params, as an action has them."""
    return [f"params.{name}" for name in params]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
