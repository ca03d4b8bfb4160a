"""Starts the slow imports side by side before the sweep itself is imported.

Torch is loaded in the fork server of the workers. MLflow is loaded in the delivering process, which
also opens the store. The file stands alone because it must not import what the sweep needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from automl.config import Config, DevicesKind, ExecutionKind, ObjectiveKind
from automl.execution.worker_process import preload_fork_server
from automl.models.family import family_of
from automl.tracking.deliver.delivery import DelivererProcess, spawn_deliverer
from automl.tracking.tracking_uri import resolve_uri

_DRIVER = Path("/proc/driver/nvidia")
"""Where Linux keeps NVIDIA's driver. Without it each survey loads what it needs."""


@contextmanager
def warm_up_processes(config: Config) -> Iterator[DelivererProcess | None]:
    """Yield the delivering process, or None if there is nothing to deliver to. It is ended if it is
    not needed after all.

    Raises ConfigError for a tracking URI that cannot be used.
    """
    is_outside = config.objective.kind is ObjectiveKind.outside
    has_workers = config.execution.kind is ExecutionKind.workers
    if has_workers and not is_outside:
        preload_fork_server(*training_preloads(config), *_for_surveys(config))
    if not config.tracking.uses_mlflow:
        yield None
        return
    with spawn_deliverer(Path.cwd(), resolve_uri(config.tracking)) as deliverer:
        try:
            yield deliverer
        finally:
            deliverer.kill()


def training_preloads(config: Config) -> list[str]:
    """Return the modules that the fork server of the workers loads in advance.

    A program loads torch itself if it wants it. A family brings its own library.
    """
    if config.objective.kind is ObjectiveKind.command:
        return ["automl.objectives.program.command_session"]
    if config.objective.kind is ObjectiveKind.outside:
        return []
    if config.objective.kind is ObjectiveKind.builtin:
        family = family_of(config)
        return ["automl.objectives.training_session", *family.modules]
    return ["automl.objectives.training_session", "torch"]


def _for_surveys(config: Config) -> list[str]:
    """Return the modules for surveys. Without them each survey takes 1.4 s more to load torch."""
    is_users = config.objective.target is not None or hasattr(config.model, "target")
    may_find_gpus = config.devices.kind is not DevicesKind.host and _DRIVER.exists()
    wanted = is_users and may_find_gpus and config.may_survey
    return ["automl.measure.survey.survey_run"] if wanted else []
