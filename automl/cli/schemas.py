"""The config classes as Hydra's schemas, and the defaults that follow from other settings.

Most defaults stand in the config classes, and `decide` (`automl/config/`) fills in those that are
None. Two defaults are decided here, because they must be there while Hydra composes, also when an
application composes our settings as a part of its own. Where nobody chose a model, the data and the
objective choose it, and the model its space. Where nobody gave the length of a training, it is the
model's own. None cannot stand for that: users give it, and a network then trains up to 200 epochs.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

from automl.cli.command_registry import conf_dir, default_options
from automl.cli.config_keys import (
    DEFAULT_MODEL,
    OPTIONS_BY_CLASS,
    SCHEMA_SUFFIX,
    DefaultModelSchema,
    config_keys,
)
from automl.cli.option_keys import options_named_by_keys
from automl.cli.space_overrides import is_about_space
from automl.config import Config, TrainingConfig
from automl.models.family import Family, load_families

GIVEN_SPACE = "given_space" + SCHEMA_SUFFIX
"""The option of `space` that holds a space given in Python (`api/python_values.py`)."""

DEFAULT_SPACE = "mlp"
"""The option of `space` that the defaults list of `conf/sweep.yaml` names: the built-in
network's."""

_OWN_LENGTH = "${automl.own_length:${..model},${..data.kind},${..objective.kind}}"
"""The length of a training in the schema: a reference to what the model beside it takes."""


@functools.cache
def register_schemas() -> None:
    """Register every key with its type and default in Hydra's store; done once per process."""
    OmegaConf.register_new_resolver("automl.own_length", _own_length, replace=True)
    store = ConfigStore.instance()
    root = OmegaConf.structured(Config)
    _keep_settings(root)
    OmegaConf.update(root, "training.epochs", _OWN_LENGTH)
    for group, classes in OPTIONS_BY_CLASS.items():
        root[group] = MISSING  # else an option would be merged into the default option's keys
        for name, cls in classes.items():
            store.store(group=group, name=name + SCHEMA_SUFFIX, node=cls)
    store.store(name="config_schema", node=root)


def _keep_settings(node: DictConfig) -> None:
    """Remove the fields that are no settings from a schema."""
    owner = OmegaConf.get_type(node)
    assert owner is not None, "a schema is made of config classes"
    OmegaConf.set_struct(node, False)
    for key in list(map(str, node)):
        if key not in config_keys(owner):
            node.pop(key)
        elif isinstance(node[key], DictConfig) and is_dataclass(OmegaConf.get_type(node, key)):
            _keep_settings(node[key])
    OmegaConf.set_struct(node, None)


def register_space(entries: Mapping[str, Any]) -> str:
    """Register a space given in Python as an option, and return the override that chooses it."""
    # In the whole config: at its own place, a param named `defaults` would be a list of options.
    node = {"space": dict(entries)}
    ConfigStore.instance().store(group="space", name=GIVEN_SPACE, node=node, package="_global_")
    return f"space={GIVEN_SPACE}"


def is_length_open(config: DictConfig) -> bool:
    """Return whether no setting gives the length of a training; `config` is composed from our
    schemas."""
    plain: Any = OmegaConf.to_container(config, resolve=False)
    return bool(plain["training"]["epochs"] == _OWN_LENGTH)


def _own_length(model: DictConfig, data: Any, objective: Any) -> int | None:
    family = OmegaConf.get_type(model)
    if family is DefaultModelSchema:
        family = load_families()[_default_model(data.name, objective.name)]
    has_own_length = (
        isinstance(family, type) and issubclass(family, Family) and family.has_own_length
    )
    return None if has_own_length else TrainingConfig.epochs


# --- options that follow from chosen ones ---------------------------------------------------------


@dataclass(frozen=True)
class ChosenOptions:
    """The options that a config chooses, by name; "" where none is chosen."""

    data: str
    """The kind of the data, whichever option has it."""
    model: str
    objective: str
    space: str
    execution: str = ""
    sampler: str = ""
    pruner: str = ""


def find_chosen_options(lines: Sequence[str]) -> ChosenOptions | None:
    """Return the options that `conf/sweep.yaml` and the overrides choose. None: it has to be
    composed, since a line does more than name our own options, which choose no others."""
    options = default_options()
    chosen = {known.name: options[known.name] for known in fields(ChosenOptions)}
    for line in lines:
        key, _, value = line.partition("=")
        group, _, setting = key.lstrip("+~").partition(".")
        is_new_space = is_about_space(line) and key != "space"  # changes params, names no option
        if group not in chosen or (setting and setting != "kind") or is_new_space:
            continue
        is_file = (conf_dir() / group / f"{value}.yaml").is_file()
        if key != group or not (is_file or value == GIVEN_SPACE):
            return None
        chosen[group] = value
    return ChosenOptions(**chosen)


def named_options(chosen: ChosenOptions, lines: Sequence[str]) -> dict[str, str]:
    """Return the options that keys of the overrides choose, by group, where nobody chose one.

    Raises ConfigError.
    """
    options = default_options()
    groups = ("data", "objective", "execution", "sampler", "pruner")
    open_groups = {g: options[g] for g in groups if getattr(chosen, g) == options[g]}
    named = options_named_by_keys(lines, open_groups)
    if chosen.model == DEFAULT_MODEL:
        model = _default_model(
            named.get("data", chosen.data), named.get("objective", chosen.objective)
        )
        named |= options_named_by_keys(lines, {"model": model})
    return named


def added_options(chosen: ChosenOptions, lines: Sequence[str]) -> tuple[str, ...]:
    """Return the options to choose in addition, as overrides."""
    model, added = chosen.model, []
    if model == DEFAULT_MODEL:
        model = _default_model(chosen.data, chosen.objective)
        added = [f"model={model}"]
    space = _space_for(chosen.objective, model, lines)
    is_space_given = any(line == "~space" or line.startswith("space=") for line in lines)
    if chosen.space == DEFAULT_SPACE != space and not is_space_given:
        added.append(f"space={space}")
    return tuple(added)


def _default_model(data: str, objective: str) -> str:
    """Return the model that replaces the default, by the kinds of data and objective."""
    return "auto" if objective == "builtin" and data == "csv" else "mlp"


def _space_for(objective: str, model: str, lines: Sequence[str]) -> str:
    """Return the option of `space` for an objective and a model; the space of a model has its name.
    `objective=optuna` needs no space, and that of `objective=outside` is always given. A user's
    function, program or network has the params that the overrides name."""
    if objective in ("optuna", "outside"):
        return "empty"
    is_own = objective in ("python", "command") or model == "python"
    if is_own and _begins_space(lines):
        return "empty"
    has_own_space = (conf_dir() / "space" / f"{model}.yaml").is_file()
    return model if objective == "builtin" and has_own_space else DEFAULT_SPACE


def _begins_space(lines: Sequence[str]) -> bool:
    """Return whether overrides name whole params (`space.lr=…`) and change no others."""
    keys = [line.partition("=")[0] for line in lines if is_about_space(line)]
    whole = {key.lstrip("+") for key in keys if key.count(".") == 1 and not key.startswith("~")}
    changed = {".".join(key.lstrip("+~").split(".")[:2]) for key in keys}
    return bool(whole) and changed <= whole
