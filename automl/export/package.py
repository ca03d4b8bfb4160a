"""Writes an export: a folder with the model's file, `schema.json` and `reader.py`.

The folder is put in place as a whole, and only after its reader has returned the model's scores for
real and odd rows. The formats themselves are in `formats.py`.
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
from automl.data.cells import MISSING_TEXTS
from automl.data.columns import CategoryColumn, TableColumns, source_column
from automl.data.combined_columns import side_places
from automl.data.scoring.metrics import Threshold
from automl.data.tables.table_sources import frame_from_rows
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
from automl.record.disk import make_folder, replace_folder
from automl.record.texts import parse_json

EXPORT_LAYOUT = "automl-export-1"
"""The version of `schema.json`, which names it; a change of the schema's meaning raises it."""
SCHEMA_FILE, READER = "schema.json", "reader.py"
TEXT_VALUES_FILE = "said.py"
"""The file with which the reader reads dates, numbers in texts, and words, if columns hold any."""
N_AT_ONCE = 10_000


@dataclass(frozen=True)
class TunedFile:
    """The file of the fastest way of running a model, which replaces the file of a format."""

    file: Path
    threads: int
    """The threads of ONNX Runtime."""
    accept: Callable[[Any], None] | None
    """Raises ParityError if the scores of a way that rounds are not good enough. None demands the
    model's own scores."""
    beside: Mapping[str, bytes]
    """More files of the export, by name."""


@dataclass(frozen=True)
class ExportResult:
    """The file of a finished export, and the rows on which it was compared."""

    file: Path
    n_rows: int
    """The number of compared rows of the table."""
    n_odd: int
    """The number of compared odd rows."""
    largest: float
    """The largest difference of a score, in units of the target's deviation for a value."""


def export_model(
    predictor: Predictor,
    rows: Sequence[Mapping[str, Any]],
    to: Path,
    kind: ExportFormat,
    about: Mapping[str, Any],
    *,
    tuned: TunedFile | None = None,
) -> ExportResult:
    """Write the model to the folder `to`, and return the result of its comparison.

    `rows` are real rows, `about` is added to `schema.json`, and `tuned` is a file of the format
    that was made and measured already. Raises ConfigError if the format cannot be written here or
    for this network, or if `to` is no export; ParityError; and OSError.
    """
    _refuse_other_content(to)
    form = EXPORT_FORMATS[kind]
    form.check()  # reports missing libraries before anything is computed
    columns = predictor.columns
    proof = ExportProof.of(predictor, rows)
    make_folder(to.parent)
    with replace_folder(to) as folder:
        if tuned is None:
            example = {name: array[[0, -1]] for name, array in proof.arrays.items()}
            _write(predictor, kind, example, folder / form.file)
        else:
            _copy_tuned(tuned, folder, form)
        schema = {
            "layout": EXPORT_LAYOUT,
            "format": kind.value,
            "file": form.file,
            "digest": _sha256(folder / form.file),
            **_describe_inputs_and_answers(predictor, columns),
            **_origin(form),
            **({} if tuned is None else {"threads": tuned.threads}),
            **about,
        }
        text = json.dumps(schema, indent=1, ensure_ascii=False, allow_nan=False)
        folder.joinpath(SCHEMA_FILE).write_text(text, "utf-8")
        folder.joinpath(READER).write_bytes(Path(str(reader.__file__)).read_bytes())
        if columns.readings:
            folder.joinpath(TEXT_VALUES_FILE).write_bytes(
                Path(str(text_values.__file__)).read_bytes()
            )
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
        program = trace_module(make_scoring_module(predictor), example)
        EXPORT_FORMATS[kind].write(program, example, file)
        return
    assert kind is ExportFormat.onnx, "other families export to ONNX only"
    from automl.export import table_file  # imports onnx, which may be missing

    table_file.write(predictor, example, file)


def _copy_tuned(tuned: TunedFile, folder: Path, form: ExportFormatSpec) -> None:
    shutil.copyfile(tuned.file, folder / form.file)
    for name, content in tuned.beside.items():
        (folder / name).write_bytes(content)


