"""Tokens: a real managed identity asks a service on this machine, and every way to get none."""

import asyncio
import logging
import os
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from azure.core.credentials import AccessToken
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import ClientAuthenticationError

from blackboard.tables import azure_credentials, azure_transport
from blackboard.tables.azure import AzureTable
from blackboard.tables.azure_address import azure_address
from blackboard.tables.azure_credentials import (
    Credential,
    NoToken,
    Proof,
    Tokens,
    credential_for,
)
from blackboard.tables.azure_transport import AzureTransport, TokenTransport
from tests.support.clocks import ManualClock
from tests.support.identity_servers import AUDIENCE, TokenService, giving
from tests.support.patience import patience
from tests.support.turns import one_turn

ANN = "https://ann.table.core.windows.net/town"


@pytest.fixture(autouse=True)
def _nobody_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*os.environ]:
        if name.startswith(("AZURE_", "BLACKBOARD_", "IDENTITY_", "MSI_", "IMDS_")):
            monkeypatch.delenv(name)


def known_to(service: TokenService, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in service.environment.items():
        monkeypatch.setenv(name, text)


def who_asks(*, interactive: bool = False) -> Credential:
    return credential_for(azure_address(ANN), os.getenv, interactive=interactive)


def tokens_given(*, times: int = 1, interactive: bool = False) -> list[str]:
    """What the managed identity gives, or at a terminal the login of `az`."""

    async def story() -> list[str]:
        found = who_asks(interactive=interactive)
        assert isinstance(found.azure, Tokens)
        try:
            given = [await found.azure.get_token(f"{AUDIENCE}/.default") for _ in range(times)]
        finally:
            await found.close()
        return [one.token for one in given]

    return asyncio.run(story())


def test_a_managed_identity_gives_a_token_for_tables(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is asked once, by its own name when the environment has one; no log has the token."""
    caplog.set_level(logging.DEBUG)
    with giving("canary") as service:
        known_to(service, monkeypatch)
        assert tokens_given(times=2) == ["canary", "canary"]
        monkeypatch.setenv("AZURE_CLIENT_ID", "worker")
        assert tokens_given() == ["canary"]
    assert [one["resource"] for one in service.asked] == [AUDIENCE, AUDIENCE]
    assert [one["header"] for one in service.asked] == [service.environment["IDENTITY_HEADER"]] * 2
    assert [one.get("client_id") for one in service.asked] == [None, "worker"]
    assert any(record.name.startswith("azure.identity") for record in caplog.records)
    assert "canary" not in caplog.text
    assert service.environment["IDENTITY_HEADER"] not in caplog.text


@pytest.mark.parametrize("status", [400, 401, 403])
def test_who_gets_no_token_hears_who_was_asked_and_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """Of what the service said only the directory's code is told."""
    with giving("canary", status=status) as service:
        known_to(service, monkeypatch)
        with pytest.raises(NoToken) as caught:
            tokens_given()
    line = who_asks().no_token(azure_address(ANN), caught.value.why)
    assert line.startswith(
        f"{ANN}: no token for the managed identity of this host: AADSTS700016 "
        "(it must be assigned to this host; or set BLACKBOARD_CONNECTION_STRING; "
        "it needs the role Storage Table Data Contributor"
    )
    assert "\n" not in line
    assert caught.value.response is None
    assert "unheard of" not in "".join(traceback.format_exception(caught.value))


@pytest.fixture
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """azure-identity pauses for seconds between two tries."""

    async def at_once(_transport: TokenTransport, _seconds: float) -> None: ...

    monkeypatch.setattr(TokenTransport, "sleep", at_once)


def of_a_machine(service: TokenService, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service is at the address that each machine of Azure has."""
    place = f"127.0.0.1:{service.port}"
    monkeypatch.setattr(azure_transport, "OF_MACHINES", place)
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", f"http://{place}")


@pytest.mark.usefixtures("_no_pauses")
@pytest.mark.parametrize("known", [known_to, of_a_machine])
@pytest.mark.parametrize(
    ("status", "words"),
    [
        (500, "answered 500"),
        (503, "answered 503"),
        (429, "answered 429"),
        (408, "answered 408"),
        (0, "no answer from 127.0.0.1"),
    ],
)
def test_a_token_service_in_trouble_is_away_and_says_nothing_of_the_identity(
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    words: str,
    known: Callable[[TokenService, pytest.MonkeyPatch], None],
) -> None:
    """Though azure-identity says that there is no identity, or that it was refused."""
    with giving("canary", status=status, software="IMDS/150.870.65.1854") as service:
        known(service, monkeypatch)
        with pytest.raises(NoToken, match=words) as caught:
            tokens_given()
    assert caught.value.may_pass
    assert service.asked


@pytest.mark.usefixtures("_no_pauses")
def test_a_proxy_that_answers_for_machines_of_azure_is_no_token_service_in_trouble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with giving("canary", status=503, software="squid/5.7") as service:
        of_a_machine(service, monkeypatch)
        with pytest.raises(NoToken) as caught:
            tokens_given()
    assert not caught.value.may_pass
    assert service.asked


@pytest.mark.usefixtures("_no_pauses")
@pytest.mark.parametrize(
    ("known", "before", "may_pass"),
    [
        (known_to, [], True),
        (of_a_machine, [], False),
        (of_a_machine, ["IMDS/150.870.65.1854"], True),
        (of_a_machine, ["the metadata of another cloud"], False),
    ],
)
def test_a_token_service_that_is_not_reached_is_away_unless_this_is_no_machine_of_azure(
    monkeypatch: pytest.MonkeyPatch,
    *,
    known: Callable[[TokenService, pytest.MonkeyPatch], None],
    before: list[str],
    may_pass: bool,
) -> None:
    monkeypatch.setattr(azure_credentials, "ASK_AGAIN", -1.0)

    async def story() -> None:
        with giving("canary", status=400, software="".join(before)) as service:
            known(service, monkeypatch)
            found = who_asks()
            assert isinstance(found.azure, Tokens)
            for _ in before:
                with pytest.raises(NoToken) as caught:
                    await found.azure.get_token(f"{AUDIENCE}/.default")
                assert not caught.value.may_pass
        with pytest.raises(NoToken) as caught:
            await found.azure.get_token(f"{AUDIENCE}/.default")
        assert caught.value.may_pass == may_pass
        await found.close()

    asyncio.run(story())


@pytest.mark.usefixtures("_no_pauses")
def test_what_az_says_is_told_where_this_is_no_machine_of_azure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with giving("canary") as closed:
        of_a_machine(closed, monkeypatch)
    az = tmp_path / "az"
    az.write_text(
        "#!/bin/sh\necho 'ERROR: AADSTS700082: The token of canary has expired' >&2\nexit 1\n"
    )
    az.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(NoToken) as caught:
        tokens_given(interactive=True)
    assert (caught.value.why, caught.value.may_pass) == ("AADSTS700082", False)


def test_no_token_service_at_all_is_told_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        azure_credentials, "TOKEN_WITHIN", 0.1
    )  # the library tries for a few seconds
    with giving("canary") as service:
        known_to(service, monkeypatch)
    with pytest.raises(NoToken):
        tokens_given()


class Failing(AsyncTokenCredential):
    """Gives no token, in some way."""

    def __init__(self, error: BaseException | None) -> None:
        self._error = error

    async def get_token(self, *scopes: str, **wanted: object) -> AccessToken:
        if self._error is not None:
            raise self._error
        await asyncio.sleep(3600)
        raise AssertionError

    async def close(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...


NO_FILE = FileNotFoundError(2, "No such file or directory", "/run/canary")
WAYS: list[tuple[BaseException | None, str, bool]] = [
    (ClientAuthenticationError("canary AADSTS90002: canary"), "AADSTS90002", False),
    (ClientAuthenticationError("canary"), "", False),
    (ValueError("canary"), "", False),
    (NO_FILE, "No such file or directory", False),
    (ConnectionRefusedError(111, "Connection refused"), "Connection refused", True),
    (None, "no answer within 0.01 s", True),
]


@pytest.mark.parametrize(("error", "why", "may_pass"), WAYS)
def test_however_a_token_fails_it_is_one_error_that_quotes_nothing(
    monkeypatch: pytest.MonkeyPatch, *, error: BaseException | None, why: str, may_pass: bool
) -> None:
    monkeypatch.setattr(azure_credentials, "TOKEN_WITHIN", 0.01)
    with pytest.raises(NoToken) as caught:
        asyncio.run(Tokens(Failing(error)).get_token("scope"))
    assert (caught.value.why, caught.value.may_pass) == (why, may_pass)
    assert "canary" not in "".join(traceback.format_exception(caught.value))


NAMES = ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET")


@pytest.mark.parametrize(
    ("variable", "environment"),
    [
        ("HTTP_PROXY", {}),
        ("HTTP_PROXY", TokenService("canary", port=9).environment),
        ("HTTPS_PROXY", dict.fromkeys(NAMES, "canary")),
    ],
    ids=["of a machine", "of a service", "a principal"],
)
def test_a_proxy_that_is_no_address_is_why_there_is_no_token(
    monkeypatch: pytest.MonkeyPatch, variable: str, environment: dict[str, str]
) -> None:
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setenv(variable.lower(), "garbage://canary")
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(NoToken) as caught:
        tokens_given()
    assert (
        caught.value.why == f"{variable}: it is not an address of a proxy (as in http://HOST:PORT)"
    )
    assert not caught.value.may_pass
    assert "canary" not in "".join(traceback.format_exception(caught.value))


def test_who_is_cancelled_gets_no_answer() -> None:
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(Tokens(Failing(asyncio.CancelledError())).get_token("scope"))


class Source(Failing):
    """Gives tokens of an hour, and counts how often it is asked."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(None)
        self.clock = clock
        self.asked = 0
        self.answers = True
        self.comes = asyncio.Event()
        self.comes.set()

    async def get_token(self, *scopes: str, **wanted: object) -> AccessToken:
        self.asked += 1
        await self.comes.wait()
        if self.answers:
            return AccessToken("token", int(self.clock.now().timestamp()) + 3600)
        return await super().get_token(*scopes, **wanted)


def test_a_good_token_is_used_while_no_other_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(azure_credentials, "TOKEN_WITHIN", 0.01)
    monkeypatch.setattr(azure_credentials, "VALID_WAITS", 0.01)
    clock = ManualClock()
    source = Source(clock)

    async def story() -> None:
        tokens = Tokens(source, clock)
        await tokens.get_token("scope")
        source.answers = False
        clock.advance(3500)
        assert (await tokens.get_token("scope")).token == "token"
        clock.advance(200)
        with pytest.raises(NoToken):
            await tokens.get_token("scope")
        source.answers = True
        clock.advance(azure_credentials.ASK_AGAIN + 1)
        assert (await tokens.get_token("scope")).token == "token"

    asyncio.run(story())


def test_no_request_waits_long_for_a_token_while_the_last_one_is_valid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or leaders would lose their terms while the service that gives tokens is away."""
    monkeypatch.setattr(azure_credentials, "TOKEN_WITHIN", 2 * patience(20))
    monkeypatch.setattr(azure_credentials, "VALID_WAITS", 0.01)
    source = Source(ManualClock())

    async def story() -> None:
        tokens = Tokens(source, source.clock)
        await tokens.get_token("scope")
        source.answers = False
        async with asyncio.timeout(patience(20)):
            assert (await tokens.get_token("scope")).token == "token"
        assert source.asked == 2
        await tokens.close()

    asyncio.run(story())


async def first_of(tokens: Tokens, source: Source, *, age: float) -> AccessToken:
    """A token that is so many seconds old now. The next one does not come yet."""
    first = await tokens.get_token("scope")
    source.clock.advance(age)
    source.comes.clear()
    return first


def test_a_token_that_takes_long_is_asked_for_once_and_used_when_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As of `az`, which takes seconds: requests that wait less do not ask for it in vain."""
    monkeypatch.setattr(azure_credentials, "VALID_WAITS", 0.01)
    source = Source(ManualClock())

    async def story() -> None:
        tokens = Tokens(source, source.clock)
        first = await first_of(tokens, source, age=3500)
        for _ in range(3):
            assert await tokens.get_token("scope") is first
        assert source.asked == 2
        source.comes.set()
        await one_turn()
        last = await tokens.get_token("scope")
        assert last.expires_on > first.expires_on

    asyncio.run(story())


def test_a_token_that_expires_while_another_is_waited_for_is_waited_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(azure_credentials, "VALID_WAITS", 0.01)
    source = Source(ManualClock())

    async def story() -> None:
        tokens = Tokens(source, source.clock)
        first = await first_of(tokens, source, age=3599)
        waiting = asyncio.create_task(tokens.get_token("scope"))
        while source.asked < 2:
            await one_turn()
        source.clock.advance(2)
        await asyncio.wait([waiting], timeout=0.1)
        assert not waiting.done()
        source.comes.set()
        assert (await waiting).expires_on > first.expires_on

    asyncio.run(story())


def test_a_new_token_is_used_though_the_clock_of_this_host_says_that_it_has_expired() -> None:
    source = Source(ManualClock())
    ahead = ManualClock()
    ahead.jump(2 * 3600.0)

    async def story() -> None:
        assert (await Tokens(source, ahead).get_token("scope")).token == "token"

    asyncio.run(story())


def test_requests_that_wait_for_a_token_fail_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(azure_credentials, "TOKEN_WITHIN", 0.01)
    source = Source(ManualClock())
    source.answers = False

    async def story() -> None:
        tokens = Tokens(source, source.clock)
        for _ in range(5):  # one after the other, as azure-core asks
            with pytest.raises(NoToken, match="no answer"):
                await tokens.get_token("scope")

    asyncio.run(story())
    assert source.asked == 1


def test_a_table_whose_connections_are_not_closed_well_closes_its_credential() -> None:
    closed = []

    class Watched(Failing):
        async def close(self) -> None:
            closed.append(self)

    class Stuck(AzureTransport):
        async def __aexit__(self, *_: object) -> None:
            raise asyncio.CancelledError

    async def story() -> None:
        clock, tokens = ManualClock(), Tokens(Watched(None))
        credential = Credential(who="me", proof=Proof.TOKEN, azure=tokens)
        table = AzureTable(azure_address(ANN), Stuck(clock), credential=credential)
        with pytest.raises(asyncio.CancelledError):
            await table.close()
        await table.close()

    asyncio.run(story())
    assert len(closed) == 1
