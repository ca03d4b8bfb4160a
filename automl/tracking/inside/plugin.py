"""The entry points of this package that MLflow finds.

MLflow loads this file in every process that imports it, so it is a file of its own, which imports
nothing before it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from automl.tracking.inside.store import TrialStore

TRIAL_SCHEME = "automl"
TRIAL_URI = f"{TRIAL_SCHEME}://trial"
"""MLFLOW_TRACKING_URI of an objective. The scheme stands in pyproject.toml, too."""


def open_store(store_uri: str, artifact_uri: str | None = None) -> TrialStore:
    """Return the store of the trials that run in this process; MLflow calls this."""
    from automl.tracking.inside.store import TrialStore

    return TrialStore()


def open_registry(store_uri: str | None = None, **_: Any) -> NoReturn:
    """Raise MlflowException: a trial has no registry."""
    from mlflow.exceptions import MlflowException

    raise MlflowException.invalid_parameter_value(
        "A trial registers no model, as nobody knows yet whether it will be the best. Log it "
        "without registered_model_name, or give MLFLOW_REGISTRY_URI."
    )
