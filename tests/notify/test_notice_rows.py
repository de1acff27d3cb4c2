"""The rows of notices: of many workers one sends a notice, and once; what is news, and when."""

from datetime import timedelta

import pytest

from blackboard.events import OverdueRun
from blackboard.model import Outcome, State, replace
from blackboard.notify.notice_rows import (
    ACCEPTED,
    HANDOVER,
    SENDING,
    UNSENT,
    NoticeRow,
    begin,
    end,
    is_news,
    may_look,
    notice_row_of,
    settle,
)
from blackboard.notify.notices import Notice, confirmed, of_item, of_overdue
from blackboard.notify.settings import NoticeKind
from blackboard.protocol.edits import pause, remove
from blackboard.protocol.keys import notice_key, notices_partition
from blackboard.table import ANY, Data, Merge, Replace, Row, read
from tests.protocol.test_rows import ITEM, RUN
from tests.support.boards import Scene, story
from tests.support.clocks import START
from tests.support.faults import Fault
from tests.support.receivers import NOTICE

DAY = timedelta(days=1)
OVERDUE = replace(NOTICE, event=NoticeKind.OVERDUE)
WARNED = replace(NOTICE, event=NoticeKind.WARNED, failures=0)
RECOVERED = replace(NOTICE, event=NoticeKind.RECOVERED)
SENT = NoticeRow(
    key="notice:davis:failed",
    id="davis",
    kind="failed",
    state=ACCEPTED,
    heard=True,
    tries=1,
    at=START,
    fence=3,
    failures=1,
    nonce="n",
    version=1,
    etag="e",
    age=0.0,
)


@pytest.mark.parametrize(
    ("why", "notice", "sent", "after", "news"),
    [
        ("it lasts", NOTICE, SENT, 1.0, False),
        ("it fails again", replace(NOTICE, fence=4, failures=2), SENT, 1.0, False),
        ("it was well in between", replace(NOTICE, fence=9), SENT, 1.0, True),
        ("it failed less often", replace(NOTICE, fence=9), replace(SENT, failures=5), 1.0, True),
        ("a day is over", NOTICE, SENT, 86_400.0, True),
        ("somebody is at it", NOTICE, replace(SENT, state=SENDING, age=HANDOVER), 86_400.0, False),
        ("nobody took it", NOTICE, replace(SENT, state=SENDING, age=HANDOVER + 1), 1.0, True),
        ("it is unsent", NOTICE, replace(SENT, state=UNSENT, age=HANDOVER + 1), 1.0, True),
        ("unsent twice", NOTICE, replace(SENT, state=UNSENT, tries=2, age=500), 1.0, False),
        ("and for long", NOTICE, replace(SENT, state=UNSENT, tries=2, age=601), 1.0, True),
        ("for ever", NOTICE, replace(SENT, state=UNSENT, tries=99, age=4801), 1.0, True),
        ("it warns again", replace(WARNED, fence=9), replace(SENT, kind="warned"), 1.0, False),
        ("it warns for a day", WARNED, replace(SENT, kind="warned"), 86_400.0, True),
        ("sent by a clock ahead", NOTICE, replace(SENT, at=START + 3650 * DAY), 1.0, True),
        ("warned so", WARNED, replace(SENT, kind="warned", at=START + 3650 * DAY), 1.0, True),
        ("by one a moment ahead", NOTICE, replace(SENT, at=START + DAY / 2880), 1.0, False),
        ("a newer program's", OVERDUE, replace(SENT, version=2), 86_400.0, False),
    ],
)
def test_what_is_news(
    *, why: str, notice: Notice, sent: NoticeRow, after: float, news: bool
) -> None:
    now = START + timedelta(seconds=after)
    assert is_news(notice, sent, now=now, again=DAY) is news, why


def test_without_a_reminder_it_is_told_once_and_for_all() -> None:
    assert not is_news(NOTICE, SENT, now=START + 1000 * DAY, again=None)


async def row(scene: Scene, kind: str = "failed") -> Row | None:
    return await read(scene.table.table, notices_partition("town"), notice_key("davis", kind))


@story
async def test_of_two_workers_one_tells(scene: Scene) -> None:
    first = await begin(scene.board, NOTICE, again=DAY)
    assert first
    assert await begin(scene.other, NOTICE, again=DAY) is None
    await settle(scene.board, NOTICE, first, accepted=True)
    scene.later(hours=1)
    assert await begin(scene.other, replace(NOTICE, fence=4, failures=2), again=DAY) is None


