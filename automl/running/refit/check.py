"""The winner of a search on a part of the rows (`data.sweep_rows`), tried on all that train. Pure.

What is best for a part is not so for the whole: of more rows a network learns less by heart. So two
or three trials differ in learning rate and weight decay, and are judged as trials were, by the
validation part; the best gives params and length to the final training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from automl.config import Config, Ensemble, ObjectiveKind
from automl.record.files import REFITS
from automl.record.study import StudyRecord
from automl.record.trial_record import TrialRecord
from automl.running.refit.derive import Sizes, decay_of, digest_of
from automl.search.pruners.none import NoPruner
from automl.search.samplers.random import Random
from automl.training.network_family import NetworkFamily
from automl.training.params import TrainingParams
from automl.trial import Params, ParamValue, trial_name

LR = TrainingParams.lr
"""Where the params do not say it."""


def is_due(config: Config) -> bool:
    """Whether the search had a part of the rows, by a training whose params we know."""
    builtin = config.objective.kind is ObjectiveKind.builtin
    network = isinstance(config.model, NetworkFamily)  # what is tried are params of a network's
    return builtin and network and config.refit.check and config.data.sweep_rows is not None


def variants(params: Params, sizes: Sizes) -> list[dict[str, ParamValue]]:
    """The params as they were; with the weight decay that is the same prior on the weights over
    more rows (less by their ratio); and with half the learning rate, too."""
    lr, decay = params.get("lr", LR), params.get("weight_decay", 0.0)
    assert isinstance(lr, int | float), "checked by the family"
    assert isinstance(decay, int | float), "likewise"
    weaker = {"weight_decay": decay * sizes.before / sizes.now} if decay else {}
    found = [dict(params), {**params, **weaker}, {**params, **weaker, "lr": lr / 2}]
    return [one for place, one in enumerate(found) if one not in found[:place]]


def checking(
    config: Config, winner: TrialRecord, sizes: Sizes, identity: Mapping[str, Any]
) -> Config:
    """The settings of these trials, as a small study beside the refits. `refit.trial` is what goes
    on with it; None: `winner` is of an ensemble, which is refitted."""
    study, tried = config.study, variants(winner.params, sizes)
    assert study.name is not None, "a refit is of a study that is there"
    average = decay_of(config, winner.params, sizes.now)
    decides: dict[str, Any] = {"study": identity, "tried": tried, "ema_decay": average}
    if config.refit.trial is None:
        decides["refit"] = "ensemble"
    return replace(
        config,
        study=replace(
            study,
            name=f"{trial_name(winner.number)}-check-{digest_of(decides)}",
            dir=str(Path(study.dir) / study.name / REFITS),
            n_trials=len(tried),
            timeout_seconds=None,
            storage=None,
            enqueue=tried,
            ensemble=Ensemble.none,
        ),
        space={name: _entry([one[name] for one in tried if name in one]) for name in tried[-1]},
        sampler=Random(),
        pruner=NoPruner(),
        training=replace(config.training, ema_decay=average),
        refit=replace(config.refit, of=study.name),
    )


def best_of(winner: TrialRecord, checked: StudyRecord, sizes: Sizes) -> tuple[TrialRecord, int]:
    """The winner with the params, and the best step, of the best of these, and how many rows that
    trained on; as it was where none of them has a value."""
    best = checked.best()
    if best is None:
        return winner, sizes.before
    return replace(winner, params=best.params, best_step=best.best_step), sizes.now


def said(winner: TrialRecord, checked: StudyRecord, sizes: Sizes) -> str:
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
        f"{name} {_number(before.get(name, LR))} → {_number(value)}"
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
