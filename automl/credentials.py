"""Passwords and tokens in URLs: finding them, and texts without them.

Whatever is logged, stored or tagged goes through here first. A reference such as
`${oc.env:NAME}` is no credential and stays as it is.
"""

from __future__ import annotations

import re

MASK = "***"

_REFERENCE = re.compile(r"\$\{[^{},]*\}")
"""An interpolation without a default (a default would stand in clear)."""
_HELD = re.compile("\0(\\d+)\0")
# SQLAlchemy takes `/` and `@` in a password, hence up to the last @ of the word.
_USER = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]*)://(?P<user>[^\s/@:]*)(?::(?P<secret>\S*))?@")
_QUERY = re.compile(
    r"(?P<key>[?&;][\w-]*(?:password|passwd|pwd|secret|token|key)=)(?P<secret>[^&\s;#'\"]*)",
    re.IGNORECASE,
)


def mask_credentials(text: str) -> str:
    """`text` with each password and token of a URL in it replaced by `***`."""
    references = _REFERENCE.findall(text)
    numbers = iter(range(len(references)))
    # References hold characters that mean something in a URL, so they are taken out meanwhile.
    text = _REFERENCE.sub(lambda match: f"\0{next(numbers)}\0", text)
    text = _QUERY.sub(_mask_query, _USER.sub(_mask_user, text))
    return _HELD.sub(lambda match: references[int(match[1])], text)


def carries_credential(text: str) -> bool:
    """Whether `mask_credentials` would hide something of `text`."""
    return mask_credentials(text) != text


def _mask_user(match: re.Match[str]) -> str:
    if _is_secret(match["secret"]):
        return f"{match['scheme']}://{match['user']}:{MASK}@"
    # Web addresses carry tokens as the user; elsewhere a user alone opens nothing.
    if match["scheme"] in ("http", "https") and _is_secret(match["user"]):
        return f"{match['scheme']}://{MASK}@"
    return match[0]


def _mask_query(match: re.Match[str]) -> str:
    return match["key"] + MASK if _is_secret(match["secret"]) else match[0]


def _is_secret(text: str | None) -> bool:
    return text is not None and _HELD.sub("", text) not in ("", MASK)
