"""How MLflow is set up: by variables that must stand before it is first imported.

MLflow as `mlflow-skinny` installs it, without pandas and numpy, for a process that writes runs.

MLflow loads them for data sets and models, and does without where they are missing. To load them
takes 0.45 of the 1.55 s of a core that the delivering process needs until its store is open.

Answers of a server over kept connections without the wait of a delayed acknowledgement.

uvicorn writes an answer in two pieces, and of several of its workers none sets TCP_NODELAY: the
second piece waits until the first is acknowledged, which Linux does 40 ms later. TCP_QUICKACK has
it done at once; it does not last, so it is set before each answer (at the connection's begin, or
before each request, it changes nothing: `experiments/018-mlflow-server/socket_options.py`).

MLflow tells its users what it is about to do; ours are told by us.
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


def set_mlflow_defaults(environ: MutableMapping[str, str]) -> None:
    """For every process of ours that uses MLflow."""
    for name, value in _DEFAULTS.items():
        environ.setdefault(name, value)


def set_delivery_environment(environ: MutableMapping[str, str]) -> None:
    """For the delivering process."""
    set_mlflow_defaults(environ)
    environ.update(_FOR_DELIVERY)


def set_trial_environment(environ: MutableMapping[str, str], uri: str) -> Sequence[str]:
    """For an objective, whose MLflow calls go to `uri`. Returns what may differ from then on."""
    for name in _INSIDE:
        environ.setdefault(name, _DEFAULTS[name])
    environ.pop("MLFLOW_RUN_ID", None)  # of the shell that the sweep was started from
    environ["MLFLOW_TRACKING_URI"] = uri
    return (*_INSIDE, "MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID", "MLFLOW_TRACKING_URI")


EXTRAS = ("numpy", "pandas", "pyarrow", "pygments", "scipy")
"""What MLflow, and what it uses to open a database, tries to import and can do without."""


def load_lean(module: str, extras: Sequence[str] = EXTRAS) -> ModuleType:
    """Import a module that imports MLflow, and has MLflow do without `extras` for good.

    One that cannot do without them is imported with them.
    """
    try:
        with without_extras(extras):
            return importlib.import_module(module)
    except ImportError:
        return importlib.import_module(module)


@contextmanager
def without_extras(extras: Sequence[str] = EXTRAS) -> Iterator[None]:
    """`extras` that are not loaded yet cannot be imported in the block; afterwards they can.

    Where others have installed a plugin of MLflow's, which may need them, all stays as it is.
    """
    absent = [] if _has_foreign_plugin() else [name for name in extras if name not in sys.modules]
    for name in absent:
        sys.modules[name] = None  # type: ignore[assignment]  # as the import statement knows it
    try:
        yield
    finally:
        for name in absent:
            sys.modules.pop(name)


def _has_foreign_plugin() -> bool:
    """Whether MLflow would import code that is neither its own nor ours."""
    installed = metadata.entry_points()
    return any(
        point.module.partition(".")[0] not in ("mlflow", "automl")
        for group in installed.groups
        if group.startswith("mlflow.")
        for point in installed.select(group=group)
    )


class QuickConnection(HTTPConnection):
    """Plain HTTP."""

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as urllib3's own
        _acknowledge_at_once(self.sock)
        return super().getresponse()


class QuickHttpsConnection(HTTPSConnection):
    """HTTP over TLS, where the wait is the same."""

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as urllib3's own
        _acknowledge_at_once(self.sock)
        return super().getresponse()


def quicken_answers() -> None:
    """For all of this process from now on: MLflow makes its sessions where nobody can reach."""
    HTTPConnectionPool.ConnectionCls = QuickConnection
    HTTPSConnectionPool.ConnectionCls = QuickHttpsConnection


def _acknowledge_at_once(connection: socket.socket | None) -> None:
    if connection is not None and hasattr(socket, "TCP_QUICKACK"):  # Linux
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


@contextmanager
def mute_mlflow_info() -> Iterator[None]:
    """Of what MLflow logs."""
    logger = logging.getLogger("mlflow")
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)
