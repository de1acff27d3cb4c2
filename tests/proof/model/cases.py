"""What is searched: worlds in which all conditions are kept to, and worlds that are just large
enough to show what happens when one is left out.
"""

from typing import NamedTuple

from tests.proof.model import judges
from tests.proof.model.operators import VERBS
from tests.proof.model.world import Bounds

KEPT = {
    "two workers, no harm": Bounds(fence=4, slots=2),
    "an answer is lost, a worker dies, a lock is stale, renewals": Bounds(
        lost=1, kills=1, stale=True, renewals=1, fence=3
    ),
    "two answers are lost, stale locks": Bounds(lost=2, stale=True, fence=3),
    "two answers are lost, room for two runs": Bounds(lost=2, slots=2),
    "three workers": Bounds(workers=3, lost=1, stale=True),
    "a worker dies, attempts are used up": Bounds(
        kills=1, stale=True, spent=True, slots=2, fence=3
    ),
    "two items, claimed in one batch": Bounds(items=2, slots=2, together=True, lost=1),
    "two items, claimed one by one": Bounds(items=2, slots=2),
    "two people pause and resume": Bounds(
        workers=1, people=2, verbs=("pause", "resume"), requests=3, lost=1
    ),
    "two requests, an answer is lost": Bounds(workers=1, verbs=VERBS, requests=2, lost=1),
    "two people remove, add and unlock": Bounds(
        people=2, verbs=("remove", "add", "unlock"), requests=2, fence=3
    ),
    "one request, an answer is lost, room for two runs": Bounds(
        verbs=VERBS, requests=1, lost=1, slots=2
    ),
    "one request, an answer is lost, stale locks": Bounds(
        verbs=("pause", "run now", "unlock"), requests=1, lost=1, stale=True
    ),
    "two requests at once, stale locks": Bounds(
        people=2, verbs=("edit", "pause"), requests=2, stale=True
    ),
    "three runs are asked for, one is unlocked": Bounds(
        workers=1, people=2, verbs=("run now", "unlock"), requests=3, fence=4
    ),
    "three requests": Bounds(workers=1, verbs=VERBS, requests=3),
    "paused to begin with, three requests": Bounds(
        workers=1, people=2, verbs=("resume", "edit", "run now"), requests=3, state="paused"
    ),
    "one request, two answers are lost": Bounds(workers=1, verbs=VERBS, requests=1, lost=2),
    "items with one slot": Bounds(verbs=VERBS, requests=2, only=True, stale=True, spent=True),
    "one request, a worker dies": Bounds(
        verbs=("edit", "pause", "run now", "unlock"), requests=1, kills=1, stale=True, spent=True
    ),
    "two saves, an answer is lost, stale locks": Bounds(saves=2, lost=1, stale=True, fence=3),
    "two saves, an answer is lost, a worker dies": Bounds(saves=2, lost=1, kills=1, stale=True),
    "a save, one request, an answer is lost": Bounds(
        workers=1, saves=1, verbs=VERBS, requests=1, lost=1
    ),
    "two saves, one request, stale locks": Bounds(saves=2, verbs=VERBS, requests=1, stale=True),
}

NIGHTLY = {
    "one request of any kind, an answer is lost, stale locks": Bounds(
        verbs=VERBS, requests=1, lost=1, stale=True
    ),
    "two requests at once, of any kind, stale locks": Bounds(
        people=2, verbs=VERBS, requests=2, stale=True
    ),
    "two requests at once, of any kind, an answer is lost": Bounds(
        workers=1, people=2, verbs=VERBS, requests=2, lost=1
    ),
    "one request of any kind, everything once": Bounds(
        verbs=VERBS, requests=1, lost=1, kills=1, stale=True, renewals=1
    ),
    "all harm, room for two runs": Bounds(
        lost=1, kills=1, stale=True, renewals=1, spent=True, slots=2, fence=3
    ),
    "two answers are lost, room for two runs, stale locks": Bounds(
        lost=2, stale=True, spent=True, slots=2, fence=3
    ),
    "three runs are asked for, stale locks": Bounds(
        people=2, verbs=("run now",), requests=3, stale=True, spent=True, fence=4, only=True
    ),
    "two workers die": Bounds(kills=2, stale=True, spent=True, slots=2, fence=4),
    "two items, one request": Bounds(
        items=2, slots=2, together=True, verbs=VERBS, requests=1, lost=1
    ),
    "three workers, two answers are lost": Bounds(workers=3, lost=2, stale=True, fence=3),
    "four requests": Bounds(workers=1, verbs=VERBS, requests=4),
    "two saves, two answers are lost, stale locks": Bounds(saves=2, lost=2, stale=True, fence=3),
    "two saves, everything once": Bounds(
        saves=2, lost=1, kills=1, stale=True, spent=True, renewals=1, fence=3
    ),
    "a save, one request, an answer is lost, stale locks": Bounds(
        saves=1, verbs=("edit", "pause", "unlock"), requests=1, lost=1, stale=True
    ),
}


