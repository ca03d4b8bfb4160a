"""The winner of a search on a part of the rows (`data.sweep_rows`), tried on all that train. Pure.

What is best for a part is not so for the whole: of more rows a network learns less by heart. So two
or three trials differ in learning rate and weight decay, and are judged as trials were, by the
validation part; the best gives params and length to the final training.

An ensemble of a search on a part of the rows: what is found for one network, for each. Pure.

Two or three trials of each member were a search again. What more rows change is much the same for
networks of one table: so the one with the largest weight is tried (`winner_check.py`), and each
network
takes the change that was best for it, as a ratio: of the learning rate, of the weight decay, and of
the steps to the best epoch. Models of other kinds stay as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from automl.config import Config, EnsembleSetting, ObjectiveKind
from automl.models.family import Family
from automl.models.networks.network_family import NetworkFamily, TrainingParams
from automl.record.study_files import REFITS
from automl.record.study_record import StudyRecord
from automl.record.trial_record import TrialRecord
from automl.running.refit.refit_devices import batch_size_of
from automl.running.refit.refit_settings import RefitTask
from automl.running.refit.small_study import (
    TrainRowCounts,
    as_single_family,
    ema_decay_for_rows,
    epochs_for_steps,
    refit_digest,
)
from automl.search.pruners.none import NoPruner
from automl.search.samplers.random import IndependentSampler
from automl.trial import Params, ParamValue, trial_name

DEFAULT_LR = TrainingParams.lr
"""Where the params do not say it."""


def is_check_due(config: Config) -> bool:
    """Whether the search had a part of the rows, by a training whose params we know."""
    builtin = config.objective.kind is ObjectiveKind.builtin
    network = isinstance(config.model, NetworkFamily)  # what is tried are params of a network's
    return builtin and network and config.refit.check and config.data.sweep_rows is not None


def params_variants(params: Params, sizes: TrainRowCounts) -> list[dict[str, ParamValue]]:
    """The params as they were; with the weight decay that is the same prior on the weights over
    more rows (less by their ratio); and with half the learning rate, too."""
    lr, decay = params.get("lr", DEFAULT_LR), params.get("weight_decay", 0.0)
    assert isinstance(lr, int | float), "checked by the family"
    assert isinstance(decay, int | float), "likewise"
    weaker = {"weight_decay": decay * sizes.before / sizes.now} if decay else {}
    found = [dict(params), {**params, **weaker}, {**params, **weaker, "lr": lr / 2}]
    return [one for place, one in enumerate(found) if one not in found[:place]]


def derive_check_config(
    config: Config, winner: TrialRecord, sizes: TrainRowCounts, identity: Mapping[str, Any]
) -> Config:
    """The settings of these trials, as a small study beside the refits. `refit.trial` is what goes
    on with it; None: `winner` is of an ensemble, which is refitted."""
    study, tried = config.study, params_variants(winner.params, sizes)
    assert study.name is not None, "a refit is of a study that is there"
    average = ema_decay_for_rows(config, winner.params, sizes.now)
    decides: dict[str, Any] = {"study": identity, "tried": tried, "ema_decay": average}
    if config.refit.trial is None:
        decides["refit"] = "ensemble"
    return replace(
        config,
        study=replace(
            study,
            name=f"{trial_name(winner.number)}-check-{refit_digest(decides)}",
            dir=str(Path(study.dir) / study.name / REFITS),
            n_trials=len(tried),
            timeout_seconds=None,
            storage=None,
            enqueue=tried,
            ensemble=EnsembleSetting.none,
        ),
        space={name: _entry([one[name] for one in tried if name in one]) for name in tried[-1]},
        sampler=IndependentSampler(),
        pruner=NoPruner(),
        training=replace(config.training, ema_decay=average),
        refit=replace(config.refit, of=study.name),
    )


def best_checked_winner(
    winner: TrialRecord, checked: StudyRecord, sizes: TrainRowCounts
) -> tuple[TrialRecord, int]:
    """The winner with the params, and the best step, of the best of these, and how many rows that
    trained on; as it was where none of them has a value."""
    best = checked.best()
    if best is None:
        return winner, sizes.before
    return replace(winner, params=best.params, best_step=best.best_step), sizes.now


def check_summary(winner: TrialRecord, checked: StudyRecord, sizes: TrainRowCounts) -> str:
    """What was tried and taken, for people."""
    best = checked.best()
    tried = "; ".join(
        f"{_changes(winner.params, trial.params)}: "
        f"{'no value' if trial.value is None else f'{trial.value:.5g}'}"
        for trial in checked.trials.values()
    )
    taken = "the params as they were" if best is None else _changes(winner.params, best.params)
    return (
        f"checked on {sizes.now:,} training rows (the search had {sizes.before:,}) by "
        f"{checked.metric.name}: {tried}. Taken: {taken}"
    )


def _changes(before: Params, now: Params) -> str:
    changed = [
        f"{name} {_number(before.get(name, DEFAULT_LR))} → {_number(value)}"
        for name, value in now.items()
        if before.get(name) != value
    ]
    return ", ".join(changed) or "as it was"


def _number(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _entry(values: Sequence[Any]) -> Any:
    """Of the space: each value that is tried."""
    found = list(dict.fromkeys(values))
    return found[0] if len(found) == 1 else {"choices": found}


@dataclass(frozen=True)
class ParamRatios:
    """What was found for one network, as ratios of what it was."""

    lr: float
    weight_decay: float
    steps: float
    """To its best epoch."""


def member_to_check(config: Config, members: Sequence[TrialRecord]) -> TrialRecord | None:
    """The network among them, the heaviest first, that stands for all; None: there is none, or
    nothing to check."""
    due = (one for one in members if is_check_due(as_single_family(config, one)[0]))
    return next(due, None)


def find_param_ratios(before: TrialRecord, now: TrialRecord, sizes: TrainRowCounts) -> ParamRatios:
    """From a network as it was searched to what was found, on rows of these sizes."""
    assert before.best_step is not None, "the built-in training reports"
    assert now.best_step is not None, "likewise"
    back = TrainRowCounts(before=sizes.now, now=sizes.before)
    epochs = epochs_for_steps(
        now.best_step, back, batch_size_of(before.params)
    )  # of the search's rows
    return ParamRatios(
        _ratio(before.params, now.params, "lr", DEFAULT_LR),
        _ratio(before.params, now.params, "weight_decay", 0.0),
        epochs / (before.best_step + 1),
    )


def apply_param_ratios(begun: RefitTask, change: ParamRatios) -> RefitTask:
    """The ensemble with each network so, in a space that has their params."""
    members = [_changed(begun.config, member, change) for member in begun.members]
    pairs = list(zip(begun.members, members, strict=True))
    names = {n for old, new in pairs for n in new.params if new.params[n] != old.params.get(n)}
    space = {n: _check_members_entry(begun.config.space.get(n), n, members) for n in sorted(names)}
    config = replace(begun.config, space={**begun.config.space, **space})
    return replace(begun, config=config, members=members)


def unchecked_members_note(begun: RefitTask, checked: int) -> str:
    """Which members take what was found for another, for people; empty: none."""
    networks = (one.number for one in begun.members if _is_network(begun.config, one.params))
    others = ", ".join(str(number) for number in networks if number != checked)
    return f"the same for the other networks of the ensemble: trials {others}" if others else ""


def _changed(config: Config, member: TrialRecord, change: ParamRatios) -> TrialRecord:
    if not _is_network(config, member.params):
        return member
    assert isinstance(config.model, Family), "Hydra makes it by its schema"
    assert member.best_step is not None, "trials_of has looked"
    _, own = config.model.of(member.params)
    found = dict(_times(own, "lr", DEFAULT_LR, change.lr))
    found |= dict(_times(own, "weight_decay", 0.0, change.weight_decay))
    epochs = max(1, round((member.best_step + 1) * change.steps))
    params = config.model.with_own(member.params, found)
    return replace(member, params=params, best_step=epochs - 1)


def _is_network(config: Config, params: Params) -> bool:
    assert isinstance(config.model, Family), "Hydra makes it by its schema"
    return isinstance(config.model.of(params)[0], NetworkFamily)


def _ratio(before: Params, now: Params, name: str, default: float) -> float:
    old = _check_members_number(before, name, default)
    return _check_members_number(now, name, default) / old if old else 1.0


def _times(
    own: Params, name: str, default: float, ratio: float
) -> Iterable[tuple[str, ParamValue]]:
    """The param times the ratio, where that changes it."""
    value = _check_members_number(own, name, default)
    if value and ratio != 1.0:
        yield name, value * ratio


def _check_members_number(params: Params, name: str, default: float) -> float:
    value = params.get(name, default)
    assert isinstance(value, int | float), "checked by the family"
    return float(value)


def _check_members_entry(
    before: Any, name: str, members: Sequence[TrialRecord]
) -> Mapping[str, Any]:
    """Of the space: the values that the members have, where the param was there."""
    values = {member.params[name]: None for member in members if name in member.params}
    entry: dict[str, Any] = {"choices": [*values]}
    when = before.get("when") if isinstance(before, Mapping) else None
    return entry if when is None else {**entry, "when": when}
