"""What people do to items, also at the worst moment and twice; adding and removing."""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from functools import partial

import pytest

from blackboard.clock import Clock, SeededChance
from blackboard.errors import BadInput, Missing
from blackboard.model import VERSION, State, replace
from blackboard.protocol.additions import New, add
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.edits import PAUSE, UNANSWERED, edit, pause, remove, run_now
from blackboard.protocol.keys import item_key
from blackboard.rules.applied import is_applied
from blackboard.rules.transitions import removed
from blackboard.simulator.processes import HostClock, ProcessLoop, Timeline
from blackboard.spec import Spec
from blackboard.table import ANY, Busy, Etag, Merge, Op, Row, Table, Unavailable, Unknown
from blackboard.tables.base import ForwardingTable
from blackboard.tables.memory import MemoryTable
from tests.support.boards import Scene, make_board, settings_of, story
from tests.support.faults import Fault
from tests.support.verbs import VERBS, add_here, ready_for, says

pytestmark = pytest.mark.of_one_store("what is read and written is decided above the store")

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


# ---- what holds for all of them


@pytest.mark.case("RR04")
@story
async def test_rr04_an_item_that_a_newer_version_wrote_is_left_alone(scene: Scene) -> None:
    await scene.add("davis")
    newer = Merge(item_key("davis"), {"version": VERSION + 1}, ANY)
    await scene.table.table.commit(scene.board.partition("davis"), [newer])
    before = await scene.rows("item:")
    with pytest.raises(BadInput, match="newer version"):
        await pause(scene.board, "davis", scene.mark())
    assert await scene.rows("item:") == before
    older = Merge(item_key("davis"), {"version": VERSION}, ANY)
    await scene.table.table.commit(scene.board.partition("davis"), [older])


@pytest.mark.cases_of_one_store("what has landed is judged above the store")
@pytest.mark.case("LR07")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("fault", [Fault.LOST, Fault.NEVER, Fault.LATE, Fault.TWICE])
@story
async def test_lr07_a_request_without_an_answer_counts_once(
    scene: Scene, fault: Fault, verb: str
) -> None:
    await ready_for(verb, scene)
    scene.table.script(fault)
    done = await VERBS[verb](scene)
    assert done.changed
    after = await scene.item()
    assert not any(await scene.table.land())
    assert await scene.item() == after


@pytest.mark.parametrize("verb", VERBS)
@story
async def test_what_comes_back_is_the_item_as_it_is_now(scene: Scene, verb: str) -> None:
    await ready_for(verb, scene)
    assert (await VERBS[verb](scene)).item == await scene.item()


class SlowTable(ForwardingTable):
    """A store that takes so long for each request."""

    def __init__(self, table: Table, clock: Clock, seconds: float) -> None:
        super().__init__(table)
        self._pause = partial(clock.sleep, seconds)

    async def commit(self, partition: str, ops: Sequence[Op]) -> list[Etag]:
        await self._pause()
        return await super().commit(partition, ops)

    async def scan(
        self, partition: str, first: str = "", last: str | None = None, limit: int | None = None
    ) -> AsyncIterator[Row]:
        await self._pause()
        async for row in super().scan(partition, first, last, limit):
            yield row


@pytest.mark.parametrize("seconds", [0.001, 0.05, 0.2])
def test_many_change_one_item_at_once_however_slow_the_store_is(seconds: float) -> None:
    timeline = Timeline()
    loop = ProcessLoop(timeline)
    clock = HostClock(timeline, loop, offset=0.0)

    async def each(table: Table, number: int) -> None:
        chance = SeededChance(number)
        board = BoardTable(table, name="town", clock=clock, chance=chance, resolve=settings_of)
        await run_now(board, "davis", once={"number": number})

    async def all_of_them() -> None:
        table = SlowTable(MemoryTable(clock), clock, seconds)
        board = await make_board(table, clock)
        await add(board, New(id="davis", type="calendars", spec=Spec()))
        for task in [loop.spawn(each(table, number)) for number in range(30)]:
            await task
        item = await board.item("davis")
        assert item is not None
        made.append((item.once != "", len(item.requests)))

    made: list[tuple[bool, int]] = []
    loop.spawn(all_of_them())
    timeline.run(600)
    assert made == [(True, 29)], "the first is next, the others wait"


@pytest.mark.cases_of_one_store("what has landed is judged above the store")
@pytest.mark.parametrize("verb", VERBS)
@story
async def test_a_lost_race_is_read_again(scene: Scene, verb: str) -> None:
    await ready_for(verb, scene)
    scene.table.script(lambda: edit(scene.other, "davis", says(every="1h", retries=7)))
    assert (await VERBS[verb](scene)).changed
    after = await scene.item()
    if verb not in {"edit", "remove"}:
        assert after.spec == '{"every":"1h","retries":7}'


