"""Opens the devices that a sweep uses, and reads them in one thread.

cpu    the machine
nvml   NVML's GPUs that CUDA_VISIBLE_DEVICES (or Slurm) shows and devices.only names
auto   NVML's GPUs that torch can use and devices.only names; the machine if there are none

Where trials may also run on the CPU (`devices.only=all`), the machine is read beside the GPUs.

`nvml.py` and `host.py` do the reading itself; `device_selection.py` interprets the settings.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence, Set
from contextlib import ExitStack
from dataclasses import replace
from typing import TypeAlias

from automl.config import DevicesConfig, DevicesKind
from automl.devices.device_reading import (
    DeviceReader,
    DeviceReadError,
    DeviceReading,
    DeviceSnapshot,
    HeldBytes,
    NodesReader,
    OtherPromises,
)
from automl.devices.device_selection import (
    are_named_by_number,
    devices_of_job,
    hides_all_devices,
    is_same_device,
    select_only,
    visible_devices,
)
from automl.devices.host import HostReader, find_starter, host_state
from automl.devices.nvml import NoNvmlLibraryError, NvmlMissingError, NvmlReader
from automl.devices.torch_gpus import torch_gpu_uuids
from automl.errors import ConfigError
from automl.trial import HOST_UUID, LOCAL_NODE, DeviceId

log = logging.getLogger(__name__)


class CompositeReader(DeviceReader):
    """Reads the devices of several readers as one list. A reader that fails is left out until it
    answers."""

    def __init__(self, readers: Sequence[DeviceReader]) -> None:
        self._readers = tuple(readers)
        self._failing: dict[DeviceReader, str] = {}

    @property
    def addresses(self) -> tuple[DeviceId, ...]:
        return tuple(address for reader in self._readers for address in reader.addresses)

    def read(self) -> tuple[DeviceSnapshot, ...]:
        """Return the devices of all readers that answer. Raises DeviceReadError where no reader
        does."""
        found: list[DeviceSnapshot] = []
        errors = []
        for reader in self._readers:
            try:
                found += reader.read()
                self._failing.pop(reader, None)
            except DeviceReadError as error:
                errors.append(str(error))
                self._warn(reader, str(error))
        if not found:
            raise DeviceReadError("; ".join(errors))
        return tuple(found)

    def close(self) -> None:
        """Close each reader, even if closing another one fails."""
        with ExitStack() as stack:
            for reader in self._readers:
                stack.callback(reader.close)

    def _warn(self, reader: DeviceReader, error: str) -> None:
        """Warn of each cause once, since readings come every second."""
        if self._failing.get(reader) != error:
            self._failing[reader] = error
            log.warning("some devices cannot be read, and get no new trial: %s", error)


__all__ = ["DeviceReadError", "DeviceReader", "ReaderThread", "open_device_reader", "take_reading"]


ReadOtherPromises: TypeAlias = Callable[[float], OtherPromises]
"""Returns what other sweeps have promised that a reading begun at this time may miss."""

Reserved: TypeAlias = Callable[[], HeldBytes]
"""Returns the memory that our own processes hold now."""

READING_SECONDS = 0.5
"""Time from one reading of the devices to the next."""
FIRST_READING_SECONDS = 30.0
"""How long a command that only shows the devices waits for the first answer of a driver."""
STOP_SECONDS = 2.0
"""How long stopping waits for a read; a read that hangs is left behind."""


def open_device_reader(config: DevicesConfig, *, beside_gpus: bool = False) -> DeviceReader:
    """Return the reader of the devices that the config allows. Raises ConfigError when there are
    none.

    `beside_gpus`: read the machine, too, where there are GPUs.
    """
    reader = _open(config)
    if beside_gpus and not any(address.on_host for address in reader.addresses):
        return CompositeReader((reader, HostReader()))
    return reader


def _open(config: DevicesConfig) -> DeviceReader:
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    if config.kind is DevicesKind.nvml:
        return _open_nvml(setting, config.names)
    if (
        config.kind is DevicesKind.auto
        and (reader := _open_auto(setting, config.names)) is not None
    ):
        return reader
    select_only(config.names, [HOST_UUID])
    return HostReader()


def _open_nvml(setting: str | None, wanted: Sequence[str]) -> NvmlReader:
    try:
        reader = NvmlReader()
    except NvmlMissingError as error:
        raise ConfigError(
            f"devices.only=nvml: {error}. Use devices.only=cpu to train on the CPU."
        ) from error
    present = _job_devices(setting, reader)
    try:
        shown = visible_devices(setting, present)
        if not shown:
            raise ConfigError(_nothing_shown(setting, present))
        order = _cuda_order(setting, shown, asked=are_named_by_number(wanted))
        reader.choose(select_only(wanted, shown, order), order)
    except ConfigError:
        reader.close()
        raise
    return reader


def _open_auto(setting: str | None, wanted: Sequence[str]) -> NvmlReader | None:
    """Return a reader of the GPUs that torch can use; None: the trials train on the machine."""
    if hides_all_devices(setting):
        return None
    try:
        reader = NvmlReader()
    except NoNvmlLibraryError:
        return None
    except NvmlMissingError as error:
        log.warning("devices.only=auto: no GPU is used: %s", error)
        return None
    try:
        order = torch_gpu_uuids() if reader.gpus else ()
        usable = _usable(reader, _job_devices(setting, reader), order)
        if usable:
            reader.choose(select_only(wanted, usable, order), order)
            return reader
    except ConfigError:
        reader.close()
        raise
    reader.close()
    return None


def _cuda_order(setting: str | None, shown: Sequence[str], *, asked: bool) -> Sequence[str]:
    """Return the shown GPUs in CUDA's order, as far as it is known without torch; else empty.

    Under devices.only=nvml torch is asked only if `devices.only` has numbers (`asked`).
    """
    is_list = setting is not None and setting.strip().upper().startswith(("GPU-", "MIG-"))
    if len(shown) == 1 or is_list or os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return shown  # CUDA counts in the order of the list, or in NVML's
    return torch_gpu_uuids() if asked else ()


def _job_devices(setting: str | None, reader: NvmlReader) -> Sequence[str]:
    """Return the GPUs that a batch system gave to this job, where CUDA_VISIBLE_DEVICES is not
    set."""
    job = os.environ.get("SLURM_JOB_GPUS") if setting is None else None
    return devices_of_job(job, [gpu.uuid for gpu in reader.gpus])


def _usable(
    reader: NvmlReader, present: Sequence[str], torch_sees: Sequence[str]
) -> tuple[str, ...]:
    """Return the GPUs that NVML and torch both see, in NVML's order and by its names."""
    if not reader.gpus:
        return ()
    usable = [uuid for uuid in present if any(is_same_device(uuid, t) for t in torch_sees)]
    if not usable:
        log.warning(
            "devices.only=auto: torch can use none of the GPUs (%s), so the CPU trains",
            ", ".join(f"{gpu.uuid} {gpu.name}" for gpu in reader.gpus),
        )
    return tuple(usable)


