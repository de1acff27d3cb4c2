"""How much the proof does: its short form, or the long one of a night."""

import os

FORM = "BLACKBOARD_PROOF"
"""In the environment: `long` for the long form."""
LONG = os.environ.get(FORM) == "long"
