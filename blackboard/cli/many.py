"""Changes many items at a time, with a progress bar on a terminal."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from blackboard.cli.actions import record
from blackboard.cli.output import Answer, note, print_answers
from blackboard.cli.progress import ProgressBar, counted, progress
from blackboard.cli.session import Session
from blackboard.display.queries import select
from blackboard.errors import Unchangeable
from blackboard.model import Item
from blackboard.protocol.reading import BoardTable
from blackboard.stores import wake_workers
from blackboard.tasks import finishing

Thing = TypeVar("Thing")
Result = TypeVar("Result")

AT_ONCE = 32
"""The most requests under way at a time. SQLite writes those that wait in one transaction; to Azure
each is a request of its own."""


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
    """Changes each thing, and returns the results in their order. After an error, and at Ctrl-C, no
    other change begins, those under way are finished, a note says how many are done, and the error
    is raised. `what` stands before the bar.
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
"""Changes one item, and returns the answer for people."""
Check = Callable[[BoardTable, Sequence[Item]], Awaitable[None]]
"""Raises an error, before any item is changed, to refuse all changes."""


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
) -> int:
    """Change each item that `ids` mean, and print the answers, also where an error or a signal ends
    it in the middle; the exit code. `check` sees all of them first, and may refuse them by what it
    raises. A copy whose rename is not done is left as it is. Those that were changed are recorded
    as one action, as `verb`.
    """
    async with session.board() as board:
        async with counted(board, "reading items") as through:
            items = await select(through, ids, exact=exact)
        await check(board, items)
        by_id: dict[str, Answer] = {}

        async def changed(item: Item) -> None:
            try:
                by_id[item.id] = await change(board, item)
            except Unchangeable as refused:  # the others are changed nevertheless
                words = refused.words
                by_id[item.id] = Answer(item=item, words=words, changed=False, no=True)

        try:
            await for_each(items, changed, "changing")
        finally:
            answers = [by_id[item.id] for item in items if item.id in by_id]
            done = [one for one in answers if one.changed]
            if done:
                wake_workers(session.store)
                details = [name for one in done for name in one.details]
                ids = [one.item.id for one in done]
                await record(board, verb, ids, reason=reason, details=details)
            code = await print_answers(board, answers, json=session.chosen.json)
        return code
