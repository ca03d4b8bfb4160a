"""Numbers and points in time that are written as texts, and the words of longer texts.

It imports the standard library alone: an export contains a copy of this file, so that a served
model reads cells as training did. Parts of a date are computed from seconds, a number or an array.
"""

from __future__ import annotations

import datetime
import functools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

LONGEST = 40
"""Largest number of characters in a text that may be a number or a date."""
MAX_TEXT_CHARACTERS = 2000
"""Characters of a longer text that are read: the rest of a novel adds little to its topics."""
DATE_PARTS = ("year", "month", "weekday", "hour", "since")
"""The numbers that a date becomes: year, month 1 to 12, weekday 0 (Monday) to 6, hour 0 to 23, and
seconds since 1970; all in UTC."""
DATE_FORMATS = (
    "iso",
    "%d.%m.%Y",
    "%m/%d/%Y",
    "%d/%m/%Y",
    "%Y/%m/%d",
    "%m-%d-%Y",
    "%d-%m-%Y",
    "%d.%m.%y",
    "%m/%d/%y",
    "%d/%m/%y",
    "%d %b %Y",
    "%d %B %Y",
    "%b %d, %Y",
    "%B %d, %Y",
    "%d-%b-%Y",
    "%d-%b-%y",
)
"""Formats of dates. Where several fit, the first is taken: 03/04/2024 is the fourth of March."""

_MONEY = "[€$£¥₹₽₩₺]|EUR|USD|GBP|CHF|JPY|CNY|INR|AUD|CAD|SEK|NOK|DKK|PLN|CZK"
_GROUPS = {".": r"(?:[,'’\s]\d{3})", ",": r"(?:[.'’\s]\d{3})"}
_NUMBERS = {
    mark: re.compile(
        rf"(?P<open>\()?(?P<sign>[-+−]?)(?P<before>{_MONEY})?\s?(?P<sign2>[-+−]?)"
        rf"(?P<whole>\d{{1,3}}{_GROUPS[mark]}+|\d+|(?=[{mark}]\d))(?:[{mark}](?P<part>\d*))?"
        rf"(?P<power>[eE][-+]?\d{{1,3}})?\s?(?P<after>{_MONEY}|[%‰]|°?[^\W\d_]{{1,8}}[²³]?)?(?P<close>\))?"
    )
    for mark in _GROUPS
}
_TIME = re.compile(
    r"(?P<date>.*?\d)[T,\s]\s?(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d)(?P<part>\.\d+)?)?"
    r"(?:\s?(?P<half>[AaPp])\.?[Mm]\.?)?(?:\s?(?P<zone>Z|UTC|GMT|[-+]\d\d:?\d\d))?"
)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def parse_text_number(text: str, mark: str, unit: str) -> float | None:
    """Return the number that a text says, or None if it says no number.

    `mark` stands before the decimals. Nothing but `unit`, which is in lower case, may stand beside
    the number.
    """
    found = _parse_number(text, mark)
    return None if found is None or found[1] not in ("", unit) else found[0]


def detect_number_style(texts: Sequence[str]) -> tuple[str, str, float]:
    """Return the decimal mark and the unit with which most of the texts are numbers, and the share
    of texts that are."""
    best = ".", "", 0.0
    for mark in _NUMBERS:
        units = [found[1] for text in texts if (found := _parse_number(text, mark)) is not None]
        unit_counts = Counter(unit for unit in units if unit)
        unit = unit_counts.most_common(1)[0][0] if unit_counts else ""
        share = sum(own in ("", unit) for own in units) / max(1, len(texts))
        if share > best[2]:
            best = mark, unit, share
    return best


def _parse_number(text: str, mark: str) -> tuple[float, str] | None:
    """Return the number in a text, and the unit or currency beside it, in lower case."""
    text = text.strip()
    found = _NUMBERS[mark].fullmatch(text) if len(text) <= LONGEST else None
    if found is None or (found["open"] is None) != (found["close"] is None):
        return None
    if (found["sign"] and found["sign2"]) or (found["before"] and found["after"]):
        return None
    digits = re.sub(r"\D", "", found["whole"])
    number = float(f"{digits or 0}.{found['part'] or 0}{found['power'] or ''}")
    negative = found["open"] or (found["sign"] or found["sign2"]) in ("-", "−")
    return (-number if negative else number), (found["before"] or found["after"] or "").lower()


def parse_text_seconds(text: str, form: str) -> float | None:
    """Return the seconds since 1970 of the point in time that a text says, or None if it says none.

    The text is in the format `form` of `DATE_FORMATS`, or in ISO 8601. Without a zone it is UTC.
    """
    text = text.strip()
    if not 6 <= len(text) <= LONGEST:
        return None
    when = _parse_time(text, form) or _parse_time(text, "iso")
    return None if when is None else (when - _EPOCH).total_seconds()


