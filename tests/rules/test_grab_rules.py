"""The lease grab, step by step."""

import math
from collections.abc import Iterable

import pytest

from blackboard.errors import BadInput
from blackboard.rules.grab import (
    Action,
    Channel,
    DropIf,
    Event,
    Found,
    Get,
    Grab,
    Hash,
    Leaving,
    LockHolders,
    Notified,
    Publish,
    PumpEnded,
    PumpStarted,
    Put,
    Raced,
    RowsRead,
    SetIfAbsent,
    StartPump,
    StopPump,
    Times,
    WakeAt,
    Woken,
)

P = "07"
NAMES = [f"{number:02}" for number in range(12)]


Rows = dict[str, int]
"""How many partitions each node holds by the lock rows: P is one of those of `owl`, if any."""


def by_rows(held: Rows, paused: Iterable[str] = ()) -> LockHolders:
    holders = {P: "owl"} if held.get("owl") else {}
    for owner, number in held.items():
        missing = number - (owner == "owl")
        holders |= {f"{owner} {one}": owner for one in range(missing)}
    return LockHolders(holders, frozenset(paused))


class Node:
    """A node `fox` that is handed events; `did` has what followed, without moments to wake."""

    def __init__(
        self,
        *,
        partitions: Iterable[str] = NAMES,
        now: float = 1000.0,
        times: Times = Times(),  # noqa: B008 - it is frozen
        rows: Rows | None = None,
    ) -> None:
        """By the `rows`, all is free where none are given."""
        self.now = now
        self.rows = rows or {}
        self.paused: set[str] = set()
        self.grab, actions = Grab(node="fox", times=times).step(
            RowsRead(frozenset(partitions), frozenset()), now, by_rows(self.rows)
        )
        self.wakes_at = self._wake(actions)

    def _wake(self, actions: Iterable[Action]) -> float:
        return next((one.moment for one in actions if isinstance(one, WakeAt)), math.inf)

    def take(self, *events: Event) -> list[Action]:
        did: list[Action] = []
        for event in events:
            self.grab, actions = self.grab.step(event, self.now, by_rows(self.rows, self.paused))
            self.wakes_at = self._wake(actions)
            did += [one for one in actions if not isinstance(one, WakeAt)]
        return did

    def wakes(self) -> list[Action]:
        """It is woken at the moment that it asked for."""
        self.now = self.wakes_at
        return self.take(Woken())

    def runs(self, *partitions: str) -> None:
        """It has won these, and their pumps run."""
        for name in partitions:
            self.take(Raced(name, "fox"), Found(Hash.ALLOCATION, name, None), PumpStarted(name))

    def race(self, name: str) -> tuple[float, list[Action]]:
        """A race is published, and nothing else happens: how long it waits, and what it does."""
        begun = self.now
        self.take(Notified(Channel.GRAB_LEASE, name))
        waited = self.grab.parts[name].race_at - begun
        self.now += waited
        return waited, self.take(Woken())


def fox_with(*partitions: str) -> Node:
    node = Node()
    node.runs(*partitions)
    node.now += 10
    node.take(Woken())
    return node


# ---- durations


REFUSED = """
minimum=60: 60 s is not shorter than normal, 60 s: each race would find the mark of the one \
before (make minimum shorter, or normal longer)
maximum=119: 119 s is shorter than twice normal, 60 s: one lost message would void what is held \
(give 120 s or more)
shutdown=180: 180 s is not shorter than maximum, 180 s: what is held would be void before a pump \
must have ended (make shutdown shorter, or maximum longer)
per_held=0.049: 0.049 s is shorter than messages may take (give 0.05 s or more; 0.1 to 0.5 s are \
usual)
per_held=0: 0.0 is not a duration (give seconds, more than 0)
normal=-60: -60.0 is not a duration (give seconds, more than 0)
shutdown=nan: nan is not a duration (give seconds, more than 0)
maximum=inf: inf is not a duration (give seconds, more than 0)
"""


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_durations_that_cannot_work_together_are_refused_with_a_remedy(line: str) -> None:
    given, problem = line.split(": ", 1)
    field, value = given.split("=")
    with pytest.raises(BadInput) as refused:
        Times(**{field: float(value)})
    assert str(refused.value) == f"{field}: {problem}"


@pytest.mark.parametrize(
    ("field", "value"),
    [("minimum", 59.9), ("maximum", 120), ("shutdown", 179.9), ("per_held", 0.05)],
)
def test_durations_that_just_work_are_taken(field: str, value: float) -> None:
    assert getattr(Times(**{field: value}), field) == value


