"""Passes what other processes of a trial log to the process that carries the trial out.

A program as objective, or a process that an objective starts, finds the address in its environment
(`AUTOML_LOGS_TO`). It connects once and sends a line of JSON for each call, which is answered when
the values are taken. It is not told when the trial need not go on: its program is ended, or the
objective learns it. The address is a socket without a file, so that a kill leaves nothing behind.
Only Linux has it; elsewhere there is no address.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import struct
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from automl.errors import StorageError
from automl.tracking.inside.running_trials import MlflowTrial, NoTrialError
from automl.trial import LoggedPoint, Params

LOG_ADDRESS_VARIABLE = "AUTOML_LOGS_TO"
_MAX_LINE_BYTES = 1 << 26
_PEER_CREDENTIALS = struct.Struct("3i")
"""Layout of a peer's credentials: process, user and group."""

logger = logging.getLogger(__name__)


class LogServer:
    """Takes values that this user's other processes log, for the trials of this process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._name = f"automl-{os.getpid()}-{secrets.token_hex(8)}"
        self._lock = threading.Lock()  # guards the trials below
        self._trials: dict[str, MlflowTrial] = {}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(f"\0{self._name}")
        self._socket.listen()
        threading.Thread(target=self._accept, name="logs of programs", daemon=True).start()

    @contextmanager
    def serving(self, trial: MlflowTrial) -> Iterator[str]:
        """Yield the address for the processes of a trial, while the trial runs."""
        key = f"{trial.side.number}-{secrets.token_hex(4)}"
        with self._lock:
            self._trials[key] = trial
        try:
            yield f"{self._name}:{key}"
        finally:
            with self._lock:
                del self._trials[key]

    def _accept(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            if _peer_user(connection) != os.getuid():
                connection.close()
                continue
            threading.Thread(
                target=self._serve, args=(connection,), name="logs of a program", daemon=True
            ).start()

    def _serve(self, connection: socket.socket) -> None:
        """Answer the peer's messages until it hangs up."""
        trial: MlflowTrial | None = None
        try:
            with connection, connection.makefile("rwb") as lines:
                while line := lines.readline(_MAX_LINE_BYTES):
                    message = json.loads(line)
                    if trial is None:
                        trial, answer = self._greet(message["trial"])
                    else:
                        answer = _pass_on(trial, message)
                    lines.write(json.dumps(answer).encode() + b"\n")
                    lines.flush()
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.debug("a process of a trial's logs no more: %s", error)

    def _greet(self, key: str) -> tuple[MlflowTrial | None, dict[str, Any]]:
        with self._lock:
            trial = self._trials.get(key)
        if trial is None:
            return None, {"error": "the trial has ended"}
        side = trial.side
        params, folder = dict(side.params), str(side.folder)
        return trial, {"number": side.number, "params": params, "folder": folder}


def _pass_on(trial: MlflowTrial, message: Mapping[str, Any]) -> dict[str, Any]:
    points = [LoggedPoint(*point) for point in message["points"]]
    try:
        trial.tell(points, message["params"], message["tags"])
    except NoTrialError as error:
        return {"error": str(error.args[0])}
    except StorageError as error:  # the trial gets this error, too
        return {"error": str(error)}
    return {}


def _peer_user(connection: socket.socket) -> int:
    credentials = connection.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size
    )
    return int(_PEER_CREDENTIALS.unpack(credentials)[1])


class RemoteTrialSide:
    """A `LoggingTrial` (`automl.trial.session_protocols`) that another process carries out."""

    def __init__(self, address: str) -> None:
        """Connect to the trial. Raise NoTrialError when it does not run any more."""
        name, _, key = address.rpartition(":")
        self._lock = threading.Lock()  # guards the connection
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._lines = self._socket.makefile("rwb")
        try:
            self._socket.connect(f"\0{name}")
            greeting = self._ask({"trial": key})
        except (OSError, NoTrialError) as error:
            self.close()
            raise NoTrialError(f"its trial does not answer: {error}") from error
        self.number: int = greeting["number"]
        self.params: Params = greeting["params"]
        self.folder = Path(greeting["folder"])

    def log(
        self,
        points: Sequence[LoggedPoint] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Send the values of one call. Raise NoTrialError when the trial has ended."""
        if points or params or tags:
            self._ask({"points": points, "params": params or {}, "tags": tags or {}})

    def close(self) -> None:
        """Close the connection to the trial."""
        self._lines.close()
        self._socket.close()

    def _ask(self, message: Mapping[str, object]) -> dict[str, Any]:
        with self._lock:
            try:
                self._lines.write(json.dumps(message).encode() + b"\n")
                self._lines.flush()
                line = self._lines.readline()
            except OSError as error:
                raise NoTrialError(f"the trial's process is gone ({error.strerror})") from error
        answer: dict[str, Any] = json.loads(line) if line else {"error": "its process is gone"}
        if "error" in answer:
            raise NoTrialError(answer["error"])
        return answer


_server: LogServer | None = None
_server_lock = threading.Lock()


@contextmanager
def serve_trial(trial: MlflowTrial) -> Iterator[str | None]:
    """Yield the address that a trial's other processes log to; None on systems without one."""
    if not sys.platform.startswith("linux"):
        yield None
        return
    with process_server().serving(trial) as address:
        yield address


def process_server() -> LogServer:
    """Return the server of this process, made at the first call."""
    global _server
    with _server_lock:
        if _server is None or _server.pid != os.getpid():
            _server = LogServer()
        return _server
