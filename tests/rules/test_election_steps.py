"""Single steps of an election: the table of `rules/election.py`, row by row."""

from typing import Any

import pytest

from blackboard.model import Identifier, Message, MessageKind, replace
from blackboard.rules.election import (
    Candidacy,
    ElectionKind,
    ElectionPhase,
    ElectionTimes,
    Event,
    Looked,
    Received,
    Step,
    Undelivered,
    step,
)

TIMES = ElectionTimes(lease=15.0)
NOW, LATER = 100.0, 107.0
ANSWER, TURN_OF_TWO = 12.0, 34.0
A, B, C = Identifier(1, "a"), Identifier(2, "b"), Identifier(3, "c")
BULLY, RING = ElectionKind.BULLY, ElectionKind.RING
FOLLOWING, ASKING, EXPECTING, ELECTED, LEADING = ElectionPhase
ELECTION, OK, COORDINATOR = MessageKind.ELECTION, MessageKind.OK, MessageKind.COORDINATOR


def candidate(kind: ElectionKind, phase: ElectionPhase, **said: Any) -> Candidacy:
    """B, between A and C, in its fourth election."""
    about: dict[str, Any] = {"until": LATER, "number": 4, "others": (A, C)} | said
    return Candidacy(kind=kind, id="report", me=B, times=TIMES, phase=phase, **about)


def message(kind: MessageKind, sender: Identifier, to: str = "b", **said: Any) -> Message:
    about: dict[str, Any] = {"number": 4, "ids": ()} | said
    return Message(id="report", to=to, sender=sender.owner, rank=sender.rank, kind=kind, **about)


def received(kind: MessageKind, sender: Identifier, **said: Any) -> Received:
    return Received(message(kind, sender, **said))


def after(state: Candidacy, event: Event) -> Step:
    return step(state, event, now=NOW)


def test_durations_follow_from_the_lease() -> None:
    assert (TIMES.check, TIMES.answer) == (5.0, ANSWER)
    assert [TIMES.turn(others) for others in (0, 2, 5)] == [24.0, TURN_OF_TWO, 49.0]


@pytest.mark.parametrize("kind", [BULLY, RING])
@pytest.mark.parametrize("phase", ElectionPhase)
def test_a_look_notes_who_is_there_in_every_phase(kind: ElectionKind, phase: ElectionPhase) -> None:
    for leader in (None, A, B, C):
        state = candidate(kind, phase, others=(C,), silent=frozenset({"c"}))
        done = after(state, Looked(others=(A, C), leader=leader)).after
        assert done.others == (A, C)
        if leader == C:
            assert (done.phase, done.silent) == (FOLLOWING, frozenset())


@pytest.mark.parametrize("kind", [BULLY, RING])
def test_one_that_gives_way_leads_again_when_its_time_is_up(kind: ElectionKind) -> None:
    looked = Looked(others=(A, C), leader=B)
    assert after(candidate(kind, EXPECTING), looked).after.phase is EXPECTING
    assert after(candidate(kind, EXPECTING, until=NOW), looked).after.phase is LEADING


def test_a_bully_begins_with_the_higher_ones_and_wins_when_there_are_none() -> None:
    done = after(candidate(BULLY, FOLLOWING), Looked(others=(A, B, C)))
    assert done.after == candidate(BULLY, ASKING, number=5, others=(A, B, C), until=NOW + ANSWER)
    assert done.sends == (message(ELECTION, B, to="c", number=5),)
    won = after(candidate(BULLY, FOLLOWING), Looked(others=(A,)))
    assert won.after == candidate(BULLY, ELECTED, number=5, others=(A,), until=NOW + 15.0)
    assert won.sends == (message(COORDINATOR, B, to="a", number=5),)


