"""The config that a command line starts from: `conf/`, or the one that a study stored.

A sweep that joins a shared study also takes settings of that study, which only the composed config
names: `settings_to_join` compares them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from automl.cli.arguments import CommandLine
from automl.cli.command_registry import COMMANDS, Command, StoredPart, StudyChoice
from automl.cli.config_keys import SCHEMA_SUFFIX, config_groups
from automl.cli.hydra_errors import explain_errors
from automl.cli.space_overrides import override_text, parse_overrides
from automl.cli.stored_config import (
    NOT_STORED_TEXT,
    apply_edits,
    drop_credential_notes,
    make_composable,
    plain_values,
)
from automl.cli.stored_file import read_stored_file, refuse_foreign_study
from automl.cli.typed_arguments import type_arguments
from automl.config import StudyConfig
from automl.config.command_arguments import CloneArguments
from automl.config.renamed import rename_stored
from automl.errors import ConfigError
from automl.record.study_files import StudyFiles
from automl.record.texts import say_on_stdout

STORED_NAME = "stored_config"

SWEEP_CONFIG = "sweep"
"""The config that is composed where no other is named: conf/sweep.yaml."""


@dataclass(frozen=True)
class ConfigBase:
    """The config that a command line starts from, before the user's overrides."""

    config_name: str
    overrides: tuple[str, ...] = ()
    """Overrides that are added after the user's."""
    study: Path | None = None
    """The study directory that the stored config is from; None: it is from elsewhere."""
    has_options: bool = True
    """Whether the config chooses all its options; else some follow from the line's."""


def find_base(line: CommandLine, overrides: Sequence[Override]) -> ConfigBase:
    """Return the base of a command line, as its command needs; `overrides` are the parsed ones of
    the line. Raises ConfigError if there is no such study."""
    command = COMMANDS[line.command]
    study = _find_study(command, overrides)
    if study is None:
        config_name = line.config_name or SWEEP_CONFIG
        lines = command.if_new if config_name == SWEEP_CONFIG else ()
        groups = {override.key_or_group.partition(".")[0] for override in overrides}
        added = [text for text in lines if text.partition("=")[0] not in groups]
        return ConfigBase(config_name, tuple(added), has_options=False)
    if line.config_name is not None:
        raise ConfigError(
            f"--config-name {line.config_name}: {command.name} takes the settings that the "
            "study stored; leave it out."
        )
    assert study.name is not None
    path = Path(study.dir) / study.name
    node = _stored_part(path, overrides, command)
    refuse_foreign_study(path, plain_values(node), overrides)
    ConfigStore.instance().store(name=STORED_NAME, node=node)
    # The folder may have been moved or copied since: its current place counts.
    place = {"study.name": study.name, "study.dir": study.dir}
    arguments = type_arguments(line.command, line.arguments)
    if isinstance(arguments, CloneArguments) and arguments.name is not None:
        place |= _settings_of_clone(study.name, arguments, plain_values(node), overrides)
    lines = tuple(f"{key}={override_text(value)}" for key, value in place.items())
    return ConfigBase(STORED_NAME, lines, path)


def _settings_of_clone(
    name: str, arguments: CloneArguments, stored: Mapping[str, Any], overrides: Sequence[Override]
) -> dict[str, Any]:
    """Return the settings, by key, that a clone of the study `name` has for itself."""
    own: dict[str, Any] = {"study.name": arguments.name, "study.n_edits": 0}
    if not arguments.warm:
        return own
    warm_from = _value_of("study.warm_from", overrides) or stored["study"].get("warm_from") or []
    assert isinstance(warm_from, Sequence)
    return own | {"study.warm_from": list(dict.fromkeys([name, *warm_from]))}


def find_studies_folder(lines: Sequence[str]) -> Path:
    """Return the folder of studies that the overrides name. Raises ConfigError."""
    with explain_errors(lines):
        return _studies_folder(parse_overrides(lines))


def _studies_folder(overrides: Sequence[Override]) -> Path:
    """Return the folder of studies that the overrides name, before anything is composed."""
    return Path(str(_value_of("study.dir", overrides) or StudyConfig.dir))


def _find_study(command: Command, overrides: Sequence[Override]) -> StudyConfig | None:
    """Return the study whose stored config the command takes; None if it takes none. Raises
    ConfigError."""
    if command.stored is StoredPart.NOTHING:
        return None
    from automl.record.studies import study_names  # loads the event log

    folder = _studies_folder(overrides)
    name, storage = (_value_of(key, overrides) for key in ("study.name", "study.storage"))
    names = study_names(folder)
    if name is None and command.which in (StudyChoice.NAMED, StudyChoice.NAMED_OR_NEW):
        raise ConfigError(
            f"{command.name} needs a study: {command.name} NAME. {_list_studies(folder, names)}"
        )
    if name is None and command.which is StudyChoice.NAMED_IF_ANY:
        return None
    if name is None and not names:
        if command.which is StudyChoice.NEWEST_IF_ANY:
            return None
        raise ConfigError(f"{command.name}: there is no study yet. {_list_studies(folder, names)}")
    study = StudyConfig(name=names[0] if name is None else str(name), dir=str(folder))
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


