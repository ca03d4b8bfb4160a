"""Passwords and tokens in URLs: finding them, and texts without them.

This decides which settings are stored; texts for people are masked more widely (`masking.py`). A
reference such as `${oc.env:NAME}` is no credential and stays as it is.

Texts come from strangers, and while an expression is matched no other thread runs: nothing here
looks at a character more than a fixed number of times (`experiments/004-masking` measures it).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

MASK = "***"

_REFERENCE = re.compile(r"\$\{[^{},]*\}")
"""An interpolation without a default (a default would stand in clear)."""
_HELD = "\0"
"""Stands for each character of a reference, some of which mean something in a URL."""
# `++`, and not in the middle of a word: else each of its letters would be tried as a beginning.
_SCHEME = re.compile(r"(?<![\w+.-])[\w+.-]++://")
_LETTER = re.compile(r"[A-Za-z]")
_USER = re.compile(r"[^\s/@:]*+")
_WORD = re.compile(r"\S*+")
# But for MLflow's `viewStateShareKey`, which is there to be given to others.
_QUERY = re.compile(
    r"(?P<key>[?&;][\w-]*(?:password|passwd|pwd|secret|token|(?<!share)key)=)(?P<secret>[^&\s;#'\"]*)",
    re.IGNORECASE,
)


def mask_urls(text: str) -> str:
    """`text` with each password and token of a URL in it replaced by `***`."""
    if "@" in text:
        text = replace_spans(text, _in_users(_shadow(text)))
    return replace_spans(text, _in_queries(_shadow(text))) if "=" in text else text


def carries_credential(text: str) -> bool:
    """Whether `mask_urls` would hide something of `text`."""
    return mask_urls(text) != text


def _shadow(text: str) -> str:
    """`text` with its references blotted out; every character keeps its place."""
    return _REFERENCE.sub(lambda match: _HELD * len(match[0]), text)


def replace_spans(text: str, spans: Iterator[tuple[int, int]]) -> str:
    """`text` with the mask in place of each span; they come in order and do not overlap."""
    parts, end = [], 0
    for begin, after in spans:
        parts += [text[end:begin], MASK]
        end = after
    return "".join(parts) + text[end:] if parts else text


def _in_users(text: str) -> Iterator[tuple[int, int]]:
    """Where `scheme://user:secret@` has its secret, or a web address a token for a user."""
    at = word_end = last_at = 0
    while (scheme := _SCHEME.search(text, at)) is not None:
        at = user_at = scheme.end()
        if (letter := _LETTER.search(text, scheme.start(), user_at)) is None:
            continue
        if user_at > word_end:
            # SQLAlchemy takes `/` and `@` in a password, hence up to the last @ of the word.
            word_end = _end(_WORD, text, user_at)
            last_at = text.rfind("@", user_at, word_end)
        user_end = _end(_USER, text, user_at)
        if text.startswith(":", user_end) and last_at > user_end:
            at = last_at
            if _is_secret(text[user_end + 1 : last_at]):
                yield user_end + 1, last_at
                continue
        elif text.startswith("@", user_end):
            at = user_end
        else:
            continue
        # Web addresses carry tokens as the user; elsewhere a user alone opens nothing.
        is_web = text[letter.start() : user_at - 3] in ("http", "https")
        if is_web and _is_secret(text[user_at:user_end]):
            yield user_at, at


def _in_queries(text: str) -> Iterator[tuple[int, int]]:
    for match in _QUERY.finditer(text):
        if _is_secret(match["secret"]):
            yield match.span("secret")


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    assert match is not None, "it matches the empty text too"
    return match.end()


def _is_secret(text: str) -> bool:
    return text.replace(_HELD, "") not in ("", MASK)
