"""Opens MLflow's registry, which is in the store of the runs unless MLflow has another one set.

It is a file of its own so that a command can import it without loading MLflow.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from automl.config import TrackingConfig
from automl.tracking.mlflow_loading import mute_mlflow_info, set_mlflow_defaults
from automl.tracking.tracking_uri import resolve_uri

if TYPE_CHECKING:
    from automl.tracking.registry.registry import ModelRegistry


def open_registry(config: TrackingConfig, name: str) -> ModelRegistry:
    """Return the registered model `name`, which may not exist yet.

    Raise ConfigError when the store of the runs does not answer.
    """
    uri = resolve_uri(config).absolute
    set_mlflow_defaults(os.environ)
    from automl.tracking.mlflow_store import open_client
    from automl.tracking.registry.registry import ModelRegistry

    with mute_mlflow_info():
        return ModelRegistry(open_client(uri), uri, name)
