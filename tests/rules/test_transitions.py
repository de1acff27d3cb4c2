"""Each event, in each phase of an item: it leads where the table says, or is refused."""

from collections.abc import Callable
from datetime import datetime

import pytest

from blackboard.model import Item, Outcome, QueuedRun, Run, State, replace
from blackboard.rules import transitions
from blackboard.rules.next_run import Planning
from blackboard.rules.transitions import (
    TRANSITIONS,
    IllegalTransition,
    ItemEvent,
    Phase,
    added,
    applies,
    brought_back,
    claimed,
    freed,
    overridden,
    passed_over,
    paused,
    phase_of,
    released,
    removed,
    requested,
    rescheduled,
    resumed,
    run_of,
    unlocked,
)
from blackboard.spec import RunSettings
from tests.support.plans import DAY, HOUR, HOURLY, MINUTE, NOON, item, settings

NOW = NOON + MINUTE
WAITING = item(start=NOON - HOUR)
DONE = replace(WAITING, state=State.DONE, schedule="cron 0 * * * *")
PAUSED = replace(WAITING, state=State.PAUSED, paused="{}")
RUNNING = replace(item(start=NOON), running=True, owner="me")
ITEMS = {
    Phase.ABSENT: replace(WAITING, state=State.REMOVED),
    Phase.WAITING: WAITING,
    Phase.RUNNING: RUNNING,
    Phase.RUNNING_PAUSED: replace(RUNNING, state=State.PAUSED, paused="{}"),
    Phase.PAUSED: PAUSED,
    Phase.DONE: DONE,
    Phase.DONE_PAUSED: replace(DONE, paused="{}"),
}
OVER = settings(at="2026-11-21T11:00Z")
"""A schedule without a next slot."""
GOES_ON = settings(cron=HOURLY)


def run(one: Item, outcome: Outcome) -> Run:
    return run_of(one, outcome, now=NOW)


def set_back(one: Item) -> Item:
    """As by a clock that was far ahead: nothing explains what it waits for."""
    return replace(one, slot=NOON + 99 * DAY, ready=NOON + 99 * DAY, planned=NOON + 99 * DAY)


def planning(by: RunSettings) -> Planning:
    return Planning(settings=by, schedules=[by.schedule] if by.schedule else [])


OUTCOMES: dict[ItemEvent, list[Callable[[Item, RunSettings], Item]]] = {
    ItemEvent.ADD: [
        lambda one, by: added("a", "feed", "{}", before=one, settings=by, first=None, now=NOW)
    ],
    ItemEvent.CLAIM: [lambda one, by: claimed(one, settings=by, owner="me", now=NOW)],
    ItemEvent.SKIP: [lambda one, by: passed_over(one, settings=by, now=NOW)],
    ItemEvent.OVERRIDE: [lambda one, _: overridden(one, owner="you", now=NOW)],
    ItemEvent.RELEASE: [
        lambda one, by: released(one, run(one, Outcome.OK), settings=by, fraction=0.5),
    ],
    ItemEvent.FREE: [lambda one, by: freed(one, run(one, Outcome.CANCELLED), settings=by)],
    ItemEvent.UNLOCK: [lambda one, _: unlocked(one, run(one, Outcome.ABANDONED))],
    ItemEvent.PAUSE: [lambda one, _: paused(one, "{}")],
    ItemEvent.RESUME: [lambda one, _: resumed(one, "{}", now=NOW)],
    ItemEvent.ASK: [lambda one, _: requested(one, name="a", once="", now=NOW).item],
    ItemEvent.RESCHEDULE: [
        lambda one, by: rescheduled(one, settings=by, had_time=False, now=NOW),
    ],
    ItemEvent.REPAIR: [
        lambda one, by: brought_back(one, planning(by), now=NOW),
        lambda one, by: brought_back(set_back(one), planning(by), now=NOW),
    ],
    ItemEvent.REMOVE: [lambda one, _: removed(one, now=NOW)],
}
"""What each event makes of an item, in all the ways that lead elsewhere."""


def test_each_phase_has_its_item() -> None:
    assert {phase_of(one): phase for phase, one in ITEMS.items()} == {one: one for one in Phase}
    assert phase_of(None) is Phase.ABSENT


@pytest.mark.parametrize("event", ItemEvent)
@pytest.mark.parametrize("phase", Phase)
def test_an_event_leads_to_each_phase_of_its_row_and_to_no_other(
    event: ItemEvent, phase: Phase
) -> None:
    before = ITEMS[phase]
    if phase not in TRANSITIONS[event]:
        assert not applies(event, before)
        for made in OUTCOMES[event]:
            with pytest.raises(IllegalTransition, match=f"{phase.value}: {event.value} does not"):
                made(before, GOES_ON)
        return
    after = [made(before, by) for made in OUTCOMES[event] for by in (OVER, GOES_ON)]
    assert {phase_of(one) for one in after} == TRANSITIONS[event][phase]


