"""Opens MLflow's registry, which is in the store of the runs unless MLflow is told another."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from automl.config import TrackingConfig
from automl.tracking.environment import set_defaults
from automl.tracking.registry.quiet import only_warnings
from automl.tracking.uri import resolve_uri

if TYPE_CHECKING:
    from automl.tracking.registry.registry import Registry


def open_registry(config: TrackingConfig, name: str) -> Registry:
    """The registered model `name`, be it there or not. Raises ConfigError where the store of the
    runs does not answer."""
    uri = resolve_uri(config).absolute
    set_defaults(os.environ)
    from automl.tracking.registry.registry import Registry
    from automl.tracking.store import open_client

    with only_warnings():
        return Registry(open_client(uri), uri, name)
