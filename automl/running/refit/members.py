"""A refit of an ensemble as one small study: a trial for each of its members. Pure.

Each has the params that it had, and a length of its own; which trial is of which member follows
from the params of all by number, so that members are admitted, trained beside each other,
interrupted and resumed as any trials. The weights decide nothing until all are trained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from automl.config import Config, Ensemble, Parallel
from automl.errors import ConfigError
from automl.record.study import StudyRecord
from automl.record.trial_record import TrialRecord
from automl.running.refit.begin import Begun, ensemble_of, refuse_batch
from automl.running.refit.check_members import to_check
from automl.running.refit.derive import (
    Sizes,
    decay_of,
    digest_of,
    epochs_again,
    of_its_family,
    rows_said,
    small_study,
)
from automl.training.family import Family
from automl.training.plan import MemberPlan, RefitPlan
from automl.trial import Ensembled, Params, TrialState


@dataclass(frozen=True)
class MembersAgain:
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


def refuse_unfit_members(config: Config) -> None:
    """Raises ConfigError for settings of one training that takes several devices."""
    refit = config.refit
    parallel = None if refit.parallel in (Parallel.auto, Parallel.none) else refit.parallel.value
    devices = None if refit.devices == "all" else refit.devices
    given = {"batch_size": refit.batch_size, "parallel": parallel, "devices": devices}
    for key, value in given.items():
        if value is not None:
            raise ConfigError(
                f"refit.{key}={value}: members of an ensemble are trained as they were, beside "
                "each other, a device for each: leave it out, or train the best trial again: "
                "refit.members=none."
            )


def begun_of(config: Config, path: Path, record: StudyRecord, winner: TrialRecord) -> Begun:
    """A refit of what the study at `path` came to: the ensemble, else the winner. Raises
    ConfigError."""
    made = ensemble_of(record, config, path)
    if made is None:
        refuse_batch(config, winner.params)
        return Begun(config, path, winner)
    refuse_unfit_members(config)
    return Begun(config, path, winner, made, trials_of(made, record, config.study.name))


def trials_of(made: Ensembled, record: StudyRecord, name: str | None) -> list[TrialRecord]:
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


def members_of(
    config: Config, made: Ensembled, trials: Sequence[TrialRecord], sizes: Sizes
) -> MembersAgain:
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
        f"{rows_said(config, sizes)}, {length}"
    ]
    if config.data.sweep_rows is not None and to_check(config, trials) is None:
        notes.append("the search had a part of the rows; members are trained with its params")
    plan = RefitPlan(keeps_last, members=plans, repeats=tuple(t.number for t in trials))
    return MembersAgain(made.members, plan, tuple(notes))


def _member(config: Config, trial: TrialRecord, sizes: Sizes) -> MemberPlan:
    of_family, own = of_its_family(config, trial)
    decay = decay_of(of_family, own.params, sizes.now)
    return MemberPlan(trial.params, epochs_again(of_family, own, sizes), decay)


def name_of(config: Config, members: MembersAgain, identity: Mapping[str, Any]) -> str:
    """`ensemble-3fa9c2d1`: the same for the same members, whose weights and seeds may become
    others; `identity` is that of the study, data included."""
    decides = {
        "study": identity,
        "members": [asdict(member) for member in members.plan.members],
        "rows": [config.refit.rows, config.refit.hold_out],
    }
    return f"ensemble-{digest_of(decides)}"


def derived_members(
    config: Config, members: MembersAgain, name: str, given: Sequence[int]
) -> Config:
    """The settings of the refit, whose trials are of the `given` members by number."""
    own = small_study(config, name, keeps_last=members.plan.keeps_last)
    longest = max(member.epochs for member in members.plan.members)
    return replace(
        own,
        space=_with_their_families(config, members.params),
        study=replace(
            own.study,
            n_trials=len(given),
            enqueue=[dict(members.params[member]) for member in given],
            ensemble=Ensemble.none,
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


def given_to(wanted: Sequence[Params], n_seeds: int, known: Mapping[int, TrialRecord]) -> list[int]:
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


def finished(
    given: Sequence[int], n_seeds: int, known: Mapping[int, TrialRecord]
) -> list[list[int]]:
    """Trials that finished, for each member as many as it has seeds, or fewer."""
    found: list[list[int]] = [[] for _ in range(max(given) + 1)]
    for number, member in enumerate(given):
        ended = number in known and known[number].state is TrialState.FINISHED
        if ended and len(found[member]) < n_seeds:
            found[member].append(number)
    return found
