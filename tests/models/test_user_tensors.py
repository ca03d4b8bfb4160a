"""Rows that a DataLoader brings: the numbers of rows that stay, its processes, what goes wrong."""

from __future__ import annotations

import multiprocessing
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from automl.data.dataset import STAYS_SHARE
from automl.measure.survey.survey_result import SurveyResult
from automl.measure.survey.survey_run import survey_objective
from automl.models.networks.user_tensors import PartsLoader, UserTensors
from automl.objectives.training_session import open_objective
from automl.objectives.user_data.source import describe_data, open_data
from automl.trial import FailedOutcome, FinishedOutcome, InterruptedOutcome, Verdict
from tests.models.conftest import HOST, Listener, make_spec
from tests.models.packs.test_pack import Sweep, Trials
from tests.objectives.user_data.test_source import facts, make_setup
from tests.objectives.user_data.test_training import PARAMS, open_it, run

pytestmark = pytest.mark.usefixtures("one_thread")
N_EPOCHS = 3


@pytest.mark.parametrize("network", ["convolutions", "dropping"])
@pytest.mark.parametrize("n_workers", [0, 2])
def test_loaded_rows_train_to_what_rows_that_stay_train_to(
    tmp_path: Path, network: str, n_workers: int
) -> None:
    settings: dict[str, Any] = {"accumulate_steps": 3, "epochs": N_EPOCHS}
    stay = run(open_it("images", network, **settings), tmp_path / "stay", PARAMS)
    session = open_it("datasets", network, loader_workers=n_workers, **settings)
    loaded = run(session, tmp_path / "loaded", PARAMS)
    assert isinstance(loaded.outcome, FinishedOutcome)
    assert loaded.reports == stay.reports


def test_what_rows_draw_follows_from_the_seed_however_many_load_them(tmp_path: Path) -> None:
    def reports(n_workers: int) -> Any:
        session = open_it("noisy", "convolutions", epochs=2, loader_workers=n_workers)
        return run(session, tmp_path / str(n_workers), PARAMS).reports

    alone = reports(0)
    assert alone == reports(1) == reports(2)
    plain = run(open_it("datasets", "convolutions", epochs=2), tmp_path / "plain", PARAMS)
    assert plain.reports != alone


def test_each_epoch_draws_anew(tmp_path: Path) -> None:
    """With steps too small to move, the loss of rows that are all alike changes by what is drawn;
    rows of the validation part draw the same each time."""
    still = {**PARAMS, "lr": 1e-30, "optimizer": "sgd"}
    (_, first), (_, second) = run(
        open_it("alike", "convolutions", epochs=2), tmp_path, still
    ).reports
    assert first["train_loss"] != pytest.approx(second["train_loss"], rel=1e-6)
    assert first["val_loss"] == second["val_loss"]


def test_an_interrupted_trial_draws_what_it_would_have_drawn(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"epochs": N_EPOCHS, "loader_workers": 2, "ema_decay": 0.9}
    session = open_it("noisy", "convolutions", **settings)
    whole = run(session, tmp_path / "whole", PARAMS)
    stopped = run(session, tmp_path / "parts", PARAMS, Listener({0: Verdict.STOP}))
    assert isinstance(stopped.outcome, InterruptedOutcome)
    assert multiprocessing.active_children() == []
    assert run(session, tmp_path / "parts", PARAMS).reports == whole.reports


@pytest.mark.parametrize("n_workers", [0, 2])
@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("ragged", r"train: rows of a batch have x of the shapes \(1, 5, 6\), \(1, 6, 6\); cut or"),
        ("high", r"train: a target is 7; with 2 classes they are numbers from 0 to 1"),
        ("raising", r"train: row 19 is None; an item must be a pair \(x, y\)"),
        ("texting", r"train's y is a str and holds no numbers"),
    ],
)
def test_a_row_that_will_not_do_fails_its_trial_and_leaves_no_process(
    tmp_path: Path, source: str, cause: str, n_workers: int
) -> None:
    session = open_it(source, "convolutions", loader_workers=n_workers)
    outcome = run(session, tmp_path, PARAMS).outcome
    assert isinstance(outcome, FailedOutcome)
    assert re.search(cause, outcome.cause), outcome.cause
    assert multiprocessing.active_children() == []


