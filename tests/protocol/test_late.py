"""Letting an item go that is not one's own any more, or whose outcome the store refuses."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from blackboard.model import Outcome, State, replace
from blackboard.phrases import LONGEST_ERROR, cut_middle
from blackboard.protocol import keys
from blackboard.protocol.additions import New, add
from blackboard.protocol.claims import Claim, override
from blackboard.protocol.edits import cancel, remove, unlock
from blackboard.protocol.releases import REFUSED, UNANSWERED, ReleaseOutcome, fit, release
from blackboard.protocol.results import LONGEST_WARNING, MOST_WARNINGS, warnings_in
from blackboard.spec import Spec
from blackboard.table import ANY, Delete, Etag, Merge, Op, Unknown
from blackboard.tables.base import ForwardingTable
from tests.support.boards import Scene, finished, story
from tests.support.faults import Fault

pytestmark = pytest.mark.of_one_store("what is read and written is decided above the store")

HOUR = timedelta(hours=1)


async def taken_away(scene: Scene, how: str) -> None:
    """The lock of davis goes to another, or away."""
    lock = await scene.lock()
    if how == "unlock":
        await unlock(scene.other, "davis", scene.mark("stuck"), fence=lock.fence)
    elif how == "cancel":
        await cancel(scene.other, "davis", scene.mark("wrong"), fence=lock.fence)
    elif how == "remove":
        await remove(scene.other, "davis")
    else:
        scene.later(seconds=lock.stale_after + 1)
        assert await override(scene.other, await scene.lock(), owner="you") is not None


@pytest.mark.parametrize(("ended", "told"), [("failed", "cancelled"), ("ok", "superseded")])
@story
async def test_a_cancelled_run_stays_cancelled_unless_it_has_a_result_after_all(
    scene: Scene, ended: str, told: str
) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    await taken_away(scene, "cancel")
    said = {"result": 1} if ended == "ok" else {"error": "stopped"}
    assert (await scene.let_go(made, ended, **said)).how is ReleaseOutcome.LATE
    assert await scene.outcomes() == [(1, told)]


# ---- refused


@pytest.mark.case("OP01")
@story
async def test_op01_a_result_too_large_for_a_row_is_replaced_by_a_warning_with_its_size(
    scene: Scene,
) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    limit = scene.table.max_value
    let_go = await scene.let_go(made, result="x" * limit)
    assert let_go.run.outcome is Outcome.OK
    (warning,) = warnings_in((await scene.item()).result)
    assert warning.startswith(f"the result, {limit + 2:,} characters of JSON, was not kept")
    assert "write it to a file" in warning
    scene.later(hours=1)
    largest = await scene.let_go(await scene.claimed("davis"), result="x" * (limit - 2))
    assert largest.run.outcome is Outcome.OK
    assert len((await scene.item()).result) == limit


@story
async def test_a_run_that_the_store_refuses_is_told_as_failed_and_spoils_no_other(
    scene: Scene,
) -> None:
    await scene.add("a")
    await scene.add("b")
    claims = (await scene.take("a", "b")).claims
    scene.table.script(Fault.REFUSED, Fault.NONE, Fault.REFUSED)
    let_go = await release(scene.board, [finished(made, result=1) for made in claims])
    assert [one.run.outcome for one in let_go] == [Outcome.FAILED, Outcome.OK]
    assert let_go[0].run.error == f"{REFUSED}: too large for this store"
    assert (await scene.outcomes("a"), await scene.outcomes("b")) == (
        [(1, "failed")],
        [(1, "ok")],
    )


@pytest.mark.of_each_store
@story
async def test_what_is_refused_in_few_words_too_is_dropped_and_its_lock_goes_stale(
    scene: Scene,
) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    scene.table.script(Fault.REFUSED, Fault.REFUSED, Fault.REFUSED)
    assert (await scene.let_go(made)).how is ReleaseOutcome.DROPPED
    assert (await scene.lock()).nonce == made.nonce


@pytest.mark.of_each_store
@story
async def test_a_late_word_refused_in_few_words_too_is_dropped(scene: Scene) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    await taken_away(scene, "unlock")
    scene.table.script(Fault.NONE, Fault.REFUSED, Fault.REFUSED)
    assert (await scene.let_go(made, result="late")).how is ReleaseOutcome.DROPPED


def test_an_error_is_cut_in_the_middle() -> None:
    for length in (0, 1, 99, 100, 101, 150, 10_000):
        text = "".join(chr(ord("a") + n % 26) for n in range(length))
        cut = cut_middle(text, 100)
        assert len(cut) <= 100
        assert cut == text if length <= 100 else cut.endswith(text[-20:])


@story
async def test_a_long_error_fits_a_row(scene: Scene) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    long = finished(made, "failed", error="x" * 100_000)
    kept = fit(long, scene.table.max_value).ended.error
    assert len(kept) == LONGEST_ERROR
    await release(scene.board, [long])
    assert (await scene.item()).error == kept


@pytest.mark.of_each_store
@story
async def test_as_many_warnings_are_kept_as_fit_a_row(scene: Scene) -> None:
    """In JSON a control character takes six."""
    await scene.add("davis")
    made = finished(await scene.claimed("davis"), result={"events": 3})
    said = tuple(f"{n:02d}".ljust(LONGEST_WARNING, "\1") for n in range(MOST_WARNINGS))
    (let_go,) = await release(
        scene.board, [replace(made, ended=replace(made.ended, warnings=said))]
    )
    item, run = await scene.item(), let_go.run
    assert (run.outcome, run.result, run.error) == (Outcome.OK, '{"events":3}', "")
    assert item.warnings == run.warnings == said[:10]


# ---- late


@pytest.mark.case("LF01", "S1")
@pytest.mark.parametrize("how", ["override", "unlock", "cancel"])
@story
async def test_lf01_a_holder_that_lost_its_lock_is_told_as_superseded(
    scene: Scene, how: str
) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    await taken_away(scene, how)
    let_go = await scene.let_go(made, result="late")
    item = await scene.item()
    assert let_go.how is ReleaseOutcome.LATE
    assert await scene.outcomes() == [(1, "superseded")]
    assert (item.result, item.result_fence) == ('"late"', 1)
    assert item.outcome is not Outcome.OK
    assert item.fence == 2


@story
async def test_a_late_finisher_writes_its_result_and_nothing_else(scene: Scene) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    await taken_away(scene, "override")
    before, lock = await scene.item(), await scene.lock()
    await scene.let_go(made, result="late")
    after = await scene.item()
    changed = replace(after, result="", result_fence=0, etag=before.etag)
    assert changed == before
    assert (await scene.lock()).etag == lock.etag


@story
async def test_why_a_lock_was_taken_stays_in_the_history(scene: Scene) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    await taken_away(scene, "unlock")
    (before,) = await scene.runs()
    await scene.let_go(made)
    (run,) = await scene.runs()
    assert run.note == before.note
    assert "stuck" in run.note


@story
async def test_an_older_result_does_not_go_over_a_newer_one(scene: Scene) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    await taken_away(scene, "unlock")
    await scene.let_go(await scene.claimed("davis"), result="newer")
    before = await scene.item()
    assert (before.result, before.result_fence) == ('"newer"', 3)
    assert (await scene.let_go(made, result="late")).how is ReleaseOutcome.LATE
    assert await scene.item() == before
    assert await scene.outcomes() == [(1, "superseded"), (3, "ok")]


@pytest.mark.parametrize("outcome", ["failed", "timeout"])
@story
async def test_a_late_result_leaves_the_error_and_the_outcome_of_a_newer_failure(
    scene: Scene, outcome: str
) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    await taken_away(scene, "unlock")
    await scene.let_go(await scene.claimed("davis"), outcome, error="no such town")
    await scene.let_go(made, result="late")
    item = await scene.item()
    assert (item.result, item.result_fence) == ('"late"', 1)
    assert (item.outcome, item.error, item.failures) == (Outcome(outcome), "no such town", 1)


@story
async def test_of_two_late_results_the_newer_stays(scene: Scene) -> None:
    await scene.add("davis")
    late = []
    for _ in range(2):
        late.append(await scene.claimed("davis"))
        await taken_away(scene, "unlock")
    older, newer = late
    await scene.let_go(newer, result="newer")
    await scene.let_go(older, result="older")
    item = await scene.item()
    assert (item.result, item.result_fence) == ('"newer"', newer.fence)


@pytest.mark.case("LF01", "S3")
@pytest.mark.parametrize(
    ("item_type", "outcome"), [("fenced", "ok"), ("feed", "failed"), ("feed", "cancelled")]
)
@story
async def test_lf01_a_fenced_type_and_a_run_without_a_result_are_recorded_only(
    scene: Scene, item_type: str, outcome: str
) -> None:
    await scene.add("davis", item_type=item_type)
    made = await scene.claimed("davis")
    await taken_away(scene, "unlock")
    await scene.let_go(await scene.claimed("davis"), result="newer")
    let_go = await scene.let_go(made, outcome, result="late" if outcome == "ok" else None)
    assert let_go.how is ReleaseOutcome.LATE
    assert (await scene.item()).result == '"newer"'
    assert await scene.outcomes() == [(1, "superseded"), (3, "ok")]


@pytest.mark.case("LF11")
@story
async def test_lf11_a_run_of_a_removed_item_neither_resurrects_it_nor_leaves_a_lock(
    scene: Scene,
) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    await remove(scene.other, "davis")
    let_go = await scene.let_go(made)
    assert let_go.how is ReleaseOutcome.DROPPED
    assert (await scene.item()).state is State.REMOVED
    assert await scene.rows("lock:") == []
    assert await scene.tokens() == []


@pytest.mark.case("LF11")
@pytest.mark.parametrize("runs", [False, True])
@story
async def test_a_run_of_a_removed_item_does_not_write_into_its_successor(
    scene: Scene, *, runs: bool
) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    await remove(scene.other, "davis")
    await scene.add("davis")
    if runs:
        await scene.claimed("davis", board=scene.other)
    before = await scene.item()
    assert (await scene.let_go(made, result="late")).how is ReleaseOutcome.DROPPED
    assert await scene.item() == before
    (cut_short,) = await scene.runs()
    assert (cut_short.outcome, cut_short.error) == (Outcome.CANCELLED, "its item was removed")


@pytest.mark.case("LF07")
@story
async def test_lf07_a_late_release_does_not_dispatch_again(scene: Scene) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    await taken_away(scene, "override")
    taken = await scene.lock()
    await scene.let_go(made, "failed", error="no")
    assert await scene.tokens() == []
    assert (await scene.lock()).etag == taken.etag


@pytest.mark.case("LR03")
@pytest.mark.parametrize("fault", [Fault.LOST, Fault.NEVER, Fault.LATE, Fault.BUSY])
@story
async def test_lr03_a_late_word_whose_reply_was_lost_is_said_once(
    scene: Scene, fault: Fault
) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    await taken_away(scene, "unlock")
    scene.table.script(Fault.NONE, fault)
    assert (await scene.let_go(made, result="late")).how is ReleaseOutcome.LATE
    assert not any(await scene.table.land())
    assert await scene.outcomes() == [(1, "superseded")]


@pytest.mark.of_each_store
@story
async def test_a_late_word_gives_way_to_a_change_made_meanwhile(scene: Scene) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    await taken_away(scene, "unlock")

    async def replaced() -> None:
        await remove(scene.other, "davis")
        await add(scene.other, New(id="davis", type="feed", spec=Spec(every="1h")))

    scene.table.script(Fault.NONE, replaced)
    assert (await scene.let_go(made, result="late")).how is ReleaseOutcome.DROPPED
    assert (await scene.item()).result == ""


@story
async def test_a_run_without_a_row_of_its_own_gets_one(scene: Scene) -> None:
    """Retention may have taken the row that said abandoned."""
    await scene.add("davis")
    made = await scene.claimed("davis")
    await taken_away(scene, "override")
    gone = [Delete(row.key, ANY) for row in await scene.rows("run:")]
    await scene.table.table.commit(scene.board.partition("davis"), gone)
    assert (await scene.let_go(made)).how is ReleaseOutcome.LATE
    assert await scene.outcomes() == [(1, "superseded")]


@story
async def test_a_result_whose_run_was_pruned_is_no_news(scene: Scene) -> None:
    """It was told, the answer was lost, and it comes back after a hundred others."""
    await scene.add("davis")
    made = await scene.claimed("davis")
    await scene.let_go(made, result="old", board=scene.other)
    scene.later(hours=1)
    await scene.let_go(await scene.claimed("davis"), result="new")
    first = [Delete(keys.run_key("davis", made.fence), ANY)]
    await scene.table.table.commit(scene.board.partition("davis"), first)
    assert (await scene.let_go(made, result="old")).how is ReleaseOutcome.LATE
    item = await scene.item()
    assert (item.result, item.result_fence) == ('"new"', made.fence + 1)


@story
async def test_a_late_word_that_the_store_refuses_is_said_in_few_words(scene: Scene) -> None:
    await scene.add("davis")
    made = await scene.claimed("davis")
    await taken_away(scene, "unlock")
    scene.table.script(Fault.NONE, Fault.REFUSED)
    let_go = await scene.let_go(made, result="late")
    assert let_go.how is ReleaseOutcome.LATE
    assert REFUSED in let_go.run.error
    assert (await scene.item()).result == ""


@pytest.mark.parametrize(
    ("silent", "how"),
    [(UNANSWERED - 1, ReleaseOutcome.LATE), (UNANSWERED, ReleaseOutcome.DROPPED)],
)
@pytest.mark.of_one_store("how often a late run is written is counted above the store")
@story
async def test_a_late_run_that_gets_no_answer_comes_to_an_end(
    scene: Scene, silent: int, how: ReleaseOutcome
) -> None:
    """Until then its own words are tried."""
    await scene.add("davis")
    made = await scene.claimed("davis")
    await taken_away(scene, "unlock")
    scene.table.script(Fault.NONE, *[Fault.NEVER] * silent)
    let_go = await scene.let_go(made, result="late")
    assert let_go.how is how
    assert let_go.run.error == ""
    assert ((await scene.item()).result == '"late"') is (how is ReleaseOutcome.LATE)


# ---- no answer


@pytest.mark.parametrize("silent", [6, 7, 12, 200])
@pytest.mark.of_one_store("what is released is judged above the store")
@story
async def test_a_good_run_is_not_recorded_as_failed_because_the_store_gives_no_answer(
    scene: Scene, silent: int
) -> None:
    """However often it does not, and whichever try is the first with an answer."""
    await scene.add("davis", every="30d", stale_after="30d")
    made = await scene.claimed("davis")
    scene.table.script(*[Fault.NEVER] * silent)
    let_go = await scene.let_go(made, result="good")
    assert (let_go.how, let_go.run.outcome) == (ReleaseOutcome.DONE, Outcome.OK)
    assert (await scene.item()).result == '"good"'


class Choosy(ForwardingTable):
    """A store that gives no answer to a batch with a word in it, and takes all others. Before each
    such batch its lock is renewed.
    """

    def __init__(self, scene: Scene, word: str) -> None:
        super().__init__(scene.table)
        self.scene, self.word = scene, word
        self.silent = 0

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        if self.word in str(ops):
            self.silent += 1
            lock = await self.scene.lock()
            await self.table.commit(partition, [Merge(keys.lock_key(lock.id), {}, lock.etag)])
            raise Unknown("answered 403")
        return await self.table.commit(partition, ops)


@pytest.mark.of_one_store("what is released is judged above the store")
@story
async def test_an_outcome_without_an_answer_is_the_reason_where_its_lock_is_renewed_time_and_again(
    scene: Scene,
) -> None:
    """The store takes other batches of the partition all the time."""
    await scene.add("davis")
    made = await scene.claimed("davis")
    choosy = Choosy(scene, "DROP TABLE")
    board = scene.board.using(choosy)
    let_go = await scene.let_go(made, result="DROP TABLE", board=board)
    assert choosy.silent == UNANSWERED + 1, "the first try is that of its batch"
    assert let_go.run.outcome is Outcome.FAILED
    assert let_go.run.error == f"{REFUSED}: answered 403"
    assert await scene.outcomes() == [(1, "failed")]


@pytest.mark.parametrize("outcome", ["ok", "failed", "timeout"])
@story
async def test_a_release_landed_is_told_from_an_override_by_its_outcome(
    scene: Scene, outcome: str
) -> None:
    """Both rows carry the nonce of the run they tell of."""
    await scene.add("davis")
    made: Claim = await scene.claimed("davis")
    await taken_away(scene, "override")
    (run,) = await scene.runs()
    assert run.nonce == made.nonce
    assert (await scene.let_go(made, outcome)).how is ReleaseOutcome.LATE
    errors: dict[str, Any] = {run.outcome: run.error for run in await scene.runs()}
    assert errors == {Outcome.SUPERSEDED: ""}


@story
async def test_two_runs_of_one_item_that_end_together_are_both_told(scene: Scene) -> None:
    """A worker that had stood still took its own item over, and now both handlers have ended."""
    await scene.add("davis", every="1h", stale_after="10s")
    early = await scene.claimed()
    scene.later(seconds=11)
    again = await override(scene.board, await scene.lock(), owner="me")
    assert again is not None
    both = [finished(early, result="early"), finished(again, result="again")]
    assert [one.how for one in await release(scene.board, both)] == [
        ReleaseOutcome.LATE,
        ReleaseOutcome.DONE,
    ]
    assert await scene.outcomes() == [(1, "superseded"), (2, "ok")]
    assert await scene.rows("lock:") == []
