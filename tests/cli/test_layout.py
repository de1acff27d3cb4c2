"""Tables as text."""

import pytest

from blackboard.display.layout import (
    MOST_PADDED,
    Column,
    Line,
    Style,
    cropped,
    fitted,
    folded,
    measure,
    paragraph,
    squeezed,
    table,
    text_of,
    texts_of,
    wrap,
)

COLUMNS = (
    Column(title="id", least=4, usual=10, worth=2),
    Column(title="said", least=4, usual=20, worth=1),
)


def lines(*rows: tuple[str, str], width: int | None = None) -> list[str]:
    cells: list[Line] = [[(text, Style.PLAIN) for text in row] for row in rows]
    return texts_of(table(COLUMNS, cells, width=width), colour=False).split("\n")


def test_columns_are_as_wide_as_what_they_hold() -> None:
    assert lines(("a", "x"), ("davis", "y")) == ["id     said", "a      x", "davis  y"]


def test_nothing_is_cut_where_there_is_no_terminal() -> None:
    assert lines(("i" * 500, "e" * 500))[1] == f"{'i' * 500}  {'e' * 500}"


def test_one_long_text_makes_the_other_lines_no_longer_where_there_is_no_terminal() -> None:
    assert lines(("i" * 500, "x"), ("davis", "y"))[2] == f"{'davis':<{MOST_PADDED}}  y"


@pytest.mark.parametrize("width", [80, 40, 12, 10])
def test_a_table_fits_the_width_and_what_is_cut_is_marked(width: int) -> None:
    told = lines(("i" * 500, "e" * 500), width=width)
    assert max(map(len, told)) <= width
    assert told[1].count("…") == 2


def test_what_is_worth_least_is_left_out_when_even_the_least_does_not_fit() -> None:
    assert lines(("davis", "error"), width=9) == ["id", "davis"]


@pytest.mark.parametrize(
    ("natural", "width", "kept"),
    [
        ((5, 5, 5), 19, [(0, 5), (1, 5), (2, 5)]),
        ((5, 5, 5), 18, [(0, 5), (1, 5), (2, 4)]),
        ((9, 9, 9), 18, [(0, 8), (1, 4), (2, 2)]),
        ((50, 9, 9), 32, [(0, 10), (1, 9), (2, 9)]),
        ((50, 9, 9), 42, [(0, 20), (1, 9), (2, 9)]),
        ((50, 1, 1), 20, [(0, 14), (1, 1), (2, 1)]),
        ((9, 9, 9), 13, [(0, 7), (1, 4)]),
        ((9, 9, 9), 9, [(0, 9)]),
        ((9, 9, 9), 2, [(0, 4)]),
    ],
)
def test_room_is_given_out_by_worth(
    natural: tuple[int, ...], width: int, kept: list[tuple[int, int]]
) -> None:
    columns = [
        Column(title="id", least=4, usual=10, worth=9),
        Column(title="next", least=4, usual=20, worth=8),
        Column(title="worker", least=2, usual=20, worth=7),
    ]
    assert squeezed(columns, natural, width) == kept


def test_spare_columns_are_left_out_before_any_other_is_cut() -> None:
    columns = [
        Column(title="id", least=4, usual=10, worth=9),
        Column(title="stop", least=4, usual=10, worth=1, spare=True),
        Column(title="worker", least=2, usual=10, worth=0, spare=True),
    ]
    natural = (10, 10, 10)
    assert squeezed(columns, natural, 34) == [(0, 10), (1, 10), (2, 10)]
    assert squeezed(columns, natural, 33) == [(0, 10), (1, 10)]
    assert squeezed(columns, natural, 21) == [(0, 10)]
    assert squeezed(columns, natural, 7) == [(0, 7)]


@pytest.mark.parametrize(
    ("text", "size", "shown"),
    [
        ("overdue 22m", 11, "overdue 22m"),
        ("overdue 22m", 10, "overdue   "),
        ("overdue 22m", 7, "overdue"),
        ("overdue 22m", 6, "overd…"),
    ],
)
def test_words_are_cut_between_words_if_the_first_one_fits(
    text: str, size: int, shown: str
) -> None:
    assert fitted(text, size, words=True) == shown


@pytest.mark.parametrize(
    ("text", "size", "shown"),
    [
        ("davis", 7, "davis  "),
        ("davis", 5, "davis"),
        ("davis", 4, "dav…"),
        ("davis", 1, "…"),
        ("東京都", 6, "東京都"),
        ("東京都", 5, "東京…"),
        ("東京都", 4, "東… "),
        ("cafe\u0301", 4, "cafe\u0301"),
    ],
)
def test_texts_are_fitted_by_the_cells_that_a_terminal_needs(
    text: str, size: int, shown: str
) -> None:
    assert fitted(text, size) == shown
    assert measure(fitted(text, size)) == size


def test_what_a_row_holds_never_steers_the_terminal() -> None:
    _, told = lines(("a\x1b[31mb\nc", "\u202edivad\r\x9b2J"))
    assert told == r"a\x1b[31mb\nc  \u202edivad\r\x9b2J"


def test_colours_are_put_around_the_padded_text() -> None:
    line = [("ok ", Style.GOOD), ("x", Style.PLAIN)]
    assert text_of(line, colour=True) == "\x1b[32mok \x1b[0m  x"
    assert text_of(line, colour=False) == "ok   x"


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("one two three", 20, ["one two three"]),
        ("one two three", 8, ["one two", "three"]),
        ("one  two", 20, ["one  two"]),
        ("one  two", 7, ["one", "two"]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
        ("a abcdefghij", 4, ["a", "abcd", "efgh", "ij"]),
        ("東京都の気象台", 5, ["東京", "都の", "気象", "台"]),
        ("東京", 1, ["東", "京"]),
        ("", 4, [""]),
    ],
)
def test_a_paragraph_is_wrapped_by_cells(text: str, width: int, shown: list[str]) -> None:
    assert wrap(text, width) == shown


def test_a_paragraph_hangs_below_its_beginning() -> None:
    assert wrap("one two three", 9, first="x  ", margin="   ") == ["x  one", "   two", "   three"]
    assert wrap("abcdef", 2, first="long  ", margin="      ") == [
        "long  a",
        *("      " + one for one in "bcdef"),
    ]
    assert texts_of(paragraph("one two", None, first="x "), colour=False) == "x one two"
    assert paragraph("one two", 3, style=Style.BAD) == [[("one", Style.BAD)], [("two", Style.BAD)]]


def test_a_line_is_cropped_to_the_cells_there_are() -> None:
    line: Line = [("abc", Style.PLAIN), ("東京", Style.BAD), ("z", Style.PLAIN)]
    crops = {width: text_of(cropped(line, width), colour=False) for width in (3, 5, 7, 8, 9, 12)}
    assert crops == {
        3: "abc",
        5: "abc",
        7: "abc  …",
        8: "abc  東…",
        9: "abc  東京",
        12: "abc  東京  z",
    }


def test_the_last_column_goes_on_below_where_it_is_in_words() -> None:
    rows: list[Line] = [[("a", Style.PLAIN), ("one two three", Style.QUIET)]]
    assert folded(COLUMNS, rows, None) == rows
    assert folded(COLUMNS, rows, 7) == rows
    found = table(COLUMNS, folded(COLUMNS, rows, 12), width=12)
    assert texts_of(found, colour=False).split("\n") == ["id  said", "a   one two", "    three"]
