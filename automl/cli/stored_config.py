"""The config that a study stores, and the parts of it that commands take.

The stored file is itself a Hydra config: a defaults list that names the schemas, then every value,
unresolved. A later change of `conf/` therefore does not change a study, and overrides work as
usual. A value that carries a credential is not stored: a note takes its place, and the value has to
be given again.

Relative paths count from the folder that the study was last swept from, stored as
`study.relative_to`. In another folder they would name other files, and MLflow's store would be
created anew without a word: they are made absolute. In a study that was moved since, they count
from the current folder, since its surroundings mostly moved with it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, ListConfig, Node, OmegaConf

from automl.cli.arguments import CommandLine
from automl.cli.command_registry import COMMANDS, Command, StoredPart, StudyChoice
from automl.cli.config_keys import OPTIONS_BY_CLASS, SCHEMA_SUFFIX, config_groups, config_keys
from automl.cli.foreign_study import nested_texts, refuse_foreign_study
from automl.cli.schemas import is_length_open
from automl.cli.space_overrides import canonical_space, override_text
from automl.cli.stored_file import read_stored_file, seal_config
from automl.config import Config, StudyConfig
from automl.errors import ConfigError
from automl.record.secrets import carries_credential
from automl.record.study_files import StudyFiles
from automl.trial import StudyEdited

_FILES = ("data.path", "data.test_path")
_STORES = ("tracking.uri", "study.storage")
_SQLITE = "sqlite:///"


def absolute_stored_paths(
    study: Path, stored: Mapping[str, Any], given: Sequence[str], here: Path
) -> dict[str, str]:
    """Return the relative paths among the `stored` settings (plain values) as absolute paths, by
    key; empty if they are right as seen from `here`. Keys in `given`, those of the command line,
    are left out.

    Raises ConfigError where the folder that they are relative to is gone.
    """
    settings = stored.get("study") or {}
    begun_in = settings.get("relative_to")
    if begun_in is None or Path(begun_in) == here:
        return {}
    folder = Path(begun_in, str(settings.get("dir", ""))).resolve()
    if not study.resolve().is_relative_to(folder):  # was moved; a refit is in a deeper folder
        return {}
    absolute_paths = {
        key: path for key, path in _absolute(stored, Path(begun_in)) if key not in given
    }
    if absolute_paths and not Path(begun_in).is_dir():
        raise ConfigError(
            f"study.name={study.name}: its paths are relative to {begun_in}, where it was begun, "
            "and that folder is gone. Give them again as they are now: "
            f"{' '.join(f'{key}=…' for key in absolute_paths)}"
        )
    return absolute_paths


def _absolute(stored: Mapping[str, Any], base: Path) -> Iterator[tuple[str, str]]:
    # loads importlib.metadata, which costs 15 ms
    from automl.tracking.tracking_uri import DEFAULT_URI, TRACKING_URI_VARIABLE

    for key in _FILES:
        path = _value(stored, key)
        if path is not None and not Path(path).expanduser().is_absolute():
            yield key, str(base / path)
    for key in _STORES:
        uri = _value(stored, key)
        if key == "tracking.uri" and uri is None and not os.environ.get(TRACKING_URI_VARIABLE):
            uri = DEFAULT_URI
        if uri is not None and uri.startswith(_SQLITE) and _is_relative(uri):
            yield key, f"{_SQLITE}{base}/{uri.removeprefix(_SQLITE)}"


def _is_relative(uri: str) -> bool:
    file = uri.removeprefix(_SQLITE)
    return bool(file) and not file.startswith(("/", ":", "?"))


def _value(stored: Mapping[str, Any], key: str) -> str | None:
    """Return the text that is stored for a key; None if there is none, or only Hydra can resolve
    it."""
    group, _, name = key.partition(".")
    value = (stored.get(group) or {}).get(name)
    return value if isinstance(value, str) and "${" not in value else None


STORED_NAME = "stored_config"
NOT_STORED_TEXT = "(not stored: carries a credential)"  # Hydra's ??? would give way to the default

SWEEP_CONFIG = "sweep"
"""The config that is composed where no other is named: conf/sweep.yaml."""


@dataclass(frozen=True)
class ConfigBase:
    """The config that a command line starts from, before the user's overrides."""

    config_name: str
    overrides: tuple[str, ...] = ()
    """Overrides that are added after the user's."""
    study: Path | None = None
    """The study directory that the stored config is from; None: `conf/`."""


