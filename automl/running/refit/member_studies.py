"""Plans the refit of an ensemble as one small study with a trial for each member, and tables its
result. Pure.

Each member has the params that it had, and a length of its own. Which trial is of which member
follows from the params that the trials have, so that the study is interrupted and resumed as any.
The weights decide nothing until all members are trained.

Each member descends its own loss on rows that all of them train on. Their losses there are no
ranking; the search has told how good each is on rows that it has not seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from automl.config import Config, EnsembleSetting, ParallelKind
from automl.errors import ConfigError
from automl.models.family import family_name, family_of
from automl.objectives.training_plan import MemberPlan, RefitPlan
from automl.record.study_record import StudyRecord
from automl.record.texts import fit_line
from automl.record.trial_record import TrialRecord
from automl.running.display.console import duration_text
from automl.running.refit.refit_settings import RefitTask, ensemble_to_refit, refuse_unfit_batch
from automl.running.refit.small_study import (
    TrainRowCounts,
    as_single_family,
    derive_small_study,
    ema_decay_for_rows,
    refit_digest,
    refit_epochs,
    rows_summary,
)
from automl.running.refit.winner_check import member_to_check
from automl.trial import EnsembleBuilt, Params, TrialState


@dataclass(frozen=True)
class MembersRefitDecision:
    """Says how the members of an ensemble are trained again."""

    weights: Mapping[int, float]
    """Weight of each member by its trial's number, the heaviest first."""
    plan: RefitPlan
    """Plan of the refit. Its members are in the same order."""
    notes: tuple[str, ...]
    """Lines for people about the decision."""

    @property
    def params(self) -> list[Params]:
        """The params of each member."""
        return [member.params for member in self.plan.members]


def refuse_parallel_members(config: Config) -> None:
    """Raise ConfigError for settings of one training that takes several devices."""
    refit = config.refit
    parallel = (
        None if refit.parallel in (ParallelKind.auto, ParallelKind.none) else refit.parallel.value
    )
    devices = None if refit.devices == "all" else refit.devices
    settings = {"batch_size": refit.batch_size, "parallel": parallel, "devices": devices}
    for key, value in settings.items():
        if value is not None:
            raise ConfigError(
                f"refit.{key}={value}: members of an ensemble are trained as they were, beside "
                "each other, a device for each: leave it out, or train the best trial again: "
                "refit.members=none."
            )


def make_refit_task(
    config: Config, path: Path, record: StudyRecord, winner: TrialRecord
) -> RefitTask:
    """Return a refit of the study's result: its ensemble, or else the winner. Raises
    ConfigError."""
    ensemble = ensemble_to_refit(record, config, path)
    if ensemble is None:
        refuse_unfit_batch(config, winner.params)
        return RefitTask(config, path, winner)
    refuse_parallel_members(config)
    return RefitTask(
        config, path, winner, ensemble, ensemble_trials(ensemble, record, config.study.name)
    )


def ensemble_trials(
    ensemble: EnsembleBuilt, record: StudyRecord, name: str | None
) -> list[TrialRecord]:
    """Return the trials that the ensemble joins, the heaviest first. Raises ConfigError if the
    study does not know one any more."""
    found = [record.trials.get(number) for number in ensemble.members]
    known = [trial for trial in found if trial is not None and trial.best_step is not None]
    if len(known) < len(found):
        lost = [n for n in ensemble.members if n not in {trial.number for trial in known}]
        raise ConfigError(
            f"study.name={name}: its event log does not tell what trial {lost[0]}, a member of the "
            "ensemble, was: make the ensemble again (python -m automl ensemble), or train the best "
            "trial again: refit.members=none."
        )
    return known


def decide_members_refit(
    config: Config, ensemble: EnsembleBuilt, trials: Sequence[TrialRecord], sizes: TrainRowCounts
) -> MembersRefitDecision:
    """Decide how each of the `trials` is trained again."""
    plans = tuple(_member(config, trial, sizes) for trial in trials)
    keeps_last = config.refit.hold_out is None
    lengths = [member.epochs for member in plans]
    length = f"{min(lengths)} to {max(lengths)} epochs, each as many steps as its best one took"
    if not keeps_last:
        length = f"the best of at most {max(lengths)} epochs"
    numbers = ", ".join(str(trial.number) for trial in trials)
    notes = [
        f"refit of the ensemble of study {config.study.name}, trials {numbers}: "
        f"{rows_summary(config, sizes)}, {length}"
    ]
    if config.data.sweep_rows is not None and member_to_check(config, trials) is None:
        notes.append("the search had a part of the rows; members are trained with its params")
    plan = RefitPlan(keeps_last, members=plans, repeats=tuple(t.number for t in trials))
    return MembersRefitDecision(ensemble.members, plan, tuple(notes))


def _member(config: Config, trial: TrialRecord, sizes: TrainRowCounts) -> MemberPlan:
    of_family, own = as_single_family(config, trial)
    decay = ema_decay_for_rows(of_family, own.params, sizes.now)
    return MemberPlan(trial.params, refit_epochs(of_family, own, sizes), decay)


