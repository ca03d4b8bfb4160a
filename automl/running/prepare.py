"""All that can be refused before anything is written: space, objective, data, metric, devices.

Everything here reads; what it returns is what a sweep is made from.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from automl.config import (
    Choose,
    Config,
    DataConfig,
    DataKind,
    DevicesKind,
    ExecutionKind,
    ObjectiveKind,
    check,
)
from automl.config.metrics import reported
from automl.data.dataset import Dataset
from automl.data.facts import DataFacts
from automl.errors import ConfigError
from automl.running.going_on import refuse_uncalled
from automl.running.lengthy import lengthy
from automl.running.pictures import say_unfailing
from automl.running.prepared import Prepared, Refit, inside_of
from automl.running.settings import option_name
from automl.search.samplers.sampler import Sampler
from automl.search.space import Space, parse_space
from automl.tracking.long_step import long_step
from automl.training.called import CalledFunction
from automl.training.calling import declaration_of
from automl.training.checks import (
    check_batch,
    check_class_weight,
    check_conditions,
    check_counts,
    check_loss,
    check_metric,
    check_space,
    check_values,
    of_threshold,
)
from automl.training.command.arguments import Flags
from automl.training.command.setup import ask_program
from automl.training.declaration import Declaration
from automl.training.family import Family, name_of
from automl.training.inside import open_inside
from automl.training.plan import SessionSetup, TrainingPlan, declare
from automl.trial import Entry

DECLARE = "automl.training.plan:declare_users"
DESCRIBE = "automl.training.own_data.source:describe_data"


def prepare(
    config: Config, called: CalledFunction | None = None, refit: Refit | None = None
) -> Prepared:
    """Check everything that needs no device; `called` is the function that the sweep was called
    with, from Python. Raises ConfigError."""
    refuse_uncalled(config, called)
    assert isinstance(config.model, Family), "Hydra makes it by its schema"
    check(
        not config.watch,
        "watch",
        "true",
        "is for another command: python -m automl devices watch=true",
    )
    space = parse_space(config.model.whole_space(config.space))
    if config.objective.kind is ObjectiveKind.optuna:
        _check_sampler(config, space)
    _check_enqueued(config, space)
    plan = TrainingPlan.of(config, space.names, None if refit is None else refit.plan)
    dataset, facts, of_space = None, None, tuple[str, ...]()
    if config.objective.kind is ObjectiveKind.builtin:
        if refit is None:
            _check_one_device(config)
            dataset, facts = _read_data(config, plan)
        else:
            dataset, facts = refit.dataset, refit.facts
        config.model.check_space(space.names)
        if dataset is not None and config.model.weighs_classes:
            check_class_weight(space.names, config.training.loss, dataset.task)
        if dataset is not None:
            plan = replace(plan, n_models=dataset.n_models)
            n_rows = max(dataset.n_train, (refit.n_searched if refit else None) or 0)
            space = parse_space(config.model.whole_space(config.space, n_rows))
            of_space = config.model.notes(n_rows, config.space)
            if refit is None:
                _check_enqueued(config, space)  # the rows may have left something out
        config.model.check_training(config.training)
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
    flags = Flags()
    if config.objective.kind is ObjectiveKind.command:
        optional = [param.name for param in space.params if param.when]
        flags, said = ask_program(config, space.names, optional)
        notes += tuple(said)
    if data is not None and "batch_size" in ends:
        sizes = [size for size in ends["batch_size"] if isinstance(size, int)]
        n_train = data.n_train
        if refit is None:  # what was searched is trained again, in batches of all rows if need be
            check_batch(data.name, n_train, min(sizes))
        if max(sizes) > n_train:
            notes += (f"batch_size: clipped to the {n_train} rows of the training part.",)
    if dataset is not None and refit is None:
        notes += of_space
        notes += (*of_threshold(config.study.metric, dataset), *lengthy(config, dataset, ends))
    return Prepared(config, space, plan, dataset, declaration, notes, called, facts, flags)


def _check_enqueued(config: Config, space: Space) -> None:
    asks = config.objective.kind is ObjectiveKind.optuna
    for number, params in enumerate(config.study.enqueue):
        space.check(params, f"study.enqueue[{number}]", may_have_others=asks)


def _read_data(config: Config, plan: TrainingPlan) -> tuple[Dataset | None, DataFacts | None]:
    """A table; or what is known of data of the user's, whose function is called elsewhere."""
    from automl.data.load import load_dataset, refuse_table_settings

    if config.data.kind is not DataKind.python:
        loss = config.training.value_loss
        with reading(config.data):
            dataset = replace(load_dataset(config.data), loss=loss)
        check_loss(config.training.loss, dataset.task)
        check_counts(dataset)
        check_metric(config.study.metric, config.study.towards, dataset.task, loss)
        return dataset, None
    refuse_table_settings(config.data)
    check(
        plan.users_target is not None,
        "data",
        "python",
        "rows of any shape are for a network of your own: add model=python model.target=…",
    )
    facts = described(config, plan)
    check_loss(config.training.loss, facts.task)
    check_metric(config.study.metric, config.study.towards, facts.task)
    return None, facts


