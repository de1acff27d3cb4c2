"""What notifying leaves alone: channels that fail or hang, too much at once, walks that failed."""

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from blackboard.events import (
    BoardCounted,
    EventsMissed,
    NoticeFailed,
    NoticeSent,
    RunEnded,
    StoreEvent,
    TimesPutRight,
)
from blackboard.model import Item, Outcome, Run
from blackboard.notify import notice_rows, sending
from blackboard.notify import notices as of_notices
from blackboard.notify import notifier as module
from blackboard.notify.channels import Route
from blackboard.notify.exchange import NotSent
from blackboard.notify.notice_rows import HANDOVER, begin
from blackboard.notify.notices import Composer, Notice, confirmed, of_item
from blackboard.notify.notifier import Notifier
from blackboard.notify.sending import GIVE_UP_AFTER, MINUTE, PING_EVERY
from blackboard.notify.settings import LONGEST_TIMEOUT, NoticeKind
from blackboard.protocol import keys
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.edits import pause
from blackboard.protocol.rename import rename
from blackboard.rules.breaker import NOTICE_ROWS, NOTICES
from blackboard.table import ANY, Merge, Unavailable, read
from tests.support.clocks import SeededChance
from tests.support.faults import Fault
from tests.support.receivers import NOTICE, Box, ends, in_states, notices, notifying, told
from tests.support.workers import Workplace, until, with_workers

pytestmark = pytest.mark.of_one_store("channels, queues and walks are the same above any store")

NOT_NOW = NotSent("it answered 500")
NEVER = NotSent("it answered 404", final=True)


# ---- what raises something else


@with_workers
async def test_a_way_that_raises_whatever_keeps_no_other_from_taking_it(place: Workplace) -> None:
    """And is asked for the next notice, too."""
    odd, box, at = Box("odd"), Box(), await place.worker()
    odd.refusals.append(RecursionError())
    await place.add("davis", every="1h")
    async with notifying(at, odd, box):
        await ends(place, at, Outcome.FAILED)
        await told(box, ("failed", "davis"))
        await place.sleeps(NOTICES.pause(1))
        place.later(seconds=NOTICES.pause(1))
        await told(odd, ("failed", "davis"))
    (trouble,) = at.of(NoticeFailed)
    assert trouble.message == "odd: RecursionError"


@pytest.mark.parametrize(("times", "arrives"), [(1, True), (module.TRIES - 1, True), (9, False)])
def test_a_notice_that_something_odd_happens_to_is_tried_again_a_few_times(
    times: int, *, arrives: bool, monkeypatch: pytest.MonkeyPatch, open_table: object
) -> None:
    """The next one is told in any case."""
    honest, left = confirmed, [times]

    async def odd(board: BoardTable, notice: Notice) -> Notice | None:
        if notice.event is NoticeKind.FAILED and left[0]:
            left[0] -= 1
            raise RecursionError
        return await honest(board, notice)

    monkeypatch.setattr(of_notices, "confirmed", odd)

    @with_workers
    async def story(place: Workplace) -> None:
        box, at = Box(), await place.worker()
        await place.announced()
        await place.add("davis", every="1h")
        async with notifying(at, box):
            await ends(place, at, Outcome.FAILED)
            for number in range(1, min(times, module.TRIES) + 1):
                await until(lambda: left[0] <= times - number, "a try")  # noqa: B023
                if number < module.TRIES:
                    await place.sleeps(NOTICE_ROWS.pause())
                    place.later(seconds=NOTICE_ROWS.pause())
            if arrives:
                await told(box, ("failed", "davis"))
            left[0] = 0
            await ends(place, at, Outcome.TIMEOUT)
            await until(lambda: box.got, "a notice")
        assert len(box.got) == 1

    story(open_table=open_table)


