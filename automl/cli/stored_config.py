"""The config that a study stores, and what commands take from it.

The stored file is itself a Hydra config: a defaults list that names the schemas, then every value,
unresolved. So a later change of `conf/` does not change a study, and overrides work as ever. A
value that carries a credential is not stored: a note stands in its place, and the value has to be
given again.

Paths that a study stored, for a command that is given in another folder.

They are relative to the folder that the study was last swept from, which it stored as
`study.relative_to`: elsewhere they would name other files, and a store of MLflow's be made anew
without a word. A study that was moved since counts from where it is used, since its surroundings
mostly moved with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from automl.cli.arguments import CommandLine
from automl.cli.command_registry import COMMANDS, Command, StoredPart, StudyChoice
from automl.cli.foreign_study import refuse_strangers
from automl.cli.schemas import OPTIONS_BY_CLASS, SUFFIX, groups, keys_of
from automl.cli.space_overrides import canonical_space, override_text
from automl.config import Config, StudyConfig
from automl.errors import ConfigError
from automl.record.secrets import carries_credential
from automl.record.studies import study_names
from automl.record.study_files import StudyFiles
from automl.tracking.tracking_uri import DEFAULT_URI, TRACKING_URI_VARIABLE

_FILES = ("data.path", "data.test_path")
_STORES = ("tracking.uri", "study.storage")
_SQLITE = "sqlite:///"


def resettle_paths(
    study: Path, stored: Mapping[str, Any], given: Sequence[str], here: Path
) -> dict[str, str]:
    """What relative paths of its `stored` settings, plain values, are as seen from `here`: absolute
    ones, by key; none where they are right as they are. `given` are the keys that the command line
    has.

    Raises ConfigError where the folder that they are relative to is gone.
    """
    settings = stored.get("study") or {}
    begun_in = settings.get("relative_to")
    if begun_in is None or Path(begun_in) == here:
        return {}
    if _was_moved(study, Path(begun_in, str(settings.get("dir", "")))):
        return {}
    found = {key: path for key, path in _absolute(stored, Path(begun_in)) if key not in given}
    if found and not Path(begun_in).is_dir():
        raise ConfigError(
            f"study.name={study.name}: its paths are relative to {begun_in}, where it was begun, "
            "and that folder is gone. Give them again as they are now: "
            f"{' '.join(f'{key}=…' for key in found)}"
        )
    return found


def _was_moved(study: Path, stood_in: Path) -> bool:
    """Since its last sweep, when it stood in this folder of studies; renaming it moves nothing, and
    a refit stands further down. `place.json` tells where it is, and not what its paths count
    from."""
    return not study.resolve().is_relative_to(stood_in.resolve())


def _absolute(stored: Mapping[str, Any], base: Path) -> Iterator[tuple[str, str]]:
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
    """None: there is none, or only Hydra can tell."""
    group, _, name = key.partition(".")
    value = (stored.get(group) or {}).get(name)
    return value if isinstance(value, str) and "${" not in value else None


STORED_NAME = "stored_config"
NOT_STORED = "(not stored: carries a credential)"  # Hydra's ??? would give way to the default
HEADER = """\
# The settings of this study as composed; `python -m automl resume study.name=…` goes on from them.
"""


SWEEP = "sweep"
"""What is composed where no other config is named: conf/sweep.yaml."""


@dataclass(frozen=True)
class ConfigBase:
    """The config that a command line changes."""

    config_name: str
    overrides: tuple[str, ...] = ()
    """Added to the user's."""
    study: Path | None = None
    """The study directory whose stored config it is; None: `conf/`."""


# --- writing --------------------------------------------------------------------------------------


def stored_text(config: DictConfig) -> str:
    """The composed config as YAML that composes to the same; references stay references."""
    plain: Any = OmegaConf.to_container(config, resolve=False, enum_to_str=True)
    if isinstance(plain["space"], Mapping):
        plain["space"] = canonical_space(plain["space"])
    plain["study"]["copy"] = None  # an answer about one folder, which keeps it
    plain["study"]["relative_to"] = str(Path.cwd())
    plain["data"]["split_to"] = None  # written once
    whole = with_defaults(config, _without_credentials(plain))
    return HEADER + OmegaConf.to_yaml(OmegaConf.create(whole))


