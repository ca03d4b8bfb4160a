"""Checks everything that can be refused before anything is written: space, objective, data, metric,
devices.

The module only reads. `prepare_study` returns what a sweep is made from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from automl.config import (
    ChooseDevice,
    Config,
    DataConfig,
    DataKind,
    DevicesKind,
    ExecutionKind,
    ObjectiveKind,
    check_setting,
)
from automl.config.metrics import ValueLoss, reported_metric
from automl.data.dataset import Dataset, UserDataFacts
from automl.data.users_metric import UsersMetric
from automl.errors import ConfigError
from automl.in_trial.user_code import open_inside
from automl.models.families.auto.family import BY_ROWS
from automl.models.family import Family, family_name, family_of
from automl.objectives.function_call import (
    CalledFunction,
    ObjectiveDeclaration,
    declaration_of_function,
)
from automl.objectives.optuna_objective.suggestion_entries import declaration_of_optuna_objective
from automl.objectives.plan_checks import (
    check_batch,
    check_class_weight,
    check_conditions,
    check_counts,
    check_log_targets,
    check_loss,
    check_metric,
    check_space,
    check_values,
    threshold_notes,
)
from automl.objectives.program.program_arguments import ProgramFlags
from automl.objectives.program.program_flags import digest_of_program, prepare_program_flags
from automl.objectives.training_plan import (
    RefitTraining,
    SessionSetup,
    TrainingPlan,
    declare_objective,
    make_users_metric,
)
from automl.record.texts import say_unfailing
from automl.running.prepare.early_refusals import refuse_early
from automl.running.prepare.identity_settings import option_name
from automl.running.prepare.long_training import long_trial_warnings
from automl.running.prepare.prepared_config import PreparedStudy, RefitInputs, mlflow_inside_entry
from automl.running.prepare.purpose import FINAL_TRAINING, SEARCH
from automl.search.samplers.sampler import Sampler
from automl.search.search_space import SearchSpace, parse_space
from automl.tracking.long_step import long_step
from automl.trial import ROWS_PARAM, ParamValue, ProcessEntry, StudyEdited

DECLARE = "automl.objectives.training_plan:declare_users"
DESCRIBE = "automl.objectives.user_data.source:describe_data"


def prepare_study(
    config: Config,
    called: CalledFunction | None = None,
    refit: RefitInputs | None = None,
    edits: Sequence[StudyEdited] = (),
    *,
    trains: bool = True,
) -> PreparedStudy:
    """Check everything that needs no device. `called` is the function that a sweep was called with
    from Python, `edits` are those of the study so far. Unless it `trains`, extras that train may be
    missing. Raises ConfigError."""
    preparation = _StudyPreparation(config, called, refit, edits)
    refuse_early(config, called, purpose=preparation.purpose, trains=trains)
    return preparation.prepare()


def prepare_edited(prepared: PreparedStudy, config: Config) -> PreparedStudy:
    """Return a prepared study with the space, sampler and pruner of `config`, whose other settings
    are its own. Raises ConfigError."""
    return _StudyPreparation(config, prepared.called, None, prepared.edits).edited(prepared)


class _StudyPreparation:
    """Checks one config step by step. Each method raises ConfigError."""

    def __init__(
        self,
        config: Config,
        called: CalledFunction | None,
        refit: RefitInputs | None,
        edits: Sequence[StudyEdited],
    ) -> None:
        self._config, self._called, self._edits = config, called, edits
        self._is_builtin = config.objective.kind is ObjectiveKind.builtin
        self.purpose = SEARCH
        self._refit_plan: RefitTraining | None = None
        self._n_searched = 0
        self._opened: tuple[Dataset | None, UserDataFacts | None] | None = None
        """The data, if the caller has opened them."""
        if refit is not None:
            self.purpose, self._refit_plan = FINAL_TRAINING, refit.plan
            self._n_searched = refit.n_searched or 0
            self._opened = refit.dataset, refit.facts

    @cached_property
    def _family(self) -> Family:
        return family_of(self._config)

    def prepare(self) -> PreparedStudy:
        """Return what the sweep is made from."""
        config = self._config
        space = self._parse_space()
        check_setting(
            bool(space.names) or config.objective.kind is not ObjectiveKind.outside,
            "objective",
            "outside",
            "needs a space: space.temperature=20..80.",
        )
        self._check_enqueued(space)
        if config.objective.asks_for_params:
            self._check_sampler(space)
        plan = TrainingPlan.from_config(config, space.names, self._refit_plan)
        dataset, facts = self._open_data(plan) if self._is_builtin else (None, None)
        if dataset is not None:
            plan = replace(plan, n_models=dataset.n_models, n_rows=dataset.n_train)
            space = self._parse_space(self._n_rows(dataset))
            if self.purpose.checks_choices:
                self._check_enqueued(space)
        if self._is_builtin:
            self._check_family(space, dataset)
        declaration = self._declare(plan, dataset)
        if facts is not None:
            declaration = replace(declaration, metrics=facts.metrics)
        if config.objective.command is not None:
            code = digest_of_program(config.objective.command, Path.cwd())
            declaration = replace(declaration, code=code)
        flags, flag_notes = self._check_params(space, plan, declaration)
        ends = {param.name: param.domain.ends for param in space.params}
        notes = (
            *self._data_notes(dataset or facts, ends),
            *flag_notes,
            *self._table_notes(dataset, ends),
        )
        return PreparedStudy(
            config=config,
            space=space,
            plan=plan,
            dataset=dataset,
            declaration=declaration,
            notes=notes,
            called=self._called,
            facts=facts,
            flags=flags,
            edits=tuple(self._edits),
            purpose=self.purpose,
        )

    def edited(self, before: PreparedStudy) -> PreparedStudy:
        """Return the study `before` with the settings that can be edited."""
        n_rows = None if before.dataset is None else self._n_rows(before.dataset)
        space = self._parse_space(n_rows)
        if self._is_builtin:
            self._check_family(space, before.dataset)
        plan = replace(before.plan, space=space.names)
        flags, _ = self._check_params(space, plan, before.declaration)
        return replace(before, config=self._config, space=space, plan=plan, flags=flags)

    def _check_params(
        self, space: SearchSpace, plan: TrainingPlan, declaration: ObjectiveDeclaration
    ) -> tuple[ProgramFlags, tuple[str, ...]]:
        """Check that the objective takes the params. Return how a program spells them, and notes
        on that."""
        config = self._config
        metrics = config.study.metrics
        check_space(declaration, space.names, metrics.leading.name, metrics.more_names)
        optional = [param.name for param in space.params if param.when]
        check_conditions(declaration, optional)
        values = {param.name: param.domain.ends for param in space.params}
        check_values(plan, values)
        if config.objective.kind is not ObjectiveKind.command:
            return ProgramFlags(), ()
        nullable = [name for name, ends in values.items() if None in ends]
        return prepare_program_flags(config, space.names, optional, nullable)

    def _parse_space(self, n_rows: int | None = None) -> SearchSpace:
        """Return the space, which for tables of some numbers of rows lacks some params."""
        return parse_space(self._family.searched_space(self._entries, n_rows))

    @property
    def _entries(self) -> Mapping[str, Any]:
        """The entries of the space, without `rows: by_rows` where settings of the data say on which
        rows trials train."""
        data, entries = self._config.data, self._config.space
        is_open = data.sweep_rows is None and data.folds in (None, 1, "auto")
        if is_open or entries.get(ROWS_PARAM) != BY_ROWS:
            return entries
        return {name: entry for name, entry in entries.items() if name != ROWS_PARAM}

    def _check_enqueued(self, space: SearchSpace) -> None:
        """Check the params to try first, unless some may have been tried in an earlier space."""
        asks = self._config.objective.asks_for_params
        for number, params in enumerate(() if self._edits else self._config.study.enqueue):
            space.check(params, f"study.enqueue[{number}]", may_have_others=asks)

    def _n_rows(self, dataset: Dataset) -> int:
        return max(dataset.n_train, self._n_searched)

    def _open_data(self, plan: TrainingPlan) -> tuple[Dataset | None, UserDataFacts | None]:
        """Return the table, or else the facts about the user's data, which is opened elsewhere."""
        if self._opened is not None:
            return self._opened
        n_devices = self._config.admission.devices_per_trial
        check_setting(
            n_devices == 1,
            "admission.devices_per_trial",
            n_devices,
            "the built-in training uses one device. Leave it at 1, which trains as many trials at "
            "once as the devices take, or train in a function of your own (objective=python).",
        )
        study, training = self._config.study, self._config.training
        if self._config.data.kind is not DataKind.python:
            called = self._called if study.metric_parts else None
            users_metric = make_users_metric(self._config, called)
            dataset = read_table(self._config.data, training.value_loss, users_metric)
            check_loss(training.loss_name, dataset.task)
            check_counts(dataset)
            check_log_targets(study.leading_metric, dataset)
            for metric in study.metrics.metrics:
                check_metric(metric.name, metric.direction, dataset.task, training.value_loss)
            return dataset, None
        from automl.data.load import refuse_table_settings

        refuse_table_settings(self._config.data)
        check_setting(
            plan.users_target is not None,
            "data",
            "python",
            "rows of any shape are for a network of your own: add model=python model.target=…",
        )
        check_setting(
            study.metric_function is None,
            "study.metric",
            study.metric_function,
            "a function of your own judges the predictions of a table: with data=python, take a "
            "metric that the training reports.",
        )
        facts = describe_user_data(self._config, plan)
        check_loss(training.loss_name, facts.task)
        for metric in study.metrics.metrics:
            check_metric(metric.name, metric.direction, facts.task)
        return None, facts

    def _check_family(self, space: SearchSpace, dataset: Dataset | None) -> None:
        """Check space, training and devices of the family that trains."""
        family, training = self._family, self._config.training
        family.check_space(space.names)
        if dataset is not None and family.weighs_classes:
            check_class_weight(space.names, training.loss_name, dataset.task)
        if not family.uses_torch:
            devices = self._config.devices
            asks_gpu = devices.kind is DevicesKind.nvml or devices.choose is ChooseDevice.gpu
            rule = f"model={family_name(family)} trains on the CPU alone: leave it out."
            check_setting(not asks_gpu, "devices.only", devices.only, rule)

    def _check_sampler(self, space: SearchSpace) -> None:
        """Refuse a sampler that needs a written space where there is none."""
        sampler = self._config.sampler
        assert isinstance(sampler, Sampler), "Hydra makes it by its schema"
        check_setting(
            sampler.extends or any(param.is_searched for param in space.params),
            "sampler",
            option_name(sampler),
            "goes over the space that is written, and objective=optuna has none here: write it "
            "(space={lr: {choices: [0.1, 0.01]}}), or take another sampler, such as tpe.",
        )

    def _declare(self, plan: TrainingPlan, dataset: Dataset | None) -> ObjectiveDeclaration:
        """Return what the objective declares. A user's module is imported where it will train, so
        that this process needs no torch."""
        if self._called is not None and not self._is_builtin:
            name = str(plan.objective.target)
            if plan.objective.suggests:
                return declaration_of_optuna_objective(self._called.load(name), name)
            return declaration_of_function(self._called.load(name), plan.space, name)
        is_inline = self._config.execution.kind is ExecutionKind.inline
        if is_inline or not plan.users_code:
            with open_inside(mlflow_inside_entry(self._config, plan)).importing():
                return declare_objective(plan, dataset)
        # Of the dataset, only its task matters, and some rows on which a metric is tried.
        tried = None if dataset is None else _rows_to_try(dataset)
        declaration = _ask(self._config, plan, DECLARE, tried)
        assert isinstance(declaration, ObjectiveDeclaration)
        if dataset is not None:
            metrics = reported_metric(dataset.task, plan.users_metric)
            declaration = replace(declaration, metrics=metrics)
        return declaration

    def _data_notes(
        self, data: Dataset | UserDataFacts | None, ends: Mapping[str, Sequence[ParamValue]]
    ) -> Iterator[str]:
        """Yield what was found in the data, after a check of the batch size."""
        yield from data.notes if data else ()
        yield from self._called.notes if self._called else ()
        if data is None or "batch_size" not in ends:
            return
        sizes = [size for size in ends["batch_size"] if isinstance(size, int)]
        # A final training keeps its batch size, in batches of all rows if need be.
        if self.purpose.checks_choices:
            check_batch(data.name, data.n_train, min(sizes))
        if max(sizes) > data.n_train:
            yield f"batch_size: clipped to the {data.n_train} rows of the training part."

    def _table_notes(
        self, dataset: Dataset | None, ends: Mapping[str, Sequence[ParamValue]]
    ) -> Iterator[str]:
        """Yield what is noteworthy of a search on a table."""
        if dataset is None or not self.purpose.explains_choices:
            return
        yield from self._family.notes(self._n_rows(dataset), self._entries)
        yield from threshold_notes(self._config.study.leading_metric, dataset)
        yield from long_trial_warnings(self._config, dataset, ends)


