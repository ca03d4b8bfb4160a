"""A whole export: written only when it agrees, read without this package, for every format."""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from automl.config import ExportFormat
from automl.data.column_kinds import read_columns
from automl.data.columns import TableColumns, make_divided_columns
from automl.data.combined_columns import find_pair
from automl.data.preprocessing import Preprocessing
from automl.errors import ConfigError
from automl.export.formats import EXPORT_FORMATS
from automl.export.package import export_model, open_export_reader
from automl.export.parity import ParityError
from automl.models.predictor import Predictor
from tests.export.conftest import ROWS, predictor_of, scores_of
from tests.manuals import section
from tests.models import networks

onnx = pytest.importorskip("onnxruntime", reason="needs pip install 'automl-sweep[export]'")
ABOUT = {"study": "s", "trial": 3}


@pytest.mark.slow
def test_a_dict_becomes_a_label_where_neither_automl_nor_torch_can_be_imported(
    classifier: Predictor, tmp_path: Path
) -> None:
    done = export_model(classifier, ROWS, tmp_path / "out", ExportFormat.onnx, ABOUT)
    assert (done.n_rows, done.largest < 1e-6) == (60, True)
    program = (
        "import sys, json; sys.modules.update(automl=None, torch=None, pandas=None, sklearn=None)\n"
        f"sys.path.insert(0, {str(tmp_path / 'out')!r})\n"
        "from reader import Model\n"
        "model = Model()\n"
        "rows = json.loads(sys.stdin.read())\n"
        "print(json.dumps([[model(row), model.probabilities(row)] for row in rows]))"
    )
    rows = [*ROWS[:9], {**ROWS[1], "pet": "emu"}, {**ROWS[1], "level": "4", "age": " ? "}]
    ran = subprocess.run(
        [sys.executable, "-I", "-B", "-c", program],
        input=json.dumps(rows),
        capture_output=True,
        text=True,
        check=True,
    )
    expected = scores_of(classifier, rows)
    for (label, said), scores in zip(json.loads(ran.stdout), expected, strict=True):
        assert label == classifier.classes[scores.argmax()]
        assert np.allclose(list(said.values()), scores, atol=1e-6)
        assert list(said) == list(classifier.classes)


def test_the_lines_of_the_manual_say_what_the_model_says(
    classifier: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lines,) = re.findall(r"```python\n(.*?)```", section("Without `reader.py`"), re.S)
    assert len(lines.splitlines()) <= 20
    monkeypatch.chdir(tmp_path)
    export_model(classifier, ROWS, tmp_path / "prices-v3", ExportFormat.onnx, ABOUT)
    names: dict[str, Any] = {}
    exec(lines, names)
    expected = [classifier.classes[scores.argmax()] for scores in scores_of(classifier, ROWS)]
    spelt = [{n: str(v) if n in names["places"] else v for n, v in row.items()} for row in ROWS]
    assert [names["label"](row) for row in spelt] == expected


@pytest.mark.parametrize("kind", [ExportFormat.onnx, ExportFormat.torch])
def test_a_regression_is_exported_in_its_unit(
    regressor: Predictor, tmp_path: Path, kind: ExportFormat
) -> None:
    export_model(regressor, ROWS, tmp_path / "out", kind, ABOUT)
    model = open_export_reader(tmp_path / "out")
    assert model.classes == []
    assert model(ROWS[4]) == pytest.approx(scores_of(regressor, ROWS[4:5])[0], rel=1e-6)
    schema = json.loads((tmp_path / "out" / "schema.json").read_text())
    assert (schema["study"], schema["trial"], schema["bound_to"]) == ("s", 3, [])
    assert schema["versions"]["torch"] == torch.__version__
    assert schema["machine"]["cpu_features"] != []
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        EXPORT_FORMATS[kind].file,
        "reader.py",
        "schema.json",
    ]


