"""When a store in trouble is asked again: the rules of the breaker, as cases."""

import pytest

from blackboard.rules.breaker import (
    ANSWER_LASTS,
    CLOSED,
    DOUBTS,
    DOUBTS_LAST,
    FAILURE_LASTS,
    HOUSEKEEPING,
    LONGEST,
    SPACING,
    STORE,
    Backoff,
    Circuit,
    LastReply,
    Need,
    account_is_away,
    answered,
    doubted,
    failed,
    has_expired,
    is_well,
    renewals,
    tried,
)

RENEWAL, OTHER = Need.RENEWAL, Need.OTHER


def trouble(before: Circuit, need: Need = OTHER, *, now: float, asked: float = 0.0) -> Circuit:
    return failed(before, need, now=now, asked=asked, fraction=0.5)


@pytest.mark.case("SO06", "TH02")
@pytest.mark.parametrize(
    ("failures", "asked", "least", "most"),
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
def test_the_pause_doubles_with_full_jitter_and_is_not_below_what_is_asked_for(
    failures: int, asked: float, least: float, most: float
) -> None:
    assert STORE.pause(failures, asked=asked, fraction=0.0) == least
    assert STORE.pause(failures, asked=asked, fraction=1.0) == pytest.approx(most)


def test_a_pause_is_as_short_as_its_backoff_allows_where_nothing_is_asked_for() -> None:
    assert Backoff(shortest=0.1, longest=5.0).pause(1, fraction=0.0) == 0.1


def test_a_renewal_is_tried_again_after_a_quarter_of_its_interval_to_all_of_it() -> None:
    assert [renewals(60.0).pause(fraction=part) for part in (0.0, 0.5, 1.0)] == [15.0, 37.5, 60.0]


def test_a_pause_without_a_draw_is_as_long_as_it_may_be() -> None:
    backoff = Backoff(shortest=0.1, longest=5.0)
    assert [backoff.pause(1), backoff.pause(2), backoff.pause()] == [2.0, 4.0, 5.0]


@pytest.mark.parametrize(("fraction", "pause"), [(0.0, 1.5), (0.5, 1.75)])
def test_the_pause_of_all_else_has_jitter(fraction: float, pause: float) -> None:
    after = failed(CLOSED, OTHER, now=100.0, asked=0.0, fraction=fraction)
    assert after.others_at == 100.0 + pause


def test_a_failure_holds_up_both_and_renewals_are_tried_first() -> None:
    for need in Need:
        after = trouble(CLOSED, need, now=100.0)
        assert after.renewals_at is not None
        assert after.others_at is not None
        assert 100.0 + SPACING <= after.renewals_at <= after.others_at


@pytest.mark.parametrize(("need", "seconds"), [(OTHER, 1.0), (RENEWAL, 1.5)])
def test_renewals_are_tried_again_after_a_second_and_a_little_later_when_they_failed_themselves(
    need: Need, seconds: float
) -> None:
    assert trouble(CLOSED, need, now=100.0).retry_at(RENEWAL) == 100.0 + seconds


@pytest.mark.parametrize(("now", "others"), [(105.0, 110.0), (109.5, 110.5)])
def test_a_renewal_that_fails_puts_off_the_others_by_no_more_than_the_second_between_tries(
    now: float, others: float
) -> None:
    closed = trouble(CLOSED, now=100.0, asked=10.0)
    after = trouble(closed, RENEWAL, now=now)
    assert (after.retry_at(RENEWAL), after.retry_at(OTHER)) == (now + 1.5, others)
    assert after.failures == closed.failures


def test_renewals_are_let_through_while_others_wait_for_what_the_store_asked_for() -> None:
    after = trouble(CLOSED, now=100.0, asked=10.0)
    after = answered(tried(after, now=101.0), RENEWAL, batch=True)
    assert (after.retry_at(RENEWAL), after.retry_at(OTHER)) == (None, 110.0)


def test_an_answer_to_others_lets_everybody_through() -> None:
    assert answered(trouble(CLOSED, RENEWAL, now=100.0), OTHER, batch=False) is CLOSED


def test_renewals_that_go_on_failing_do_not_put_off_the_others_for_ever() -> None:
    """They come between two tries of renewals."""
    now, state = 100.0, trouble(CLOSED, RENEWAL, now=100.0)
    others = 0
    for _ in range(20):
        moments = {need: at for need in Need if (at := state.retry_at(need)) is not None}
        need = min(moments, key=lambda one: moments[one])
        assert moments[need] >= now + SPACING
        now = moments[need]
        state = trouble(tried(state, now=now), need, now=now)
        others += need is OTHER
    assert others >= 2
    assert state.failures == others + 1


def test_a_try_without_an_answer_holds_up_the_next_for_a_moment() -> None:
    after = tried(trouble(CLOSED, now=100.0), now=103.0)
    assert after.retry_at(RENEWAL) == after.retry_at(OTHER) == 103.0 + SPACING


def test_a_try_holds_up_nothing_that_is_let_through() -> None:
    half_open = answered(trouble(CLOSED, now=100.0, asked=10.0), RENEWAL, batch=True)
    after = tried(half_open, now=110.0)
    assert (after.retry_at(RENEWAL), after.retry_at(OTHER)) == (None, 111.0)
    assert tried(CLOSED, now=110.0) == CLOSED


@pytest.mark.parametrize("need", Need)
def test_two_batches_in_a_row_without_an_answer_are_trouble_and_one_is_not(need: Need) -> None:
    """What is read between the two settles nothing; a batch that is answered does."""
    once = doubted(CLOSED)
    assert once.doubts < DOUBTS <= doubted(once).doubts
    assert doubted(answered(once, need, batch=False)).doubts >= DOUBTS
    assert doubted(answered(once, need, batch=True)).doubts < DOUBTS


def test_who_reads_is_well_again_though_one_batch_had_no_answer() -> None:
    state = answered(doubted(trouble(CLOSED, now=100.0)), OTHER, batch=False)
    assert trouble(state, now=110.0).failures == 1


def test_who_reads_and_cannot_write_is_not_taken_for_well() -> None:
    state = doubted(doubted(CLOSED))
    state = trouble(state, now=100.0)
    state = answered(state, OTHER, batch=False)
    assert state.retry_at(OTHER) is None
    assert trouble(state, now=110.0).failures == 2
    assert answered(state, OTHER, batch=True) is CLOSED


# ---- failures expire


def test_a_failure_lasts_longer_than_what_is_needed_is_not_asked() -> None:
    """Also where the next try is put off."""
    assert FAILURE_LASTS >= ANSWER_LASTS + LONGEST
    state = trouble(CLOSED, now=100.0)
    assert not is_well(state)
    assert not has_expired(state, failed_at=100.0, now=100.0 + FAILURE_LASTS)
    assert has_expired(state, failed_at=100.0, now=100.1 + FAILURE_LASTS)


def test_batches_without_an_answer_count_for_longer_where_pages_are_answered() -> None:
    state = answered(trouble(doubted(doubted(CLOSED)), now=100.0), OTHER, batch=False)
    assert not is_well(state)
    assert not has_expired(state, failed_at=100.0, now=100.0 + DOUBTS_LAST)
    assert has_expired(state, failed_at=100.0, now=100.1 + DOUBTS_LAST)
    assert is_well(answered(state, OTHER, batch=True))


def test_a_duty_is_tried_again_soon_and_then_seldom() -> None:
    pauses = [HOUSEKEEPING.pause(failures) for failures in range(1, 12)]
    assert pauses == [15, 15, 15, 16, 32, 64, 128, 256, 512, 900, 900]


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
    replies = [LastReply(is_good=True, when=when) for when in good]
    replies += [LastReply(is_good=False, when=when) for when in bad]
    assert account_is_away(replies, since=1000.0, now=1050.0) is away


def test_good_replies_expire() -> None:
    replies = [LastReply(is_good=True, when=1000.0), LastReply(is_good=False, when=1000.0)]
    assert not account_is_away(replies, since=1000.0, now=1000.0 + ANSWER_LASTS)
    assert account_is_away(replies, since=1000.0, now=1000.1 + ANSWER_LASTS)