@story
async def test_whoever_is_faster_between_reading_and_writing_tells(scene: Scene) -> None:
    async def another() -> None:
        assert await begin(scene.other, NOTICE, again=DAY)

    scene.table.script(another)
    assert await begin(scene.board, NOTICE, again=DAY) is None


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.NEVER, Fault.LATE])
@story
async def test_a_lost_reply_is_settled_by_the_nonce(scene: Scene, fault: Fault) -> None:
    scene.table.script(fault)
    etag = await begin(scene.board, NOTICE, again=DAY)
    assert etag
    await scene.table.land()
    assert await begin(scene.other, NOTICE, again=DAY) is None
    await settle(scene.board, NOTICE, etag, accepted=True)
    found = await row(scene)
    assert found is not None
    assert found.data["state"] == ACCEPTED


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.NEVER])
@story
async def test_a_lost_reply_of_a_later_notice_is_settled_as_well(
    scene: Scene, fault: Fault
) -> None:
    first = await begin(scene.board, NOTICE, again=DAY)
    assert first
    await settle(scene.board, NOTICE, first, accepted=True)
    scene.later(hours=24)
    scene.table.script(fault)
    assert await begin(scene.board, NOTICE, again=DAY)
    found = await row(scene)
    assert found is not None
    assert (found.data["state"], found.data["heard"]) == (SENDING, True)


@story
async def test_kinds_of_trouble_are_sent_each_by_itself(scene: Scene) -> None:
    assert await begin(scene.board, OVERDUE, again=DAY)
    assert await begin(scene.board, NOTICE, again=DAY), "though the other is under way"


@story
async def test_a_notice_that_no_way_took_is_sent_later_and_later(scene: Scene) -> None:
    for pause_ in (HANDOVER, 2 * HANDOVER, 4 * HANDOVER):
        etag = await begin(scene.board, NOTICE, again=DAY)
        assert etag
        await settle(scene.board, NOTICE, etag, accepted=False)
        scene.later(seconds=pause_ - 10)
        assert await begin(scene.other, NOTICE, again=DAY) is None
        scene.later(seconds=20)
    etag = await begin(scene.other, NOTICE, again=DAY)
    assert etag
    await settle(scene.other, NOTICE, etag, accepted=True)
    assert await end(scene.board, RECOVERED)


@story
async def test_the_end_of_what_nobody_heard_of_is_not_told(scene: Scene) -> None:
    etag = await begin(scene.board, NOTICE, again=DAY)
    assert etag
    await settle(scene.board, NOTICE, etag, accepted=False)
    assert not await end(scene.other, RECOVERED)
    assert await row(scene) is None


@story
async def test_the_end_of_failures_leaves_what_is_known_of_warnings(scene: Scene) -> None:
    for notice in (WARNED, OVERDUE, NOTICE):
        etag = await begin(scene.board, notice, again=DAY)
        assert etag
        await settle(scene.board, notice, etag, accepted=True)
    assert await end(scene.board, RECOVERED)
    assert await row(scene, "warned")
    assert await begin(scene.board, replace(WARNED, fence=9), again=DAY) is None
    assert not await end(scene.board, RECOVERED)


@story
async def test_one_worker_at_a_time_looks_after_the_rows(scene: Scene) -> None:
    assert await may_look(scene.board)
    assert not await may_look(scene.other)
    scene.later(seconds=HANDOVER + 1)
    assert await may_look(scene.other)
    assert not await may_look(scene.board)


@story
async def test_a_notice_that_nobody_took_is_told_by_another(scene: Scene) -> None:
    assert await begin(scene.board, NOTICE, again=DAY)
    scene.later(seconds=HANDOVER - 10)
    assert await begin(scene.other, NOTICE, again=DAY) is None
    scene.later(seconds=20)
    assert await begin(scene.other, NOTICE, again=DAY)
    assert await begin(scene.board, NOTICE, again=DAY) is None


@story
async def test_it_is_told_again_while_it_lasts(scene: Scene) -> None:
    for _ in range(3):
        etag = await begin(scene.board, NOTICE, again=DAY)
        assert etag
        await settle(scene.board, NOTICE, etag, accepted=True)
        scene.later(hours=23)
        assert await begin(scene.other, NOTICE, again=DAY) is None
        scene.later(hours=1)


@story
async def test_what_was_sent_under_a_clock_that_was_ahead_is_sent_again(scene: Scene) -> None:
    etag = await begin(scene.board, WARNED, again=DAY)
    assert etag
    await settle(scene.board, WARNED, etag, accepted=True)
    partition, key = notices_partition("town"), notice_key("davis", "warned")
    ahead = scene.clock.now() + 3650 * DAY
    await scene.other.table.commit(partition, [Merge(key, {"at": ahead}, ANY)])
    etag = await begin(scene.other, WARNED, again=DAY)
    assert etag
    await settle(scene.other, WARNED, etag, accepted=True)
    assert await begin(scene.board, WARNED, again=DAY) is None


@pytest.mark.cases_of_one_store("what is news is decided above the store")
@pytest.mark.parametrize("fault", [Fault.NONE, Fault.LOST, Fault.NEVER, Fault.LATE, Fault.TWICE])
@story
async def test_the_end_is_told_by_one(scene: Scene, fault: Fault) -> None:
    assert not await end(scene.board, RECOVERED)
    await begin(scene.board, NOTICE, again=DAY)
    scene.table.script(fault)
    assert await end(scene.board, RECOVERED)
    await scene.table.land()
    assert await row(scene) is None
    assert not await end(scene.other, RECOVERED)


