"""docs/rows.md is true of batches: every one that is sent is in its table, with its conditions, and
every one of the table is sent.
"""

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from blackboard.model import Applied, Outcome, State, replace
from blackboard.protocol import claims, edits
from blackboard.protocol.batches import PLANNED, add_ops, free_ops, late_ops, release_ops, save_ops
from blackboard.protocol.checkpoints import save
from blackboard.protocol.retention import Retention, delete_tombstones, is_expired
from blackboard.rules.due import Move
from blackboard.table import ANY, Delete, Insert, Op
from tests.protocol.test_batches import PAUSED, RUN, RUNNING, WAITING
from tests.support.boards import Scene
from tests.support.pages import page, scene_in_memory, words
from tests.support.plans import NOON
from tests.support.verbs import says

ROWS = page("rows.md")


class Recorder:
    """What was sent to a board, said as the page says it."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.said: set[str] = set()

    @contextmanager
    def of(self, verb: str, *, last: bool = False) -> Iterator[None]:
        """All batches that are sent meanwhile, or the last one alone, are of this verb."""
        batches = self.scene.table.batches
        batches.clear()
        yield
        assert batches, verb
        self.said |= {f"{verb}: {told(ops)}" for ops in (batches[-1:] if last else batches)}


def told(ops: Sequence[Op]) -> str:
    return ", ".join(
        f"{type(op).__name__} {op.key.partition(':')[0]}"
        + ("" if isinstance(op, Insert) else " (`*`)" if op.etag == ANY else " (its etag)")
        for op in ops
    )


OPTIONAL = re.compile(r"\[[^]]*\], ")


def promised() -> set[str]:
    """Each batch of each verb of the table, with and without what may be left out."""
    found = set()
    for verbs, _, batch in ROWS.table("verb", "the item is").rows:
        for verb in verbs.split(", ") if "nothing is run" not in verbs else [verbs]:
            found.add(f"{verb}: {batch.replace('[', '').replace(']', '')}")
            found.add(f"{verb}: {OPTIONAL.sub('', batch)}")
    return found


async def a_run(scene: Scene, sent: Recorder) -> None:
    """Add, claim, renew, release; and edits meanwhile."""
    board, mark = scene.board, scene.mark()
    with sent.of("add"):
        await scene.add()
        await scene.add("paused")
    with sent.of("claim"):
        made = await scene.claimed()
    with sent.of("renew"):
        renewed = await claims.renew(board, made)
    assert renewed is not None
    with sent.of("save"):
        assert await save(board, renewed, '"p57"') is not None
    with sent.of("adopt"):
        assert await claims.adopt(board, await scene.lock()) is not None
    with sent.of("edit"):
        await edits.edit(board, "davis", says(every="2h"))
    with sent.of("run now"):
        await edits.run_now(board, "davis")
    with sent.of("pause"):
        await edits.pause(board, "davis", mark)
    with sent.of("resume"):
        await edits.resume(board, "davis", mark)
    with sent.of("adopt"):
        again = await claims.adopt(board, await scene.lock())
    assert again is not None
    with sent.of("release"):
        await scene.let_go(again)
    await scene.let_go(await scene.claimed())
    with sent.of("run now"):
        await edits.run_now(board, "davis")


async def without_a_run(scene: Scene, sent: Recorder) -> None:
    """While an item waits, while it is paused, when it is done."""
    board, mark = scene.board, scene.mark()
    with sent.of("edit"):
        await edits.edit(board, "davis", says(every="2h", retries=1))
        await edits.edit(board, "davis", says(every="3h"))
    scene.later(minutes=1)
    with sent.of("run now"):
        await edits.run_now(board, "davis")
    with sent.of("pause"):
        await edits.pause(board, "davis", mark)
    with sent.of("edit"):
        await edits.edit(board, "davis", says(every="4h"))
    with sent.of("resume"):
        await edits.resume(board, "davis", mark)
    for name in ("again", "other"):
        await scene.add(name, at="2026-01-01T00:00:00Z")
        await scene.let_go(await scene.claimed(name))
        assert (await scene.item(name)).state is State.DONE
    with sent.of("edit"):
        await edits.edit(board, "other", says(every="4h"))
    with sent.of("run now"):
        await edits.run_now(board, "again")
    await scene.let_go(await scene.claimed("again"))
    with sent.of("remove"):
        await edits.remove(board, "again")
    with sent.of("edit"):
        await edits.edit(board, "other", says(every="5h"))
    await edits.edit(board, "davis", says(cron="0 * * * *", missed="none"))
    missed = await scene.token()
    with sent.of("pass over a missed slot"):
        assert await claims.pass_over(board, missed, move=Move.SKIP)


async def taken_away(scene: Scene, sent: Recorder) -> None:
    """Overridden, unlocked, cancelled, removed; and who comes late."""
    board, mark = scene.board, scene.mark()
    await edits.edit(board, "davis", says(every="1h", stale_after="10s"))
    await edits.run_now(board, "davis")
    late = await scene.claimed(owner="late")
    scene.later(minutes=1)
    with sent.of("override"):
        assert await claims.override(board, await scene.lock(), owner="me") is not None
    with sent.of("late", last=True):
        await scene.let_go(late)
    await edits.pause(board, "davis", mark)
    scene.later(minutes=1)
    with sent.of("override, nothing is run"):
        assert await claims.override(board, await scene.lock(), owner="me") is None
    for verb in (edits.unlock, edits.cancel):
        for paused in (False, True):
            await edits.resume(board, "davis", mark)
            await edits.run_now(board, "davis", trigger=f"{verb.__name__} {paused}")
            held = await scene.claimed()
            if paused:
                await edits.pause(board, "davis", mark)
            with sent.of(verb.__name__):
                await verb(board, "davis", mark, fence=held.fence)
    with sent.of("remove"):
        await edits.remove(board, "davis")
    with sent.of("add"):
        await scene.add()
    with sent.of("remove"):
        await edits.remove(board, "davis")
    await scene.add()
    await scene.claimed()
    with sent.of("remove"):
        await edits.remove(board, "davis")
    gone = await scene.item()
    scene.later(days=91)
    assert is_expired(gone, retention=Retention(), now=scene.clock.now())
    with sent.of("delete a tombstone", last=True):
        await delete_tombstones(board, [gone], pause=partial(asyncio.sleep, 0))


def test_every_batch_that_is_sent_is_in_the_table_and_every_one_of_the_table_is_sent() -> None:
    async def story() -> set[str]:
        scene = await scene_in_memory()
        sent = Recorder(scene)
        for part in (a_run, without_a_run, taken_away):
            await part(scene, sent)
        return sent.said

    sent = asyncio.run(story())
    pure = {
        "copy": [add_ops(PAUSED, over=None), add_ops(PAUSED, over=replace(PAUSED, etag="T"))],
        "release": [release_ops(RUNNING, "L", PAUSED, RUN)],
        "override, nothing is run": [free_ops(RUNNING, "L", WAITING, RUN)],
        "late": [
            late_ops(None, RUN, None),
            late_ops(WAITING, RUN, replace(RUN, etag="R")),
            late_ops(None, RUN, replace(RUN, etag="R")),
        ],
    }
    sent |= {f"{verb}: {told(ops)}" for verb, batches in pure.items() for ops in batches}
    assert sent - promised() == set(), "sent, and not in the table"
    assert promised() - sent == set(), "in the table, and never sent"


def test_the_columns_that_a_batch_merges_are_as_shown() -> None:
    shown = {row[0]: words(row[1]) for row in ROWS.table("verb", "columns").rows}
    item = replace(WAITING, outcome=Outcome.OK, stop=NOON, start=NOON)
    released = merged(release_ops(RUNNING, "L", item, replace(RUN, outcome=Outcome.FAILED)))
    assert shown["release"] == released
    assert set(released) >= set(PLANNED)
    good = merged(release_ops(RUNNING, "L", item, RUN))
    assert shown["release of an `ok` that was not skipped"] == good[len(released) :]
    skipped = merged(release_ops(RUNNING, "L", item, replace(RUN, error="closed on Sundays")))
    assert skipped == released
    warned = merged(release_ops(RUNNING, "L", replace(item, warned=1), RUN))
    assert shown["release that changes the number of warnings"] == warned[len(good) :]
    saved = replace(RUNNING, checkpoint='"p57"')
    assert shown["save"] == merged(save_ops(saved, item)) == ["checkpoint"]
    emptied = merged(release_ops(saved, "L", item, replace(RUN, outcome=Outcome.FAILED)))
    assert shown["release that empties it"] == emptied[len(released) :]
    freed = merged(free_ops(RUNNING, "L", item, RUN))
    assert set(shown["override that runs nothing"]) == set(freed) - set(released)
    assert set(released) <= set(freed)
    by_people = merged(
        free_ops(RUNNING, "L", replace(item, applied=(Applied(name="x", at=NOON),)), RUN)
    )
    assert set(shown["unlock, cancel"]) == set(by_people) - set(freed)
    assert shown["late"] == merged(late_ops(WAITING, RUN, replace(RUN, etag="R")))

    async def story() -> None:
        scene = await scene_in_memory()
        await scene.add(stale_after="10s", every="1h")
        await scene.claimed()
        assert shown["claim"] == merged(scene.table.batches[-1])
        scene.later(minutes=1)
        await claims.override(scene.board, await scene.lock(), owner="me")
        assert shown["override"] == merged(scene.table.batches[-1])

    asyncio.run(story())


def merged(ops: Sequence[Op]) -> list[str]:
    """The columns of the item that a batch merges."""
    (found,) = [op for op in ops if told([op]).startswith("Merge item")]
    assert not isinstance(found, Delete)
    return list(found.data)
