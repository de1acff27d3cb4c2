"""The description of the JSON interface, OpenAPI 3.1, made from the table that makes its routes."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from blackboard import __version__
from blackboard.web.shapes import ErrorAnswer

JSON_TYPE = "application/json"
REF = "#/components/schemas/{name}"
STATUSES = {
    400: "What was said cannot be used; `field` names it.",
    401: "The request proves no visitor; `remedy` says how to sign in.",
    403: "It is read-only: `blackboard serve --operator` allows changes.",
    404: "There is no such item or run.",
    409: "The item, or the board, is in a state that does not allow it, or the new id is taken.",
    415: "The body is no application/json.",
    421: "This host name is not served.",
    503: "The store does not answer; `Retry-After` has the seconds to wait.",
}


class Operation(NamedTuple):
    method: str
    path: str
    request: Any
    """The struct of its parameters, or of its body where it has one."""
    answer: Any
    """The struct of its answer; None: this description."""
    summary: str
    act: Callable[..., Awaitable[Any]]
    """Does it, for a site and a request, with the decoded struct."""

    @property
    def has_body(self) -> bool:
        return self.method == "POST"

    @property
    def statuses(self) -> tuple[int, ...]:
        """Those of `STATUSES` that it may answer with."""
        if self.has_body:
            return tuple(STATUSES)
        is_about_one = "id" in self.request.__struct_fields__
        return (400, 401, 404, 409, 421, 503) if is_about_one else (400, 401, 409, 421, 503)


def description(operations: Iterable[Operation], *, root: str, board: str) -> Mapping[str, Any]:
    """The whole document; `root` is where the paths begin."""
    all_of_them = list(operations)
    bodies = [operation.request for operation in all_of_them if operation.has_body]
    answers = [operation.answer for operation in all_of_them if operation.answer is not None]
    structs = list(dict.fromkeys([*bodies, *answers, ErrorAnswer]))
    _, components = msgspec.json.schema_components(structs, ref_template=REF)
    paths: dict[str, dict[str, Any]] = {}
    for operation in all_of_them:
        parameters, more = ([], {}) if operation.has_body else _parameters(operation.request)
        components |= more
        of_path = paths.setdefault(operation.path, {})
        of_path[operation.method.lower()] = _operation(operation, parameters)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"blackboard {board}",
            "version": __version__,
            "description": "A board of blackboard. Times are ISO 8601 in UTC, durations seconds.",
        },
        "servers": [{"url": root}],
        "security": [{"bearer": []}, {}],
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": dict(sorted(components.items())),
        },
    }


def _operation(operation: Operation, parameters: list[Any]) -> dict[str, Any]:
    kind = "get" if operation.method == "GET" else "do"
    name = operation.path.strip("/").replace("/", "_").replace(".", "_")
    described: dict[str, Any] = {"operationId": f"{kind}_{name}", "summary": operation.summary}
    if parameters:
        described["parameters"] = parameters
    if operation.has_body:
        described["requestBody"] = {"required": True, "content": _content(operation.request)}
    content = {JSON_TYPE: {"schema": {"type": "object"}}} if operation.answer is None else None
    described["responses"] = {
        "200": {"description": "Done.", "content": content or _content(operation.answer)},
        **{
            str(status): {"description": STATUSES[status], "content": _content(ErrorAnswer)}
            for status in operation.statuses
        },
    }
    return described


def _content(struct: Any) -> dict[str, Any]:
    return {JSON_TYPE: {"schema": {"$ref": REF.format(name=struct.__name__)}}}


def _parameters(struct: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The parameters that a struct has as its fields, and the schemas they refer to."""
    _, components = msgspec.json.schema_components([struct], ref_template=REF)
    own = components.pop(struct.__name__)
    parameters = []
    for name, schema in own["properties"].items():
        shape = {key: value for key, value in schema.items() if key != "description"}
        parameter = {"name": name, "in": "query", "required": name in own["required"]}
        if "description" in schema:
            parameter["description"] = schema["description"]
        parameters.append({**parameter, "schema": shape})
    return parameters, components