@pytest.mark.parametrize("kind", [ExportFormat.onnx, ExportFormat.torch])
def test_a_network_of_combined_columns_is_exported(tmp_path: Path, kind: ExportFormat) -> None:
    preprocessing = Preprocessing.fit(pd.DataFrame(ROWS))
    texts = ("age / level", "level - seen", "pet & member")
    pairs = [pair for text in texts if (pair := find_pair(preprocessing.columns, text))]
    predictor = predictor_of(preprocessing.with_pairs(pd.DataFrame(ROWS), pairs).columns)
    assert len(predictor.columns.pairs) == 3
    export_model(predictor, ROWS, tmp_path / "out", kind, ABOUT)
    model = open_export_reader(tmp_path / "out")
    said = [list(model.probabilities(row).values()) for row in ROWS]
    np.testing.assert_allclose(said, scores_of(predictor, ROWS), atol=1e-6)


def dated() -> tuple[TableColumns, list[dict[str, Any]]]:
    """Columns and rows with dates, numbers in texts, many categories, and a text."""
    rows = [
        {
            "joined": f"{1 + i % 28:02}.{1 + i % 12:02}.{1990 + i % 30}" if i % 9 else " ? ",
            "paid": f"{1000 + 1.5 * i:,.2f} €" if i % 7 else "free",
            "city": f"c{i * 37 % 101}",
            "seen": datetime.datetime(2024, 1, 1) + datetime.timedelta(hours=7 * i),
            "note": f"the {['red', 'blue'][i % 2]} house of number {i} and more" if i % 8 else None,
            "level": i % 5,
        }
        for i in range(200)
    ]
    frame = pd.DataFrame(rows)
    return Preprocessing.fit(frame, read_columns(frame, {}, detect=True)).columns, rows


@pytest.mark.slow
def test_dates_numbers_and_words_in_texts_are_read_without_this_package(tmp_path: Path) -> None:
    columns, rows = dated()
    kinds = {reading.kind for reading in columns.readings}
    assert kinds == {"date", "number", "frequency", "text"}
    predictor = predictor_of(columns)
    done = export_model(predictor, rows, tmp_path / "out", ExportFormat.onnx, ABOUT)
    assert (done.n_rows, done.largest < 1e-6) == (200, True)
    program = (
        "import sys, json; sys.modules.update(automl=None, torch=None, pandas=None, sklearn=None)\n"
        f"sys.path.insert(0, {str(tmp_path / 'out')!r})\n"
        "from reader import Model\n"
        "said = [Model().probabilities(row) for row in json.load(sys.stdin)]\n"
        "print(json.dumps([list(scores.values()) for scores in said]))"
    )
    texts = [{**row, "seen": str(row["seen"])} for row in rows[:9]]
    ran = subprocess.run(
        [sys.executable, "-I", "-B", "-c", program],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
    )
    assert np.allclose(json.loads(ran.stdout), scores_of(predictor, rows[:9]), atol=1e-6)


