"""The sweep's side of delivery to MLflow: starts the delivering process, follows it, ends it.

This module never imports mlflow, and never waits for it while trials run. The process
(`process.py`) reads the event log by itself and reports only its progress and its troubles. A
process that dies is started again. With `tracking.uri=none` a `NoDelivery` takes the place; the
event log keeps all that MLflow would get.
"""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from automl.config import TrackingConfig
from automl.errors import AutoMLError, ConfigError, StudyInUseError
from automl.record.disk import public_file_opener
from automl.record.studies import is_study_held
from automl.record.study_files import StudyFiles
from automl.record.texts import Say, counted, say_on_stdout
from automl.tracking.deliver.confirmed_offset import LineCounter, read_delivered_runs
from automl.tracking.deliver.process import (
    DELIVERY_NICENESS,
    DRAIN_COMMAND,
    LOCK_WAIT_SECONDS,
    SWEEP_WAIT_SECONDS,
    DeliveryJob,
    SharedDeliveryJob,
)
from automl.tracking.long_step import long_step
from automl.tracking.tracking_uri import TrackingUri, resolve_uri
from automl.tracking.view.run_update import StudyRef
from automl.tracking.view.shared_view import runs_view_address

READY_SECONDS = 60.0
"""Seconds that `sync` and a new sweep wait for MLflow to open its store."""
SILENT_SECONDS = 3.0
"""Seconds after which it is said that a store elsewhere is waited for."""
PATIENCE_SECONDS = 20.0
"""Seconds of unbroken trouble after which draining gives up, as for a dead server."""
MAX_DEATHS = 5
"""Number of deaths without a delivered event after which the process is not started again."""
RESTART_SECONDS = 0.5
"""Base of the pause before the process is started again; it doubles with each death."""

logger = logging.getLogger(__name__)

DelivererProcess: TypeAlias = subprocess.Popen[bytes]


