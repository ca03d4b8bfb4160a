"""Prepares a process to load MLflow: environment variables, optional imports, quick HTTP answers.

MLflow reads its variables when it is first imported. This module sets them and does not import
MLflow itself.

A process that writes runs loads MLflow as `mlflow-skinny` installs it, without pandas and numpy.
MLflow imports these for data sets and models, and works without them. Loading them takes 0.45 of
the 1.55 s of a core that the delivering process needs until its store is open.

HTTP answers over kept connections are acknowledged at once. uvicorn writes an answer in two pieces,
and with several workers none sets TCP_NODELAY: the second piece waits until the first is
acknowledged, which Linux does 40 ms later. TCP_QUICKACK acknowledges at once. It does not last, so
it is set before each answer; set when the connection begins, or before each request, it changes
nothing (`experiments/018-mlflow-server/socket_options.py`).
"""

from __future__ import annotations

import importlib
import logging
import socket
import sys
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from types import ModuleType

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.response import HTTPResponse

# Defaults: a value that the user has set stays.
_DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "MLFLOW_TRUNCATE_LONG_VALUES": "false",  # MLflow cuts in silence; we cut with a note
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_ENABLE_ASYNC_LOGGING": "false",  # loses rows with more than one live run
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # 8 processes that a sweep has no use for
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_UV_AUTO_DETECT": "false",  # files of the working directory in a registered model
}
# Delivery relies on these values, whatever the user has set for other uses of MLflow.
_DELIVERY_SETTINGS = {
    # The client repeats a POST whose answer is lost, which makes two runs for one trial. We look
    # for the run first and repeat the call ourselves.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    # This saves one request at the end of each run on a server.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # MLflow's log records go through our handler, which masks credentials.
    "MLFLOW_CONFIGURE_LOGGING": "false",
}
# Defaults that also apply to the user's own MLflow inside a trial. Everything else stays as the
# user has set it up.
_TRIAL_DEFAULTS = (
    "MLFLOW_DISABLE_TELEMETRY",
    "DO_NOT_TRACK",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR",
)


def set_mlflow_defaults(environ: MutableMapping[str, str]) -> None:
    """Set the defaults for a process of this package that uses MLflow."""
    for name, value in _DEFAULTS.items():
        environ.setdefault(name, value)


def set_delivery_environment(environ: MutableMapping[str, str]) -> None:
    """Set the variables of the delivering process."""
    set_mlflow_defaults(environ)
    environ.update(_DELIVERY_SETTINGS)


def set_trial_environment(environ: MutableMapping[str, str], uri: str) -> Sequence[str]:
    """Set the variables of an objective that logs to `uri`; return the names of all of them."""
    for name in _TRIAL_DEFAULTS:
        environ.setdefault(name, _DEFAULTS[name])
    environ.pop("MLFLOW_RUN_ID", None)  # set in the shell that started the sweep
    environ["MLFLOW_TRACKING_URI"] = uri
    return (*_TRIAL_DEFAULTS, "MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "MLFLOW_TRACKING_URI")


EXTRAS = ("numpy", "pandas", "pyarrow", "pygments", "scipy")
"""Optional imports of MLflow and of the libraries with which it opens a database."""


def load_lean(module: str, extras: Sequence[str] = EXTRAS) -> ModuleType:
    """Import a module that imports MLflow, and make MLflow do without `extras` for good.

    A module that cannot be imported without them is imported with them.
    """
    try:
        with without_extras(extras):
            return importlib.import_module(module)
    except ImportError:
        return importlib.import_module(module)


@contextmanager
def without_extras(extras: Sequence[str] = EXTRAS) -> Iterator[None]:
    """Make `extras` that are not loaded yet impossible to import within the block.

    A plugin of MLflow's that somebody else has installed may need them: then nothing changes.
    """
    absent = [] if _has_foreign_plugin() else [name for name in extras if name not in sys.modules]
    for name in absent:
        sys.modules[name] = None  # type: ignore[assignment]  # None makes the import statement fail
    try:
        yield
    finally:
        for name in absent:
            sys.modules.pop(name)


def _has_foreign_plugin() -> bool:
    """Return whether MLflow would import a plugin that is neither its own nor ours."""
    installed = metadata.entry_points()
    return any(
        point.module.partition(".")[0] not in ("mlflow", "automl")
        for group in installed.groups
        if group.startswith("mlflow.")
        for point in installed.select(group=group)
    )


class QuickConnection(HTTPConnection):
    """A plain HTTP connection that acknowledges the first piece of each answer at once."""

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as urllib3's own
        _acknowledge_at_once(self.sock)
        return super().getresponse()


class QuickHttpsConnection(HTTPSConnection):
    """A `QuickConnection` over TLS, where the wait is the same."""

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as urllib3's own
        _acknowledge_at_once(self.sock)
        return super().getresponse()


def quicken_answers() -> None:
    """Make all HTTP connections of this process quick, as MLflow's sessions cannot be reached."""
    HTTPConnectionPool.ConnectionCls = QuickConnection
    HTTPSConnectionPool.ConnectionCls = QuickHttpsConnection


def _acknowledge_at_once(connection: socket.socket | None) -> None:
    if connection is not None and hasattr(socket, "TCP_QUICKACK"):  # Linux
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


@contextmanager
def mute_mlflow_info() -> Iterator[None]:
    """Hide MLflow's info messages within the block: this package announces its own steps."""
    logger = logging.getLogger("mlflow")
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)
