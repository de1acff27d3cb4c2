"""Elections: which candidates of an election stand for leader, and what they send to each other.

An election only decides which candidates may try. The leader is the candidate that holds the lock
of the election: so lost, doubled, late and reordered messages, and two elections at a time, cost
time and never make two leaders of one term. A candidate that stands claims the lock when it is
free or stale; one that does not stand leaves it alone, or gives it up.

    mutex   Every candidate stands, always. The first that gets the lock leads. No messages.
    bully   The highest candidate that answers stands. (Garcia-Molina, "Elections in a Distributed
            Computing System", 1982.)
    ring    Candidates pass a list around, in the order of their ranks, to which each adds itself.
            Where it comes back, its highest stands. (After Le Lann, "Distributed Systems: Towards
            a Formal Approach", 1977.)

A candidate of bully or ring is in one of these phases:

    following   there is a leader, or it has not looked yet
    asking      it has sent ELECTION and waits: bully for an OK, ring for the list
    expecting   another was named, or has answered: that one is given time to take the lock
    elected     it has a lease's time to take the lock
    leading     it holds the lock

Events are a check of the lock and of the other candidates (`Looked`), a message (`Received`), and a
message that was not fetched in time (`Undelivered`). Time passes in checks:

    phase       a check sees        bully                               ring
    ----------  ------------------  ----------------------------------  -------------------------
    expecting   it leads itself     stays: it gives the lock up         stays
    any other   it leads itself     leading                             leading
    any         another leads       following; a higher rank, with      following
                                    `preempt`: goes on as with none
    following   no leader           begins an election                  begins an election
    leading     no leader           begins an election                  begins an election
    asking      none, time is up    no higher one answers: elected      begins an election
    expecting   none, time is up    begins an election                  begins an election
    elected     none, time is up    begins an election                  begins an election

To begin, a bully sends ELECTION to all higher candidates; without any, it is elected. It answers
ELECTION of a lower one with OK, and begins an election itself unless it takes part in one. An OK
makes it expect a COORDINATOR, for a limited time: the candidate that answered may die. Elected, it
sends COORDINATOR to all others. A leader that hears of a higher rank steps down, with `preempt`;
equal ranks, of which the names alone differ, move no leader.

In a ring, ELECTION goes to the next candidate; when that does not fetch it, to the one behind. A
leader does not pass it on, and answers that it leads. A candidate that finds itself in a list does
not pass it on either: the list was around. It sends COORDINATOR with the highest of the list to all
others. A list of `MOST_LISTED` is not passed on, since a longer one may fit no row: of all
candidates that are there, the highest is named. A list of an earlier election of its own is
dropped.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from blackboard.model import Identifier, Message, MessageKind, replace

MOST_LISTED = 100
"""Candidates in the list of a ring, at the most."""


class ElectionKind(StrEnum):
    """How a leader is found."""

    MUTEX = "mutex"
    BULLY = "bully"
    RING = "ring"


class ElectionPhase(StrEnum):
    """What a candidate does about an election."""

    FOLLOWING = "following"
    ASKING = "asking"
    EXPECTING = "expecting"
    ELECTED = "elected"
    LEADING = "leading"


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionTimes:
    """The durations of an election, in seconds."""

    lease: float
    """A lock that is untouched for longer is stale."""

    @property
    def check(self) -> float:
        """The most seconds between two checks of a candidate."""
        return self.lease / 3

    @property
    def answer(self) -> float:
        """The most seconds from a message until its answer: each side checks once, and the store
        has two seconds.
        """
        return 2 * self.check + 2.0

    def turn(self, others: int) -> float:
        """The seconds that a list takes to go around, with one silent candidate on its way."""
        return 2 * self.answer + self.check * others


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidacy:
    """The state of one candidate."""

    kind: ElectionKind
    id: str
    """The election."""
    me: Identifier
    times: ElectionTimes
    preempt: bool = True
    """Bully: a candidate of a higher rank takes the lead from one of a lower rank."""
    phase: ElectionPhase = ElectionPhase.FOLLOWING
    until: float = 0.0
    """When the phase is over, if nothing ends it before: monotonic seconds."""
    number: int = 0
    """How many elections it has begun."""
    others: tuple[Identifier, ...] = ()
    """All candidates but this one, as of the last check."""
    silent: frozenset[str] = frozenset()
    """Candidates that did not fetch the list of this election."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """A check of the lock and of the other candidates."""

    others: tuple[Identifier, ...] = ()
    """All candidates but this one."""
    leader: Identifier | None = None
    """The holder of a lock that is not stale."""


@dataclass(frozen=True, slots=True)
class Received:
    """A message has arrived."""

    message: Message


@dataclass(frozen=True, slots=True)
class Undelivered:
    """A message was not fetched within the time of an answer."""

    message: Message


Event = Looked | Received | Undelivered


@dataclass(frozen=True, slots=True)
class Step:
    """What an event leads to."""

    after: Candidacy
    sends: tuple[Message, ...] = ()

    @property
    def stand(self) -> bool:
        """Whether the candidate takes the lock when it can, and keeps it."""
        return self.after.phase in {ElectionPhase.ELECTED, ElectionPhase.LEADING}


def step(state: Candidacy, event: Event, *, now: float) -> Step:
    """Decides about one event, at a monotonic moment."""
    match state.kind, event:
        case ElectionKind.MUTEX, _:
            return Step(replace(state, phase=ElectionPhase.ELECTED))
        case ElectionKind.BULLY, Looked():
            return _looked(state, event, _bully_begins, now)
        case ElectionKind.BULLY, Received(message):
            return _bully_receives(state, message, now)
        case ElectionKind.RING, Looked():
            return _looked(state, event, _ring_begins, now)
        case ElectionKind.RING, Received(message):
            return _ring_receives(state, message, now)
        case ElectionKind.RING, Undelivered(message) if message.kind is MessageKind.ELECTION:
            return _ring_skips(state, message, now)
        case _:
            return Step(state)


def _looked(
    state: Candidacy, looked: Looked, begin: Callable[[Candidacy, float], Step], now: float
) -> Step:
    gives_way = state.phase is ElectionPhase.EXPECTING and now < state.until
    if looked.leader == state.me and gives_way:
        return Step(replace(state, others=looked.others))
    if looked.leader is not None and not _outranks(state, looked.leader):
        phase = ElectionPhase.LEADING if looked.leader == state.me else ElectionPhase.FOLLOWING
        return Step(replace(state, others=looked.others, phase=phase, silent=frozenset()))
    state = replace(state, others=looked.others)
    if state.phase in {ElectionPhase.FOLLOWING, ElectionPhase.LEADING}:
        return begin(state, now)
    if now < state.until:
        return Step(state)
    if state.kind is ElectionKind.BULLY and state.phase is ElectionPhase.ASKING:
        return _bully_wins(state, now)
    return begin(state, now)


def _outranks(state: Candidacy, leader: Identifier) -> bool:
    """Whether the leader has to give way to this candidate."""
    return state.kind is ElectionKind.BULLY and state.preempt and state.me.rank > leader.rank


def _message(
    state: Candidacy,
    kind: MessageKind,
    to: str,
    *,
    number: int | None = None,
    ids: tuple[Identifier, ...] = (),
) -> Message:
    return Message(
        id=state.id,
        to=to,
        sender=state.me.owner,
        rank=state.me.rank,
        kind=kind,
        number=state.number if number is None else number,
        ids=ids,
    )


def _expecting(state: Candidacy, now: float) -> Candidacy:
    return replace(state, phase=ElectionPhase.EXPECTING, until=now + state.times.answer)


def _elected(state: Candidacy, now: float) -> Candidacy:
    return replace(state, phase=ElectionPhase.ELECTED, until=now + state.times.lease)


# ---- bully


def _bully_begins(state: Candidacy, now: float) -> Step:
    state = replace(state, number=state.number + 1)
    higher = [other for other in state.others if other > state.me]
    if not higher:
        return _bully_wins(state, now)
    asking = replace(state, phase=ElectionPhase.ASKING, until=now + state.times.answer)
    return Step(
        asking, tuple(_message(state, MessageKind.ELECTION, other.owner) for other in higher)
    )


def _bully_wins(state: Candidacy, now: float) -> Step:
    sends = tuple(_message(state, MessageKind.COORDINATOR, other.owner) for other in state.others)
    return Step(_elected(state, now), sends)


def _bully_receives(state: Candidacy, message: Message, now: float) -> Step:
    sender = Identifier(message.rank, message.sender)
    match message.kind:
        case MessageKind.ELECTION if sender < state.me:
            return _bully_answers(state, message, now)
        case MessageKind.OK if (
            state.phase is ElectionPhase.ASKING and message.number == state.number
        ):
            return Step(_expecting(state, now))
        case MessageKind.COORDINATOR:
            return _bully_hears(state, sender, now)
        case _:
            return Step(state)


def _bully_answers(state: Candidacy, message: Message, now: float) -> Step:
    ok = _message(state, MessageKind.OK, message.sender, number=message.number)
    if state.phase in {ElectionPhase.ELECTED, ElectionPhase.LEADING}:
        return Step(state, (ok, _message(state, MessageKind.COORDINATOR, message.sender)))
    if state.phase is ElectionPhase.FOLLOWING:
        begun = _bully_begins(state, now)
        return Step(begun.after, (ok, *begun.sends))
    return Step(state, (ok,))


def _bully_hears(state: Candidacy, named: Identifier, now: float) -> Step:
    """Handles the COORDINATOR of another candidate, which says that it was elected."""
    if state.phase is ElectionPhase.LEADING:
        gives_way = state.preempt and named.rank > state.me.rank
        return Step(_expecting(state, now) if gives_way else state)
    if named > state.me:
        return Step(_expecting(state, now))
    if state.phase in {ElectionPhase.ASKING, ElectionPhase.ELECTED}:
        return Step(state)
    if _outranks(state, named):
        return _bully_begins(state, now)
    return Step(_expecting(state, now))


# ---- ring


def _ring_begins(state: Candidacy, now: float) -> Step:
    state = replace(state, number=state.number + 1, silent=frozenset())
    return _passed_on(state, (state.me,), state.number, now)


def _passed_on(state: Candidacy, ids: tuple[Identifier, ...], number: int, now: float) -> Step:
    """Passes the list to the next candidate; where there is none, it was around."""
    left = [other for other in state.others if other.owner not in state.silent]
    if not left or len(ids) >= MOST_LISTED:
        return _closed(state, ids, now, unlisted=left)
    following = _next_of(state.me, left)
    if state.phase is not ElectionPhase.ELECTED:
        until = now + state.times.turn(min(len(state.others), MOST_LISTED))
        state = replace(state, phase=ElectionPhase.ASKING, until=until)
    send = _message(state, MessageKind.ELECTION, following.owner, number=number, ids=ids)
    return Step(state, (send,))


def _next_of(me: Identifier, others: Iterable[Identifier]) -> Identifier:
    """The lowest of those above, else the lowest of all."""
    ordered = sorted(others)
    return next((other for other in ordered if other > me), ordered[0])


def _closed(
    state: Candidacy,
    ids: tuple[Identifier, ...],
    now: float,
    *,
    unlisted: Iterable[Identifier] = (),
) -> Step:
    """Elects the highest candidate of the list, which was around, or of those that it lacks."""
    elected = max((*ids, *unlisted))
    state = _elected(state, now) if elected == state.me else _expecting(state, now)
    return Step(
        state,
        tuple(
            _message(state, MessageKind.COORDINATOR, other.owner, ids=(elected,))
            for other in sorted({*state.others, *ids} - {state.me})
        ),
    )


def _ring_receives(state: Candidacy, message: Message, now: float) -> Step:
    match message.kind, message.ids:
        case MessageKind.ELECTION, (first, *_):
            return _ring_takes(state, message, first, now)
        case MessageKind.COORDINATOR, (elected,) if state.phase is not ElectionPhase.LEADING:
            if elected == state.me:
                return Step(_elected(state, now))
            if state.phase is ElectionPhase.ELECTED and elected < state.me:
                return Step(state)
            return Step(_expecting(state, now))
        case _:
            return Step(state)


def _ring_takes(state: Candidacy, message: Message, first: Identifier, now: float) -> Step:
    """Handles a list that `first` has begun."""
    if first == state.me and (message.number, ElectionPhase.ASKING) != (state.number, state.phase):
        return Step(state)
    if state.phase is ElectionPhase.LEADING:
        leads = _message(state, MessageKind.COORDINATOR, first.owner, ids=(state.me,))
        return Step(state, (leads,))
    if state.me in message.ids:
        return _closed(state, message.ids, now)
    return _passed_on(state, (*message.ids, state.me), message.number, now)


def _ring_skips(state: Candidacy, message: Message, now: float) -> Step:
    """Passes the list to the candidate behind the next one, which did not fetch it."""
    if state.phase not in {ElectionPhase.ASKING, ElectionPhase.ELECTED}:
        return Step(state)
    state = replace(state, silent=state.silent | {message.to})
    return _passed_on(state, message.ids, message.number, now)
