"""Ranges, order, pages."""

from blackboard.table import ANY, Delete, Insert, Row, Table, read
from tests.support.stores import Run, rows_of

P = "town"
KEYS = ["item:a", "item:b", "lock:a", "next:1:a", "next:2:b", "next:2:b2", "run:a:1"]


async def fill(table: Table, keys: list[str]) -> None:
    for start in range(0, len(keys), 100):
        await table.commit(P, [Insert(key, {"n": 1}) for key in keys[start : start + 100]])


def keys_of(rows: list[Row]) -> list[str]:
    return [row.key for row in rows]


RANGES: dict[str, tuple[str, str | None, int | None, list[str]]] = {
    "everything": ("", None, None, KEYS),
    "a family": ("next:", "next;", None, KEYS[3:6]),
    "two neighbours": ("lock:", "next:2;", None, KEYS[2:6]),
    "the first belongs to it": ("next:2:b", None, None, KEYS[4:]),
    "the last does not": ("lock:a", "next:2:b", None, KEYS[2:4]),
    "the end is open": ("next:2:b2", None, None, KEYS[5:]),
    "nothing between": ("m", "n", None, []),
    "nothing behind": ("z", None, None, []),
    "backwards": ("z", "a", None, []),
    "the same twice": ("lock:a", "lock:a", None, []),
    "some": ("", None, 3, KEYS[:3]),
    "some of a family": ("next:", "next;", 2, KEYS[3:5]),
    "more than there are": ("", None, 99, KEYS),
    "exactly as many": ("", None, len(KEYS), KEYS),
    "none": ("", None, 0, []),
}


def test_a_range_is_read_in_key_order(table: Table, run: Run) -> None:
    run(fill(table, sorted(KEYS, key=lambda key: key[::-1])))
    for name, (first, last, limit, expected) in RANGES.items():
        assert keys_of(run(rows_of(table, P, first, last, limit))) == expected, name


def test_keys_sort_by_code_point(table: Table, run: Run) -> None:
    keys = ["a", "B", "a-", "a:", "a=", "a~", "a_", "a1", "a10", "a2", "Z", "ab", "aB"]
    run(fill(table, keys))
    assert keys_of(run(rows_of(table, P))) == sorted(keys)


def test_many_rows_come_in_pages_each_once(table: Table, run: Run) -> None:
    keys = [f"k{number:05}" for number in range(2_500)]
    run(fill(table, keys))
    assert keys_of(run(rows_of(table, P))) == keys
    assert keys_of(run(rows_of(table, P, "k00100", "k02400"))) == keys[100:2400]
    assert keys_of(run(rows_of(table, P, "", None, 1_500))) == keys[:1500]
    assert keys_of(run(rows_of(table, P, "", None, 2_000))) == keys[:2000]


def test_a_full_last_page_ends_the_range(table: Table, run: Run) -> None:
    keys = [f"k{number:05}" for number in range(2_000)]
    run(fill(table, keys))
    assert keys_of(run(rows_of(table, P))) == keys


def test_rows_that_come_and_go_meanwhile_disturb_no_others(table: Table, run: Run) -> None:
    keys = [f"k{number:05}" for number in range(0, 5_000, 2)]
    run(fill(table, keys))

    async def walk() -> list[str]:
        seen = []
        async for row in table.scan(P):
            seen.append(row.key)
            if row.key == "k01000":
                await table.commit(
                    P,
                    [
                        Insert("k00001", {"n": 2}),
                        Insert("k04001", {"n": 2}),
                        Delete("k04000", ANY),
                        Delete("k00000", ANY),
                    ],
                )
        return seen

    expected = sorted({*keys, "k04001"} - {"k04000"})
    assert run(walk()) == expected


def test_a_reader_may_stop_at_any_row(table: Table, run: Run) -> None:
    run(fill(table, [f"k{number:05}" for number in range(1_200)]))

    async def first_two() -> list[str]:
        seen: list[str] = []
        async for row in table.scan(P):
            seen.append(row.key)
            if len(seen) == 2:
                break
        return seen

    assert run(first_two()) == ["k00000", "k00001"]
    assert len(run(rows_of(table, P))) == 1_200


def test_one_row_is_found_among_its_neighbours(table: Table, run: Run) -> None:
    run(fill(table, ["a", "a:", "a-", "aa", "b"]))
    found = [run(read(table, P, key)) for key in ("a", "a-", "aaa", "")]
    assert [row and row.key for row in found] == ["a", "a-", None, None]
