"""Searches all worlds that can be reached within bounds, nearest first: so the story of a broken
invariant is a shortest one.

A search ends when there is no world left, or when an invariant is broken. Then it checks backwards:
from each world, one that is at rest must be reachable, without another fault and without waiting
for a lease.
"""

from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.proof.model import operators as people
from tests.proof.model import workers
from tests.proof.model.conditions import ALL, Conditions
from tests.proof.model.judges import RESTS
from tests.proof.model.steps import Step, View, landings
from tests.proof.model.symmetry import plain
from tests.proof.model.world import NAMES, NOBODY, Bounds, Broken, World, beginning

WORKERS = ("rabbit", "fox", "hare")


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a search has found."""

    worlds: int
    steps: int
    depth: int
    """Steps from the beginning to the farthest world."""
    broken: Broken | None = None
    story: tuple[str, ...] = ()
    """How it came to be broken."""

    def __str__(self) -> str:
        if self.broken is None:
            return f"nothing breaks in {self.worlds:,} worlds, {self.steps:,} steps"
        told = [f"{number:3}  {step}" for number, step in enumerate(self.story, start=1)]
        return "\n".join(
            [*told, f"     breaks {self.broken.invariant}:", f"     {self.broken.because}"]
        )


class Came(NamedTuple):
    """How a world was first reached."""

    before: int
    told: str
    worker: int
    order: tuple[int, ...]


def successors(world: World, bounds: Bounds, keep: Conditions) -> Iterator[Step]:
    """All that can happen next."""
    view = View(world, dict(world.rows), bounds, keep)
    yield from workers.moves(view)
    yield from people.moves(view)
    yield from landings(view)
    yield from workers.kills(view)


def is_at_rest(world: World) -> bool:
    """Whether nobody is about anything, and no lock belongs to a worker that lives."""
    idle = not any(world.workers) and not world.requests
    return idle and all(key[0] != "lock" or row.data.owner == NOBODY for key, row in world.rows)


def search(bounds: Bounds, keep: Conditions = ALL) -> Found:
    """To the end of the bounds, or to the nearest world that is broken."""
    first, _ = plain(beginning(bounds), etags=keep.etag)
    numbers = {first: 0}
    came = [Came(0, "", NOBODY, tuple(range(bounds.workers)))]
    ahead = deque([first])
    steps, befores, afters = 0, array("L"), array("L")
    while ahead:
        world = ahead.popleft()
        before = numbers[world]
        for step in successors(world, bounds, keep):
            steps += 1
            after, order = plain(step.world, etags=keep.etag)
            number = numbers.setdefault(after, len(numbers))
            if number == len(came):
                came.append(Came(before, step.told, step.worker, order))
                ahead.append(after)
            if after.broken:
                return _found(came, number, steps, after.broken)
            if step.faultless:
                befores.append(before)
                afters.append(number)
    resting = bytearray(map(is_at_rest, numbers))
    _spread(resting, befores, afters)
    restless = resting.find(0)
    if restless >= 0:
        because = _restless(list(numbers)[restless])
        return _found(came, restless, steps, Broken(RESTS, because))
    return _found(came, len(came) - 1, steps, None)


def _spread(resting: bytearray, befores: Sequence[int], afters: Sequence[int]) -> None:
    """From worlds at rest to those that can get there. Most steps lead on to worlds found later,
    so from the last to the first it is soon done.
    """
    spreading = True
    while spreading:
        spreading = False
        for before, after in zip(reversed(befores), reversed(afters), strict=True):
            if resting[after] and not resting[before]:
                resting[before] = spreading = True


def _restless(world: World) -> str:
    if any(world.workers) or world.requests:
        return "from here it cannot"
    (lock, *_) = [key for key, row in world.rows if key[0] == "lock" and row.data.owner != NOBODY]
    return f"the worker lives that has the lock of {NAMES[lock[1]]}, and nobody is about it"


def _found(came: list[Came], number: int, steps: int, broken: Broken | None) -> Found:
    story = tuple(_story(came, number))
    return Found(
        worlds=len(came),
        steps=steps,
        depth=len(story),
        broken=broken,
        story=story if broken else (),
    )


def _story(came: list[Came], number: int) -> list[str]:
    """From the beginning to a world. Workers change places on the way, and keep their names."""
    way = []
    while number:
        way.append(came[number])
        number = came[number].before
    names, told = list(WORKERS), []
    for one in reversed(way):
        told.append(one.told if one.worker == NOBODY else f"{names[one.worker]} {one.told}")
        names = [names[old] for old in one.order]
    return told
