"""How requests go to an Azure table: counted, timed, each sent once.

The SDK's own retries are off (its policy repeats writes that may have been applied), so one
request here is one on the bill.
"""

import asyncio
import logging
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from azure.core.pipeline.transport import AioHttpTransport

from blackboard.clock import Clock
from blackboard.table import Requests
from blackboard.tables.azure_clock import StoreClock

CONNECT = 3.0
"""Seconds for a connection."""
COMMIT = 5.0
"""Seconds until a batch is answered: two renewals fit a lease of ten seconds."""
PAGE = 10.0
"""Seconds until a page, or anything else, is; the service cuts one short after five."""

logging.getLogger("azure").addHandler(logging.NullHandler())  # errors are told as what is raised


class Wire(AioHttpTransport):  # type: ignore[misc] # its module loads it lazily
    """The connections to one account."""

    def __init__(self, clock: Clock, **config: Any) -> None:
        super().__init__(connection_timeout=CONNECT, read_timeout=PAGE, **config)
        self.requests = Requests()
        self.store_clock = StoreClock(clock)
        self._clock = clock

    async def send(self, request: Any, **config: Any) -> Any:
        """One request, and what its reply says of the time."""
        is_commit = request.method == "POST" and _path(request).endswith("/$batch")
        self.requests.commits += is_commit
        self.requests.pages += request.method == "GET"
        self.requests.others += not is_commit and request.method != "GET"
        sent = self._clock.monotonic()
        async with asyncio.timeout(COMMIT if is_commit else PAGE):
            response = await super().send(request, **config)
        if is_of_the_service(response.headers):  # others have clocks of their own
            date = date_of(response.headers.get("Date", ""))
            if date is not None:
                self.store_clock.heard(date, sent=sent)
        return response


def is_of_the_service(headers: Mapping[str, str]) -> bool:
    """Whether it is the service that answers, and not something in between."""
    return "x-ms-request-id" in headers


def _path(request: Any) -> str:
    path: str = request.url.partition("?")[0]
    return path


def date_of(text: str) -> datetime | None:
    """The moment in a header, None when there is none to be read. A zone has to be named."""
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo else None
