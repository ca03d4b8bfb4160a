"""`automl.load("best.pt").predict(frame)`: a model needs nothing but its file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import automl
from automl.config import DataConfig, DataKind, Precision, Task, TrainingConfig
from automl.config.metrics import METRICS_OF_TASK, reported_metric
from automl.data.columns import NumberReading
from automl.data.dataset import Dataset, DatasetPart
from automl.data.load import load_dataset
from automl.data.preprocessing import Preprocessing
from automl.errors import AutoMLError, UnreadableCellWarning
from automl.models.families.mlp.family import MLPFamily
from automl.models.families.mlp.heavy import SIDE
from automl.models.family import EstimatorSetup
from automl.models.predictor import load_table_model
from automl.objectives.training_session import TrainingSession
from automl.trial import CheckpointWritten, FinishedOutcome
from tests.features import x_of
from tests.models.conftest import HOST, Listener, make_plan, make_spec

N_ROWS = 240


def make_table(seed: int) -> tuple[pd.DataFrame, pd.Series]:
    """Mixed columns, of which `pet` and `age` decide whether `cat` or `dog` is the answer."""
    rng = np.random.default_rng(seed)
    pet = rng.choice(["purrs", "barks"], N_ROWS)
    frame = pd.DataFrame({"pet": pet, "age": rng.normal(5, 2, N_ROWS).round(1)})
    return frame, pd.Series(np.where(pet == "purrs", "cat", "dog"))


def make_dataset(labels: tuple[str, str] = ("cat", "dog")) -> Dataset:
    preprocessing = Preprocessing.fit(make_table(0)[0])

    def part(seed: int) -> DatasetPart:
        frame, answer = make_table(seed)
        return DatasetPart(preprocessing.read(frame), np.array(answer == labels[1], dtype=np.int64))

    config = DataConfig(kind=DataKind.disc, n_train=10, n_validation=10)
    return replace(
        load_dataset(config),
        train=part(0),
        validation=part(1),
        classes=labels,
        columns=preprocessing.columns,
    )


def train(dataset: Dataset, folder: Path, precision: Precision = Precision.float32) -> Path:
    training = TrainingConfig(epochs=8, precision=precision)
    objective = SIDE.open_estimator(EstimatorSetup(MLPFamily(), dataset, training))
    listener = Listener()
    spec = make_spec(folder, {"lr": 0.01, "batch_size": 16, "width": 16, "dropout": 0.1})
    TrainingSession(make_plan(training=training), objective).run(spec, HOST, listener)
    assert isinstance(listener.outcome, FinishedOutcome)
    return Path(
        next(
            e.path
            for e in listener.events
            if isinstance(e, CheckpointWritten) and e.kind.value == "best"
        )
    )


def test_raw_rows_become_labels(tmp_path: Path) -> None:
    model = automl.load(train(make_dataset(), tmp_path))
    frame, answer = make_table(2)
    assert (model.predict(frame) == answer).mean() > 0.98
    assert model.params["width"] == 16
    # other columns, another order
    assert (model.predict(frame[["age", "pet"]].assign(more=1)) == model.predict(frame)).all()


def test_probabilities_stand_in_the_order_of_the_classes(tmp_path: Path) -> None:
    model = automl.load(train(make_dataset(), tmp_path))
    frame, _ = make_table(2)
    probabilities = model.predict_probabilities(frame)
    assert np.array_equal(model.predict_proba(frame), probabilities)
    assert probabilities.shape == (N_ROWS, 2)
    assert np.allclose(probabilities.sum(1), 1)
    assert (np.array(model.classes)[probabilities.argmax(1)] == model.predict(frame)).all()


def test_unseen_categories_and_missing_cells_are_predicted(tmp_path: Path) -> None:
    model = automl.load(train(make_dataset(), tmp_path))
    frame = pd.DataFrame({"pet": ["purrs", "quacks", None], "age": [np.nan, 3.0, np.nan]})
    assert set(model.predict(frame)) <= {"cat", "dog"}
    assert model.predict(frame)[0] == "cat"


def test_no_rows_give_no_labels(tmp_path: Path) -> None:
    model = automl.load(train(make_dataset(), tmp_path))
    assert len(model.predict(make_table(2)[0].head(0))) == 0


@pytest.mark.parametrize("precision", list(Precision))
def test_the_generated_disc_is_predicted_from_an_array(
    tmp_path: Path, precision: Precision
) -> None:
    dataset = load_dataset(DataConfig(n_train=400, n_validation=200))
    model = automl.load(train(dataset, tmp_path, precision))
    x = x_of(dataset, dataset.validation)
    right = model.predict(x) == np.array(dataset.classes)[dataset.validation.y]
    assert right.mean() > 0.85


def test_regression_gives_values_in_the_targets_unit(tmp_path: Path, plane: Dataset) -> None:
    preprocessing = Preprocessing.fit(pd.DataFrame(x_of(plane, plane.train), columns=["a", "b"]))

    def scaled(part: DatasetPart) -> DatasetPart:
        return DatasetPart(preprocessing.read(x_of(plane, part)), part.y)

    dataset = replace(
        plane,
        train=scaled(plane.train),
        validation=scaled(plane.validation),
        columns=preprocessing.columns,
    )
    model = automl.load(str(train(dataset, tmp_path)))
    frame = pd.DataFrame(x_of(plane, plane.validation), columns=["a", "b"])
    assert np.abs(model.predict(frame) - plane.validation.y).mean() < 10  # of 950 to 1070
    with pytest.raises(AutoMLError, match="A regression model has no classes"):
        model.predict_probabilities(frame)


def test_what_is_no_model_is_refused_with_the_remedy(tmp_path: Path) -> None:
    best = train(make_dataset(), tmp_path)
    with pytest.raises(
        AutoMLError, match=r"last\.pt: automl\.load reads the best\.pt of the built"
    ):
        automl.load(best.with_name("last.pt"))
    with pytest.raises(AutoMLError, match=r"absent\.pt: there is no such file"):
        automl.load(tmp_path / "absent.pt")
    (tmp_path / "odd.pt").write_bytes(b"odd")
    with pytest.raises(AutoMLError, match="not a readable checkpoint"):
        automl.load(tmp_path / "odd.pt")


# --- what a loaded model tells --------------------------------------------------------------------


def test_scores_of_raw_rows_with_their_targets(tmp_path: Path) -> None:
    model = load_table_model(train(replace(make_dataset(), target="animal"), tmp_path))
    frame, answer = make_table(2)
    found = model.score(frame.assign(animal=answer))
    assert found["error"] == pytest.approx((model.predict(frame) != answer).mean())
    right = np.array(answer == "dog", dtype=int)
    told = -np.log(model.predict_probabilities(frame)[np.arange(N_ROWS), right]).mean()
    assert found["loss"] == pytest.approx(told)
    assert tuple(found) == METRICS_OF_TASK[Task.classification]
    assert model.score(frame, answer) == found
    some = answer.where(np.arange(N_ROWS) % 2 == 0)
    assert model.score(frame, some) == model.score(frame[::2], answer[::2])


def test_scores_of_values_are_in_the_targets_unit(tmp_path: Path, plane: Dataset) -> None:
    model = load_table_model(train(plane, tmp_path))
    x, y = x_of(plane, plane.validation), plane.validation.y
    found = model.score(x, y)
    assert found["rmse"] == pytest.approx(float(np.sqrt(np.mean((model.predict(x) - y) ** 2))))
    assert found["loss"] == pytest.approx((found["rmse"] / plane.target_scale) ** 2)
    assert model.metrics["val_rmse"] == pytest.approx(found["rmse"], rel=1e-3)


def test_targets_that_were_texts_are_read_as_in_training(tmp_path: Path, plane: Dataset) -> None:
    reading = NumberReading("price", ".", "€")
    model = load_table_model(
        train(replace(plane, target="price", target_reading=reading), tmp_path)
    )
    x, y = x_of(plane, plane.validation), plane.validation.y
    texts = [f"{value:,.4f} €" for value in y]
    assert model.score(x, texts)["rmse"] == pytest.approx(model.score(x, y)["rmse"], rel=1e-4)
    assert model.score(x[:2], ["n/a", texts[1]]) == model.score(x[1:2], texts[1:2])


@pytest.mark.parametrize(
    ("y", "problem"),
    [
        (None, "The rows hold no column of targets: give the targets beside them"),
        (["cat"], f"1 targets for {N_ROWS} rows"),
        (["cow"] * N_ROWS, "holds 'cow', which is none of the classes"),
        ([None] * N_ROWS, f"No row has a target \\({N_ROWS} rows\\)"),
    ],
)
def test_what_is_no_target_is_refused(y: object, problem: str, tmp_path: Path) -> None:
    model = load_table_model(train(make_dataset(), tmp_path))
    with pytest.raises(AutoMLError, match=problem):
        model.score(make_table(2)[0], y)


def test_the_column_that_decides_matters_most(tmp_path: Path) -> None:
    model = load_table_model(train(make_dataset(), tmp_path))
    frame, answer = make_table(2)
    told = model.explain(frame, answer)
    assert list(told.index) == ["pet", "age"]
    assert list(told.columns) == ["importance", "std"]
    assert float(told["importance"]["pet"]) > 0.3
    assert abs(float(told["importance"]["age"])) < 0.05
    assert model.explain(frame, answer).equals(told), "by its seed"
    assert len(model.explain(frame, answer, n_repeats=1)) == 2


def test_little_time_makes_an_explanation_short_and_its_progress_is_told(tmp_path: Path) -> None:
    model = load_table_model(train(make_dataset(), tmp_path))
    progress: list[str] = []
    told = model.explain(*make_table(2), timeout=0, on_progress=progress.append)
    assert list(told.index) == ["pet", "age"]
    numbers = [(column, repeat) for repeat in (1, 2) for column in (1, 2)]
    assert progress == [f"column {column} of 2, repeat {repeat}" for column, repeat in numbers]
    progress.clear()
    model.explain(*make_table(2), timeout=None, on_progress=progress.append)
    assert progress[-1] == "column 2 of 2, repeat 5"


def test_each_call_warns_once_of_cells_that_cannot_be_read(tmp_path: Path) -> None:
    model = load_table_model(train(make_dataset(), tmp_path))
    frame = make_table(2)[0].astype({"age": object})
    frame.loc[[4, 6], "age"] = "old"
    for call in (model.predict, model.predict_probabilities):
        with pytest.warns(UnreadableCellWarning, match="first 'old' in row 4") as warned:
            call(frame)
        assert [warning.filename for warning in warned] == [__file__]


def test_the_network_is_at_hand_and_moves(tmp_path: Path) -> None:
    dataset = make_dataset()
    model = load_table_model(train(dataset, tmp_path))
    assert isinstance(model.model, torch.nn.Module)
    x = torch.tensor(x_of(dataset, dataset.validation))
    with torch.no_grad():
        labels = [model.classes[i] for i in model.model(x).argmax(1)]
    before = model.predict(make_table(1)[0])
    assert labels == before.tolist()
    assert model.to("cpu") is model
    with pytest.raises(AutoMLError, match=r"to\('nowhere'\): torch cannot compute there .* cpu"):
        model.to("nowhere")
    assert (model.predict(make_table(1)[0]) == before).all()
    with pytest.raises(NotImplementedError, match="meta"):
        model.to("meta").predict(make_table(1)[0])


def test_it_says_where_it_is_from(tmp_path: Path) -> None:
    dataset = make_dataset()
    best = train(dataset, tmp_path / "s" / "checkpoints")
    assert load_table_model(best).study is None, "no study: it has no event log"
    (tmp_path / "s" / "events.log").touch()
    model = load_table_model(best)
    assert model.study == "s"
    assert load_table_model(best.rename(tmp_path / "mine.pt")).study is None
    assert model.data_digest == dataset.digest
    assert set(model.metrics) == set(reported_metric(Task.classification))
