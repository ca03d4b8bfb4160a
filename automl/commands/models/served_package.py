"""The export of a model in ONNX that MLflow serves, for `register` and `release`."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from automl.commands import export
from automl.commands.command_call import CommandCall
from automl.commands.models.which_model import TableModel
from automl.config import Config, ExportFormat
from automl.config.command_arguments import ExportArguments
from automl.errors import AutoMLError
from automl.record.studies import study_path
from automl.record.study_files import StudyFiles
from automl.record.texts import parse_json


@dataclass(frozen=True)
class ServedPackage:
    """An export in ONNX on disk, which MLflow can serve."""

    folder: Path
    schema: dict[str, Any]

    @property
    def digest(self) -> str:
        return str(self.schema["digest"])


def make_package(config: Config, model: TableModel, to: str | None) -> ServedPackage:
    """Return the export of the model in the folder `to` (None: the study's own); it is made if
    there is none. Raises AutoMLError."""
    folder = package_folder(config, model.name, to)
    existing = find_package(folder, model.file)
    if existing is not None:
        return existing
    arguments = ExportArguments(which=model.which.text, to=to)
    export.run(CommandCall(config, arguments=arguments))
    package = find_package(folder, model.file)
    if package is None:
        raise AutoMLError(f"{folder}: has changed while it was looked at: register again.")
    return package


def package_folder(config: Config, model: str, to: str | None) -> Path:
    """Return the folder of the export of the model with this name, which may not exist yet."""
    default_folder = StudyFiles(study_path(config.study)).export(model, ExportFormat.onnx.value)
    return Path(to or default_folder).expanduser()


def find_package(folder: Path, file: Path) -> ServedPackage | None:
    """Return the export in the folder, if it is complete, and this version made it from the model
    `file`."""
    try:
        schema = parse_json((folder / "schema.json").read_text("utf-8"))
        is_valid = (
            schema["format"] == ExportFormat.onnx.value
            and schema["model_file"]["sha256"] == file_sha256(file)
            and schema["versions"]["automl"] == metadata.version("automl-sweep")
            and schema["digest"] == file_sha256(folder / schema["file"])
            and (folder / "reader.py").exists()
            and ("readings" not in schema or (folder / "said.py").exists())
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return ServedPackage(folder, schema) if is_valid else None


def file_sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
