"""Each event, in each phase of an item: it leads where the table says, or is refused."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from blackboard.model import (
    LONGEST_TEXT,
    NEVER,
    VERSION,
    Applied,
    Item,
    LogLine,
    Outcome,
    QueuedRun,
    Run,
    State,
    replace,
)
from blackboard.rules import transitions
from blackboard.rules.next_run import MILLISECOND, part_of_jitter
from blackboard.rules.transitions import (
    TRANSITIONS,
    IllegalTransition,
    ItemEvent,
    LateMove,
    Phase,
    added,
    applies,
    brought_back,
    claimed,
    copied,
    first_moved,
    freed,
    late_move,
    overridden,
    passed_over,
    paused,
    phase_of,
    put_off,
    released,
    removed,
    requested,
    rescheduled,
    resumed,
    run_of,
    saved,
    unlocked,
)
from blackboard.rules.wrong_clock import Planning, problem_of_times
from blackboard.schedule.schedule import parse_schedule
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
GOES_ON = settings(cron=HOURLY, timezone="Asia/Tokyo")
CLOSED_FOR_GOOD = settings(cron=HOURLY, blackout="mon-sun")
"""Time without runs that has no end."""


def run(one: Item, outcome: Outcome) -> Run:
    return run_of(one, outcome, now=NOW)


def set_back(one: Item) -> Item:
    """As by a clock that was far ahead: nothing explains what it waits for."""
    return replace(one, slot=NOON + 99 * DAY, ready=NOON + 99 * DAY, planned=NOON + 99 * DAY)


def planning(by: RunSettings) -> Planning:
    return Planning(settings=by, written=by.schedule)


OUTCOMES: dict[ItemEvent, list[Callable[[Item, RunSettings], Item]]] = {
    ItemEvent.ADD: [
        lambda one, by: added("a", "feed", "{}", before=one, settings=by, first=None, now=NOW)
    ],
    ItemEvent.COPY: [
        lambda one, by: copied(PAUSED, "b", before=one, mark="{}", settings=by),
        lambda one, by: copied(DONE, "b", before=one, mark="{}", settings=by),
    ],
    ItemEvent.CLAIM: [lambda one, by: claimed(one, settings=by, owner="me", now=NOW)],
    ItemEvent.SKIP: [lambda one, by: passed_over(one, settings=by, now=NOW)],
    ItemEvent.PUT_OFF: [
        lambda one, by: put_off(one, settings=by, now=NOW),
        lambda one, _: put_off(one, settings=CLOSED_FOR_GOOD, now=NOW),
    ],
    ItemEvent.OVERRIDE: [lambda one, _: overridden(one, owner="you", now=NOW)],
    ItemEvent.SAVE: [lambda one, _: saved(one, '"p57"')],
    ItemEvent.RELEASE: [
        lambda one, by: released(one, run(one, Outcome.OK), settings=by, fraction=0.5),
    ],
    ItemEvent.FREE: [lambda one, by: freed(one, run(one, Outcome.CANCELLED), settings=by)],
    ItemEvent.UNLOCK: [lambda one, _: unlocked(one, run(one, Outcome.ABANDONED))],
    ItemEvent.PAUSE: [lambda one, _: paused(one, "{}")],
    ItemEvent.RESUME: [lambda one, by: resumed(one, "{}", settings=by, now=NOW)],
    ItemEvent.ASK: [lambda one, _: requested(one, name="a", once="", now=NOW).item],
    ItemEvent.RESCHEDULE: [
        lambda one, by: rescheduled(one, settings=by, now=NOW),
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
def test_an_event_leads_to_each_phase_of_its_row_and_to_no_other(event: ItemEvent) -> None:
    for phase, before in ITEMS.items():
        if phase in TRANSITIONS[event]:
            after = [made(before, by) for made in OUTCOMES[event] for by in (OVER, GOES_ON)]
            assert {phase_of(one) for one in after} == TRANSITIONS[event][phase], phase
            continue
        assert not applies(event, before), phase
        for made in OUTCOMES[event]:
            with pytest.raises(IllegalTransition, match=f"{phase.value}: {event.value} does not"):
                made(before, GOES_ON)


@pytest.mark.parametrize("event", ItemEvent)
def test_no_event_lowers_a_fence_or_touches_what_an_item_is(event: ItemEvent) -> None:
    for phase, one in ITEMS.items():
        before = replace(one, fence=7, born=3)
        for made in OUTCOMES[event] if applies(event, before) else ():
            after = made(before, GOES_ON)
            assert after.fence - before.fence == (event in RAISES), phase
            if event not in {ItemEvent.ADD, ItemEvent.COPY}:
                kept = (before.id, before.type, before.born)
                assert (after.id, after.type, after.born) == kept, phase


RAISES = {ItemEvent.CLAIM, ItemEvent.OVERRIDE, ItemEvent.FREE, ItemEvent.UNLOCK, ItemEvent.REMOVE}


def test_a_new_life_of_an_id_is_born_with_the_fence_that_was_left() -> None:
    tombstone = removed(replace(RUNNING, fence=7), now=NOW)
    again = added("a", "feed", "{}", before=tombstone, settings=GOES_ON, first=None, now=NOW)
    assert (tombstone.fence, again.fence, again.born) == (8, 8, 8)


@pytest.mark.parametrize(
    ("before", "floor", "fence"),
    [
        (None, 3, 7),
        (None, 9, 9),
        (removed(replace(RUNNING, fence=3), now=NOW), 99, 7),
        (removed(replace(RUNNING, fence=9), now=NOW), 0, 10),
    ],
)
def test_a_copy_has_no_fence_that_was_used_and_no_history(
    before: Item | None, floor: int, fence: int
) -> None:
    found = replace(WAITING, fence=7, born=2, result='"old"', result_fence=5, etag="1")
    found = replace(found, applied=(Applied(name="a", at=NOW),), runs=3, checkpoint='"p57"')
    made = copied(found, "b", before=before, floor=floor, mark="{}", settings=GOES_ON)
    assert (made.id, made.fence, made.born) == ("b", fence, fence)
    assert (made.result, made.result_fence, made.applied, made.etag) == ('"old"', 0, (), "")
    assert (made.runs, made.checkpoint, made.paused) == (3, '"p57"', "{}")


@pytest.mark.parametrize(
    ("before", "state"),
    [(WAITING, State.PAUSED), (PAUSED, State.PAUSED), (DONE, State.DONE)],
)
def test_a_copy_is_paused_or_done(before: Item, state: State) -> None:
    made = copied(before, "b", before=None, mark="{1}", settings=GOES_ON)
    assert (made.state, made.paused, made.ready) == (state, "{1}", before.ready)


JITTER = settings(cron=HOURLY, jitter="10m")
PART = part_of_jitter("b", JITTER)
"""Of the copy."""


@pytest.mark.parametrize(
    ("before", "by", "ready"),
    [
        (WAITING, JITTER, NOON + PART),
        (replace(WAITING, ready=NOON + PART + MINUTE), JITTER, NOON + PART + MINUTE),
        # what was asked for, and an every that ran, wait for no jitter
        (replace(WAITING, planned=NOON + HOUR), JITTER, NOON),
        (WAITING, settings(every="1h", jitter="10m"), NOON),
    ],
)
def test_a_copy_waits_for_its_own_part_of_the_jitter(
    before: Item, by: RunSettings, ready: datetime
) -> None:
    assert PART > MINUTE
    assert copied(before, "b", before=None, mark="{}", settings=by).ready == ready


def test_a_copy_of_what_no_tombstone_is_known_of_begins_at_its_own_fence() -> None:
    assert copied(WAITING, "b", before=None, mark="{}", settings=GOES_ON).fence == WAITING.fence


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
    assert after.put_back is True


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
    after = rescheduled(before, settings=GOES_ON, now=NOW)
    assert (after.slot, after.ready, after.planned) == (slot, slot, NOON + HOUR)


def test_the_row_of_a_late_run_keeps_what_an_operator_noted() -> None:
    late = run(RUNNING, Outcome.OK)
    row = replace(late, outcome=Outcome.CANCELLED, note="{}")
    assert not transitions.stays(row, late)
    told = transitions.superseded(late, row)
    assert (told.outcome, told.note) == (Outcome.SUPERSEDED, "{}")
    assert transitions.superseded(late, None).note == ""
    assert transitions.stays(row, replace(late, outcome=Outcome.FAILED))
    assert transitions.stays(told, late)
    assert not transitions.stays(replace(row, outcome=Outcome.ABANDONED), late)
    given_up, late = replace(row, outcome=Outcome.ABANDONED), replace(late, nonce="its")
    assert [
        transitions.stays(replace(given_up, nonce=nonce), late) for nonce in ("", "its", "another")
    ] == [False, False, True]


def test_the_table_at_the_head_has_each_event() -> None:
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


# ---- whole records: what an event changes, and that it changes nothing else


def test_what_an_addition_makes() -> None:
    made = added("a", "feed", '{"x":1}', before=None, settings=GOES_ON, first=None, now=NOW)
    assert made == Item(
        id="a",
        type="feed",
        state=State.ACTIVE,
        spec='{"x":1}',
        slot=NOON + HOUR,
        ready=NOON + HOUR,
        planned=NOON + HOUR,
        schedule=GOES_ON.text,
        timezone="Asia/Tokyo",
    )


def test_what_a_claim_makes() -> None:
    assert claimed(WAITING, settings=GOES_ON, owner="you", now=NOW) == replace(
        WAITING,
        fence=WAITING.fence + 1,
        start=NOW,
        running=True,
        owner="you",
        schedule=GOES_ON.text,
        timezone="Asia/Tokyo",
    )


def test_what_a_handler_answers_goes_over_retries() -> None:
    """A retry that was asked for comes however often it was tried, but not after the next slot;
    none comes where it was refused.
    """
    minute = 60.0
    three = settings(every="1h", retries=3)

    def after(
        by: RunSettings, outcome: Outcome = Outcome.FAILED, **answer: Any
    ) -> tuple[int, datetime]:
        ended = run_of(replace(RUNNING, start=NOW), outcome, now=NOW)
        left = released(replace(RUNNING, start=NOW), ended, settings=by, fraction=0.5, **answer)
        return left.attempt, left.ready

    again, following = RUNNING.attempt + 1, (1, NOW + timedelta(hours=1))
    never = settings(every="1h")
    assert after(never) == following
    assert after(never, retry_after=5 * minute) == (again, NOW + timedelta(minutes=5))
    assert after(three, retry_after=5 * minute) == (again, NOW + timedelta(minutes=5))
    assert after(never, retry_after=60 * minute) == following
    assert after(three, retry_after=60 * minute) == following
    assert after(three)[0] == again
    assert after(three, final=True) == following
    assert after(three, Outcome.TIMEOUT, retry_after=5 * minute) == after(three, Outcome.TIMEOUT)
    once = settings()
    ended = run_of(RUNNING, Outcome.FAILED, now=NOW)
    left = released(RUNNING, ended, settings=once, fraction=0.5, retry_after=5 * minute)
    assert (left.state, left.ready) == (State.ACTIVE, NOW + timedelta(minutes=5))


@pytest.mark.parametrize(
    ("seconds", "endless", "attempt"), [(60, True, 1), (59.999, True, 5), (3600, False, 5)]
)
def test_the_attempts_of_a_pump_that_lasted_for_its_interval_count_anew(
    *, seconds: float, endless: bool, attempt: int
) -> None:
    by = replace(settings(every="1m", retries=6), endless=endless)
    before = replace(RUNNING, attempt=5, start=NOW - timedelta(seconds=seconds))
    moved = run(before, Outcome.CANCELLED)
    assert released(before, moved, settings=by, fraction=0.5, requeue=True).attempt == attempt
    failed = released(before, run(before, Outcome.FAILED), settings=by, fraction=1.0)
    wait = timedelta(seconds=10 * 2 ** (attempt - 1))
    assert (failed.attempt, failed.ready - NOW) == (attempt + 1, wait)


def test_a_skipped_run_is_ok_and_leaves_the_result_of_an_earlier_one() -> None:
    before = replace(RUNNING, result="r", result_fence=1, failures=2, checkpoint='"p57"')
    ended = run_of(before, Outcome.OK, now=NOW, error="closed on Sundays")
    left = released(before, ended, settings=GOES_ON, fraction=0.5)
    assert (left.outcome, left.error, left.is_skipped) == (Outcome.OK, "closed on Sundays", True)
    assert (left.result, left.result_fence) == ("r", 1)
    assert (left.failures, left.checkpoint, left.attempt) == (0, "", 1)
    assert late_move(left, fence=9, outcome=Outcome.OK, fenced=False, skipped=True) is (
        LateMove.RECORD
    )


def test_good_runs_in_a_row_that_warn_are_counted() -> None:
    """A failure in between neither counts nor clears them; a good run without warnings does."""

    def after(item: Item, outcome: Outcome, *warnings: str) -> Item:
        ended = run_of(item, outcome, now=NOW, warnings=warnings)
        left = released(item, ended, settings=GOES_ON, fraction=0.5)
        return replace(left, running=True, state=State.ACTIVE)

    once = after(RUNNING, Outcome.OK, "2 of 60 feeds failed")
    assert (once.warned, once.warnings) == (1, ("2 of 60 feeds failed",))
    failed = after(once, Outcome.FAILED, "no feed")
    assert (failed.warned, failed.warnings) == (1, ("2 of 60 feeds failed",))
    twice = after(failed, Outcome.OK, "3 of 60 feeds failed")
    assert (twice.warned, twice.warnings) == (2, ("3 of 60 feeds failed",))
    well = after(twice, Outcome.OK)
    assert (well.warned, well.warnings) == (0, ())


def test_what_the_end_of_a_run_makes() -> None:
    ended = run_of(RUNNING, Outcome.OK, now=NOW, result="r")
    assert released(RUNNING, ended, settings=GOES_ON, fraction=0.5) == replace(
        RUNNING,
        running=False,
        stop=NOW,
        outcome=Outcome.OK,
        runs=RUNNING.runs + 1,
        failures=0,
        result="r",
        result_fence=RUNNING.fence,
        slot=NOON + HOUR,
        ready=NOON + HOUR,
        planned=NOON + HOUR,
    )


def test_what_a_removal_leaves() -> None:
    applied = (Applied(name="add:1", at=NOON),)
    before = replace(RUNNING, fence=7, born=3, applied=applied, spec='{"x":1}', result="r")
    assert removed(before, now=NOW) == Item(
        id=before.id,
        type=before.type,
        state=State.REMOVED,
        spec="{}",
        fence=8,
        born=3,
        slot=before.slot,
        ready=before.ready,
        planned=before.planned,
        stop=NOW,
        applied=applied,
    )


def test_what_a_pause_and_its_end_make() -> None:
    assert paused(WAITING, "{1}") == replace(WAITING, state=State.PAUSED, paused="{1}")
    active = replace(PAUSED, state=State.ACTIVE, paused="", resumed="{2}")
    assert resumed(PAUSED, "{2}", settings=GOES_ON, now=NOW) == replace(active, ready=NOW)
    assert resumed(PAUSED, "{2}", settings=None, now=NOW) == replace(active, ready=NOW)
    unmissed = settings(cron=HOURLY, missed="none")
    assert resumed(PAUSED, "{2}", settings=unmissed, now=NOW) == active
    later = replace(PAUSED, ready=NOON + DAY)
    assert resumed(later, "{2}", settings=GOES_ON, now=NOW) == replace(active, ready=NOON + DAY)
    runs = ITEMS[Phase.RUNNING_PAUSED]
    assert resumed(runs, "{2}", settings=GOES_ON, now=NOW) == replace(
        runs, state=State.ACTIVE, paused="", resumed="{2}"
    )
    done = ITEMS[Phase.DONE_PAUSED]
    assert resumed(done, "{2}", settings=GOES_ON, now=NOW) == replace(
        done, paused="", resumed="{2}"
    )


def test_what_the_history_says_of_a_run() -> None:
    start = NOON + timedelta(seconds=2)
    before = replace(RUNNING, fence=7, attempt=2, start=start)
    line = LogLine(at=start, level="INFO", text="began")
    found = run_of(before, Outcome.OK, now=NOW)
    assert found == Run(
        id=before.id,
        type=before.type,
        fence=7,
        attempt=2,
        slot=NOON,
        start=start,
        stop=NOW,
        lag=2.0,
        outcome=Outcome.OK,
        worker="me",
        nonce="",
        result="",
        error="",
        output="",
        note="",
    )
    said = run_of(
        before,
        Outcome.OK,
        now=NOW,
        nonce="n",
        result="r",
        error="e",
        output="o",
        log=(line,),
        note="p",
    )
    assert said == replace(
        found, nonce="n", result="r", error="e", output="o", log=(line,), note="p"
    )
    assert run_of(replace(before, start=NOON), Outcome.OK, now=NOW).lag == 0.0
    assert run_of(replace(before, start=None), Outcome.OK, now=NOW).start == NOON
    long = replace(before, owner="w" * LONGEST_TEXT)
    assert run_of(long, Outcome.OK, now=NOW).worker == "w" * (LONGEST_TEXT // 2)


def test_a_run_that_is_freed_is_tried_again_without_a_backoff() -> None:
    again = freed(RUNNING, run(RUNNING, Outcome.FAILED), settings=settings(retries=1, backoff="1h"))
    assert (again.ready, again.attempt, again.outcome) == (NOW, 2, Outcome.FAILED)


def test_a_run_that_is_abandoned_while_its_item_is_paused_waits_to_be_made_again() -> None:
    held = replace(RUNNING, state=State.PAUSED, paused="{}", failures=2, once="{}")
    after = freed(held, run(held, Outcome.ABANDONED), settings=GOES_ON, requeue=True)
    said = (after.state, after.slot, after.ready, after.attempt, after.failures, after.once)
    assert said == (State.PAUSED, held.slot, NOW, 2, 3, "{}")


def test_only_a_shutdown_puts_a_cancelled_run_back() -> None:
    ended = run(RUNNING, Outcome.CANCELLED)
    assert released(RUNNING, ended, settings=GOES_ON, fraction=0.5).slot == NOON + HOUR
    again = released(RUNNING, ended, settings=GOES_ON, fraction=0.5, requeue=True)
    assert (again.slot, again.ready) == (NOON, NOW)


def test_a_late_result_leaves_an_item_of_a_newer_version_alone() -> None:
    older = replace(RUNNING, born=-1)
    for version, move in ((VERSION, LateMove.MERGE), (VERSION + 1, LateMove.RECORD)):
        one = replace(older, version=version)
        assert late_move(one, fence=one.fence, outcome=Outcome.OK, fenced=False) is move


# ---- a new schedule


def planned_by(before: Item, by: RunSettings = GOES_ON) -> Item:
    return rescheduled(before, settings=by, now=NOW)


def test_the_row_has_the_new_schedule() -> None:
    tokyo = settings(cron=HOURLY, timezone="Asia/Tokyo")
    for before in (WAITING, RUNNING, DONE, PAUSED):
        after = planned_by(before, tokyo)
        assert (after.schedule, after.timezone) == (tokyo.text, "Asia/Tokyo")


def test_an_item_that_never_ran_keeps_the_first_time_that_was_named() -> None:
    named = replace(item(slot=NOON + DAY), first=NOON + DAY, schedule="every 8h")
    assert planned_by(named).slot == NOON + DAY
    assert planned_by(named, settings()).slot == NOON + DAY
    assert planned_by(replace(named, schedule="at 2026-11-22T12:00Z")).slot == NOON + HOUR
    at = settings(at="2026-11-25T11:00Z")
    assert planned_by(named, at).slot == datetime(2026, 11, 25, 11, tzinfo=UTC)
    assert planned_by(replace(named, start=NOON - DAY)).slot == NOON + HOUR
    assert planned_by(named, settings(cron=HOURLY, until="2026-11-22T12:00Z")).slot == NOON + DAY
    sooner = settings(cron=HOURLY, until="2026-11-22T11:59Z")
    assert planned_by(named, sooner).slot == NOON + HOUR


NAMED = replace(item(slot=NOON - DAY), first=NOON - DAY, schedule="cron 0 3 * * *")
"""Its first time, which an operator named, has passed."""


@pytest.mark.parametrize("once_more", [GOES_ON, settings(cron=HOURLY, missed="all")])
@pytest.mark.parametrize(
    ("before", "slots"),
    [(NAMED, [NOW]), (requested(NAMED, name="a", once="", now=NOON).item, [NOON, NOW])],
)
def test_after_a_first_time_that_has_passed_no_slot_before_the_change_is_made_up_for(
    before: Item, slots: list[datetime], once_more: RunSettings
) -> None:
    by = settings(cron="*/10 * * * *", missed="all")
    waits, found = planned_by(planned_by(before, once_more), by), []
    while waits.ready <= NOW:
        runs = claimed(waits, settings=by, owner="ann", now=NOW)
        found.append(runs.slot)
        waits = released(runs, run(runs, Outcome.OK), settings=by, fraction=0.0)
    assert (found, waits.slot) == (slots, NOON + 10 * MINUTE)


def test_a_first_time_that_has_passed_does_not_move_behind_the_end_of_the_schedule() -> None:
    ended = settings(cron=HOURLY, missed="all", until=(NOW - MINUTE).isoformat())
    assert planned_by(NAMED, ended).state is State.DONE


def test_another_first_time_is_what_an_item_that_never_ran_waits_for() -> None:
    first = NOON + DAY + MINUTE  # no slot of the schedule
    moved = first_moved(replace(item(), first=NOON), first, settings=GOES_ON, now=NOW)
    assert (moved.first, moved.slot, moved.ready, moved.planned) == (first,) * 4


def test_another_first_time_is_planned_beside_a_run_that_was_asked_for() -> None:
    """But one that is done, since its windows have no end, waits for the new time."""
    first = NOON + DAY
    asked = requested(NAMED, name="a", once="", now=NOON).item
    moved = first_moved(asked, first, settings=GOES_ON, now=NOW)
    assert moved == replace(asked, first=first, planned=first)
    ended = first_moved(replace(asked, state=State.DONE), first, settings=GOES_ON, now=NOW)
    assert (ended.state, ended.slot, ended.planned) == (State.ACTIVE, first, first)


def test_a_first_time_that_has_passed_stays_where_no_slots_are_made_up_for() -> None:
    for by in (GOES_ON, settings(missed="all")):
        assert planned_by(NAMED, by).slot == NAMED.slot


def test_the_first_slot_of_an_old_schedule_is_none_of_the_new_one() -> None:
    computed = replace(item(slot=NOON + DAY), schedule="cron 0 12 * * *")
    assert planned_by(computed).slot == NOON + HOUR
    assert planned_by(computed, settings(every="8h")).slot == NOW
    assert planned_by(computed, settings()).slot == NOON + DAY, "a worker may have a schedule"
    assert planned_by(replace(computed, schedule="at 2026-11-22T12:00Z"), settings()).slot == NOW
    over = settings(cron=HOURLY, until="2026-11-21T12:30Z")
    assert planned_by(computed, over).state is State.DONE


HOURLY_ROW = f"cron {HOURLY}"
CAME = replace(WAITING, schedule=HOURLY_ROW, runs=3)
"""Its slot came a minute ago."""


@pytest.mark.parametrize(
    "said",
    [
        {"until": "2026-11-22"},
        {"until": "2026-11-21T12:00Z"},
        {"max_runs": 4},
        {"blackout": "sun"},
    ],
)
@pytest.mark.parametrize("old", ["", " (until 2026-11-20; 9 runs; not mon)"])
def test_what_is_due_stays_under_other_limits_that_allow_it(old: str, said: Any) -> None:
    before = replace(CAME, schedule=HOURLY_ROW + old)
    by = settings(cron=HOURLY, **said)
    assert planned_by(before, by) == replace(before, schedule=by.text, timezone=by.timezone)
    asked = replace(before, slot=NOW, ready=NOW)
    assert planned_by(asked, by).planned == NOON, "also beside a run that was asked for"
    just_now = replace(before, slot=NOW, planned=NOW, ready=NOW)
    assert planned_by(just_now, settings(cron=HOURLY, blackout="sun")).slot == NOW


@pytest.mark.parametrize(
    "said",
    [
        {"cron": HOURLY, "until": "2026-11-21T11:59Z"},
        {"cron": HOURLY, "max_runs": 3},
        {"cron": HOURLY, "timezone": "Asia/Tokyo"},
        {"cron": "30 * * * *"},
    ],
)
def test_what_is_due_goes_where_a_limit_or_another_time_excludes_it(said: Any) -> None:
    after = planned_by(CAME, settings(**said))
    assert after.state is State.DONE or after.slot > NOW


def test_a_request_that_queues_is_taken_in_hand_by_a_new_schedule() -> None:
    queued = replace(CAME, requests=(QueuedRun(name="a", slot=NOON - MINUTE),))
    after = planned_by(queued, settings(cron="30 * * * *"))
    assert (after.slot, after.ready, after.requests) == (NOON - MINUTE, NOW, ())
    assert after.planned == NOON + HOUR / 2
    kept = planned_by(queued, settings(cron=HOURLY, max_runs=9))
    assert (kept.slot, kept.ready, kept.planned) == (NOON - MINUTE, NOW, NOON)


def test_an_edit_that_brings_a_run_with_params_of_its_own_forward_empties_it() -> None:
    """What was saved for other params is of no use to it."""
    asked = QueuedRun(name="a", slot=NOON - MINUTE, once='{"a":1}')
    after = planned_by(replace(CAME, checkpoint="57", requests=(asked,)))
    assert (after.once, after.checkpoint) == (asked.once, "")


def test_what_is_still_to_come_counts_anew_also_under_other_limits() -> None:
    early = replace(CAME, slot=NOW + HOUR, planned=NOW + HOUR, ready=NOW + HOUR)
    assert planned_by(early, settings(cron=HOURLY, max_runs=9)).slot == NOON + HOUR
    over = replace(CAME, slot=NOW, planned=NEVER)
    assert planned_by(over, settings(cron=HOURLY, max_runs=9)).planned == NOON + HOUR


@pytest.mark.parametrize("before", [RUNNING, replace(WAITING, attempt=2)])
def test_a_run_or_a_retry_keeps_its_slot(before: Item) -> None:
    row = replace(before, schedule=HOURLY_ROW, timezone="Asia/Tokyo")
    assert planned_by(before) == replace(row, planned=NOON + HOUR)
    due = replace(before, schedule=HOURLY_ROW)
    limited = settings(cron=HOURLY, until="2026-11-22")
    assert planned_by(due, limited) == replace(due, schedule=limited.text)


PUT_BACK = released(
    RUNNING, run(RUNNING, Outcome.CANCELLED), settings=GOES_ON, fraction=0.5, requeue=True
)
"""Its worker ended."""
UNLOCKED = unlocked(RUNNING, run(RUNNING, Outcome.ABANDONED))


@pytest.mark.parametrize("said", [{"cron": "30 * * * *"}, {"every": "4h"}, {"max_runs": 1}])
@pytest.mark.parametrize("before", [PUT_BACK, UNLOCKED, replace(UNLOCKED, state=State.PAUSED)])
def test_a_run_that_was_put_back_keeps_its_slot(before: Item, said: dict[str, Any]) -> None:
    """As one that was killed, which is attempt 2."""
    after = planned_by(before, settings(**said))
    assert (after.state, after.slot, after.ready) == (before.state, NOON, NOW)
    assert after.planned == planned_by(replace(before, attempt=2), settings(**said)).planned


def test_a_run_that_was_put_back_is_not_left_out_by_a_window_that_was_added() -> None:
    by = settings(cron=HOURLY, blackout="sat 11:00-13:00")
    after = put_off(planned_by(PUT_BACK, by), settings=by, now=NOW)
    assert (after.slot, after.ready) == (NOON, NOON + HOUR)


@pytest.mark.parametrize("said", [{"cron": HOURLY}, {"cron": "30 * * * *"}, {"every": "4h"}])
@pytest.mark.parametrize("before", [PUT_BACK, UNLOCKED, replace(UNLOCKED, state=State.PAUSED)])
def test_a_run_that_was_put_back_does_not_wait_for_the_end_of_a_window_of_an_earlier_schedule(
    before: Item, said: dict[str, Any]
) -> None:
    waits = put_off_until_six(before)
    assert waits.ready == NOON + 6 * HOUR
    after = planned_by(waits, settings(**said))
    assert (after.slot, after.ready, after.put_back) == (NOON, NOW, True)


@pytest.mark.parametrize("said", [{"cron": HOURLY}, {"cron": "30 * * * *"}, {"every": "4h"}])
@pytest.mark.parametrize(
    ("blackout", "ready"),
    [
        ("sat 11:00-18:00", NOON + 6 * HOUR),
        ("sat 11:00-14:00", NOON + 2 * HOUR),
        ("sat 11:00-20:00", NOON + 8 * HOUR),
        ("sat 12:00-12:01", NOW),
    ],
    ids=["same", "shorter", "longer", "over"],
)
@pytest.mark.parametrize("before", [PUT_BACK, UNLOCKED, replace(UNLOCKED, state=State.PAUSED)])
def test_a_run_that_was_put_back_does_not_begin_in_a_window_that_an_edit_leaves(
    before: Item, blackout: str, ready: datetime, said: dict[str, Any]
) -> None:
    """No clock is said to be wrong for it."""
    waits, said = put_off_until_six(before), said | {"blackout": blackout}
    after = planned_by(waits, settings(**said))
    assert (after.slot, after.ready, after.put_back) == (NOON, ready, True)
    assert problem_of_times(after, planning_of(after, settings(**said)), now=NOW) == ""


def put_off_until_six(before: Item) -> Item:
    """What was put back, and has waited for the end of a window since."""
    by = settings(cron=HOURLY, blackout="sat 11:00-18:00")
    row = replace(before, state=State.ACTIVE, schedule=by.text)
    return replace(put_off(row, settings=by, now=NOW), state=before.state)


def planning_of(row: Item, by: RunSettings) -> Planning:
    return Planning(settings=by, written=parse_schedule(row.schedule) if row.schedule else None)


def test_a_run_that_was_put_back_keeps_its_part_of_the_jitter_behind_a_window() -> None:
    by = settings(cron="30 * * * *", blackout="sat 11:00-14:00", jitter="30m")
    after = planned_by(put_off_until_six(PUT_BACK), by)
    assert after.ready == NOON + 2 * HOUR + part_of_jitter(after.id, by)
    for now in (NOW, NOON + 2 * HOUR):
        assert problem_of_times(after, planning_of(after, by), now=now) == ""
    assert problem_of_times(after, planning_of(after, settings()), now=NOW) == ""
    ahead = replace(after, ready=NOON + 2 * DAY)
    asked, open_now = replace(after, put_back=False), replace(after, schedule="cron 30 * * * *")
    for row, said in ((ahead, by), (asked, by), (open_now, settings(cron="30 * * * *"))):
        assert "a clock was wrong" in problem_of_times(row, planning_of(row, said), now=NOW)


def test_what_is_due_from_its_last_start_has_no_jitter_behind_a_window() -> None:
    by = settings(every="4h", blackout="sat 11:00-14:00", jitter="30m")
    assert planned_by(put_off_until_six(PUT_BACK), by).ready == NOON + 2 * HOUR


def test_a_run_that_was_put_back_and_has_not_waited_yet_is_due_at_once() -> None:
    by = settings(cron="30 * * * *", blackout="sat 11:00-14:00")
    assert planned_by(PUT_BACK, by) == replace(
        PUT_BACK, planned=NOON + 5 * HOUR / 2, schedule=by.text
    )


def test_a_run_that_was_put_back_is_not_made_where_a_window_has_no_end() -> None:
    """As where the window had none before."""
    by = settings(cron="30 * * * *", blackout="mon-sun")
    after = planned_by(put_off_until_six(PUT_BACK), by)
    assert (after.state, after.put_back) == (State.DONE, False)
    asked = replace(put_off_until_six(PUT_BACK), requests=(QueuedRun(name="a", slot=NOON),))
    after = planned_by(asked, by)
    assert (after.state, after.slot, after.ready, after.planned) == (
        State.ACTIVE,
        NOON,
        NOW,
        NEVER,
    )


@pytest.mark.parametrize("once", ["", "{}"])
def test_a_run_that_is_asked_for_starts_one_that_was_put_back_in_a_window(once: str) -> None:
    by = settings(cron="30 * * * *", blackout="sat 11:00-20:00")
    waits = planned_by(put_off_until_six(PUT_BACK), by)
    later = NOON + HOUR
    made = requested(waits, name="a", once=once, now=later)
    assert (made.item.slot, made.item.ready, made.joined) == (NOON, later, not once)


def test_a_run_that_was_put_back_does_not_wait_where_no_schedule_is_left() -> None:
    after = planned_by(put_off_until_six(PUT_BACK), settings())
    assert (after.slot, after.ready, after.put_back) == (NOON, NOW, True)


def test_an_edit_that_began_before_a_run_was_put_back_leaves_it_due_as_it_was() -> None:
    stop = NOW + timedelta(seconds=1)
    after = planned_by(replace(PUT_BACK, stop=stop, ready=stop), settings(cron="30 * * * *"))
    assert (after.ready, after.put_back) == (stop, True)


def test_a_run_with_params_of_its_own_goes_behind_one_that_was_put_back() -> None:
    before = replace(PUT_BACK, checkpoint="57")
    made = requested(before, name="a", once='{"a":1}', now=NOW)
    assert (made.item.slot, made.item.checkpoint, made.ahead) == (NOON, "57", 1)
    plain = requested(before, name="a", once="", now=NOW)
    assert (plain.item.slot, plain.item.checkpoint, plain.ahead) == (NOW, "57", 0)


@pytest.mark.parametrize("outcome", [Outcome.CANCELLED, Outcome.ABANDONED])
@pytest.mark.parametrize("said", [{}, {"missed": "all"}, {"jitter": "1h"}])
def test_a_run_that_ended_for_good_leaves_nothing_to_keep(
    outcome: Outcome, said: dict[str, Any]
) -> None:
    """Also where the next slot is earlier than its start: one of a backlog, or by the jitter."""
    late = replace(RUNNING, start=NOON + 3 * HOUR / 2)
    now = NOON + 8 * HOUR / 5
    by = settings(cron=HOURLY, **said)
    ended = freed(late, run_of(late, outcome, now=now), settings=by)
    before = resumed(paused(ended, "{}"), "{}", settings=by, now=now)
    after = rescheduled(before, settings=settings(cron="30 * * * *"), now=now)
    assert after.slot == NOON + 5 * HOUR / 2
    assert requested(before, name="a", once='{"a":1}', now=now).ahead == 0


WINDOW = {"blackout": "sat 11:00-13:00"}
NEVER_ENDS = {"blackout": "mon-sun"}
IN_LINE = (QueuedRun(name="a", slot=NOON),)


@pytest.mark.parametrize("before", [PUT_BACK, UNLOCKED])
def test_an_item_is_put_back_until_its_run_begins_again_or_another_is_planned(before: Item) -> None:
    assert before.put_back is True
    kept = [
        resumed(paused(before, "{}"), "{}", settings=GOES_ON, now=NOW),
        put_off(before, settings=settings(cron=HOURLY, **WINDOW), now=NOW),
        requested(before, name="a", once='{"a":1}', now=NOW).item,
        planned_by(before, settings(every="4h")),
    ]
    assert [one.put_back for one in kept] == [True] * len(kept)
    for_good = settings(cron=HOURLY, **NEVER_ENDS)
    queued = replace(before, requests=IN_LINE)
    ended = [
        claimed(before, settings=GOES_ON, owner="me", now=NOW),
        passed_over(before, settings=GOES_ON, now=NOW),
        passed_over(queued, settings=GOES_ON, now=NOW),
        put_off(queued, settings=settings(cron=HOURLY, **WINDOW), now=NOW),
        put_off(before, settings=for_good, now=NOW),
        requested(before, name="a", once="", now=NOW).item,
        removed(before, now=NOW),
    ]
    assert [one.put_back for one in ended] == [False] * len(ended)


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.FAILED, Outcome.CANCELLED])
def test_what_ends_for_good_or_is_tried_again_is_not_put_back(outcome: Outcome) -> None:
    by = settings(cron=HOURLY, retries=1)
    assert not released(RUNNING, run(RUNNING, outcome), settings=by, fraction=0.5).put_back
    assert not freed(RUNNING, run(RUNNING, outcome), settings=by).put_back
    assert freed(RUNNING, run(RUNNING, Outcome.CANCELLED), settings=by, requeue=True).put_back


LATE = replace(RUNNING, slot=NOON - 4 * DAY, planned=NOON - 4 * DAY, start=NOON - HOUR)
OFTEN = "*/5 * * * *"


@pytest.mark.parametrize(
    ("said", "slot"),
    [
        ({"cron": OFTEN, "missed": "all"}, NOON + 5 * MINUTE),
        ({"cron": OFTEN, "missed": "one"}, NOON + 5 * MINUTE),
        ({"cron": OFTEN, "missed": "none"}, NOON + 10 * MINUTE),
        ({"cron": OFTEN, "missed": "all", "until": "2026-11-21T11:55Z"}, None),
        ({"rrule": "FREQ=HOURLY", "missed": "all"}, NOON + HOUR),
        ({"every": "4h"}, NOON + 3 * HOUR),
        ({"at": "2026-11-21T11:30Z"}, None),
        ({"at": "2026-11-21T12:30Z"}, NOON + HOUR / 2),
    ],
)
@pytest.mark.parametrize("retried", [False, True])
def test_no_slot_before_an_edit_is_made_up_for(
    said: dict[str, Any], slot: datetime | None, *, retried: bool
) -> None:
    """Also where the edit meets a run, or a retry, for a slot that was long ago."""
    by = settings(**said)
    before = replace(LATE, running=False, attempt=2) if retried else LATE
    during = replace(planned_by(before, by), running=True)
    after = released(
        during, run_of(during, Outcome.OK, now=NOON + 7 * MINUTE), settings=by, fraction=0.5
    )
    assert (after.state, after.planned) == (
        State.ACTIVE if slot else State.DONE,
        slot or after.planned,
    )


def test_a_slot_that_was_asked_for_makes_way_for_a_new_schedule_unless_it_runs() -> None:
    before = replace(WAITING, slot=NOON + HOUR, ready=NOW, planned=NOON)
    after = replace(before, planned=NOON + HOUR, schedule=HOURLY_ROW, timezone="Asia/Tokyo")
    assert planned_by(before) == replace(after, slot=NOON + HOUR - MILLISECOND)
    assert planned_by(replace(before, running=True)) == replace(after, running=True)
    assert planned_by(before, OVER) == replace(before, planned=NEVER, schedule=OVER.text)


# ---- what a wrong clock planned


FAR = NOON + 999 * DAY


def repaired(before: Item, by: RunSettings = GOES_ON) -> Item:
    return brought_back(before, planning(by), now=NOW)


def test_a_slot_that_was_asked_for_is_due_at_once_and_makes_way() -> None:
    before = replace(set_back(WAITING), slot=FAR + HOUR, once="{1}", attempt=2)
    assert repaired(before) == replace(before, slot=NOW, ready=NOW, planned=NOON + HOUR)
    assert repaired(before, OVER) == replace(before, slot=NOW, ready=NOW, planned=NEVER)
    every = repaired(replace(before, start=FAR), settings(every="1h"))
    assert (every.slot, every.planned) == (NOW - MILLISECOND, NOW)


def test_a_retry_keeps_its_slot_unless_that_is_what_is_wrong() -> None:
    retry = replace(WAITING, attempt=2, ready=FAR, once="{1}")
    assert repaired(retry) == replace(retry, ready=NOW)
    lost = replace(retry, slot=FAR, planned=FAR)
    slot = NOON + HOUR
    assert repaired(lost) == replace(lost, slot=slot, ready=slot, planned=slot, attempt=1, once="")
    assert repaired(lost, OVER) == replace(lost, state=State.DONE, attempt=1, once="")


def test_a_first_run_that_waits_too_long_keeps_its_slot_and_loses_its_jitter() -> None:
    before = replace(WAITING, slot=NOON + HOUR, planned=NOON + HOUR, ready=FAR)
    every = settings(every="1h", jitter="10m")
    assert repaired(before, every).ready == NOON + HOUR


def test_a_slot_that_is_passed_over_leaves_nothing_of_what_it_was_to_run() -> None:
    missed = passed_over(replace(WAITING, attempt=2, once="{1}"), settings=GOES_ON, now=NOW)
    assert (missed.slot, missed.attempt, missed.once) == (NOON + HOUR, 1, "")


def test_the_error_of_an_item_is_that_of_its_last_run() -> None:
    ended = run_of(RUNNING, Outcome.FAILED, now=NOW, error="no route")
    failed = released(RUNNING, ended, settings=GOES_ON, fraction=0.5)
    assert failed.error == "no route"
    good = released(
        replace(RUNNING, error="old"), run(RUNNING, Outcome.OK), settings=OVER, fraction=0
    )
    assert good.error == ""


# ---- checkpoints

SAVED = replace(RUNNING, checkpoint='"p57"')


def test_a_save_changes_the_checkpoint_alone() -> None:
    assert saved(RUNNING, '"p57"') == SAVED


@pytest.mark.parametrize("outcome", Outcome)
def test_a_checkpoint_outlasts_all_runs_but_a_good_one(outcome: Outcome) -> None:
    kept = "" if outcome is Outcome.OK else '"p57"'
    for by in (GOES_ON, settings(cron=HOURLY, retries=1), settings(every="1h")):
        after = released(SAVED, run(SAVED, outcome), settings=by, fraction=0.5)
        assert after.checkpoint == kept
    assert freed(SAVED, run(SAVED, outcome), settings=GOES_ON).checkpoint == kept


def test_a_run_that_is_put_back_or_taken_over_or_unlocked_goes_on_where_it_saved() -> None:
    ended = run(SAVED, Outcome.CANCELLED)
    back = released(SAVED, ended, settings=GOES_ON, fraction=0.5, requeue=True)
    others = (overridden(SAVED, owner="you", now=NOW), unlocked(SAVED, ended))
    assert [one.checkpoint for one in (back, *others)] == ['"p57"'] * 3


@pytest.mark.parametrize("event", [ItemEvent.PAUSE, ItemEvent.SKIP, ItemEvent.RESCHEDULE])
def test_a_checkpoint_outlasts_what_operators_do(event: ItemEvent) -> None:
    waits = replace(WAITING, checkpoint='"p57"')
    for made in OUTCOMES[event]:
        for by in (GOES_ON, OVER):
            assert made(waits, by).checkpoint == '"p57"'


def test_no_checkpoint_is_left_to_another_life_of_the_id() -> None:
    assert removed(SAVED, now=NOW).checkpoint == ""


def test_a_run_with_params_of_its_own_begins_anew_and_so_does_the_one_after_it() -> None:
    waits = replace(WAITING, checkpoint='"p57"')
    assert requested(waits, name="a", once="", now=NOW).item.checkpoint == '"p57"'
    assert requested(waits, name="a", once="{1}", now=NOW).item.checkpoint == ""
    once = replace(SAVED, once="{1}")
    failed = run(once, Outcome.FAILED)
    retry = released(once, failed, settings=settings(cron=HOURLY, retries=1), fraction=0.5)
    assert (retry.once, retry.checkpoint) == ("{1}", '"p57"')
    assert released(once, failed, settings=GOES_ON, fraction=0.5).checkpoint == ""
    queued = replace(SAVED, requests=(QueuedRun(name="a", slot=NOON, once="{1}"),))
    assert released(queued, failed, settings=GOES_ON, fraction=0.5).checkpoint == ""
    plain = replace(SAVED, requests=(QueuedRun(name="a", slot=NOON, once=""),))
    assert released(plain, failed, settings=GOES_ON, fraction=0.5).checkpoint == '"p57"'
