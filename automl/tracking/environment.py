"""How MLflow is set up: by variables that must stand before it is first imported."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence

# A value that the user has set stays.
_DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "MLFLOW_TRUNCATE_LONG_VALUES": "false",  # in silence; we cut ourselves, with a note
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",  # loses rows with more than one live run
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # 8 processes that a sweep has no use for
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_UV_AUTO_DETECT": "false",  # files of the working directory in a registered model
}
# What delivering relies on, whatever the user has set for other uses of MLflow.
_FOR_DELIVERY = {
    # The client repeats a POST whose answer is lost: two runs for one trial. We repeat ourselves,
    # and look first.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    # One request less at the end of each run, where the store is a server.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # Its records go through our handler, which masks credentials.
    "MLFLOW_CONFIGURE_LOGGING": "false",
}
# What a user's own MLflow, inside a trial, does without; it is otherwise as they have set it up.
_INSIDE = ("MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK", "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR")


def set_defaults(environ: MutableMapping[str, str]) -> None:
    """For every process of ours that uses MLflow."""
    for name, value in _DEFAULTS.items():
        environ.setdefault(name, value)


def set_for_delivery(environ: MutableMapping[str, str]) -> None:
    """For the delivering process."""
    set_defaults(environ)
    environ.update(_FOR_DELIVERY)


def set_inside(environ: MutableMapping[str, str], uri: str) -> Sequence[str]:
    """For an objective, whose MLflow calls go to `uri`. Returns what may differ from then on."""
    for name in _INSIDE:
        environ.setdefault(name, _DEFAULTS[name])
    environ.pop("MLFLOW_RUN_ID", None)  # of the shell that the sweep was started from
    environ["MLFLOW_TRACKING_URI"] = uri
    return (*_INSIDE, "MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "MLFLOW_TRACKING_URI")
