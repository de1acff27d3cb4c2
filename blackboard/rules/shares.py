"""How the partitions of a group are shared: what a worker takes, and what it releases.

Each worker looks at the group in rounds, a third of a lease apart, and decides by what it sees: the
locks, the tokens, and the rows of the workers. No worker assigns anything: two that see the same
come to the same shares, and where they do not, the conditions of the claims decide.

    a worker counts      while its announcement holds, which is for its own lease: from the second
                         announcement on, or as soon as it holds something, so that one that dies
                         soon after each start moves nothing. All count while nothing has been held
                         for a round: workers that start together share from the beginning.
    its share            partitions / workers, rounded down, and one more for some: the first, by
                         name, of those that hold more than that, then those that hold most. So no
                         share changes while nothing else does, nor while partitions move, and a
                         change moves as few partitions as possible.
    holds less           it takes partitions that are free or stale. Those that a living worker lost
                         go back to it first; the rest is dealt in turn to the workers that hold
                         less than their share, beginning with the one that lacks most. One that has
                         been free for three seconds, or stale for a round, may be taken by any of
                         these workers: where many partitions move, few see the same.
    holds more           it releases the partitions that it has held for the shortest time; not
                         while one is stale, or has been free for five seconds, because then those
                         that hold less do not take them. Nothing is taken from a worker that lives.
    paused partitions    they stay with the worker that holds them, because no other may take them.
                         A worker that holds more of them than its share has all of these for its
                         share, and the others share the rest.
    is late              1.5 rounds or more after its last look it takes what is free, overrides
                         nothing and releases nothing, for two rounds: the store was away, or the
                         machine stood still, and others may be about to come back like itself.
                         If it is late for six rounds on end, it is slow, and releases as others do:
                         else it would hold all that it has for as long as its machine is busy.

`steal` is the rule that is published for Event Hubs' processors: while nothing is free, the owner
of most releases one in each round, as long as another has at least two fewer. It comes to the same
shares, later.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from zlib import crc32

from msgspec import Struct

LATE = 1.5
"""Rounds from one look to the next, after which a worker is late."""
CATCHING_UP = 2.0
"""Rounds for which a worker stays late."""
SLOW = 6.0
"""Rounds after which a worker that is late all the time is slow."""
HURRY = 1.0
"""Seconds to the next look while a worker holds less than its share."""
WATCHFUL = 2.5
"""Seconds to the next look while something is free."""
UNTAKEN = 3.0
"""Seconds after which a free partition may be taken by each worker that holds less than its share,
and not only by the one that it is dealt to."""
NEGLECTED = 5.0
"""Seconds. While a partition has been free for so long no worker releases any: those that hold less
than their share take none."""
INITIAL_DELAY = 3.0
"""Seconds from its start in which a worker takes nothing of a group of which nothing is held:
workers that start together share from the beginning."""


class Balance(StrEnum):
    """How partitions move from a worker that holds too many."""

    SHARES = "shares"
    """A worker releases all at once that exceed its share."""
    STEAL = "steal"
    """The worker that holds most releases one in a round."""
    GRAB = "grab"
    """By races over a bus; by shares while the bus is away, or some workers do not race. See
    `rules/grab.py`."""


class Picture(Struct, frozen=True, kw_only=True):
    """A group as one worker sees it at a moment."""

    held: Mapping[str, str]
    """The owner of each partition whose lock is not stale."""
    stale: Mapping[str, str]
    """The owner of each partition whose lock was not renewed in time."""
    free: Mapping[str, float]
    """For how many seconds each partition has been ready that has no worker."""
    waiting: Collection[str]
    """Partitions without a worker that are not ready, as their pump has failed, and those that move
    at this moment."""
    paused: Collection[str] = ()
    """Paused partitions. They need not be given while the picture `is_even`."""
    workers: Collection[str]
    """The workers that count, the one that looks included."""

    @property
    def partitions(self) -> int:
        return len(self.held) + len(self.stale) + len(self.free) + len(self.waiting)

    @property
    def counts(self) -> Counter[str]:
        """How many partitions each worker holds."""
        owners = Counter(self.held.values())
        return Counter({worker: owners[worker] for worker in self.workers})

    @property
    def paused_counts(self) -> Counter[str]:
        """How many paused partitions each worker holds."""
        return Counter(self.held[name] for name in self.paused if name in self.held)

    @property
    def is_even(self) -> bool:
        """Whether no worker holds two partitions more than another: then none releases any."""
        counts = self.counts.values()
        return max(counts) - min(counts) < 2

    @property
    def biggest(self) -> str:
        """The worker that holds most, of those that hold any that are not paused; "" where none
        does.
        """
        held, paused = self.counts, self.paused_counts
        able = [worker for worker in held if held[worker] > paused[worker]]
        return min(able, key=lambda worker: (-held[worker], worker), default="")


class Decision(Struct, frozen=True, kw_only=True):
    """What a worker does after a look."""

    take: tuple[str, ...] = ()
    """Partitions to claim or, where their lock is stale, to override."""
    contended: bool = False
    """Whether other workers may take some of these, too."""
    release: int = 0
    """How many of its partitions to release."""
    again: float | None = None
    """Seconds until the next look; None: a round."""


def shares(partitions: int, held: Mapping[str, int], paused: Mapping[str, int]) -> dict[str, int]:
    """The share of each worker, by how many each holds, and how many of these are paused."""
    least, more = divmod(partitions, len(held))
    order = sorted(held, key=lambda worker: (-min(held[worker], least + 1), worker))
    share = {worker: least + (place < more) for place, worker in enumerate(order)}
    full = {worker: paused[worker] for worker in order if paused[worker] > share[worker]}
    if not full:
        return share
    rest = {worker: held[worker] for worker in order if worker not in full}
    return full | shares(partitions - sum(full.values()), rest, paused)


def decide(
    picture: Picture,
    me: str,
    *,
    balance: Balance = Balance.SHARES,
    late: bool = False,
    slow: bool = False,
    left: Collection[str] = (),
) -> Decision:
    """What the worker `me` does about a picture. `left` are the partitions that it has found free
    for `UNTAKEN`, or stale for a round.
    """
    held, paused = picture.counts, picture.paused_counts
    share = shares(picture.partitions, held, paused)
    if held[me] < share[me]:
        dealt = _dealt_to(picture, me, held=held, share=share)
        others = _untaken(picture, me, left=left, but=dealt)[: share[me] - held[me] - len(dealt)]
        take = [name for name in [*dealt, *others] if not late or name in picture.free]
        return Decision(take=tuple(sorted(take)), contended=bool(others), again=HURRY)
    again = WATCHFUL if picture.free or picture.stale else None
    if (late and not slow) or picture.stale or max(picture.free.values(), default=0.0) >= NEGLECTED:
        return Decision(again=again)
    if balance is not Balance.STEAL:
        return Decision(release=held[me] - share[me], again=again)
    is_next = not picture.free and me == picture.biggest and held[me] - min(held.values()) >= 2
    return Decision(release=int(is_next), again=again)


def _dealt_to(
    picture: Picture, me: str, *, held: Mapping[str, int], share: Mapping[str, int]
) -> list[str]:
    """The partitions that are dealt to a worker."""
    room = {worker: share[worker] - held[worker] for worker in sorted(held)}
    mine: list[str] = []
    others: list[str] = []
    for name in sorted(picture.stale):
        owner = picture.stale[name]
        if room.get(owner, 0) > 0:
            room[owner] -= 1
            if owner == me:
                mine.append(name)
        else:
            others.append(name)
    for name, owner in zip(sorted([*others, *picture.free]), _dealt(room), strict=False):
        if owner == me:
            mine.append(name)
    return mine


def _untaken(
    picture: Picture, me: str, *, left: Collection[str], but: Collection[str]
) -> list[str]:
    """The partitions that any worker may take, in an order of this worker's own: workers that take
    some at the same time do not begin with the same.
    """
    names = ({*left} & (picture.free.keys() | picture.stale.keys())).difference(but)
    return sorted(names, key=lambda name: crc32(f"{me} {name}".encode()))


def _dealt(room: Mapping[str, int]) -> Iterator[str]:
    """The workers, each as often as it has room. Those that lack most come first: they look each
    second, and a worker that lacks one may not have seen that yet.
    """
    for turn in reversed(range(max(room.values()))):
        yield from (worker for worker in room if room[worker] > turn)


def names_of(partitions: int | Iterable[str]) -> tuple[str, ...]:
    """The names of partitions: as given, or numbers with as many digits as the last one has."""
    if isinstance(partitions, int):
        digits = len(str(max(partitions - 1, 0)))
        return tuple(f"{number:0{digits}}" for number in range(partitions))
    return tuple(partitions)


def counting(
    announced: Mapping[str, bool],
    *,
    owners: Collection[str],
    leaving: Collection[str],
    me: str,
    begins: bool,
) -> frozenset[str]:
    """The workers that count: `announced` says of each live one whether it did so twice, `owners`
    hold locks that are not stale, `leaving` are about to end. While a group `begins`, nothing of it
    has been held for a round.
    """
    live = {worker for worker, twice in announced.items() if twice or begins or worker in owners}
    return frozenset(({me} | live) - (set(leaving) - {me}))


def youngest(since: Mapping[str, float], count: int) -> Sequence[str]:
    """The `count` partitions that were taken last, by the times at which each was."""
    return sorted(since, key=lambda worker: (-since[worker], worker))[:count]
