"""docs/performance.md and the command that writes it."""

import pytest

from benchmarks.curves import picture
from benchmarks.measure import with_block
from benchmarks.performance import PAGE, SECTIONS, main


def test_the_page_has_a_place_for_each_section_and_no_other() -> None:
    page = PAGE.read_text("utf-8")
    for name in SECTIONS:
        page = with_block(page, name, "measured")
    assert page.count("measured\n\n<!-- end -->") == page.count("<!-- figures: ") == len(SECTIONS)


def test_a_section_is_replaced_and_all_else_is_left() -> None:
    page = "a\n\n<!-- figures: x -->\n\nold\n\n<!-- end -->\n\nb\n"
    assert with_block(page, "x", "new") == page.replace("old", "new")
    with pytest.raises(ValueError, match="0 places for y"):
        with_block(page, "y", "new")


def test_a_section_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--peers", "--only", "bench,speed"])
    assert "no section speed, but bench, peers," in capsys.readouterr().err


def test_curves_are_drawn_within_the_picture_with_their_names() -> None:
    drawn = picture("Time & size", {"a": [(10, 0.1), (1000, 1.0)], "b < c": [(10, 2.0), (1000, 2)]})
    assert drawn.startswith("<svg ")
    assert drawn.endswith("</svg>\n")
    assert "Time &amp; size" in drawn
    assert "b &lt; c" in drawn
    assert drawn.count("<polyline ") == 2
    many = picture("Many", {str(number): [(10, 1.0), (100, number)] for number in range(1, 20)})
    assert many.count("<polyline ") == 19
