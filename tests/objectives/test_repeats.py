"""Repeats of a trial with different seeds: one trial to the sweep, whose numbers are means."""

from __future__ import annotations

import logging
import random
import statistics
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

from automl.config import ObjectiveConfig, ObjectiveKind, TrainingConfig
from automl.data.dataset import Dataset
from automl.in_trial.seeds import trial_seed
from automl.in_trial.trial_context import TrialContext
from automl.models.networks.packs.mlp_trainer import MLPPackTrainer
from automl.objectives.function_call import CalledFunction
from automl.objectives.repeats.repeated_trial import RepeatEvents, RepeatSettings, RepeatsProgress
from automl.objectives.training_plan import SessionSetup
from automl.objectives.training_session import open_session
from automl.trial import (
    CheckpointWritten,
    Direction,
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    MemoryPeakMeasured,
    ObjectiveSession,
    Params,
    PrunedOutcome,
    TrialEvent,
    TrialSpec,
    Verdict,
)
from tests.flips import one_bit_flipped
from tests.models.conftest import HOST, Listener, make_plan, make_spec

PARAMS: Params = {"depth": 2, "width": 16, "lr": 0.01, "batch_size": 32}


def open_function(function: Callable[..., object], repeats: int = 3) -> ObjectiveSession:
    kind = ObjectiveConfig(kind=ObjectiveKind.called, target="train")
    plan = replace(make_plan(objective=kind), repeats=repeats)
    return open_session(SessionSetup(plan, function=CalledFunction(function, None)))


def open_networks(dataset: Dataset, repeats: int) -> ObjectiveSession:
    plan = replace(make_plan(training=TrainingConfig(epochs=5)), repeats=repeats)
    return open_session(SessionSetup(plan, dataset))


def run(session: ObjectiveSession, spec: TrialSpec, listener: Listener | None = None) -> Listener:
    listener = listener or Listener()
    session.run(spec, HOST, listener)
    return listener


def finished(listener: Listener) -> FinishedOutcome:
    assert isinstance(listener.outcome, FinishedOutcome), listener.outcome
    return listener.outcome


def draw(trial: TrialContext) -> None:
    """Report numbers drawn from generators of the whole process, as most objectives do."""
    random.seed(trial.seed)
    torch.manual_seed(trial.seed)
    for step in range(4):
        trial.report(step, {"val_loss": random.random() + float(torch.rand(())), "lr": 0.1})


def test_a_trial_reports_the_mean_and_the_standard_error_of_its_repeats(tmp_path: Path) -> None:
    together = run(open_function(draw), make_spec(tmp_path, number=2))
    alone = [
        run(open_function(draw, 1), make_spec(tmp_path / "alone", number=number))
        for number in (6, 7, 8)
    ]
    for step, metrics in together.reports:
        values = [listener.reports[step][1]["val_loss"] for listener in alone]
        assert metrics["val_loss"] == pytest.approx(statistics.mean(values))
        assert metrics["val_loss_se"] == pytest.approx(statistics.stdev(values) / 3**0.5)
        assert metrics["lr"] == pytest.approx(0.1)
    outcome = finished(together)
    assert outcome.part_values == tuple(finished(listener).value for listener in alone)
    assert outcome.value == pytest.approx(statistics.mean(outcome.part_values))
    assert {event.trial for event in together.events} == {2}


