"""A connection to the database of a shared study, opened when it is needed and again after a loss.

Nothing waits for a dead database longer than the limits below. After a lost connection it is open
whether the last transaction was taken: callers settle this, and all their statements may be
repeated. The statements are in `study_tables.py` and `delivery_tables.py`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import psycopg

from automl.errors import ConfigError, StorageError
from automl.record.secrets import mask_urls
from automl.record.texts import fit_line

if TYPE_CHECKING:
    from psycopg.abc import PQGen

T = TypeVar("T")
Cursor: TypeAlias = psycopg.Cursor
CONNECT_SECONDS = 5
ANSWER_SECONDS = 10
"""Time limit of a statement, and of the network to carry it."""
PATIENCE_SECONDS = ANSWER_SECONDS + 2.0
"""Time limit for a server that keeps the connection and sends nothing at all."""
IDLE_SECONDS = 5
"""Time limit for pauses within a transaction: a process that is stopped or cut off in one keeps the
others waiting no longer."""
_AWAY = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.IdleInTransactionSessionTimeout,
)


class DatabaseAwayError(StorageError):
    """Raised when the database does not answer now; it may later."""


class _ServerSilentError(psycopg.OperationalError):
    """Raised when the server does not even say that a statement took too long."""


class _Connection(psycopg.Connection):
    """A connection that never waits for an answer without limit.

    A server whose processes are stopped keeps its connections and its kernel accepts data; no
    setting of libpq ends the wait.
    """

    def wait(self, gen: PQGen[T], *words: Any, **named: Any) -> T:
        """Wait for an answer as psycopg does, but with a limit. Raises _ServerSilentError."""
        try:
            return super().wait(_with_time_limit(gen, PATIENCE_SECONDS), *words, **named)
        except _ServerSilentError:
            self.pgconn.finish()  # else the end of the transaction would wait, too
            raise


def _with_time_limit(gen: PQGen[T], seconds: float) -> PQGen[T]:
    """Limit the time of psycopg's generator, which is resumed ten times a second."""
    ends = time.monotonic() + seconds
    try:
        wants = next(gen)
        while True:
            ready = yield wants
            if not ready and time.monotonic() > ends:
                raise _ServerSilentError(f"no word from it for {seconds:g} s")
            wants = gen.send(ready)
    except StopIteration as end:
        result: T = end.value
        return result


class Database:
    """One connection, used by one thread at a time; others wait for the end of its transaction."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.where = mask_urls(url)
        """The URL without its credentials, for messages."""
        self._lock = threading.Lock()  # guards `_connection`
        self._connection: psycopg.Connection | None = None

    @contextmanager
    def transaction(self) -> Iterator[psycopg.Cursor]:
        """Run the block in a transaction: commit it if it ends without an error, else undo it.

        Raises DatabaseAwayError when the connection is lost or cannot be made, and StorageError
        when the database refuses a statement.
        """
        with self._lock, self._translated_errors():
            connection = self._open()
            with connection.transaction(), connection.cursor() as cursor:
                yield cursor

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Raise the driver's errors as errors of this package. The caller holds the lock."""
        try:
            yield
        except _AWAY as error:
            self._close()
            raise DatabaseAwayError(
                f"study.storage={self.where}: the database does not answer ({self._cause(error)}); "
                "mend that, then resume the study."
            ) from error
        except psycopg.Error as error:
            self._close()
            raise StorageError(
                f"study.storage={self.where}: the database refuses ({self._cause(error)}); mend "
                "that, then resume the study."
            ) from error

    def check(self) -> None:
        """Raise ConfigError when the database cannot be reached or refuses our connection."""
        try:
            with self._lock:
                self._open()
        except psycopg.Error as error:
            raise ConfigError(
                f"study.storage={self.where}: cannot be used ({self._cause(error)}). Give the URL "
                "of a PostgreSQL that takes you, postgresql://user@host/name, its password best in "
                "~/.pgpass or PGPASSWORD; or leave it out: the study is then kept in its own "
                "directory, for one machine."
            ) from error

    def close(self) -> None:
        """Close the connection; a later transaction opens it again."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _open(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            self._connection = _Connection.connect(
                self._url,
                autocommit=True,
                connect_timeout=CONNECT_SECONDS,
                tcp_user_timeout=1000 * ANSWER_SECONDS,
                application_name="automl",
            )
            self._connection.execute(f"SET statement_timeout = '{ANSWER_SECONDS}s'")
            self._connection.execute(f"SET idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'")
        return self._connection

    def _cause(self, error: psycopg.Error) -> str:
        return fit_line(mask_urls(str(error).replace(self._url, "it"))).rstrip(".")
