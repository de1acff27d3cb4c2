"""The checker finds what is wrong, calls right what is right, and says when it does not know."""

import asyncio
import random
from collections.abc import Sequence
from itertools import combinations, islice, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blackboard.model import replace
from tests.proof.figures import leave
from tests.proof.history.checker import Finding, by_key, check
from tests.proof.history.explain import told
from tests.proof.history.generate import Making, make
from tests.proof.history.model import NEW, Answer, Operation, Verb, after
from tests.proof.history.planted import WAYS, History, damaged
from tests.support.stores import STORES

CLIENTS = ("ann", "ben", "cem")
PLANTED = 50


def operation(
    verb: Verb, fence: int = 0, *, at: tuple[int, int | None], **more: object
) -> Operation:
    said: dict[str, object] = {"key": "davis", "client": "ann", "answer": Answer.YES, **more}
    return Operation(verb=verb, fence=fence, invoked=at[0], returned=at[1], **said)  # type: ignore[arg-type]


# ---- against a checker that tries everything


def tries_everything(operations: Sequence[Operation]) -> bool:
    """Whether any order of any choice of those without an answer explains the history."""
    answered = [one for one in operations if one.returned is not None]
    open_ = [one for one in operations if one.returned is None]
    return any(
        _explains(order)
        for count in range(len(open_) + 1)
        for chosen in combinations(open_, count)
        for order in permutations([*answered, *chosen])
    )


def _explains(order: Sequence[Operation]) -> bool:
    now = NEW
    for place, one in enumerate(order):
        later = [other.returned for other in order[place:] if other.returned is not None]
        then = after(now, one)
        if then is None or min(later, default=one.invoked) < one.invoked:
            return False
        now = then
    return True


@st.composite
def any_history(draw: st.DrawFn) -> History:
    """Operations that mostly go wrong, of three clients, on a few moments."""
    return [
        _drawn(draw, fence=draw(st.integers(0, 2)), moment=draw(st.integers(0, 8)))
        for _ in range(draw(st.integers(1, 6)))
    ]


@st.composite
def likely_history(draw: st.DrawFn) -> History:
    """Operations as a lock would answer them one after another, moved a little in time."""
    now, history = NEW, History()
    for place in range(draw(st.integers(1, 6))):
        one = _drawn(draw, fence=now.fence, moment=max(0, 2 * place - draw(st.integers(0, 3))))
        then = after(now, one)
        if then is not None or draw(st.integers(0, 9)) == 0:
            now = then or now
            history.append(one)
    return history


def _drawn(draw: st.DrawFn, *, fence: int, moment: int) -> Operation:
    verb, answer = draw(st.sampled_from(Verb)), draw(st.sampled_from(Answer))
    answer = Answer.YES if verb is Verb.READ else answer
    granted = verb in {Verb.CLAIM, Verb.OVERRIDE} and answer is Answer.YES
    returned = None if answer is Answer.NONE else moment + draw(st.integers(0, 4))
    etags = st.sampled_from(("", "x", "y"))
    return operation(
        verb,
        fence,
        at=(moment, returned),
        client=draw(st.sampled_from(CLIENTS)),
        answer=answer,
        got=fence + 1 if granted else 0,
        seen=draw(etags) if verb in {Verb.READ, Verb.OVERRIDE} else "",
        touch=draw(etags) if verb in {Verb.CLAIM, Verb.RENEW, Verb.OVERRIDE} else "",
        holder=draw(st.sampled_from(("", *CLIENTS))) if verb is Verb.READ else "",
    )


@pytest.mark.parametrize("histories", [any_history(), likely_history()], ids=["any", "likely"])
def test_it_finds_what_trying_everything_finds(histories: st.SearchStrategy[History]) -> None:
    seen: set[bool] = set()

    @settings(max_examples=400, deadline=None, database=None, derandomize=True)
    @given(histories)
    def agree(history: History) -> None:
        right = tries_everything(history)
        verdict = check(history)
        seen.add(right)
        assert (verdict.finding is Finding.LINEARIZABLE) == right, told("davis", verdict)
        if not right:
            assert check(verdict.window, start=verdict.start).finding is Finding.VIOLATED

    agree()
    assert seen == {True, False}


# ---- by hand


