"""What is refused of a spec when a person writes it, beyond what its types and schedules say.

A spec that passes is the same after it was written to a row as JSON, exported as TOML and read
back.
"""

import math
from collections.abc import Mapping
from typing import Any

from blackboard.errors import BadInput
from blackboard.spec import Spec, resolve

DEEPEST = 100
"""Objects and lists within each other, in params."""


def check_spec(spec: Spec) -> None:
    """Check every field of a spec, and the whole. Raises BadInput naming the field."""
    for name in Spec.__struct_fields__:
        if getattr(spec, name) == "":
            raise BadInput(name, "it is empty", "leave it out to say nothing")
    check_params(spec.params)
    resolve([spec])


def check_params(params: Mapping[str, Any]) -> None:
    """Refuse what JSON or TOML could not write and read back the same. Raises BadInput."""
    for key, value in params.items():
        _check_value(value, f"params.{key}", DEEPEST)


def _check_value(value: Any, where: str, deepest: int) -> None:
    if deepest == 0:
        raise BadInput(where, "it is nested too deeply", f"{DEEPEST} levels at the most")
    match value:
        case None:
            raise BadInput(where, "null says nothing", "leave the key out")
        case float() if not math.isfinite(value):
            raise BadInput(where, f"{value} is no number", "a number, or text")
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise BadInput(where, "it is not UTF-8 text") from None
        case list():
            for one in value:
                _check_value(one, where, deepest - 1)
        case dict():
            for key, one in value.items():
                _check_value(one, f"{where}.{key}", deepest - 1)
