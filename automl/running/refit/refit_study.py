"""Makes a refit a small study: decides what it trains, and derives its settings. Pure.

Each seed of each member is a trial with the member's params, and no sampler or pruner is at work. A
refit is thereby admitted, interrupted, resumed, packed and shown in MLflow as any study. The refit
of a single trial has one member.

Members of an ensemble differ in params and length. Which trial is of which member follows from the
params that the trials have. Each member descends its own loss on rows that all of them train on, so
that their losses are no ranking.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from automl.config import Config, ObjectiveKind, RefitOrigin, TrainingConfig
from automl.config.command_arguments import TRAIN_ROWS
from automl.models.families.auto.family import n_rows_of_trial
from automl.models.family import family_name, family_of
from automl.models.networks.network_family import NetworkFamily
from automl.objectives.training_plan import MemberTraining, RefitTraining
from automl.record.study_files import REFITS_FOLDER
from automl.record.study_record import StudyRecord
from automl.record.texts import counted, duration_text, fit_line
from automl.record.trial_record import TrialRecord
from automl.running.prepare.refit_task import RefitTask
from automl.running.refit.refit_devices import (
    RefitDevices,
    ScaledParams,
    batch_size_of,
    scale_to_batch,
)
from automl.search.pruners.none import NoPruner
from automl.search.samplers.random import IndependentSampler
from automl.trial import ROWS_PARAM, Direction, Params, TrialState, trial_name


@dataclass(frozen=True)
class TrainRowCounts:
    """Numbers of training rows, in the search (`before`) and in the refit (`now`)."""

    before: int
    now: int


@dataclass(frozen=True)
class RefitDecision:
    """Says what a refit trains, and how."""

    members: tuple[MemberTraining, ...]
    """The trainings, one for each member of the task. A single one has the params of its own
    family."""
    plan: RefitTraining
    devices: RefitDevices
    notes: tuple[str, ...]
    """Lines for people about the decision."""


# --- deciding -------------------------------------------------------------------------------------


def decide_refit(
    task: RefitTask, sizes: TrainRowCounts | None, devices: RefitDevices
) -> RefitDecision:
    """Decide params and length of each training. `sizes` is None for an objective of the user's,
    which has its own rows."""
    config, repeats = task.config, tuple(trial.number for trial in task.members)
    numbers = ", ".join(map(str, repeats))
    of = f"trial {numbers} of study {config.study.name}"
    if sizes is None:
        epochs = config.training.epochs or 1  # the user's training ignores the number
        member = MemberTraining(task.members[0].params, epochs, config.training.ema_decay)
        note = f"refit of {of}: your own training, {devices.why}, with trial.refit"
        return RefitDecision((member,), RefitTraining(), devices, (note,))
    found = [_decide_member(task, trial, sizes, devices.n_parts) for trial in task.members]
    members, scaled = tuple(member for member, _ in found), found[0][1]
    plan = RefitTraining(
        task.arguments.hold_out is None, scaled.warm_up, devices.n_ranks, devices.data_parallel
    )
    if task.ensemble is not None:
        of = f"the ensemble of study {config.study.name}, trials {numbers}"
        plan = replace(plan, members=members, repeats=repeats)
    notes = (
        f"refit of {of}: {_rows_text(task, sizes)}, {_length_text(task, members)}",
        devices.why,
        scaled.note if task.ensemble is None else "",
    )
    return RefitDecision(members, plan, devices, tuple(filter(None, notes)))


def _decide_member(
    task: RefitTask, trial: TrialRecord, sizes: TrainRowCounts, n_parts: int
) -> tuple[MemberTraining, ScaledParams]:
    config, own = as_single_family(task.config, trial)
    if (n_searched := n_rows_of_trial(trial.params)) is not None:
        sizes = replace(sizes, before=n_searched)
    holds_out = task.arguments.hold_out is not None
    epochs = refit_epochs(config, own, sizes, holds_out=holds_out)
    batch_size = task.arguments.batch_size
    scaled = scale_to_batch(own.params, batch_size, n_parts, sizes.now, epochs)
    decay = ema_decay_for_rows(config, scaled.params, sizes.now)
    params = scaled.params
    if task.ensemble is not None:
        params = {name: value for name, value in trial.params.items() if name != ROWS_PARAM}
    return MemberTraining(params, epochs, decay), scaled


def as_single_family(config: Config, winner: TrialRecord) -> tuple[Config, TrialRecord]:
    """Return config and winner in terms of the winner's own family, if the study has several
    (`model=auto`)."""
    if config.objective.kind is not ObjectiveKind.builtin:
        return config, winner
    family, params = family_of(config).of_trial(winner.params)
    return replace(config, model=family), replace(winner, params=params)


def refit_epochs(
    config: Config, winner: TrialRecord, sizes: TrainRowCounts, *, holds_out: bool
) -> int:
    """Return the epochs of a refit: as many steps as the trial took to its best epoch.

    If rows are held out to stop by, they are the study's. A family without batches (trees) takes as
    many epochs as the trial, whatever the rows are.
    """
    longest = _with_family_length(config, winner.params, sizes.before).n_epochs
    if holds_out:
        return longest
    assert winner.best_step is not None, "the built-in training reports"
    if is_network(config, winner.params):
        found = epochs_for_steps(winner.best_step, sizes, batch_size_of(winner.params))
        return min(found, longest)
    return winner.best_step + 1


def _with_family_length(
    config: Config, params: Params, n_rows: int | None = None
) -> TrainingConfig:
    """Return the training settings with the family's default length and patience.

    `n_rows`: number of rows that the trial trained on; the patience does not depend on it.
    """
    return family_of(config).of_trial(params)[0].with_length(config.training, n_rows)


def is_network(config: Config, params: Params) -> bool:
    return isinstance(family_of(config).of_trial(params)[0], NetworkFamily)


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
    if not is_network(config, params):
        return own
    if own > 0 or "ema_decay" in params:
        return own
    together = params.get("accumulate_steps", config.training.accumulate_steps)
    assert isinstance(together, int), "checked by the family"
    return 1 - 1 / math.ceil(_n_batches(n_rows, batch_size_of(params)) / together)


def _n_batches(n_rows: int, batch_size: int) -> int:
    return math.ceil(n_rows / min(batch_size, n_rows))


# --- settings -------------------------------------------------------------------------------------


def derive_refit_config(
    task: RefitTask, decision: RefitDecision, name: str, assigned: Sequence[int]
) -> Config:
    """Return the settings of the refit. `assigned` has the member of each of its trials."""
    config = task.config
    own = derive_small_study(
        task,
        name,
        [decision.members[member].params for member in assigned],
        keeps_last=decision.plan.keeps_last,
    )
    own = replace(own, study=replace(own.study, timeout_seconds=task.timeout_seconds))
    if task.ensemble is None:
        return _for_single_training(own, task, decision)
    longest = max(member.epochs for member in decision.members)
    return replace(
        own,
        space=_with_family_names(config, decision.members),
        training=replace(config.training, epochs=longest),
    )


def derive_small_study(
    task: RefitTask, name: str, params: Sequence[Params], *, keeps_last: bool
) -> Config:
    """Return the settings of a study in the folder of refits, with a trial for each of `params`,
    and without sampler and pruner."""
    config, study = task.config, task.config.study
    assert study.name is not None, "a refit is of a study that is there"
    metric, direction = study.leading_metric, study.decided_direction
    if keeps_last:
        metric, direction = "train_loss", Direction.minimize
    return replace(
        config,
        study=replace(
            study,
            name=name,
            dir=str(Path(study.dir) / study.name / REFITS_FOLDER),
            n_trials=len(params),
            timeout_seconds=None,
            metric=metric,
            constraints={},
            direction=direction,
            storage=None,
            enqueue=[dict(each) for each in params],
            warm_from=[],
            finish="none",
            repeats=1,
        ),
        sampler=IndependentSampler(),
        pruner=NoPruner(),
        refit=RefitOrigin(study.name, task.single_trial, task.arguments),
    )


def _for_single_training(own: Config, task: RefitTask, decision: RefitDecision) -> Config:
    """Return the settings of a refit whose space is the params of a single winner."""
    winner = task.members[0]
    (member,), devices = decision.members, decision.devices
    model = as_single_family(own, winner)[0].model
    asks, builtin = (
        own.objective.kind is kind for kind in (ObjectiveKind.optuna, ObjectiveKind.builtin)
    )
    training, threads = own.training, own.execution.threads_per_trial
    if builtin:
        length = _with_family_length(replace(own, model=model), member.params)
        training = replace(length, epochs=member.epochs, ema_decay=member.ema_decay)
    n_together = 1 if devices.n_ranks > 1 else own.admission.max_concurrent_trials
    return replace(
        own,
        study=replace(
            own.study,
            enqueue=own.study.enqueue[: task.arguments.seeds] if asks else [],
            warm_from=[],
        ),
        model=model,
        space=own.space if asks else dict(member.params),
        training=training,
        admission=replace(
            own.admission, devices_per_trial=devices.n_gpus, max_concurrent_trials=n_together
        ),
        execution=replace(
            own.execution.on_this_machine,
            threads_per_trial=devices.n_threads if threads == 1 else threads,
        ),
    )


def _with_family_names(config: Config, members: Sequence[MemberTraining]) -> dict[str, Any]:
    """Return the space with all families named if a member's family is not for many rows.

    The refit has more rows, for which the default space might leave the family out. All its trials
    train on all of them.
    """
    family = family_of(config)
    limited = any(family.of_trial(each.params)[0].max_auto_rows is not None for each in members)
    space = {name: entry for name, entry in config.space.items() if name != ROWS_PARAM}
    if family.choice is None or not limited:
        return space
    return {family.choice: {"choices": [*family.by_choice]}, **space}


def refit_name(task: RefitTask, decision: RefitDecision, identity: Mapping[str, Any]) -> str:
    """Return a folder name such as `trial-00007-3fa9c2d1` or `ensemble-3fa9c2d1`.

    It is the same for the same refit, though the weights, the number of seeds and the devices may
    change. `identity` is that of the study, data included.
    """
    refit, warm_up = task.arguments, decision.plan.warm_up
    members = [asdict(member) for member in decision.members]
    decides: dict[str, Any] = {"study": identity, "rows": [refit.rows, refit.hold_out]}
    if task.ensemble is not None:
        return f"ensemble-{refit_digest(decides | {'members': members})}"
    decides |= {**members[0], "warm_up": None if warm_up is None else asdict(warm_up)}
    return f"{trial_name(task.members[0].number)}-{refit_digest(decides)}"


def refit_digest(decides: Mapping[str, Any]) -> str:
    """Return the digest of what decides a refit, which is part of its folder's name."""
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:8]