def test_repeats_are_pruned_together_by_their_mean(tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []

    def train(trial: TrialContext) -> None:
        assert trial.number == 1
        for step in range(9):
            steps.append((trial.seed, step))
            trial.report(step, {"val_loss": trial.seed % 7 - step})

    listener = run(
        open_function(train), make_spec(tmp_path, number=1), Listener({1: Verdict.PRUNE})
    )
    seeds = [trial_seed(7, number) for number in (3, 4, 5)]
    assert steps == [(seed, step) for step in (0, 1) for seed in seeds]
    assert isinstance(listener.outcome, PrunedOutcome)
    assert listener.outcome.step == 1
    assert listener.outcome.value == statistics.mean(seed % 7 - 1 for seed in seeds)


def test_networks_repeat_as_a_pack_and_keep_the_model_of_the_best(
    disc: Dataset, tmp_path: Path
) -> None:
    listener = run(open_networks(disc, 3), make_spec(tmp_path, PARAMS, 2))
    alone = [
        finished(run(open_networks(disc, 1), make_spec(tmp_path / "alone", PARAMS, number))).value
        for number in (6, 7, 8)
    ]
    outcome = finished(listener)
    assert outcome.part_values == pytest.approx(alone, rel=1e-4)
    assert [step for step, metrics in listener.reports if "val_loss_se" in metrics] == [*range(5)]
    path = tmp_path / "trial-00002" / "best.pt"
    content: dict[str, Any] = torch.load(path, weights_only=True)
    assert (content["trial"], content["value"]) == (2, min(outcome.part_values))
    assert min(outcome.part_values) < outcome.part_values[0]
    assert str(path) in [e.path for e in listener.events if isinstance(e, CheckpointWritten)]


def test_a_repeat_that_fails_fails_the_trial_and_begins_no_other(tmp_path: Path) -> None:
    seeds = []

    def train(trial: TrialContext) -> float:
        seeds.append(trial.seed)
        raise ValueError("no")

    listener = run(open_function(train), make_spec(tmp_path))
    assert isinstance(listener.outcome, FailedOutcome)
    assert "ValueError: no" in listener.outcome.cause
    assert len(seeds) == 1


def test_a_repeat_that_finished_is_not_repeated_after_an_interruption(tmp_path: Path) -> None:
    calls: list[int] = []

    def train(trial: TrialContext) -> float:
        calls.append(trial.seed)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return trial.seed / 2**32

    spec = make_spec(tmp_path)
    assert isinstance(run(open_function(train), spec).outcome, InterruptedOutcome | FailedOutcome)
    outcome = finished(run(open_function(train), spec))
    assert calls == [trial_seed(7, number) for number in (0, 1, 1, 2)]
    assert outcome.part_values == tuple(trial_seed(7, n) / 2**32 for n in (0, 1, 2))


def test_a_flipped_bit_in_what_a_repeat_came_to_has_it_repeated(tmp_path: Path) -> None:
    def train(trial: TrialContext) -> float:
        trial.report(0, {"val_loss": trial.seed / 2**32})
        return trial.seed / 2**32

    spec = make_spec(tmp_path)
    whole = finished(run(open_function(train), spec)).part_values
    path = max(tmp_path.rglob("repeat.json"))
    for content in one_bit_flipped(path.read_bytes(), 20):
        path.write_bytes(content)
        assert finished(run(open_function(train), spec)).part_values == whole


def test_each_repeat_goes_on_from_a_checkpoint_of_its_own(tmp_path: Path) -> None:
    def train(trial: TrialContext) -> None:
        state = trial.restore() or {"seed": trial.seed, "step": -1}
        assert state["seed"] == trial.seed
        for step in range(state["step"] + 1, 4):
            now = {"seed": trial.seed, "step": step}
            trial.report(step, {"val_loss": trial.seed / 2**32 - step}, partial(dict, now))

    spec = make_spec(tmp_path)
    stopped = run(open_function(train), spec, Listener({1: Verdict.STOP}))
    assert isinstance(stopped.outcome, InterruptedOutcome)
    went_on = run(open_function(train), spec)
    assert finished(went_on).part_values == tuple(trial_seed(7, n) / 2**32 - 3 for n in (0, 1, 2))
    assert [step for step, _ in went_on.reports] == [0, 1, 2, 3]


def test_repeats_whose_pack_breaks_go_on_in_turn(
    disc: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = finished(run(open_networks(disc, 2), make_spec(tmp_path / "whole", PARAMS)))
    run_epoch, left = MLPPackTrainer.run_epoch, iter(range(2))

    def run_out(self: MLPPackTrainer) -> Mapping[int, Any]:
        if next(left, None) is None:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return run_epoch(self)

    monkeypatch.setattr(MLPPackTrainer, "run_epoch", run_out)
    listener = run(open_networks(disc, 2), make_spec(tmp_path / "broken", PARAMS))
    assert finished(listener).part_values == pytest.approx(whole.part_values, rel=1e-4)


def test_a_trial_stopped_before_its_last_repeats_is_not_finished() -> None:
    events: list[TrialEvent] = []

    def stop(taken: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        events.extend(taken)
        return {4: Verdict.STOP}

    repeats = RepeatEvents(RepeatSettings(3, "loss", Direction.minimize), stop)
    repeats.begin(TrialSpec(4, {}, "any", study_seed=7)).n_begun = 1
    repeats([MemoryPeakMeasured(12, 0.0, 1)])
    repeats([FinishedOutcome(12, 0.0, 0.5)])
    assert isinstance(events[-1], InterruptedOutcome)


def test_a_generator_that_takes_no_state_ends_all_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(state: object) -> None:
        raise RuntimeError("CUDA error: the device is gone")

    before = threading.active_count()
    monkeypatch.setattr(random, "setstate", refuse)
    with pytest.raises(RuntimeError, match="the device is gone"):
        run(open_function(draw), make_spec(tmp_path))
    assert threading.active_count() == before


def test_the_memory_of_programs_that_repeat_a_trial_adds_up() -> None:
    peaks: list[int] = []

    def take(taken: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        peaks.extend(e.peak_bytes for e in taken if isinstance(e, MemoryPeakMeasured))
        return {}

    rules = RepeatSettings(3, "loss", Direction.minimize, are_programs=True)
    repeats = RepeatEvents(rules, take)
    repeats.begin(TrialSpec(4, {}, "any", study_seed=7)).n_begun = 3
    for number, size in ((12, 5), (13, 7), (12, 6)):
        repeats([MemoryPeakMeasured(number, 0.0, size)])
    repeats([FinishedOutcome(12, 0.0, 0.5)])
    repeats([MemoryPeakMeasured(14, 0.0, 8)])
    assert peaks == [5, 12, 13, 15]


def test_equal_values_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert finished(run(open_function(lambda: 0.5), make_spec(tmp_path))).value == 0.5
    assert "study.repeats=3: all repeats of a trial have the same value" in caplog.text


def test_a_report_looks_at_no_step_that_waits_for_other_repeats() -> None:
    progress = RepeatsProgress(trial=0, n_repeats=2, metric="loss")
    n_steps, n_lines = 500, 0

    def count(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal n_lines
        n_lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        made = [progress.take(r, s, {"train_loss": 1.0}) for r in (0, 1) for s in range(n_steps)]
    finally:
        sys.settrace(before)
    assert [report.step for reports in made for report in reports] == [*range(n_steps)]
    assert n_lines < 100 * n_steps


def test_a_repeat_that_ended_counts_with_its_last_value() -> None:
    progress = RepeatsProgress(trial=4, n_repeats=2, metric="loss")
    assert not progress.take(0, 0, {"loss": 1.0})
    (first,) = progress.take(1, 0, {"loss": 3.0})
    assert (first.trial, first.step, first.metrics) == (4, 0, {"loss": 2.0, "loss_se": 1.0})
    assert not progress.take(0, 1, {"loss": 5.0})
    (second,) = progress.end(1, FinishedOutcome(9, 0.0, 3.0))
    assert second.metrics["loss"] == 4.0
    progress.end(0, FinishedOutcome(8, 0.0, 1.0))
    outcome = progress.outcome()
    assert isinstance(outcome, FinishedOutcome)
    assert (outcome.value, outcome.part_values, outcome.standard_error) == (2.0, (1.0, 3.0), 1.0)
