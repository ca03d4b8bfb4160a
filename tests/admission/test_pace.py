"""Seconds of a step, learned by kind of device."""

from __future__ import annotations

import math
from random import Random

import pytest

from automl.admission.training_pace import TrainingPaces
from automl.trial import DeviceKind, TrainingWork

CPU, GPU = DeviceKind.CPU, DeviceKind.GPU
SIZES = [10.0**n for n in range(4, 12)]


def seconds(paces: TrainingPaces, flops: float, kind: DeviceKind) -> float:
    found = paces.seconds(TrainingWork(1, flops), kind)
    assert found is not None
    return found


def test_both_numbers_of_a_line_are_found() -> None:
    paces = TrainingPaces()
    for number, flops in enumerate(SIZES):
        for again in range(5):
            paces.add(10 * number + again, CPU, flops, 2e-3 + flops / 5e9)
    for flops in SIZES:
        assert seconds(paces, flops, CPU) == pytest.approx(2e-3 + flops / 5e9, rel=0.05)


def test_kinds_tell_nothing_of_each_other() -> None:
    paces, untold = TrainingPaces(), TrainingPaces()
    paces.add(1, CPU, 1e6, 3.0)
    assert seconds(paces, 1e6, GPU) == seconds(untold, 1e6, GPU)
    assert seconds(paces, 1e6, CPU) > 0.5


def test_one_trial_moves_all_sizes_by_its_factor() -> None:
    paces, untold = TrainingPaces(), TrainingPaces()
    paces.add(1, CPU, 1e4, 20 * seconds(untold, 1e4, CPU))
    assert 5 < seconds(paces, 1e12, CPU) / seconds(untold, 1e12, CPU) < 20


def test_before_any_the_small_are_faster_on_a_core_and_the_large_on_a_gpu() -> None:
    paces = TrainingPaces()
    assert seconds(paces, 1e4, CPU) < seconds(paces, 1e4, GPU)
    assert seconds(paces, 1e10, CPU) > 10 * seconds(paces, 1e10, GPU)


def test_what_is_told_last_of_a_trial_counts_whatever_the_order() -> None:
    random, told = Random(0), [(n, SIZES[n % 8], 1e-3 * (1 + n)) for n in range(30)]
    one, other = TrainingPaces(), TrainingPaces()
    for number, flops, step in told:
        one.add(number, CPU, flops, step)
    random.shuffle(told)
    for number, flops, step in told:
        other.add(number, GPU, flops, 17.0)
        other.add(number, CPU, flops, 99 * step)
        other.add(number, CPU, flops, step)
    for flops in SIZES:
        assert seconds(one, flops, CPU) == seconds(other, flops, CPU)
        assert seconds(other, flops, GPU) == seconds(TrainingPaces(), flops, GPU)
    assert other.most_timed(GPU) == 0
    assert other.most_timed(CPU) == SIZES[-1]


@pytest.mark.parametrize("step", [0.0, -1.0, math.inf, math.nan])
def test_what_is_no_time_tells_nothing(step: float) -> None:
    paces = TrainingPaces()
    paces.add(1, CPU, 1e6, step)
    assert seconds(paces, 1e6, CPU) == seconds(TrainingPaces(), 1e6, CPU)


def test_of_unknown_work_the_mean_of_whole_trials_counts() -> None:
    paces = TrainingPaces()
    assert paces.seconds(None, GPU) is None
    paces.finished(1, GPU, 10.0)
    paces.finished(2, GPU, 20.0)
    assert paces.seconds(None, GPU) == 15.0
    assert paces.seconds(None, CPU) is None


def test_a_larger_trial_never_takes_less() -> None:
    random, paces = Random(1), TrainingPaces()
    for number in range(50):
        paces.add(number, GPU, 10 ** random.uniform(4, 11), math.exp(random.gauss(-5, 2)))
    found = [seconds(paces, flops, GPU) for flops in SIZES]
    assert found == sorted(found)
    assert found[0] > 0
