"""What a doubt about a release does not change: the item's next slot, its retry, its params."""

from typing import Any

import pytest

from blackboard.model import Item
from blackboard.protocol.edits import edit, run_now
from tests.support.boards import Scene, story
from tests.support.faults import Fault
from tests.support.verbs import says

pytestmark = pytest.mark.of_one_store("what is read and written is decided above the store")

SPECS: dict[str, dict[str, Any]] = {
    "every": {"every": "7m"},
    "cron": {"cron": "* * * * *"},
    "cron, all": {"cron": "* * * * *", "missed": "all"},
    "cron, none": {"cron": "* * * * *", "missed": "none"},
    "jitter": {"cron": "*/2 * * * *", "jitter": "90s"},
    "rrule": {"rrule": "DTSTART:20260101T000000\nRRULE:FREQ=MINUTELY"},
    "retries": {"cron": "* * * * *", "retries": 2, "backoff": "1ms"},
}


def next_of(item: Item) -> tuple[object, ...]:
    """What its release decided, but for what chance or the time of writing has in it."""
    return item.state, item.slot, item.planned, item.attempt, item.failures, item.once


@pytest.mark.parametrize("said", SPECS.values(), ids=SPECS.keys())
@pytest.mark.parametrize("outcome", ["ok", "failed", "timeout"])
@story
async def test_a_release_after_a_doubt_is_the_one_that_there_was_before(
    scene: Scene, *, said: dict[str, Any], outcome: str
) -> None:
    for asked in (False, True):
        for fault in (Fault.NEVER, Fault.LOST, Fault.LATE):
            await two_are_released(scene, said, outcome=outcome, fault=fault, asked=asked)


@pytest.mark.of_each_store
@pytest.mark.parametrize("fault", [Fault.NEVER, Fault.LOST, Fault.LATE])
@story
async def test_a_retry_after_a_doubt_is_the_one_that_there_was_before(
    scene: Scene, *, fault: Fault
) -> None:
    said = SPECS["retries"]
    await two_are_released(scene, said, outcome="failed", fault=fault, asked=True)


async def two_are_released(
    scene: Scene, said: dict[str, Any], *, outcome: str, fault: Fault, asked: bool
) -> None:
    """Two items, claimed and released together, and one of them without an answer."""
    about = f"{fault.name} {asked}"
    names = (f"sure {about}", f"doubtful {about}")
    for name in names:
        await scene.add(name, **said)
    sure, doubtful = (await scene.take(*names)).claims
    if asked:
        for name in names:
            await run_now(scene.other, name, once={"x": 1})
    scene.later(seconds=50)
    await scene.let_go(sure, outcome)
    scene.table.script(fault)
    await scene.let_go(doubtful, outcome)
    await scene.table.land()
    after_sure, after_doubtful = [next_of(await scene.item(name)) for name in names]
    assert after_doubtful == after_sure, about


@pytest.mark.parametrize("verb", ["every", "cron"])
@story
async def test_an_edit_of_the_schedule_keeps_a_retry(scene: Scene, *, verb: str) -> None:
    await scene.add("davis", cron="0 3 * * *", retries=3, backoff="1m")
    made = await scene.claimed("davis")
    await scene.let_go(made, "failed", error="no")
    before = await scene.token()
    assert before.attempt == 2
    said = {"every": "5h"} if verb == "every" else {"cron": "0 7 * * *"}
    await edit(scene.other, "davis", says(retries=3, backoff="1m", **said))
    after = await scene.token()
    assert (after.slot, after.ready, after.attempt) == (before.slot, before.ready, 2)