class DeliverySupervisor:
    """The delivery of one study. Start it before the event log is written, and drain it after."""

    def __init__(
        self, log: Path, uri: TrackingUri, job: DeliveryJob, warm: DelivererProcess
    ) -> None:
        self._log = log
        self._uri = uri
        self._job = job
        self._warm: DelivererProcess | None = warm
        path = uri.sqlite_path
        self._new_store = path if path is not None and not path.exists() else None
        self._errors_path = Path(job.errors)
        self._folder = Path.cwd()
        """The folder that a relative URI starts from, even if the objective changes it later."""
        self._written = LineCounter(log)
        self._delivered = LineCounter(log)
        self._changed = threading.Condition()  # guards all attributes below
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False
        self._confirmed = 0
        self._least_confirmed: int | None = None
        """The smallest offset that was confirmed: MLflow gets the events behind it from here."""
        self._refused: AutoMLError | None = None
        self._trouble: str | None = None
        self._trouble_since = 0.0
        self._n_refusals = 0
        self._last_refusal = ""
        self._draining = False
        self._drains_until = math.inf
        self._stopping = False
        self._ended = False
        self._follower = threading.Thread(target=self._follow, name="delivery", daemon=True)

    @classmethod
    def start(
        cls,
        study_directory: Path,
        config: TrackingConfig,
        warm: DelivererProcess | None = None,
        *,
        study: StudyRef | None = None,
        n_known_trials: int = 0,
        before_trials: bool = False,
        shared: SharedDeliveryJob | None = None,
        niceness: int = DELIVERY_NICENESS,
        lock_wait_seconds: float = LOCK_WAIT_SECONDS,
    ) -> DeliverySupervisor:
        """Start delivering `events.log` of the study directory; return at once.

        `warm`, if given, is a process from `spawn_deliverer`, which belongs to this delivery from
        now on. The arguments after it are fields of a `DeliveryJob`. Raise ConfigError when nothing
        could ever be delivered to the URI.
        """
        uri = resolve_uri(config)
        files = StudyFiles(study_directory.absolute())
        log, errors = files.events, files.delivery_log
        _check_writable(errors)
        job = DeliveryJob(
            log=str(log),
            checkpoints=config.checkpoints.value,
            errors=str(errors),
            fresh_from=_size(log),
            n_known_trials=n_known_trials,
            study=study,
            before_trials=before_trials,
            shared=shared,
            niceness=niceness,
            lock_wait_seconds=lock_wait_seconds,
        )
        delivery = cls(log, uri, job, warm or spawn_deliverer(Path.cwd(), uri))
        delivery._warn_of_new_store()
        delivery._follower.start()
        return delivery

    def _warn_of_new_store(self) -> None:
        """Say that the study's runs are made again where the URI names no store that has them."""
        if self._new_store is not None and read_delivered_runs(self._log) is not None:
            logger.warning(
                "%s: there is no %s; it is made, and gets the study's runs anew. To go on with the "
                "runs of before, give the address of their store.",
                self._uri,
                self._new_store,
            )

    def address(self) -> str | None:
        """Return the address of the runs on MLflow's server; None without runs or server."""
        known = read_delivered_runs(self._log)
        if known is None or not self._uri.is_server:
            return None
        return f"{self._uri.without_credentials}/{runs_view_address(known.experiment)}"

    def wait_usable(self, timeout_seconds: float) -> None:
        """Return when MLflow is known to take events; raise as `wait_ready` does.

        If the database does not exist yet, this returns at once, provided that its folder takes a
        file: nothing else can refuse, and making the database takes 2 s, in which trials can train.
        """
        if self._new_store is None:
            self.wait_ready(timeout_seconds)
            return
        folder = self._new_store.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise ConfigError(
                f"{self._uri}: {folder} takes no file ({error.strerror}); name a file in another "
                "folder."
            ) from error

    def wait_ready(self, timeout_seconds: float) -> None:
        """Return when MLflow has answered; say that it is waited for, if it lies elsewhere.

        Raise ConfigError when it does not, StudyInUseError when another process delivers the study.
        """
        with self._changed:

            def is_settled() -> bool:
                return self._ready or self._ended

            silent_seconds = min(SILENT_SECONDS, timeout_seconds)
            if not self._changed.wait_for(is_settled, silent_seconds):
                if self._uri.sqlite_path is None:
                    text = "%s: waiting for its answer, for %.0f s at most"
                    logger.warning(text, self._uri, timeout_seconds)
                self._changed.wait_for(is_settled, timeout_seconds - silent_seconds)
            if self._ready:
                return
            if self._refused is not None:
                raise self._refused
            cause = self._trouble or f"no answer within {timeout_seconds:.0f} s"
            raise ConfigError(
                f"{self._uri}: MLflow cannot use it ({cause}); start that server, mend the "
                "address, or choose another store, such as sqlite:///mlflow.db."
            )

    def lag(self) -> int:
        """Return the number of events that are written but not confirmed by MLflow."""
        with self._changed:
            return max(0, self._written.count() - self._delivered.count(self._confirmed))

    def n_delivered(self) -> int:
        """Return the number of events that MLflow has taken since the start."""
        with self._changed:
            least, latest = self._least_confirmed, self._confirmed
        if least is None:
            return 0
        counter = LineCounter(self._log)
        n_before = counter.count(least)
        return counter.count(latest) - n_before

    def trouble(self) -> str | None:
        """Return what keeps MLflow from taking events, or what it has refused; None if neither."""
        with self._changed:
            if self._trouble is None and self._n_refusals:
                return (
                    f"{counted(self._n_refusals, 'value')} refused, the last: {self._last_refusal} "
                    f"(see {self._errors_path})"
                )
            return self._trouble

    def drain(self, timeout_seconds: float) -> bool:
        """Deliver all that is in the log and end; return whether all was delivered.

        Give up at the time limit, or when MLflow has taken nothing for `PATIENCE_SECONDS`.
        """
        started = time.monotonic()
        self.hurry(timeout_seconds)
        with self._changed:
            self._draining = True
            self._send(DRAIN_COMMAND)
            while not (self._ended or self._has_lost_patience(started)):
                left_seconds = self._drains_until - time.monotonic()
                if left_seconds <= 0:
                    break
                self._changed.wait(min(0.5, left_seconds))
            has_ended = self._ended and self._trouble is None
        self.stop()
        # The log of a shared study grows while other sweeps work on it.
        return has_ended if self._job.shared else self.lag() == 0

    def hurry(self, seconds: float) -> None:
        """Let draining take `seconds` from now at most. For any thread."""
        with self._changed:
            self._drains_until = min(self._drains_until, time.monotonic() + seconds)
            self._changed.notify_all()

    def stop(self) -> None:
        """End the process at once; events that it had not confirmed stay in the log. Idempotent."""
        with self._changed:
            self._stopping = True
            if self._process is not None and self._process.poll() is None:
                self._process.kill()
            self._changed.notify_all()
        if self._follower.is_alive():
            self._follower.join()

    def __enter__(self) -> DeliverySupervisor:
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()

    def _has_lost_patience(self, started: float) -> bool:
        """Return whether MLflow has taken nothing for `PATIENCE_SECONDS` of the draining."""
        if self._trouble is None:
            return False
        since = self._trouble_since if self._troubled_last > started else started
        return time.monotonic() - since > PATIENCE_SECONDS

    def _send(self, line: str) -> None:
        """Send a line to the process, if it runs. The caller holds the lock."""
        if self._process is not None:
            _write_line(self._process, line)

    # --- the following thread --------------------------------------------------------------------

    def _follow(self) -> None:
        try:
            self._keep_alive()
        except OSError as error:
            with self._changed:
                self._set_trouble(f"the delivering process cannot be started: {error}")
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _keep_alive(self) -> None:
        """Run the process until it ends as it should, or has died too often."""
        n_deaths = 0
        while n_deaths < MAX_DEATHS:
            confirmed = self._confirmed
            if self._run_once():
                return
            n_deaths = 1 if self._confirmed > confirmed else n_deaths + 1
            fresh_from = _size(Path(self._job.log))
            self._job = replace(self._job, fresh_from=fresh_from, before_trials=False)
            with self._changed:
                pause_seconds = RESTART_SECONDS * 2**n_deaths
                if self._changed.wait_for(lambda: self._stopping, pause_seconds):
                    return

    def _run_once(self) -> bool:
        """Start the process and take its messages until it ends; return whether it stays ended."""
        process, self._warm = self._warm or spawn_deliverer(self._folder, self._uri), None
        assert process.stdout is not None
        with process:
            with self._changed:
                self._process = process
                if self._stopping:
                    process.kill()
                self._send(self._job.line())
                if self._draining:
                    self._send(DRAIN_COMMAND)
            for line in process.stdout:
                self._take(json.loads(line))
            with self._changed:
                self._process = None
        with self._changed:
            if self._stopping or self._refused is not None or process.returncode == 0:
                return True
            self._set_trouble(
                f"the delivering process died (exit {process.returncode}); see {self._errors_path}"
            )
            # A process that ended by itself before it was ready would do so again. A process that
            # was killed (by the kernel, for want of memory) would not.
            return not self._ready and process.returncode > 0

    def _take(self, message: dict[str, Any]) -> None:
        with self._changed:
            match message:
                case {"confirmed": int(offset)}:
                    self._ready |= "ready" in message
                    self._confirmed = offset
                    least = self._least_confirmed
                    self._least_confirmed = offset if least is None else min(least, offset)
                    self._set_trouble(None)
                case {"trouble": trouble}:
                    self._set_trouble(trouble)
                case {"note": str(text)}:
                    logger.warning("%s", text)
                case {"refusal": str(text)}:
                    self._n_refusals += 1
                    self._last_refusal = text
                case {"refused": str(text), "in_use": bool(in_use)}:
                    self._refused = (StudyInUseError if in_use else ConfigError)(text)
                    self._set_trouble(text)
            self._changed.notify_all()

    def _set_trouble(self, trouble: str | None) -> None:
        self._troubled_last = time.monotonic()
        if self._trouble is None and trouble is not None:
            self._trouble_since = self._troubled_last
        self._trouble = trouble


