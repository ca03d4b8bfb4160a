"""Which of the devices that are there may be used. Pure: names in, names out.

`CUDA_VISIBLE_DEVICES` is read as CUDA reads it (CUDA C++ Programming Guide, environment variables):
a list of numbers in CUDA's order, or of UUIDs and their unique beginnings, that ends at its first
entry which names nothing; an entry named twice hides everything.
"""

from __future__ import annotations

from collections.abc import Sequence

from automl.errors import ConfigError


def visible(setting: str | None, uuids: Sequence[str]) -> tuple[str, ...]:
    """The UUIDs that CUDA would show under this `CUDA_VISIBLE_DEVICES` (None: not set).

    Raises ConfigError where numbers choose some of several GPUs: they count in CUDA's order, which
    only CUDA knows.
    """
    if setting is None:
        return tuple(uuids)
    entries = [entry.strip() for entry in setting.split(",")]
    if entries[0].upper().startswith(("GPU-", "MIG-")):
        return _by_uuid(entries, uuids)
    return _by_number(setting, entries, uuids)


def hides_all(setting: str | None) -> bool:
    """Whether this `CUDA_VISIBLE_DEVICES` shows no device on any machine."""
    return setting is not None and (setting.strip() == "" or setting.strip().startswith("-"))


def only(prefixes: Sequence[str], uuids: Sequence[str]) -> tuple[str, ...]:
    """The UUIDs that begin with one of `devices.only`, all if that is empty.

    Raises ConfigError for an entry that matches nothing, with the list of what there is.
    """
    for prefix in prefixes:
        if not prefix or not any(_begins(uuid, prefix) for uuid in uuids):
            raise ConfigError(
                f"devices.only={prefix or repr(prefix)}: names no device by its UUID or the "
                f"beginning of it; there {_listed(uuids)}."
            )
    if not prefixes:
        return tuple(uuids)
    return tuple(u for u in uuids if any(_begins(u, prefix) for prefix in prefixes))


def same_device(a: str, b: str) -> bool:
    """Whether two UUIDs mean one device, be it called `GPU-…`, `MIG-…` or neither."""
    return _bare(a) == _bare(b)


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
            f"not know, so that devices=nvml cannot tell which are meant. Name UUIDs in it, or "
            f"choose with devices.only, or use devices=auto; there {_listed(uuids)}."
        )
    return tuple(uuids) if numbers else ()  # all of them: the order makes no difference


def _begins(uuid: str, prefix: str) -> bool:
    return uuid.casefold().startswith(prefix.casefold())


def _bare(uuid: str) -> str:
    return uuid.casefold().removeprefix("gpu-").removeprefix("mig-")


def _listed(uuids: Sequence[str]) -> str:
    """`are GPU-1…, GPU-2…`, or `is none`."""
    if not uuids:
        return "is none"
    return f"{'is' if len(uuids) == 1 else 'are'} {', '.join(uuids)}"