def test_a_pump_has_to_end_before_the_winner_gives_up() -> None:
    Times().check_drain(29.9)
    with pytest.raises(BadInput) as refused:
        Times().check_drain(30.0)
    assert str(refused.value) == (
        "drain: 30 s is not shorter than shutdown, 30 s: a winner gives up before the pump of the "
        "loser has to end (make drain shorter, or shutdown longer)"
    )


# ---- step 1


def test_a_node_looks_within_a_normal_lease_time_and_publishes() -> None:
    node = Node(partitions=[P])
    assert node.wakes_at == 1000 + node.grab.publishes_after(P)
    assert 35 <= node.grab.publishes_after(P) <= 60
    assert node.wakes() == [Get(Hash.GRAB, P)]
    assert node.take(Found(Hash.GRAB, P, None)) == [Publish(Channel.GRAB_LEASE, P)]


def test_while_a_race_is_won_no_other_is_published() -> None:
    node = Node(partitions=[P], times=Times(normal=60, minimum=40))
    node.wakes()
    assert node.now - 1000 < 80
    assert node.take(Found(Hash.GRAB, P, "owl")) == []
    assert node.wakes_at <= node.now + 60


@pytest.mark.parametrize(("quiet", "is_void"), [(79, False), (80, True)])
def test_a_mark_is_void_twice_the_minimum_time_after_the_race(quiet: int, *, is_void: bool) -> None:
    node = Node(partitions=[P], times=Times(normal=60, minimum=40))
    node.now += quiet
    clears = [DropIf(Hash.GRAB, P, "owl"), Publish(Channel.GRAB_LEASE, P)]
    assert node.take(Found(Hash.GRAB, P, "owl")) == (clears if is_void else [])


def test_a_notification_starts_the_normal_lease_time_anew() -> None:
    node = Node(partitions=[P])
    first = node.wakes_at
    node.now = first - 1
    node.race(P)
    node.take(Raced(P, "owl"))
    assert node.wakes_at == pytest.approx(first - 1 + (first - 1000))


def test_a_notification_that_was_quicker_than_the_answer_makes_it_void() -> None:
    node = Node(partitions=[P])
    node.wakes()
    node.take(Notified(Channel.GRAB_LEASE, P))
    assert node.take(Found(Hash.GRAB, P, None)) == []


def test_after_the_maximum_lease_time_both_hashes_are_cleared_first() -> None:
    node = Node(partitions=[P])
    while node.wakes_at < 1000 + 180:
        assert node.wakes() == [Get(Hash.GRAB, P)]
        node.take(Found(Hash.GRAB, P, "dead"))
    assert node.wakes_at == 1000 + 180
    assert node.wakes() == [Get(Hash.ALLOCATION, P), Get(Hash.GRAB, P)]
    assert node.wakes_at == node.now + node.grab.publishes_after(P)
    did = node.take(Found(Hash.ALLOCATION, P, "dead"), Found(Hash.GRAB, P, "dying"))
    assert did == [
        DropIf(Hash.ALLOCATION, P, "dead"),
        DropIf(Hash.GRAB, P, "dying"),
        Publish(Channel.GRAB_LEASE, P),
    ]


def test_a_name_in_the_hash_is_cleared_when_it_is_void_and_by_one_that_owns_nothing() -> None:
    clears = [DropIf(Hash.ALLOCATION, P, "owl")]
    node, owner, leaving = Node(partitions=[P]), fox_with(P), Node(partitions=[P])
    leaving.take(Leaving())
    assert node.take(Found(Hash.ALLOCATION, P, "owl")) == []
    for one in (node, owner, leaving):
        one.now = 1000 + 180
    assert node.take(Found(Hash.ALLOCATION, P, None)) == []
    assert node.take(Found(Hash.ALLOCATION, P, "owl")) == clears
    assert owner.take(Found(Hash.ALLOCATION, P, "owl")) == []
    assert leaving.take(Found(Hash.ALLOCATION, P, "owl")) == []


def test_one_that_leaves_or_has_won_by_now_publishes_nothing() -> None:
    leaving, winner = Node(partitions=[P]), Node(partitions=[P])
    for one in (leaving, winner):
        one.wakes()
    leaving.take(Leaving())
    winner.take(Raced(P, "fox"))
    assert leaving.take(Found(Hash.GRAB, P, None)) == []
    leaving.take(RowsRead(frozenset({P, "new"}), frozenset()))
    assert leaving.wakes_at == math.inf, "it looks at nothing"
    assert winner.take(Found(Hash.GRAB, P, None)) == []


