"""What a board is said to cost, and what workers at work on it really ask for."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from blackboard import cost
from blackboard.assembly import WorkerSetup, assemble
from blackboard.board_worker import WorkerSettings
from blackboard.cost import Load, RequestCounts, Rhythm, asked_for, rhythm_of
from blackboard.emitter import EventEmitter
from blackboard.model import Item, State, replace
from blackboard.protocol.additions import New, add
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.retention import PRUNE_EVERY, PRUNE_SELDOM, Retention
from blackboard.rules.status import COUNTED_EVERY
from blackboard.runners.runner import Execution, HandlerCall, Reporter
from blackboard.schedule.limits import limits
from blackboard.schedule.schedule import make_schedule, slots_after
from blackboard.settings import Settings
from blackboard.spec import RunSettings, Spec
from blackboard.table import Requests
from blackboard.tables import azure
from blackboard.tables.memory import Contents, MemoryTable
from blackboard.worker import wake
from blackboard.worker.membership import MEETS_EVERY
from blackboard.worker.worker import Mode
from tests.support.clocks import START, ManualClock, TurnedWake
from tests.support.turns import settled
from tests.support.workers import HANDLERS, FakeRunner, board_on

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
WORKED = timedelta(days=7) / (5 * 9 * 12)
"""The mean time between runs every 5 minutes from 9 to 18 on five days of the week."""
EVERY = Rhythm(interval=HOUR, ready=START, lasts=timedelta(0), renewed=60.0)


def herd(size: int, **about: object) -> list[Rhythm]:
    """Items that are ready in the same second."""
    return [replace(EVERY, **about)] * size  # type: ignore[arg-type]


def spread(size: int, **about: object) -> list[Rhythm]:
    """Items that are ready one after the other."""
    made = (replace(EVERY, **about) for _ in range(size))  # type: ignore[arg-type]
    return [replace(one, ready=START + n * timedelta(seconds=7)) for n, one in enumerate(made)]


# ---- arithmetic

HOURS = cost.MONTH / HOUR


def test_a_board_without_items_costs_its_walks_and_memberships() -> None:
    asked = asked_for(Load(rhythms=[], shards=2, workers=3, cycle=MINUTE))
    assert asked.walks == pytest.approx(3 * 2 * 60 * HOURS / cost.BEAT)
    assert asked.membership == pytest.approx(3 * (60 + 12) * HOURS)
    assert asked.total == pytest.approx(asked.walks + asked.membership + asked.coordinator)


def test_a_coordinator_is_elected_counts_and_examines() -> None:
    """An election of 15 minutes, a counting each 5 minutes, an examination each hour."""
    load = Load(rhythms=[], shards=2, workers=3)
    checks, countings, examination = 3 * 12 / 0.9, 12 * (2 + 1), 2 * 2 + 2
    expected = pytest.approx((checks + countings + examination) * HOURS)
    assert asked_for(load).coordinator == expected
    assert asked_for(replace(load, coordinator=False)).coordinator == 0
    large = asked_for(replace(load, rhythms=spread(10_000))).coordinator
    assert large == pytest.approx((checks + 12 * (12 + 1) + 2 * 12 + 2) * HOURS)
    larger = asked_for(replace(load, rhythms=[EVERY] * 200_001)).coordinator
    assert larger == pytest.approx((checks + 12 * (202 + 1)) * HOURS), "it is not examined"
    busy = asked_for(replace(load, rhythms=spread(2, lasts=30 * MINUTE))).coordinator
    assert busy == pytest.approx((checks + countings + 12 * 1 + examination) * HOURS)


def test_a_coordinator_looks_at_the_histories_of_what_runs_seldom() -> None:
    """Each day; where retention is short, each quarter of it."""
    for retention, each in ((Retention(), 24), (Retention(age=4 * HOUR), 1)):
        seldom = replace(EVERY, interval=retention.age / 2)
        load = Load(rhythms=[seldom], retention=retention)
        looks = asked_for(load).coordinator - asked_for(replace(load, rhythms=[])).coordinator
        assert looks == pytest.approx(HOURS / each)


def test_a_run_by_itself_is_a_claim_and_a_release() -> None:
    asked = asked_for(Load(rhythms=spread(12)))
    assert (asked.claims, asked.releases) == pytest.approx((12 * HOURS, 12 * HOURS))
    assert (asked.claims + asked.releases) / (12 * HOURS) == cost.SINGLY


def test_what_runs_together_is_claimed_and_released_in_batches() -> None:
    load = Load(rhythms=herd(100))
    asked = asked_for(load, together=True)
    assert (asked.claims, asked.releases) == pytest.approx((4 * HOURS, 4 * HOURS))
    assert asked_for(load).claims == pytest.approx(100 * HOURS)


@pytest.mark.parametrize(("seconds", "walks"), [(3600, 1), (60, 1), (45, 2), (20, 3), (5, 12)])
def test_runs_that_follow_each_other_quickly_are_looked_for(seconds: int, walks: int) -> None:
    """As often as it takes to see each of them coming."""
    often = [*spread(5, interval=timedelta(seconds=seconds)), *spread(5)]
    idle = asked_for(Load(rhythms=[])).walks
    assert asked_for(Load(rhythms=often)).walks == pytest.approx(walks * idle)


def test_a_long_run_is_renewed() -> None:
    asked = asked_for(Load(rhythms=spread(1, lasts=10 * MINUTE, renewed=20.0)))
    assert asked.renewals == pytest.approx(30 * HOURS)


def test_where_there_are_others_a_run_costs_a_request_more() -> None:
    assert asked_for(Load(rhythms=spread(5))).races == 0
    assert asked_for(Load(rhythms=spread(5), workers=3)).races == pytest.approx(5 * HOURS)
    assert asked_for(Load(rhythms=herd(5), workers=30)).races == pytest.approx(5 * HOURS)


def test_the_history_of_what_runs_often_is_looked_at_seldom() -> None:
    often = asked_for(Load(rhythms=spread(1)))
    assert often.pruning == pytest.approx(2 * HOURS / PRUNE_SELDOM)
    daily = asked_for(Load(rhythms=spread(1, interval=24 * HOUR)))
    assert daily.pruning == pytest.approx(2 * HOURS / 24 / PRUNE_EVERY)
    short = asked_for(Load(rhythms=spread(1), retention=Retention(runs=4)))
    assert short.pruning == pytest.approx(2 * HOURS / 4)


def test_rows_a_second_say_how_many_shards() -> None:
    load = Load(rhythms=spread(1000, interval=timedelta(seconds=1)))
    assert cost.entities_a_second(load) == pytest.approx(7000)
    assert cost.shards_advised(load) == 7, "half of what a shard is good for is kept free"
    assert cost.shards_advised(Load(rhythms=[])) == 1
    assert cost.shards_advised(Load(rhythms=[*load.rhythms] * 1000)) == cost.MOST_SHARDS


def test_the_largest_herd_takes_its_time() -> None:
    load = Load(rhythms=[*herd(4000), *spread(10)])
    size, seconds = cost.largest_herd(load)
    assert (size, round(seconds, 1)) == (4001, 14.0)
    assert cost.largest_herd(replace(load, shards=4))[1] == pytest.approx(3.5, rel=0.01)
    assert cost.largest_herd(Load(rhythms=[])) == (0, 0)


def test_a_bill() -> None:
    assert cost.bill(1e6, size=0) == cost.PRICE
    assert cost.bill(1e6, size=0, price=0.05) == 0.05
    assert cost.bill(0, size=2 * 10**9) == 2 * cost.STORAGE_PRICE


def test_what_is_known_of_batches_and_beats_is_so() -> None:
    assert azure.AzureTable.max_rows == cost.BATCH
    assert (cost.CLAIMS, cost.RELEASES) == (33, 25)
    assert 1 - wake.SPREAD == cost.BEAT


# ---- how an item runs


def item(**about: object) -> Item:
    made = Item(
        id="a", type="feed", state=State.ACTIVE, spec="{}", slot=START, ready=START, planned=START
    )
    return replace(made, **about)  # type: ignore[arg-type]


def rhythm(about: Item, **schedule: Any) -> Rhythm | None:
    settings = RunSettings(schedule=make_schedule(**schedule))
    return rhythm_of(about, settings=settings, now=START)


@pytest.mark.parametrize(
    ("schedule", "interval"),
    [
        ({"every": "8h"}, 8 * HOUR),
        ({"cron": "*/15 * * * *"}, 15 * MINUTE),
        ({"cron": "0 9 * * mon-fri"}, 24 * HOUR * 7 / 5),
        ({"rrule": "FREQ=WEEKLY;BYDAY=MO"}, timedelta(days=7)),
        ({"rrule": "FREQ=SECONDLY"}, timedelta(seconds=1)),
        ({"cron": "*/5 9-17 * * mon-fri"}, WORKED),
        ({"cron": "0 3 1 1 *"}, timedelta(days=365.25)),
        ({"cron": "0 3 29 2 *"}, timedelta(days=1461)),
        ({"cron": "0 9 1 * mon"}, timedelta(days=1461) / (48 + 209 - 7)),
        ({"cron": "0 9 * * *; 0 9,10 * * *"}, 12 * HOUR),
        ({"cron": "* 5-23 * * *"}, timedelta(days=1) / (19 * 60)),
        ({"cron": "*/5 9-17 * * *", "limits": limits(blackout="sat-sun")}, WORKED),
        ({"cron": "* 0-11 * * *", "limits": limits(blackout="sat-sun")}, MINUTE * 2 * 7 / 5),
        ({"cron": "@daily; * * * * *", "limits": limits(blackout="mon-fri")}, MINUTE * 7 / 2),
        ({"rrule": "FREQ=YEARLY;BYMONTH=7;BYMONTHDAY=1"}, timedelta(days=365.25)),
        ({"rrule": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29"}, timedelta(days=1461)),
        ({"rrule": f"DTSTART:{START:%Y%m%dT%H%M%S}\nRRULE:FREQ=DAILY;COUNT=4"}, cost.MONTH / 4),
        ({"every": "1m", "limits": limits(blackout="mon-fri, sat 01:00-24:00")}, 6.72 * MINUTE),
        ({"every": "1m", "limits": limits(until=START + timedelta(days=1))}, cost.MONTH / 1440),
        ({"cron": "0 9 * * *", "limits": limits(until=START + 3 * 24 * HOUR)}, cost.MONTH / 3),
        ({"every": "1m", "limits": limits(runs=3)}, cost.MONTH / 3),
    ],
)
def test_an_interval_is_a_mean(schedule: dict[str, Any], interval: timedelta) -> None:
    found = rhythm(item(), **schedule)
    assert found is not None
    assert found.interval / interval == pytest.approx(1, rel=0.01)
    assert found.runs == pytest.approx(cost.MONTH / interval, rel=0.01)


@pytest.mark.parametrize(
    ("schedule", "most"),
    [
        ({"cron": "* 3-23 * * *"}, 0),
        ({"every": "1m"}, 0),
        ({"rrule": "FREQ=SECONDLY"}, cost.MOST_FORESEEN),
        ({"cron": "* * * * *", "limits": limits(blackout="sat-sun")}, cost.MOST_FORESEEN),
        ({"every": "90s", "limits": limits(blackout="sat-sun")}, cost.MOST_FORESEEN),
        ({"rrule": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29"}, 2),
    ],
)
def test_few_slots_are_read_for_an_interval_and_once_a_day(
    monkeypatch: pytest.MonkeyPatch, schedule: dict[str, Any], most: int
) -> None:
    read = 0

    def counted(*values: Any) -> Iterator[datetime]:
        nonlocal read
        for slot in slots_after(*values):
            read += 1
            yield slot

    cost._mean.cache_clear()
    monkeypatch.setattr(cost, "slots_after", counted)
    settings = RunSettings(schedule=make_schedule(**schedule))
    for minutes in range(3):
        assert rhythm_of(item(), settings=settings, now=START + minutes * MINUTE) is not None
    assert read <= most


@pytest.mark.parametrize("state", [State.PAUSED, State.DONE])
def test_who_does_not_run_costs_nothing(state: State) -> None:
    assert rhythm(item(state=state), every="8h") is None
    assert rhythm(item()) is None
    assert rhythm(item(), at="2026-12-24T18:00") is None


def test_a_run_lasts_as_long_as_the_last() -> None:
    about = item(start=START, stop=START + 10 * MINUTE)
    found = rhythm(about, every="90s")
    assert found is not None
    assert (found.lasts, found.renewed) == (10 * MINUTE, 30.0)
    again = rhythm(replace(about, start=START + HOUR), every="8h")  # it runs now
    assert again is not None
    assert (again.lasts, again.renewed) == (timedelta(0), 60.0)


# ---- against workers at work


class AzureLike(MemoryTable):
    """Batches as small as there, and pages as large."""

    max_rows = azure.AzureTable.max_rows


class LastingRunner(FakeRunner):
    """Each run lasts as long as its item's params say."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.tasks: set[asyncio.Task[None]] = set()

    def start(self, call: HandlerCall, report: Reporter, deadline: float) -> Execution:
        started = super().start(call, report, deadline)
        self.tasks.add(asyncio.get_running_loop().create_task(self._end(call)))
        return started

    async def _end(self, call: HandlerCall) -> None:
        await self.clock.sleep(call.item.params["lasts"])
        self.runs[call.item.id][-1].end()


