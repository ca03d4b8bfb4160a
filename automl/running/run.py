"""From a config to the exit code of its sweep: parts are opened, and closed the other way round."""

from __future__ import annotations

from dataclasses import replace

from automl.admission.ledger import LedgerSnapshot
from automl.admission.policy import place
from automl.admission.reasons import Refusal, RefusalKind, impossible
from automl.config import Config
from automl.devices.device import DeviceReader
from automl.devices.reader import take_reading
from automl.errors import ConfigError
from automl.record.directory import make_name
from automl.running.at_end import TrainAgain
from automl.running.display import open_display
from automl.running.machines import open_machines
from automl.running.parts import open_directory, open_parts, stored_of
from automl.running.pictures import Pictures, UnfailingDisplay
from automl.running.prepare import prepare
from automl.running.prepared import Prepared, Refit
from automl.running.sweep import Sweep
from automl.running.sweep_log import sweep_log
from automl.tracking.delivery import DelivererProcess
from automl.training.called import CalledFunction


def run_sweep(
    config: Config,
    stored_config: str,
    *,
    resume: bool = False,
    deliverer: DelivererProcess | None = None,
    called: CalledFunction | None = None,
    from_python: bool = False,
    refit: Refit | None = None,
    train_again: TrainAgain | None = None,
) -> int:
    """Run a sweep from its checks to its closing table; returns the exit code.

    `deliverer` is a process that loads MLflow already (see `warm.py`), `called` the function that
    the sweep was called with, `from_python` says that the same call goes on with it, `refit` says
    that it is a final training, and `train_again` makes one of what the sweep came to. Raises
    ConfigError before anything is written, and other AutoMLErrors for what breaks later, but not
    before every trial has ended; where one cannot be ended, TrialsLeftBehindError.
    """
    prepared = replace(prepare(config, called, refit), from_python=from_python)
    pictures = Pictures()
    if config.study.name is None:
        named = replace(config, study=replace(config.study, name=make_name()))
        prepared = replace(prepared, config=named)
    if (stored := stored_of(prepared.config.study, "")) is not None:
        stored.check()
    with open_machines(prepared) as machines:
        reader = machines.reader
        _refuse_impossible(reader, prepared)
        with (
            open_directory(prepared.config.study, must_exist=resume) as directory,
            open_parts(
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
            return Sweep(parts, display, pictures, train_again).run()


def _refuse_impossible(reader: DeviceReader, prepared: Prepared) -> None:
    """Raise ConfigError where no device, even an empty one, has the declared memory, or a trial is
    to have more GPUs than there are. The devices are not read for it where nothing is declared."""
    least = prepared.requests.least({device.kind for device in reader.addresses})
    if not least.memory_bytes and least.n_devices == 1:
        return
    reading = take_reading(reader, dict)
    now = reading.begun_seconds
    found = place(least, reading, LedgerSnapshot(), prepared.limits, now_seconds=now)
    if isinstance(found, Refusal) and found.kind is RefusalKind.NEVER:
        raise ConfigError(impossible(found))
