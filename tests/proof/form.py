"""The form of the proof: the short one, or the long one, which takes a night."""

import os

FORM = "BLACKBOARD_PROOF"
"""The environment variable; `long` is the long form."""
LONG = os.environ.get(FORM) == "long"