def test_an_owner_publishes_nothing() -> None:
    node = Node(partitions=[P])
    node.runs(P)
    assert node.wakes() == [DropIf(Hash.GRAB, P, "fox")]
    assert node.wakes_at == math.inf


def test_a_node_without_partitions_waits_for_nothing() -> None:
    assert Grab(node="fox").step(Woken(), 1000.0, by_rows({})) == (Grab(node="fox"), ())


def test_nodes_do_not_look_at_one_moment() -> None:
    moments = [Grab(node=f"node {number}").publishes_after(P) for number in range(100)]
    assert len(set(moments)) == 100
    assert max(moments) - min(moments) > 20


# ---- step 2


@pytest.mark.parametrize("held", [1, 2, 4, 8])
def test_delays_are_those_of_the_formulas(held: int) -> None:
    owner = fox_with(*NAMES[:held])
    assert owner.race(NAMES[0])[0] == pytest.approx((held - 1) * 0.25)
    other = fox_with(*NAMES[:held])
    assert other.race(NAMES[11])[0] == pytest.approx((held + 0.5) * 0.25)


def test_an_owner_is_ahead_until_it_has_two_more() -> None:
    """Between it and a node with one less lie half a delay."""
    for held in range(1, 6):
        owner = fox_with(*NAMES[:held]).race(NAMES[0])[0]
        with_one_less = fox_with(*NAMES[: held - 1]).race(NAMES[11])[0]
        with_two_less = fox_with(*NAMES[: max(held - 2, 0)]).race(NAMES[11])[0]
        assert with_one_less - owner == pytest.approx(0.125)
        assert held == 1 or with_two_less - owner == pytest.approx(-0.125)


def test_what_is_won_counts_as_held_while_its_owner_lets_go() -> None:
    node = Node(rows={"owl": 1})
    node.take(Raced(P, "fox"), Found(Hash.ALLOCATION, P, "owl"))
    assert node.grab.held == {P}
    assert node.grab.running == frozenset()
    assert node.race("01")[0] == pytest.approx(1.5 * 0.25)


def test_two_notifications_are_one_race() -> None:
    node = Node(partitions=[P])
    node.take(Notified(Channel.GRAB_LEASE, P))
    first = node.wakes_at
    node.now += 0.1
    node.take(Notified(Channel.GRAB_LEASE, P))
    assert node.wakes_at == first
    assert node.wakes() == [SetIfAbsent(Hash.GRAB, P, "fox")]


def test_partitions_of_others_are_ignored() -> None:
    assert Node(partitions=[P]).take(Notified(Channel.GRAB_LEASE, "other")) == []


# ---- steps 3 to 6


def test_a_winner_of_a_free_partition_starts_marks_and_clears_its_win() -> None:
    node = Node(partitions=[P])
    assert node.race(P)[1] == [SetIfAbsent(Hash.GRAB, P, "fox")]
    won_at = node.now
    assert node.take(Raced(P, "fox")) == [Get(Hash.ALLOCATION, P)]
    assert node.take(Found(Hash.ALLOCATION, P, None)) == [StartPump(P)]
    assert node.take(PumpStarted(P)) == [Put(Hash.ALLOCATION, P, "fox")]
    assert node.wakes() == [DropIf(Hash.GRAB, P, "fox")]
    assert node.now == won_at + 10


def test_a_winner_waits_until_the_loser_has_let_go() -> None:
    node = Node(partitions=[P], rows={"owl": 2})
    node.race(P)
    assert node.take(Raced(P, "fox"), Found(Hash.ALLOCATION, P, "owl")) == [Get(Hash.ALLOCATION, P)]
    assert node.take(Notified(Channel.ALLOCATED, P)) == [StartPump(P)]
    assert node.take(Notified(Channel.ALLOCATED, P)) == []


def test_word_of_the_loser_may_be_quicker_than_the_answer() -> None:
    node = Node(partitions=[P], rows={"owl": 1})
    node.take(Raced(P, "fox"))
    assert node.take(Notified(Channel.ALLOCATED, P), Found(Hash.ALLOCATION, P, "owl")) == [
        StartPump(P)
    ]


def test_a_loser_stops_clears_and_says_so() -> None:
    node = fox_with(P, "00")
    assert node.race(P)[1] == [SetIfAbsent(Hash.GRAB, P, "fox")]
    assert node.take(Raced(P, "owl")) == [StopPump(P)]
    assert node.take(Notified(Channel.GRAB_LEASE, P)) == []
    assert node.take(PumpEnded(P)) == [
        DropIf(Hash.ALLOCATION, P, "fox"),
        Publish(Channel.ALLOCATED, P),
    ]
    assert node.grab.held == {"00"}


