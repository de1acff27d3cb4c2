"""Limits across workers, in real processes: no more runs go on at a time than the board allows.

Three workers share items of two types with limits. One is killed while it runs some: what it held
is free after a minute, and not before. Judged by what the handlers wrote, on the clock of the host.
"""

import json
import signal
import time
from collections import defaultdict
from collections.abc import Iterator

import pytest

from blackboard.model import State
from blackboard.protocol.board_table import BoardTable
from blackboard.protocol.permits import LEASE
from tests.support.processes import Site, eventually, whole_lines

SETTINGS = """
[types.logged]
concurrency = 3
stale_after = "5s"

[types.logged-plain]
key = "host"
stale_after = "5s"
"""
LIMITS = {"logged": 3, "a.example": 1, "b.example": 1}
SECONDS = 0.4
"""Of a run."""


def intervals(site: Site, ends: dict[str, float]) -> Iterator[tuple[str, float, float]]:
    """Each run: what it is counted by, when it began and ended, or its worker did."""
    lines = [json.loads(line) for line in whole_lines(site.folder / "log")]
    ended = {(one["id"], one["fence"]): one["at"] for one in lines if one["what"] == "ended"}
    for one in lines:
        if one["what"] == "began":
            last = ended.get((one["id"], one["fence"]), ends.get(one["worker"]))
            assert last is not None, f"{one['id']} has not ended, and {one['worker']} lives"
            yield one["id"].rpartition("-")[0], one["at"], last


def most_at_a_time(runs: list[tuple[float, float]]) -> int:
    changes = sorted([(end, -1) for _, end in runs] + [(begin, 1) for begin, _ in runs])
    going_on, most = 0, 0
    for _, change in changes:
        going_on += change
        most = max(most, going_on)
    return most


def who_runs(site: Site) -> str:
    """The name of a worker that runs something, once as many run as may; "" before that."""
    lines = [json.loads(line) for line in whole_lines(site.folder / "log")]
    ended = {(one["id"], one["fence"]) for one in lines if one["what"] == "ended"}
    going_on = [one for one in lines if (one["id"], one["fence"]) not in ended]
    limited = [one["worker"] for one in going_on if one["id"].startswith("logged-")]
    return limited[0] if len(limited) == LIMITS["logged"] else ""


@pytest.mark.timeout(600)
def test_no_more_runs_go_on_than_the_board_allows_whoever_is_killed(site: Site) -> None:
    (site.folder / "blackboard.toml").write_text(SETTINGS)
    workers = [site.works(site.worker()) for _ in range(3)]
    plain = [(f"{host}-{n}", host) for host in ("a.example", "b.example") for n in range(8)]
    site.add(*(f"logged-{n}" for n in range(40)), type_="logged", every=None, seconds=SECONDS)
    for item_id, host in plain:
        site.add(item_id, type_="logged-plain", every=None, seconds=SECONDS, host=host)
    name = eventually(lambda: who_runs(site), "as many run as may")
    [victim] = [worker for worker in workers if f":{worker.pid}:" in name]
    victim.send(signal.SIGKILL)
    victim.ended()
    killed = time.monotonic()

    async def left(board: BoardTable) -> int:
        return len([item async for item in board.items() if item.state is not State.DONE])

    eventually(lambda: site.run(left) == 0, "all have run", seconds=3 * LEASE)
    counted = defaultdict(list)
    for what, began, last in intervals(site, {name: killed}):
        counted[what].append((began, last))
    most = {what: most_at_a_time(runs) for what, runs in counted.items()}
    assert most.keys() == LIMITS.keys()
    assert all(most[what] <= LIMITS[what] for what in LIMITS), most
    assert most["logged"] == LIMITS["logged"]
    assert site.doctor()["clean"]
