"""Bugs of the protocol, as switches: each leaves one condition out, and is in the tests alone.

The first fourteen are the conditions of the protocol, which the searched model has as well.
A proof of the product (walks, simulated worlds) plants them one at a time and has to find each: an
invariant that a broken board satisfies is worth nothing.
"""

from datetime import timedelta

from blackboard.protocol import (
    additions,
    batches,
    checkpoints,
    claims,
    edits,
    releases,
    renewals,
)
from blackboard.rules import applied, due, next_run, transitions
from blackboard.simulator import faults
from blackboard.tables.memory import Contents
from blackboard.worker import claimer, heartbeat, stale_locks
from blackboard.worker.backlog import Backlog
from blackboard.worker.heartbeat import Heartbeat
from blackboard.worker.holdings import Holdings
from blackboard.worker.judge import Judge
from blackboard.worker.stale_locks import StaleLocks
from blackboard.worker.store_breaker import GuardedTable, StoreBreaker
from blackboard.worker.walk import Walk
from tests.proof.planted import replacements as broken
from tests.proof.planted.limits import LIMITS
from tests.proof.planted.oversights import OVERSIGHTS
from tests.proof.planted.planting import Planted
from tests.proof.planted.replacements import without_etag
from tests.proof.planted.scenarios import lossy, unanswered
from tests.proof.planted.sharing import SHARING

THE_FOURTEEN = (
    Planted(
        name="etag",
        without="an etag comes again for a key",
        patches=((Contents, "apply", broken.counts_each_row),),
        shows="ETAG|FENCE|FOREIGN release|OVERRIDE|NO TOKEN|TOKEN|EDIT LOST|RUN NOW LOST",
    ),
    Planted(
        name="bump",
        without="an unlock, a cancel and an override that runs nothing keep the fence",
        patches=(
            (edits, "free_ops", broken.keeps_the_fence),
            (claims, "free_ops", broken.keeps_the_fence),
        ),
        shows="FENCE|LATE|HISTORY",
        verbs=("unlock", "cancel", "pause", "resume"),
    ),
    Planted(
        name="itemcond",
        without="a change does not state the item's etag",
        patches=(
            (edits, "change_ops", without_etag("change_ops", "item:")),
            (claims, "change_ops", without_etag("change_ops", "item:")),
        ),
        shows="TOKEN|TWO TOKENS|NO TOKEN|WAITING TOKEN|EDIT LOST|RUN NOW LOST|TWICE|KEY|STARTED",
    ),
    Planted(
        name="relcond",
        without="a release does not state the item's etag",
        patches=((releases, "release_ops", without_etag("release_ops", "item:")),),
        shows="WAITING TOKEN|EDIT LOST|RUN NOW LOST|PROMISE|TOKEN",
    ),
    Planted(
        name="ovread",
        seldom=True,
        without="an override does not state the item's etag",
        patches=((claims, "override_ops", without_etag("override_ops", "item:")),),
        shows="WAITING TOKEN|EDIT LOST|RUN NOW LOST|STARTED|TOKEN|PROMISE",
        verbs=("edit", "pause", "resume"),
    ),
    Planted(
        name="editlock",
        without="an edit of a locked item touches the lock",
        patches=((edits, "change_ops", broken.touches_the_lock),),
        shows="LOCK",
    ),
    Planted(
        name="runkey",
        without="a late release does not look for its own row in the history",
        patches=((releases, "_is_mine", lambda *_: False),),
        shows="HISTORY|LATE",
    ),
    Planted(
        name="late",
        without="a late release writes into the item that has the id now",
        patches=((releases, "late_move", broken.forgets_its_birth),),
        shows="LATE",
    ),
    Planted(
        name="settle",
        without="a claim without an answer counts as made",
        patches=((claims, "landed", broken.takes_silence_for_a_yes),),
        shows="LATE|FENCE|HISTORY|ORPHAN|TWICE",
        draw=lossy,
    ),
    Planted(
        name="adopt",
        without="a worker leaves a lock of its own that it does not hold in memory",
        patches=(
            (due, "decide_lock", broken.forgets_to_adopt),
            (stale_locks, "decide_lock", broken.forgets_to_adopt),
        ),
        shows="ORPHAN",
    ),
    Planted(
        name="paused",
        without="a release drops the pause of its item",
        patches=((releases, "released", broken.forgets_the_pause),),
        shows="WAITING TOKEN|PROMISE",
    ),
    Planted(
        name="once",
        without="an unlock that is repeated takes the lock that is there by then",
        patches=(
            (edits, "unlock", broken.unlocks_whoever_it_is),
            (faults._FREES, "unlock", broken.unlocks_whoever_it_is),
        ),
        shows="RETRY|TWICE",
        verbs=("unlock", "run_now"),
    ),
    Planted(
        name="tomb",
        without="an id that is added again begins with fence 0",
        patches=((additions, "add_ops", broken.forgets_the_fence),),
        shows="FENCE",
    ),
    Planted(
        name="saved",
        without="a save does not state the item's etag",
        patches=((checkpoints, "save_ops", without_etag("save_ops", "item:")),),
        shows="CHECKPOINT|TOKEN",
    ),
)

