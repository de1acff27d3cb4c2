"""The JSON interface answers as it is described, and refuses in one form."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from starlette.testclient import TestClient

from blackboard.model import Member
from blackboard.protocol.members import announce
from blackboard.records import AnnouncedWorker
from blackboard.table import Busy, TableError, Unavailable
from blackboard.web.api import OPERATIONS
from tests.support.web_pages import ODD, PagedBoard, busy_board, paged_board
from tests.support.web_site import door, served

ROOT = "/api/v1"
TOKEN = "0123456789abcdef"


@pytest.fixture(name="paged", scope="module")
def _paged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PagedBoard]:
    with busy_board(tmp_path_factory.mktemp("api")) as made:
        yield made


@pytest.fixture(name="client", scope="module")
def _client(paged: PagedBoard) -> TestClient:
    return paged.client(operator=True)


@pytest.fixture(name="still", scope="module")
def _still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Of a board without a worker: that would draw from the random source of the strategies."""
    with paged_board(tmp_path_factory.mktemp("still")) as made:
        yield made.client(operator=True)


@pytest.fixture(name="described", scope="module")
def _described(still: TestClient) -> Any:
    import schemathesis  # large: not for each process that collects tests

    return schemathesis.openapi.from_dict(still.get(f"{ROOT}/openapi.json").json())


def checked(client: TestClient, case: Any) -> int:
    """Makes a request, checks the answer by the description, and returns its status."""
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    asked = case.as_transport_kwargs(base_url=f"http://localhost{ROOT}")
    asked.pop("cookies", None)
    if isinstance(asked.get("data"), bytes | str):
        asked["content"] = asked.pop("data")
    answer = client.request(**asked)
    checks = (
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_schema_conformance,
    )
    case.validate_response(answer, checks=checks)
    return answer.status_code


def test_a_worker_has_as_many_runs_as_it_holds_locks() -> None:
    """As `workers` shows them: what it has announced may be a minute old."""
    with served() as site:
        site.add("davis")

        async def works() -> list[AnnouncedWorker]:
            now = site.clock.now()
            worker = Member(owner="me", started=now, seen=now, slots=8, running=0, release="1")
            await announce(site.board, worker)
            await site.scene.claimed("davis")
            return await door(site.board).workers()

        assert [one.running for one in site.do(works)] == [1]
        [found] = site.get(f"{ROOT}/workers").json()["workers"]
        assert found["running"] == 1


def test_alarms_are_in_the_order_of_their_items() -> None:
    """As `check` names them, whichever were read first."""
    with served() as site:
        for item_id in ("keene", "davis"):
            site.add(item_id)
            site.clock.advance(1200)
            alarms = site.get(f"{ROOT}/alarms").json()["problems"]
        assert [(one["id"], one["kind"]) for one in alarms] == [
            ("davis", "overdue"),
            ("keene", "overdue"),
        ]


def test_what_is_done_is_not_answered_as_a_failure_of_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise Unavailable("cable cut")

    with served(operator=True) as site:
        site.add("davis")
        site.get("/")
        with monkeypatch.context() as patched:
            patched.setattr("blackboard.web.snapshot.Snapshot._read", away)
            patched.setattr("blackboard.board.read_one", away)
            asked = {"id": "davis", "trigger": "order-7"}
            first = site.client.post(f"{ROOT}/run", json=asked)
            assert (first.status_code, first.json()["changed"]) == (200, True)
            paused = site.client.post(f"{ROOT}/pause", json={"id": "davis"})
            assert (paused.status_code, paused.json()["state"]) == (200, "paused")
            resumed = site.client.post(f"{ROOT}/resume", json={"id": "davis"})
            assert resumed.status_code == 200
        again = site.client.post(f"{ROOT}/run", json=asked)
        assert (again.status_code, again.json()["changed"]) == (200, False)


