"""From a config to what is printed: prepare, measure, table, advice."""

from __future__ import annotations

import contextlib

from automl.config import Config, DevicesConfig, ObjectiveKind, check
from automl.devices.host import usable_cores
from automl.devices.reader import open_reader
from automl.errors import AutoMLError
from automl.record.texts import fit_line
from automl.running.console import CommandConsole, open_console
from automl.running.gain.advice import Machine, advise
from automl.running.gain.measure import (
    HOST_DEVICE,
    USERS_WAY_SECONDS,
    WAY_SECONDS,
    Device,
    Row,
    Task,
    measure,
)
from automl.running.gain.sizes import Size, sizes
from automl.running.gain.table import COLUMNS, table_rows
from automl.running.gain.ways import not_varied, ways
from automl.running.prepare import prepare
from automl.running.prepared import Prepared
from automl.running.readable import params_text
from automl.training.plan import TrainingPlan
from automl.trial import DeviceId, Params


def report(config: Config) -> None:
    """Time, and print what came of it. Raises AutoMLError, also where nothing could be timed."""
    check(
        config.objective.kind is not ObjectiveKind.command,
        "objective",
        "command",
        "gain times single steps, and a program shows none. Ask it of a function of your own "
        "(objective=python), or of the built-in training.",
    )
    console = open_console()
    prepared = prepare(config)
    for note in prepared.notes:
        console.say(fit_line(note))
    if prepared.plan.n_models > 1:
        console.say(f"timed is one of the {prepared.plan.n_models} models of a trial")
        prepared = prepared.of_one_model
    devices, found = devices_of(config.devices), sizes_of(prepared)
    for size in found:
        console.say(f"{size.name}: {params_text(size.params)}")
    users = config.objective.kind is not ObjectiveKind.builtin
    rows = measure(
        prepared.setup,
        tasks_of(prepared, devices, found),
        lambda line: console.say(line, "dim"),
        way_seconds=USERS_WAY_SECONDS if users else WAY_SECONDS,
    )
    _print(console, prepared.plan, rows, devices)
    if all(row.timing.step_seconds is None for row in rows):
        raise AutoMLError(f"gain: nothing could be timed: {rows[0].timing.trouble}.")
    console.say(advise(rows, machine_of(config)).text)


def devices_of(config: DevicesConfig) -> tuple[Device, ...]:
    """The host, and one GPU of each name. Raises ConfigError."""
    with contextlib.closing(open_reader(config)) as reader:
        snapshots = reader.read()
    gpus: dict[str, DeviceId] = {}
    for snapshot in snapshots:
        if not snapshot.address.on_host:
            gpus.setdefault(snapshot.name, snapshot.address)
    return (HOST_DEVICE, *(Device(address, name) for name, address in gpus.items()))


def sizes_of(prepared: Prepared) -> tuple[Size, ...]:
    """Small, middle and large of the space."""

    def work(params: Params) -> int | None:
        return prepared.plan.request(params, prepared.dataset).memory_bytes

    return sizes(prepared.space, work)


def tasks_of(
    prepared: Prepared, devices: tuple[Device, ...], found: tuple[Size, ...]
) -> list[Task]:
    """All that is timed."""

    def task(device: Device, size: Size) -> Task:
        n_cores, pack = usable_cores(), prepared.config.execution.pack
        chosen = ways(
            prepared.plan, size.params, on_host=device.on_host, n_cores=n_cores, pack=pack
        )
        return Task(device, size, chosen)

    return [task(device, size) for device in devices for size in found]


def machine_of(config: Config) -> Machine:
    """What bounds how many trials run at once."""
    admission, study = config.admission, config.study
    most = min(admission.max_concurrent_trials or study.total, study.total)
    return Machine(usable_cores(), most, precision_stays=study.name is not None)


def _print(
    console: CommandConsole, plan: TrainingPlan, rows: list[Row], devices: tuple[Device, ...]
) -> None:
    console.table(COLUMNS, table_rows(rows), n_left=3)
    notes = ["gain: against the first line of the size; fixed: the share that does not shrink"]
    if devices == (HOST_DEVICE,):
        notes.append("no GPU is seen here, so that nothing tells what one would gain")
    if (note := not_varied(plan)) is not None:
        notes.append(note)
    for note in notes:
        console.say(note, "dim")
