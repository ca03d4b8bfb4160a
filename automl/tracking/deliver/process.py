"""The delivering process: `python -m automl.tracking.deliver.process`, started by `delivery.py`
alone.

Standard input: a line of JSON that names the store, one that says what to deliver, then `drain`
when all that is left shall be delivered. When it ends, the parent is gone, and so is this process,
at once: what it had not confirmed is delivered again by the next one. Standard output: a line of
JSON per message.
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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from automl.config import KeepCheckpoints
from automl.errors import AutoMLError, StudyInUseError
from automl.record.disk import opener
from automl.record.stop_signals import leave_to_sweep
from automl.record.texts import redact
from automl.tracking.deliver.confirmed_offset import DeliveryConfirmations
from automl.tracking.deliver.division import DeliveryDivision, SharedDeliveryJob
from automl.tracking.mlflow_loading import load_lean, set_delivery_environment, without_extras
from automl.tracking.tracking_uri import TrackingUri
from automl.tracking.view.run_update import StudyRef

if TYPE_CHECKING:
    from automl.tracking.deliver.mlflow_runs import MlflowRuns
    from automl.tracking.deliver.study_delivery import EventLogDelivery

DELIVERY_NICENESS = 10
"""Training goes first: at this niceness delivering costs it 2 %, as an equal 27 %."""
NICENESS_BELOW_RAY = 19
"""The same where Ray trains, whose processes are at 15."""
TICK_SECONDS = 0.7
"""Live runs are brought up to date this often."""
MAX_BACKOFF_SECONDS = 20.0
LOCK_WAIT_SECONDS = 3.0
"""For a predecessor that is just ending."""
DRAIN_COMMAND = "drain"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DeliveryJob:
    """What to deliver. The store was named before, by a `TrackingUri`.

    Both come by standard input: arguments are seen by everybody.
    """

    log: str
    checkpoints: str
    errors: str
    """File for all that is logged here."""
    fresh_from: int
    """Events from this byte of the log on cannot have been seen by an earlier process."""
    n_known_trials: int = 0
    """Trials the study had before: they may have a run, even if the log says nothing of them."""
    study: StudyRef | None = None
    """Whose runs they are; None: what the log says."""
    before_trials: bool = False
    """Trials of a study are to begin: what would go wrong with each of them is told before."""
    shared: SharedDeliveryJob | None = None
    """The part of a study that several sweeps deliver; None: all is this process's."""
    niceness: int = DELIVERY_NICENESS

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
    """Messages to the parent. Nothing else reaches its pipe: standard output is standard error."""

    def __init__(self) -> None:
        self._file: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._sending = threading.Lock()

    def send(self, **message: object) -> None:
        with self._sending:  # a refusal is told by the writer that meets it
            self._file.write(json.dumps(message) + "\n")
            self._file.flush()


def main() -> int:
    channel = ParentChannel()
    set_delivery_environment(os.environ)
    gc.disable()  # it would look at all that MLflow's modules make, again and again: 0.3 s
    load_lean("automl.tracking.deliver.study_delivery")  # MLflow loads while others prepare
    from automl.tracking.deliver.study_delivery import EventLogDelivery

    words = _words_of_parent()
    if (store := next(words, None)) is None:
        return 0  # the parent is gone already
    uri = TrackingUri(**json.loads(store))
    _open_early(uri)
    if (first := next(words, None)) is None:
        return 0  # there is nothing to deliver after all
    job = DeliveryJob.read(first)
    _write_errors_to(job.errors)
    draining = threading.Event()
    threading.Thread(target=_follow_parent, args=(words, draining), daemon=True).start()
    _log_redacted(uri)
    log = Path(job.log)
    try:
        confirmed = DeliveryConfirmations.open(log, LOCK_WAIT_SECONDS)
        if job.study is not None:
            confirmed.forget_others(job.study.uuid)  # before the parent hears of an offset
        runs = _open(uri, channel, job, confirmed.parent)
    except AutoMLError as error:
        channel.send(refused=str(error), in_use=isinstance(error, StudyInUseError))
        return error.exit_code
    channel.send(ready=True, confirmed=confirmed.offset)
    os.nice(job.niceness)  # only now: until the store is open the sweep waits for us
    gc.freeze()  # MLflow's modules, by the hundred thousand objects, are never garbage
    gc.enable()
    # It reads the log up to where MLflow is: a second after 10,000 trials, while others train.
    keep = KeepCheckpoints(job.checkpoints)
    study = EventLogDelivery(
        *(log, confirmed, runs, keep, job.fresh_from, job.study, job.n_known_trials),
        division=_division(job.shared),
    )
    _DeliveryLoop(study, channel, draining).run()
    return 0


def _division(job: SharedDeliveryJob | None) -> DeliveryDivision | None:
    if job is None:
        return None
    from automl.tracking.deliver.shared_division import SharedStudyDivision

    return SharedStudyDivision(job)


