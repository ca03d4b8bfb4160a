"""A refit as a small study: its settings from those of the study and its winner. Pure.

A space of the winner's params alone, a trial for each seed, nothing that proposes or prunes. So a
refit is admitted, interrupted, resumed, packed and shown in MLflow as any trial.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from automl.config import Config, ObjectiveKind
from automl.config.refit import TRAIN
from automl.record.files import REFITS
from automl.record.trial_record import TrialRecord
from automl.search.pruners.none import NoPruner
from automl.search.samplers.random import Random
from automl.trial import Direction, Params

DEFAULT_BATCH = 128
"""Of `training.params.TrainingParams`, where the space has no batch size."""


@dataclass(frozen=True)
class Sizes:
    """Rows that train, in the search and now."""

    before: int
    now: int


@dataclass(frozen=True)
class Again:
    """What is trained, decided."""

    trial: int
    params: Params
    epochs: int
    keeps_last: bool
    """Nothing is held out: the last step is the best."""


def again(config: Config, winner: TrialRecord, sizes: Sizes | None) -> Again:
    """Params and length of the final training; `sizes` is None for an objective of the user's,
    which knows them itself."""
    own = sizes is None
    keeps_last = not own and config.refit.hold_out is None
    epochs = config.training.epochs
    if keeps_last:
        assert sizes is not None
        assert winner.best_step is not None, "the built-in training reports"
        epochs = epochs_of(winner.best_step, sizes, batch_size_of(winner.params))
    return Again(winner.number, winner.params, epochs, keeps_last)


def epochs_of(best_step: int, sizes: Sizes, batch_size: int) -> int:
    """Epochs over the rows now that are as many steps as the trial took to its best epoch (whole
    ones, at least one)."""
    n_steps = (best_step + 1) * _n_batches(sizes.before, batch_size)
    return max(1, round(n_steps / _n_batches(sizes.now, batch_size)))


def batch_size_of(params: Params) -> int:
    """Rows per step of the trial."""
    size = params.get("batch_size", DEFAULT_BATCH)
    assert isinstance(size, int), "checked by the family"
    return size


def derived(config: Config, again: Again, identity: Mapping[str, Any], n_gpus: int) -> Config:
    """The settings of the refit; `identity` is that of the study, data included, `n_gpus` are those
    that a trial of it has, all of them or none."""
    study, builtin = config.study, config.objective.kind is ObjectiveKind.builtin
    assert study.name is not None, "a refit is of a study that is there"
    asks = config.objective.kind is ObjectiveKind.optuna
    metric, direction = study.metric, study.direction
    if again.keeps_last:
        metric, direction = "train_loss", Direction.minimize
    refit = replace(config.refit, of=study.name, trial=again.trial)
    return replace(
        config,
        study=replace(
            study,
            name=name_of(again, config, identity),
            dir=str(Path(study.dir) / study.name / REFITS),
            n_trials=refit.n_seeds,
            timeout_seconds=None,
            metric=metric,
            direction=direction,
            storage=None,
            enqueue=[dict(again.params)] * refit.n_seeds if asks else [],
        ),
        space=config.space if asks else dict(again.params),
        sampler=Random(),
        pruner=NoPruner(),
        training=replace(config.training, epochs=again.epochs) if builtin else config.training,
        admission=replace(config.admission, devices_per_trial=n_gpus),
        refit=refit,
    )


def name_of(again: Again, config: Config, identity: Mapping[str, Any]) -> str:
    """`trial-00007-3fa9c2d1`: the same for the same refit, whose seeds may become more."""
    refit = config.refit
    decides = {
        "study": identity,
        "params": dict(again.params),
        "epochs": again.epochs,
        "rows": [refit.rows, refit.hold_out],
    }
    digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()
    return f"trial-{again.trial:05d}-{digest[:8]}"


def says(again: Again, config: Config, sizes: Sizes | None) -> str:
    """What will be done, for people."""
    what = f"refit of trial {again.trial} of study {config.study.name}"
    if sizes is None:
        return f"{what}: your own training, with trial.refit and all devices"
    seeds = f", {config.refit.n_seeds} seeds" if config.refit.n_seeds > 1 else ""
    rows = f"{sizes.now:,} rows ({config.refit.rows}"
    if config.refit.hold_out is not None:
        return f"{what}: {rows}, {config.refit.hold_out:g} held out to stop by){seeds}"
    shown = "; the validation part is looked at" if config.refit.rows == TRAIN else ""
    return (
        f"{what}: {rows}){shown}, {again.epochs} epochs, as many steps as its best one took{seeds}"
    )


def _n_batches(n_rows: int, batch_size: int) -> int:
    return math.ceil(n_rows / min(batch_size, n_rows))
