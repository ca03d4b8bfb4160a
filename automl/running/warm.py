"""What takes long to load begins to, side by side, before the sweep itself is even imported:
torch in the server that worker processes are forked from, MLflow in the delivering process, which
also opens the store if there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from automl.config import Config, ExecutionKind
from automl.execution.process import preload
from automl.tracking.delivery import DelivererProcess, spawn
from automl.tracking.uri import resolve_uri


@contextmanager
def warmed_up(config: Config) -> Iterator[DelivererProcess]:
    """Gives the delivering process; one that is not needed after all is ended.

    Raises ConfigError for a tracking URI that cannot be.
    """
    if config.execution.kind is not ExecutionKind.inline:
        preload("automl.training.session")
    with spawn(Path.cwd(), resolve_uri(config.tracking)) as deliverer:
        try:
            yield deliverer
        finally:
            deliverer.kill()
