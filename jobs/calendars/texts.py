"""What a VEVENT says, as plain text: without iCalendar's escapes, entities or tags of HTML.

Feeds are made by web sites: a title may be `Rock &amp; Roll` or `<b>Jazz</b>`. Tags are taken for
tags only when HTML has one of that name, so `Kids < 5` stays. Descriptions may be HTML and stay so.
Addresses are those of the web; relative ones are resolved against the feed's.
"""

import html
import re
import unicodedata
from urllib.parse import urljoin, urlsplit, urlunsplit

from .lines import Block, Line
from .locate import meant
from .records import Text
from .redact import shown

_LONG, _SHORT = 32_000, 2_000
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_COMMA = re.compile(r"(?<!\\),")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_HIDDEN = re.compile(r"<(script|style)\b[^<>]*>.*?</\1\s*>|<!--.*?-->", re.IGNORECASE | re.DOTALL)
_BREAKING = re.compile(
    r"</?(?:address|article|blockquote|br|div|dd|dl|dt|h[1-6]|hr|li|ol|p|pre|section|table|tbody|td"
    r"|th|thead|tr|ul)\b(?:\s[^<>]*|\s*/)?>",
    re.IGNORECASE,
)
_INLINE = re.compile(
    r"</?(?:a|abbr|acronym|b|bdi|bdo|big|body|center|cite|code|data|del|dfn|em|figure|font|head|html"
    r"|i|iframe|img|input|ins|kbd|label|link|mark|meta|nobr|o:p|q|s|samp|script|small|span|strike"
    r"|strong|style|sub|sup|time|tt|u|var|wbr)\b(?:\s[^<>]*|\s*/)?>",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_HOST = re.compile(
    r"(?:www\.[a-z0-9.-]+|(?:[a-z0-9-]+\.)+(?:com|org|net|edu|gov|info|io|ca|uk|us))(?:[/?#]|$)",
    re.IGNORECASE,
)
_AT = re.compile(r"(?<=\s)@(?=\s|\w)")
_COORDINATES = re.compile(
    r"\s*([+-]?\d{1,3}(?:\.\d{1,20})?)\s*[;,]\s*([+-]?\d{1,3}(?:\.\d{1,20})?)\s*"
)
_PICTURE = re.compile(r"\.(?:avif|gif|jpe?g|png|svg|webp)$", re.IGNORECASE)


def text_of(block: Block, uid: str, base: str = "") -> Text:
    """What a VEVENT says. `base` is the address of its feed."""
    categories = [
        readable(plain(part, 200))
        for line in block.all("CATEGORIES")
        for part in _COMMA.split(line.value)[:50]
    ]
    return Text(
        uid=plain(uid, _SHORT),
        title=" ".join(readable(plain(block.value("SUMMARY"), _SHORT)).split()),
        description=plain(block.value("DESCRIPTION"), _LONG),
        location=readable(plain(block.value("LOCATION"), _SHORT)),
        url=address(block.value("URL"), base),
        categories=tuple(dict.fromkeys(filter(None, categories))),
        status=plain(block.value("STATUS").upper(), 20),
        access=access_of(block) if access_of(block) != "PUBLIC" else "",
        geo=_coordinates(block.value("GEO")),
        image=next(filter(None, (_image(line, base) for line in block.lines)), ""),
    )


def access_of(block: Block) -> str:
    """PUBLIC, PRIVATE or CONFIDENTIAL; "" when it does not say. A class of a publisher's own counts
    as private, as RFC 5545 has it.
    """
    said = plain(block.value("CLASS"), 40).upper()
    return said if said in {"", "PUBLIC", "CONFIDENTIAL"} else "PRIVATE"


def plain(value: str, longest: int) -> str:
    """TEXT without its escapes, cut to a length."""
    text = _ESCAPED.sub(lambda found: "\n" if found[1] in "nN" else found[1], value)
    return text.strip().encode("utf-8", "replace").decode()[:longest]


def readable(text: str) -> str:
    """Text without tags and entities of HTML."""
    if "&" not in text and "<" not in text:
        return text
    for _twice in range(2):
        text = _ENTITY.sub(_character, text)
    text = _BREAKING.sub("\n", _HIDDEN.sub(" ", text))
    text = _CONTROL.sub("", _INLINE.sub("", text)).replace("\xa0", " ")
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(filter(None, lines)).encode("utf-8", "replace").decode()


def _character(found: re.Match[str]) -> str:
    return html.unescape(found[0])


def plain_words(text: str) -> str:
    """Text as it is compared; what consists of signs alone stays as it is."""
    raw = _AT.sub(" at ", unicodedata.normalize("NFKC", html.unescape(text)).casefold())
    words = "".join(
        " " if unicodedata.category(letter)[0] in "PZC" else letter for letter in raw
    ).split()
    return " ".join(words) or " ".join(raw.split())


def address(value: str, base: str) -> str:
    """An address of the web, or "". A relative one is resolved against the feed's, but never
    against the part of it that is a secret.
    """
    said = readable(plain(value, _SHORT)) if "&" in value else plain(value, _SHORT)
    said = "".join(said.split("\n")[:1]).strip().strip("<>\"'")
    try:
        if said.lower().startswith(("http://", "https://")):
            return said if urlsplit(said).hostname else ""
        if _HOST.match(said):
            return f"https://{said}"
        if not said or (_SCHEME.match(said) and not said.startswith("//")):
            return ""
        return _resolved(said, base)
    except ValueError:
        return ""


def _resolved(said: str, base: str) -> str:
    parts = urlsplit(meant(base))
    if parts.scheme.lower() not in {"http", "https"} or not parts.hostname:
        return ""
    whole = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    if shown(whole) != whole and not said.startswith("/"):
        return ""
    return urljoin(whole, said)


def _coordinates(value: str) -> str:
    """Latitude and longitude as GEO has them; "" when they are none, or 0;0, which is nowhere."""
    found = _COORDINATES.fullmatch(plain(value, 100))
    if found is None:
        return ""
    latitude, longitude = float(found[1]), float(found[2])
    if not (abs(latitude) <= 90 and abs(longitude) <= 180) or (latitude, longitude) == (0, 0):
        return ""
    return f"{found[1].lstrip('+')};{found[2].lstrip('+')}"


def _image(line: Line, base: str) -> str:
    """The address of a picture: an IMAGE, or an ATTACH that is one."""
    if line.name not in {"IMAGE", "ATTACH"}:
        return ""
    found = address(line.value, base)
    picture = "FMTTYPE=IMAGE/" in line.params.upper() or _PICTURE.search(urlsplit(found).path)
    return found if line.name == "IMAGE" or picture else ""
