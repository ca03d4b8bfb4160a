"""Provides the user's own rows (`data=python`) that models are scored on.

They are the test part, which no trial saw, or the validation part if the source returns no test
part. The scores themselves are computed in `automl.data.scoring`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from automl.config import Task
from automl.data.dataset import NetworkOutputs, UserDataFacts
from automl.data.scoring.evaluation import ScoredRows, constant_outputs
from automl.data.scoring.metrics import Floats
from automl.errors import AutoMLError, ConfigError
from automl.in_trial.source_parts import ArrayRows, SourcePart
from automl.models.array_predictor import ArrayPredictor
from automl.models.networks.user_tensors import RowsError, read_rows_in_order
from automl.objectives.training_plan import TrainingPlan
from automl.objectives.user_data.source import read_parts
from automl.trial import RowsKind

_ROWS_AT_ONCE = 256
"""Number of rows that are loaded and scored at once."""


@dataclass(frozen=True, eq=False)
class ArrayEvaluation:
    """The user's rows to score models on, with their facts and their targets."""

    facts: UserDataFacts
    part: SourcePart
    judged: ScoredRows

    def outputs(self, model: ArrayPredictor) -> Floats:
        """Return the model's outputs for the rows: (N, classes), or (N, 1). Raises AutoMLError."""
        outputs = [model.outputs(x) for x, _ in _pieces(self.part, self.facts)]
        return np.concatenate(outputs).reshape(len(self.part), -1)


def open_array_evaluation(plan: TrainingPlan) -> ArrayEvaluation:
    """Return the rows to score on. Raises ConfigError unless each has one class or number."""
    parts, facts = read_parts(plan)
    _refuse_unscorable(facts, parts.train.row()[1].numel())
    kind = RowsKind.VALIDATION if parts.test is None else RowsKind.KEPT
    part = parts.validation if parts.test is None else parts.test
    y = np.concatenate([y.numpy().reshape(len(y)) for _, y in _pieces(part, facts)])
    judged = ScoredRows(
        kind=kind,
        digest=hashlib.sha256(f"{facts.digest} {kind.value}".encode()).hexdigest(),
        y=y.astype(np.int64) if facts.task is Task.classification else y.astype(np.float64),
        task=facts.task,
        unit=(0.0, 1.0),
        baselines=_constant_baselines(parts.train, facts, len(y)),
        loss=facts.loss,
    )
    return ArrayEvaluation(facts, part, judged)


def _refuse_unscorable(facts: UserDataFacts, n_targets: int) -> None:
    """Raise ConfigError unless the targets are classes, or one number for each row."""
    if facts.outputs is not NetworkOutputs.ANY and n_targets == 1:
        return
    why = "a row has several targets"
    if facts.outputs is NetworkOutputs.ANY:
        why = "only its own loss (training.loss) knows what its network's outputs mean"
    raise ConfigError(
        f"data.source={facts.name}: evaluate scores one class or one number for a row, and here "
        f"{why}. Score its best model yourself: automl.open_study(name).best.load().predict(rows)."
    )


def _constant_baselines(train: SourcePart, facts: UserDataFacts, n_rows: int) -> dict[str, Floats]:
    """Return the outputs of constant models. A Dataset, whose rows are not loaded, has none."""
    if not isinstance(train, ArrayRows):
        return {}
    if facts.task is Task.classification:
        assert isinstance(facts.n_outputs, int), "_refuse_unscorable has checked it"
        counts = np.bincount(train.y.numpy().reshape(-1), minlength=facts.n_outputs)
        return {"majority": np.tile(constant_outputs(counts), (n_rows, 1))}
    return {"mean": np.full((n_rows, 1), float(train.y.double().mean()))}


def _pieces(part: SourcePart, facts: UserDataFacts) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield all rows with their targets, in pieces. Raises ConfigError if a Dataset fails."""
    try:
        yield from read_rows_in_order(part, facts, _ROWS_AT_ONCE)
    except AutoMLError:
        raise
    except RowsError as error:
        raise ConfigError(str(error)) from error
    except Exception as error:  # a Dataset is the user's, and may raise anything
        raise ConfigError(
            f"data.source={facts.name}: its Dataset failed with {type(error).__name__}: {error}. "
            "Mend it until each of its rows can be had."
        ) from error
