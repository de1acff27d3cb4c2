"""The published elections as transcripts of the pure rules, and ten thousand with all faults."""

from itertools import permutations

import pytest

from blackboard.model import Identifier, Message, MessageKind, replace
from blackboard.protocol.rows import data_of
from blackboard.rules.election import MOST_LISTED, ElectionPhase, Looked, step
from blackboard.sharing.election import HIGHEST_RANK
from blackboard.table import units
from blackboard.tables.base import MAX_VALUE
from tests.support.elections import TIMES, Town, hold_elections


def settled(town: Town, rounds: int = 6) -> None:
    """Checks, messages and time, until one leads and all others follow."""
    for _ in range(rounds):
        town.looks()
        town.delivers()
        town.passes(TIMES.check)
    leader = town.leader
    assert leader is not None
    assert {town.phase(one) for one in town.alive} <= {
        ElectionPhase.LEADING,
        ElectionPhase.FOLLOWING,
    }
    assert town.phase(leader) is ElectionPhase.LEADING


# ---- mutex


def test_of_a_mutex_the_first_that_looks_leads() -> None:
    town = Town("mutex", 3)
    town.looks(2, 1, 3)
    town.dies(2)
    town.looks(3, 1)
    assert town.transcript == ["2 leads", "3 leads"]
    assert town.stand == {1, 2, 3}


# ---- bully

BULLY_BEST = """
3 > 4 election
3 > 1 coordinator
3 > 2 coordinator
3 > 4 coordinator
3 leads
"""
BULLY_WORST = """
1 > 2 election
1 > 3 election
1 > 4 election
2 > 1 ok
2 > 3 election
2 > 4 election
3 > 1 ok
3 > 4 election
3 > 2 ok
3 > 1 coordinator
3 > 2 coordinator
3 > 4 coordinator
3 leads
"""


def lines(text: str) -> list[str]:
    return text.strip().splitlines()


@pytest.mark.parametrize(("notices", "told"), [(3, BULLY_BEST), (1, BULLY_WORST)])
def test_the_highest_of_four_is_dead_and_one_notices(notices: int, told: str) -> None:
    town = Town("bully", 4, dead=[4])
    town.looks(notices)
    town.delivers()
    town.passes(TIMES.answer)
    town.looks(3)
    town.delivers()
    assert town.transcript == lines(told)
    assert {town.phase(1), town.phase(2)} == {ElectionPhase.EXPECTING}
    town.looks()
    assert [town.phase(rank) for rank in (1, 2, 3)] == ["following", "following", "leading"]


