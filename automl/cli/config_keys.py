"""The existing keys and groups, and the answers to a wrong key or option.

Hydra is not loaded here, so that a wrong word on the command line is answered at once. Hydra finds
keys in config files, and keys that only another option has, while it composes.
"""

from __future__ import annotations

import difflib
import functools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import get_type_hints

from automl.cli.command_arguments import commands_with_argument
from automl.cli.command_registry import closest_word, conf_dir
from automl.cli.short_words import SHORT_BY_KEY, SHORT_WORDS, WORDS_ELSEWHERE
from automl.config import Config, ModelConfig, PrunerConfig, SamplerConfig
from automl.config.checks import setting_names
from automl.errors import ConfigError
from automl.models.families.mlp.family import MLPFamily
from automl.models.family import load_families
from automl.search.pruners import pruners
from automl.search.samplers import samplers

SCHEMA_SUFFIX = "_schema"
"""The end of the names of schemas among a group's options; users are not shown these options."""

DEFAULT_MODEL = "default"
"""The option of `model` that the defaults list of `conf/sweep.yaml` names."""


@dataclass
class DefaultModelSchema(MLPFamily):
    """The schema of the default option, with the keys of the model that most data get."""


OPTIONS_BY_CLASS: Mapping[str, Mapping[str, type]] = {
    "model": {**load_families(), DEFAULT_MODEL: DefaultModelSchema},
    "sampler": samplers(),
    "pruner": pruners(),
}
"""Groups whose options differ in their keys: a class, and so a schema, per option."""

_MAX_SHOWN = 2
"""The largest number of keys that a message lists, if several end in the word."""
_MIN_SIMILARITY = 0.75
"""The least similarity of a word and a key's last part (difflib's ratio) for a suggestion. At
difflib's default, 0.6, `depth` would be a `path`."""
_NAMES_ELSEWHERE: Mapping[str, Mapping[str, Sequence[str]]] = {
    "sampler": {
        "tpe": ("optuna", "hyperopt", "parzen"),
        "gp": ("bayesian", "bayes", "bayesopt", "bo", "gaussianprocess", "botorch", "skopt"),
        "grid": ("gridsearch", "gridsampler", "bruteforce", "exhaustive"),
        "random": ("randomsearch", "randomized", "randomizedsearch", "uniform"),
        "cmaes": ("cma", "evolution", "evolutionary", "genetic"),
        "qmc": ("sobol", "halton", "quasirandom"),
    },
    "pruner": {
        "halving": ("hyperband", "successivehalving", "sha", "bohb"),
        "asha": ("ashascheduler", "asynchyperband", "promotion"),
        "median": ("medianstopping", "medianpruner"),
        "none": ("off", "no", "nop", "nopruner"),
    },
    "model": {
        "boosting": ("xgboost", "xgb", "gbm", "gbdt"),
        "trees": ("randomforest", "rf", "forest", "extratrees", "decisiontree"),
        "mlp": ("network", "neuralnetwork", "nn", "fnn"),
        "linear": ("logisticregression", "lr", "ridge", "lasso"),
        "lightgbm": ("lgbm", "lgb"),
        "kernel": ("svm", "svc", "svr", "gaussianprocess", "knn"),
    },
}
"""Names that other tools have for our options, by group and option, in small letters without `_`
and `-`."""
_PLAIN_OVERRIDE = re.compile(r"\+{0,2}(\w[\w-]*(?:\.\w[\w-]*)*)=([^,()]*)")
"""An override whose key and value mean the same to Hydra as they do here."""
_PLAIN_OPTION = re.compile(r"[A-Za-z][\w.-]*")


@functools.cache
def config_groups() -> tuple[str, ...]:
    """Return the groups of `conf/`, in the order of the fields of `Config`."""
    names = {path.name for path in conf_dir().iterdir() if [*path.glob("*.yaml")]}
    return tuple(key for key in config_keys(Config) if key in names)


def config_keys(cls: type) -> tuple[str, ...]:
    """Return the keys that a config class has."""
    return setting_names(cls)


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


def refuse_unknown_words(overrides: Sequence[str]) -> None:
    """Raise ConfigError for the first plain override whose key no option has, or that chooses an
    option that is not in `conf/`. The caller makes sure that there are no user-defined groups."""
    if any(line.lstrip("+").startswith("hydra.searchpath") for line in overrides):
        return  # it may add groups
    for line in overrides:
        match = _PLAIN_OVERRIDE.fullmatch(line)
        if match is None or match[1].startswith("hydra."):
            continue
        part, _, rest = match[1].partition(".")
        key = f"{part}.{rest.partition('.')[0]}" if rest else part
        if part not in config_keys(Config):
            if not rest and (commands := commands_with_argument(part)):
                raise ConfigError(
                    f"{line}: is no setting, but an argument of {', '.join(commands)}: leave it "
                    "out here."
                )
            raise ConfigError(unknown_key_text(part, Config, "" if rest else match[2]))
        if part not in OPTIONS_BY_CLASS and part != "space" and key not in all_config_keys():
            owner = type(getattr(Config(), part))
            raise ConfigError(unknown_key_text(key, owner, match[2]))
        if part in config_groups() and not rest and _PLAIN_OPTION.fullmatch(match[2]):
            options = sorted(file.stem for file in (conf_dir() / part).glob("*.yaml"))
            is_known = match[2] in (*options, "null") or match[2].endswith(SCHEMA_SUFFIX)
            if not is_known:
                raise ConfigError(unknown_option_text(part, match[2], options))


