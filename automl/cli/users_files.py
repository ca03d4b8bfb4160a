"""Reads old keys in config files of users (`--config-dir`) as the keys of today.

Hydra loads these files itself while it composes, so its source of files is replaced within a block.
The process of a Hydra application keeps Hydra's own source.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any

from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf

from automl.config.renamed import rename_stored


@contextmanager
def rename_keys_of_files() -> Iterator[None]:
    """Have Hydra read old keys in files as those of today within the block, with advice on stderr.

    A group's file has its keys below the group, unless its head gives the package `_global_`.
    """
    Plugins.instance()  # registers Hydra's own source
    types = SourcesRegistry.instance().types
    own = types["file"]
    types["file"] = _RenamingSource
    try:
        yield
    finally:
        types["file"] = own


class _RenamingSource(FileConfigSource):
    """Loads a file of a config with today's keys."""

    def load_config(self, config_path: str) -> ConfigResult:
        result = super().load_config(config_path)
        if isinstance(result.config, DictConfig):
            group = PurePosixPath(config_path.lstrip("/")).parent
            is_root = result.header.get("package") == "_global_" or str(group) == "."
            result.config = _renamed(result.config, "" if is_root else str(group), config_path)
        return result


def _renamed(config: DictConfig, group: str, name: str) -> DictConfig:
    plain: Any = OmegaConf.to_container(config, resolve=False)
    below = {group: plain} if group else plain
    renamed = rename_stored(below)
    if renamed == below or (group and set(renamed) != {group}):
        return config
    before, after = (set(_keys(values)) for values in (below, renamed))
    old, new = ", ".join(sorted(before - after)), ", ".join(sorted(after - before))
    _advise(f"{name}.yaml has old keys ({old}): write {new or 'nothing in their place'}.")
    return OmegaConf.create(renamed[group] if group else renamed)


def _keys(values: dict[str, Any]) -> Iterator[str]:
    for section, inner in values.items():
        yield from (f"{section}.{key}" for key in inner) if isinstance(inner, dict) else (section,)


@functools.cache
def _advise(line: str) -> None:
    """Write a line to stderr, once in a process however often files are loaded."""
    sys.stderr.write(f"automl: {line}\n")
