"""Who may see the pages and change something by them, and who may not."""

import asyncio
import base64
import random
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from blackboard.errors import BadInput
from blackboard.protocol.board_table import BoardTable
from blackboard.table import Busy, Unavailable
from blackboard.web import live
from blackboard.web.access import (
    COOKIE,
    HEADERS,
    SESSION_LASTS,
    access_of,
    check_token,
    cookie_name,
    host_in,
    host_names,
    networks,
)
from blackboard.web.app import _local
from tests.support.web_site import (
    WebSite,
    addresses_of,
    fields_of,
    forms_of,
    served,
    streamed,
)

TOKEN = "0123456789abcdef-of-a-test"
HTML = "text/html,application/xhtml+xml"


@pytest.fixture(name="site", scope="module")
def _site() -> Iterator[WebSite]:
    with served() as site:
        site.add("davis")
        yield site


@pytest.fixture(name="operated")
def _operated() -> Iterator[WebSite]:
    with served(operator=True) as site:
        site.add("davis")
        yield site


@pytest.fixture(name="locked")
def _locked() -> Iterator[WebSite]:
    with served(operator=True, token=TOKEN) as site:
        site.add("davis")
        yield site


def signed_in(site: WebSite, **fields: str) -> None:
    assert site.post("/login", {"token": TOKEN, "name": "ann", **fields}).status_code == 303


def is_paused(site: WebSite) -> bool:
    async def work() -> bool:
        item = await site.board.item("davis")
        return item is not None and item.is_paused

    return site.do(work)


# ---- hosts and sites


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:8080", 200),
        ("[::1]:8080", 200),
        ("10.1.2.3", 200),
        ("localhost:9", 200),
        ("LOCALHOST.", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost@evil.example", 421),
        ("127.1", 421),
        ("[::1", 421),
        ("", 421),
    ],
)
def test_hosts(site: WebSite, host: str, status: int) -> None:
    answer = site.get("/", host=host)
    assert answer.status_code == status
    assert "davis" not in answer.text or status == 200


@pytest.mark.parametrize("host", ["", "board:8080", "evil.example"])
def test_a_probe_is_answered_under_any_host_and_learns_no_detail(
    site: WebSite, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    assert site.get("/healthz", host=host).text == "ok\n"
    assert site.get("/readyz", host=host).text == "ready\n"
    site.clock.advance(1)

    async def away(board: BoardTable) -> None:
        raise Busy(1.2, "a detail")

    monkeypatch.setattr(BoardTable, "check_shards", away)
    assert site.get("/readyz", host=host).text == "store: the board cannot be read\n"
    assert site.get("/healthz", host=host).status_code == 200


def test_the_names_that_were_allowed() -> None:
    with served(hosts=["Jobs.Example"]) as site:
        assert site.get("/", host="jobs.example:443").status_code == 200
        assert site.get("/", host="localhost").status_code == 421
    with served(hosts=None) as site:
        assert site.get("/", host="any.example").status_code == 200


def test_names_of_hosts_as_they_may_be_given() -> None:
    given = ["A.example:8080", "münchen.example", "[::1]", "b.example."]
    assert host_names(given) == {"a.example", "xn--mnchen-3ya.example", "::1", "b.example"}
    no_names = ("", "http://a.example/", "a.example/x", ":80", "ä..example", "*.a.example")
    for wrong in (*no_names, "*", "*.example", "a.example, b.example", "a b", "me@a", "a\\n", " "):
        with pytest.raises(BadInput, match="hosts"):
            host_names([wrong])


def test_a_host_without_its_port() -> None:
    found = [host_in(one) for one in ("a:1", "[::1]:80", "A.example.", "a@b:1", "[", "")]
    assert found == ["a", "::1", "a.example", "b", "", ""]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 303),
        ({"origin": "http://127.0.0.1"}, 303),
        ({"origin": "http://127.0.0.1", "sec_fetch_site": "same-origin"}, 303),
        ({"sec_fetch_site": "none"}, 303),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:9"}, 403),
        ({"origin": "http://127.0.0.1.evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"origin": "http://[::1"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
    ],
)
def test_a_change_that_another_site_asks_for(
    operated: WebSite, headers: dict[str, str], status: int
) -> None:
    fields = {"csrf": operated.csrf(), "id": "davis"}
    assert operated.post("/act/pause", fields, **headers).status_code == status
    assert is_paused(operated) == (status == 303)


