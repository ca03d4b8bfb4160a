"""Composes a command line with Hydra into a checked `Config`; no other module composes.

Hydra's compose API is used, not `hydra.main`: it writes nothing, changes no directory and
configures no logging. Only the answers that Hydra alone can give (`--info`) go through
`hydra.main`, in `option_answers.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import TypeVar

import hydra
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override
from hydra.version import VersionBase, setbase
from omegaconf import DictConfig, OmegaConf

from automl.cli.base import SWEEP_CONFIG, ConfigBase
from automl.cli.command_registry import conf_dir
from automl.cli.config_keys import (
    DEFAULT_MODEL,
    OPTIONS_BY_CLASS,
    config_groups,
    config_keys,
    unknown_key_text,
)
from automl.cli.number_bounds import refuse_large_numbers
from automl.cli.option_keys import refuse_unused_keys
from automl.cli.schemas import ChosenOptions, added_options, find_chosen_options, named_options
from automl.cli.space_overrides import canonical_space, is_about_space, rewrite_overrides
from automl.cli.stored_config import NOT_STORED_TEXT, plain_values, stored_config_text
from automl.cli.stored_file import nested_texts
from automl.cli.users_files import rename_keys_of_files
from automl.config import CommandArguments, Config, DataKind
from automl.errors import ConfigError

A = TypeVar("A", bound=CommandArguments)

_OPTION_SETTINGS = tuple(f"{group}." for group in OPTIONS_BY_CLASS)
"""The beginnings of keys that not every option of their group has."""


@dataclass(frozen=True)
class HydraInput:
    """The arguments of one call of Hydra's `compose`."""

    config_name: str
    overrides: tuple[str, ...]
    config_dir: Path | None
    study: Path | None
    """The study directory that the stored config is from; None: `conf/`."""


@dataclass(frozen=True)
class ComposedConfig:
    """A command line as a checked config, with the text that a study stores."""

    config: Config
    stored_config: str
    """The YAML that `resume` composes the same config from; it holds no credential."""
    arguments: CommandArguments = field(default_factory=CommandArguments)
    """The arguments of the command."""
    stored_study: Path | None = None
    """The study directory that the stored config is from; None: it is from elsewhere."""

    def typed_arguments(self, cls: type[A]) -> A:
        """Return the arguments as those of the class, which the registry names for the command."""
        assert isinstance(self.arguments, cls), "the registry names the class"
        return self.arguments


def make_hydra_input(
    base: ConfigBase, overrides: Sequence[Override], config_dir: str | None
) -> HydraInput:
    """Return the base and the parsed overrides of a command line in the form that Hydra takes.
    Raises ConfigError."""
    folder = None if config_dir is None else _config_dir(config_dir)
    lines = (*rewrite_overrides(overrides), *base.overrides)
    composition = HydraInput(base.config_name, lines, folder, base.study)
    if not base.has_options:
        composition = _with_added_options(composition)
    return _without_inline_space(composition)


def compose(composition: HydraInput) -> ComposedConfig:
    """Compose and check a config. Raises ConfigError and what `hydra_errors.py` explains."""
    composed = _compose(composition)
    _refuse_unknown(composed, composition.config_name)
    _refuse_missing_keys(composed, composition.study)
    refuse_large_numbers(composed)
    config = OmegaConf.to_object(composed)
    assert isinstance(config, Config)
    refuse_unused_keys(config, composition.overrides)
    config.space = canonical_space(config.space)
    stored_config = stored_config_text(composed, config)
    return ComposedConfig(config, stored_config, stored_study=composition.study)


def _compose(composition: HydraInput) -> DictConfig:
    with _initialized(composition.config_dir):
        return hydra.compose(composition.config_name, list(composition.overrides))


@contextmanager
def _initialized(config_dir: Path | None) -> Iterator[None]:
    """Let Hydra search `conf/` and `config_dir` within the block, and restore its state afterwards.
    A Hydra application may run in this process, which has one Hydra and one version that it is
    compatible with. (Hydra's own `initialize_config_dir` takes one folder.)"""
    instance, version_base = GlobalHydra.instance(), VersionBase.instance()
    own_hydra, version = instance.hydra, version_base.version_base
    instance.clear()
    try:
        setbase("1.3")
        search_path = create_config_search_path(str(conf_dir()))
        if config_dir is not None:
            search_path.prepend("command-line", f"file://{config_dir}", "schema")
        with rename_keys_of_files():
            Hydra.create_main_hydra2("automl", search_path)
            yield
    finally:
        instance.hydra, version_base.version_base = own_hydra, version


