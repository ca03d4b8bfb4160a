"""Reads the settings of `hydra.sweeper`, as hydra-optuna-sweeper names them, as ours. Pure.

The search space comes from `hydra.sweeper.params` and the overrides of the command line, in Hydra's
notation of sweeps. What we cannot do as asked is refused by name, with the nearest setting.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Glob, Override, RangeSweep
from omegaconf import DictConfig, ListConfig, OmegaConf

from automl.cli.space_overrides import canonical_entry, override_text, plain_entry
from automl.errors import ConfigError

KEY = "hydra.sweeper"
RETURNED = "returned_value"
"""The metric's name where the application returns it and the user gave no name."""
_PLACE = re.compile(r"[A-Za-z_][\w.-]*")
"""Names that a command can have as a placeholder."""

_NSGA = ("population_size", "mutation_prob", "crossover_prob", "swapping_prob")
_SAMPLERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "auto": ("auto", ()),
    "TPESampler": (
        "tpe",
        (
            "n_startup_trials",
            "n_ei_candidates",
            "prior_weight",
            "consider_magic_clip",
            "consider_endpoints",
            "multivariate",
            "group",
            "constant_liar",
        ),
    ),
    "RandomSampler": ("random", ()),
    "CmaEsSampler": ("cmaes", ()),
    "NSGAIISampler": ("nsga2", _NSGA),
    "NSGAIIISampler": ("nsga3", _NSGA),
    "GridSampler": ("grid", ()),
    "GPSampler": ("gp", ("n_startup_trials",)),
    "QMCSampler": ("qmc", ("qmc_type", "scramble")),
}
"""Our sampler for each class of Optuna, and the arguments that both have."""
_WITHOUT_EFFECT = {
    "_partial_": True,
    "consider_prior": True,
    "consider_pruned_trials": False,
    "deterministic_objective": False,
    "inc_popsize": 2,
    "use_separable_cma": False,
}
"""Arguments of Optuna's samplers that ours lack, and the value that asks for nothing else."""


@dataclass(frozen=True)
class Goal:
    """The metrics of a sweep, in the order of the values that the application returns."""

    metrics: tuple[str, ...]
    directions: tuple[str, ...]
    is_named: bool
    """Whether the user named the metrics, so that the application may print or log them."""


@dataclass(frozen=True)
class SweepSpace:
    """What the overrides of a sweep say of its trials' params."""

    entries: Mapping[str, Any]
    """The search space, by the key that each trial overrides."""
    fixed: tuple[str, ...]
    """Overrides that are the same for all trials."""
    raw: tuple[str, ...]
    """Params whose values are Hydra's own text of a list or a mapping."""


def plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without OmegaConf's containers; references are resolved."""
    return {
        name: OmegaConf.to_container(value, resolve=True)
        if isinstance(value, DictConfig | ListConfig)
        else value
        for name, value in settings.items()
    }


def find_goal(settings: Mapping[str, Any]) -> Goal:
    """Return the metrics and their directions. Raises ConfigError."""
    given, metric = settings["direction"], settings["metric"]
    directions = tuple(map(str, given)) if isinstance(given, list) else (str(given),)
    if metric is None:
        several = len(directions) > 1
        names = tuple(f"{RETURNED}_{n}" for n in range(len(directions)))
        return Goal(names if several else (RETURNED,), directions, is_named=False)
    metrics = tuple(map(str, metric)) if isinstance(metric, list) else (str(metric),)
    if len(metrics) != len(directions):
        raise ConfigError(
            f"{KEY}.metric={override_text(list(metrics))}: {len(metrics)} metrics, and "
            f"{KEY}.direction has {len(directions)}. Give one direction for each metric."
        )
    return Goal(metrics, directions, is_named=True)


def setting_lines(settings: Mapping[str, Any], goal: Goal) -> list[str]:
    """Return the overrides of our settings that the sweeper's settings stand for.

    Raises ConfigError.
    """
    _refuse_what_cannot_be_done(settings)
    several = len(goal.metrics) > 1
    metric, direction = list(goal.metrics), list(goal.directions)
    lines = [
        f"study.metric={override_text(metric if several else metric[0])}",
        f"study.direction={override_text(direction if several else direction[0])}",
        *_sampler_lines(settings["sampler"]),
    ]
    for name, key in (
        ("n_trials", "study.n_trials"),
        ("storage", "study.storage"),
        ("n_jobs", "admission.max_concurrent_trials"),
        ("pruner", "pruner"),
    ):
        if settings[name] is not None:
            lines.append(f"{key}={override_text(settings[name])}")
    if settings["pruner"] is None and not goal.is_named:
        lines.append("pruner=none")  # a value at the end alone prunes nothing
    return lines + [str(line) for line in settings["overrides"]]


