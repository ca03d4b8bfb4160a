"""Opens the MLflow store behind a tracking URI, and translates MLflow's errors into ours.

A SQLite store that does not exist yet is made first. The translated errors tell the caller whether
to try again, to give up, to restore a deleted run, or to begin anew.

This module imports mlflow: only the delivering process, the UI and the registry load it, after
`mlflow_loading.py` has set the environment variables.
"""

from __future__ import annotations

import fcntl
import itertools
import logging
import os
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar
from urllib.parse import quote, urlsplit

import mlflow
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from urllib3.exceptions import ProtocolError, ReadTimeoutError

from automl.errors import ConfigError
from automl.record.event_log import read_events
from automl.record.texts import Say, redact_text
from automl.tracking.deliver.confirmed_offset import read_delivered_runs
from automl.tracking.tracking_uri import TrackingUri
from automl.tracking.view.shared_view import (
    VIEW_TAG,
    minimizes_metric,
    runs_by_value_address,
    runs_view_address,
)
from automl.trial import SweepStarted

logger = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
_AUTHENTICATION_CODES = ("UNAUTHENTICATED", "CUSTOMER_UNAUTHORIZED", "PERMISSION_DENIED")
"""MLflow's error codes for the HTTP statuses 401 and 403."""
_DEFAULT_PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}


def open_client(uri: TrackingUri, say: Say = logger.warning) -> MlflowClient:
    """Return a client whose store has answered. Raise ConfigError when it does not answer.

    `say` gets a line where the database is one of an older MLflow, which is migrated.
    """
    try:
        if uri.sqlite_path is not None:
            make_mlflow_database(uri.sqlite_path, say)
        if uri.is_database:
            _check_database_listens(uri)
        # MLflow keeps a store by its URI's text, also after the process has changed its folder.
        client = MlflowClient(uri.absolute.text)
        repeat_lost(client.search_experiments, max_results=1)
    except Exception as error:
        raise unusable_store_error(uri, error) from error
    return client


def unusable_store_error(uri: TrackingUri, error: BaseException) -> ConfigError:
    """Return the error for a store that could not be opened, with the remedy."""
    cause = explain_error(error, uri)
    if getattr(error, "error_code", None) in _AUTHENTICATION_CODES:
        return ConfigError(
            f"{uri}: that server does not know who asks, or lets them do nothing ({cause}); set "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN."
        )
    return ConfigError(
        f"{uri}: MLflow cannot use it ({cause}); start that server, mend the address, or choose "
        "another store, such as sqlite:///mlflow.db."
    )


def _check_database_listens(uri: TrackingUri) -> None:
    """Raise OSError when no database server listens; MLflow itself would try for 100 s."""
    try:
        parts = urlsplit(uri.text)
        host, port = (
            parts.hostname,
            parts.port or _DEFAULT_PORTS.get(parts.scheme.partition("+")[0]),
        )
    except ValueError:  # several hosts, or another form that the driver takes
        return
    if host is not None and port is not None:
        socket.create_connection((host, port), timeout=CONNECT_SECONDS).close()


def explain_error(error: BaseException, uri: TrackingUri) -> str:
    """Return one line of at most 500 characters about MLflow's error, without credentials."""
    root = error
    inner: BaseException | None = error
    while inner is not None:  # `connection refused` says more than the page that MLflow wraps it in
        root = inner if isinstance(inner, OSError | sqlite3.Error) else root
        inner = inner.__cause__ or inner.__context__
    text = " ".join(redact_text(str(root), uri.secrets).split()) or type(root).__name__
    return text if len(text) <= 500 else f"{text[:400]} … {text[-90:]}"


def study_runs_address(server: TrackingUri, log: Path) -> str | None:
    """Return the part of an address that opens the runs of the study with the event log `log`.

    Return None if the server has no such runs: `events.delivered` may be about another store. Raise
    ConfigError when the server does not answer.
    """
    known = read_delivered_runs(log)
    if known is None:
        return None
    client = open_client(server)
    try:
        # The experiment is found by its run, whose id is unique in any store; an experiment's id is
        # a small number.
        experiment = client.get_experiment(client.get_run(known.parent).info.experiment_id)
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise ConfigError(f"{server}: {explain_error(error, server)}") from error
    if VIEW_TAG in experiment.tags:
        return runs_view_address(experiment.experiment_id)
    first = next((event for event, _ in read_events(log) if isinstance(event, SweepStarted)), None)
    settings = {} if first is None else first.settings
    return runs_by_value_address(experiment.experiment_id, minimizes=minimizes_metric(settings))


def make_mlflow_database(path: Path, say: Say = logger.warning) -> None:
    """Make MLflow's database unless it exists: complete, or not at all. Migrate a database of an
    older MLflow, keep a copy beside it, and say so.

    MLflow migrates a new file step by step (1.7 s) without a lock: two processes that open it first
    break it, and a kill leaves it broken. Hence the file is built under another name, under a lock,
    and renamed when it is on disk.
    """
    if path.exists() and not is_older_database(path):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path.with_name(f".{path.name}.lock")):
        if path.exists() and is_older_database(path):
            say(_migrate(path))
            return
        for leftover in path.parent.glob(f".{path.name}.building*"):
            leftover.unlink()  # left by a process that was killed while it built
        if not path.exists():
            _build(path)


