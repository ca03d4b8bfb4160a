"""Makes a refit a small study: its settings from those of the study and its winner. Pure.

The space has the winner's params alone, each seed is a trial, and no sampler or pruner is at work.
A refit is thereby admitted, interrupted, resumed, packed and shown in MLflow as any study.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from automl.config import Config, ObjectiveKind, TrainingConfig
from automl.config.commands import TRAIN_ROWS
from automl.models.family import family_of
from automl.models.networks.network_family import NetworkFamily
from automl.objectives.training_plan import RefitPlan
from automl.record.study_files import REFITS_FOLDER
from automl.record.trial_record import TrialRecord
from automl.running.refit.refit_devices import RefitDevices, batch_size_of, scale_to_batch
from automl.running.refit.refit_settings import RefitTask
from automl.search.pruners.none import NoPruner
from automl.search.samplers.random import IndependentSampler
from automl.trial import Direction, Params, trial_name


@dataclass(frozen=True)
class TrainRowCounts:
    """Numbers of training rows, in the search (`before`) and in the refit (`now`)."""

    before: int
    now: int


@dataclass(frozen=True)
class RefitDecision:
    """Says what a refit trains, and how."""

    trial: int
    params: Params
    epochs: int
    ema_decay: float
    """Decay of averaged weights, as `training.ema_decay`."""
    plan: RefitPlan
    devices: RefitDevices
    notes: tuple[str, ...]
    """Lines for people about the decision."""


def decide_refit(
    config: Config, winner: TrialRecord, sizes: TrainRowCounts | None, devices: RefitDevices
) -> RefitDecision:
    """Decide params and length of the final training. `sizes` is None for an objective of the
    user's, which has its own rows."""
    what = f"refit of trial {winner.number} of study {config.study.name}"
    if sizes is None:
        note = f"{what}: your own training, {devices.why}, with trial.refit"
        plan, decay = RefitPlan(), config.training.ema_decay
        epochs = config.training.epochs or 1  # the user's training ignores the number
        return RefitDecision(winner.number, winner.params, epochs, decay, plan, devices, (note,))
    keeps_last = config.refit.hold_out is None
    epochs = refit_epochs(config, winner, sizes)
    n_parts = devices.n_parts
    found = scale_to_batch(winner.params, config.refit.batch_size, n_parts, sizes.now, epochs)
    plan = RefitPlan(keeps_last, found.warm_up, devices.n_ranks, devices.data_parallel)
    decay = ema_decay_for_rows(config, found.params, sizes.now)
    notes = (
        f"{what}: {rows_summary(config, sizes)}, "
        f"{_length(config, epochs)}{_averaged(config, decay)}",
        *([f"{devices.why}"] if devices.why else []),
        *([found.note] if found.note else []),
    )
    return RefitDecision(winner.number, found.params, epochs, decay, plan, devices, notes)


def refit_epochs(config: Config, winner: TrialRecord, sizes: TrainRowCounts) -> int:
    """Return the epochs of a refit: as many steps as the trial took to its best epoch.

    If rows are held out to stop by, they are the study's. A family without batches (trees) takes as
    many epochs as the trial, whatever the rows are.
    """
    if config.refit.hold_out is not None:
        return _most_epochs(config, winner.params)
    assert winner.best_step is not None, "the built-in training reports"
    if _is_network(config, winner.params):
        found = epochs_for_steps(winner.best_step, sizes, batch_size_of(winner.params))
        return min(found, _most_epochs(config, winner.params))
    return winner.best_step + 1


def as_single_family(config: Config, winner: TrialRecord) -> tuple[Config, TrialRecord]:
    """Return config and winner in terms of the winner's own family, if the study has several
    (`model=auto`)."""
    if config.objective.kind is not ObjectiveKind.builtin:
        return config, winner
    model_family = family_of(config)
    family, params = model_family.of_trial(winner.params)
    return replace(config, model=family), replace(winner, params=params)


def _most_epochs(config: Config, params: Params) -> int:
    return _length_of(config, params).n_epochs


def _length_of(config: Config, params: Params) -> TrainingConfig:
    """Return the training settings with the family's default length and patience."""
    family = family_of(config)
    return family.of_trial(params)[0].with_length(config.training)


def _is_network(config: Config, params: Params) -> bool:
    family = family_of(config)
    return isinstance(family.of_trial(params)[0], NetworkFamily)


def epochs_for_steps(best_step: int, sizes: TrainRowCounts, batch_size: int) -> int:
    """Return the whole epochs, at least one, that are about as many steps on the present rows as
    the trial took to its best epoch."""
    n_steps = (best_step + 1) * _n_batches(sizes.before, batch_size)
    return max(1, round(n_steps / _n_batches(sizes.now, batch_size)))