@pytest.mark.slow
def test_a_package_that_was_compiled_is_bound_to_this_cpu(
    columns: TableColumns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor import config

    monkeypatch.setattr(config.aot_inductor, "compile_wrapper_opt_level", "O0")
    try:
        EXPORT_FORMATS[ExportFormat.aoti].check()
    except ConfigError as error:
        pytest.skip(str(error))
    predictor = predictor_of(columns, nn.Linear)
    export_model(predictor, ROWS, tmp_path / "out", ExportFormat.aoti, ABOUT)
    model = open_export_reader(tmp_path / "out")
    assert model(ROWS[0]) == predictor.classes[scores_of(predictor, ROWS[:1])[0].argmax()]
    assert set(model.schema["bound_to"]) == {"system", "machine", "cpu_features", "torch"}


@pytest.mark.slow
@pytest.mark.parametrize("build", [networks.Recurrent, networks.dropping, networks.Secret])
def test_a_network_of_the_users_goes_the_same_way(
    columns: TableColumns, tmp_path: Path, build: Any
) -> None:
    if build is networks.Secret:  # its matrix is in no file: whoever loads it draws another
        torch.manual_seed(0)
    predictor = predictor_of(columns, build)
    assert export_model(predictor, ROWS, tmp_path / "out", ExportFormat.onnx, ABOUT).largest < 1e-5


class Singular(nn.Module):
    """An operator that ONNX does not have."""

    def __init__(self, n_inputs: int, n_outputs: int) -> None:
        super().__init__()
        self.out = nn.Linear(1, n_outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(torch.linalg.svdvals(x.unsqueeze(1)))
        return out


def test_an_operator_that_onnx_does_not_have_is_named_and_what_works_instead(
    columns: TableColumns, tmp_path: Path
) -> None:
    predictor = predictor_of(columns, Singular)
    with pytest.raises(ConfigError, match=r"the operator aten\._linalg_svd .* format=torch"):
        export_model(predictor, ROWS, tmp_path / "out", ExportFormat.onnx, ABOUT)
    assert list(tmp_path.iterdir()) == []
    assert export_model(predictor, ROWS, tmp_path / "out", ExportFormat.torch, ABOUT).largest < 1e-5


def test_a_network_that_cannot_be_traced_is_told_with_its_line(
    columns: TableColumns, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    predictor = predictor_of(columns, networks.Branching)
    line = r"networks\.py, line \d+, `return out if out\.sum\(\) > 0 else 2 \* out`"
    with pytest.raises(ConfigError, match=rf"{line}: .* What works instead: `predict`"):
        export_model(predictor, ROWS, tmp_path / "out", ExportFormat.onnx, ABOUT)
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


class Noisy(nn.Module):
    """Draws random numbers where it predicts."""

    def __init__(self, n_inputs: int, n_outputs: int) -> None:
        super().__init__()
        self.out = nn.Linear(n_inputs, n_outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.out(nn.functional.dropout(x, 0.5, training=True))
        return out


@pytest.mark.parametrize("before", [False, True])
def test_nothing_is_written_where_the_export_says_something_else(
    columns: TableColumns, tmp_path: Path, before: bool
) -> None:
    to = tmp_path / "out"
    if before:
        export_model(predictor_of(columns), ROWS, to, ExportFormat.torch, ABOUT)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ParityError, match=r"differ on .* exported, .* by the model"):
        export_model(predictor_of(columns, Noisy), ROWS, to, ExportFormat.torch, ABOUT)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files
    assert [path.name for path in tmp_path.iterdir()] == ["out"] * before


@pytest.mark.slow
def test_an_export_of_before_is_replaced_and_nothing_else_is(
    classifier: Predictor, columns: TableColumns, tmp_path: Path
) -> None:
    to = tmp_path / "out"
    export_model(predictor_of(columns, nn.Linear), ROWS, to, ExportFormat.torch, ABOUT)
    export_model(classifier, ROWS, to, ExportFormat.onnx, ABOUT)
    assert (to / "model.onnx").exists()
    assert not (to / "model.pt2").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match="something that is no export stands there"):
        export_model(classifier, ROWS, tmp_path / "mine", ExportFormat.onnx, ABOUT)
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "years of work"
    assert {path.name for path in tmp_path.iterdir()} == {"out", "mine"}


def test_a_format_whose_libraries_are_missing_names_its_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ConfigError, match=r"needs onnxscript.*'automl-sweep\[export\]'"):
        EXPORT_FORMATS[ExportFormat.onnx].check()
    monkeypatch.setitem(sys.modules, "torch_tensorrt", None)
    with pytest.raises(ConfigError, match=r"needs torch_tensorrt.*'automl-sweep\[tensorrt\]'"):
        EXPORT_FORMATS[ExportFormat.tensorrt].check()


def test_without_a_compiler_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import config

    monkeypatch.setattr(config.cpp, "cxx", ("no-such-compiler",))
    with pytest.raises(ConfigError, match=r"there is no compiler: install one .*apt install g\+\+"):
        EXPORT_FORMATS[ExportFormat.aoti].check()


def test_one_row_is_enough(tmp_path: Path) -> None:
    predictor = predictor_of(make_divided_columns(1.0, ["a"]))
    assert (
        export_model(predictor, [{"a": 1.0}], tmp_path / "out", ExportFormat.onnx, ABOUT).n_rows
        == 1
    )
