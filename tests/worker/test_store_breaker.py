"""What a worker asks of partitions in trouble, and how others fare beside them."""

import asyncio
import re
from collections.abc import Callable

import pytest

from blackboard.emitter import EventEmitter
from blackboard.events import BoardEvent, StoreAway, StoreBack, StoreChanged, StoreEvent
from blackboard.rules.breaker import DOUBTS_LAST, FAILURE_LASTS, LONGEST, SPACING, Need
from blackboard.table import (
    Busy,
    Conflict,
    ConflictKind,
    Insert,
    TableError,
    Unavailable,
    Unknown,
    Unusable,
)
from blackboard.tables.memory import MemoryTable
from blackboard.worker.outage_reports import REPORT_EVERY
from blackboard.worker.store_breaker import GuardedTable, StoreBreaker
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
        events = EventEmitter("me")
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


def test_a_scan_that_tries_a_partition_is_one_answer_however_long_its_rows_are_read() -> None:
    """Its end says nothing of the store: the rows were there before."""
    store = Partitions()
    memory = MemoryTable(store.clock)
    table = GuardedTable(memory, store.breaker, Need.OTHER)

    async def story() -> None:
        await memory.commit(SICK, [Insert(key, {}) for key in ("a", "b")])
        store.troubles[SICK] = Unavailable
        store.ask(SICK)
        store.clock.advance(LONGEST)
        rows = table.scan(SICK)
        await anext(rows)
        assert store.changes == [True, False], "it is back"
        store.clock.advance(SPACING)
        store.ask(SICK)
        assert [row.key async for row in rows] == ["b"]

    asyncio.run(story())
    assert store.changes == [True, False, True]
    assert store.ask(SICK) > 0.0, "it is away"


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


# ---- a partition that is asked for seldom

SELDOM = "town-actions"


def lines(store: Partitions) -> list[str]:
    return [event.message for event in store.told_of(StoreEvent)]


def test_a_partition_that_is_not_asked_again_is_away_for_little_more_than_a_minute() -> None:
    """A day passes until it is needed again; work goes on."""
    store = Partitions()
    store.ask_for(1, *SHARDS)
    store.troubles[SELDOM] = lambda: Unavailable("it answered 500")
    store.ask(SELDOM, batch=False)
    store.ask_for(FAILURE_LASTS, *SHARDS)
    assert store.changes == [True]
    store.ask_for(1, *SHARDS)
    assert store.changes == [True, False]
    assert lines(store) == [
        "partition town-actions: it answered 500",
        "partition town-actions was not asked for again: all others answer",
    ]
    store.clock.advance(24 * 3600)
    store.troubles.clear()
    assert [store.ask(SELDOM) for _ in range(3)] == [0.0] * 3
    assert store.changes == [True, False]


def test_one_that_is_not_asked_again_does_not_speak_for_the_store() -> None:
    """Though nothing else was asked just before it."""
    store = Partitions()
    store.ask_for(1, *SHARDS)
    store.clock.advance(30)
    store.troubles[SELDOM] = Unavailable
    store.ask(SELDOM, batch=False)
    store.clock.advance(1)
    store.ask_for(FAILURE_LASTS + 1, *SHARDS)
    assert lines(store)[1] == "partition town-actions was not asked for again: all others answer"


def test_one_that_is_asked_again_in_vain_stays_away() -> None:
    store = Partitions()
    store.troubles[SICK] = Unavailable
    for _ in range(10):
        store.ask(SICK)
        store.ask_for(FAILURE_LASTS - 1, *WELL)
    assert store.changes == [True]


def test_one_that_answers_pages_stays_away_until_no_batch_has_failed_for_minutes() -> None:
    """A worker that reads may not send a batch in each cycle."""
    store = Partitions()
    store.troubles[SICK] = Unknown
    assert [store.ask(SICK), store.ask(SICK)] == [0.0, 0.0]
    del store.troubles[SICK]
    store.clock.advance(LONGEST)
    for _ in range(round((DOUBTS_LAST - LONGEST) / LONGEST)):
        store.ask(SICK, batch=False)
        store.ask(WORKERS)
        store.clock.advance(LONGEST)
    assert store.changes == [True]
    store.clock.advance(STEP)
    store.ask(SICK, batch=False)
    assert store.changes == [True, False]


def test_a_full_disk_is_away_for_as_long_as_no_batch_is_written() -> None:
    store = Partitions()
    store.troubles[SICK] = lambda: Unusable("the disk is full")
    store.ask(SICK)
    for _ in range(10):
        store.clock.advance(FAILURE_LASTS)
        store.ask(WELL[0], batch=False)
    assert store.changes == [True]


# ---- what is reported


