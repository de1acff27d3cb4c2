"""The keys of rows, and how they sort.

Families in a shard's partition, in the order they sort: `item:`, `lock:`, `next:`, `run:`. `lock:`
and `next:` are neighbours on purpose: one range query returns every lock that could be stale and
every token that is due, the most overdue first. Only the row `maintenance` sorts between them, so
that a walk finds it without another request. The rows of workers and the board's own row are in
partitions of their own.
"""

import hashlib
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from blackboard.errors import BadInput
from blackboard.model import EPOCH, HIGHEST_FLOOR, LARGEST

ITEM, LOCK, NEXT, RUN, WORKER = "item:", "lock:", "next:", "run:", "worker:"
NOTICES_LOOKED = "looked"
"""The key of the row that says when a worker last looked after the notices."""
NOTICE, MAIL, PERMIT, ACTION = "notice:", "mail:", "permit:", "action:"
GROUP = "group:"
MAINTENANCE = "maintenance"
"""The key of the row that each shard of a paused board has."""
LEADERS = "leaders"
"""The name of the group whose board has the elections."""
BOARD_KEY, STATS_KEY, FLOOR_KEY = "board", "stats", "floor"
"""The keys of rows in the partition of the board's own row."""
_MILLISECONDS = 10**15
_LONGEST, _CUT = 160, 120
_BOARD_NAME = re.compile(r"[A-Za-z0-9_]{1,60}(\.[A-Za-z0-9_]{1,60})?")
_GROUP_NAME = re.compile(r"[A-Za-z0-9_]{1,60}")
NAME = "up to 60 letters, digits and _"
"""What a name is."""
_NEXT_MOMENT = re.compile(r"next:([0-9]{8}T[0-9]{6}\.[0-9]{3}Z):")
_SAFE = re.compile(rf"[A-Za-z0-9._-]{{0,{_LONGEST}}}")
_UNSAFE = re.compile(rb"[^A-Za-z0-9._-]")


@lru_cache(maxsize=4096)
def encode_id(text: str) -> str:
    """Any text as a key part: safe characters as they are, others `=XX` of their UTF-8 bytes;
    above 160 characters the first 120, `=~` and 32 hexadecimal digits of the SHA-256.

    Two texts never share a key part: `=~` comes from nothing else, and the digests of long ones
    differ. An id cannot be read back from a long key part, so every row has the id in a column.
    """
    if _SAFE.fullmatch(text):
        return text
    raw = text.encode("utf-8", "surrogatepass")
    safe = _safe(raw)
    if len(safe) <= _LONGEST:
        return safe
    return f"{safe[:_CUT]}=~{hashlib.sha256(raw).hexdigest()[:32]}"


def _safe(raw: bytes) -> str:
    return _UNSAFE.sub(lambda match: b"=%02X" % ord(match[0]), raw).decode("ascii")


@lru_cache(maxsize=1024)
def moment_key(moment: datetime) -> str:
    """A time as text of fixed width that sorts by time: 20261121T090000.000Z."""
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace("-", "").replace(":", "")[:19] + "Z"


def item_key(item_id: str) -> str:
    return ITEM + encode_id(item_id)


def items_range(beginning: str) -> tuple[str, str]:
    """The range of the items whose ids begin so: nothing in a key part sorts after a tilde."""
    if not beginning:
        return ITEM, end_of(ITEM)
    first = ITEM + _safe(beginning.encode("utf-8", "surrogatepass"))[:_CUT]
    return first, f"{first}~"


def lock_key(item_id: str) -> str:
    return LOCK + encode_id(item_id)


def next_key(ready: datetime, item_id: str) -> str:
    return f"{NEXT}{moment_key(ready)}:{encode_id(item_id)}"


def is_next_key(key: str, ready: datetime, item_id: str) -> bool:
    """Whether `next_key` makes this key. Workers read many, and a time is read in a tenth of the
    time in which it is written.
    """
    match = _NEXT_MOMENT.match(key)
    try:
        if match and datetime.fromisoformat(match[1]) == ready:
            return key[match.end() :] == encode_id(item_id)
    except ValueError:
        return False  # such as the 30th of February
    return key == next_key(ready, item_id)


def next_until(moment: datetime) -> str:
    """The end of the range of tokens that are ready at `moment` or before."""
    return f"{NEXT}{moment_key(moment)};"


def end_of(family: str) -> str:
    """The end of the range of a family's keys: nothing sorts between a colon and a semicolon."""
    return family[:-1] + ";"


def _range(part: str) -> tuple[str, str]:
    """The range of all keys that begin with this part and a colon."""
    return f"{part}:", f"{part};"


def run_key(item_id: str, fence: int) -> str:
    """There is one row for each fence; the newest sorts first."""
    return f"{RUN}{encode_id(item_id)}:{LARGEST + 1 - fence:012d}"


