"""Elections with all faults, as many as a build machine has time for."""

from tests.support.elections import hold_elections


def test_ten_thousand_elections_with_all_faults_never_have_two_leaders_of_a_term() -> None:
    hold_elections(10_000)
