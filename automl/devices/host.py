"""Reads the machine as a device: memory and cores that machine, control group and affinity allow.

The machine passes through the same admission as a GPU. The load of the device is not read: there is
no second host to prefer, and trials are counted by cores. The module also names the owner of a
process, for texts like `held by pid 4121 (python, user ann)`.

Containers and batch systems limit a process by control groups (versions 1 and 2), which the
machine's own figures do not show. A limit may be set at any level between the process's group and
the root of the mounted tree; the tightest counts. Files: kernel.org,
admin-guide/cgroup-v1/memory.rst and admin-guide/cgroup-v2.rst.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Set
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import psutil

from automl.devices.device_reading import DeviceReader, DeviceReadError, DeviceSnapshot, HostState
from automl.trial import LOCAL_HOST, DeviceId


def process_name_and_user(pid: int) -> tuple[str | None, str | None]:
    """Return name and user of a process; (None, None) if it is gone or hidden from us."""
    try:
        return _look_up_cached(pid, psutil.Process(pid).create_time())
    except (psutil.Error, OSError):
        return None, None


def find_starter(pid: int, ours: Set[int]) -> int | None:
    """Return our process that started this one, directly or through others; None: none did."""
    with suppress(psutil.Error, OSError):
        return next((p.pid for p in psutil.Process(pid).parents() if p.pid in ours), None)
    return None


@lru_cache(maxsize=256)
def _look_up_cached(pid: int, created_seconds: float) -> tuple[str | None, str | None]:
    """Return name and user of a process, cached, since a user's name may come from a directory
    server.

    `created_seconds` is part of the key because a pid may be used again.
    """
    process = psutil.Process(pid)
    with process.oneshot():
        return process.name(), process.username()


SYSTEM_ROOT = Path("/")

# mountinfo: id parent device ROOT MOUNT-POINT options [optional fields] - TYPE source SUPER-OPTIONS
_MOUNT = re.compile(r"\S+ \S+ \S+ (\S+) (\S+) .* - (cgroup2?) \S+ (\S+)")


@dataclass(frozen=True)
class MemoryLimit:
    """The tightest memory limit of one hierarchy."""

    limit_bytes: int
    left_bytes: int
    """Memory that may still be taken, with the file cache that the kernel would drop for it."""


@dataclass(frozen=True)
class _CgroupFileNames:
    """Names of the files of one cgroup version, and the key of `memory.stat` for droppable file
    cache."""

    limit: str
    usage: str
    cache: str


_V1 = _CgroupFileNames("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = _CgroupFileNames("memory.max", "memory.current", "inactive_file")


def cgroup_memory_limit(root: Path = SYSTEM_ROOT) -> MemoryLimit | None:
    """Return the least limit and the least free memory of all levels; None where nothing limits."""
    found = [
        limit
        for names, controller in ((_V1, "memory"), (_V2, None))
        for directory in _groups(root, controller)
        if (limit := _memory_of(directory, names)) is not None
    ]
    if not found:
        return None
    return MemoryLimit(min(f.limit_bytes for f in found), min(f.left_bytes for f in found))


def n_oom_kills(root: Path = SYSTEM_ROOT) -> int | None:
    """Return how many processes the kernel has killed for lack of memory so far; None: it does not
    count.

    The counts include this process's own groups and the machine, so only an increase has a meaning.
    """
    own = [group for controller in ("memory", None) for group in _groups(root, controller)[:1]]
    files = [group / name for group in own for name in ("memory.events", "memory.oom_control")]
    texts = map(_text, (root / "proc/vmstat", *files))
    found = [re.search(r"^oom_kill (\d+)$", text, re.MULTILINE) for text in texts]
    counts = [int(match[1]) for match in found if match is not None]
    return sum(counts) if counts else None


def cgroup_cpu_limit(root: Path = SYSTEM_ROOT) -> float | None:
    """Return the cores' worth of CPU time that the quota allows, such as 1.5; None where nothing
    limits."""
    shares = [
        share
        for read, controller in ((_cpu_of_v1, "cpu"), (_cpu_of_v2, None))
        for directory in _groups(root, controller)
        if (share := read(directory)) is not None
    ]
    return min(shares, default=None)


def _memory_of(directory: Path, names: _CgroupFileNames) -> MemoryLimit | None:
    limit, usage = _number(directory / names.limit), _number(directory / names.usage)
    if limit is None or usage is None:
        return None
    cache = re.search(rf"^{names.cache} (\d+)$", _text(directory / "memory.stat"), re.MULTILINE)
    held = max(0, usage - (int(cache[1]) if cache else 0))
    return MemoryLimit(limit, max(0, limit - held))


def _cpu_of_v1(directory: Path) -> float | None:
    quota = _number(directory / "cpu.cfs_quota_us")  # -1, hence None: no limit
    period = _number(directory / "cpu.cfs_period_us")
    return quota / period if quota and period else None


def _cpu_of_v2(directory: Path) -> float | None:
    match = re.match(r"(\d+) (\d+)", _text(directory / "cpu.max"))  # `max 100000`: no limit
    return int(match[1]) / int(match[2]) if match else None


def _groups(root: Path, controller: str | None) -> list[Path]:
    """Return the process's group under a controller (None: version 2), then the groups above it."""
    own = _own_path(_text(root / "proc/self/cgroup"), controller)
    mount = _mount(_text(root / "proc/self/mountinfo"), controller)
    if own is None or mount is None:
        return []
    mounted, point = mount
    top = root / point.lstrip("/")
    # In a container without a cgroup namespace the path is the host's, and the mount shows the part
    # of the tree from `mounted` on.
    below = own.removeprefix(mounted) if mounted != "/" else own
    group = top / below.lstrip("/")
    if not group.is_dir():
        group = top
    levels = [group, *group.parents]
    return levels[: levels.index(top) + 1]