def test_concurrent_claims_may_take_effect_in_either_order() -> None:
    one = operation(Verb.CLAIM, 0, at=(0, 9), got=1)
    two = operation(Verb.CLAIM, 0, at=(1, 5), client="ben", answer=Answer.NO)
    assert check([one, two]).finding is Finding.LINEARIZABLE


def test_a_refusal_before_any_claim_was_sent_is_wrong() -> None:
    one = operation(Verb.CLAIM, 0, at=(6, 9), got=1)
    two = operation(Verb.CLAIM, 0, at=(1, 5), client="ben", answer=Answer.NO)
    assert check([one, two]).finding is Finding.VIOLATED


def test_what_got_no_answer_may_take_effect_much_later_but_once() -> None:
    lost = operation(Verb.CLAIM, 0, at=(0, None), answer=Answer.NONE)
    free = operation(Verb.READ, 0, at=(10, 11), client="ben")
    held = operation(Verb.READ, 1, at=(20, 21), client="ben", holder="ann")
    released = operation(Verb.RELEASE, 1, at=(30, 31))
    again = operation(Verb.READ, 2, at=(40, 41), client="ben", holder="ann")
    assert check([lost, free, held, released]).finding is Finding.LINEARIZABLE
    assert check([lost, free, held, released, again]).finding is Finding.VIOLATED


def test_a_search_that_is_given_up_is_no_pass() -> None:
    """Many claims of one fence without an answer, and a read that any of them explains."""
    lost = [
        operation(Verb.CLAIM, 0, at=(0, None), client=f"c{number}", answer=Answer.NONE)
        for number in range(20)
    ]
    seen = operation(Verb.READ, 1, at=(1, 2), holder="c7")
    assert check([*lost, seen]).finding is Finding.LINEARIZABLE
    verdict = check([*lost, seen], most=5)
    assert verdict.finding is Finding.UNDECIDED
    assert told("davis", verdict) == "davis: UNDECIDED, given up after 20 ways"


def test_a_violation_is_told_in_few_lines() -> None:
    """Of a long history only that part is shown which is wrong by itself."""
    history = []
    for fence in range(100):
        at = 10 * fence
        history += [
            operation(Verb.CLAIM, fence, at=(at, at + 1), got=fence + 1),
            operation(Verb.READ, fence + 1, at=(at + 2, at + 4), client="cem", holder="ann"),
            operation(Verb.RENEW, fence + 1, at=(at + 3, at + 5)),
            operation(Verb.RELEASE, fence + 1, at=(at + 6, at + 8)),
        ]
    stolen = operation(Verb.RELEASE, 60, at=(597, 599), client="ben")
    assert told("davis", check([*history, stolen])).splitlines() == [
        "davis: VIOLATED; before it was fence 60, free",
        ">   0 to   1 ben releases 60: done",
    ]


# ---- planted


@pytest.fixture(scope="module")
def recorded() -> list[History]:
    """Histories of single keys, as they were made on the memory store."""
    open_table = STORES["memory"](None, None)  # type: ignore[arg-type]
    histories = [asyncio.run(make(open_table, Making(seed=seed))) for seed in range(2)]
    return [operations for history in histories for operations in by_key(history).values()]


def test_planted_violations_are_all_found(recorded: list[History]) -> None:
    """Fifty of fifty, in every way there is; each in a window that a person can read."""
    assert all(check(history).finding is Finding.LINEARIZABLE for history in recorded)
    seen, found = set(), 0
    for way, history in islice(damaged(recorded, seed=1), PLANTED):
        verdict = check(history)
        assert verdict.finding is Finding.VIOLATED, way.__name__
        assert len(verdict.window) <= 40, told(way.__name__, verdict)
        seen.add(way)
        found += 1
    assert found == PLANTED
    assert seen == set(WAYS)
    assert len(WAYS) >= 8
    leave("damaged", {"planted": PLANTED, "found": found, "ways": len(seen)})


def test_a_history_with_gaps_in_time_stays_right(recorded: list[History]) -> None:
    """Whatever returned later than it did is right all the more: the checker asks for no order
    that is not in the moments.
    """
    chance = random.Random(1)
    for history in recorded[:4]:
        longer = [
            replace(one, returned=one.returned + chance.randint(0, 6))
            for one in history
            if one.returned is not None
        ]
        assert check(longer).finding is Finding.LINEARIZABLE