# --- writing --------------------------------------------------------------------------------------


def stored_config_text(composed: DictConfig, config: Config) -> str:
    """Return what was composed as YAML that composes to the same; references stay references. The
    length of a training and the split of a table are stored as `config` has them decided: a study
    keeps them, whatever later defaults are."""
    plain: Any = OmegaConf.to_container(composed, resolve=False, enum_to_str=True)
    if is_length_open(composed):
        plain["training"]["epochs"] = config.training.epochs
    for key in ("folds", "test_fraction"):
        if plain["data"][key] is None:
            plain["data"][key] = getattr(config.data, key)
    if isinstance(plain["space"], Mapping):
        plain["space"] = canonical_space(plain["space"])
    plain["study"]["copy"] = None  # answers a question about one folder
    if config.warm:  # a clone learns from its original
        names = [config.study.name, *config.study.warm_from]
        plain["study"]["warm_from"] = list(dict.fromkeys(names))
    if config.study.new_name is not None:
        plain["study"] |= {"name": config.study.new_name, "n_edits": 0}
    plain["study"]["new_name"], plain["warm"], plain["which"] = None, False, None
    plain["study"]["relative_to"] = str(Path.cwd())
    plain["data"]["split_to"] = None  # the split is written once
    del plain["ask"], plain["tell"]  # of one command
    whole = add_defaults_list(composed, _drop_credentials(plain))
    return seal_config(OmegaConf.to_yaml(OmegaConf.create(whole)))


