"""What sorts where: the keys of rows."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blackboard.errors import BadInput
from blackboard.protocol import keys
from blackboard.rules.next_run import phase

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
MS = timedelta(milliseconds=1)
LONG = "x" * 160

any_text = st.text(st.characters(exclude_categories=()), max_size=200)
moments = st.datetimes(timezones=st.just(UTC))


@pytest.mark.case("HK01")
@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("davis", "davis"),
        ("", ""),
        ("..", ".."),
        ("a_b-c.9", "a_b-c.9"),
        ("a b", "a=20b"),
        ("/\\#?%", "=2F=5C=23=3F=25"),
        ("%2f", "=252f"),
        ("it's", "it=27s"),
        ("=41", "=3D41"),
        ("a:b;c", "a=3Ab=3Bc"),
        ("\0\n", "=00=0A"),
        ("é", "=C3=A9"),
        ("\ud800", "=ED=A0=80"),
        (LONG, LONG),
    ],
)
def test_hk01_any_text_is_a_key_part(text: str, part: str) -> None:
    assert keys.encode_id(text) == part


@given(any_text)
def test_a_key_part_is_short_and_holds_safe_characters_alone(text: str) -> None:
    part = keys.encode_id(text)
    assert len(part) <= 160
    assert not set(part) - set(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-=~"
    )


@pytest.mark.case("HK01")
@given(any_text, any_text)
def test_two_ids_never_share_a_key_part(one: str, other: str) -> None:
    assert (keys.encode_id(one) == keys.encode_id(other)) == (one == other)


@given(any_text, any_text)
def test_the_keys_of_all_ids_with_one_beginning_are_a_range(beginning: str, rest: str) -> None:
    first, last = keys.items_range(beginning)
    assert first <= keys.item_key(beginning + rest) < last
    is_beyond = not first <= keys.item_key(rest) < last
    assert is_beyond or rest.startswith(beginning) or len(first) > 120


def test_long_ids_are_told_apart_by_their_digest() -> None:
    parts = {keys.encode_id(LONG + end) for end in ("a", "b", "aa", "=~")}
    assert len(parts) == 4
    assert all(part.startswith("x" * 120 + "=~") for part in parts)
    assert all(len(part) == 154 for part in parts)
    assert keys.encode_id("😀" * 40) != keys.encode_id("😀" * 41)


@given(moments, moments)
def test_times_sort_as_they_pass(one: datetime, other: datetime) -> None:
    first, second = keys.moment_key(one), keys.moment_key(other)
    assert len(first) == len("20261121T120000.000Z") == len(second)
    one_ms, other_ms = (
        at.replace(microsecond=at.microsecond // 1000 * 1000) for at in (one, other)
    )
    assert (first < second) == (one_ms < other_ms)


def test_times_are_written_in_utc() -> None:
    there = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert keys.moment_key(there) == keys.moment_key(NOON) == "20261121T120000.000Z"


def test_families_sort_so_that_one_range_holds_all_locks_and_due_tokens() -> None:
    rows = [
        keys.run_key("a", 1),
        keys.next_key(NOON + MS, "a"),
        keys.next_key(NOON, "b"),
        keys.next_key(NOON - MS, "c"),
        keys.lock_key("z"),
        keys.lock_key(""),
        keys.item_key("zzz"),
    ]
    found = [row for row in sorted(rows) if keys.LOCK <= row < keys.next_until(NOON)]
    assert found == [
        keys.lock_key(""),
        keys.lock_key("z"),
        keys.next_key(NOON - MS, "c"),
        keys.next_key(NOON, "b"),
    ]


@pytest.mark.case("HK03")
@given(any_text, any_text, st.integers(1, 10**9))
def test_the_range_of_an_items_runs_holds_its_runs_alone(one: str, other: str, fence: int) -> None:
    first, last = keys.runs_range(one)
    assert first <= keys.run_key(one, fence) < last
    assert (first <= keys.run_key(other, fence) < last) == (one == other)


def test_runs_sort_the_newest_first() -> None:
    fences = [1, 2, 9, 10, 99, 100, 12_345_678]
    assert sorted(fences, key=lambda fence: keys.run_key("a", fence)) == fences[::-1]


@given(any_text, st.integers(1, 100))
def test_an_id_has_one_shard_and_one_phase(text: str, shards: int) -> None:
    assert 0 <= keys.shard_of(text, shards) < shards
    assert 0.0 <= phase(text) < 1.0


def test_messages_sort_by_their_recipient_and_as_they_were_sent() -> None:
    first, last = keys.mail_range("host:1:ab")
    sent = [keys.mail_key("host:1:ab", NOON + n * MS, "f0") for n in range(3)]
    others = [keys.mail_key(to, NOON, "f0") for to in ("host:1:a", "host:1:abc", "host:1:ab:c")]
    assert sent == sorted(sent)
    assert all(first <= key < last for key in sent)
    assert not any(first <= key < last for key in others)


@pytest.mark.parametrize("name", ["leaders", "a.b", "", "a-b"])
def test_names_that_no_group_of_partitions_has(name: str) -> None:
    with pytest.raises(BadInput) as refused:
        keys.check_group_name(name)
    assert refused.value.field == "group"
    assert keys.check_group_name("clicks") == "clicks"


def test_shards_and_phases_spread_evenly_and_never_change() -> None:
    counts = [0] * 4
    for n in range(4000):
        counts[keys.shard_of(f"item-{n}", 4)] += 1
    assert all(900 < count < 1100 for count in counts)
    assert 0.45 < sum(phase(f"item-{n}") for n in range(4000)) / 4000 < 0.55
    assert [keys.shard_of(name, 16) for name in ("davis", "montclair", "")] == [0, 13, 4]


@pytest.mark.parametrize(
    ("shard", "shards", "name"), [(0, 1, "town"), (0, 16, "town-00"), (15, 16, "town-15")]
)
def test_partitions_of_a_board(shard: int, shards: int, name: str) -> None:
    assert keys.partition("town", shard, shards) == name


def test_other_partitions_of_a_board_hold_nothing_of_its_items() -> None:
    names = {keys.partition("town", n, 100) for n in range(100)} | {keys.partition("town", 0, 1)}
    assert {keys.meta_partition("town"), keys.workers_partition("town")}.isdisjoint(names)
    assert keys.worker_key("host:1:ab") == "worker:host=3A1=3Aab"


@pytest.mark.parametrize("name", ["a", "blackboard", "Town_2", "x" * 60, "town.clicks"])
def test_names_of_boards(name: str) -> None:
    assert keys.check_board_name(name) == name


@pytest.mark.case("HK03")
@pytest.mark.parametrize(
    "name", ["", "a-b", "a b", "é", "x" * 61, "a\n", "a/b", "a.", ".a", "a.b.c"]
)
def test_hk03_a_board_name_keeps_clear_of_the_dash_that_sets_shards_apart(name: str) -> None:
    with pytest.raises(BadInput) as refused:
        keys.check_board_name(name)
    assert refused.value.field == "board"