def test_a_pump_that_is_to_end_is_raced_for_by_others_alone() -> None:
    node = Node(partitions=[P, "00"])
    node.runs(P, "00")
    node.wakes()
    assert node.take(Notified(Channel.GRAB_LEASE, P), Raced(P, "owl")) == [StopPump(P)]
    assert node.wakes_at == math.inf
    node.take(Notified(Channel.GRAB_LEASE, P))
    assert node.wakes_at == math.inf
    assert node.grab.pumping == {P, "00"}


def test_an_owner_that_wins_keeps_what_it_has() -> None:
    node = fox_with(P)
    node.race(P)
    assert node.take(Raced(P, "fox")) == []
    assert node.wakes() == [DropIf(Hash.GRAB, P, "fox")]
    assert node.grab.running == {P}


def test_one_that_comes_too_late_and_owns_nothing_does_nothing() -> None:
    node = Node(partitions=[P])
    node.race(P)
    assert node.take(Raced(P, "owl")) == []


def test_a_winner_that_loses_the_next_race_while_it_waits_does_not_start() -> None:
    node = Node(partitions=[P], rows={"owl": 1})
    node.take(Raced(P, "fox"), Found(Hash.ALLOCATION, P, "dead"), Raced(P, "owl"))
    assert node.take(Notified(Channel.ALLOCATED, P)) == []
    assert node.grab.held == frozenset()
    node.wakes()
    assert node.wakes_at == 1000 + node.grab.publishes_after(P)


def test_a_race_without_an_answer_is_cleared_after_the_minimum_time() -> None:
    """It may have been won. An owner keeps its pump."""
    node = fox_with(P)
    node.race(P)
    begun = node.now
    assert node.take(Raced(P, None)) == []
    assert node.wakes() == [DropIf(Hash.GRAB, P, "fox")]
    assert node.now == begun + 10
    assert node.grab.running == {P}


def test_a_winner_whose_pump_does_not_start_waits_for_word_and_tries_once_more() -> None:
    node = Node(partitions=[P])
    node.take(Raced(P, "fox"), Found(Hash.ALLOCATION, P, None))
    assert node.take(PumpEnded(P)) == []
    assert node.take(Notified(Channel.ALLOCATED, P)) == [StartPump(P)]
    assert node.take(PumpEnded(P)) == []
    node.wakes()
    assert (node.wakes(), node.now) == ([StartPump(P)], 1000 + 30)
    assert node.take(PumpEnded(P)) == []
    assert node.grab.held == frozenset()


def test_a_pump_that_ends_by_itself_is_let_go_and_raced_for_at_once() -> None:
    node = fox_with(P)
    assert node.take(PumpEnded(P)) == [
        DropIf(Hash.ALLOCATION, P, "fox"),
        Publish(Channel.ALLOCATED, P),
        Publish(Channel.GRAB_LEASE, P),
    ]


def test_the_end_of_a_pump_that_it_does_not_run_is_nothing() -> None:
    node = Node(partitions=[P])
    assert node.take(PumpEnded(P)) == []
    node.take(Raced(P, "fox"))
    assert node.take(PumpEnded(P)) == []
    assert node.grab.held == {P}


def test_what_the_rows_say_is_taken_over() -> None:
    """Held without a race, while races were not possible; and lost without word."""
    node = fox_with(P)
    assert node.take(RowsRead(frozenset({P, "03", "04"}), frozenset({P, "03"}))) == [
        Put(Hash.ALLOCATION, "03", "fox")
    ]
    assert node.grab.running == {P, "03"}
    assert node.take(RowsRead(frozenset({P, "03", "04"}), frozenset({P, "03"}))) == []
    did = node.take(RowsRead(frozenset({P, "03"}), frozenset({"03"})))
    assert did[-1] == Publish(Channel.GRAB_LEASE, P)
    assert set(node.grab.parts) == {P, "03"}


def test_a_pump_that_is_being_started_is_not_yet_in_the_rows() -> None:
    node = Node(partitions=[P])
    node.take(Raced(P, "fox"), Found(Hash.ALLOCATION, P, None))
    assert node.take(RowsRead(frozenset({P}), frozenset())) == []
    assert node.take(PumpStarted(P)) == [Put(Hash.ALLOCATION, P, "fox")]