def add_defaults_list(config: DictConfig, plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return `plain`, the content of `config`, in a form that Hydra composes to the same: a
    defaults list that names the schemas of the chosen options, then every value."""
    defaults = ["config_schema", *({g: _schema_of(g, config)} for g in config_groups()), "_self_"]
    return {"defaults": defaults, **plain}


def _schema_of(group: str, config: DictConfig) -> str | None:
    """Return the schema of the group's chosen option; None where the root schema has all its
    keys."""
    classes = OPTIONS_BY_CLASS.get(group)
    if classes is None:
        return None
    chosen = OmegaConf.get_type(config, group)
    for name, cls in classes.items():
        if cls is chosen:
            return name + SCHEMA_SUFFIX
    raise ConfigError(
        f"{group}: the chosen option names no schema. Start its file with one of "
        f"{', '.join(f'defaults: [{name}{SCHEMA_SUFFIX}]' for name in classes)}."
    )


def _drop_credentials(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _drop_credentials(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_drop_credentials(v) for v in value]
    return NOT_STORED_TEXT if isinstance(value, str) and carries_credential(value) else value


# --- reading --------------------------------------------------------------------------------------


def choose_base_config(arguments: CommandLine, overrides: Sequence[Override]) -> ConfigBase:
    """Return `conf/` or a study's stored config, as the command needs. Raises ConfigError if there
    is no such study."""
    command = COMMANDS[arguments.command]
    study = _study_meant(command, overrides)
    if study is None:
        return ConfigBase(arguments.config_name or SWEEP_CONFIG)
    if arguments.config_name is not None:
        raise ConfigError(
            f"--config-name {arguments.config_name}: {command.name} takes the settings that the "
            "study stored; leave it out."
        )
    assert study.name is not None
    path = Path(study.dir) / study.name
    _register_stored(path, overrides, command)
    # The folder may have been moved or copied since: its current place counts.
    own_place = (f"study.name={override_text(study.name)}", f"study.dir={override_text(study.dir)}")
    return ConfigBase(STORED_NAME, own_place, path)


def overrides_studies_folder(overrides: Sequence[Override]) -> Path:
    """Return the folder of studies that the overrides name, before anything is composed."""
    return Path(str(_value_of("study.dir", overrides) or StudyConfig.dir))


def _study_meant(command: Command, overrides: Sequence[Override]) -> StudyConfig | None:
    """Return the study whose stored config the command takes; None if it takes none. Raises
    ConfigError."""
    if command.stored is StoredPart.NOTHING:
        return None
    from automl.record.studies import study_names  # loads the event log

    folder = overrides_studies_folder(overrides)
    name = _value_of("study.name", overrides)
    names = study_names(folder)
    if name is None and command.which in (StudyChoice.NAMED, StudyChoice.NAMED_OR_NEW):
        raise ConfigError(f"{command.name} needs study.name=NAME. {_list_studies(folder, names)}")
    if name is None and command.which is StudyChoice.NAMED_IF_ANY:
        return None
    if name is None and not names:
        if command.which is StudyChoice.NEWEST_IF_ANY:
            return None
        raise ConfigError(f"{command.name}: there is no study yet. {_list_studies(folder, names)}")
    study = StudyConfig(name=names[0] if name is None else str(name), dir=str(folder))
    storage = _value_of("study.storage", overrides)
    if study.name not in names and storage is not None:
        study.storage = str(storage)
        if study.shared:  # an empty folder: the database has the study
            from automl.record.sharing.study_fetch import fetch_study

            fetch_study(study)
            names = study_names(folder)
    if study.name not in names and command.which is StudyChoice.NAMED_OR_NEW:
        return None
    if study.name not in names:
        raise ConfigError(f"study.name={study.name}: no such study. {_list_studies(folder, names)}")
    return study


def refuse_missing_keys(config: DictConfig, base: ConfigBase) -> None:
    """Raise ConfigError for a key that must be given, with the reason and the remedy."""
    for key in sorted(OmegaConf.missing_keys(config)):
        if key in config_groups():
            raise ConfigError(f"{key}: nothing is chosen. Choose an option: {key}=NAME.")
        raise ConfigError(f"{key}: must be given: {key}=…")
    for key, text in nested_texts(plain_values(config)):
        if text != NOT_STORED_TEXT:
            continue
        study = "a study" if base.study is None else f"study {base.study.name}"
        raise ConfigError(
            f"{key} is not stored with {study}, because it carries a credential. Give it again, "
            f"best as a reference, which is stored: {key}='${{oc.env:NAME}}' takes it from the "
            "environment variable NAME."
        )


def _register_stored(study: Path, overrides: Sequence[Override], command: Command) -> None:
    """Register the stored config with Hydra under STORED_NAME."""
    stored_part, stored = command.stored, read_stored_file(StudyFiles(study))
    whole = stored_part in (StoredPart.WHOLE, StoredPart.EDITABLE)
    replaced = replaced_sections(overrides)
    if whole:
        address = _value_of("study.storage", overrides) or OmegaConf.select(
            stored, "study.storage", throw_on_resolution_failure=False
        )
        stored_study = StudyConfig(name=study.name, dir=str(study.parent))
        stored_study.storage = None if address is None else str(address)
        if stored_study.shared and command.asks_sweeps:
            refuse_foreign_study(study, plain_values(stored), overrides)
            _bring_up_to_date(stored, stored_study)
        _apply_new_edits(stored, stored_study)
    if stored_part is StoredPart.EDITABLE:
        _drop_notes_on_credentials(stored)
    _schema_for_kind(stored)
    if "study" in stored and "refit" not in stored["study"]:
        stored["study"]["refit"] = "none"  # begun before sweeps refitted by themselves
    if not whole:
        _choose_option(stored, "model", "mlp")  # no model is used; any other needs its settings
    kept_keys = [str(key) for key in stored if whole or key in ("defaults", "tracking")]
    given_keys = [override.key_or_group for override in overrides]
    plain = plain_values(stored)
    for key, path in absolute_stored_paths(study, plain, given_keys, Path.cwd()).items():
        OmegaConf.update(stored, key, path)
    node = OmegaConf.masked_copy(stored, [key for key in kept_keys if key not in replaced])
    storage = (plain.get("study") or {}).get("storage")
    unknown = (None,) if command.asks_sweeps else (None, NOT_STORED_TEXT)
    if stored_part is StoredPart.STORES and storage not in unknown:
        node["study"] = OmegaConf.masked_copy(stored["study"], ["storage"])
    refuse_foreign_study(study, plain_values(node), overrides)
    ConfigStore.instance().store(name=STORED_NAME, node=node)


def _bring_up_to_date(stored: DictConfig, study: StudyConfig) -> None:
    """Bring the folder of a shared study up to date, if it has begun, and its total of trials.

    Raises ConfigError where the database cannot be used, and StorageError.
    """
    from automl.record.sharing.study_fetch import (  # loads psycopg
        fetch_stored_config,
        fetch_study,
    )

    if fetch_stored_config(study) is not None:
        stored["study"]["n_trials"] = fetch_study(study).n_trials


def _apply_new_edits(stored: DictConfig, study: StudyConfig) -> None:
    """Change the settings that the last sweep stored by the edits since.

    The log of a shared study has sweeps of other folders, so its settings tell how many they have.
    """
    from automl.record.event_log import read_edits  # most commands read no log here

    log = StudyFiles(Path(study.dir) / str(study.name)).events
    edits = read_edits(log, since_sweep=not study.shared)
    if study.shared:
        n_edits = stored["study"].get("n_edits", 0)
        stored["study"]["n_edits"], edits = len(edits), edits[n_edits:]
    apply_edits(stored, edits)


def apply_edits(stored: DictConfig, edits: Iterable[StudyEdited]) -> None:
    """Change stored settings by edits, one after another."""
    for edit in edits:
        for key in dict.fromkeys((*edit.before, *edit.after)):
            group, _, name = key.partition(".")
            section = stored[group]
            if key not in edit.after:
                section.pop(name, None)
            elif name:
                section[name] = json.loads(edit.after[key])
            else:
                values = json.loads(edit.after[key])
                _choose_option(stored, group, values.pop("name"))
                stored[group] = values


def _drop_notes_on_credentials(node: DictConfig) -> None:
    for key in list(node):
        value = node._get_node(key)
        if isinstance(value, DictConfig):
            _drop_notes_on_credentials(value)
        elif key == "storage":
            continue  # which tells where the edit goes
        elif isinstance(value, Node) and value._value() == NOT_STORED_TEXT:
            del node[key]


def _schema_for_kind(stored: DictConfig) -> None:
    """Replace `model.kind` in old configs, stored before families had settings of their own, by the
    family's schema."""
    model = stored.get("model")
    if model is None or "kind" not in model:
        return
    kind = str(model["kind"])
    family = OPTIONS_BY_CLASS["model"].get(kind)
    if family is None:
        raise ConfigError(f"model.kind={kind}: this version of automl has no such model.")
    stored["model"] = {key: model[key] for key in config_keys(family) if key in model}
    _choose_option(stored, "model", kind)


def _choose_option(stored: DictConfig, group: str, name: str) -> None:
    for entry in stored["defaults"]:
        if isinstance(entry, DictConfig) and group in entry:
            entry[group] = name + SCHEMA_SUFFIX


def replaced_sections(overrides: Sequence[Override]) -> set[str]:
    """Return the sections that an override replaces: by an option (`data=digits`), or by a whole
    new space."""
    chosen = [override for override in overrides if override.key_or_group in config_groups()]
    return {
        override.key_or_group
        for override in chosen
        if isinstance(override.value(), str) or override.key_or_group == "space"
    }


def _value_of(key: str, overrides: Sequence[Override]) -> object:
    """Return the value that the overrides give a key, before anything is composed; None: no
    value."""
    values = [o.value() for o in overrides if o.key_or_group == key and not o.is_delete()]
    return OmegaConf.create({"value": values[-1]}).value if values else None


def _list_studies(folder: Path, names: Sequence[str]) -> str:
    if names:
        return f"Studies in {folder}: {', '.join(names)}."
    return f"The folder {folder} holds none; study.dir=… names another."


def plain_values(node: DictConfig | ListConfig) -> Any:
    """Return the content of a config as it is written, references unresolved."""
    return OmegaConf.to_container(node, resolve=False)
