"""The same seed is the same story, to the byte, whatever Python hashes strings to."""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from blackboard.simulator.scenario import ALL, Scenario, synthetic
from blackboard.simulator.world import World

TELL = """
import sys
from tests.proof.simulator.test_same_seed import story
sys.stdout.write(story(7))
"""


def story(seed: int) -> str:
    """Everything that happened in the world of a seed, in which everything goes wrong."""
    lines: list[str] = []
    scenario = Scenario(
        seed=seed,
        items=synthetic(12, every=timedelta(minutes=2)),
        workers=4,
        hours=0.5,
        faults=ALL,
        trouble_every=10.0,
    )
    world = World(scenario, sink=lines.append)
    world.run()
    assert world.trace.lines == len(lines)
    return "\n".join([*lines, world.trace.fingerprint, repr(world.figures)])


def told_by_another_python(hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", TELL],
        cwd=Path(__file__).resolve().parents[3],
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_a_seed_is_one_story_under_every_hash_seed() -> None:
    told = story(7)
    assert len(told.splitlines()) > 500
    assert [told_by_another_python(seed) for seed in ("0", "1", "4711")] == [told] * 3


def test_another_seed_is_another_story() -> None:
    assert story(7) != story(8)