def _own_path(text: str, controller: str | None) -> str | None:
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if (controllers == "") if controller is None else (controller in controllers.split(",")):
            return path
    return None


def _mount(text: str, controller: str | None) -> tuple[str, str] | None:
    """Return which part of the tree is mounted, and where."""
    for line in text.splitlines():
        if (match := _MOUNT.fullmatch(line)) is None:
            continue
        mounted, point, kind, options = match.groups()
        if kind == "cgroup2" if controller is None else controller in options.split(","):
            return mounted, point
    return None


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _text(path: Path) -> str:
    """Return the text of a file; empty if it is missing or unreadable, since it then sets no known
    limit."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


class HostReader(DeviceReader):
    """Reads the machine as a device. `root` is `/`; tests put a tree of their own there."""

    def __init__(self, root: Path = SYSTEM_ROOT) -> None:
        self._root = root

    @property
    def addresses(self) -> tuple[DeviceId, ...]:
        return (LOCAL_HOST,)

    def read(self) -> tuple[DeviceSnapshot, ...]:
        total, free = host_memory(self._root)
        return (
            DeviceSnapshot(
                address=LOCAL_HOST,
                name="cpu",
                total_bytes=total,
                free_bytes=free,
            ),
        )

    def close(self) -> None:
        """Do nothing, since nothing is held."""


def host_memory(root: Path = SYSTEM_ROOT) -> tuple[int, int]:
    """Return all bytes, and bytes that new work could take without swapping. Raises
    DeviceReadError."""
    try:
        machine = psutil.virtual_memory()
    except (OSError, ValueError, psutil.Error) as error:
        raise DeviceReadError(f"the machine's memory cannot be read: {error}") from error
    total, free = machine.total, machine.available
    limit = cgroup_memory_limit(root)
    if limit is not None:  # version 1 says "no limit" with 2^63, which the machine is below
        total, free = min(total, limit.limit_bytes), min(free, limit.left_bytes)
    return total, min(free, total)


def host_state(root: Path = SYSTEM_ROOT) -> HostState | None:
    """Return memory and load of the machine; None: they cannot be read.

    Call it from one thread only, since load is measured since the previous call. The load does not
    reflect a quota of CPU time.
    """
    try:
        loads = psutil.cpu_percent(percpu=True)
        _, free = host_memory(root)
    except (DeviceReadError, OSError, psutil.Error):
        return None
    ours = os.sched_getaffinity(0) if sys.platform == "linux" else range(len(loads))
    of_ours = [load for core, load in enumerate(loads) if core in ours]
    return HostState(free, sum(of_ours) / len(of_ours) / 100 if of_ours else None)


def usable_cores(root: Path = SYSTEM_ROOT) -> int:
    """Return the cores that this process may keep busy, at least 1: affinity, and whole cores of
    the quota."""
    if sys.platform == "linux":
        n_cores = len(os.sched_getaffinity(0))
    else:
        n_cores = os.cpu_count() or 1
    quota = cgroup_cpu_limit(root)
    return n_cores if quota is None else max(1, min(n_cores, int(quota)))


def own_memory_bytes() -> int:
    """Return the main memory that this process holds (resident set)."""
    return int(psutil.Process().memory_info().rss)
