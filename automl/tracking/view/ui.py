"""Serves MLflow's own UI on loopback, over the store that sweeps write to.

For a store with a server of its own it only says the address.
"""

from __future__ import annotations

import http.client
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import IO

from automl.config import TrackingConfig
from automl.errors import AutoMLError, ConfigError
from automl.record.study_files import StudyFiles
from automl.record.texts import Say, redact_text, say_on_stdout
from automl.tracking.long_step import long_step
from automl.tracking.mlflow_loading import load_lean, set_mlflow_defaults
from automl.tracking.tracking_uri import TrackingUri, resolve_uri
from automl.tracking.view.shared_view import EXPERIMENTS_PATH

HOST = "127.0.0.1"
START_SECONDS = 90.0
END_SECONDS = 5.0
_POLL_SECONDS = 0.1
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

logger = logging.getLogger(__name__)


class _EndedBySignalError(Exception):
    """Raised in the main thread by Ctrl-C, a kill, or a closed terminal."""


def serve_ui(
    config: TrackingConfig, port: int, say: Say = say_on_stdout, *, study: Path | None = None
) -> int:
    """Serve the UI until Ctrl-C; `say` gets the address once it answers. Return the exit code.

    The address opens the runs of the study in the directory `study`, or else the list of
    experiments. Call this from the main thread. Raise ConfigError when store or port cannot be
    used, AutoMLError when the server ends by itself.
    """
    uri = resolve_uri(config)
    if uri.is_remote:
        where = (
            f"{uri.without_credentials}/{_address_part(study, uri, say)}" if uri.is_server else uri
        )
        say(f"MLflow's own server shows the runs: {where}")
        return 0
    _check_port(port)
    try:
        with _signals_raise(), tempfile.TemporaryFile() as output, ExitStack() as running:
            with long_step("starting MLflow's server", say):
                _make_database(uri, say)
                server = running.enter_context(_server(uri, port, output))
                _wait_until_it_answers(server, port, output, uri)
            here = TrackingUri(f"http://{HOST}:{port}", "ui.port")
            say(f"MLflow UI: {here.text}/{_address_part(study, here, say)} (Ctrl-C ends it)")
            server.wait()
            raise AutoMLError(f"the MLflow server has ended: {_last_lines(output, uri)}")
    except _EndedBySignalError:
        return 0


def _address_part(study: Path | None, server: TrackingUri, say: Say) -> str:
    """Return the part of the address that opens the study's runs, else the list of experiments."""
    if study is None:
        return EXPERIMENTS_PATH
    set_mlflow_defaults(os.environ)
    load_lean("automl.tracking.mlflow_store")
    from automl.tracking.mlflow_store import study_runs_address

    try:
        found = study_runs_address(server, StudyFiles(study).events)
    except ConfigError as error:  # the browser may have access where this process has none
        say(str(error))
        return EXPERIMENTS_PATH
    if found is None:
        say(
            f"study {study.name} has no runs there yet; they get there with: python -m automl sync "
            f"study.name={study.name}"
        )
    return found or EXPERIMENTS_PATH


def _make_database(uri: TrackingUri, say: Say) -> None:
    if uri.sqlite_path is not None:
        set_mlflow_defaults(os.environ)
        from automl.tracking.mlflow_store import make_mlflow_database

        make_mlflow_database(uri.sqlite_path, say)


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise ConfigError(
                f"port={port}: it cannot be used ({error.strerror}); end what listens there, "
                f"perhaps another UI, or name another port, such as port={port + 1}."
            ) from error


@contextmanager
def _server(uri: TrackingUri, port: int, output: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Run the server for the block, in a process group that is ended as a whole."""
    environ = dict(os.environ)
    set_mlflow_defaults(environ)
    environ["MLFLOW_BACKEND_STORE_URI"] = uri.text  # every user can see arguments
    origins = [f"{name}:{port}" for name in (HOST, "localhost")]
    command = [sys.executable, "-P", "-m", "mlflow", "server"]
    command += ["--app-name", "automl-ui", "--host", HOST, "--port", str(port), "--workers", "1"]
    # The default list allows any host that begins like a private address (10.evil.example).
    command += ["--allowed-hosts", ",".join(origins)]
    command += ["--cors-allowed-origins", ",".join(f"http://{origin}" for origin in origins)]
    command += ["--x-frame-options", "DENY"]
    server = subprocess.Popen(
        command,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )
    try:
        yield server
    finally:
        _end_group(server)


def _end_group(server: subprocess.Popen[bytes]) -> None:
    _signal_group(server, signal.SIGTERM)
    try:
        server.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        logger.debug("the MLflow server takes its time; it is killed")
    _signal_group(server, signal.SIGKILL)  # for its children that are left
    server.wait()


def _signal_group(server: subprocess.Popen[bytes], number: signal.Signals) -> None:
    try:
        os.killpg(server.pid, number)
    except ProcessLookupError:
        logger.debug("the MLflow server has ended already")


def _wait_until_it_answers(
    server: subprocess.Popen[bytes], port: int, output: IO[bytes], uri: TrackingUri
) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _has_answered(port):
        if server.poll() is not None or time.monotonic() > deadline:
            raise AutoMLError(f"the MLflow server did not start: {_last_lines(output, uri)}")
        time.sleep(_POLL_SECONDS)


def _has_answered(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _last_lines(output: IO[bytes], uri: TrackingUri) -> str:
    output.seek(0)
    lines = output.read().decode(errors="replace").strip().splitlines()
    return redact_text("\n".join(lines[-5:]), uri.secrets) or "it said nothing"


@contextmanager
def _signals_raise() -> Iterator[None]:
    def end(number: int, frame: FrameType | None) -> None:
        for signal_number in _SIGNALS:  # a second Ctrl-C must not stop the end of the server
            signal.signal(signal_number, signal.SIG_IGN)
        raise _EndedBySignalError

    previous = {number: signal.signal(number, end) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
