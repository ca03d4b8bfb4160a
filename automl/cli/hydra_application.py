"""Settings that a Hydra application of the user composes as a part of its own config.

`defaults: [/sweep@automl]` in the application's config needs `conf/` on Hydra's search path and our
schemas in its store: `register_configs` gives both, to programs that call it. A plugin that Hydra
finds by itself would load our modules, and list our groups, in every Hydra program of the
environment. (The plugin of `api/hydra_sweeper/` loads and lists a sweeper alone.) The part that an
application composed becomes a config of its own, and is composed and checked again like the
settings of `python -m automl`. Running it is left to `automl.sweep`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import Any

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import RunMode
from omegaconf import DictConfig, ListConfig, OmegaConf

from automl.cli.base import ConfigBase, replaced_sections
from automl.cli.command_registry import conf_dir
from automl.cli.config_keys import DEFAULT_MODEL, OPTIONS_BY_CLASS, DefaultModelSchema
from automl.cli.hydra_errors import explain_errors
from automl.cli.schemas import (
    DEFAULT_SPACE,
    ChosenOptions,
    added_options,
    is_length_open,
    register_schemas,
)
from automl.cli.stored_config import add_defaults_list
from automl.config import Config, ObjectiveKind
from automl.errors import ConfigError

APPLICATION_NAME = "application_config"
_COMPOSE_IT = (
    "call automl.register_configs() before @hydra.main, and begin the application's config with "
    "`defaults: [/sweep@automl, _self_]`"
)
_REFERENCE = re.compile(r"\$\{oc\.env:[^{}]*\}")
_OTHER = re.compile(r"\$\{(?!oc\.env:)[^{}]*\}")
_NODE = re.compile(r"\$\{(\w+(?:\.\w+)*)\}")
_MAX_STEPS = 10
"""The largest number of references that are followed one to the next."""


def register_configs() -> None:
    """Let Hydra applications of this process compose our settings as a part of their own.

    Call it before `@hydra.main` composes: at the top of the program, or just before `main()`. Then
    `defaults: [/sweep@automl, _self_]` in the application's config puts all settings of a sweep,
    checked by type, below its key `automl`, and `automl.sweep(cfg.automl)` runs it. May be called
    again. Hydra programs that do not call it see nothing of ours.
    """
    register_schemas()
    if ConfSearchPath not in Plugins.instance().discover(SearchPathPlugin):
        Plugins.instance().register(ConfSearchPath)


class ConfSearchPath(SearchPathPlugin):
    """Appends `conf/` to the search path, behind the application's own folders."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.append("automl", f"file://{conf_dir()}")


def application_base_config(app_config: object, overrides: Sequence[Override] = ()) -> ConfigBase:
    """Return the base to compose from, made of the part `given` that an application composed;
    `overrides` are applied to it later.

    Raises ConfigError.
    """
    config, replaced = _own_part(app_config), replaced_sections(overrides)
    if not replaced & {"space", "objective"}:
        _refuse_default_space(config)
    raw: Any = OmegaConf.to_container(config, resolve=False, enum_to_str=True)
    added = () if "model" in replaced else _additional_options(config, overrides)
    if "model=auto" in added:
        replaced |= {"model"}  # none of its settings was changed
    if any(line.startswith("space=") for line in added):
        raw["space"] = {n: entry for n, entry in raw["space"].items() if n not in _default_space()}
    if is_length_open(config):
        del raw["training"]["epochs"]  # an override may choose another model
    plain = _standing_alone({key: raw[key] for key in raw if key not in replaced}, config)
    node = OmegaConf.create(add_defaults_list(config, plain))
    ConfigStore.instance().store(name=APPLICATION_NAME, node=node)
    return ConfigBase(APPLICATION_NAME, added)


def _additional_options(config: DictConfig, overrides: Sequence[Override]) -> tuple[str, ...]:
    """Return the options to choose in addition to those that the application chose."""
    kind = OmegaConf.get_type(config, "model")
    model = next((name for name, cls in OPTIONS_BY_CLASS["model"].items() if cls is kind), "")
    if model == DEFAULT_MODEL and config.model != OmegaConf.structured(DefaultModelSchema):
        return ("model=mlp",)
    names = {o.key_or_group: str(o.value()) for o in overrides}
    chosen = ChosenOptions(
        names.get("data", config.data.kind.name),
        model,
        names.get("objective", config.objective.kind.name),
        DEFAULT_SPACE if _has_default_space(config) else "",
    )
    return added_options(chosen, [o.input_line or "" for o in overrides])


