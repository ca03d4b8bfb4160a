"""A refit of an ensemble as one small study: a trial for each of its members. Pure.

Each has the params that it had, and a length of its own; which trial is of which member follows
from the params of all by number, so that members are admitted, trained beside each other,
interrupted and resumed as any trials. The weights decide nothing until all are trained.

The table that ends a refit of an ensemble: its members by their weight. Pure.

Each descends a loss of its own on rows that all of them train on, so that their losses there are no
ranking; how good each is on rows that it has not seen was told by the search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from automl.config import Config, EnsembleSetting, ParallelKind
from automl.errors import ConfigError
from automl.models.family import Family, family_name
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
    """What is trained, decided."""

    weights: Mapping[int, float]
    """By trial, the heaviest first."""
    plan: RefitPlan
    """Its members are in the same order."""
    notes: tuple[str, ...]
    """For people."""

    @property
    def params(self) -> list[Params]:
        """Of each."""
        return [member.params for member in self.plan.members]


def refuse_parallel_members(config: Config) -> None:
    """Raises ConfigError for settings of one training that takes several devices."""
    refit = config.refit
    parallel = (
        None if refit.parallel in (ParallelKind.auto, ParallelKind.none) else refit.parallel.value
    )
    devices = None if refit.devices == "all" else refit.devices
    given = {"batch_size": refit.batch_size, "parallel": parallel, "devices": devices}
    for key, value in given.items():
        if value is not None:
            raise ConfigError(
                f"refit.{key}={value}: members of an ensemble are trained as they were, beside "
                "each other, a device for each: leave it out, or train the best trial again: "
                "refit.members=none."
            )


def make_refit_task(
    config: Config, path: Path, record: StudyRecord, winner: TrialRecord
) -> RefitTask:
    """A refit of what the study at `path` came to: the ensemble, else the winner. Raises
    ConfigError."""
    made = ensemble_to_refit(record, config, path)
    if made is None:
        refuse_unfit_batch(config, winner.params)
        return RefitTask(config, path, winner)
    refuse_parallel_members(config)
    return RefitTask(config, path, winner, made, ensemble_trials(made, record, config.study.name))


def ensemble_trials(
    made: EnsembleBuilt, record: StudyRecord, name: str | None
) -> list[TrialRecord]:
    """Those that the ensemble joins, the heaviest first. Raises ConfigError where the study does
    not know one any more."""
    found = [record.trials.get(number) for number in made.members]
    known = [trial for trial in found if trial is not None and trial.best_step is not None]
    if len(known) < len(found):
        lost = [n for n in made.members if n not in {trial.number for trial in known}]
        raise ConfigError(
            f"study.name={name}: its event log does not tell what trial {lost[0]}, a member of the "
            "ensemble, was: make the ensemble again (python -m automl ensemble), or train the best "
            "trial again: refit.members=none."
        )
    return known


def decide_members_refit(
    config: Config, made: EnsembleBuilt, trials: Sequence[TrialRecord], sizes: TrainRowCounts
) -> MembersRefitDecision:
    """How each of the `trials` is trained again."""
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
    return MembersRefitDecision(made.members, plan, tuple(notes))


def _member(config: Config, trial: TrialRecord, sizes: TrainRowCounts) -> MemberPlan:
    of_family, own = as_single_family(config, trial)
    decay = ema_decay_for_rows(of_family, own.params, sizes.now)
    return MemberPlan(trial.params, refit_epochs(of_family, own, sizes), decay)


def members_refit_name(
    config: Config, members: MembersRefitDecision, identity: Mapping[str, Any]
) -> str:
    """`ensemble-3fa9c2d1`: the same for the same members, whose weights and seeds may become
    others; `identity` is that of the study, data included."""
    decides = {
        "study": identity,
        "members": [asdict(member) for member in members.plan.members],
        "rows": [config.refit.rows, config.refit.hold_out],
    }
    return f"ensemble-{refit_digest(decides)}"


def derive_members_config(
    config: Config, members: MembersRefitDecision, name: str, given: Sequence[int]
) -> Config:
    """The settings of the refit, whose trials are of the `given` members by number."""
    own = derive_small_study(config, name, keeps_last=members.plan.keeps_last)
    longest = max(member.epochs for member in members.plan.members)
    return replace(
        own,
        space=_with_their_families(config, members.params),
        study=replace(
            own.study,
            n_trials=len(given),
            enqueue=[dict(members.params[member]) for member in given],
            ensemble=EnsembleSetting.none,
        ),
        training=replace(config.training, epochs=longest),
    )


def _with_their_families(config: Config, members: Sequence[Params]) -> dict[str, Any]:
    """The space with all families named where a member is of one that is not for many rows: by
    themselves those of the refit, which are more, might leave it out."""
    assert isinstance(config.model, Family), "Hydra makes it by its schema"
    limited = any(config.model.of(params)[0].most_rows is not None for params in members)
    if config.model.choice is None or not limited:
        return config.space
    return {config.model.choice: {"choices": [*config.model.by_choice]}, **config.space}


def assign_members(
    wanted: Sequence[Params], n_seeds: int, known: Mapping[int, TrialRecord]
) -> list[int]:
    """Which of the members, whose params are `wanted`, each trial is of by number: those that there
    are, and then whatever is neither trained nor in training. One that failed is tried again."""
    left = [*wanted] * n_seeds
    for trial in known.values():
        if not _has_failed(trial) and trial.params in left:
            left.remove(trial.params)
    given: list[Params] = []
    while left or len(given) <= max(known, default=-1):
        here = known.get(len(given))
        # One that was asked for and never began is the next that is wanted, as it was then.
        given.append(here.params if here is not None else left.pop(0) if left else wanted[0])
    while lacking := _lacking(wanted, n_seeds, given, known):
        given.append(wanted[lacking[0]])
    return _each_in_turn(wanted, given)


def _lacking(
    wanted: Sequence[Params],
    n_seeds: int,
    given: Sequence[Params],
    known: Mapping[int, TrialRecord],
) -> list[int]:
    """Members of whom too few are trained: of two with the same params one may have failed, whose
    turn it is not again."""
    held = Counter(
        member
        for number, member in enumerate(_each_in_turn(wanted, given))
        if number not in known or not _has_failed(known[number])
    )
    return [member for member in range(len(wanted)) if held[member] < n_seeds]


def _each_in_turn(wanted: Sequence[Params], given: Sequence[Params]) -> list[int]:
    """The members with the params of each trial: of several that have the same, each in turn, by
    the trials' numbers alone, so that a trial is of the same member however the others end."""
    found: list[int] = []
    for params in given:
        alike = [member for member, own in enumerate(wanted) if own == params]
        n_before = sum(member in alike for member in found)
        found.append(alike[n_before % len(alike)])
    return found


