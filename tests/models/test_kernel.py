"""Kernel models: lengths that follow from the rows, and what they say by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from threadpoolctl import threadpool_limits

from automl.data.dataset import Dataset
from automl.data.features import one_hot_features
from automl.data.scoring.metrics import Floats
from automl.errors import AutoMLError, ConfigError
from automl.in_trial.seeds import trial_seed
from automl.models.families.kernel import heavy
from automl.models.families.kernel.family import KERNEL_KINDS, KernelFamily
from automl.models.mean_model_file import read_model_file, save_model_file
from automl.models.predictor import Predictor, load_table_model
from automl.objectives.training_plan import SessionSetup
from automl.objectives.training_session import open_session
from automl.trial import Params
from tests.models.conftest import HOST, Listener, make_plan, make_spec
from tests.models.tables import mixed


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Give tests a trial's one thread: threads that wait for each other slow a busy machine."""
    assert scipy.linalg, "its BLAS is there before it is limited"
    with threadpool_limits(1):
        yield


def wave(n_rows: int, seed: int = 0) -> tuple[Floats, Floats]:
    """Three columns, of which the first decides and the third does nothing."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_rows, 3))
    return x, np.sin(3 * x[:, :1]) + 0.3 * x[:, 1:2] + 0.05 * rng.normal(size=(n_rows, 1))


@pytest.mark.parametrize("kind", KERNEL_KINDS)
@pytest.mark.parametrize("n_own", [3, 0], ids=["each", "one for all"])
def test_the_gradient_is_that_of_the_value(
    kind: str, n_own: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heavy, "MAX_OWN", n_own)
    x, y = wave(30)
    likelihood = heavy._KernelLikelihood.from_rows(x, np.hstack([y, y**2]), kind, 0.7)
    place = np.random.default_rng(1).normal(size=n_own + 4) / 2
    gradient, step = likelihood(place)[1], 1e-5
    for i, one in enumerate(np.eye(len(place)) * step):
        slope = (likelihood(place + one)[0] - likelihood(place - one)[0]) / (2 * step)
        assert gradient[i] == pytest.approx(slope, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("kind", KERNEL_KINDS)
@pytest.mark.parametrize("far", [40.0, -40.0, 1e4, -1e4])
def test_no_place_of_the_search_is_without_a_value(kind: str, far: float) -> None:
    """The rows occur twice, and the lengths and shares fit no rows."""
    x, y = (np.repeat(each, 2, axis=0) for each in wave(20))
    likelihood = heavy._KernelLikelihood.from_rows(x, y, kind, 1.0)
    for start in likelihood.starts():
        for place in (start + far, *(start + far * np.eye(len(start)))):
            value, gradient = likelihood(place)
            assert np.isfinite(value)
            assert np.isfinite(gradient).all()


def test_a_likeness_that_rounding_made_indefinite_has_a_factor() -> None:
    x = wave(50)[0]
    alike = x @ x.T - 1e-12 * np.eye(len(x))
    lower = heavy.lower_factor(alike)
    np.testing.assert_allclose(lower @ lower.T, alike, atol=1e-8)


@pytest.mark.parametrize("kind", KERNEL_KINDS)
def test_a_column_that_does_nothing_has_a_long_length(kind: str) -> None:
    kernel = heavy.learn_kernel(*wave(150), kind, spread=1.0, seed=0)
    first, _, third = kernel.per_length
    assert first > 3 * third
    assert 0.0005 < kernel.noise < 0.05, "what is by chance is a hundredth of the variance"
    alike = heavy.learn_kernel(*wave(150), kind, spread=1e-3, seed=0).per_length
    np.testing.assert_allclose(alike, alike[0], rtol=0.01)


def trained(folder: Path, data: Dataset, params: Params, landmarks: int = 1000) -> Predictor:
    plan = make_plan(family=KernelFamily(landmarks=landmarks))
    spec = make_spec(folder, params)
    open_session(SessionSetup(plan, data)).run(spec, HOST, Listener())
    return load_table_model(Path(spec.checkpoint_dir) / "best.pt")


@pytest.mark.parametrize("kind", KERNEL_KINDS)
def test_of_all_rows_as_landmarks_it_is_the_mean_of_a_gaussian_process(
    kind: str, tmp_path: Path
) -> None:
    data = mixed(tmp_path, 1)
    predictor = trained(tmp_path, data, {"kind": kind, "l2": 2.0})
    x, rows = (one_hot_features(data.columns, part.rows) for part in (data.train, data.validation))
    y = (data.train.y.astype(np.float64) - data.target_mean) / data.target_scale
    plain: Any = predictor.trained_model
    kernel = learned_of(data, kind)
    np.testing.assert_allclose(kernel.per_length, plain.per_length, rtol=1e-6)
    wide = x.astype(np.float64)
    among = kernel.between(wide, wide) + 2 * max(kernel.noise, 1e-3) * np.eye(len(x))
    said = kernel.between(rows.astype(np.float64), wide) @ np.linalg.solve(among, y - y.mean())
    outputs = predictor.outputs(data.validation.rows)[:, 0]
    np.testing.assert_allclose(outputs, said + y.mean(), atol=1e-3)


def learned_of(data: Dataset, kind: str) -> heavy.LearnedKernel:
    """Return the kernel that a trial learns."""
    y = (data.train.y.astype(np.float64) - data.target_mean) / data.target_scale
    x = one_hot_features(data.columns, data.train.rows).astype(np.float64)
    return heavy.learn_kernel(x, y[:, None], kind, 1.0, trial_seed(7, 0))


def test_few_landmarks_say_nearly_the_same(tmp_path: Path) -> None:
    data = mixed(tmp_path, 3)
    whole, few = (trained(tmp_path / str(n), data, {}, n) for n in (1000, 60))
    assert len(few.trained_model.landmarks) == 60  # type: ignore[attr-defined]
    each = [one.outputs(data.validation.rows) for one in (whole, few)]
    assert np.corrcoef(each[0].ravel(), each[1].ravel())[0, 1] > 0.95
    with pytest.raises(ConfigError, match=r"^model.landmarks=0: must be at least 1"):
        KernelFamily(landmarks=0)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("kind", "oak", "unknown kernel"),
        ("landmarks", np.zeros((3, 2), np.float32), "landmarks of"),
        ("weights", np.zeros((3, 1)), "weights of"),
        ("bias", np.zeros(2), "a bias of"),
        ("slopes", np.full((5, 1), np.nan), "no numbers"),
        ("per_length", [1.0], "no per_length"),
    ],
)
def test_a_strangers_file_that_contradicts_itself_is_refused(
    name: str, value: object, said: str, tmp_path: Path
) -> None:
    path = trained(tmp_path, mixed(tmp_path, 2), {}).path
    content = read_model_file(path)
    save_model_file(
        tmp_path / "other.pt", {**content, "state": {**content["state"], name: value}}, [path]
    )
    with pytest.raises(AutoMLError, match=said):
        load_table_model(tmp_path / "other.pt")
