"""An export: a folder with the model's file, `schema.json` and `reader.py`, put in place whole, and
only once its reader has said of rows what the model says of them.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from automl.config import ExportFormat
from automl.data import text_values
from automl.data.cells import MISSING
from automl.data.columns import CategoryColumn, TableColumns, TextReading, source_of
from automl.data.tables.table_sources import frame_of_rows
from automl.errors import ConfigError
from automl.export import reader
from automl.export.formats import EXPORT_FORMATS, ExportFormatSpec
from automl.export.network_graph import (
    graph_inputs,
    is_network_predictor,
    make_scoring_module,
    weighted_models,
)
from automl.export.parity import (
    ParityError,
    ParityResult,
    ScoreArray,
    border_rows,
    compare_scores,
    odd_rows,
    score_differences,
)
from automl.export.tracing import trace_module
from automl.models.families.tree_arrays import NO_BORDERS, BorderedModel, Borders
from automl.models.predictor import Predictor
from automl.record.disk import make_folder, replacing_folder

EXPORT_LAYOUT = "automl-export-1"
"""Stands in `schema.json`; a change of what it means is a new number."""
SCHEMA_FILE, READER = "schema.json", "reader.py"
SAID = "said.py"
"""Where columns hold dates, or numbers in texts: the reader reads them by it."""
N_AT_ONCE = 10_000


@dataclass(frozen=True)
class TunedExportFile:
    """What was found to be the fastest, in place of what a format writes."""

    file: Path
    threads: int
    """Of ONNX Runtime."""
    accept: Callable[[Any], None] | None
    """Of a way that rounds: raises ParityError where its scores are not good enough; None: they
    must be the model's."""
    beside: Mapping[str, bytes]
    """More files of the export."""


@dataclass(frozen=True)
class ExportResult:
    """What was written, after what was seen."""

    file: Path
    n_rows: int
    """Rows of the table that were compared, and odd ones:"""
    n_odd: int
    largest: float
    """The largest difference of a score, in units of the target's deviation for a value."""


def export_model(
    predictor: Predictor,
    rows: Sequence[Mapping[str, Any]],
    to: Path,
    kind: ExportFormat,
    about: Mapping[str, Any],
    *,
    tuned: TunedExportFile | None = None,
) -> ExportResult:
    """Write the model to the folder `to`; `rows` are real ones, `about` stands in `schema.json`.
    `tuned` is a file of the format that was made and measured already.

    Raises ConfigError where that cannot be done here or with this network, or `to` is something
    else, ParityError, and OSError.
    """
    _refuse_what_is_no_export(to)
    form = EXPORT_FORMATS[kind]
    form.writer()  # what is missing is said before anything is computed
    columns = predictor.columns
    _refuse_texts(columns)
    proof = ExportProof.of(predictor, rows)
    make_folder(to.parent)
    with replacing_folder(to) as folder:
        if tuned is None:
            example = {name: array[[0, -1]] for name, array in proof.arrays.items()}
            _write(predictor, kind, example, folder / form.file)
        else:
            _put(tuned, folder, form)
        schema = {
            "layout": EXPORT_LAYOUT,
            "format": kind.value,
            "file": form.file,
            "digest": _sha256(folder / form.file),
            **_answers(predictor, columns),
            **_origin(form),
            **({} if tuned is None else {"threads": tuned.threads}),
            **about,
        }
        text = json.dumps(schema, indent=1, ensure_ascii=False, allow_nan=False)
        folder.joinpath(SCHEMA_FILE).write_text(text, "utf-8")
        folder.joinpath(READER).write_bytes(Path(str(reader.__file__)).read_bytes())
        if columns.readings:
            folder.joinpath(SAID).write_bytes(Path(str(text_values.__file__)).read_bytes())
        model = open_export_reader(folder)
        if tuned is None or tuned.accept is None:
            largest = proof.check(model).largest
        else:
            tuned.accept(model.scores)
            largest = proof.largest_difference(model)
            if not np.isfinite(largest):
                raise ParityError("The export gives no number for some row: nothing was written.")
    return ExportResult(to / form.file, len(rows), len(proof.names) - len(rows), largest)


def _write(
    predictor: Predictor, kind: ExportFormat, example: Mapping[str, Any], file: Path
) -> None:
    if is_network_predictor(predictor):
        EXPORT_FORMATS[kind].writer().write(
            trace_module(make_scoring_module(predictor), example), example, file
        )
        return
    assert kind is ExportFormat.onnx, "its families have no other"
    from automl.export import table_file  # it needs onnx

    table_file.write(predictor, example, file)


def _put(tuned: TunedExportFile, folder: Path, form: ExportFormatSpec) -> None:
    shutil.copyfile(tuned.file, folder / form.file)
    for name, content in tuned.beside.items():
        (folder / name).write_bytes(content)


