"""What a worker asks of partitions in trouble, and how others fare beside them."""

from collections.abc import Callable

import pytest

from blackboard.events import BoardEvent, StoreAway, StoreBack, StoreChanged, StoreEvent
from blackboard.rules.breaker import LONGEST, SPACING, Need
from blackboard.subscribers import Events
from blackboard.table import (
    Busy,
    Conflict,
    ConflictKind,
    TableError,
    Unavailable,
    Unknown,
    Unusable,
)
from blackboard.worker.store_breaker import REPORT_EVERY, StoreBreaker
from tests.support.clocks import ManualClock, SeededChance

SHARDS = [f"town-0{number}" for number in range(4)]
SICK, *WELL = SHARDS
WORKERS = "town-workers"
STEP = 0.25

Trouble = Callable[[], TableError]
TROUBLES: dict[str, Trouble] = {
    "busy": lambda: Busy(0.0),
    "busy for an hour": lambda: Busy(3600.0),
    "away": Unavailable,
    "silent": Unknown,
    "unusable": lambda: Unusable("refused"),
}


class Partitions:
    """A store whose partitions are in trouble or well, and the one who asks it."""

    def __init__(self) -> None:
        self.clock, self.told = ManualClock(), list[BoardEvent]()
        events = Events("me")
        events.subscribe(self.told.append)
        self.breaker = StoreBreaker(self.clock, SeededChance(1), events)
        self.troubles: dict[str, Trouble] = {}
        self.sent: list[tuple[float, str]] = []
        self.batches = 0

    def ask(self, partition: str, need: Need = Need.OTHER, *, batch: bool = True) -> float:
        """Ask once, for a page if it is no batch; the seconds that are left until it would have
        been let through.
        """
        try:
            request = self.breaker.begin(need, partition)
        except Busy as busy:
            return busy.retry_after
        except Unusable:
            return LONGEST
        self.sent.append((self.clock.monotonic(), partition))
        self.batches += batch
        trouble = self.troubles.get(partition)
        if trouble is None:
            self.breaker.answered(request, batch=batch, written=batch)
        else:
            self.breaker.ended(request, trouble(), batch=batch)
        return 0.0

    def ask_for(self, seconds: float, *partitions: str) -> None:
        """Each of them, for either need, as often as it likes."""
        for _ in range(round(seconds / STEP)):
            for one in partitions:
                for need in Need:
                    self.ask(one, need)
            self.clock.advance(STEP)

    def told_of(self, kind: type[StoreEvent]) -> list[StoreEvent]:
        return [one for one in self.told if isinstance(one, kind)]

    @property
    def changes(self) -> list[bool]:
        """Whether it was away, at each change."""
        return [one.away for one in self.told if isinstance(one, StoreChanged)]

    def count(self, *partitions: str) -> int:
        return sum(partition in partitions for _, partition in self.sent)


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=list(TROUBLES))
@pytest.mark.parametrize("sick", [SICK, WORKERS])
def test_one_partition_in_trouble_is_asked_once_a_second_and_the_others_as_ever(
    sick: str, trouble: Trouble
) -> None:
    store = Partitions()
    everything = [*SHARDS, WORKERS]
    store.ask_for(10, *everything)
    store.troubles[sick] = trouble
    store.sent.clear()
    store.ask_for(60, *everything)
    assert 5 <= store.count(sick) <= 60 + 2
    for one in everything:
        if one != sick:
            assert store.count(one) == 60 / STEP * len(Need)


def test_two_partitions_in_trouble_do_not_wait_for_each_other() -> None:
    store = Partitions()
    store.ask_for(10, *SHARDS)
    for one in SHARDS[:2]:
        store.troubles[one] = Unavailable
    store.ask_for(30, *SHARDS)
    store.troubles.pop(SICK)
    store.clock.advance(LONGEST)
    assert store.ask(SICK) == 0.0
    assert store.ask(SICK) == 0.0, "it is well"


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=list(TROUBLES))
def test_an_account_that_is_away_is_asked_once_a_second_and_is_back_for_all_soon(
    trouble: Trouble,
) -> None:
    many = [f"town-{number:02}" for number in range(30)]
    store = Partitions()
    store.ask_for(2, *many)
    for one in many:
        store.troubles[one] = trouble
    store.ask_for(3, *many)  # each has failed by itself
    store.sent.clear()
    store.ask_for(120, *many)
    assert 10 <= len(store.sent) <= 120 + 1
    store.troubles.clear()
    store.ask_for(LONGEST + 2, *many)
    store.sent.clear()
    store.ask_for(1, *many)
    assert store.count(*many) == len(many) / STEP * len(Need)