def reading(data: DataConfig) -> AbstractContextManager[object]:
    """Announce that the table of `data` is read, which takes long for a large one."""
    is_file = data.kind is DataKind.csv
    return long_step(f"reading {data.path}", say_unfailing) if is_file else nullcontext()


def described(config: Config, plan: TrainingPlan) -> DataFacts:
    """What the user's function gives, for the training of this plan. Raises ConfigError."""
    facts = _ask(config, plan, DESCRIBE)
    assert isinstance(facts, DataFacts)
    return facts


def _check_sampler(config: Config, space: Space) -> None:
    """A grid is of what was written."""
    assert isinstance(config.sampler, Sampler), "Hydra makes it by its schema"
    check(
        config.sampler.extends or any(param.is_searched for param in space.params),
        "sampler",
        option_name(config.sampler),
        "goes over the space that is written, and objective=optuna has none here: write it "
        "(space={lr: {choices: [0.1, 0.01]}}), or take another sampler, such as tpe.",
    )


def _check_devices(config: Config) -> None:
    """Raises ConfigError where GPUs are asked for that the family trains none on."""
    assert isinstance(config.model, Family), "Hydra makes it by its schema"
    if config.model.uses_torch:
        return
    rule = f"model={name_of(config.model)} trains on the CPU alone: leave it out."
    kind, choose = config.devices.kind, config.devices.choose
    check(kind is not DevicesKind.nvml, "devices", kind.name, rule)
    check(choose is not Choose.gpu, "devices.choose", choose.value, rule)


def _check_one_device(config: Config) -> None:
    check(
        config.admission.devices_per_trial == 1,
        "admission.devices_per_trial",
        config.admission.devices_per_trial,
        "the built-in training uses one device. Leave it at 1, which trains as many trials at once "
        "as the devices take, or train in a function of your own (objective=python).",
    )


def _declare(
    config: Config, plan: TrainingPlan, dataset: Dataset | None, called: CalledFunction | None
) -> Declaration:
    """A user's module is imported where it will train, so that this process needs no torch."""
    if called is not None:
        name = str(plan.objective.target)
        return declaration_of(called.load(name), plan.space, name)
    if config.execution.kind is ExecutionKind.inline or not plan.users_code:
        with open_inside(inside_of(config, plan)).importing():
            return declare(plan, dataset)
    declaration = _ask(config, plan, DECLARE)
    assert isinstance(declaration, Declaration)
    if dataset is not None:  # which stays here: it would only tell its task
        declaration = replace(declaration, metrics=reported(dataset.task))
    return declaration


def _ask(config: Config, plan: TrainingPlan, question: str) -> object:
    """The answer of a function of ours that calls code of the user's, in a process of its own."""
    from automl.execution.executor import resolve
    from automl.execution.remote import call_in_child

    setup = SessionSetup(plan, inside=inside_of(config, plan))
    if config.execution.kind is ExecutionKind.inline:
        return resolve(question)(setup)
    for key, target in plan.users_code:
        if target.startswith("__main__:"):
            raise ConfigError(
                f"{key}={target}: a worker process cannot import __main__. Put the function into a "
                "module on the Python path, or use execution=inline."
            )
    return call_in_child(Entry(question, setup))
