"""What every command needs: its settings, its board, and how it is run and interrupted."""

import asyncio
import difflib
import gc
import signal
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from blackboard import settings as settings_file
from blackboard.cli.options import Chosen
from blackboard.cli.output import few_of, note, warn
from blackboard.errors import BadInput
from blackboard.handlers.registry import load, shipped
from blackboard.location import Location, name_of, store_of
from blackboard.model import replace
from blackboard.patterns import names_label
from blackboard.phrases import plural
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.keys import check_board_name

ALIKE = 0.7
"""How alike two names are, at the least, where one may be meant by the other: `calender` and
`calendar`, but not `hello` and `shell`."""
COLLECT_AFTER = 10_000
"""New containers after which Python searches for garbage; its own default is 700."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Session(Location):
    """One call of a command: its settings and where its board is."""

    chosen: Chosen

    @classmethod
    def start(cls, chosen: Chosen, settings: settings_file.Settings | None = None) -> "Session":
        """With these settings, whose paths start from the current folder, or those of a file.
        Raises BadInput when the settings, or the board's name, cannot be used.
        """
        if chosen.board is not None:
            check_board_name(chosen.board)
        folder = settings_file.current_folder()
        if settings is None:
            settings, folder = settings_file.find(chosen.config, folder=folder)
        return cls(
            chosen=chosen,
            settings=settings,
            folder=folder,
            store=store_of(chosen.store, settings, folder),
            name=name_of(chosen.board, settings),
        )

    def with_jobs(self, jobs: Sequence[str] = ()) -> "Session":
        """With the handlers of `jobs`, paths from the current folder, or of `[board] jobs`.
        Raises BadInput when one cannot be loaded.
        """
        return replace(self, handlers=load(*self.entries(jobs)))

    def with_types(self, jobs: Sequence[str] = (), *, within: float | None = None) -> "Session":
        """With the types of jobs, without their code. Raises what `with_jobs` raises, and BadInput
        where that takes longer than `within` seconds, a minute if not given.
        """
        from blackboard.handlers.manifest import manifest_of  # noqa: PLC0415 - of some commands

        return replace(self, handlers=manifest_of(*self.entries(jobs), within=within).handlers)

    @property
    def types(self) -> set[str]:
        """The types that have a handler or settings here."""
        return {*shipped(), *self.settings.types, *self.handlers}

    def unknown_types(
        self, types: Iterable[str], others: Iterable[str] = ()
    ) -> Iterator[tuple[str, str]]:
        """Those that have no handler and no settings here, each with what may be meant, in words:
        "did you mean ...?", of these and of `others`. None where jobs cannot be read.
        """
        if self.unread:
            return
        types_here = self.types
        for name in sorted(set(types) - types_here):
            yield name, _meant(name, {*types_here, *others})

    def warn_unknown(self, types: Iterable[str]) -> None:
        """Warns of types without a handler here: a typing error, or the type of another worker."""
        for name, meant in self.unknown_types(types):
            waits = "its items wait for a worker that has one"
            warn(f"no handler for the type {name!r} is found here; {waits}{meant and f': {meant}'}")

    def check_types(self, types: Iterable[str], present: set[str]) -> None:
        """Refuses types that no item has, and no handler here either: of a misspelled type all
        would always be well. `present` are the types of items. Jobs are read where one is not among
        them. Raises BadInput.
        """
        absent = set(types) - present
        if not absent:
            return
        for name, meant in self.with_defaults(changes=True).unknown_types(absent, present):
            remedy = meant or "`blackboard show` lists the items"
            raise BadInput("type", f"no item has the type {name!r}", remedy)

    def warn_misspelt(self) -> None:
        """Warns of settings for a type without a handler, where one of nearly that name has one."""
        settings = self.settings
        for section, names in (("types", {*settings.types}), ("jobs", {*settings.jobs})):
            for name in sorted(names.difference(self.handlers)):
                if meant := _meant(name, {*self.handlers} - names):
                    warn(f"[{section}.{name}] is for no type here: {meant}")

    def entries(self, jobs: Sequence[str] = ()) -> tuple[Sequence[str], Path]:
        """`jobs`, or else those of `[board] jobs`, and the folder that their paths start from."""
        return (jobs, self.cwd) if jobs else (self.settings.board.jobs, self.folder)

    def with_defaults(self, *, changes: bool = False) -> "Session":
        """With the types of `[board] jobs`, for the defaults that they declare. Jobs that cannot
        be loaded are a warning, because only workers need them; but no item is added or planned
        anew whose schedule may be theirs.
        """
        try:
            return self.with_types()
        except BadInput as problem:
            warn(f"{problem}; the defaults of its handlers do not count here")
            return replace(self, unread=problem.problem) if changes else self

    def with_labels(self, ids: Sequence[str], *, shown: bool = False) -> "Session":
        """With the types of `[board] jobs`, which may have labels, where the ids of a command are
        about these, or its answer shows them.
        """
        are_asked_for = shown or (not self.chosen.exact and any(map(names_label, ids)))
        return self.with_defaults() if are_asked_for and not self.handlers else self

    def check_store(self) -> None:
        """Refuses a store that ends with the command. Raises BadInput."""
        if self.store == "memory:":
            raise BadInput("store", "memory: ends with the command", "a path, or azurite:")

    @asynccontextmanager
    async def board(self, *, create: bool = False) -> AsyncIterator[BoardTable]:
        """The board, opened. With `create` a missing board is made first, with one shard, and a
        note on stderr says so; a warning there says that items were left out.
        """
        self.check_store()
        made = f"made the board {self.name!r} in {self.store}, with 1 shard"
        async with self.open(create=create, on_made=lambda: note(made)) as board:
            yield board
        for unreadable, kind in ((board.unreadable, "item"), (board.unreadable_runs, "run")):
            if unreadable:
                left_out = plural(len(unreadable), kind)
                remedy = "`blackboard doctor` names them"
                warn(f"{left_out} left out, whose rows cannot be read: {remedy}")
        if newer := board.newer:
            left_out, rows = plural(len(newer), "item"), few_of(newer)
            warn(f"{left_out} left out, which a newer version wrote: {rows} (upgrade blackboard)")


def _meant(name: str, others: set[str]) -> str:
    near = difflib.get_close_matches(name, sorted(others), 1, ALIKE)
    return f"did you mean {near[0]!r}?" if near else ""


def completed(work: Coroutine[Any, Any, Result]) -> Result:
    """Runs the work of a command that changes something. SIGTERM and SIGHUP end it as Ctrl-C does:
    what is under way is finished, and what was done is recorded. A signal that is ignored, as
    SIGHUP is after `nohup`, stays so.
    """

    async def ended() -> Result:
        task = asyncio.current_task()
        assert task is not None
        is_main = threading.current_thread() is threading.main_thread()
        for number in (signal.SIGTERM, signal.SIGHUP) if is_main else ():
            if signal.getsignal(number) is not signal.SIG_IGN:
                asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        return await work

    try:
        return asyncio.run(ended())
    except asyncio.CancelledError:
        raise click.Abort from None


@contextmanager
def interrupted_by(*numbers: signal.Signals) -> Iterator[None]:
    """These signals raise KeyboardInterrupt here, but for those that are ignored."""
    before = {number: signal.getsignal(number) for number in numbers}
    changed = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in changed:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, before[number])


def confirmed(question: str) -> bool:
    """Ask on the terminal, and wait for the answer. A signal ends the wait at once: as an event
    loop handles it, it would cancel the task only after the answer.
    """
    with interrupted_by(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        return click.confirm(question, err=True)


def gc_seldom() -> None:
    """Makes garbage collection rare in a process that works on a board. Its imports stay, so they
    are not searched; and the objects of a batch of claims are searched once instead of a dozen
    times until it is answered. A run takes a twelfth less time.
    """
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Stops garbage collection for short work that keeps all objects that it makes, such as many
    items: searching them would take most of the time.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
