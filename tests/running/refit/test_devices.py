"""How many devices a refit takes, and how."""

from __future__ import annotations

import pytest

from automl.config import ParallelKind, RefitArguments
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
        (RefitArguments(), GPUS, SMALL, (4, 4, 1, False)),
        (RefitArguments(seeds=8), GPUS, SMALL, (1, 1, 1, False)),
        (RefitArguments(seeds=8, parallel=ParallelKind.ddp), GPUS, SMALL, (4, 4, 1, False)),
        (RefitArguments(parallel=ParallelKind.none), GPUS, LARGE, (1, 1, 1, False)),
        (RefitArguments(parallel=ParallelKind.dataparallel), GPUS, LARGE, (4, 1, 1, True)),
        (RefitArguments(), RefitResources(1, 16), LARGE, (1, 1, 1, False)),
        (RefitArguments(), CPU, LARGE, (1, 1, 4, False)),
        (RefitArguments(), CPU, None, (1, 1, 4, False)),
        (RefitArguments(), CPU, SMALL, (1, 1, 1, False)),
        (RefitArguments(seeds=8), CPU, LARGE, (1, 1, 1, False)),
        (RefitArguments(parallel=ParallelKind.ddp), CPU, SMALL, (1, 4, 1, False)),
    ],
)
def test_what_is_taken(
    refit: RefitArguments,
    machine: RefitResources,
    work: TrainingWork | None,
    expected: tuple[int, int, int, bool],
) -> None:
    assert shape(devices_for_builtin(refit, machine, work)) == expected


def test_what_is_for_gpus_alone_is_refused_without_one() -> None:
    refit = RefitArguments(parallel=ParallelKind.dataparallel)
    with pytest.raises(ConfigError, match=r"^parallel=dataparallel: .* take parallel=ddp"):
        devices_for_builtin(refit, CPU, LARGE)


def test_a_training_of_the_users_own_has_them_all() -> None:
    assert shape(devices_for_user_code(GPUS)) == (4, 1, 1, False)
    assert shape(devices_for_user_code(CPU)) == (1, 1, 4, False)


def test_batches_are_split_among_those_that_train_together() -> None:
    found = [
        RefitDevices(),
        RefitDevices(n_gpus=4, n_ranks=4),
        RefitDevices(n_ranks=2),
        RefitDevices(4, data_parallel=True),
    ]
    assert [one.n_parts for one in found] == [1, 4, 2, 4]
