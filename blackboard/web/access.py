"""Who may see the pages, and who may change something by them.

    address   has at most 32,000 bytes after the `?`, in which the longest id fits twice: the pages
              repeat it in their links, and a page elsewhere can make a browser send it
    Host      must be one of those the pages are served under: a page elsewhere whose name was made
              to point here (DNS rebinding) has another one. Probes need none
    visitor   on a loopback address: every user of this machine. Else a visitor with the token, or
              one that a proxy names in a trusted header, from an address of the proxy
    Origin    of a request that changes something must be this site
    CSRF      the forms of a visitor carry a value that belongs to the visitor's cookie; a request
              with the token in a header needs none, because no page elsewhere can add that
    operator  only where that was switched on does any request change anything

Every answer forbids framing and all that the pages do not need (Content-Security-Policy). The token
is compared in constant time, and stands in no answer, address or log; the answer to a wrong one
waits, in a form as in a header. So nothing that is signed by it is sent to those who have not shown
that they have it: they could try out tokens elsewhere. A session is signed and not stored: another
token ends all of them. Stored, in this process alone, are those that visitors have ended by signing
out.
"""

import base64
import hashlib
import hmac
import ipaddress
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from urllib.parse import quote, unquote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request, cookie_parser
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from blackboard.clock import Chance, Clock
from blackboard.errors import BadInput
from blackboard.inputs import argument
from blackboard.phrases import quoted
from blackboard.web.refusals import is_api, path_of, refusal, root_of

SHORTEST_TOKEN = 16
COOKIE = "blackboard"
SESSION_LASTS = 30 * 86_400.0
"""Seconds."""
REFUSAL_PAUSE = 0.5
"""Seconds that a wrong token waits for its answer."""
LONGEST_VISITOR = 80
LONGEST_QUERY = 32_000
"""Bytes of an address after the `?`."""
SAFE = {"GET", "HEAD"}
PROBES = {"/healthz", "/readyz"}
"""Paths that are answered whatever the host, to no visitor if it is not one of the list: a balancer
names the address, another name, or none."""
OPEN = {*PROBES, "/login"}
"""Paths that need no visitor, as all below /static/ need none."""
ELSEWHERE = (
    "this request came from another site, or a proxy has changed its Host header: let the proxy "
    "pass it on"
)
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The name of a header: a token of RFC 9110."""
_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
"""The name of a host, or an IPv4 address, as browsers send it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    operator: bool = False
    """Whether the pages change anything."""
    token: str = field(default="", repr=False)
    """What a visitor has to know; "": nothing."""
    user_header: str = ""
    """The header by which a proxy names the visitor; "": there is no such proxy."""
    proxies: Sequence[Network] = ()
    """The addresses from which the header is trusted."""
    hosts: frozenset[str] | None = None
    """The names that the pages are served under; None: any, because the application around them
    checks it."""
    user: str = "web"
    """The name that is recorded for a visitor who need not sign in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    name: str
    session: str = ""
    """What the cookie says; "" where there is none."""
    by_header: bool = False
    """Whether a header of the request itself proves it: no page elsewhere can add that."""


def access_of(
    *,
    operator: bool,
    token: str,
    user_header: str,
    proxies: Sequence[str],
    hosts: Sequence[str] | None,
    user: str,
) -> Access:
    """Who may do what, as a program says it. Raises BadInput, which names the argument."""
    argument("proxies", proxies, Sequence[str])
    argument("hosts", hosts, Sequence[str] | None)
    if user_header and not proxies:
        remedy = "say from which address the proxy sends it"
        raise BadInput("user_header", "anybody could send this header", remedy)
    if user_header and not _HEADER.fullmatch(user_header):
        problem = f"{user_header!r} is not a name of a header"
        raise BadInput("user_header", problem, "as in X-Forwarded-User")
    if proxies and not user_header:
        remedy = "say in which header the proxy names the visitor"
        raise BadInput("proxies", "a proxy alone proves nothing", remedy)
    return Access(
        operator=operator,
        token=check_token(token) if token else "",
        user_header=user_header,
        proxies=networks(proxies),
        hosts=None if hosts is None else host_names(hosts),
        user=user,
    )


def check_token(token: str) -> str:
    """The token, if it is long enough and can be sent in a header. Raises BadInput."""
    if len(token) < SHORTEST_TOKEN:
        remedy = f"at least {SHORTEST_TOKEN} characters: `openssl rand -hex 16`"
        raise BadInput("token", "it is too short to keep anybody out", remedy)
    if not (token.isascii() and token.isprintable()) or " " in token:
        remedy = "letters, digits and signs of ASCII: `openssl rand -hex 16`"
        raise BadInput("token", "it has characters that no header can carry", remedy)
    return token


def networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Addresses and ranges of addresses. Raises BadInput."""
    parsed = []
    for text in texts:
        try:
            parsed.append(ipaddress.ip_network(text, strict=False))
        except ValueError:
            remedy = "an address or a range, as in 10.0.0.7 or 10.0.0.0/24"
            raise BadInput("proxies", f"{quoted(text)} is not an address", remedy) from None
    return tuple(parsed)


