"""What is advised, from times that are given."""

from __future__ import annotations

import pytest

from automl.commands.gain import ParallelismLimits, advise
from automl.config import Precision
from automl.measure.gain.gain_messages import TrainingWay
from automl.running.trials.step_timing import TimingRow
from tests.commands.gain_rows import GPU, row

FOUR, BF16, PACK = (
    TrainingWay(n_threads=4),
    TrainingWay(precision=Precision.bfloat16),
    TrainingWay(n_lanes=32),
)
MACHINE = ParallelismLimits(n_cores=4, most_at_once=100)


def overrides(*rows: TimingRow, machine: ParallelismLimits = MACHINE) -> set[str]:
    return set(advise(rows, machine).overrides)


def test_threads_that_gain_less_than_trials_side_by_side_are_not_taken() -> None:
    assert overrides(row(8.0), row(4.0, FOUR)) == {"execution.threads_per_trial=1"}


def test_a_trial_that_has_the_machine_to_itself_takes_the_threads_that_gain() -> None:
    alone = ParallelismLimits(n_cores=4, most_at_once=1)
    rows = (row(8.0), row(4.0, FOUR))
    assert overrides(*rows, machine=alone) == {"execution.threads_per_trial=4"}
    slow = (row(8.0), row(7.9, FOUR))
    assert overrides(*slow, machine=alone) == {"execution.threads_per_trial=1"}, (
        "no gain to speak of"
    )


@pytest.mark.parametrize(("seconds", "setting"), [(1.0, "auto"), (8.0, "auto"), (16.0, "none")])
def test_packs_stay_unless_they_lose(seconds: float, setting: str) -> None:
    assert overrides(row(8.0), row(seconds, PACK)) == {f"execution.pack={setting}"}


@pytest.mark.parametrize(("seconds", "name"), [(4.0, "bfloat16"), (7.9, "float32")])
def test_a_precision_is_changed_where_it_gains(seconds: float, name: str) -> None:
    assert overrides(row(8.0), row(seconds, BF16)) == {f"training.precision={name}"}


def test_a_study_that_is_there_keeps_its_precision() -> None:
    advice = advise((row(8.0), row(1.0, BF16)), ParallelismLimits(4, 100, precision_stays=True))
    assert advice.overrides == ()
    assert "bfloat16 trains 8 times as fast as float32, which only a new study" in advice.text


def test_sizes_count_by_the_time_that_their_trials_take() -> None:
    rows = (row(0.1), row(0.01, BF16), row(8.0, size="large"), row(16.0, BF16, size="large"))
    assert overrides(*rows) == {"training.precision=float32"}


@pytest.mark.parametrize(("gpu", "setting"), [(1.0, "auto"), (4.0, "cpu")])
def test_a_gpu_has_to_beat_all_cores_together(gpu: float, setting: str) -> None:
    """A trial takes 8 seconds here, of which four run at once."""
    assert overrides(row(8.0), row(gpu, device=GPU)) == {f"devices.only={setting}"}


def test_packs_of_the_host_count_against_a_gpu() -> None:
    assert "devices.only=cpu" in overrides(row(8.0), row(1.0, PACK), row(1.0, device=GPU))


def test_nothing_is_advised_of_what_failed() -> None:
    advice = advise((row(None), row(None, FOUR)), MACHINE)
    assert advice.overrides == ()
    assert "too little" in advice.text
