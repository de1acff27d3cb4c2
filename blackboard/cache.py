"""Where files are kept that can be made again."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Of this user: `blackboard` in XDG_CACHE_HOME, or in `~/.cache`. It may not be there yet."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".cache") / "blackboard"
