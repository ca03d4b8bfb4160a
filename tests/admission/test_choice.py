"""On which kind of device a trial ends first."""

from __future__ import annotations

import itertools
import math
from random import Random

from automl.admission.training_pace import (
    DeviceOption,
    DeviceQueue,
    DeviceSplit,
    TrialSecondsByKind,
    best_device_kind_split,
    first_option_to_end,
)
from automl.trial import DeviceKind

CPU, GPU = DeviceKind.CPU, DeviceKind.GPU


def test_the_wait_counts() -> None:
    assert (
        first_option_to_end([DeviceOption(GPU, 25.0, 10.0), DeviceOption(CPU, 0.0, 30.0)]).kind
        is CPU
    )
    assert (
        first_option_to_end([DeviceOption(GPU, 15.0, 10.0), DeviceOption(CPU, 0.0, 30.0)]).kind
        is GPU
    )


def test_of_equals_a_gpu() -> None:
    assert (
        first_option_to_end([DeviceOption(CPU, 0.0, 30.0), DeviceOption(GPU, 20.0, 10.0)]).kind
        is GPU
    )


def test_a_line_gives_its_places_in_turn() -> None:
    line = DeviceQueue([30.0, 10.0])
    waits = []
    for seconds in (50.0, 5.0, 5.0):
        waits.append(line.wait_seconds(seconds))
        line.join(seconds)
    assert waits == [10.0, 30.0, 35.0]


def test_where_nobody_knows_the_wait_it_is_as_long_as_the_trial() -> None:
    line = DeviceQueue([])
    line.join(7.0)
    assert line.wait_seconds(12.0) == 12.0


def test_no_split_by_ratio_ends_sooner() -> None:
    random = Random(0)
    for _ in range(100):
        trials = [
            TrialSecondsByKind(random.lognormvariate(3, 2), random.lognormvariate(2, 1))
            for _ in "x" * 9
        ]
        found = best_device_kind_split(trials, 4, 2)
        ordered = sorted(trials, key=lambda t: t.ratio)
        ends = [
            max(sum(t.cpu for t in ordered[:n]) / 4, sum(t.gpu for t in ordered[n:]) / 2)
            for n in range(10)
        ]
        most = max(itertools.chain((t.cpu / 4 for t in trials), (t.gpu / 2 for t in trials)))
        assert min(ends) - 1e-9 <= 9 * found.trial_seconds <= min(ends) + most
        assert math.isfinite(found.most_ratio)


def test_without_trials_nothing_is_known() -> None:
    assert best_device_kind_split([], 4, 1) == DeviceSplit()