def test_a_partition_that_was_not_asked_for_long_waits_a_second_at_the_most() -> None:
    """Nothing else tells that it is not the whole account that is away."""
    store = Partitions()
    store.ask_for(1, *SHARDS)
    store.clock.advance(3600)
    store.troubles[SICK] = Unavailable
    store.ask(SICK)
    for _ in range(20):
        for need in Need:
            store.ask(SICK, need)
        store.clock.advance(STEP)
    waits = store.ask(WELL[0])
    assert waits <= SPACING
    store.clock.advance(waits)
    assert store.ask(WELL[0]) == 0.0
    assert [store.ask(one) for one in WELL] == [0.0] * 3


def test_trouble_of_a_partition_is_told_by_its_name_and_that_of_all_without() -> None:
    store = Partitions()
    store.ask_for(1, *SHARDS)
    store.troubles[SICK] = lambda: Unavailable("no answer")
    store.ask_for(130, *SHARDS)
    store.troubles.pop(SICK)
    store.ask_for(20, *SHARDS)
    messages = [event.message for event in store.told_of(StoreEvent)]
    assert len(messages) == 4
    assert store.changes == [True, False]
    assert messages[0] == "partition town-00: no answer"
    assert messages[1].startswith("partition town-00: away for 1m")
    assert messages[3].startswith("partition town-00 is back after 2m")
    store.told.clear()
    store.clock.advance(60)
    for one in SHARDS:
        store.troubles[one] = lambda: Unavailable("no answer")
    store.clock.advance(60)
    store.ask_for(70, *SHARDS)
    first, second = store.told_of(StoreEvent)
    assert first.message == "no answer"
    assert second.message.startswith("away for 1m")
    assert store.changes == [True]


def test_a_page_shows_that_the_account_is_there_though_batches_had_no_answer() -> None:
    """Who walks each second would otherwise use up, by its pages, the one request a second that an
    account has which is away, and would not send a batch any more.
    """
    store = Partitions()
    store.clock.advance(3600)
    store.troubles[SICK] = Unknown
    assert [store.ask(SICK), store.ask(SICK)] == [0.0, 0.0]
    store.troubles.clear()
    store.clock.advance(LONGEST)
    assert store.ask(SICK, batch=False) == 0.0
    assert [store.ask(WORKERS), store.ask(SICK)] == [0.0, 0.0]


def test_a_disk_that_is_full_is_back_when_it_takes_a_batch() -> None:
    """A page is answered all the while."""
    store = Partitions()
    for _ in range(3):
        store.troubles[SICK] = lambda: Unusable("the disk is full")
        store.ask(SICK)
        store.clock.advance(LONGEST)
        del store.troubles[SICK]
        store.ask(SICK, batch=False)
        store.troubles[WELL[0]] = lambda: Conflict(0, ConflictKind.CHANGED)
        store.ask(WELL[0])
        assert store.told_of(StoreBack) == [], "nothing was written"
        del store.troubles[WELL[0]]
        store.ask(WELL[0])
        assert len(store.told_of(StoreBack)) == 1, "any batch shows it"
        store.told.clear()
        store.clock.advance(REPORT_EVERY)


def test_a_store_that_is_away_is_back_with_a_page() -> None:
    store = Partitions()
    store.troubles[SICK] = Unavailable
    store.ask(SICK)
    store.clock.advance(LONGEST)
    store.troubles.clear()
    store.ask(SICK, batch=False)
    assert [one.message for one in store.told_of(StoreBack)] == ["the store is back after 15s"]


def test_a_store_that_answers_pages_but_no_batch_is_sent_one_batch_a_pause() -> None:
    store = Partitions()
    store.troubles[SICK] = Unknown
    store.ask(SICK)
    for _ in range(round(60 / STEP)):
        store.troubles.clear()
        store.ask(SICK, batch=False)
        store.troubles[SICK] = Unknown
        store.ask(SICK)
        store.clock.advance(STEP)
    assert 5 <= store.batches <= 30
    assert [type(event) for event in store.told] == [StoreChanged, StoreAway]
