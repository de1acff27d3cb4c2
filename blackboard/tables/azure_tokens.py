"""Tokens for an Azure table from azure-identity, whose failures are told apart from the table's.

Whoever gives tokens speaks HTTP too, so a failure of theirs comes with a response of its own, and
quotes what was in it. Here it becomes `NoToken`, which has no response and repeats no text.
"""

import asyncio
import re
from typing import Any

from azure.core.credentials import AccessToken
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import AzureError, ClientAuthenticationError

PATIENCE = 10.0
"""Seconds to wait for a token. `az` alone takes some; the request that waits for it starts its own
time when it is sent."""

_CODE_OF_THE_DIRECTORY = re.compile(r"\bAADSTS\d+\b")


class NoToken(ClientAuthenticationError):
    """Nobody gave a token; the table was not asked. `why` is "" when that is not known."""

    def __init__(self, why: str = "") -> None:
        super().__init__(message=why or "no token")
        self.why = why


class Tokens(AsyncTokenCredential):
    """`source`, as azure-data-tables' asynchronous client takes it. Raises NoToken alone."""

    def __init__(self, source: AsyncTokenCredential) -> None:
        self._source = source

    async def get_token(self, *scopes: str, **wanted: Any) -> AccessToken:
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._source.get_token(*scopes, **wanted)
        except TimeoutError:
            raise NoToken(f"no answer within {PATIENCE:g} s") from None
        except OSError as error:
            raise NoToken(error.strerror or "") from None
        except (AzureError, ValueError) as error:
            code = _CODE_OF_THE_DIRECTORY.search(str(error))
            raise NoToken(code[0] if code else "") from None

    async def close(self) -> None:
        await self._source.close()

    async def __aexit__(self, *_: object) -> None:
        await self.close()
