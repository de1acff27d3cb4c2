"""The statement that writes batches of rows, in a transaction of its own.

While a process writes, all others that use the file wait. Python lets other threads run at each
statement of a transaction, and the transaction waits until they let it go on: up to 5 ms each time
where coroutines compute, half a second for a batch of 300 rows. So one statement writes all rows:
it inserts them into a view, and triggers do with each what is asked for. The first row that is not
as expected ends the statement, and nothing is written.

View and triggers are the connection's own (TEMP); in the file there are only tables.
"""

import sqlite3
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

from blackboard.table import Delete, Insert, Merge, Op, Replace
from blackboard.tables.base import MAX_FIELDS, SURELY_FITS, SURELY_SMALL

_LEAST = 4
_REVISION = "Revision"
_FOUND = "part = new.part AND key = new.key AND (etag = new.expected OR new.expected = '*')"
_SET_UP = f"""
PRAGMA temp_store = MEMORY;

CREATE TEMP VIEW writes (boot, touched, action, part, key, expected, etag, data)
AS VALUES (0, 0, 0, 0, 0, 0, 0, 0);

CREATE TEMP TRIGGER write_insert INSTEAD OF INSERT ON writes
WHEN new.action = '{Insert.__name__}' BEGIN
    INSERT INTO rows VALUES (new.part, new.key, new.etag, new.boot, new.touched, new.data);
END;

CREATE TEMP TRIGGER write_merge INSTEAD OF INSERT ON writes
WHEN new.action = '{Merge.__name__}' BEGIN
    UPDATE rows SET etag = new.etag, boot = new.boot, touched = new.touched,
        data = json_patch(data, new.data)
    WHERE {_FOUND} AND typeof(data) = 'text' AND substr(data, 1, 1) = '{{'
    AND (length(data) + length(new.data) <= {SURELY_FITS} OR (
        length(data) + length(new.data) <= {SURELY_SMALL}
        AND (SELECT count(*) FROM json_each(data)) + (SELECT count(*) FROM json_each(new.data))
            <= {MAX_FIELDS}
    ));
    SELECT RAISE(ABORT, 'not as expected') WHERE changes() = 0;
END;

CREATE TEMP TRIGGER write_replace INSTEAD OF INSERT ON writes
WHEN new.action = '{Replace.__name__}' BEGIN
    UPDATE rows SET etag = new.etag, boot = new.boot, touched = new.touched, data = new.data
    WHERE {_FOUND};
    SELECT RAISE(ABORT, 'not as expected') WHERE changes() = 0;
END;

CREATE TEMP TRIGGER write_delete INSTEAD OF INSERT ON writes
WHEN new.action = '{Delete.__name__}' BEGIN
    DELETE FROM rows WHERE {_FOUND};
    SELECT RAISE(ABORT, 'not as expected') WHERE changes() = 0;
END;

CREATE TEMP TRIGGER write_revision INSTEAD OF INSERT ON writes
WHEN new.action = '{_REVISION}' BEGIN
    UPDATE revision SET etag = new.etag;
END;
"""  # noqa: S608 - made of constants
_INSERT = "INSERT INTO writes SELECT ?, ?, * FROM (VALUES {})"


Write = tuple[str | None, str | None, str | None, str | None, int | None, str | None]
"""A row of the view, without the stamp, which all rows of a statement share. Its data is all of a
row's, or what is merged into them."""
_NOTHING: Write = (None, None, None, None, None, None)


def set_up(connection: sqlite3.Connection) -> None:
    """Makes the view and its triggers."""
    connection.executescript(_SET_UP)


def write_of(op: Op, partition: str, etag: int, text: str) -> Write:
    """What an operation of a batch writes."""
    expected = None if isinstance(op, Insert) else op.etag
    return type(op).__name__, partition, op.key, expected, etag, text


def statement(writes: Sequence[Write], revision: int) -> tuple[str, list[Any]]:
    """The statement, and its values but for the first two: the boot and the time of the stamp.
    Raises IntegrityError where a row is not as expected or, merged, may break a limit of rows;
    OperationalError where the row to be merged into is damaged.
    """
    size = _size(len(writes) + 1)
    last: Write = (_REVISION, None, None, None, revision, None)
    nothing = [_NOTHING] * (size - len(writes) - 1)
    return _insert(size), list(chain(*writes, last, *nothing))


def _size(count: int) -> int:
    """The least of a few sizes: each needs a statement, which SQLite compiles once."""
    step = max(_LEAST, (1 << count.bit_length()) // 16)
    return -(-count // step) * step


@cache
def _insert(size: int) -> str:
    return _INSERT.format(", ".join(["(?, ?, ?, ?, ?, ?)"] * size))
