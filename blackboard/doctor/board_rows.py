"""What is wrong with the rows beside the items: of the board itself and its groups, of workers,
permits, notices, actions and mail.

A row is judged by itself alone, so reading it once is enough. The findings have the codes of
`diagnosis.py`: a row that cannot be read (D7), a permit that is held for longer than any lease
(D8), a key of an unknown kind, or one that does not fit its row (D9), and a row of a newer version
(D10).

A finding is grave where something does not work because of it: a type waits for a permit, a group
is not shown, nothing can be added. A repair deletes, under its etag, a row that cannot be read and
is not needed: a worker, notices and counts are written anew, a permit is free once it is older than
two leases, mail is deleted unread anyway. Rows of a newer version, those of unknown kinds, actions,
groups, the floor and the row of the board are left to people.
"""

import math
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime

from msgspec import Struct

from blackboard.doctor.cases import Examination
from blackboard.doctor.diagnosis import NEWER, Finding, Unreadable, judged_in, newer_words
from blackboard.errors import BadRow
from blackboard.model import LONG_AGO, VERSION, Action, Member, Message, Permit, Statistics, replace
from blackboard.notify.notice_rows import ACCEPTED, HANDOVER, SENDING, UNSENT, notice_row_of
from blackboard.notify.settings import NoticeKind
from blackboard.phrases import plural, since, span
from blackboard.protocol import keys
from blackboard.protocol.board_row import is_good
from blackboard.protocol.board_table import BoardTable, fence_of, paged
from blackboard.protocol.groups import is_group, wrong_columns
from blackboard.protocol.permits import LEASE, permit_in
from blackboard.protocol.rows import version_of
from blackboard.table import Delete, Row, try_delete

MOST_NAMED = 100
"""Rows of one partition that are reported one by one, at most."""
NO_BOARD = (
    "no program opens the board (write into its column `shards` the number that the board was made "
    "with)"
)


class Kind(Struct, frozen=True, kw_only=True):
    """A kind of row: how it is checked, and what it means if a row is bad."""

    check: Callable[[BoardTable, Row], object]
    """Raises Unreadable and BadRow."""
    means: str
    is_grave: Callable[[BoardTable, Row], bool] = lambda _board, _row: False
    """Whether something does not work because of a bad row."""
    may_go_after: float = math.inf
    """Seconds without a change after which a bad row may be deleted."""
    newer: str = "it is left to programs of that version"
    """What it means that a newer version wrote a row."""
    is_waited_for: float = math.inf
    """Seconds without a change after which a row of a newer version is grave."""


# ---- the kinds


def _check_key(row: Row, *good: str) -> None:
    """Raises Unreadable unless the key of a row is one of these; or begins with one of them that
    ends with a colon.
    """
    if not any(row.key == key or (key[-1] == ":" and row.key.startswith(key)) for key in good):
        raise Unreadable("D9", "its key does not match its columns")


def _check_columns(row: Row, wrong: Mapping[str, bool]) -> None:
    if any(wrong.values()):
        raise BadRow(row.key, f"no good {', '.join(name for name, bad in wrong.items() if bad)}")


def _check_board(board: BoardTable, row: Row) -> None:
    shards = row.data.get("shards")
    _check_columns(row, {"version": version_of(row.data) < 1, "shards": not is_good(shards)})
    if shards != board.shards:
        raise BadRow(row.key, f"says shards: {shards}, and the board has {board.shards}")


def _check_group(_: BoardTable, row: Row) -> None:
    if not is_group(row):
        raise Unreadable("D9", "its key has no name that a group can have")
    if wrong := wrong_columns(row):
        raise BadRow(row.key, f"no good {', '.join(wrong)}")


def _hides_a_group(_: BoardTable, row: Row) -> bool:
    """Whether a group is not shown because of its row."""
    return not is_group(row) or row.data.get("kind") != "pump"


def _check_permit(board: BoardTable, row: Row) -> None:
    permit, age = judged_in(Permit, row), board.table.age(row)
    _check_key(row, keys.permit_key(permit.type, permit.value, permit.number))
    if permit_in(board, row).permit is None:
        raise BadRow(row.key, "no good stale_after")
    if 2 * LEASE < age <= permit.stale_after:
        problem = f"is good for {span(permit.stale_after)}, and was not renewed {since(age)}"
        raise Unreadable("D8", problem)


def _check_notice(board: BoardTable, row: Row) -> None:
    notice = notice_row_of(board, row)
    wrong = {
        "item": not notice.id,
        "at": notice.at == LONG_AGO,
        "state": row.data.get("state") not in {SENDING, ACCEPTED, UNSENT},
    }
    _check_columns(row, wrong)
    _check_key(row, *(keys.notice_key(notice.id, kind.value) for kind in NoticeKind))


def _check_looked(_: BoardTable, row: Row) -> None:
    if not isinstance(row.data.get("at"), datetime):
        raise BadRow(row.key, "no good at")


