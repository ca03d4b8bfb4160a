"""The process that delivers a study to MLflow; only `delivery.py` starts it, with `python -m`.

It reads standard input: a line of JSON that names the store, a line with the job, then `drain` when
all the rest shall be delivered. The end of the input means that the parent is gone; the process
then ends at once, and the next one delivers again whatever was not confirmed. It writes one line of
JSON per message to standard output.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, TextIO

from automl.config import KeepCheckpoints, StudyConfig
from automl.errors import AutoMLError, StudyInUseError
from automl.record.disk import public_file_opener
from automl.record.stop_signals import ignore_stop_signals
from automl.record.texts import redact_text
from automl.tracking.deliver.confirmed_offset import DeliveryConfirmations
from automl.tracking.mlflow_loading import load_lean, set_delivery_environment, without_extras
from automl.tracking.tracking_uri import TrackingUri
from automl.tracking.view.run_update import StudyRef

if TYPE_CHECKING:
    from automl.tracking.deliver.mlflow_runs import MlflowRuns
    from automl.tracking.deliver.shared_delivery import SharedConfirmations, SharedStudyDelivery
    from automl.tracking.deliver.study_delivery import EventLogDelivery

DELIVERY_NICENESS = 10
"""Niceness of the process. Delivery then slows training by 2 %, at equal niceness by 27 %."""
NICENESS_BELOW_RAY = 19
"""Niceness of the process where Ray trains, whose own processes are at 15."""
TICK_SECONDS = 0.7
"""Seconds between two updates of runs whose trials are running."""
MIN_BACKOFF_SECONDS = 0.1
"""Seconds until MLflow is tried again after it took some of the updates, not all."""
FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 1.0, 20.0
"""Seconds until it is tried again after it took none; they double each time."""
LOCK_WAIT_SECONDS = 30.0
"""Seconds to wait for another process that delivers the study, which mostly ends soon."""
SWEEP_WAIT_SECONDS = 3.0
"""Seconds to wait for the process of a sweep, which goes on unless it is just ending."""
DRAIN_COMMAND = "drain"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SharedDeliveryJob:
    """The part of a study in PostgreSQL that a sweep delivers, as sent to its deliverer."""

    url: str
    """The URL of the database, with credentials; never show it."""
    study: str
    """The name of the study in the database."""
    sweep: str
    """The id of the sweep that holds the trials.

    A new id holds none, so that the trials that other sweeps hold are left to them.
    """

    @classmethod
    def of(cls, study: StudyConfig, sweep: str | None = None) -> SharedDeliveryJob | None:
        """Return the job of a sweep, or of a command that runs no trials; None if the study is not
        shared."""
        if not study.shared or study.storage is None or study.name is None:
            return None
        return cls(study.storage, study.name, sweep or uuid.uuid4().hex)


@dataclass(frozen=True)
class DeliveryJob:
    """What the process is to deliver, sent after the store's `TrackingUri`.

    Both come by standard input, as every user of the machine can see a process's arguments.
    """

    log: str
    checkpoints: str
    errors: str
    """Path of the file for all log records of the process."""
    fresh_from: int
    """Byte of the log from which on no earlier process can have seen the events."""
    n_known_trials: int = 0
    """Number of trials that the study had before; the log may not show that they have a run."""
    study: StudyRef | None = None
    """The study that the runs belong to; None to take it from the log."""
    before_trials: bool = False
    """Whether trials are about to begin: faults that would hit each of them are reported before."""
    shared: SharedDeliveryJob | None = None
    """The part of a study that several sweeps share; None if this process delivers all of it."""
    niceness: int = DELIVERY_NICENESS
    lock_wait_seconds: float = LOCK_WAIT_SECONDS

    def line(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, line: str) -> DeliveryJob:
        values = json.loads(line)
        study, shared = values.pop("study"), values.pop("shared")
        return cls(
            **values,
            study=None if study is None else StudyRef(**study),
            shared=None if shared is None else SharedDeliveryJob(**shared),
        )


class ParentChannel:
    """Sends messages to the parent. All other output goes to standard error, not to this pipe."""

    def __init__(self) -> None:
        self._file: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._sending = threading.Lock()

    def send(self, **message: object) -> None:
        with self._sending:  # any writer's thread may send a refusal
            self._file.write(json.dumps(message) + "\n")
            self._file.flush()


def main() -> int:
    channel = ParentChannel()
    set_delivery_environment(os.environ)
    lines, draining = SimpleQueue[str](), threading.Event()
    threading.Thread(target=_follow_parent, args=(lines, draining), daemon=True).start()
    gc.disable()  # else it scans all objects of MLflow's modules again and again: 0.3 s
    load_lean("automl.tracking.deliver.study_delivery")  # while the parent prepares
    from automl.tracking.deliver.study_delivery import EventLogDelivery

    uri = TrackingUri(**json.loads(lines.get()))
    _open_database_early(uri)
    job = DeliveryJob.read(lines.get())
    _write_errors_to(job.errors)
    _log_redacted(uri)
    log = Path(job.log)
    try:
        wait_seconds = job.lock_wait_seconds
        shared = None if job.shared is None else _open_shared(log, job.shared, wait_seconds)
        confirmed = shared or DeliveryConfirmations.open(log, wait_seconds)
        if job.study is not None:
            confirmed.forget_others(job.study.uuid)  # before the parent hears of an offset
        runs = _open_runs(uri, channel, job, confirmed.parent)
    except AutoMLError as error:
        channel.send(refused=str(error), in_use=isinstance(error, StudyInUseError))
        return error.exit_code
    channel.send(ready=True, confirmed=confirmed.offset)
    os.nice(job.niceness)  # only now, as the sweep waits until the store is open
    gc.freeze()  # MLflow's modules, by the hundred thousand objects, are never garbage
    gc.enable()
    # This reads the log up to the confirmed offset: a second after 10,000 trials, while they train.
    keep = KeepCheckpoints(job.checkpoints)
    study: EventLogDelivery | SharedStudyDelivery
    if shared is None:
        known = job.fresh_from, job.study, job.n_known_trials
        study = EventLogDelivery(log, confirmed, runs, keep, *known)
    else:
        study = shared.delivery(log, runs, keep, job.study)
    _DeliveryLoop(study, channel, draining).run()
    return 0


def _open_shared(log: Path, job: SharedDeliveryJob, wait_seconds: float) -> SharedConfirmations:
    from automl.tracking.deliver.shared_delivery import SharedConfirmations

    confirmed = SharedConfirmations.open(log, wait_seconds)
    confirmed.connect(**vars(job))
    return confirmed


class _DeliveryLoop:
    """Reads, delivers, confirms and waits, until all is delivered after the command to drain."""

    def __init__(
        self,
        study: EventLogDelivery | SharedStudyDelivery,
        channel: ParentChannel,
        draining: threading.Event,
    ) -> None:
        self._study = study
        study.note_taken = self._note_taken
        self._channel = channel
        self._draining = draining
        self._backoff_seconds = 0.0
        self._confirmed = -1

    def run(self) -> None:
        while True:
            begun = time.monotonic()
            draining = self._draining.is_set()  # before reading: nothing is written after it
            more = self._deliver(everything=draining)
            if more is None:
                self._back_off(draining)
            elif draining and not more:
                if self._has_ended():
                    return
                time.sleep(TICK_SECONDS)
            elif not more:
                self._draining.wait(max(0.0, TICK_SECONDS - (time.monotonic() - begun)))

    def _has_ended(self) -> bool:
        """End the delivery if it may end; return whether it did. Other sweeps may come first."""
        if (rest := self._study.may_end()) is None:
            return False
        self._study.end()
        if rest:
            self._channel.send(trouble=rest)
        return True

    def _deliver(self, *, everything: bool) -> bool | None:
        """Read and deliver events; return whether there may be more. None: it has to be repeated,
        as MLflow takes nothing, or the disk gives nothing."""
        from automl.tracking.mlflow_store import NotDeliveredError

        n_left = 0
        try:
            more = self._study.read()
            n_left = self._study.n_left
            self._study.deliver(everything=everything)
        except (NotDeliveredError, OSError) as error:
            if not self._backoff_seconds:
                logger.warning("MLflow does not take events: %s", error)
            self._send_offset()  # it may be lower: runs that have vanished are delivered again
            if self._study.n_left < n_left:  # a network that loses some of what it carries
                self._channel.send(trouble=None)  # patience begins anew
                self._backoff_seconds = MIN_BACKOFF_SECONDS
            else:
                longer_seconds = max(FIRST_BACKOFF_SECONDS, 2 * self._backoff_seconds)
                self._backoff_seconds = min(MAX_BACKOFF_SECONDS, longer_seconds)
            self._channel.send(trouble=str(error))
            return None
        if self._backoff_seconds:
            logger.warning("MLflow takes events again")
            self._backoff_seconds = 0.0
            self._channel.send(trouble=None)
        self._send_offset()
        return more

    def _note_taken(self) -> None:
        """Let the parent's patience begin anew: a round of many trials takes long after trouble."""
        if self._backoff_seconds:
            self._channel.send(trouble=None)

    def _back_off(self, draining: bool) -> None:
        """Pause after a failure; the command to drain ends the pause, so that nobody waits long."""
        if draining:
            time.sleep(self._backoff_seconds)
        elif self._draining.wait(self._backoff_seconds):
            self._backoff_seconds = FIRST_BACKOFF_SECONDS

    def _send_offset(self) -> None:
        if self._study.offset != self._confirmed:
            self._confirmed = self._study.offset
            self._channel.send(confirmed=self._confirmed)


