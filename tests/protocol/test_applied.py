"""Each verb of an operator counts once, whatever gets lost and whatever others do meanwhile."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest

from blackboard.errors import BadInput, BlackboardError
from blackboard.model import Item, State, replace
from blackboard.protocol.actions import changed_fields
from blackboard.protocol.edits import edit, pause, remove, resume, run_now
from blackboard.rules.applied import (
    ADDED,
    ALWAYS,
    LONGEST_NAME,
    MOST,
    OWN,
    REMEMBERED,
    RETRIED_FOR,
    is_applied,
)
from blackboard.rules.next_run import slots_in_line
from blackboard.rules.transitions import LONGEST_QUEUE
from tests.support.boards import Scene, story
from tests.support.faults import Fault
from tests.support.verbs import VERBS, add_here, ready_for, says

pytestmark = pytest.mark.of_one_store("what is read and written is decided above the store")

MANY = LONGEST_QUEUE - 2
"""Runs that may wait, and one more of another."""
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
Doing = Callable[[Scene], Awaitable[object]]


async def paused_by_another(scene: Scene) -> None:
    await pause(scene.other, "davis", scene.mark("not before tomorrow"))


async def resumed_by_another(scene: Scene) -> None:
    await resume(scene.other, "davis", scene.mark("it is tomorrow"))


async def edited_by_another(scene: Scene) -> None:
    await edit(scene.other, "davis", says(every="7h"))


async def run_by_others(scene: Scene) -> None:
    for n in range(MANY):
        await run_now(scene.other, "davis", once={"n": n})


async def added_by_another(scene: Scene) -> None:
    await scene.add("davis", every="7h")


async def claimed_by_another(scene: Scene) -> None:
    await run_now(scene.other, "davis")
    await scene.claimed("davis", board=scene.other)


UNDONE = [
    ("pause", resumed_by_another),
    ("resume", paused_by_another),
    ("edit", edited_by_another),
    ("run_now", run_by_others),
    ("unlock", claimed_by_another),
    ("cancel", claimed_by_another),
    ("remove", added_by_another),
]


def test_every_verb_is_undone_by_another() -> None:
    assert {verb for verb, _ in UNDONE} == set(VERBS)


@pytest.mark.cases_of_one_store("names are remembered above the store")
@pytest.mark.parametrize(("verb", "undo"), UNDONE)
@story
async def test_a_retry_does_not_undo_what_another_operator_did_meanwhile(
    scene: Scene, *, verb: str, undo: Doing
) -> None:
    """The verb was applied, its reply was lost, and another one came before it was tried again."""
    await ready_for(verb, scene)
    left: list[Item | None] = []

    async def meanwhile() -> None:
        scene.later(seconds=1)
        await undo(scene)
        left.append(await scene.other.item("davis"))

    scene.table.script(Fault.LOST)
    scene.table.script_reads(Fault.NONE, meanwhile)
    assert (await VERBS[verb](scene)).changed
    assert [await scene.board.item("davis")] == left


@pytest.mark.cases_of_one_store("names are remembered above the store")
@pytest.mark.parametrize("others", [1, MANY])
@story
async def test_a_verb_counts_once_however_many_came_in_between(
    scene: Scene, *, others: int
) -> None:
    await scene.add("davis")

    async def meanwhile() -> None:
        for n in range(others):
            await run_now(scene.other, "davis", once={"n": n})

    scene.table.script(Fault.LOST)
    scene.table.script_reads(Fault.NONE, meanwhile)
    assert (await run_now(scene.board, "davis", once={"mine": True})).changed
    assert len(slots_in_line(await scene.item())) == 1 + others


@pytest.mark.cases_of_one_store("names are remembered above the store")
@pytest.mark.parametrize("verb", ["pause", "edit"])
@story
async def test_a_verb_in_doubt_is_not_tried_again_when_its_name_may_be_forgotten(
    scene: Scene, *, verb: str
) -> None:
    """And was, by ten others in eleven minutes: the item says nothing of it any more."""
    await ready_for(verb, scene)
    left: list[Item | None] = []

    async def meanwhile() -> None:
        scene.later(seconds=(REMEMBERED + SECOND).total_seconds())
        if verb == "pause":
            await resumed_by_another(scene)
        for n in range(ALWAYS + 1):
            await edit(scene.other, "davis", says(every=f"{n + 10}h"))
        left.append(await scene.other.item("davis"))

    scene.table.script(Fault.LOST)
    scene.table.script_reads(Fault.NONE, meanwhile)
    with pytest.raises(BlackboardError, match=r"did not say within 5m whether davis was changed"):
        await VERBS[verb](scene)
    assert [await scene.board.item("davis")] == left


@pytest.mark.of_one_store("names are remembered above the store")
@story
async def test_an_adding_in_doubt_is_given_up_in_time(scene: Scene) -> None:
    async def meanwhile() -> None:
        scene.later(seconds=(RETRIED_FOR + SECOND).total_seconds())

    scene.table.script(Fault.NEVER)
    scene.table.script_reads(Fault.NONE, meanwhile)
    with pytest.raises(BlackboardError, match="did not say within 5m"):
        await add_here(scene)
    assert await scene.board.item("davis") is None


@story
async def test_a_lost_race_is_no_doubt_and_is_tried_again_however_late(scene: Scene) -> None:
    await scene.add("davis")

    async def faster() -> None:
        scene.later(seconds=(RETRIED_FOR + SECOND).total_seconds())
        await edit(scene.other, "davis", says(every="7h"))

    scene.table.script(faster)
    assert (await pause(scene.board, "davis", scene.mark())).changed
    assert (await scene.item()).state is State.PAUSED


@pytest.mark.of_one_store("names are remembered above the store")
@story
async def test_an_item_remembers_as_many_names_as_fit_and_refuses_more(scene: Scene) -> None:
    await scene.add("davis")
    for n in range(MOST - 1):
        await run_now(scene.board, "davis", trigger=f"{n:0{LONGEST_NAME}}")
    before = await scene.item()
    assert len(before.applied) == MOST
    assert len(before.applied) < scene.board.table.max_value
    with pytest.raises(BlackboardError, match="davis was changed 200 times within 10m"):
        await pause(scene.board, "davis", scene.mark())
    assert await scene.item() == before
    scene.later(seconds=(REMEMBERED + SECOND).total_seconds())
    await pause(scene.board, "davis", scene.mark())
    assert len((await scene.item()).applied) == ALWAYS + 1  # that of the waiting run as well


@pytest.mark.of_one_store("names are remembered above the store")
@story
async def test_long_names_for_which_the_row_has_no_room_are_refused_as_well(scene: Scene) -> None:
    """A character may take two of UTF-16, or six of JSON."""

    async def ask_too_often() -> None:
        for n in range(MOST):
            await run_now(scene.board, "davis", trigger=f"{n:03}".ljust(LONGEST_NAME, "\U0001f41d"))

    await scene.add("davis")
    with pytest.raises(BlackboardError, match=r"changed 1\d\d times within 10m: try again"):
        await ask_too_often()
    assert ALWAYS < len((await scene.item()).applied) < MOST


@pytest.mark.of_one_store("names are remembered above the store")
@story
async def test_a_name_that_no_item_holds_is_refused(scene: Scene) -> None:
    await scene.add("davis")
    for kept in OWN:
        with pytest.raises(BadInput, match=f"without '{kept}'"):
            await run_now(scene.board, "davis", trigger=f"{kept}17")
    with pytest.raises(BadInput, match="64 at the most"):
        await run_now(scene.board, "davis", trigger="x" * (LONGEST_NAME + 1))


@pytest.mark.of_one_store("names are remembered above the store")
@story
async def test_a_life_remembers_of_the_one_before_what_was_added_alone(scene: Scene) -> None:
    await scene.add("davis")
    await run_now(scene.board, "davis", trigger="deploy")
    await remove(scene.board, "davis")
    assert is_applied(await scene.item(), "deploy")
    await scene.add("davis")
    names = [one.name for one in (await scene.item()).applied]
    assert len(names) == 2
    assert all(name.startswith(ADDED) for name in names)


@pytest.mark.of_one_store("names are remembered above the store")
@story
async def test_a_verb_that_changes_nothing_leaves_no_name(scene: Scene) -> None:
    await scene.add("davis")
    before = await scene.item()
    assert not (await resume(scene.board, "davis", scene.mark())).changed
    assert not (await edit(scene.board, "davis", says(every="1h"))).changed
    assert await scene.item() == before


@pytest.mark.of_one_store("what was read and what was sent differ above the store")
@story
async def test_an_edit_without_an_answer_says_what_it_changed_and_not_what_others_did(
    scene: Scene,
) -> None:
    """Another was faster; the next try is applied, and its answer is lost."""
    await scene.add("davis")
    scene.table.script(
        lambda: edit(scene.other, "davis", says(every="1h", owner="eve")), Fault.LOST
    )
    done = await edit(scene.board, "davis", lambda spec, _: replace(spec, retries=7))
    assert done.changed
    assert done.before is not None
    assert changed_fields(done.before, done.item) == ["retries"]


@pytest.mark.of_one_store("names are remembered above the store")
@story
async def test_what_is_applied_again_later_under_its_name_is_the_same_request(
    scene: Scene,
) -> None:
    await scene.add("davis")
    await scene.claimed("davis")
    await run_now(scene.board, "davis", once={"n": 1})
    asked = await run_now(scene.board, "davis", trigger="mine", once={"n": 2})
    again = await run_now(scene.board, "davis", trigger="mine", once={"n": 2})
    assert (again.changed, again.slot, again.ahead) == (False, asked.slot, asked.ahead)


async def asked_by_others(scene: Scene, number: int) -> None:
    """So many runs are asked for by others, some minutes apart, and none of them waits for long."""
    for n in range(number):
        scene.later(minutes=5)
        await run_now(scene.other, "davis", trigger=f"order {n}")
        await scene.let_go(await scene.claimed("davis", board=scene.other), board=scene.other)


@pytest.mark.of_one_store("names are remembered above the store")
@story
async def test_a_trigger_that_comes_again_hours_later_makes_no_second_run(scene: Scene) -> None:
    """A webhook is delivered again after minutes, hours or days, and others came in between."""
    await scene.add("davis", every="365d")
    await scene.let_go(await scene.claimed())
    await run_now(scene.board, "davis", trigger="order 17 of ann", once={"order": 17})
    await scene.let_go(await scene.claimed())
    await asked_by_others(scene, ALWAYS - 1)
    before = await scene.item()
    again = await run_now(scene.board, "davis", trigger="order 17 of ann", once={"order": 17})
    assert not again.changed
    assert await scene.item() == before


@pytest.mark.of_one_store("names are remembered above the store")
@story
async def test_a_trigger_whose_run_waits_makes_no_second_one_whatever_was_done_since(
    scene: Scene,
) -> None:
    await scene.add("davis")
    await scene.claimed()
    asked = await run_now(scene.board, "davis", trigger="order 17", once={"order": 17})
    for n in range(ALWAYS + 1):
        scene.later(minutes=11)
        await edit(scene.other, "davis", says(every=f"{n + 10}h"))
    again = await run_now(scene.board, "davis", trigger="order 17", once={"order": 17})
    assert (again.changed, again.slot, again.ahead) == (False, asked.slot, asked.ahead)
    assert len((await scene.item()).requests) == 1


@pytest.mark.of_one_store("which names an item remembers is a rule")
@pytest.mark.parametrize("is_behind_another", [False, True])
@story
async def test_a_trigger_whose_run_is_in_hand_and_waits_makes_no_second_one(
    scene: Scene, *, is_behind_another: bool
) -> None:
    """As while no worker is there."""
    await scene.add("davis", every="365d")
    await scene.let_go(await scene.claimed())
    scene.later(minutes=1)
    if is_behind_another:
        await run_now(scene.board, "davis", once={"order": 16})
        scene.later(minutes=1)
    asked = await run_now(scene.board, "davis", trigger="order 17", once={"order": 17})
    if is_behind_another:
        await scene.let_go(await scene.claimed())
    for n in range(ALWAYS + 1):
        scene.later(minutes=11)
        await edit(scene.other, "davis", says(every="365d", owner=f"ann {n}"))
    again = await run_now(scene.board, "davis", trigger="order 17", once={"order": 17})
    assert (again.changed, again.slot) == (False, asked.slot)
    assert (await scene.item()).requests == ()


@pytest.mark.of_one_store("names are remembered above the store")
@story
async def test_the_latest_names_fit_whatever_they_are(scene: Scene) -> None:
    """A character may take six of JSON: no request is refused for names that are old."""
    await scene.add("davis", every="365d")
    for n in range(ALWAYS + 1):
        scene.later(minutes=11)
        await run_now(scene.board, "davis", trigger=f"{n:03}".ljust(LONGEST_NAME, "\0"))
    assert len((await scene.item()).applied) == ALWAYS + 1, "that of the run in hand is one more"