Kinds = Mapping[str, Kind]
"""Kinds by the key of their row, or by the beginning of their keys, which ends with a colon."""
META: Kinds = {
    keys.BOARD_KEY: Kind(
        check=_check_board,
        means=NO_BOARD,
        is_grave=lambda _board, _row: True,
        newer="no program of this version opens the board (upgrade blackboard)",
        is_waited_for=0.0,
    ),
    keys.FLOOR_KEY: Kind(
        check=lambda _, row: fence_of(row),
        means="nothing can be added before it has the highest fence of all (write into its column "
        "`fence` a number that is above every fence that was ever used)",
        is_grave=lambda _board, _row: True,
    ),
    keys.STATS_KEY: Kind(
        check=lambda _, row: judged_in(Statistics, row),
        means="the counts are not shown, and items are counted instead; the coordinator writes "
        "them anew",
        may_go_after=0.0,
    ),
    keys.GROUP: Kind(
        check=_check_group,
        means="`leases` and `check` do not show the group as it is (a worker of the group that "
        "starts writes its row anew; delete one that has no good name)",
        is_grave=_hides_a_group,
    ),
}
WORKERS: Kinds = {
    keys.WORKER: Kind(
        check=lambda _, row: judged_in(Member, row),
        means="the worker is not seen; one that lives writes its row anew within a minute",
        may_go_after=0.0,
    )
}
PERMITS: Kinds = {
    keys.PERMIT: Kind(
        check=_check_permit,
        means="it counts as a run of its type until it is as old as its lease, a minute where that "
        "cannot be read (`blackboard doctor --repair` deletes it after two minutes)",
        is_grave=lambda board, row: not permit_in(board, row).is_stale,
        may_go_after=2 * LEASE,
        newer="it counts as a run of its type until its worker gives it back, or for a day",
        is_waited_for=LEASE,
    )
}
NOTICES: Kinds = {
    keys.NOTICE: Kind(
        check=_check_notice,
        means="what it says was sent counts as not sent, and is sent once more",
        may_go_after=0.0,
    ),
    keys.NOTICES_LOOKED: Kind(
        check=_check_looked,
        means="the next worker writes it anew",
        may_go_after=0.0,
        newer="no worker of this version sends what is not sent (upgrade blackboard, or delete "
        "the row)",
        is_waited_for=2 * HANDOVER,
    ),
}
ACTIONS: Kinds = {
    keys.ACTION: Kind(
        check=lambda _, row: _check_key(row, keys.action_key(judged_in(Action, row).at, "")),
        means="`log --actions` leaves it out; the coordinator deletes it with those of its age",
    )
}
MAIL: Kinds = {
    keys.MAIL: Kind(
        check=lambda _, row: _check_key(row, keys.mail_range(judged_in(Message, row).to)[0]),
        means="the candidate that it is for deletes it unread",
        may_go_after=0.0,
        newer="a candidate of this version deletes it unread",
    )
}


def partitions_of(board: BoardTable, *, quick: bool) -> Mapping[str, Kinds]:
    """The partitions of a board beside its shards, and the kinds of rows in each."""
    name = board.name
    if quick:
        return {keys.meta_partition(name): META}
    partitions = {
        keys.meta_partition(name): META,
        keys.workers_partition(name): WORKERS,
        keys.actions_partition(name): ACTIONS,
    }
    group = keys.group_of(name)
    if not group:
        partitions[keys.permits_partition(name)] = PERMITS
        partitions[keys.notices_partition(name)] = NOTICES
    elif group == keys.LEADERS:
        partitions[keys.mail_partition(name)] = MAIL
    return partitions


# ---- reading them


async def examine_others(board: BoardTable, request: Examination, *, of: str) -> list[Finding]:
    """What is wrong with the rows of a board other than those of items. `of` stands before the keys
    of rows in the partition of the board's own row. Where many rows of a partition are bad, those
    after the first `MOST_NAMED` are only counted.
    """
    findings = list[Finding]()
    for partition, kinds in partitions_of(board, quick=request.quick).items():
        place = of if kinds is META else f"{partition} "
        bad = [bad_row async for bad_row in _bad_rows(board, partition, kinds, request)]
        named, others = bad[:MOST_NAMED], bad[MOST_NAMED:]
        findings += [replace(bad_row, subject=f"{place}{bad_row.subject}") for bad_row in named]
        if others:
            finding = Finding(
                code="D7",
                subject=partition,
                problem=f"{plural(len(others), 'more row')} of it cannot be used",
                grave=any(other.grave and not other.repaired for other in others),
                repaired=all(other.repaired for other in others),
            )
            findings.append(finding)
    return findings


async def _bad_rows(
    board: BoardTable, partition: str, kinds: Kinds, request: Examination
) -> AsyncIterator[Finding]:
    """The findings about the rows of a partition. A repair deletes a row where that is safe."""
    async for row in paged(board.table.scan(partition), request.pause):
        family, colon, _ = row.key.partition(":")
        kind = kinds.get(f"{family}{colon}")
        if kind is None:
            problem = f"no row of {partition} has such a key: nothing reads it (delete it)"
            yield Finding(code="D9", subject=row.key, problem=problem, grave=False)
            continue
        finding, age = _judged(board, kind, row), board.table.age(row)
        if finding is None:
            continue
        if request.repair and finding.code != NEWER and age >= kind.may_go_after:
            is_gone = await try_delete(board.table, partition, [Delete(row.key, row.etag)])
            finding = replace(finding, repaired=bool(is_gone))
        yield finding


def _judged(board: BoardTable, kind: Kind, row: Row) -> Finding | None:
    """What is wrong with a row, and what it means; None: nothing."""
    age = board.table.age(row)
    if (version := version_of(row.data)) > VERSION:
        problem = f"{newer_words(version)}: {kind.newer}"
        is_grave = age >= kind.is_waited_for
        return Finding(code=NEWER, subject=row.key, problem=problem, grave=is_grave)
    try:
        kind.check(board, row)
    except Unreadable as trouble:
        code, problem = trouble.code, trouble.problem
    except BadRow as bad:
        code, problem = "D7", bad.problem
    else:
        return None
    is_grave = kind.is_grave(board, row)
    return Finding(code=code, subject=row.key, problem=f"{problem}: {kind.means}", grave=is_grave)