async def passes(clock: ManualClock, time: timedelta) -> None:
    """Let time pass: from each moment that somebody waits for to the next."""
    end = clock.monotonic() + time.total_seconds()
    while True:
        await settled()
        following = min((when for when, *_ in clock._sleepers), default=end)
        if following > end:
            return
        clock.advance(max(following - clock.monotonic(), 0.0))


async def measured(
    rhythms: Sequence[Rhythm], load: Load, *, warming: timedelta, time: timedelta
) -> tuple[Requests, float]:
    """What workers ask for in some time, and the runs that they do in it."""
    clock, contents = ManualClock(), Contents()

    async def board(seed: int) -> BoardTable:
        table = AzureLike(clock, contents)
        return await board_on(table, clock, Settings(), seed=seed, shards=load.shards)

    first = await board(1)
    for number, one in enumerate(rhythms):
        spec = Spec(
            every=f"{one.interval.total_seconds():g}s",
            stale_after=f"{3 * one.renewed:g}s",
            params={"lasts": one.lasts.total_seconds()},
        )
        await add(first, New(id=f"item-{number}", type="feed", spec=spec, first=one.ready))
    boards = [await board(2 + number) for number in range(load.workers)]
    workers = []
    for number, its in enumerate(boards):
        settings = WorkerSettings(
            slots=100,
            cycle=load.cycle,
            retention=load.retention,
            coordinator=load.coordinator,
        )
        worker = assemble(
            its,
            WorkerSetup(
                settings=settings,
                events=EventEmitter(f"worker-{number}"),
                inline=LastingRunner(clock),
                process=FakeRunner(),
            ),
            handlers=HANDLERS,
            wake=TurnedWake(clock, every=cost.BEAT * load.cycle.total_seconds()),
        )
        workers.append((worker, asyncio.ensure_future(worker.work(Mode.FOREVER))))
    await passes(clock, warming)
    before = [replace(its.table.requests) for its in boards]
    runs = sum(worker.releases.runs for worker, _ in workers)
    await passes(clock, time)
    spent = [its.table.requests.since(then) for its, then in zip(boards, before, strict=True)]
    done = sum(worker.releases.runs for worker, _ in workers) - runs
    for worker, task in workers:
        worker.stop()
        worker.stop()
        await task
    return Requests(sum(one.commits for one in spent), sum(one.pages for one in spent)), done