def ema_decay_for_rows(config: Config, params: Params, n_rows: int) -> float:
    """Return the decay of the weights' moving average, which spans the steps of an epoch unless it
    is set.

    A trial's model is the best of its epochs by rows that the refit trains on. At a constant
    learning rate the weights of a step vary by chance. Choosing the best epoch removes this
    variation, and averaging does so better (Polyak and Juditsky, 1992; `experiments/011-refit`).
    """
    own = config.training.ema_decay
    if not _is_network(config, params):
        return own
    if not config.refit.average or own > 0 or "ema_decay" in params:
        return own
    together = params.get("accumulate_steps", config.training.accumulate_steps)
    assert isinstance(together, int), "checked by the family"
    return 1 - 1 / math.ceil(_n_batches(n_rows, batch_size_of(params)) / together)


def derive_refit_config(
    config: Config, decision: RefitDecision, identity: Mapping[str, Any]
) -> Config:
    """Return the settings of the refit. `identity` is that of the study, data included."""
    builtin = config.objective.kind is ObjectiveKind.builtin
    asks = config.objective.kind is ObjectiveKind.optuna
    threads = config.execution.threads_per_trial
    threads = decision.devices.n_threads if threads == 1 else threads
    alone = decision.plan.n_ranks > 1
    own = derive_small_study(
        config, refit_name(decision, config, identity), keeps_last=decision.plan.keeps_last
    )
    enqueued = [dict(decision.params)] * config.refit.n_seeds if asks else []
    return replace(
        own,
        study=replace(own.study, n_trials=config.refit.n_seeds, enqueue=enqueued),
        space=config.space if asks else dict(decision.params),
        training=replace(
            _length_of(config, decision.params),
            epochs=decision.epochs,
            ema_decay=decision.ema_decay,
        )
        if builtin
        else config.training,
        admission=replace(
            config.admission,
            devices_per_trial=decision.devices.n_gpus,
            max_concurrent_trials=1 if alone else config.admission.max_concurrent_trials,
        ),
        execution=replace(config.execution.on_this_machine, threads_per_trial=threads),
        refit=replace(own.refit, trial=decision.trial),
    )


def derive_small_study(config: Config, name: str, *, keeps_last: bool) -> Config:
    """Return the settings common to refits: a study in the folder of refits, without sampler and
    pruner."""
    study = config.study
    assert study.name is not None, "a refit is of a study that is there"
    metric, direction = study.metric, study.decided_direction
    if keeps_last:
        metric, direction = "train_loss", Direction.minimize
    return replace(
        config,
        study=replace(
            study,
            name=name,
            dir=str(Path(study.dir) / study.name / REFITS_FOLDER),
            timeout_seconds=None,
            metric=metric,
            direction=direction,
            storage=None,
        ),
        sampler=IndependentSampler(),
        pruner=NoPruner(),
        refit=replace(config.refit, of=study.name),
    )


def limit_refit_time(own: Config, task: RefitTask) -> Config:
    """Return the settings of a refit, limited to the time that there is for it."""
    return replace(own, study=replace(own.study, timeout_seconds=task.timeout_seconds))


def refit_name(decision: RefitDecision, config: Config, identity: Mapping[str, Any]) -> str:
    """Return a folder name such as `trial-00007-3fa9c2d1`.

    It is the same for the same refit, though the number of seeds and the devices may change.
    """
    refit, warm_up = config.refit, decision.plan.warm_up
    decides = {
        "study": identity,
        "params": dict(decision.params),
        "epochs": decision.epochs,
        "ema_decay": decision.ema_decay,
        "rows": [refit.rows, refit.hold_out],
        "warm_up": None if warm_up is None else asdict(warm_up),
    }
    return f"{trial_name(decision.trial)}-{refit_digest(decides)}"


def refit_digest(decides: Mapping[str, Any]) -> str:
    """Return the digest of what decides a refit, which is part of its folder's name."""
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:8]


def rows_summary(config: Config, sizes: TrainRowCounts) -> str:
    """Return the rows of the refit, in words for people."""
    return ", ".join(_parts(config, sizes))


def _parts(config: Config, sizes: TrainRowCounts) -> Iterator[str]:
    refit = config.refit
    yield f"{sizes.now:,} rows ({refit.rows})"
    if refit.hold_out is not None:
        yield f"{refit.hold_out:g} held out to stop by"
    elif refit.rows == TRAIN_ROWS and config.data.folds == 1:
        yield "the validation part is looked at, and decides nothing"
    if refit.n_seeds > 1:
        yield f"{refit.n_seeds} seeds"


def _length(config: Config, epochs: int) -> str:
    if config.refit.hold_out is not None:
        return f"the best of {epochs} epochs"
    return f"{epochs} epochs, as many steps as its best one took"


def _averaged(config: Config, decay: float) -> str:
    return ", weights averaged over the last one" if decay > config.training.ema_decay else ""


def _n_batches(n_rows: int, batch_size: int) -> int:
    return math.ceil(n_rows / min(batch_size, n_rows))