def test_a_pass_that_was_left_does_not_hold_up_the_next() -> None:
    setup = make_setup("datasets")
    data = open_data(setup)
    loader = PartsLoader(data.parts, data.facts, "cpu", torch.float32, n_workers=2)
    train, validation = loader.train, loader.validation
    with closing(loader):
        first = next(train.batches(torch.arange(200), 10, seed=0))
        again = next(train.batches(torch.arange(200), 10, seed=0))
        torch.testing.assert_close(again, first)
        assert [len(y) for _, y in validation.pieces(50)] == [50, 30]
    assert multiprocessing.active_children() == []


def test_tensors_without_room_on_the_device_are_loaded_too() -> None:
    data = open_data(make_setup("image_arrays"))
    there = data.tensors("cpu", torch.float64)
    order = torch.randperm(200)
    loader = PartsLoader(data.parts, data.facts, "cpu", torch.float64, n_workers=0)
    with closing(loader):
        for own, other in zip(
            loader.train.batches(order, 30, 0), there.train.batches(order, 30, 0), strict=True
        ):
            torch.testing.assert_close(own, other, rtol=0, atol=0)


def test_tensors_stay_where_they_leave_half_of_the_room() -> None:
    found = facts("images")
    assert found.size_bytes is not None
    enough = int(found.size_bytes / STAYS_SHARE)
    assert [found.stays(room) for room in (None, enough, enough - 1)] == [True, True, False]
    assert not facts("datasets").stays(None)


def test_trials_on_rows_that_do_not_stay_train_one_by_one(tmp_path: Path) -> None:
    session, sweep = open_it("datasets", "convolutions", epochs=2), Sweep()
    specs = [make_spec(tmp_path, PARAMS, n) for n in range(2)]
    session.run_pack(Trials(specs, 2), HOST, sweep)
    assert [len(trials) for trials in sweep.reports_together] == [1] * 4
    assert all(isinstance(sweep.of(n).outcome, FinishedOutcome) for n in range(2))


def test_a_survey_counts_rows_that_stay_and_of_loaded_ones_a_batch(tmp_path: Path) -> None:
    def allocated_bytes(source: str, n_workers: int) -> int:
        setup = make_setup(source, loader_workers=n_workers)
        found = survey_objective(open_objective(setup), make_spec(tmp_path, PARAMS), "val_loss")
        assert isinstance(found, SurveyResult), found
        return found.allocated_bytes

    size_bytes = facts("images").size_bytes
    assert size_bytes is not None
    loaded = [allocated_bytes("datasets", n_workers) for n_workers in (0, 2)]
    assert loaded[0] == loaded[1]
    assert 0.5 * size_bytes < allocated_bytes("images", 0) - loaded[0] < 1.5 * size_bytes


def test_a_gpu_of_too_little_room_has_its_rows_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `opened` decides by, with the figure of a driver that is not here."""
    setup = make_setup("images")
    known = describe_data(setup)
    assert known.size_bytes is not None
    for room, total, stays in (
        (None, 4 * known.size_bytes, True),
        (None, known.size_bytes, False),
        (known.size_bytes, 4 * known.size_bytes, False),
        (2 * known.size_bytes, 4 * known.size_bytes, True),
    ):
        data = UserTensors(open_data(setup).parts, known, room_bytes=room)
        answer = type("Properties", (), {"total_memory": total})
        with monkeypatch.context() as patch:
            patch.setattr(torch.cuda, "get_device_properties", lambda device, a=answer: a)
            assert data._stays("cuda:0") is stays
            if not stays:
                with pytest.raises(ValueError, match="loaded batch by batch"):
                    data.tensors("cuda:0", torch.float32)