@pytest.mark.parametrize(
    ("problem", "seconds"), [(Busy(6.2), "7"), (Unavailable("cable cut"), "5")]
)
def test_a_store_that_does_not_answer_is_asked_again_later(
    monkeypatch: pytest.MonkeyPatch, problem: TableError, seconds: str
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise problem

    with served(operator=True) as site:
        site.add("davis")
        form = {"csrf": site.csrf("/item?id=davis"), "id": "davis"}
        monkeypatch.setattr("blackboard.board.Board.pause", away)
        answer = site.client.post(f"{ROOT}/pause", json={"id": "davis"})
        assert error(answer, 503)["problem"] == str(problem)
        page = site.post("/act/pause", form)
        assert page.status_code == 503
        assert answer.headers["retry-after"] == page.headers["retry-after"] == seconds
        monkeypatch.setattr("blackboard.web.snapshot.Snapshot._look", away)
        monkeypatch.setattr("blackboard.web.app.read_overview", away)
        site.clock.advance(60)
        for path in ("board", "items", "runs", "alarms"):
            answer = site.client.get(f"{ROOT}/{path}")
            assert error(answer, 503)["problem"] == str(problem)
            assert answer.headers["retry-after"] == seconds, path
        metrics = site.client.get("/metrics")
        assert (metrics.status_code, metrics.text) == (503, f"store: {problem}\n")
        assert metrics.headers["retry-after"] == seconds


def got(client: TestClient, path: str, **said: Any) -> Any:
    answer = client.get(f"{ROOT}/{path}", params=said)
    assert answer.status_code == 200, answer.text
    return answer.json()


def error(answer: Any, status: int) -> Any:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    found = answer.json()["error"]
    assert found.keys() == {"field", "problem", "remedy"}
    return found


# ---- the description


@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: f"{one.method} {one.path}")
def test_what_is_answered_is_what_is_described(
    still: TestClient, described: Any, operation: Any, mode: str
) -> None:
    from schemathesis.generation import GenerationMode

    found = described[operation.path][operation.method]
    is_done = mode == "positive" and operation.path in {"/pause", "/resume", "/edit"}
    statuses = set()
    if mode == "negative" and not operation.request.__struct_fields__:
        return

    @given(case=found.as_strategy(generation_mode=GenerationMode(mode)))
    @settings(
        max_examples=8,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def check(case: Any) -> None:
        if is_done:
            case.body["id"] = "davis"  # which is there
        if operation.path == "/edit" and is_done:
            case.body["owner"] = "ops"  # it has to change something
        statuses.add(checked(still, case))

    check()
    assert not is_done or 200 in statuses


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/board", {}),
        ("/items", {"state": "active"}),
        *(("/item", {"id": one}) for one in ("davis", "eureka", "endless", ODD, "harbor")),
        ("/why", {"id": "harbor"}),
        ("/next", {"id": ODD}),
        ("/runs", {}),
        ("/run", {"id": "davis", "fence": 1}),
        ("/workers", {}),
        ("/leases", {}),
        ("/leaders", {}),
        ("/alarms", {}),
        ("/actions", {}),
    ],
)
def test_the_answer_about_what_is_there_is_as_described(
    client: TestClient, described: Any, path: str, said: dict[str, Any]
) -> None:
    assert checked(client, described[path]["GET"].Case(query=said)) == 200


def test_the_description_has_each_operation_once(client: TestClient) -> None:
    found = got(client, "openapi.json")
    assert found["openapi"] == "3.1.0"
    assert found["servers"] == [{"url": ROOT}]
    described = [(path, method) for path, methods in found["paths"].items() for method in methods]
    assert sorted(described) == sorted((one.path, one.method.lower()) for one in OPERATIONS)
    parameters = {one["name"]: one for one in found["paths"]["/items"]["get"]["parameters"]}
    assert parameters["page"]["schema"]["minimum"] == 1
    assert "failed" in parameters["state"]["schema"]["items"]["enum"]


# ---- reading


def test_the_board_in_short(client: TestClient) -> None:
    found = got(client, "board")
    assert (found["items"], found["types"]) == (5, {"feed": 3, "long": 1, "page": 1})
    assert found["states"]["failed"] == found["states"]["paused"] == 1
    assert found["tags"] == {"eu": 1}
    assert found["workers"] == {"alive": 1, "lost": 0}
    assert found["board_paused"] is None