@dataclass(frozen=True)
class ExportProof:
    """Rows, and what the model says of them."""

    rows: Sequence[Mapping[str, Any]]
    names: Sequence[str]
    """Of the rows, for people."""
    arrays: Mapping[str, Any]
    """The same as the graph takes them."""
    scores: ScoreArray
    unit: tuple[float, float]
    threshold: float | None
    """From which on the second of two classes is told; None: the one of the highest score."""

    @classmethod
    def of(cls, predictor: Predictor, rows: Sequence[Mapping[str, Any]]) -> ExportProof:
        """Of real rows, and of odd ones made of the first of them. Raises ConfigError for rows
        without a column that the model learned from."""
        columns = predictor.columns
        predictor.read(frame_of_rows(rows))
        odd = [*odd_rows(columns, rows[0]), *border_rows(columns, rows, _borders(predictor))]
        names = [f"row {i + 1} of those tried" for i in range(len(rows))] + [n for n, _ in odd]
        together = [*rows, *(row for _, row in odd)]
        frame = frame_of_rows(together)
        arrays = graph_inputs(columns, predictor.read(frame))
        said = predictor.predict_probabilities if predictor.classes else predictor.predict
        return cls(together, names, arrays, said(frame), predictor.unit, predictor.threshold)

    def check(self, model: Any) -> ParityResult:
        """Compare with a reader's model: all at once, one, ten thousand, and dict by dict. Raises
        ParityError."""
        many = np.resize(np.arange(len(self.names)), N_AT_ONCE)
        seen = [
            self._compare(model.scores, np.arange(len(self.names))),
            self._compare(model.scores, np.array([0])),
            self._compare(model.scores, many),
        ]
        one_by_one = np.stack([model.scores(**model.arrays(row))[0] for row in self.rows])
        seen.append(compare_scores(self.scores, one_by_one, self.names, self.unit, self.threshold))
        return max(seen, key=lambda parity: parity.largest)

    def largest_difference(self, model: Any) -> float:
        """Of a score, all rows at once, where it may be of any size."""
        theirs = np.asarray(model.scores(**self.arrays))
        return float(score_differences(self.scores, theirs, self.unit).max())

    def _compare(self, scores: Callable[..., Any], places: Any) -> ParityResult:
        arrays = {name: array[places] for name, array in self.arrays.items()}
        names = [self.names[place] for place in places]
        theirs = np.asarray(scores(**arrays))
        return compare_scores(self.scores[places], theirs, names, self.unit, self.threshold)


def _borders(predictor: Predictor) -> Borders:
    """Of all members that have any."""
    models = [model for model, _ in weighted_models(predictor)]
    found = [NO_BORDERS, *(model.borders() for model in models if isinstance(model, BorderedModel))]
    columns, thresholds = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    return columns, thresholds


def open_export_reader(folder: Path) -> Any:
    """The `Model` of the export in `folder`, by the reader that lies there."""
    path = folder / READER
    names = {"__name__": "reader", "__file__": str(path)}  # imported, it would leave its bytecode
    exec(compile(path.read_bytes(), str(path), "exec"), names)
    model: Callable[[Path], Any] = names["Model"]  # type: ignore[assignment]
    return model(folder)


def _answers(predictor: Predictor, columns: TableColumns) -> dict[str, Any]:
    """What goes in and what comes out."""
    return {
        "task": predictor.task.value,
        "classes": list(predictor.classes),
        **({} if predictor.threshold is None else {"threshold": predictor.threshold}),
        "columns": [
            {
                "name": c.name,
                "categories": list(c.categories),
                **({"verbatim": True} if c.verbatim else {}),
            }
            if isinstance(c, CategoryColumn)
            else {"name": source_of(c), **({"part": c.part} if c.made_of else {})}
            for c in columns.all
        ],
        **({"readings": {r.name: r.plain() for r in columns.readings}} if columns.readings else {}),
        "missing": sorted(MISSING),
    }


def _refuse_texts(columns: TableColumns) -> None:
    """Raises ConfigError where words would have to be in the graph."""
    texts = [reading.name for reading in columns.readings if isinstance(reading, TextReading)]
    if texts:
        drops = " ".join(f"data.columns.{name}=drop" for name in texts)
        raise ConfigError(
            f"The model reads texts ({', '.join(texts)}), which no graph does: export a model of a "
            f"new study without them ({drops}), or use automl.load(path).predict(rows)."
        )


def _origin(form: ExportFormatSpec) -> dict[str, Any]:
    """Where and with what it was made, and what of that must be so where it runs."""
    libraries = {name: metadata.version(name) for name in (*form.libraries, "numpy")}
    always = dict.fromkeys(("system", "machine", "cpu_features", *form.bound_to))
    return {
        "versions": {
            "automl": metadata.version("automl-sweep"),
            "python": platform.python_version(),
            **libraries,
        },
        "machine": reader.machine_properties(always),
        "bound_to": list(form.bound_to),
    }


def _refuse_what_is_no_export(to: Path) -> None:
    """Raises ConfigError unless the folder may be replaced."""
    if not to.exists() or (to.is_dir() and not any(to.iterdir())):
        return
    try:
        is_ours = json.loads((to / SCHEMA_FILE).read_text("utf-8"))["layout"].startswith(
            "automl-export"
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        is_ours = False
    if not is_ours or to.is_symlink():
        raise ConfigError(
            f"export.to={to}: something that is no export stands there, and is not replaced: name "
            "a folder that is empty, or not there yet."
        )


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
