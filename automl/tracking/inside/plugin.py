"""What MLflow finds of ours by entry point, and loads in every process that imports it: so nothing
is imported here before it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from automl.tracking.inside.store import TrialStore

TRIAL_SCHEME = "automl"
TRIAL_URI = f"{TRIAL_SCHEME}://trial"
"""MLFLOW_TRACKING_URI of an objective; both are also in pyproject.toml."""


def open_store(store_uri: str, artifact_uri: str | None = None) -> TrialStore:
    """The store of the trials that run in this process, as MLflow asks for it."""
    from automl.tracking.inside.store import TrialStore

    return TrialStore()


def open_registry(store_uri: str | None = None, **_: Any) -> NoReturn:
    """Raises MlflowException: there is none in a trial."""
    from mlflow.exceptions import MlflowException

    raise MlflowException.invalid_parameter_value(
        "A trial registers no model, as nobody knows yet whether it will be the best. Log it "
        "without registered_model_name, or give MLFLOW_REGISTRY_URI."
    )
