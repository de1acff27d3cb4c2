"""Patterns that items are chosen by: an id, a glob of ids, `tag:NAME`, `owner:NAME`, `type:NAME`.

A name may be a glob as well; one that looks like a glob means itself, too. In commands, the id of
an item means this item alone, and `state:NAME` the items that are in a state now.
"""

import re
from collections.abc import Collection
from fnmatch import fnmatchcase

from blackboard.spec import Labels

_LABEL = re.compile(r"(tag|owner|type):(.+)")
STATE = "state:"


def is_label(pattern: str) -> bool:
    """Whether a pattern is about what an item is labelled with, or its type."""
    return _LABEL.fullmatch(pattern) is not None


def names_label(pattern: str) -> bool:
    """Whether a pattern is about what an item is labelled with, which its type may declare."""
    return is_label(pattern) and not pattern.startswith("type:")


def state_in(pattern: str) -> str:
    """The state that a pattern is about; "" where it is about none."""
    return pattern.removeprefix(STATE) if pattern.startswith(STATE) else ""


def is_glob(pattern: str) -> bool:
    """Whether a pattern may mean other items than the one of that id."""
    has_wildcards = any(character in pattern for character in "*?[")
    return has_wildcards or is_label(pattern) or bool(state_in(pattern))


def beginning_of(pattern: str) -> str:
    """The text that each id begins with which a glob means; "" for one that means others too."""
    return "" if is_label(pattern) else re.split(r"[*?[]", pattern, maxsplit=1)[0]


def matches(pattern: str, *, item_id: str, item_type: str, labels: Labels) -> bool:
    match = _LABEL.fullmatch(pattern)
    if match is None or pattern == item_id:
        return pattern == item_id or fnmatchcase(item_id, pattern)
    kind, name = match.groups()
    labelled = named(kind, item_type, labels)
    return name in labelled or any(fnmatchcase(label, name) for label in labelled)


def named(kind: str, item_type: str, labels: Labels) -> Collection[str]:
    """The tags, the owner or the type of an item; none for another kind."""
    names = {"tag": labels.tags, "owner": (labels.owner,), "type": (item_type,)}
    return names.get(kind, ())
