"""Settings of Hydra's own: `hydra.KEY=…`, `hydra/GROUP=…`, `hydra:` in a config file.

Hydra composes here and does nothing else: it makes no folder, configures no logging, launches no
jobs. `hydra.searchpath` is about composing and is taken; any other is refused, with what does the
same here, instead of being passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from automl.cli.arguments import MULTIRUN
from automl.errors import ConfigError
from automl.record.files import LOGS, SWEEP_LOG

_FOLDERS = "give study.dir=FOLDER, where studies are kept"
_LOGGING = (
    f"a sweep's words are in FOLDER/NAME/{SWEEP_LOG} of its study, what its trials print in "
    f"FOLDER/NAME/{LOGS}; AUTOML_DEBUG=1 shows tracebacks"
)
_REMEDIES = {
    "run": _FOLDERS,
    "sweep": _FOLDERS,
    "output": _FOLDERS,
    "output_subdir": _FOLDERS,
    "job_logging": _LOGGING,
    "hydra_logging": _LOGGING,
    "verbose": "AUTOML_DEBUG=1 shows tracebacks",
    "job.chdir": "change to it before: cd FOLDER",
    "job.env_set": "set it in the shell before: export NAME=VALUE",
    "env": "set variables in the shell before: export NAME=VALUE",
    "launcher": "execution=NAME says where trials run, admission.max_concurrent_trials how many",
    "sweeper": "sampler=NAME proposes params; its settings are in conf/sampler",
}
_OURS = ("runtime", "overrides", "searchpath", "job.config_name", "job.override_dirname")
"""What tells of this very composition, and what is taken."""


def refuse_overrides(overrides: Sequence[str]) -> None:
    """Raises ConfigError for the first that is not taken, whatever its value."""
    for line in overrides:
        key, _, value = line.lstrip("+~").partition("=")
        part = key.replace("/", ".", 1).removeprefix("hydra.")
        if key.startswith(("hydra.", "hydra/")) and not _is_within(part, _OURS):
            raise ConfigError(_refusal(key, value, part))


def refuse_settings(found: DictConfig, default: DictConfig) -> None:
    """Raises ConfigError for the first that config files give another value than `default`'s."""
    chosen = _plain(default)["runtime"]["choices"]
    for group, option in _plain(found)["runtime"]["choices"].items():
        if group.startswith("hydra/") and chosen.get(group) != option:
            raise ConfigError(_refusal(group, option, group.removeprefix("hydra/")))
    known = dict(_flat("", _plain(default)))
    for key, value in _flat("", _plain(found)):
        if not _is_within(key, _OURS) and known.get(key) != value:
            raise ConfigError(_refusal("hydra." + key, value, key))


def _refusal(key: str, value: object, part: str) -> str:
    if part == "mode":
        return MULTIRUN
    remedy = next((r for name, r in _REMEDIES.items() if _is_within(part, (name,))), "leave it out")
    given = f"{key}={_written(value)}" if value != "" else key
    return f"{given}: has no effect here; {remedy}."


def _is_within(key: str, parts: Sequence[str]) -> bool:
    return any(key == part or key.startswith(f"{part}.") for part in parts)


def _written(value: object) -> str:
    """As one writes it on the command line."""
    if isinstance(value, list):
        return f"[{','.join(map(_written, value))}]"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)


def _plain(node: DictConfig) -> Any:
    return OmegaConf.to_container(node, resolve=False, enum_to_str=True)


def _flat(prefix: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else str(key), inner)
    else:
        yield prefix, value
