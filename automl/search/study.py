"""A study: asks for params, takes reports and outcomes, and says who stops early.

The main thread alone asks and tells; any thread reports. The lock guards values in memory and is
never held while the storage works, so no report waits for a sampler. Samplers, storage and the
journal's format are Optuna's; `storage.py` says by which of its doors, and why.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.samplers import RandomSampler
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from automl.config import PrunerConfig, SamplerConfig, StudyConfig
from automl.errors import StorageError
from automl.search.domains import Fixed
from automl.search.identity import find_or_create, refuse_other_study
from automl.search.pruners import make_pruner
from automl.search.samplers import Proposer, distributions, running_trial
from automl.search.space import Space
from automl.search.standings import RankedTrial, Standings
from automl.search.storage import OpenStorage, open_storage, view_for
from automl.trial import (
    Failed,
    Finished,
    Outcome,
    OutOfMemory,
    Params,
    Pruned,
    Reported,
    TrialState,
    Verdict,
)

MEMORY = "memory"
"""The constraint violated by a trial that fits on no device.

Samplers pass over failed trials and would propose the same again; from one that is pruned and
violates a constraint they learn (36 of 60 trials wasted against 11, on a toy).
"""


@dataclass(frozen=True)
class AskedTrial:
    """A trial to carry out. Fixed params are in, those whose condition does not hold are not."""

    number: int
    params: Params


class Study:
    """Get one from `Study.open`; close it when the sweep ends."""

    def __init__(
        self,
        config: StudyConfig,
        opened: OpenStorage,
        space: Space,
        proposer: Proposer,
        standings: Standings,
    ) -> None:
        """For `open`, which checks; `_join` then finds or makes the study in the storage."""
        assert config.name is not None, "a sweep without a name makes one up before this"
        self.name = config.name
        self.uuid = ""
        """Identifies the study for good, whatever its name."""
        self._metric = config.metric
        self._opened = opened
        self._storage = opened.storage
        self._space = space
        self._distributions = distributions(space)
        self._proposer = proposer
        self._standings = standings
        self._lock = threading.Lock()
        """Guards the standings."""
        self._study_id = -1
        self._trial_ids: list[int] = []
        """Optuna's, by trial number."""
        self._interrupted: list[AskedTrial] = []

    @classmethod
    def open(
        cls,
        config: StudyConfig,
        *,
        space: Space,
        sampler: SamplerConfig,
        pruner: PrunerConfig,
        identity: Mapping[str, Any],
        directory: Path,
    ) -> Study:
        """Open study `config.name`, or create it; without `config.storage` in `directory`.

        `identity` is what may not change while the study lasts, as nested JSON values. Raises
        ConfigError (changed identity, unusable storage, space without a grid, enqueued params
        outside the space), StudyInUseError or StorageError.
        """
        for number, params in enumerate(config.enqueue):
            space.check(params, f"study.enqueue[{number}]")
        standings = Standings(config.direction, make_pruner(pruner))
        opened = open_storage(config.storage, directory)
        try:
            proposer = Proposer(
                sampler,
                space,
                config.seed,
                config.enqueue,
                lambda sampler: view_for(sampler, opened.storage, config.name or ""),
            )
            study = cls(config, opened, space, proposer, standings)
            with opened.guard():
                study._join(config, identity)
        except BaseException:
            opened.close()
            raise
        return study

    def interrupted(self) -> tuple[AskedTrial, ...]:
        """Trials that an earlier sweep asked for and did not end; they are this sweep's now."""
        return tuple(self._interrupted)

    @property
    def n_asked(self) -> int:
        """Trials of the study in all, failed and pruned ones included."""
        return self._standings.n_trials

    def ask(self) -> AskedTrial | None:
        """The next trial, recorded with all its params; None when a grid is exhausted.

        Raises StorageError, after which the study takes nothing more.
        """
        number = self.n_asked
        with self._opened.guard():
            params = self._proposer.propose(number)
            if params is None:
                return None
            searched = {n: d for n, d in self._distributions.items() if n in params}
            trial = running_trial(number, {name: params[name] for name in searched}, searched)
            trial_id = self._storage.create_new_trial(self._study_id, template_trial=trial)
            self._opened.sync()
            self._check_number(number, trial_id)
        self._trial_ids.append(trial_id)
        with self._lock:
            self._standings.start(params)
        return AskedTrial(number, params)

    def report(self, reports: Sequence[Reported]) -> Mapping[int, Verdict]:
        """Record reports, then judge their trials: so it does not matter in which order they are.

        From any thread. A step that was recorded before is not recorded again, and a report
        without the study's metric is not judged. Raises StorageError.
        """
        new: list[Reported] = []
        with self._lock:
            for report in reports:
                value = report.metrics.get(self._metric)
                if value is not None and self._standings.record(report.trial, report.step, value):
                    new.append(report)
        with self._opened.guard():
            for report in new:
                self._storage.set_trial_intermediate_value(
                    self._trial_ids[report.trial], report.step, float(report.metrics[self._metric])
                )
        with self._lock:
            judged = {report.trial: self._standings.judge(report.trial) for report in reports}
        return {
            trial: Verdict.PRUNE if pruned else Verdict.GO_ON for trial, pruned in judged.items()
        }

    def tell(self, number: int, outcome: Outcome) -> None:
        """End trial `number`. An interrupted one is not told: it goes on later.

        Raises StorageError, after which the study takes nothing more.
        """
        assert self._standings.is_running(number), f"trial {number} has ended before"
        value: float | None = None
        match outcome:
            case Finished(value=value):
                assert math.isfinite(value), f"trial {number}: {value} is no result"
                optuna_state, state = OptunaState.COMPLETE, TrialState.FINISHED
            case Pruned(value=best):
                value = best if math.isfinite(best) else None
                optuna_state, state = OptunaState.PRUNED, TrialState.PRUNED
            case OutOfMemory():
                optuna_state, state = OptunaState.PRUNED, TrialState.FAILED
            case Failed():
                optuna_state, state = OptunaState.FAIL, TrialState.FAILED
            case _:
                raise TypeError(f"{type(outcome).__name__} does not end a trial")
        trial_id = self._trial_ids[number]
        with self._opened.guard():
            if isinstance(outcome, OutOfMemory):
                self._set_out_of_memory(trial_id)
            values = None if value is None else [value]
            self._storage.set_trial_state_values(trial_id, optuna_state, values)
            self._opened.sync()
        with self._lock:
            self._standings.end(number, state, value)

    def counts(self) -> Mapping[TrialState, int]:
        """Trials by state; RUNNING are all that have not ended, whether they run now or not."""
        return self._standings.counts()

    def best(self) -> RankedTrial | None:
        """The trial with the best value, pruned ones included, unless the objective returns it."""
        return self._standings.best()

    def ranking(self, n: int) -> tuple[RankedTrial, ...]:
        """The best `n` trials: of pruned ones the best reported value counts (`Standings`)."""
        return self._standings.ranking(n)

    def close(self) -> None:
        """Give file or connections back."""
        self._opened.close()

    # --- opening ---

    def _join(self, config: StudyConfig, identity: Mapping[str, Any]) -> None:
        """Find or make the study in its storage, and take its trials into the standings."""
        if config.storage is None:
            refuse_other_study(self._storage, self.name, self._opened.where)
        self._study_id, self.uuid = find_or_create(
            self._storage, self.name, config.direction, identity, self._opened.where
        )
        for trial in self._storage.get_all_trials(self._study_id, deepcopy=False):
            self._trial_ids.append(trial._trial_id)
            if trial.state.is_finished():
                self._take_ended(trial)
            else:
                self._take_over(trial)
        self._opened.sync()

    def _take_ended(self, trial: FrozenTrial) -> None:
        fixed = {p.name: p.domain.value for p in self._space.params if isinstance(p.domain, Fixed)}
        known = fixed | trial.params
        params = {name: known[name] for name in self._space.names if name in known}
        number = self._standings.start(params)
        self._standings.replay(number, trial.intermediate_values.items())
        value = trial.values[0] if trial.values else None
        self._standings.end(number, _state(trial), value)

    def _take_over(self, trial: FrozenTrial) -> None:
        """Ours lack no params, since a trial is written whole; another writer's may."""
        known = trial.system_attrs.get("fixed_params", {}) | trial.params
        params = self._proposer.complete(trial.number, known)
        for name, distribution in self._distributions.items():
            if name in params and name not in trial.params:
                value = distribution.to_internal_repr(params[name])
                self._storage.set_trial_param(trial._trial_id, name, value, distribution)
        if trial.state is OptunaState.WAITING:
            self._storage.set_trial_state_values(trial._trial_id, OptunaState.RUNNING)
        number = self._standings.start(params)
        self._standings.replay(number, trial.intermediate_values.items())
        self._interrupted.append(AskedTrial(number, params))

    # --- details of the storage ---

    def _check_number(self, number: int, trial_id: int) -> None:
        """In a shared database somebody else may ask for trials of the same study."""
        stored = self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)
        if stored != trial_id:
            raise StorageError(
                f"study.name={self.name}: another program adds trials to this study in "
                f"{self._opened.where}; stop it, then resume the study."
            )

    def _set_out_of_memory(self, trial_id: int) -> None:
        if MEMORY not in self._storage.get_trial(trial_id).constraints:
            study = optuna.load_study(
                study_name=self.name, storage=self._storage, sampler=RandomSampler()
            )
            optuna.trial.Trial(study, trial_id).set_constraint(MEMORY, 1.0)


def _state(trial: FrozenTrial) -> TrialState:
    if trial.state is OptunaState.COMPLETE:
        return TrialState.FINISHED
    if trial.state is OptunaState.PRUNED and trial.constraints.get(MEMORY, 0.0) <= 0.0:
        return TrialState.PRUNED
    return TrialState.FAILED
