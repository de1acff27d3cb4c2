"""What a worker with `--reload` was started with, its settings and the files of its jobs, and the
wait until that has changed.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from blackboard.cli.output import note
from blackboard.cli.session import Session
from blackboard.clock import SystemClock
from blackboard.errors import BadInput
from blackboard.handlers.code import changed, mistake_in, stamps
from blackboard.handlers.registry import shipped
from blackboard.model import replace
from blackboard.runners.interpreter import search_path
from blackboard.settings import FILE_NAME, find
from blackboard.tasks import in_thread

LOOK_EVERY = 0.5
"""Seconds between two looks at them."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where the settings and the jobs are, through links. Made before jobs are loaded, which
    changes where Python finds modules.
    """

    session: Session
    jobs: Sequence[str]
    """What `--jobs` names."""
    found: Mapping[str, Sequence[str]]
    """The paths at which each of the jobs was found."""
    search: Sequence[str]
    """The folders in which Python finds modules."""
    leads: Mapping[str, str]
    """Where each path leads."""

    @classmethod
    def of(cls, session: Session, jobs: Sequence[str]) -> "Places":
        search = [os.path.abspath(entry) for entry in search_path()]  # noqa: PTH100 - links stay
        found = _found(*session.entries(jobs), search)
        settings = str(session.cwd / (session.chosen.config or FILE_NAME))
        leads = {path: os.path.realpath(path) for path in (settings, *chain(*found.values()))}
        return cls(session, jobs, found, search, leads)

    def moved(self) -> str | None:
        """The first path that leads to something else by now, as to another release."""
        moved = (path for path, leads in self.leads.items() if os.path.realpath(path) != leads)
        return next(filter(os.path.exists, moved), None)

    def mistake(self) -> str:
        """Why a worker cannot load what the paths lead to now, as far as that is seen without an
        import: its settings, a job that is not there, what is not valid Python; "" if it can.
        """
        try:
            settings, folder = find(self.session.chosen.config, folder=self.session.cwd)
        except BadInput as problem:
            return str(problem)
        session = replace(self.session, settings=settings, folder=folder)
        for entry, paths in _found(*session.entries(self.jobs), self.search).items():
            if not paths and (self.found.get(entry) or _is_path(entry)):
                return f"jobs {entry!r}: no such file, folder or module"
            for path in paths:
                try:
                    for file in stamps({path: True}, ()) if os.path.isdir(path) else (path,):  # noqa: PTH112
                        # Not `ast.parse`, which is not for several threads (Python 3.11).
                        compile(Path(file).read_bytes(), file, "exec", dont_inherit=True)
                except (OSError, ValueError, SyntaxError) as problem:
                    return f"{path}: {problem}"
        return ""


def _found(jobs: Sequence[str], folder: Path, search: Sequence[str]) -> dict[str, list[str]]:
    """The paths that each of the jobs may be loaded from; of a module, those of its first part in
    the folders of `search`. None of the shipped jobs.
    """
    found = {}
    for entry in set(jobs).difference(shipped()):
        # Of `os.path`, which raises nothing for what cannot be a path, and keeps links.
        paths = [f"{folder / os.path.expanduser(entry)}"]  # noqa: PTH111
        if not os.path.exists(paths[0]) and not _is_path(entry):  # noqa: PTH110
            top = entry.partition(".")[0]
            places = (str(folder), *search)
            paths = [f"{place}/{name}" for place in places for name in (top, f"{top}.py")]
        found[entry] = [*filter(os.path.exists, paths)]
    return found


def _is_path(entry: str) -> bool:
    return "/" in entry or entry.endswith(".py")


async def until_changed(places: Places) -> None:
    """Wait until files of the jobs have changed, and are valid Python, or a link to them leads to
    another place, which can be loaded.
    """
    clock, reported = SystemClock(), ""
    while True:
        moved = places.moved()
        if files := [moved] if moved else changed():
            # In a thread: another release is read wholly.
            mistake = await in_thread(places.mistake) if moved else mistake_in(files)
            if not mistake:
                break
            if mistake != reported:
                note(f"{mistake}; the worker goes on with the code that it has read")
                reported = mistake
        await clock.sleep(LOOK_EVERY)
    note(f"{files[0]} has changed: the worker starts again")
