"""The option of `model` that stands in while a config is composed, where nobody chose one."""

from __future__ import annotations

from dataclasses import dataclass

from automl.training.mlp.family import MLPFamily

DEFAULT_MODEL = "default"
"""The option that the table of contents names."""


@dataclass
class DefaultModel(MLPFamily):
    """Its schema, with the keys of what most data get."""


def model_of(data: str, objective: str) -> str:
    """The option that takes its place, by the kinds of the others."""
    return "auto" if objective == "builtin" and data == "csv" else "mlp"
