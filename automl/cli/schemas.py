"""The config classes as Hydra's schemas, and which keys and groups there are."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import get_type_hints

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, OmegaConf

from automl.cli.default_model import DEFAULT_MODEL, DefaultModel
from automl.cli.length import register_length
from automl.cli.paths import conf_dir
from automl.config import Config
from automl.search.pruners import pruners
from automl.search.samplers import samplers
from automl.training.family import families

SUFFIX = "_schema"
"""Ends the names of schemas among a group's options; people are not shown those."""

DEFAULT_SPACE = "mlp"
"""The option of `space` that the table of contents names: the built-in network's."""

OPTIONS_BY_CLASS: Mapping[str, Mapping[str, type]] = {
    "model": {**families(), DEFAULT_MODEL: DefaultModel},
    "sampler": samplers(),
    "pruner": pruners(),
}
"""Groups whose options differ in their keys: a class, and so a schema, per option."""


@functools.cache
def groups() -> tuple[str, ...]:
    """The groups of `conf/`, in the order of the table of contents."""
    names = {path.name for path in conf_dir().iterdir() if path.is_dir()}
    return tuple(key.name for key in fields(Config) if key.name in names)


@functools.cache
def register_schemas() -> None:
    """Tell Hydra every key with its type and default; done once per process."""
    store = ConfigStore.instance()
    root = OmegaConf.structured(Config)
    register_length(root)
    for group, classes in OPTIONS_BY_CLASS.items():
        root[group] = MISSING  # else an option would be merged into the default option's keys
        for name, cls in classes.items():
            store.store(group=group, name=name + SUFFIX, node=cls)
    store.store(name="config_schema", node=root)


def keys_of(cls: type) -> tuple[str, ...]:
    """The keys that a config class has."""
    return tuple(key.name for key in fields(cls))


@functools.cache
def all_keys() -> tuple[str, ...]:
    """Every dotted key (`study.n_trials`) and part (`study`), options of all kinds included."""
    return tuple(dict.fromkeys(_walk(Config, "")))


def _walk(cls: type, prefix: str) -> Iterator[str]:
    hints = get_type_hints(cls)
    for key in keys_of(cls):
        name = f"{prefix}{key}"
        yield name
        for kind in OPTIONS_BY_CLASS.get(key, {"": hints[key]}).values():
            if is_dataclass(kind) and isinstance(kind, type):
                yield from _walk(kind, f"{name}.")
