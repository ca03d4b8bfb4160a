"""Words the refusals: why a trial does not start now, for people, and as a kind for programs.

A refusal of a trial that never fits carries its excess, log(needed / room), from which the sampler
learns where memory ends. Over most of a space the memory of a trial is a product of powers of its
params (widths, depth, batch), so its logarithm changes evenly along params searched on a log scale.
It does not depend on the unit or on the GPU's size; and trials 1.2 and 12 times too large differ
without the second hiding the first. At 0 a trial just fits; above 0 it does not.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

from automl.admission.accounting.account import DeviceAccount
from automl.admission.accounting.host_share import HostCapacity
from automl.admission.governor import SharingLimit
from automl.admission.requests import OOM_GROWTH
from automl.devices.device_reading import DeviceProcess, DeviceReading, DeviceSnapshot
from automl.trial import HOST_UUID, LOCAL_NODE, DeviceId, ResourceRequest


def memory_excess(needed_bytes: int, room_bytes: int) -> float:
    """Return log(needed / room) of a request larger than the room; always above 0."""
    room = max(room_bytes, 1)
    return math.log(max(needed_bytes, room + 1) / room)


def excess_after_out_of_memory(
    held_bytes: int, predicted_bytes: int | None, room_bytes: int
) -> tuple[float, bool]:
    """Return the excess of a trial that ran out of memory with all the room to itself, and whether
    it is a lower bound.

    What the trial needs was not seen, only that it is more than the room. A prediction beyond the
    room, which has come true so far, is the best that is known. Without one, the need is what the
    next try would have asked for, and never less than what the trial held: a guess, whose size says
    nothing.
    """
    is_guess = predicted_bytes is None or predicted_bytes <= room_bytes
    needed = math.ceil(OOM_GROWTH * room_bytes) if is_guess else predicted_bytes
    assert needed is not None
    return memory_excess(max(held_bytes, needed), room_bytes), is_guess


GIB = 1024**3
_N_SHOWN = 8
"""Most devices that one refusal names as taking no trial now."""


class RefusalKind(enum.Enum):
    """Tells programs why a trial does not start now."""

    FULL = "full"
    """The most trials that may run are running, which is the normal case."""
    NO_READING = "no reading"
    """The devices cannot be read now."""
    NO_ROOM = "no room"
    NEVER = "never"
    """No device could ever hold the trial, even an empty one."""
    LOST = "lost"
    """No device that is left could hold it; a lost one could, if it came back."""
    DRAINED = "drained"
    """No device that is well could hold it; a faulty one, which may well recover, could."""
    HELD = "held"
    """No trial at all may start now, whatever the devices have."""


@dataclass(frozen=True)
class AdmissionRefusal:
    """Why a trial does not start now, in words for the display."""

    reason: str
    kind: RefusalKind = RefusalKind.NO_ROOM
    in_the_way: frozenset[DeviceId] = frozenset()
    """Devices on which our idle processes hold the memory that is asked for."""
    excess: float | None = None
    """The `memory_excess` of a trial that is too large for every device."""
    of_host: bool = False
    """Whether a GPU would take the trial, while its machine lacks a core or main memory for its
    process."""
    for_devices: bool = True
    """Whether the trial would start with more devices."""


SURVEYING_REFUSAL = AdmissionRefusal(
    "waiting: its objective is run once on fake tensors, to see what memory it takes",
    for_devices=False,
)


def at_limit_refusal(max_concurrent_trials: int) -> AdmissionRefusal:
    """Return the refusal that as many trials run as may."""
    return AdmissionRefusal(
        f"waiting: all places are taken, admission.max_concurrent_trials={max_concurrent_trials}",
        RefusalKind.FULL,
        for_devices=False,
    )


def full_by_pace_refusal(a: DeviceAccount, sharing: SharingLimit) -> AdmissionRefusal:
    """Return `waiting: 2 trials share GPU-8f…: a third made them 4 % slower together`."""
    trials = "1 trial is on" if a.n_trials == 1 else f"{a.n_trials} trials share"
    return AdmissionRefusal(f"waiting: {trials} {label(a.device)}: {sharing.why}", RefusalKind.FULL)


def all_cores_taken_refusal(n_cores: int, n_for_trials: int) -> AdmissionRefusal:
    """Return the refusal that machines train as many trials as their cores allow.

    `n_for_trials` of the cores are not kept for GPUs.
    """
    limit = f"as many as the cores allow ({n_cores})"
    if n_for_trials < n_cores:
        limit = (
            f"as many on the CPU as the cores allow ({n_cores}, of which "
            f"{n_cores - n_for_trials} kept for GPUs)"
        )
    return AdmissionRefusal(f"waiting: all places are taken, {limit}", RefusalKind.FULL)


def all_gpus_taken_refusal(max_per_gpu: int) -> AdmissionRefusal:
    """Return the refusal that every GPU has as many trials as it takes."""
    limit = f"admission.max_trials_per_device={max_per_gpu}"
    return AdmissionRefusal(f"waiting: all places are taken, {limit}", RefusalKind.FULL)


def unfit_devices(
    reading: DeviceReading | None, stale_seconds: float, now_seconds: float
) -> AdmissionRefusal | None:
    """Return a refusal for a reading that is missing, failed or old.

    An unfit reading admits nothing, and stops nothing.
    """
    if reading is None:
        return _no_reading("waiting: for the first reading of the devices")
    if reading.error is not None:
        return _no_reading(f"waiting: the devices cannot be read: {reading.error}")
    age = now_seconds - reading.begun_seconds
    if age > stale_seconds:
        return _no_reading(
            f"waiting: the last reading of the devices is {age:.1f} s old, "
            f"and one older than {stale_seconds:g} s admits no trial"
        )
    return None if reading.devices else _no_reading("waiting: no device is left")


def no_reading_refusal(request: ResourceRequest) -> AdmissionRefusal:
    """Return the refusal that no device on which the trial can run can be read now."""
    kinds = " or ".join(sorted(kind.name for kind in request.kinds))
    return _no_reading(f"waiting: no {kinds} can be read now")


def no_such_devices_refusal(request: ResourceRequest, n_most: int) -> AdmissionRefusal:
    """Return the refusal that no node has as many devices of a kind as are asked for."""
    kinds = " or ".join(sorted(kind.name for kind in request.kinds))
    return AdmissionRefusal(
        f"{request.n_devices} devices ({kinds}) asked, but no machine has more than {n_most}",
        RefusalKind.NEVER,
    )


def too_large_refusal(request: ResourceRequest, largest: DeviceAccount) -> AdmissionRefusal:
    """Return the refusal of a request that is too large for every device.

    `largest` is the n-th largest device, where the request asks for n devices.
    """
    assert request.memory_bytes is not None
    each = "" if request.n_devices == 1 else f" on each of {request.n_devices} devices"
    where = "the largest device" if not each else f"each of the {request.n_devices} largest devices"
    return AdmissionRefusal(
        f"{gib_text(request.memory_bytes)} asked{each}, but at most "
        f"{gib_text(largest.empty_room_bytes)} fit "
        f"on {where} ({label(largest.device)})",
        RefusalKind.NEVER,
        excess=memory_excess(request.memory_bytes, largest.empty_room_bytes),
    )


def impossible_message(never: AdmissionRefusal) -> str:
    """Return the message to the user whose settings ask more for each trial than `never` allows."""
    if never.excess is None:
        return f"admission.devices_per_trial: {never.reason}; give each trial fewer."
    return f"admission.request: {never.reason}; declare less."


def only_on_drained_refusal(
    request: ResourceRequest, drained: Sequence[DeviceSnapshot], kind: RefusalKind
) -> AdmissionRefusal:
    """Return the refusal of a request that fits on none of the devices that are left."""
    faults = "; ".join(f"{label(d)}: {d.fault}" for d in drained)
    return AdmissionRefusal(
        f"waiting: {_needs(request)}, for which no device is left ({faults})", kind
    )


def no_host_room_refusal(
    node: str, host: HostCapacity, idle: frozenset[DeviceId]
) -> AdmissionRefusal:
    """Return the refusal for a GPU that has room while its machine has none.

    `idle`: devices there with processes in which nothing runs.
    """
    name = "the host" if node == LOCAL_NODE else f"the host of {node}"
    if not host.has_cores:
        return AdmissionRefusal(
            f"waiting: all cores of {name} are busy, with {host.n_running} running",
            of_host=True,
        )
    return AdmissionRefusal(
        f"waiting: {gib_text(host.process_bytes)} of main memory asked for its process, "
        f"{gib_text(max(0, int(host.room_bytes)))} left on {name} beside {host.n_running} running",
        in_the_way=idle,
        of_host=True,
    )


def all_closed(
    devices: Sequence[DeviceSnapshot], in_the_way: frozenset[DeviceId] = frozenset()
) -> AdmissionRefusal:
    """Return the refusal that none of these devices takes a trial now."""
    closed = [text for device in devices if (text := _why_closed(device)) is not None]
    shown = [*closed[:_N_SHOWN], *([f"{len(closed)} in all"] if len(closed) > _N_SHOWN else [])]
    return AdmissionRefusal(f"waiting: {'; '.join(shown)}", in_the_way=in_the_way)


def no_room_even_on_refusal(
    roomiest: DeviceAccount, request: ResourceRequest, in_the_way: frozenset[DeviceId]
) -> AdmissionRefusal:
    """Return the refusal by the roomiest device among those that are not closed."""
    needs = _needs(request)
    if roomiest.exclusive:
        return AdmissionRefusal(
            f"waiting: {needs}; a trial of unknown size has {label(roomiest.device)} to itself",
            in_the_way=in_the_way,
        )
    if roomiest.probing and request.joins_at_bytes is not None:
        return AdmissionRefusal(
            f"waiting: {needs}; another trial of unknown size has joined others on "
            f"{label(roomiest.device)} and has not reported yet",
            in_the_way=in_the_way,
        )
    most = roomiest.device.max_processes
    if most is not None and roomiest.n_processes >= most:
        return AdmissionRefusal(
            f"waiting: {label(roomiest.device)} takes one process (its compute mode is "
            f"EXCLUSIVE_PROCESS), and has {_tenant(roomiest)}",
            in_the_way=in_the_way,
        )
    if request.undisturbed:
        needs += " (it ran out of memory while others held more)"
    room = gib_text(max(0, roomiest.room_bytes))
    text = f"waiting: {needs}, {room} room on {label(roomiest.device)}"
    if roomiest.kept_bytes:
        text += f"; {gib_text(roomiest.kept_bytes)} kept for trials on GPUs"
    if roomiest.n_trials:
        text += f"; {gib_text(roomiest.hold_bytes)} reserved by {roomiest.n_trials} running"
    if (holder := _largest_holder(roomiest)) is not None:
        text += f"; {holder}"
    elif roomiest.foreign_bytes:
        text += f"; {gib_text(roomiest.foreign_bytes)} held by others"
    return AdmissionRefusal(text, in_the_way=in_the_way)


def gib_text(size_bytes: int) -> str:
    """Return a size for people, in GiB."""
    return f"{size_bytes / GIB:.1f} GiB"


def label(device: DeviceSnapshot) -> str:
    """Return a device for people: `host`, or the beginning of its UUID and its name."""
    address = device.address
    text = HOST_UUID if address.on_host else f"{address.uuid[:12]}… ({device.name})"
    return text if address.node == LOCAL_NODE else f"{text} of {address.node}"


def _no_reading(reason: str) -> AdmissionRefusal:
    return AdmissionRefusal(reason, RefusalKind.NO_READING, for_devices=False)


def _why_closed(device: DeviceSnapshot) -> str | None:
    """Return why a device takes no trial at all now; None: it takes some."""
    if device.fault is not None:
        return f"{label(device)} takes no new trial: {device.fault}"
    if device.closed is not None:
        return f"{label(device)} is {device.closed}"
    if device.max_processes == 0:
        return f"{label(device)} takes no process: its compute mode is PROHIBITED"
    return None


def _tenant(a: DeviceAccount) -> str:
    own = {process.pid for process in a.own_processes}
    others = [p for p in a.device.processes if p.computes and p.owner not in own]
    if a.n_trials or not others:
        return "one of this sweep"
    return _name(others[0])


def _needs(request: ResourceRequest) -> str:
    n = request.n_devices
    if request.memory_bytes is None:
        asked = "a device to itself asked" if n == 1 else f"{n} devices to itself asked"
        if request.joins_at_bytes is None:
            return asked
        return f"{asked}, or {gib_text(request.joins_at_bytes)} beside others, as most trials held"
    return f"{gib_text(request.memory_bytes)} asked" + (
        "" if n == 1 else f" on each of {n} devices"
    )


def _largest_holder(a: DeviceAccount) -> str | None:
    own = {process.pid for process in a.own_processes}
    known = [p for p in a.device.processes if p.used_bytes and p.owner not in own]
    if not known or not a.foreign_bytes:
        return None
    p = max(known, key=lambda p: p.used_bytes or 0)
    return f"{gib_text(p.used_bytes or 0)} held by {_name(p)}"


def _name(p: DeviceProcess) -> str:
    return f"pid {p.pid} ({p.name or '?'}, user {p.user or '?'})"
