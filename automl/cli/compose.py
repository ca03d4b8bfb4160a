"""Composes a command line with Hydra into a checked `Config`; no other module composes.

Hydra's `compose_command` is used, not `hydra.main`: it writes nothing, changes no directory and
configures no logging. Only the answers that Hydra alone can give (`--info`) go through
`hydra.main`, in `hydra_options.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, is_dataclass
from pathlib import Path

import hydra
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.version import VersionBase
from omegaconf import DictConfig, OmegaConf

from automl.cli.arguments import CommandLine
from automl.cli.command_registry import conf_dir
from automl.cli.hydra_application import application_base_config
from automl.cli.hydra_errors import (
    explain_errors,
    refuse_hydra_overrides,
    refuse_hydra_settings,
    unknown_key_text,
)
from automl.cli.option_defaults import (
    ChosenOptions,
    added_options,
    find_chosen_options,
    other_options,
)
from automl.cli.schemas import (
    DEFAULT_MODEL,
    are_epochs_open,
    config_groups,
    config_keys,
    register_schemas,
)
from automl.cli.space_overrides import canonical_space, quote_raw_texts, rewrite_overrides
from automl.cli.stored_config import (
    SWEEP_CONFIG,
    ConfigBase,
    choose_base_config,
    overrides_studies_folder,
    refuse_missing_keys,
    stored_config_text,
)
from automl.config import Config, DataKind
from automl.errors import ConfigError
from automl.record.study_files import StudyFiles


@dataclass(frozen=True)
class HydraInput:
    """The arguments of one call of Hydra's `compose_command`."""

    config_name: str
    overrides: tuple[str, ...]
    config_dir: Path | None


@dataclass(frozen=True)
class ComposedConfig:
    """A command line as a checked config, with the text that a study stores."""

    command: str
    config: Config
    stored_config: str
    """The YAML that `resume` composes the same config from; it holds no credential."""
    has_open_length: bool = False
    """Whether no setting gives the length of a training; `config` then has the model's own
    length."""


def compose_command(arguments: CommandLine, application: object = None) -> ComposedConfig:
    """Compose and check a command line; with `application`, from the settings that a Hydra
    application composed as a part of its own. Raises ConfigError; writes nothing."""
    with explain_errors(arguments.overrides):
        shows_hydra = arguments.hydra_options[:2] not in ((), ("--cfg", "job"))
        if not shows_hydra:
            refuse_hydra_overrides(arguments.overrides)
        base, composition = make_hydra_input(arguments, application)
        if not shows_hydra:
            _refuse_hydra_settings(base, composition)
        composed = _compose(composition)
        _refuse_unknown(composed, composition.config_name)
        refuse_missing_keys(composed, base)
        config = OmegaConf.to_object(composed)
        assert isinstance(config, Config)
        config.space = canonical_space(config.space)
        has_open_length = are_epochs_open(composed)
        _decide(composed, config)
        return ComposedConfig(
            arguments.command, config, stored_config_text(composed), has_open_length
        )


def _decide(composed: DictConfig, config: Config) -> None:
    """Write the split of the table and the length of a training into `composed` where they were
    left open. A study keeps them, whatever later defaults are."""
    if are_epochs_open(composed):
        composed.training.epochs = config.training.epochs
    for key in ("folds", "test_fraction"):
        if composed.data[key] is None:
            composed.data[key] = getattr(config.data, key)


def find_studies_folder(overrides: Sequence[str]) -> Path:
    """Return the folder of studies that the overrides name. Raises ConfigError."""
    with explain_errors(overrides):
        return overrides_studies_folder(_parsed(overrides))


def make_hydra_input(
    arguments: CommandLine, application: object = None
) -> tuple[ConfigBase, HydraInput]:
    """Return the base to compose from, and the overrides in the form that Hydra takes."""
    register_schemas()
    parsed = _parsed(arguments.overrides)
    if application is not None:
        base = application_base_config(application, parsed)
    else:
        base = choose_base_config(arguments, parsed)
    config_dir = None if arguments.config_dir is None else _config_dir(arguments.config_dir)
    composition = HydraInput(
        base.config_name, (*rewrite_overrides(parsed), *base.overrides), config_dir
    )
    if base.study is None and application is None:
        composition = _with_added_options(composition)
    return base, _without_inline_space(composition)


def _parsed(overrides: Sequence[str]) -> list[Override]:
    return OverridesParser.create().parse_overrides(list(map(quote_raw_texts, overrides)))


def _compose(composition: HydraInput) -> DictConfig:
    with _initialized(composition.config_dir):
        return hydra.compose(composition.config_name, list(composition.overrides))


@contextmanager
def _initialized(config_dir: Path | None) -> Iterator[None]:
    with (
        _isolated_hydra(),
        _searching(config_dir),
        hydra.initialize_config_dir(str(conf_dir()), job_name="automl", version_base="1.3"),
    ):
        yield


