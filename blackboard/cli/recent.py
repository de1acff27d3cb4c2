"""Finds the newest runs of many items without reading all of their history."""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from blackboard.cli.selection import is_glob, select
from blackboard.inputs import check_id
from blackboard.model import Item, Outcome, Run, State
from blackboard.protocol import keys
from blackboard.protocol.edits import Missing
from blackboard.protocol.reading import BoardTable
from blackboard.protocol.rows import record_of

NEVER = datetime.min.replace(tzinfo=UTC)
ANY_TIME = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which runs."""

    limit: int
    outcomes: Collection[Outcome] = ()
    """Any of them; none: all."""
    types: Collection[str] = ()
    since: datetime | None = None

    def wants(self, run: Run) -> bool:
        return (not self.outcomes or run.outcome in self.outcomes) and (
            self.since is None or run.stop >= self.since
        )


async def newest_runs(board: BoardTable, items: Sequence[Item], question: Question) -> list[Run]:
    """The newest runs of `items`, by when they stopped.

    Items that were heard of last are read first, and reading stops when no other item can have a
    newer run than those found. A run that came back after its item had moved on is found with the
    others of its item.
    """
    found: list[Run] = []
    for item in sorted(items, key=last_heard, reverse=True):
        heard = last_heard(item)
        full = len(found) == question.limit and heard < found[-1].stop
        if heard == NEVER or full or (question.since and heard < question.since):
            break
        if question.types and item.type not in question.types:
            continue
        found += [run async for run in _wanted(board, item, question)]
        found = sorted(found, key=_age_order)[: question.limit]
    return found


async def items_with_history(
    board: BoardTable, ids: Sequence[str], *, exact: bool = False
) -> list[Item]:
    """The items that `ids` mean, all when there are none. History outlives its item: the id of a
    removed one counts, too.
    """
    if not ids:
        return [item async for item in _all(board)]
    found: dict[str, Item] = {}
    for pattern in ids:
        one = await board.item(check_id(pattern))
        if one is not None:
            found[one.id] = one
        elif exact or not is_glob(pattern):
            raise Missing(pattern)
        else:
            found |= {item.id: item for item in await select(board, [pattern])}
    return list(found.values())


def last_heard(item: Item) -> datetime:
    """When an item's newest run stopped, or was taken over, at the latest. An id that was added
    again does not say when its earlier life ended.
    """
    if item.born and item.stop is None:
        return ANY_TIME
    started = item.start if item.running or item.state is State.REMOVED else None
    return max(item.stop or NEVER, started or NEVER)


def _age_order(run: Run) -> tuple[float, str, int]:
    """Newest first; what stopped together, by id and fence."""
    return -run.stop.timestamp(), run.id, -run.fence


async def _wanted(board: BoardTable, item: Item, question: Question) -> AsyncIterator[Run]:
    number = 0
    async for run in board.runs(item.id):
        if number == question.limit:
            return
        if question.wants(run):
            number += 1
            yield run


async def _all(board: BoardTable) -> AsyncIterator[Item]:
    """Tombstones, too."""
    for number in range(board.shards):
        partition = board.shard(number)
        async for row in board.table.scan(partition, keys.ITEM, keys.end_of(keys.ITEM)):
            yield record_of(Item, row)