def unknown_key_text(key: str, owner: type | None, value: str = "") -> str:
    """Return the refusal of a key, with the closest key and all keys of its part; `value` is the
    value that was given for it."""
    part, _, last = key.rpartition(".")
    level = [k for k in all_config_keys() if k.count(".") == key.count(".")]
    hint = closest_word(key, level)
    if not hint or (not part and _is_like_setting(key.replace("-", "_"))):
        hint = as_setting(last, value) if (value and not part) or keys_meant(last) else ""
    options = [
        name for name, cls in OPTIONS_BY_CLASS.get(part, {}).items() if last in config_keys(cls)
    ]
    if owner in (ModelConfig, SamplerConfig, PrunerConfig):
        schemas = (
            ", ".join(name + SCHEMA_SUFFIX for name in options) or f"one ending in {SCHEMA_SUFFIX}"
        )
        return f"{key}: the option's file names no schema; start it with defaults: [{schemas}]."
    if options:
        return f"{key}: the chosen {part} has no such key; it belongs to {part}={options[0]}."
    known_keys = config_keys(owner) if is_dataclass(owner) and isinstance(owner, type) else ()
    listed = f" Keys{f' of {part}' if part else ''}: {', '.join(known_keys)}." if known_keys else ""
    return f"{key}: there is no such key.{hint}{listed}"


def unknown_option_text(group: str, name: str, options: Sequence[str]) -> str:
    """Return the refusal of an option, with the one that was meant and all options of its group."""
    plain = name.lower().replace("_", "").replace("-", "")
    names_elsewhere = _NAMES_ELSEWHERE.get(group, {})
    meant = next((option for option, names in names_elsewhere.items() if plain in names), None)
    if meant is not None:
        hint = f" Write {group}={meant}."
    elif group == "data" and name.endswith((".csv", ".tsv", ".parquet")):
        hint = f" Write table={name} target=COLUMN."
    else:
        hint = closest_word(name, options)
    return (
        f"{group}={name}: there is no such option.{hint} Options of {group}: {', '.join(options)}."
    )


def missing_value_text(word: str) -> str | None:
    """Return the answer to a key without a value (`study.n_trials`); None if the word is no key."""
    keys = keys_meant(word.lstrip("+"))
    if not keys:
        return None
    lines = " or ".join(_typed(key, "") for key in keys[:_MAX_SHOWN])
    return f"{word}: the value is missing: {lines}"


def as_setting(name: str, value: str) -> str:
    """Return the sentence that says how a setting without its part is written: `n_trials` and `8`
    → ` Write n_trials=8.`"""
    name = name.replace("-", "_")
    lines = [_typed(key, value) for key in (keys_meant(name) or _similar(name))]
    if keys_meant(name):
        return f" Write {' or '.join(lines[:_MAX_SHOWN])}."
    hint = f" Did you mean {' or '.join(lines[:_MAX_SHOWN])}?" if lines else ""
    return f"{hint} A param of the search space is written {_typed(f'space.{name}', value)}."


def keys_meant(name: str) -> list[str]:
    """Return the keys that a word may stand for: itself, that of a short word, or those that end
    in it."""
    if name in all_config_keys():
        return [name]
    if name not in SHORT_WORDS and (keys := keys_named(name)):
        return [*keys]
    word = WORDS_ELSEWHERE.get(name, name)
    return [SHORT_WORDS[word]] if word in SHORT_WORDS else []


def _similar(name: str) -> list[str]:
    lasts = [*SHORT_WORDS, *(key.rpartition(".")[2] for key in all_config_keys())]
    longer = [last for last in lasts if last.startswith(f"{name}_")]
    found = longer or difflib.get_close_matches(name, lasts, n=1, cutoff=_MIN_SIMILARITY)
    return [key for last in found[:1] for key in keys_meant(last)]


def _is_like_setting(name: str) -> bool:
    """Return whether a word is, or is closest to, the last part of a key rather than a part."""
    lasts = [*SHORT_WORDS, *(key.rpartition(".")[2] for key in all_config_keys())]
    closest = difflib.get_close_matches(name, lasts, n=1, cutoff=_MIN_SIMILARITY)
    return bool(keys_meant(name)) or (bool(closest) and closest[0] not in config_keys(Config))


def _typed(key: str, value: str) -> str:
    word = SHORT_BY_KEY.get(key, key)
    return shlex.quote(f"{word}={value}") if value else f"{word}=…"
