"""Changes many items at a time, with a progress bar on a terminal."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from blackboard.cli.actions import record
from blackboard.cli.output import Answer, note, print_answers
from blackboard.cli.progress import ProgressBar, counted, progress
from blackboard.cli.session import Session
from blackboard.display.queries import select
from blackboard.errors import BeingRenamed
from blackboard.model import Item
from blackboard.protocol.reading import BoardTable
from blackboard.stores import wake_workers
from blackboard.tasks import finishing

Thing = TypeVar("Thing")
Result = TypeVar("Result")

AT_ONCE = 32
"""Changes under way at a time. SQLite writes those that wait in one transaction; to Azure they are
as many requests at a time."""


@contextmanager
def steps(what: str, total: int) -> Iterator[ProgressBar]:
    """A bar for changes. Where an error or Ctrl-C ends them, a note says how many are done."""
    with progress(what, total) as done:
        try:
            yield done
        except BaseException:
            if 0 < done.number < total:
                note(f"{what}: {done.number:,} of {total:,} are done")
            raise


async def for_each(
    things: Sequence[Thing], change: Callable[[Thing], Awaitable[Result]], what: str
) -> list[Result]:
    """What `change` returns for each, in their order. After an error, and at Ctrl-C, no other is
    begun, those under way are finished, and it is raised, after a note of how many are done. `what`
    stands before the bar.
    """
    left = deque(enumerate(things))
    found: list[Any] = [None] * len(things)

    async def work(done: ProgressBar) -> None:
        while left:
            number, one = left.popleft()
            try:
                found[number] = await change(one)
            except BaseException:
                left.clear()
                raise
            done.moved()

    with steps(what, len(things)) as done:
        working = [work(done) for _ in range(min(AT_ONCE, len(things)))]
        together = asyncio.gather(*working, return_exceptions=True)
        for ended in await finishing(together, left.clear):
            if ended is not None:
                raise ended
    return found


Change = Callable[[BoardTable, Item], Awaitable[Answer]]
"""Changes one item, and says what became of it."""
Check = Callable[[BoardTable, Sequence[Item]], Awaitable[None]]
"""Refuses all, by what it raises, before any is changed."""


async def _no_check(_board: BoardTable, _items: Sequence[Item]) -> None:
    """Refuses nothing."""


async def change_each(
    session: Session,
    ids: Sequence[str],
    change: Change,
    *,
    verb: str,
    exact: bool,
    reason: str = "",
    check: Check = _no_check,
    details: Callable[[Item, Item], Iterable[str]] = lambda *_: (),
) -> int:
    """Change each item that `ids` mean, and print the answers; the exit code. `check` sees all of
    them first, and may refuse them by what it raises. A copy whose rename is not done is left as it
    is. Those that were changed are recorded as one action, as `verb`; `details` says of an item
    before and after what was changed.
    """
    async with session.board() as board:
        async with counted(board, "reading items") as through:
            items = await select(through, ids, exact=exact)
        await check(board, items)
        after: dict[str, Item] = {}

        async def changed(item: Item) -> Answer:
            try:
                answer = await change(board, item)
            except BeingRenamed as refused:  # the others are changed all the same
                return Answer(item=item, words=refused.words, changed=False, no=True)
            if answer.changed:
                after[item.id] = answer.item
            return answer

        try:
            answers = await for_each(items, changed, "changing")
        finally:
            if after:
                wake_workers(session.store)
                done = [item for item in items if item.id in after]
                names = [name for item in done for name in details(item, after[item.id])]
                ids = [item.id for item in done]
                await record(board, verb, ids, reason=reason, details=names)
        return await print_answers(board, answers, json=session.chosen.json)
