"""Whether a trial may start now, and on which device. Pure: no lock, no clock, no NVML, no torch.

    reserved(p)  what our process p holds of the device
    hold(p)    = max(reserved(p), Σ max(request, observed peak) over its admitted trials)
    foreign    = max(0, total − free − Σ reserved(p))
    room       = total − foreign − Σ hold(p) − contexts not yet visible − headroom
    admit      ⇔ request ≤ room  and  the reading is fresh  and  running < limit

`reserved` is read just before and just after the driver is asked, while it may change: `foreign`
is computed with the smaller and `hold` with the larger, so that both err on the safe side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from automl.admission.ledger import LedgerView
from automl.devices.device import DeviceSnapshot, Reading
from automl.trial import HOST_UUID, Placement

GIB = 1024**3

ALL_TAKEN = "waiting: all places are taken"
"""How a refusal begins that is as it should be."""

CUDA_CONTEXT_BYTES = 600 * 1024**2
"""What a new process takes of a GPU before its first tensor. Measured 400–560 MiB on current
drivers and torch; counted only until the driver shows the real figure."""


@dataclass(frozen=True)
class Request:
    """Memory that a trial asks for on its device."""

    memory_bytes: int | None
    """None: not known; then it gets a GPU to itself, and on the host counts by cores only."""
    alone: bool = False
    """The last attempt of a trial that ran out of memory: the largest device, to itself."""


@dataclass(frozen=True)
class Limits:
    """What the config sets for admission."""

    max_concurrent_trials: int
    headroom_bytes: int
    stale_seconds: float


@dataclass(frozen=True)
class Refusal:
    """Why a trial does not start now, in words for the display."""

    reason: str
    never: bool = False
    """No device could ever hold it, even empty."""


@dataclass(frozen=True)
class DeviceAccount:
    """Where the memory of a device is, by one reading and the ledger. Sizes in bytes."""

    device: DeviceSnapshot
    foreign_bytes: int
    hold_bytes: int
    pending_bytes: int
    headroom_bytes: int
    n_trials: int
    exclusive: bool
    own_pids: frozenset[int]

    @property
    def room_bytes(self) -> int:
        return (
            self.device.total_bytes
            - self.foreign_bytes
            - self.hold_bytes
            - self.pending_bytes
            - self.headroom_bytes
        )


def account(
    device: DeviceSnapshot, reading: Reading, ledger: LedgerView, headroom_bytes: int
) -> DeviceAccount:
    """Add up one device. See the head of this module for the formula."""
    reservations = ledger.on(device.uuid)
    visible = {p.pid: p.used_bytes for p in device.processes if p.used_bytes is not None}
    before = _reserved_by_pid(device.uuid, reading.reserved_before)
    after = _reserved_by_pid(device.uuid, reading.reserved_after)
    low = {pid: min(before.get(pid, 0), after.get(pid, 0)) for pid in {*before, *after}}
    high = {pid: max(before.get(pid, 0), after.get(pid, 0)) for pid in low}
    promised: dict[int | None, int] = {}
    for r in reservations:
        promised[r.pid] = promised.get(r.pid, 0) + r.counted_bytes
        if r.pid is not None and r.pid not in high and r.pid in visible:
            # A process that cannot report counts by the driver's own word.
            low[r.pid] = high[r.pid] = visible[r.pid] or 0
    hold = sum(max(high.get(p, 0), promised.get(p, 0)) for p in {*high, *promised} if p is not None)
    pending = 0
    if device.uuid != HOST_UUID:
        pending = CUDA_CONTEXT_BYTES * ledger.n_pending_contexts(device.uuid, reading.begun_seconds)
    return DeviceAccount(
        device=device,
        foreign_bytes=max(0, device.total_bytes - device.free_bytes - sum(low.values())),
        hold_bytes=hold + promised.get(None, 0),
        pending_bytes=pending,
        headroom_bytes=headroom_bytes,
        n_trials=len(reservations),
        exclusive=any(r.placement.exclusive for r in reservations),
        own_pids=frozenset(p for p in {*high, *promised} if p is not None),
    )


def place(
    request: Request,
    reading: Reading | None,
    ledger: LedgerView,
    limits: Limits,
    *,
    now_seconds: float,
    pid: int | None = None,
) -> Placement | Refusal:
    """Choose a device, or say why there is none.

    Trials spread over devices first (fewest trials, then least busy): idle GPUs are the greater
    waste, and first come, first served already keeps large requests from starving. Among equals
    the device left with the least room is taken, so that large requests find one whole.

    Parameters
    ----------
    pid: the process that would train it, where it is known before (threads of this process).
    now_seconds: `time.monotonic()`.
    """
    if (stale := _unfit(reading, limits, now_seconds)) is not None:
        return stale
    assert reading is not None
    accounts = [account(d, reading, ledger, limits.headroom_bytes) for d in reading.devices]
    if (never := _never(request, accounts)) is not None:
        return never
    if len(ledger.reservations) >= limits.max_concurrent_trials:
        return at_limit(limits)
    if request.alone:
        accounts = [max(accounts, key=lambda a: a.device.total_bytes)]
    fitting = [a for a in accounts if _fits(request, a, ledger, pid)]
    if not fitting:
        return Refusal(_why(request, accounts))
    best = min(fitting, key=lambda a: (a.n_trials, _load(a), a.room_bytes, a.device.uuid))
    return _placement(request, best)


def at_limit(limits: Limits) -> Refusal:
    """As many run as may."""
    return Refusal(f"{ALL_TAKEN}, admission.max_concurrent_trials={limits.max_concurrent_trials}")


def _reserved_by_pid(uuid: str, reserved: Mapping[tuple[str, int], int]) -> dict[int, int]:
    return {pid: size for (device, pid), size in reserved.items() if device == uuid}


def _unfit(reading: Reading | None, limits: Limits, now_seconds: float) -> Refusal | None:
    """A reading that is missing, failed or old admits nothing (and stops nothing)."""
    if reading is None:
        return Refusal("waiting: for the first reading of the devices")
    if reading.error is not None:
        return Refusal(f"waiting: the devices cannot be read: {reading.error}")
    age = now_seconds - reading.begun_seconds
    if age > limits.stale_seconds:
        return Refusal(
            f"waiting: the last reading of the devices is {age:.1f} s old, "
            f"admission.stale_seconds={limits.stale_seconds:g}"
        )
    if not reading.devices:
        return Refusal("waiting: no device is left")
    return None


def _empty_room(a: DeviceAccount) -> int:
    """Room on the device if nothing else were there."""
    context = 0 if a.device.uuid == HOST_UUID else CUDA_CONTEXT_BYTES
    return a.device.total_bytes - a.headroom_bytes - context


def _never(request: Request, accounts: list[DeviceAccount]) -> Refusal | None:
    largest = max(accounts, key=_empty_room)
    if request.memory_bytes is None or request.memory_bytes <= _empty_room(largest):
        return None
    return Refusal(
        f"{gib(request.memory_bytes)} asked, but at most {gib(_empty_room(largest))} fit on the "
        f"largest device ({label(largest.device)})",
        never=True,
    )


def _fits(request: Request, a: DeviceAccount, ledger: LedgerView, pid: int | None) -> bool:
    if a.exclusive or (_wants_all(request, a) and a.n_trials > 0):
        return False
    new_context = a.device.uuid != HOST_UUID and (
        pid is None or (a.device.uuid, pid) not in ledger.contexts
    )
    context = CUDA_CONTEXT_BYTES if new_context else 0
    if request.memory_bytes is None and a.device.uuid != HOST_UUID:
        return a.room_bytes - context > 0
    return (request.memory_bytes or 0) + context <= a.room_bytes


def _wants_all(request: Request, a: DeviceAccount) -> bool:
    return request.alone or (request.memory_bytes is None and a.device.uuid != HOST_UUID)


def _load(a: DeviceAccount) -> float:
    """Utilisation in quarters: it says that some kernel ran, not how much room there is."""
    return round((a.device.utilisation or 0.0) * 4) / 4


def _placement(request: Request, a: DeviceAccount) -> Placement:
    whole = _wants_all(request, a)
    context = 0 if a.device.uuid == HOST_UUID else CUDA_CONTEXT_BYTES
    reserved = max(0, a.room_bytes - context) if whole else (request.memory_bytes or 0)
    return Placement(a.device.uuid, a.device.name, reserved, exclusive=whole)


def _why(request: Request, accounts: list[DeviceAccount]) -> str:
    """`waiting: 11.2 GiB asked, 6.4 GiB room on GPU-8f…; 9.1 GiB held by pid 4121 (…)`."""
    roomiest = max(accounts, key=lambda a: a.room_bytes)
    asked = (
        "a device to itself" if request.memory_bytes is None else gib(request.memory_bytes)
    ) + " asked"
    if roomiest.exclusive:
        return f"waiting: {asked}; a trial of unknown size has {label(roomiest.device)} to itself"
    text = f"waiting: {asked}, {gib(max(0, roomiest.room_bytes))} room on {label(roomiest.device)}"
    if roomiest.n_trials:
        text += f"; {gib(roomiest.hold_bytes)} reserved by {roomiest.n_trials} running"
    if (holder := _largest_holder(roomiest)) is not None:
        text += f"; {holder}"
    elif roomiest.foreign_bytes:
        text += f"; {gib(roomiest.foreign_bytes)} held by others"
    return text


def _largest_holder(a: DeviceAccount) -> str | None:
    known = [p for p in a.device.processes if p.used_bytes and p.pid not in a.own_pids]
    if not known or not a.foreign_bytes:
        return None
    p = max(known, key=lambda p: p.used_bytes or 0)
    return f"{gib(p.used_bytes or 0)} held by pid {p.pid} ({p.name or '?'}, user {p.user or '?'})"


def gib(size_bytes: int) -> str:
    """A size for people, in GiB."""
    return f"{size_bytes / GIB:.1f} GiB"


def label(device: DeviceSnapshot) -> str:
    """A device for people: `host`, or the beginning of its UUID and its name."""
    if device.uuid == HOST_UUID:
        return HOST_UUID
    return f"{device.uuid[:12]}… ({device.name})"
