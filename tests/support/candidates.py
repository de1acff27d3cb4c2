"""Candidates of tests, which are due some seconds after the start."""

from datetime import timedelta

from blackboard.model import Token
from blackboard.spec import RunSettings
from blackboard.worker.backlog import Candidate
from blackboard.worker.peers import FIRST, Turn
from tests.support.clocks import START

SECOND = timedelta(seconds=1)


def candidate(
    item_id: str, *, after: int, priority: int = 0, item_type: str = "feed", turn: Turn = FIRST
) -> Candidate:
    ready = START + after * SECOND
    made = Token(
        id=item_id,
        type=item_type,
        spec="{}",
        fence=0,
        born=0,
        slot=ready,
        ready=ready,
        planned=ready,
        attempt=1,
        runs=0,
        failures=0,
        once="",
    )
    return Candidate(made, RunSettings(priority=priority), turn=turn)


def ids(candidates: list[Candidate]) -> str:
    return "".join(one.id for one in candidates)
