"""A worker is killed before, while and after every single request to the store, each in its turn.

The story is always the same but for the one kill: two workers, three items, a lease short enough
that what the dead one held is soon taken over. Nothing may be lost or done twice, and once it is
over every item goes on.
"""

from datetime import timedelta
from itertools import count

import pytest

from blackboard.simulator.network import Fate, Fated
from blackboard.simulator.scenario import Fault, FaultPlan, Scenario, synthetic
from blackboard.simulator.world import World

SCENARIO = Scenario(
    seed=11,
    items=synthetic(3, every=timedelta(minutes=1), takes=5.0),
    workers=2,
    hours=0.1,
    cycle=timedelta(seconds=20),
    faults=frozenset({Fault.KILL}),
)
KILLS = (Fate.KILLED_BEFORE, Fate.KILLED_SENT, Fate.KILLED_DONE)


def world(*fated: Fated) -> World:
    return World(SCENARIO, FaultPlan(injections=(), fated=fated))


def victim() -> str:
    """The worker that starts first."""
    made = world()
    made.run()
    return min((one.process.name for one in made.last_workers), key=lambda name: name[-1])


@pytest.mark.case("KI03", on="memory")
@pytest.mark.parametrize("kill", KILLS, ids=lambda kill: kill.value)
def test_a_kill_at_any_request_leaves_nothing_behind(kill: Fate) -> None:
    """The invariants look at every write, and at the end for whatever is stuck."""
    name = victim()
    for number in count(1):
        made = world(Fated(process=name, number=number, fate=kill))
        made.run()
        if not made.figures.troubles["killed"]:  # its six minutes have no request of this number
            break
    assert number > 40
