"""Samples of rows and claims; and a change writes what changed. What each verb writes, and on what
condition, is in docs/rows.md, and shown by test_docs_batches.py.
"""

from datetime import timedelta

from blackboard.model import Item, Lock, State, replace
from blackboard.protocol.batches import change_ops, token_of
from blackboard.protocol.claims import Claim
from blackboard.spec import RunSettings
from blackboard.table import Merge
from tests.support import plans
from tests.support.plans import NOON

WAITING = Item(
    id="davis",
    type="feed",
    state=State.ACTIVE,
    spec="{}",
    fence=4,
    slot=NOON,
    ready=NOON,
    planned=NOON,
    etag="I",
)
RUNNING = replace(WAITING, running=True, start=NOON, owner="me")
PAUSED = replace(WAITING, state=State.PAUSED)
TOKEN = replace(token_of(WAITING), etag="T")
LOCK = Lock(
    id="davis",
    type="feed",
    owner="me",
    nonce="n",
    fence=4,
    born=0,
    slot=NOON,
    since=NOON,
    stale_after=60.0,
    attempt=1,
    etag="L",
)
CLAIM = Claim(item=RUNNING, lock=LOCK, settings=RunSettings(), sent=0.0)
RUN = replace(plans.RUN, fence=4)
LATER = replace(WAITING, ready=NOON + timedelta(hours=1))


def test_a_change_writes_what_changed_and_nothing_else() -> None:
    merge = change_ops(RUNNING, replace(RUNNING, spec="[]", paused="why"))[0]
    assert isinstance(merge, Merge)
    assert merge.data == {"spec": "[]", "paused": "why"}
