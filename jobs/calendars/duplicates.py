"""Decides whether two events of two feeds that begin at the same time are one event.

Their titles must be the same but for case, punctuation and spacing, or the longer one adds the
place ("Jazz", "Jazz at the Hall"). Then their places and their pages decide:

    the same place                              one
    two places                                  two: the same title at another branch
    a name and an address, hard to compare      one if they have one page, one UID or one point on
                                                the map, else two
    one place contained in the other, or one    one, unless their pages are two pages of one site
    missing
    no place at all, and one long description   one, whatever their pages
    points on the map half a mile apart         two, unless the words of the place are the same

An event that is shown twice does less harm than one that is lost, so in doubt there are two.
"""

import math
import re
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from urllib.parse import urlsplit

from .events import plain_words
from .records import Text

_STREETS = {
    "st": "street",
    "str": "street",
    "ave": "avenue",
    "av": "avenue",
    "rd": "road",
    "blvd": "boulevard",
    "dr": "drive",
    "ln": "lane",
    "ct": "court",
    "pl": "place",
    "sq": "square",
    "hwy": "highway",
    "pkwy": "parkway",
    "cir": "circle",
    "ter": "terrace",
    "rte": "route",
    "plz": "plaza",
    "trl": "trail",
}
_STREET = frozenset(_STREETS.values()) | {"way", "alley", "crescent", "broadway", "loop", "row"}
_SIDES = frozenset(["n", "s", "e", "w", "ne", "nw", "se", "sw", "north", "south", "east", "west"])
_STOP_WORDS = frozenset(
    ["a", "an", "and", "at", "in", "of", "on", "the", "usa", "us", "united", "states"]
)
_NO_PLACE = frozenset(
    {"tbd", "tba", "n a", "none", "to be announced", "to be determined", "various"}
)
_ONLINE = re.compile(r"\b(?:online|virtual|zoom|webinar|livestream|google meet|teams meeting)\b")
_NUMBER = re.compile(r"\d{1,6}[a-z]?")
_NEAR, _FAR, _METRES = 100, 800, 111_195
"""Metres: below the first, two points are one place; above the second, they are two; a degree."""
_ANNOUNCEMENT, _PARAGRAPH = 400, 60
"""The least characters of a description, and of a line of it, that are compared."""
LONG = 30
"""Words of a title; in a longer one no place is searched."""
_CONNECTORS, _PERFORMED = frozenset({"at", "in"}), frozenset({"live"})
_TRACKING = re.compile(r"(?:^|&)(?:utm_[a-z]+|fbclid|gclid|mc_[ce]id|ref)=[^&]*", re.IGNORECASE)


class Match(IntEnum):
    """How well two events agree about where they are; the higher, the better."""

    OTHER = 0
    UNLIKE = 1
    """Both have a place, in words that cannot be compared."""
    OPEN = 2
    """At least one of them has no place."""
    WITHIN = 3
    """One place has all words of the other, and more."""
    SAME = 4


@dataclass(frozen=True, slots=True)
class ParsedLocation:
    """A location taken apart."""

    words: frozenset[str] = frozenset()
    venue: frozenset[str] = frozenset()
    """The words before the address, or all."""
    address: tuple[str, ...] = ()
    """The house number and the name of the street."""


@lru_cache(maxsize=8192)
def parsed_location(location: str) -> ParsedLocation:
    """A location taken apart; empty when it is the text of an unknown place."""
    plain = plain_words(location)
    if plain in _NO_PLACE or plain.startswith("http"):
        return ParsedLocation()
    if _ONLINE.search(plain):
        return ParsedLocation(frozenset({"online"}), frozenset({"online"}))
    words = [_STREETS.get(word, word) for word in plain.split()]
    for at, word in enumerate(words):
        street = words[at + 1 : at + 6]
        end = next((n for n, each in enumerate(street) if each in _STREET and n), 0)
        if _NUMBER.fullmatch(word) and end:
            name = tuple(each for each in street[:end] if each not in _SIDES)
            return ParsedLocation(_significant(words), _significant(words[:at]), (word, *name))
    return ParsedLocation(_significant(words), _significant(words))


def _significant(words: list[str]) -> frozenset[str]:
    return frozenset(words) - _STOP_WORDS