@pytest.mark.parametrize(
    ("said", "ids"),
    [
        ({"type": "feed"}, ["davis", "eureka", ODD]),
        ({"type": ["long", "page"], "order": "desc"}, ["harbor", "endless"]),
        ({"state": "failed"}, ["eureka"]),
        ({"tag": "eu"}, ["davis"]),
        ({"q": "ODD"}, [ODD]),
    ],
)
def test_items_are_filtered_and_sorted(
    client: TestClient, said: dict[str, Any], ids: list[str]
) -> None:
    found = got(client, "items", **said)
    assert [one["id"] for one in found["items"]] == ids
    assert (found["total"], found["page"], found["pages"]) == (len(ids), 1, 1)


def test_a_page_after_the_last_is_empty(client: TestClient) -> None:
    """So a program that reads until a page is empty ends."""
    found = got(client, "items", type="feed", page=2)
    assert (found["items"], found["page"], found["pages"], found["total"]) == ([], 2, 1, 3)


def test_an_answer_steers_no_terminal() -> None:
    odd = "\x1b[31m\x9b1m\x7f\u202e\U000e0001é"
    with served() as site:
        site.add(odd)
        shown = site.client.get(f"{ROOT}/item", params={"id": odd})
        absent = site.client.get(f"{ROOT}/item", params={"id": f"{odd}."})
    assert shown.json()["id"] == odd
    assert (shown.status_code, absent.status_code) == (200, 404)
    assert shown.text.isprintable()
    assert absent.text.isprintable()


def test_an_item_of_any_name_is_found(client: TestClient) -> None:
    found = got(client, "item", id=ODD)
    assert (found["id"], found["labels"]["description"]) == (ODD, "odd")
    assert got(client, "items", q="odd")["items"] == [found]
    assert client.head(f"{ROOT}/item", params={"id": ODD}).status_code == 200


def test_why_an_item_does_not_run(client: TestClient) -> None:
    found = got(client, "why", id="harbor")
    assert "paused" in found["headline"]
    assert found["paused"]["reason"] == "holidays"


def test_the_next_times_of_an_item(client: TestClient) -> None:
    times = got(client, "next", id=ODD, count=3)["times"]
    assert len(times) == 3
    assert all(one.endswith("T03:00:00.000Z") for one in times)


def test_runs_are_the_newest_first_and_cut(client: TestClient) -> None:
    found = got(client, "runs", type="feed", limit=1)
    [first] = found["runs"]
    [second] = got(client, "runs", type="feed", limit=1, after=found["next"])["runs"]
    assert {first["id"], second["id"]} == {"davis", "eureka"}
    [failed] = got(client, "runs", outcome="failed")["runs"]
    assert failed["id"] == "eureka"
    assert got(client, "runs", id="eureka") == {"runs": [failed], "next": None}
    assert got(client, "runs", id="eureka", until="2020-01-01T00:00:00Z")["runs"] == []
    whole = got(client, "run", id="eureka", fence=failed["fence"])
    assert [line["text"] for line in whole["log"]] == ["reading"]


def test_what_is_wrong_is_told(client: TestClient) -> None:
    found = got(client, "alarms")
    assert not found["well"]
    assert [(one["id"], one["kind"]) for one in found["problems"]] == [("eureka", "failing")]


# ---- what operators do


