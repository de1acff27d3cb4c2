"""The store of the model: rows of one partition, and batches that are applied whole or not at all.

Every write but an insert states the etag that it expects, or ANY. An etag is never used twice: a
write with one that is gone never succeeds. The meaning of rows plays no part here.

Not modelled: time, pages, limits. Reading is looking at `Rows` at one moment.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

ANY = -1
"""The etag of whoever means to overwrite whatever is there."""
GONE = 0
"""Any etag that no row has any more, and none will have again."""

Key = tuple[Any, ...]
"""Family, item, and what else there is: ("next", 0, 7) is the token of item 0, ready at 7."""


class Row(NamedTuple):
    etag: int
    data: Any
    """A named tuple: its columns."""


Rows = tuple[tuple[Key, Row], ...]
"""In the order of their keys."""


class Insert(NamedTuple):
    """The key must be absent."""

    key: Key
    data: Any


class Merge(NamedTuple):
    """The row must be there with this etag; its columns are overlaid."""

    key: Key
    columns: tuple[tuple[str, Any], ...]
    etag: int


class Replace(NamedTuple):
    """The row must be there with this etag; its columns become exactly these."""

    key: Key
    data: Any
    etag: int


class Delete(NamedTuple):
    """The row must be there with this etag."""

    key: Key
    etag: int


Op = Insert | Merge | Replace | Delete
Batch = tuple[Op, ...]


class Applied(NamedTuple):
    rows: dict[Key, Row]
    etags: tuple[int, ...]
    """In the order of the batch; GONE for a delete."""
    drawn: int
    """The last etag that was drawn by now."""


class Refused(NamedTuple):
    """Nothing was applied."""

    for_ever: bool
    """Whether it always will be: it states an etag that is gone."""


def merge(key: Key, etag: int, **columns: Any) -> Merge:
    return Merge(key, tuple(columns.items()), etag)


def commit(
    before: Mapping[Key, Row], batch: Sequence[Op], *, drawn: int, anew: bool = False
) -> Applied | Refused:
    """`anew` is a store as nobody should write it: each row counts its versions, from 1 when it is
    inserted, so that an etag comes again.
    """
    rows, etags = dict(before), []
    assert len({op.key for op in batch}) == len(batch), "a row twice in one batch"
    for op in batch:
        old = rows.get(op.key)
        if isinstance(op, Insert):
            if old is not None:
                return Refused(for_ever=False)
        elif old is None or op.etag not in {ANY, old.etag}:
            return Refused(for_ever=op.etag != ANY and not anew)
        if isinstance(op, Delete):
            del rows[op.key]
            etags.append(GONE)
            continue
        drawn += 1
        etag = drawn if not anew else old.etag + 1 if old else 1
        if isinstance(op, Merge):
            assert old is not None
            rows[op.key] = Row(etag, old.data._replace(**dict(op.columns)))
        else:
            rows[op.key] = Row(etag, op.data)
        etags.append(etag)
    return Applied(rows, tuple(etags), drawn)
