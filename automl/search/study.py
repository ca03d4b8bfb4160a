"""A study: proposes trials, takes their reports and outcomes, and decides which stop early.

Only the main thread asks and tells; any thread reports. The lock guards values in memory and is
never held while the storage works, so no report waits for a sampler. Samplers, storage and the
journal's format are Optuna's; `storage.py` says which interface of Optuna is used, and why.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import optuna
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial

from automl.config import StudyConfig
from automl.errors import ConfigError
from automl.record.study_files import StudyFiles
from automl.record.texts import redact_tag
from automl.search.earlier_trials import EarlierTrials, take_earlier
from automl.search.imported_trials import import_trials
from automl.search.optuna_trials import (
    NO_TRIALS,
    BegunTrials,
    EndedTrial,
    TrialNotes,
    complete_running,
    ended_trial,
    mark_enqueued,
    name_metrics,
    optuna_distributions,
    optuna_end,
    optuna_new_trial,
    outcome_values,
    restore_trials,
    show_paused,
    storage_values,
    store_reached,
    stored_reached,
    stored_values,
    trial_state_of,
)
from automl.search.param_suggestions import ParamSuggester, params_within_space
from automl.search.pruners.report_thinning import ReportPoint
from automl.search.samplers.by_optuna import ParamsProposer, complete_params
from automl.search.samplers.sampler import SamplerInputs
from automl.search.search_space import EnqueuedPoint, SearchSpace
from automl.search.storage import (
    FIXED_PARAMS,
    OUTSIDE_SPACE,
    REQUEST,
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
from automl.search.trial_standings import PausedTrials, RankedTrial, StudyStandings
from automl.trial import (
    MetricsReported,
    ParamQuestion,
    Params,
    ParamsNotSuggested,
    ParamValue,
    SpaceEntry,
    TrialOutcome,
    TrialState,
    TrialTagged,
    Verdict,
)


@dataclass(frozen=True)
class AskedTrial:
    """A trial to carry out; its params include fixed ones, and none whose condition fails."""

    number: int
    params: Params


class Study:
    """An open study of one sweep; made by `Study.open`, and closed when the sweep ends."""

    def __init__(
        self, config: StudyConfig, opened: OpenStorage, rules: StudyRules, standings: StudyStandings
    ) -> None:
        """Take parts that `open` has checked; `_join` then finds or makes the stored study."""
        assert config.name is not None, "a sweep without a name makes one up before this"
        self.name = self.stored_name = config.name
        """The name of the study in the storage: the one that it was begun with."""
        self.uuid = ""
        """The identifier that a study keeps when its name changes."""
        self._metrics = config.metrics
        self._opened, self._storage = opened, opened.storage
        self._config, self._rules, self._history = config, rules, rules.history
        self._space = rules.space
        """The space of the params with which a new trial begins."""
        self._earlier = EarlierTrials()
        self._distributions = optuna_distributions(rules.space)
        self.suggester: ParamSuggester | None = None
        """Suggests the params that the objective asks for; None: the whole space is written."""
        self._standings = standings
        self._lock = threading.Lock()
        """Guards `_standings`, from any thread."""
        self.pauses = PausedTrials(standings, self._lock)
        self._study_id, self._begun, self.n_restored = -1, NO_TRIALS, 0
        self.import_note = ""
        """Line about the trials that the study began with, in the sweep that copies them."""
        self._trial_ids: list[int] = []
        """Optuna's trial ids, by trial number."""
        self._interrupted: list[AskedTrial] = []
        self.by_request: dict[str, int] = {}
        """Numbers of the trials that users enqueued while sweeps ran, by their requests."""
        self._proposer = self._propose_from(rules.space)

    @classmethod
    def open(
        cls,
        config: StudyConfig,
        rules: StudyRules,
        directory: Path,
        opened: OpenStorage | None = None,
        begun: BegunTrials = NO_TRIALS,
    ) -> Self:
        """Open study `config.name`, or create it; it is kept in `directory` or `config.storage`.

        `opened` replaces the storage that `config` names. `begun`: trials of the event log; those
        that the storage has lost are put back. Raises ConfigError (changed identity, unusable
        storage, a space that the sampler cannot take, enqueued params outside the space),
        StudyInUseError or StorageError.
        """
        space, asks_for_params = rules.space, rules.asks_for_params
        for number, params in enumerate(config.enqueue if not rules.edits else ()):
            space.check(params, f"study.enqueue[{number}]", may_have_others=asks_for_params)
        standings = StudyStandings(config.metrics, rules.pruner, rules.choice, rules.pruners)
        opened = opened or open_storage(config.storage, directory)
        try:
            study = cls(config, opened, rules, standings)
            study._begun = begun
            if asks_for_params:
                inputs = SamplerInputs(space, config.seed, (), study._open_for_sampler)
                study.suggester = ParamSuggester(inputs, rules.sampler, opened)
            with opened.guard(), damage_as_error(opened.where):
                study._join(config, rules.identity, directory)
                study._earlier = take_earlier(opened.storage, study._study_id, rules.read_earlier)
            if rules.edits or study._earlier.points:  # a grid leaves out what earlier trials tried
                study._set_space(space)
        except BaseException:
            opened.close()
            raise
        return study

    def interrupted(self) -> tuple[AskedTrial, ...]:
        """Return trials that an earlier sweep did not end; now they belong to this sweep."""
        return tuple(self._interrupted)

    @property
    def n_asked(self) -> int:
        """The number of all trials of the study, failed and pruned ones included."""
        return self._standings.n_trials

    def ask(self) -> AskedTrial | None:
        """Record the next trial and return it; None: a grid is exhausted.

        It has all its params, or all that are known before it asks for more. Raises StorageError,
        after which the study takes nothing more, and ConfigError for a discovered space that the
        sampler cannot take.
        """
        number = self.n_asked
        self._take_found_space()
        with self._opened.guard():
            place = number - len(self.by_request)
            params = self._proposer.propose(place)
            if params is None:
                return None
            return self._add(number, params, tried=self._proposer.point(place))

    def enqueue(self, points: Sequence[EnqueuedPoint]) -> list[AskedTrial]:
        """Record a user's points as the next trials. Raises ConfigError and StorageError."""
        self._take_found_space()
        asks = self.suggester is not None
        known = self._space if self.suggester is None else self.suggester.found_space.whole()
        for point in points:
            point.check(known, may_have_others=asks)
        trials = []
        for point in points:
            with self._opened.guard():
                trials.append(self._add(self.n_asked, self._complete(self.n_asked, point), point))
        return trials

    def _take_found_space(self) -> None:
        """Ask for trials in the space of the params that are drawn ahead by now."""
        if self.suggester is not None and self.suggester.space != self._space:
            self._set_space(self.suggester.space)

    def _complete(self, number: int, point: EnqueuedPoint) -> Params:
        inside = params_within_space(self._space, point.params)
        return self._proposer.complete(number, inside) | dict(point.outside(self._space))

    def _add(
        self,
        number: int,
        params: Params,
        point: EnqueuedPoint | None = None,
        tried: Params | None = None,
    ) -> AskedTrial:
        """Record a new trial in storage and standings. `tried` are the params of the user's that it
        has; those of `point` are."""
        space, distributions = self._space, self._distributions
        if number < self._history.n_earlier:  # another sweep asked for it, before an edit
            distributions = optuna_distributions(space := self._history.at(number))
        tried = tried if point is None else point.params
        if self.suggester is not None and tried:
            params = self.suggester.with_point(number, params, tried)
        trial = optuna_new_trial(number, params, distributions)
        if self.suggester is not None and tried:
            trial.system_attrs[FIXED_PARAMS] = dict(tried)
        if point is not None:
            mark_enqueued(trial, point, space)
            self.by_request[point.request] = number
        trial_id = self._storage.create_new_trial(self._study_id, template_trial=trial)
        self._opened.sync()
        self._opened.check_number(self._study_id, number, trial_id, self.name)
        self._trial_ids.append(trial_id)
        with self._lock:
            self._standings.start(params)
        return AskedTrial(number, params)

    def is_running(self, number: int) -> bool:
        """Return whether a trial of the study has not ended."""
        return self._standings.is_running(number)

    def suggest(self, question: ParamQuestion) -> ParamValue:
        """Return the value of a param that a running trial asks for, and record it.

        A repeated question gets the same value. Raises ConfigError for an entry that no param can
        have, and StorageError.
        """
        assert self.suggester is not None, "the objective asks for params"
        known = self._standings.params(question.trial)
        with self._opened.guard():
            value = self.suggester.value(question, known, self._trial_ids[question.trial])
        others = {name: v for name, v in known.items() if name != question.name}
        with self._lock:  # the params stand in the order in which they were asked for
            self._standings.set_params(question.trial, {**others, question.name: value})
        return value

    def not_suggested(self, message: ParamsNotSuggested) -> None:
        """Note that a trial ended without asking for the named params."""
        assert self.suggester is not None, "the objective asks for params"
        with self._opened.guard():
            self.suggester.not_asked_for(message.names, self._trial_ids[message.trial])
        unasked = self.suggester.drawn_ahead(message.names)
        with self._lock:
            known = self._standings.params(message.trial)
            known = {name: value for name, value in known.items() if name not in unasked}
            self._standings.set_params(message.trial, known)

    def drawn_ahead(self, params: Params) -> Sequence[str]:
        """Return the names of params that become a trial's own only when it asks for them."""
        return () if self.suggester is None else self.suggester.drawn_ahead(params)

    def params(self, number: int) -> Params:
        """Return the params of a trial, as far as they are known."""
        return self._standings.params(number)

    def entries(self, params: Params) -> Mapping[str, SpaceEntry]:
        """Return the expected entries of a trial's params that were drawn ahead."""
        return {} if self.suggester is None else self.suggester.entries(params)

    def report(self, reports: Sequence[MetricsReported]) -> Mapping[int, Verdict]:
        """Record all reports, then judge their trials, so that the order does not matter.

        Any thread may call it. A step that was recorded before is not recorded again, and a report
        without the study's metric is not judged. The storage gets only some of a trial's reports
        (`trial_standings.py`). Raises StorageError.
        """
        stored: list[tuple[int, ReportPoint]] = []
        with self._lock:
            for report in reports:
                points = self._standings.record_metrics(report.trial, report.step, report.metrics)
                stored += [(report.trial, point) for point in points]
            reached = {trial: self._standings.reached(trial) for trial, _ in stored}
        with self._opened.guard():
            for trial, (step, value) in stored:
                self._storage.set_trial_intermediate_value(self._trial_ids[trial], step, value)
            for trial, points_at in reached.items():
                store_reached(self._storage, self._trial_ids[trial], points_at)
        with self._lock:
            return {report.trial: self._standings.verdict(report.trial) for report in reports}

    def tag(self, tagged: TrialTagged) -> None:
        """Store a tag of the objective for readers who use Optuna's own tools.

        Any thread may call it. Raises StorageError.
        """
        tag = redact_tag(tagged.name, tagged.text)
        with self._opened.guard():
            trial_id = self._trial_ids[tagged.trial]
            self._storage.set_trial_user_attr(trial_id, tag["name"], tag["text"])

    def tell(self, number: int, outcome: TrialOutcome, device: str | None = None) -> None:
        """End trial `number`, which ran on `device`.

        Do not call it for an interrupted trial, which goes on later. Raises StorageError, after
        which the study takes nothing more.
        """
        assert self._standings.is_running(number), f"trial {number} has ended before"
        optuna_state, state, value = optuna_end(outcome)
        trial_id = self._trial_ids[number]
        with self._opened.guard():
            for step, last in self._standings.not_given(number):
                self._storage.set_trial_intermediate_value(trial_id, step, last)
            notes = TrialNotes(self._storage, self.stored_name, trial_id)
            notes.note_end(outcome, device, self._metrics)
            values = storage_values(outcome, value, self._metrics)
            self._storage.set_trial_state_values(trial_id, optuna_state, values)
            self._opened.sync()
            if self.suggester is not None:
                self.suggester.take_ended(self._storage.get_trial(trial_id))
        with self._lock:
            self._standings.end(number, state, value, outcome_values(outcome))

    def counts(self) -> Mapping[TrialState, int]:
        """Return the number of trials in each state; RUNNING counts all that have not ended."""
        return self._standings.counts()

    def best(self) -> RankedTrial | None:
        """Return the trial with the best value; pruned ones count unless values are returned."""
        return self._standings.best()

    def leader(self) -> tuple[int, float] | None:
        """Return number and value of the best trial so far, running ones included, or None."""
        with self._lock:
            return self._standings.leader()

    def front(self) -> tuple[RankedTrial, ...]:
        """Return the trials that no other trial beats; with one metric, only the best one."""
        return self._standings.front()

    def best_report(self, number: int) -> float | None:
        """Return the best value that a running trial has reported, or None."""
        with self._lock:
            return self._standings.best_report(number)

    def ranking(self, n: int) -> tuple[RankedTrial, ...]:
        """Return the best `n` trials; a pruned trial counts by its best report."""
        return self._standings.ranking(n)

    def ended(self, excluded: Container[int] = ()) -> list[EndedTrial]:
        """Return the trials that have ended, except those with a number in `excluded`."""
        with self._opened.guard():
            trials = self._storage.get_all_trials(self._study_id, deepcopy=False)
        return [
            ended_trial(trial, self._standings.params(trial.number), self._metrics)
            for trial in trials
            if trial.state.is_finished() and trial.number not in excluded
        ]

    def keep_uuid(self, study_uuid: str) -> None:
        """Give the study the uuid `study_uuid` from now on, in the storage, too."""
        if study_uuid != self.uuid:
            with self._opened.guard():
                store_study_uuid(self._storage, self._study_id, study_uuid)
                self._opened.sync()
            self.uuid = study_uuid

    @property
    def leading_metric(self) -> str:
        """The name of the metric that trials report first of all."""
        return self._metrics.leading.name

    def close(self) -> None:
        self._opened.close()

    def edit(self, rules: StudyRules) -> None:
        """Ask for further trials by other rules, whose identity is that of the study.

        Raises ConfigError for a space that the sampler cannot take; nothing has changed then.
        """
        before = self._rules, self._history, self._space, self._distributions
        self._rules, self._history = rules, rules.history
        try:
            self._set_space(rules.space)
        except ConfigError:
            self._rules, self._history, self._space, self._distributions = before
            raise
        with self._lock:
            self._standings.judge_by(rules.pruner, rules.pruners)

    def _set_space(self, space: SearchSpace) -> None:
        self._space, self._distributions = space, optuna_distributions(space)
        self._proposer = self._propose_from(space)

    def _propose_from(self, space: SearchSpace) -> ParamsProposer:
        """Return what proposes trials of the space. Raises ConfigError."""
        numbers = set(range(min(self._history.n_earlier, self.n_asked)))
        numbers -= {*self.by_request.values()}  # `ask` does not count these trials
        earlier = [self._history.as_present(n, self.params(n)) for n in sorted(numbers)]
        first = (*self._earlier.points, *self._rules.portfolio)
        rules = replace(self._rules, portfolio=first)
        return rules.proposer(space, self._config, earlier, self._open_for_sampler)

    def _open_for_sampler(self, sampler: BaseSampler) -> optuna.Study:
        return load_optuna_study(sampler, self._storage, self.stored_name, self._show)

    def _show(self, trials: list[FrozenTrial]) -> list[FrozenTrial]:
        """Return trials as samplers see them: in the present space, after those of earlier ones."""
        shown = show_paused(trials, self.pauses.all())
        own = [self._history.adapt(trial, self._distributions) for trial in shown]
        direction = self._metrics.leading.direction
        return self._earlier.before(own, self.n_asked, direction, self._space) + own

    # --- opening ---

    def _join(self, config: StudyConfig, identity: StudyIdentity, directory: Path) -> None:
        """Find or make the study in its storage, and take its trials into the standings."""
        where = self._opened.where
        if config.storage is None:
            self.stored_name = stored_study_name(self._storage, self.name, where)
        elif (log := StudyFiles(directory).events).exists() and log.stat().st_size:
            refuse_lost_study(self._storage, self.name, where)
        self._study_id, self.uuid = find_or_create_study(
            self._storage, self.stored_name, config.metrics, identity, where
        )
        name_metrics(self._storage, self.stored_name, config.metrics)
        storage, study_id = self._storage, self._study_id
        self.import_note = import_trials(
            storage,
            study_id,
            self._rules.read_imported,
            config.metrics,
            self._space,
            asks_for_params=self._rules.asks_for_params,
            enqueues=bool(config.enqueue),
        )
        self.n_restored = restore_trials(storage, study_id, self._begun, self._history.at)
        for trial in storage.get_all_trials(study_id, deepcopy=False):
            self._trial_ids.append(trial._trial_id)
            if (request := trial.system_attrs.get(REQUEST)) is not None:
                self.by_request[request] = trial.number
            if trial.state.is_finished():
                self._take_ended(trial)
            else:
                self._take_over(trial)
        self._opened.sync()

    def _take_ended(self, trial: FrozenTrial) -> None:
        space = self._history.at(trial.number)
        asked_params = as_asked(trial).params
        known = {**space.fixed, **asked_params}
        params = {name: known[name] for name in space.names if name in known}
        if self.suggester is not None:
            params |= asked_params
            self.suggester.take_ended(trial)
        number = self._replay(trial, params)
        value, state = trial.values[0] if trial.values else None, trial_state_of(trial)
        self._standings.end(number, state, value, stored_values(trial, self._metrics))

    def _take_over(self, trial: FrozenTrial) -> None:
        """Go on with a trial that has not ended.

        A trial of another program may lack params; ours are written whole.
        """
        known = trial.system_attrs.get(FIXED_PARAMS, {}) | trial.params
        space = self._history.at(trial.number)
        params = complete_params(
            space, self._config.seed, trial.number, params_within_space(space, known)
        )
        if self.suggester is not None:
            params = {n: value for n, value in known.items() if n not in space.names} | params
            self.suggester.take_running(trial)
        if self.suggester is not None or OUTSIDE_SPACE in trial.system_attrs:
            params |= trial.params
        complete_running(self._storage, trial, params, optuna_distributions(space))
        self._interrupted.append(AskedTrial(self._replay(trial, params), params))

    def _replay(self, trial: FrozenTrial, params: Params) -> int:
        """Take a stored trial and its reports into the standings; return its number."""
        number = self._standings.start(params)
        self._standings.replay(number, trial.intermediate_values.items(), stored_reached(trial))
        return number