# --- which trial is of which member ---------------------------------------------------------------


def assign_members(
    wanted: Sequence[Params], n_seeds: int, known: Mapping[int, TrialRecord]
) -> list[int]:
    """Return the member that each trial belongs to, by trial number.

    `wanted` are the members' params. Known trials keep their members; the next ones get the members
    with the fewest trainings. A member whose trial failed is tried again.
    """
    assigned: list[Params] = []
    counts = [0] * len(wanted)
    while len(assigned) <= max(known, default=-1) or min(counts) < n_seeds:
        here = known.get(len(assigned))
        assigned.append(wanted[counts.index(min(counts))] if here is None else here.params)
        counts = [0] * len(wanted)
        for number, member in enumerate(_each_in_turn(wanted, assigned)):
            counts[member] += number not in known or not _has_failed(known[number])
    return _each_in_turn(wanted, assigned)


def _each_in_turn(wanted: Sequence[Params], assigned: Sequence[Params]) -> list[int]:
    """Return the member of each trial by its params.

    Members with the same params take turns by the trials' numbers alone. A trial then keeps its
    member however the others end. Params of an Optuna objective may be nobody's: it has one member.
    """
    found: list[int] = []
    for params in assigned:
        alike = [member for member, own in enumerate(wanted) if own == params] or [0]
        n_before = sum(member in alike for member in found)
        found.append(alike[n_before % len(alike)])
    return found