class _DeliveryLoop:
    """Read, deliver, confirm, wait; until all is delivered after the word to drain."""

    def __init__(
        self, study: EventLogDelivery, channel: ParentChannel, draining: threading.Event
    ) -> None:
        self._study = study
        self._channel = channel
        self._draining = draining
        self._backoff_seconds = 0.0
        self._confirmed = -1

    def run(self) -> None:
        while True:
            begun = time.monotonic()
            draining = self._draining.is_set()  # before reading: nothing is written after it
            more = self._study.read()
            if not self._deliver(everything=draining):
                self._back_off(draining)
            elif draining and not more:
                if self._has_ended():
                    return
                time.sleep(TICK_SECONDS)
            elif not more:
                self._draining.wait(max(0.0, TICK_SECONDS - (time.monotonic() - begun)))

    def _has_ended(self) -> bool:
        """Where others deliver, too, when they have, or do not."""
        if (rest := self._study.may_end()) is None:
            return False
        self._study.end()
        if rest:
            self._channel.send(trouble=rest)
        return True

    def _deliver(self, *, everything: bool) -> bool:
        from automl.tracking.mlflow_store import ValueNotTakenError

        try:
            self._study.deliver(everything=everything)
        except (ValueNotTakenError, OSError) as error:
            self._backoff_seconds = min(MAX_BACKOFF_SECONDS, max(1.0, 2 * self._backoff_seconds))
            if self._backoff_seconds == 1.0:
                logger.warning("MLflow does not take events: %s", error)
            self._tell_offset()  # runs that have vanished are delivered again: it may be lower
            self._channel.send(trouble=str(error))
            return False
        if self._backoff_seconds:
            logger.warning("MLflow takes events again")
            self._backoff_seconds = 0.0
            self._channel.send(trouble=None)
        self._tell_offset()
        return True

    def _back_off(self, draining: bool) -> None:
        """The word to drain ends the pause: the store may answer again, and nobody waits long."""
        if draining:
            time.sleep(self._backoff_seconds)
        elif self._draining.wait(self._backoff_seconds):
            self._backoff_seconds = 1.0

    def _tell_offset(self) -> None:
        if self._study.offset != self._confirmed:
            self._confirmed = self._study.offset
            self._channel.send(confirmed=self._confirmed)


def _open_early(uri: TrackingUri) -> None:
    """Open a database that is there while the parent still prepares: 1 s, or 0.05 the second time.

    What is wrong with it is told when it is opened for the study, so nothing is said here.
    """
    path = uri.sqlite_path
    if path is None or not path.exists() or path.stat().st_size == 0:
        return
    from automl.tracking.mlflow_store import open_client

    fd, before = os.open(os.devnull, os.O_WRONLY), os.dup(2)
    os.dup2(fd, 2)
    try:
        with contextlib.suppress(AutoMLError), without_extras():
            open_client(uri)
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(fd)


def _open(
    uri: TrackingUri, channel: ParentChannel, job: DeliveryJob, parent: str | None
) -> MlflowRuns:
    """Open the store. Raises AutoMLError."""
    from automl.tracking.deliver.artifact_check import check_artifacts
    from automl.tracking.deliver.mlflow_runs import MlflowRuns
    from automl.tracking.mlflow_loading import quicken_answers
    from automl.tracking.mlflow_store import open_client

    quicken_answers()

    def refused(text: str) -> None:
        logger.warning("MLflow will not take it: %s", text)
        channel.send(refusal=redact(text, uri.secrets))

    with _telling_warnings(uri, channel):
        client = open_client(uri)
        runs = MlflowRuns(client, uri, refused)
        keeps = job.checkpoints != KeepCheckpoints.none.value
        if uri.is_server and job.before_trials and keeps and job.study is not None:
            check_artifacts(client, runs, uri, job.study, parent)
    return runs


@contextmanager
def _telling_warnings(uri: TrackingUri, channel: ParentChannel) -> Iterator[None]:
    """While the store is opened, MLflow only logs why it tries again and again."""

    class Teller(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = " ".join(redact(record.getMessage(), uri.secrets).split())
            channel.send(trouble=text[:500])

    teller = Teller(logging.WARNING)
    logging.getLogger().addHandler(teller)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(teller)


def _words_of_parent() -> Iterator[str]:
    """Lines of standard input; by `os.read`, as a thread inside `sys.stdin` hinders the exit."""
    rest = b""
    while chunk := os.read(0, 65536):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line.decode() for line in lines)


def _follow_parent(words: Iterator[str], draining: threading.Event) -> None:
    for word in words:
        if word == DRAIN_COMMAND:
            draining.set()
    os._exit(1)  # the parent is gone; like a kill -9, which every step here is made for


class _RedactingFormatter(logging.Formatter):
    def __init__(self, uri: TrackingUri) -> None:
        super().__init__("%(asctime)s %(name)s: %(message)s")
        self._secrets = uri.secrets

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record), self._secrets)


def _write_errors_to(path: str) -> None:
    fd = opener(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(fd, 2)
    os.dup2(fd, 1)
    os.close(fd)


def _log_redacted(uri: TrackingUri) -> None:
    """All that is logged, MLflow's records and our own end included, goes to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_RedactingFormatter(uri))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    sys.excepthook = lambda kind, error, trace: logger.critical(
        "delivering failed", exc_info=(kind, error, trace)
    )


if __name__ == "__main__":
    leave_to_sweep()
    code = main()
    with contextlib.suppress(OSError):  # the disk of the file that errors go to is full
        sys.stdout.flush()
    os._exit(code)  # what is confirmed is on disk; to take MLflow apart would cost 0.3 s of a core