def _open_database_early(uri: TrackingUri) -> None:
    """Open an existing database while the parent prepares (1 s), without showing errors.

    One of an older MLflow is left alone: it is migrated later, where that can be said.
    """
    path = uri.sqlite_path
    if path is None or not path.exists() or path.stat().st_size == 0:
        return
    from automl.tracking.mlflow_store import is_older_database, open_client

    if is_older_database(path):
        return
    fd, before = os.open(os.devnull, os.O_WRONLY), os.dup(2)
    os.dup2(fd, 2)
    try:
        with contextlib.suppress(AutoMLError), without_extras():
            open_client(uri)
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(fd)


def _open_runs(
    uri: TrackingUri, channel: ParentChannel, job: DeliveryJob, parent: str | None
) -> MlflowRuns:
    """Open the store, and check that it takes artifacts. Raise AutoMLError."""
    from automl.tracking.deliver.artifact_check import check_artifacts
    from automl.tracking.deliver.mlflow_runs import MlflowRuns
    from automl.tracking.mlflow_loading import quicken_answers
    from automl.tracking.mlflow_store import open_client

    quicken_answers()

    def report_refusal(text: str) -> None:
        logger.warning("MLflow will not take it: %s", text)
        channel.send(refusal=redact_text(text, uri.secrets))

    with _send_warnings(uri, channel):
        client = open_client(uri, lambda text: channel.send(note=redact_text(text, uri.secrets)))
        runs = MlflowRuns(client, uri, report_refusal)
        keeps = job.checkpoints != KeepCheckpoints.none.value
        if uri.is_server and job.before_trials and keeps and job.study is not None:
            check_artifacts(client, runs, uri, job.study, parent)
    return runs


