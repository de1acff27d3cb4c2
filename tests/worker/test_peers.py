"""Who is the first to take a token, who comes next and when, and who the workers are."""

from collections import Counter
from datetime import timedelta

from blackboard.model import LONG_AGO, Token
from blackboard.worker.peers import FIRST, HEAD_START, LONGEST, Peers
from tests.support.clocks import START

NAMES = [f"host-{number}:{number}:aa" for number in range(8)]
TYPES = ["feed", "plain"]


def token(number: int, item_type: str = "feed") -> Token:
    return Token(
        id=f"item-{number}",
        type=item_type,
        spec="{}",
        fence=0,
        born=0,
        slot=START,
        ready=START,
        planned=START,
        attempt=1,
        runs=0,
        failures=0,
        once="",
    )


def peers_of(name: str, others: list[str], types: list[str] = TYPES) -> Peers:
    made = Peers(name, TYPES)
    for other in others:
        made.note(other, types)
    return made


def test_a_worker_that_is_alone_is_always_the_first() -> None:
    alone = peers_of("me", ["me"])
    assert alone.most == 0
    assert alone.turn(token(1)) is FIRST


def test_each_token_is_first_for_one_second_for_another_and_so_on() -> None:
    all_of_them = [peers_of(name, NAMES) for name in NAMES]
    assert {one.most for one in all_of_them} == {len(NAMES) - 1}
    first = Counter[int]()
    for number in range(1000):
        shares = [one.turn(token(number)).share for one in all_of_them]
        assert sorted(shares) == [n / len(NAMES) for n in range(len(NAMES))]
        first[shares.index(0.0)] += 1
    assert all(80 < count < 175 for count in first.values()), first


def test_who_comes_takes_from_each_and_moves_nothing_else() -> None:
    before = [peers_of(name, NAMES[:-1]) for name in NAMES[:-1]]
    after = [peers_of(name, NAMES) for name in NAMES]
    for number in range(200):
        owner = [one.turn(token(number)) for one in before].index(FIRST)
        now = [one.turn(token(number)) for one in after].index(FIRST)
        assert now in {owner, len(NAMES) - 1}


def test_each_has_its_turn_a_little_later_than_the_one_before() -> None:
    for name in NAMES:
        turn = peers_of(name, NAMES).turn(token(7))
        before = round(turn.share * len(NAMES))
        assert turn.begins == (START + min(before * HEAD_START, LONGEST) if before else LONG_AGO)


def test_an_urgent_token_is_every_workers_turn_at_once_in_the_same_order() -> None:
    """Its first worker may be full, and a slot that is free elsewhere be taken for long."""
    for name in NAMES:
        peers = peers_of(name, NAMES)
        turn = peers.turn(token(7), urgent=True)
        assert (turn.share, turn.begins) == (peers.turn(token(7)).share, LONG_AGO)


def test_one_that_claims_other_tokens_meanwhile_keeps_its_head_start_though_not_for_long() -> None:
    number = next(n for n in range(100) if peers_of("me", ["it"]).turn(token(n)) is not FIRST)
    for after in (timedelta(seconds=1), LONGEST, timedelta(hours=1)):
        mine = peers_of("me", ["it"])
        mine.note("it", ["feed"], START + after)
        assert mine.turn(token(number)).begins == START + min(after + HEAD_START, LONGEST)
        mine.note("it", ["feed"], START)
        assert mine.turn(token(number)).begins == START + min(after + HEAD_START, LONGEST)


def test_peers_are_those_of_the_type() -> None:
    mine = peers_of("me", NAMES, ["plain", "strange"])
    assert all(mine.turn(token(n)) is FIRST for n in range(50))
    assert any(mine.turn(token(n, "plain")) is not FIRST for n in range(50))


def test_what_the_membership_rows_say_replaces_what_was_known() -> None:
    mine = peers_of("me", ["one", "two"])
    mine.met({"two": ["plain"], "me": TYPES, "three": ["feed"]})
    assert mine.most == 2, "two takes feeds as well: it was seen to"
    mine.met({"two": TYPES})
    assert mine.most == 1
    mine.met({})
    assert mine.most == 0
    assert all(mine.turn(token(n)) is FIRST for n in range(50))
    mine.note("one", TYPES)
    assert mine.most == 1
