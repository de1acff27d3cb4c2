"""A worker tells people: what it tells, how often, and that its work never waits for it."""

import asyncio

import pytest

from blackboard.events import NoticeSent, RunEnded, TimesPutRight
from blackboard.model import Outcome
from blackboard.notify.channels import Route
from blackboard.notify.notice_rows import HANDOVER
from blackboard.notify.settings import NoticeKind
from blackboard.protocol.edits import pause
from blackboard.protocol.keys import NOTICE, lock_key
from blackboard.rules.due import TAKEOVERS
from blackboard.table import Merge
from tests.support.receivers import Box, ends, notices, notifying, told
from tests.support.workers import Workplace, until, with_workers

pytestmark = pytest.mark.of_one_store("a worker tells people above the store")

# ---- what is told


@pytest.mark.of_each_store
@with_workers
async def test_a_failure_is_told_once_and_so_is_its_end(place: Workplace) -> None:
    box, at = Box(), await place.worker()
    await place.add("davis", every="1h")
    async with notifying(at, box):
        await ends(place, at, Outcome.FAILED, error="ValueError: bad\nTraceback ...")
        await told(box, ("failed", "davis"))
        for _ in range(3):
            await ends(place, at, Outcome.TIMEOUT)
        await ends(place, at)
        await told(box, ("failed", "davis"), ("recovered", "davis"))
        await ends(place, at)
    assert await notices(place) == []
    failed, recovered = box.got
    assert failed.pop("at").startswith("2026-11-21T")
    assert failed == {
        "event": "failed",
        "board": "town",
        "id": "davis",
        "type": "feed",
        "outcome": "failed",
        "error": "ValueError: bad\nTraceback ...",
        "output": None,
        "due": "2026-11-21T09:00:00.000Z",
        "start": "2026-11-21T09:00:00.000Z",
        "stop": "2026-11-21T09:00:00.000Z",
        "attempt": 1,
        "failures": 1,
        "labels": {"description": "", "owner": "", "tags": []},
        "worker": "me",
        "text": "town: davis failed: ValueError: bad",
    }
    assert (recovered["outcome"], recovered["error"], recovered["failures"]) == ("ok", None, 4)
    assert recovered["text"] == "town: davis recovered after 4 failures"
    assert [one.message for one in at.of(NoticeSent)] == [
        "failed, by box here",
        "recovered, by box here",
    ]


@pytest.mark.parametrize("retries", [0, 5])
@with_workers
async def test_a_handler_that_asks_for_a_retry_each_time_has_failed_after_some(
    place: Workplace, retries: int
) -> None:
    box, at = Box(), await place.worker()
    await place.add("davis", every="30d", retries=retries)
    allowed = max(retries, TAKEOVERS)
    async with notifying(at, box):
        for _ in range(allowed + 3):
            await ends(place, at, Outcome.FAILED, error="HTTP 429", retry_after=600.0)
        await told(box, ("failed", "davis"))
        await ends(place, at)
        await told(box, ("failed", "davis"), ("recovered", "davis"))
    assert (box.got[0]["attempt"], box.got[0]["error"]) == (allowed + 1, "HTTP 429")


@with_workers
async def test_what_a_good_run_warns_of_is_told_once_a_day(place: Workplace) -> None:
    box, at = Box(), await place.worker()
    await place.add("davis", every="1h")
    warns = {"warnings": ["lost half", "and more"], "events": 3}
    async with notifying(at, box):
        await ends(place, at, result=warns)
        await told(box, ("warned", "davis"))
        await ends(place, at, result=warns)
        await ends(place, at)
        await ends(place, at, Outcome.FAILED)
        await told(box, ("warned", "davis"), ("failed", "davis"))
        await ends(place, at)
        expected = [("warned", "davis"), ("failed", "davis"), ("recovered", "davis")]
        await told(box, *expected)
        place.later(hours=24)
        await ends(place, at, result=warns)
        await told(box, *expected, ("warned", "davis"))
    assert (box.got[0]["outcome"], box.got[0]["error"]) == ("ok", "lost half; and more")
    assert box.got[0]["text"] == "town: davis warns: lost half; and more"


@with_workers
async def test_times_of_a_wrong_clock_that_are_put_right_are_told_once(place: Workplace) -> None:
    box, at = Box(), await place.worker()
    await place.add("davis", every="1h")
    davis, now = await place.item(), place.clock.now()
    async with notifying(at, box):
        at.worker.events.emit_of(davis, TimesPutRight, problem="is late", due=now, ready=now)
        await told(box, ("clock", "davis"))
        at.worker.events.emit_of(davis, TimesPutRight, problem="is late", due=now, ready=now)
    (clock,) = box.got
    assert clock["text"] == "town: davis is late; that is put right"
    assert clock["attempt"] is None, "it is about no run"


