"""What is measured of a model's ways of running, what counts of it, and what it makes an export."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from automl.config import ExportFormat
from automl.data.columns import TableColumns
from automl.data.dataset import DatasetPart
from automl.export import reader
from automl.export.package import TunedFile, export_model, open_export_reader
from automl.export.parity import ParityError
from automl.measure.tuning import measurement
from automl.measure.tuning.measurement import (
    BATCH_SIZES,
    AccuracyCheck,
    InferenceTiming,
    TuningMeasurements,
    WayMeasurement,
    draw_speeds,
    fastest_way,
    fastest_way_for_many,
    measure_ways,
    seconds_needed,
    time_calls,
)
from automl.measure.tuning.ways import (
    CallableWay,
    InferenceWay,
    WayArtifacts,
    WayUnavailableError,
    inference_ways,
    row_slices,
    thread_options,
)
from automl.models.predictor import Predictor
from tests.export.conftest import ROWS, scores_of

pytest.importorskip("onnxruntime", reason="needs pip install 'automl-sweep[export]'")


# --- timing ---------------------------------------------------------------------------------------


class Clocked:
    """A model on a clock of its own: a call takes a second and 1/1024 for each row."""

    def __init__(self) -> None:
        self.now, self.calls = 0.0, list[int]()

    def clock(self) -> float:
        return self.now

    def __call__(self, numbers: Any) -> Any:
        self.calls.append(len(numbers))
        self.now += 1 + len(numbers) / 1024
        return numbers[:, 0]


def test_batches_grow_and_a_call_counts_once() -> None:
    model = Clocked()
    found = time_calls(model, {"numbers": np.zeros((3, 2))}, model.clock)
    assert found.p50_seconds == found.p99_seconds == 1 + 1 / 1024
    rates = {n: n / (1 + n / 1024) for n in BATCH_SIZES}
    assert dict(found.rows_per_second) == pytest.approx(rates)
    each = measurement.N_WARM + measurement.LEAST_CALLS  # longer than what is given for it
    assert model.calls == [n for n in BATCH_SIZES for _ in range(each)]


def test_quick_calls_are_made_for_as_long_as_is_given() -> None:
    model = Clocked()
    time_calls(model, {"numbers": np.zeros((3, 2))}, lambda: model.now / 1000)
    n_of_one_row = model.calls.count(1) - measurement.N_WARM
    assert n_of_one_row == pytest.approx(1000 * measurement.ONE_ROW_SECONDS, abs=2)


# --- choice ---------------------------------------------------------------------------------------


def seen(name: str, p50: float, rate: float = 1.0, **others: Any) -> WayMeasurement:
    found = InferenceTiming(p50, p50, {1: 1 / p50, 256: rate})
    return WayMeasurement(name, None, found, 0.5, **{"is_accurate": True, **others})


def test_the_fastest_is_within_the_tolerance_and_of_files_a_file() -> None:
    ways = [
        seen("graph", 2.0),
        seen("file", 3.0, 9.0, is_file=True),
        seen("rounded", 1.0, 99.0, is_accurate=False, is_file=True),
        WayMeasurement("absent", why_not="there is no GPU"),
    ]
    assert fastest_way(ways) is ways[0]
    assert fastest_way(ways, files=True) is ways[1]
    assert fastest_way_for_many(ways) == (ways[1], 256)
    assert fastest_way(ways[2:]) is None
    assert fastest_way_for_many(ways[2:]) is None


@pytest.mark.parametrize(
    ("n", "all_"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])]
)
def test_threads_are_doubled_up_to_all(n: int, all_: list[int]) -> None:
    assert thread_options(n) == all_


@pytest.mark.parametrize("n_rows", [1, 1023, 2048, 16384, 16385])
def test_streams_get_every_row_once(n_rows: int) -> None:
    parts = row_slices(n_rows, 4)
    assert [row for part in parts for row in range(n_rows)[part]] == list(range(n_rows))
    assert len(parts) == max(1, min(4, n_rows // 1024))


def test_labels_say_the_threads() -> None:
    assert WayMeasurement("onnx", 1).label == "onnx, 1 thread"
    assert WayMeasurement("onnx", 2).label == "onnx, 2 threads"
    assert WayMeasurement("GPU, eager").label == "GPU, eager"


def test_a_picture_is_drawn_of_what_was_measured() -> None:
    png = draw_speeds([seen("a", 1.0), seen("b", 2.0, is_accurate=False), WayMeasurement("c")], "a")
    assert png.startswith(b"\x89PNG")


# --- measuring ------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few calls of each batch."""
    monkeypatch.setattr(measurement, "ONE_ROW_SECONDS", 0.0)
    monkeypatch.setattr(measurement, "BATCH_SECONDS", 0.0)
    monkeypatch.setattr(measurement, "BATCH_SIZES", (1, 16))


