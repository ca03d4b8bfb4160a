"""Experiment 006 on a GPU: what its scripts work out of what was measured, and that they refuse
where nothing can be."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from random import Random
from typing import Any

import pytest

from automl.measure.survey.allocator import MIB
from automl.trial import FailedOutcome, FinishedOutcome, OutOfMemoryOutcome, TrialStarted

Script = Callable[[str], Any]


def test_without_a_gpu_it_says_so_in_one_sentence(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with (
        pytest.raises(SystemExit, match=r"^There is no GPU .*--device\.$"),
        script("006-packing/gpu_machine").opened("cuda"),
    ):
        pass


def test_torchs_own_history_is_replayed(script: Script) -> None:
    """Segments are the allocator's doing, and what it had before the history is nobody's."""
    trace = script("006-packing/gpu_trace")

    def entry(action: str, addr: int, size: int) -> dict[str, Any]:
        return {"action": action, "addr": addr, "size": size, "stream": 0}

    history = [
        entry("free_completed", 7, 64 * MIB),
        entry("segment_alloc", 1, 32 * MIB),
        entry("alloc", 1, 32 * MIB),
        entry("free_requested", 1, 32 * MIB),
        entry("free_completed", 1, 32 * MIB),
        entry("alloc", 1, 15 * MIB),
        entry("alloc", 2, 100),
    ]
    model = trace.replayed(trace.gpu_changes(history))
    assert model.peak_reserved_bytes == (32 + 2) * MIB
    assert model.peak_allocated_bytes == 32 * MIB
    assert model.allocated_bytes == 15 * MIB + 512


def test_a_shortage_is_admissions_where_the_other_had_not_grown_since_the_last_start(
    script: Script,
) -> None:
    mixed, machine = script("006-packing/gpu_mixed"), script("006-packing/gpu_machine")
    free = [900, 100, 90, 900, 100, 900, 100]
    samples = [machine.Sample(float(t), n * MIB, {}) for t, n in enumerate(free)]
    assert mixed.shortages(samples, starts=[0.5, 3.5], grew=[0.7, 5.5]) == (3, 1)


def test_a_record_tells_how_fast_trials_ended_and_how_many_ran_at_once(script: Script) -> None:
    ran = script("006-packing/gpu_sweeps").Ran(
        [
            TrialStarted(0, 0.0, {}, "x"),
            TrialStarted(1, 0.0, {}, "x"),
            OutOfMemoryOutcome(1, 10.0, "CUDA out of memory"),
            FinishedOutcome(0, 20.0, 1.0),
            TrialStarted(1, 20.0, {}, "x"),
            TrialStarted(2, 20.0, {}, "x"),
            FailedOutcome(2, 24.0, "it broke"),
            FinishedOutcome(1, 30.0, 1.0),
        ]
    )
    assert (ran.n_finished, ran.n_lost, len(ran.ran_out)) == (2, 1, 1)
    assert (ran.seconds, ran.per_minute, ran.at_once) == (30.0, 4.0, 1)


@pytest.mark.parametrize("family", ["MLP", "transformer", "conv", "RNN"])
def test_the_shapes_of_a_seed_are_always_the_same(script: Script, family: str) -> None:
    objectives = script("006-packing/gpu_objectives")
    first, again = ([*islice(objectives.shapes(family, Random(5)), 9)] for _ in range(2))
    assert first == again
    assert all(params["family"] == family and params["width"] % 8 == 0 for params in first)