def _check_writable(errors: Path) -> None:
    """Raise ConfigError if the file cannot be written; the process could only die of it."""
    try:
        with open(errors, "ab", opener=public_file_opener):
            pass
    except OSError as error:
        raise ConfigError(
            f"{errors} cannot be written ({error.strerror}), where MLflow's errors are kept: mend "
            "that, or do this as the user whose study it is."
        ) from error


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def deliver_study(
    study_directory: Path,
    config: TrackingConfig,
    say: Say = say_on_stdout,
    study: StudyRef | None = None,
    shared: SharedDeliveryJob | None = None,
) -> int:
    """Deliver the events of a study that MLflow does not have yet; return the exit code.

    Raise ConfigError or StudyInUseError when it cannot begin, AutoMLError when MLflow stops taking
    events on the way.
    """
    log = StudyFiles(study_directory).events
    wait_seconds = SWEEP_WAIT_SECONDS if is_study_held(study_directory) else LOCK_WAIT_SECONDS
    if not log.exists():
        raise ConfigError(
            f"study.name={study_directory.name}: {study_directory} holds no study; see what is in "
            f"{study_directory.parent}, or name another folder with study.dir=…"
        )
    with (
        long_step(f"delivering study {study_directory.name} to MLflow", say) as step,
        DeliverySupervisor.start(
            study_directory,
            config,
            study=study,
            shared=shared,
            lock_wait_seconds=wait_seconds,
        ) as delivery,
    ):
        step.detail = lambda: f"{counted(delivery.lag(), 'event')} to go"
        delivery.wait_ready(READY_SECONDS)
        if not delivery.drain(math.inf):
            trouble = delivery.trouble()
            if trouble is None:  # MLflow answers, but the log has no readable SweepStarted
                raise AutoMLError(
                    f"{log}: the line that begins a sweep cannot be read; "
                    "resume the study, which writes it again."
                )
            raise AutoMLError(
                f"MLflow has not taken {counted(delivery.lag(), 'event')} ({trouble}); nothing is "
                "lost: run the same command again when it answers."
            )
        n_events = delivery.n_delivered()
    say(f"MLflow has all of study {study_directory.name}: delivered events: {n_events}")
    return 0