@pytest.mark.cases_of_one_store("what has landed is judged above the store")
@pytest.mark.parametrize("verb", VERBS)
@story
async def test_an_item_that_is_not_there_is_told_with_a_remedy(scene: Scene, verb: str) -> None:
    with pytest.raises(Missing, match=r"no item 'davis'.*blackboard show"):
        await VERBS[verb](scene)
    await scene.add("davis")
    await remove(scene.other, "davis")
    with pytest.raises(Missing):
        await VERBS[verb](scene)


@pytest.mark.cases_of_one_store("what has landed is judged above the store")
@pytest.mark.parametrize("verb", [*VERBS, "add"])
@story
async def test_a_store_that_does_not_answer_is_asked_few_times_with_pauses(
    scene: Scene, verb: str
) -> None:
    if verb != "add":
        await ready_for(verb, scene)
    scene.table.script(*[Fault.NEVER] * UNANSWERED)
    began = scene.clock.monotonic()
    with pytest.raises(Unknown, match=r"it is not certain that davis was changed: .*try again"):
        await (add_here(scene) if verb == "add" else VERBS[verb](scene))
    assert scene.clock.monotonic() - began >= 3 * PAUSE


@pytest.mark.cases_of_one_store("what has landed is judged above the store")
@pytest.mark.parametrize("verb", [*VERBS, "add"])
@story
async def test_after_the_last_answer_that_was_lost_the_item_is_read(
    scene: Scene, verb: str
) -> None:
    if verb != "add":
        await ready_for(verb, scene)
    scene.table.script(*[Fault.NEVER] * (UNANSWERED - 1), Fault.LOST)
    assert (await (add_here(scene) if verb == "add" else VERBS[verb](scene))).changed


@story
async def test_only_a_try_without_an_answer_is_followed_by_a_long_pause(scene: Scene) -> None:
    await scene.add("davis")

    hours = iter(range(2, 12))

    async def meets_another() -> None:
        await edit(scene.other, "davis", says(every=f"{next(hours)}h"))

    scene.table.script(Fault.NEVER, *[meets_another] * 10)
    began = scene.clock.monotonic()
    assert (await pause(scene.board, "davis", scene.mark())).changed
    assert PAUSE <= scene.clock.monotonic() - began < 2 * PAUSE


@pytest.mark.parametrize(("fault", "error"), [(Fault.BUSY, Busy), (Fault.AWAY, Unavailable)])
@story
async def test_a_store_that_is_busy_or_away_is_the_callers_to_handle(
    scene: Scene, fault: Fault, error: type[Exception]
) -> None:
    await scene.add("davis")
    before = await scene.item()
    for verb in ("edit", "pause", "run_now", "remove"):
        scene.table.script(fault)
        with pytest.raises(error):
            await VERBS[verb](scene)
    assert await scene.item() == before


@pytest.mark.cases_of_one_store("what has landed is judged above the store")
@pytest.mark.parametrize("verb", ["edit", "pause", "run_now", "unlock", "cancel"])
@story
async def test_a_retry_does_not_reach_the_next_life_of_an_id(scene: Scene, verb: str) -> None:
    await ready_for(verb, scene)

    async def replaced() -> None:
        await remove(scene.other, "davis")
        await scene.add("davis")

    scene.table.script(replaced)
    with pytest.raises(Missing):
        await VERBS[verb](scene)
    item = await scene.item()
    assert (item.spec, item.state, len(item.applied)) == ('{"every":"1h"}', State.ACTIVE, 2)


# ---- add


@story
async def test_an_item_is_added_with_its_token_due_at_once(scene: Scene) -> None:
    now = scene.clock.now()
    added = (await add_here(scene, every="8h", params={"x": 1})).item
    assert added == await scene.item()
    assert (added.state, added.fence, added.born, added.attempt) == (State.ACTIVE, 0, 0, 1)
    assert (added.slot, added.ready, added.planned) == (now, now, now)
    assert (added.schedule, added.spec) == ("every 8h", '{"every":"8h","params":{"x":1}}')
    assert (await scene.token()).spec == added.spec


@story
async def test_a_first_time_may_be_given(scene: Scene) -> None:
    first = scene.clock.now() + DAY
    await add(scene.board, New(id="davis", type="feed", spec=Spec(every="8h"), first=first))
    assert (await scene.token()).ready == first


@story
async def test_an_item_that_is_there_is_not_added_again(scene: Scene) -> None:
    before = (await add_here(scene)).item
    with pytest.raises(BadInput, match="on this board already"):
        await add_here(scene, every="2h")
    assert await scene.item() == before


@story
async def test_what_cannot_be_used_is_refused_before_anything_is_written(scene: Scene) -> None:
    with pytest.raises(BadInput) as refused:
        await add_here(scene, cron="61 * * * *")
    assert refused.value.field == "cron"
    assert await scene.rows() == []


@pytest.mark.case("LF03", "S3")
@story
async def test_lf03_an_id_that_is_added_again_carries_its_fence_on(scene: Scene) -> None:
    await scene.add("davis")
    await scene.let_go(await scene.claimed("davis"))
    await remove(scene.other, "davis")
    again = (await add_here(scene, every="2h")).item
    assert again.born == again.fence > 1
    assert (again.start, again.runs, again.outcome, again.result) == (None, 0, None, "")
    assert (await scene.claimed("davis")).fence == again.fence + 1


