"""Selects the devices that may be used among those present. Pure: names in, names out.

`CUDA_VISIBLE_DEVICES` is read as CUDA reads it (CUDA C++ Programming Guide, environment variables):
a list of numbers in CUDA's order, or of UUIDs and their unique beginnings, that ends at its first
entry which names nothing; an entry named twice hides everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from automl.errors import ConfigError


def visible_devices(setting: str | None, uuids: Sequence[str]) -> tuple[str, ...]:
    """Return the UUIDs that CUDA would show under this `CUDA_VISIBLE_DEVICES` (None: not set).

    Raises ConfigError where numbers choose some of several GPUs: they count in CUDA's order, which
    only CUDA knows.
    """
    if setting is None:
        return tuple(uuids)
    entries = [entry.strip() for entry in setting.split(",")]
    if entries[0].upper().startswith(("GPU-", "MIG-")):
        return _by_uuid(entries, uuids)
    return _by_number(setting, entries, uuids)


def devices_of_job(slurm_gpus: str | None, uuids: Sequence[str]) -> tuple[str, ...]:
    """Return the UUIDs of a Slurm job's GPUs (`SLURM_JOB_GPUS`, `0,2` or `0-3`; None: not set).

    Its numbers count on the node as NVML's do. Where the job's control group hides the other GPUs,
    exactly as many are present as the job has, and all are its own.
    """
    numbers = _numbers_in_ranges(slurm_gpus or "")
    slices = any(uuid.startswith("MIG-") for uuid in uuids)
    if slices or not numbers or not numbers < set(range(len(uuids))):
        return tuple(uuids)
    return tuple(uuids[number] for number in sorted(numbers))


def _numbers_in_ranges(text: str) -> set[int]:
    """Return the numbers that a text such as `0,2-3` names; empty for any other text."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            return set()
        found.update(range(int(first), int(last or first) + 1))
    return found


def hides_all_devices(setting: str | None) -> bool:
    """Return whether this `CUDA_VISIBLE_DEVICES` shows no device on any machine."""
    return setting is not None and (setting.strip() == "" or setting.strip().startswith("-"))


def select_only(
    names: Sequence[str], uuids: Sequence[str], in_cuda_order: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the UUIDs that `devices.only` names by number or beginning; all if it is empty.

    A number counts `in_cuda_order`, where this order is known. Raises ConfigError for an entry that
    names nothing, with the list of the devices present.
    """
    if not names:
        return tuple(uuids)
    chosen = [u for name in names for u in _uuids_named(name, uuids, in_cuda_order)]
    return tuple(u for u in uuids if u in chosen)


def are_named_by_number(names: Sequence[str]) -> bool:
    """Return whether `devices.only` needs CUDA's order."""
    return any(name.isdecimal() for name in names)


def _uuids_named(name: str, uuids: Sequence[str], in_cuda_order: Sequence[str]) -> list[str]:
    if name.isdecimal() and int(name) < len(in_cuda_order):
        number = in_cuda_order[int(name)]
        found = [uuid for uuid in uuids if is_same_device(uuid, number)]
    else:
        found = [uuid for uuid in uuids if name and _begins(uuid, name)]
    if found:
        return found
    raise ConfigError(
        f"devices.only={name or repr(name)}: names no device by its number in CUDA's order, its "
        f"UUID or the beginning of it; there {_listed(uuids, in_cuda_order)}."
        + ("" if in_cuda_order or not name.isdecimal() else " CUDA's order is not known here.")
    )


def is_same_device(a: str, b: str) -> bool:
    """Return whether two UUIDs mean one device, whether written as `GPU-…`, `MIG-…` or neither."""
    return bare_uuid(a) == bare_uuid(b)


def _by_uuid(entries: Sequence[str], uuids: Sequence[str]) -> tuple[str, ...]:
    chosen: list[str] = []
    for entry in entries:
        matches = [uuid for uuid in uuids if entry and _begins(uuid, entry)]
        if len(matches) != 1:
            break
        if matches[0] in chosen:
            return ()
        chosen.append(matches[0])
    return tuple(chosen)


def _by_number(setting: str, entries: Sequence[str], uuids: Sequence[str]) -> tuple[str, ...]:
    numbers: list[int] = []
    for entry in entries:
        if not entry.isdecimal() or int(entry) >= len(uuids):
            break
        if int(entry) in numbers:
            return ()
        numbers.append(int(entry))
    slices = any(uuid.startswith("MIG-") for uuid in uuids)
    if numbers and (slices or len(numbers) < len(uuids)):
        raise ConfigError(
            f"CUDA_VISIBLE_DEVICES={setting}: its numbers count in CUDA's order, which NVML does "
            "not know, so that devices.only=nvml cannot tell which are meant. Name UUIDs in it or "
            f"in devices.only, or use devices.only=auto; there {_listed(uuids)}."
        )
    return tuple(uuids) if numbers else ()  # with all GPUs the order makes no difference


def _begins(uuid: str, prefix: str) -> bool:
    return uuid.casefold().startswith(prefix.casefold())


def bare_uuid(uuid: str) -> str:
    """Return the UUID without its prefix, the same for all names of one device."""
    return uuid.casefold().removeprefix("gpu-").removeprefix("mig-")


def _listed(uuids: Sequence[str], in_cuda_order: Sequence[str] = ()) -> str:
    """Return `are GPU-1…, GPU-2…` or `is none`, with numbers where they are known."""
    if not uuids:
        return "is none"
    numbers = number_devices(uuids, in_cuda_order)
    shown = [f"{uuid} (number {numbers[uuid]})" if uuid in numbers else uuid for uuid in uuids]
    return f"{'is' if len(uuids) == 1 else 'are'} {', '.join(shown)}"


def number_devices(uuids: Sequence[str], in_cuda_order: Sequence[str]) -> Mapping[str, int]:
    """Return CUDA's number of each UUID that has one."""
    return {
        uuid: number
        for uuid in uuids
        for number, other in enumerate(in_cuda_order)
        if is_same_device(uuid, other)
    }
