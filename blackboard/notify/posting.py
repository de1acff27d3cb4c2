"""One HTTP request, with the standard library. Blocks; imported when something is to be sent.

No redirect is followed: a POST would become a GET on the way, and the address that is asked is the
one that was configured. Proxies are those of the environment (`https_proxy`, `no_proxy`).
"""

from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from blackboard import __version__
from blackboard.notify.ways import NotSent

TRANSIENT = {408, 425, 429}
"""Refusals that may be over soon, besides the server's own errors."""


class _Stay(HTTPRedirectHandler):
    def redirect_request(self, *_args: Any, **_named: Any) -> None:
        """Nowhere: the answer is told as it is."""


def ask(address: str, body: bytes | None, *, seconds: float) -> None:
    """GET an address; or POST JSON to it. `seconds` is for each wait on the way. Raises NotSent,
    with nothing of the address in it.
    """
    headers = {"User-Agent": f"blackboard/{__version__}"}
    if body is not None:
        headers["Content-Type"] = "application/json"
    request = Request(address, body, headers)  # noqa: S310 - the address was checked
    try:
        with build_opener(_Stay).open(request, timeout=seconds):
            return
    except HTTPError as answer:
        answer.close()
        problem = _refusal(answer.code)
    except URLError as error:
        problem = NotSent(_words(error.reason))
    except (OSError, HTTPException, ValueError) as error:
        problem = NotSent(_words(error))
    raise problem


def _refusal(code: int) -> NotSent:
    if 300 <= code < 400:
        return NotSent(f"it redirects ({code}): name the address it redirects to", final=True)
    final = 400 <= code < 500 and code not in TRANSIENT
    return NotSent(f"it answered {code}", final=final)


def _words(reason: object) -> str:
    """What is wrong, in words of the operating system: others might repeat the address."""
    if isinstance(reason, TimeoutError):
        return "it did not answer in time"
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return type(reason).__name__