@contextmanager
def _isolated_hydra() -> Iterator[None]:
    """Empty Hydra's state within the block, and restore it afterwards. A Hydra application may run
    in this process, which has one Hydra and one version that it is compatible with."""
    instance, version_base = GlobalHydra.instance(), VersionBase.instance()
    own_hydra, version = instance.hydra, version_base.version_base
    instance.clear()
    try:
        yield
    finally:
        instance.hydra, version_base.version_base = own_hydra, version
        GlobalHydra.set_instance(instance)


def _refuse_hydra_settings(base: ConfigBase, composition: HydraInput) -> None:
    """Refuse settings of Hydra itself in config files. Files are searched for the word first:
    comparing costs as much as composing."""
    folders = [folder for folder in (conf_dir(), composition.config_dir) if folder is not None]
    files = [f for folder in folders for depth in ("", "*/") for f in folder.glob(f"{depth}*.yaml")]
    if base.study is not None:
        files.append(StudyFiles(base.study).config)
    if any(map(_mentions_hydra, files)):
        with _initialized(composition.config_dir):
            overrides = list(composition.overrides)
            found = hydra.compose(composition.config_name, overrides, return_hydra_config=True)
            default = hydra.compose(overrides=[], return_hydra_config=True)
        refuse_hydra_settings(found.hydra, default.hydra)


def _mentions_hydra(file: Path) -> bool:
    try:
        return b"hydra" in file.read_bytes()
    except OSError:
        return False  # if it is needed, Hydra says so


def _with_added_options(composition: HydraInput) -> HydraInput:
    """Return the input with the options that follow from the chosen ones, where the user chose
    none."""
    chosen = (
        find_chosen_options(composition.overrides)
        if composition.config_name == SWEEP_CONFIG
        else None
    )
    added = added_options(chosen or _chosen(composition), composition.overrides)
    others = [line for line in composition.overrides if line != f"model={DEFAULT_MODEL}"]
    return HydraInput(composition.config_name, (*added, *others), composition.config_dir)


def _chosen(composition: HydraInput) -> ChosenOptions:
    with _initialized(composition.config_dir):
        lines = other_options(composition.overrides)
        composed = hydra.compose(composition.config_name, lines, return_hydra_config=True)
    names = composed.hydra.runtime.choices
    kind = OmegaConf.select(composed, "data.kind")
    data = kind.name if isinstance(kind, DataKind) else ""
    model, objective, space = (str(names.get(g)) for g in ("model", "objective", "space"))
    return ChosenOptions(data, model, objective, space)


def _without_inline_space(composition: HydraInput) -> HydraInput:
    """Return the input with entries removed that a config wrote into `space:` itself; `~space`
    alone removes only the file of the group.

    No config of ours has such entries, and looking for them takes as long as composing: it is
    skipped.
    """
    ours_alone = composition.config_name == SWEEP_CONFIG and composition.config_dir is None
    if "~space" not in composition.overrides or ours_alone:
        return composition
    others = [line for line in composition.overrides if not line.lstrip("+").startswith("space.")]
    inline = _compose(
        HydraInput(composition.config_name, tuple(others), composition.config_dir)
    ).space
    at = composition.overrides.index("~space")
    removed = tuple(f"~space.{name}" for name in inline)
    overrides = (*composition.overrides[: at + 1], *removed, *composition.overrides[at + 1 :])
    return HydraInput(composition.config_name, overrides, composition.config_dir)


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


# --- --config-dir, which `compose_command` does not know
# --------------------------------------------------

_extra_dir: ContextVar[Path | None] = ContextVar("_extra_dir", default=None)


class ConfigDirSearchPath(SearchPathPlugin):
    """Appends the folder of `--config-dir` to Hydra's search path while it composes."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        path = _extra_dir.get()
        if path is not None:
            search_path.append("command-line", f"file://{path}")


@contextmanager
def _searching(path: Path | None) -> Iterator[None]:
    plugins = Plugins.instance()
    if ConfigDirSearchPath not in plugins.discover(SearchPathPlugin):
        plugins.register(ConfigDirSearchPath)
    token = _extra_dir.set(path)
    try:
        yield
    finally:
        _extra_dir.reset(token)


def _config_dir(text: str) -> Path:
    path = Path(text).resolve()
    if not path.is_dir():
        raise ConfigError(f"--config-dir {text}: there is no such folder.")
    for ours in _files(conf_dir()):
        if path != conf_dir() and (path / ours).is_file():
            raise ConfigError(
                f"--config-dir {text}: {path / ours} has the name of a file of automl's own, which "
                "would be taken instead; rename it."
            )
    return path


def _files(folder: Path) -> Sequence[Path]:
    return [
        path.relative_to(folder)
        for group in ("", *config_groups())
        for path in sorted((folder / group).glob("*.yaml"))
    ]
