"""Make texts of strangers (exceptions, warnings, trial output) fit for people, files and stores.

The results have bounded length and contain no credentials, no character that cannot be encoded, and
none that moves a terminal's cursor. A text is cut first, at a blank where one is near, so that no
half of a credential is left that could not be recognised.

Secrets known by their value, and settings and tags whose name says that they are a secret, are
masked here; `secrets.py` finds credentials inside a text. Values and durations are formatted here
too.
"""

from __future__ import annotations

import json
import os
import re
import reprlib
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, TextIO, TypeAlias

from automl.record.secrets import MASK, mask_credentials, mask_urls
from automl.trial import ParamValue

MAX_CAUSE_CHARACTERS = 1_000
"""Length limit of the one line that says why a trial ended."""
MAX_TEXT_CHARACTERS = 20_000
"""Length limit of any other text, for example a traceback."""
_NEAR_CHARACTERS = 200
_BLANK = re.compile(r"\s")
# No encoding has lone surrogates; ESC begins terminal commands; databases refuse NUL. Format
# characters (category Cf) turn the text around them, or are not seen.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff"
    "\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)
_VARYING = re.compile(
    r"/tmp/[^\s'\":,)]+|/var/folders/[^\s'\":,)]+"
    r"|\btmp[a-z0-9_]{8}\b"
    r"|\b0x[0-9a-f]+|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
    r"|[-+]?\d+(?:[.,_]\d+)*(?:e[-+]?\d+)?",
    re.IGNORECASE,
)
"""Temporary paths, addresses, identifiers and numbers, which often differ from trial to trial."""


def fit_line(text: str, limit: int = MAX_CAUSE_CHARACTERS) -> str:
    """Return one line for people: the beginning of `text`, and its length if it was cut."""
    line = " ".join(mask_credentials(printable_text(_beginning(text, 4 * limit))).split())
    if len(line) <= limit and len(text) <= 4 * limit:
        return line
    note = _cut_note(text)
    return line[: limit - len(note)] + note


def fit_text(text: str, limit: int = MAX_TEXT_CHARACTERS) -> str:
    """Return lines for people: beginning and end of `text`, the telling parts of a traceback."""
    return mask_credentials(printable_text(cut_text_middle(text, limit)))


def counted(n: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 trial`, `1,200 trials`."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def describe_value(value: object) -> str:
    """Return a short text that shows any value, also one whose `repr` fails."""
    try:
        return fit_line(reprlib.repr(value))
    except Exception as error:  # noqa: BLE001  whatever a user's object raises
        return fit_line(f"<a {type(value).__name__} that cannot be shown: {type(error).__name__}>")


def parse_json(text: str | bytes) -> Any:
    """Return what a stranger's JSON holds. Raises ValueError, also where it nests too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it nests too deeply") from None


def printable_text(text: str) -> str:
    """Return `text` with � for each character that cannot be shown; line ends and tabs stay."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def mask_varying(text: str) -> str:
    """Return the text with a zero for each temporary path, address, identifier and number: texts
    that differ by these alone become equal."""
    return _VARYING.sub("0", text)


def exit_status_text(status: int) -> str:
    """Return `exit status 3` or `SIGSEGV` for a status of `subprocess`; below 0 is a signal."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:  # a real-time signal; few of them have names
        return f"SIG{-status}"


def size_text(size_bytes: float, base: int = 1000) -> str:
    """Return a size as `812 bytes`, `3.4 kB` or `11.5 MB`; with the base 1024 as `3.4 KiB`."""
    units = ("GB", "MB", "kB") if base == 1000 else ("GiB", "MiB", "KiB")
    for power, unit in zip((3, 2, 1), units, strict=True):
        if (size := size_bytes / base**power) >= 0.99995:  # which is shown as 1.0
            return f"{size:,.1f} {unit}"
    return f"{size_bytes:.0f} byte{'s' * (size_bytes != 1)}"


def cut_text(text: str, limit: int) -> str:
    """Return `text`, or its beginning with a note of its length."""
    if len(text) <= limit:
        return text
    note = _cut_note(text)
    return _beginning(text, limit - len(note)) + note


def cut_text_middle(text: str, limit: int) -> str:
    """Return `text`, or its beginning and end with a note of its length between them."""
    if len(text) <= limit:
        return text
    end = text[-3 * limit // 4 :]
    blank = end.find("\n", 0, _NEAR_CHARACTERS)
    if blank < 0 and (match := _BLANK.search(end, 0, _NEAR_CHARACTERS)) is not None:
        blank = match.start()
    return f"{_beginning(text, limit // 4)}\n… [cut, {len(text)} characters] …\n{end[blank + 1 :]}"


def _beginning(text: str, limit: int) -> str:
    """Return at most the first `limit` characters, without a last word that is broken off."""
    if len(text) <= limit:
        return text
    near = max(0, limit - _NEAR_CHARACTERS)
    blank = max(text.rfind(" ", near, limit), text.rfind("\n", near, limit))
    return text[:limit] if blank < 0 else text[:blank]


def _cut_note(text: str) -> str:
    return f" … [cut, {len(text)} characters]"


# Whole last words only: `max_tokens` and `token_dim` are hyperparameters.
_SECRET_KEY = re.compile(
    r"(?i)(?:^|[._\- ])(?:password|passwd|pwd|secret|token|(?:api|access|secret)_?key)$"
)


def redact_text(text: str, secrets: Iterable[str] = ()) -> str:
    """Return `text` cut and fit to be read, with credentials and each of `secrets` masked."""
    for secret in secrets:
        text = text.replace(secret, MASK)
    return fit_text(text)


def redact_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings fit to be stored and shown: values of keys that name a secret are masked."""
    return {
        key: MASK if _SECRET_KEY.search(key) else mask_urls(value)
        for key, value in settings.items()
    }


def redact_tag(name: str, text: str) -> dict[str, str]:
    """Return name and text of a tag, fit to be stored and shown."""
    return {"name": fit_line(name), "text": MASK if _SECRET_KEY.search(name) else fit_text(text)}


Say: TypeAlias = Callable[[str], object]
"""Shows one line to the user of a command."""


def say_on_stdout(line: str) -> None:
    """Write a line to standard output, and flush it."""
    sys.stdout.write(f"{fit_text(line)}\n")
    sys.stdout.flush()


def say_unfailing(line: str) -> None:
    """Write a line to stdout at once. If stdout has lost its reader, the work goes on."""
    try:
        say_on_stdout(line)
    except OSError:
        mute_stream(sys.stdout)


def mute_stream(stream: TextIO) -> None:
    """Discard what is written to the stream from now on, and what waits in its buffer."""
    with suppress(OSError, ValueError):  # closed, or no file at all: there is nothing to mute
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def value_text(value: ParamValue) -> str:
    """Return the value in one line, a float with four significant digits."""
    return f"{value:.4g}" if isinstance(value, float) else fit_line(str(value))


def duration_text(seconds: float) -> str:
    """Return the time as `12 s`, `3:05` or `1:02:03`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
