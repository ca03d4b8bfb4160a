"""Turns a config into plain values: settings that may not change, and those that MLflow shows."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from typing import Any

from automl.config import Config, ObjectiveKind, PrunerConfig, SamplerConfig
from automl.config.data import VALIDATION_FRACTION
from automl.config.decided import decided_cases
from automl.models.family import family_name, family_of
from automl.record.trial_record import LIST_SEPARATOR
from automl.running.prepare.resume_command import part_digests, refit_settings
from automl.search.pruners import pruners
from automl.search.samplers import samplers


def identity_settings(config: Config) -> dict[str, Any]:
    """Return the settings that may not change while the study lasts."""
    family = family_of(config)
    metrics = config.study.metrics
    directions = [metric.direction.value for metric in metrics.metrics]
    study = {
        "metric": config.study.metric,
        "direction": directions if len(directions) > 1 else directions[0],
    }
    if config.study.metric_function is not None:  # older studies have none
        study["metric_function"] = config.study.metric_function
        study |= {"metric_parts": part_digests(config.study.metric_parts)}
    if metrics.limits:  # older studies have none
        study["constraints"] = {limit.name: limit.largest for limit in metrics.limits}
    identity: dict[str, Any] = {
        "study": study | {"seed": config.study.seed, "enqueue": config.study.enqueue},
        "objective": to_plain_values(config.objective)
        | {"parts": part_digests(config.objective.parts)},
    }
    if config.study.warm_from:  # older studies have none
        identity["study"]["warm_from"] = config.study.warm_from
    del identity["objective"]["file"], identity["objective"]["if_changed"]  # the file may move
    if config.study.repeats > 1:  # older studies have none
        identity["study"]["repeats"] = config.study.repeats
    if config.refit is not None and config.refit.trial is None:
        del identity["study"]["enqueue"]  # members that failed are tried again
    if config.objective.kind is ObjectiveKind.builtin:
        identity["data"] = to_plain_values(config.data)
        # Tables may move. Their contents may not change.
        del identity["data"]["path"]
        if config.data.test_path is not None:
            identity["data"]["test"] = decided_cases(config)["data.test"].value(config)
        # The findings of these settings are in the columns and folds, and in the data's digest.
        del identity["data"]["rules"], identity["data"]["combine"]
        if config.data.validation_fraction is None:  # the split is in the data's digest
            identity["data"]["validation_fraction"] = VALIDATION_FRACTION
        if not identity["data"]["columns"]:
            del identity["data"]["columns"]  # a refit has the identity of its study
        identity["model"] = dict(family.identity())
        identity["training"] = to_plain_values(config.training)
        del identity["training"]["loader_workers"]  # no number of a trial depends on it
    return identity


def to_plain_values(value: object) -> Any:
    """Return a dataclass as nested plain values, enums by name."""

    def convert(v: object) -> object:
        if isinstance(v, Enum):
            return v.name
        if isinstance(v, dict):
            return {k: convert(x) for k, x in v.items()}
        return [convert(x) for x in v] if isinstance(v, list | tuple) else v

    return convert(asdict(value))  # type: ignore[call-overload]


def flat_settings(config: Config) -> dict[str, str]:
    """Return the settings by dotted name (`training.epochs` → `20`), as params of MLflow's parent
    run."""
    flat: dict[str, str] = {}

    def walk(prefix: str, value: object) -> None:
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                walk(f"{prefix}.{key}" if prefix else str(key), inner)
        elif value is not None:
            flat[prefix] = str(value)

    settings = to_plain_values(config)
    for own in ("copy", "relative_to", "n_edits", "metric_parts"):
        del settings["study"][own]
    del settings["objective"]["parts"], settings["objective"]["if_changed"]
    del settings["refit"]
    walk("", settings)
    flat |= {f"refit.{name}": text for name, text in refit_settings(config.refit).items()}
    for part in ("sampler", "pruner"):
        flat[part] = option_name(getattr(config, part))
    if len(config.study.metrics.metrics) > 1:
        metrics = config.study.metrics.metrics
        flat["study.metric"] = LIST_SEPARATOR.join(metric.name for metric in metrics)
        flat["study.direction"] = LIST_SEPARATOR.join(m.direction.name for m in metrics)
    family = family_of(config)
    flat["model"] = family_name(family)
    return flat


def option_name(option: SamplerConfig | PrunerConfig) -> str:
    """Return the name by which the user chose the option: `TPE` → `tpe`."""
    options: dict[str, type] = {**samplers(), **pruners()}
    return next(name for name, kind in options.items() if kind is type(option))