def is_older_database(path: Path) -> bool:
    """Return whether a file is a database that MLflow migrates as it opens it: one of MLflow's that
    lacks a table."""
    # MLflow itself imports it there to open any database, with all of its tables.
    from mlflow.store.db.utils import Base  # type: ignore[attr-defined]

    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
            rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            names = {name for (name,) in rows}
            has_version = "alembic_version" in names and bool(
                connection.execute("SELECT count(*) FROM alembic_version").fetchone()[0]
            )
    except sqlite3.Error:  # MLflow says what is wrong with it
        return False
    return has_version and not names.issuperset(Base.metadata.tables)


def _migrate(path: Path) -> str:
    """Migrate a database of an older MLflow, and return a line that names the copy of it."""
    copy = path.with_name(f"{path.name}.before-{mlflow.__version__}")
    for number in itertools.count(2):
        if not copy.exists():
            break
        copy = path.with_name(f"{path.name}.before-{mlflow.__version__}-{number}")
    _copy_database(path, copy)
    try:
        MlflowClient(f"sqlite:///{path}")
    except Exception:
        copy.unlink()  # the database is as it was: SQLite takes back what a migration began
        raise
    return (
        f"{path}: an older MLflow made this database; MLflow {mlflow.__version__} has migrated it, "
        f"and what it was stays in {copy.name}"
    )


def _build(path: Path) -> None:
    building = path.with_name(f".{path.name}.building")
    MlflowClient(f"sqlite:///{building}")
    # The client's store keeps its file open for life, so the database is copied into a file that
    # no process has open.
    _copy_database(building, path)
    building.unlink()


def _copy_database(path: Path, copy: Path) -> None:
    """Copy a database as it is between two writes; the copy appears when it is on disk."""
    ready = path.with_name(f".{copy.name}.building.ready")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM INTO ?", (str(ready),))
    with ready.open("rb") as file:
        os.fsync(file.fileno())
    ready.rename(copy)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


_NEVER_STATUSES = (400, 404, 405, 413, 415, 501)
"""HTTP statuses of a server that will never take the file."""
_TOO_LARGE = "failed with error code 413"
"""Words of MLflow's client when a proxy finds the request too large."""
_REFUSAL_CODES = ("INVALID_PARAMETER_VALUE", "INVALID_STATE", "BAD_REQUEST")
"""MLflow's error codes for a value that it will never take."""


class NotDeliveredError(Exception):
    """Raised when MLflow does not take something now: a dead server, a locked database."""


class RunDeletedError(Exception):
    """Raised when a run or its experiment was deleted in the UI; both can be restored."""


class RunGoneError(Exception):
    """Raised when a run or experiment is gone for good: the store was replaced or purged."""


class ValueRefusedError(NotDeliveredError):
    """Raised when MLflow will never take a value."""


class DoubtfulCallError(NotDeliveredError):
    """Raised when MLflow failed over a call that reached it; a repetition may fail, too, or not."""


@contextmanager
def translate_errors(uri: TrackingUri) -> Iterator[None]:
    """Raise MLflow's errors within the block as errors of this module, without credentials."""
    try:
        yield
    except MlflowException as error:
        text = explain_error(error, uri)
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            raise RunGoneError(text) from error
        if "must be in the 'active' state" in str(error):
            raise RunDeletedError(text) from error
        if error.error_code in _REFUSAL_CODES or _TOO_LARGE in str(error):
            raise ValueRefusedError(text) from error
        raise (DoubtfulCallError if _has_store_failed(error) else NotDeliveredError)(
            text
        ) from error
    except OSError as error:
        status_code = getattr(getattr(error, "response", None), "status_code", None)
        refused = status_code in _NEVER_STATUSES
        text = explain_error(error, uri)
        raise (ValueRefusedError if refused else NotDeliveredError)(text) from error
    except (ValueError, TypeError, OverflowError) as error:
        # MLflow's client raises these over a value that it cannot write down, or an answer that
        # it cannot read. A step beyond 2**63 is the former over HTTP; in a database it is an
        # internal error.
        raise DoubtfulCallError(explain_error(error, uri)) from error


MAX_REPEATS = 3
"""How often a call is made again where the network loses the request or its answer."""
REPEAT_SECONDS = 5.0
"""Seconds after which a lost call is not made again at once: the server may hang."""
_P = ParamSpec("_P")
_T = TypeVar("_T")


def repeat_lost(call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call MLflow, and again where the network has lost the request or its answer.

    MLflow may already have done what the call asks for, so use this only for what may be done
    twice.
    """
    for _ in range(MAX_REPEATS):
        begun = time.monotonic()
        try:
            return call(*args, **kwargs)
        except (MlflowException, OSError, NotDeliveredError) as error:
            if not _is_lost(error) or time.monotonic() - begun > REPEAT_SECONDS:
                raise
    return call(*args, **kwargs)


def _is_lost(error: BaseException) -> bool:
    """Return whether a connection broke or an answer was late; not where nobody listens."""
    inner: BaseException | None = error
    while inner is not None and not isinstance(inner, ProtocolError | ReadTimeoutError):
        inner = inner.__cause__ or inner.__context__
    return inner is not None


def _has_store_failed(error: MlflowException) -> bool:
    """Return whether the store was reached and failed; transport, locks, time-outs do not count."""
    if error.error_code != "INTERNAL_ERROR":
        return False
    if "too many 500 error responses" in str(error):  # the client's words after its last try
        return True
    inner = error.__cause__ or error.__context__
    return "API request to" not in str(error) and not isinstance(inner, OSError)