def locations_match(left: ParsedLocation, right: ParsedLocation) -> Match:
    """How well two locations agree."""
    if not left.words or not right.words:
        return Match.OPEN
    if left.words == right.words:
        return Match.SAME
    if left.address and right.address:
        return _at_addresses(left, right)
    if left.address or right.address:
        full, bare = (left, right) if left.address else (right, left)
        if bare.words <= full.words or (full.venue and full.venue <= bare.words):
            return Match.WITHIN
        return Match.OTHER if full.venue else Match.UNLIKE
    within = left.words <= right.words or right.words <= left.words
    return Match.WITHIN if within else Match.OTHER


def _at_addresses(left: ParsedLocation, right: ParsedLocation) -> Match:
    """Two places at one address are two rooms only where both have numbers."""
    if left.address != right.address:
        return Match.OTHER
    numbers = [{word for word in one.venue if _NUMBER.fullmatch(word)} for one in (left, right)]
    return Match.OTHER if all(numbers) and numbers[0] != numbers[1] else Match.SAME


@lru_cache(maxsize=8192)
def page_of(url: str) -> tuple[str, str]:
    """The site and the page of an address; no page when it is the site's front page."""
    try:
        parts = urlsplit(url)
        site = (parts.hostname or "").removeprefix("www.")
    except ValueError:
        return "", ""
    query = _TRACKING.sub("", parts.query).strip("&")
    page = parts.path.rstrip("/") + (f"?{query}" if query else "")
    return site, page


def agreement(left: Text, right: Text) -> Match:
    """How well two events of one title and one start agree; OTHER when they are two."""
    match = locations_match(parsed_location(left.location), parsed_location(right.location))
    if match in {Match.SAME, Match.OTHER}:
        return match
    apart = _metres(left.geo, right.geo)
    if apart is not None and apart > _FAR:
        return Match.OTHER
    if apart is not None and apart < _NEAR and match is Match.UNLIKE:
        return Match.SAME
    ours, theirs = page_of(left.url), page_of(right.url)
    one_page = bool(ours[1]) and ours == theirs
    if one_page or left.uid == right.uid:
        return Match.SAME
    two_pages = ours[0] == theirs[0] and bool(ours[1] and theirs[1])
    if two_pages and not left.location and not right.location and _one_description(left, right):
        return Match.OPEN
    return Match.OTHER if two_pages or match is Match.UNLIKE else match


def _metres(left: str, right: str) -> float | None:
    """About how far apart two points are, or None when one of them is missing."""
    if not left or not right:
        return None
    (north, east), (other_north, other_east) = (map(float, one.split(";")) for one in (left, right))
    turn = abs(east - other_east)
    wide = min(turn, 360 - turn) * math.cos(math.radians(north))
    return math.hypot(north - other_north, wide) * _METRES


def _one_description(left: Text, right: Text) -> bool:
    """Whether the descriptions are the same but for a fifth of their text: two groups have posted
    one announcement.
    """
    ours, theirs = _paragraphs(left.description), _paragraphs(right.description)
    least = min(sum(map(len, ours)), sum(map(len, theirs)))
    return least >= _ANNOUNCEMENT and sum(map(len, ours & theirs)) >= 0.8 * least


@lru_cache(maxsize=512)
def _paragraphs(description: str) -> frozenset[str]:
    lines = (" ".join(line.casefold().split()) for line in description.splitlines())
    return frozenset(line for line in lines if len(line) >= _PARAGRAPH)


def adds_its_place(longer: Text, shorter: Text) -> bool:
    """Whether the longer title is the shorter one and the place."""
    words, start = _words(longer.title), _words(shorter.title)
    tail = words[len(start) :]
    if not start or not tail or words[: len(start)] != start or len(words) > LONG:
        return False
    tail = tail[1:] if tail[0] in _PERFORMED and len(tail) > 1 else tail
    is_named = tail[0] in _CONNECTORS
    venue = _significant([_STREETS.get(word, word) for word in tail])
    of_longer, of_shorter = (parsed_location(one.location).words for one in (longer, shorter))
    if venue and (venue <= of_longer or venue <= of_shorter):
        return True
    return is_named and bool(venue) and not of_shorter


def same_title(left: Text, right: Text) -> bool:
    """Whether the titles are the same, but for the place that one adds."""
    short, long = sorted((left, right), key=lambda one: len(_words(one.title)))
    return _words(short.title) == _words(long.title) or adds_its_place(long, short)


@lru_cache(maxsize=8192)
def _words(title: str) -> tuple[str, ...]:
    return tuple(plain_words(title).split())
