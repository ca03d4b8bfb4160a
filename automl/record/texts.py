"""Texts that strangers wrote (exceptions, warnings, what a trial printed), made fit for people,
files and stores: of bounded length, without credentials, and without what cannot be encoded or
moves a terminal's cursor.

They are cut before anything else is done with them, at a blank where one is near, so that no half
of a credential is left that would not be known as one.

What goes to MLflow, the event log or people, without credentials.

`secrets.py` knows those in URLs; here come secrets known by their value, and settings whose
name says that they are one.

Lines for the user of a command that does nothing but talk.
"""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from automl.record.secrets import MASK, mask_credentials, mask_urls

MAX_CAUSE_CHARACTERS = 1_000
"""Of the one line that says why a trial ended."""
MAX_TEXT_CHARACTERS = 20_000
"""Of anything else, such as a traceback."""
_NEAR_CHARACTERS = 200
_BLANK = re.compile(r"\s")
# Lone surrogates are in no encoding; ESC begins orders to a terminal; NUL is refused by databases.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def fit_line(text: str, limit: int = MAX_CAUSE_CHARACTERS) -> str:
    """One line for people: the beginning of `text`, with a note of how long it was."""
    begun = " ".join(mask_credentials(printable(_begin(text, 4 * limit))).split())
    if len(begun) <= limit and len(text) <= 4 * limit:
        return begun
    note = _note(text)
    return begun[: limit - len(note)] + note


def fit(text: str, limit: int = MAX_TEXT_CHARACTERS) -> str:
    """Lines for people: beginning and end of `text`, which is what tells of a traceback."""
    return mask_credentials(printable(cut_middle(text, limit)))


def printable(text: str) -> str:
    """`text` with � for each character that is none for people; line ends and tabs stay."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def how_it_ended(status: int) -> str:
    """`exit status 3`, or `SIGSEGV`: a signal is a number below 0, as `subprocess` has it."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:  # one of the real-time signals, few of which have names
        return f"SIG{-status}"


def cut(text: str, limit: int) -> str:
    """`text`, or its beginning with a note of how long it was."""
    if len(text) <= limit:
        return text
    note = _note(text)
    return _begin(text, limit - len(note)) + note


def cut_middle(text: str, limit: int) -> str:
    """`text`, or its beginning and its end with a note between of how long it was."""
    if len(text) <= limit:
        return text
    end = text[-3 * limit // 4 :]
    blank = end.find("\n", 0, _NEAR_CHARACTERS)
    if blank < 0 and (match := _BLANK.search(end, 0, _NEAR_CHARACTERS)) is not None:
        blank = match.start()
    return f"{_begin(text, limit // 4)}\n… [cut, {len(text)} characters] …\n{end[blank + 1 :]}"


def _begin(text: str, limit: int) -> str:
    """The first `limit` characters, without a word that is broken off there."""
    if len(text) <= limit:
        return text
    near = max(0, limit - _NEAR_CHARACTERS)
    blank = max(text.rfind(" ", near, limit), text.rfind("\n", near, limit))
    return text[:limit] if blank < 0 else text[:blank]


def _note(text: str) -> str:
    return f" … [cut, {len(text)} characters]"


# Whole last words only: `max_tokens` and `token_dim` are hyperparameters.
_SECRET_KEY = re.compile(
    r"(?i)(?:^|[._\- ])(?:password|passwd|pwd|secret|token|(?:api|access|secret)_?key)$"
)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` cut to what is fit to be read, with credentials and each of `secrets` masked."""
    for secret in secrets:
        text = text.replace(secret, MASK)
    return fit(text)


def redact_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings fit to be stored and shown: the values of keys that name a secret are masked."""
    return {
        key: MASK if _SECRET_KEY.search(key) else mask_urls(value)
        for key, value in settings.items()
    }


def redact_tag(name: str, text: str) -> dict[str, str]:
    """Name and text of a tag, fit to be stored and shown."""
    return {"name": fit_line(name), "text": MASK if _SECRET_KEY.search(name) else fit(text)}


Say: TypeAlias = Callable[[str], object]


def say_on_stdout(line: str) -> None:
    """Write a line, at once."""
    sys.stdout.write(f"{fit(line)}\n")
    sys.stdout.flush()
