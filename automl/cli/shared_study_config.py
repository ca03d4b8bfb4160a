"""The settings that a sweep takes from a shared study that it joins.

The settings that define the trials must be the same, and are compared when the study is opened
(`search/study_identity.py`). The devices of this machine are each sweep's own. Between these are
settings that may change while a study lasts, but should not differ by chance, where machines have
other config files or another version: how the study searches, and where its checkpoints are kept.
Only these are handled here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from omegaconf import OmegaConf

from automl.cli.arguments import CommandLine
from automl.cli.command_registry import DEFAULT_COMMAND
from automl.cli.compose import ComposedConfig, compose_command
from automl.cli.schemas import SCHEMA_SUFFIX
from automl.cli.space_overrides import override_text
from automl.cli.stored_config import NOT_STORED_TEXT
from automl.record.texts import say_on_stdout

GROUPS = ("sampler", "pruner")
CHECKPOINTS = "study.checkpoints"


@dataclass(frozen=True)
class JoinedSettings:
    """The study's settings that this sweep takes, and notes on each difference. Settings given on
    the command line are not taken."""

    overrides: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences for the user, one for each setting that differs."""


def compose_or_join(arguments: CommandLine, application: object = None) -> ComposedConfig:
    """Compose a command line; a sweep that joins a shared study takes settings of the study, and
    prints which.

    Raises ConfigError, also for a database that refuses, and StorageError.
    """
    composed = compose_command(arguments, application)
    study = composed.config.study
    if composed.command != DEFAULT_COMMAND or application is not None:
        return composed
    if not study.shared or study.name is None:
        return composed
    from automl.record.sharing.study_fetch import (
        fetch_stored_config,  # loads the driver of PostgreSQL
    )

    stored = fetch_stored_config(study)
    if stored is None:  # this sweep starts the study
        return composed
    here = _plain(composed.stored_config)
    joined = compare_with_stored(study.name, _plain(stored), here, arguments.overrides)
    for note in joined.notes:
        say_on_stdout(note)
    if not joined.overrides:
        return composed
    return compose_command(replace(arguments, overrides=(*arguments.overrides, *joined.overrides)))


def compare_with_stored(
    name: str, stored: Mapping[str, Any], here: Mapping[str, Any], given: Sequence[str]
) -> JoinedSettings:
    """Return the settings that a sweep here takes from study `name`, by comparing the two stored
    configs. Pure."""
    overrides: list[str] = []
    notes: list[str] = []
    for key, study_overrides in _differences(stored, here):
        own = [line for line in given if _gives_key(key, line)]
        if own:
            own_text, study_text = " ".join(own), " ".join(study_overrides)
            notes.append(f"study {name} was begun with {study_text}; this sweep has {own_text}")
        else:
            overrides.extend(study_overrides)
            notes.append(
                f"{' '.join(study_overrides)}: as study {name} was begun, which this sweep joins"
            )
    return JoinedSettings(tuple(overrides), tuple(notes))


def _differences(
    stored: Mapping[str, Any], here: Mapping[str, Any]
) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield each group or key that differs here, and the overrides that give it the study's
    value."""
    for group in GROUPS:
        before, now = _group_overrides(group, stored), _group_overrides(group, here)
        changed = [line for line in before if line not in now]
        if changed:
            yield group, [before[0], *(line for line in changed if line != before[0])]
    section, _, key = CHECKPOINTS.partition(".")
    kept, own = stored[section].get(key), here[section].get(key)
    if kept not in (None, own, NOT_STORED_TEXT):
        yield CHECKPOINTS, [f"{CHECKPOINTS}={override_text(kept)}"]


def _group_overrides(group: str, config: Mapping[str, Any]) -> Sequence[str]:
    """Return the option of a group and each of its values, as overrides."""
    schema = next(entry[group] for entry in config["defaults"] if group in entry)
    values = config[group] or {}
    option = f"{group}={str(schema).removesuffix(SCHEMA_SUFFIX)}"
    return [option, *(f"{group}.{key}={override_text(values[key])}" for key in values)]


def _gives_key(key: str, line: str) -> bool:
    given_key = line.lstrip("+~").partition("=")[0].partition("@")[0]
    return given_key == key or given_key.startswith(f"{key}.")


def _plain(text: str) -> Any:
    return OmegaConf.to_container(OmegaConf.create(text), resolve=False)
