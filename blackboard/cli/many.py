"""Changes many items with a progress bar, records the action, and prints what came of it."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import click

from blackboard.board import operator
from blackboard.cli.output import emit, first_of_each, note, paused_words, warn
from blackboard.cli.progress import ProgressBar, counted, progress
from blackboard.cli.session import Session
from blackboard.display.escaping import shown
from blackboard.display.item_queries import select
from blackboard.errors import BadInput, BlackboardError, Missing, Unchangeable
from blackboard.model import Item
from blackboard.protocol import additions
from blackboard.protocol.actions import Done, record_action, recording_action
from blackboard.protocol.board_pause import paused_by
from blackboard.protocol.board_table import BoardTable
from blackboard.records import as_json, item_record
from blackboard.rules.status import status_of
from blackboard.table import TableError
from blackboard.tasks import finishing, in_turns
from blackboard.verbs import Answer

Thing = TypeVar("Thing")
Result = TypeVar("Result")

AT_ONCE = 32
"""The most requests under way at a time. SQLite writes those that wait in one transaction; to Azure
each is a request of its own."""


@contextmanager
def naming(item: Item, *, among: Sequence[Item] = ()) -> Iterator[None]:
    """Lets a BadInput name the item, unless it is the only one of those given."""
    try:
        yield
    except BadInput as bad:
        if len(among) == 1:
            raise
        raise BadInput(bad.field, f"{item.id}: {bad.problem}", bad.remedy) from None


@contextmanager
def steps(
    label: str, total: int, *, silent: tuple[type[Exception], ...] = ()
) -> Iterator[ProgressBar]:
    """A bar for changes. Where an error or Ctrl-C ends them, a note says how many are done, but not
    after the `silent` errors, after which the command goes on.
    """
    with progress(label, total) as done:
        try:
            yield done
        except silent:
            raise
        except BaseException:
            if done.number < total and total > 1:
                note(f"{label}: {done.number:,} of {total:,} are done")
            raise


async def for_each(
    things: Sequence[Thing],
    change: Callable[[Thing], Awaitable[Result]],
    label: str,
    *,
    silent: tuple[type[Exception], ...] = (),
) -> list[Result]:
    """Changes each thing, and returns the results in their order. After an error, and at Ctrl-C, no
    other change begins, those under way are finished, a note says how many are done, as `steps`
    has it, and the error is raised. `label` stands before the bar.
    """
    left = deque(enumerate(things))
    results: list[Any] = [None] * len(things)
    with steps(label, len(things), silent=silent) as done:

        async def work(numbered: tuple[int, Thing]) -> None:
            number, thing = numbered
            results[number] = await change(thing)
            done.moved()

        await finishing(in_turns(left, work, at_once=AT_ONCE), left.clear)
    return results


async def add_all(
    board: BoardTable,
    new: Sequence[additions.New],
    *,
    tombstones: Mapping[str, Item],
    on_added: Callable[[Sequence[Item]], None],
    silent: tuple[type[Exception], ...] = (),
) -> dict[str, str]:
    """Adds items as `additions.add_many` does, with a bar as of `steps`. At Ctrl-C the batch under
    way is finished, and no other begins.
    """
    with steps("adding", len(new), silent=silent) as done:
        stopped = asyncio.Event()

        def added(items: Sequence[Item]) -> None:
            done.moved(len(items))
            on_added(items)
            if stopped.is_set():
                raise asyncio.CancelledError

        adding = additions.add_many(board, new, tombstones=tombstones, on_added=added)
        return dict(await finishing(adding, stopped.set))


async def record(
    session: Session, board: BoardTable, verb: str, ids: Sequence[str], *, detail: str = ""
) -> None:
    """Record what a command has done to items or, with no `ids`, to the board. It is over: a store
    that does not take the record is a warning.
    """
    try:
        await record_action(
            board,
            by=operator(),
            verb=verb,
            ids=ids,
            reason=session.chosen.reason,
            detail=detail,
            via="cli",
        )
    except TableError as trouble:
        warn(f"{verb}: it is done, and not recorded for `log --actions`: {trouble}")


@asynccontextmanager
async def recording(
    session: Session, board: BoardTable, verb: str, ids: Sequence[str]
) -> AsyncIterator[Done]:
    """Record what a command does to these items as one action, and wake the workers, also where an
    error or a signal ends it in the middle. Raises TableError, before anything is changed, where
    the store does not take the record that several are begun.
    """
    async with recording_action(
        board, by=operator(), verb=verb, ids=ids, reason=session.chosen.reason, via="cli", warn=warn
    ) as done:
        try:
            yield done
        finally:
            if done.ids:
                session.wake_workers()


GONE = "was removed by another command meanwhile"


def refused(item: Item, problem: BlackboardError, *, among: Sequence[Item]) -> Answer:
    """The answer for one of the items that cannot be changed: the others are changed nevertheless.
    Raises the problem again if it is the only one, and the problem is more than that.
    """
    if isinstance(problem, Unchangeable):
        words = problem.words
    elif len(among) == 1:
        raise problem
    elif isinstance(problem, Missing):
        return Answer(item=item, words=GONE, changed=False, no=True)
    else:
        words = f"is left after an error: {problem}"
    return Answer(item=item, words=words, changed=False, no=True, exit_code=problem.exit_code)


Change = Callable[[BoardTable, Item], Awaitable[Answer]]
"""Changes one item, and returns the answer for people."""
Check = Callable[[BoardTable, Sequence[Item]], Awaitable[None]]
"""Raises an error, before any item is changed, to refuse all changes."""


async def change_each(
    session: Session,
    ids: Sequence[str],
    change: Change,
    *,
    verb: str,
    check: Check,
    damaged: bool = False,
) -> int:
    """Change each item that `ids` mean, and print the answers, also where an error or a signal ends
    it in the middle; the exit code. `check` sees all of them first, and may refuse them by what it
    raises. After that each is for itself: what one refuses, such as the copy of a rename that is
    not done, is done to the others. Those that were changed are recorded as one action, as `verb`.
    With `damaged` it changes those whose rows cannot be read, too.
    """
    async with session.board() as board:
        async with counted(board, "reading items") as through:
            items = await select(through, ids, exact=session.chosen.exact, damaged=damaged)
        await check(board, items)
        by_id: dict[str, Answer] = {}

        async def changed(item: Item) -> None:
            try:
                answer = await change(board, item)
            except BlackboardError as problem:
                answer = refused(item, problem, among=items)
            by_id[item.id] = answer
            if answer.changed:
                done.ids.add(item.id)
                done.details.extend(answer.details)

        try:
            names = [item.id for item in items]
            async with recording(session, board, verb, names) as done:
                await for_each(items, changed, "changing")
        finally:
            answers = [by_id[item.id] for item in items if item.id in by_id]
            code = await print_answers(session, board, answers)
        return code


async def note_pause(board: BoardTable) -> None:
    """Say that nothing starts, after an answer that an item is due, where the board is paused."""
    if mark := await paused_by(board):
        note(paused_words(mark, await board.table.now()), verbatim=True)


async def print_answers(session: Session, board: BoardTable, answers: Sequence[Answer]) -> int:
    """Print the answers, for people the first ones; the exit code, not 0 where one is no."""
    if session.chosen.json:
        now, resolution = await board.table.now(), board.table.resolution
        views = []
        for answer in answers:
            status = status_of(answer.item, None, now=now, resolution=resolution)
            view = as_json(item_record(status, board.labels(answer.item)))
            views.append(view | {"changed": answer.changed, "message": answer.words})
        emit(views)
    for answer, more in first_of_each(answers, lambda answer: answer.no):
        lines = [shown(f"{answer.item.id} {answer.words}")]
        lines += [f"... and {more:,} more"] * bool(more)
        for line in lines:
            if answer.no:
                note(line)
            elif not session.chosen.json:
                click.echo(line)
    return max((answer.exit_code for answer in answers if answer.no), default=0)
