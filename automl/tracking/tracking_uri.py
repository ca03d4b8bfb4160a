"""Finds the store that results go to, and checks whether its URI can work at all.

This module does not load MLflow: the check runs before the delivering process starts, so that a
typing error is reported at once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from urllib.parse import unquote, urlsplit

from automl.config import TrackingConfig
from automl.errors import ConfigError
from automl.record.texts import redact_text
from automl.tracking.inside.plugin import TRIAL_SCHEME, TRIAL_URI

DEFAULT_URI = "sqlite:///mlflow.db"
"""MLflow's own default in the working directory: a bare `mlflow ui` there shows the runs."""
TRACKING_URI_VARIABLE = "MLFLOW_TRACKING_URI"
_SERVER_SCHEMES = ("http", "https")
_DATABASE_SCHEMES = ("sqlite", "postgresql", "mysql", "mssql")
_DATABRICKS_SCHEMES = ("databricks", "databricks-uc", "uc")
_EXAMPLES = "sqlite:///mlflow.db, http://HOST:5000 or postgresql://USER:PASSWORD@HOST/DATABASE"
_SECRET_VARIABLES = ("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")


@dataclass(frozen=True)
class TrackingUri:
    """A tracking URI that has passed `resolve_uri`."""

    text: str
    """The URI with its credentials; never show it."""
    setting: str
    """The setting that the user would change: `tracking.uri`, or the environment variable."""

    def __str__(self) -> str:
        """Return a text fit for messages, such as `tracking.uri=postgresql://***@host/db`."""
        return f"{self.setting}={redact_text(self.text)}"

    @property
    def is_server(self) -> bool:
        """Return whether the store is an MLflow server, reached over HTTP."""
        return _scheme(self.text) in _SERVER_SCHEMES

    @property
    def without_credentials(self) -> str:
        """Return a server's address to print and open; the browser asks for a password."""
        parts = urlsplit(self.text)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl().rstrip("/")

    @property
    def is_remote(self) -> bool:
        """Return whether somebody else runs the store, which then has a UI of its own."""
        return not self.is_database and _scheme(self.text) not in ("", "file")

    @property
    def is_database(self) -> bool:
        """Return whether this package writes to the database and to its runs' artifacts itself."""
        return _scheme(self.text) in _DATABASE_SCHEMES

    @property
    def sqlite_path(self) -> Path | None:
        """Return the absolute path of the database file; None for another kind of store."""
        if _scheme(self.text) != "sqlite":
            return None
        return Path(self.text.partition(":///")[2].partition("?")[0]).absolute()

    @property
    def absolute(self) -> TrackingUri:
        """Return the store by a URI that holds in any folder: MLflow compares its text."""
        path = self.sqlite_path
        if path is None:
            return self
        head, _, tail = self.text.partition(":///")
        query = tail.partition("?")[1] + tail.partition("?")[2]
        return TrackingUri(f"{head}:///{path}{query}", self.setting)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the passwords and tokens that must appear in no message."""
        found = [os.environ.get(name) for name in _SECRET_VARIABLES]
        password = urlsplit(self.text).password
        if password is not None:
            found += [password, unquote(password)]
        return tuple({secret for secret in found if secret})


def resolve_uri(config: TrackingConfig, environ: Mapping[str, str] = os.environ) -> TrackingUri:
    """Return the URI of the config, else MLFLOW_TRACKING_URI, else a local database.

    The local database lies in the working directory. With tracking.uri=none this is the store that
    a later `sync` delivers to. Raise ConfigError when nothing could ever be
    written to the store.
    """
    if config.uri is not None and config.uses_mlflow:
        uri = TrackingUri(config.uri.strip(), "tracking.uri")
    elif environ.get(TRACKING_URI_VARIABLE) not in (None, "", TRIAL_URI):
        uri = TrackingUri(environ[TRACKING_URI_VARIABLE].strip(), TRACKING_URI_VARIABLE)
    else:
        uri = TrackingUri(DEFAULT_URI, "tracking.uri")
    _check_scheme(uri, environ)
    if uri.is_server:
        _check_server(uri)
    if uri.sqlite_path is not None:
        _check_sqlite(uri, uri.sqlite_path)
    return uri


def _scheme(text: str) -> str:
    """Return the scheme of a URI, as `postgresql` of `postgresql+psycopg2://…`."""
    head, colon, _ = text.partition(":")
    return head.partition("+")[0].lower() if colon or head in _DATABRICKS_SCHEMES else ""


def _check_scheme(uri: TrackingUri, environ: Mapping[str, str]) -> None:
    scheme = _scheme(uri.text)
    if scheme in ("", "file"):
        if environ.get("MLFLOW_ALLOW_FILE_STORE", "").lower() in ("true", "1"):
            return
        raise ConfigError(
            f"{uri}: MLflow keeps no runs in plain folders any more; use {_EXAMPLES}."
        )
    if scheme in {*_SERVER_SCHEMES, *_DATABASE_SCHEMES, *_DATABRICKS_SCHEMES}:
        return
    if scheme == TRIAL_SCHEME:
        raise ConfigError(f"{uri}: that is where a trial's objective logs to; use {_EXAMPLES}.")
    if scheme not in {point.name for point in entry_points(group="mlflow.tracking_store")}:
        raise ConfigError(f"{uri}: MLflow has no store of the kind {scheme!r}; use {_EXAMPLES}.")


def _check_server(uri: TrackingUri) -> None:
    try:
        parts = urlsplit(uri.text)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is no number
        usable = False
    if not usable:
        raise ConfigError(f"{uri}: a server's address is http://HOST:PORT.")


def _check_sqlite(uri: TrackingUri, path: Path) -> None:
    text = uri.text.partition(":///")[2].partition("?")[0]
    if not text or text == ":memory:":
        raise ConfigError(f"{uri}: name a file, such as {DEFAULT_URI} (three slashes).")
    if path.is_dir():
        raise ConfigError(f"{uri}: {path} is a folder; name a file in it.")
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        raise ConfigError(f"{uri}: {path} cannot be written; mend its rights or name another file.")
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"{uri}: {folder} cannot be written; name a file in another folder.")