def test_forms_of_other_visits(operated: WebSite) -> None:
    own = operated.csrf()
    operated.client.cookies.clear()
    for wrong in ("", "x", own, own.upper(), "ä" * 64):
        operated.get("/")
        answer = operated.post("/act/pause", {"csrf": wrong, "id": "davis"})
        assert answer.status_code == 403
        assert "another visit" in answer.text
        assert "/item?id=davis" in addresses_of(answer.text)
        answer = operated.post("/confirm", {"csrf": wrong, "verb": "pause", "count": "1"})
        assert answer.status_code == 403
        operated.client.cookies.clear()
    assert operated.post("/act/pause", {"id": "davis"}).status_code == 403
    assert not is_paused(operated)
    fields = {"csrf": operated.csrf(), "id": "davis"}
    assert operated.post("/act/pause", fields).status_code == 303
    assert is_paused(operated)


def test_nothing_but_a_form_is_taken(operated: WebSite) -> None:
    for kind in ("application/json", "text/plain", "multipart/form-data; boundary=x", ""):
        headers = {"content-type": kind}
        answer = operated.client.post("/act/pause", content=b"id=davis", headers=headers)
        assert answer.status_code == 400
    form = {"content-type": "application/x-www-form-urlencoded"}
    for body in (b"\xff\xfe", b"a=1&" * 30_000, b"x" * 1_100_000):
        assert operated.client.post("/act/run", content=body, headers=form).status_code == 400
    assert not is_paused(operated)


def test_read_only_pages_change_nothing(site: WebSite) -> None:
    site.get("/")
    for path in ("/act/pause", "/act/run", "/act/edit", "/confirm"):
        answer = site.post(path, {"id": "davis", "verb": "pause", "count": "1", "csrf": "x"})
        assert answer.status_code == 403
        assert "--operator" in answer.text
    page = site.get("/item?id=davis").text
    assert "/act/" not in page
    assert "csrf" not in page
    assert not is_paused(site)


# ---- tokens and sessions


def test_without_the_token(locked: WebSite) -> None:
    open_but_longer = ("/readyzz", "/healthz/", "/loginx", "/static")
    for path in ("/", "/item?id=davis", "/metrics", "/live/board", "/nothing", *open_but_longer):
        answer = locked.get(path, accept=HTML)
        assert answer.status_code == 401
        assert 'type="password"' in answer.text
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "davis" not in answer.text.replace("id=davis", "")
        answer = locked.get(path, accept="*/*")
        words = "blackboard: sign in first (send the header Authorization: Bearer TOKEN)\n"
        assert (answer.status_code, answer.text) == (401, words)
    assert locked.post("/act/pause", {"id": "davis"}, accept=HTML).status_code == 401
    assert locked.get("/healthz").status_code == 200
    assert locked.get("/static/app.css").status_code == 200
    assert not is_paused(locked)


