"""Words that several refusals share."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def closest(word: str, options: Iterable[str]) -> str:
    """` Did you mean …?`, or nothing where no option is close to `word`."""
    found = difflib.get_close_matches(word, list(options), n=1)
    return f" Did you mean {found[0]}?" if found else ""
