"""Defines what an evaluation of a study's models finds, which is an event of the study."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from automl.trial.trial_spec import ENSEMBLE_NAME, refit_name, trial_name


class ScoreInterval(NamedTuple):
    """A score and its 95 % confidence interval (a bootstrap over rows)."""

    value: float
    low: float
    high: float


class RowsKind(enum.Enum):
    """Tells which rows a model is scored on."""

    KEPT = "kept"
    """The study's own test part."""
    GIVEN = "given"
    """A table that came after the study."""
    VALIDATION = "validation"
    """The validation rows. Trials were chosen by them, so the score is optimistic."""
    OUT_OF_FOLD = "out_of_fold"
    """All rows of a study with folds, each scored by the models that never saw it. Trials were
    chosen by these scores, so they are optimistic."""

    @property
    def unseen(self) -> bool:
        """Whether no sweep ever saw the rows."""
        return self in (RowsKind.KEPT, RowsKind.GIVEN)


class ScoreDifference(NamedTuple):
    """How much a score exceeds another score of the same rows, and whether that is more than
    chance.

    The interval holds with 95 % for all models that are compared together.
    """

    value: float
    low: float
    high: float
    verdict: str
    """The verdict for people: `better`, `worse`, `may be chance`."""


@dataclass(frozen=True)
class ModelsEvaluated:
    """Models of the study were scored, all on the same rows."""

    time: float
    kind: RowsKind
    n_rows: int
    digest: str
    """Digest of the rows; equal digests mean equal rows."""
    trials: tuple[int, ...]
    """Trials whose own models were scored; the best of the study comes first."""
    scores: Mapping[str, Mapping[str, ScoreInterval]]
    """Scores by metric (`loss`), by name of the model, and by name of each baseline (`linear`):
    `scores[model or baseline][metric]`."""
    differences: Mapping[str, Mapping[str, ScoreDifference]] = field(default_factory=dict)
    """Differences from the first model by metric, for every other model: same keys as `scores`."""
    refit_of: int | None = None
    """The trial whose refit was scored too, as the first model; None: no trial was refitted."""
    ensembled: bool = False
    """Whether the ensemble was scored too; only its refit comes before it."""
    refit_of_ensemble: bool = False
    """Whether the refit of the ensemble was scored too, as the first model."""
    repeated_trial: int | None = None
    """The trial that was trained again with other seeds; None: none was."""
    repeated_scores: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """The scores of these trainings by metric."""

    @property
    def models(self) -> tuple[str, ...]:
        """Return the scored models without baselines; the others are compared with the first."""
        refitted = self.refit_of_ensemble or self.refit_of is not None
        refit = (refit_name(self.refit_of),) if refitted else ()
        joined = (ENSEMBLE_NAME,) if self.ensembled else ()
        return (*refit, *joined, *map(trial_name, self.trials))

    @property
    def rows(self) -> str:
        """Return a description of the scored rows for people."""
        which = "no sweep saw"
        if self.kind is RowsKind.VALIDATION:
            which = "of validation, by which trials were chosen"
        if self.kind is RowsKind.OUT_OF_FOLD:
            which = "out-of-fold, by which trials were chosen"
        return f"{self.n_rows:,} rows {which}"
