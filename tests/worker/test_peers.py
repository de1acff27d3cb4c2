"""Which tokens a worker leaves to others, for how long, and who the others are."""

from collections import Counter
from datetime import timedelta

from blackboard.model import Token
from blackboard.worker.peers import LEFT, LONGEST, NEVER, OWN, REMEMBERED, Peers
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
        made.note(other, types, 0.0)
    return made


def test_a_worker_that_is_alone_leaves_nothing() -> None:
    alone = peers_of("me", ["me"])
    assert alone.most == 0
    assert alone.left(token(1)) is OWN


def test_each_token_is_first_for_one_second_for_another_and_so_on() -> None:
    all_of_them = [peers_of(name, NAMES) for name in NAMES]
    assert {one.most for one in all_of_them} == {len(NAMES) - 1}
    first = Counter[int]()
    for number in range(1000):
        shares = [one.left(token(number)).share for one in all_of_them]
        assert sorted(shares) == [n / len(NAMES) for n in range(len(NAMES))]
        first[shares.index(0.0)] += 1
    assert all(80 < count < 175 for count in first.values()), first


def test_who_comes_takes_from_each_and_moves_nothing_else() -> None:
    before = [peers_of(name, NAMES[:-1]) for name in NAMES[:-1]]
    after = [peers_of(name, NAMES) for name in NAMES]
    for number in range(200):
        owner = [one.left(token(number)) for one in before].index(OWN)
        now = [one.left(token(number)) for one in after].index(OWN)
        assert now in {owner, len(NAMES) - 1}


def test_a_token_is_left_a_little_longer_for_each_that_comes_first() -> None:
    for name in NAMES:
        left = peers_of(name, NAMES).left(token(7))
        first = round(left.share * len(NAMES))
        assert left.until == (START + min(first * LEFT, LONGEST) if first else NEVER)


def test_it_is_left_to_those_that_claim_others_before_it_though_not_for_long() -> None:
    number = next(n for n in range(100) if peers_of("me", ["it"]).left(token(n)) is not OWN)
    for after in (timedelta(seconds=1), LONGEST, timedelta(hours=1)):
        mine = peers_of("me", ["it"])
        mine.note("it", ["feed"], 0.0, claimed=START + after)
        assert mine.left(token(number)).until == START + min(after + LEFT, LONGEST)
        mine.note("it", ["feed"], 1.0, claimed=START)
        assert mine.left(token(number)).until == START + min(after + LEFT, LONGEST), "the latest"


def test_peers_are_those_of_the_type() -> None:
    mine = peers_of("me", NAMES, ["plain", "strange"])
    assert all(mine.left(token(n)) is OWN for n in range(50))
    assert any(mine.left(token(n, "plain")) is not OWN for n in range(50))


def test_those_that_were_not_heard_of_for_long_are_forgotten() -> None:
    mine = peers_of("me", ["one", "two"])
    mine.note("two", ["feed"], 100.0)
    mine.forget_lost(REMEMBERED)
    assert mine.most == 2
    mine.forget_lost(REMEMBERED + 1)
    assert mine.most == 1
    mine.forget_lost(100.0 + REMEMBERED + 1)
    assert mine.most == 0
    assert all(mine.left(token(n)) is OWN for n in range(50))