def validation_of(predictor: Predictor, tolerance: float = 0.01) -> AccuracyCheck:
    """The table's rows, whose targets are what the model says of them, but for a few."""
    import pandas as pd

    rows = predictor.read(pd.DataFrame(ROWS))
    said = scores_of(predictor, ROWS)
    if predictor.classes:
        y = said.argmax(1)
        y[::9] = 0
    else:
        y = (said + np.resize([1e5, -1e5], len(said))).astype(np.float64)
    return AccuracyCheck.of(predictor, DatasetPart(rows, y), tolerance)


def real(name: str, n_threads: int = 1) -> InferenceWay:
    return next(way for way in inference_ways(n_threads) if way.name == name)


def made_of(change: Callable[[Any], Any]) -> InferenceWay:
    """Eager, its scores changed."""

    def make(shop: WayArtifacts) -> CallableWay:
        scores = reader.wrap_torch_module(shop.graph, "cpu")
        return CallableWay(lambda **arrays: change(scores(**arrays)))

    return InferenceWay("changed", make)


def absent(error: BaseException, shop: WayArtifacts) -> CallableWay:
    raise error


def measured(
    predictor: Predictor, those: list[InferenceWay], folder: Path, tolerance: float = 0.01
) -> tuple[TuningMeasurements, list[str]]:
    shown: list[str] = []
    validation = validation_of(predictor, tolerance)
    found = measure_ways(
        predictor, validation, those, folder, lambda _, one: shown.append(one.name)
    )
    return found, shown


@pytest.mark.parametrize("which", ["classifier", "regressor"])
def test_ways_that_do_not_round_have_the_models_loss(
    which: str, tmp_path: Path, quick: None, request: pytest.FixtureRequest
) -> None:
    predictor: Predictor = request.getfixturevalue(which)
    names = ["torch, eager", "torch.export", "onnx", "onnx, int8", "torch, bf16"]
    found, shown = measured(predictor, [real(name) for name in names], tmp_path, tolerance=0.0)
    assert shown == names
    own = validation_of(predictor).loss
    for one in found.ways:
        assert one.why_not == ""
        assert one.loss is not None
        assert (one.loss != pytest.approx(own, rel=1e-6)) is one.rounds
        assert one.is_accurate or one.rounds
        assert one.is_file is (one.name in ("torch.export", "onnx", "onnx, int8"))
    assert set(found.files) == {"torch.export, 1 thread", "onnx, 1 thread", "onnx, int8, 1 thread"}


