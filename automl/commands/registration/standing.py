"""Which alias a version gets. Pure.

The first version is the `champion`: there is nothing to compare it with. A later one is if it is no
worse than the champion before it on the same rows, which neither has seen. Rows are the same if
their digests are, and a version carries the digests of those that are known to be new to it. Where
nobody can tell, it is `challenger`, with what is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from automl.tracking.registry.words import CHALLENGER, CHAMPION, DATA, Version
from automl.trial import Difference, Evaluated, RowsKind

WORSE = "worse"
_NO_ROWS = (
    "there are no rows that it has not seen; register it again with some that came later: "
    "data.test_path=FILE"
)


@dataclass(frozen=True)
class Unseen:
    """Rows that the new model has not learned from."""

    digest: str
    kind: RowsKind
    data: str
    """Digest of the data set whose training and validation parts are all that the model can have
    learned from; empty: it learned from more."""
    words: str
    """For people."""
    event: Evaluated | None = None
    """Its scores there."""


class Compared(NamedTuple):
    """The new model beside the champion."""

    metric: str
    difference: Difference
    """By how much the new one's is above the champion's."""


@dataclass(frozen=True)
class Standing:
    """An alias, and why."""

    alias: str
    why: str


def standing(
    unseen: Unseen | None, champion: Version | None, compare: Callable[[], Compared | str]
) -> Standing:
    """`compare` tells how the new one stands beside the champion on these rows, or why nobody can
    tell."""
    if champion is None:
        judged = f"scored on {unseen.words}" if unseen else _NO_ROWS
        return Standing(CHAMPION, f"there is no champion yet to compare it with; {judged}")
    if unseen is None:
        return Standing(CHALLENGER, _NO_ROWS)
    before = f"version {champion.number}"
    if not new_to(champion, unseen):
        return Standing(
            CHALLENGER,
            f"nobody knows whether {before}, the champion, has seen its rows ({unseen.words}); "
            "register both with the same rows that came later than either: data.test_path=FILE",
        )
    found = compare()
    if isinstance(found, str):
        return Standing(CHALLENGER, f"{before}, the champion, cannot be compared with it: {found}")
    metric, by = found
    said = (
        f"{metric} {by.value:+.4g} ({by.low:+.4g} to {by.high:+.4g}) from that of {before} on "
        f"{unseen.words}: {by.verdict}"
    )
    return Standing(CHALLENGER if by.verdict == WORSE else CHAMPION, said)


def new_to(version: Version, rows: Unseen) -> bool:
    """Whether it is known that a version has not seen the rows: they are recorded with it, or they
    came later, and it learned from the same data set as the model that they are recorded for."""
    later = rows.kind is RowsKind.GIVEN and version.tags.get(DATA) == rows.data != ""
    return version.has_not_seen(rows.digest) or later
