"""Names and values made such that MLflow takes them, with a note where something is cut."""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Mapping

from automl.record.credentials import mask_urls
from automl.record.masking import mask_credentials
from automl.record.texts import cut, printable

MAX_PARAM_CHARACTERS = 6000
MAX_TAG_CHARACTERS = 5000
"""What every MLflow server of the 2 and 3 series takes."""
MAX_KEY_CHARACTERS = 250
_GOOD_KEY = re.compile(r"\w[\w\-:]*(?:[./ ][\w\-:]+)*")


def clean_key(key: str) -> str:
    """A name that MLflow takes: letters, digits and `_-./: `, and no detour as a path."""
    if _GOOD_KEY.fullmatch(key) and len(key) <= MAX_KEY_CHARACTERS:
        return key
    clean = posixpath.normpath(re.sub(r"[^/\w.\- :]", "_", key)).lstrip("/.")
    return clean[:MAX_KEY_CHARACTERS].rstrip("/") or "_"


def clean_params(params: Mapping[str, str]) -> dict[str, str]:
    """Values are data: only what can be nothing but a credential is masked in them."""
    return {
        clean_key(k): mask_urls(printable(cut(v, MAX_PARAM_CHARACTERS))) for k, v in params.items()
    }


def clean_tags(tags: Mapping[str, str]) -> dict[str, str]:
    return {
        clean_key(k): mask_credentials(printable(cut(v, MAX_TAG_CHARACTERS)))
        for k, v in tags.items()
    }


def finite(value: float) -> float:
    """Infinite values become NaN: MLflow stores ±1.8e308, which ruins every chart's axis."""
    return math.nan if math.isinf(value) else value


def to_ms(seconds: float) -> int:
    return round(seconds * 1000)
