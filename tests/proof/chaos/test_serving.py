"""The verdict on the notes of pumps."""

import pytest

from tests.proof.chaos.serving import Gap, Served


@pytest.fixture
def found() -> Served:
    """A partition that owl had, and fox has had since."""
    found = Served()
    found.note("began", 0, 1, worker="owl", moment=1.0)
    found.note("saved", 1, 1, worker="owl", moment=2.0)
    found.note("began", 1, 2, worker="fox", moment=5.0)
    found.note("saved", 2, 2, worker="fox", moment=6.0)
    return found


def test_a_partition_is_without_a_pump_from_the_last_note_of_one_to_the_next_pump(
    found: Served,
) -> None:
    assert found.gaps == [Gap("owl", since=2.0, seconds=3.0)]
    assert found.problems == []


def test_a_fence_that_no_pump_has_is_told(found: Served) -> None:
    found.note("began", 2, 4, worker="elk", moment=66.0)
    assert found.gaps[1:] == [Gap("fox", since=6.0, seconds=60.0, fences=2)]


def test_what_a_worker_notes_that_has_lost_the_partition_is_no_service(found: Served) -> None:
    found.note("saved", 1, 1, worker="owl", moment=7.0)
    found.note("began", 2, 3, worker="elk", moment=9.0)
    assert found.gaps[1:] == [Gap("fox", since=6.0, seconds=3.0)]
    assert found.problems == []


def test_a_save_of_a_pump_that_has_lost_the_partition_is_a_problem(found: Served) -> None:
    found.note("saved", 3, 1, worker="owl", moment=7.0)
    assert len(found.problems) == 1


def test_a_pump_that_begins_behind_what_was_saved_is_a_problem(found: Served) -> None:
    found.note("began", 1, 3, worker="elk", moment=7.0)
    assert len(found.problems) == 1


@pytest.mark.parametrize("fence", [1, 2])
def test_a_pump_that_begins_with_a_fence_that_was_there_is_a_problem(
    found: Served, fence: int
) -> None:
    found.note("began", 2, fence, worker="elk", moment=7.0)
    assert len(found.problems) == 1
