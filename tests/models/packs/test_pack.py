"""Packs as the sweep sees them: each trial's events, files and outcome, and what goes on alone."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from automl.config import ObjectiveConfig, ObjectiveKind, Precision, TrainingConfig
from automl.data.dataset import Dataset
from automl.errors import StorageError
from automl.in_trial.checkpoints import torch_checkpoint
from automl.in_trial.trial_context import TrialContext
from automl.models.families.mlp.family import MLPFamily
from automl.models.families.mlp.heavy import SIDE
from automl.models.family import EstimatorSetup
from automl.models.model_file import MODEL_FORMAT
from automl.models.networks.packs.mlp_trainer import MLPPackTrainer
from automl.objectives.training_session import TrainingSession
from automl.trial import (
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    MetricsReported,
    ParamValue,
    PrunedOutcome,
    TrialEvent,
    TrialOutcome,
    TrialSpec,
    ValuesLogged,
    Verdict,
)
from tests.models.conftest import HOST, Listener, make_plan, make_spec

N_EPOCHS = 5
pytestmark = pytest.mark.usefixtures("one_thread")
PARAMS: dict[str, ParamValue] = {"depth": 2, "width": 12, "lr": 0.05, "batch_size": 50}


class Trials:
    """A feed of these trials; others may be added while the pack runs."""

    def __init__(self, specs: Iterable[TrialSpec], n_lanes: int) -> None:
        self.specs, self.n_lanes = deque(specs), n_lanes

    def next(self) -> TrialSpec | None:
        return self.specs.popleft() if self.specs else None


@dataclass
class Sweep:
    """Takes the events of a pack; answers reports as it was told."""

    verdicts: dict[tuple[int, int], Verdict] = field(default_factory=dict)
    """The verdicts by trial and step."""
    calls: list[Sequence[TrialEvent]] = field(default_factory=list)
    on_call: Callable[[], None] = lambda: None

    def __call__(self, events: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        self.calls.append(events)
        self.on_call()
        reports = [event for event in events if isinstance(event, MetricsReported)]
        return {e.trial: self.verdicts.get((e.trial, e.step), Verdict.GO_ON) for e in reports}

    def of(self, trial: int) -> Listener:
        """The events of one trial."""
        return Listener(events=[e for events in self.calls for e in events if e.trial == trial])

    @property
    def reports_together(self) -> list[list[int]]:
        """The trials of each call that had reports."""
        found = [
            [e.trial for e in events if isinstance(e, MetricsReported)] for events in self.calls
        ]
        return [trials for trials in found if trials]


def make_session(dataset: Dataset, precision: Precision = Precision.float64) -> TrainingSession:
    training = TrainingConfig(epochs=N_EPOCHS, precision=precision)
    plan = make_plan(training=training)
    return TrainingSession(
        plan, SIDE.open_estimator(EstimatorSetup(MLPFamily(), dataset, training))
    )


def make_specs(folder: Path, n: int, **changes: ParamValue) -> list[TrialSpec]:
    """Trials of different depth and width that go together."""
    return [
        make_spec(folder, PARAMS | {"depth": 1 + i % 3, "width": 5 + i} | changes, number=i)
        for i in range(n)
    ]


def run_pack(
    dataset: Dataset, specs: Sequence[TrialSpec], sweep: Sweep | None = None, n_lanes: int = 8
) -> Sweep:
    sweep = sweep or Sweep()
    make_session(dataset).run_pack(Trials(specs, n_lanes), HOST, sweep)
    return sweep


def run_alone(dataset: Dataset, spec: TrialSpec) -> Listener:
    listener = Listener()
    make_session(dataset).run(spec, HOST, listener)
    return listener


def assert_same_reports(found: Listener, expected: Listener) -> None:
    assert [step for step, _ in found.reports] == [step for step, _ in expected.reports]
    for (_, a), (_, b) in zip(found.reports, expected.reports, strict=True):
        assert a == pytest.approx(b, rel=1e-9)


def test_each_trial_of_a_pack_is_the_trial_it_is_alone(tmp_path: Path, disc: Dataset) -> None:
    specs = make_specs(tmp_path / "pack", 4, optimizer="adam", dropout=0.2)
    twins = make_specs(tmp_path / "alone", 4, optimizer="adam", dropout=0.2)
    sweep = run_pack(disc, specs)
    for spec, same in zip(specs, twins, strict=True):
        found, expected = sweep.of(spec.number), run_alone(disc, same)
        assert_same_reports(found, expected)
        assert [type(e) for e in found.events] == [type(e) for e in expected.events]
        for name in ("last.pt", "best.pt"):
            mine = torch_checkpoint.load(Path(spec.checkpoint_dir) / name)
            theirs = torch_checkpoint.load(Path(same.checkpoint_dir) / name)
            assert mine.keys() == theirs.keys()
            assert mine["state"].keys() == theirs["state"].keys()
            weights, same_weights = mine["state"]["weights"], dict(theirs["state"]["weights"])
            torch.testing.assert_close(weights, same_weights, rtol=1e-6, atol=1e-9)
        assert mine["state"]["format"] == MODEL_FORMAT


def test_all_metrics_of_the_best_reach_the_sweep(tmp_path: Path, disc: Dataset) -> None:
    packed, by_itself = tmp_path / "packed", tmp_path / "alone"
    sweep = run_pack(disc, make_specs(packed, 2))
    listener = run_alone(disc, make_specs(by_itself, 1)[0])
    told, expected = (
        {(point.name, point.step): point.value for point in event.points}
        for events in (sweep.of(0).events, listener.events)
        for event in events
        if isinstance(event, ValuesLogged)
    )
    assert told == pytest.approx(expected)
    names = {name for name, _ in told}
    assert {"val_auc", "val_f1", "val_brier", "val_balanced_accuracy"} <= names
    kept = torch_checkpoint.load(packed / "trial-00000" / "best.pt")
    assert kept["metrics"].keys() == names | {"train_loss", "val_loss", "val_error"}


def test_reports_of_one_epoch_are_given_together(tmp_path: Path, disc: Dataset) -> None:
    sweep = run_pack(disc, make_specs(tmp_path, 3))
    assert [sorted(trials) for trials in sweep.reports_together] == [[0, 1, 2]] * N_EPOCHS


def test_free_lanes_take_the_next_trials_at_an_epochs_end(tmp_path: Path, disc: Dataset) -> None:
    sweep = Sweep({(0, 1): Verdict.PRUNE})
    run_pack(disc, make_specs(tmp_path, 5), sweep, n_lanes=2)
    assert [len(trials) for trials in sweep.reports_together[:3]] == [2, 2, 2]
    assert sorted(sweep.reports_together[2]) == [1, 2]
    outcomes = [sweep.of(number).outcome for number in range(5)]
    assert [type(outcome) for outcome in outcomes] == [PrunedOutcome, *[FinishedOutcome] * 4]


def test_a_feed_that_was_empty_is_asked_again(tmp_path: Path, disc: Dataset) -> None:
    first, late = make_specs(tmp_path, 2)
    feed = Trials([first], n_lanes=2)
    sweep = Sweep()

    def feed_late() -> None:
        if len(sweep.reports_together) == 3 and late not in feed.specs:
            feed.specs.append(late)
            sweep.on_call = lambda: None

    sweep.on_call = feed_late
    make_session(disc).run_pack(feed, HOST, sweep)
    assert sorted(sweep.reports_together[3]) == [0, 1]
    assert isinstance(sweep.of(1).outcome, FinishedOutcome)


def test_pruning_one_changes_nothing_for_the_others(tmp_path: Path, disc: Dataset) -> None:
    whole = run_pack(disc, make_specs(tmp_path / "whole", 4))
    sweep = Sweep({(1, 0): Verdict.PRUNE})
    pruned = run_pack(disc, make_specs(tmp_path / "pruned", 4), sweep)
    for number in (0, 2, 3):
        assert pruned.of(number).reports == whole.of(number).reports
    outcome = pruned.of(1).outcome
    assert isinstance(outcome, PrunedOutcome)
    assert (outcome.step, outcome.value) == (0, pruned.of(1).reports[0][1]["val_loss"])


def test_a_lane_that_diverges_fails_as_alone_and_leaves_the_others(
    tmp_path: Path, disc: Dataset
) -> None:
    specs = make_specs(tmp_path / "pack", 3)
    wild = make_spec(tmp_path / "pack", PARAMS | {"lr": 1e200}, number=3)
    sweep = run_pack(disc, [wild, *specs])
    found = sweep.of(3).outcome
    expected = run_alone(disc, make_spec(tmp_path / "alone", wild.params, number=3)).outcome
    assert isinstance(found, FailedOutcome)
    assert isinstance(expected, FailedOutcome)
    assert found.cause == expected.cause
    calm = run_pack(disc, make_specs(tmp_path / "calm", 3))
    for number in range(3):
        assert sweep.of(number).reports == calm.of(number).reports


def test_params_that_are_refused_fail_that_trial_only(tmp_path: Path, disc: Dataset) -> None:
    bad = make_spec(tmp_path, PARAMS | {"momentum": 2.0}, number=1)
    sweep = run_pack(disc, [make_specs(tmp_path, 1)[0], bad])
    outcome = sweep.of(1).outcome
    assert isinstance(outcome, FailedOutcome)
    assert "momentum=2.0" in outcome.cause
    assert isinstance(sweep.of(0).outcome, FinishedOutcome)


@pytest.mark.parametrize("first", ["pack", "alone"])
def test_a_trial_goes_on_from_pack_to_alone_and_back(
    tmp_path: Path, disc: Dataset, first: str
) -> None:
    spec = make_specs(tmp_path / "halves", 1, optimizer="adamw", dropout=0.1)[0]
    whole = run_alone(disc, make_specs(tmp_path / "whole", 1, optimizer="adamw", dropout=0.1)[0])
    neighbours = [s for s in make_specs(tmp_path / "halves", 3, optimizer="adamw") if s.number]
    if first == "pack":
        sweep = Sweep({(0, 2): Verdict.STOP})
        halves = run_pack(disc, [spec, *neighbours], sweep).of(0)
        assert isinstance(halves.outcome, InterruptedOutcome)
        halves.events += run_alone(disc, spec).events[3:]  # after those that last.pt repeats
    else:
        halves = Listener({2: Verdict.STOP})
        make_session(disc).run(spec, HOST, halves)
        halves.events += run_pack(disc, [spec, *neighbours]).of(0).events[3:]
    assert_same_reports(halves, whole)


def test_a_trial_whose_checkpoint_is_complete_finishes_at_once(
    tmp_path: Path, disc: Dataset
) -> None:
    specs = make_specs(tmp_path, 2)
    run_alone(disc, specs[0])
    sweep = run_pack(disc, specs)
    assert [step for step, _ in sweep.of(0).reports] == list(range(N_EPOCHS))
    assert isinstance(sweep.of(0).outcome, FinishedOutcome)
    assert isinstance(sweep.of(1).outcome, FinishedOutcome)


def break_after(monkeypatch: pytest.MonkeyPatch, n_products: int, error: Exception) -> None:
    """Let torch.bmm, which a pack uses and training alone does not, fail from some call on."""
    bmm, left = torch.bmm, iter(range(n_products))

    def broken(*args: Any, **kwargs: Any) -> torch.Tensor:
        if next(left, None) is None:
            raise error
        return bmm(*args, **kwargs)

    monkeypatch.setattr(torch, "bmm", broken)


@pytest.mark.parametrize("n_products", [0, 10, 400])
def test_a_pack_that_breaks_hands_its_trials_back_and_they_go_on_alone(
    tmp_path: Path, disc: Dataset, monkeypatch: pytest.MonkeyPatch, n_products: int
) -> None:
    specs = make_specs(tmp_path / "pack", 3, optimizer="adam")
    twins = make_specs(tmp_path / "alone", 3, optimizer="adam")
    error = torch.OutOfMemoryError("CUDA out of memory")
    with monkeypatch.context() as patch:
        break_after(patch, n_products, error)
        sweep = run_pack(disc, specs)
    for spec, same in zip(specs, twins, strict=True):
        halves = sweep.of(spec.number)
        ended = halves.outcome
        assert isinstance(ended, InterruptedOutcome)
        assert ended.pack_dissolved
        assert "CUDA out of memory" in ended.cause
        n_before = len(halves.reports)
        rest = run_alone(disc, spec)
        assert_same_reports(rest, run_alone(disc, same))
        assert rest.reports[:n_before] == halves.reports  # from last.pt: nothing trained is lost


def test_a_disk_that_is_full_as_a_pack_breaks_ends_the_sweep(
    tmp_path: Path, disc: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its trials would go on from nothing: what they trained could not be written."""
    specs = make_specs(tmp_path, 3)
    sweep = Sweep()

    def fill_up() -> None:
        if sweep.reports_together:
            Path(specs[1].checkpoint_dir).write_text("a file where a folder belongs")

    sweep.on_call = fill_up
    break_after(monkeypatch, 200, RuntimeError("the device is gone"))
    with pytest.raises(StorageError, match="could not be written"):
        run_pack(disc, specs, sweep)
    ended = [event for events in sweep.calls for event in events if isinstance(event, TrialOutcome)]
    assert [outcome.trial for outcome in ended] == [0], "the others have no outcome"


