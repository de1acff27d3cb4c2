"""A picture of what grows: curves over the number of items, both axes logarithmic, as SVG."""

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import cycle

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 230, 40, 50
COLOURS = ("#0b6e99", "#c2410c", "#4d7c0f", "#7e22ce", "#b91c1c", "#525252")
FONT = "font-family='system-ui, sans-serif' font-size='13'"
APART = 16.0
"""Pixels between the names of two curves."""

Points = Sequence[tuple[float, float]]
"""Items, and seconds."""


def picture(title: str, curves: Mapping[str, Points]) -> str:
    """The curves, each with its name at its end."""
    return "\n".join(_lines(title, curves)) + "\n"


def _lines(title: str, curves: Mapping[str, Points]) -> Iterator[str]:
    xs = [math.log10(x) for points in curves.values() for x, _ in points]
    ys = [math.log10(y) for points in curves.values() for _, y in points]
    first, last = min(xs), max(xs)
    low, high = math.floor(min(ys)), math.ceil(max(ys))

    def across(x: float) -> float:
        return LEFT + (math.log10(x) - first) / (last - first) * (WIDTH - LEFT - RIGHT)

    def down(y: float) -> float:
        return HEIGHT - BOTTOM - (math.log10(y) - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    yield f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' role='img'>"
    yield f"<title>{escape(title)}</title>"
    yield f"<rect width='{WIDTH}' height='{HEIGHT}' rx='8' fill='#ffffff'/>"
    yield f"<text x='{LEFT}' y='24' {FONT} font-weight='600' fill='#171717'>{escape(title)}</text>"
    for power in range(low, high + 1):
        y = down(10.0**power)
        yield f"<path d='M{LEFT} {y:.1f}H{WIDTH - RIGHT}' stroke='#e5e5e5'/>"
        yield _text(LEFT - 8, y + 4, _seconds(power), anchor="end")
    for power in range(math.ceil(first), math.floor(last) + 1):
        yield _text(across(10.0**power), HEIGHT - BOTTOM + 22, f"{10**power:,}", anchor="middle")
    yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "items of the board", anchor="middle")
    below = math.inf
    ends = sorted(curves.items(), key=lambda curve: -down(curve[1][-1][1]))
    for colour, (name, points) in zip(cycle(COLOURS), ends, strict=False):
        line = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in points)
        yield f"<polyline points='{line}' fill='none' stroke='{colour}' stroke-width='2'/>"
        below = min(down(points[-1][1]) + 4, below - APART)
        yield _text(WIDTH - RIGHT + 8, below, name, colour=colour)
    yield "</svg>"


def _text(x: float, y: float, words: str, *, anchor: str = "start", colour: str = "#525252") -> str:
    place = f"x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'"
    return f"<text {place} {FONT} fill='{colour}'>{escape(words)}</text>"


def _seconds(power: int) -> str:
    """A power of ten of seconds."""
    if power >= 0:
        return f"{10**power:,} s"
    return f"{10 ** (power + 3)} ms" if power >= -3 else f"{10 ** (power + 6)} us"
