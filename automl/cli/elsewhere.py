"""Paths that a study stored, for a command that is given in another folder.

They are relative to the folder that the study was last swept from, which it stored as
`study.relative_to`: elsewhere they would name other files, and a store of MLflow's be made anew
without a word. A study that was moved since counts from where it is used, since its surroundings
mostly moved with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from automl.errors import ConfigError
from automl.tracking.uri import DEFAULT_URI, VARIABLE

_FILES = ("data.path", "data.test_path")
_STORES = ("tracking.uri", "study.storage")
_SQLITE = "sqlite:///"


def resettled(
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
        if key == "tracking.uri" and uri is None and not os.environ.get(VARIABLE):
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