@story
async def test_every_life_of_an_id_is_born_with_a_fence_of_its_own(scene: Scene) -> None:
    """Also of an item that never ran."""
    born = []
    for _ in range(3):
        born.append((await add_here(scene)).item.born)
        await remove(scene.other, "davis")
    assert born == sorted(set(born))


@pytest.mark.of_each_store
@story
async def test_a_trigger_is_not_named_as_an_addition(scene: Scene) -> None:
    """Or else it would count in the next life of the id."""
    before = await scene.add("davis")
    with pytest.raises(BadInput, match="trigger"):
        await run_now(scene.board, "davis", trigger="add:feed 7")
    assert await scene.item() == before


@story
async def test_an_adding_in_doubt_adds_nothing_when_another_life_was_there_meanwhile(
    scene: Scene,
) -> None:
    """Nor are the names of runs that were asked for in a life known in the next."""

    async def others() -> None:
        await run_now(scene.other, "davis", trigger="deploy")
        await remove(scene.other, "davis")
        await scene.add("davis")
        await run_now(scene.other, "davis", trigger="deploy")
        assert is_applied(await scene.item(), "deploy")
        await remove(scene.other, "davis")

    scene.table.script(Fault.LOST)
    scene.table.script_reads(Fault.NONE, Fault.NONE, others)  # item, floor
    assert (await add_here(scene)).item.state is State.REMOVED
    assert (await scene.item()).state is State.REMOVED


@pytest.mark.cases_of_one_store("what has landed is judged above the store")
@pytest.mark.case("LR01")
@pytest.mark.parametrize("fault", [Fault.LOST, Fault.LATE, Fault.NEVER])
@pytest.mark.parametrize("over", [False, True])
@story
async def test_lr01_an_adding_without_an_answer_adds_once(
    scene: Scene, fault: Fault, *, over: bool
) -> None:
    if over:
        await scene.add("davis")
        await remove(scene.other, "davis")
    scene.table.script(fault)
    added = (await add_here(scene)).item
    assert not any(await scene.table.land())
    assert added == await scene.item()


@story
async def test_an_adding_that_landed_and_was_removed_since_is_not_repeated(
    scene: Scene,
) -> None:
    async def removed() -> None:
        await remove(scene.other, "davis")

    scene.table.script(Fault.LOST)
    scene.table.script_reads(Fault.NONE, Fault.NONE, removed)
    assert (await add_here(scene)).item.state is State.REMOVED
    assert await scene.tokens() == []


@pytest.mark.of_each_store
@story
async def test_two_who_add_one_id_make_one_item(scene: Scene) -> None:
    async def faster() -> None:
        await scene.add("davis", every="2h")

    scene.table.script(faster)
    with pytest.raises(BadInput, match="already"):
        await add_here(scene, every="1h")
    assert (await scene.item()).spec == '{"every":"2h"}'


# ---- remove


@pytest.mark.parametrize("was", ["waiting", "running", "paused", "paused and running", "done"])
@story
async def test_a_tombstone_keeps_a_fence_above_all_that_were_used(scene: Scene, was: str) -> None:
    await scene.add("davis", **({"at": "2026-01-01T00:00Z"} if was == "done" else {"every": "1h"}))
    if was in {"running", "paused and running", "done"}:
        made = await scene.claimed("davis")
    if was == "done":
        await scene.let_go(made)
    if was.startswith("paused"):
        await pause(scene.other, "davis", scene.mark())
    before = await scene.item()
    await remove(scene.board, "davis")
    after = await scene.item()
    tombstone = removed(before, now=scene.clock.now())
    assert after == replace(tombstone, applied=after.applied, etag=after.etag)
    assert after.applied[1:] == before.applied
    assert (after.state, after.running, after.fence) == (State.REMOVED, False, before.fence + 1)
    assert await scene.tokens() == []
    assert await scene.rows("lock:") == []


@story
async def test_a_run_claimed_while_its_item_is_removed_ends_no_earlier_than_it_started(
    scene: Scene,
) -> None:
    await scene.add("davis")

    async def claimed() -> None:
        scene.later(seconds=5)
        await scene.claimed("davis", board=scene.other)

    scene.table.script(claimed)
    await remove(scene.board, "davis")
    (run,) = await scene.runs()
    assert run.stop == run.start == (await scene.item()).stop


@pytest.mark.of_each_store
@pytest.mark.parametrize("ran", [False, True])
@story
async def test_a_retry_does_not_remove_the_next_life_of_an_id(scene: Scene, *, ran: bool) -> None:
    await scene.add("davis")
    if ran:
        await scene.let_go(await scene.claimed("davis"))

    async def added() -> None:
        await scene.add("davis", every="2h")

    scene.table.script(Fault.LOST)
    scene.table.script_reads(Fault.NONE, added)
    await remove(scene.board, "davis")
    item = await scene.item()
    assert (item.state, item.spec) == (State.ACTIVE, '{"every":"2h"}')
