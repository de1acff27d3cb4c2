"""The errors that users see, and their exit codes.

Errors of a store are part of its contract and live in `table.py`.
"""

import copyreg
import sys
from typing import Any, NoReturn


class Copyable(Exception):
    """An exception that another process gets as it is, whatever its `__init__` takes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class BlackboardError(Copyable):
    """A broken promise or a refusal, in one line that says what to do. `exit_code` is the
    command's: 1 the answer is no, 2 bad input. (3 is for a store that is away: `table.TableError`.)
    """

    exit_code = 1


class BoardClosed(BlackboardError):
    """A board is used after its block. Nothing was changed."""

    def __init__(self) -> None:
        super().__init__("this board is closed: use it inside the block that opens it")


class BadInput(BlackboardError):
    """Something a person wrote cannot be used. `field` names it; the message carries the remedy.
    Nothing was changed.
    """

    exit_code = 2

    def __init__(self, field: str, problem: str, remedy: str = "") -> None:
        super().__init__(f"{field}: {problem}" + (f" ({remedy})" if remedy else ""))
        self.field = field
        self.problem = problem
        self.remedy = remedy


class NoTimeLeft(BadInput):
    """A new item would never run by its schedule: its end has passed, say."""


class Missing(BadInput):
    """There is no such item. `why`: what became of it, where that is known."""

    def __init__(self, item_id: str, why: str = "") -> None:
        problem = f"no item {item_id!r} on this board" + (f": {why}" if why else "")
        super().__init__("id", problem, "`blackboard show` lists them")


class MissingRun(Missing):
    """An item has no such run."""

    def __init__(self, item_id: str, fence: object) -> None:
        BadInput.__init__(
            self,
            "fence",
            f"there is no run of {item_id!r} with fence {fence}",
            "`blackboard log` lists those that are kept",
        )


class AlreadyThere(BadInput):
    """An item with this id is on the board."""

    def __init__(
        self, item_id: str, remedy: str = "`blackboard edit` changes it", *, field: str = "id"
    ) -> None:
        super().__init__(field, f"{item_id!r} is on this board already", remedy)


class NoneInState(BadInput):
    """No item is in the state by which items were chosen: nothing is to be done."""

    exit_code = 1

    def __init__(self, state: str) -> None:
        super().__init__("state", f"no item is {state}")


class Unchangeable(BlackboardError):
    """An item cannot be changed so, as it is now. Others of the same command can."""

    def __init__(self, item_id: str, words: str) -> None:
        super().__init__(f"{item_id} {words}")
        self.words = words


class StillRuns(Unchangeable):
    """An item cannot get another type or checkpoint while it runs: its run is of the type, and
    saves checkpoints of its own.
    """

    def __init__(self, item_id: str, noun: str) -> None:
        remedy = "`pause` it and wait for its end, or `cancel` it"
        super().__init__(item_id, f"runs, and gets no other {noun} until its end: {remedy}")


class BeingRenamed(Unchangeable):
    """An item is a copy that a rename has made, and that rename is not done."""


class LeaseLost(BlackboardError):
    """A run cannot save: its lock was lost, or it is over. Another run may have begun. A handler
    that stops because `ctx.lost` is true may raise it.
    """


class OfOneProcess:
    """An object with a connection, tasks or threads: it cannot be copied, or sent to a process."""

    def __reduce__(self) -> NoReturn:
        remedy = "open the board there: blackboard.open(...) or open_blocking(...)"
        problem = f"a {type(self).__name__} cannot be copied, or sent to another process"
        raise TypeError(f"{problem} ({remedy})")


def lacking_package(missing: ModuleNotFoundError) -> str:
    """What to say of a package that is not installed; "" where a module of this one is missing."""
    name = (missing.name or "").partition(".")[0]
    if name in {"", "blackboard"}:
        return ""
    remedy = "use that of the environment where blackboard-scheduler is installed, or install it"
    return f"the Python {sys.executable} lacks the package {name!r} ({remedy})"


class BadRow(BlackboardError, ValueError):
    """A row of the board cannot be read: it was damaged, or written by something else. `board` is
    its name where that is not the one that was asked for, as of a group's.
    """

    exit_code = 2

    def __init__(self, key: str, problem: str, *, board: str = "") -> None:
        where, doctor = f"row {key}", "`blackboard doctor`"
        if board:
            where, doctor = f"{where} of the board {board}", f"`blackboard --board {board} doctor`"
        super().__init__(f"{where}: {problem} ({doctor} tells more)")
        self.key = key
        self.problem = problem


class BadSpec(BlackboardError, ValueError):
    """The spec of an item cannot be read: it was damaged, or written by something else."""

    def __init__(self, problem: str, item_id: str = "") -> None:
        which = f"the spec of {item_id!r}" if item_id else "the spec"
        super().__init__(f"{which} cannot be read: {problem} (`blackboard doctor` tells more)")
        self.problem = problem


class StoreProblem(BlackboardError):
    """The store that was named cannot be used: it is not there, not a board, damaged, or this user
    may not write to it. Nothing was changed. (`table.Unavailable`: a store that is only away.)
    """

    exit_code = 2


class MissingStore(StoreProblem):
    """There is nothing yet where the store was named, and `blackboard init` could make it."""
