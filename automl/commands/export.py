"""`export`: a study's model as files that other programs run, shown to say what the model says."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from automl.commands.tuning import Fastest, fastest_export
from automl.commands.which_model import TableModel, choose, open_model, outdated
from automl.config import Config, ExportFormat
from automl.errors import AutoMLError, ConfigError
from automl.record.files import StudyFiles
from automl.record.studies import read_study, study_path
from automl.running.console import CommandConsole, open_console
from automl.tracking.long_step import long_step
from automl.training.family import Family
from automl.trial import CheckpointKind

if TYPE_CHECKING:
    from automl.training.export.package import Exported
    from automl.training.predictor import Predictor

INTERRUPTED = 130
N_ROWS = 1000
"""Of the study's table, to compare the export with the model on."""


def run(config: Config, stored_config: str) -> int:
    """Write the export and say what was compared. Raises AutoMLError."""
    console, path = open_console(), study_path(config.study)
    choice = choose(config, "export")

    from automl.data.raw import raw_rows

    with long_step(f"loading PyTorch and {choice.file.name}", console.say):
        model = open_model(config, choice)
        predictor = model.predictor
        _check_format(config, predictor.export_formats)
        rows = raw_rows(config.data, N_ROWS)
    with TemporaryDirectory(prefix="automl-export-") as folder:
        fastest = None
        if config.export.tune:
            fastest = fastest_export(config, predictor, model.name, console, Path(folder))
        kind = config.export.format if fastest is None else fastest.format
        to = config.export.to or StudyFiles(path).export(model.name, kind.value)
        console.say(f"{model.name} of {path.name}: {_way(kind, fastest)}, to {to}")
        if late := outdated(config, model):
            console.say(late, "yellow")
        with long_step("writing the export and comparing it with the model", console.say):
            done = _written(predictor, rows, to, kind, _about(path, model), fastest)
    _say_parity(console, done, fastest, has_labels=bool(predictor.classes))
    said = ("said.py",) if predictor.columns.readings else ()
    beside = ["schema.json", "reader.py", *said, *(() if fastest is None else fastest.tuned.beside)]
    console.say(f"{done.file} ({done.file.stat().st_size:,} bytes); beside it {', '.join(beside)}")
    return 0 if fastest is None or not fastest.interrupted else INTERRUPTED


def _way(kind: ExportFormat, fastest: Fastest | None) -> str:
    said = f"export.format={kind.value}"
    return said if fastest is None else f"{said}, chosen: {fastest.label}"


def _written(
    predictor: Predictor,
    rows: Sequence[Mapping[str, Any]],
    to: str | Path,
    kind: ExportFormat,
    about: Mapping[str, Any],
    fastest: Fastest | None,
) -> Exported:
    from automl.training.export.package import export

    tuned = None if fastest is None else fastest.tuned
    try:
        return export(predictor, rows, Path(to).expanduser(), kind, about, tuned=tuned)
    except OSError as error:
        raise AutoMLError(f"export.to={to}: cannot be written ({error}).") from error


def _say_parity(
    console: CommandConsole, done: Exported, fastest: Fastest | None, *, has_labels: bool
) -> None:
    if fastest is not None and fastest.tuned.accept is not None:
        console.say(
            f"the export rounds: scores of {done.n_rows:,} rows of the table and {done.n_odd} odd "
            f"ones within {done.largest:.1g}, its loss within export.tolerance"
        )
        return
    same = f"scores within {done.largest:.1g}" + (", all labels the same" * has_labels)
    console.say(
        f"the export says what the model says: {done.n_rows:,} rows of the table, {done.n_odd} odd "
        f"ones, alone and 10,000 at once: {same}"
    )


def _check_format(config: Config, formats: Sequence[ExportFormat]) -> None:
    """Raises ConfigError for one that the model does not have, which names the best trial that
    has it."""
    kind = config.export.format
    if kind not in formats:
        listed = ", ".join(known.value for known in formats)
        raise ConfigError(
            f"export.format={kind.value}: models of this family have "
            f"{f'these: {listed}' if listed else 'none; automl.load reads them'}."
            f"{_which_has(config)}"
        )


def _which_has(config: Config) -> str:
    """Of a study of several families: what to name instead."""
    family, path = config.model, study_path(config.study)
    assert isinstance(family, Family), "Hydra makes it by its schema"
    if family.choice is None:
        return ""
    for trial in read_study(path).ranking():
        has = config.export.format in family.of(trial.params)[0].export_formats
        if has and StudyFiles(path).checkpoint(trial.number, CheckpointKind.BEST).exists():
            number, name = trial.number, trial.params[family.choice]
            return f" The best trial that has it is {number} ({name}): export.trial={number}."
    return ""


def _about(path: Path, model: TableModel) -> dict[str, Any]:
    """Which model it is; `value` is the trial's by the study's metric, and none of an ensemble."""
    trial = read_study(path).trials.get(model.trial)
    return {
        "study": path.name,
        "trial": model.trial,
        "refit": model.refitted is not None,
        "params": dict(model.predictor.params),
        "value": None if trial is None or model.joined else trial.value,
        "model_file": {
            "name": model.file.name,
            "sha256": hashlib.sha256(model.file.read_bytes()).hexdigest(),
        },
    }