def _with_added_options(composition: HydraInput) -> HydraInput:
    """Return the input with the options that follow from the chosen ones, where the user chose
    none."""
    chosen = (
        find_chosen_options(composition.overrides)
        if composition.config_name == SWEEP_CONFIG
        else None
    )
    chosen = chosen or _chosen(composition)
    named = named_options(chosen, composition.overrides)
    added = added_options(replace(chosen, **named), composition.overrides)
    others = [line for line in composition.overrides if line != f"model={DEFAULT_MODEL}"]
    by_key = (f"{group}={option}" for group, option in named.items())
    return replace(composition, overrides=(*by_key, *added, *others))


def _chosen(composition: HydraInput) -> ChosenOptions:
    with _initialized(composition.config_dir):
        # Params, and settings of an option, may belong to one that is yet to be chosen.
        lines = [
            line
            for line in composition.overrides
            if not (is_about_space(line) or line.lstrip("+~").startswith(_OPTION_SETTINGS))
        ]
        composed = hydra.compose(composition.config_name, lines, return_hydra_config=True)
    names = composed.hydra.runtime.choices
    kind = OmegaConf.select(composed, "data.kind")
    data = kind.name if isinstance(kind, DataKind) else ""
    groups = [known.name for known in fields(ChosenOptions)]
    return ChosenOptions(**{group: str(names.get(group)) for group in groups} | {"data": data})


def _without_inline_space(composition: HydraInput) -> HydraInput:
    """Return the input with entries removed that a user's config has in `space:` itself; `~space`
    alone removes the file of the group. Finding them costs one more composition."""
    ours_alone = composition.config_name == SWEEP_CONFIG and composition.config_dir is None
    overrides = list(composition.overrides)
    if "~space" not in overrides or ours_alone:
        return composition
    others = tuple(line for line in overrides if not line.lstrip("+").startswith("space."))
    at = overrides.index("~space") + 1
    overrides[at:at] = [
        f"~space.{n}" for n in _compose(replace(composition, overrides=others)).space
    ]
    return replace(composition, overrides=tuple(overrides))


def _refuse_unknown(node: DictConfig, config_name: str) -> None:
    """Refuse keys that no config class has. Hydra accepts `++study.typo=1`, and configs that were
    not made from ours."""
    if OmegaConf.get_type(node) is not Config:
        raise ConfigError(
            f"--config-name {config_name}: a config of your own starts with "
            "`defaults: [sweep, _self_]`."
        )
    _refuse_extra_keys(node, "")


def _refuse_extra_keys(node: DictConfig, prefix: str) -> None:
    owner = OmegaConf.get_type(node)
    if owner is None or not is_dataclass(owner):
        return
    for key in map(str, node):
        name = f"{prefix}{key}"
        if key not in config_keys(owner):
            raise ConfigError(unknown_key_text(name, owner))
        if not OmegaConf.is_missing(node, key) and not OmegaConf.is_interpolation(node, key):
            inner = node[key]
            if isinstance(inner, DictConfig):
                _refuse_extra_keys(inner, f"{name}.")


def _refuse_missing_keys(config: DictConfig, study: Path | None) -> None:
    """Raise ConfigError for a key that must be given, with the reason and the remedy."""
    for key in sorted(OmegaConf.missing_keys(config)):
        if key in config_groups():
            raise ConfigError(f"{key}: nothing is chosen. Choose an option: {key}=NAME.")
        raise ConfigError(f"{key}: must be given: {key}=…")
    for key, text in nested_texts(plain_values(config)):
        if text != NOT_STORED_TEXT:
            continue
        named = "a study" if study is None else f"study {study.name}"
        raise ConfigError(
            f"{key} is not stored with {named}, because it carries a credential. Give it again, "
            f"best as a reference, which is stored: {key}='${{oc.env:NAME}}' takes it from the "
            "environment variable NAME."
        )


def _config_dir(text: str) -> Path:
    """Return the folder of `--config-dir`. Raises ConfigError where there is none, or where a file
    has the name of one of `conf/`, which would be taken instead."""
    path = Path(text).resolve()
    if not path.is_dir():
        raise ConfigError(f"--config-dir {text}: there is no such folder.")
    for group in ("", *config_groups()) if path != conf_dir() else ():
        for file in sorted((path / group).glob("*.yaml")):
            if (conf_dir() / group / file.name).is_file():
                raise ConfigError(
                    f"--config-dir {text}: {file} has the name of a file of automl's own, which "
                    "would be taken instead; rename it."
                )
    return path
