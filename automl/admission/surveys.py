"""Which params a survey need not be made for again, because others showed that they do not matter.

Two surveys that agree to the byte, and differ in some params, tell that none of these matters (a
learning rate, a seed), until others that differ in these alone do not agree. Pure.
"""

from __future__ import annotations

from automl.admission.footprint import Structure
from automl.trial import Params


class Surveys:
    """What the surveys of one sweep saw. For the main thread."""

    def __init__(self) -> None:
        self._seen: list[tuple[Params, Structure]] = []
        self._alike: set[str] = set()
        """Params in which two surveys that agree differ."""
        self._proved: set[str] = set()
        """Of them, those in which alone two differ."""
        self._matter: set[str] = set()

    def add(self, params: Params, structure: Structure) -> None:
        for others, seen in self._seen:
            differing = {n for n in {*params, *others} if params.get(n) != others.get(n)}
            if seen == structure:
                self._alike |= differing
                self._proved |= differing if len(differing) == 1 else set()
            elif differing <= self._alike:
                self._matter |= differing - self._proved
        self._seen.append((params, structure))

    def find(self, params: Params) -> Structure | None:
        """What was seen with params that differ in nothing that matters; None: survey it."""
        free = self._alike - self._matter
        for others, structure in self._seen:
            names = {*params, *others} - free
            if all(params.get(name) == others.get(name) for name in names):
                return structure
        return None
