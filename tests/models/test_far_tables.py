"""Targets and columns far from zero, or in tiny and huge units, teach as much as others do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from automl.config import DataConfig, DataKind, Task, TrainingConfig
from automl.config.data import DataRule
from automl.data.dataset import Dataset
from automl.data.features import scaled_numbers
from automl.data.load import load_dataset
from automl.data.scoring.metrics import make_predictions
from automl.errors import ConfigError
from automl.models.families.mlp.family import MLPFamily
from automl.models.family import Family
from automl.models.predictor import load_table_model
from automl.objectives.training_plan import SessionSetup
from automl.objectives.training_session import open_session
from tests.models.conftest import HOST, Listener, make_plan, make_spec
from tests.models.test_table_families import FAMILIES, INSTALLED

N_ROWS = 300
Unit = tuple[float, float]
"""What is added to numbers, and what they are multiplied by before."""
units = st.tuples(
    st.floats(0, 12).map(lambda power: 10**power) | st.just(0.0),
    st.floats(-12, 12).map(lambda power: 10**power),
)


def far_frame(target: Unit = (0.0, 1.0), column: Unit = (0.0, 1.0)) -> pd.DataFrame:
    """`y` follows from `x` and `x2`."""
    rng = np.random.default_rng(0)
    x, x2 = rng.normal(size=(2, N_ROWS))
    y = target[0] + target[1] * (x + 0.3 * x2 + 0.1 * rng.normal(size=N_ROWS))
    return pd.DataFrame({"x": column[0] + column[1] * x, "x2": x2, "y": y})


def load(frame: pd.DataFrame, folder: Path, **settings: object) -> Dataset:
    path = folder / "far.csv"
    frame.to_csv(path, index=False)
    config = DataConfig(kind=DataKind.csv, path=str(path), target="y", **settings)  # type: ignore[arg-type]
    return load_dataset(replace(config, rules=len(DataRule)))


def steps(unit: Unit) -> float:
    """The step between 64-bit numbers at the offset, in units of the scale."""
    return float(np.spacing(unit[0])) / unit[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("far")


@example((1e8, 1.0), (1e8, 1.0))
@example((1e12, 1e12), (1e12, 1.0))
@example((0.0, 1e-12), (0.0, 1e-12))
@settings(max_examples=20)
@given(units, units)
def test_what_models_are_given_depends_on_no_offset_and_no_scale(
    folder: Path, target: Unit, column: Unit
) -> None:
    coarse = steps(target) + steps(column)
    assume(coarse < 1e-4)
    near, far = load(far_frame(), folder), load(far_frame(target, column), folder)
    for ours, theirs in ((near.train, far.train), (near.validation, far.validation)):
        outputs = [
            ((part.y - data.target_mean) / data.target_scale)
            for data, part in ((near, ours), (far, theirs))
        ]
        np.testing.assert_allclose(outputs[0], outputs[1], atol=1e-6 + 10 * coarse)
        cells = [
            scaled_numbers(data.columns, part.rows) for data, part in ((near, ours), (far, theirs))
        ]
        np.testing.assert_allclose(cells[0], cells[1], atol=1e-6 + 10 * coarse)
        unit = far.target_mean, far.target_scale
        guesses = 0.5 * outputs[1][:, None].astype(np.float64)
        scores = make_predictions(Task.regression, guesses, theirs.y, *unit).scored()
        assert scores["loss"] == pytest.approx(np.mean((0.5 * outputs[1]) ** 2), rel=1e-3)
        assert scores["r2"] == pytest.approx(0.75, abs=0.02)


@pytest.mark.parametrize("unit", [(0.0, 1e-12), (1e12, 1.0)])
def test_a_pair_of_columns_is_found_by_a_far_target(unit: Unit, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(1000, 3)), columns=list("abc"))
    frame["y"] = unit[0] + unit[1] * (frame["a"] * frame["b"] + 0.1 * frame["c"])
    data = load(frame, tmp_path, combine="auto")
    assert data.columns.pair_names == ["a * b"]


@pytest.mark.parametrize(
    ("cells", "rule"),
    [
        (
            [f"{n + 1}e200" for n in range(30)],
            r"no usable value in all 30 rows.*; 30 are infinite or",
        ),
        ([""] * 30, r"the column is empty in all 30 rows of"),
        ([f"{n}e-160" for n in range(30)], r"differ by about \de-1\d\d, whose square"),
    ],
)
def test_a_target_that_no_number_holds_is_refused_by_its_size(
    cells: list[str], rule: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=rule):
        load(pd.DataFrame({"x": range(30), "y": cells}), tmp_path)


def test_digits_that_are_lost_are_said(tmp_path: Path) -> None:
    def notes(frame: pd.DataFrame) -> str:
        return "\n".join(load(frame, tmp_path).notes)

    assert "64 bits" not in notes(far_frame((1e12, 1.0), (1e12, 1.0)))
    assert "y: values of about 1e+12 that differ by 0.0001, which 64" in notes(
        far_frame((1e12, 1e-4))
    )
    assert "tell all their values apart: x (take" in notes(far_frame(column=(1e12, 1e-4)))
    frame = far_frame()
    frame.loc[::10, "y"] = 1e30
    assert "different values, models tell 2 apart" in notes(frame)
    frame = far_frame()
    frame.loc[::10, "x"], frame.loc[::15, "x"] = 1e200, np.inf
    assert "infinite or too large numbers, which count as missing, are in: x." in notes(frame)


EACH: dict[str, Family] = {"mlp": MLPFamily(), **{name: FAMILIES[name] for name in INSTALLED}}


@pytest.mark.parametrize("name", EACH)
def test_each_family_explains_as_much_of_a_far_target(name: str, tmp_path: Path) -> None:
    explained = []
    for unit in ((0.0, 1.0), (1e8, 1.0), (1e12, 1e6), (0.0, 1e-12)):
        frame = far_frame(unit, unit)
        data = load(frame, tmp_path)
        plan = make_plan(family=EACH[name], training=TrainingConfig(epochs=5))
        spec = make_spec(tmp_path / f"{unit}")
        open_session(SessionSetup(plan, data)).run(spec, HOST, Listener({}))
        model = load_table_model(Path(spec.checkpoint_dir) / "best.pt")
        explained.append(model.score(frame)["r2"])
    assert explained[0] > 0.3
    assert explained[1:] == pytest.approx(explained[:1] * 3, abs=0.02)
