"""Figures that a test leaves for `python -m tests.proof --record`."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

FOLDER = "BLACKBOARD_FIGURES"
"""The environment variable with the folder for figures."""


def are_wanted() -> bool:
    """Whether the environment names the folder."""
    return bool(os.environ.get(FOLDER))


def leave(name: str, figures: Mapping[str, object]) -> None:
    """Writes figures to `<name>.json` in the folder that the environment names, if it names one."""
    if folder := os.environ.get(FOLDER):
        Path(folder, f"{name}.json").write_text(json.dumps(figures, indent=1) + "\n")
