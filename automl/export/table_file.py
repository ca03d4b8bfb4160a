"""`format=onnx` of models that are no networks, and of the mean of such and networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnx

from automl.errors import ConfigError
from automl.export import formats
from automl.export.network_graph import (
    ScoringModule,
    WeightedModel,
    sharpness_of,
    weighted_models,
)
from automl.export.table_graph import OnnxDrawable, TableGraph, estimate_file_bytes
from automl.export.tracing import trace_module
from automl.models.families.boosting.heavy import BoostingModel
from automl.models.families.trees.heavy import ForestModel
from automl.models.networks.network import NetworkModel
from automl.models.predictor import Predictor


def write(predictor: Predictor, example: Mapping[str, npt.NDArray[Any]], file: Path) -> None:
    """Write the graph of a model. Raises ConfigError where there is none."""
    members = weighted_models(predictor)
    _check_bytes(members)
    task, graph = predictor.task, TableGraph(predictor.columns)
    answers = []
    for model, weight, encoding in members:
        if isinstance(model, OnnxDrawable):
            outputs = model.draw(graph.encoded(encoding))
            answer = graph.answered(outputs, task, predictor.unit)
            answers.append(answer if len(members) == 1 else _times(graph, answer, weight))
    networks = [member for member in members if isinstance(member.model, NetworkModel)]
    assert len(answers) + len(networks) == len(members), "their families say that they export"
    if networks:
        answers.append(graph.take_in(_of_networks(predictor, networks, example)))
    answer = answers[0] if len(answers) == 1 else graph.add("Sum", *answers)
    if (sharpness := sharpness_of(predictor)) != 1.0:
        scores = _times(graph, graph.add("Log", answer), sharpness)
        answer = graph.add("Softmax", scores, axis=1)
    file.write_bytes(
        graph.model(answer, task, predictor.trained_model.n_outputs).SerializeToString()
    )


def _times(graph: TableGraph, answer: str, weight: float) -> str:
    return graph.add("Mul", answer, graph.constant(weight))


def _of_networks(
    predictor: Predictor,
    networks: Sequence[WeightedModel],
    example: Mapping[str, npt.NDArray[Any]],
) -> onnx.ModelProto:
    """Return the networks' part of the mean."""
    graph = ScoringModule(predictor.columns, networks, task=predictor.task, unit=predictor.unit)
    return formats.make_onnx_model(trace_module(graph.eval(), example))


def _check_bytes(members: Sequence[WeightedModel]) -> None:
    """Raise ConfigError for trees that fill more than a file."""
    kinds = (ForestModel, BoostingModel)
    trees = [model.trees for model, *_ in members if isinstance(model, kinds)]
    n_bytes = sum(estimate_file_bytes(some) for some in trees if some is not None)
    if n_bytes > formats.MAX_ONNX_BYTES:
        raise ConfigError(
            f"format=onnx: an ONNX file holds 2 GiB at most, and the trees take {n_bytes:,} "
            "bytes: export a single trial (which=N), or train with a "
            "larger min_samples_leaf; automl.load takes them as they are."
        )