def _stored_part(study: Path, overrides: Sequence[Override], command: Command) -> DictConfig:
    """Return the part of the stored config that the command composes from, with the edits since."""
    stored = read_stored_file(StudyFiles(study))
    is_whole = command.stored in (StoredPart.WHOLE, StoredPart.EDITABLE)
    replaced = replaced_sections(overrides)
    if is_whole:
        address = _value_of("study.storage", overrides) or OmegaConf.select(
            stored, "study.storage", throw_on_resolution_failure=False
        )
        stored_study = StudyConfig(name=study.name, dir=str(study.parent))
        stored_study.storage = None if address is None else str(address)
        if stored_study.shared and command.asks_sweeps:
            refuse_foreign_study(study, plain_values(stored), overrides)
            _bring_up_to_date(stored, stored_study)
        _apply_new_edits(stored, stored_study)
    storage = (plain_values(stored).get("study") or {}).get("storage")
    given_keys = [override.key_or_group for override in overrides]
    if command.stored is StoredPart.EDITABLE:
        drop_credential_notes(stored)
    make_composable(stored, study, given_keys, has_model=is_whole)
    kept_keys = [str(key) for key in stored if is_whole or key in ("defaults", "tracking")]
    node = OmegaConf.masked_copy(stored, [key for key in kept_keys if key not in replaced])
    unknown = (None,) if command.asks_sweeps else (None, NOT_STORED_TEXT)
    if command.stored is StoredPart.STORES and storage not in unknown:
        node["study"] = OmegaConf.masked_copy(stored["study"], ["storage"])
    return node


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


# --- joining a shared study -----------------------------------------------------------------------

_SHARED_GROUPS = ("sampler", "pruner")
_SHARED_KEY = "study.checkpoint_copies"


def settings_to_join(study: StudyConfig, own_text: str, given: Sequence[str]) -> list[str]:
    """Return overrides with the settings that a sweep takes from the shared study that it joins,
    and print them. `own_text` is the stored config of the sweep, `given` the overrides of its line.

    Raises ConfigError, also for a database that refuses, and StorageError.
    """
    if not study.shared or study.name is None:
        return []
    from automl.record.sharing.study_fetch import (  # loads psycopg
        fetch_edits,
        fetch_stored_config,
    )

    stored = fetch_stored_config(study)
    if stored is None:  # this sweep starts the study
        return []
    begun = OmegaConf.create(rename_stored(plain_values(OmegaConf.create(stored))))
    apply_edits(begun, fetch_edits(study))
    own = plain_values(OmegaConf.create(own_text))
    overrides, notes = compare_with_stored(study.name, plain_values(begun), own, given)
    for note in notes:
        say_on_stdout(note)
    return overrides


def compare_with_stored(
    name: str, stored: Mapping[str, Any], own: Mapping[str, Any], given: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return overrides with the settings that a sweep takes from the shared study `name`, and a
    note on each setting that differs. Settings given on the command line are not taken.

    The settings that define the trials must be the same (`search/study_identity.py` compares them),
    and the devices are each sweep's own. The settings in between (how the study searches, where its
    checkpoints are kept) should not differ by chance because machines have other config files or
    another version.
    """
    overrides: list[str] = []
    notes: list[str] = []
    for key, lines in _differences(stored, own):
        text = " ".join(lines)
        own_lines = [line for line in given if _gives_key(key, line)]
        if own_lines:
            own_text = " ".join(own_lines)
            notes.append(f"study {name} was begun with {text}; this sweep has {own_text}")
        else:
            overrides += lines
            notes.append(f"{text}: as study {name} was begun, which this sweep joins")
    return overrides, notes


def _differences(stored: Any, own: Any) -> Iterator[tuple[str, list[str]]]:
    """Yield each group or key that differs here, and the overrides that give it the study's
    value."""
    for group in _SHARED_GROUPS:
        option, *values = _group_overrides(group, stored)
        own_lines = _group_overrides(group, own)
        changed = [line for line in values if line not in own_lines]
        if changed or option not in own_lines:
            yield group, [option, *changed]
    section, _, key = _SHARED_KEY.partition(".")
    kept, own_value = stored[section].get(key), own[section].get(key)
    if kept not in (None, own_value, NOT_STORED_TEXT):
        yield _SHARED_KEY, [f"{_SHARED_KEY}={override_text(kept)}"]


def _group_overrides(group: str, config: Mapping[str, Any]) -> list[str]:
    """Return the option of a group and each of its values, as overrides."""
    schema = next(entry[group] for entry in config["defaults"] if group in entry)
    values = config[group] or {}
    option = f"{group}={str(schema).removesuffix(SCHEMA_SUFFIX)}"
    return [option, *(f"{group}.{key}={override_text(values[key])}" for key in values)]


def _gives_key(key: str, line: str) -> bool:
    given_key = line.lstrip("+~").partition("=")[0].partition("@")[0]
    return given_key == key or given_key.startswith(f"{key}.")