@with_workers
async def test_a_subscriber_that_failed_once_still_hears_of_the_next_run(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, at = Box(), await place.worker()
    await place.add("davis", every="1h")
    async with notifying(at, box) as notifier:
        monkeypatch.setattr(notifier.__class__, "_queue", _raises)
        await ends(place, at, Outcome.FAILED)
        monkeypatch.undo()
        await ends(place, at, Outcome.FAILED)
        await told(box, ("failed", "davis"))
    assert at.of(EventsMissed)


def _raises(*_: object) -> None:
    raise KeyError(1)


# ---- a channel that does not take it


class HalfWay(SeededChance):
    """Draws the middle of each range."""

    def fraction(self) -> float:
        return 0.5


@with_workers
async def test_a_way_that_fails_is_tried_again(place: Workplace) -> None:
    """With jitter: the notices of many workers do not come back together."""
    box, at = Box(), await place.worker()
    at.worker.board.chance = HalfWay(1)
    box.refusals.extend([NOT_NOW, NOT_NOW])
    await place.add("davis", every="1h")
    async with notifying(at, box):
        await ends(place, at, Outcome.FAILED)
        for pause_ in (NOTICES.pause(1, fraction=0.5), NOTICES.pause(2, fraction=0.5)):
            await place.sleeps(pause_)
            place.later(seconds=pause_)
        await told(box, ("failed", "davis"))
    (trouble,) = at.of(NoticeFailed)
    assert (trouble.message, trouble.level) == ("box here: it answered 500", 30)
    await in_states(place, "accepted")


@with_workers
async def test_a_pause_that_a_receiver_asks_for_is_made_once(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not again where the next try fails before the receiver is asked."""
    box, at, odd = Box(), await place.worker(), deque([RuntimeError("odd")])
    at.worker.board.chance = HalfWay(1)
    box.refusals.append(NotSent("busy", retry_after=60.0))
    composed = Composer.payload

    def payload(composer: Composer, notice: Notice, **when: Any) -> Any:
        if box.asked and odd:
            raise odd.popleft()
        return composed(composer, notice, **when)

    monkeypatch.setattr(Composer, "payload", payload)
    await place.add("davis", every="1h")
    async with notifying(at, box):
        await ends(place, at, Outcome.FAILED)
        for pause_ in (60.0, NOTICES.pause(2, fraction=0.5)):
            await place.sleeps(pause_)
            place.later(seconds=pause_)
        await told(box, ("failed", "davis"))


def test_a_worker_gives_up_before_another_may_take_over() -> None:
    """Also one that came while another was tried."""
    a_try = LONGEST_TIMEOUT.total_seconds()
    assert GIVE_UP_AFTER + a_try + NOTICES.longest + a_try < HANDOVER


@with_workers
async def test_a_way_that_fails_or_hangs_holds_up_no_other(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same route, and of another."""
    monkeypatch.setattr(module, "SHUTDOWN_TIMEOUT", 0.1)

    class Hanging(Box):
        async def send(self, payload: Any) -> None:
            self.asked += 1
            await asyncio.Event().wait()

    hanging, failing, box, other, at = Hanging(), Box(), Box(), Box(), await place.worker()
    failing.refusals.extend([NOT_NOW] * 99)
    for item_id in ("davis", "keene", "other"):
        await place.add(item_id, every="1h")
    route = Route(match=("other",), channels=(other,), on=frozenset(NoticeKind))
    async with notifying(at, hanging, failing, box, routes=[route]):
        await at.walk()
        for item_id in ("davis", "keene", "other"):
            (await at.run(item_id)).end(Outcome.FAILED)
        await until(lambda: len(box.got) == 2, "one channel has both")
        await told(other, ("failed", "other"))
        assert (hanging.asked, failing.asked) == (1, 1)
    assert [row.data["state"] for row in await notices(place)] == ["accepted"] * 3


@pytest.mark.parametrize(("seconds", "told"), [(1, [0, 1, 2]), (GIVE_UP_AFTER - 1, [1, 2])])
def test_each_notice_is_tried_for_as_long_and_those_that_wait_are_told_in_one(
    seconds: float, told: list[int], monkeypatch: pytest.MonkeyPatch, open_table: object
) -> None:
    @with_workers
    async def story(place: Workplace) -> None:
        box, at = Box(), await place.worker()
        at.worker.board.chance = HalfWay(1)
        box.refusals += [NOT_NOW, NOT_NOW]
        first, second = (NOTICES.pause(number, fraction=0.5) for number in (1, 2))
        async with unconfirmed(monkeypatch), notifying(at, box) as notifier:
            await place.announced()
            fail(notifier, 1)
            await place.sleeps(first)
            assert first > 1
            place.later(seconds=1)
            fail(notifier, 3)
            await all_begun(notifier, 3)
            place.later(seconds=seconds)
            await place.sleeps(second)
            place.later(seconds=second)
            await until(lambda: box.got, "they are told")
        assert [one["event"] for one in box.got] == ["more"]
        assert [one["id"] for one in box.got[0]["items"]] == [f"item{one}" for one in told]

    story(open_table=open_table)


@with_workers
async def test_what_nobody_took_is_told_at_the_next_failure(place: Workplace) -> None:
    box, at = Box(), await place.worker()
    box.refusals.append(NEVER)
    await place.add("davis", every="1h")
    async with notifying(at, box):
        await ends(place, at, Outcome.FAILED)
        await in_states(place, "unsent")
        await ends(place, at, Outcome.FAILED)
        await told(box, ("failed", "davis"))
    await in_states(place, "accepted")


@with_workers
async def test_one_way_that_took_it_is_enough_and_hears_it_once(place: Workplace) -> None:
    broken, box, at = Box("broken"), Box(), await place.worker()
    broken.refusals.append(NEVER)
    await place.add("davis", every="1h")
    async with notifying(at, broken, box):
        await ends(place, at, Outcome.FAILED)
        await told(box, ("failed", "davis"))
        await ends(place, at, Outcome.FAILED)
    assert (broken.asked, box.told) == (1, [("failed", "davis")])
    assert at.of(NoticeSent)[0].message == "failed, by box here"


@with_workers
async def test_trouble_is_told_once_a_minute(place: Workplace) -> None:
    box, at = Box(), await place.worker()
    box.refusals.extend([NEVER] * 9)
    for item_id in "abc":
        await place.add(item_id, every="30s")
    async with notifying(at, box):
        await at.walk()
        for item_id in "abc":
            (await at.run(item_id)).end(Outcome.FAILED)
        await until(lambda: box.asked == 3, "each is tried")
        assert len(at.of(NoticeFailed)) == 1
        place.later(seconds=HANDOVER + 60)
        await at.walk()
        (await at.run("a", 1)).end(Outcome.FAILED)
        await at.tells(NoticeFailed, 2)


@with_workers
async def test_a_way_that_raises_what_it_should_not_ends_no_worker(place: Workplace) -> None:
    class Mad(Box):
        async def send(self, payload: Any) -> None:
            self.asked += 1
            raise KeyError("s3cret")

    box, at = Mad(), await place.worker()
    await place.add("davis", every="1h")
    async with notifying(at, box):
        await ends(place, at, Outcome.FAILED)
        assert (await at.tells(NoticeFailed)).message == "box: KeyError"
        await ends(place, at)
    assert not at.task.done()


@with_workers
async def test_work_goes_on_while_a_way_hangs(place: Workplace) -> None:
    class Hanging(Box):
        async def send(self, payload: Any) -> None:
            self.asked += 1
            await gate.wait()
            await super().send(payload)

    gate, box, at = asyncio.Event(), Hanging(), await place.worker()
    await place.add("davis", every="1h")
    async with notifying(at, box):
        await ends(place, at, Outcome.FAILED)
        await until(lambda: box.asked, "it is being sent")
        for _ in range(2):
            await ends(place, at, Outcome.FAILED)
        assert len(at.order) == 3
        assert box.got == []
        gate.set()
        await told(box, ("failed", "davis"))


@with_workers
async def test_a_store_that_is_away_puts_it_off(place: Workplace) -> None:
    box, at = Box(), await place.worker()
    await place.announced()
    await place.add("davis", every="1h")
    async with notifying(at, box) as notifier:
        await at.walk()
        run = await at.run("davis")
        place.table.script_reads(Fault.BUSY)
        run.end(Outcome.FAILED)
        await until(lambda: place.table.quiet and notifier._waiting, "it waits again")
        await place.sleeps(NOTICE_ROWS.pause())
        place.later(seconds=30)
        await told(box, ("failed", "davis"))


@with_workers
async def test_a_newer_notice_does_not_wait_for_what_put_off_the_one_before(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, at = Box(), await place.worker()
    tries = begins_away(monkeypatch, 1)
    async with unconfirmed(monkeypatch), notifying(at, box) as notifier:
        await place.announced()
        fail(notifier, 1)
        await until(lambda: notifier._waiting and tries, "it waits again")
        await place.sleeps(NOTICE_ROWS.pause())
        fail(notifier, 1)
        await told(box, ("failed", "item0"))


@with_workers
async def test_a_worker_that_ends_tries_what_was_put_off_once_more_and_at_once(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, at = Box(), await place.worker()
    tries = begins_away(monkeypatch, 9)
    async with unconfirmed(monkeypatch), notifying(at, box) as notifier:
        await place.announced()
        fail(notifier, 2)
        await until(lambda: len(tries) == 2, "both are tried")
        await place.sleeps(NOTICE_ROWS.pause())
    assert len(tries) == 4
    assert not notifier._waiting


def begins_away(monkeypatch: pytest.MonkeyPatch, times: int) -> list[str]:
    """The store is away so many times when the row of a notice is written; the ids, each time."""
    tries: list[str] = []

    async def away(board: BoardTable, notice: Notice, *, again: timedelta | None) -> str | None:
        tries.append(notice.id)
        if len(tries) <= times:
            raise Unavailable("the store is away")
        return await begin(board, notice, again=again)

    monkeypatch.setattr(notice_rows, "begin", away)
    return tries


# ---- how much is told


def fail(notifier: Notifier, number: int) -> None:
    """So many items have failed."""
    for n in range(number):
        notifier._queue(replace(NOTICE, id=f"item{n}"))


async def all_begun(notifier: Notifier, number: int) -> None:
    """So many notices wait in the line of the one channel."""
    (sender,) = notifier._senders()
    await until(lambda: len(sender._queue) == number, f"{number} wait")


async def fail_until_it_is_too_much(
    place: Workplace, notifier: Notifier, number: int, box: Box, *, at_most: int
) -> None:
    """So many items have failed, and the notifier waits until it may tell more."""
    await place.announced()
    place.later(seconds=7)  # whoever slept for a minute has less of it left
    fail(notifier, number)
    await place.sleeps(MINUTE)
    assert len(box.got) == at_most
    await all_begun(notifier, number - sum(map(told_of, box.got)))


def told_of(payload: Any) -> int:
    """How many notices a payload tells."""
    return sum(payload.get("counts", {"": 1}).values())


@asynccontextmanager
async def unconfirmed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Whatever is told is true."""

    async def true(board: Any, notice: Notice) -> Notice:
        return notice

    with monkeypatch.context() as patched:
        patched.setattr(of_notices, "confirmed", true)
        yield


@with_workers
async def test_more_than_is_wanted_in_a_minute_is_told_in_one(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, at = Box(), await place.worker()
    async with unconfirmed(monkeypatch), notifying(at, box, at_most=3) as notifier:
        await fail_until_it_is_too_much(place, notifier, 50, box, at_most=3)
        place.later(seconds=60)
        await until(lambda: len(at.of(NoticeSent)) == 50, "all are told of")
        assert len(box.got) <= 6, "three a minute"
    rest = box.got[-1]
    assert sum(map(told_of, box.got)) == 50
    assert [one["id"] for one in rest["items"]][-1] == "item49"
    assert rest["text"].startswith(f"town: {told_of(rest)} failed: item")
    await in_states(place, *["accepted"] * 50)


@with_workers
async def test_a_worker_that_ends_tells_what_still_waits_at_once(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, at = Box(), await place.worker()
    async with unconfirmed(monkeypatch):
        async with notifying(at, box, at_most=1) as notifier:
            await fail_until_it_is_too_much(place, notifier, 10, box, at_most=1)
        assert sum(map(told_of, box.got)) == 10
        assert len(box.got) == 2


@with_workers
async def test_a_great_many_wait_without_their_texts(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WITH_TEXTS", 10)
    monkeypatch.setattr(module, "MOST_WAITING", 20)
    box, at = Box(), await place.worker()
    async with notifying(at, box) as notifier:
        fail(notifier, 25)
        errors = [one.notice.error for one in notifier._waiting.values()]
        assert errors == ["ValueError: bad"] * 10 + [""] * 10
        assert at.of(NoticeFailed)[0].message == "notices: more than 20 wait; the rest is dropped"
        notifier._waiting.clear()


@with_workers
async def test_what_a_wrong_clock_did_is_told_however_many_wait(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It concerns all items, and is not what their last runs warned of."""
    monkeypatch.setattr(module, "WITH_TEXTS", 0)
    box, at = Box(), await place.worker()
    await place.add("davis", every="1h")
    async with notifying(at, box, on=frozenset({NoticeKind.CLOCK})):
        await ends(place, at, result={"warnings": ["lost half"]})
        davis, now = await place.item(), place.clock.now()
        at.worker.events.emit_of(davis, TimesPutRight, problem="is late", due=now, ready=now)
        await told(box, ("clock", "davis"))
    assert box.got[0]["error"] == "is late; that is put right"


@with_workers
async def test_a_line_that_is_full_leaves_the_rest_for_later(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "MOST_WAITING", 2)
    monkeypatch.setattr(module, "SHUTDOWN_TIMEOUT", 0.1)
    box, at = Box(), await place.worker()
    box.refusals.extend([NOT_NOW] * 99)
    async with unconfirmed(monkeypatch), notifying(at, box) as notifier:
        await place.announced()
        fail(notifier, 5)
        await until(lambda: not notifier._waiting, "all are begun")
        await place.sleeps(NOTICES.pause(1))
        await in_states(place, *["sending"] * 2, *["unsent"] * 3)


# ---- the dead-man address


@with_workers
async def test_a_walk_is_followed_by_a_ping_but_not_oftener_than_is_polite(
    place: Workplace,
) -> None:
    ping, at = Box("dead_man"), await place.worker()
    async with notifying(at, dead_man=ping):
        await at.walk()
        await until(lambda: ping.asked == 1, "the first ping")
        await at.walk()
        await at.walk()
        await place.sleeps(PING_EVERY)
        assert ping.asked == 1
        place.later(seconds=PING_EVERY)
        await until(lambda: ping.asked == 2, "the next ping")
    assert ping.pings == 2


@with_workers
async def test_a_walk_that_failed_is_followed_by_no_ping(place: Workplace) -> None:
    ping, at = Box("dead_man"), await place.worker()
    async with notifying(at, dead_man=ping):
        place.table.script_reads(Fault.AWAY)
        await at.walk()
        await at.tells(StoreEvent)
    assert ping.asked == 0


@with_workers
async def test_a_ping_that_fails_is_trouble_and_no_more(place: Workplace) -> None:
    ping, at = Box("dead_man"), await place.worker()
    ping.refusals.append(NOT_NOW)
    async with notifying(at, dead_man=ping):
        await at.walk()
        assert (await at.tells(NoticeFailed)).message == "dead_man here: it answered 500"
        await place.sleeps(PING_EVERY)
        place.later(seconds=PING_EVERY)
        await at.walk()
        await until(lambda: ping.pings, "the next ping")


@with_workers
async def test_without_anybody_to_tell_a_walk_speaks_of_nothing_overdue(place: Workplace) -> None:
    at = await place.worker()
    assert at.worker.walk.overdue_after is None
    await place.add("davis", item_type="unknown", every="1h")
    place.later(hours=1)
    seen = await at.worker.walk.walk()
    assert (seen.overdue, at.worker.notify) == ((), None)
    async with notifying(at, dead_man=Box()) as notifier:
        assert notifier.overdue_after is None
    at.worker.walk.overdue_after = timedelta(minutes=1)
    seen = await at.worker.walk.walk()
    assert [one.id for one in seen.overdue] == ["davis"]


@with_workers
async def test_what_waits_for_a_slow_way_is_sent_in_time_and_once(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request takes as long as it may: no other worker takes a notice over meanwhile."""
    started, gate = list[float](), asyncio.Event()

    class Slow(Box):
        async def send(self, payload: Any) -> None:
            await gate.wait()
            started.append(place.clock.monotonic())
            await super().send(payload)
            place.later(seconds=9)

    box, at = Slow(), await place.worker()
    async with unconfirmed(monkeypatch), notifying(at, box) as notifier:
        await place.announced()
        begun = place.clock.monotonic()
        fail(notifier, 150)
        await all_begun(notifier, 150)
        gate.set()
        await until(lambda: len(at.of(NoticeSent)) == 150, "all are told of")
    assert max(started) - begun < HANDOVER
    assert sum(map(told_of, box.got)) == 150
    await in_states(place, *["accepted"] * 150)


@with_workers
async def test_an_item_that_cannot_be_read_holds_up_no_other(place: Workplace) -> None:
    box, at = Box(), await place.worker()
    for item_id in ("bad", "davis"):
        await place.add(item_id, every="1h")
    await at.walk()
    for item_id in ("bad", "davis"):
        (await at.run(item_id)).end(Outcome.FAILED)
    await at.tells(RunEnded, 2)
    key, table = keys.item_key("bad"), place.table.table
    whole = await read(table, "town", key)
    assert whole is not None
    await table.commit("town", [Merge(key, {"slot": "x"}, ANY)])
    async with notifying(at, box) as notifier:
        notifier._queue(replace(NOTICE, id="bad"))
        notifier._queue(replace(NOTICE, id="davis"))
        await told(box, ("failed", "davis"))
    assert at.of(NoticeFailed) == []
    await table.commit("town", [Merge(key, {"slot": whole.data["slot"]}, ANY)])


# ---- what no event reports any more


@with_workers
async def test_what_nobody_took_is_sent_though_the_item_does_not_fail_again(
    place: Workplace,
) -> None:
    box, at = Box(), await place.worker()
    box.refusals.append(NEVER)
    await place.add("davis", at="2026-11-21T09:00:00Z")
    async with notifying(at, box):
        await ends(place, at, Outcome.FAILED, error="ValueError: bad")
        await in_states(place, "unsent")
    place.later(seconds=HANDOVER + 1)
    async with notifying(at, box, looks=True):
        await told(box, ("failed", "davis"))
        await in_states(place, "accepted")
    assert box.got[0]["error"] == "ValueError: bad"


@with_workers
async def test_a_failure_whose_worker_died_at_once_is_sent_when_items_are_counted(
    place: Workplace,
) -> None:
    box, at = Box(), await place.worker()
    await place.add("davis", every="1h")
    await place.add("keene", every="1h", retries=1, backoff="1s")
    await ends(place, at, Outcome.FAILED)
    async with notifying(at, box, looks=True) as notifier:
        await until(lambda: not notifier._counted.is_set(), "it has looked")
        notifier.on_event(
            BoardCounted(worker="me", items=3, failing=("davis", "davis", "gone", "keene"))
        )
        await told(box, ("failed", "davis"))
        notifier.on_event(BoardCounted(worker="me", items=3, failing=("davis",)))
        await until(lambda: not notifier._counted.is_set(), "it has looked again")
    assert box.told == [("failed", "davis")]


@with_workers
async def test_an_error_about_one_item_ends_no_look_at_the_others_and_is_named(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def honest_but_for_bad(item: Item, last: Run | None = None) -> Notice | None:
        if item.id == "bad":
            raise OverflowError("date value out of range")
        return of_item(item, last)

    monkeypatch.setattr(of_notices, "of_item", honest_but_for_bad)
    box, at = Box(), await place.worker()
    for item_id in ("bad", "davis"):
        await place.add(item_id, every="1h")
    await at.walk()
    for item_id in ("bad", "davis"):
        (await at.run(item_id)).end(Outcome.FAILED)
    await at.tells(RunEnded, 2)
    async with notifying(at, box, looks=True) as notifier:
        notifier.on_event(BoardCounted(worker="me", items=2, failing=("bad", "davis")))
        await told(box, ("failed", "davis"))
    assert at.of(NoticeFailed)[0].message.startswith("notices: bad: OverflowError: ")


@with_workers
async def test_an_item_that_ran_well_where_nobody_notifies_has_recovered(place: Workplace) -> None:
    box, at = Box(), await place.worker()
    await place.add("davis", every="1h")
    async with notifying(at, box):
        await ends(place, at, Outcome.FAILED)
        await told(box, ("failed", "davis"))
        await in_states(place, "accepted")
    await ends(place, at)
    async with notifying(at, box, looks=True):
        await told(box, ("failed", "davis"), ("recovered", "davis"))
    assert box.got[1]["failures"] == 1
    assert await notices(place) == []


@with_workers
async def test_an_item_that_fails_again_before_its_recovery_is_told_stays_failed(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, at = Box(), await place.worker()
    await place.add("davis", every="1h")
    async with notifying(at, box) as notifier:
        await ends(place, at, Outcome.FAILED)
        await told(box, ("failed", "davis"))
        busy = asyncio.Event()

        async def slowly(board: BoardTable, notice: Notice) -> Notice | None:
            await busy.wait()
            return await confirmed(board, notice)

        monkeypatch.setattr(of_notices, "confirmed", slowly)
        for outcome in (Outcome.OK, Outcome.FAILED, Outcome.OK, Outcome.FAILED):
            await ends(place, at, outcome)
        busy.set()
        await until(lambda: not notifier._waiting, "all are begun")
    assert box.told[-1] == ("failed", "davis")
    assert len(await notices(place)) == 1


@with_workers
async def test_a_worker_that_ends_goes_on_trying_for_a_while(place: Workplace) -> None:
    box, at = Box(), await place.worker()
    box.refusals.extend([NOT_NOW] * 3)
    await place.add("davis", every="1h")
    async with notifying(at, box) as notifier:
        await ends(place, at, Outcome.FAILED)
        await until(lambda: box.asked == 1, "it is tried")
        notifier._ending.set()
        for asked in (3, 4):
            await until(lambda: box.asked >= asked - 1, "it is tried again")  # noqa: B023
            await place.sleeps(sending.LONGEST_LAST_PAUSE)
            place.later(seconds=sending.LONGEST_LAST_PAUSE)
        await told(box, ("failed", "davis"))
    assert box.told == [("failed", "davis")]


@with_workers
async def test_a_renamed_item_recovers(place: Workplace) -> None:
    box, at = Box(), await place.worker()
    await place.add("davis", every="1h")
    async with notifying(at, box):
        await ends(place, at, Outcome.FAILED)
        await told(box, ("failed", "davis"))
        await in_states(place, "accepted")
        await rename(place.other, "davis", "woodland", place.mark())
        place.later(hours=1)
        await at.walk()
        (await at.run("woodland")).end()
        await told(box, ("failed", "davis"), ("recovered", "woodland"))
    assert await notices(place) == []


@with_workers
async def test_an_item_that_is_paused_while_it_runs_well_sends_nothing(place: Workplace) -> None:
    box, at = Box(), await place.worker()
    await place.add("davis", every="1h")
    async with notifying(at, box) as notifier:
        await ends(place, at, Outcome.FAILED)
        await told(box, ("failed", "davis"))
        place.later(hours=1)
        await at.walk()
        run = await at.run("davis", 1)
        await pause(place.other, "davis", place.mark())
        run.end()
        await at.tells(RunEnded, 2)
        await until(lambda: not notifier._waiting, "it is looked at")
    assert box.told == [("failed", "davis")]
