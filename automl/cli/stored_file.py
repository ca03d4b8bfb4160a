"""Reads the file in which a study stores its config: finds damage in it, and refuses a stranger's.

The file has a checksum in its head, and the study's event log has the text of each sweep's: where
the file is damaged, the settings of the last sweep count. Nobody can tell a flipped bit from a
change by hand, so a change by hand does not count either.

The settings may name code (`objective.target`, `data.source` and their like), a server that results
are sent to, or a value of the environment (`${oc.env:…}`). The owner's own commands use all of
them. For another user they are listed, and count once the caller has given them again.
"""

from __future__ import annotations

import io
import os
import pwd
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from automl.cli.config_keys import OPTIONS_BY_CLASS, SCHEMA_SUFFIX, config_keys
from automl.cli.space_overrides import override_text
from automl.config import LOSSES, Config
from automl.config.checks import is_function_target
from automl.config.data import stored_rules
from automl.config.metrics import split_loss
from automl.config.renamed import drop_arguments, rename_stored
from automl.config.study import NO_URI
from automl.errors import ConfigError
from automl.record.study_files import EVENTS_FILE, StudyFiles
from automl.record.texts import say_on_stdout

_HEAD = """\
# The settings of this study as composed; `python -m automl resume NAME` goes on from them.
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
    if isinstance(stored, DictConfig):
        plain: Any = OmegaConf.to_container(stored, resolve=False)
        study = plain.get("study")
        if isinstance(study, dict) and "finish" not in study:
            study.setdefault("refit", "none")  # begun before sweeps refitted by themselves
        data = plain.get("data")
        if isinstance(data, dict) and "rules" not in data:
            data["rules"] = stored_rules(data)
        stored = OmegaConf.create(rename_stored(drop_arguments(plain)))
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


# --- another user's study -------------------------------------------------------------------------

_CODE = (
    "objective.target",
    "objective.command",
    "model.target",
    "data.source",
    "training.loss",
)
_METRICS = ("study.metric", "study.metric_function")
"""Settings that name code if they name a function."""
_ADDRESSES = ("tracking.uri", "study.storage")
_MAX_SHOWN = 300


def refuse_foreign_study(study: Path, stored: object, overrides: Sequence[Override]) -> None:
    """Raise ConfigError if another user's study has `stored` settings that must be given again."""
    owner = _other_owner(study)
    if owner is None:
        return
    _refuse_links(study, owner)
    given_keys = [override.key_or_group for override in overrides]
    to_repeat = {
        key.partition("[")[0]: value
        for key, value in nested_texts(stored)
        if _leaves_or_runs(key, value) and not _is_given(key.partition("[")[0], given_keys)
    }
    if to_repeat:
        raise ConfigError(
            f"study.name={study.name}: {study} belongs to {owner}, and what it stored names code "
            "that would run here, a server, or values of your environment. Look at them, and give "
            f"again what you trust: {' '.join(_shown(key, to_repeat[key]) for key in to_repeat)}"
        )


def _other_owner(study: Path) -> str | None:
    """Return the user that the study belongs to, in words; None if it is the caller's own."""
    files = StudyFiles(study)
    # The log has the settings, too, for a damaged config.
    for path in (study, files.config, *([files.events] if files.events.exists() else ())):
        uid = path.lstat().st_uid
        if uid != os.geteuid():
            try:
                return f"user {pwd.getpwuid(uid).pw_name}"
            except KeyError:
                return f"user {uid}"
    return None


def _refuse_links(study: Path, owner: str) -> None:
    """Raise ConfigError for a link in the study: writing into the study would write where it
    leads."""
    for folder, folders, files in os.walk(study):
        for name in (*folders, *files):
            path = Path(folder, name)
            if path.is_symlink():
                raise ConfigError(
                    f"study.name={study.name}: it belongs to {owner}, and "
                    f"{str(path.relative_to(study))!r} is a link, which could lead to files of "
                    "yours: put the file itself there."
                )


def _leaves_or_runs(key: str, value: str) -> bool:
    if key in _ADDRESSES and value in ("auto", NO_URI):
        return False
    if key in _ADDRESSES:  # the path of a file sends nothing elsewhere
        return "${" in value or not value.startswith("sqlite:///") or "?" in value
    if key.partition("[")[0] in _METRICS:
        return "${" in value or is_function_target(value)
    return "${" in value or (key in _CODE and split_loss(value)[0] not in LOSSES)


def _is_given(key: str, given_keys: Sequence[str]) -> bool:
    """Return whether an override gives the key itself, or the whole entry that it is in
    (`space.lr`)."""
    return any(
        key == given_key or ("." in given_key and key.startswith(f"{given_key}."))
        for given_key in given_keys
    )


def nested_texts(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield each text in nested values, with its key."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from nested_texts(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from nested_texts(inner, f"{key}[{index}]")
    elif isinstance(value, str):
        yield key, value


def _shown(key: str, value: str) -> str:
    """Return the setting as it would be typed; unprintable characters, which could move a
    terminal's cursor, become `?`."""
    text = f"{key}={override_text(value[:_MAX_SHOWN])}"
    return "".join(letter if letter.isprintable() else "?" for letter in text)
