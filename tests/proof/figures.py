"""Figures that a test leaves for `python -m tests.proof --record`."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

FOLDER = "BLACKBOARD_FIGURES"
"""In the environment: where figures are left."""


def leave(name: str, figures: Mapping[str, object]) -> None:
    """In `<name>.json` of the folder that the environment names; nowhere if it names none."""
    if folder := os.environ.get(FOLDER):
        Path(folder, f"{name}.json").write_text(json.dumps(figures, indent=1) + "\n")
