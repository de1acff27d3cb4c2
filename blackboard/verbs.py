"""What people do to hold up items, or to end their runs: pause, resume, cancel, unlock, ack.

Each verb is about an item as it was read: one that ends a run ends no other run than that. It
returns what came of it in words. Commands print them; `blackboard.Board`, and with it the pages and
their JSON interface, raises those that mean no.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec import Struct

from blackboard.model import Item, Mark
from blackboard.phrases import plural, since
from blackboard.protocol import edits
from blackboard.protocol.board_table import BoardTable
from blackboard.why import due_words


class Answer(Struct, frozen=True, kw_only=True):
    """The result of a change of one item: the item now, and words for people."""

    item: Item
    words: str
    """The words after the id: "is paused"."""
    changed: bool = True
    details: Sequence[str] = ()
    """The names of what was changed, for the record of the action."""
    no: bool = False
    exit_code: int = 1
    """The command's, where the answer is no."""


def _unchanged(item: Item, words: str, *, no: bool = False) -> Answer:
    return Answer(item=item, words=words, changed=False, no=no)


def _is_another(item: Item, state: str, fence: int | None, *, current: int) -> Answer | None:
    """The answer where the run, or the lock, has another fence than the one that is meant."""
    if fence in {None, current}:
        return None
    return _unchanged(item, f"{state} with fence {fence}, but {current}: left as it is", no=True)


async def _pause(board: BoardTable, item: Item, mark: Mark, _fence: int | None) -> Answer:
    done = await edits.pause(board, item.id, mark)
    if done.changed:
        running = "; the run under way may finish" if done.item.running else ""
        return Answer(item=done.item, words=f"is paused{running}")
    if done.item.is_paused:
        return _unchanged(done.item, "was paused already")
    words = f"is {done.item.state.value}: there is nothing to pause"
    return _unchanged(done.item, words, no=True)


async def _resume(board: BoardTable, item: Item, mark: Mark, _fence: int | None) -> Answer:
    done = await edits.resume(board, item.id, mark)
    if not done.changed:
        return _unchanged(done.item, "was not paused")
    due = due_words(board, done.item, await board.table.now())
    return Answer(item=done.item, words=f"is resumed and {due}")


async def _cancel(board: BoardTable, item: Item, mark: Mark, fence: int | None) -> Answer:
    if not item.running:
        return _unchanged(item, "does not run", no=True)
    if another := _is_another(item, "does not run", fence, current=item.fence):
        return another
    done = await edits.cancel(board, item.id, mark, fence=item.fence)
    if not done.changed:
        words = "had ended, or been taken over, before it could be cancelled"
        return _unchanged(done.item, words, no=True)
    due = due_words(board, done.item, await board.table.now())
    return Answer(item=done.item, words=f"is cancelled (was with {item.owner}) and {due}")


async def _unlock(board: BoardTable, item: Item, mark: Mark, fence: int | None) -> Answer:
    lock = await board.lock(item.id)
    if lock is None:
        return _unchanged(item, "is not locked", no=True)
    if another := _is_another(item, "is not locked", fence, current=lock.fence):
        return another
    done = await edits.unlock(board, item.id, mark, fence=lock.fence)
    if not done.changed:
        words = f"is not locked with fence {lock.fence} any more"
        return _unchanged(done.item, words, no=True)
    due = due_words(board, done.item, await board.table.now())
    held = f"fence {lock.fence}, held by {lock.owner}, not renewed {since(lock.age)}"
    return Answer(item=done.item, words=f"is unlocked ({held}) and {due}")


async def _acknowledge(board: BoardTable, item: Item, mark: Mark, fence: int | None) -> Answer:
    of_run = item.fence if fence is None else fence
    done = await edits.acknowledge(board, item.id, mark, fence=of_run)
    if not done.changed:
        return _unchanged(done.item, "was acknowledged already")
    failed = plural(done.item.failures, "failure")
    return Answer(item=done.item, words=f"is acknowledged, with its {failed} in a row")


VERBS: Mapping[str, Callable[[BoardTable, Item, Mark, int | None], Awaitable[Answer]]] = {
    "pause": _pause,
    "resume": _resume,
    "cancel": _cancel,
    "unlock": _unlock,
    "ack": _acknowledge,
}
"""Each verb by its name. With a fence it is about the run, or the lock, with that fence alone."""
