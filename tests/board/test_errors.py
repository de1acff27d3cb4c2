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
    BadSpec("it is no JSON", "davis"),
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
