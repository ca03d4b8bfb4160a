"""Opens the MLflow store behind a tracking URI, and makes it first where it is a SQLite file.

Imports mlflow: only the delivering process and the UI load this module, after `mlflow_loading.py`
has set the variables that must stand before.

What MLflow answers, as errors of ours: try again, never, perhaps never, deleted, gone.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from automl.errors import ConfigError
from automl.record.texts import redact
from automl.tracking.tracking_uri import TrackingUri

CONNECT_SECONDS = 5.0
_UNKNOWN = ("UNAUTHENTICATED", "CUSTOMER_UNAUTHORIZED", "PERMISSION_DENIED")
"""MLflow's words for 401 and 403."""
_PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}


def open_client(uri: TrackingUri) -> MlflowClient:
    """A client whose store has answered. Raises ConfigError when it does not."""
    try:
        if uri.sqlite_path is not None:
            make_mlflow_database(uri.sqlite_path)
        if uri.is_database:
            _knock(uri)
        client = MlflowClient(uri.text)
        client.search_experiments(max_results=1)
    except Exception as error:
        raise unusable_store_error(uri, error) from error
    return client


def unusable_store_error(uri: TrackingUri, error: BaseException) -> ConfigError:
    """What went wrong as the store was opened, with the remedy."""
    cause = explain_error(error, uri)
    if getattr(error, "error_code", None) in _UNKNOWN:
        return ConfigError(
            f"{uri}: that server does not know who asks, or lets them do nothing ({cause}); set "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN."
        )
    return ConfigError(
        f"{uri}: MLflow cannot use it ({cause}); start that server, mend the address, or choose "
        "another store, such as sqlite:///mlflow.db."
    )


def _knock(uri: TrackingUri) -> None:
    """Raises OSError when no database server listens: MLflow would try for 100 s."""
    try:
        parts = urlsplit(uri.text)
        host, port = parts.hostname, parts.port or _PORTS.get(parts.scheme.partition("+")[0])
    except ValueError:  # several hosts, or what else the driver takes
        return
    if host is not None and port is not None:
        socket.create_connection((host, port), timeout=CONNECT_SECONDS).close()


def explain_error(error: BaseException, uri: TrackingUri) -> str:
    """One line about an error of MLflow's, without credentials and not longer than a message."""
    root = error
    inner: BaseException | None = error
    while inner is not None:  # `connection refused` says more than the page that MLflow wraps it in
        root = inner if isinstance(inner, OSError | sqlite3.Error) else root
        inner = inner.__cause__ or inner.__context__
    text = " ".join(redact(str(root), uri.secrets).split()) or type(root).__name__
    return text if len(text) <= 500 else f"{text[:400]} … {text[-90:]}"


def make_mlflow_database(path: Path) -> None:
    """Make MLflow's database unless it is there: complete, or not at all.

    MLflow migrates a new file step by step (1.7 s) with no lock: two first openers break it, and a
    kill leaves it broken. So it is built beside, under a lock, and renamed when it is on disk.
    """
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path.with_name(f".{path.name}.lock")):
        for remains in path.parent.glob(f".{path.name}.building*"):
            remains.unlink()  # of a builder that was killed
        if not path.exists():
            _build(path)


def _build(path: Path) -> None:
    building = path.with_name(f".{path.name}.building")
    MlflowClient(f"sqlite:///{building}")
    # The store above keeps a connection to its file for life, so the database gets a file of its
    # own that nobody has open.
    ready = path.with_name(f".{path.name}.building.ready")
    connection = sqlite3.connect(building)
    try:
        connection.execute("VACUUM INTO ?", (str(ready),))
    finally:
        connection.close()
    with ready.open("rb") as file:
        os.fsync(file.fileno())
    ready.rename(path)
    building.unlink()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


_NEVER_STATUSES = (400, 404, 405, 413, 415, 501)
"""What a server answers to a file that it will take at no time."""
_TOO_LARGE = "failed with error code 413"
"""A proxy's limit, in the words of MLflow's client."""
_REFUSALS = ("INVALID_PARAMETER_VALUE", "INVALID_STATE", "BAD_REQUEST")


class ValueNotTakenError(Exception):
    """Raised when MLflow does not take something now: a dead server, a locked database."""


class RunDeletedError(Exception):
    """Raised when a run or its experiment was deleted in the UI; both can be restored."""


class RunGoneError(Exception):
    """Raised when a run or experiment that was there is not: the store was replaced or purged."""


class ValueRefusedError(ValueNotTakenError):
    """Raised when MLflow will never take a value."""


class DoubtfulCallError(ValueNotTakenError):
    """Raised when MLflow failed over a call that reached it: it may do so for ever, or not."""


@contextmanager
def translate_errors(uri: TrackingUri) -> Iterator[None]:
    """MLflow's errors as ours, without credentials."""
    try:
        yield
    except MlflowException as error:
        text = explain_error(error, uri)
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            raise RunGoneError(text) from error
        if "must be in the 'active' state" in str(error):
            raise RunDeletedError(text) from error
        if error.error_code in _REFUSALS or _TOO_LARGE in str(error):
            raise ValueRefusedError(text) from error
        raise (DoubtfulCallError if _has_failed(error) else ValueNotTakenError)(text) from error
    except OSError as error:
        answered = getattr(getattr(error, "response", None), "status_code", None)
        refused = answered in _NEVER_STATUSES
        text = explain_error(error, uri)
        raise (ValueRefusedError if refused else ValueNotTakenError)(text) from error
    except (ValueError, TypeError, OverflowError) as error:
        # Of MLflow's client, over a value that it cannot write down, or an answer it cannot
        # read: a step beyond 2**63 is the first over HTTP, an internal error in a database.
        raise DoubtfulCallError(explain_error(error, uri)) from error


def _has_failed(error: MlflowException) -> bool:
    """Whether the store was reached and failed by itself: no transport, no lock, no time-out."""
    if error.error_code != "INTERNAL_ERROR":
        return False
    if "too many 500 error responses" in str(error):  # the client's words after its last try
        return True
    inner = error.__cause__ or error.__context__
    return "API request to" not in str(error) and not isinstance(inner, OSError)