@pytest.mark.parametrize("size", range(2, 9))
def test_the_bully_sends_as_many_messages_as_published(size: int) -> None:
    """The highest of `size` is dead. Best case: the next highest notices; worst: the lowest."""
    best, worst = Town("bully", size, dead=[size]), Town("bully", size, dead=[size])
    for town, notices in ((best, size - 1), (worst, 1)):
        town.looks(notices)
        town.delivers()
        town.passes(TIMES.answer)
        town.looks(size - 1)
        town.delivers()
        assert town.leader == size - 1
    assert best.counts == {"election": 1, "coordinator": size - 1}
    assert best.arrived["coordinator"] == size - 2
    oks = {"ok": (size - 1) * (size - 2) // 2} if size > 2 else {}
    assert worst.counts == {"election": size * (size - 1) // 2, **oks, "coordinator": size - 1}
    assert sum(worst.counts.values()) == size * (size - 1)


def test_a_bully_alone_leads_at_its_first_look() -> None:
    town = Town("bully", 1)
    town.looks()
    assert town.transcript == ["1 leads"]


WINNER_DIES = """
1 > 2 election
1 > 3 election
2 > 1 ok
2 > 3 election
3 > 1 ok
3 > 1 coordinator
3 > 2 coordinator
3 > 2 ok
3 > 2 coordinator
1 > 2 election
1 > 3 election
2 > 1 ok
2 > 3 election
2 > 1 coordinator
2 > 3 coordinator
2 leads
"""


def test_a_winner_dies_while_it_announces_itself() -> None:
    """Its COORDINATOR reaches 1 and not 2; both begin anew when its time is up."""
    town = Town("bully", 3)
    town.looks(1)
    town.delivers(most=4)
    town.mail = [one for one in town.mail if (one.kind, one.to) != ("coordinator", "2")]
    town.dies(3)
    town.delivers()
    assert town.phase(1) is town.phase(2) is ElectionPhase.EXPECTING
    town.passes(TIMES.answer)
    town.looks(1)
    town.delivers()
    town.looks(2)
    town.delivers()
    town.passes(TIMES.answer)
    town.looks(2)
    assert town.transcript == lines(WINNER_DIES)


def test_an_answer_that_dies_does_not_hang_an_election() -> None:
    """Nothing is published about a candidate that says OK and dies before its COORDINATOR."""
    town = Town("bully", 3, dead=[3])
    town.looks(1)
    town.delivers()
    town.dies(2)
    assert town.phase(1) is ElectionPhase.EXPECTING
    for _ in range(2):
        town.passes(TIMES.answer)
        town.looks(1)
    assert town.leader == 1


@pytest.mark.parametrize("order", list(permutations((1, 2, 3))))
@pytest.mark.parametrize("kind", ["bully", "ring"])
def test_elections_at_the_same_time_find_one_leader(kind: str, order: tuple[int, ...]) -> None:
    town = Town(kind, 4, dead=[4])
    town.looks(*order)
    settled(town)
    assert town.leader == 3


def test_a_higher_rank_takes_the_lead_and_the_leader_gives_way() -> None:
    town = Town("bully", 3, dead=[3])
    settled(town)
    assert town.leader == 2
    town.dead.clear()
    town.transcript.clear()
    town.looks(3)
    town.delivers()
    town.looks(2, 1, 3)
    assert town.transcript == ["3 > 1 coordinator", "3 > 2 coordinator", "2 steps down", "3 leads"]
    settled(town)
    assert town.leader == 3


def test_without_preempt_a_leader_stays() -> None:
    town = Town("bully", 3, dead=[3], preempt=False)
    settled(town)
    town.dead.clear()
    settled(town)
    assert town.leader == 2
    assert town.phase(3) is ElectionPhase.FOLLOWING


def test_among_equal_ranks_a_leader_stays() -> None:
    """The names alone would tell them apart, and those are drawn at each start."""
    town = Town("bully", 1)
    leader, joined = Identifier(1, "a"), Identifier(1, "b")
    state = step(town.states[1], Looked(others=(leader,), leader=leader), now=0.0).after
    assert state.me == Identifier(1, "1")
    assert joined > leader
    assert state.phase is ElectionPhase.FOLLOWING


def test_a_low_candidate_that_was_elected_is_overruled() -> None:
    """It had no answer in time from a higher one that is there."""
    town = Town("bully", 2)
    town.looks(1)
    town.lost()
    town.passes(TIMES.answer)
    town.looks(1)
    assert town.leader == 1
    town.delivers()
    assert town.transcript == [
        "1 > 2 election",
        "1 > 2 coordinator",
        "1 leads",
        "2 > 1 coordinator",
    ]
    town.looks(1, 2)
    assert town.leader == 2


# ---- ring

RING = """
2 > 3 election 2
3 > 4 election 2,3
3 > 1 election 2,3
1 > 2 election 2,3,1
2 > 1 coordinator 3
2 > 3 coordinator 3
2 > 4 coordinator 3
3 leads
"""


def test_a_list_goes_around_and_its_highest_leads() -> None:
    town = Town("ring", 4, dead=[4])
    town.looks(2)
    town.delivers()
    town.looks(3)
    assert town.transcript == lines(RING)
    town.looks()
    assert town.leader == 3


@pytest.mark.parametrize(
    ("size", "dead"), [(size, dead) for size in range(2, 9) for dead in range(3) if dead < size]
)
def test_the_ring_sends_as_many_messages_as_published(size: int, dead: int) -> None:
    """2(n - 1) for each that begins when the highest of n is dead, and one more for each dead
    candidate that was tried; with another dead one its own message is left out.
    """
    alive = size - dead
    town = Town("ring", size, dead=range(alive + 1, size + 1))
    town.looks(1)
    town.delivers()
    hops = alive if alive > 1 else 0
    assert town.counts == {
        **({"election": hops + dead} if hops + dead else {}),
        "coordinator": size - 1,
    }
    if dead == 1:
        assert sum(town.counts.values()) == 2 * (size - 1) + (alive > 1)


def test_dead_neighbours_are_passed_over() -> None:
    town = Town("ring", 6, dead=[2, 3, 4, 6])
    town.looks(1)
    town.delivers()
    assert [one for one in town.transcript if "election" in one] == [
        "1 > 2 election 1",
        "1 > 3 election 1",
        "1 > 4 election 1",
        "1 > 5 election 1",
        "5 > 6 election 1,5",
        "5 > 1 election 1,5",
    ]
    town.looks()
    assert town.leader == 5


def test_a_list_whose_beginner_has_died_is_closed_by_the_next() -> None:
    town = Town("ring", 3)
    town.looks(1)
    town.delivered(0)
    town.dies(1)
    town.delivers()
    assert town.transcript == [
        "1 > 2 election 1",
        "2 > 3 election 1,2",
        "3 > 1 election 1,2,3",
        "3 > 2 election 1,2,3",
        "2 > 1 coordinator 3",
        "2 > 3 coordinator 3",
    ]
    town.looks()
    assert town.leader == 3


def test_a_list_that_is_lost_is_begun_anew() -> None:
    town = Town("ring", 3)
    town.looks(1)
    town.lost()
    town.passes(TIMES.turn(2) - 0.1)
    town.looks(1)
    assert town.mail == []
    town.passes(0.1)
    town.looks(1)
    town.delivers()
    town.looks()
    assert town.leader == 3


def test_a_list_that_is_full_goes_no_further_and_the_highest_of_all_is_named() -> None:
    """One of more than some 500 candidates fitted no row, so that none of them ever led."""
    size = MOST_LISTED + 30
    town = Town("ring", size)
    town.looks(1)
    town.delivers()
    assert town.counts == {"election": MOST_LISTED - 1, "coordinator": size - 1}
    town.looks()
    assert town.leader == size


def test_where_the_highest_of_a_ring_is_dead_and_its_list_full_the_next_leads_later() -> None:
    size = MOST_LISTED + 2
    town = Town("ring", size, dead=[size])
    town.looks(1)
    town.delivers()
    town.looks()
    assert town.leader is None
    for rank, state in town.states.items():  # its announcement has run out
        left = tuple(other for other in state.others if other.rank < size)
        town.states[rank] = replace(state, others=left)
    town.passes(TIMES.answer)
    town.looks(1)
    town.delivers()
    town.looks()
    assert town.leader == size - 1


def test_a_full_list_fits_a_row_however_long_the_names_of_its_candidates_are() -> None:
    """A host has a name of 255 characters at the most."""
    names = [f"{'h' * 255}:4194304:{number:08}" for number in range(MOST_LISTED)]
    message = Message(
        id="report",
        to=names[0],
        sender=names[0],
        rank=HIGHEST_RANK,
        kind=MessageKind.ELECTION,
        number=1,
        ids=tuple(Identifier(HIGHEST_RANK, name) for name in names),
    )
    assert units(str(data_of(message)["ids"])) <= MAX_VALUE


def test_a_leader_does_not_pass_a_list_on() -> None:
    town = Town("ring", 3)
    town.looks(1)
    town.delivers()
    town.looks()
    town.looks()
    town.transcript.clear()
    town.passes(TIMES.turn(3))
    town.leader = None  # 1 cannot see the lock
    town.looks(1)
    town.leader = 3
    town.delivers()
    assert town.transcript == [
        "1 > 2 election 1",
        "2 > 3 election 1,2",
        "3 > 1 coordinator 3",
    ]


# ---- faults


@pytest.mark.parametrize("kind", ["bully", "ring"])
@pytest.mark.parametrize("reverse", [False, True])
def test_messages_that_arrive_twice_and_in_another_order_do_no_harm(
    kind: str, *, reverse: bool
) -> None:
    town = Town(kind, 4)
    town.looks(1, 2)
    for _ in range(200):
        if not town.mail:
            break
        place = len(town.mail) - 1 if reverse else 0
        town.delivered(place, again=True)
        town.delivered(place)
    settled(town)
    assert town.leader == 4


def test_elections_with_all_faults_never_have_two_leaders_of_a_term() -> None:
    """The proof has ten thousand of them."""
    hold_elections(300)
