"""From a config to the exit code of its sweep: parts are opened, and closed the other way round.

Where the package's own log lines go: all to `sweep.log`, warnings on screen too.
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
from automl.record.disk import opener
from automl.record.study_directory import make_name
from automl.record.texts import fit
from automl.running.display.display_failures import UnfailingDisplay, ViewFailureLog
from automl.running.display.live_display import Display, open_display
from automl.running.finish.automatic_refit import RunRefit
from automl.running.setup.machines import open_sweep_machines
from automl.running.setup.parts import checkpoint_store, open_study_directory, open_sweep_parts
from automl.running.setup.preparation import prepare_study
from automl.running.setup.prepared_config import PreparedStudy, RefitInputs
from automl.running.trials.sweep import SweepRunner
from automl.tracking.deliver.delivery import DelivererProcess


class _FitLineFormatter(logging.Formatter):
    """What is logged may hold a stranger's words."""

    def format(self, record: logging.LogRecord) -> str:
        return fit(super().format(record))


FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

logger = logging.getLogger("automl")


class _SweepLogFileHandler(logging.FileHandler):
    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=opener)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """A line that the disk does not take is lost: logging would print a traceback for it."""


class _DisplayLogHandler(logging.Handler):
    def __init__(self, display: Display) -> None:
        super().__init__(logging.WARNING)
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        self._display.say(record.getMessage())


@contextmanager
def sweep_log(path: Path, display: Display) -> Iterator[None]:
    """Attach both handlers to the package's logger, and take them off again."""
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
) -> int:
    """Run a sweep from its checks to its closing table; returns the exit code.

    `deliverer` is a process that loads MLflow already (see `warm_start.py`), `called` the function
    that
    the sweep was called with, `from_python` says that the same call goes on with it, `refit` says
    that it is a final training, and `train_again` makes one of what the sweep came to. Raises
    ConfigError before anything is written, and other AutoMLErrors for what breaks later, but not
    before every trial has ended; where one cannot be ended, TrialsLeftBehindError.
    """
    prepared = replace(prepare_study(config, called, refit), from_python=from_python)
    pictures = ViewFailureLog()
    if config.study.name is None:
        named = replace(config, study=replace(config.study, name=make_name()))
        prepared = replace(prepared, config=named)
    if (stored := checkpoint_store(prepared.config.study, "")) is not None:
        stored.check()
    with open_sweep_machines(prepared) as machines:
        reader = machines.reader
        _refuse_impossible(reader, prepared)
        with (
            open_study_directory(prepared.config.study, must_exist=resume) as directory,
            open_sweep_parts(
                prepared,
                directory,
                reader,
                stored_config=stored_config,
                deliverer=deliverer,
                nodes=machines.nodes,
            ) as parts,
            UnfailingDisplay(open_display(), pictures) as display,
            sweep_log(directory.files.sweep_log, display),
        ):
            return SweepRunner(parts, display, pictures, train_again).run()


def _refuse_impossible(reader: DeviceReader, prepared: PreparedStudy) -> None:
    """Raise ConfigError where no device, even an empty one, has the declared memory, or a trial is
    to have more GPUs than there are. The devices are not read for it where nothing is declared."""
    least = prepared.requests.least_request({device.kind for device in reader.addresses})
    if not least.memory_bytes and least.n_devices == 1:
        return
    reading = take_reading(reader, dict)
    now = reading.begun_seconds
    found = place_trial(least, reading, LedgerSnapshot(), prepared.limits, now_seconds=now)
    if isinstance(found, AdmissionRefusal) and found.kind is RefusalKind.NEVER:
        raise ConfigError(impossible_message(found))
