"""The rows of notices: of many workers one sends a notice, and once; what is news, and when."""

from datetime import timedelta

import pytest

from blackboard.events import OverdueRun
from blackboard.model import Outcome, replace
from blackboard.notify.notices import (
    HANDOVER,
    Notice,
    NoticeRow,
    begin,
    confirmed,
    end,
    is_news,
    mark_accepted,
    of_overdue,
)
from blackboard.notify.settings import NoticeKind
from blackboard.protocol.edits import pause, remove
from blackboard.protocol.keys import notice_key, notices_partition
from blackboard.table import ANY, Data, Merge, Row, read
from tests.support.boards import Scene, story
from tests.support.clocks import START
from tests.support.faults import Fault
from tests.support.receivers import NOTICE

DAY = timedelta(days=1)
OVERDUE = replace(NOTICE, event=NoticeKind.OVERDUE)
WARNED = replace(NOTICE, event=NoticeKind.WARNED, failures=0)
WARNS = frozenset({"warned"})
RECOVERED = replace(NOTICE, event=NoticeKind.RECOVERED)
SENT = NoticeRow(
    events=frozenset({"failed"}),
    at=START,
    fence=3,
    failures=1,
    nonce="n",
    accepted=True,
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
        ("something else", OVERDUE, SENT, 1.0, True),
        ("told of both", OVERDUE, replace(SENT, events=frozenset(NoticeKind)), 1.0, False),
        ("a day is over", NOTICE, SENT, 86_400.0, True),
        ("somebody is at it", NOTICE, replace(SENT, accepted=False, age=HANDOVER), 86_400.0, False),
        ("nobody took it", NOTICE, replace(SENT, accepted=False, age=HANDOVER + 1), 1.0, True),
        ("it warns", WARNED, SENT, 1.0, True),
        ("it warns again", replace(WARNED, fence=9), replace(SENT, events=WARNS), 1.0, False),
        ("it warns for a day", WARNED, replace(SENT, events=WARNS), 86_400.0, True),
        ("it fails and has warned", NOTICE, replace(SENT, events=WARNS), 1.0, True),
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


async def row(scene: Scene) -> Row | None:
    return await read(scene.table.table, notices_partition("town"), notice_key("davis"))


@story
async def test_of_two_workers_one_tells(scene: Scene) -> None:
    first = await begin(scene.board, NOTICE, again=DAY)
    assert first
    assert await begin(scene.other, NOTICE, again=DAY) is None
    await mark_accepted(scene.board, "davis", first)
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
    await mark_accepted(scene.board, "davis", etag)
    found = await row(scene)
    assert found is not None
    assert found.data["accepted"] is True


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.NEVER])
@story
async def test_a_lost_reply_of_a_later_notice_is_settled_as_well(
    scene: Scene, fault: Fault
) -> None:
    first = await begin(scene.board, NOTICE, again=DAY)
    assert first
    await mark_accepted(scene.board, "davis", first)
    scene.table.script(fault)
    assert await begin(scene.board, OVERDUE, again=DAY)
    found = await row(scene)
    assert found is not None
    assert found.data["events"] == "failed overdue"


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
        await mark_accepted(scene.board, "davis", etag)
        scene.later(hours=23)
        assert await begin(scene.other, NOTICE, again=DAY) is None
        scene.later(hours=1)


@pytest.mark.parametrize("fault", [Fault.NONE, Fault.LOST, Fault.NEVER, Fault.LATE])
@story
async def test_the_end_is_told_by_one(scene: Scene, fault: Fault) -> None:
    assert not await end(scene.board, "davis")
    await begin(scene.board, NOTICE, again=DAY)
    scene.table.script(fault)
    assert await end(scene.board, "davis")
    await scene.table.land()
    assert await row(scene) is None
    assert not await end(scene.other, "davis")


@story
async def test_whoever_deletes_the_row_first_tells_the_end(scene: Scene) -> None:
    async def another() -> None:
        assert await end(scene.other, "davis")

    await begin(scene.board, NOTICE, again=DAY)
    scene.table.script(another)
    assert not await end(scene.board, "davis")


@story
async def test_a_failure_after_an_unseen_recovery_is_told(scene: Scene) -> None:
    for fence in (3, 5, 7):
        etag = await begin(scene.board, replace(NOTICE, fence=fence), again=None)
        assert etag
        await mark_accepted(scene.board, "davis", etag)


@story
async def test_a_row_that_lacks_everything_is_told_anew(scene: Scene) -> None:
    partition, key = notices_partition("town"), notice_key("davis")
    await begin(scene.board, NOTICE, again=DAY)
    nothing: Data = {
        "events": "",
        "at": "",
        "nonce": "",
        "fence": 0,
        "failures": 0,
        "accepted": True,
    }
    await scene.other.table.commit(partition, [Merge(key, nothing, ANY)])
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
    scene.later(hours=1)
    await scene.let_go(await scene.claimed(), "ok")
    assert await confirmed(scene.board, NOTICE) is None
    assert await confirmed(scene.board, RECOVERED) == RECOVERED


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
