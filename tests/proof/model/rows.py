"""The rows of the model: those columns that decide something.

Moments, requests and specs are numbers, of which only equality matters: `ready` is the fence of the
run that planned it, or minus the number of the request that said "now".
"""

from typing import NamedTuple

from tests.proof.model.store import Key


class Item(NamedTuple):
    """`item:<id>`, the truth. It waits, runs, or neither; a removed one is a tombstone."""

    state: str
    """active, paused, done or removed."""
    running: bool
    fence: int
    born: int
    """The fence that it was added with."""
    spec: int
    """The request that wrote it last."""
    slot: int
    """0 as scheduled, else the `run now` that asked for it."""
    ready: int
    requests: tuple[int, ...] = ()
    """The `run now`s that come after the waiting or running run, in this order."""
    applied: tuple[int, ...] = ()
    """Requests of people, newest first. None is forgotten: time is not modelled."""
    result_fence: int = 0
    checkpoint: int = 0
    """How often its runs have saved; 0 once more after a good run."""

    @property
    def waits(self) -> bool:
        """Whether it has a waiting token."""
        return self.state == "active" and not self.running


class Token(NamedTuple):
    """`next:<ready>:<id>`, a projection of its item."""

    spec: int
    fence: int
    born: int
    slot: int
    requests: tuple[int, ...] = ()
    checkpoint: int = 0


class Lock(NamedTuple):
    """`lock:<id>`, a claimed token."""

    owner: int
    """The worker, or NOBODY."""
    nonce: int
    fence: int
    born: int
    slot: int


class Run(NamedTuple):
    """`run:<id>:<fence>`, the history."""

    fence: int
    nonce: int
    outcome: str
    """ok, abandoned, cancelled or superseded."""


def item_key(item: int) -> Key:
    return "item", item


def lock_key(item: int) -> Key:
    return "lock", item


def next_key(item: int, ready: int) -> Key:
    return "next", item, ready
