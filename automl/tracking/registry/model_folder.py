"""The folder of a model as MLflow keeps it: an export, and the few lines that serve it.

Made from code (no pickle), with requirements pinned to what the export was shown to be right with.
The signature names the columns and leaves their types open: a missing cell makes integers of a
frame floats, and MLflow refuses both where it was told the other. The reader knows them all.
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
"""As `served.py` calls the export."""
REQUIREMENTS = ("mlflow", "numpy", "pandas", "onnxruntime")


def write_model_folder(to: Path, model: NewModel, model_id: str) -> None:
    """Write the folder `to`, which is not there yet. Raises MlflowException, OSError."""
    schema = json.loads((model.package / "schema.json").read_text("utf-8"))
    with mute_mlflow_info():
        mlflow.pyfunc.save_model(
            to,
            mlflow_model=Model(run_id=model.run.run, model_uuid=model_id, model_id=model_id),
            python_model=str(SERVED),
            artifacts={PACKAGE: str(model.package)},
            signature=signature_of(schema),
            input_example=model.example,
            pip_requirements=[f"{name}=={metadata.version(name)}" for name in REQUIREMENTS],
        )


def signature_of(schema: Mapping[str, Any]) -> ModelSignature:
    """What goes in and comes out, by the export's `schema.json`."""
    classes = schema["classes"]
    kinds = {type(label) for label in classes} or {float}
    kind = _LABELS.get(kinds.pop(), ANY) if len(kinds) == 1 else ANY
    taken: list[ColSpec | TensorSpec] = [
        ColSpec(ANY, name) for name in dict.fromkeys(c["name"] for c in schema["columns"])
    ]
    given: list[ColSpec | TensorSpec] = [ColSpec(kind, "prediction")]
    given += [ColSpec(DataType.double, f"probability_{label}") for label in classes]
    return ModelSignature(Schema(taken), Schema(given))


ANY = AnyType()  # type: ignore[no-untyped-call]
_LABELS = {
    str: DataType.string,
    int: DataType.long,
    float: DataType.double,
    bool: DataType.boolean,
}
