"""Raw HTTP requests to the emulator, and its replies."""

import base64
import hmac
import json
import re
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.message import Message
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection
from uuid import uuid4

from blackboard.tables.azure_credentials import EMULATOR_KEY

ACCOUNT = "devstoreaccount1"


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Message
    body: bytes

    @property
    def date(self) -> datetime:
        return parsedate_to_datetime(self.headers["Date"])

    @property
    def etag(self) -> str:
        return self.headers["ETag"]

    @property
    def stamp(self) -> datetime:
        """The row's Timestamp, as its etag has it."""
        [text] = re.findall(r"datetime'(.*)'", self.etag.replace("%3A", ":"))
        return datetime.fromisoformat(text)

    @property
    def rows(self) -> list[dict[str, object]]:
        return list(json.loads(self.body)["value"])


@dataclass(frozen=True)
class Client:
    """A table of its own, in the emulator at a port."""

    port: int
    table: str = field(default_factory=lambda: f"test{uuid4().hex}")

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        at: datetime | str | None = None,
        **headers: str,
    ) -> Reply:
        """Sends a request. `at` is the time that the emulator takes for now."""
        resource = f"/{ACCOUNT}/{path}"
        signed = f"now\n/{ACCOUNT}{resource.partition('?')[0]}".encode()
        mac = hmac.digest(base64.b64decode(EMULATOR_KEY), signed, "sha256")
        sent = {
            "Accept": "application/json;odata=nometadata",
            "Authorization": f"SharedKeyLite {ACCOUNT}:{base64.b64encode(mac).decode()}",
            "Content-Type": "application/json",
            "x-ms-date": "now",
            "x-ms-version": "2019-02-02",
            **{name.replace("_", "-"): text for name, text in headers.items()},
        }
        if at is not None:
            sent["x-blackboard-clock"] = at if isinstance(at, str) else milliseconds(at)
        text = body if isinstance(body, str) else json.dumps(body) if body else None
        with closing(HTTPConnection("127.0.0.1", self.port)) as connection:
            connection.request(method, resource, text, sent)
            reply = connection.getresponse()
            return Reply(reply.status, reply.headers, reply.read())

    def make(self, *, at: datetime | None = None) -> Reply:
        return self.ask("POST", "Tables", {"TableName": self.table}, at=at)

    def insert(self, key: str = "row", *, at: datetime | None = None) -> Reply:
        row = {"PartitionKey": "all", "RowKey": key}
        return self.ask("POST", self.table, row, at=at, Prefer="return-no-content")

    def write(self, key: str = "row", *, at: datetime | None = None) -> Reply:
        """Insert or replace."""
        return self.ask("PUT", self._row(key), {"value": 1}, at=at)

    def batch(self, *keys: str, at: datetime | None = None) -> Reply:
        """Insert rows, all or nothing."""
        parts = [
            "--batch_1\nContent-Type: multipart/mixed; boundary=changeset_1\n\n",
            *(
                "--changeset_1\nContent-Type: application/http\n"
                "Content-Transfer-Encoding: binary\n\n"
                f"POST http://127.0.0.1/{ACCOUNT}/{self.table} HTTP/1.1\n"
                "Content-Type: application/json\nAccept: application/json;odata=nometadata\n"
                "Prefer: return-no-content\nDataServiceVersion: 3.0\n\n"
                f"{json.dumps({'PartitionKey': 'all', 'RowKey': key})}\n"
                for key in keys
            ),
            "--changeset_1--\n--batch_1--\n",
        ]
        text = "".join(parts).replace("\n", "\r\n")
        kind = "multipart/mixed; boundary=batch_1"
        return self.ask("POST", "$batch", text, at=at, Content_Type=kind)

    def read(self, key: str = "row", *, at: datetime | None = None) -> Reply:
        return self.ask("GET", self._row(key), at=at)

    def delete(self, key: str = "row", *, at: datetime | None = None) -> Reply:
        return self.ask("DELETE", self._row(key), at=at, If_Match="*")

    def page(self, *, at: datetime | None = None) -> Reply:
        return self.ask("GET", f"{self.table}()", at=at)

    def _row(self, key: str) -> str:
        return f"{self.table}(PartitionKey='all',RowKey='{key}')"


def milliseconds(moment: datetime) -> str:
    return str((moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1))