def _has_failed(trial: TrialRecord) -> bool:
    return trial.state.is_final and trial.state is not TrialState.FINISHED


def finished_by_member(
    given: Sequence[int], n_seeds: int, known: Mapping[int, TrialRecord]
) -> list[list[int]]:
    """Trials that finished, for each member as many as it has seeds, or fewer."""
    found: list[list[int]] = [[] for _ in range(max(given) + 1)]
    for number, member in enumerate(given):
        ended = number in known and known[number].state is TrialState.FINISHED
        if ended and len(found[member]) < n_seeds:
            found[member].append(number)
    return found


def members_table(
    begun: RefitTask,
    members: MembersRefitDecision,
    trained: Sequence[Sequence[int]],
    again: StudyRecord,
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Columns and rows, of which the first two are words: `trained` are the trials of the refit,
    whose record is `again`, that each member became."""
    keeps_last, metric = members.plan.keeps_last, fit_line(begun.config.study.metric)
    columns = ["trial", "family", "weight", f"{metric} searched", "epochs", "time"]
    rows = []
    for member, numbers in zip(begun.members, trained, strict=True):
        seeds = [again.trials[number] for number in numbers]
        row = [
            f"{member.number:>5}",
            _family(begun, member),
            f"{members.weights[member.number]:.3f}",
            _mean([member.value]),
            _epochs(seeds, keeps_last=keeps_last),
            duration_text(sum((seed.ended or seed.started) - seed.started for seed in seeds)),
        ]
        rows.append(row if keeps_last else [*row, _mean([seed.value for seed in seeds])])
    return columns if keeps_last else [*columns, f"{metric} held out"], rows


def _family(begun: RefitTask, member: TrialRecord) -> str:
    assert isinstance(begun.config.model, Family), "Hydra makes it by its schema"
    return family_name(begun.config.model.of(member.params)[0])


def _epochs(seeds: Sequence[TrialRecord], *, keeps_last: bool) -> str:
    """Those after which each seed's model is kept."""
    steps = [seed.last_step if keeps_last else seed.best_step or 0 for seed in seeds]
    return " to ".join(dict.fromkeys(f"{step + 1}" for step in (min(steps), max(steps))))


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.5g}" if known else ""
