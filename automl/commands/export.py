"""`export`: writes a study's model as files that other programs run, after comparing their scores.

The formats and the comparison are in `automl/export`. With `tune=true`, the fastest way of
running the model becomes the export (`fastest_export.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from automl.commands.command_call import CommandCall
from automl.commands.fastest_export import FastestExport, find_fastest_export
from automl.commands.models.which_model import (
    TableModel,
    choose_model,
    open_model,
    outdated_model_note,
)
from automl.config import Config, ExportFormat
from automl.config.command_arguments import ExportArguments
from automl.config.which_models import parse_which
from automl.errors import AutoMLError, ConfigError
from automl.models.family import Family
from automl.record.studies import read_study, study_path
from automl.record.study_files import StudyFiles
from automl.record.texts import counted
from automl.terminal.console import CommandConsole, open_console
from automl.terminal.machine_output import write_answer
from automl.tracking.long_step import long_step
from automl.trial import CheckpointKind

if TYPE_CHECKING:
    from automl.export.package import ExportResult
    from automl.models.predictor import Predictor


INTERRUPTED = 130
N_ROWS = 1000
"""Number of rows of the study's table that the export and the model are compared on."""


def run(call: CommandCall) -> int:
    """Write the export and print the comparison with the model. Raises AutoMLError."""
    config, arguments = call.config, call.typed_arguments(ExportArguments)
    console, path = open_console(), study_path(config.study)
    choice = choose_model(config, parse_which(arguments.which), "export")

    from automl.data.tables.table_sources import raw_rows

    with long_step(f"loading PyTorch and {choice.file.name}", console.say):
        model = open_model(config, choice)
        predictor = model.predictor
        check_format(config, arguments.format, predictor)
        rows = raw_rows(config.data, N_ROWS)
    with TemporaryDirectory(prefix="automl-export-") as folder:
        fastest = None
        if arguments.tune:
            tolerance = arguments.tolerance
            fastest = find_fastest_export(
                config, predictor, model.name, console, Path(folder), tolerance
            )
        kind = arguments.format if fastest is None else fastest.format
        target_path = arguments.to or StudyFiles(path).export(model.name, kind.value)
        console.say(f"{model.name} of {path.name}: {_way_text(kind, fastest)}, to {target_path}")
        if warning := outdated_model_note(config, model):
            console.say(warning, "yellow")
        with long_step("writing the export and comparing it with the model", console.say):
            result = _write_export(
                predictor, rows, target_path, kind, _model_facts(path, model), fastest
            )
    _say_parity(console, result, fastest, has_labels=bool(predictor.classes))
    text_readers = ("said.py",) if predictor.columns.readings else ()
    beside = [
        "schema.json",
        "reader.py",
        *text_readers,
        *(() if fastest is None else fastest.tuned.beside),
    ]
    console.say(
        f"{result.file} ({result.file.stat().st_size:,} bytes); beside it {', '.join(beside)}"
    )
    write_answer({"study": path.name, "model": model.name, "file": str(result.file)})
    return 0 if fastest is None or not fastest.interrupted else INTERRUPTED


def check_format(config: Config, kind: ExportFormat, predictor: Predictor) -> None:
    """Raise ConfigError for a format that the model does not have; it names the best trial that has
    it."""
    formats = predictor.export_formats
    if kind not in formats:
        reason = f"; {predictor.no_export_reason}" * bool(predictor.no_export_reason)
        listed = ", ".join(known.value for known in formats)
        raise ConfigError(
            f"format={kind.value}: models of this family have "
            f"{f'these: {listed}' if listed else 'none; automl.load reads them'}{reason}."
            f"{_best_trial_with_format(config, kind)}"
        )


def _best_trial_with_format(config: Config, kind: ExportFormat) -> str:
    """Return a sentence that names the best trial with the format, in a study of several
    families."""
    family, path = config.model, study_path(config.study)
    assert isinstance(family, Family), "Hydra makes it by its schema"
    if family.choice is None:
        return ""
    for trial in read_study(path).ranking():
        has_format = kind in family.of_trial(trial.params)[0].export_formats
        if has_format and StudyFiles(path).checkpoint(trial.number, CheckpointKind.BEST).exists():
            number, name = trial.number, trial.params[family.choice]
            return f" The best trial that has it is {number} ({name}): which={number}."
    return ""


def _way_text(kind: ExportFormat, fastest: FastestExport | None) -> str:
    format_text = f"format={kind.value}"
    return format_text if fastest is None else f"{format_text}, chosen: {fastest.label}"


def _write_export(
    predictor: Predictor,
    rows: Sequence[Mapping[str, Any]],
    to: str | Path,
    kind: ExportFormat,
    about: Mapping[str, Any],
    fastest: FastestExport | None,
) -> ExportResult:
    from automl.export.package import export_model

    tuned = None if fastest is None else fastest.tuned
    try:
        return export_model(predictor, rows, Path(to).expanduser(), kind, about, tuned=tuned)
    except OSError as error:
        raise AutoMLError(f"to={to}: cannot be written ({error}).") from error


def _model_facts(path: Path, model: TableModel) -> dict[str, Any]:
    """Return the facts about the model that the export stores; `value` is the trial's by the
    study's metric, and None for an ensemble."""
    trial = read_study(path).trials.get(model.trial)
    return {
        "study": path.name,
        "trial": model.trial,
        "refit": model.refitted is not None,
        "params": dict(model.predictor.params),
        "value": None if trial is None or model.is_ensemble else trial.value,
        "model_file": {
            "name": model.file.name,
            "sha256": hashlib.sha256(model.file.read_bytes()).hexdigest(),
        },
    }


def _say_parity(
    console: CommandConsole,
    result: ExportResult,
    fastest: FastestExport | None,
    *,
    has_labels: bool,
) -> None:
    if fastest is not None and fastest.tuned.accept is not None:
        console.say(
            f"the export rounds: scores of {counted(result.n_rows, 'row')} of the table and "
            f"{result.n_odd} odd ones within {result.largest:.1g}, its loss within the tolerance"
        )
        return
    agreement = f"scores within {result.largest:.1g}" + (", all labels the same" * has_labels)
    console.say(
        f"the export says what the model says: {counted(result.n_rows, 'row')} of the table, "
        f"{result.n_odd} odd ones, alone and 10,000 at once: {agreement}"
    )