@pytest.mark.parametrize("event", ItemEvent)
@pytest.mark.parametrize("phase", Phase)
def test_no_event_lowers_a_fence_or_touches_what_an_item_is(event: ItemEvent, phase: Phase) -> None:
    before = replace(ITEMS[phase], fence=7, born=3)
    if not applies(event, before):
        return
    for made in OUTCOMES[event]:
        after = made(before, GOES_ON)
        assert after.fence - before.fence == (event in RAISES)
        if event is not ItemEvent.ADD:
            assert (after.id, after.type, after.born) == (before.id, before.type, before.born)


RAISES = {ItemEvent.CLAIM, ItemEvent.OVERRIDE, ItemEvent.FREE, ItemEvent.UNLOCK, ItemEvent.REMOVE}


def test_a_new_life_of_an_id_is_born_with_the_fence_that_was_left() -> None:
    tombstone = removed(replace(RUNNING, fence=7), now=NOW)
    again = added("a", "feed", "{}", before=tombstone, settings=GOES_ON, first=None, now=NOW)
    assert (tombstone.fence, again.fence, again.born) == (8, 8, 8)


def test_an_override_is_another_attempt_and_the_loss_of_a_run() -> None:
    before = replace(RUNNING, fence=7, attempt=2, runs=5, failures=1)
    after = overridden(before, owner="you", now=NOW)
    assert (after.fence, after.attempt, after.runs, after.failures) == (8, 3, 6, 2)
    assert (after.slot, after.start, after.owner) == (before.slot, NOW, "you")


def test_an_unlock_counts_the_run_and_neither_an_attempt_nor_a_failure() -> None:
    before = replace(RUNNING, attempt=2, runs=5, failures=1)
    after = unlocked(before, run(before, Outcome.ABANDONED))
    assert (after.attempt, after.runs, after.failures) == (2, 6, 1)
    assert (after.slot, after.ready, after.outcome) == (before.slot, NOW, Outcome.ABANDONED)


@pytest.mark.parametrize(
    ("outcome", "result"), [(Outcome.OK, ("new", 7)), (Outcome.FAILED, ("old", 3))]
)
def test_only_a_good_run_changes_the_result(outcome: Outcome, result: tuple[str, int]) -> None:
    before = replace(RUNNING, fence=7, result="old", result_fence=3)
    ended = run_of(before, outcome, now=NOW, result="new")
    after = released(before, ended, settings=GOES_ON, fraction=0.5)
    assert (after.result, after.result_fence) == result


@pytest.mark.parametrize(
    ("planned", "slot"), [(NOON + HOUR, NOON + 5 * MINUTE), (NOON, NOON + 5 * MINUTE)]
)
def test_a_new_schedule_leaves_the_slot_of_a_run_that_was_asked_for(
    planned: datetime, slot: datetime
) -> None:
    before = replace(WAITING, slot=slot, ready=slot, planned=planned)
    after = rescheduled(before, settings=GOES_ON, had_time=False, now=NOW)
    assert (after.slot, after.ready, after.planned) == (slot, slot, NOON + HOUR)


def test_the_row_of_a_late_run_keeps_what_an_operator_noted() -> None:
    late = run(RUNNING, Outcome.OK)
    row = replace(late, outcome=Outcome.CANCELLED, note="{}")
    assert not transitions.stays(row, late)
    told = transitions.superseded(late, row)
    assert (told.outcome, told.note) == (Outcome.SUPERSEDED, "{}")
    assert transitions.stays(row, replace(late, outcome=Outcome.FAILED))
    assert transitions.stays(told, late)
    assert not transitions.stays(replace(row, outcome=Outcome.ABANDONED), late)


def test_the_table_at_the_head_is_the_table() -> None:
    """Its lines say from where to where; `as release` and the like are written out here."""
    text = transitions.__doc__ or ""
    table = text[text.index("    ------------  ----") : text.index("A claim is made without")]
    assert {line[4:18].strip() for line in table.splitlines()[1:]} - {""} == set(ItemEvent)
    for event in ItemEvent:
        assert TRANSITIONS[event], event


def test_requests_are_taken_in_order() -> None:
    queue = tuple(QueuedRun(name=name, slot=NOON, once="") for name in "ab")
    before = replace(RUNNING, requests=queue)
    after = released(before, run(before, Outcome.OK), settings=OVER, fraction=0.5)
    assert (phase_of(after), after.requests) == (Phase.WAITING, queue[1:])