CONDITIONS = (
    Planted(
        name="blind free",
        without="an unlock or a cancel does not state the item's etag",
        patches=((edits, "free_ops", without_etag("free_ops", "item:")),),
        shows="TOKEN|WAITING TOKEN|TWO TOKENS|EDIT LOST|RUN NOW LOST|FENCE|RETRY|TWICE|PROMISE",
        verbs=("unlock", "cancel", "edit", "run_now"),
    ),
    Planted(
        name="blind removal",
        without="a removal does not state the item's etag",
        patches=((edits, "remove_ops", without_etag("remove_ops", "item:")),),
        shows="WAITING TOKEN|ORPHAN|FENCE|TWICE|LOCK|RUNNING",
    ),
    Planted(
        name="blind claim",
        without="a claim does not state the token's etag",
        patches=((claims, "claim_ops", without_etag("claim_ops", "next:")),),
        shows="EDIT LOST|RUN NOW LOST|FENCE|TOKEN|LOCK",
        verbs=("edit", "run_now"),
    ),
    Planted(
        name="blind override",
        seldom=True,
        without="an override does not state the lock's etag",
        patches=((claims, "override_ops", without_etag("override_ops", "lock:")),),
        shows="OVERRIDE|FENCE",
    ),
    Planted(
        name="blind late result",
        without="a late result does not state the item's etag",
        patches=((releases, "late_ops", without_etag("late_ops", "item:")),),
        shows="LATE",
        verbs=("add", "remove"),
    ),
    Planted(
        name="born twice",
        without="two lives of an id are born with one fence",
        patches=((edits, "removed", broken.born_as_before),),
        shows="TWICE|FENCE",
        verbs=("add", "remove"),
    ),
    Planted(
        name="one name",
        without="an item remembers the name of the last request alone",
        patches=((applied, "ALWAYS", 1), (applied, "REMEMBERED", timedelta(0))),
        shows="TWICE",
        verbs=("run_now",),
    ),
    Planted(
        name="early override",
        without="a lock is overridden when two thirds of its lease are over",
        patches=(
            (due, "decide_lock", broken.overrides_too_soon),
            (stale_locks, "decide_lock", broken.overrides_too_soon),
        ),
        shows="OVERRIDE",
    ),
)

