"""Reads the file in which a study stores its config, and finds damage in it.

The file has a checksum in its head, and the study's event log has the text of each sweep's: where
the file is damaged, the settings of the last sweep count. Nobody can tell a flipped bit from a
change by hand, so a change by hand does not count either. A stranger may have written both.
"""

from __future__ import annotations

import io
import re
import zlib
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from automl.cli.config_keys import OPTIONS_BY_CLASS, SCHEMA_SUFFIX, config_keys
from automl.config import Config
from automl.errors import ConfigError
from automl.record.study_files import EVENTS_FILE, StudyFiles
from automl.record.texts import say_on_stdout

_HEAD = """\
# The settings of this study as composed; `python -m automl resume study.name=…` goes on from them.
# Change them on that line (KEY=VALUE), not here. Their checksum is %08x.
"""
_SEALED_HEAD = re.compile(r"# .*\n# .* checksum is ([0-9a-f]{8})\.\n")
"""The head of a stored config; those of earlier versions have no checksum."""
_ALIAS = re.compile(r"(^|[\s\[{,])\*\w", re.MULTILINE)


def seal_config(text: str) -> str:
    """Return the text of a config with the head that has its checksum."""
    return _HEAD % zlib.crc32(text.encode()) + text


def read_stored_file(files: StudyFiles) -> DictConfig:
    """Return the stored config, or that of the last sweep where the file is damaged, and say so.

    Raises ConfigError and yaml.YAMLError where the log has none, as before the first sweep.
    """
    try:
        return _parse(_read_text(files.config), files.config)
    except (ConfigError, yaml.YAMLError):
        from automl.record.event_log import read_sweep_config  # most commands read no log here

        if not (logged := read_sweep_config(files.events)):
            raise
        stored = _parse(logged, files.events)
    say_on_stdout(
        f"{files.config} is damaged, or was changed by hand: the settings of its last sweep count, "
        f"from {EVENTS_FILE}. Change settings on the command line (KEY=VALUE)."
    )
    return stored


def _read_text(file: Path) -> str:
    """Return the text of the file; empty for one that is no text. Raises OSError."""
    if file.exists() and not file.is_file():  # to open a pipe would wait for its writer
        return ""
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError:
        return ""


def _parse(text: str, file: Path) -> DictConfig:
    head = _SEALED_HEAD.match(text)
    if head is not None and int(head[1], 16) != zlib.crc32(text[head.end() :].encode()):
        raise ConfigError(
            f"{file} is damaged, or was changed by hand: its settings do not have the checksum in "
            "its second line. Restore it from a copy, or remove that line to go on with it."
        )
    stored = _load_yaml(text, str(file))
    if not isinstance(stored, DictConfig) or not _is_ours(stored):
        raise ConfigError(f"{file} is no config of automl; restore it from a copy.")
    return stored


def _load_yaml(text: str, name: str) -> Any:
    """Return what the YAML holds; None for one with aliases, which could be larger than the memory.

    Raises yaml.YAMLError, which says `name` for the text.
    """
    stream = io.StringIO(text)
    stream.name = name  # YAML's errors say it
    try:
        if _ALIAS.search(text) and any(isinstance(e, yaml.AliasEvent) for e in yaml.parse(text)):
            return None
        return OmegaConf.load(stream)
    except RecursionError:
        return None


def _is_ours(stored: DictConfig) -> bool:
    """Return whether a sweep can have written the config, which names only schemas."""
    keys = {*config_keys(Config), "defaults"}
    plain: Any = OmegaConf.to_container(stored, resolve=False)
    defaults = plain.get("defaults")
    return set(plain) <= keys and isinstance(defaults, list) and all(map(_names_schemas, defaults))


def _names_schemas(entry: object) -> bool:
    """Return whether an entry of a defaults list is one of ours: `{sampler: tpe_schema}`."""
    if not isinstance(entry, dict):
        return entry in ("config_schema", "_self_")
    return all(
        name is None
        or name in {f"{option}{SCHEMA_SUFFIX}" for option in OPTIONS_BY_CLASS.get(group, ())}
        for group, name in entry.items()
    )
