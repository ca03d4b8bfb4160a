"""Checks everything that can be refused before anything is written: space, objective, data, metric,
devices.

The module only reads. `prepare_study` returns what a sweep is made from.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

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
from automl.config.metrics import reported_metric
from automl.data.dataset import Dataset, UserDataFacts
from automl.errors import ConfigError
from automl.models.family import family_name, family_of
from automl.objectives.function_call import (
    CalledFunction,
    ObjectiveDeclaration,
    declaration_of_function,
)
from automl.objectives.plan_checks import (
    check_batch,
    check_class_weight,
    check_conditions,
    check_counts,
    check_loss,
    check_metric,
    check_space,
    check_values,
    threshold_notes,
)
from automl.objectives.program.program_arguments import ProgramFlags
from automl.objectives.program.program_flags import prepare_program_flags
from automl.objectives.training_plan import SessionSetup, TrainingPlan, declare_objective
from automl.objectives.user_code import open_inside
from automl.running.display.display_failures import say_unfailing
from automl.running.setup.identity_settings import option_name
from automl.running.setup.long_training import long_trial_warnings
from automl.running.setup.prepared_config import PreparedStudy, RefitInputs, mlflow_inside_entry
from automl.running.setup.resume_command import refuse_missing_function
from automl.search.samplers.sampler import Sampler
from automl.search.search_space import SearchSpace, parse_space
from automl.tracking.long_step import long_step
from automl.trial import ProcessEntry

DECLARE = "automl.objectives.training_plan:declare_users"
DESCRIBE = "automl.objectives.user_data.source:describe_data"


def prepare_study(
    config: Config, called: CalledFunction | None = None, refit: RefitInputs | None = None
) -> PreparedStudy:
    """Check everything that needs no device. `called` is the function that a sweep was called with
    from Python. Raises ConfigError."""
    refuse_missing_function(config, called)
    family = family_of(config)
    check_setting(
        not config.watch,
        "watch",
        "true",
        "is for another command: python -m automl devices watch=true",
    )
    space = parse_space(family.whole_space(config.space))
    if config.objective.kind is ObjectiveKind.optuna:
        _check_sampler(config, space)
    _check_enqueued(config, space)
    plan = TrainingPlan.from_config(config, space.names, None if refit is None else refit.plan)
    dataset, facts, family_notes = None, None, tuple[str, ...]()
    if config.objective.kind is ObjectiveKind.builtin:
        if refit is None:
            _check_one_device(config)
            dataset, facts = _read_data(config, plan)
        else:
            dataset, facts = refit.dataset, refit.facts
        family.check_space(space.names)
        if dataset is not None and family.weighs_classes:
            check_class_weight(space.names, config.training.loss, dataset.task)
        if dataset is not None:
            plan = replace(plan, n_models=dataset.n_models)
            n_rows = max(dataset.n_train, (refit.n_searched if refit else None) or 0)
            space = parse_space(family.whole_space(config.space, n_rows))
            family_notes = family.notes(n_rows, config.space)
            if refit is None:
                _check_enqueued(config, space)  # a param may be left out for these rows
        family.check_training(config.training)
        _check_devices(config)
    declaration = _declare(config, plan, dataset, called)
    if facts is not None:
        declaration = replace(declaration, metrics=facts.metrics)
    check_space(declaration, space.names, config.study.metric)
    check_conditions(declaration, [param.name for param in space.params if param.when])
    ends = {param.name: param.domain.ends for param in space.params}
    check_values(plan, ends)
    data = dataset or facts
    notes = (data.notes if data else ()) + (called.notes if called else ())
    flags = ProgramFlags()
    if config.objective.kind is ObjectiveKind.command:
        optional = [param.name for param in space.params if param.when]
        flags, flag_notes = prepare_program_flags(config, space.names, optional)
        notes += tuple(flag_notes)
    if data is not None and "batch_size" in ends:
        sizes = [size for size in ends["batch_size"] if isinstance(size, int)]
        n_train = data.n_train
        if refit is None:  # a refit keeps its batch size, in batches of all rows if need be
            check_batch(data.name, n_train, min(sizes))
        if max(sizes) > n_train:
            notes += (f"batch_size: clipped to the {n_train} rows of the training part.",)
    if dataset is not None and refit is None:
        notes += family_notes
        notes += (
            *threshold_notes(config.study.metric, dataset),
            *long_trial_warnings(config, dataset, ends),
        )
    return PreparedStudy(config, space, plan, dataset, declaration, notes, called, facts, flags)


def _check_enqueued(config: Config, space: SearchSpace) -> None:
    asks = config.objective.kind is ObjectiveKind.optuna
    for number, params in enumerate(config.study.enqueue):
        space.check(params, f"study.enqueue[{number}]", may_have_others=asks)


def _read_data(config: Config, plan: TrainingPlan) -> tuple[Dataset | None, UserDataFacts | None]:
    """Return the table, or else the facts about the user's data, whose function is called
    elsewhere."""
    from automl.data.load import load_dataset, refuse_table_settings

    if config.data.kind is not DataKind.python:
        loss = config.training.value_loss
        with announce_reading(config.data):
            dataset = replace(load_dataset(config.data), loss=loss)
        check_loss(config.training.loss, dataset.task)
        check_counts(dataset)
        check_metric(config.study.metric, config.study.towards, dataset.task, loss)
        return dataset, None
    refuse_table_settings(config.data)
    check_setting(
        plan.users_target is not None,
        "data",
        "python",
        "rows of any shape are for a network of your own: add model=python model.target=…",
    )
    facts = describe_user_data(config, plan)
    check_loss(config.training.loss, facts.task)
    check_metric(config.study.metric, config.study.towards, facts.task)
    return None, facts


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


def _check_sampler(config: Config, space: SearchSpace) -> None:
    """Raise ConfigError for a sampler that needs a written space where there is none."""
    assert isinstance(config.sampler, Sampler), "Hydra makes it by its schema"
    check_setting(
        config.sampler.extends or any(param.is_searched for param in space.params),
        "sampler",
        option_name(config.sampler),
        "goes over the space that is written, and objective=optuna has none here: write it "
        "(space={lr: {choices: [0.1, 0.01]}}), or take another sampler, such as tpe.",
    )


def _check_devices(config: Config) -> None:
    """Raise ConfigError if GPUs are asked for though the family does not train on them."""
    family = family_of(config)
    if family.uses_torch:
        return
    rule = f"model={family_name(family)} trains on the CPU alone: leave it out."
    kind, choose = config.devices.kind, config.devices.choose
    check_setting(kind is not DevicesKind.nvml, "devices", kind.name, rule)
    check_setting(choose is not ChooseDevice.gpu, "devices.choose", choose.value, rule)


def _check_one_device(config: Config) -> None:
    check_setting(
        config.admission.devices_per_trial == 1,
        "admission.devices_per_trial",
        config.admission.devices_per_trial,
        "the built-in training uses one device. Leave it at 1, which trains as many trials at once "
        "as the devices take, or train in a function of your own (objective=python).",
    )


def _declare(
    config: Config, plan: TrainingPlan, dataset: Dataset | None, called: CalledFunction | None
) -> ObjectiveDeclaration:
    """Return what the objective declares. A user's module is imported where it will train, so that
    this process needs no torch."""
    if called is not None:
        name = str(plan.objective.target)
        return declaration_of_function(called.load(name), plan.space, name)
    if config.execution.kind is ExecutionKind.inline or not plan.users_code:
        with open_inside(mlflow_inside_entry(config, plan)).importing():
            return declare_objective(plan, dataset)
    declaration = _ask(config, plan, DECLARE)
    assert isinstance(declaration, ObjectiveDeclaration)
    if dataset is not None:  # the dataset is not sent along, since only its task matters here
        declaration = replace(declaration, metrics=reported_metric(dataset.task))
    return declaration


def _ask(config: Config, plan: TrainingPlan, question: str) -> object:
    """Return the answer of one of our functions that calls the user's code, in a process of its
    own."""
    from automl.execution.child_calls import call_in_child
    from automl.execution.executor import resolve_entry

    setup = SessionSetup(plan, inside=mlflow_inside_entry(config, plan))
    if config.execution.kind is ExecutionKind.inline:
        return resolve_entry(question)(setup)
    for key, target in plan.users_code:
        if target.startswith("__main__:"):
            raise ConfigError(
                f"{key}={target}: a worker process cannot import __main__. Put the function into a "
                "module on the Python path, or use execution=inline."
            )
    return call_in_child(ProcessEntry(question, setup))