def _refuse_what_cannot_be_done(settings: Mapping[str, Any]) -> None:
    if settings["custom_search_space"]:
        raise ConfigError(
            f"{KEY}.custom_search_space={settings['custom_search_space']}: a trial's params are "
            f"known before its program starts, so no function can add to them. Name them in "
            f"{KEY}.params, or write the function as an objective for Optuna (objective=optuna)."
        )
    storage = settings["storage"]
    if not (storage is None or isinstance(storage, str)):
        raise ConfigError(
            f"{KEY}.storage={storage}: is an address, such as sqlite:///example.db. Leave it out: "
            "the study is kept in studies/."
        )
    rate = settings["max_failure_rate"]
    if not (rate is None or (isinstance(rate, int | float) and 0 <= rate <= 1)):
        raise ConfigError(f"{KEY}.max_failure_rate={rate}: must be from 0 to 1.")


def _sampler_lines(sampler: Mapping[str, Any]) -> list[str]:
    target = str(sampler.get("_target_", "auto"))
    name = target.rpartition(".")[2]
    if name == "MOTPESampler":
        name = "TPESampler"  # which took over its part in Optuna 4
    if name not in _SAMPLERS:
        known = ", ".join(sorted(_SAMPLERS))
        raise ConfigError(f"{KEY}.sampler._target_={target}: must be one of {known}.")
    option, taken = _SAMPLERS[name]
    arguments = {key: v for key, v in sampler.items() if v is not None and key != "_target_"}
    lines = [] if option == "auto" else [f"sampler={option}"]
    for key, value in arguments.items():
        if key == "seed":
            lines.append(f"study.seed={value}")
        elif key in taken:
            lines.append(f"sampler.{key}={override_text(value)}")
        elif not key.startswith("warn_") and _WITHOUT_EFFECT.get(key) != value:
            raise ConfigError(
                f"{KEY}.sampler.{key}={value}: sampler={option} has no such argument. Leave it out"
                f"{'; it has ' + ', '.join(taken) if taken else ''}."
            )
    return lines


# --- the search space -----------------------------------------------------------------------------


def find_space(
    settings: Mapping[str, Any], arguments: Sequence[str], parser: OverridesParser
) -> SweepSpace:
    """Return the space of `hydra.sweeper.params` and of the overrides, which count more.

    Raises ConfigError, and OverrideParseException for a text that is none of Hydra's.
    """
    params = [f"{name}={value}" for name, value in (settings["params"] or {}).items()]
    former = settings["search_space"] or {}
    searched = {name: _SearchedKey(name, _former_entry(name, old)) for name, old in former.items()}
    fixed: dict[str, str] = {}
    for override in parser.parse_overrides([*params, *arguments]):
        key = override.get_key_element()
        name = key.lstrip("+")
        if override.is_sweep_override():
            fixed.pop(name, None)
            searched[name] = _searched_key(override, key)
        else:
            searched.pop(name, None)
            fixed[name] = str(override.input_line)
    if not searched:
        raise ConfigError(
            f"hydra/sweeper=automl: nothing is searched. Give a param several values, such as "
            f"'lr=tag(log,interval(1e-4,1e-1))', or name it in {KEY}.params."
        )
    return SweepSpace(
        {found.key: found.entry for found in searched.values()},
        tuple(fixed.values()),
        tuple(found.key for found in searched.values() if found.is_raw),
    )


@dataclass(frozen=True)
class _SearchedKey:
    """A key that trials override, and its entry in the space."""

    key: str
    entry: Any
    is_raw: bool = False
    """Whether its values are Hydra's texts of lists or mappings."""


def _searched_key(override: Override, key: str) -> _SearchedKey:
    value = override.value()
    if isinstance(value, RangeSweep) and not value.shuffle:
        return _SearchedKey(key, _from_range(value))
    if not isinstance(value, ChoiceSweep | RangeSweep | Glob):
        return _SearchedKey(key, canonical_entry(key, value))
    choices = list(override.sweep_iterator())
    if not any(isinstance(choice, list | dict) for choice in choices):
        return _SearchedKey(key, {"choices": [plain_entry(choice) for choice in choices]})
    if not _PLACE.fullmatch(key):
        raise ConfigError(
            f"{override.input_line}: a list is a choice of a key such as model.layers, and not of "
            f"{key}. Choose among numbers, texts, or options of a config group."
        )
    return _SearchedKey(key, {"choices": list(override.sweep_string_iterator())}, is_raw=True)


def _from_range(sweep: RangeSweep) -> dict[str, Any]:
    """Return a range whose end is included where a step reaches it, as hydra-optuna-sweeper has
    it."""
    start, stop, step = (Decimal(str(v)) for v in (sweep.start, sweep.stop, sweep.step))
    whole = all(isinstance(v, int) for v in (sweep.start, sweep.stop, sweep.step))
    number: type = int if whole else float
    last = start + (stop - start) // step * step
    return {"low": number(start), "high": number(last), "step": number(step)}


def _former_entry(name: str, entry: Any) -> Any:
    """Return an entry of `hydra.sweeper.search_space`, the notation before `params`."""
    key = f"{KEY}.search_space.{name}"
    if not isinstance(entry, Mapping) or entry.get("type") not in ("categorical", "int", "float"):
        raise ConfigError(f"{key}={entry}: its type must be categorical, int or float.")
    if entry["type"] == "categorical":
        return {"choices": list(entry["choices"])}
    number: type = int if entry["type"] == "int" else float
    more = {k: v for k, v in entry.items() if k in ("step", "log") and v}
    return {"low": number(entry["low"]), "high": number(entry["high"])} | more
