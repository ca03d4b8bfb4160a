"""Keeps the trials that run in this process, and takes what their other processes log.

A call of MLflow's belongs to the trial of its run, else to the trial of its thread. A thread that
the objective started has no trial of its own: its calls belong to the process's only trial.

A program as objective, or a process that an objective starts, finds an address in its environment
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
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from automl.errors import StorageError
from automl.tracking.inside.runs import LoggedRun, TrialRuns
from automl.trial import LoggedPoint, Params
from automl.trial.session_protocols import LoggingTrial

logger = logging.getLogger(__name__)


class NoTrialError(LookupError):
    """Raised when it is unknown which trial a call belongs to, or when the trial has ended."""


@dataclass
class MlflowTrial:
    """A trial and the runs that its objective made so far."""

    side: LoggingTrial
    runs: TrialRuns
    lock: threading.RLock = field(default_factory=threading.RLock)
    """The lock that guards the trial's runs, for reading and for changing them."""
    pid: int = field(default_factory=os.getpid)
    ended: bool = False

    def folder(self, run: LoggedRun) -> Path:
        """Return the folder that a run's artifacts go to."""
        return self.side.folder / run.label

    def tell(
        self,
        points: Sequence[LoggedPoint] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Pass values on to the sweep. Raise NoTrialError when the trial has ended."""
        with self.lock:
            if self.ended:
                raise NoTrialError("the trial has ended")
            self.side.log(points, params, tags)

    def end(self) -> None:
        with self.lock:
            self.ended = True


_thread_trial: ContextVar[MlflowTrial | None] = ContextVar("automl_trial", default=None)
_running_trials: list[MlflowTrial] = []
_shown_remarks: set[str] = set()
_waiting_remarks: list[str] = []
"""Remarks from a time when no trial ran: a module may be loaded only to be looked at."""
_lock = threading.Lock()  # guards the three variables above


@contextmanager
def register_trial_of_thread(side: LoggingTrial) -> Iterator[MlflowTrial]:
    """Register a trial as the one of this thread, for the block."""
    trial = MlflowTrial(side, TrialRuns(side.params))
    token = _thread_trial.set(trial)
    _add_trial(trial)
    try:
        yield trial
    finally:
        trial.end()
        with _lock:
            _running_trials.remove(trial)
        _thread_trial.reset(token)


def join_trial(side: LoggingTrial) -> MlflowTrial:
    """Register a trial that another process carries out, for the rest of this process's life."""
    trial = MlflowTrial(side, TrialRuns(side.params))
    _add_trial(trial)
    return trial


def _add_trial(trial: MlflowTrial) -> None:
    with _lock:
        _running_trials.append(trial)
        waiting = _waiting_remarks[:]
        _waiting_remarks.clear()
    for text in waiting:
        _show_remark(text)


def current_trial() -> MlflowTrial:
    """Return the trial of this thread, else the process's only one. Raise NoTrialError."""
    trials = _trials_of_process()
    own = _thread_trial.get()
    if own in trials:
        return own
    if len(trials) == 1:
        return trials[0]
    if trials:
        raise NoTrialError(
            "several trials run in this process, and this thread was started by one of them: "
            "begin the run in the trial's own thread, and give its run_id, or use "
            "execution=workers."
        )
    raise NoTrialError(
        "no trial runs in this process: log in the process that called the objective, or set "
        "MLFLOW_TRACKING_URI for this one."
    )


def has_trials() -> bool:
    """Return whether this process runs a trial or has joined one."""
    return bool(_trials_of_process())


def find_trial_of_run(run_id: str) -> tuple[MlflowTrial, LoggedRun]:
    """Return the trial that began this run, and the run. Raise NoTrialError if there is none."""
    for trial in _trials_of_process():
        # This takes no lock, as other trials may hold theirs for long.
        if (run := trial.runs.get(run_id)) is not None:
            return trial, run
    raise NoTrialError(f"Run '{run_id}' is none of a trial that runs in this process.")


def remark_once(text: str) -> None:
    """Show a remark to the user once: now if a trial runs, else when the next trial begins."""
    with _lock:
        if text in _shown_remarks:
            return
        _shown_remarks.add(text)
        if not _running_trials:
            _waiting_remarks.append(text)
            return
    _show_remark(text)


def _show_remark(text: str) -> None:
    logger.warning("MLflow inside the objective: %s.", text)


def _trials_of_process() -> list[MlflowTrial]:
    """Return the trials of this process; a process that was forked has none of its parent's."""
    with _lock:
        return [trial for trial in _running_trials if trial.pid == os.getpid()]


LOG_ADDRESS_VARIABLE = "AUTOML_LOGS_TO"
_MAX_LINE_BYTES = 1 << 26
_PEER_CREDENTIALS = struct.Struct("3i")
"""Layout of a peer's credentials: process, user and group."""


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
    """A `LoggingTrial` (`automl.trial.library_redirect`) that another process carries out."""

    def __init__(self, address: str) -> None:
        """Connect to the trial. Raise NoTrialError if it no longer runs."""
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
