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
from blackboard.handlers.code import NOT_PYTHON, changed, mistake_in
from blackboard.handlers.registry import modules_below, shipped
from blackboard.model import replace
from blackboard.runners.interpreter import search_path
from blackboard.settings import FILE_NAME, find
from blackboard.tasks import in_thread

LOOK_EVERY = 0.5
"""Seconds between two looks at them."""
LOOK_AGAIN_EVERY = 2.0
"""The same while another release cannot be loaded: each look reads and compiles its modules."""


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
            for file in chain(*map(_modules_of, map(Path, paths))):
                try:
                    # Not `ast.parse`, which is not for several threads (Python 3.11).
                    compile(file.read_bytes(), file, "exec", dont_inherit=True)
                except NOT_PYTHON as problem:
                    return f"{file}: {str(problem) or type(problem).__name__}"
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


def _modules_of(path: Path) -> list[Path]:
    """The files of the modules that are loaded from a path."""
    if not path.is_dir():
        return [path]
    places = [path.joinpath(*name.split(".")) for name in modules_below(path)]
    starts = [place / "__init__.py" for place in places]
    return [
        start if start.is_file() else place.with_suffix(".py")
        for place, start in zip(places, starts, strict=True)
    ]


def _is_path(entry: str) -> bool:
    return "/" in entry or entry.endswith(".py")


async def until_changed(places: Places) -> None:
    """Wait until files of the jobs have changed, and are valid Python, or a link to them leads to
    another place, which can be loaded.
    """
    clock, reported = SystemClock(), ""
    while True:
        pause = LOOK_EVERY
        moved = places.moved()
        if files := [moved] if moved else changed():
            # In a thread: another release is read wholly.
            mistake = await in_thread(places.mistake) if moved else mistake_in(files)
            if not mistake:
                break
            if mistake != reported:
                note(f"{mistake}; the worker goes on with the code that it has read")
                reported = mistake
            pause = LOOK_AGAIN_EVERY if moved else pause
        await clock.sleep(pause)
    note(f"{files[0]} has changed: the worker starts again")
