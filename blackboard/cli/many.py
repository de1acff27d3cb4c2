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
from blackboard.model import Item
from blackboard.protocol.reading import BoardTable
from blackboard.stores import wake_workers

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


async def finishing(work: Awaitable[Result], stop: Callable[[], object]) -> Result:
    """What `work` returns. At Ctrl-C `stop` is called, so that it begins nothing more, and what is
    under way is finished before the cancellation is raised.
    """
    under_way = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(under_way)
    except asyncio.CancelledError:
        stop()
        await asyncio.wait([under_way])
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


async def change_each(
    session: Session,
    ids: Sequence[str],
    change: Change,
    *,
    verb: str,
    exact: bool,
    reason: str = "",
    check: Callable[[BoardTable, Sequence[Item]], None] = lambda *_: None,
    details: Callable[[Item, Item], Iterable[str]] = lambda *_: (),
) -> int:
    """Change each item that `ids` mean, and print the answers; the exit code. What `check` raises
    is raised before any of them is changed. Those that were changed are recorded as one action, as
    `verb`; `details` says of an item before and after what was changed.
    """
    async with session.board() as board:
        async with counted(board, "reading items") as through:
            items = await select(through, ids, exact=exact)
        check(board, items)
        after: dict[str, Item] = {}

        async def changed(item: Item) -> Answer:
            answer = await change(board, item)
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
