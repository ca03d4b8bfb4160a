"""The graph before any exporter: the arithmetic of the table and of the answer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from automl.config import Task
from automl.data.columns import CategoryColumn, Column, NumberColumn, TableColumns
from automl.data.dataset import TableRows
from automl.export.network_graph import (
    ScoringModule,
    WeightedModel,
    graph_inputs,
    make_scoring_module,
)
from automl.models.mean_model import MeanModel
from tests.export.conftest import linear, predictor_of

numbers = st.floats(-1e6, 1e6)
number_columns = st.builds(
    NumberColumn,
    name=st.just("n"),
    mean=numbers,
    scale=st.floats(1e-3, 1e6),
    fill=numbers,
    has_indicator=st.booleans(),
)
category_columns = st.builds(
    CategoryColumn,
    name=st.just("c"),
    categories=st.integers(1, 4).map(lambda n: tuple("abcd"[:n])),
    has_other=st.booleans(),
)
cells = st.one_of(st.just(float("nan")), st.floats(-3e38, 3e38), numbers)


@given(
    st.lists(st.one_of(number_columns, category_columns), min_size=1, max_size=5),
    st.data(),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_it_says_what_predict_says(
    all_columns: list[Column], data: st.DataObject, dtype: torch.dtype
) -> None:
    columns = TableColumns(tuple(all_columns))
    n_rows = data.draw(st.integers(1, 4))
    values = [[data.draw(cells) for _ in columns.numbers] for _ in range(n_rows)]
    codes = [
        [data.draw(st.integers(0, len(c.categories))) for c in columns.categories] for _ in values
    ]
    rows = TableRows(
        np.array(values, dtype=np.float64).reshape(n_rows, -1),
        np.array(codes, dtype=np.int32).reshape(n_rows, -1),
    )
    predictor = predictor_of(columns, dtype=dtype)
    said = predictor.trained_model.outputs(columns, rows)
    ours = np.exp(said) / np.exp(said).sum(1, keepdims=True)
    theirs = _run(make_scoring_module(predictor), graph_inputs(columns, rows))
    assert np.abs(theirs - ours).max() < 1e-12


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), 1e300, float("nan")])
def test_what_float32_cannot_hold_is_missing(columns: TableColumns, value: float) -> None:
    graph = make_scoring_module(predictor_of(columns))
    given_, missing = (
        {"numbers": np.full((1, 3), number), "codes": np.zeros((1, 2), dtype=np.int64)}
        for number in (value, float("nan"))
    )
    assert (_run(graph, given_) == _run(graph, missing)).all()


@pytest.mark.parametrize("code", [-1, -5, 99])
def test_a_code_of_no_category_is_unknown(code: int) -> None:
    """With a feature for the rare ones, and without."""
    for has_other in (True, False):
        columns = TableColumns((CategoryColumn("c", ("a", "b"), has_other),))
        graph = make_scoring_module(predictor_of(columns))
        unknown = graph_inputs(
            columns, TableRows(np.empty((1, 0)), np.array([[2]], dtype=np.int32))
        )
        assert unknown["codes"].tolist() == [[-1]]
        assert (_run(graph, {"codes": np.array([[code]])}) == _run(graph, unknown)).all()


def test_a_value_is_in_the_targets_unit(columns: TableColumns) -> None:
    rows = TableRows(np.ones((2, 3)), np.zeros((2, 2), dtype=np.int32))
    raw = predictor_of(columns, classes=())
    scaled = predictor_of(columns, classes=(), unit=(100.0, 7.0))
    out, answer = (_run(make_scoring_module(p), graph_inputs(columns, rows)) for p in (raw, scaled))
    assert answer.shape == (2,)
    assert np.allclose(answer, out * 7 + 100, rtol=1e-15)


def test_members_count_by_their_weights(columns: TableColumns) -> None:
    def steeper(n_inputs: int, n_outputs: int) -> torch.nn.Module:
        network = linear(n_inputs, n_outputs)
        with torch.no_grad():
            for weight in network.parameters():
                weight.mul_(-2)
        return network

    networks = [predictor_of(columns, build).trained_model for build in (linear, steeper)]
    weights, task = (0.75, 0.25), Task.classification
    rows = TableRows(np.ones((2, 3)), np.zeros((2, 2), dtype=np.int32))
    said = MeanModel(networks, task, weights).outputs(columns, rows)
    members = [WeightedModel(*member, None) for member in zip(networks, weights, strict=True)]
    graph = ScoringModule(columns, members, task=task, unit=(0.0, 1.0)).eval()
    assert np.allclose(_run(graph, graph_inputs(columns, rows)), np.exp(said), rtol=1e-12)


def _run(graph: ScoringModule, arrays: dict[str, np.ndarray]) -> np.ndarray:
    with torch.no_grad():
        said: np.ndarray = graph(**{n: torch.from_numpy(a) for n, a in arrays.items()}).numpy()
    return said