def members_refit_name(
    config: Config, members: MembersRefitDecision, identity: Mapping[str, Any]
) -> str:
    """Return a folder name such as `ensemble-3fa9c2d1`.

    It is the same for the same members, though weights and seeds may change. `identity` is that of
    the study, data included.
    """
    decides = {
        "study": identity,
        "members": [asdict(member) for member in members.plan.members],
        "rows": [config.refit.rows, config.refit.hold_out],
    }
    return f"ensemble-{refit_digest(decides)}"


def derive_members_config(
    config: Config, members: MembersRefitDecision, name: str, assigned: Sequence[int]
) -> Config:
    """Return the settings of the refit. `assigned` has the member of each of its trials."""
    own = derive_small_study(config, name, keeps_last=members.plan.keeps_last)
    longest = max(member.epochs for member in members.plan.members)
    return replace(
        own,
        space=_with_their_families(config, members.params),
        study=replace(
            own.study,
            n_trials=len(assigned),
            enqueue=[dict(members.params[member]) for member in assigned],
            ensemble=EnsembleSetting.none,
        ),
        training=replace(config.training, epochs=longest),
    )


def _with_their_families(config: Config, members: Sequence[Params]) -> dict[str, Any]:
    """Return the space with all families named if a member's family is not for many rows.

    The refit has more rows, for which the default space might leave the family out.
    """
    family = family_of(config)
    limited = any(family.of_trial(params)[0].max_auto_rows is not None for params in members)
    if family.choice is None or not limited:
        return config.space
    return {family.choice: {"choices": [*family.by_choice]}, **config.space}


def assign_members(
    wanted: Sequence[Params], n_seeds: int, known: Mapping[int, TrialRecord]
) -> list[int]:
    """Return the member that each trial belongs to, by trial number.

    `wanted` are the members' params. Known trials keep their members; the next ones get members
    that are neither trained nor in training. A member whose trial failed is tried again.
    """
    left = [*wanted] * n_seeds
    for trial in known.values():
        if not _has_failed(trial) and trial.params in left:
            left.remove(trial.params)
    assigned: list[Params] = []
    while left or len(assigned) <= max(known, default=-1):
        here = known.get(len(assigned))
        # A trial that was asked for and never began takes the next wanted member, as before.
        assigned.append(here.params if here is not None else left.pop(0) if left else wanted[0])
    while lacking := _lacking(wanted, n_seeds, assigned, known):
        assigned.append(wanted[lacking[0]])
    return _each_in_turn(wanted, assigned)


def _lacking(
    wanted: Sequence[Params],
    n_seeds: int,
    assigned: Sequence[Params],
    known: Mapping[int, TrialRecord],
) -> list[int]:
    """Return the members with too few trainings. Of two members with the same params one may have
    failed, and its next turn would go to the other."""
    held = Counter(
        member
        for number, member in enumerate(_each_in_turn(wanted, assigned))
        if number not in known or not _has_failed(known[number])
    )
    return [member for member in range(len(wanted)) if held[member] < n_seeds]


def _each_in_turn(wanted: Sequence[Params], assigned: Sequence[Params]) -> list[int]:
    """Return the member of each trial by its params.

    Members with the same params take turns by the trials' numbers alone. A trial then keeps its
    member however the others end.
    """
    found: list[int] = []
    for params in assigned:
        alike = [member for member, own in enumerate(wanted) if own == params]
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


def members_table(
    task: RefitTask,
    members: MembersRefitDecision,
    trained: Sequence[Sequence[int]],
    record: StudyRecord,
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Return the columns and rows of the table that ends a refit. The first two columns are words.

    `trained` has the refit's trials of each member, and `record` is the record of the refit.
    """
    keeps_last, metric = members.plan.keeps_last, fit_line(task.config.study.metric)
    columns = ["trial", "family", "weight", f"{metric} searched", "epochs", "time"]
    rows = []
    for member, numbers in zip(task.members, trained, strict=True):
        seeds = [record.trials[number] for number in numbers]
        row = [
            f"{member.number:>5}",
            _family(task, member),
            f"{members.weights[member.number]:.3f}",
            _mean([member.value]),
            _epochs(seeds, keeps_last=keeps_last),
            duration_text(sum((seed.ended or seed.started) - seed.started for seed in seeds)),
        ]
        rows.append(row if keeps_last else [*row, _mean([seed.value for seed in seeds])])
    return columns if keeps_last else [*columns, f"{metric} held out"], rows


def _family(task: RefitTask, member: TrialRecord) -> str:
    family = family_of(task.config)
    return family_name(family.of_trial(member.params)[0])


def _epochs(seeds: Sequence[TrialRecord], *, keeps_last: bool) -> str:
    """Return the number of epochs after which each seed's model is kept."""
    steps = [seed.last_step if keeps_last else seed.best_step or 0 for seed in seeds]
    return " to ".join(dict.fromkeys(f"{step + 1}" for step in (min(steps), max(steps))))


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.5g}" if known else ""
