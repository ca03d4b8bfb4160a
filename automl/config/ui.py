"""The MLflow UI."""

from __future__ import annotations

from dataclasses import dataclass

from automl.config.checks import check


@dataclass
class UIConfig:
    """The MLflow UI that `ui` starts, on loopback."""

    port: int = 5000

    def __post_init__(self) -> None:
        check(1 <= self.port <= 65535, "ui.port", self.port, "must be from 1 to 65535.")