def test_an_operator_runs_pauses_edits_and_cancels(paged: PagedBoard, client: TestClient) -> None:
    def do(verb: str, **said: Any) -> Any:
        answer = client.post(f"{ROOT}/{verb}", json=said)
        assert answer.status_code == 200, answer.text
        return answer.json()

    assert do("pause", id=ODD, reason="storm")["paused"]["reason"] == "storm"
    assert error(client.post(f"{ROOT}/run", json={"id": ODD}), 409)["field"] is None
    assert do("resume", id=ODD)["paused"] is None
    assert do("edit", id=ODD, tags="")["labels"]["tags"] == []
    edited = do("edit", id=ODD, every="2h", params={"days": 3}, retries=2, tags=["nw"])
    assert (edited["schedule"], edited["params"]) == ("every 2h", {"days": 3})
    assert do("edit", id=ODD, cron="0 3 * * *", unset=["days"])["params"] == {}
    paged.do(paged.board.add, "unborn", "feed", at="2030-01-01T00:00Z")
    assert do("edit", id="unborn", first="2031-05-06T07:08Z")["ready"] == "2031-05-06T07:08:00.000Z"
    do("remove", id="unborn")
    asked = do("run", id="endless", params={"once": 1})
    assert (asked["id"], asked["ahead"], asked["joined"]) == ("endless", 1, False)
    assert do("unlock", id="endless")["id"] == "endless"
    paged.until(lambda: got(client, "item", id="endless")["running"])
    assert do("cancel", id="endless", reason="enough")["id"] == "endless"
    assert error(client.post(f"{ROOT}/ack", json={"id": "eureka", "fence": 0}), 409)
    assert do("ack", id="eureka", reason="seen")["acknowledged"]["reason"] == "seen"
    assert error(client.post(f"{ROOT}/ack", json={"id": "davis"}), 409)["field"] is None
    assert do("rename", id="harbor", new_id="port")["id"] == "port"
    assert do("rename", id="port", new_id="harbor")["id"] == "harbor"
    paged.do(paged.board.add, "gone", "feed")
    assert do("remove", id="gone") == {"id": "gone"}
    assert error(client.get(f"{ROOT}/item", params={"id": "gone"}), 404)["field"] == "id"
    verbs = [one for one in got(client, "actions")["actions"] if one["via"] == "web"]
    assert {one["verb"] for one in verbs} == {
        "pause",
        "resume",
        "edit",
        "run",
        "unlock",
        "cancel",
        "ack",
        "rename",
        "remove",
    }


# ---- errors


@pytest.mark.parametrize(
    ("path", "field", "problem"),
    [
        ("items?colour=red", "colour", "it is unknown"),
        ("items?state=red", "state", "there is no 'red'"),
        ("items?sort=red", "sort", "there is no 'red'"),
        ("items?page=0", "page", "expected `int` >= 1"),
        ("items?page=one", "page", "expected `int`, got `str`"),
        ("items?page=1e3", "page", "expected `int`, got `str`"),
        ("items?page=1&page=2", "page", "it is given more than once"),
        ("item", "id", "it is missing"),
        ("item?id=", "id", "expected `str` of length >= 1"),
        (f"items?{'tag=a&' * 21}", "tag", "expected `array` of length <= 20"),
        (f"runs?{'type=a&' * 21}", "type", "expected `array` of length <= 20"),
        ("runs?id=", "id", "it is empty"),
        ("runs?outcome=red", "outcome", "invalid enum value 'red'"),
        ("runs?since=yesterday", "since", "invalid RFC3339 encoded datetime"),
        ("runs?since=2030", "since", "invalid RFC3339 encoded datetime"),
        ("runs?until=1e9", "until", "invalid RFC3339 encoded datetime"),
        ("runs?since=0001-01-01T00:00:00Z", "since", "0001-01-01T00:00:00+00:00 is too far away"),
        ("run?id=davis&fence=x", "fence", "expected `int`, got `str`"),
        ("runs?after=2026", "after", "'2026' is not a place in a list of runs"),
        ("runs?after=nan,1,davis", "after", "'nan,1,davis' is not a place in a list of runs"),
        ("runs?after=1e999,1,davis", "after", "'1e999,1,davis' is not a place in a list of runs"),
        ("board?x=1", "x", "it is unknown"),
    ],
)
def test_a_parameter_that_is_wrong_is_named(
    client: TestClient, path: str, field: str, problem: str
) -> None:
    found = error(client.get(f"{ROOT}/{path}"), 400)
    assert (found["field"], found["problem"]) == (field, problem)
    assert found["remedy"]


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"tags": "a"}, 'expected a list of texts, or ""'),
        ({"tags": [1]}, 'expected a list of texts, or ""'),
        ({"retries": "many"}, 'expected a number, or ""'),
    ],
)
def test_an_option_of_another_type_is_refused_in_words(
    client: TestClient, said: Any, problem: str
) -> None:
    answer = client.post(f"{ROOT}/edit", json={"id": "davis"} | said)
    assert error(answer, 400)["problem"] == problem