@pytest.mark.parametrize("phase", ElectionPhase)
def test_a_bully_answers_lower_ones_alone(phase: ElectionPhase) -> None:
    state = candidate(BULLY, phase)
    ok = message(OK, B, to="a", number=9)
    done = after(state, received(ELECTION, A, number=9))
    assert done.sends[0] == ok
    names = {ELECTED: (COORDINATOR,), LEADING: (COORDINATOR,), FOLLOWING: (ELECTION,)}
    assert tuple(one.kind for one in done.sends[1:]) == names.get(phase, ())
    for other in (B, C):
        assert after(state, received(ELECTION, other)) == Step(state)


def test_an_ok_is_for_the_election_that_asks() -> None:
    asks = candidate(BULLY, ASKING)
    expects = replace(asks, phase=EXPECTING, until=NOW + ANSWER)
    assert after(asks, received(OK, C)) == Step(expects)
    assert after(asks, received(OK, C, number=3)) == Step(asks)
    follows = candidate(BULLY, FOLLOWING)
    assert after(follows, received(OK, C)) == Step(follows)


@pytest.mark.parametrize("phase", ElectionPhase)
@pytest.mark.parametrize("preempt", [True, False])
@pytest.mark.parametrize("named", [A, B, C, Identifier(2, "c")])
def test_a_bully_that_hears_of_a_coordinator(
    phase: ElectionPhase, *, preempt: bool, named: Identifier
) -> None:
    state = candidate(BULLY, phase, preempt=preempt)
    expects = replace(state, phase=EXPECTING, until=NOW + ANSWER)
    done = after(state, received(COORDINATOR, named))
    if phase is LEADING:
        assert done == Step(expects if preempt and named == C else state)
    elif named > B:
        assert done == Step(expects)
    elif phase in {ASKING, ELECTED}:
        assert done == Step(state)
    elif preempt and named == A:
        assert done.after.phase is ASKING
    else:
        assert done == Step(expects)


def test_a_ring_begins_a_new_list_for_its_successor() -> None:
    state = candidate(RING, FOLLOWING, silent=frozenset({"c"}))
    done = after(state, Looked(others=(A, B, C)))
    until = NOW + TIMES.turn(3)
    assert done.after == candidate(RING, ASKING, number=5, others=(A, B, C), until=until)
    assert done.sends == (message(ELECTION, B, to="c", number=5, ids=(B,)),)


def test_a_list_that_was_around_names_its_highest() -> None:
    state = candidate(RING, ASKING)
    done = after(state, received(ELECTION, A, ids=(B, A)))
    assert done.after == replace(state, phase=ELECTED, until=NOW + 15.0)
    assert done.sends == tuple(message(COORDINATOR, B, to=to, ids=(B,)) for to in "ac")
    higher = after(state, received(ELECTION, A, ids=(B, C, A)))
    assert higher.after == replace(state, phase=EXPECTING, until=NOW + ANSWER)


@pytest.mark.parametrize("phase", ElectionPhase)
@pytest.mark.parametrize("named", [A, B, C])
def test_one_of_a_ring_hears_of_a_coordinator(phase: ElectionPhase, named: Identifier) -> None:
    state = candidate(RING, phase)
    done = after(state, received(COORDINATOR, C, ids=(named,)))
    if phase is LEADING or (phase is ELECTED and named == A):
        assert done == Step(state)
    elif named == B:
        assert done == Step(replace(state, phase=ELECTED, until=NOW + 15.0))
    else:
        assert done == Step(replace(state, phase=EXPECTING, until=NOW + ANSWER))


def test_what_means_nothing_to_a_ring_changes_nothing() -> None:
    asks = candidate(RING, ASKING)
    assert after(asks, received(OK, C)) == Step(asks)
    assert after(asks, received(ELECTION, C)) == Step(asks), "a list without names"
    assert after(asks, received(ELECTION, A, number=3, ids=(B, C, A))) == Step(asks)
    follows = candidate(RING, FOLLOWING)
    undelivered = Undelivered(message(ELECTION, B, to="c", ids=(B,)))
    assert after(follows, undelivered) == Step(follows)
    skips = after(asks, undelivered)
    assert skips.after == replace(asks, silent=frozenset({"c"}), until=NOW + TURN_OF_TWO)
    assert skips.sends == (message(ELECTION, B, to="a", ids=(B,)),)
