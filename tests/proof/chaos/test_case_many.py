"""ME07: items that run once, many more than workers: each is run, none twice, none is left.

By default a hundred, or three thousand where they take no time. The long form of the proof makes it
10,000.
"""

from collections import Counter

import pytest

from blackboard.model import State
from blackboard.protocol.additions import New, add_many
from blackboard.protocol.board_table import BoardTable
from blackboard.spec import Spec
from tests.proof.form import LONG
from tests.support.processes import Site, whole_lines

PROCESSES, SLOTS = 2, 10


@pytest.mark.case("ME07", "S1")
@pytest.mark.timeout(900)
def test_me07_two_processes_of_ten_slots_run_every_item_exactly_once(
    site: Site, lasting_store: str
) -> None:
    items = 10_000 if LONG else {"sqlite": 3_000, "azurite": 100}[lasting_store]
    spec = Spec(params={"folder": str(site.folder), "workers": PROCESSES})

    async def added(board: BoardTable) -> None:
        new = [New(id=f"item-{n}", type="together", spec=spec) for n in range(items)]
        await add_many(board, new, tombstones={})

    async def found(board: BoardTable) -> Counter[tuple[str, str, int]]:
        items = [item async for item in board.items()]
        return Counter((item.state.value, str(item.outcome), item.fence) for item in items)

    site.run(added)
    fleet = site.worker("--processes", str(PROCESSES), "--until-idle", slots=SLOTS)
    assert fleet.ended(seconds=800) == 0, fleet.text
    assert site.run(found) == {(State.DONE.value, "ok", 1): items}
    notes = whole_lines(site.folder / "notes")
    began = Counter(line.split()[1] for line in notes)
    assert began == Counter(f"item-{n}" for n in range(items))
    assert len({line.split()[3] for line in notes}) == PROCESSES
    assert site.doctor()["clean"]
