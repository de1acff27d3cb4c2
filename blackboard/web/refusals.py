"""What the pages and the JSON interface have in common: where they begin, and what they refuse,
such as bodies of another type, or too long ones.

An error of the JSON interface is one object, whatever went wrong and wherever it was found.
"""

import math
from collections.abc import Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from blackboard.display.escaping import shown_json
from blackboard.errors import AlreadyThere, BadInput, BlackboardError, Missing
from blackboard.records import as_json
from blackboard.table import Busy, TableError

RETRY_AFTER = 5.0
"""Seconds after which a request to a store that does not answer may be sent again."""
API = "/api"
"""Where the interface begins, below the root of the pages."""


class WrongType(BadInput):
    """The body of a request is of another type, by its header."""


class NotAllowed(BlackboardError):
    """A change that this visitor may not make."""


REFUSED: Mapping[type[Exception], tuple[int, str]] = {
    Missing: (404, "Not found"),
    NotAllowed: (403, "Not allowed"),
    AlreadyThere: (409, "Cannot be done"),
    BadInput: (400, "Cannot be done"),
    BlackboardError: (409, "Cannot be done"),
    TableError: (503, "The store does not answer"),
}
"""The status of the answer to an error, and the title of its page."""


async def body_of(request: Request, kind: str, *, most: int, remedy: str) -> bytes:
    """The body of a request, of `most` bytes at the most. `kind` is the type that its header has to
    say. Raises WrongType, and BadInput with the remedy for a body that is too long.
    """
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != kind:
        problem = f"{given or 'none'} is not taken"
        raise WrongType("content-type", problem, f"send it with Content-Type: {kind}")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise BadInput("body", "it is too long", remedy)
    return body


def root_of(scope: Scope) -> str:
    """What stands before all addresses, as the gate has kept it: where a proxy, or an application
    around these pages, has put them. It ends with no slash.
    """
    root: str = scope.get("state", {}).get("root", "")
    return root


def path_of(scope: Scope) -> str:
    """The address of a request below the root."""
    path: str = scope["path"]
    return path.removeprefix(root_of(scope))


def query_of(request: Request) -> str:
    """What an address has after its path, with the question mark."""
    return f"?{request.url.query}" if request.url.query else ""


def is_api(scope: Scope) -> bool:
    """Whether a request is one of a program, to be answered in JSON."""
    return path_of(scope).startswith(f"{API}/")


def json_answer(
    value: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Records, or what has some, as JSON; a terminal may show it."""
    body = shown_json(msgspec.json.encode(as_json(value)).decode())
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


def retry_after(problem: Exception) -> dict[str, str]:
    """The header that says after how many seconds a store that does not answer may do so."""
    seconds = problem.retry_after if isinstance(problem, Busy) else RETRY_AFTER
    return {"retry-after": str(math.ceil(seconds))}


async def client_gone(request: Request, problem: Exception) -> Response:
    """The answer to a request whose client has hung up before its end: it reaches none."""
    return Response(status_code=400)