def _has_failed(trial: TrialRecord) -> bool:
    return trial.state.is_final and trial.state is not TrialState.FINISHED


def finished_by_member(
    assigned: Sequence[int], n_seeds: int, known: Mapping[int, TrialRecord]
) -> list[list[int]]:
    """Return the finished trials of each member, as many as it has seeds, or fewer."""
    found: list[list[int]] = [[] for _ in range(max(assigned) + 1)]
    for number, member in enumerate(assigned):
        ended = number in known and known[number].state is TrialState.FINISHED
        if ended and len(found[member]) < n_seeds:
            found[member].append(number)
    return found


# --- texts ----------------------------------------------------------------------------------------


def _rows_text(task: RefitTask, sizes: TrainRowCounts) -> str:
    return ", ".join(_rows_parts(task, sizes))


def _rows_parts(task: RefitTask, sizes: TrainRowCounts) -> Iterator[str]:
    refit = task.arguments
    yield f"{counted(sizes.now, 'row')} ({refit.rows})"
    if refit.hold_out is not None:
        yield f"{refit.hold_out:g} held out to stop by"
    elif refit.rows == TRAIN_ROWS and task.config.data.folds == 1:
        yield "the validation part is looked at, and decides nothing"
    if refit.seeds > 1:
        yield counted(refit.seeds, "seed")


