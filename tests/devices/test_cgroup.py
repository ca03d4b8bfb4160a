"""Limits of control groups, versions 1 and 2, from trees of files such as the kernel shows."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from automl.devices.host import (
    MemoryLimit,
    cgroup_cpu_limit,
    cgroup_memory_limit,
    host_memory,
    n_oom_kills,
    usable_cores,
)

MIB = 1024**2
UNLIMITED_V1 = "9223372036854771712"

V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1_MOUNTS = (
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "32 31 0:29 {0} /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 {0} /sys/fs/cgroup/memory rw shared:8 master:3 - cgroup cgroup rw,memory\n"
)


def tree(root: Path, own: str, mounts: str, files: Mapping[str, str]) -> Path:
    proc = {"proc/self/cgroup": own, "proc/self/mountinfo": mounts}
    for name, text in {**proc, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def v2(root: Path, own: str, files: Mapping[str, str]) -> Path:
    return tree(
        root, f"0::{own}\n", V2_MOUNT, {f"sys/fs/cgroup/{k}": text for k, text in files.items()}
    )


def v1(root: Path, own: str, mounted: str, files: Mapping[str, str]) -> Path:
    groups = f"8:memory:{own}\n2:cpuacct,cpu:{own}\n1:name=systemd:/\n0::/\n"
    return tree(
        root,
        groups,
        V1_MOUNTS.format(mounted),
        {f"sys/fs/cgroup/{k}": text for k, text in files.items()},
    )


def test_version_2_leaves_the_limit_less_what_is_held_and_cannot_be_dropped(tmp_path: Path) -> None:
    root = v2(
        tmp_path,
        "/",
        {
            "memory.max": f"{1000 * MIB}\n",
            "memory.current": f"{700 * MIB}\n",
            "memory.stat": f"anon 5\nactive_file 7\ninactive_file {200 * MIB}\n",
        },
    )
    assert cgroup_memory_limit(root) == MemoryLimit(1000 * MIB, 500 * MIB)


def test_the_tightest_level_counts(tmp_path: Path) -> None:
    root = v2(
        tmp_path,
        "/user/job/step",
        {
            "user/job/step/memory.max": "max\n",
            "user/job/step/memory.current": "1\n",
            "user/job/memory.max": f"{900 * MIB}\n",
            "user/job/memory.current": f"{100 * MIB}\n",
            "user/memory.max": f"{1000 * MIB}\n",
            "user/memory.current": f"{950 * MIB}\n",
        },
    )
    assert cgroup_memory_limit(root) == MemoryLimit(900 * MIB, 50 * MIB)


def test_version_1_below_the_mounted_root(tmp_path: Path) -> None:
    root = v1(
        tmp_path,
        "/slurm/job_7",
        "/",
        {
            "memory/slurm/job_7/memory.limit_in_bytes": f"{800 * MIB}\n",
            "memory/slurm/job_7/memory.usage_in_bytes": f"{300 * MIB}\n",
            "memory/slurm/job_7/memory.stat": f"inactive_file 1\ntotal_inactive_file {100 * MIB}\n",
            "memory/memory.limit_in_bytes": f"{UNLIMITED_V1}\n",
            "memory/memory.usage_in_bytes": f"{9000 * MIB}\n",
            "cpu,cpuacct/slurm/job_7/cpu.cfs_quota_us": "150000\n",
            "cpu,cpuacct/slurm/job_7/cpu.cfs_period_us": "100000\n",
            "cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        },
    )
    assert cgroup_memory_limit(root) == MemoryLimit(800 * MIB, 600 * MIB)
    assert cgroup_cpu_limit(root) == 1.5


def test_version_1_in_a_container_whose_path_is_the_hosts(tmp_path: Path) -> None:
    root = v1(
        tmp_path,
        "/docker/f00/inner",
        "/docker/f00",
        {
            "memory/memory.limit_in_bytes": f"{512 * MIB}\n",
            "memory/memory.usage_in_bytes": f"{600 * MIB}\n",
            "memory/inner/memory.limit_in_bytes": f"{256 * MIB}\n",
            "memory/inner/memory.usage_in_bytes": f"{100 * MIB}\n",
        },
    )
    assert cgroup_memory_limit(root) == MemoryLimit(256 * MIB, 0)


def test_a_group_that_the_mount_does_not_show_is_bounded_by_what_it_shows(tmp_path: Path) -> None:
    files = {"memory.max": f"{512 * MIB}\n", "memory.current": f"{112 * MIB}\n"}
    assert cgroup_memory_limit(v2(tmp_path, "/not/here", files)) == MemoryLimit(
        512 * MIB, 400 * MIB
    )


@pytest.mark.parametrize(
    ("text", "cores"), [("max 100000\n", None), ("250000 100000\n", 2.5), ("", None)]
)
def test_the_quota_of_version_2(tmp_path: Path, text: str, cores: float | None) -> None:
    assert cgroup_cpu_limit(v2(tmp_path, "/", {"cpu.max": text})) == cores


def test_no_files_no_limits(tmp_path: Path) -> None:
    assert cgroup_memory_limit(tmp_path) is None
    assert cgroup_cpu_limit(tmp_path) is None


def test_the_machine_counts_where_no_group_limits_it(tmp_path: Path) -> None:
    total, free = host_memory(tmp_path)
    assert 0 < free <= total
    files = {"memory/memory.limit_in_bytes": UNLIMITED_V1, "memory/memory.usage_in_bytes": "5"}
    assert host_memory(v1(tmp_path / "v1", "/", "/", files))[0] == total


def test_the_group_counts_where_it_is_smaller_than_the_machine(tmp_path: Path) -> None:
    files = {
        "memory.max": str(64 * MIB),
        "memory.current": str(24 * MIB),
        "cpu.max": "50000 100000",
    }
    root = v2(tmp_path, "/", files)
    assert host_memory(root) == (64 * MIB, 40 * MIB)
    assert usable_cores(root) == 1  # half a core is still one to train on


VMSTAT = "nr_free_pages 7\noom_kill 100\n"


def test_what_the_kernel_killed_for_memory_is_counted_on_the_machine_and_in_the_group(
    tmp_path: Path,
) -> None:
    events = "low 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 0\n"
    root = v2(tmp_path, "/a", {"a/memory.events": events, "memory.events": "oom_kill 50\n"})
    assert n_oom_kills(root) == 2
    (root / "proc/vmstat").write_text(VMSTAT)
    assert n_oom_kills(root) == 102


def test_version_1_counts_it_too(tmp_path: Path) -> None:
    control = "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n"
    files = {"memory/job/memory.oom_control": control}
    assert n_oom_kills(v1(tmp_path, "/job", "/", files)) == 4


def test_a_kernel_that_does_not_count_says_nothing(tmp_path: Path) -> None:
    assert n_oom_kills(v2(tmp_path, "/", {})) is None