def _nothing_shown(setting: str | None, present: Sequence[str]) -> str:
    if not present:
        return "devices.only=nvml: NVML shows no GPU. Use devices.only=cpu to train on the CPU."
    return (
        f"devices.only=nvml: CUDA_VISIBLE_DEVICES={setting!r} hides every GPU. Unset it, or use "
        f"devices.only=cpu; there are {', '.join(present)}."
    )


class ReaderThread:
    """Takes a reading at an interval until stopped, and passes each to `on_reading` in this thread.

    A reading that fails is passed on with its error. While the driver hangs there is no new
    reading, and the last one grows old: admission sees this by its time.
    """

    def __init__(
        self,
        reader: DeviceReader,
        interval_seconds: float,
        reserved: Reserved,
        on_reading: Callable[[DeviceReading], None],
        elsewhere: ReadOtherPromises | None = None,
    ) -> None:
        self._reader = reader
        self._interval_seconds = interval_seconds
        self._reserved = reserved
        self._elsewhere = elsewhere or _no_promises_elsewhere
        self._on_reading = on_reading
        self._stopping = threading.Event()
        # A daemon, so that a driver that hangs cannot keep the program from ending.
        self._thread = threading.Thread(target=self._run, name="device-reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_seconds: float = STOP_SECONDS) -> bool:
        """Stop the thread, and return whether it ended in time.

        The reader stays open: the code that opened it closes it.
        """
        self._stopping.set()
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            reading = take_reading(self._reader, self._reserved, self._elsewhere)
            if not self._stopping.is_set():  # after `stop` nobody wants a reading
                self._on_reading(reading)
            self._stopping.wait(self._interval_seconds)


def _no_promises_elsewhere(begun_seconds: float) -> OtherPromises:
    return {}


def take_reading(
    reader: DeviceReader, reserved: Reserved, elsewhere: ReadOtherPromises = _no_promises_elsewhere
) -> DeviceReading:
    """Take one reading of the devices.

    The memory of our own processes is read just before and just after the driver is asked. Promises
    of other sweeps are read before it: a promise that is withdrawn after that is memory that the
    driver shows. Nodes of a cluster have done all of this themselves.
    """
    if isinstance(reader, NodesReader):
        return reader.take()
    begun = time.monotonic()
    promised = elsewhere(begun)
    before = dict(reserved())
    try:
        devices, error = reader.read(), None
    except DeviceReadError as failure:
        devices, error = (), str(failure)
    except Exception as failure:  # without this thread trials would wait without a message
        log.debug("a reading failed in a way that was not foreseen", exc_info=True)
        devices, error = (), f"{type(failure).__name__}: {failure}"
    after = dict(reserved())
    devices = tuple(
        _with_ranks(device, {process.pid for _, process in after}) for device in devices
    )
    host = None if all(device.address.on_host for device in devices) else host_state()
    hosts = {} if host is None else {LOCAL_NODE: host}
    return DeviceReading(begun, devices, before, after, promised, hosts, error)


def _with_ranks(device: DeviceSnapshot, ours: Set[int]) -> DeviceSnapshot:
    """Return the device with `find_starter` set on the processes that one of our processes
    started."""
    if not ours or device.address.node != LOCAL_NODE:
        return device
    processes = tuple(
        p if p.pid in ours else replace(p, started_by=find_starter(p.pid, ours))
        for p in device.processes
    )
    return replace(device, processes=processes)
