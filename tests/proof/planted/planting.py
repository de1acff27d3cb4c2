"""A bug that can be switched on, and off again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from blackboard.simulator.scenario import Scenario
from tests.proof.planted.scenarios import crowded

Patch = tuple[Any, str, Any]
"""A module, class or dictionary; a name in it; what stands there instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """One bug."""

    name: str
    without: str
    """What is left out, or done instead."""
    patches: tuple[Patch, ...]
    shows: str
    """The kinds of violation that may tell of it, with bars between."""
    walks: bool = True
    """Whether random walks find it: they know nothing of networks, nor of two clocks."""
    verbs: tuple[str, ...] = ()
    """What people ask for that shows it soonest; none: anything."""
    seldom: bool = False
    """Found so seldom, or in worlds that are so slow to run, that the long form alone looks for it.
    """
    draw: Callable[[int], Scenario] = crowded
    """The worlds in which it can show."""

    @property
    def kinds(self) -> set[str]:
        return set(self.shows.split("|"))

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """While this lasts, the product has the bug."""
        with pytest.MonkeyPatch.context() as patch:
            for where, name, instead in self.patches:
                if isinstance(where, dict):
                    patch.setitem(where, name, instead)
                else:
                    patch.setattr(where, name, instead)
            yield