def test_a_probe_needs_no_token_learns_no_detail_and_reads_once_a_second(
    locked: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    async def reads(board: BoardTable) -> None:
        read.append(board.name)
        if len(read) > 2:
            raise Busy(1.2, "a detail")

    monkeypatch.setattr(BoardTable, "check_shards", reads)
    for _ in range(3):
        assert locked.get("/readyz").text == "ready\n"
    assert len(read) == 1
    locked.clock.advance(1)
    assert locked.get("/readyz").status_code == 200
    locked.clock.advance(1)
    answer = locked.get("/readyz")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert answer.text == "store: the board cannot be read\n"
    assert "a detail" in locked.get("/readyz", authorization=f"Bearer {TOKEN}").text
    assert len(read) == 3
    locked.clock.advance(1)
    assert locked.get("/readyz").status_code == 503
    assert len(read) == 4


def test_a_probe_sees_that_a_store_is_back_after_requests_that_waited_long(
    locked: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_away = True

    async def reads(board: BoardTable) -> None:
        if is_away:
            locked.clock.advance(10)
            raise Unavailable("it does not answer")

    monkeypatch.setattr(BoardTable, "check_shards", reads)
    assert locked.get("/readyz").status_code == 503
    is_away = False
    locked.clock.advance(9)
    assert locked.get("/readyz").status_code == 503
    locked.clock.advance(1)
    assert locked.get("/readyz").text == "ready\n"


def test_the_login_page_says_nothing_of_the_board(locked: WebSite) -> None:
    from blackboard.protocol.board_pause import pause_board

    async def work() -> None:
        from blackboard.model import Mark

        await pause_board(locked.board, Mark(by="ann", at=locked.clock.now(), reason="a secret"))

    locked.do(work)
    for path in ("/", "/login"):
        page = locked.get(path, accept=HTML).text
        assert "a secret" not in page
        assert "memory:" not in page


def test_nothing_that_the_token_signs_is_for_those_who_do_not_have_it(locked: WebSite) -> None:
    """By it they could try out tokens on a machine of their own, which waits for no answer."""
    answers = [locked.get(path, accept=HTML) for path in ("/", "/login", "/static/none", "/none")]
    answers.append(locked.post("/login", {"token": "x" * 20}))
    assert [answer.status_code for answer in answers] == [401, 200, 404, 401, 401]
    assert [answer.headers.get("set-cookie") for answer in answers] == [None] * 5
    signed = re.compile(r'data-server="[^"]|name="csrf"')
    assert [signed.search(answer.text) for answer in answers] == [None] * 5
    signed_in(locked)
    assert signed.search(locked.get("/").text)


def test_the_token_in_a_header(locked: WebSite) -> None:
    right = {"authorization": f"Bearer {TOKEN}"}
    assert locked.get("/", **right).status_code == 200
    assert locked.get("/", authorization=f"bearer  {TOKEN} ").status_code == 200
    for wrong in (TOKEN, f"Basic {TOKEN}", "Bearer", "Bearer x", f"Bearer {TOKEN}x", "Bearer \xff"):
        answer = locked.client.get("/", headers={b"authorization": wrong.encode("latin-1")})
        assert answer.status_code == 401
    assert locked.clock.refused == 3  # those that are tokens
    for path in ("/login", "/healthz", "/api/v1/board", "/act/pause"):
        before = locked.clock.refused
        locked.get(path, authorization="Bearer x")
        assert locked.clock.refused == before + 1, path
        locked.get(path, **right)
        assert locked.clock.refused == before + 1, path
    signed_in(locked)
    before = locked.clock.refused
    assert locked.get("/", authorization="Bearer of-a-proxy").status_code == 200
    assert locked.clock.refused == before
    locked.client.cookies.clear()
    assert locked.post("/act/pause", {"id": "davis"}, **right).status_code == 303
    assert is_paused(locked)


def test_signing_in_and_out(locked: WebSite) -> None:
    for wrong in ("", "x", TOKEN[:-1], "ä" * 20, TOKEN.upper()):
        answer = locked.post("/login", {"token": wrong, "name": "ann"})
        assert answer.status_code == 401
        assert 'role="alert"' in answer.text
    assert locked.clock.refused == 5
    answer = locked.post(
        "/login", {"token": TOKEN, "name": " ann\n of  x", "back": "/item?id=davis"}
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/item?id=davis")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert "path=/" in cookie
    assert "secure" not in cookie
    assert "ann of x" in locked.get("/").text
    assert locked.get("/login").headers["location"] == "/"
    csrf = locked.csrf()
    copied = "; ".join(f"{one.name}={one.value}" for one in locked.client.cookies.jar)
    refused = locked.post("/logout", {"csrf": "x"})
    assert (refused.status_code, "another visit" in refused.text) == (403, True)
    assert locked.get("/").status_code == 200
    assert locked.post("/logout", {"csrf": csrf}).headers["location"] == "/login"
    assert locked.get("/").status_code == 401
    assert locked.get("/", cookie=copied).status_code == 401


def test_a_page_of_an_earlier_visit_says_that_it_signs_nobody_out(locked: WebSite) -> None:
    """Two windows of one browser: in the second one somebody has signed in since."""
    fields = {"token": TOKEN, "name": "ann"}
    locked.post("/login", fields)
    earlier = locked.csrf()
    locked.post("/login", {**fields, "name": "ben"})
    answer = locked.post("/logout", {"csrf": earlier})
    assert answer.status_code == 403
    assert "open the page again" in answer.text
    assert locked.post("/logout", {"csrf": forms_of(answer.text)[0]["csrf"]}).status_code == 303
    assert locked.get("/").status_code == 401


def test_a_form_that_is_sent_after_the_visit_leads_to_signing_in(locked: WebSite) -> None:
    """As after a sign-out in another window."""
    answer = locked.post("/act/pause", {"id": "davis", "reason": "storm"}, accept=HTML)
    assert answer.status_code == 401
    assert "Nothing was done" in answer.text
    answer = locked.post("/login", {**fields_of(answer.text, ""), "token": TOKEN})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert not is_paused(locked)


def test_a_live_page_ends_when_its_visitor_signs_out(
    locked: WebSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "APART", 0.0)
    monkeypatch.setattr(live, "STATE_EVERY", 0.01)
    locked.post("/login", {"token": TOKEN, "name": "ann"})
    cookie = "; ".join(f"{one.name}={one.value}" for one in locked.client.cookies.jar)
    csrf = locked.csrf()

    async def looks() -> None:
        async with streamed(locked.app, "/live/board", cookie=cookie) as stream:
            await stream.until(lambda sent: bool(sent.events))
            await asyncio.to_thread(locked.post, "/logout", {"csrf": csrf})
            await stream.until(lambda sent: sent.is_over)

    locked.do(looks)


def test_a_cookie_of_https_is_secure() -> None:
    with served(token=TOKEN, base="https://127.0.0.1") as site:
        answer = site.post("/login", {"token": TOKEN})
        assert "secure" in answer.headers["set-cookie"].lower()


def test_a_cookie_behind_a_proxy_with_tls_is_secure(locked: WebSite) -> None:
    for origin, is_secure in (("https://127.0.0.1", True), ("http://127.0.0.1", False)):
        answer = locked.post("/login", {"token": TOKEN}, origin=origin)
        assert ("secure" in answer.headers["set-cookie"].lower()) == is_secure


def test_two_boards_of_one_machine_have_their_own_sessions() -> None:
    """A browser hands a cookie to all ports of a host."""
    for port in (8080, 8081):
        with served(operator=True, base=f"http://127.0.0.1:{port}") as site:
            assert [*site.get("/").cookies] == [f"{COOKIE}_{port}"]
            assert site.post("/act/pause", {"csrf": site.csrf(), "id": "x"}).status_code == 404
    for host in ("127.0.0.1:x", "localhost"):
        assert cookie_name({"type": "http", "headers": [(b"host", host.encode())]}) == COOKIE


def test_two_boards_of_one_host_one_below_the_other_have_their_own_sessions_and_zones() -> None:
    """A browser sends the cookies of / to /jobs as well, after those of /jobs."""
    with served(token=TOKEN) as outer, served(mounted="/jobs", token=TOKEN) as inner:
        cookies = [
            site.post(path, {"token": TOKEN}).headers["set-cookie"].partition(";")[0]
            for site, path in ((inner, "/jobs/login"), (outer, "/login"))
        ]
        assert inner.get("/jobs/runs", cookie="; ".join(cookies)).status_code == 200
        assert outer.get("/runs", cookie="; ".join(cookies)).status_code == 200
        pages = inner.get("/jobs/").text, outer.get("/").text
        zones = {re.findall('data-zone-cookie="(.+?)"', one)[0] for one in pages}
        assert len(zones) == 2


def test_cookies_of_other_applications_do_not_end_a_session(locked: WebSite) -> None:
    signed_in(locked)
    own = locked.client.cookies[COOKIE]
    locked.client.cookies.clear()
    for others in ('a={"b": [1, 2]}; ', "a b c; ", "=; ", "x=y\\; ", 'q="; ', "é=1; "):
        text = f"{others}{COOKIE}={own}"
        answer = locked.client.get("/", headers={b"cookie": text.encode("latin-1")})
        assert answer.status_code == 200, others


def test_cookies_that_are_no_sessions(locked: WebSite) -> None:
    anonymous = locked.get("/", accept=HTML).cookies.get(COOKIE)
    signed_in(locked)
    own = locked.client.cookies[COOKIE]
    locked.client.cookies.clear()
    text, _, signature = own.partition(".")
    admin = base64.urlsafe_b64encode(b"admin 99999999999 x").decode().rstrip("=")
    chance = random.Random(7)
    garbage = [
        "",
        ".",
        "..",
        text,
        f".{signature}",
        f"{text}.",
        f"{text}x.{signature}",
        f"{text}.{signature[:-1]}",
        f"{text}.{signature.upper()}",
        f"{admin}.{signature}",
        f"{own}.{own}",
        "a" * 5000,
        *([anonymous] if anonymous else []),
        *(
            "".join(chr(chance.choice([*range(33, 59), *range(60, 256)])) for _ in range(n))
            for n in range(1, 60)
        ),
    ]
    for one in garbage:
        header = f"{COOKIE}={one}".encode("latin-1")
        assert locked.client.get("/", headers={b"cookie": header}).status_code == 401, one
        locked.client.cookies.clear()
    assert locked.get("/", cookie=f"{COOKIE}={own}").status_code == 200
    locked.clock.advance(SESSION_LASTS + 1)
    assert locked.get("/", cookie=f"{COOKIE}={own}").status_code == 401


def test_sessions_end_with_another_token(locked: WebSite) -> None:
    signed_in(locked)
    with served(token=f"{TOKEN}2") as other:
        own = f"{COOKIE}={locked.client.cookies[COOKIE]}"
        assert other.get("/", cookie=own).status_code == 401


@pytest.mark.parametrize(
    ("back", "place"),
    [
        ("/item?id=a%2Fb", "/item?id=a%2Fb"),
        ("/", "/"),
        ("", "/"),
        ("item", "/"),
        ("//evil.example", "/"),
        ("///evil.example", "/"),
        ("/\\evil.example", "/"),
        ("\\\\evil.example", "/"),
        ("/\t/evil.example", "/"),
        ("https://evil.example/", "/"),
        ("javascript:alert(1)", "/"),
        (" //evil.example", "/"),
        ("//[", "/"),
        ("http://[::1", "/"),
    ],
)
def test_a_login_leads_to_these_pages_alone(back: str, place: str) -> None:
    assert _local(back) == place


def test_a_login_with_a_broken_address(locked: WebSite) -> None:
    for back in ("//[", "/\r\nset-cookie: x=y", "/\0", "/ä"):
        answer = locked.post("/login", {"token": TOKEN, "back": back})
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/")
        assert "x" not in answer.cookies


# ---- proxies


def test_the_header_of_a_proxy() -> None:
    about: dict[str, Any] = {"user_header": "x-user", "proxies": ["10.0.0.0/24"], "operator": True}
    with served(client=("10.0.0.7", 1), **about) as site:
        site.add("davis")
        assert site.get("/").status_code == 401
        assert site.get("/", x_user=" ").status_code == 401
        page = site.get("/", x_user="ann<b>")
        assert page.status_code == 200
        assert "ann&lt;b&gt;" in page.text
        for sent in ("Jürgen".encode(), "Jürgen".encode("latin-1")):
            assert "Jürgen" in site.client.get("/", headers=[(b"x-user", sent)]).text
        two = [("x-user", "admin"), ("x-user", "ann")]
        assert site.client.get("/", headers=two).status_code == 401
        assert site.post("/act/pause", {"id": "davis"}, x_user="ann").status_code == 403
    with served(client=("::ffff:10.0.0.7", 1), **about) as site:
        assert site.get("/", x_user="ann").status_code == 200
    mapped = about | {"proxies": ["::ffff:10.0.0.0/104"]}
    with served(client=("::ffff:10.0.0.7", 1), **mapped) as site:
        assert site.get("/", x_user="ann").status_code == 200
    for client in (("10.0.1.7", 1), ("::ffff:10.0.1.7", 1), ("testclient", 1), ("::1", 1)):
        with served(client=client, **about) as site:
            page, api = (site.get(path, x_user="ann") for path in ("/", "/api/v1/items"))
            assert (page.status_code, api.status_code) == (401, 401)
            for answer in (page, api):  # no token is known to this server
                assert "come through the proxy that signs people in" in answer.text
                assert "Bearer" not in answer.text


@pytest.mark.parametrize("header", ["X-User:", "X User", "X-Üser", "X-User\n"])
def test_a_header_that_no_request_can_have_is_refused(header: str) -> None:
    """With it, no visitor would be let in, and no page would say why."""
    with pytest.raises(BadInput, match=r"user_header: .* is not a name of a header"):
        access_of(
            operator=False,
            token="",
            user_header=header,
            proxies=["10.0.0.7"],
            hosts=None,
            user="web",
        )


def test_addresses_of_proxies() -> None:
    assert len(networks(["10.0.0.7", "fe80::/10", "10.0.0.7/24"])) == 3
    for wrong in ("", "x", "10.0.0.0/33", "10.0.0"):
        with pytest.raises(BadInput, match="proxies"):
            networks([wrong])


@pytest.mark.parametrize(
    "token", ["short", "höher-als-sechzehn-zeichen", "with a space in its midst", "\udcff" * 16]
)
def test_tokens_that_no_visitor_could_send(token: str) -> None:
    with pytest.raises(BadInput, match=r"^token: it "):
        check_token(token)


def test_several_processes_sign_with_one_secret() -> None:
    shared: dict[str, Any] = {"operator": True, "secret": "s" * 16}
    with served(**shared) as one, served(**shared) as two, served(operator=True) as other:
        form = {"id": "davis", "csrf": one.csrf()}
        for site, status in ((two, 303), (other, 403)):
            site.add("davis")
            site.client.cookies.update(one.client.cookies)
            assert site.post("/act/pause", form).status_code == status


# ---- answers


def test_every_answer_has_the_headers(locked: WebSite) -> None:
    answers = [
        locked.get("/"),
        locked.get("/", accept=HTML),
        locked.get("/", host="evil.example"),
        locked.post("/act/run", {}, origin="null"),
        locked.get("/static/app.js"),
        locked.get("/static/nothing"),
        locked.get("/static/../access.py"),
        locked.get("/static/%2e%2e/access.py"),
        locked.get("/healthz"),
        locked.post("/login", {"token": "x"}),
        locked.post("/login", {"token": TOKEN, "name": "ann"}),
    ]
    answers += [
        locked.get(path)
        for path in ("/", "/item?id=x", "/nothing", "/act/run", "/metrics", "/bulk")
    ]
    answers.append(locked.client.head("/"))
    answers.append(locked.client.request("BREW", "/"))
    for answer in answers:
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
        assert "cache-control" in answer.headers
        assert TOKEN not in answer.text
        assert TOKEN not in str(answer.headers)
        assert quote(TOKEN) not in str(answer.headers)
    policy = HEADERS["content-security-policy"]
    assert "unsafe" not in policy
    assert [one.status_code for one in answers if one.status_code >= 500] == []


def test_heads_have_no_body(site: WebSite) -> None:
    for path in ("/", "/runs", "/healthz", "/static/app.css", "/live/board", "/live/health"):
        answer = site.client.head(path)
        assert (answer.status_code, answer.content) == (200, b""), path
    assert site.client.head("/item?id=nothing").status_code == 404
