"""Runs a sweep from its config to its exit code: opens the parts, logs to `sweep.log`, closes the
parts.

All log lines of the package go to `sweep.log`, warnings to the display, too. What the sweep does
while it runs is in `running/runner.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path

from automl.admission.accounting.ledger import LedgerSnapshot
from automl.admission.placement_policy import place_trial
from automl.admission.refusals import AdmissionRefusal, RefusalKind, impossible_message
from automl.config import Config
from automl.devices.device_reader import take_reading
from automl.devices.device_reading import DeviceReader
from automl.errors import ConfigError
from automl.objectives.function_call import CalledFunction
from automl.record.disk import public_file_opener
from automl.record.signal_receiver import signal_receiver
from automl.record.study_directory import make_study_name
from automl.record.texts import fit_text
from automl.running.features.feature import RunRefit
from automl.running.opening.machines import checkpoint_store
from automl.running.opening.parts import (
    edits_so_far,
    open_study_directory,
    open_sweep_machines,
    open_sweep_parts,
)
from automl.running.prepare.preparation import prepare_study
from automl.running.prepare.prepared_config import PreparedStudy, RefitInputs
from automl.running.runner import SweepRunner
from automl.terminal.live_display import (
    Display,
    UnfailingDisplay,
    ViewFailureLog,
    open_display,
)
from automl.tracking.deliver.delivery import DelivererProcess


class _FitLineFormatter(logging.Formatter):
    """Formats log lines so that text from outside cannot break them."""

    def format(self, record: logging.LogRecord) -> str:
        return fit_text(super().format(record))


FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

logger = logging.getLogger("automl")


class _SweepLogFileHandler(logging.FileHandler):
    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=public_file_opener)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Drop a line that the disk does not take, for which logging would print a traceback."""


class _DisplayLogHandler(logging.Handler):
    def __init__(self, display: Display) -> None:
        super().__init__(logging.WARNING)
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        self._display.say(record.getMessage())


@contextmanager
def sweep_log(path: Path, display: Display) -> Iterator[None]:
    """Attach both handlers to the package's logger, and detach them afterwards."""
    level = logger.level
    logger.setLevel(logging.INFO)
    handlers: list[logging.Handler] = [_DisplayLogHandler(display)]
    logger.addHandler(handlers[0])
    try:
        handlers.append(_SweepLogFileHandler(path, encoding="utf-8"))
        handlers[1].setFormatter(_FitLineFormatter(FORMAT))
        logger.addHandler(handlers[1])
    except OSError as error:
        logger.warning("%s cannot be written (%s); the sweep goes on", path, error.strerror)
    try:
        yield
    finally:
        logger.setLevel(level)
        for handler in handlers:
            logger.removeHandler(handler)
            with suppress(OSError):
                handler.close()


def run_sweep(
    config: Config,
    stored_config: str,
    *,
    resume: bool = False,
    deliverer: DelivererProcess | None = None,
    called: CalledFunction | None = None,
    from_python: bool = False,
    refit: RefitInputs | None = None,
    train_again: RunRefit | None = None,
    called_seconds: float | None = None,
) -> int:
    """Run a sweep from its checks to its closing table. Return the exit code.

    `deliverer`: a process that loads MLflow already (`warm_start.py`). `called`: the function that
    the sweep was called with. `from_python`: the same call resumes the sweep. `refit`: the sweep is
    a final training. `train_again`: trains the sweep's result again. `called_seconds` (monotonic):
    when the sweep's time began to count; None: now.

    Raises ConfigError before anything is written. Other AutoMLErrors are raised for later failures,
    once every trial has ended; TrialsLeftBehindError if one cannot be ended.
    """
    prepared = prepare_study(config, called, refit, edits_so_far(config.study))
    prepared = replace(prepared, from_python=from_python)
    view_failures = ViewFailureLog()
    if config.study.name is None:
        named = replace(config, study=replace(config.study, name=make_study_name()))
        prepared = replace(prepared, config=named)
    if (stored := checkpoint_store(prepared.config.study, "")) is not None:
        stored.check()
    with signal_receiver().phases(), open_sweep_machines(prepared) as machines:
        _refuse_impossible(machines.reader, prepared)
        with (
            open_study_directory(prepared.config.study, must_exist=resume) as directory,
            open_sweep_parts(
                prepared,
                directory,
                machines,
                stored_config=stored_config,
                deliverer=deliverer,
            ) as parts,
            UnfailingDisplay(open_display(), view_failures) as display,
            sweep_log(directory.files.sweep_log, display),
        ):
            return SweepRunner(parts, display, view_failures, train_again, called_seconds).run()


def _refuse_impossible(reader: DeviceReader, prepared: PreparedStudy) -> None:
    """Raise ConfigError if no device, even an empty one, has the declared memory, or if a trial
    wants more GPUs than there are. The devices are read only if something is declared."""
    least = prepared.make_requests().least_request({device.kind for device in reader.addresses})
    if not least.memory_bytes and least.n_devices == 1:
        return
    reading = take_reading(reader, dict)
    now = reading.begun_seconds
    found = place_trial(least, reading, LedgerSnapshot(), prepared.limits, now_seconds=now)
    if isinstance(found, AdmissionRefusal) and found.kind is RefusalKind.NEVER:
        raise ConfigError(impossible_message(found))
