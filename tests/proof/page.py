"""The blocks of docs/reliability.md that the proof writes; all other text there is written by hand.

A block stands between `<!-- figures: NAME -->` and `<!-- end -->`.
"""

import re
from collections.abc import Mapping

END = "<!-- end -->"


def blocks(text: str) -> dict[str, str]:
    """The blocks of a page, by name."""
    pattern = rf"<!-- figures: (\S+) -->\n\n(.*?)\n\n{END}"
    return dict(re.findall(pattern, text, re.DOTALL))


def with_blocks(text: str, new: Mapping[str, str]) -> str:
    """The page with these blocks in place of its own. Raises KeyError for one that it lacks."""
    old = blocks(text)
    for name, block in new.items():
        begins = f"<!-- figures: {name} -->\n\n"
        text = text.replace(f"{begins}{old[name]}\n\n{END}", f"{begins}{block.strip()}\n\n{END}")
    return text
