"""The config that a study stores: how it is written, and how a later command reads it.

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
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, Node, OmegaConf

from automl.cli.config_keys import OPTIONS_BY_CLASS, SCHEMA_SUFFIX, config_groups, config_keys
from automl.cli.schemas import is_length_open
from automl.cli.space_overrides import canonical_space
from automl.cli.stored_file import seal_config
from automl.config import Config
from automl.config.data import is_test_file
from automl.errors import ConfigError
from automl.record.secrets import carries_credential
from automl.trial import StudyEdited

NOT_STORED_TEXT = "(not stored: carries a credential)"  # Hydra's ??? would give way to the default
_FILES = ("data.path", "data.test")
_STORES = ("tracking.uri", "study.storage")
_SQLITE = "sqlite:///"


# --- writing --------------------------------------------------------------------------------------


def stored_config_text(composed: DictConfig, config: Config) -> str:
    """Return what was composed as YAML that composes to the same; references stay references. The
    length of a training and the split of a table are stored as `config` has them decided: a study
    keeps them, whatever later defaults are."""
    plain: Any = OmegaConf.to_container(composed, resolve=False, enum_to_str=True)
    if is_length_open(composed):
        plain["training"]["epochs"] = config.training.epochs
    for key in ("folds", "test", "rules"):
        if plain["data"][key] in (None, "auto"):
            plain["data"][key] = getattr(config.data, key)
    if isinstance(plain["space"], Mapping):
        plain["space"] = canonical_space(plain["space"])
    plain["study"]["relative_to"] = str(Path.cwd())
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


def make_composable(
    stored: DictConfig, study: Path, given_keys: Sequence[str], *, has_model: bool
) -> None:
    """Change the stored config of `study` to one that composes in this version and folder.

    `given_keys` are those of the command line; `has_model` says that the command uses the model.
    """
    _schema_for_kind(stored)
    if not has_model:
        _choose_option(stored, "model", "mlp")  # any other needs its settings
    plain = plain_values(stored)
    for key, path in absolute_stored_paths(study, plain, given_keys, Path.cwd()).items():
        OmegaConf.update(stored, key, path)


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
        if path is not None and is_test_file(path) and not Path(path).expanduser().is_absolute():
            yield key, str(base / path)
    for key in _STORES:
        uri = _value(stored, key)
        if (
            key == "tracking.uri"
            and uri in (None, "auto")
            and not os.environ.get(TRACKING_URI_VARIABLE)
        ):
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


def drop_credential_notes(node: DictConfig) -> None:
    """Remove the settings whose value was not stored, as for a command that needs none of them."""
    for key in list(node):
        value = node._get_node(key)
        if isinstance(value, DictConfig):
            drop_credential_notes(value)
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


def plain_values(node: DictConfig | ListConfig) -> Any:
    """Return the content of a config as it is written, references unresolved."""
    return OmegaConf.to_container(node, resolve=False)