def test_what_cannot_be_measured_says_why_and_ends_nothing(
    classifier: Predictor, tmp_path: Path, quick: None
) -> None:
    those = [
        InferenceWay("absent", partial(absent, WayUnavailableError("there is no compiler"))),
        InferenceWay("broken", partial(absent, RuntimeError("odd\nnews"))),
        made_of(lambda scores: scores * np.nan),
        InferenceWay("elsewhere", partial(absent, AssertionError("never made")), why_not="no GPU"),
        made_of(lambda scores: scores[:, ::-1]),
        real("torch, eager"),
    ]
    found, shown = measured(classifier, those, tmp_path)
    why = [one.why_not for one in found.ways]
    assert why[:2] == ["there is no compiler", "RuntimeError: odd news"]
    assert "no finite number" in why[2]
    assert why[3:] == ["no GPU", "", ""]
    assert [one.is_accurate for one in found.ways] == [False] * 5 + [True]
    assert "elsewhere" not in shown
    assert seconds_needed(those[3:4]) == 0


def test_ctrl_c_keeps_what_was_measured(classifier: Predictor, tmp_path: Path, quick: None) -> None:
    stop = InferenceWay("stopped", partial(absent, KeyboardInterrupt()))
    found, shown = measured(classifier, [real("torch, eager"), stop, real("onnx")], tmp_path)
    assert found.interrupted
    assert shown == ["torch, eager"]
    assert [one.why_not for one in found.ways] == ["", "interrupted", "interrupted"]
    with pytest.raises(KeyboardInterrupt):
        measured(classifier, [stop, real("onnx")], tmp_path)


# --- the export -----------------------------------------------------------------------------------

ABOUT = {"study": "s", "trial": 3}


def int8_of(predictor: Predictor, folder: Path, accept: Callable[[Any], None] | None) -> TunedFile:
    shop = WayArtifacts(predictor, validation_of(predictor).arrays, folder)
    return TunedFile(shop.onnx_int8, 2, accept, {"tune.json": b"{}"})


def test_an_export_that_rounds_is_judged_by_its_loss(classifier: Predictor, tmp_path: Path) -> None:
    to = tmp_path / "out"
    tuned = int8_of(classifier, tmp_path, validation_of(classifier, tolerance=0.5).check)
    done = export_model(classifier, ROWS, to, ExportFormat.onnx, ABOUT, tuned=tuned)
    assert done.largest > 1e-5
    assert json.loads((to / "schema.json").read_text())["threads"] == 2
    assert (to / "tune.json").read_bytes() == b"{}"
    assert done.file.read_bytes() == tuned.file.read_bytes()
    assert open_export_reader(to)(ROWS[1]) in classifier.classes


@pytest.mark.parametrize("judged", [False, True])
def test_an_export_that_is_too_far_off_is_not_written(
    classifier: Predictor, tmp_path: Path, judged: bool
) -> None:
    """An export is refused by the model's scores, or by its loss if a way rounds."""
    validation = validation_of(classifier, tolerance=0.0)
    better = replace(validation, loss=validation.loss / 2)
    accept = better.check if judged else None
    said = r"more than tolerance=0 allows" if judged else "differ on"
    with pytest.raises(ParityError, match=said):
        export_model(
            classifier,
            ROWS,
            tmp_path / "out",
            ExportFormat.onnx,
            ABOUT,
            tuned=int8_of(classifier, tmp_path, accept),
        )
    assert not (tmp_path / "out").exists()


def test_a_row_is_judged_alone_too(classifier: Predictor) -> None:
    """int8 scales a row by all rows of its batch."""
    validation = validation_of(classifier)
    right = reader.wrap_torch_module(
        WayArtifacts(classifier, validation.arrays, Path()).graph, "cpu"
    )

    def only_together(**arrays: Any) -> Any:
        scores = right(**arrays)
        return scores if len(scores) > 1 else scores[:, ::-1]

    assert validation.loss_of(only_together, one_by_one=False) == pytest.approx(validation.loss)
    assert validation.loss_of(only_together, one_by_one=True) > validation.max_loss


def test_few_rows_are_enough(columns: TableColumns, classifier: Predictor) -> None:
    import pandas as pd

    rows = classifier.read(pd.DataFrame(ROWS[:1]))
    validation = AccuracyCheck.of(classifier, DatasetPart(rows, np.array([0])), 0.01)
    assert len(validation.part) == 1