def test_what_the_sweep_raises_comes_through(tmp_path: Path, disc: Dataset) -> None:
    def full() -> None:
        raise StorageError("the disk is full")

    with pytest.raises(StorageError, match="the disk is full"):
        run_pack(disc, make_specs(tmp_path, 2), Sweep(on_call=full))


def test_a_folder_that_takes_no_checkpoint_stops_the_pack(tmp_path: Path, disc: Dataset) -> None:
    specs = make_specs(tmp_path, 2)
    Path(specs[1].checkpoint_dir).write_text("a file where a folder belongs")
    with pytest.raises(StorageError, match="could not be written"):
        run_pack(disc, specs)


def test_an_objective_of_the_users_trains_one_after_another(tmp_path: Path) -> None:
    def objective(trial: TrialContext) -> float:
        return math.sqrt(trial.number)

    plan = make_plan(objective=ObjectiveConfig(ObjectiveKind.python, "module:train"))
    sweep = Sweep()
    TrainingSession(plan, objective).run_pack(Trials(make_specs(tmp_path, 3), 2), HOST, sweep)
    outcomes: list[TrialOutcome] = [sweep.of(number).outcome for number in range(3)]
    assert [o.value for o in outcomes if isinstance(o, FinishedOutcome)] == [0, 1, math.sqrt(2)]


def test_memory_that_lacks_as_a_trial_joins_is_the_packs_trouble(
    tmp_path: Path, disc: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, left = MLPPackTrainer.add, iter(range(2))

    def full(self: MLPPackTrainer, *args: Any) -> int:
        if next(left, None) is None:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return add(self, *args)

    monkeypatch.setattr(MLPPackTrainer, "add", full)
    sweep = run_pack(disc, make_specs(tmp_path, 4), n_lanes=3)
    outcomes = [sweep.of(number).outcome for number in range(3)]
    assert all(isinstance(ended, InterruptedOutcome) and ended.pack_dissolved for ended in outcomes)
    assert sweep.of(3).events == []