def fence_in(key: str) -> int | None:
    """The fence of a run by its key; None where the key has none that a run can have."""
    digits = key.rpartition(":")[2]
    fence = LARGEST + 1 - int(digits) if re.fullmatch("[0-9]{12}", digits) else -1
    return fence if 0 <= fence < HIGHEST_FLOOR else None


def runs_range(item_id: str) -> tuple[str, str]:
    return _range(RUN + encode_id(item_id))


def worker_key(owner: str) -> str:
    return WORKER + encode_id(owner)


def notice_key(item_id: str, kind: str) -> str:
    return f"{notices_range(item_id)[0]}{kind}"


def notices_range(item_id: str) -> tuple[str, str]:
    return _range(NOTICE + encode_id(item_id))


def permit_key(item_type: str, value: str, number: int) -> str:
    return f"{permits_range(item_type, value)[0]}{number:05d}"


def permits_range(item_type: str, value: str) -> tuple[str, str]:
    """The range of the permits of a type, for one value of the param that counts its runs."""
    return _range(f"{PERMIT}{encode_id(item_type)}:{encode_id(value)}")


def mail_key(to: str, sent: datetime, nonce: str) -> str:
    return f"{MAIL}{encode_id(to)}:{moment_key(sent)}:{nonce}"


def mail_range(to: str) -> tuple[str, str]:
    """The range of all messages to a candidate, the oldest first."""
    return _range(MAIL + encode_id(to))


def action_key(at: datetime, nonce: str) -> str:
    """The newest action sorts first."""
    return f"{ACTION}{_backwards(at)}:{nonce}"


def actions_before(moment: datetime) -> tuple[str, str]:
    """The range of all actions before a moment, the newest first."""
    return f"{ACTION}{_backwards(moment)};", end_of(ACTION)


def _backwards(moment: datetime) -> str:
    """A time as text of fixed width; a later time sorts first. All times up to 1970 are one."""
    passed = max((moment - EPOCH) // timedelta(milliseconds=1), 1)
    return f"{_MILLISECONDS - passed:015d}"


@lru_cache(maxsize=65_536)
def shard_of(item_id: str, shards: int) -> int:
    """The shard that an id hashes to; it never changes."""
    digest = hashlib.sha256(item_id.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % shards


def partition(board: str, shard: int, shards: int) -> str:
    return board if shards == 1 else f"{board}-{shard:02d}"


def meta_partition(board: str) -> str:
    return f"{board}-meta"


def workers_partition(board: str) -> str:
    return f"{board}-workers"


def notices_partition(board: str) -> str:
    return f"{board}-notices"


def permits_partition(board: str) -> str:
    return f"{board}-permits"


def mail_partition(board: str) -> str:
    return f"{board}-mail"


def actions_partition(board: str) -> str:
    return f"{board}-actions"


def group_key(group: str) -> str:
    """The key of a group's row, in the partition of the board's own row."""
    return GROUP + group


def group_board(board: str, group: str) -> str:
    """The name of the board whose items are the partitions of a group."""
    return f"{board}.{group}"


def leaders_board(board: str) -> str:
    """The name of the board that has the elections of a board."""
    return group_board(board, LEADERS)


def group_of(board: str) -> str:
    """The name of the group whose board has this name, LEADERS for that of the elections; "" for a
    board that belongs to no other, and may have groups and elections itself.
    """
    return board.partition(".")[2]


def owner_of(board: str) -> str:
    """The name of the board whose group, or elections, the board of this name has."""
    return board.partition(".")[0]


def check_group_name(name: str) -> str:
    """Returns the name of a group, the second part of its board's name. Raises BadInput."""
    if not isinstance(name, str) or not _GROUP_NAME.fullmatch(name):
        raise BadInput("group", f"{name!r} is not a name for a group", NAME)
    if name == LEADERS:
        raise BadInput("group", f"{name!r} has the elections of a board", "another name")
    return name


def check_board_name(name: str) -> str:
    """Returns the name of a board. It has no dash, which separates the board from the number of a
    shard; a name with a dot is of a group's board. Raises BadInput.
    """
    if not _BOARD_NAME.fullmatch(name):
        raise BadInput("board", f"{name[:100]!r} is not a name for a board", NAME)
    return name


def check_own_board(name: str) -> None:
    """Raises BadInput for the board of a group or of elections. Workers and candidates make it, and
    it has no groups or elections itself.
    """
    if group := group_of(name):
        owner = owner_of(name)
        problem = f"{name} has the partitions of the pump {group}, which workers of {owner} make"
        if group == LEADERS:
            problem = f"{name} has the elections of {owner}, which candidates make"
        raise BadInput("board", problem, f"name {owner}")
