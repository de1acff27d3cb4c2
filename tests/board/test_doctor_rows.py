"""What the doctor finds in the rows beside the items, and on the boards of groups and elections."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from blackboard.doctor import Examination, examine
from blackboard.doctor.board_rows import MOST_NAMED
from blackboard.events import OverdueRun
from blackboard.model import VERSION, Member, Message, MessageKind, Token
from blackboard.notify.notice_rows import begin, may_look
from blackboard.notify.notices import of_overdue
from blackboard.protocol import additions, keys, mail
from blackboard.protocol.actions import record_action
from blackboard.protocol.board_pause import pause_board, resume_board
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.claims import claim
from blackboard.protocol.leaders import open_elections
from blackboard.protocol.members import announce
from blackboard.protocol.permits import LEASE, Limit, take
from blackboard.protocol.retention import raise_floor
from blackboard.protocol.status import count, write_statistics
from blackboard.sharing.election import Election
from blackboard.spec import Spec
from blackboard.table import ANY, Delete, Insert, Merge, Op, Replace, Value
from tests.cli.command_line import CommandLine, blackboard
from tests.support.boards import Scene, make_board, story
from tests.support.groups import GROUP, Group, sharing
from tests.support.stores import rows_of
from tests.support.wrong_rows import found, repaired

__all__ = ["blackboard"]

above_the_store = pytest.mark.of_one_store("rows are judged above the store")

META, CLICKS, LEADERS = "town-meta", "town.clicks", "town.leaders"


# ---- rows as the product writes them


async def a_board(scene: Scene) -> BoardTable:
    await scene.add()
    return scene.other


async def floor(scene: Scene) -> None:
    await raise_floor(scene.other, 7)


async def statistics(scene: Scene) -> None:
    await write_statistics(scene.other, await count(scene.other, by="me", term=1))


def member(scene: Scene, types: str = "feed") -> Member:
    now = scene.clock.now()
    return Member(
        owner="me", started=now, seen=now, slots=8, running=0, release="1", types=types, cycle=60.0
    )


async def worker(scene: Scene) -> None:
    await announce(scene.other, member(scene))


async def permit(scene: Scene) -> None:
    assert await take(scene.other, Limit("feed", '"a"', 2), ["davis"], owner="me")


async def notice(scene: Scene) -> None:
    now = scene.clock.now()
    run = OverdueRun(id="davis", type="feed", fence=1, due=now, ready=now, attempt=1, failures=0)
    assert await begin(scene.other, of_overdue(run), again=None)


async def looked(scene: Scene) -> None:
    assert await may_look(scene.other)


async def action(scene: Scene) -> None:
    await record_action(scene.other, by="ann", verb="pause", ids=["davis"], via="cli")


async def group(scene: Scene) -> None:
    clicks = scene.other.group("clicks")
    await clicks.make()
    about: dict[str, Value] = {"version": 1, "kind": "pump", "lease": 30.0}
    await scene.other.table.commit(META, [Insert(keys.group_key("clicks"), about)])
    await additions.ensure(clicks, ["00"], "clicks")


async def elections(scene: Scene) -> None:
    leaders = await open_elections(scene.other, create=True)
    await additions.add_election(leaders, "report", "ring", Spec(every="1s"))
    await announce(leaders, member(scene, "report"))
    letter = Message(id="report", to="you", sender="me", rank=0, kind=MessageKind.OK, number=1)
    await mail.send(leaders, [letter])


Make = Callable[[Scene], Awaitable[object]]
Damage = dict[str, Value]
NEWER: Damage = {"version": VERSION + 1}
"""Of which this version knows nothing else."""
OTHER: Damage = {"text": "of another program"}


async def damaged(scene: Scene, partition: str, family: str, damage: Damage | None) -> str:
    """Merge something into the only row of a family, or leave nothing else of it; its key."""
    rows = await rows_of(scene.table.table, partition)
    (row,) = [row for row in rows if row.key.startswith(family)]
    write: Op = Merge(row.key, damage or {}, ANY)
    if damage is OTHER:
        write = Replace(row.key, OTHER, ANY)
    await scene.table.table.commit(partition, [write])
    return row.key


# ---- (row, damage) -> finding

TOLD: list[tuple[Make, str, str, Damage, str, bool, bool]] = [
    # the row, its partition and how its key begins, the damage; code, whether grave, repaired
    (floor, META, "floor", OTHER, "D7", True, False),
    (floor, META, "floor", {"fence": -1}, "D7", True, False),
    (floor, META, "floor", NEWER, "D10", False, False),
    (a_board, META, "board", {"shards": 0}, "D7", True, False),
    (a_board, META, "board", {"shards": 3}, "D7", True, False),
    (a_board, META, "board", NEWER, "D10", True, False),
    (statistics, META, "stats", OTHER, "D7", False, True),
    (statistics, META, "stats", {"at": "today"}, "D7", False, True),
    (statistics, META, "stats", NEWER, "D10", False, False),
    (group, META, "group:", OTHER, "D7", True, False),
    (group, META, "group:", {"kind": "pumps"}, "D7", True, False),
    (group, META, "group:", {"lease": "30s"}, "D7", False, False),
    (group, META, "group:", {"lease": 1e12}, "D7", False, False),
    (group, META, "group:", {"version": "one"}, "D7", False, False),
    (group, META, "group:", NEWER, "D10", False, False),
    (worker, "town-workers", "worker:", OTHER, "D7", False, True),
    (worker, "town-workers", "worker:", {"seen": "now"}, "D7", False, True),
    (worker, "town-workers", "worker:", {"owner": "you"}, "D9", False, True),
    (worker, "town-workers", "worker:", NEWER, "D10", False, False),
    (permit, "town-permits", "permit:", OTHER, "D7", True, False),
    (permit, "town-permits", "permit:", {"since": 1}, "D7", True, False),
    (permit, "town-permits", "permit:", {"stale_after": 1e11}, "D7", True, False),
    (permit, "town-permits", "permit:", {"number": 9}, "D9", True, False),
    (permit, "town-permits", "permit:", NEWER, "D10", False, False),
    (notice, "town-notices", "notice:", OTHER, "D7", False, True),
    (notice, "town-notices", "notice:", {"at": 1}, "D7", False, True),
    (notice, "town-notices", "notice:", {"state": "lost"}, "D7", False, True),
    (notice, "town-notices", "notice:", {"item": "elko"}, "D9", False, True),
    (notice, "town-notices", "notice:", NEWER, "D10", False, False),
    (looked, "town-notices", "looked", OTHER, "D7", False, True),
    (looked, "town-notices", "looked", NEWER, "D10", False, False),
    (action, "town-actions", "action:", OTHER, "D7", False, False),
    (action, "town-actions", "action:", {"ids": "davis"}, "D7", False, False),
    (action, "town-actions", "action:", NEWER, "D10", False, False),
    (elections, f"{LEADERS}-meta", "board", {"shards": "one"}, "D7", True, False),
    (elections, f"{LEADERS}-meta", "board", NEWER, "D10", True, False),
    (elections, f"{LEADERS}-workers", "worker:", OTHER, "D7", False, True),
    (elections, f"{LEADERS}-mail", "mail:", OTHER, "D7", False, True),
    (elections, f"{LEADERS}-mail", "mail:", {"to": "others"}, "D9", False, True),
    (elections, f"{LEADERS}-mail", "mail:", NEWER, "D10", False, False),
    (group, f"{CLICKS}-meta", "board", {"shards": 2}, "D7", True, False),
    (group, f"{CLICKS}-meta", "board", {"version": 0}, "D7", True, False),
]


@above_the_store
@pytest.mark.parametrize(
    ("make", "partition", "family", "damage", "code", "grave", "mended"),
    TOLD,
    ids=[f"{one[1]}-{one[2]}-{n}" for n, one in enumerate(TOLD)],
)
@story
async def test_a_row_that_cannot_be_used_is_told(
    scene: Scene,
    *,
    make: Make,
    partition: str,
    family: str,
    damage: Damage,
    code: str,
    grave: bool,
    mended: bool,
) -> None:
    await make(scene)
    assert (await found(scene.other)).findings == []
    key = await damaged(scene, partition, family, damage)
    board, _, meta = partition.rpartition("-")
    place = partition if meta != "meta" else "" if board == "town" else board
    subject = f"{place} {key}".lstrip()
    (told,) = (await found(scene.other)).findings
    assert (told.code, told.subject, told.grave) == (code, subject, grave)
    before = await rows_of(scene.table.table, partition)
    (told,) = (await repaired(scene.other)).findings
    assert (told.subject, told.repaired) == (subject, mended)
    after = await rows_of(scene.table.table, partition)
    assert len(after) == len(before) - mended
    assert (await found(scene.other)).findings == ([] if mended else [told])


@above_the_store
@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (OTHER, ("D7", False, True)),
        ({"stale_after": 1e11}, ("D7", False, True)),
        ({"stale_after": 80_000.0}, ("D8", True, True)),
        (NEWER, ("D10", True, False)),
        ({"owner": "you"}, None),
    ],
)
@story
async def test_a_permit_is_grave_while_its_type_waits_for_it_and_deleted_when_it_is_old(
    scene: Scene, damage: Damage, told: tuple[str, bool, bool] | None
) -> None:
    await permit(scene)
    await damaged(scene, "town-permits", "permit:", damage)
    scene.later(seconds=2 * LEASE + 1)
    findings = (await repaired(scene.other)).findings
    assert [(one.code, one.grave, one.repaired) for one in findings] == ([told] if told else [])


@above_the_store
@pytest.mark.parametrize(
    ("partition", "key", "grave"),
    [
        (META, "floors", False),
        (META, "group:a b", True),
        (META, "group:leaders", True),
        ("town-workers", "works:me", False),
        ("town-permits", "permits", False),
        ("town-notices", "noticed:davis", False),
        ("town-actions", "actions:1", False),
        ("town", "Item", False),
        ("town", "item;", False),
        ("town", "lock;", True),
        ("town", "nexu", False),
        ("town", "zebra:davis", False),
    ],
)
@story
async def test_a_key_of_no_kind_is_told_and_not_touched(
    scene: Scene, partition: str, key: str, *, grave: bool
) -> None:
    await scene.add()
    await scene.table.table.commit(partition, [Insert(key, {"item": "davis"})])
    (told,) = (await repaired(scene.other)).findings
    subject = key if partition in {META, "town"} else f"{partition} {key}"
    assert (told.code, told.subject, told.repaired) == ("D9", subject, False)
    assert told.grave is grave
    assert key in [row.key for row in await rows_of(scene.table.table, partition)]
    await scene.table.table.commit(partition, [Delete(key, ANY)])


@above_the_store
@story
async def test_a_group_row_of_which_no_group_can_be_stops_no_coordinator(scene: Scene) -> None:
    await scene.add()
    await scene.table.table.commit(META, [Insert("group:a b", {})])
    (told,) = (await found(scene.other)).findings
    assert told.problem.startswith(
        "its key has no name that a group can have: `leases` and `check`"
    )
    assert "coordinator" not in told.problem


@above_the_store
@story
async def test_many_bad_rows_of_a_partition_are_summed_up(scene: Scene) -> None:
    ops = [Insert(f"worker:{number:03d}", OTHER) for number in range(MOST_NAMED + 20)]
    for start in range(0, len(ops), 60):
        await scene.table.table.commit("town-workers", ops[start : start + 60])
    findings = (await found(scene.other)).findings
    assert len(findings) == MOST_NAMED + 1
    assert (findings[-1].subject, findings[-1].grave) == ("town-workers", False)
    assert findings[-1].problem.startswith("20 more rows")
    assert all(one.repaired for one in (await repaired(scene.other)).findings)
    assert (await found(scene.other)).findings == []


# ---- a board that is half paused


async def fleet(scene: Scene) -> BoardTable:
    return await make_board(scene.table, scene.clock, shards=4, name="fleet")


@pytest.mark.cases_of_one_store("rows are judged above the store")
@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("resumed", [(3,), (3, 2, 1), (0,)])
@story
async def test_a_board_that_is_paused_in_some_shards_is_told(
    scene: Scene, resumed: tuple[int, ...], *, quick: bool
) -> None:
    board = await fleet(scene)
    await pause_board(board, scene.mark())
    for shard in resumed:
        await board.table.commit(board.shard(shard), [Delete(keys.MAINTENANCE, ANY)])
    report = await examine(board, Examination(quick=quick, repair=True))
    (told,) = report.findings
    assert (told.code, told.subject, report.clean) == ("D13", "maintenance", False)
    assert told.problem.startswith(f"the board is paused in {4 - len(resumed)} of its 4 shards: ")
    assert "`blackboard resume --board`" in told.problem
    await pause_board(board, scene.mark())
    assert (await found(board)).findings == []
    await resume_board(board)
    assert (await found(board)).findings == []


@story
async def test_a_pause_that_is_being_made_is_not_told(scene: Scene) -> None:
    board = await fleet(scene)

    async def pause() -> None:
        await pause_board(
            await make_board(scene.other.table, scene.clock, name="fleet", shards=4), scene.mark()
        )

    scene.table.script_reads(*[_nothing] * 6, pause)
    report = await examine(board, Examination(quick=True))
    assert report.findings == []


async def _nothing() -> None:
    """A read that goes through."""


@above_the_store
@story
async def test_who_paused_may_be_lost(scene: Scene) -> None:
    await pause_board(scene.other, scene.mark())
    await scene.table.table.commit("town", [Merge(keys.MAINTENANCE, {"mark": "ann"}, ANY)])
    report = await repaired(scene.other)
    (told,) = report.findings
    assert (told.code, told.subject, told.grave) == ("D7", "town maintenance", False)
    await resume_board(scene.other)


@above_the_store
@story
async def test_nothing_is_late_on_a_board_that_is_paused(scene: Scene) -> None:
    await scene.add("late")
    await scene.add("held", every="1h", stale_after="10s")
    await scene.claimed("held")
    await pause_board(scene.other, scene.mark())
    scene.later(hours=3)
    await worker(scene)
    assert (await found(scene.other)).findings == []
    await resume_board(scene.other)
    assert {one.code for one in (await found(scene.other)).findings} == {"D7", "D8"}


# ---- the boards of groups and elections


@above_the_store
@pytest.mark.parametrize("name", ["clicks", "leaders"])
@story
async def test_a_board_that_belongs_to_it_is_examined_as_well(scene: Scene, name: str) -> None:
    await group(scene)
    await elections(scene)
    other = scene.other.group(name)
    (item,) = [item async for item in other.items()]
    gone = Delete(keys.next_key(item.ready, item.id), ANY)
    await scene.table.table.commit(other.name, [gone])
    report = await found(scene.other)
    assert [(one.code, one.subject) for one in report.findings] == [
        ("D1", f"{other.name} {item.id}")
    ]
    assert not report.clean
    assert (await examine(scene.other, Examination(quick=True))).findings == []
    assert (await repaired(scene.other)).clean
    assert (await found(scene.other)).findings == []


@above_the_store
@pytest.mark.parametrize(("make", "name"), [(group, CLICKS), (elections, LEADERS)])
@story
async def test_a_lost_row_of_a_board_that_belongs_to_it_is_told(
    scene: Scene, make: Make, name: str
) -> None:
    await make(scene)
    await scene.table.table.commit(f"{name}-meta", [Delete(keys.BOARD_KEY, ANY)])
    (told,) = (await repaired(scene.other)).findings
    assert (told.code, told.subject, told.grave) == ("D7", f"{name} board", True)
    assert "makes it anew" in told.problem
    for row in await rows_of(scene.table.table, name):
        await scene.table.table.commit(name, [Delete(row.key, ANY)])
    assert (await found(scene.other)).findings == []


@above_the_store
@story
async def test_an_election_without_candidates_is_well(scene: Scene) -> None:
    await elections(scene)
    scene.later(hours=20)
    assert (await found(scene.other)).findings == []


@above_the_store
@story
async def test_a_leader_of_the_time_when_a_clock_was_wrong_is_told_while_it_leads(
    scene: Scene,
) -> None:
    """No repair takes its lock away."""
    scene.clock.jump(3653 * 86_400.0)
    await elections(scene)
    leaders = await open_elections(scene.other)
    (item,) = [item async for item in leaders.items()]
    (token,) = [token async for token in leaders.walk(0, until=item.ready)]
    assert isinstance(token, Token)
    await claim(leaders, [token], owner="me")
    scene.clock.jump(-3653 * 86_400.0)
    scene.later(seconds=1)
    for report in (await repaired(scene.other), await found(scene.other)):
        (told,) = [one for one in report.findings if one.code == "D11"]
        assert (told.subject, told.grave) == (f"{LEADERS} report", False)
        assert told.problem.endswith("(until its run ends, or me is restarted)")


@sharing()
async def test_a_board_where_all_is_well_is_clean(group: Group) -> None:
    """Items, a group at work, elections, permits, notices, counts, actions; then paused."""
    scene, table = group.fleet, group.fleet.table.table
    for name in ("davis", "elko"):
        await scene.add(name)
    for make in (permit, notice, looked, action, statistics, floor, worker):
        await make(scene)
    await group.join("ann", "ben")
    async with AsyncExitStack() as stack:
        for kind in ("mutex", "bully", "ring"):
            for owner in ("one", "two"):
                candidate: dict[str, Any] = {"name": kind, "kind": kind, "owner": f"{kind}:{owner}"}
                await stack.enter_async_context(Election(scene.board, **candidate))
        await scene.turn(40.0)
        assert sum(group.log.counts) == 12
        assert (await found(scene.other)).findings == []
        asked = [await requests(scene.other, quick=quick) for quick in (True, False)]
        partitions = {one: await rows_of(table, one) for one in KEPT}
        assert all(partitions.values()), partitions
    await pause_board(scene.other, scene.mark())
    assert (await found(scene.other)).findings == []
    assert asked[0] == 4
    assert asked[1] < 30


KEPT = [META, f"town.{GROUP}", f"{CLICKS}-meta", f"{CLICKS}-workers", LEADERS, f"{LEADERS}-meta"]
KEPT += ["town-workers", "town-permits", "town-notices", "town-actions", f"{LEADERS}-workers"]


async def requests(board: BoardTable, *, quick: bool) -> int:
    before = board.table.requests.total
    await examine(board, Examination(quick=quick))
    return board.table.requests.total - before


# ---- a board that cannot be opened


@pytest.mark.of_sqlite("commands of a file")
@pytest.mark.parametrize("arguments", [(), ("--repair",), ("--json",)])
def test_the_row_of_the_board_itself_is_told(
    blackboard: CommandLine, arguments: tuple[str, ...]
) -> None:
    blackboard("init")

    async def lose_it(board: BoardTable) -> None:
        partition = keys.meta_partition(board.name)
        await board.table.commit(partition, [Merge(keys.BOARD_KEY, {"shards": "two"}, ANY)])

    blackboard.on_board(lose_it)
    said = blackboard("doctor", *arguments, code=1).out
    assert "no good shards in the row of blackboard-meta: no program opens the board" in said
    assert "(`blackboard doctor` tells more)" not in said