def test_a_node_that_leaves_stops_all_and_has_others_race_for_it() -> None:
    node = fox_with("00", "01")
    node.take(Raced("02", "fox"), Notified(Channel.GRAB_LEASE, "03"))
    did = node.take(Leaving())
    assert did == [StopPump("00"), StopPump("01"), DropIf(Hash.GRAB, "02", "fox")]
    assert node.take(PumpEnded("00")) == [
        DropIf(Hash.ALLOCATION, "00", "fox"),
        Publish(Channel.ALLOCATED, "00"),
        Publish(Channel.GRAB_LEASE, "00"),
    ]
    assert node.take(Notified(Channel.GRAB_LEASE, "00"), PumpEnded("01"), Woken()) == [
        DropIf(Hash.ALLOCATION, "01", "fox"),
        Publish(Channel.ALLOCATED, "01"),
        Publish(Channel.GRAB_LEASE, "01"),
    ]
    assert node.take(Raced("03", "fox")) == [DropIf(Hash.GRAB, "03", "fox")]
    assert node.wakes_at == math.inf


# ---- the rows


@pytest.mark.parametrize(
    ("mine", "rows", "competes"),
    [
        (2, {}, True),
        (2, {"owl": 3}, False),
        (2, {"owl": 4}, True),
        (0, {"owl": 1}, False),
        (4, {"owl": 4}, False),
        (4, {"elk": 1}, True),
    ],
)
def test_a_node_competes_for_what_is_free_or_of_one_who_has_two_more(
    mine: int, rows: Rows, *, competes: bool
) -> None:
    node = fox_with(*NAMES[:mine])
    node.rows = rows
    assert node.race(P)[1] == ([SetIfAbsent(Hash.GRAB, P, "fox")] if competes else [])


@pytest.mark.parametrize(
    ("mine", "rows", "yields"),
    [
        (2, {"fox": 2, "elk": 1}, False),
        (3, {"fox": 3, "elk": 1}, True),
        (1, {"fox": 1}, False),
        (2, {}, True),
    ],
)
def test_a_holder_yields_to_one_who_has_two_less(mine: int, rows: Rows, *, yields: bool) -> None:
    node = fox_with(P, *NAMES[: mine - 1])
    node.rows = rows
    assert node.race(P)[1] == [SetIfAbsent(Hash.GRAB, P, "fox")]
    assert node.take(Raced(P, "elk")) == ([StopPump(P)] if yields else [])


def test_a_paused_partition_is_competed_for_by_its_holder_alone_which_yields_it_to_none() -> None:
    other, holder = fox_with(), fox_with(P, *NAMES[:3])
    other.rows, holder.rows = {"owl": 4}, {"fox": 4}
    other.paused = holder.paused = {P}
    assert other.race(P)[1] == []
    assert holder.race(P)[1] == [SetIfAbsent(Hash.GRAB, P, "fox")]
    assert holder.take(Raced(P, "elk")) == []


def test_a_mark_that_outlives_its_race_is_void() -> None:
    """It stays won for 10 s, and the race may take as long."""
    node = Node(partitions=[P])
    node.wakes()
    did = node.take(Found(Hash.GRAB, P, "dead"))
    assert did == [DropIf(Hash.GRAB, P, "dead"), Publish(Channel.GRAB_LEASE, P)]


@pytest.mark.parametrize("answer", [[], [Found(Hash.ALLOCATION, P, "owl")]])
@pytest.mark.parametrize(("rows", "starts"), [({"owl": 1}, False), ({}, True)])
def test_without_a_word_it_starts_after_the_shutdown_time_only_what_is_free(
    answer: list[Event], rows: Rows, *, starts: bool
) -> None:
    node = Node(partitions=[P], rows={"owl": 1})
    node.take(Raced(P, "fox"), *answer)
    node.rows = rows
    node.wakes()
    assert node.wakes() == ([StartPump(P)] if starts else [])
    assert node.now == 1000 + 30
    assert node.grab.held == ({P} if starts else set())


@pytest.mark.parametrize("owner", [None, "owl"])
def test_a_winner_goes_by_the_rows_and_not_by_the_hash(owner: str | None) -> None:
    held = Node(partitions=[P], rows={"owl": 2})
    held.take(Raced(P, "fox"))
    assert held.take(Found(Hash.ALLOCATION, P, owner)) == []
    free = Node(partitions=[P])
    free.take(Raced(P, "fox"))
    assert free.take(Found(Hash.ALLOCATION, P, owner)) == [StartPump(P)]


@pytest.mark.parametrize(("after", "competes"), [(1, True), (9.875, False)])
def test_what_was_just_let_go_is_free_by_rows_that_are_older(
    after: float, *, competes: bool
) -> None:
    node = Node(partitions=[P], rows={"owl": 1})
    node.take(Notified(Channel.ALLOCATED, P))
    node.now += after
    assert node.race(P)[1] == ([SetIfAbsent(Hash.GRAB, P, "fox")] if competes else [])
