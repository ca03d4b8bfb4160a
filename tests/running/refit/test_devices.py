"""How many devices a refit takes, and how."""

from __future__ import annotations

import pytest

from automl.config import ParallelKind, RefitConfig
from automl.errors import ConfigError
from automl.running.refit.refit_devices import (
    RefitDevices,
    RefitResources,
    devices_for_builtin,
    devices_for_user_code,
)
from automl.trial import TrainingWork

GPUS, CPU = RefitResources(n_gpus=4, n_cores=16), RefitResources(n_gpus=0, n_cores=4)
SMALL, LARGE = TrainingWork(100, 1e5), TrainingWork(100, 1e10)


def shape(found: RefitDevices) -> tuple[int, int, int, bool]:
    assert found.why
    return found.n_gpus, found.n_ranks, found.n_threads, found.data_parallel


@pytest.mark.parametrize(
    ("refit", "machine", "work", "expected"),
    [
        (RefitConfig(), GPUS, SMALL, (4, 4, 1, False)),
        (RefitConfig(devices=2), GPUS, None, (2, 2, 1, False)),
        (RefitConfig(n_seeds=8), GPUS, SMALL, (1, 1, 1, False)),
        (RefitConfig(n_seeds=8, parallel=ParallelKind.ddp), GPUS, SMALL, (4, 4, 1, False)),
        (RefitConfig(parallel=ParallelKind.none), GPUS, LARGE, (1, 1, 1, False)),
        (RefitConfig(parallel=ParallelKind.dataparallel), GPUS, LARGE, (4, 1, 1, True)),
        (RefitConfig(), RefitResources(1, 16), LARGE, (1, 1, 1, False)),
        (RefitConfig(), CPU, LARGE, (1, 1, 4, False)),
        (RefitConfig(), CPU, None, (1, 1, 4, False)),
        (RefitConfig(), CPU, SMALL, (1, 1, 1, False)),
        (RefitConfig(n_seeds=8), CPU, LARGE, (1, 1, 1, False)),
        (RefitConfig(parallel=ParallelKind.ddp), CPU, SMALL, (1, 4, 1, False)),
        (RefitConfig(parallel=ParallelKind.ddp, devices=2), CPU, SMALL, (1, 2, 2, False)),
    ],
)
def test_what_is_taken(
    refit: RefitConfig,
    machine: RefitResources,
    work: TrainingWork | None,
    expected: tuple[int, int, int, bool],
) -> None:
    assert shape(devices_for_builtin(refit, machine, work)) == expected


@pytest.mark.parametrize(
    ("refit", "machine", "said"),
    [
        (RefitConfig(devices=9), GPUS, "refit.devices=9: there are 4 GPUs."),
        (RefitConfig(parallel=ParallelKind.dataparallel), CPU, "refit.parallel=ddp"),
        (RefitConfig(devices=2), CPU, "refit.devices=2: it counts GPUs, of which there is none"),
    ],
)
def test_what_is_not_there(refit: RefitConfig, machine: RefitResources, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        devices_for_builtin(refit, machine, LARGE)
    assert said in str(refused.value)


def test_a_training_of_the_users_own_has_them_all() -> None:
    assert shape(devices_for_user_code(RefitConfig(), GPUS)) == (4, 1, 1, False)
    assert shape(devices_for_user_code(RefitConfig(devices=3), GPUS)) == (3, 1, 1, False)
    for machine in (CPU, RefitResources(n_gpus=2, n_cores=4)):
        with pytest.raises(ConfigError, match=r"refit\.devices=3"):
            devices_for_user_code(RefitConfig(devices=3), machine)
    assert shape(devices_for_user_code(RefitConfig(), CPU)) == (1, 1, 4, False)


def test_batches_are_split_among_those_that_train_together() -> None:
    found = [
        RefitDevices(),
        RefitDevices(n_gpus=4, n_ranks=4),
        RefitDevices(n_ranks=2),
        RefitDevices(4, data_parallel=True),
    ]
    assert [one.n_parts for one in found] == [1, 4, 2, 4]