@with_workers
async def test_warnings_are_told_once_so_many_good_runs_in_a_row_had_some(place: Workplace) -> None:
    box, at = Box(), await place.worker()
    await place.add("davis", every="1h")
    warns = {"warnings": ["2 of 60 feeds failed"]}
    async with notifying(at, box, warned_after=3):
        for result in (warns, warns, None, warns, warns):
            await ends(place, at, result=result)
        await ends(place, at, Outcome.FAILED)
        await told(box, ("failed", "davis"))
        await ends(place, at, result=warns)
        await told(box, ("failed", "davis"), ("recovered", "davis"), ("warned", "davis"))


@with_workers
async def test_an_item_that_warned_has_nothing_to_recover_from(place: Workplace) -> None:
    """Its failure was not told, because it was tried again: so neither is its end."""
    box, at = Box(), await place.worker()
    await place.add("davis", every="1h", retries=3)
    async with notifying(at, box):
        await ends(place, at, result={"warnings": ["x"]})
        await told(box, ("warned", "davis"))
        await ends(place, at, Outcome.FAILED)
        await ends(place, at)
        await ends(place, at, result={"warnings": ["x"]})
    assert box.told == [("warned", "davis")]


@with_workers
async def test_a_healthy_item_costs_no_request(place: Workplace) -> None:
    box, at = Box(), await place.worker()
    await place.add("davis", every="1h")
    async with notifying(at, box) as notifier:
        await ends(place, at)
        await ends(place, at)
        assert not notifier._waiting
    sent = [op.key for batch in place.table.batches for op in batch]
    assert sent
    assert not [key for key in sent if key.startswith(NOTICE)]
    assert box.asked == 0


@with_workers
async def test_a_run_that_is_tried_again_is_not_told(place: Workplace) -> None:
    box, at = Box(), await place.worker()
    await place.add("davis", every="1d", retries=2, backoff="1s")
    async with notifying(at, box):
        for _ in range(2):
            await ends(place, at, Outcome.FAILED)
            assert box.asked == 0
        await ends(place, at, Outcome.FAILED)
        await told(box, ("failed", "davis"))
    assert (box.got[0]["attempt"], box.got[0]["failures"]) == (3, 3)


@with_workers
async def test_a_flapping_run_pages_nobody(place: Workplace) -> None:
    box, at = Box(), await place.worker()
    await place.add("davis", every="1d", retries=2, backoff="1s")
    async with notifying(at, box):
        await ends(place, at, Outcome.FAILED)
        await ends(place, at, Outcome.FAILED)
        await ends(place, at)
    assert box.got == []


@with_workers
async def test_an_item_that_is_paused_while_it_runs_alarms_nobody(place: Workplace) -> None:
    box, at = Box(), await place.worker()
    await place.add("davis", every="1h")
    async with notifying(at, box):
        await at.walk()
        run = await at.run("davis")
        await pause(place.other, "davis", place.mark())
        run.end(Outcome.FAILED)
        await at.tells(RunEnded)
    assert box.got == []


@with_workers
async def test_a_handler_that_kills_its_workers_is_told_when_it_is_given_up(
    place: Workplace,
) -> None:
    box, at = Box(), await place.worker()
    await place.add("davis", every="1d", stale_after="10s")
    held = await place.claimed("davis", board=place.other, owner="dead")
    fourth = Merge(lock_key("davis"), {"attempt": TAKEOVERS + 1}, held.lock.etag)
    await place.other.table.commit(place.other.partition("davis"), [fourth])
    async with notifying(at, box):
        place.later(seconds=30)
        await at.walk()
        await told(box, ("failed", "davis"))
    assert at.order == []
    assert (box.got[0]["outcome"], box.got[0]["failures"]) == ("abandoned", 1)
    assert box.got[0]["text"] == (
        "town: davis failed (abandoned): its lock was not renewed for 10 s"
    )


@with_workers
async def test_a_run_that_is_taken_over_is_not_told(place: Workplace) -> None:
    box, at = Box(), await place.worker()
    await place.add("davis", every="1d", stale_after="10s")
    await place.claimed("davis", board=place.other, owner="dead")
    async with notifying(at, box):
        place.later(seconds=30)
        await at.walk()
        (await at.run("davis")).end()
        await at.tells(RunEnded)
    assert box.got == []


@with_workers
async def test_a_token_that_nobody_takes_is_overdue_and_told_once(place: Workplace) -> None:
    box, at = Box(), await place.worker()
    await place.add("davis", item_type="unknown", every="1h")
    async with notifying(at, box):
        place.later(minutes=9)
        await at.walk()
        place.later(minutes=3)
        for _ in range(3):
            await at.walk()
        await told(box, ("overdue", "davis"))
        place.later(seconds=HANDOVER + 1)
        await at.walk()
    await told(box, ("overdue", "davis"))
    assert box.got[0]["text"] == "town: davis is overdue: ready for 12m and not started"
    assert (box.got[0]["outcome"], box.got[0]["start"]) == (None, None)