def read_table(
    data: DataConfig, value_loss: ValueLoss, users_metric: UsersMetric | None = None
) -> Dataset:
    """Return the table, which is announced if reading it takes long. Raises ConfigError."""
    from automl.data.load import load_dataset

    with announce_reading(data):
        dataset = load_dataset(data)
    own = None if users_metric is None else users_metric.of_classes(dataset.classes)
    return replace(dataset, loss=value_loss, users_metric=own)


def _rows_to_try(dataset: Dataset) -> Dataset | None:
    """Return a data set of the rows on which a metric of the user's is tried; None: it has none."""
    if dataset.users_metric is None:
        return None
    judged = dataset.judged
    some = judged.take(dataset.users_metric.places_to_try(judged.y))
    return replace(dataset, train=some, validation=some, folds=())


def announce_reading(data: DataConfig) -> AbstractContextManager[object]:
    """Announce that the table of `data` is read, which takes long for a large one."""
    is_file = data.kind is DataKind.csv
    return long_step(f"reading {data.path}", say_unfailing) if is_file else nullcontext()


def describe_user_data(config: Config, plan: TrainingPlan) -> UserDataFacts:
    """Have a child process call the user's function for its data, and return facts about the data.

    Raises ConfigError.
    """
    facts = _ask(config, plan, DESCRIBE)
    assert isinstance(facts, UserDataFacts)
    return facts


def _ask(
    config: Config, plan: TrainingPlan, question: str, dataset: Dataset | None = None
) -> object:
    """Return the answer of a function of ours that calls the user's code in its own process."""
    from automl.execution.child_calls import call_in_child
    from automl.execution.executor import resolve_entry

    setup = SessionSetup(plan, dataset, redirect=mlflow_inside_entry(config, plan))
    if config.execution.kind is ExecutionKind.inline:
        return resolve_entry(question)(setup)
    for key, target in plan.users_code:
        if target.startswith("__main__:"):
            raise ConfigError(
                f"{key}={target}: a worker process cannot import __main__. Put the function into a "
                "module on the Python path, or use execution=inline."
            )
    return call_in_child(ProcessEntry(question, setup))
