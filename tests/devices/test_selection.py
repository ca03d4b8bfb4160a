"""CUDA_VISIBLE_DEVICES and devices.only, as plain values."""

import pytest

from automl.devices.device_selection import (
    devices_of_job,
    hides_all_devices,
    is_same_device,
    select_only,
    visible_devices,
)
from automl.errors import ConfigError

A = "GPU-aaaa1111-0000-0000-0000-000000000001"
B = "GPU-bbbb2222-0000-0000-0000-000000000002"
C = "GPU-bbbb3333-0000-0000-0000-000000000003"
M = "MIG-cccc4444-0000-0000-0000-000000000004"


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        (None, (A, B, C)),
        ("", ()),
        (" ", ()),
        ("-1", ()),
        ("none", ()),
        (A, (A,)),
        (A.upper().replace("GPU", "gpu"), (A,)),
        ("GPU-aaaa", (A,)),
        ("GPU-bbbb", ()),  # two begin so
        (f"{C},{A}", (C, A)),
        (f"{C}, GPU-aaaa", (C, A)),
        (f"{A},GPU-9999,{B}", (A,)),  # the list ends at what names nothing
        (f"{A},1", (A,)),
        (f"{A},", (A,)),
        (f"{A},GPU-aaaa", ()),  # twice
        ("0,1,2", (A, B, C)),
        ("2,0,1", (A, B, C)),
        ("0,1,2,7", (A, B, C)),
        ("0,0", ()),
        ("7", ()),
        ("-1,0,1,2", ()),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(
    setting: str | None, shown: tuple[str, ...]
) -> None:
    assert visible_devices(setting, [A, B, C]) == shown


@pytest.mark.parametrize("setting", ["0", "2", "0,1", "0,1,-1,2", "1,7"])
def test_numbers_that_choose_among_several_gpus_are_refused_with_the_uuids(setting: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        visible_devices(setting, [A, B, C])
    for part in (f"CUDA_VISIBLE_DEVICES={setting}", "CUDA's order", "devices.only", A, B, C):
        assert part in str(refusal.value)


def test_the_number_of_the_only_gpu_is_known() -> None:
    assert visible_devices("0", [A]) == (A,)
    assert visible_devices("1", [A]) == ()


def test_numbers_say_nothing_of_slices_but_their_uuids_do() -> None:
    assert visible_devices(M, [A, M]) == (M,)
    assert visible_devices("MIG-cccc", [A, M]) == (M,)
    with pytest.raises(ConfigError, match="CUDA's order"):
        visible_devices("0", [M])


@pytest.mark.parametrize(
    ("setting", "hidden"),
    [(None, False), ("", True), ("-1", True), (" -1", True), ("0", False), (A, False)],
)
def test_what_hides_every_gpu_of_any_machine(setting: str | None, hidden: bool) -> None:
    assert hides_all_devices(setting) is hidden


@pytest.mark.parametrize(
    ("prefixes", "chosen"),
    [
        ([], (A, B, C)),
        ([B], (B,)),
        (["GPU-bbbb"], (B, C)),
        (["gpu-AAAA", B], (A, B)),
        (["GPU-bbbb3", "GPU-a"], (A, C)),  # NVML's order stays
    ],
)
def test_only_takes_uuids_and_their_beginnings(
    prefixes: list[str], chosen: tuple[str, ...]
) -> None:
    assert select_only(prefixes, [A, B, C]) == chosen


@pytest.mark.parametrize(
    ("names", "chosen"), [(["0"], (C,)), (["1", "GPU-b"], (A, B, C)), (["2", "0"], (B, C))]
)
def test_a_number_counts_in_cuda_s_order(names: list[str], chosen: tuple[str, ...]) -> None:
    in_cuda_order = [uuid.removeprefix("GPU-").upper() for uuid in (C, A, B)]
    assert select_only(names, [A, B, C], in_cuda_order) == chosen


def test_a_number_that_is_too_large_is_told_those_that_are_there() -> None:
    with pytest.raises(ConfigError) as refusal:
        select_only(["2"], [A, B], [B, A])
    assert f"there are {A} (number 1), {B} (number 0)." in str(refusal.value)
    with pytest.raises(ConfigError, match="CUDA's order is not known here"):
        select_only(["0"], [A, B])


@pytest.mark.parametrize("prefix", ["GPU-9", "0", "", "aaaa1111"])
def test_only_refuses_what_matches_nothing_and_lists_what_there_is(prefix: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        select_only([A, prefix], [A, B])
    assert f"devices.only={prefix or repr('')}:" in str(refusal.value)
    assert f"there are {A}, {B}." in str(refusal.value)


def test_a_uuid_is_the_same_with_any_beginning() -> None:
    assert is_same_device(M, M.removeprefix("MIG-"))
    assert is_same_device(M, M.replace("MIG-", "GPU-").upper())
    assert not is_same_device(A, B)


@pytest.mark.parametrize(
    ("job", "its"),
    [
        (None, (A, B, C)),
        ("", (A, B, C)),
        ("1", (B,)),
        ("2,0", (A, C)),
        ("1-2", (B, C)),
        ("0-2", (A, B, C)),
        ("4,5,6", (A, B, C)),  # its control group hides the others
        ("5", (A, B, C)),
        ("gpu:1", (A, B, C)),
    ],
)
def test_a_slurm_job_has_its_own_gpus(job: str | None, its: tuple[str, ...]) -> None:
    assert devices_of_job(job, (A, B, C)) == its


def test_slices_are_not_counted_by_slurm_s_numbers() -> None:
    assert devices_of_job("0", (A, M)) == (A, M)
