"""Refuses stored settings of another user's study that would run code or send data elsewhere.

The settings may name code (`objective.target`, `data.source` and their like), a server that results
are sent to, or a value of the environment (`${oc.env:…}`). The owner's own commands use all of
them. For another user they are listed, and count once the caller has given them again.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator, Sequence
from pathlib import Path

from hydra.core.override_parser.types import Override

from automl.cli.space_overrides import override_text
from automl.config import LOSSES
from automl.errors import ConfigError
from automl.record.study_files import StudyFiles

_CODE = (
    "objective.target",
    "objective.command",
    "model.target",
    "data.source",
    "training.loss",
)
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
    if key in _ADDRESSES:  # the path of a file sends nothing elsewhere
        return "${" in value or not value.startswith("sqlite:///") or "?" in value
    return "${" in value or (key in _CODE and value not in LOSSES)


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
