"""Names and values made such that MLflow takes them, with a note where something is cut."""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Mapping

from automl.tracking.redact import redact

MAX_PARAM_CHARACTERS = 6000
MAX_TAG_CHARACTERS = 5000
"""What every MLflow server of the 2 and 3 series takes."""
MAX_KEY_CHARACTERS = 250
_GOOD_KEY = re.compile(r"\w[\w\-:]*(?:[./ ][\w\-:]+)*")


def cut(text: str, limit: int) -> str:
    """`text`, or its beginning with a note of how long it was."""
    if len(text) <= limit:
        return text
    note = f" … [cut, {len(text)} characters]"
    return text[: limit - len(note)] + note


def clean_key(key: str) -> str:
    """A name that MLflow takes: letters, digits and `_-./: `, and no detour as a path."""
    if _GOOD_KEY.fullmatch(key) and len(key) <= MAX_KEY_CHARACTERS:
        return key
    clean = posixpath.normpath(re.sub(r"[^/\w.\- :]", "_", key)).lstrip("/.")
    return clean[:MAX_KEY_CHARACTERS].rstrip("/") or "_"


def clean_params(params: Mapping[str, str]) -> dict[str, str]:
    return {clean_key(k): cut(redact(_text(v)), MAX_PARAM_CHARACTERS) for k, v in params.items()}


def clean_tags(tags: Mapping[str, str]) -> dict[str, str]:
    return {clean_key(k): cut(redact(_text(v)), MAX_TAG_CHARACTERS) for k, v in tags.items()}


def _text(value: str) -> str:
    """With half characters (of file names that are no text) spelt out: no store takes them."""
    return value.encode("utf-8", "backslashreplace").decode()


def finite(value: float) -> float:
    """Infinite values become NaN: MLflow stores ±1.8e308, which ruins every chart's axis."""
    return math.nan if math.isinf(value) else value


def to_ms(seconds: float) -> int:
    return round(seconds * 1000)