def host_in(text: str) -> str:
    """The name in a Host header or an origin, without its port, in lower case."""
    try:
        return (urlsplit(f"//{text}").hostname or "").rstrip(".").lower()
    except ValueError:
        return ""


def host_name(text: str) -> str:
    """The name of a host as a browser sends it; "" for what is none."""
    host = "" if "/" in text else host_in(text)
    try:
        name = host if host.isascii() else host.encode("idna").decode()
    except UnicodeError:
        return ""
    return name if is_address(name) or _HOST.fullmatch(name) else ""


def host_names(texts: Sequence[str]) -> frozenset[str]:
    """The names of hosts as browsers send them. Raises BadInput."""
    for text in texts:
        if not host_name(text) or "@" in text or not text.isprintable():
            remedy = "a name without scheme and path, as in board.example.org, and no pattern"
            raise BadInput("hosts", f"{quoted(text)} is not a name of a host", remedy)
    return frozenset(map(host_name, texts))


def cookie_name(scope: Scope) -> str:
    """The name of the cookie of a session. A browser sends a cookie to all ports of a host, and to
    all paths below its own: with both in its name, two boards of one host do not end each other's
    sessions.
    """
    try:
        port = urlsplit(f"//{Headers(scope=scope).get('host', '')}").port
    except ValueError:
        port = None
    root = root_of(scope)
    mark = hashlib.sha256(root.encode("utf-8", "replace")).hexdigest()[:8] if root else ""
    return "_".join(str(part) for part in (COOKIE, port, mark) if part)


