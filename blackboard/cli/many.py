"""Changes many items at a time, with a progress bar on a terminal."""

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from blackboard.cli.output import Answer, print_answers
from blackboard.cli.session import Session, select
from blackboard.model import Item
from blackboard.protocol.reading import BoardTable
from blackboard.stores import wake_workers

Thing = TypeVar("Thing")
Result = TypeVar("Result")

AT_ONCE = 32
"""Changes under way at a time. SQLite writes those that wait in one transaction; to Azure they are
as many requests at a time."""
MANY = 200
"""Things for which a bar is shown."""


async def for_each(
    things: Sequence[Thing], change: Callable[[Thing], Awaitable[Result]], what: str
) -> list[Result]:
    """What `change` returns for each, in their order. After the first that it raises, no other is
    begun, those under way are finished, and it is raised. `what` stands before the bar.
    """
    left = deque(enumerate(things))
    found: list[Any] = [None] * len(things)

    async def work(moved: Callable[[int], None]) -> None:
        while left:
            number, one = left.popleft()
            try:
                found[number] = await change(one)
            except BaseException:
                left.clear()
                raise
            moved(1)

    with progress(what, len(things)) as moved:
        working = [work(moved) for _ in range(min(AT_ONCE, len(things)))]
        for ended in await asyncio.gather(*working, return_exceptions=True):
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
    exact: bool,
    check: Callable[[BoardTable, Sequence[Item]], None] = lambda *_: None,
) -> int:
    """Change each item that `ids` mean, and print the answers; the exit code. What `check` raises
    is raised before any of them is changed.
    """
    async with session.board() as board:
        items = await select(board, ids, exact=exact)
        check(board, items)
        answers = await for_each(items, lambda item: change(board, item), "changing")
        wake_workers(session.store)
        return await print_answers(board, answers, json=session.chosen.json)


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr that is moved by the number of things that were done, where there are many
    and stderr is a terminal. It is drawn anew at each percent.
    """
    if total < MANY or not sys.stderr.isatty():
        yield lambda _: None
        return
    from blackboard.cli.render import bar  # noqa: PLC0415 - rich is slow to import

    done, percent = 0, 0
    with bar(what, sys.stderr) as moved_to:

        def moved(number: int) -> None:
            nonlocal done, percent
            done += number
            if 100 * done // total > percent:
                percent = 100 * done // total
                moved_to(done / total)

        moved_to(0.0)
        yield moved