@dataclass(frozen=True)
class ExportProof:
    """Real and odd rows with the model's scores, to compare an export with."""

    rows: Sequence[Mapping[str, Any]]
    names: Sequence[str]
    """The names of the rows, for people."""
    arrays: Mapping[str, Any]
    """The rows as inputs of the graph."""
    scores: ScoreArray
    unit: tuple[float, float]
    """The mean and the scale of the target."""
    threshold: Threshold | None
    """What decides the labels; None takes the class of the highest score."""

    @classmethod
    def of(cls, predictor: Predictor, rows: Sequence[Mapping[str, Any]]) -> ExportProof:
        """Return a proof with real rows, and with odd rows made from the first of them.

        Raises ConfigError for rows without a column that the model learned from.
        """
        columns = predictor.columns
        predictor.read_cells(frame_from_rows(rows))
        odd = [*odd_rows(columns, rows[0]), *border_rows(columns, rows, _borders(predictor))]
        names = [f"row {i + 1} of those tried" for i in range(len(rows))] + [n for n, _ in odd]
        together = [*rows, *(row for _, row in odd)]
        encoded, _ = predictor.read_cells(frame_from_rows(together))
        arrays, scores = graph_inputs(columns, encoded), predictor.scores(encoded)
        return cls(together, names, arrays, scores, predictor.unit, predictor.threshold)

    def check(self, model: Any) -> ParityResult:
        """Compare with a reader's model: all rows at once, one, ten thousand, and dict by dict.

        Raises ParityError.
        """
        many = np.resize(np.arange(len(self.names)), N_AT_ONCE)
        results = [
            self._compare(model.scores, np.arange(len(self.names))),
            self._compare(model.scores, np.array([0])),
            self._compare(model.scores, many),
        ]
        one_by_one = np.stack([model.scores(**model.arrays(row))[0] for row in self.rows])
        results.append(
            compare_scores(self.scores, one_by_one, self.names, self.unit, self.threshold)
        )
        return max(results, key=lambda parity: parity.largest)

    def largest_difference(self, model: Any) -> float:
        """Return the largest difference of a score, all rows at once, however large it is."""
        theirs = np.asarray(model.scores(**self.arrays))
        return float(score_differences(self.scores, theirs, self.unit).max())

    def _compare(self, scores: Callable[..., Any], places: Any) -> ParityResult:
        arrays = {name: array[places] for name, array in self.arrays.items()}
        names = [self.names[place] for place in places]
        theirs = np.asarray(scores(**arrays))
        return compare_scores(self.scores[places], theirs, names, self.unit, self.threshold)


def _borders(predictor: Predictor) -> Borders:
    """Return the thresholds of all members that have any."""
    models = [model for model, *_ in weighted_models(predictor)]
    borders = [model.borders() for model in models if isinstance(model, BorderedModel)]
    columns, thresholds = (
        np.concatenate(arrays) for arrays in zip(NO_BORDERS, *borders, strict=True)
    )
    return columns, thresholds


def open_export_reader(folder: Path) -> Any:
    """Return the `Model` of the export in `folder`, by the reader in the folder."""
    path = folder / READER
    names = {"__name__": "reader", "__file__": str(path)}  # an import would leave its bytecode
    exec(compile(path.read_bytes(), str(path), "exec"), names)
    model: Callable[[Path], Any] = names["Model"]  # type: ignore[assignment]
    return model(folder)


def _describe_inputs_and_answers(predictor: Predictor, columns: TableColumns) -> dict[str, Any]:
    """Return the entries of `schema.json` about the model's inputs and answers."""
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
            else {"name": source_column(c), **({"part": c.part} if c.made_of else {})}
            for c in columns.own.all
        ],
        **({"readings": {r.name: r.plain() for r in columns.readings}} if columns.readings else {}),
        **({"combined": _describe_pairs(columns)} if columns.pairs else {}),
        "missing": sorted(MISSING_TEXTS),
    }


def _describe_pairs(columns: TableColumns) -> list[dict[str, Any]]:
    """Return how each combined column follows from two inputs, named by their places."""
    made = columns.all[len(columns.own.all) :]
    return [
        {
            "name": pair.name,
            "operation": pair.operation,
            "places": list(side_places(columns, pair)),
            **({"categories": list(c.categories)} if isinstance(c, CategoryColumn) else {}),
        }
        for c, pair in zip(made, columns.pairs, strict=True)
    ]


def _origin(form: ExportFormatSpec) -> dict[str, Any]:
    """Return the entries of `schema.json` about versions, this machine, and what must be equal."""
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


def _refuse_other_content(to: Path) -> None:
    """Raise ConfigError unless the folder is missing, empty or an export, and may be replaced."""
    is_link = to.is_symlink()
    if not is_link and (not to.exists() or (to.is_dir() and not any(to.iterdir()))):
        return
    try:
        is_ours = parse_json((to / SCHEMA_FILE).read_text("utf-8"))["layout"].startswith(
            "automl-export"
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        is_ours = False
    if not is_ours or is_link:
        raise ConfigError(
            f"to={to}: something that is no export stands there, and is not replaced: name "
            "a folder that is empty, or not there yet."
        )


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
