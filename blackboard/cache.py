"""Where files are kept that can be made again."""

import os
from pathlib import Path

from blackboard.errors import BadInput


def cache_folder() -> Path:
    """The cache of this user: `blackboard` in XDG_CACHE_HOME, or in `~/.cache`. It may not be there
    yet. Raises BadInput for a user without a home.
    """
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if named.is_absolute():
        return named / "blackboard"
    try:
        home = Path.home()
    except RuntimeError:
        home = Path()
    if home.is_absolute():
        return home / ".cache" / "blackboard"
    problem = "it is not set to a whole path, and this user has no home"
    raise BadInput("XDG_CACHE_HOME", problem, "name a folder in it")