@with_workers
async def test_an_item_that_had_to_wait_for_a_slot_recovers(place: Workplace) -> None:
    box, at = Box(), await place.worker(slots=1)
    await place.add("busy", every="1d")
    await at.walk()
    busy = await at.run("busy")
    await place.add("davis", every="1d")
    async with notifying(at, box):
        place.later(minutes=25)
        await at.walk()
        await told(box, ("overdue", "davis"))
        busy.end()
        await at.tells(RunEnded)
        await at.walk()
        (await at.run("davis")).end()
        await told(box, ("overdue", "davis"), ("recovered", "davis"))
    assert box.got[1]["text"] == "town: davis recovered, 25m late"


@with_workers
async def test_what_a_walk_takes_is_not_overdue(place: Workplace) -> None:
    box, at = Box(), await place.worker()
    await place.add("davis", every="1d")
    place.later(hours=2)
    async with notifying(at, box) as notifier:
        await at.walk()
        await at.run("davis")
        assert not notifier._looked
    assert box.got == []


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        ([NoticeKind.FAILED], ["failed"]),
        ([NoticeKind.RECOVERED], []),
        ([NoticeKind.FAILED, NoticeKind.RECOVERED], ["failed", "recovered"]),
        ([], []),
    ],
)
@with_workers
async def test_what_is_not_wanted_is_not_told(
    place: Workplace, on: list[NoticeKind], expected: list[str]
) -> None:
    box, at = Box(), await place.worker()
    await place.add("davis", every="1h")
    async with notifying(at, box, on=frozenset(on)):
        await ends(place, at, Outcome.FAILED)
        await until(lambda: len(box.told) >= len(expected[:1]), "the failure is told")
        await ends(place, at)
    assert [event for event, _ in box.told] == expected
    assert await notices(place) == []


# ---- once, of many workers


@with_workers
async def test_of_two_workers_that_see_the_same_one_tells(place: Workplace) -> None:
    first, second = Box(), Box()
    one = await place.worker(owner="one")
    two = await place.worker(owner="two", board=await place.board_of_its_own())
    await place.add("davis", item_type="unknown", every="1h")
    place.later(minutes=11)
    async with notifying(one, first), notifying(two, second):
        await asyncio.gather(one.walk(), two.walk())
    assert first.told + second.told == [("overdue", "davis")]


@with_workers
async def test_a_worker_that_starts_tells_nothing_again(place: Workplace) -> None:
    before, after = Box(), Box()
    await place.add("davis", every="1h")
    one = await place.worker(owner="one")
    async with notifying(one, before):
        await ends(place, one, Outcome.FAILED)
    await one.stop()
    place.later(hours=1)
    two = await place.worker(owner="two")
    async with notifying(two, after):
        (await two.run("davis")).end(Outcome.FAILED)
        await two.tells(RunEnded)
    assert (before.told, after.told) == ([("failed", "davis")], [])


@with_workers
async def test_another_worker_tells_that_it_recovered(place: Workplace) -> None:
    before, after = Box(), Box()
    await place.add("davis", every="1h")
    one = await place.worker(owner="one")
    async with notifying(one, before):
        await ends(place, one, Outcome.FAILED)
    await one.stop()
    place.later(hours=1)
    two = await place.worker(owner="two")
    async with notifying(two, after):
        (await two.run("davis")).end()
        await two.tells(RunEnded)
    assert after.told == [("recovered", "davis")]


# ---- to whom


@with_workers
async def test_the_first_route_that_matches_an_item_gets_its_notices(place: Workplace) -> None:
    everyone = frozenset(NoticeKind)
    billing, reports, rest = Box("billing"), Box("reports"), Box("rest")
    at = await place.worker()
    await place.add("davis", every="1h", tags=["billing"], owner="ann", description="the bills")
    await place.add("keene", every="1h", owner="bob")
    await place.add("scratch-1", every="1h", owner="bob")
    await place.add("woodland", every="1h")
    routes = [
        Route(match=("scratch-*",), channels=(), on=everyone),
        Route(match=("tag:bill*",), channels=(billing,), on=frozenset({NoticeKind.FAILED})),
        Route(match=("type:report", "owner:bob"), channels=(reports,), on=everyone),
    ]
    async with notifying(at, rest, routes=routes):
        for number, outcome in enumerate((Outcome.FAILED, Outcome.OK)):
            await at.walk()
            for one in ("davis", "keene", "scratch-1", "woodland"):
                (await at.run(one, number)).end(outcome)
            await at.tells(RunEnded, 4 * (number + 1))
            place.later(hours=1)
            events = ("failed", "recovered")[: number + 1]
            await told(rest, *((event, "woodland") for event in events))
            await told(reports, *((event, "keene") for event in events))
            await told(billing, ("failed", "davis"))
    assert billing.got[0]["labels"] == {
        "description": "the bills",
        "owner": "ann",
        "tags": ["billing"],
    }
    assert billing.got[0]["text"].endswith("(owner: ann)")
    assert await notices(place) == []