def detect_date_style(texts: Sequence[str]) -> tuple[str, float]:
    """Return the format in which most of the texts are dates, and the share of texts that are."""
    best = "iso", 0.0
    for form in DATE_FORMATS:
        if form != "iso" and best[1] == 1:
            break
        if not any(_is_date(text, form) for text in texts[:: 1 + len(texts) // 20]):
            continue
        share = sum(_is_date(text, form) for text in texts) / len(texts)
        if share > best[1]:
            best = form, share
    return best


def _is_date(text: str, form: str) -> bool:
    return 6 <= len(text.strip()) <= LONGEST and _parse_time(text.strip(), form) is not None


def _parse_time(text: str, form: str) -> datetime.datetime | None:
    try:
        if form == "iso":
            # `fromisoformat` would read 20240131 and weeks as dates, too.
            if not re.match(r"\d{4}-", text):
                return None
            when = datetime.datetime.fromisoformat(text)
        else:
            when = _with_time(text, form)
        return when.replace(tzinfo=datetime.UTC) if when.tzinfo is None else when
    except (ValueError, OverflowError):
        return None


def _with_time(text: str, form: str) -> datetime.datetime:
    """Return the point in time of a date that may have a time of day behind it.

    Raises ValueError for a text in another format.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        return datetime.datetime.strptime(text, form)
    hour = int(found["hour"])
    if found["half"]:
        hour = hour % 12 + 12 * (found["half"] in "pP")
    zone = found["zone"] or ""
    day = datetime.datetime.strptime(found["date"], form)
    when = day.replace(hour=hour, minute=int(found["minute"]), second=int(found["second"] or 0))
    when += datetime.timedelta(seconds=float(f"0{found['part'] or ''}"))
    if zone and zone[0] in "+-":
        minutes = int(zone[1:3]) * 60 + int(zone[-2:])
        when -= datetime.timedelta(minutes=minutes if zone[0] == "+" else -minutes)
    return when


def date_part(seconds: Any, part: str) -> Any:
    """Return the part of a date, one of `DATE_PARTS`; `seconds` since 1970 are a number or an
    array."""
    if part == "since":
        return seconds
    days = seconds // 86400
    if part == "hour":
        return seconds % 86400 // 3600
    if part == "weekday":
        return (days + 3) % 7
    # Howard Hinnant, "chrono-compatible low-level date algorithms": years begin in March.
    shifted = days + 719468
    era = shifted // 146097
    day = shifted - era * 146097
    year = (day - day // 1460 + day // 36524 - day // 146096) // 365
    day_of_year = day - (365 * year + year // 4 - year // 100)
    month = (5 * day_of_year + 2) // 153
    is_next = month // 10  # January and February are of the next year
    return year + era * 400 + is_next if part == "year" else month + 3 - 12 * is_next


def number_of(cell: Any, reading: dict[str, Any], part: str, missing: Iterable[str]) -> float:
    """Return the number that a reading makes of a cell, or NaN for a cell that says none.

    `reading` is in the plain form of an export's `schema.json`; `part` is the part of a date.
    """
    text = str(cell).strip()
    nan = float("nan")
    if type(cell) in (int, float) and reading["kind"] == "number":
        return float(cell)
    if cell is None or text in missing or text in ("None", "NaT", "nan"):
        return nan
    if reading["kind"] == "number":
        found = parse_text_number(text, reading["mark"], reading["unit"])
        return nan if found is None else found
    seconds = _seconds_of(cell, text, reading["format"])
    return nan if seconds is None else float(date_part(seconds, part))


def _seconds_of(cell: Any, text: str, form: str) -> float | None:
    if isinstance(cell, datetime.datetime):
        aware = cell if cell.tzinfo else cell.replace(tzinfo=datetime.UTC)
        return (aware - _EPOCH).total_seconds()
    return parse_text_seconds(text, form)


def count_words(cell: Any, n_buckets: int) -> dict[int, int]:
    """Return how often the words of each bucket are in a cell; a missing cell has no words.

    The buckets are those of scikit-learn's `HashingVectorizer`, with which training counts words.
    """
    is_missing = cell is None or (not isinstance(cell, str) and str(cell) in _MISSING_VALUES)
    text = "" if is_missing else str(cell)[:MAX_TEXT_CHARACTERS]
    return dict(Counter(abs(_hash(w)) % n_buckets for w in _WORD.findall(text.lower())))


_MISSING_VALUES = ("nan", "NaT", "<NA>")
_WORD = re.compile(r"\b\w\w+\b")


@functools.lru_cache(maxsize=2**16)  # most words of a text are in others, too
def _hash(word: str) -> int:
    """Return the signed MurmurHash3 of a word, of 32 bits, with seed 0 (Austin Appleby)."""
    data = word.encode("utf-8", "surrogatepass")
    whole = len(data) // 4 * 4
    hashed = 0
    for place in range(0, whole, 4):
        hashed ^= _mixed(int.from_bytes(data[place : place + 4], "little"))
        hashed = (_rotated(hashed, 13) * 5 + 0xE6546B64) & _ALL_BITS
    hashed ^= _mixed(int.from_bytes(data[whole:], "little")) ^ len(data)
    hashed = ((hashed ^ hashed >> 16) * 0x85EBCA6B) & _ALL_BITS
    hashed = ((hashed ^ hashed >> 13) * 0xC2B2AE35) & _ALL_BITS
    hashed ^= hashed >> 16
    return hashed - 2**32 if hashed >> 31 else hashed


_ALL_BITS = 2**32 - 1


def _mixed(number: int) -> int:
    return _rotated(number * 0xCC9E2D51 & _ALL_BITS, 15) * 0x1B873593 & _ALL_BITS


def _rotated(number: int, n_bits: int) -> int:
    return (number << n_bits | number >> 32 - n_bits) & _ALL_BITS
