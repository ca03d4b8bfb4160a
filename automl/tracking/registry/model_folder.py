"""Writes the folder of a model as MLflow keeps it: an export, and the few lines that serve it.

The model is made from code (no pickle), with requirements pinned to the versions with which the
export was checked. The signature names the columns and leaves their types open: a missing cell
turns a frame's integers into floats, and MLflow refuses both where the signature says otherwise.
The export's reader knows all types.

It is a file of its own because importing it takes 2 s, which only an upload needs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import mlflow.pyfunc
from mlflow.models import Model, ModelSignature
from mlflow.types import ColSpec, DataType, Schema, TensorSpec
from mlflow.types.schema import AnyType

from automl.tracking.mlflow_loading import mute_mlflow_info
from automl.tracking.registry.model_versions import NewModel

SERVED = Path(__file__).with_name("served.py")
PACKAGE = "package"
"""The name of the export among the artifacts, as in `served.py`."""
REQUIREMENTS = ("mlflow", "numpy", "pandas", "onnxruntime")


def write_model_folder(folder: Path, model: NewModel, model_id: str) -> None:
    """Write `folder`, which must not exist yet. Raise MlflowException or OSError."""
    schema = json.loads((model.package / "schema.json").read_text("utf-8"))
    with mute_mlflow_info():
        mlflow.pyfunc.save_model(
            folder,
            mlflow_model=Model(run_id=model.run.run, model_uuid=model_id, model_id=model_id),
            python_model=str(SERVED),
            artifacts={PACKAGE: str(model.package)},
            signature=model_signature(schema),
            input_example=model.example,
            pip_requirements=[f"{name}=={metadata.version(name)}" for name in REQUIREMENTS],
        )


def model_signature(schema: Mapping[str, Any]) -> ModelSignature:
    """Return the columns that go in and come out, from the export's `schema.json`."""
    classes = schema["classes"]
    kinds = {type(label) for label in classes} or {float}
    kind = _LABEL_TYPES.get(kinds.pop(), ANY) if len(kinds) == 1 else ANY
    inputs: list[ColSpec | TensorSpec] = [
        ColSpec(ANY, name) for name in dict.fromkeys(c["name"] for c in schema["columns"])
    ]
    outputs: list[ColSpec | TensorSpec] = [ColSpec(kind, "prediction")]
    outputs += [ColSpec(DataType.double, f"probability_{label}") for label in classes]
    return ModelSignature(Schema(inputs), Schema(outputs))


ANY = AnyType()  # type: ignore[no-untyped-call]
_LABEL_TYPES = {
    str: DataType.string,
    int: DataType.long,
    float: DataType.double,
    bool: DataType.boolean,
}
