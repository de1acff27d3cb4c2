"""Chance that repeats itself: one stream of draws for each thing that draws, all from one seed.

Who draws more or less in one place changes nothing elsewhere, so a world with one fault less is
still the same world. Streams are told apart by name; nothing depends on hashing.
"""

import hashlib

from blackboard.clock import SeededChance


def stream(seed: int, name: str) -> SeededChance:
    """The draws of `name` in the world of `seed`."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return SeededChance(int.from_bytes(digest[:8], "big"))
