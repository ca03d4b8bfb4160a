"""Steps that are kept in few values are those of a plain set."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automl.record.study_record import LoggedHistory
from automl.trial import MetricsReported
from automl.trial.step_runs import StepRuns


@given(st.lists(st.integers(0, 30) | st.integers(0, 10**9)), st.lists(st.integers(-1, 40)))
def test_steps_in_any_order_are_those_of_a_set(added: list[int], asked: list[int]) -> None:
    runs, plain = StepRuns(), set[int]()
    for step in added:
        assert (step in runs) == (step in plain)
        runs.add(step)
        plain.add(step)
    for step in (*added, *asked):
        assert (step in runs) == (step in plain)


@pytest.mark.parametrize("distance", [1, 100])
def test_what_is_logged_of_a_long_trial_is_remembered_in_little_memory(distance: int) -> None:
    """Two metrics, one of which is reported at each tenth step only."""
    history = LoggedHistory()
    tracemalloc.start()
    try:
        for n in range(20_000):
            metrics = {"train_loss": 0.5} | ({} if n % 10 else {"val_loss": 0.5})
            assert history.new_part(MetricsReported(0, 0.0, n * distance, metrics))
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 50_000
    again = history.new_part(MetricsReported(0, 0.0, 10 * distance, {"val_loss": 0.5, "auc": 0.1}))
    assert isinstance(again, MetricsReported)
    assert again.metrics == {"auc": 0.1}
