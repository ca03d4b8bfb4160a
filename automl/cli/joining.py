"""What a sweep that joins a shared study takes of the config that the study was begun with.

What the trials are made of must be the same, and is compared when the study is opened
(`search/identity.py`). What this machine trains on is each sweep's own. Between these is what may
be another while a study lasts, but is not meant to be by chance, where machines have other config
files or another version: how it searches, and where its checkpoints are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from automl.cli.schemas import SUFFIX
from automl.cli.space import override_text
from automl.cli.stored import NOT_STORED, stored_text
from automl.config import StudyConfig

GROUPS = ("sampler", "pruner")
CHECKPOINTS = "study.checkpoints"


@dataclass(frozen=True)
class Joined:
    """What differs from the study that is there, where that was not said in so many words."""

    overrides: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """For people, of what differs."""


def joined(study: StudyConfig, composed: DictConfig, given: Sequence[str]) -> Joined:
    """What to take, and what the command line says otherwise: `given` are its overrides.

    Raises ConfigError for a database that refuses, StorageError.
    """
    if not study.shared or study.name is None:
        return Joined()
    from automl.record.sharing.fetch import stored_config

    text = stored_config(study)
    if text is None:
        return Joined()
    return compared(study.name, _plain(text), _plain(stored_text(composed)), given)


def compared(
    name: str, stored: Mapping[str, Any], here: Mapping[str, Any], given: Sequence[str]
) -> Joined:
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
    return Joined(tuple(overrides), tuple(notes))


def _differing(
    stored: Mapping[str, Any], here: Mapping[str, Any]
) -> Iterator[tuple[str, Sequence[str]]]:
    """Each group or key that is another here, and what gives it the study's value."""
    for group in GROUPS:
        before, now = _of_group(group, stored), _of_group(group, here)
        changed = [line for line in before if line not in now]
        if changed:
            yield group, [before[0], *(line for line in changed if line != before[0])]
    kept, own = stored["study"].get("checkpoints"), here["study"].get("checkpoints")
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
