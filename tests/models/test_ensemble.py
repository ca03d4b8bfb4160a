"""`ensemble.pt`: the weighted mean of models that are best together, as one file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from automl.config import DataConfig, Task
from automl.data.columns import TableColumns
from automl.data.dataset import Dataset, DatasetPart, RowFold, TableRows
from automl.data.load import load_dataset
from automl.errors import AutoMLError
from automl.in_trial.checkpoints import torch_checkpoint
from automl.models.ensemble_findings import N_REPEATS, find_in_ensemble, n_shuffle_repeats
from automl.models.families.mlp.family import MLPFamily
from automl.models.families.mlp.network import MLPNetwork, MLPShape
from automl.models.mean_model import MeanModel
from automl.models.mean_model_file import EnsembleWorker, write_ensemble
from automl.models.model_file import (
    EnsembleFileJob,
    EnsembleFileResult,
    EnsembleQuery,
    EnsembleQueryResult,
    EnsembleWorkerSetup,
    make_model_state,
)
from automl.models.predictor import load, load_table_model
from automl.record.event_log import decode_event, encode_event
from automl.trial import EnsembleBuilt

POINTS = np.random.default_rng(0).uniform(-1, 1, (40, 2))


@pytest.fixture(scope="module")
def disc() -> Dataset:
    return load_dataset(DataConfig(n_train=10, n_validation=2000))


def model_file(folder: Path, number: int, dataset: Dataset, scale: float = 1.0) -> str:
    """A `best.pt` of an untrained network, whose last weights are so much larger."""
    network = MLPNetwork(MLPShape(2, (5,), dataset.n_outputs))
    weights = network.build(torch.float32, torch.device("cpu"), number).state_dict()
    weights["layers.1.weight"] *= scale
    model = {"model": network.plain(), "weights": weights}
    state = make_model_state(MLPFamily(), dataset, model)
    content = {"trial": number, "params": {"width": 5}, "step": 3, "state": state}
    torch_checkpoint.save(folder, {f"{number}.pt": content})
    return str(folder / f"{number}.pt")


def asked(folder: Path, dataset: Dataset, *scales: float) -> EnsembleFileJob:
    """Return a job; classes are drawn by the mean probabilities of the first two models."""
    models = {n: model_file(folder, n, dataset, scale) for n, scale in enumerate(scales)}
    if dataset.task is Task.classification:
        rows = dataset.validation.rows
        both = [load_table_model(models[n]).outputs(rows) for n in (0, 1)]
        shares = [np.exp(of)[:, 1] / np.exp(of).sum(axis=1) for of in both]
        drawn = np.random.default_rng(2).uniform(size=len(rows)) < np.mean(shares, axis=0)
        dataset = replace(dataset, validation=DatasetPart(rows, drawn.astype(np.int64)))
    return EnsembleFileJob(str(folder / "ensemble.pt"), models, dataset, "a")


def test_probabilities_are_the_weighted_mean(tmp_path: Path, disc: Dataset) -> None:
    question = asked(tmp_path, disc, 4.0, 6.0, 1.0, 900.0)
    made = write_ensemble(question)
    assert 2 <= len(made.members) < 4
    assert 3 not in made.members, "it is sure, and wrong"
    assert list(made.members.values()) == sorted(made.members.values(), reverse=True)
    each = [load(question.models[n]).predict_probabilities(POINTS) for n in made.members]
    model = load_table_model(question.path)
    found = model.predict_probabilities(POINTS)
    weights = list(made.members.values())
    np.testing.assert_allclose(found, np.average(each, axis=0, weights=weights), rtol=1e-6)
    assert not np.allclose(found, np.mean(each, axis=0), rtol=1e-3)
    assert model.params == {f"trial-{n:05d}": weight for n, weight in made.members.items()}
    first = model.of_heaviest(1).predict_probabilities(POINTS)
    np.testing.assert_allclose(first, each[0], rtol=1e-6)


def test_its_scores_are_those_on_the_rows_that_chose(tmp_path: Path, disc: Dataset) -> None:
    question = asked(tmp_path, disc, 4.0, 6.0, 1.0)
    made = write_ensemble(question)
    model = load_table_model(question.path)
    outputs = model.outputs(disc.validation.rows)
    logs = outputs - np.logaddexp.reduce(outputs, axis=1, keepdims=True)
    loss = -logs[np.arange(len(logs)), question.dataset.validation.y].mean()
    assert made.scores["loss"] == pytest.approx(loss)
    assert model.metrics == made.scores
    (tmp_path / "events.log").touch()
    assert model.study == tmp_path.name


def test_values_are_the_weighted_mean(tmp_path: Path, disc: Dataset) -> None:
    y = np.random.default_rng(1).standard_normal(len(disc.validation)).astype(np.float64)
    part = DatasetPart(disc.validation.rows, y)
    data = replace(
        disc, task=Task.regression, classes=(), train=part, validation=part, target_scale=3.0
    )
    question = asked(tmp_path, data, 1.0, 2.0, 1.5)
    made = write_ensemble(question)
    each = [load(question.models[n]).predict(POINTS) for n in made.members]
    weights = list(made.members.values())
    found = load(question.path).predict(POINTS)
    np.testing.assert_allclose(found, np.average(each, axis=0, weights=weights), rtol=1e-6)


@pytest.mark.parametrize("task", [Task.classification, Task.regression])
def test_what_it_found_is_drawn_in_place_of_what_was(
    tmp_path: Path, disc: Dataset, task: Task
) -> None:
    names = {"importances.png", "errors.png", "calibration.png"}
    if task is Task.regression:
        y = np.random.default_rng(1).standard_normal(len(disc.validation)).astype(np.float64)
        part = DatasetPart(disc.validation.rows, y)
        disc = replace(disc, task=task, classes=(), train=part, validation=part, target="$y_")
        names = {"importances.png", "predicted.png"}
    question = asked(tmp_path, disc, 4.0, 6.0)
    folder = tmp_path / "plots"
    folder.mkdir()
    (folder / "of_before.png").touch()
    made = write_ensemble(replace(question, importance_seconds=20.0, plots=str(folder)))
    assert made.not_drawn == ""
    drawn = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert set(drawn) == names
    assert all(png.startswith(b"\x89PNG") for png in drawn.values())


def test_what_it_goes_by_and_its_intervals_are_in_its_event(tmp_path: Path, disc: Dataset) -> None:
    question = replace(asked(tmp_path, disc, 4.0, 6.0, 900.0), importance_seconds=20.0)
    made = write_ensemble(question)
    found, n_rows = made.findings, len(disc.validation)
    assert found is not None
    assert {column.name for column in found.importances} == {*disc.columns.sources}
    assert sum(map(sum, found.confusion)) == n_rows
    assert sum(point.n_rows for point in found.calibration) == n_rows
    assert {*made.intervals} == {"ensemble", "trial-00000", "trial-00001", "trial-00002"}
    for name in ("loss", "error", "auc"):
        value, low, high = made.intervals["ensemble"][name]
        assert value == made.scores[name]
        assert low < value < high
    event = EnsembleBuilt(
        1.0, n_rows, made.members, made.scores, intervals=made.intervals, findings=found
    )
    assert decode_event(encode_event(event)) == event


def test_of_folds_a_column_is_shuffled_among_rows_that_the_model_has_not_seen(
    tmp_path: Path, disc: Dataset
) -> None:
    """And so are those of all pictures."""
    n = len(disc.validation)
    halves = np.arange(n // 2), np.arange(n // 2, n)
    folds = tuple(RowFold(train, judged) for judged, train in (halves, halves[::-1]))
    nothing = disc.validation.take(np.arange(0))
    data = replace(disc, train=disc.validation, validation=nothing, folds=folds)
    seen: list[np.ndarray] = []

    class Model:
        """Notes what it is asked about."""

        n_outputs, module = 2, None

        def to(self, device: str) -> None: ...

        def check_columns(self, columns: TableColumns) -> None: ...

        def outputs(self, columns: TableColumns, rows: TableRows) -> np.ndarray:
            seen.append(rows.numbers)
            return np.stack([-rows.numbers[:, 0], rows.numbers[:, 0]], axis=1).astype(np.float64)

    class Unasked(Model):
        """The model of the other fold, which has trained on the rows."""

        def outputs(self, columns: TableColumns, rows: TableRows) -> np.ndarray:
            raise AssertionError("it has trained on these rows")

    one, other = (MeanModel([Model(), Unasked()], data.task) for _ in range(2))
    outputs = np.zeros((n, 2))
    models = {0: one, 1: other}
    found = find_in_ensemble(data, outputs, models, {0: 0.7, 1: 0.3}, importance_seconds=20.0)
    assert found.n_rows == len(halves[0])
    judged = disc.validation.rows.numbers[halves[0]]
    assert len(seen) == 2 * (1 + 1 + 2 * N_REPEATS), "of two columns, and twice unshuffled"
    for rows in seen:
        np.testing.assert_array_equal(np.sort(rows, axis=0), np.sort(judged, axis=0))


def test_more_columns_are_shuffled_less_often() -> None:
    assert n_shuffle_repeats(0.01, 14, 20.0) == N_REPEATS
    assert n_shuffle_repeats(0.1, 100, 20.0) == 2
    assert n_shuffle_repeats(0.1, 1000, 20.0) == 0
    assert n_shuffle_repeats(0.1, 0, 20.0) == 0


def test_pictures_that_cannot_be_drawn_end_nothing(tmp_path: Path, disc: Dataset) -> None:
    question = asked(tmp_path, disc, 4.0, 6.0)
    nowhere = str(tmp_path / "no" / "plots")
    made = write_ensemble(replace(question, importance_seconds=20.0, plots=nowhere))
    assert made.findings is not None
    assert "what it found (FileNotFoundError" in made.not_drawn
    assert load(question.path).params


def test_a_model_that_cannot_be_read_is_named_and_the_file_of_before_stands(
    tmp_path: Path, disc: Dataset
) -> None:
    question = asked(tmp_path, disc, 1.0, 2.0)
    write_ensemble(question)
    before = Path(question.path).read_bytes()
    Path(question.models[1]).write_bytes(b"no model")
    with pytest.raises(AutoMLError, match=r"1\.pt"):
        write_ensemble(question)
    assert Path(question.path).read_bytes() == before


@pytest.mark.parametrize(
    "weights", [[0.5], [0.5, 0.6], [1.5, -0.5], [float("nan"), 0.5], "ab", [True, 1.0]]
)
def test_weights_that_are_none_are_refused(tmp_path: Path, disc: Dataset, weights: object) -> None:
    question = asked(tmp_path, disc, 4.0, 6.0)
    write_ensemble(question)
    content = torch_checkpoint.load(Path(question.path))
    content["state"]["member_weights"] = weights
    torch_checkpoint.save(tmp_path, {"ensemble.pt": content})
    with pytest.raises(AutoMLError, match="not a model that can be used"):
        load(question.path)


def test_one_that_grew_is_what_is_made_at_once(tmp_path: Path, disc: Dataset) -> None:
    question = asked(tmp_path, disc, 4.0, 6.0, 1.0)
    at_once = write_ensemble(question)
    ensemble = EnsembleWorker(EnsembleWorkerSetup(question.dataset))
    two = ensemble(EnsembleQuery({n: question.models[n] for n in (0, 1)}))
    assert isinstance(two, EnsembleQueryResult)
    assert set(two.members) <= {0, 1}
    all_three = ensemble(EnsembleQuery(question.models))
    assert isinstance(all_three, EnsembleQueryResult)
    assert (all_three.members, all_three.scores) == (at_once.members, at_once.scores)
    before = Path(question.path).read_bytes()
    made = ensemble(question)
    assert isinstance(made, EnsembleFileResult)
    assert (made.members, made.scores) == (at_once.members, at_once.scores)
    assert set(made.rows_per_second) == {0, 1, 2}
    assert load(question.path).predict(POINTS).tolist() == load_of(before, tmp_path)


def load_of(file: bytes, folder: Path) -> list[object]:
    (folder / "before.pt").write_bytes(file)
    labels: list[object] = load(folder / "before.pt").predict(POINTS).tolist()
    return labels


def test_a_model_is_asked_once(tmp_path: Path, disc: Dataset) -> None:
    question = asked(tmp_path, disc, 4.0, 6.0)
    ensemble = EnsembleWorker(EnsembleWorkerSetup(question.dataset))
    first = ensemble(EnsembleQuery(question.models))
    for path in question.models.values():
        Path(path).unlink()
    again = ensemble(EnsembleQuery(question.models))
    assert isinstance(first, EnsembleQueryResult)
    assert isinstance(again, EnsembleQueryResult)
    assert again.members == first.members


def test_what_is_not_among_the_best_any_more_is_forgotten(tmp_path: Path, disc: Dataset) -> None:
    question = asked(tmp_path, disc, 4.0, 6.0, 1.0)
    ensemble = EnsembleWorker(EnsembleWorkerSetup(question.dataset))
    ensemble(EnsembleQuery(question.models))
    ensemble(EnsembleQuery({n: question.models[n] for n in (0, 1)}))
    made = ensemble(replace(question, models={n: question.models[n] for n in (0, 1)}))
    assert isinstance(made, EnsembleFileResult)
    assert set(made.rows_per_second) == {0, 1}
