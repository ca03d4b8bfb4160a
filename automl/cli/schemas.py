"""The config classes as Hydra's schemas, and the keys and groups that there are.

Two defaults depend on other settings. `DefaultModel` stands for the model while a config is
composed in which none was chosen. The length of a training is a reference in the schema, which
reads the model beside it: an explicit length, even one equal to the default, is told from a missing
one, and a model that is chosen later brings its own length.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_type_hints

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

from automl.cli.command_registry import conf_dir
from automl.config import Config, TrainingConfig
from automl.models.families.mlp.family import MLPFamily
from automl.models.family import Family, load_families
from automl.search.pruners import pruners
from automl.search.samplers import samplers

DEFAULT_MODEL = "default"
"""The option of `model` that the defaults list of `conf/sweep.yaml` names."""


@dataclass
class DefaultModel(MLPFamily):
    """The schema of the default option, with the keys of the model that most data get."""


def default_model_option(data: str, objective: str) -> str:
    """Return the model that replaces the default, by the kinds of data and objective."""
    return "auto" if objective == "builtin" and data == "csv" else "mlp"


KEY, REFERENCE = "training.epochs", "${automl.own_length:}"


def register_epochs_default(root: DictConfig) -> None:
    """Make the length of a training in the schema at `root` a reference to the model's own length;
    the resolver is registered for this process."""
    OmegaConf.register_new_resolver("automl.own_length", _default_epochs, replace=True)
    OmegaConf.update(root, KEY, REFERENCE)


def are_epochs_open(config: DictConfig) -> bool:
    """Return whether no setting gives the length of a training; `config` is composed from our
    schemas."""
    plain: Any = OmegaConf.to_container(config, resolve=False)
    return bool(plain["training"]["epochs"] == REFERENCE)


def epochs_override(training: TrainingConfig) -> str:
    """Return the length of a training as an override."""
    return f"{KEY}={'null' if training.epochs is None else training.epochs}"


def _default_epochs(*, _parent_: DictConfig) -> int | None:
    """Return the length that the model beside the section `training` takes; `_parent_` is that
    section."""
    config = _parent_._get_parent()
    if not isinstance(config, DictConfig) or "model" not in config:
        return TrainingConfig.epochs  # the section has no model beside it
    family = OmegaConf.get_type(config, "model")
    if family is DefaultModel:
        family = load_families()[
            default_model_option(config.data.kind.name, config.objective.kind.name)
        ]
    has_own_length = (
        isinstance(family, type) and issubclass(family, Family) and family.has_own_length
    )
    return None if has_own_length else TrainingConfig.epochs


SCHEMA_SUFFIX = "_schema"
"""The end of the names of schemas among a group's options; users are not shown these options."""

GIVEN_SPACE = "given_space" + SCHEMA_SUFFIX
"""The option of `space` that holds a space given in Python (`api/python_values.py`)."""

DEFAULT_SPACE = "mlp"
"""The option of `space` that the defaults list of `conf/sweep.yaml` names: the built-in
network's."""

OPTIONS_BY_CLASS: Mapping[str, Mapping[str, type]] = {
    "model": {**load_families(), DEFAULT_MODEL: DefaultModel},
    "sampler": samplers(),
    "pruner": pruners(),
}
"""Groups whose options differ in their keys: a class, and so a schema, per option."""


@functools.cache
def config_groups() -> tuple[str, ...]:
    """Return the groups of `conf/`, in the order of the fields of `Config`."""
    names = {path.name for path in conf_dir().iterdir() if path.is_dir()}
    return tuple(key.name for key in fields(Config) if key.name in names)


@functools.cache
def register_schemas() -> None:
    """Register every key with its type and default in Hydra's store; done once per process."""
    store = ConfigStore.instance()
    root = OmegaConf.structured(Config)
    register_epochs_default(root)
    for group, classes in OPTIONS_BY_CLASS.items():
        root[group] = MISSING  # else an option would be merged into the default option's keys
        for name, cls in classes.items():
            store.store(group=group, name=name + SCHEMA_SUFFIX, node=cls)
    store.store(name="config_schema", node=root)


def register_space(entries: Mapping[str, Any]) -> str:
    """Register a space given in Python as an option, and return the override that chooses it."""
    # In the whole config: at its own place, a param named `defaults` would be a list of options.
    node = {"space": dict(entries)}
    ConfigStore.instance().store(group="space", name=GIVEN_SPACE, node=node, package="_global_")
    return f"space={GIVEN_SPACE}"


def config_keys(cls: type) -> tuple[str, ...]:
    """Return the keys that a config class has."""
    return tuple(key.name for key in fields(cls))


@functools.cache
def all_config_keys() -> tuple[str, ...]:
    """Return every dotted key (`study.n_trials`) and part (`study`), options of all kinds
    included."""
    return tuple(dict.fromkeys(_walk(Config, "")))


def keys_named(name: str) -> tuple[str, ...]:
    """Return the dotted keys that end in `name`: `n_trials` → study.n_trials."""
    return tuple(key for key in all_config_keys() if key.rpartition(".")[2] == name)


def _walk(cls: type, prefix: str) -> Iterator[str]:
    hints = get_type_hints(cls)
    for key in config_keys(cls):
        name = f"{prefix}{key}"
        yield name
        for kind in OPTIONS_BY_CLASS.get(key, {"": hints[key]}).values():
            if is_dataclass(kind) and isinstance(kind, type):
                yield from _walk(kind, f"{name}.")