def spawn_deliverer(folder: Path, uri: TrackingUri) -> DelivererProcess:
    """Start a process that loads MLflow, opens the store if it exists, and waits for its job.

    The process has a session of its own, so that Ctrl-C in the terminal does not reach it. It ends
    with its parent.
    """
    root = str(Path(__file__).parents[3])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(
        # -P: without it a user's file named mlflow.py would be imported in place of MLflow.
        [sys.executable, "-P", "-m", "automl.tracking.deliver.process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )
    _write_line(process, json.dumps(vars(uri)))
    return process


def _write_line(process: DelivererProcess, line: str) -> None:
    """Write one line to the process, unbuffered."""
    assert process.stdin is not None
    try:
        os.write(process.stdin.fileno(), line.encode() + b"\n")
    except BrokenPipeError:
        logger.debug("the delivering process has just died")  # the following thread handles this


class NoDelivery:
    """A `DeliverySupervisor` that delivers nothing, for `tracking.uri=none`."""

    def address(self) -> None:
        """Return None: no address shows the runs."""

    def wait_usable(self, timeout_seconds: float) -> None:
        """Return at once: nothing has to be usable."""

    def lag(self) -> int:
        return 0

    def trouble(self) -> None:
        """Return None: there is no trouble."""

    def drain(self, timeout_seconds: float) -> bool:
        return True

    def hurry(self, seconds: float) -> None:
        """Do nothing: nothing takes time."""

    def stop(self) -> None:
        """Do nothing: no process runs."""
