"""The tables of docs/api.md, written from the operations themselves.

python -m tests.support.api_page       writes them
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import msgspec

from blackboard.web.api import OPERATIONS
from blackboard.web.openapi import STATUSES
from blackboard.web.shapes import OPTIONS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"
READS = "| GET /api/v1 | parameters | answers |\n|---|---|---|\n"
CHANGES = "| POST /api/v1 | body | does |\n|---|---|---|\n"
ERRORS = "| status | means |\n|---|---|\n"


def page(text: str) -> str:
    """The page, with its tables written anew."""
    for head, lines in ((READS, _operations("GET")), (CHANGES, _operations("POST"))):
        text = _with_table(text, head, lines)
    errors = (f"| {status} | {words} |" for status, words in STATUSES.items())
    return _with_table(text, ERRORS, errors)


def _with_table(text: str, head: str, lines: Iterator[str]) -> str:
    table = head + "".join(f"{line}\n" for line in lines)
    return re.sub(rf"{re.escape(head)}(\|.*\n)*", lambda _: table, text)


def _operations(method: str) -> Iterator[str]:
    for one in OPERATIONS:
        if one.method == method:
            yield f"| `{one.path}` | {_names(one.request)} | {one.summary} |"


def _names(struct: Any) -> str:
    hints = get_type_hints(struct)
    is_edit = "every" in struct.__struct_fields__
    names = []
    for field in msgspec.structs.fields(struct):
        if is_edit and field.name in OPTIONS:
            continue
        name = f"{field.name}..." if get_origin(hints[field.name]) is list else field.name
        names.append(f"`{name}`" if field.required else f"[`{name}`]")
    if is_edit:
        names.append("the options of an item")
    return ", ".join(names) or "none"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