def with_defaults(config: DictConfig, plain: Mapping[str, Any]) -> dict[str, Any]:
    """`plain`, what `config` holds, as what Hydra composes the same from: a defaults list that
    names the schemas of the chosen options, then every value."""
    defaults = ["config_schema", *({g: _schema_of(g, config)} for g in groups()), "_self_"]
    return {"defaults": defaults, **plain}


def _schema_of(group: str, config: DictConfig) -> str | None:
    """The schema of the chosen option; None where the root schema says all."""
    classes = OPTIONS_BY_CLASS.get(group)
    if classes is None:
        return None
    chosen = OmegaConf.get_type(config, group)
    for name, cls in classes.items():
        if cls is chosen:
            return name + SUFFIX
    raise ConfigError(
        f"{group}: the chosen option names no schema. Start its file with one of "
        f"{', '.join(f'defaults: [{name}{SUFFIX}]' for name in classes)}."
    )


def _without_credentials(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_credentials(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_without_credentials(v) for v in value]
    return NOT_STORED if isinstance(value, str) and carries_credential(value) else value


# --- reading --------------------------------------------------------------------------------------


def choose_base(arguments: CommandLine, overrides: Sequence[Override]) -> ConfigBase:
    """`conf/` or a study's stored config, by the command. Raises ConfigError for no such study."""
    command = COMMANDS[arguments.command]
    study = _study_meant(command, overrides)
    if study is None:
        return ConfigBase(arguments.config_name or SWEEP)
    if arguments.config_name is not None:
        raise ConfigError(
            f"--config-name {arguments.config_name}: {command.name} takes the settings that the "
            "study stored; leave it out."
        )
    assert study.name is not None
    path = Path(study.dir) / study.name
    _register(path, overrides, command.stored)
    # The folder may have been moved or copied since: where it stands now is what counts.
    here = (f"study.name={override_text(study.name)}", f"study.dir={override_text(study.dir)}")
    return ConfigBase(STORED_NAME, here, path)


def study_folder(overrides: Sequence[Override]) -> Path:
    """The folder of studies that the overrides name, before anything is composed."""
    return Path(str(_value_of("study.dir", overrides) or StudyConfig.dir))


def _study_meant(command: Command, overrides: Sequence[Override]) -> StudyConfig | None:
    """Whose stored config the command takes; None: nobody's. Raises ConfigError."""
    if command.stored is StoredPart.NOTHING:
        return None
    folder = study_folder(overrides)
    name = _value_of("study.name", overrides)
    names = study_names(folder)
    if name is None and command.which is StudyChoice.NAMED:
        raise ConfigError(f"{command.name} needs study.name=NAME. {_listed(folder, names)}")
    if name is None and command.which is StudyChoice.NAMED_IF_ANY:
        return None
    if name is None and not names:
        if command.which is StudyChoice.NEWEST_IF_ANY:
            return None
        raise ConfigError(f"{command.name}: there is no study yet. {_listed(folder, names)}")
    study = StudyConfig(name=names[0] if name is None else str(name), dir=str(folder))
    storage = _value_of("study.storage", overrides)
    if study.name not in names and storage is not None:
        study.storage = str(storage)
        if study.shared:  # the folder is empty, and the database has all
            from automl.record.sharing.study_fetch import fetch_study

            fetch_study(study)
            names = study_names(folder)
    if study.name not in names:
        raise ConfigError(f"study.name={study.name}: no such study. {_listed(folder, names)}")
    return study


def refuse_missing(config: DictConfig, base: ConfigBase) -> None:
    """Raises ConfigError for a key that must be given, with the reason and the remedy."""
    for key in sorted(OmegaConf.missing_keys(config)):
        if key in groups():
            raise ConfigError(f"{key}: nothing is chosen. Choose an option: {key}=NAME.")
        raise ConfigError(f"{key}: must be given: {key}=…")
    for key in _not_stored(OmegaConf.to_container(config, resolve=False)):
        study = "a study" if base.study is None else f"study {base.study.name}"
        raise ConfigError(
            f"{key} is not stored with {study}, because it carries a credential. Give it again, "
            f"best as a reference, which is stored: {key}='${{oc.env:NAME}}' takes it from the "
            "environment variable NAME."
        )


def _not_stored(value: object, key: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _not_stored(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _not_stored(inner, f"{key}[{index}]")
    elif value == NOT_STORED:
        yield key


def _register(study: Path, overrides: Sequence[Override], taken_of_it: StoredPart) -> None:
    """Make the stored config known to Hydra under STORED_NAME."""
    stored = OmegaConf.load(file := StudyFiles(study).config)
    if not isinstance(stored, DictConfig) or not _is_ours(stored):
        raise ConfigError(f"{file} is no config of automl; restore it from a copy.")
    replaced, whole = replaced_by(overrides), taken_of_it is StoredPart.WHOLE
    _schema_for_kind(stored)
    if "study" in stored and "refit" not in stored["study"]:
        stored["study"]["refit"] = "none"  # it was begun before a sweep did that by itself
    if not whole:
        _choose_model(stored, "mlp")  # nothing is trained; others cannot be without their settings
    taken = [str(key) for key in stored if whole or key in ("defaults", "tracking")]
    given = [override.key_or_group for override in overrides]
    plain: Any = OmegaConf.to_container(stored, resolve=False)
    for key, path in resettle_paths(study, plain, given, Path.cwd()).items():
        OmegaConf.update(stored, key, path)
    node = OmegaConf.masked_copy(stored, [key for key in taken if key not in replaced])
    storage = (plain.get("study") or {}).get("storage")
    if taken_of_it is StoredPart.STORES and storage not in (None, NOT_STORED):
        node["study"] = OmegaConf.masked_copy(stored["study"], ["storage"])
    refuse_strangers(study, OmegaConf.to_container(node, resolve=False), overrides)
    ConfigStore.instance().store(name=STORED_NAME, node=node)


def _schema_for_kind(stored: DictConfig) -> None:
    """Configs stored before families had settings of their own name theirs by `model.kind`."""
    model = stored.get("model")
    if model is None or "kind" not in model:
        return
    kind = str(model["kind"])
    family = OPTIONS_BY_CLASS["model"].get(kind)
    if family is None:
        raise ConfigError(f"model.kind={kind}: this version of automl has no such model.")
    stored["model"] = {key: model[key] for key in keys_of(family) if key in model}
    _choose_model(stored, kind)


def _choose_model(stored: DictConfig, name: str) -> None:
    for entry in stored["defaults"]:
        if isinstance(entry, DictConfig) and "model" in entry:
            entry["model"] = name + SUFFIX


def _is_ours(stored: DictConfig) -> bool:
    """Whether `stored_text` can have written it: it names our schemas, and no other file."""
    keys = {*keys_of(Config), "defaults"}
    plain: Any = OmegaConf.to_container(stored, resolve=False)
    defaults = plain.get("defaults")
    return set(plain) <= keys and isinstance(defaults, list) and all(map(_names_schemas, defaults))


def _names_schemas(entry: object) -> bool:
    """Whether an entry of a defaults list is one of ours: `{sampler: tpe_schema}`."""
    if not isinstance(entry, dict):
        return entry in ("config_schema", "_self_")
    return all(
        name is None or name in {f"{option}{SUFFIX}" for option in OPTIONS_BY_CLASS.get(group, ())}
        for group, name in entry.items()
    )


def replaced_by(overrides: Sequence[Override]) -> set[str]:
    """The sections in whose place something else is chosen: an option (`data=digits`), or a whole
    new space."""
    chosen = [override for override in overrides if override.key_or_group in groups()]
    return {
        override.key_or_group
        for override in chosen
        if isinstance(override.value(), str) or override.key_or_group == "space"
    }


def _value_of(key: str, overrides: Sequence[Override]) -> object:
    """What the overrides say of a key before anything is composed; None: nothing."""
    said = [o.value() for o in overrides if o.key_or_group == key and not o.is_delete()]
    return OmegaConf.create({"value": said[-1]}).value if said else None


def _listed(folder: Path, names: Sequence[str]) -> str:
    if names:
        return f"Studies in {folder}: {', '.join(names)}."
    return f"The folder {folder} holds none; study.dir=… names another."
