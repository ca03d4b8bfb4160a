"""`ensemble.pt`: the weighted mean of models that are best together, as one file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from automl.config import DataConfig, Task
from automl.data.dataset import Dataset, Part
from automl.data.load import load_dataset
from automl.errors import AutoMLError
from automl.training import checkpoint
from automl.training.ensemble.words import EnsembleFile
from automl.training.ensemble.write import write
from automl.training.mlp.family import MLPFamily
from automl.training.mlp.network import MLPNetwork, MLPShape
from automl.training.model_state import model_state
from automl.training.predictor import load, load_of_table

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
    state = model_state(MLPFamily(), dataset, model)
    content = {"trial": number, "params": {"width": 5}, "step": 3, "state": state}
    checkpoint.save(folder, {f"{number}.pt": content})
    return str(folder / f"{number}.pt")


def asked(folder: Path, dataset: Dataset, *scales: float) -> EnsembleFile:
    """Of classes that are drawn by the mean probabilities of the first two."""
    models = {n: model_file(folder, n, dataset, scale) for n, scale in enumerate(scales)}
    if dataset.task is Task.classification:
        rows = dataset.validation.rows
        both = [load_of_table(models[n]).outputs(rows) for n in (0, 1)]
        shares = [np.exp(of)[:, 1] / np.exp(of).sum(axis=1) for of in both]
        drawn = np.random.default_rng(2).uniform(size=len(rows)) < np.mean(shares, axis=0)
        dataset = replace(dataset, validation=Part(rows, drawn.astype(np.int64)))
    return EnsembleFile(str(folder / "ensemble.pt"), models, dataset, "a")


def test_probabilities_are_the_weighted_mean(tmp_path: Path, disc: Dataset) -> None:
    question = asked(tmp_path, disc, 4.0, 6.0, 1.0, 900.0)
    made = write(question)
    assert 2 <= len(made.members) < 4
    assert 3 not in made.members, "it is sure, and wrong"
    assert list(made.members.values()) == sorted(made.members.values(), reverse=True)
    each = [load(question.models[n]).predict_probabilities(POINTS) for n in made.members]
    model = load_of_table(question.path)
    found = model.predict_probabilities(POINTS)
    weights = list(made.members.values())
    np.testing.assert_allclose(found, np.average(each, axis=0, weights=weights), rtol=1e-6)
    assert not np.allclose(found, np.mean(each, axis=0), rtol=1e-3)
    assert model.params == {f"trial-{n:05d}": weight for n, weight in made.members.items()}
    first = model.of_heaviest(1).predict_probabilities(POINTS)
    np.testing.assert_allclose(first, each[0], rtol=1e-6)


def test_its_scores_are_those_on_the_rows_that_chose(tmp_path: Path, disc: Dataset) -> None:
    question = asked(tmp_path, disc, 4.0, 6.0, 1.0)
    made = write(question)
    model = load_of_table(question.path)
    outputs = model.outputs(disc.validation.rows)
    logs = outputs - np.logaddexp.reduce(outputs, axis=1, keepdims=True)
    loss = -logs[np.arange(len(logs)), question.dataset.validation.y].mean()
    assert made.scores["loss"] == pytest.approx(loss)
    assert model.metrics == made.scores
    (tmp_path / "events.log").touch()
    assert model.study == tmp_path.name


def test_values_are_the_weighted_mean(tmp_path: Path, disc: Dataset) -> None:
    y = np.random.default_rng(1).standard_normal(len(disc.validation)).astype(np.float32)
    part = Part(disc.validation.rows, y)
    data = replace(
        disc, task=Task.regression, classes=(), train=part, validation=part, target_scale=3.0
    )
    question = asked(tmp_path, data, 1.0, 2.0, 1.5)
    made = write(question)
    each = [load(question.models[n]).predict(POINTS) for n in made.members]
    weights = list(made.members.values())
    found = load(question.path).predict(POINTS)
    np.testing.assert_allclose(found, np.average(each, axis=0, weights=weights), rtol=1e-6)


def test_a_model_that_cannot_be_read_is_named_and_the_file_of_before_stands(
    tmp_path: Path, disc: Dataset
) -> None:
    question = asked(tmp_path, disc, 1.0, 2.0)
    write(question)
    before = Path(question.path).read_bytes()
    Path(question.models[1]).write_bytes(b"no model")
    with pytest.raises(AutoMLError, match=r"1\.pt"):
        write(question)
    assert Path(question.path).read_bytes() == before


@pytest.mark.parametrize(
    "weights", [[0.5], [0.5, 0.6], [1.5, -0.5], [float("nan"), 0.5], "ab", [True, 1.0]]
)
def test_weights_that_are_none_are_refused(tmp_path: Path, disc: Dataset, weights: object) -> None:
    question = asked(tmp_path, disc, 4.0, 6.0)
    write(question)
    content = checkpoint.load(Path(question.path))
    content["state"]["member_weights"] = weights
    checkpoint.save(tmp_path, {"ensemble.pt": content})
    with pytest.raises(AutoMLError, match="not a model that can be used"):
        load(question.path)