def predicted(asked: RequestCounts, time: timedelta) -> tuple[float, float]:
    """Batches and pages in some time."""
    commits = asked.claims + asked.releases + asked.renewals + asked.membership
    commits += asked.pruning / 2
    meetings = asked.membership / (MEETS_EVERY + 1)
    commits, pages = commits - meetings, asked.walks + asked.pruning / 2 + meetings
    pages += asked.coordinator
    if asked.coordinator:  # of which the leader renews its lease, and writes the counts
        writes = cost.MONTH / cost.CHECKED_EVERY
        writes += cost.MONTH / COUNTED_EVERY
        commits, pages = commits + writes, pages - writes
    return commits * (time / cost.MONTH), pages * (time / cost.MONTH)


LOADS = {
    "nothing to do": Load(rhythms=[]),
    "nothing to do, often": Load(rhythms=[], cycle=timedelta(seconds=20), shards=3, workers=3),
    "now and then": Load(rhythms=spread(30)),
    "more often than the cycle": Load(rhythms=spread(6, interval=timedelta(seconds=45))),
    "long runs": Load(rhythms=spread(6, lasts=12.2 * MINUTE, renewed=30.0)),
    "pruned": Load(rhythms=spread(4, interval=3 * MINUTE), retention=Retention(runs=3)),
    "in shards": Load(rhythms=spread(30), shards=4),
}


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS.keys())
def test_workers_ask_for_as_much_as_was_said(load: Load) -> None:
    """Hours of one board pass on a clock that is turned."""
    time = 2 * HOUR
    spent, runs = asyncio.run(measured(load.rhythms, load, warming=2 * HOUR, time=time))
    commits, pages = predicted(asked_for(load), time)
    assert runs == pytest.approx(load.runs * (time / cost.MONTH), rel=0.05)
    assert spent.commits == pytest.approx(commits, rel=0.05)
    assert spent.pages == pytest.approx(pages, rel=0.06)  # memory's pages of a history are smaller
    assert spent.others == 0


def test_a_herd_asks_for_no_less_than_the_least_and_no_more_than_was_said() -> None:
    load, time = Load(rhythms=herd(100), coordinator=False), 4 * HOUR
    spent, runs = asyncio.run(measured(load.rhythms, load, warming=2 * HOUR, time=time))
    least, _ = predicted(asked_for(load, together=True), time)
    most, pages = predicted(asked_for(load), time)
    assert runs == 400
    assert 0.9 * least < spent.commits < 1.3 * least < most
    assert spent.pages < 1.1 * pages + 20


def test_several_workers_ask_for_no_more_than_was_said() -> None:
    load, time = Load(rhythms=spread(30), workers=3), 2 * HOUR
    spent, runs = asyncio.run(measured(load.rhythms, load, warming=HOUR, time=time))
    asked = asked_for(load)
    assert runs == pytest.approx(60, rel=0.05)
    said = asked.total * (time / cost.MONTH)
    assert 0.8 * said < spent.total < 1.05 * said