def is_address(host: str) -> bool:
    """Whether a host is an address and no name: no name was made to point here then."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=16)
def _key_of(secret: str) -> bytes:
    """The key that signs sessions. It takes a tenth of a second: a visitor who is signed in without
    the token, as by a proxy, cannot try out many secrets by what is signed.
    """
    return hashlib.pbkdf2_hmac("sha256", secret.encode(), b"blackboard sessions", 300_000)


class Sessions:
    """The token, and the sessions of visitors: NAME EXPIRES NONCE, signed."""

    def __init__(self, access: Access, *, clock: Clock, chance: Chance, secret: str = "") -> None:
        self.access = access
        self._clock = clock
        self._chance = chance
        self._ended: dict[str, float] = {}
        """Sessions that were ended, each with the time at which it expires."""
        chosen = secret or access.token  # by a person, who may have chosen a short one
        self._key = _key_of(chosen) if chosen else chance.nonce().encode()
        self.mark = self._signature("mark", "")[:16]
        """Another one for another secret, with which no form is valid that was made before."""

    def is_token(self, token: str) -> bool:
        return bool(self.access.token) and hmac.compare_digest(
            token.encode(), self.access.token.encode()
        )

    async def refuse(self) -> None:
        """Wait, so that tokens cannot be tried out quickly."""
        await self._clock.sleep(REFUSAL_PAUSE)

    def new_session(self, name: str) -> str:
        """The value of a cookie for a visitor of a name; "" for one without."""
        until = self._clock.now().timestamp() + SESSION_LASTS
        text = f"{quote(name[:LONGEST_VISITOR], safe='')} {until:.0f} {self._chance.nonce()}"
        signed = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
        return f"{signed}.{self._signature('session', signed)}"

    def csrf(self, session: str) -> str:
        """What the forms of a session carry."""
        return self._signature("form", session)

    def read(self, scope: Scope) -> str:
        """The session in the cookie, if it is signed and not over; else ""."""
        cookies = Headers(scope=scope).get("cookie", "")
        value = cookie_parser(cookies).get(cookie_name(scope), "")
        text, _, signature = value.partition(".")
        if not hmac.compare_digest(
            signature.encode("utf-8", "replace"), self._signature("session", text).encode()
        ):
            return ""
        _, until = _in_session(value)
        is_over = self.is_ended(value) or self._clock.now().timestamp() >= until
        return "" if is_over else value

    def end(self, session: str) -> None:
        """Sign its visitor out, in other windows and with a copy of the cookie too."""
        now = self._clock.now().timestamp()
        self._ended = {other: end for other, end in self._ended.items() if end > now}
        _, self._ended[session] = _in_session(session)

    def is_ended(self, session: str) -> bool:
        """Whether its visitor has signed out."""
        return session in self._ended

    def _signature(self, use: str, text: str) -> str:
        return hmac.new(self._key, f"{use} {text}".encode(), hashlib.sha256).hexdigest()


class Gate:
    """Lets a request through to the pages, or answers it. The visitor is in `request.state`."""

    def __init__(
        self, pages: ASGIApp, sessions: Sessions, *, unknown: Callable[[Request], Response]
    ) -> None:
        """`unknown` answers a request without a visitor."""
        self._pages = pages
        self._sessions = sessions
        self._access = sessions.access
        self._unknown = unknown

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._pages(scope, receive, send)
            return

        state = scope.setdefault("state", {})
        # Applications that are mounted below the pages have another root in their scope.
        state["root"], state["visitor"] = scope.get("root_path", "").rstrip("/"), None
        is_static = path_of(scope).startswith("/static/")

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-cache" if is_static else "no-store")
            await send(message)

        refusal = self._refusal(scope)
        if self._is_guess(scope):
            await self._sessions.refuse()
        if refusal is None:
            await self._pages(scope, receive, with_headers)
        else:
            await refusal(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        """The answer to a request that does not reach the pages."""
        if (size := len(scope.get("query_string", b""))) > LONGEST_QUERY:
            problem = f"the address has {size:,} bytes after the ?: at most {LONGEST_QUERY:,}"
            return _refused(scope, 400, problem)
        headers = Headers(scope=scope)
        host = host_in(headers.get("host", ""))
        hosts = self._access.hosts
        path = path_of(scope)
        if hosts is not None and host not in hosts and not is_address(host):
            if path in PROBES:
                return None
            allow = "name it with --allow-host, or in `hosts` of board.web(...)"
            return _refused(scope, 421, f"this host name is not served: {allow}")
        if scope["method"] not in SAFE and not _is_same_site(headers):
            return _refused(scope, 403, ELSEWHERE)
        visitor = scope["state"]["visitor"] = self._visitor(scope, headers)
        if visitor is None and path not in OPEN and not path.startswith("/static/"):
            return self._unknown(Request(scope))
        return None

    def _visitor(self, scope: Scope, headers: Headers) -> Visitor | None:
        session = self._sessions.read(scope)
        access = self._access
        if access.user_header and self._is_proxy(scope):
            names = headers.getlist(access.user_header)
            name = _as_sent(names[0]).strip()[:LONGEST_VISITOR] if names else ""
            if name and len(names) == 1:  # of two, the visitor has sent one
                return Visitor(name=name, session=session)
        if access.token:
            if self._sessions.is_token(_bearer(headers)):
                return Visitor(name="token", by_header=True)
            name = _in_session(session)[0] if session else ""
            return Visitor(name=name, session=session) if name else None
        return None if access.user_header else Visitor(name=access.user, session=session)

    def _is_guess(self, scope: Scope) -> bool:
        """Whether a request that proves no visitor has a wrong token."""
        token = _bearer(Headers(scope=scope))
        if not token or not self._access.token or self._sessions.is_token(token):
            return False
        return scope["state"]["visitor"] is None

    def _is_proxy(self, scope: Scope) -> bool:
        client = scope.get("client")
        if not client or not is_address(client[0]):
            return False
        address = ipaddress.ip_address(client[0])
        mapped = getattr(address, "ipv4_mapped", None) or address  # of a socket for both versions
        return any(address in network or mapped in network for network in self._access.proxies)


def _bearer(headers: Headers) -> str:
    """The token in a header; "" for none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _refused(scope: Scope, status: int, problem: str) -> Response:
    """In the form that a page, or a program, expects."""
    if is_api(scope):
        return refusal(status, problem)
    return PlainTextResponse(f"blackboard: {problem}", status)


def _as_sent(header: str) -> str:
    """The text of a header, which proxies send in UTF-8."""
    try:
        return header.encode("latin-1").decode()
    except UnicodeError:
        return header


def _in_session(session: str) -> tuple[str, float]:
    """The name of its visitor, and when it expires, as `new_session` writes them."""
    text = session.partition(".")[0]
    padded = text + "=" * (-len(text) % 4)
    name, until, _nonce = base64.urlsafe_b64decode(padded).decode().split(" ")
    return unquote(name), float(until)


def _is_same_site(headers: Headers) -> bool:
    """Whether no other site has caused a request. Programs that are no browsers say nothing."""
    origin = headers.get("origin")
    if origin is not None:
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        return bool(parts.netloc) and parts.netloc.lower() == headers.get("host", "").lower()
    return headers.get("sec-fetch-site", "none") in {"same-origin", "none"}


def visitor_of(request: Request) -> Visitor | None:
    """The visitor; None: the request has proved none."""
    visitor: Visitor | None = getattr(request.state, "visitor", None)
    return visitor
