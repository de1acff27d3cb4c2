"""What the pages and the JSON interface refuse alike: bodies of another type, or too long ones.

An error of the JSON interface is one object, whatever went wrong and wherever it was found.
"""

from collections.abc import Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from blackboard.errors import BadInput
from blackboard.records import as_json

API = "/api"
"""Where the interface begins, below the root of the pages."""


class WrongType(BadInput):
    """The body of a request is of another type, by its header."""


async def body_of(request: Request, kind: str, *, most: int, remedy: str) -> bytes:
    """The body of a request, of `most` bytes at the most. `kind` is the type that its header has to
    say. Raises WrongType, and BadInput with the remedy for a body that is too long.
    """
    said = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if said != kind:
        problem = f"{said or 'none'} is not taken"
        raise WrongType("content-type", problem, f"send it with Content-Type: {kind}")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise BadInput("body", "it is too long", remedy)
    return body


def is_api(scope: Scope) -> bool:
    """Whether a request is one of a program, to be answered in JSON."""
    path: str = scope["path"].removeprefix(scope.get("root_path", "").rstrip("/"))
    return path == API or path.startswith(f"{API}/")


def json_answer(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Records, or what has some, as JSON."""
    body = msgspec.json.encode(as_json(value))
    return Response(body, status, headers, media_type="application/json")


def refusal(
    status: int,
    problem: str,
    *,
    field: str = "",
    remedy: str = "",
    headers: Mapping[str, str] | None = None,
) -> Response:
    """What is wrong, where, and what to do; what is not known is null."""
    error = {"field": field or None, "problem": problem, "remedy": remedy or None}
    return json_answer({"error": error}, status, headers)


async def client_gone(request: Request, problem: Exception) -> Response:
    """The answer to a request whose client has hung up before its end: it reaches none."""
    return Response(status_code=400)
