"""Marks say on which stores a test runs. That no store is missing, test_cases.py shows."""

import pytest

from tests.conftest import FIXTURES, is_of_one_store

ABOVE = pytest.mark.of_one_store("as an example")


@pytest.mark.parametrize("kind", ["plain", pytest.param("above", marks=ABOVE)])
def test_parameters_of_one_store_are_tried_on_the_quickest(kind: str, store: str) -> None:
    assert kind == "plain" or store == FIXTURES["store"][0]


@pytest.mark.cases_of_one_store("as an example")
@pytest.mark.parametrize("kind", ["first", "second"])
@pytest.mark.parametrize("more", [1, 2])
def test_cases_of_one_store_are_all_tried_on_the_quickest_and_one_on_the_others(
    kind: str, more: int, store: str
) -> None:
    assert (kind, more) == ("first", 1) or store == FIXTURES["store"][0]


@ABOVE
def test_a_test_of_one_store_runs_on_the_quickest(lasting_store: str) -> None:
    assert lasting_store == FIXTURES["lasting_store"][0]


@ABOVE
class TestModule:
    """The mark of a class counts as that of a module does."""

    def test_a_mark_of_all_tests_counts_for_each(self, request: pytest.FixtureRequest) -> None:
        assert is_of_one_store(request.node)

    @pytest.mark.of_each_store
    def test_but_not_for_one_with_a_mark_of_its_own(self, request: pytest.FixtureRequest) -> None:
        assert not is_of_one_store(request.node)