def _length_text(task: RefitTask, members: Sequence[MemberTraining]) -> str:
    epochs = _range_text([member.epochs for member in members])
    averaged = any(member.ema_decay > task.config.training.ema_decay for member in members)
    ending = ", weights averaged over the last one" if averaged else ""
    if task.arguments.hold_out is not None:
        return f"the best of {epochs} epochs{ending}"
    best = "its best one" if len(members) == 1 else "the best one of each"
    return f"{epochs} epochs, as many steps as {best} took{ending}"


def _range_text(numbers: Sequence[int]) -> str:
    return " to ".join(dict.fromkeys(f"{number}" for number in (min(numbers), max(numbers))))


def members_table(
    task: RefitTask, trained: Sequence[Sequence[int]], record: StudyRecord
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Return the columns and rows of the table that ends the refit of an ensemble. The first two
    columns are words.

    `trained` has the refit's trials of each member, and `record` is the record of the refit.
    """
    assert task.ensemble is not None, "a single winner has a line of its own"
    keeps_last = task.arguments.hold_out is None
    metric = fit_line(task.config.study.leading_metric)
    columns = ["trial", "family", "weight", f"{metric} searched", "epochs", "time"]
    rows = []
    for member, numbers in zip(task.members, trained, strict=True):
        seeds = [record.trials[number] for number in numbers]
        steps = [seed.last_step if keeps_last else seed.best_step or 0 for seed in seeds]
        row = [
            f"{member.number:>5}",
            family_name(family_of(task.config).of_trial(member.params)[0]),
            f"{task.ensemble.members[member.number]:.3f}",
            _mean_text([member.value]),
            _range_text([step + 1 for step in steps]),
            duration_text(sum(seed.seconds for seed in seeds)),
        ]
        rows.append(row if keeps_last else [*row, _mean_text([seed.value for seed in seeds])])
    return columns if keeps_last else [*columns, f"{metric} held out"], rows


def _mean_text(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.5g}" if known else ""