@contextmanager
def _send_warnings(uri: TrackingUri, channel: ParentChannel) -> Iterator[None]:
    """Send log warnings to the parent within the block: MLflow only logs why it tries again."""

    class WarningSender(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = " ".join(redact_text(record.getMessage(), uri.secrets).split())
            channel.send(trouble=text[:500])

    sender = WarningSender(logging.WARNING)
    logging.getLogger().addHandler(sender)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(sender)


def _follow_parent(lines: SimpleQueue[str], draining: threading.Event) -> None:
    """Take the parent's lines, from the first moment on: it may die while MLflow is loaded.

    `os.read`, as a thread inside `sys.stdin` hinders the exit.
    """
    rest = b""
    while chunk := os.read(0, 65536):
        *whole, rest = (rest + chunk).split(b"\n")
        for line in map(bytes.decode, whole):
            draining.set() if line == DRAIN_COMMAND else lines.put(line)
    os._exit(1)  # the parent is gone; every step here withstands a kill -9


class _RedactingFormatter(logging.Formatter):
    def __init__(self, uri: TrackingUri) -> None:
        super().__init__("%(asctime)s %(name)s: %(message)s")
        self._secrets = uri.secrets

    def format(self, record: logging.LogRecord) -> str:
        return redact_text(super().format(record), self._secrets)


def _write_errors_to(path: str) -> None:
    fd = public_file_opener(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(fd, 2)
    os.dup2(fd, 1)
    os.close(fd)


def _log_redacted(uri: TrackingUri) -> None:
    """Send all log records, MLflow's and a final exception included, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_RedactingFormatter(uri))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    sys.excepthook = lambda kind, error, trace: logger.critical(
        "delivering failed", exc_info=(kind, error, trace)
    )


if __name__ == "__main__":
    ignore_stop_signals()
    code = main()
    with contextlib.suppress(OSError):  # the disk of the error file is full
        sys.stdout.flush()
    os._exit(code)  # confirmations are on disk; unloading MLflow costs 0.3 s of a core
