"""A study: asks for params, takes reports and outcomes, and says who stops early.

The main thread alone asks and tells; any thread reports. The lock guards values in memory and is
never held while the storage works, so no report waits for a sampler. Samplers, storage and the
journal's format are Optuna's; `storage.py` says by which of its doors, and why.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import optuna
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from automl.config import StudyConfig
from automl.errors import StorageError
from automl.record.study_files import StudyFiles
from automl.record.texts import redact_tag
from automl.search.domains import FixedDomain
from automl.search.optuna_trials import (
    MLFLOW_RUN,
    EndedTrial,
    name_metric,
    note_trial_end,
    optuna_distributions,
    optuna_running_trial,
    set_excess,
    trial_outcome_of,
    trial_state_of,
    unix_seconds,
)
from automl.search.param_suggestions import ParamSuggester, params_within_space
from automl.search.samplers.by_optuna import ParamsProposer
from automl.search.samplers.random import IndependentSampler
from automl.search.samplers.sampler import SamplerInputs
from automl.search.search_space import SearchSpace
from automl.search.storage import (
    OpenStorage,
    as_asked,
    damage_as_error,
    load_optuna_study,
    open_storage,
)
from automl.search.study_identity import (
    StudyIdentity,
    StudyRules,
    find_or_create_study,
    refuse_lost_study,
    store_study_uuid,
    stored_study_name,
)
from automl.search.trial_standings import RankedTrial, ReportPoint, StudyStandings
from automl.trial import (
    FailedOutcome,
    FinishedOutcome,
    MetricsReported,
    ParamQuestion,
    Params,
    ParamsNotSuggested,
    ParamValue,
    PrunedOutcome,
    SpaceEntry,
    TooLargeOutcome,
    TrialOutcome,
    TrialState,
    TrialTagged,
    Verdict,
    trial_name,
)


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
        space: SearchSpace,
        propose_from: Callable[[SearchSpace], ParamsProposer],
        suggesting: ParamSuggester | None,
        standings: StudyStandings,
    ) -> None:
        """For `open`, which checks; `_join` then finds or makes the study in the storage."""
        assert config.name is not None, "a sweep without a name makes one up before this"
        self.name = config.name
        self.stored_name = config.name
        """What the storage calls it: the name it was begun with."""
        self.uuid = ""
        """Identifies the study for good, whatever its name."""
        self._metric = config.metric
        self._opened = opened
        self._storage = opened.storage
        self._space = space
        """What a trial that is asked for now begins with."""
        self._distributions = optuna_distributions(space)
        self._propose_from = propose_from
        self._proposer = propose_from(space)
        self._suggesting = suggesting
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
        rules: StudyRules,
        directory: Path,
        opened: OpenStorage | None = None,
    ) -> Self:
        """Open study `config.name`, or create it; without `config.storage` in `directory`.

        `opened` is a storage in place of the one that `config` names. Raises ConfigError (changed
        identity, unusable storage, a space that the sampler cannot take, enqueued params outside
        the space), StudyInUseError or StorageError.
        """
        space, asks = rules.space, rules.asks_for_params
        for number, params in enumerate(config.enqueue):
            space.check(params, f"study.enqueue[{number}]", may_have_others=asks)
        standings = StudyStandings(config.towards, rules.pruner, rules.choice, rules.pruners)
        first = [*config.enqueue, *(params for params in rules.portfolio if space.has(params))]
        opened = opened or open_storage(config.storage, directory)
        try:

            def as_it_stands(sampler: BaseSampler) -> optuna.Study:
                return load_optuna_study(sampler, opened.storage, study.stored_name)

            def propose_from(space: SearchSpace) -> ParamsProposer:
                enqueued = [params_within_space(space, params) for params in first]
                proposing = (
                    IndependentSampler()
                    if asks and not optuna_distributions(space)
                    else rules.sampler
                )
                return ParamsProposer(
                    proposing, space, config.seed, enqueued, as_it_stands, rules.choice
                )

            suggesting = None
            if asks:
                search = SamplerInputs(space, config.seed, config.enqueue, as_it_stands)
                suggesting = ParamSuggester(search, rules.sampler, opened)
            study = cls(config, opened, space, propose_from, suggesting, standings)
            with opened.guard(), damage_as_error(opened.where):
                study._join(config, rules.identity, directory)
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
        """The next trial, recorded with all its params, or with all that are known before it asks
        for more; None when a grid is exhausted.

        Raises StorageError, after which the study takes nothing more, and ConfigError for a space
        that was found and the sampler cannot take.
        """
        number = self.n_asked
        if self._suggesting is not None and self._suggesting.space != self._space:
            self._begin_with(self._suggesting.space)
        with self._opened.guard():
            params = self._proposer.propose(number)
            if params is None:
                return None
            return self._add(number, params)

    def _add(self, number: int, params: Params) -> AskedTrial:
        """Record a new trial."""
        searched = {n: d for n, d in self._distributions.items() if n in params}
        known = {name: params[name] for name in searched}
        trial = optuna_running_trial(number, known, searched, {MLFLOW_RUN: trial_name(number)})
        trial_id = self._storage.create_new_trial(self._study_id, template_trial=trial)
        self._opened.sync()
        self._check_number(number, trial_id)
        self._trial_ids.append(trial_id)
        with self._lock:
            self._standings.start(params)
        return AskedTrial(number, params)

    def suggest(self, asked: ParamQuestion) -> ParamValue:
        """The value of a param that a running trial asks for, recorded; asked again, the same.

        Raises ConfigError for what no param can be, and StorageError.
        """
        assert self._suggesting is not None, "the objective asks for params"
        known = self._standings.params(asked.trial)
        with self._opened.guard():
            value = self._suggesting.value(asked, known, self._trial_ids[asked.trial])
        with self._lock:
            self._standings.set_params(asked.trial, {**known, asked.name: value})
        return value

    def not_suggested(self, noted: ParamsNotSuggested) -> None:
        """A trial came to its end, and its objective did not ask for these of its params."""
        assert self._suggesting is not None, "the objective asks for params"
        with self._opened.guard():
            self._suggesting.not_asked_for(noted.names, self._trial_ids[noted.trial])
        unasked = self._suggesting.drawn_ahead(noted.names)
        with self._lock:
            known = self._standings.params(noted.trial)
            known = {name: value for name, value in known.items() if name not in unasked}
            self._standings.set_params(noted.trial, known)

    def drawn_ahead(self, params: Params) -> Sequence[str]:
        """Return those of a trial's params that are its own only once it asks for them."""
        return () if self._suggesting is None else self._suggesting.drawn_ahead(params)

    def params(self, number: int) -> Params:
        """Of a trial, as far as they are known."""
        return self._standings.params(number)

    def entries(self, params: Params) -> Mapping[str, SpaceEntry]:
        """As an objective will ask for those of a trial's params that were drawn for that."""
        return {} if self._suggesting is None else self._suggesting.entries(params)

    @property
    def suggesting(self) -> ParamSuggester | None:
        """What was found of the space that the objective asks for; None: it is all written."""
        return self._suggesting

    def report(self, reports: Sequence[MetricsReported]) -> Mapping[int, Verdict]:
        """Record reports, then judge their trials: so it does not matter in which order they are.

        From any thread. A step that was recorded before is not recorded again, and a report
        without the study's metric is not judged. Of a trial's many reports the storage is given
        some (`trial_standings.py`). Raises StorageError.
        """
        given: list[tuple[int, ReportPoint]] = []
        with self._lock:
            for report in reports:
                value = report.metrics.get(self._metric)
                if value is not None:
                    points = self._standings.record(report.trial, report.step, float(value))
                    given += [(report.trial, point) for point in points]
        with self._opened.guard():
            for trial, (step, value) in given:
                self._storage.set_trial_intermediate_value(self._trial_ids[trial], step, value)
        with self._lock:
            judged = {report.trial: self._standings.judge(report.trial) for report in reports}
        return {
            trial: Verdict.PRUNE if pruned else Verdict.GO_ON for trial, pruned in judged.items()
        }

    def tag(self, tagged: TrialTagged) -> None:
        """Note what the objective noted, for those who look with Optuna's own tools; any thread.
        Raises StorageError."""
        noted = redact_tag(tagged.name, tagged.text)
        with self._opened.guard():
            trial_id = self._trial_ids[tagged.trial]
            self._storage.set_trial_user_attr(trial_id, noted["name"], noted["text"])

    def tell(self, number: int, outcome: TrialOutcome, device: str | None = None) -> None:
        """End trial `number`, which ran on `device`. One interrupted is not told: it goes on later.

        Raises StorageError, after which the study takes nothing more.
        """
        assert self._standings.is_running(number), f"trial {number} has ended before"
        value: float | None = None
        match outcome:
            case FinishedOutcome(value=value):
                assert math.isfinite(value), f"trial {number}: {value} is no result"
                optuna_state, state = OptunaState.COMPLETE, TrialState.FINISHED
            case PrunedOutcome(value=best):
                value = best if math.isfinite(best) else None
                optuna_state, state = OptunaState.PRUNED, TrialState.PRUNED
            case TooLargeOutcome():
                optuna_state, state = OptunaState.PRUNED, TrialState.PRUNED
            case FailedOutcome():
                optuna_state, state = OptunaState.FAIL, TrialState.FAILED
            case _:
                raise TypeError(f"{type(outcome).__name__} does not end a trial")
        trial_id = self._trial_ids[number]
        with self._opened.guard():
            if isinstance(outcome, TooLargeOutcome):
                set_excess(self._storage, self.stored_name, trial_id, outcome)
            for step, last in self._standings.not_given(number):
                self._storage.set_trial_intermediate_value(trial_id, step, last)
            note_trial_end(self._storage, trial_id, outcome, device)
            values = None if value is None else [value]
            self._storage.set_trial_state_values(trial_id, optuna_state, values)
            self._opened.sync()
            if self._suggesting is not None:
                self._suggesting.ended(self._storage.get_trial(trial_id))
        with self._lock:
            self._standings.end(number, state, value)

    def counts(self) -> Mapping[TrialState, int]:
        """Trials by state; RUNNING are all that have not ended, whether they run now or not."""
        return self._standings.counts()

    def best(self) -> RankedTrial | None:
        """The trial with the best value, pruned ones included, unless the objective returns it."""
        return self._standings.best()

    def ranking(self, n: int) -> tuple[RankedTrial, ...]:
        """The best `n` trials: of pruned ones the best reported value counts (`StudyStandings`)."""
        return self._standings.ranking(n)

    def ended(self, but: Container[int] = ()) -> list[EndedTrial]:
        """The trials that have ended, less those named."""
        with self._opened.guard():
            trials = self._storage.get_all_trials(self._study_id, deepcopy=False)
        return [
            EndedTrial(
                trial.number,
                self._standings.params(trial.number),
                unix_seconds(trial.datetime_start),
                trial_outcome_of(trial),
            )
            for trial in trials
            if trial.state.is_finished() and trial.number not in but
        ]

    def keep_uuid(self, study_uuid: str) -> None:
        """Be study `study_uuid` from now on, in the storage too."""
        if study_uuid != self.uuid:
            with self._opened.guard():
                store_study_uuid(self._storage, self._study_id, study_uuid)
                self._opened.sync()
            self.uuid = study_uuid

    def close(self) -> None:
        """Give file or connections back."""
        self._opened.close()

    def _begin_with(self, space: SearchSpace) -> None:
        """Trials that are asked for from now on have the params of this space."""
        self._space, self._distributions = space, optuna_distributions(space)
        self._proposer = self._propose_from(space)

    # --- opening ---

    def _join(self, config: StudyConfig, identity: StudyIdentity, directory: Path) -> None:
        """Find or make the study in its storage, and take its trials into the standings."""
        where = self._opened.where
        if config.storage is None:
            self.stored_name = stored_study_name(self._storage, self.name, where)
        elif (log := StudyFiles(directory).events).exists() and log.stat().st_size:
            refuse_lost_study(self._storage, self.name, where)
        self._study_id, self.uuid = find_or_create_study(
            self._storage, self.stored_name, config.towards, identity, where
        )
        name_metric(self._storage, self.stored_name, self._metric)
        for trial in self._storage.get_all_trials(self._study_id, deepcopy=False):
            self._trial_ids.append(trial._trial_id)
            if trial.state.is_finished():
                self._take_ended(trial)
            else:
                self._take_over(trial)
        self._opened.sync()

    def _take_ended(self, trial: FrozenTrial) -> None:
        fixed = {
            p.name: p.domain.value for p in self._space.params if isinstance(p.domain, FixedDomain)
        }
        asked = as_asked(trial).params
        known = fixed | asked
        params = {name: known[name] for name in self._space.names if name in known}
        if self._suggesting is not None:
            params |= asked
            self._suggesting.ended(trial)
        number = self._standings.start(params)
        self._standings.replay(number, trial.intermediate_values.items())
        value = trial.values[0] if trial.values else None
        self._standings.end(number, trial_state_of(trial), value)

    def _take_over(self, trial: FrozenTrial) -> None:
        """Ours lack no params, since a trial is written whole; another writer's may."""
        known = trial.system_attrs.get("fixed_params", {}) | trial.params
        params = self._proposer.complete(trial.number, known)
        if self._suggesting is not None:
            params |= trial.params
            self._suggesting.began(trial)
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