def test_each_partition_is_away_since_its_own_first_failure() -> None:
    store = Partitions()
    store.ask_for(10, *SHARDS)
    store.troubles[SICK] = lambda: Unavailable("no answer")
    store.ask_for(130, *SHARDS)
    store.troubles[WELL[0]] = lambda: Unavailable("refused")
    del store.troubles[SICK]
    store.ask_for(60, *SHARDS)
    *_, last = lines(store)
    assert last.startswith("partition town-01: away for ")
    assert seconds_in(last) <= 60, "it has answered for more than two minutes"


def test_of_several_partitions_the_first_is_named_and_the_time_is_the_longest() -> None:
    store = Partitions()
    store.ask_for(10, *SHARDS)
    store.troubles[WELL[0]] = lambda: Unavailable("no answer")
    store.ask_for(90, *SHARDS)
    store.troubles[SICK] = lambda: Unavailable("no answer")
    store.ask_for(60, *SHARDS)
    *_, last = lines(store)
    assert last.startswith("partition town-01 and 1 more: away for up to 2m")
    store.troubles.clear()
    store.ask_for(20, *SHARDS)
    *_, last = lines(store)
    assert last.startswith("partition town-01 and 1 more: all answer again, 2m ")
    assert last.endswith(" after the first of them failed")


def test_the_whole_store_is_away_since_the_last_answer() -> None:
    """Though a part of it has been away for longer."""
    store = Partitions()
    store.ask_for(10, *SHARDS)
    store.troubles[SICK] = lambda: Unavailable("no answer")
    store.ask_for(240, *SHARDS)
    for one in WELL:
        store.troubles[one] = lambda: Unavailable("no answer")
    store.ask_for(130, *SHARDS)
    *_, last = lines(store)
    assert last.startswith("away for ")
    assert 60 < seconds_in(last) <= 130
    store.troubles.clear()
    store.ask_for(LONGEST + 2, *SHARDS)
    *_, last = lines(store)
    assert last.startswith("the store is back after 2m ")


def seconds_in(line: str) -> float:
    """Of "away for 1m 4s", the first time that a line has."""
    found = re.search(r"(?:(\d+)m ?)?(?:([\d.]+)s)?(?=[,:]| after|$)", line.partition(" for ")[2])
    assert found is not None
    return 60 * float(found[1] or 0) + float(found[2] or 0)


def flap(store: Partitions, seconds: float) -> None:
    """Small batches are written, each fourth one fails."""
    for number in range(round(seconds)):
        if number % 4:
            store.troubles.pop(SICK, None)
        else:
            store.troubles[SICK] = lambda: Unusable("unable to open database file")
        store.ask_for(1, SICK)
    store.troubles.pop(SICK, None)


def test_a_store_that_comes_and_goes_is_back_when_no_request_has_failed_for_a_minute() -> None:
    store = Partitions()
    store.ask_for(10, *SHARDS)
    flap(store, 600)
    during = store.told_of(StoreEvent)
    assert [type(one) for one in during[:3]] == [StoreAway, StoreBack, StoreAway]
    assert {type(one) for one in during[2:]} == {StoreAway}, "it is not back"
    assert 9 <= len(during) <= 2 + 600 / REPORT_EVERY
    assert "away again" in during[2].message
    store.ask_for(REPORT_EVERY - 10, *SHARDS)
    assert store.told_of(StoreEvent) == during
    store.ask_for(20, *SHARDS)
    *_, last = store.told_of(StoreEvent)
    assert isinstance(last, StoreBack)
    assert re.fullmatch(r".* is back after (9m \d+|10m).* \(it came and went\)", last.message)
    store.ask_for(600, *SHARDS)
    assert store.told_of(StoreEvent)[-1] is last


def test_what_is_away_again_right_after_it_was_back_is_reported_at_once() -> None:
    store = Partitions()
    store.ask_for(1, *SHARDS)
    for _ in range(2):
        store.troubles[SICK] = Unavailable
        store.ask_for(5, SICK)
        del store.troubles[SICK]
        store.ask_for(LONGEST + 1, *SHARDS)
    told = store.told_of(StoreEvent)
    assert [type(one) for one in told] == [StoreAway, StoreBack, StoreAway]
    store.ask_for(REPORT_EVERY, *SHARDS)
    assert type(store.told_of(StoreEvent)[-1]) is StoreBack


@pytest.mark.parametrize("well", [[5], [30], [55], [61], [70], [5, 61], [5, 5, 70]], ids=str)
def test_a_store_that_comes_and_goes_is_reported_by_about_a_pair_a_minute(
    well: list[float],
) -> None:
    store = Partitions()
    began = store.clock.monotonic()
    while (spent := store.clock.monotonic() - began) < 1200:
        for seconds in well:
            store.troubles[SICK] = Unavailable
            store.ask_for(4, SICK)
            store.troubles.clear()
            store.ask_for(seconds, SICK)
    told = store.told_of(StoreEvent)
    assert len(told) <= 2 * (2 + spent / REPORT_EVERY)
    assert isinstance(told[-1], StoreBack if well[-1] > REPORT_EVERY else StoreAway)
