"""What the package raises reaches another process as it is."""

import copy
import pickle

import pytest

import blackboard
from blackboard.errors import AlreadyThere, BadRow, BadSpec
from blackboard.table import Busy, Conflict, ConflictKind, Refused

ERRORS = [
    blackboard.BadInput("url", "it is empty", "name one"),
    blackboard.Missing("davis"),
    AlreadyThere("davis"),
    BadRow("item:davis", "no good fence"),
    BadRow("item:davis", "no good fence", board="town.clicks"),
    BadSpec("it is not JSON", "davis"),
    blackboard.LeaseLost("the run is over"),
    blackboard.MissingStore("there is nothing yet"),
    Busy(1.5, "throttled"),
    Conflict(2, ConflictKind.CHANGED),
    Refused(0, "too large"),
    blackboard.Retry("1m"),
    blackboard.Fail("never"),
    blackboard.Skip("nothing new"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_another_process_gets_an_error_as_it_is(error: Exception) -> None:
    for copied in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(copied) is type(error)
        assert str(copied) == str(error)
        assert vars(copied) == vars(error)


FLOOR_WORDS = (
    "row floor of the board town.clicks: no good fence "
    "(`blackboard --board town.clicks doctor` tells more)"
)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            BadRow("item:davis", "no good fence"),
            "row item:davis: no good fence (`blackboard doctor` tells more)",
        ),
        (
            BadRow("floor", "no good fence", board="town.clicks"),
            FLOOR_WORDS,
        ),
        (
            BadRow("board", "no good shards"),
            "row board: no good shards (`blackboard doctor` tells more)",
        ),
    ],
)
def test_a_row_that_cannot_be_read_is_named_with_its_board_and_what_tells_more(
    error: BadRow, words: str
) -> None:
    assert str(error) == words
