"""Networks of the user's on rows of any shape: trained, in packs, gone on with, and used."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import automl
from automl.config import LearningRateSchedule, Precision
from automl.errors import AutoMLError
from automl.models.array_predictor import ArrayPredictor
from automl.objectives.training_session import open_session
from automl.objectives.user_data.source import describe_data
from automl.trial import FailedOutcome, FinishedOutcome, ObjectiveSession, Params, Verdict
from tests.models.conftest import HOST, Listener, make_spec
from tests.models.packs.test_pack import Sweep, Trials
from tests.objectives.user_data import sources
from tests.objectives.user_data.test_source import HERE, make_setup

pytestmark = pytest.mark.usefixtures("one_thread")
CASES: dict[str, tuple[str, str, Params]] = {
    "images": ("images", "convolutions", {"channels": 6}),
    "frames": ("frames", "linear", {}),
    "numbers": ("pairs_of_numbers", "linear", {}),
    "sequences": ("sequences", "NextToken", {}),
}
PARAMS: Params = {"lr": 0.05, "batch_size": 20}


def open_it(source: str, network: str, **settings: Any) -> ObjectiveSession:
    setup = make_setup(source, network, **settings)
    return open_session(replace(setup, facts=describe_data(setup)))


def run(
    session: ObjectiveSession, folder: Path, params: Params, listener: Listener | None = None
) -> Listener:
    listener = listener or Listener()
    session.run(make_spec(folder, params), HOST, listener)
    return listener


def load(folder: Path, network: str) -> ArrayPredictor:
    path = folder / "trial-00000" / "best.pt"
    found = automl.load(path, build=getattr(sources, network))
    assert isinstance(found, ArrayPredictor)
    return found


@pytest.mark.parametrize("case", list(CASES))
def test_it_learns_and_what_it_became_predicts(case: str, tmp_path: Path) -> None:
    source, network, own = CASES[case]
    listener = run(open_it(source, network, epochs=15), tmp_path, {**PARAMS, **own})
    assert isinstance(listener.outcome, FinishedOutcome), listener.outcome
    first, last = listener.reports[0][1], listener.reports[-1][1]
    assert last["val_loss"] < 0.3 * first["val_loss"]
    x, y = getattr(sources, source)()["validation"]
    predicted = load(tmp_path, network).predict(x)
    best = min((metrics for _, metrics in listener.reports), key=lambda m: m["val_loss"])
    if "val_error" in best:
        assert (predicted != y.numpy()).mean() == pytest.approx(best["val_error"])
    else:
        error = predicted.reshape(np.shape(y)) - np.asarray(y)
        assert np.sqrt(np.square(error).mean()) == pytest.approx(best["val_rmse"], rel=1e-4)


@pytest.mark.parametrize("case", list(CASES))
def test_a_pack_has_the_numbers_of_training_alone(case: str, tmp_path: Path) -> None:
    source, network, own = CASES[case]
    settings = {
        "precision": Precision.float64,
        "schedule": LearningRateSchedule.cosine,
        "ema_decay": 0.8,
    }
    session = open_it(source, network, **settings)
    specs = [make_spec(tmp_path, {**PARAMS, **own, "lr": 0.02 * (1 + n)}, n) for n in range(3)]
    sweep = Sweep()
    session.run_pack(Trials(specs, 3), HOST, sweep)
    assert [sorted(trials) for trials in sweep.reports_together] == [[0, 1, 2]] * 4
    alone = run(session, tmp_path / "alone", specs[0].params)
    for (_, a), (_, b) in zip(sweep.of(0).reports, alone.reports, strict=True):
        assert a == pytest.approx(b, rel=1e-8)


def test_an_interrupted_trial_goes_on_bit_for_bit(tmp_path: Path) -> None:
    session = open_it("images", "convolutions", ema_decay=0.9)
    whole = run(session, tmp_path / "whole", PARAMS)
    run(session, tmp_path / "parts", PARAMS, Listener({1: Verdict.STOP}))
    assert run(session, tmp_path / "parts", PARAMS).reports == whole.reports


def test_arrays_train_to_what_tensors_train_to(tmp_path: Path) -> None:
    runs = [
        run(open_it(source, "convolutions"), tmp_path / source, PARAMS).reports
        for source in ("images", "image_arrays", "tensor_datasets")
    ]
    assert runs[0] == runs[1] == runs[2]


def test_a_loss_of_the_users_takes_outputs_of_any_shape(tmp_path: Path) -> None:
    session = open_it("frames", "linear", loss=f"{HERE}:of_any_kind")
    listener = run(session, tmp_path, PARAMS)
    assert set(listener.reports[0][1]) == {"train_loss", "val_loss"}
    assert load(tmp_path, "linear").predict(np.zeros((2, 3), np.float32)).shape == (2, 1)


@pytest.mark.parametrize("settings", [{"loss": "absolute_error"}, {"loss": "quantile"}, {}])
def test_its_score_is_by_the_loss_of_its_study(settings: dict[str, Any], tmp_path: Path) -> None:
    listener = run(open_it("frames", "linear", **settings), tmp_path, PARAMS)
    x, y = sources.frames()["validation"]
    model = load(tmp_path, "linear")
    found = model.score(x.to_numpy(np.float32), y.to_numpy(np.float32))
    least = min(metrics["val_loss"] for _, metrics in listener.reports)
    assert found["loss"] == pytest.approx(least, rel=1e-4)
    assert ("pinball" in found) == (settings == {"loss": "quantile"})


@pytest.mark.parametrize(
    ("source", "network", "cause"),
    [
        (
            "sequences",
            "ScoresLast",
            r"returned \(20, 8, 5\) for 20 rows; it must return \(rows, n_outputs, …\), here "
            r"\(20, 5, 8\): .*movedim\(-1, 1\)",
        ),
        (
            "images",
            "one_too_many",
            r"returned \(20, 3\) for 20 rows; it must return \(rows, n_outputs\), here \(20, 2\)",
        ),
    ],
)
def test_a_network_that_does_not_fit_fails_its_trial_with_the_reason(
    tmp_path: Path, source: str, network: str, cause: str
) -> None:
    outcome = run(open_it(source, network), tmp_path, PARAMS).outcome
    assert isinstance(outcome, FailedOutcome)
    assert re.search(cause, outcome.cause), outcome.cause


def test_what_was_trained_takes_rows_like_those_of_training(tmp_path: Path) -> None:
    run(open_it("images", "convolutions", epochs=1), tmp_path, PARAMS)
    model = load(tmp_path, "convolutions")
    assert model.classes == (0, 1)
    shares = model.predict_probabilities(torch.zeros(3, 1, 6, 6))
    np.testing.assert_allclose(shares.sum(1), 1)
    for rows in (torch.zeros(3, 6, 6), torch.zeros(3, 1, 6, 6).long(), torch.zeros(0, 1, 6, 6)):
        with pytest.raises(AutoMLError, match=r"was trained on \(N, 1, 6, 6\) of floating-point"):
            model.predict(rows)
    with pytest.raises(AutoMLError, match="no code runs because a file names it"):
        automl.load(tmp_path / "trial-00000" / "best.pt")
