"""What goes to MLflow, the event log or people, without credentials.

`credentials.py` knows those in URLs; here come secrets known by their value, and settings whose
name says that they are one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from automl.record.credentials import MASK, mask_urls
from automl.record.texts import fit, fit_line

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
