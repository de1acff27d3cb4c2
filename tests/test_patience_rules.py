"""How long a store in trouble is left alone: the rules, as cases."""

import pytest

from blackboard.rules.patience import (
    CALM,
    DOUBTS,
    GOOD_NEWS_LASTS,
    SPACING,
    Need,
    News,
    Patience,
    answered,
    doubted,
    failed,
    is_away,
    pause,
    tried,
)

RENEWAL, OTHER = Need.RENEWAL, Need.OTHER


def trouble(before: Patience, need: Need = OTHER, *, now: float, wanted: float = 0.0) -> Patience:
    return failed(before, need, now=now, wanted=wanted, fraction=0.5)


@pytest.mark.case("SO06", "TH02")
@pytest.mark.parametrize(
    ("failures", "wanted", "least", "most"),
    [
        (1, 0.0, 1.5, 2.0),
        (2, 0.0, 1.5, 4.0),
        (3, 0.0, 1.5, 8.0),
        (4, 0.0, 1.5, 15.0),
        (5000, 0.0, 1.5, 15.0),
        (1, 7.0, 7.0, 7.0),
        (3, 7.0, 7.0, 8.0),
        (1, 3600.0, 15.0, 15.0),
        (9, 3600.0, 15.0, 15.0),
        (1, -5.0, 1.5, 2.0),
    ],
)
def test_the_pause_doubles_with_full_jitter_and_is_not_below_what_is_wanted(
    failures: int, wanted: float, least: float, most: float
) -> None:
    assert pause(failures, wanted=wanted, fraction=0.0) == least
    assert pause(failures, wanted=wanted, fraction=1.0) == pytest.approx(most)


def test_a_failure_closes_both_doors_and_renewals_are_tried_first() -> None:
    for need in Need:
        after = trouble(CALM, need, now=100.0)
        assert after.renewals is not None
        assert after.others is not None
        assert 100.0 + SPACING <= after.renewals <= after.others


@pytest.mark.parametrize(("need", "seconds"), [(OTHER, 1.0), (RENEWAL, 1.5)])
def test_renewals_are_tried_again_after_a_second_and_a_little_later_when_they_failed_themselves(
    need: Need, seconds: float
) -> None:
    assert trouble(CALM, need, now=100.0).door(RENEWAL) == 100.0 + seconds


@pytest.mark.parametrize(("now", "others"), [(105.0, 110.0), (109.5, 110.5)])
def test_a_renewal_that_fails_puts_off_the_others_by_no_more_than_the_second_between_tries(
    now: float, others: float
) -> None:
    closed = trouble(CALM, now=100.0, wanted=10.0)
    after = trouble(closed, RENEWAL, now=now)
    assert (after.door(RENEWAL), after.door(OTHER)) == (now + 1.5, others)
    assert after.failures == closed.failures


def test_renewals_are_let_through_while_others_wait_for_what_the_store_asked_for() -> None:
    after = trouble(CALM, now=100.0, wanted=10.0)
    after = answered(tried(after, now=101.0), RENEWAL, batch=True)
    assert (after.door(RENEWAL), after.door(OTHER)) == (None, 110.0)


def test_an_answer_to_others_lets_everybody_through() -> None:
    assert answered(trouble(CALM, RENEWAL, now=100.0), OTHER, batch=False) is CALM


def test_renewals_that_go_on_failing_do_not_put_off_the_others_for_ever() -> None:
    """They come between two tries of renewals."""
    now, state = 100.0, trouble(CALM, RENEWAL, now=100.0)
    others = 0
    for _ in range(20):
        doors = {need: door for need in Need if (door := state.door(need)) is not None}
        need = min(doors, key=lambda one: doors[one])
        assert doors[need] >= now + SPACING
        now = doors[need]
        state = trouble(tried(state, now=now), need, now=now)
        others += need is OTHER
    assert others >= 2
    assert state.failures == others + 1


def test_a_try_without_an_answer_holds_up_the_next_for_a_moment() -> None:
    after = tried(trouble(CALM, now=100.0), now=103.0)
    assert after.door(RENEWAL) == after.door(OTHER) == 103.0 + SPACING


def test_a_try_closes_no_door_that_is_open() -> None:
    half_open = answered(trouble(CALM, now=100.0, wanted=10.0), RENEWAL, batch=True)
    after = tried(half_open, now=110.0)
    assert (after.door(RENEWAL), after.door(OTHER)) == (None, 111.0)
    assert tried(CALM, now=110.0) == CALM


@pytest.mark.parametrize("need", Need)
def test_two_batches_in_a_row_without_an_answer_are_trouble_and_one_is_not(need: Need) -> None:
    """What is read between the two settles nothing; a batch that is answered does."""
    once = doubted(CALM)
    assert once.doubts < DOUBTS <= doubted(once).doubts
    assert doubted(answered(once, need, batch=False)).doubts >= DOUBTS
    assert doubted(answered(once, need, batch=True)).doubts < DOUBTS


def test_who_reads_is_well_again_though_one_batch_had_no_answer() -> None:
    state = answered(doubted(trouble(CALM, now=100.0)), OTHER, batch=False)
    assert trouble(state, now=110.0).failures == 1


def test_who_reads_and_cannot_write_is_not_taken_for_well() -> None:
    state = doubted(doubted(CALM))
    state = trouble(state, now=100.0)
    state = answered(state, OTHER, batch=False)
    assert state.door(OTHER) is None
    assert trouble(state, now=110.0).failures == 2
    assert answered(state, OTHER, batch=True) is CALM


# ---- the account


@pytest.mark.parametrize(
    ("good", "bad", "away"),
    [
        ([], [], False),
        ([1000.0], [], False),
        ([], [1000.0], True),
        ([], [1000.0, 1000.0], True),
        ([1000.0 - SPACING], [1000.0, 1000.0], False),
        ([1000.0 - SPACING - 0.1], [1000.0], True),
        ([1010.0], [1000.0, 1050.0], False),
    ],
)
def test_the_account_is_away_when_none_answered_since_there_is_trouble(
    good: list[float], bad: list[float], *, away: bool
) -> None:
    news = [News(is_good=True, when=when) for when in good]
    news += [News(is_good=False, when=when) for when in bad]
    assert is_away(news, since=1000.0, now=1050.0) is away


def test_good_news_grows_old() -> None:
    news = [News(is_good=True, when=1000.0), News(is_good=False, when=1000.0)]
    assert not is_away(news, since=1000.0, now=1000.0 + GOOD_NEWS_LASTS)
    assert is_away(news, since=1000.0, now=1000.1 + GOOD_NEWS_LASTS)
