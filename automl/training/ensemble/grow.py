"""The ensemble of a sweep that goes on: each model is asked once, and kept in mind for the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from automl.training.ensemble.words import EnsembleFile, Grow, Growing, Grown, Made
from automl.training.ensemble.write import Candidates, write_of


def open_growing(growing: Growing) -> Callable[[Grow | EnsembleFile], Grown | Made | None]:
    """What answers how good models are together, and last writes the file."""
    return _Ensemble(Candidates(growing.dataset, growing.build))


@dataclass(frozen=True)
class _Ensemble:
    candidates: Candidates

    def __call__(self, question: Grow | EnsembleFile) -> Grown | Made:
        """Raises AutoMLError for models that cannot be read."""
        if isinstance(question, EnsembleFile):
            return write_of(question, self.candidates)
        self.candidates.forget_others(question.models)
        for trial, path in question.models.items():
            self.candidates.add(trial, path)
        begun = time.perf_counter()
        joined = self.candidates.joined(question.models)
        members, scores = ({}, {}) if joined is None else (joined.members, joined.scores)
        return Grown(members, scores, time.perf_counter() - begun)
