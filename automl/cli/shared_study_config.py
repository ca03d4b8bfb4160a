"""What a sweep that joins a shared study takes of the config that the study was begun with.

What the trials are made of must be the same, and is compared when the study is opened
(`search/identity.py`). What this machine trains on is each sweep's own. Between these is what may
be another while a study lasts, but is not meant to be by chance, where machines have other config
files or another version: how it searches, and where its checkpoints are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from omegaconf import OmegaConf

from automl.cli.arguments import CommandLine
from automl.cli.command_registry import DEFAULT
from automl.cli.compose import ComposedConfig, compose
from automl.cli.schemas import SUFFIX
from automl.cli.space_overrides import override_text
from automl.cli.stored_config import NOT_STORED
from automl.record.texts import say_on_stdout

GROUPS = ("sampler", "pruner")
CHECKPOINTS = "study.checkpoints"


@dataclass(frozen=True)
class JoinedSettings:
    """What differs from the study that is there, where that was not said in so many words."""

    overrides: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """For people, of what differs."""


def compose_to_run(arguments: CommandLine, application: object = None) -> ComposedConfig:
    """As `compose`; where a sweep joins a study, with what it takes of that, which is said.

    Raises ConfigError, for a database that refuses, too; StorageError.
    """
    composed = compose(arguments, application)
    study = composed.config.study
    if composed.command != DEFAULT or application is not None:
        return composed
    if not study.shared or study.name is None:
        return composed
    from automl.record.sharing.study_fetch import stored_config  # with what speaks to PostgreSQL

    stored = stored_config(study)
    if stored is None:  # this sweep begins it
        return composed
    here = _plain(composed.stored_config)
    taken = compare_with_stored(study.name, _plain(stored), here, arguments.overrides)
    for note in taken.notes:
        say_on_stdout(note)
    if not taken.overrides:
        return composed
    return compose(replace(arguments, overrides=(*arguments.overrides, *taken.overrides)))


def compare_with_stored(
    name: str, stored: Mapping[str, Any], here: Mapping[str, Any], given: Sequence[str]
) -> JoinedSettings:
    """Of study `name`, of two configs as they are stored. Pure."""
    overrides: list[str] = []
    notes: list[str] = []
    for key, take in _differing(stored, here):
        own = [line for line in given if _is_of(key, line)]
        if own:
            said, begun = " ".join(own), " ".join(take)
            notes.append(f"study {name} was begun with {begun}; this sweep has {said}")
        else:
            overrides.extend(take)
            notes.append(f"{' '.join(take)}: as study {name} was begun, which this sweep joins")
    return JoinedSettings(tuple(overrides), tuple(notes))


def _differing(
    stored: Mapping[str, Any], here: Mapping[str, Any]
) -> Iterator[tuple[str, Sequence[str]]]:
    """Each group or key that is another here, and what gives it the study's value."""
    for group in GROUPS:
        before, now = _of_group(group, stored), _of_group(group, here)
        changed = [line for line in before if line not in now]
        if changed:
            yield group, [before[0], *(line for line in changed if line != before[0])]
    section, _, key = CHECKPOINTS.partition(".")
    kept, own = stored[section].get(key), here[section].get(key)
    if kept not in (None, own, NOT_STORED):
        yield CHECKPOINTS, [f"{CHECKPOINTS}={override_text(kept)}"]


def _of_group(group: str, config: Mapping[str, Any]) -> Sequence[str]:
    """Its option and each of its values, as overrides."""
    schema = next(entry[group] for entry in config["defaults"] if group in entry)
    values = config[group] or {}
    option = f"{group}={str(schema).removesuffix(SUFFIX)}"
    return [option, *(f"{group}.{key}={override_text(values[key])}" for key in values)]


def _is_of(key: str, line: str) -> bool:
    said = line.lstrip("+~").partition("=")[0].partition("@")[0]
    return said == key or said.startswith(f"{key}.")


def _plain(text: str) -> Any:
    return OmegaConf.to_container(OmegaConf.create(text), resolve=False)
