"""The export that is registered: the one that is there, if it is of this model, else a new one."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from automl.commands import export
from automl.commands.models.which_model import ModelChoice, TableModel
from automl.config import Config, ExportFormat
from automl.errors import AutoMLError, ConfigError
from automl.record.studies import study_path
from automl.record.study_files import StudyFiles


@dataclass(frozen=True)
class ServedPackage:
    """An export in ONNX, as it stands on disk."""

    folder: Path
    schema: dict[str, Any]

    @property
    def digest(self) -> str:
        """Of the model's file, in hex."""
        return str(self.schema["digest"])


def refuse_unserved(config: Config) -> None:
    """Raises ConfigError for a format that cannot be served; of the model `export` says it."""
    if config.export.format is not ExportFormat.onnx:
        raise ConfigError(
            f"export.format={config.export.format.value}: a registered model is served by ONNX "
            "Runtime: leave export.format out."
        )


def package_folder(config: Config, model: str) -> Path:
    """Where the export of the model of this name is, or will be."""
    made = StudyFiles(study_path(config.study)).export(model, ExportFormat.onnx.value)
    return Path(config.export.to or made).expanduser()


def find_package(folder: Path, file: Path) -> ServedPackage | None:
    """The export in the folder, if it is whole, and this version made it of the model `file`."""
    try:
        schema = json.loads((folder / "schema.json").read_text("utf-8"))
        as_told = (
            schema["format"] == ExportFormat.onnx.value
            and schema["model_file"]["sha256"] == sha256(file)
            and schema["versions"]["automl"] == metadata.version("automl-sweep")
            and schema["digest"] == sha256(folder / schema["file"])
            and (folder / "reader.py").exists()
            and ("readings" not in schema or (folder / "said.py").exists())
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return ServedPackage(folder, schema) if as_told else None


def make_package(config: Config, model: TableModel, choice: ModelChoice) -> ServedPackage:
    """The export of the model, made where there is none. Raises AutoMLError."""
    folder = package_folder(config, model.name)
    there = find_package(folder, model.file)
    if there is not None:
        return there
    wanted = replace(
        config.export,
        trial=None if choice.trial is None else choice.trial.number,
        model=model.which,
        tune=False,  # the fastest may be of a format that is not served
    )
    export.run(replace(config, export=wanted), "")
    made = find_package(folder, model.file)
    if made is None:
        raise AutoMLError(f"{folder}: has changed while it was looked at: register again.")
    return made


def sha256(file: Path) -> str:
    """Of the content, in hex. Raises OSError."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
