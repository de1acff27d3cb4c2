"""How partitions are shared: what one worker decides, and what many come to, round by round."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from blackboard.rules.shares import (
    HURRY,
    NEGLECTED,
    UNTAKEN,
    WATCHFUL,
    Balance,
    Decision,
    Picture,
    counting,
    decide,
    names_of,
    shares,
    youngest,
)


def picture(
    held: str = "",
    *,
    workers: str,
    free: Sequence[str] = (),
    seconds: float = 0.0,
    stale: dict[str, str] | None = None,
    waiting: Sequence[str] = (),
) -> Picture:
    """`held` has one letter for each partition that is held: its owner, in capitals where the
    partition is paused.
    """
    return Picture(
        held={f"{number:02}": owner.lower() for number, owner in enumerate(held)},
        paused=[f"{number:02}" for number, owner in enumerate(held) if owner.isupper()],
        stale=stale or {},
        free=dict.fromkeys(free, seconds),
        waiting=waiting,
        workers=workers,
    )


@pytest.mark.parametrize("workers", range(1, 6))
def test_shares_add_up_and_differ_by_one_at_the_most(workers: int) -> None:
    for partitions in range(12):
        pick = random.Random(partitions * 10 + workers)
        held = {f"w{number}": pick.randrange(4) for number in range(workers)}
        found = shares(partitions, held, dict.fromkeys(held, 0))
        assert sum(found.values()) == partitions, held
        assert max(found.values()) - min(found.values()) <= 1, held
        assert found.keys() == held.keys()


def test_who_holds_most_has_the_odd_one_and_then_the_first_by_name() -> None:
    none = Counter[str]()
    assert shares(7, {"a": 2, "b": 3, "c": 2}, none) == {"a": 2, "b": 3, "c": 2}
    assert shares(8, {"a": 0, "b": 3, "c": 0}, none) == {"a": 3, "b": 3, "c": 2}


@pytest.mark.parametrize("workers", range(1, 6))
def test_shares_hold_all_that_is_paused_and_are_even_but_for_that(workers: int) -> None:
    for partitions in range(12):
        pick = random.Random(partitions * 10 + workers)
        owners = Counter(pick.choices(range(workers), k=partitions))
        held = {f"w{number}": owners[number] for number in range(workers)}
        paused = {one: pick.randint(0, count) for one, count in held.items()}
        found = shares(partitions, held, paused)
        assert sum(found.values()) == partitions, (held, paused)
        assert all(found[one] >= paused[one] for one in held), (held, paused)
        others = [found[one] for one in held if found[one] > paused[one]]
        assert max(others, default=0) <= min(found.values()) + 1, (held, paused)


def test_what_is_paused_stays_and_the_others_share_the_rest() -> None:
    found = picture("AAAAAAbbbbc", workers="abc")
    assert [decide(found, one) for one in "abc"] == [
        Decision(),
        Decision(release=2 - 1),
        Decision(again=HURRY),
    ]
    assert decide(picture("AAAAAAbbbc", workers="abc", free=["x"]), "c").take == ("x",)
    assert decide(picture("AAab", workers="ab"), "a") == Decision(release=1)


def test_a_group_that_nobody_holds_anything_of_is_dealt_in_turn() -> None:
    free = names_of(5)
    assert decide(picture(workers="ab", free=free), "a").take == ("0", "1", "3")
    assert decide(picture(workers="ab", free=free), "b").take == ("2", "4")


def test_one_who_lacks_more_comes_before_one_who_lacks_less() -> None:
    """It looks often, and the other may not know yet that it lacks anything."""
    found = picture("aaaabbbcc", workers="abc", free=["x"], waiting=["y", "z"])
    assert decide(found, "c").take == ("x",)
    assert decide(found, "b").take == ()


def test_what_failed_and_is_not_ready_counts_and_is_not_taken() -> None:
    found = picture("bb", workers="ab", waiting=["x", "y"])
    assert decide(found, "a") == Decision(again=HURRY)


def test_a_stale_partition_goes_back_to_its_owner_where_that_lives_and_has_room() -> None:
    stale = {"x": "a", "y": "b", "z": "gone"}
    found = picture("c", workers="abc", stale=stale, free=["w"])
    assert decide(found, "a").take == ("w", "x")
    assert decide(found, "b").take == ("y",)
    one = picture("b", workers="ab", stale={"x": "b", "y": "gone", "z": "gone"})
    assert decide(one, "a").take == ("y", "z"), "b has room for one"
    full = picture("bb", workers="ab", stale={"x": "b", "y": "b"})
    assert decide(full, "a").take == ("x", "y"), "b has no room"


def test_what_was_free_for_a_while_or_stale_for_a_round_is_any_workers_who_has_room() -> None:
    for found in (
        picture("cccc", workers="abc", free=["x", "y"]),
        picture("cccc", workers="abc", stale={"x": "gone", "y": "gone"}),
    ):
        assert decide(found, "a") == Decision(take=("x",), again=HURRY)
        taken = decide(found, "a", left={"x", "y", "taken since"})
        assert taken == Decision(take=("x", "y"), contended=True, again=HURRY)
        assert decide(found, "c", left={"x", "y"}).take == ()


def test_workers_do_not_all_begin_with_the_same_of_what_any_of_them_may_take() -> None:
    names = [f"f{number:02}" for number in range(16)]

    def extra(me: str) -> set[str]:
        """What a worker takes besides the two that are dealt to it."""
        dealt, all_of_it = (
            decide(picture("z" * 29, workers="abcdefghz", free=names), me, left=left).take
            for left in ([], names)
        )
        assert len(dealt) == 2
        return {*all_of_it} - {*dealt}

    extras = [extra(me) for me in "abcdefgh"]
    assert all(len(some) == 3 for some in extras)
    assert len(set[str]().union(*extras)) > 10


def test_a_late_worker_takes_what_is_free_overrides_nothing_and_lets_nothing_go() -> None:
    found = picture("b", workers="ab", stale={"x": "gone"}, free=["y", "z"])
    assert decide(found, "a", late=True).take == ("y",)
    assert decide(picture("aaab", workers="ab"), "a", late=True) == Decision()


def test_a_slow_worker_releases_what_is_too_much_and_overrides_nothing() -> None:
    """One that is late all the time: it would keep all that it has while its machine is busy."""
    found = picture("aaab", workers="ab")
    assert decide(found, "a", late=True, slow=True) == decide(found, "a") == Decision(release=1)
    found = picture("bb", stale={"x": "gone"}, free=["y"], workers="ab")
    assert decide(found, "a", late=True, slow=True).take == ("y",)


def test_nothing_is_released_while_something_is_stale_or_was_free_for_long() -> None:
    def found(**about: Any) -> Decision:
        return decide(picture("aaaab", workers="ab", **about), "a")

    assert found() == Decision(release=1)
    assert found(free=["x"]) == Decision(release=1, again=WATCHFUL)
    assert found(free=["x"], seconds=NEGLECTED) == Decision(again=WATCHFUL)
    assert found(stale={"x": "gone"}) == Decision(again=WATCHFUL)
    assert decide(picture("aaaab", workers="ab"), "b") == Decision(again=HURRY)


def test_which_workers_have_one_more_stays_while_partitions_move() -> None:
    """So workers that look one after the other come to the same releases."""
    assert decide(picture("aaaaaabbbbbbccccc", workers="abcd"), "b").release == 2
    assert decide(picture("aaaaabbbbbbccccc", workers="abcd", free=["x"]), "b").release == 2
    assert decide(picture("aaaaabbbbccccc", workers="abcd", free=["x", "y", "z"]), "a") == Decision(
        again=WATCHFUL
    )


def test_one_who_leaves_has_no_share_and_counts_no_more() -> None:
    live = {"a": True, "b": True, "new": False}

    def found(owners: str = "", leaving: str = "", *, begins: bool = False) -> frozenset[str]:
        return counting(live, owners=owners, leaving=leaving, me="me", begins=begins)

    assert found("a") == {"a", "b", "me"}
    assert found("ab", leaving="b") == {"a", "me"}
    assert found("a", begins=True) == {"a", "b", "new", "me"}
    assert found(begins=True, leaving="ab") == {"new", "me"}
    assert found("a", leaving="me") == {"a", "b", "me"}
    assert counting(live, owners=["new", "x"], leaving=[], me="me", begins=False) == {
        "a",
        "b",
        "new",
        "me",
    }, "x holds something, and is not announced"


def test_the_youngest_go_first() -> None:
    assert youngest({"x": 1.0, "y": 3.0, "z": 3.0, "w": 2.0}, 3) == ["y", "z", "w"]
    assert youngest({"x": 1.0}, 0) == []


@pytest.mark.parametrize(
    ("partitions", "names"), [(1, ("0",)), (11, ("00", "01", "10")), (["b", "a"], ("b", "a"))]
)
def test_partitions_by_number_have_names_of_one_width(
    partitions: int | list[str], names: tuple[str, ...]
) -> None:
    assert [one for one in names_of(partitions) if one in names] == list(names)


# ---- many workers, round by round


@dataclass
class Fleet:
    """Workers that see the group as it is, and look again when they have decided to."""

    balance: Balance
    owners: dict[str, str | None]
    workers: list[str]
    pick: random.Random
    drain: float = 0.0
    """A pump that is asked to end does so within these seconds."""
    moves: int = 0
    gap: float = 0.0
    """The longest time for which a partition was free."""
    ends: dict[str, float] = field(default_factory=dict)
    """When each of the pumps ends that was asked to."""
    freed: dict[str, float] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)
    now: float = 0.0
    looks: dict[str, float] = field(default_factory=dict)
    """When each looks next; the first time at any moment of a round."""

    def rounds(self, count: float) -> None:
        end = self.now + count * ROUND
        while self.now < end:
            for one in self.workers:
                self.looks.setdefault(one, self.now + self.pick.uniform(0.0, ROUND))
            me = min(self.workers, key=self.looks.__getitem__)
            self.now = max(self.looks[me], self.now)
            self.looks[me] = self.now + (self.look(me) or ROUND)

    def look(self, me: str) -> float | None:
        for one in [one for one, end in self.ends.items() if end <= self.now]:
            self.freed[one], self.owners[one] = self.ends.pop(one), None
        held = {one: owner for one, owner in self.owners.items() if owner is not None}
        seen = Picture(
            held=held,
            stale={},
            free={one: self.now - self.freed.get(one, 0.0) for one in self.owners.keys() - held},
            waiting=(),
            workers=list(self.workers),
        )
        left = [one for one, seconds in seen.free.items() if seconds >= UNTAKEN]
        decision = decide(seen, me, balance=self.balance, left=left)
        for one in decision.take:
            self.owners[one] = me
            self.moves += 1
            self.since[one] = self.moves
            self.gap = max(self.gap, seen.free[one])
        mine = [one for one, owner in held.items() if owner == me]
        goes_on = {one: float(self.since[one]) for one in mine if one not in self.ends}
        for one in youngest(goes_on, decision.release - (len(mine) - len(goes_on))):
            self.ends[one] = self.now + self.pick.uniform(0.0, self.drain)
        return decision.again

    def leave(self, count: int) -> None:
        for gone in [self.workers.pop() for _ in range(count)]:
            lost = [one for one, owner in self.owners.items() if owner == gone]
            self.owners |= dict.fromkeys(lost)
            self.freed |= dict.fromkeys(lost, self.now)

    @property
    def counts(self) -> list[int]:
        held = Counter(self.owners.values())
        return sorted(held[one] for one in self.workers)

    def is_balanced(self) -> bool:
        is_even = self.counts[-1] - self.counts[0] <= 1
        return is_even and not self.ends and None not in self.owners.values()


def fleet(partitions: int, workers: int, balance: Balance = Balance.SHARES) -> Fleet:
    found = Fleet(
        balance=balance,
        owners=dict.fromkeys(names_of(partitions)),
        workers=[f"w{number:02}" for number in range(workers)],
        pick=random.Random(partitions + workers),
    )
    found.rounds(3)
    assert found.is_balanced()
    assert found.moves == partitions
    found.moves, found.gap = 0, 0.0
    return found


ROUND = 10.0
SIZES = [(12, 3), (73, 10), (5, 8), (64, 1), (1, 4)]


@pytest.mark.parametrize(("partitions", "workers"), SIZES)
@pytest.mark.parametrize("balance", Balance)
def test_nothing_moves_once_it_is_shared(partitions: int, workers: int, balance: Balance) -> None:
    some = fleet(partitions, workers, balance)
    some.rounds(20)
    assert some.moves == 0


@pytest.mark.parametrize(("partitions", "workers"), SIZES)
@pytest.mark.parametrize("joining", [1, 3])
def test_those_who_join_get_their_share_within_some_rounds_by_the_fewest_moves(
    partitions: int, workers: int, joining: int
) -> None:
    some = fleet(partitions, workers)
    some.workers += [f"n{number}" for number in range(joining)]
    some.rounds(4)  # they are seen within the first
    assert some.is_balanced()
    owned = Counter(some.owners.values())
    assert some.moves == sum(owned[f"n{number}"] for number in range(joining))


@pytest.mark.parametrize(("partitions", "workers", "joining"), [(100, 9, 9), (300, 30, 31)])
def test_many_workers_release_side_by_side_for_many_who_join(
    partitions: int, workers: int, joining: int
) -> None:
    some = fleet(partitions, workers)
    some.drain = ROUND
    some.workers += [f"n{number:02}" for number in range(joining)]
    some.rounds(2.5)
    assert some.is_balanced()
    assert some.moves == sum(some.counts[:joining])
    assert some.gap <= 5.0


@pytest.mark.parametrize(("partitions", "workers"), [(12, 3), (73, 10), (5, 8)])
def test_what_the_dead_held_is_all_that_moves(partitions: int, workers: int) -> None:
    some = fleet(partitions, workers)
    before = Counter(some.owners.values())
    some.leave(workers // 2)
    orphans = partitions - sum(before[one] for one in some.workers)
    some.rounds(3)
    assert some.is_balanced()
    assert some.moves == orphans


def test_one_who_holds_most_and_all_of_it_paused_keeps_no_other_from_being_stolen_from() -> None:
    found = picture("AAAAbbbc", workers="abc")
    taken_from = {one: decide(found, one, balance=Balance.STEAL).release for one in "abc"}
    assert taken_from == {"a": 0, "b": 1, "c": 0}
    assert decide(picture("AAAb", workers="ab"), "a", balance=Balance.STEAL) == Decision()


def test_a_worker_that_steals_releases_nothing_while_something_is_free_and_looks_again_soon() -> (
    None
):
    for free, decision in (([], Decision(release=1)), (["x"], Decision(again=WATCHFUL))):
        found = picture("aaaab", workers="ab", free=free)
        assert decide(found, "a", balance=Balance.STEAL) == decision


def test_stealing_moves_one_in_a_round_until_none_has_two_more_than_another() -> None:
    some = fleet(12, 2, Balance.STEAL)
    some.workers.append("new")
    some.rounds(2)
    assert some.moves <= 4
    assert not some.is_balanced()
    some.rounds(8)
    assert some.is_balanced()
    assert some.moves == 4