@story
async def test_whoever_deletes_the_row_first_tells_the_end(scene: Scene) -> None:
    async def another() -> None:
        assert await end(scene.other, RECOVERED)

    await begin(scene.board, NOTICE, again=DAY)
    scene.table.script(another)
    assert not await end(scene.board, RECOVERED)


@story
async def test_what_failed_after_the_recovery_is_not_ended_by_it(scene: Scene) -> None:
    """Where the item was well when that was confirmed, and has failed again since."""
    etag = await begin(scene.other, OVERDUE, again=DAY)
    assert etag
    await settle(scene.other, OVERDUE, etag, accepted=True)
    again = replace(NOTICE, fence=RECOVERED.fence + 1)
    etag = await begin(scene.other, again, again=DAY)
    assert etag
    assert await end(scene.board, RECOVERED)
    assert await row(scene, "overdue") is None
    await settle(scene.other, again, etag, accepted=True)
    found = await row(scene)
    assert found is not None
    assert found.data["state"] == ACCEPTED
    assert not await end(scene.board, RECOVERED)
    assert await end(scene.board, replace(RECOVERED, fence=again.fence + 1))


@story
async def test_a_batch_that_was_lost_ends_nothing_that_another_worker_has_ended(
    scene: Scene,
) -> None:
    async def another() -> None:
        assert await end(scene.other, RECOVERED)

    await begin(scene.board, NOTICE, again=DAY)
    scene.table.script(Fault.NEVER)
    scene.table.script_reads(Fault.NONE, another)
    assert not await end(scene.board, RECOVERED)


@story
async def test_a_failure_after_an_unseen_recovery_is_told(scene: Scene) -> None:
    for fence in (3, 5, 7):
        etag = await begin(scene.board, replace(NOTICE, fence=fence), again=None)
        assert etag
        await settle(scene.board, NOTICE, etag, accepted=True)


@story
async def test_a_row_that_makes_no_sense_is_told_anew(scene: Scene) -> None:
    partition, key = notices_partition("town"), notice_key("davis", "failed")
    odd: tuple[Data, ...] = (
        {},
        {"item": 7, "state": "x", "at": 7, "fence": "x", "tries": 1.5},
        {"item": "davis", "state": ACCEPTED, "at": "", "fence": True, "failures": -5, "heard": 1},
    )
    await begin(scene.board, NOTICE, again=DAY)
    for nothing in odd:
        await scene.other.table.commit(partition, [Replace(key, nothing, ANY)])
        scene.later(seconds=HANDOVER + 1)
        found = await row(scene)
        assert found is not None
        assert notice_row_of(scene.board, found).age > HANDOVER
        assert await begin(scene.board, NOTICE, again=DAY)


# ---- what the item says


@story
async def test_what_a_person_has_seen_to_is_not_told(scene: Scene) -> None:
    await scene.add()
    await scene.let_go(await scene.claimed(), "failed")
    assert await confirmed(scene.board, NOTICE) == NOTICE
    await pause(scene.other, "davis", scene.mark())
    assert await confirmed(scene.board, NOTICE) is None
    await remove(scene.other, "davis")
    assert await confirmed(scene.board, NOTICE) is None
    assert await confirmed(scene.board, replace(NOTICE, id="absent")) is None


@story
async def test_what_is_well_again_or_tried_again_has_not_failed(scene: Scene) -> None:
    await scene.add(every="1h", retries=1, backoff="1s")
    await scene.let_go(await scene.claimed(), "failed")
    assert await confirmed(scene.board, NOTICE) is None
    scene.later(seconds=2)
    await scene.let_go(await scene.claimed(), "failed")
    assert await confirmed(scene.board, NOTICE) == NOTICE
    assert await confirmed(scene.board, RECOVERED) is None
    scene.later(hours=1)
    await scene.let_go(await scene.claimed(), "ok")
    assert await confirmed(scene.board, NOTICE) is None
    assert await confirmed(scene.board, RECOVERED) == RECOVERED
    await pause(scene.other, "davis", scene.mark())
    assert await confirmed(scene.board, RECOVERED) is None


@story
async def test_a_token_that_was_taken_is_not_overdue(scene: Scene) -> None:
    await scene.add(every="1h")
    await scene.let_go(await scene.claimed(), "failed", error="no answer")
    scene.later(hours=2)
    token = await scene.token()
    waits = OverdueRun(
        id=token.id,
        type=token.type,
        fence=token.fence,
        due=token.slot,
        ready=token.ready,
        attempt=token.attempt,
        failures=token.failures,
    )
    notice = of_overdue(waits)
    found = await confirmed(scene.board, notice)
    assert found is not None
    assert (found.outcome, found.error) == (Outcome.FAILED.value, "no answer")
    assert (found.start, found.stop) == (START, START)
    await scene.claimed()
    assert await confirmed(scene.board, notice) is None


@pytest.mark.parametrize("lag", [-1e300, 99_999_999_999.0, 1e300])
def test_a_lag_that_makes_no_sense_keeps_no_notice_from_being_made(lag: float) -> None:
    item = replace(ITEM, state=State.ACTIVE, outcome=Outcome.OK, failures=0, start=ITEM.slot)
    assert of_item(item, replace(RUN, lag=lag)) is not None
