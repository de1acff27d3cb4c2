"""The state of the model at one moment: the rows, the memory of each worker and person, and batches
that are in flight.

Everything in it is a tuple, so that two equal worlds are one.
"""

from typing import Any, NamedTuple

from msgspec import Struct, structs

from tests.proof.model.rows import Item, Token, item_key, next_key
from tests.proof.model.store import GONE, Batch, Key, Row, Rows

NAMES = ("davis", "montclair", "westlafcals")
"""Of items."""
NOBODY = -1
"""The owner of what a worker left behind when it died."""
UNREAD = -2
"""In place of an etag: to be read before it can be stated."""

# ---- what is in somebody's mind


class Task(NamedTuple):
    """One thing that a worker is about: a claim on its way, a run, a release. What it knows of the
    item is as it was last read. Names that the store and chance draw stand last.
    """

    step: str
    """What it does next: a key of `workers.STEPS`."""
    item: int
    fence: int
    """Of the lock that it holds or wants."""
    born: int
    spec: int
    slot: int
    ready: int = 0
    state: str = "active"
    requests: tuple[int, ...] = ()
    checkpoint: int = 0
    held: int = GONE
    """The etag of the token that it wants; then of the lock that it holds."""
    known: int = UNREAD
    """The etag of the item."""
    row: int = UNREAD
    """The etag of the history's row of this fence; UNREAD when there is none."""
    nonce: int = 0
    """0 until it is drawn, with the sending of the claim."""
    other: int = 0
    """The nonce of the holder that is overridden."""


class Request(NamedTuple):
    """What a person asked for and has no answer to yet."""

    number: int
    verb: str
    item: int
    born: int
    """Of the life that was first read."""
    fence: int
    """That was first read: an unlock is about the lock that was shown."""
    etag: int = UNREAD
    read: Item | None = None
    """The item as last read: the batch is built from it."""
    again: bool = False
    """Whether it is to be read again: a race was lost, or an answer."""


class Sender(NamedTuple):
    """Who sends a batch, for those who judge it. The store does not know."""

    verb: str
    owner: int = NOBODY
    """The worker."""
    nonce: int = 0
    fence: int = 0
    """Of the claim that is released or told late, or of the lock that a person means."""
    born: int = 0
    """Of the life that a person means."""
    request: int = 0
    """Of a person."""


class Flight(NamedTuple):
    """A batch whose sender got no answer: it lands later, or never."""

    sender: Sender
    batch: Batch


# ---- the world


class Left(NamedTuple):
    """How much may still happen."""

    lost: int
    """Answers that do not come: the batch was applied, or is in flight."""
    kills: int
    requests: int
    renewals: int
    saves: int


class Past(NamedTuple):
    """What no row says and the judges remember."""

    fences: tuple[int, ...]
    """The highest fence that any lock of an item had."""
    asked: tuple[tuple[int, ...], ...]
    """The `run now`s of an item that were applied and have not started, in this order."""
    saved: tuple[int, ...]
    """The last checkpoint of an item that was acknowledged, since its last good run."""
    applied: tuple[int, ...] = ()
    """Requests that were applied and may come again."""


class Broken(NamedTuple):
    invariant: str
    because: str


class World(Struct, frozen=True, cache_hash=True):
    """No tuple, but as good as one: a search makes millions, and this is made and hashed faster."""

    rows: Rows
    workers: tuple[tuple[Task, ...], ...]
    requests: tuple[Request, ...]
    flights: tuple[Flight, ...]
    left: Left
    past: Past
    etags: int
    """The last that was drawn."""
    nonces: int
    """The last that was drawn."""
    broken: Broken | None = None

    def _replace(self, **changes: Any) -> "World":
        return structs.replace(self, **changes)


class Bounds(NamedTuple):
    """How large a world is searched."""

    items: int = 1
    workers: int = 2
    slots: int = 1
    """Tasks that a worker may have at a time."""
    people: int = 1
    verbs: tuple[str, ...] = ()
    fence: int = 2
    """No lock gets a higher one."""
    state: str = "active"
    """Of the items, to begin with."""
    lost: int = 0
    kills: int = 0
    requests: int = 0
    renewals: int = 0
    saves: int = 0
    stale: bool = False
    """Whether a lock may have outlived its lease whenever another worker looks at it."""
    spent: bool = False
    """Whether the attempts of a stale lock may be used up, so that nothing is run."""
    together: bool = False
    """Whether a walk claims all the tokens it sees in one batch."""
    only: bool = False
    """Whether items have one slot, and are done after it."""


def beginning(bounds: Bounds) -> World:
    rows: dict[Key, Row] = {}
    for number in range(bounds.items):
        item = Item(bounds.state, running=False, fence=0, born=0, spec=0, slot=0, ready=0)
        rows[item_key(number)] = Row(0, item)
        if item.waits:
            rows[next_key(number, item.ready)] = Row(0, Token(item.spec, 0, 0, item.slot))
    numbered = tuple((key, Row(n, rows[key].data)) for n, key in enumerate(sorted(rows), start=1))
    return World(
        rows=numbered,
        workers=((),) * bounds.workers,
        requests=(),
        flights=(),
        left=Left(bounds.lost, bounds.kills, bounds.requests, bounds.renewals, bounds.saves),
        past=Past((0,) * bounds.items, ((),) * bounds.items, (0,) * bounds.items),
        etags=len(numbered),
        nonces=0,
    )
