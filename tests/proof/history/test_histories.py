"""Histories of sixteen clients on every store, held against the model of a lock with a fence.

Thirty-one of five thousand operations, in the long form of the proof ten times as many. Most are of
the memory store and of SQLite, where one takes about a second: on Azurite it takes ten, and so few
are made there. In every second one replies are lost. Figures are left in
`histories-<store>-<part>.json`.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from blackboard.model import replace
from blackboard.protocol import batches, keys, releases
from blackboard.table import ANY, Insert, Op
from tests.proof.figures import leave
from tests.proof.form import LONG
from tests.proof.history.checker import Finding, by_key, check
from tests.proof.history.client_process import make_by_processes
from tests.proof.history.clients import Habits
from tests.proof.history.explain import told
from tests.proof.history.generate import OPERATIONS, Making, make
from tests.proof.history.model import Answer, Operation, Verb
from tests.support.stores import STORES, OpenTable

TIMES = 10 if LONG else 1
PARTS = 3
AMOUNTS = {"memory": 5, "sqlite": 3, "azurite": 1}
"""In each part."""
BY_PROCESSES = 4
"""At one SQLite file."""
HABITS = {
    "memory": (Habits(keys=8), Habits(keys=16), Habits(keys=24)),
    "sqlite": (Habits(keys=8), Habits(keys=16), Habits(keys=24)),
    "azurite": (Habits(keys=24, batch=3, noted=8),),
}
"""By turns. A request to Azurite is dear, and is made to tell more."""
AT_LEAST = {
    (Verb.CLAIM, Answer.YES): 80,
    (Verb.CLAIM, Answer.NO): 30,
    (Verb.RENEW, Answer.YES): 60,
    (Verb.RELEASE, Answer.YES): 50,
    (Verb.RELEASE, Answer.NO): 3,
    (Verb.OVERRIDE, Answer.YES): 5,
    (Verb.UNLOCK, Answer.YES): 3,
}


def makings(store: str, part: int, amount: int) -> list[Making]:
    """What histories are made: by turns with and without faults, on few and on many items."""
    habits = HABITS[store]
    return [
        Making(seed=seed, faults=seed % 2 == 1, habits=habits[seed % len(habits)])
        for seed in range(part * amount, (part + 1) * amount)
    ]


def is_linearizable(making: Making, history: Sequence[Operation]) -> None:
    """And worth looking at: a history in which nothing happened would always be right."""
    problems = [
        told(key, verdict)
        for key, operations in sorted(by_key(history).items())
        if (verdict := check(operations)).finding is not Finding.LINEARIZABLE
    ]
    assert not problems, f"seed {making.seed}\n" + "\n\n".join(problems)
    assert len(history) >= making.amount
    seen = Counter((one.verb, one.answer) for one in history)
    expected = {**AT_LEAST, **({(Verb.CLAIM, Answer.NONE): 3} if making.faults else {})}
    missing = {
        f"{verb}: {answer}": seen[verb, answer]
        for (verb, answer), least in expected.items()
        if seen[verb, answer] < least
    }
    assert not missing, f"seed {making.seed}: too few {missing}"
    assert overlapping(history) >= making.amount / 5, f"seed {making.seed}: too few at once"


def overlapping(history: Sequence[Operation]) -> int:
    """Operations that were invoked while another of the same key was under way."""
    count = 0
    for operations in by_key(history).values():
        busy_until = -1
        for one in sorted(operations, key=lambda one: one.invoked):
            count += one.invoked < busy_until
            busy_until = max(busy_until, one.returned or 0)
    return count


def counted(history: Sequence[Operation]) -> Counter[str]:
    return Counter(
        histories=1,
        operations=len(history),
        unanswered=sum(one.answer is Answer.NONE for one in history),
        at_once=overlapping(history),
    )


@pytest.mark.case("ME09", "S2", "S3")
@pytest.mark.parametrize("part", range(PARTS * TIMES))
def test_me09_histories_are_those_of_a_lock_with_fences(
    open_table: OpenTable, store: str, part: int
) -> None:
    figures = Counter[str]()
    for making in makings(store, part, AMOUNTS[store]):
        history = asyncio.run(make(open_table, making))
        is_linearizable(making, history)
        figures += counted(history)
    leave(f"histories-{store}-{part}", {"of": store, **figures})


@pytest.mark.case("ME09", "S2", "S3")
@pytest.mark.of_sqlite("processes of their own share a file")
@pytest.mark.parametrize("part", range(TIMES))
def test_me09_also_when_the_clients_are_in_several_processes(
    store: str, part: int, tmp_path: Path
) -> None:
    chosen = makings(store, part, BY_PROCESSES)
    histories = asyncio.run(make_by_processes(tmp_path / "blackboard.db", chosen))
    figures = Counter[str]()
    for making, history in zip(chosen, histories, strict=True):
        is_linearizable(making, history)
        figures += counted(history)
    leave(f"histories-processes-{part}", {"of": "sqlite, four processes", **figures})


def test_thirty_one_histories_are_made_in_the_short_form() -> None:
    """Of five thousand operations each."""
    assert PARTS * sum(AMOUNTS.values()) + BY_PROCESSES == 31
    assert Making(seed=0).amount == OPERATIONS == 5_000


# ---- the histories themselves are tested


def blind(honest: Callable[..., list[Op]]) -> Callable[..., list[Op]]:
    """The same batch without its conditions, among them that a fence has one row in the history."""
    return lambda *given: [
        one if isinstance(one, Insert) else replace(one, etag=ANY)
        for one in honest(*given)
        if not one.key.startswith(keys.RUN)
    ]


def test_a_release_without_its_conditions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the first history that is made with it: late holders free the locks of others."""
    monkeypatch.setattr(releases, "release_ops", blind(batches.release_ops))
    open_table = STORES["memory"](None, None)  # type: ignore[arg-type]
    making = Making(seed=1)
    with pytest.raises(AssertionError, match=r"VIOLATED; before it was fence \d+, held by client"):
        is_linearizable(making, asyncio.run(make(open_table, making)))


def test_the_same_seed_makes_the_same_history() -> None:
    """Of the memory store: what is found there can be found again."""

    def made() -> list[Operation]:
        open_table = STORES["memory"](None, None)  # type: ignore[arg-type]
        return asyncio.run(make(open_table, Making(seed=3, amount=500, faults=True)))

    assert made() == made()