class LeftOut(NamedTuple):
    condition: str
    invariant: str
    """That breaks first."""
    bounds: Bounds


LEFT_OUT = (
    LeftOut(
        "etag",
        judges.OWN_LOCK,
        Bounds(stale=True, fence=3),
    ),
    LeftOut(
        "etag",
        judges.PROJECTION,
        Bounds(workers=1, verbs=("pause", "edit", "resume"), requests=3),
    ),
    LeftOut("bump", judges.LATE, Bounds(workers=1, verbs=("unlock",), requests=1)),
    LeftOut("bump", judges.LATE, Bounds(stale=True, spent=True)),
    LeftOut(
        "itemcond",
        judges.ONE_TOKEN,
        Bounds(workers=1, people=2, verbs=("resume",), requests=2, state="paused"),
    ),
    LeftOut("itemcond", judges.ONE_TOKEN, Bounds(workers=1, verbs=("pause",), requests=1)),
    LeftOut("relcond", judges.PROJECTION, Bounds(workers=1, verbs=("edit",), requests=1)),
    LeftOut("relcond", judges.PROMISE, Bounds(workers=1, verbs=("pause",), requests=1)),
    LeftOut("relcond", judges.ASKED, Bounds(workers=1, verbs=("run now",), requests=1)),
    LeftOut("ovread", judges.PROJECTION, Bounds(stale=True, verbs=("edit",), requests=1)),
    LeftOut("ovread", judges.HELD, Bounds(stale=True, verbs=("pause",), requests=1)),
    LeftOut("editlock", judges.AGES, Bounds(workers=1, kills=1, verbs=("edit",), requests=1)),
    LeftOut("runkey", judges.HISTORY, Bounds(workers=1, lost=1)),
    LeftOut("late", judges.LATE, Bounds(workers=1, verbs=("remove", "add"), requests=2)),
    LeftOut("settle", judges.HELD, Bounds(workers=1, lost=1)),
    LeftOut("adopt", judges.RESTS, Bounds(workers=1, lost=1)),
    LeftOut("paused", judges.ONE_TOKEN, Bounds(workers=1, verbs=("pause",), requests=1)),
    LeftOut("paused", judges.HELD, Bounds(stale=True, verbs=("pause",), requests=1)),
    LeftOut("once", judges.COUNTS_ONCE, Bounds(workers=1, lost=1, verbs=("run now",), requests=1)),
    LeftOut("once", judges.COUNTS_ONCE, Bounds(lost=1, verbs=("unlock",), requests=1, fence=3)),
    LeftOut(
        "once",
        judges.COUNTS_ONCE,
        Bounds(workers=1, people=2, lost=1, verbs=("remove", "add"), requests=2),
    ),
    LeftOut(
        "once",
        judges.COUNTS_ONCE,
        Bounds(workers=1, people=2, lost=1, verbs=("pause", "resume"), requests=2),
    ),
    LeftOut("tomb", judges.FENCES_RISE, Bounds(workers=1, verbs=("remove", "add"), requests=2)),
    LeftOut("saved", judges.CHECKPOINT, Bounds(workers=1, saves=1, lost=1)),
    LeftOut("saved", judges.CHECKPOINT, Bounds(saves=1, stale=True)),
)
