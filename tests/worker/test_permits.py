"""Limits across workers: so many runs of a type go on at a time on the whole board."""

import asyncio

import pytest

from blackboard.events import ItemLeftAlone, RunEnded, RunStarted
from blackboard.model import Outcome
from blackboard.protocol import keys
from blackboard.protocol.edits import run_now
from blackboard.protocol.permits import LEASE, Limit, give_back, occupied, take
from blackboard.table import ANY, Merge
from blackboard.worker.permits import ASK_AGAIN, LOST, Permits
from blackboard.worker.worker import Mode
from tests.support.faults import Fault
from tests.support.stores import rows_of
from tests.support.turns import one_turn, settled
from tests.support.workers import PATIENCE, WorkerScene, Workplace, until, with_workers

pytestmark = pytest.mark.of_one_store("a worker is the same above any store")

SCARCE = Limit("scarce", "", 2)


async def held(place: Workplace, limit: Limit = SCARCE) -> list[str]:
    return sorted((await occupied(place.other, limit)).items)


async def until_held(place: Workplace, *ids: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while await held(place) != sorted(ids):
            await one_turn()


@pytest.mark.parametrize("shards", [1, 3])
@with_workers
async def test_two_workers_run_no_more_than_the_limit(place: Workplace, shards: int) -> None:
    for number in range(5):
        await place.add(f"scarce-{number}", item_type="scarce")
    place.later(seconds=2)
    one = await place.worker(owner="one")
    two = await place.worker(owner="two", board=place.other)
    await two.walk()
    await until(lambda: len(one.order) == 2, "two runs")
    assert two.order == []
    assert await held(place) == sorted(one.order)
    (await one.run(one.order[0])).end()
    await until(lambda: len(one.order) == 3, "the next of them")
    await two.walk()
    assert two.order == []
    (await one.run(one.order[1])).end()
    (await one.run(one.order[2])).end()
    await until(lambda: len(one.order) == 5, "the last of them")
    await until_held(place, *one.order[3:])


@with_workers
async def test_what_has_no_limit_does_not_wait_behind_what_has(place: Workplace) -> None:
    other = await take(place.other, SCARCE, ["x", "y"], owner="another")
    for number in range(70):
        await place.add(f"scarce-{number}", item_type="scarce")
    place.later(seconds=5)
    for number in range(3):
        await place.add(f"feed-{number}")
    place.later(seconds=2)
    worker = await place.worker(slots=3)
    for _ in range(3):
        await worker.looks_again()
    await until(lambda: len(worker.order) == 3, "three runs")
    assert sorted(worker.order) == ["feed-0", "feed-1", "feed-2"]
    assert len(other) == 2


@with_workers
async def test_values_of_the_key_are_limited_apart(place: Workplace) -> None:
    for number in range(6):
        host = {"host": f"{'abc'[number % 3]}.example"}
        await place.add(f"polite-{number}", item_type="polite", every="1h", params=host)
    await place.add("without", item_type="polite")
    await place.add("another without", item_type="polite")
    place.later(seconds=2)
    worker = await place.worker()
    await until(lambda: len(worker.order) == 4, "one run of each host")
    hosts = [worker.inline.runs[one][0].call.item.params.get("host") for one in worker.order]
    assert sorted(map(str, hosts)) == ["None", "a.example", "b.example", "c.example"]


@with_workers
async def test_a_run_for_other_params_is_counted_by_those(place: Workplace) -> None:
    taken = await take(place.other, Limit("polite", '"a.example"', 1), ["x"], owner="another")
    params = {"host": "a.example"}
    await place.add("davis", item_type="polite", at="2030-01-01", params=params)
    await run_now(place.other, "davis", once={"host": "b.example"})
    place.later(seconds=2)
    worker = await place.worker()
    await worker.run("davis")
    assert taken


@pytest.mark.parametrize("once", ["[]", "{", "[" * 5_000])
@with_workers
async def test_a_run_whose_params_are_damaged_is_left_alone(place: Workplace, once: str) -> None:
    for name in ("bad", "good"):
        await place.add(name, item_type="polite", params={"host": "a.example"})
    (token,) = [one for one in await place.tokens() if one.id == "bad"]
    harm = Merge(keys.next_key(token.ready, "bad"), {"once": once}, ANY)
    await place.other.table.commit(place.other.partition("bad"), [harm])
    place.later(seconds=2)
    worker = await place.worker()
    await until(lambda: worker.order == ["good"], "the other one")
    assert [one.id for one in worker.of(ItemLeftAlone)] == ["bad"]
    mended = Merge(keys.next_key(token.ready, "bad"), {"once": ""}, ANY)
    await place.other.table.commit(place.other.partition("bad"), [mended])


@with_workers
async def test_a_dead_workers_permit_is_free_again_after_a_minute(place: Workplace) -> None:
    await take(place.other, SCARCE, ["x", "y"], owner="dead")
    await place.add("davis", item_type="scarce")
    place.later(seconds=2)
    worker = await place.worker()
    place.later(seconds=LEASE - 4)
    await worker.walk()
    assert worker.order == []
    place.later(seconds=6)
    await worker.walk()
    await worker.run("davis")


@with_workers
async def test_a_stale_lock_is_overridden_when_a_permit_is_left(place: Workplace) -> None:
    await place.add("davis", item_type="scarce", every="1h", stale_after="3s")
    await take(place.other, SCARCE, ["davis", "x"], owner="dead")
    await place.claimed("davis", board=place.other, owner="dead")
    place.later(seconds=10)
    place.later(seconds=2)
    worker = await place.worker()
    await worker.walk()
    assert (await place.lock()).owner == "dead"
    place.later(seconds=LEASE)
    await worker.walk()
    await worker.run("davis")
    assert await held(place) == ["davis"]


@with_workers
async def test_a_stale_lock_asks_for_a_permit_every_few_seconds_however_often_its_worker_wakes(
    place: Workplace,
) -> None:
    await place.add("davis", item_type="scarce", every="1h", stale_after="3s")
    taken = await take(place.other, SCARCE, ["davis", "x"], owner="another")
    await place.claimed("davis", board=place.other, owner="dead")
    place.later(seconds=12)
    worker = await place.worker()
    await worker.walk()
    reads = place.table.requests.pages
    for _ in range(20):
        await worker.looks_again()
    assert place.table.requests.pages == reads, "nothing else is there to be done"
    assert (await place.lock()).owner == "dead"
    await give_back(place.other, taken)
    place.later(seconds=ASK_AGAIN)
    await worker.looks_again()
    await worker.run("davis")


@with_workers
async def test_a_stale_lock_has_the_first_permit_that_its_worker_gives_back(
    place: Workplace,
) -> None:
    for item_id in ("x", "y"):
        await place.add(item_id, item_type="scarce", every="1h", stale_after="5m")
    place.later(seconds=2)
    worker = await place.worker()
    ours = [await worker.run(one) for one in ("x", "y")]
    await place.add("davis", item_type="scarce", every="1h", stale_after="3s")
    await place.claimed("davis", board=place.other, owner="dead")
    place.later(seconds=10)
    await worker.walk()
    assert (await place.lock()).owner == "dead"
    ours[0].end()
    await worker.run("davis")


@with_workers
async def test_permits_are_renewed_while_runs_go_on(place: Workplace) -> None:
    await place.add("davis", item_type="scarce")
    place.later(seconds=2)
    worker = await place.worker()
    run = await worker.run("davis")
    permits, before = worker.worker.permits, None
    for _ in range(10):
        place.later(seconds=LEASE / 3)
        await until(
            lambda: all(one.sent == place.clock.monotonic() for one in permits._held.values()),
            "a renewal",
        )
        (now,) = await rows_of(place.other.table, keys.permits_partition(place.other.name))
        assert now.etag != before
        before = now.etag
    run.end()
    await until(lambda: not permits._held, "its end")
    await worker.walk()
    await until_held(place)


@with_workers
async def test_a_permit_that_is_given_back_while_it_is_renewed_is_held_no_longer(
    place: Workplace,
) -> None:
    await place.add("davis", item_type="scarce", every="8h", stale_after="10m")
    place.later(seconds=2)
    worker = await place.worker()
    run = await worker.run("davis")
    permits = worker.worker.permits

    async def released() -> None:
        run.end()
        await place.ended("davis")
        await until_held(place)

    place.table.script(released)
    place.later(seconds=LEASE / 3)
    await until(lambda: permits._renewal is not None and permits._renewal.done(), "a renewal")
    assert permits._renewal is not None
    assert permits._renewal.exception() is None
    assert permits.counts() == {}


@with_workers
async def test_a_run_whose_permit_was_taken_is_put_back(place: Workplace) -> None:
    await place.add("davis", item_type="scarce", every="1h", stale_after="10m")
    place.later(seconds=2)
    worker = await place.worker()
    run = await worker.run("davis")
    partition = keys.permits_partition(place.other.name)
    (permit,) = await rows_of(place.other.table, partition)
    await place.other.table.commit(partition, [Merge(permit.key, {"nonce": "another"}, ANY)])
    place.later(seconds=LEASE / 3)
    await until(lambda: run.stopped is not None, "its stop")
    assert run.stopped is not None
    assert (run.stopped.outcome, run.stopped.error) == (Outcome.CANCELLED, f"stopped: {LOST}")
    assert await place.ended("davis") == [(1, "cancelled")]
    item = await place.item()
    assert (item.waits, item.attempt, item.failures) == (True, 1, 0)


@with_workers
async def test_a_claim_that_is_put_back_has_started_before_it_ends(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer came when its permit was too old to be trusted."""
    answers = iter([False])
    monkeypatch.setattr(Permits, "trusts", lambda *_: next(answers, True))
    await place.add("davis", item_type="scarce", every="1h")
    place.later(seconds=2)
    worker = await place.worker()
    (await worker.run("davis")).end()
    await worker.tells(RunEnded, 2)
    assert await place.outcomes() == [(1, "cancelled"), (2, "ok")]
    told = [(one.kind, one.fence) for one in worker.told if isinstance(one, RunStarted | RunEnded)]
    assert told == [("claimed", 1), ("ended", 1), ("claimed", 2), ("ended", 2)]


@with_workers
async def test_without_answers_a_run_is_stopped_before_its_permit_is_free(
    place: Workplace,
) -> None:
    await place.add("davis", item_type="scarce", every="1h", stale_after="10m")
    place.later(seconds=2)
    worker = await place.worker()
    run = await worker.run("davis")
    place.table.script(*[Fault.AWAY] * 40)
    for _ in range(int(LEASE)):
        place.later(seconds=1)
        await settled()
        if run.stopped is not None:
            break
    assert run.stopped is not None
    assert await held(place) == ["davis"]
    place.table._commits.clear()
    async with asyncio.timeout(PATIENCE):
        while not await place.outcomes("davis"):
            place.later(seconds=1)
            await one_turn()


@with_workers
async def test_until_idle_waits_for_what_waits_for_a_permit(place: Workplace) -> None:
    for number in range(5):
        await place.add(f"scarce-{number}", item_type="scarce", every="8h")
    place.later(seconds=2)
    worker = await place.worker(Mode.UNTIL_IDLE, at_once=True)
    await worker.ended()
    assert len(set(worker.order)) == 5
    assert await held(place) == []


@with_workers
async def test_a_worker_that_stops_gives_its_permits_back(place: Workplace) -> None:
    await place.add("davis", item_type="scarce")
    place.later(seconds=2)
    worker = await place.worker()
    await worker.run("davis")
    assert await held(place) == ["davis"]
    await worker.stop()
    assert await held(place) == []


@with_workers
async def test_the_permits_are_left_alone_where_no_type_has_a_limit(place: Workplace) -> None:
    await place.add("davis")
    place.later(seconds=2)
    worker = await place.worker()
    (await worker.run("davis")).end()
    await place.ended("davis")
    place.later(hours=2)
    await worker.walk()
    (await worker.run("davis", 1)).end()
    await worker.stop()
    assert keys.permits_partition(place.other.name) not in place.table.partitions


@pytest.mark.of_each_store
@with_workers
async def test_the_permits_are_asked_where_a_type_has_a_limit(place: Workplace) -> None:
    await place.add("davis", item_type="scarce")
    place.later(seconds=2)
    (await (await place.worker()).run("davis")).end()
    await place.ended("davis")
    assert keys.permits_partition(place.other.name) in place.table.partitions


async def stopped_in_its_next_request(place: Workplace, worker: WorkerScene) -> None:
    """Has a worker walk, asked to stop meanwhile, to its end."""

    async def stop() -> None:
        worker.worker.stop()

    place.table.script(stop)
    await worker.walk()
    await worker.ended()
    assert keys.permits_partition(place.board.name) in place.table.partitions


@with_workers
async def test_a_worker_that_is_to_stop_while_it_asks_for_permits_claims_nothing(
    place: Workplace,
) -> None:
    worker = await place.worker()
    await place.add("davis", item_type="scarce")
    place.later(seconds=2)
    await stopped_in_its_next_request(place, worker)
    assert await place.other.lock("davis") is None
    assert await held(place) == []
    assert await place.outcomes("davis") == []


@with_workers
async def test_a_worker_that_is_to_stop_while_it_asks_for_the_permit_of_a_stale_lock_leaves_that(
    place: Workplace,
) -> None:
    await place.add("davis", item_type="scarce", every="1h", stale_after="3s")
    await place.claimed("davis", board=place.other, owner="dead")
    worker = await place.worker()
    place.later(seconds=12)
    await stopped_in_its_next_request(place, worker)
    assert (await place.lock()).owner == "dead"
    assert await held(place) == []
