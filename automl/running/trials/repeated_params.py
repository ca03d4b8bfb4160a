"""Finds a new trial with the params of an earlier one, which is reported once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from automl.running.setup.parts import SweepParts
from automl.trial import Params


class RepeatedParams:
    """Finds the first trial whose params an earlier trial of the study had, in a space of few."""

    def __init__(self, trials: Iterable[Params]) -> None:
        """`trials` are those of the study so far, by number."""
        self._first_by_params: dict[Hashable, int] = {}
        self._is_told = False
        for number, params in enumerate(trials):
            self._first_by_params.setdefault(frozenset(params.items()), number)

    def line(self, number: int, params: Params) -> str | None:
        """Return what to say of a new trial; None: its params are new, or repeats were told of."""
        first = self._first_by_params.setdefault(frozenset(params.items()), number)
        if first == number or self._is_told:
            return None
        self._is_told = True
        return (
            f"trial {number} has the params of trial {first} and trains them again, with its own "
            "seed (further repeats are not listed); the grid sampler (sampler=grid) tries each "
            "combination once"
        )


class RepeatsIntended:
    """Stands in for `RepeatedParams` where trials differ in more than the params they begin with:
    in seeds and rows (a refit), or in what they ask for while they run."""

    def line(self, number: int, params: Params) -> str | None:
        return None


def open_repeated(parts: SweepParts) -> RepeatedParams | RepeatsIntended:
    """Return what looks for repeats in the sweep of these parts."""
    if parts.prepared.plan.refit is not None or parts.prepared.asks_for_params:
        return RepeatsIntended()
    return RepeatedParams(parts.study.params(number) for number in range(parts.study.n_asked))