MISTAKES = (
    Planted(
        name="blind release",
        without="a release frees whatever lock its item has",
        patches=((releases, "settle", broken.settles_with_any_lock),),
        shows="FOREIGN release|HISTORY|TWICE",
        walks=False,
    ),
    Planted(
        name="no nonce",
        without="a worker recognizes its claims by its own name alone",
        patches=((claims, "_claim_of", broken.named_by_its_owner),),
        shows="FOREIGN release|HISTORY|LATE|TWICE|ORPHAN|CRASHED",
        walks=False,
    ),
    Planted(
        name="remote clock",
        without="the age of a lock is computed with the worker's own clock",
        patches=((StaleLocks, "take", broken.compares_two_clocks),),
        shows="OVERRIDE|STUCK",
        walks=False,
    ),
    Planted(
        name="fence reset",
        without="an item that is resumed counts its fences anew",
        patches=((edits, "change_ops", broken.counts_anew),),
        shows="FENCE",
        walks=False,
    ),
    Planted(
        name="renew by id",
        without="a renewal touches whatever lock the item has",
        patches=((renewals, "Merge", broken.blind_merge),),
        shows="RENEWED",
        walks=False,
    ),
    Planted(
        name="token lost",
        without="a failed run leaves no token",
        patches=((releases, "release_ops", broken.loses_the_token_of_a_failure),),
        shows="NO TOKEN",
        walks=False,
    ),
    Planted(
        name="from memory",
        without="the next slot was computed before an edit, and is sent again after it",
        patches=((releases, "_until_it_lands", broken.settles_from_memory),),
        shows="WAITING TOKEN|EDIT LOST|RUN NOW LOST|PROMISE|TOKEN",
        walks=False,
    ),
    Planted(
        name="sent again whole",
        without="a request without an answer is repeated as a new one",
        patches=((edits, "is_applied", lambda *_: False),),
        shows="TWICE",
        walks=False,
    ),
    Planted(
        name="race for loss",
        without="a release that lost a race counts its lock as lost",
        patches=((releases, "settle", broken.takes_a_race_for_a_loss),),
        shows="HISTORY|LATE|ORPHAN",
        walks=False,
    ),
    Planted(
        name="rounding",
        without="the resolution of the store's times is subtracted from a lease, not added",
        patches=((due, "is_stale", broken.rounds_against_the_holder),),
        shows="OVERRIDE",
        walks=False,
    ),
    Planted(
        name="orphan on cancel",
        without="the lock of a cancelled run stays",
        patches=((edits, "free_ops", broken.leaves_the_lock),),
        shows="TWO TOKENS|RUNNING",
        walks=False,
    ),
    Planted(
        name="deadline",
        without="a lease counts from the last renewal that was sent, answered or not",
        patches=((Heartbeat, "ask", broken.counts_from_the_last_send),),
        shows="NOT NOTIFIED",
        walks=False,
    ),
    Planted(
        name="deaf",
        seldom=True,
        without="a holder that is notified of its lost lock goes on",
        patches=((heartbeat, "renew_all", broken.goes_on_without_its_lock),),
        shows="NOT NOTIFIED|UNTRUSTED",
        walks=False,
    ),
    Planted(
        name="late over fenced",
        without="a late result goes into an item of a fenced type",
        patches=((releases, "late_move", broken.takes_no_type_for_fenced),),
        shows="LATE",
        walks=False,
    ),
    Planted(
        name="own missed",
        without="the worker's own clock decides whether a slot was missed",
        patches=((Judge, "decide", broken.misses_by_its_own_clock),),
        shows="PASSED",
        walks=False,
    ),
    Planted(
        name="own due",
        without="the worker's own clock decides what is due",
        patches=((GuardedTable, "now", broken.asks_its_own_clock),),
        shows="EARLY|CLOCK|PASSED",
        walks=False,
    ),
    Planted(
        name="again dropped",
        without="a release drops the run that was requested meanwhile",
        patches=((releases, "released", broken.forgets_run_now),),
        shows="RUN NOW LOST",
        walks=False,
    ),
    Planted(
        name="overridden is good",
        without="a run whose lock was overridden is recorded as completed",
        patches=((claims, "abandoned_run", broken.counts_as_completed),),
        shows="HISTORY|FOREIGN release",
        walks=False,
    ),
    Planted(
        name="first again",
        without="a waiting token does not say how often it was tried",
        patches=((batches, "insert_next", broken.forgets_the_tries),),
        shows="TOKEN",
        walks=False,
    ),
    Planted(
        name="no override",
        without="a stale lock is never overridden",
        patches=(
            (due, "decide_lock", broken.forgets_to_override),
            (stale_locks, "decide_lock", broken.forgets_to_override),
        ),
        shows="STUCK",
        walks=False,
    ),
    Planted(
        name="slot kept",
        without="a run that lost its lock keeps its slot",
        patches=((Holdings, "release", broken.keeps_the_slot_of_a_lost_lock),),
        shows="STUCK",
        walks=False,
    ),
    Planted(
        name="stubborn",
        without="a claim that lost its race is repeated unchanged",
        patches=(
            (claimer, "claim", broken.claims_without_reading),
            (Backlog, "drop", lambda *_: None),
        ),
        shows="REFUSED",
        walks=False,
    ),
    Planted(
        name="restless",
        without="a worker looks at the whole board whenever it wakes, and wakes for nothing",
        patches=(
            (Walk, "go_on", broken.has_to_look_at_all),
            (Walk, "walk", broken.sees_a_crowd),
        ),
        shows="REQUESTS",
        walks=False,
    ),
    Planted(
        name="pages",
        seldom=True,
        without="a page that is answered does not show that the account is there",
        patches=((StoreBreaker, "answered", broken.takes_no_page_for_an_answer),),
        shows="STUCK|ORPHAN",
        walks=False,
        draw=unanswered,
    ),
    Planted(
        name="same slot",
        without="among the slots that were missed may be the one that was just served",
        patches=((next_run, "due_between", broken.counts_the_one_before),),
        shows="TWICE|SLOT",
        walks=False,
    ),
    Planted(
        name="old slot",
        without="a paused item that an edit leaves no slot keeps the one it had",
        patches=((transitions, "replanned", broken.keeps_the_slot_of_what_is_paused),),
        shows="SLOT",
        walks=False,
        verbs=("edit", "pause", "resume"),
    ),
    Planted(
        name="old pause",
        without="a done item that an edit gives a slot is active, though it was paused",
        patches=((transitions, "replanned", broken.forgets_the_pause_of_what_is_done),),
        shows="WAITING TOKEN",
        walks=False,
        verbs=("edit", "pause", "resume"),
    ),
    Planted(
        name="silent save",
        without="a save without an answer counts as done",
        patches=((checkpoints, "until_answered", broken.takes_silence_for_a_save),),
        shows="START",
    ),
    Planted(
        name="save from memory",
        without="a save is sent again with the item's new etag, and all else is not read again",
        patches=((heartbeat, "save", broken.saves_from_memory),),
        shows="WAITING TOKEN|EDIT LOST|RUN NOW LOST|PROMISE|TOKEN|STARTED",
        walks=False,
        verbs=("edit", "pause", "run_now"),
    ),
)

PLANTED = (*THE_FOURTEEN, *CONDITIONS, *MISTAKES, *OVERSIGHTS, *SHARING, *LIMITS)