def application_study_name(app_config: object) -> str | None:
    """Return the name that the part gives its study. Raises ConfigError for a name that jobs would
    share."""
    with explain_errors():
        study = _own_part(app_config).study
        if study.name is not None and not OmegaConf.is_interpolation(study, "name"):
            _refuse_shared(str(study.name))
        return None if study.name is None else str(study.name)


def _own_part(app_config: object) -> DictConfig:
    if isinstance(app_config, DictConfig) and OmegaConf.get_type(app_config) is Config:
        return app_config
    if isinstance(app_config, DictConfig):
        for key in map(str, app_config):
            if OmegaConf.get_type(app_config, key) is Config:
                raise ConfigError(
                    f"automl.sweep(config): the config holds ours as its part {key}: give that, "
                    f"automl.sweep(config.{key})."
                )
    raise ConfigError(
        f"automl.sweep(config): this {type(app_config).__name__} was not composed from ours: "
        f"{_COMPOSE_IT}; then give its part, automl.sweep(cfg.automl)."
    )


def _refuse_shared(name: str) -> None:
    """Raise ConfigError if all jobs of a multirun would share the name. Each job is a sweep of its
    own; the second would go on with the study of the first, which has done its trials."""
    if not HydraConfig.initialized():
        return
    hydra = HydraConfig.get()
    if hydra.mode is not RunMode.MULTIRUN or any("study.name=" in o for o in hydra.overrides.task):
        return
    raise ConfigError(
        f"study.name={name}: hydra.mode=MULTIRUN runs a sweep for each job, and all jobs would "
        f"share this study. Name it by job, study.name: {name}-${{hydra:job.num}}, or leave the "
        "name out."
    )


def _refuse_default_space(config: DictConfig) -> None:
    """Raise ConfigError if `objective=optuna` meets the built-in network's space. Our command line
    leaves that space out; a composed config does not show whether the user chose it."""
    if config.objective.kind is not ObjectiveKind.optuna:
        return
    if _has_default_space(config):
        raise ConfigError(
            f"automl.sweep(config): its space is that of the built-in network ({DEFAULT_SPACE}), "
            "and objective=optuna asks for its params itself: put `override /space@automl.space: "
            "empty` into the application's defaults (with its package in place of automl)."
        )


def _has_default_space(config: DictConfig) -> bool:
    if OmegaConf.is_interpolation(config, "space"):
        return False
    return all(config.space.get(name) == entry for name, entry in _default_space().items())


def _default_space() -> Any:
    return OmegaConf.load(conf_dir() / "space" / f"{DEFAULT_SPACE}.yaml")


# --- a part that stands alone ---------------------------------------------------------------------


def _standing_alone(raw: Any, node: Any) -> Any:
    """Return `raw`, the content of `node`, without references to other parts of the application.
    References to the environment stay, so that their values are not written down."""
    if isinstance(raw, dict):
        return {key: _child(raw[key], node, key) for key in raw}
    if isinstance(raw, list):
        return [_child(value, node, index) for index, value in enumerate(raw)]
    return raw


def _child(raw: Any, node: DictConfig | ListConfig, key: Any) -> Any:
    if not OmegaConf.is_interpolation(node, key):
        return _standing_alone(raw, node[key]) if isinstance(raw, dict | list) else raw
    if (reference := _to_environment(raw, node)) is not None:
        return reference
    value = node[key]
    if OmegaConf.is_config(value):
        return _standing_alone(
            OmegaConf.to_container(value, resolve=False, enum_to_str=True), value
        )
    return value.name if isinstance(value, Enum) else value


def _to_environment(text: str, node: DictConfig | ListConfig) -> str | None:
    """Return `text` with its references replaced by what they refer to, except references to the
    environment; None if it leads to no such reference."""
    root: Any = node._get_root()
    for _ in range(_MAX_STEPS):
        text = _NODE.sub(lambda match: _text_at(root, match[1]), text)
    if not _REFERENCE.search(text):
        return None
    return _OTHER.sub(lambda match: str(OmegaConf.create({"x": match[0]}, parent=root).x), text)


def _text_at(root: Any, key: str) -> str:
    """Return the unresolved text at a key; where there is none, the reference itself."""
    section, _, last = key.rpartition(".")
    holder = OmegaConf.select(root, section) if section else root
    if not isinstance(holder, DictConfig) or last not in holder:
        return f"${{{key}}}"  # resolving it raises the error
    values: Any = OmegaConf.to_container(holder, resolve=False)
    return f"${{{key}}}" if isinstance(values[last], dict | list) else str(values[last])