@pytest.mark.parametrize(
    ("verb", "body", "field"),
    [
        ("run", b"", "body"),
        ("run", b"[" * 5000, "body"),
        ("run", b"[]", "body"),
        ("run", b"{}", "id"),
        ("run", b'{"id": "davis", "colour": "x"}', "colour"),
        ("run", b'{"id": "davis", "params": []}', "params"),
        ("pause", b'{"id": ""}', "id"),
        ("edit", b'{"id": "davis", "every": "8x"}', "every"),
        ("edit", b'{"id": "davis", "every": "8h", "cron": "@daily"}', "cron"),
        ("edit", b'{"id": "davis", "retries": "many"}', "retries"),
        ("edit", b'{"id": "davis", "tags": "eu"}', "tags"),
        ("edit", b'{"id": "davis", "unset": ["x"]}', "unset"),
        ("edit", b'{"id": "davis"}', "edit"),
        ("edit", b'{"id": "davis", "params": {}, "reason": "storm"}', "edit"),
    ],
)
def test_a_body_that_is_wrong_changes_nothing(
    client: TestClient, verb: str, body: bytes, field: str
) -> None:
    before = got(client, "item", id="davis")
    headers = {"content-type": "application/json"}
    assert (
        error(client.post(f"{ROOT}/{verb}", content=body, headers=headers), 400)["field"] == field
    )
    assert got(client, "item", id="davis") == before


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (rb'{"id": "\ud83d\ude00\ud800"}', "half of a surrogate pair is no character"),
        (rb'{"id": "\uDC00"}', "half of a surrogate pair is no character"),
        (rb'{"id": "\ud83d\ude00"', "Input data was truncated"),
    ],
)
def test_what_is_no_json_is_said(client: TestClient, body: bytes, problem: str) -> None:
    headers = {"content-type": "application/json"}
    found = error(client.post(f"{ROOT}/run", content=body, headers=headers), 400)
    assert (found["field"], found["problem"]) == ("body", f"it is not JSON: {problem}")


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (b'{"id": "davis", "id": "keene"}', "id"),
        (b'{"id": "davis", "params": {"days": 1, "days": 2}}', "days"),
    ],
)
def test_a_key_that_is_there_twice_is_refused(client: TestClient, body: bytes, key: str) -> None:
    headers = {"content-type": "application/json"}
    found = error(client.post(f"{ROOT}/run", content=body, headers=headers), 400)
    assert (found["field"], found["problem"]) == ("body", f"the key {key!r} is there twice")


def test_what_is_not_there_is_404(client: TestClient) -> None:
    for path in ("item", "why", "next", "runs"):
        assert error(client.get(f"{ROOT}/{path}", params={"id": "nobody"}), 404)["field"] == "id"
    error(client.get(f"{ROOT}/run", params={"id": "davis", "fence": 99}), 404)
    error(client.post(f"{ROOT}/pause", json={"id": "nobody"}), 404)
    for path in ("/api/", f"{ROOT}/", f"{ROOT}/nothing", f"{ROOT}/board/"):
        assert error(client.get(path), 404)["field"] is None


def test_a_refusal_names_what_a_program_can_do_here(paged: PagedBoard, client: TestClient) -> None:
    taken = client.post(f"{ROOT}/rename", json={"id": "davis", "new_id": ODD})
    assert error(taken, 409)["remedy"] == "choose another name"
    assert error(taken, 409)["field"] == "new_id"
    for refused in ("davis", "a*", " a", ""):
        answer = client.post(f"{ROOT}/rename", json={"id": "davis", "new_id": refused})
        assert error(answer, 400)["field"] == "new_id"
    paged.do(paged.board.add, "still", "feed", every="1h")
    paged.do(paged.board.pause, "still")
    asked = [
        taken,
        client.post(f"{ROOT}/run", json={"id": "still"}),
        client.post(f"{ROOT}/rename", json={"id": "endless", "new_id": "other"}),
        client.post(f"{ROOT}/edit", json={"id": "davis", "first": "now"}),
        client.get(f"{ROOT}/item", params={"id": "nobody"}),
        client.get(f"{ROOT}/run", params={"id": "davis", "fence": 99}),
    ]
    for answer in asked:
        assert "error" in answer.json()
        assert "`blackboard" not in answer.text
    paged.do(paged.board.remove, "still")


