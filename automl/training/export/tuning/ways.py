"""The ways of running a model that are measured.

Those with a file run what an export can be, by the reader that an export brings; the others are
named, and written by nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch

from automl.config import ExportFormat
from automl.errors import ConfigError
from automl.training.export import reader
from automl.training.export.aoti_file import check as check_compiler
from automl.training.export.graph import is_network
from automl.training.export.tracing import quiet
from automl.training.export.tuning.cuda_ways import cuda_ways
from automl.training.export.tuning.timing import rows_of
from automl.training.export.tuning.workshop import Made, NotHereError, Way, Workshop
from automl.training.predictor import Predictor

_NO_NETWORK = (
    "linear models and trees, alone or among others, are run by ONNX Runtime alone, in full"
)


def ways_here(predictor: Predictor) -> list[Way]:
    """Those with as many threads as torch takes here; what cannot run this model says so."""
    found = ways(torch.get_num_threads())
    if is_network(predictor):
        return list(found)
    return [way if way.any_model else replace(way, why_not=_NO_NETWORK) for way in found]


def ways(n_threads: int) -> Iterator[Way]:
    """Those of a CPU with so many threads, and those of a GPU."""
    for n in dict.fromkeys((1, n_threads)):
        yield Way("torch, eager", _eager, n)
    yield Way("torch.export", partial(_file, ExportFormat.torch), n_threads, making_seconds=3)
    yield Way("torch.compile", _compiled, n_threads, making_seconds=15)
    yield Way("aoti", partial(_file, ExportFormat.aoti), n_threads, making_seconds=25)
    for n in counts(n_threads):
        yield Way("onnx", partial(_onnx, n), n, any_model=True)
    for n in counts(n_threads):
        yield Way("onnx, int8", partial(_int8, n), n, rounds=True)
    yield Way("torch, bf16", _bf16, n_threads, rounds=True)
    yield from cuda_ways()


def counts(n_threads: int) -> list[int]:
    """1, 2, 4, … and all."""
    powers = [2**i for i in range(n_threads.bit_length())]
    return sorted({*powers, n_threads})


def _eager(shop: Workshop) -> Made:
    return Made(reader.with_torch(shop.graph, "cpu"))


def _compiled(shop: Workshop) -> Made:
    try:
        check_compiler()
    except ConfigError as error:
        raise NotHereError("there is no C++ compiler") from error
    scores = reader.with_torch(torch.compile(shop.graph, dynamic=True), "cpu")
    with quiet():
        for n_rows in (1, 64):  # one row is a case of its own
            scores(**rows_of(shop.example, n_rows))
    return Made(scores)


def _file(kind: ExportFormat, shop: Workshop) -> Made:
    file = shop.written(kind)
    return Made(reader.OPENERS[kind.value](file, 1), file, kind)


def _onnx(n_threads: int, shop: Workshop) -> Made:
    file = shop.written(ExportFormat.onnx)
    return Made(reader.open_onnx(file, n_threads), file, ExportFormat.onnx)


def _int8(n_threads: int, shop: Workshop) -> Made:
    file = shop.onnx_int8
    return Made(reader.open_onnx(file, n_threads), file, ExportFormat.onnx)


def _bf16(shop: Workshop) -> Made:
    return Made(reader.with_torch(shop.rounded(), "cpu"))
