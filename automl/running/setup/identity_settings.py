"""What a config says, as plain values: what may not change, and what MLflow shows of it."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from typing import Any

from automl.config import Config, ObjectiveKind, PrunerConfig, SamplerConfig
from automl.config.data import VALIDATION_FRACTION
from automl.models.family import Family, family_name
from automl.running.setup.resume_command import function_parts
from automl.search.pruners import pruners
from automl.search.samplers import samplers


def identity_settings(config: Config) -> dict[str, Any]:
    """The settings that may not change while the study lasts."""
    assert isinstance(config.model, Family), "Hydra makes it by its schema"
    study = {"metric": config.study.metric, "direction": config.study.towards.value}
    identity: dict[str, Any] = {
        "study": study | {"seed": config.study.seed, "enqueue": config.study.enqueue},
        "objective": to_plain_values(config.objective)
        | {"parts": function_parts(config.objective)},
    }
    del identity["objective"]["file"]  # it may move
    if config.refit.of is not None and config.refit.trial is None:
        del identity["study"]["enqueue"]  # members that failed are tried again
    if config.objective.kind is ObjectiveKind.builtin:
        identity["data"] = to_plain_values(config.data)
        del identity["data"]["path"], identity["data"]["test_path"]  # tables may move; not change
        del identity["data"]["split_to"]
        # What they found is told, by column, with the data's digest.
        for found in ("detect", "detect_target", "detect_verbatim"):
            del identity["data"][found]
        if config.data.validation_fraction is None:  # what it comes to is in the data's digest
            identity["data"]["validation_fraction"] = VALIDATION_FRACTION
        if not identity["data"]["columns"]:
            del identity["data"]["columns"]  # a refit is called by what its study is
        identity["model"] = dict(config.model.identity())
        identity["training"] = to_plain_values(config.training)
        del identity["training"]["loader_workers"]  # no number of a trial depends on it
        if config.training.loss != "quantile":
            del identity["training"]["quantile"]  # likewise, and studies of before have none
    return identity


def to_plain_values(value: object) -> Any:
    """A dataclass as nested plain values, enums by name."""

    def convert(v: object) -> object:
        if isinstance(v, Enum):
            return v.name
        if isinstance(v, dict):
            return {k: convert(x) for k, x in v.items()}
        return [convert(x) for x in v] if isinstance(v, list | tuple) else v

    return convert(asdict(value))  # type: ignore[call-overload]


def flat_settings(config: Config) -> dict[str, str]:
    """`training.epochs` → `20`: the settings as params of the parent run in MLflow."""
    flat: dict[str, str] = {}

    def walk(prefix: str, value: object) -> None:
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                walk(f"{prefix}.{key}" if prefix else str(key), inner)
        elif value is not None:
            flat[prefix] = str(value)

    settings = to_plain_values(config)
    del settings["study"]["copy"], settings["study"]["relative_to"]
    del settings["watch"], settings["objective"]["parts"]
    if config.refit.of is None:
        del settings["refit"]
    del settings["data"]["split_to"]
    for after in ("evaluate", "export", "predict", "register"):
        del settings[after]
    walk("", settings)
    for part in ("sampler", "pruner"):
        flat[part] = option_name(getattr(config, part))
    assert isinstance(config.model, Family)
    flat["model"] = family_name(config.model)
    return flat


def option_name(option: SamplerConfig | PrunerConfig) -> str:
    """What the user chose it by: `TPE` → `tpe`."""
    options: dict[str, type] = {**samplers(), **pruners()}
    return next(name for name, kind in options.items() if kind is type(option))
