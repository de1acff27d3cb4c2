"""The verdict on a storm finds planted errors; and a seed always plans the same storm."""

from datetime import UTC, datetime, timedelta

import pytest

from blackboard.model import Item, Outcome, Run, State, replace
from blackboard.worker.running import NO_SLOT
from tests.proof.chaos.programs import program
from tests.proof.chaos.troubles import PARTITIONS, SEATS, Trouble, planned
from tests.proof.chaos.verdict import History, Noted, done, late, overlaps, percent, problems

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ITEM = Item(
    id="x",
    type="logged",
    state=State.ACTIVE,
    spec="{}",
    fence=2,
    slot=NOON,
    ready=NOON,
    planned=NOON,
)


def run_of(fence: int, outcome: Outcome = Outcome.OK, *, attempt: int = 1) -> Run:
    return Run(
        id="x",
        type="logged",
        fence=fence,
        attempt=attempt,
        slot=NOON + timedelta(minutes=fence),
        start=NOON,
        stop=NOON,
        lag=0.0,
        outcome=outcome,
        worker="host:7:a",
        nonce=f"nonce-{fence}",
    )


def note_of(fence: int, began: float, ended: float | None, *, worker: str = "host:7:a") -> Noted:
    return Noted(id="x", fence=fence, worker=worker, began=began, ended=ended)


RUNS = [run_of(1), run_of(2)]
NOTES = [note_of(1, 1.0, 2.0), note_of(2, 3.0, 4.0)]


def test_a_good_history_is_no_problem() -> None:
    assert problems([History(item=ITEM, runs=RUNS)], NOTES) == []


@pytest.mark.parametrize(
    ("runs", "found"),
    [
        ([run_of(1), replace(run_of(2), slot=run_of(1).slot)], "2 effective runs"),
        ([run_of(2)], "no fence 1"),
        ([run_of(1), run_of(2), run_of(2)], "fences [1, 2, 2] of 2"),
        ([run_of(1), run_of(2), run_of(3)], "fences [1, 2, 3] of 2"),
        ([run_of(1), replace(run_of(2), nonce="nonce-1")], "two runs under one claim"),
        ([run_of(1), replace(run_of(2), worker="host:8:b")], "host:7:a ran fence 2 of host:8:b"),
        ([run_of(1, Outcome.FAILED), run_of(2)], "fence 1 failed"),
    ],
)
def test_a_bad_history_is_found(runs: list[Run], found: str) -> None:
    assert any(found in one for one in problems([History(item=ITEM, runs=runs)], NOTES))


@pytest.mark.parametrize(
    ("ahead", "found"),
    [
        (timedelta(hours=22), []),
        (timedelta(minutes=1), ["x: 2 effective runs for 2026-03-01 12:01"]),
    ],
)
def test_a_slot_is_run_again_only_after_the_clock_was_set_back(
    ahead: timedelta, found: list[str]
) -> None:
    """By more than a minute: the second run began by a clock that was ahead, the third does not."""
    ahead_of_time = replace(run_of(2), start=NOON + ahead)
    again = replace(run_of(3), slot=run_of(1).slot)
    item = replace(ITEM, fence=3)
    problems_found = problems([History(item=item, runs=[run_of(1), ahead_of_time, again])], [])
    assert [one.removesuffix(":00+00:00") for one in problems_found] == found


def test_what_was_put_back_for_want_of_a_slot_is_fair_unless_it_ran() -> None:
    put_back = replace(run_of(2, Outcome.CANCELLED), error=NO_SLOT)
    history = [History(item=ITEM, runs=[run_of(1), put_back])]
    assert problems(history, NOTES[:1]) == []
    assert problems(history, NOTES) == ["x: fence 2 ran and is said to have had no slot"]
    cancelled = replace(put_back, error="the worker is stopping")
    assert problems([History(item=ITEM, runs=[run_of(1), cancelled])], NOTES) != []


def test_what_ran_and_is_not_in_the_history_is_found() -> None:
    notes = [*NOTES, note_of(3, 5.0, None)]
    assert problems([History(item=ITEM, runs=RUNS)], notes) == [
        "x: fence 3 ran and is not in the history"
    ]


def test_a_fence_that_ran_twice_is_found() -> None:
    assert problems([History(item=ITEM, runs=RUNS)], [*NOTES, NOTES[0]]) == [
        "x: fence 1 began 2 times"
    ]


def test_an_item_that_somebody_still_has_is_found() -> None:
    held = replace(ITEM, running=True, owner="host:7:a")
    assert problems([History(item=held, runs=RUNS)], NOTES) == ["x: host:7:a still has it"]


def test_a_lock_that_was_freed_and_not_taken_leaves_a_fence_without_a_run() -> None:
    """After as many takeovers as there may be, and not before."""
    item = replace(ITEM, fence=3)
    for attempt, found in ((4, []), (3, ["x: no fence 2"])):
        runs = [run_of(1, Outcome.ABANDONED, attempt=attempt), run_of(3)]
        assert problems([History(item=item, runs=runs)], []) == found


def test_the_work_of_one_item_does_not_make_up_for_another() -> None:
    assert percent({"x": 4, "y": 4}, asked=4) == 100
    assert percent({"x": 8, "y": 0}, asked=4) == 50


def test_only_effective_runs_within_the_time_count() -> None:
    runs = [run_of(1), run_of(2), run_of(3, Outcome.SUPERSEDED)]
    notes = [note_of(1, 1.0, 2.0), note_of(2, 3.0, 4.0), note_of(3, 5.0, 6.0)]
    assert done([History(item=ITEM, runs=runs)], notes, within=(3.0, 9.0)) == {"x": 1}


@pytest.mark.parametrize(
    ("first", "killed", "counted"),
    [
        (note_of(1, 1.0, 2.0), {}, 0),
        (note_of(1, 1.0, 4.0), {}, 1),
        (note_of(1, 1.0, None), {7: 2.0}, 0),
        (note_of(1, 1.0, None), {7: 4.0}, 1),
        (note_of(1, 1.0, None), {}, 0),
    ],
)
def test_overlaps_are_counted(first: Noted, killed: dict[int, float], counted: int) -> None:
    """As far as it is known when a run ended."""
    assert overlaps([first, note_of(2, 3.0, 5.0)], killed=killed) == counted


def test_late_beginnings_are_counted() -> None:
    assert late(NOTES) == 0
    assert late([note_of(2, 1.0, 2.0), note_of(1, 3.0, 4.0)]) == 1


# ---- the plan, and what it needs


def test_a_seed_plans_one_storm() -> None:
    plan = planned(7, seconds=25.0, partitions=True)
    assert plan == planned(7, seconds=25.0, partitions=True) == sorted(plan)
    assert plan != planned(8, seconds=25.0, partitions=True)
    assert {one.seat for one in plan} == set(range(SEATS))
    assert {one.trouble for one in plan} >= set(Trouble) - set(PARTITIONS)


@pytest.mark.parametrize("ci", ["", "true"])
def test_a_missing_program_is_a_skip_or_in_ci_a_failure(
    ci: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", ci)
    refusal = pytest.fail.Exception if ci else pytest.skip.Exception
    with pytest.raises(refusal, match=r"nowhere is missing; .* apt-get install nothing"):
        program("nowhere", package="nothing")
