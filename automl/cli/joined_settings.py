"""The settings that a sweep takes from the shared study which it joins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from automl.cli.config_keys import SCHEMA_SUFFIX
from automl.cli.space_overrides import override_text
from automl.cli.stored_config import NOT_STORED_TEXT, apply_edits, plain_values
from automl.trial import StudyEdited

_SHARED_GROUPS = ("sampler", "pruner")
_SHARED_KEY = "study.checkpoints"


def compare_with_stored(
    name: str,
    stored_text: str,
    own_text: str,
    given: Sequence[str],
    edits: Iterable[StudyEdited] = (),
) -> tuple[list[str], list[str]]:
    """Return the overrides by which a sweep takes settings of the shared study `name`, and a note
    on each setting that differs. Those that are given on the command line are not taken.

    The settings that define the trials must be the same (`search/study_identity.py` compares them),
    and the devices are each sweep's own. Those between, how the study searches and where its
    checkpoints are kept, should not differ by chance, where machines have other config files or
    another version.
    """
    begun = OmegaConf.create(stored_text)
    assert isinstance(begun, DictConfig), "a sweep stored it"
    apply_edits(begun, edits)
    stored, own = plain_values(begun), plain_values(OmegaConf.create(own_text))
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
