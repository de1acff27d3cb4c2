"""Workers share the partitions of a group: real pumps, on a clock that is turned by hand."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from blackboard.assembly import WorkerSettings, group_worker
from blackboard.context import Context, HandlerItem
from blackboard.errors import LeaseLost
from blackboard.events import BoardEvent, Events, ItemLeftAlone
from blackboard.handlers import Handler, Registry, handlers_of, pump
from blackboard.model import Item, Outcome, replace
from blackboard.protocol.edits import cancel, edit, unlock
from blackboard.protocol.keys import next_key
from blackboard.protocol.reading import BoardTable
from blackboard.rules.shares import GATHERING, names_of
from blackboard.runners.inline import InlineRunner
from blackboard.settings import Settings, resolver
from blackboard.table import ANY, Merge
from blackboard.worker.membership import workers
from blackboard.worker.partitions import UNASKED, GroupWorker
from tests.support.boards import disagreements
from tests.support.village import Sky, SkyTable, Village, in_a_village

LEASE, ROUND, DRAIN = 30.0, 10.0, 5.0
GROUP = "clicks"


@dataclass
class Log:
    """What the pumps of a group did."""

    village: Village
    running: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """The workers whose pump runs, by partition."""
    began: list[tuple[float, str, str]] = field(default_factory=list)
    ended: list[tuple[float, str, str]] = field(default_factory=list)
    saved: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    together: int = 0
    """Pumps that began while another of their partition ran."""
    deaf: bool = False
    """Whether they pay no attention to being asked to end."""
    failing: bool = False
    unasked: bool = False
    unlocked: bool = False
    """Whether people take locks away: what runs is then not over before the next begins."""

    async def pump(self, item: HandlerItem, ctx: Context) -> None:
        now = self.village.clock.monotonic
        self.together += bool(self.running[item.id]) and not self.unlocked
        self.running[item.id].append(ctx.worker)
        self.began.append((now(), item.id, ctx.worker))
        position = ctx.checkpoint or 0
        assert position >= self.saved[item.id], "an acknowledged save is where the next one begins"
        try:
            if self.failing:
                raise OSError("no such stream")
            while (self.deaf or not ctx.stopping) and not self.unasked:
                await self.village.clock.sleep(1.0)
                position += 1
                await ctx.save(position)
                self.saved[item.id] = position
        except LeaseLost:
            return
        finally:
            self.running[item.id].remove(ctx.worker)
            self.ended.append((now(), item.id, ctx.worker))

    @property
    def owners(self) -> dict[str, str]:
        return {one: some[0] for one, some in self.running.items() if some}

    @property
    def counts(self) -> list[int]:
        return sorted(Counter(self.owners.values()).values())

    def gaps(self, since: float) -> list[float]:
        """Seconds from each end to the next beginning of its partition."""
        found = []
        for moment, partition, _ in self.ended:
            if moment >= since:
                after = [at for at, one, _ in self.began if one == partition and at >= moment]
                found.append(min(after, default=float("inf")) - moment)
        return found


@dataclass
class Hand:
    """A worker of the group."""

    worker: GroupWorker
    table: SkyTable
    task: asyncio.Task[None]
    told: list[BoardEvent]

    async def stops(self) -> None:
        self.worker.stop()

    async def dies(self) -> None:
        """As by SIGKILL."""
        self.table.alive = False
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@dataclass
class Group:
    """A village whose workers share a group."""

    village: Village
    log: Log
    handler: Handler
    hands: dict[str, Hand] = field(default_factory=dict)

    @property
    def board(self) -> BoardTable:
        found = self.village.board.group(GROUP)
        found.resolve = resolver(Settings(), Registry([self.handler]))
        return found

    async def join(self, *owners: str, sky: Sky | None = None) -> None:
        for owner in owners:
            own = await self.village.open_table(self.village.clock)
            under = SkyTable(own, sky or self.village.sky, clock=self.village.clock, owner=owner)
            self.village.tables.append(under)
            told: list[BoardEvent] = []
            events = Events(owner)
            events.subscribe(told.append)
            worker = group_worker(
                self.board.asked_through(under),
                parent=self.village.board.name,
                pump=self.handler,
                owner=owner,
                settings=WorkerSettings(),
                job_settings={},
                events=events,
                inline=InlineRunner(),
                process=InlineRunner(),
            )
            task = asyncio.get_running_loop().create_task(worker.work())
            self.hands[owner] = Hand(worker, under, task, told)
        await self.village.settle()

    async def item(self, partition: str) -> Item:
        item = await self.board.item(partition)
        assert item is not None
        return item


def sharing(partitions: int = 12, **said: Any) -> Callable[..., Callable[..., None]]:
    """Run an async test with a group on a fresh board of every store."""

    def decorate(test: Callable[..., Any]) -> Callable[..., None]:
        async def story(village: Village) -> None:
            log = Log(village)

            async def serve(item: HandlerItem, ctx: Context) -> None:
                await log.pump(item, ctx)

            declared = pump(GROUP, partitions=partitions, drain=f"{DRAIN:g}s", **said)(serve)
            group = Group(village, log, handlers_of(declared)[0])
            try:
                await test(group)
                assert log.together == 0
                assert await disagreements(group.board) == []
            finally:
                for one in group.hands.values():
                    await one.dies()

        story.__name__, story.__doc__ = test.__name__, test.__doc__
        return in_a_village(story)

    return decorate


@sharing()
async def test_workers_that_start_together_share_at_once_and_nothing_moves_after(
    group: Group,
) -> None:
    await group.join("ann", "ben", "cleo")
    await group.village.turn(GATHERING + 2.0)
    assert group.log.counts == [4, 4, 4]
    assert set(group.log.owners) == set(names_of(12))
    await group.village.turn(20 * ROUND)
    assert len(group.log.began) == 12
    assert all(saved > 100 for saved in group.log.saved.values())


@sharing()
async def test_a_worker_that_joins_gets_its_share_hand_over_hand(group: Group) -> None:
    await group.join("ann", "ben")
    await group.village.turn(GATHERING + 2.0)
    joined = group.village.clock.monotonic()
    await group.join("cleo")
    await group.village.turn(4 * ROUND)
    assert group.log.counts == [4, 4, 4]
    assert len(group.log.began) == 12 + 4, "the fewest moves"
    assert max(group.log.gaps(joined)) <= 3.0
    histories = [run for one in names_of(12) async for run in group.board.runs(one)]
    assert {run.outcome for run in histories} == {Outcome.CANCELLED}
    assert {run.error for run in histories} == {"let go for another worker"}


@sharing()
async def test_what_a_dead_worker_held_is_taken_when_its_lease_is_over(group: Group) -> None:
    await group.join("ann", "ben", "cleo")
    await group.village.turn(GATHERING + 2.0)
    died = group.village.clock.monotonic()
    await group.hands["cleo"].dies()
    await group.village.turn(LEASE - 12.0)
    assert len(group.log.owners) == 8, "its leases hold"
    await group.village.turn(12.0 + 2 * ROUND + 5.0)
    assert group.log.counts == [6, 6]
    assert max(group.log.gaps(died)) <= LEASE + 2 * ROUND + 5.0
    assert len(group.log.began) == 12 + 4


@sharing()
async def test_a_worker_that_is_to_stop_hands_over_within_seconds(group: Group) -> None:
    await group.join("ann", "ben", "cleo")
    await group.village.turn(3 * ROUND)
    began = group.village.clock.monotonic()
    group.hands["cleo"].worker.stop()
    await group.village.turn(ROUND + 5.0)
    assert group.hands["cleo"].task.done()
    assert group.log.counts == [6, 6]
    assert max(group.log.gaps(began)) <= 3.0
    names = [one.member.owner for one in await workers(group.board)]
    assert sorted(names) == ["ann", "ben"]


@sharing()
async def test_the_last_worker_stops_without_waiting_for_others_and_the_next_goes_on_there(
    group: Group,
) -> None:
    await group.join("ann")
    await group.village.turn(GATHERING + 5.0)
    group.hands["ann"].worker.stop()
    await group.village.turn(2.0)
    assert group.hands["ann"].task.done()
    assert group.log.owners == {}
    saved = dict(group.log.saved)
    await group.join("ben")
    await group.village.turn(GATHERING + 2.0)
    assert group.log.counts == [12]
    assert all(group.log.saved[one] > position for one, position in saved.items())


@sharing()
async def test_a_pump_that_does_not_end_when_it_is_asked_to_is_stopped(group: Group) -> None:
    group.log.deaf = True
    await group.join("ann")
    await group.village.turn(GATHERING + 2.0)
    group.hands["ann"].worker.stop()
    await group.village.turn(DRAIN + 2.0)
    assert group.hands["ann"].task.done()
    run = await anext(group.board.runs("00"))
    assert run.outcome is Outcome.CANCELLED
    assert run.error == "stopped: the worker is stopping, and it did not end within 5 s"
    assert (await group.item("00")).waits


@sharing()
async def test_a_worker_that_dies_soon_after_each_start_moves_nothing(group: Group) -> None:
    await group.join("ann", "ben")
    await group.village.turn(GATHERING + 2.0)
    for number in range(5):
        await group.join(f"weak-{number}")
        await group.village.turn(ROUND - 4.0)
        await group.hands[f"weak-{number}"].dies()
        await group.village.turn(ROUND)
    assert len(group.log.began) == 12


@sharing()
async def test_no_pump_outlasts_its_lease_while_the_store_is_away_and_all_go_on_after(
    group: Group,
) -> None:
    await group.join("ann", "ben", "cleo")
    await group.village.turn(GATHERING + 2.0)
    group.village.sky.away = True
    await group.village.turn(3 * LEASE)
    assert group.log.owners == {}
    group.village.sky.away = False
    await group.village.turn(4 * ROUND)
    assert group.log.counts == [4, 4, 4]


@sharing()
async def test_a_worker_cut_off_is_replaced_and_gets_its_share_again(group: Group) -> None:
    cut = Sky()
    await group.join("ann", "ben")
    await group.join("cleo", sky=cut)
    await group.village.turn(GATHERING + 2.0)
    cut.away = True
    await group.village.turn(LEASE + 3 * ROUND)
    assert group.log.counts == [6, 6]
    cut.away = False
    await group.village.turn(5 * ROUND)
    assert group.log.counts == [4, 4, 4]


@sharing(partitions=3)
async def test_a_pump_that_fails_is_run_again_and_keeps_its_checkpoint(group: Group) -> None:
    await group.join("ann")
    await group.village.turn(GATHERING + 10.0)
    group.log.failing = group.log.unlocked = True
    for one in names_of(3):
        await unlock(group.board, one, group.village.mark(), fence=1)
    await group.village.turn(3 * ROUND)
    assert (await group.item("0")).error.startswith("OSError: no such stream")
    group.log.failing = False
    await group.village.turn(120.0)
    assert group.log.counts == [3]


@sharing(partitions=3)
async def test_a_pump_that_returns_unasked_has_failed_and_begins_where_it_saved(
    group: Group,
) -> None:
    await group.join("ann")
    await group.village.turn(GATHERING + 5.0)
    group.log.unasked = True
    await group.village.turn(3.0)
    run = await anext(group.board.runs("1"))
    assert (run.outcome, run.error) == (Outcome.FAILED, UNASKED)
    group.log.unasked = False
    await group.village.turn(60.0)
    assert group.log.counts == [3]
    assert (await group.item("1")).failures > 0


@sharing(partitions=3)
async def test_people_pause_cancel_and_move_partitions_as_items(group: Group) -> None:
    await group.join("ann", "ben")
    await group.village.turn(GATHERING + 2.0)
    group.log.unlocked = True
    await cancel(group.board, "0", group.village.mark("stuck"), fence=1)
    await edit(group.board, "1", lambda spec, _: spec, checkpoint="1000")
    await unlock(group.board, "1", group.village.mark(), fence=1)
    await group.village.turn(2 * 60.0)
    assert set(group.log.owners) == {"0", "1", "2"}
    assert group.log.saved["1"] > 1000
    assert (await group.item("0")).fence > 1


@sharing(partitions=60, lease="12s")
async def test_all_leases_of_a_worker_are_renewed_by_one_batch_a_time(group: Group) -> None:
    await group.join("ann")
    await group.village.turn(GATHERING + 2.0)
    assert group.log.counts == [60]
    group.log.saved.clear()
    before = group.hands["ann"].table.requests.commits
    await group.village.turn(40.0)
    saves = sum(group.log.saved[one] > 0 for one in names_of(60)) * 40
    rounds = 40.0 / 4.0
    assert group.hands["ann"].table.requests.commits - before - saves <= 4 * rounds


@pytest.mark.parametrize("balance", ["steal"])
def test_one_partition_moves_at_a_time_by_the_published_rule(
    balance: str, open_table: object
) -> None:
    @sharing(balance=balance)
    async def story(group: Group) -> None:
        await group.join("ann", "ben")
        await group.village.turn(GATHERING + 2.0)
        await group.join("cleo")
        await group.village.turn(2.5 * ROUND)
        assert group.log.counts[0] < 4
        await group.village.turn(12 * ROUND)
        assert group.log.counts == [4, 4, 4]
        assert len(group.log.began) == 12 + 4

    story(open_table=open_table)


@sharing()
async def test_partitions_may_be_named_by_a_function_that_is_asked_at_the_start(
    group: Group,
) -> None:
    async def names(_: Mapping[str, object]) -> list[str]:
        return ["toronto", "davis"]

    assert group.handler.pump is not None
    group.hands.clear()
    group.handler = replace(group.handler, pump=replace(group.handler.pump, partitions=names))
    await group.join("ann")
    await group.village.turn(GATHERING + 2.0)
    assert set(group.log.owners) == {"toronto", "davis"}


@sharing(partitions=3)
async def test_a_partition_whose_settings_cannot_be_computed_is_reported_once_and_left(
    group: Group,
) -> None:
    await group.join("ann")
    await group.village.turn(1.0)
    item = await group.item("1")
    broken = Merge(next_key(item.ready, "1"), {"spec": '{"every":"soon"}'}, ANY)
    await group.board.table.commit(group.board.shard(0), [broken])
    await group.village.turn(GATHERING + 5 * ROUND)
    assert sorted(group.log.owners) == ["0", "2"]
    told = [one for one in group.hands["ann"].told if isinstance(one, ItemLeftAlone)]
    assert [one.id for one in told] == ["1"]
    whole = Merge(next_key(item.ready, "1"), {"spec": "{}"}, ANY)
    await group.board.table.commit(group.board.shard(0), [whole])
    await group.village.turn(2 * ROUND)
    assert sorted(group.log.owners) == ["0", "1", "2"]
