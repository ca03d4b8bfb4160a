"""Tries the winner of a search on a part of the rows (`data.sweep_rows`) on all training rows.
Pure.

The best params for a part are not the best for all rows: with more rows a network overfits less.
Two or three trials therefore differ in learning rate and weight decay, and are judged as trials
were, by the validation part. The best one gives params and length to the final training.

For an ensemble, two or three trials of each member would be another search. More rows change much
the same for all networks of one table. The network with the largest weight is therefore tried, and
each network takes its best change as a ratio: of the learning rate, of the weight decay, and of the
steps to the best epoch. Models of other kinds stay as they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from automl.config import Config, ObjectiveKind
from automl.models.family import family_of
from automl.models.networks.network_family import NetworkFamily, TrainingParams
from automl.record.study_record import StudyRecord
from automl.record.texts import counted
from automl.record.trial_record import TrialRecord
from automl.running.prepare.refit_task import RefitTask
from automl.running.refit.refit_devices import batch_size_of
from automl.running.refit.refit_study import (
    TrainRowCounts,
    as_single_family,
    derive_small_study,
    ema_decay_for_rows,
    epochs_for_steps,
    is_network,
    refit_digest,
)
from automl.trial import Params, ParamValue, trial_name

DEFAULT_LR = TrainingParams.lr
"""Learning rate of a trial whose params have none."""


def member_to_check(task: RefitTask) -> TrialRecord | None:
    """Return the heaviest network among the members, which stands for all. None if there is none,
    or nothing to check."""
    if not task.arguments.check:
        return None
    due = (t for t in task.members if is_check_due(as_single_family(task.config, t)[0]))
    return next(due, None)


def is_check_due(config: Config) -> bool:
    """Return whether the search had a part of the rows, and its training is a network's, whose
    params we know."""
    builtin = config.objective.kind is ObjectiveKind.builtin
    network = isinstance(config.model, NetworkFamily)  # the params that are tried are a network's
    return builtin and network and config.data.sweep_rows is not None


def params_variants(params: Params, sizes: TrainRowCounts) -> list[dict[str, ParamValue]]:
    """Return the params as they were, with less weight decay, and with half the learning rate, too.

    The weight decay is divided by the ratio of the rows, which makes it the same prior on the
    weights over more rows.
    """
    lr, decay = _number(params, "lr", DEFAULT_LR), _number(params, "weight_decay", 0.0)
    weaker = {"weight_decay": decay * sizes.before / sizes.now} if decay else {}
    found = [dict(params), {**params, **weaker}, {**params, **weaker, "lr": lr / 2}]
    return [params for place, params in enumerate(found) if params not in found[:place]]


def derive_check_config(
    task: RefitTask, winner: TrialRecord, sizes: TrainRowCounts, identity: Mapping[str, Any]
) -> Config:
    """Return the settings of these trials, as a small study beside the refits. `winner` is the
    trial, or the member of the ensemble, that is checked, in terms of its own family."""
    config = task.config
    tried = params_variants(winner.params, sizes)
    average = ema_decay_for_rows(config, winner.params, sizes.now)
    decides: dict[str, Any] = {"study": identity, "tried": tried, "ema_decay": average}
    if task.ensemble is not None:
        decides["refit"] = "ensemble"
    name = f"{trial_name(winner.number)}-check-{refit_digest(decides)}"
    return replace(
        derive_small_study(task, name, tried, keeps_last=False),
        space={
            name: _check_entry([params[name] for params in tried if name in params])
            for name in tried[-1]
        },
        training=replace(config.training, ema_decay=average),
    )


def _check_entry(values: Sequence[Any]) -> Any:
    """Return the entry of the space with the values that are tried."""
    found = list(dict.fromkeys(values))
    return found[0] if len(found) == 1 else {"choices": found}


def check_summary(winner: TrialRecord, checked: StudyRecord, sizes: TrainRowCounts) -> str:
    """Return what was tried and taken, in words for people."""
    best = checked.best()
    tried = "; ".join(
        f"{_changes(winner.params, trial.params)}: "
        f"{'no value' if trial.value is None else f'{trial.value:.5g}'}"
        for trial in checked.trials.values()
    )
    taken = "the params as they were" if best is None else _changes(winner.params, best.params)
    return (
        f"checked on {counted(sizes.now, 'training row')} (the search had {sizes.before:,}) by "
        f"{checked.metric.name}: {tried}. Taken: {taken}"
    )


def _changes(before: Params, now: Params) -> str:
    def text(value: object) -> str:
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    changed = [
        f"{name} {text(before.get(name, DEFAULT_LR))} → {text(value)}"
        for name, value in now.items()
        if before.get(name) != value
    ]
    return ", ".join(changed) or "as it was"


# --- what the members become ----------------------------------------------------------------------


@dataclass(frozen=True)
class ParamRatios:
    """The changes found for one network, as ratios to its former values."""

    lr: float
    weight_decay: float
    steps: float
    """Ratio of the steps to the best epoch."""


def take_best_checked(
    task: RefitTask, member: TrialRecord, checked: StudyRecord, sizes: TrainRowCounts
) -> tuple[RefitTask, int | None]:
    """Return the refit with the best params and lengths on all training rows, and the number of
    rows that its lengths are for. None: for the rows of the search.

    `member` was tried, in the study `checked`, on rows of these `sizes`. The refit is unchanged if
    no trial has a value.
    """
    best = checked.best()
    if best is None:
        return task, None
    if task.ensemble is None:
        params = family_of(task.config).with_family_params(member.params, best.params)
        found = replace(member, params=params, best_step=best.best_step)
        return replace(task, members=[found]), sizes.now
    _, own = as_single_family(task.config, member)
    return apply_param_ratios(task, find_param_ratios(own, best, sizes)), None


def find_param_ratios(before: TrialRecord, now: TrialRecord, sizes: TrainRowCounts) -> ParamRatios:
    """Return the ratios from a network as it was searched to the network as it was found, on rows
    of these sizes."""
    assert before.best_step is not None, "the built-in training reports"
    assert now.best_step is not None, "the built-in training reports"
    back = TrainRowCounts(before=sizes.now, now=sizes.before)
    # The epochs over the rows of the search.
    epochs = epochs_for_steps(now.best_step, back, batch_size_of(before.params))
    return ParamRatios(
        _ratio(before.params, now.params, "lr", DEFAULT_LR),
        _ratio(before.params, now.params, "weight_decay", 0.0),
        epochs / (before.best_step + 1),
    )


def _ratio(before: Params, now: Params, name: str, default: float) -> float:
    old = _number(before, name, default)
    return _number(now, name, default) / old if old else 1.0


def apply_param_ratios(task: RefitTask, change: ParamRatios) -> RefitTask:
    """Return the refit with the ratios applied to each network, in a space that has their
    params."""
    members = [_changed(task.config, member, change) for member in task.members]
    pairs = list(zip(task.members, members, strict=True))
    names = {n for old, new in pairs for n in new.params if new.params[n] != old.params.get(n)}
    space = {n: _members_entry(task.config.space.get(n), n, members) for n in sorted(names)}
    config = replace(task.config, space={**task.config.space, **space})
    return replace(task, config=config, members=members)


def _changed(config: Config, member: TrialRecord, change: ParamRatios) -> TrialRecord:
    if not is_network(config, member.params):
        return member
    family = family_of(config)
    assert member.best_step is not None, "the ensemble's trials have reported"
    _, own = family.of_trial(member.params)
    values = {
        "lr": (_number(own, "lr", DEFAULT_LR), change.lr),
        "weight_decay": (_number(own, "weight_decay", 0.0), change.weight_decay),
    }
    found = {n: value * ratio for n, (value, ratio) in values.items() if value and ratio != 1.0}
    epochs = max(1, round((member.best_step + 1) * change.steps))
    params = family.with_family_params(member.params, found)
    return replace(member, params=params, best_step=epochs - 1)


def _number(params: Params, name: str, default: float) -> float:
    value = params.get(name, default)
    assert isinstance(value, int | float), "checked by the family"
    return value


def _members_entry(before: Any, name: str, members: Sequence[TrialRecord]) -> Mapping[str, Any]:
    """Return the entry of the space with the members' values, with the condition that the param
    had."""
    values = {member.params[name]: None for member in members if name in member.params}
    entry: dict[str, Any] = {"choices": [*values]}
    when = before.get("when") if isinstance(before, Mapping) else None
    return entry if when is None else {**entry, "when": when}


def unchecked_members_note(task: RefitTask, checked: int) -> str:
    """Return which members take the change found for another, in words for people. Empty if none
    do."""
    networks = (trial.number for trial in task.members if is_network(task.config, trial.params))
    others = ", ".join(str(number) for number in networks if number != checked)
    return f"the same for the other networks of the ensemble: trials {others}" if others else ""
