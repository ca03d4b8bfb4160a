"""`export`: a study's model as files that other programs run, shown to say what the model says."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from automl.commands.which_model import TableModel, choose, family_of, open_model, outdated
from automl.config import Config
from automl.errors import AutoMLError, ConfigError
from automl.record.files import StudyFiles
from automl.record.studies import read_study, study_path
from automl.running.console import open_console

N_ROWS = 1000
"""Of the study's table, to compare the export with the model on."""


def run(config: Config, stored_config: str) -> int:
    """Write the export and say what was compared. Raises AutoMLError."""
    console, path, kind = open_console(), study_path(config.study), config.export.format
    _check_format(config)
    choice = choose(config, "export")

    from automl.data.raw import raw_rows
    from automl.training.export.package import export

    model = open_model(config, choice)
    predictor = model.predictor
    to = Path(config.export.to or StudyFiles(path).export(model.name, kind.value)).expanduser()
    rows = raw_rows(config.data, N_ROWS)
    console.say(f"{model.name} of {path.name}: export.format={kind.value}, to {to}")
    if late := outdated(config, model):
        console.say(late, "yellow")
    try:
        done = export(predictor, rows, to, kind, _about(path, model))
    except OSError as error:
        raise AutoMLError(f"export.to={to}: cannot be written ({error}).") from error
    same = f"scores within {done.largest:.1g}" + (", all labels the same" * bool(predictor.classes))
    console.say(
        f"the export says what the model says: {done.n_rows:,} rows of the table, {done.n_odd} odd "
        f"ones, alone and 10,000 at once: {same}"
    )
    console.say(
        f"{done.file} ({done.file.stat().st_size:,} bytes); beside it schema.json, reader.py"
    )
    return 0


def _check_format(config: Config) -> None:
    """Raises ConfigError for one that the family of models does not have."""
    formats = family_of(config).export_formats
    if config.export.format not in formats:
        listed = ", ".join(known.value for known in formats)
        raise ConfigError(
            f"export.format={config.export.format.value}: models of this family have "
            f"{f'these: {listed}' if listed else 'none; automl.load reads them'}."
        )


def _about(path: Path, model: TableModel) -> dict[str, Any]:
    """Which model it is; `value` is the trial's by the study's metric."""
    trial = read_study(path).trials.get(model.trial)
    return {
        "study": path.name,
        "trial": model.trial,
        "refit": model.refitted is not None,
        "params": dict(model.predictor.params),
        "value": None if trial is None else trial.value,
        "model_file": {
            "name": model.file.name,
            "sha256": hashlib.sha256(model.file.read_bytes()).hexdigest(),
        },
    }