def test_another_method_is_405_with_those_that_there_are(client: TestClient) -> None:
    for path, methods in (("run", "GET, HEAD, POST"), ("items", "GET, HEAD"), ("edit", "POST")):
        answer = client.delete(f"{ROOT}/{path}")
        error(answer, 405)
        assert sorted(answer.headers["allow"].split(", ")) == methods.split(", ")


def test_no_page_of_another_site_may_read(client: TestClient) -> None:
    headers = {"origin": "http://elsewhere.example", "access-control-request-method": "GET"}
    error(client.options(f"{ROOT}/items", headers=headers), 403)
    answer = client.get(f"{ROOT}/items", headers=headers)
    assert not [one for one in answer.headers if one.startswith("access-control-")]


def test_a_head_has_the_headers_of_the_answer(client: TestClient) -> None:
    head, answer = client.head(f"{ROOT}/items"), client.get(f"{ROOT}/items")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == answer.headers["content-type"]


def test_a_form_is_no_json(client: TestClient) -> None:
    found = error(client.post(f"{ROOT}/run", data={"id": "davis"}), 415)
    assert found["field"] == "content-type"


def test_a_page_elsewhere_changes_nothing(client: TestClient) -> None:
    headers = {"origin": "http://elsewhere.example"}
    error(client.post(f"{ROOT}/pause", json={"id": "davis"}, headers=headers), 403)
    assert got(client, "item", id="davis")["paused"] is None


def test_nothing_changes_where_operators_are_not_allowed(paged: PagedBoard) -> None:
    client = paged.client()
    assert "--operator" in error(client.post(f"{ROOT}/run", json={"id": "davis"}), 403)["problem"]
    assert not got(client, "board")["operator"]


def test_who_has_no_token_is_asked_for_it(paged: PagedBoard) -> None:
    client = paged.client(token=TOKEN, operator=True)
    for headers in ({}, {"authorization": "Bearer wrong"}, {"accept": "text/html"}):
        answer = client.get(f"{ROOT}/board", headers=headers)
        assert "Bearer" in error(answer, 401)["remedy"]
        assert answer.headers["www-authenticate"] == "Bearer"
    client.headers["authorization"] = f"Bearer {TOKEN}"
    assert got(client, "board")["items"] == 5
    assert client.post(f"{ROOT}/pause", json={"id": "davis"}).json()["paused"]["by"] == "token"
    assert client.post(f"{ROOT}/resume", json={"id": "davis"}).status_code == 200


def test_another_host_name_is_not_served(paged: PagedBoard) -> None:
    client = paged.client(hosts=["jobs.example"])
    error(client.get(f"{ROOT}/board"), 421)


def test_below_another_application_the_description_says_where(paged: PagedBoard) -> None:
    from starlette.applications import Starlette
    from starlette.routing import Mount

    around = Starlette(routes=[Mount("/jobs", paged.app(token=TOKEN))])
    client = TestClient(around, base_url="http://localhost")
    error(client.get(f"/jobs{ROOT}/board"), 401)
    client.headers["authorization"] = f"Bearer {TOKEN}"
    found = client.get(f"/jobs{ROOT}/openapi.json").json()
    assert found["servers"] == [{"url": f"/jobs{ROOT}"}]
    for wrong in ("items?page=x", "nothing"):
        refused = client.get(f"/jobs{ROOT}/{wrong}").json()["error"]
        assert refused["remedy"] == f"see /jobs{ROOT}/openapi.json"
    assert client.get(f"/jobs{ROOT}/board").json()["items"] == 5
    assert msgspec.json.decode(client.get(f"/jobs{ROOT}/items").content)["total"] == 5


def test_every_change_takes_a_reason_and_records_it(paged: PagedBoard, client: TestClient) -> None:
    paged.do(paged.board.add, "brief", "feed", at="2030-01-01T00:00Z")
    for verb, said in (("edit", {"owner": "ops"}), ("rename", {"new_id": "short"})):
        answer = client.post(f"{ROOT}/{verb}", json={"id": "brief", "reason": verb, **said})
        assert answer.status_code == 200, answer.text
    for verb in ("run", "remove"):
        assert client.post(f"{ROOT}/{verb}", json={"id": "short", "reason": verb}).is_success
    found = got(client, "actions")["actions"][:4]
    assert all(one["reason"] == one["verb"] for one in found), found
